"""Which problems a report times: every operator and variant, sizes chosen from the device's caches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ..errors import Error
from ..machine import Machine, cache_capacity
from ..operators import OPERATORS, Attention, BiasRelu, Ffn, LayerNorm, Matmul, Operator, Relu, RmsNorm, Softmax
from ..prediction import predict
from ..units import KIB, MIB

# A launch may take 0.3 s; the model's time is a lower bound that slow variants miss by a factor of three and more.
MOST_PREDICTED_S = 0.1
HALVED_FIRST = ("seq_q", "rows", "elements", "batch", "tokens")
# Timed as ceilings, and no points of their own.
PROBES = (
    "stream", "fma", "mma", "exp", "mixed_intensity", "pointer_chase", "core_to_core", "fork_join", "host_copy", "peer_copy",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One problem of a report, the variant that runs it, and where its operands lie ("cold", "warm")."""

    problem: Operator
    variant: str
    cache_state: str

    def described(self) -> dict[str, Any]:
        """JSON form: operator, variant, problem, cache_state."""
        return {
            "operator": self.problem.name,
            "variant": self.variant,
            "problem": self.problem.to_dict(),
            "cache_state": self.cache_state,
        }


def _last_cache(facts: Mapping[str, Any]) -> int:
    return int(facts.get("l3_bytes") or facts.get("l2_bytes") or 32 * MIB)


def _far(facts: Mapping[str, Any]) -> int:
    """Bytes of one operand that no cache keeps: four times the last cache, 64 to 512 MiB, and little of the memory.

    At twice the cache a good part of it is still there in the next launch, where results are stored past the caches.
    """
    memory = int(facts.get("memory_bytes") or 2**33)
    return min(max(4 * _last_cache(facts), 64 * MIB), 512 * MIB, max(memory // 24, MIB))


def _near(facts: Mapping[str, Any]) -> int:
    """Bytes of one operand such that two of them stay in the second level of all threads together."""
    return max(cache_capacity(facts, "L2") // 4, 64 * KIB)


def _attention(facts: Mapping[str, Any], quick: bool) -> Iterable[tuple[Operator, str]]:
    bytes_per_key = 2 * 8 * 128 * 4
    yield Attention(seq_q=1, seq_kv=max(_far(facts) // bytes_per_key, 1024), head_dim=128), "cold"
    yield Attention(seq_q=2048, seq_kv=2048), "cold"
    if not quick:
        yield Attention(seq_q=256, seq_kv=256), "warm"
        yield Attention(seq_q=1024, seq_kv=1024, head_dim=128, causal=True), "cold"


def _matmul(quick: bool) -> Iterable[tuple[Operator, str]]:
    yield Matmul(rows=1024, columns=1024, inner=1024, dtype="fp32"), "cold"
    yield Matmul(rows=1, columns=4096, inner=4096, dtype="fp32"), "cold"
    for dtype in ("fp64",) if quick else ("fp64", "bf16", "int8"):
        yield Matmul(rows=1024, columns=1024, inner=1024, dtype=dtype), "cold"


def _ffn(quick: bool) -> Iterable[tuple[Operator, str]]:
    for activation in ("gelu",) if quick else ("gelu", "relu", "swiglu"):
        yield Ffn(batch=4, seq_q=64, activation=activation), "cold"
        yield Ffn(batch=1, seq_q=1, activation=activation), "cold"


def _rows(operator: Any, facts: Mapping[str, Any]) -> Iterable[tuple[Operator, str]]:
    for size, columns, state in ((_far(facts), 4096, "cold"), (_near(facts), 1024, "warm")):
        yield operator(rows=max(size // (4 * columns), 1), columns=columns), state


def _elements(facts: Mapping[str, Any]) -> Iterable[tuple[Operator, str]]:
    yield Relu(elements=_far(facts) // 4), "cold"
    yield Relu(elements=_near(facts) // 4), "warm"


def _other_dtypes(pairs: list[tuple[Operator, str]], dtypes: Iterable[str]) -> list[tuple[Operator, str]]:
    """The same problems in the other dtypes that the variant has on this backend."""
    present = {problem.to_dict()["dtype"] for problem, _ in pairs}
    # Two of each: further dtypes move along the same roofs.
    return [(problem.replace(dtype=dtype), state) for dtype in dtypes if dtype not in present for problem, state in pairs[:2]]


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
    for operator in (Softmax, RmsNorm, LayerNorm, BiasRelu):
        shaped = [(size, 1024, state) for size, state in _sizes(facts)] + [(far, 256, "cold"), (far, 16384, "cold")]
        found[operator.name] = [
            (operator(rows=max(size // (4 * columns), 1), columns=columns), state) for size, columns, state in shaped
        ]
    found["relu"] = [(Relu(elements=size // 4), state) for size, state in _sizes(facts)]
    return found


def limited(problem: Operator, variant: str, machine: Machine) -> Operator:
    """The problem, with its first large dimension halved until the model's time is short enough for a report."""
    made = problem
    while True:
        try:
            predicted_s = predict(machine, made, variant=variant).time_s
        except Error:  # a machine whose roofs were left out for lack of time says nothing about launches
            return made
        halved = next((name for name in HALVED_FIRST if name in made.field_names() and getattr(made, name) > 1), None)
        if predicted_s <= MOST_PREDICTED_S or halved is None:
            return made
        made = made.replace(**{halved: getattr(made, halved) // 2})


def default_points(
    facts: Mapping[str, Any], backend: str, machine: Machine, *, quick: bool = False, thorough: bool = False
) -> list[Point]:
    """A report's points: one of each operator first, then the second of each, so that a time limit cuts depth and not breadth.

    An operator without sizes of its own here runs with its defaults.

    thorough: more sizes and shapes of each, 60 points and more on a CPU. facts: of the device. backend: "cpu" or "cuda". A variant
    without any kernel for the backend is left out here; a dtype
    that this very device lacks stays in, and becomes a result with its reason.
    """
    problems: dict[str, list[tuple[Operator, str]]] = {
        "attention": list(_attention(facts, quick)),
        "matmul": list(_matmul(quick)),
        "ffn": list(_ffn(quick)),
        "softmax": list(_rows(Softmax, facts)),
        "rms_norm": list(_rows(RmsNorm, facts)),
        "layer_norm": list(_rows(LayerNorm, facts)),
        "bias_relu": list(_rows(BiasRelu, facts)),
        "relu": list(_elements(facts)),
    }
    for name, operator in OPERATORS.items():
        if name not in PROBES and any(declared.dtypes.get(backend) for declared in operator.variants.values()):
            problems.setdefault(name, [(operator(), "cold")])
    for name, more in _more(facts).items() if thorough else ():
        problems[name] += more
    chosen: list[list[Point]] = []
    for name, pairs in problems.items():
        variants = [v for v, declared in OPERATORS[name].variants.items() if declared.dtypes.get(backend)]
        kept = pairs[: 2 if quick else None]
        for variant in variants:  # variants are compared, so that all run what the slowest of them can
            kept = [(limited(problem, variant, machine), state) for problem, state in kept]
        for variant in reversed(variants):
            pairs = [*kept, *_other_dtypes(kept, OPERATORS[name].variants[variant].dtypes[backend])]
            chosen.append([Point(problem=problem, variant=variant, cache_state=state) for problem, state in pairs])
    rounds = zip_longest(*chosen)
    return [point for together in rounds for point in together if point is not None]
