"""FLOPs and bytes of every operator: counted by running the reference, traffic worked out by hand, and properties of both.

The formulas that were worked out by hand are those of docs/conventions/counting.md, which test_docs.py evaluates.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from tables import gives, refused

from roofline.errors import Error
from roofline.operators import (
    MIXES,
    OPERATORS,
    Attention,
    Ffn,
    LayerNorm,
    MixedIntensity,
    Operator,
    RmsNorm,
    Softmax,
    Stream,
)
from roofline.words import annotated


class Counted:
    """A number that counts its own arithmetic. Negation and absolute value are free; what has no rule (a power) is missing."""

    __slots__ = ("counts", "value")

    def __init__(self, value: float, counts: Counter[str]) -> None:
        self.value = value
        self.counts = counts

    def _count(self, kind: str, value: float) -> Counted:
        self.counts[kind] += 1
        return Counted(value, self.counts)

    def __add__(self, other: Any) -> Counted:
        return self._count("add", self.value + _value(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Counted:
        return self._count("sub", self.value - _value(other))

    def __rsub__(self, other: Any) -> Counted:
        return self._count("sub", _value(other) - self.value)

    def __mul__(self, other: Any) -> Counted:
        return self._count("mul", self.value * _value(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Counted:
        return self._count("div", self.value / _value(other))

    def __rtruediv__(self, other: Any) -> Counted:
        return self._count("div", _value(other) / self.value)

    def __neg__(self) -> Counted:
        return Counted(-self.value, self.counts)

    def __abs__(self) -> Counted:
        return Counted(abs(self.value), self.counts)

    def _compare(self, answer: bool) -> bool:
        self.counts["compare"] += 1
        return answer

    def __lt__(self, other: Any) -> bool:
        return self._compare(self.value < _value(other))

    def __le__(self, other: Any) -> bool:
        return self._compare(self.value <= _value(other))

    def __gt__(self, other: Any) -> bool:
        return self._compare(self.value > _value(other))

    def __ge__(self, other: Any) -> bool:
        return self._compare(self.value >= _value(other))

    def __getitem__(self, index: None) -> np.ndarray[Any, Any]:
        """As of NumPy's scalars: x[None] is an array of one."""
        assert index is None
        array = np.empty(1, dtype=object)
        array[0] = self
        return array

    def exp(self) -> Counted:
        return self._count("exp", math.exp(self.value))

    def log(self) -> Counted:
        return self._count("log", math.log(self.value))

    def sqrt(self) -> Counted:
        return self._count("sqrt", math.sqrt(self.value))

    def tanh(self) -> Counted:
        return self._count("tanh", math.tanh(self.value))

    def erf(self) -> Counted:
        return self._count("erf", math.erf(self.value))


def _value(x: Any) -> float:
    return x.value if isinstance(x, Counted) else float(x)


def inputs(problem: Operator) -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(1)
    found = {}
    for tensor in problem.tensors():
        if tensor.role != "out":
            made = problem.initial(tensor.name, generator) if tensor.below else None
            found[tensor.name] = generator.uniform(-(3**0.5), 3**0.5, tensor.shape) if made is None else made
    return found


def wrapped(problem: Operator, counts: Counter[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The same as counting numbers; indices stay what they are."""
    wrap = np.frompyfunc(lambda value: Counted(value, counts), 1, 1)
    return {name: x if x.dtype.kind == "i" else wrap(x) for name, x in inputs(problem).items()}


def counted(problem: Operator) -> Counter[str]:
    counts: Counter[str] = Counter()
    problem.reference(wrapped(problem, counts))
    return counts


SMALL = 40_000  # FLOPs, and elements of a tensor


def small_problems() -> list[Any]:
    """The operators' own cases that are small enough to run in Python numbers."""
    found = []
    for operator in OPERATORS.values():
        for case in operator.cases():
            size = max([case.problem.total_flops(), *(math.prod(t.shape) for t in case.problem.tensors())])
            if not case.slow and size <= SMALL:
                label = "-".join(str(value) for value in case.problem.to_dict().values())
                found.append(pytest.param(case.problem, id=f"{operator.name}-{label}"))
    return found


@pytest.mark.parametrize("problem", small_problems())
def test_flops_are_what_the_reference_does(problem: Operator) -> None:
    counts = counted(problem)
    if problem.name == "fma":
        # A register probe: its factors are constants, so only the additions meet counting numbers, and beyond 64 steps the
        # reference leaves out the steps that cancel. Each addition stands for a multiplication and an addition; the further
        # addition of the pattern fma_add is written as a subtraction.
        if problem.steps <= 64:  # type: ignore[attr-defined]
            assert 2 * counts["add"] == problem.flops()["multiply-add"]
            assert counts["sub"] == problem.flops().get("add", 0)
            assert counts.keys() <= {"add", "sub"}
        return
    assert counts.total() == problem.total_flops(), f"{dict(counts)} against {problem.flops()}"


def test_every_operator_is_counted() -> None:
    counted_names = {parameter.values[0].name for parameter in small_problems()}
    assert counted_names == set(OPERATORS)


test_kinds_of_operations = gives(
    lambda problem: dict(counted(problem)),
    (Softmax(rows=2, columns=5), {"compare": 10, "sub": 10, "exp": 10, "add": 10, "div": 10}),
    (RmsNorm(rows=2, columns=5), {"mul": 20, "add": 12, "div": 12, "sqrt": 2}),
    (LayerNorm(rows=2, columns=5), {"sub": 10, "mul": 20, "add": 32, "div": 14, "sqrt": 2}),
    # 3 pairs of 2 dimensions.
    (
        Attention(heads=1, seq_q=2, seq_kv=2, head_dim=2, causal=True),
        {"mul": 15, "add": 15, "compare": 3, "sub": 3, "exp": 3, "div": 3},
    ),
    (Ffn(seq_q=1, d_model=1, d_ff=1, activation="gelu"), {"mul": 5, "add": 3, "erf": 1}),
    # 0.5 x (1 + tanh(a (x + b x³))): six multiplications, two additions, a tanh.
    (Ffn(seq_q=1, d_model=1, d_ff=1, activation="gelu_tanh"), {"mul": 8, "add": 4, "tanh": 1}),
    (Ffn(seq_q=1, d_model=1, d_ff=1, activation="swiglu"), {"mul": 4, "add": 4, "exp": 1, "div": 1}),
    # Two scales for each of two sums; what is hidden is divided by one.
    (Ffn(seq_q=1, d_model=1, d_ff=1, activation="relu", dtype="int8"), {"mul": 6, "add": 2, "compare": 1, "div": 1}),
)


# The second case of each operator without kernels: small, and with more than one of everything.
COST_ONLY = [operator.cases()[1].problem for operator in OPERATORS.values() if not operator.variants]


def test_counting_costs_the_reference_no_accuracy() -> None:
    """The counting run computes the same values: it is the reference that is counted, and not something like it."""
    for problem in (
        Softmax(rows=3, columns=4),
        LayerNorm(rows=3, columns=4),
        Ffn(seq_q=2, d_model=3, d_ff=4),
        MixedIntensity(elements=90, multiply_adds=1),  # the loop against the closed form
        MixedIntensity(elements=90, multiply_adds=300, every=2, passes=3),
        *COST_ONLY,
    ):
        for name, plain in problem.reference(inputs(problem)).items():
            found = problem.reference(wrapped(problem, Counter()))[name]
            np.testing.assert_allclose(np.vectorize(_value, otypes=[float])(found), plain, rtol=1e-13, atol=1e-13)


def has_rows(problem: Operator) -> bool:
    return problem.name != "fork_join" and problem.outputs()[0].name != "sum"


@pytest.mark.parametrize("problem", [given for given in small_problems() if has_rows(given.values[0])])
def test_sampled_rows_are_rows_of_the_whole(problem: Operator) -> None:
    tensors = inputs(problem)
    for name, whole in problem.reference(tensors).items():
        if name == "sample":
            continue  # of a copy: always whole
        first = problem.reference(tensors, np.array([0]))[name]
        flat = whole.reshape(-1, *first.shape[1:])
        rows = np.array(sorted({0, len(flat) // 2, len(flat) - 1}))
        np.testing.assert_allclose(problem.reference(tensors, rows)[name], flat[rows], rtol=1e-12, atol=1e-12)


GQA = {"batch": 2, "heads": 4, "kv_heads": 2, "seq_q": 3, "seq_kv": 5, "head_dim": 8}
FFN = {"batch": 2, "seq_q": 3, "d_model": 4, "d_ff": 5}
ROWS = {"rows": 3, "columns": 7}
MANY = {"batch": 2, "rows": 19, "columns": 5, "inner": 3}  # rows: more than a CPU takes with b as it lies
MOE = {"tokens": 3, "experts": 4, "experts_per_token": 2, "d_model": 4, "d_ff": 5}
SQUARES = {"scales": "block", "scale_block": 128, "scale_columns": 128}
NV = {"scales": "two_level", "scale_block": 16, "scale_bits": 8}


test_traffic_by_hand = gives(
    lambda name, fields, plan: OPERATORS[name].make(**fields).traffic(plan),
    # 96 scores of 4 bytes: written, read and written by softmax, read by p·v.
    (
        "attention",
        {**GQA, "causal": True},
        {"variant": "naive"},
        {"scores written": 384, "scores read and written by softmax": 768, "scores read by p·v": 384},
    ),
    ("attention", {**GQA, "causal": True}, {"variant": "tiled"}, {}),
    ("stream", {"access": "triad", "elements": 10, "passes": 3}, {"variant": "plain"}, {"further passes": 240}),
    # Sixteen floats, or eight doubles, to a line of 64 bytes: each line comes once per walk that needs it.
    ("stream", {"elements": 10, "passes": 3}, {"variant": "loads"}, {"further passes": 80}),
    ("stream", {"access": "update", "elements": 10, "passes": 3}, {"variant": "plain"}, {"further passes": 160}),
    ("stream", {"elements": 1000, "stride": 3}, {"variant": "plain"}, {"lines fetched again": 2 * 4000}),
    ("fma", {"dtype": "bf16"}, {"variant": "l2_operands", "workspace_bytes": 1 << 20}, {}),  # written outside the clock
    ("stream", {"elements": 1000, "stride": 16}, {"variant": "plain"}, {"lines fetched again": 15 * 4000}),
    (
        "stream",
        {"elements": 1000, "stride": 500, "passes": 2, "dtype": "fp64"},
        {"variant": "plain", "lines_cached": 0},
        {"further passes": 8000, "lines fetched again": 2 * 7 * 8000},
    ),
    ("stream", {"elements": 1000, "stride": 16}, {"variant": "plain", "lines_cached": 1}, {}),
    ("mixed_intensity", {"elements": 10, "passes": 3}, {"variant": "read"}, {"further passes": 80}),
    ("softmax", ROWS, {"variant": "fused"}, {}),
    ("softmax", ROWS, {"variant": "fused", "row_cached": 1}, {}),
    # 84 bytes: x again, and the exponentials there and back.
    ("softmax", ROWS, {"variant": "fused", "row_cached": 0}, {"x for the exponentials": 84, "exponentials read and written": 168}),
    ("softmax", ROWS, {"variant": "fused", "row_cached": 0, "x_read_twice": 0}, {"exponentials read and written": 168}),
    # 28 bytes of weight for two further rows.
    ("rms_norm", ROWS, {"variant": "fused", "row_cached": 0}, {"x for the result": 84, "weight for further rows": 56}),
    (
        "layer_norm",
        ROWS,
        {"variant": "two_pass", "row_cached": 0},
        {"x for the variance": 84, "x for the result": 84, "weight and bias for further rows": 112},
    ),
    (
        "layer_norm",
        ROWS,
        {"variant": "one_pass", "row_cached": 0},
        {"x for the result": 84, "weight and bias for further rows": 112},
    ),
    ("bias_relu", ROWS, {"variant": "fused", "row_cached": 0}, {"bias for further rows": 56}),
    ("relu", {"elements": 9}, {"variant": "fused"}, {}),
    ("exp", {"elements": 9, "passes": 3}, {"variant": "vector"}, {"further passes": 144}),
    # 3 of 8 lines once more.
    ("pointer_chase", {"size_bytes": 512, "hops": 11}, {"variant": "dependent"}, {"lines visited again": 192}),
    ("pointer_chase", {"size_bytes": 512, "hops": 8}, {"variant": "dependent"}, {}),
    ("matmul", {"rows": 3, "columns": 5, "inner": 7}, {"variant": "library"}, {}),
    # c of 15 elements once more, but for an epilogue of the library's.
    ("matmul", {"rows": 3, "columns": 5, "inner": 7, "bias": True}, {"variant": "library"}, {"c read, written again": 120}),
    ("matmul", {"rows": 3, "columns": 5, "inner": 7, "activation": "relu"}, {"variant": "library", "epilogue": "fused"}, {}),
    ("matmul", {"rows": 3, "columns": 5, "inner": 7, "bias": True}, {"variant": "tiled"}, {}),
    # 6 x 5 hidden elements of 4 bytes, written and read.
    ("ffn", {**FFN, "activation": "relu"}, {"variant": "library"}, {"up written, read": 240, "activated written, read": 240}),
    # And those of the gate, and x of 6 x 4 elements once more.
    (
        "ffn",
        {**FFN, "activation": "swiglu"},
        {"variant": "library"},
        {"up written, read": 240, "activated written, read": 240, "gate written, read": 240, "x again for gate": 96},
    ),
    # 3 tokens of 2 experts each: 6 rows of 4 numbers and of 5 hidden ones, in 16 bits.
    (
        "grouped_matmul",
        {**MOE, "activation": "relu"},
        {"variant": "library"},
        {"gathered x written, read": 96, "up written, read": 120, "activated written, read": 120, "results written, read": 96},
    ),
    # The same without x in between, and two numbers of a row in 32 bits.
    (
        "grouped_matmul",
        MOE,
        {"variant": "tiled"},
        {"routing written, read": 96, "activated written, read": 120, "results written, read": 96},
    ),
    # On a CPU with x gathered, and all of it in fp32.
    (
        "grouped_matmul",
        MOE,
        {"variant": "tiled", "gathered": 1},
        {
            "routing written, read": 96, "gathered x written, read": 192, "gate written, read": 240,
            "activated written, read": 240, "results written, read": 192,
        },
    ),
    # fp32 scores of 2 x 3 x 5 pairs, of which the mask hides 2 x 3; probabilities of all in 16 bits.
    (
        "attention",
        {"heads": 2, "seq_q": 3, "seq_kv": 5, "head_dim": 4, "causal": True, "dtype": "bf16"},
        {"variant": "library"},
        {"scores written": 120, "scores read by softmax": 96, "probabilities written": 60, "probabilities read by p·v": 60},
    ),
    # b of 2 x 3 x 5 bytes; scales of 2 rows and one block each.
    (
        "bmm",
        {"batch": 2, "rows": 2, "columns": 5, "inner": 3, "dtype": "fp8_e4m3", "scales": "block", "scale_block": 128},
        {"variant": "library"},
        {"b transposed: written, read": 60, "a_scale laid out again: written, read": 32},
    ),
    # Three blocks of 128 along inner and one across columns, which takes four numbers.
    (
        "bmm",
        {"batch": 1, "rows": 3, "columns": 32, "inner": 288, **SQUARES, "dtype": "fp8_e4m3"},
        {"variant": "library"},
        {
            "b transposed: written, read": 2 * 32 * 288,
            "a_scale laid out again: written, read": 2 * 3 * 3 * 4,
            "b_scale laid out again: written, read": 2 * 4 * 4,
        },
    ),
    # 18 blocks of 16, so that a's take 2 x 5 tiles of 128 rows by 4 blocks, and b's 1 x 5; b has half a byte a number.
    (
        "bmm",
        {"batch": 1, "rows": 129, "columns": 32, "inner": 288, **NV, "dtype": "nvfp4"},
        {"variant": "library"},
        {
            "b transposed: written, read": 32 * 288,
            "a_scale laid out again: written, read": 2 * 10 * 512,
            "b_scale laid out again: written, read": 2 * 5 * 512,
        },
    ),
    # Laid out before the clock starts.
    ("matmul", {"rows": 3, "columns": 32, "inner": 288, **NV, "dtype": "nvfp4"}, {"variant": "library"}, {}),
    ("bmm", {"batch": 2, "rows": 2, "columns": 5, "inner": 3, "dtype": "bf16"}, {"variant": "library"}, {}),
    # In 16 bits; relu and gelu inside the product, and up and gate as one product of 6 x 10.
    ("ffn", {**FFN, "activation": "gelu_tanh", "dtype": "bf16"}, {"variant": "fused"}, {"activated written, read": 120}),
    (
        "ffn",
        {**FFN, "activation": "swiglu", "dtype": "bf16"},
        {"variant": "fused"},
        {"up and gate written, read": 240, "activated written, read": 120},
    ),
    # On a CPU hidden numbers are fp32 in 16 bits too.
    (
        "ffn",
        {**FFN, "activation": "swiglu", "dtype": "bf16"},
        {"variant": "tiled"},
        {"activated written, read": 240, "gate written, read": 240, "x again for gate": 48},
    ),
    # In int8 sums have 4 bytes and what is activated 1; out of 24 fp32 numbers is scaled where it lies.
    (
        "ffn",
        {**FFN, "activation": "relu", "dtype": "int8"},
        {"variant": "library"},
        {"up written, read": 240, "activated written, read": 60, "out read, written again": 192},
    ),
    (
        "ffn",
        {**FFN, "activation": "swiglu", "dtype": "int8"},
        {"variant": "tiled"},
        {"activated written, read": 60, "gate written, read": 240, "x again for gate": 24},
    ),
    # b of 2 x 3 x 5 numbers in fp32 where rows are many; as the plan says where there is one.
    ("bmm", MANY, {"variant": "tiled"}, {"b packed in fp32: written, read": 240}),
    ("bmm", MANY, {"variant": "tiled", "packed_in_launch_bytes": 240}, {"b packed in fp32: written, read": 480}),
    ("bmm", {**MANY, "rows": 18}, {"variant": "tiled"}, {"b packed in fp32: written, read": 0}),
    ("bmm", {**MANY, "dtype": "fp64", "out_dtype": "fp64"}, {"variant": "tiled"}, {"b packed in fp64: written, read": 480}),
)  # fmt: skip


WIDTH_BITS = {
    "fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "fp8_e4m3": 8, "fp8_e5m2": 8, "int32": 32, "int8": 8, "int4": 4,
    "nvfp4": 4, "mxfp4": 4, "fp8_e8m0": 8, "int16": 16,
}  # fmt: skip
WORDS = {
    "direction": ("to_device", "from_device", "to_peer", "from_peer", "both"),
    "access": MIXES,
    "activation": ("relu", "gelu", "swiglu"),
    "form": ("erf", "tanh"),
    "isa": ("", "scalar", "avx2"),
    "accumulator": ("", "fp64", "fp32", "fp16", "int32"),
    "data": ("random", "constant", "zeros"),
    "pattern": ("fma", "fma_add"),
    "pages": ("huge", "small"),
    "scales": ("none", "tensor", "row", "block", "two_level"),
    "prefetch": ("none", "nta", "sparse"),
}
FEW = {"streams": (1, 2, 4, 8), "stride": (1, 1, 3)}  # integers of which most values are refused


@functools.cache
def accepted(operator: type[Operator], name: str) -> tuple[str, ...]:
    """The words that a field takes."""

    def takes(word: str) -> bool:
        try:
            operator(**{name: word})
        except Error:
            return False
        return True

    return tuple(word for word in (WIDTH_BITS if name.endswith("dtype") else WORDS[name]) if takes(word))


@st.composite
def problems(draw: st.DrawFn) -> Operator:
    """Any operator with any fields it takes."""
    operator = draw(st.sampled_from(list(OPERATORS.values())))
    values: dict[str, Any] = {}
    for field in dataclasses.fields(operator):  # type: ignore[arg-type]
        if field.name in FEW:
            values[field.name] = draw(st.sampled_from(FEW[field.name]))
        elif annotated(field) == "int":
            values[field.name] = draw(st.integers(1, 3000) | st.sampled_from([1, 2, 4, 8, 16]))
        elif annotated(field) == "bool":
            values[field.name] = draw(st.booleans())
        elif annotated(field) == "float":
            values[field.name] = draw(st.floats(1e-12, 1e3))
        else:
            values[field.name] = draw(st.sampled_from(accepted(operator, field.name)))
    if "kv_heads" in values:
        values["heads"] = values["kv_heads"] * draw(st.integers(1, 8))
    if "experts" in values:
        values["experts"] += values["experts_per_token"]
        values |= {"touched_experts": 0} if "touched_experts" in values else {}
    if "weight_bits" in values:
        values["weight_bits"] = draw(st.sampled_from([1.58, 3.0, 4.25, 16.0, 64.0]))
    if operator.name == "rope":
        values["head_dim"] *= 2
    try:
        return operator(**values)
    except Error:
        assume(False)
        raise


@settings(deadline=None)
@given(problems())
def test_compulsory_bytes_are_each_tensor_once(problem: Operator) -> None:
    expected = 0
    for tensor in (*problem.inputs(), *problem.outputs()):
        bits = Fraction(str(WIDTH_BITS[tensor.dtype] if tensor.bits is None else float(tensor.bits)))
        size = math.ceil(math.prod(tensor.shape) * bits / 8)
        assert tensor.size_bytes == size
        assert tensor.touched_bytes is None or 0 < tensor.touched_bytes <= size
        size = size if tensor.touched_bytes is None else tensor.touched_bytes
        expected += 0 if tensor.link else 2 * size if tensor.role == "in_out" else size
    if problem.name == "pointer_chase":  # a launch visits some of its lines, and `order` is read in bind
        expected = 64 * min(problem.hops, problem.size_bytes // 64) + 4  # type: ignore[attr-defined]
    if problem.name in ("host_copy", "peer_copy"):  # what is on the way, not what lies at its ends
        expected = problem.size_bytes * (2 if problem.direction == "both" else 1)  # type: ignore[attr-defined]
    assert problem.compulsory_bytes() == expected
    assert len({tensor.name for tensor in problem.tensors()}) == len(problem.tensors())
    assert all(tensor.role in ("out", "in_out") for tensor in problem.outputs())


@settings(deadline=None)
@given(problems())
def test_statements_are_whole(problem: Operator) -> None:
    """Terms are counts; every variant has traffic without a device; the rest names what exists."""
    terms = dict(problem.flops())
    for variant in problem.variants:
        terms |= {f"{variant} {name}": size for name, size in problem.traffic({"variant": variant}).items()}
    assert all(type(count) is int and count >= 0 for count in terms.values()), terms
    assert problem.total_flops() == sum(problem.flops().values())
    assert problem.mix in MIXES
    assert all(name in WIDTH_BITS for name in problem.compute())
    absolute, relative = problem.tolerance()
    assert 0 <= absolute < math.inf
    assert 0 <= relative < 1 or not problem.variants
    assert type(problem).make(**problem.to_dict()) == problem
    assert hash(problem) == hash(problem.replace())


@settings(deadline=None)
@given(st.integers(1, 2000), st.integers(1, 8), st.integers(1, 64))
def test_causal_square_is_a_triangle(seq_len: int, heads: int, head_dim: int) -> None:
    problem = Attention.make(seq_len=seq_len, heads=heads, head_dim=head_dim, causal=True)
    pairs = heads * seq_len * (seq_len + 1) // 2
    assert problem.flops() == {"q·kᵀ": 2 * pairs * head_dim, "scale": pairs, "softmax": 5 * pairs, "p·v": 2 * pairs * head_dim}


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 40))
def test_causal_aligns_the_last_query_with_the_last_key(seq_q: int, further: int) -> None:
    seq_kv = seq_q + further
    problem = Attention(heads=1, seq_q=seq_q, seq_kv=seq_kv, causal=True)
    visible = sum(key - (seq_kv - 1) <= query - (seq_q - 1) for query in range(seq_q) for key in range(seq_kv))
    assert problem.flops()["scale"] == visible
    assert problem.replace(causal=False).flops()["scale"] == seq_q * seq_kv


@settings(deadline=None)
@given(st.integers(1, 10**6))
def test_seq_len_is_both_lengths(seq_len: int) -> None:
    assert Attention.make(seq_len=seq_len) == Attention(seq_q=seq_len, seq_kv=seq_len)
    assert Attention().replace(seq_len=seq_len) == Attention(seq_q=seq_len, seq_kv=seq_len)
    assert Ffn.make(seq_len=seq_len) == Ffn(seq_q=seq_len)
    with pytest.raises(Error, match="either seq_len or seq_kv"):
        Attention().replace(seq_len=seq_len, seq_kv=4)


NO_INTEGERS = [-1, -(2**63), 2**62 + 1, 2**63, 1.0, 1.5, math.nan, math.inf, True, False, "three", None, [3], np.float64(2)]
CHOICES = ("access", "activation", "form", "pages", "pattern", "scales")
NO_NUMBERS = [math.nan, math.inf, -math.inf, True, "1e-5", None, [1.0]]
FIELDS = [(operator, field) for operator in OPERATORS.values() for field in dataclasses.fields(operator)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("operator", "field"), FIELDS, ids=[f"{operator.name}-{field.name}" for operator, field in FIELDS])
def test_bad_fields_are_named(operator: type[Operator], field: dataclasses.Field[Any]) -> None:
    if annotated(field) == "int":
        bad = NO_INTEGERS if field.name in operator.small else [0, *NO_INTEGERS]
    elif annotated(field) == "float":
        bad = NO_NUMBERS
    elif annotated(field) == "bool":
        bad = [1, 0, "yes", None, 1.0]
    else:
        bad = ["fp33", *([""] if field.default else []), 7, None, ["fp32"]]
        bad = bad if field.name.endswith("dtype") or field.name in CHOICES else []
    for value in bad:
        with pytest.raises(Error) as caught:
            operator(**{field.name: value})
        words = str(caught.value)
        assert field.name in words, f"{operator.name} {field.name}={value!r}: {words}"
        if field.name != "dtype":  # an unknown dtype is unknown to all
            assert operator.name in words, words


def test_one_multiply_add_more_shows_in_the_sum() -> None:
    """The check of a kernel sees a step too few or too many."""
    for problem in (case.problem for case in MixedIntensity.cases()):
        assert isinstance(problem, MixedIntensity)
        if problem.elements > (1100 if problem.dtype == "fp32" else 2**20):  # there fp32's own rounding is larger
            continue
        tensors = inputs(problem)
        right = problem.reference(tensors)["sum"]
        more = problem.replace(multiply_adds=problem.multiply_adds + 1).reference(tensors)["sum"]
        assert abs(more - right) > sum(problem.tolerance()), problem


test_fields_that_do_not_go_together = refused(
    lambda operator, fields: OPERATORS[operator].make(**fields),
    ("softmax", {"seq_len": 3}, "seq_len"),
    ("attention", {"seq_len": 3, "seq_q": 3}, "either seq_len or seq_q"),
    ("attention", {"seqlenq": 3}, r"unknown field 'seqlenq'.*seq_q"),
    ("attention", {"heads": 6, "kv_heads": 4}, "heads 6 and kv_heads 4"),
    ("attention", {"seq_q": 5, "seq_kv": 3, "causal": True}, "seq_q 5 > seq_kv 3"),
    *((operator, {"eps": eps}, "eps must be above 0") for operator in ("rms_norm", "layer_norm") for eps in (0.0, -1e-5)),
    ("mixed_intensity", {"every": 3}, "mixed_intensity: every must be one of 1, 2, 4, 8, got 3"),
    ("mixed_intensity", {"multiply_adds": 16385}, "mixed_intensity: multiply_adds must be at most 16384, got 16385"),
    ("pointer_chase", {"size_bytes": 100}, "size_bytes must be a multiple of 64, got 100"),
    ("pointer_chase", {"size_bytes": 2**37}, "size_bytes must be below 128 GiB"),
    ("pointer_chase", {"pages": "giant"}, "pages must be one of huge, small, got 'giant'"),
    ("pointer_chase", {"dtype": "fp32"}, "dtype must be one of int32"),
    ("core_to_core", {"first": 3, "second": 3}, "two different threads, got 3 twice"),
    ("core_to_core", {"rounds": 2**30}, r"rounds must be below 2\*\*30"),
    ("stream", {"streams": 3}, "stream: streams must be one of 1, 2, 4, 8, got 3"),
    ("stream", {"stride": 0}, "stride must be between 1"),
    ("stream", {"stride": 10, "elements": 10}, r"stride must be 1, or less than elements \(10\), got 10"),
    ("stream", {"stride": 2, "access": "copy"}, "stride and prefetch are of access 'read' only, not of 'copy'"),
    ("stream", {"prefetch": "nta", "access": "triad"}, "stride and prefetch are of access 'read' only, not of 'triad'"),
    ("stream", {"prefetch": "t0"}, "prefetch must be one of none, nta, sparse, got 't0'"),
    ("stream", {"stride": 2, "streams": 2}, "one stream and no prefetch"),
    ("stream", {"stride": 2, "prefetch": "nta"}, "one stream and no prefetch"),
    ("stream", {"stride": 2, "isa": "avx2"}, "strided loads are scalar ones; leave isa empty, not 'avx2'"),
    ("softmax", {"rows": 2**31, "columns": 2**31}, "softmax: tensor 'x'"),  # of more than 2**62 bytes
    ("matmul", {"rows": 2**40, "columns": 1, "inner": 2**40}, "matmul: tensor"),
)


def test_the_largest_tensors() -> None:
    assert OPERATORS["pointer_chase"].make(size_bytes=2**37 - 64).footprint_bytes() == 68 * (2**31 - 1) + 4
    assert Softmax(rows=2**30, columns=2**30).compulsory_bytes() == 2**63  # Python's integers do not overflow


def test_numpy_integers_become_integers() -> None:
    problem = Stream(elements=np.int64(10), passes=np.uint8(3))  # type: ignore[arg-type]
    assert type(problem.elements) is int
    assert type(problem.total_flops()) is int
    assert problem.total_flops() == 30


def test_problems_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Softmax().rows = 3  # type: ignore[misc]


def test_heads_bring_their_kv_heads_along() -> None:
    assert Attention(heads=6, kv_heads=0).kv_heads == 6
    assert Attention(heads=8).replace(heads=16).kv_heads == 16
    assert Attention(heads=8, kv_heads=2).replace(heads=16).kv_heads == 2
    assert Attention(heads=8).replace(heads=16, kv_heads=4).kv_heads == 4
