"""Which problems a report times: every operator and variant, sizes chosen from the device's caches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from .._repr import values_of
from ..errors import Error
from ..machine import Machine, cache_capacity
from ..operators import OPERATORS, Attention, AttentionBackward, BiasRelu, Ffn, LayerNorm, Matmul, Operator, Relu, RmsNorm, Softmax
from ..prediction import default_variant, predict_problem
from ..probes import PROBES
from ..probes.draws import in_dtype
from ..probes.levels import last_cache
from ..units import KIB, MIB

MOST_PREDICTED_S = 0.1  # of a launch; the model's time is a lower bound that slow variants miss by a factor of three and more
LAUNCH_SHARE = 6e-4  # of a report's time limit: 33 ms of 55 s
LEAST_ON_GPUS_S = 2e-4  # least time of a launch with cold operands: in shorter ones the latency of a launch counts most
GROWN_FIRST = ("batch", "tokens", "rows", "elements", "seq_q")
MOST_GROWN_BYTES = 2048 * MIB
HALVED_FIRST = ("seq_q", "rows", "elements", "batch", "tokens", "vocabulary", "d_ff", "seq_kv")
MAIN_DTYPES = ("fp32", "bf16")
MAIN = ("attention", "decode", "ffn", "matmul", "rms_norm")  # of each one point comes before any has two
BY_ROWS = (Softmax, RmsNorm, LayerNorm, BiasRelu)
# Measured as ceilings, and no points of their own; a matrix product is both.
CEILINGS = {probe.operator for probe in PROBES} - {"", "matmul", "all_gather"} | {"mixed_intensity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One problem of a report, the variant that runs it, and where its operands lie ("cold", "warm"). first: one of those that no
    report should lack.
    """

    problem: Operator
    variant: str
    cache_state: str
    first: bool = field(default=False, compare=False)

    def described(self) -> dict[str, Any]:
        """JSON form: operator, variant, problem, cache_state."""
        return {"operator": self.problem.name, **values_of(self, "variant problem cache_state")}


def _last_cache(facts: Mapping[str, Any]) -> int:
    return last_cache(facts) or 32 * MIB


def _far(facts: Mapping[str, Any]) -> int:
    """Bytes of one operand that comes from memory: 32 MiB where caches are flushed, else four times the last cache, 64 to 512 MiB.

    At twice the cache a good part of it is still there in the next launch, where results are stored past the caches.
    """
    memory = int(facts.get("memory_bytes") or 2**33)
    wanted = 32 * MIB if facts.get("flush") else min(max(4 * _last_cache(facts), 64 * MIB), 512 * MIB)
    return min(wanted, max(memory // 24, MIB))


def _near(facts: Mapping[str, Any]) -> int:
    """Bytes of one operand such that two of them stay in the second level of all threads together."""
    return max(cache_capacity(facts, "L2") // 4, 64 * KIB)


def _held(problem: Operator, facts: Mapping[str, Any]) -> Operator:
    """The problem with fewer experts, a smaller vocabulary or model, so that its tensors are few times what comes from memory."""
    leasts = {"experts": getattr(problem, "experts_per_token", 1), "vocabulary": 1, "d_ff": 512, "d_model": 512}
    for name, least in leasts.items():
        while problem.footprint_bytes() > 2 * _far(facts) and (fewer := getattr(problem, name, 0) // 2) >= least:
            problem = problem.replace(**{name: fewer})
    return problem


def _updating(problem: Operator, facts: Mapping[str, Any]) -> Operator:
    """The problem with so many tokens that most of what it updates in place is written back to memory while it runs."""
    most = min(4 * _last_cache(facts), 8 * _far(facts))
    while 0 < sum(t.size_bytes for t in problem.tensors() if t.role == "in_out") <= most // 2 and "seq_q" in problem.field_names():
        problem = problem.replace(seq_q=2 * problem.seq_q)  # type: ignore[attr-defined]
    return problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """Sizes of a report's prefill, decode, FFN and products."""

    prefill_batch: int = 1
    seq: int = 2048
    decode_batch: int = 1
    tokens: int = 256
    model: tuple[int, int] = (1024, 4096)  # d_model, d_ff
    square: int = 1024
    one_row: int = 4096


ON_CPUS = Usual()
ON_GPUS = Usual(prefill_batch=8, seq=4096, decode_batch=8, tokens=4096, model=(4096, 8192), square=4096, one_row=16384)


def _usual(facts: Mapping[str, Any]) -> Usual:
    return ON_GPUS if "sms" in facts else ON_CPUS


def _headline(facts: Mapping[str, Any], dtype: str) -> Iterator[tuple[Operator, bool]]:
    """What a reader looks for first: prefill, decode, FFN and products of one row and of many; whether by every variant."""
    usual = _usual(facts)
    for causal in (True, False):
        for head_dim in (64, 128):
            prefill = Attention(
                batch=usual.prefill_batch, seq_q=usual.seq, seq_kv=usual.seq, head_dim=head_dim, causal=causal, dtype=dtype
            )
            yield prefill, causal and dtype == MAIN_DTYPES[0]
    keys = max(_far(facts) // (2 * 8 * 128 * (4 if dtype == "fp32" else 2)), 1024)  # that come from memory, with their values
    yield Attention(batch=usual.decode_batch, seq_q=1, seq_kv=keys, head_dim=128, dtype=dtype), False
    d_model, d_ff = usual.model
    for tokens in (usual.tokens, 1):
        yield Ffn(batch=1, seq_q=tokens, d_model=d_model, d_ff=d_ff, activation="gelu", dtype=dtype), False
    for rows, edge in ((usual.square, usual.square), (1, usual.one_row)):
        yield Matmul(rows=rows, columns=edge, inner=edge, dtype=dtype), False


def _ffn(facts: Mapping[str, Any]) -> Iterable[tuple[Operator, str]]:
    usual = _usual(facts)
    d_model, d_ff = usual.model
    for activation in ("relu", "swiglu"):
        yield Ffn(batch=4, seq_q=usual.tokens // 4, d_model=d_model, d_ff=d_ff, activation=activation), "cold"
        yield Ffn(batch=1, seq_q=1, d_model=d_model, d_ff=d_ff, activation=activation), "cold"


def _rows(operator: Any, facts: Mapping[str, Any]) -> Iterable[tuple[Operator, str]]:
    for size, columns, state in ((_far(facts), 4096, "cold"), (_near(facts), 1024, "warm")):
        yield operator(rows=max(size // (4 * columns), 1), columns=columns), state


def _other_dtypes(pairs: list[tuple[Operator, str]], dtypes: Iterable[str]) -> list[tuple[Operator, str]]:
    """The same problems in the other dtypes that the variant has on this backend."""
    present = {problem.to_dict()["dtype"] for problem, _ in pairs}
    # Two of each, and one of decode: further dtypes move along the same roofs.
    few = pairs[:2] + [pair for pair in pairs[2:] if getattr(pair[0], "seq_q", 0) == 1 and isinstance(pair[0], Attention)][:1]
    return [(in_dtype(problem, dtype), state) for dtype in dtypes if dtype not in present for problem, state in few]


LARGEST = 1024 * MIB  # all tensors of the largest problems of a thorough report


def _sizes(facts: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Bytes of one operand of two, from L1 to 1 GiB in all."""
    last = cache_capacity(facts, "L3") or cache_capacity(facts, "L2")
    largest = min(LARGEST, int(facts.get("memory_bytes") or 2**33) // 4) // 2
    return [(max(cache_capacity(facts, "L1") // 4, 8 * KIB), "warm"), (max(last // 8, 64 * KIB), "warm"), (largest, "cold")]


def _more(facts: Mapping[str, Any]) -> dict[str, list[tuple[Operator, str]]]:
    """What a thorough report times beyond the default one: from L1-resident to 1 GiB, awkward and grouped shapes, few rows."""
    attention: list[tuple[Operator, str]] = [
        (Attention(seq_q=64, seq_kv=64, heads=2), "warm"),
        (Attention(seq_q=128, seq_kv=128, head_dim=128), "warm"),
        (Attention(seq_q=1000, seq_kv=1000, heads=4), "cold"),
        (Attention(seq_q=512, seq_kv=2048, heads=8, kv_heads=2, head_dim=128), "cold"),
        (Attention(seq_q=4096, seq_kv=4096, heads=2, causal=True), "cold"),
        (Attention(seq_q=1, seq_kv=512), "warm"),
        (Attention(batch=8, seq_q=1, seq_kv=4096, heads=32, kv_heads=8, head_dim=128), "cold"),
    ]
    shapes = [
        (64, 64, 64, "warm"), (256, 256, 256, "warm"), (1000, 1000, 1000, "cold"), (2048, 2048, 2048, "cold"),
        (8, 4096, 4096, "cold"), (64, 4096, 1024, "cold"), (4096, 64, 1024, "cold"),
    ]  # fmt: skip
    matmul: list[tuple[Operator, str]] = [(Matmul(rows=m, columns=n, inner=k, dtype="fp32"), state) for m, n, k, state in shapes]
    for dtype in ("fp64", "bf16", "int8"):
        matmul += [(Matmul(rows=m, columns=n, inner=k, dtype=dtype), state) for m, n, k, state in (shapes[1], shapes[3], shapes[4])]
    ffn: list[tuple[Operator, str]] = [
        (Ffn(batch=1, seq_q=16, d_model=256, d_ff=1024, activation="gelu"), "warm"),
        (Ffn(batch=8, seq_q=128, activation="swiglu"), "cold"),
        (Ffn(batch=1, seq_q=8, d_model=4096, d_ff=14336, activation="swiglu"), "cold"),
    ]
    found = {"attention": attention, "matmul": matmul, "ffn": ffn}
    far = _far(facts)
    for operator in BY_ROWS:
        shaped = [(size, 1024, state) for size, state in _sizes(facts)] + [(far, 256, "cold"), (far, 16384, "cold")]
        found[operator.name] = [
            (operator(rows=max(size // (4 * columns), 1), columns=columns), state) for size, columns, state in shaped
        ]
    found["relu"] = [(Relu(elements=size // 4), state) for size, state in _sizes(facts)]
    return found


def grown(problem: Operator, machine: Machine) -> Operator:
    """The problem with its first dimension doubled until a launch on a GPU takes LEAST_ON_GPUS_S."""
    name = next((name for name in GROWN_FIRST if name in problem.field_names()), None)
    try:
        while name and predict_problem(machine, problem).time_s < LEAST_ON_GPUS_S:
            larger = problem.replace(**{name: 2 * getattr(problem, name)})
            if larger.footprint_bytes() > MOST_GROWN_BYTES:
                break
            problem = larger
    except Error:  # roofs were left out for lack of time
        pass
    return problem


def limited(problem: Operator, variant: str, machine: Machine, most_s: float = MOST_PREDICTED_S) -> Operator:
    """The problem, with its first large dimension (of a prefill both) halved until its expected time is short enough."""
    made = problem
    while True:
        try:
            predicted_s = predict_problem(machine, made, variant=variant).time_s
        except Error:  # a machine whose roofs were left out for lack of time says nothing about launches
            return made
        halved = next((name for name in HALVED_FIRST if name in made.field_names() and getattr(made, name) > 1), None)
        if predicted_s <= most_s or halved is None:
            return made
        square = halved == "seq_q" and getattr(made, "seq_q", 0) == getattr(made, "seq_kv", 0)
        together = (halved, "seq_kv") if square else (halved,)
        made = made.replace(**{name: getattr(made, name) // 2 for name in together})


def _fitting(problem: Operator, state: str, variants: Sequence[str], machine: Machine, most_s: float, only: int = 0) -> list[Point]:
    """The problem, so small that the slowest of its variants can run it, by each of them, or by the first `only`."""
    for variant in variants:
        problem = limited(problem, variant, machine, most_s)
    return [Point(problem=problem, variant=variant, cache_state=state) for variant in variants[: only or None]]


def _kind(point: Point) -> str:
    problem = point.problem
    return "decode" if isinstance(problem, Attention) and problem.seq_q == 1 else problem.name


def default_points(
    facts: Mapping[str, Any],
    backend: str,
    machine: Machine,
    *,
    quick: bool = False,
    thorough: bool = False,
    limit_s: float | None = None,
) -> list[Point]:
    """A report's points, the most worth knowing first: one of each of MAIN, the rest of the headline, one of each other operator,
    then what is left in turn.

    An operator without sizes of its own here runs with its defaults. quick: without the rest. thorough: more sizes and shapes of
    each. limit_s: of the whole report; problems are so small that a launch takes little of it. facts: of the device. backend: "cpu"
    or "cuda". A variant without any kernel for the backend is left out here; a dtype that this very device lacks stays in, and
    becomes a result with its reason.
    """
    most_s = MOST_PREDICTED_S if limit_s is None else min(MOST_PREDICTED_S, LAUNCH_SHARE * limit_s)

    def variants_of(problem: Operator) -> list[str]:
        wanted = getattr(problem, "dtype", "fp32")
        able = [name for name, declared in problem.variants.items() if wanted in declared.dtypes.get(backend, ())]
        default = default_variant(machine, problem, backend, able.__contains__)
        return sorted((name for name in able[::-1] if problem.suits(name, backend)), key=lambda name: name != default)

    found: list[Point] = []
    for dtype in MAIN_DTYPES:
        for problem, everyone in _headline(facts, dtype):
            found += _fitting(problem, "cold", variants_of(problem), machine, most_s, only=0 if everyone else 1)
    edge = _usual(facts).square
    problems: dict[str, list[tuple[Operator, str]]] = {
        **{operator.name: list(_rows(operator, facts)) for operator in BY_ROWS},
        "relu": [(Relu(elements=_far(facts) // 4), "cold"), (Relu(elements=_near(facts) // 4), "warm")],
        "attention": [(Attention(seq_q=256, seq_kv=256), "warm")],
        "matmul": [(Matmul(rows=edge, columns=edge, inner=edge, dtype=dtype), "cold") for dtype in ("fp64", "int8")],
        "ffn": list(_ffn(facts)),
        "attention_backward": [(AttentionBackward.make(heads=4, seq_len=512), "cold")],  # its reference takes seconds for more
    }
    for name, operator in OPERATORS.items():
        if name in CEILINGS or not any(declared.dtypes.get(backend) for declared in operator.variants.values()):
            problems.pop(name, None)
        else:
            usual = _updating(_held(operator(), facts), facts)
            problems.setdefault(name, [(grown(usual, machine) if "sms" in facts else usual, "cold")])
    for name, more in _more(facts).items() if thorough else ():
        problems[name] += more
    shown = {point.problem.name for point in found}
    for name, pairs in problems.items():
        if name not in shown:
            problem, state = pairs[0]
            found += _fitting(problem, state, variants_of(problem)[:1], machine, most_s)
    main = {_kind(point): point for point in reversed(found)}
    found = list(dict.fromkeys([*(main[kind] for kind in MAIN if kind in main), *found]))
    found = [replace(point, first=True) for point in found]
    rest: list[list[Point]] = [
        [point for point in _fitting(problem, "cold", variants_of(problem), machine, most_s) if point not in found]
        for dtype in MAIN_DTYPES
        for problem, _ in _headline(facts, dtype)
        if not quick
    ]
    for pairs in () if quick else problems.values():
        further = [(problem, state) for problem, state in pairs if variants_of(problem)]
        own = [_fitting(problem, state, variants_of(problem), machine, most_s) for problem, state in further]
        declared = dict.fromkeys(dtype for v in pairs[0][0].variants.values() for dtype in v.dtypes.get(backend, ()))
        for problem, state in _other_dtypes(further, declared):
            own.append(_fitting(_held(problem, facts), state, variants_of(problem), machine, most_s))
        rest.append([point for points in own for point in points])
    found += [point for together in zip_longest(*rest) for point in together if point is not None]
    return list(dict.fromkeys(found))
