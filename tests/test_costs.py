"""FLOPs and bytes of every operator, three ways: counted by running the reference, worked out by hand, and by properties."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from roofline.errors import Error
from roofline.operators import (
    MIXES,
    OPERATORS,
    Attention,
    Ffn,
    LayerNorm,
    Matmul,
    MixedIntensity,
    Operator,
    RmsNorm,
    Softmax,
    Stream,
)


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


def inputs(problem: Operator, seed: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(seed)
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


def small_problems(largest: int) -> list[Any]:
    """The operators' own cases that are small enough to run in Python numbers."""
    found = []
    for operator in OPERATORS.values():
        for case in operator.cases():
            size = max([case.problem.total_flops(), *(math.prod(t.shape) for t in case.problem.tensors())])
            if not case.slow and size <= largest:
                label = "-".join(str(value) for value in case.problem.to_dict().values())
                found.append(pytest.param(case.problem, id=f"{operator.name}-{label}"))
    return found


@pytest.mark.parametrize("problem", small_problems(40_000))
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
    counted_names = {parameter.values[0].name for parameter in small_problems(40_000)}
    assert counted_names == set(OPERATORS)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
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
    ],
    ids=lambda value: value.name if isinstance(value, Operator) else "",
)
def test_kinds_of_operations(problem: Operator, expected: dict[str, int]) -> None:
    assert dict(counted(problem)) == expected


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


@pytest.mark.parametrize("problem", [given for given in small_problems(40_000) if has_rows(given.values[0])])
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
BMM = {"batch": 2, "rows": 3, "columns": 5, "inner": 7}
MX = {"scale_block": 4, "scale_bits": 8}
SQUARES = {"scales": "block", "scale_block": 128, "scale_columns": 128}
NV = {"scales": "two_level", "scale_block": 16, "scale_bits": 8}
BITS = {"rows": 1, "scale_bits": 0}
MOE = {"tokens": 3, "experts": 5, "experts_per_token": 2, "d_model": 4, "d_ff": 3}
ROUTER = {"tokens": 2, "experts": 7, "experts_per_token": 3}

HAND = [
    # Query 0 of 3 sees keys 0 to 2 of 5, the next one more: 3 + 4 + 5 = 12 pairs a head, 12 x 2 x 4 = 96 in all.
    # q·kᵀ = p·v = 2 x 96 x 8 = 1536; softmax 5 x 96 = 480. q and out 2 x 4 x 3 x 8 = 192 elements each, k and v
    # 2 x 2 x 5 x 8 = 160 each: 704 of 4 bytes.
    ("attention", {**GQA, "causal": True}, {"q·kᵀ": 1536, "scale": 96, "softmax": 480, "p·v": 1536}, 2816),
    # 3 x 5 = 15 pairs a head, 120 in all; the bytes do not depend on the mask.
    ("attention", GQA, {"q·kᵀ": 1920, "scale": 120, "softmax": 600, "p·v": 1920}, 2816),
    # One query that is the last of 1024: 32 x 1024 = 32768 pairs, x 2 x 128 = 8388608. q and out 4096 elements each, k and v
    # 8 x 1024 x 128 = 1048576 each: 2105344 of 2 bytes.
    (
        "attention",
        {"batch": 1, "heads": 32, "kv_heads": 8, "seq_q": 1, "seq_kv": 1024, "head_dim": 128, "causal": True, "dtype": "bf16"},
        {"q·kᵀ": 8388608, "scale": 32768, "softmax": 163840, "p·v": 8388608},
        4210688,
    ),
    # 1 + 2 + 3 + 4 = 10 pairs of 2 dimensions; four tensors of 8 elements.
    (
        "attention",
        {"heads": 1, "seq_q": 4, "seq_kv": 4, "head_dim": 2, "causal": True},
        {"q·kᵀ": 40, "scale": 10, "softmax": 50, "p·v": 40},
        128,
    ),
    # 2 x 3 x 5 x 7 = 210; a 21, b 35, c 15 elements.
    ("matmul", {"rows": 3, "columns": 5, "inner": 7}, {"a·b": 210}, 284),
    ("matmul", {"rows": 3, "columns": 5, "inner": 7, "dtype": "fp64"}, {"a·b": 210}, 568),
    ("matmul", {"rows": 3, "columns": 5, "inner": 7, "dtype": "bf16"}, {"a·b": 210}, 56 * 2 + 15 * 4),  # c is fp32
    ("matmul", {"rows": 3, "columns": 5, "inner": 7, "dtype": "int8"}, {"a·b": 210}, 56 * 1 + 15 * 4),  # c is int32
    # One more number for each column; silu: exp, addition, division.
    (
        "matmul",
        {"rows": 3, "columns": 5, "inner": 7, "bias": True, "activation": "silu"},
        {"a·b": 210, "bias": 15, "activation": 45},
        304,
    ),
    # 3 rows and 5 columns of two blocks of 4 each: 16 scales of a byte; 56 operands and twice 15 results meet one.
    (
        "matmul",
        {"rows": 3, "columns": 5, "inner": 7, **MX, "dtype": "nvfp4", "scales": "two_level"},
        {"a·b": 210, "scale": 56 + 30},
        11 + 18 + 16 + 8 + 60,
    ),
    # Blocks of 4 along inner by 3 columns: 6 scales of a, 2 x 2 of b.
    (
        "matmul",
        {"rows": 3, "columns": 5, "inner": 7, "scales": "block", "scale_block": 4, "scale_columns": 3, "dtype": "fp8_e4m3"},
        {"a·b": 210, "scale": 56},
        56 + 4 * 10 + 60,
    ),
    # 6 tokens: 2 x 6 x 4 x 5 = 240 a product, 6 x 5 = 30 activations. x and out 24 elements each, each weight 20.
    ("ffn", {**FFN, "activation": "relu"}, {"up": 240, "activation": 30, "down": 240}, 352),
    # 0.5 x (1 + erf(x / sqrt(2))): three multiplications, an addition, an erf.
    ("ffn", {**FFN, "activation": "gelu"}, {"up": 240, "activation": 150, "down": 240}, 352),
    ("ffn", {**FFN, "activation": "gelu_tanh"}, {"up": 240, "activation": 270, "down": 240}, 352),
    # u g / (1 + e^-g): exp, addition, division, multiplication; a third weight.
    ("ffn", {**FFN, "activation": "swiglu"}, {"up": 240, "gate": 240, "activation": 120, "down": 240}, 432),
    # In int8 out is fp32; scales, of x, what is hidden and each column, meet every sum: 2 (30 + 24) + 30.
    (
        "ffn",
        {**FFN, "activation": "relu", "dtype": "int8"},
        {"up": 240, "activation": 30, "down": 240, "scale": 138},
        64 + 4 * (24 + 11),
    ),
    (
        "ffn",
        {**FFN, "activation": "swiglu", "dtype": "int8"},
        {"up": 240, "gate": 240, "activation": 120, "down": 240, "scale": 198},
        84 + 4 * (24 + 16),
    ),
    # 21 elements read and written.
    ("softmax", {"rows": 3, "columns": 7}, {"max": 21, "subtract": 21, "exp": 21, "sum": 21, "divide": 21}, 168),
    ("softmax", {"rows": 3, "columns": 7, "dtype": "fp16"}, {"max": 21, "subtract": 21, "exp": 21, "sum": 21, "divide": 21}, 84),
    # Squares 21, sums 21, 3 divisions by 7; eps added and root taken 3 times. 21 + 21 + 7 elements.
    ("rms_norm", {"rows": 3, "columns": 7}, {"mean square": 45, "root": 6, "divide": 21, "weight": 21}, 196),
    # As above with the mean before; 21 + 21 + 7 + 7 elements.
    (
        "layer_norm",
        {"rows": 3, "columns": 7},
        {"mean": 24, "deviations": 21, "variance": 45, "root": 6, "divide": 21, "weight": 21, "bias": 21},
        224,
    ),
    ("relu", {"elements": 9}, {"compare": 9}, 72),
    ("bias_relu", {"rows": 3, "columns": 7}, {"bias": 21, "compare": 21}, 196),
    ("exp", {"elements": 9}, {"exp": 9}, 72),
    ("exp", {"elements": 9, "passes": 2}, {"exp": 18}, 72),
    # One array of 10 and the fp64 sum; one; two; two; three; three arrays.
    ("stream", {"access": "read", "elements": 10}, {"read": 10}, 48),
    ("stream", {"access": "write", "elements": 10}, {"write": 0}, 40),
    ("stream", {"access": "copy", "elements": 10}, {"copy": 0}, 80),
    ("stream", {"access": "scale", "elements": 10}, {"scale": 10}, 80),
    ("stream", {"access": "add", "elements": 10, "dtype": "fp64"}, {"add": 10}, 240),
    ("stream", {"access": "triad", "elements": 10}, {"triad": 20}, 120),
    ("stream", {"access": "triad", "elements": 10, "passes": 3}, {"triad": 60}, 120),
    # One array, read and written.
    ("stream", {"access": "update", "elements": 10}, {"update": 10}, 80),
    ("stream", {"access": "update", "elements": 10, "passes": 3}, {"update": 30}, 80),
    # 7 chains x 2 steps of 1, 2, 4 products, each with an addition; start and result of 4 bytes.
    ("fma", {"chains": 7, "steps": 2}, {"multiply-add": 28}, 56),
    # 2 tiles of 3 x 5 x 7, 4 times. a and -a 84, b 70 of one byte, c 30 of four.
    ("mma", {"tiles": 2, "rows": 3, "columns": 5, "inner": 7, "steps": 4, "dtype": "int8"}, {"a·b": 1680}, 84 + 70 + 120),
    ("mma", {"tiles": 2, "rows": 3, "columns": 5, "inner": 7, "steps": 1, "accumulator": "fp16"}, {"a·b": 420}, 154 * 2 + 60),
    ("fma", {"chains": 7, "steps": 2, "dtype": "bf16"}, {"multiply-add": 56}, 56),
    ("fma", {"chains": 7, "steps": 2, "dtype": "int8"}, {"multiply-add": 112}, 56),
    ("fma", {"chains": 7, "steps": 2, "dtype": "fp16"}, {"multiply-add": 28}, 28),  # accumulated in fp16
    # And one more addition a step.
    ("fma", {"chains": 7, "steps": 2, "pattern": "fma_add", "dtype": "fp64"}, {"multiply-add": 28, "add": 14}, 112),
    # 6 periods of 2 lines of 8 elements, of which 8 count, and 4 of a begun line: 52, x 2 x 3. a of 8 bytes, and the sum.
    ("mixed_intensity", {"elements": 100, "multiply_adds": 3, "every": 2, "dtype": "fp64"}, {"multiply-add": 312}, 808),
    ("mixed_intensity", {"elements": 100, "multiply_adds": 3}, {"multiply-add": 600}, 408),
    ("fork_join", {}, {}, 0),
    # 5 of 8 lines of 64 bytes, and the result; then all 8, though the lap is begun again.
    ("pointer_chase", {"size_bytes": 512, "hops": 5}, {}, 324),
    ("pointer_chase", {"size_bytes": 512, "hops": 11}, {}, 516),
    ("core_to_core", {"rounds": 7}, {}, 4),
    # Each way once, whatever is read back to be compared.
    ("host_copy", {"size_bytes": 1000}, {}, 1000),
    ("host_copy", {"size_bytes": 1000, "direction": "from_device"}, {}, 1000),
    ("host_copy", {"size_bytes": 1000, "direction": "both"}, {}, 2000),
    ("peer_copy", {"size_bytes": 7, "direction": "both"}, {}, 14),
    ("fork_join", {"calls": 5}, {}, 0),
    # 2 x 3 x (3 x 7 - 3) = 108 pairs of 5 + 2 and 5 numbers. q and out 18 x 5, rotated q 18 x 2, cache 14 x 5, keys 14 x 2: 314 of
    # two bytes.
    (
        "mla_decode",
        {"batch": 2, "heads": 3, "seq_q": 3, "seq_kv": 7, "kv_lora_rank": 5, "qk_rope_head_dim": 2},
        {"q·cᵀ": 1080, "q_rope·kᵀ": 432, "scale": 108, "softmax": 540, "p·c": 1080, "dequantise": 0},
        628,
    ),
    # DeepSeek-V3, one token against 1000 in the cache of FlashMLA's fp8 format: 512 + 4 x 4 + 64 x 2 = 656 bytes a token. Queries
    # 128 x 576, out 128 x 512, of two bytes. 128000 pairs.
    (
        "mla_decode",
        {"seq_kv": 1000, "cache_dtype": "fp8_e4m3", "scale_block": 128},
        {"q·cᵀ": 131072000, "q_rope·kᵀ": 16384000, "scale": 128000, "softmax": 640000, "p·c": 131072000, "dequantise": 512000},
        656000 + 2 * 128 * 1088,
    ),
    # 2 x 2 x (3 x 7 - 3) = 72 pairs of 3 + 2 and 5 numbers. q 12 x 5, k 28 x 3 and 14 x 2, v 28 x 5, out 12 x 5: 372.
    (
        "mla_prefill",
        {"batch": 2, "heads": 2, "seq_q": 3, "seq_kv": 7, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2, "v_head_dim": 5},
        {"q·kᵀ": 720, "scale": 72, "softmax": 360, "p·v": 720},
        744,
    ),
    # 2 x (3 x 7 + 7 x 5) = 112 operands and 2 x 15 results.
    ("bmm", BMM, {"a·b": 420, "scale": 0}, 112 * 2 + 30 * 2),
    ("bmm", {**BMM, "dtype": "fp64", "out_dtype": "fp64"}, {"a·b": 420, "scale": 0}, 142 * 8),
    # Two scales of four bytes, each met by 30 results; one for each of 6 rows and 10 columns.
    ("bmm", {**BMM, "dtype": "fp8_e4m3", "scales": "tensor"}, {"a·b": 420, "scale": 60}, 112 + 60 + 8),
    ("bmm", {**BMM, "dtype": "int8", "out_dtype": "int32", "scales": "row"}, {"a·b": 420, "scale": 60}, 112 + 120 + 64),
    # a: 42 x 4 bits, 21 bytes; b: 35; 2 blocks of 4 along 7, so 12 and 20 scales of a byte. Then two of four bytes.
    ("bmm", {**BMM, **MX, "dtype": "mxfp4", "scales": "block"}, {"a·b": 420, "scale": 112}, 56 + 60 + 32),
    ("bmm", {**BMM, **MX, "dtype": "nvfp4", "scales": "two_level"}, {"a·b": 420, "scale": 172}, 56 + 60 + 32 + 8),
    # Three numbers of 4 bits are two bytes, one is a byte.
    ("bmm", {"batch": 1, "rows": 3, "columns": 1, "inner": 1, "dtype": "mxfp4"}, {"a·b": 6, "scale": 0}, 2 + 1 + 6),
    # b: 35 x 3 bits, 14 bytes; two groups of 4 along 7: 10 scales of two bytes, 10 zero points of 3 bits, 4 bytes. a 21, c 15.
    (
        "quantized_matmul",
        {"rows": 3, "columns": 5, "inner": 7, "weight_bits": 3.0, "group_size": 4, "zero_bits": 3},
        {"a·b": 210, "dequantise": 70},
        42 + 14 + 20 + 4 + 30,
    ),
    # 100 x 1.58 = 158 bits, 20 bytes; a 60, c 15. 256 x 4.25 bits are 136 bytes; a 64, c 16. 400 x 1.58 bits are 79 bytes, and not
    # one more; a 100, c 4.
    ("quantized_matmul", {**BITS, "rows": 3, "columns": 5, "inner": 20, "weight_bits": 1.58}, {"a·b": 600, "dequantise": 0}, 170),
    ("quantized_matmul", {**BITS, "rows": 2, "columns": 8, "inner": 32, "weight_bits": 4.25}, {"a·b": 1024, "dequantise": 0}, 296),
    ("quantized_matmul", {**BITS, "columns": 4, "inner": 100, "weight_bits": 1.58}, {"a·b": 800, "dequantise": 0}, 287),
    # One scale for each of 5 columns; one multiplication for each of 35 weights.
    (
        "quantized_matmul",
        {"rows": 3, "columns": 5, "inner": 7, "group_size": 0, "dtype": "fp8_e4m3"},
        {"a·b": 210, "dequantise": 35},
        21 + 18 + 10 + 30,
    ),
    # 3 tokens to 2 of 5 experts and 1 shared: 9 rows of 4 x 3. Of each matrix 4 + 1 experts of 12 bytes. x 12 bytes, 6 indices and
    # 6 gates of four, out 24.
    (
        "grouped_matmul",
        {**MOE, "shared_experts": 1, "touched_experts": 4, "activation": "gelu", "dtype": "fp8_e4m3", "weight_bits": 8.0},
        {"up": 216, "activation": 135, "down": 216, "combine": 12 * 5},
        12 + 24 + 24 + 2 * 60 + 24,
    ),
    # 5 (1 - (3/5)^3) = 3.92 experts of 3 matrices of 24 bytes: 94.08 bytes each, 95.
    (
        "grouped_matmul",
        MOE,
        {"up": 144, "gate": 144, "activation": 72, "down": 144, "combine": 48},
        24 + 24 + 24 + 3 * 95 + 24,
    ),
    # 6 experts on 3 ranks of 3 tokens, 2 each: a rank misses 1 - 6/15 of 9 tokens, 5.4, 6 rows; of its 2 experts (1 - (2/3)^9) have
    # any, 1.948 times 24 bytes a matrix: 46.75, 47. FLOPs are those of an even share, as of one rank alone.
    (
        "grouped_matmul",
        {**MOE, "experts": 6, "ranks": 3},
        {"up": 144, "gate": 144, "activation": 72, "down": 144, "combine": 48},
        6 * 8 + 2 * 6 * 8 + 3 * 47 + 6 * 8,
    ),
    # One token of DeepSeek-V3 touches 8 of 256 experts: 3 x 8 x 7168 x 2048 weights of two bytes.
    (
        "grouped_matmul",
        {},
        {"up": 234881024, "gate": 234881024, "activation": 65536, "down": 234881024, "combine": 114688},
        704643072 + 2 * 7168 * 2 + 64,
    ),
    ("lm_head", {"tokens": 3, "d_model": 5, "vocabulary": 7}, {"x·w": 210}, 30 + 70 + 84),
    ("lm_head", {"tokens": 3, "d_model": 5, "vocabulary": 7, "weight_dtype": "fp8_e4m3"}, {"x·w": 210}, 30 + 35 + 84),
    # 9 rows are asked for and there are 4 of 3 numbers; 9 indices of four bytes, 27 numbers of two.
    ("embedding", {"tokens": 9, "vocabulary": 4, "d_model": 3}, {}, 36 + 24 + 54),
    ("embedding", {"tokens": 3, "vocabulary": 7, "d_model": 5}, {}, 12 + 30 + 30),
    # 6 tokens of 4 and 2 heads of 3 pairs, 6 operations a pair. q 144 and k 72 numbers of two bytes there and back, 2 x 18 of four.
    (
        "rope",
        {"batch": 2, "seq_q": 3, "heads": 4, "kv_heads": 2, "head_dim": 6},
        {"rotate q": 432, "rotate k": 216},
        216 * 4 + 36 * 4,
    ),
    # 5 x 14 a softmax; the 3 largest of 7: 7 + 6 + 5 comparisons a token; 6 weights added up and divided.
    ("topk_softmax", ROUTER, {"softmax": 70, "select": 36, "renormalise": 12}, 56 + 48),
    ("topk_softmax", {**ROUTER, "renormalise": False, "dtype": "bf16"}, {"softmax": 70, "select": 36}, 28 + 48),
    # exp, addition, division of 14; 14 biases added, 7 of four bytes.
    ("topk_sigmoid", ROUTER, {"sigmoid": 42, "bias": 14, "select": 36, "renormalise": 12}, 56 + 28 + 48),
    ("topk_sigmoid", {**ROUTER, "biased": False, "renormalise": False}, {"sigmoid": 42, "select": 36}, 56 + 48),
    # As in ffn. Inside the tanh two multiplications for the cube, two more and an addition; the tanh; an addition and two
    # multiplications outside.
    ("gelu", {"elements": 9}, {"gelu": 45}, 72),
    ("gelu", {"elements": 9, "form": "tanh"}, {"gelu": 81}, 72),
    # Two read, one written, of two bytes.
    ("silu_mul", {"rows": 3, "columns": 7}, {"silu": 63, "multiply": 21}, 126),
    # x read, residual read and written, y written, weight: 4 x 21 + 7 of two bytes.
    (
        "residual_rms_norm",
        {"rows": 3, "columns": 7},
        {"add": 21, "mean square": 45, "root": 6, "divide": 21, "weight": 21},
        182,
    ),
    # Gradient 2, moments 4 x 4, fp32 weights 4 + 4, the model's 2: 28 bytes a parameter. Without a copy 2 + 16 + 8 = 26.
    (
        "adam",
        {"elements": 10},
        {"first moment": 30, "second moment": 40, "decay": 10, "root": 30, "step": 30},
        280,
    ),
    (
        "adam",
        {"elements": 10, "master": False, "dtype": "fp32", "gradient_dtype": "fp16", "decayed": False},
        {"first moment": 30, "second moment": 40, "root": 30, "step": 30},
        260,
    ),
    # Chunks of 5: three rounds of additions. In place 17 numbers of two bytes, read and written.
    # Queries of 3 tokens see 3, 4 and 4 of the last 4 keys: 11 pairs a head, 22. The first sees keys 0 to 2, the last 1 to 4: all
    # five. q and out 2 x 3 x 4 of two bytes, k and v 5 x 4 of one, two sinks of four.
    (
        "cached_attention",
        {"heads": 2, "kv_heads": 1, "seq_q": 3, "seq_kv": 5, "head_dim": 4, "window": 4, "sinks": True, "kv_dtype": "fp8_e4m3"},
        {"q·kᵀ": 176, "scale": 22, "softmax": 110, "sinks": 24, "p·v": 176},
        2 * 48 + 40 + 8,
    ),
    # 7 keys in pages of 3, of which two rows stay empty: 2 x 3 entries of four bytes. 2 x 2 x (6 + 7) pairs of 4. q and out
    # 2 x 2 x 2 x 4, k and v 2 x 7 x 4, of two bytes.
    (
        "cached_attention",
        {"batch": 2, "heads": 2, "kv_heads": 1, "seq_q": 2, "seq_kv": 7, "head_dim": 4, "page_size": 3},
        {"q·kᵀ": 416, "scale": 52, "softmax": 260, "p·v": 416},
        2 * 2 * 32 + 2 * 2 * 56 + 24,
    ),
    # Sequences of 3, 5 and 8 keys; 2 queries see 2 + 3, 4 + 4 and 4 + 4 of the last 4: 21 pairs a head, 42. Keys that some query
    # sees: 3, 5 and 5. q and out 3 x 2 x 2 x 4, k and v 13 x 4, of two bytes, and three lengths of four.
    (
        "cached_attention",
        {
            "batch": 3, "heads": 2, "kv_heads": 1, "seq_q": 2, "seq_kv": 8, "head_dim": 4, "window": 4, "shortest": 3,
            "softcap": 50.0,
        },
        {"q·kᵀ": 336, "scale": 42, "softcap": 126, "softmax": 210, "p·v": 336},
        2 * 2 * (48 + 52) + 12,
    ),
    # 2 heads of 3 x 5 pairs, and a logarithm and an addition for each of 6 queries. q and out 6 x 4, k and v 10 x 4, 6 sums.
    (
        "attention",
        {"heads": 2, "seq_q": 3, "seq_kv": 5, "head_dim": 4, "logsumexp": True},
        {"q·kᵀ": 240, "scale": 30, "softmax": 150, "logsumexp": 12, "p·v": 240},
        4 * (2 * (24 + 40) + 6),
    ),
    # One query that sees 128 keys of 100000.
    (
        "cached_attention",
        {"heads": 64, "seq_kv": 100000, "head_dim": 64, "window": 128},
        {"q·kᵀ": 1048576, "scale": 8192, "softmax": 40960, "p·v": 1048576},
        2 * (2 * 64 * 64 + 2 * 8 * 128 * 64),
    ),
    # 3 + 4 + 5 = 12 pairs a head, 24. Four tensors of 2 x 3 x 4 numbers and four of 5 x 4, of two bytes, and six of four.
    (
        "attention_backward",
        {"heads": 2, "kv_heads": 1, "seq_q": 3, "seq_kv": 5, "head_dim": 4},
        {
            "q·kᵀ": 192, "scale": 24, "softmax": 48, "pᵀ·dout": 192, "dout·vᵀ": 192, "out·dout": 48, "ds": 72, "ds·k": 192,
            "dsᵀ·q": 192,
        },
        2 * 4 * (24 + 20) + 24,
    ),
    ("convert", {"elements": 9, "out_dtype": "int4"}, {}, 18 + 5),
    ("all_reduce", {"elements": 17, "ranks": 4}, {"add": 15}, 68),
    ("all_gather", {"elements": 17, "ranks": 4}, {}, 10 + 34),
    ("reduce_scatter", {"elements": 17, "ranks": 4}, {"add": 15}, 34 + 10),
    ("all_to_all", {"elements": 17, "ranks": 4}, {}, 34 + 34),
]


@pytest.mark.parametrize(("name", "fields", "flops", "size_bytes"), HAND)
def test_by_hand(name: str, fields: dict[str, Any], flops: dict[str, int], size_bytes: int) -> None:
    problem = OPERATORS[name].make(**fields)
    assert problem.flops() == flops
    assert problem.total_flops() == sum(flops.values())
    assert problem.compulsory_bytes() == size_bytes


def test_every_operator_is_worked_out_by_hand() -> None:
    assert {row[0] for row in HAND} == set(OPERATORS)


@pytest.mark.parametrize(
    ("name", "fields", "plan", "expected"),
    [
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
        ("softmax", {"rows": 3, "columns": 7}, {"variant": "fused"}, {}),
        ("softmax", {"rows": 3, "columns": 7}, {"variant": "fused", "row_cached": 1}, {}),
        # 84 bytes: x again, and the exponentials there and back.
        (
            "softmax",
            {"rows": 3, "columns": 7},
            {"variant": "fused", "row_cached": 0},
            {"x for the exponentials": 84, "exponentials read and written": 168},
        ),
        # 28 bytes of weight for two further rows.
        (
            "rms_norm",
            {"rows": 3, "columns": 7},
            {"variant": "fused", "row_cached": 0},
            {"x for the result": 84, "weight for further rows": 56},
        ),
        (
            "layer_norm",
            {"rows": 3, "columns": 7},
            {"variant": "two_pass", "row_cached": 0},
            {"x for the variance": 84, "x for the result": 84, "weight and bias for further rows": 112},
        ),
        (
            "layer_norm",
            {"rows": 3, "columns": 7},
            {"variant": "one_pass", "row_cached": 0},
            {"x for the result": 84, "weight and bias for further rows": 112},
        ),
        ("bias_relu", {"rows": 3, "columns": 7}, {"variant": "fused", "row_cached": 0}, {"bias for further rows": 56}),
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
            {"tokens": 3, "experts": 4, "experts_per_token": 2, "d_model": 4, "d_ff": 5, "activation": "relu"},
            {"variant": "library"},
            {"gathered x written, read": 96, "up written, read": 120, "activated written, read": 120, "results written, read": 96},
        ),
        # The same without x in between, and two numbers of a row in 32 bits.
        (
            "grouped_matmul",
            {"tokens": 3, "experts": 4, "experts_per_token": 2, "d_model": 4, "d_ff": 5},
            {"variant": "tiled"},
            {"routing written, read": 96, "activated written, read": 120, "results written, read": 96},
        ),
        # On a CPU with x gathered, and all of it in fp32.
        (
            "grouped_matmul",
            {"tokens": 3, "experts": 4, "experts_per_token": 2, "d_model": 4, "d_ff": 5},
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
        ("bmm", {"batch": 2, "rows": 19, "columns": 5, "inner": 3}, {"variant": "tiled"}, {"b packed in fp32: written, read": 240}),
        (
            "bmm",
            {"batch": 2, "rows": 19, "columns": 5, "inner": 3},
            {"variant": "tiled", "packed_in_launch_bytes": 240},
            {"b packed in fp32: written, read": 480},
        ),
        ("bmm", {"batch": 2, "rows": 18, "columns": 5, "inner": 3}, {"variant": "tiled"}, {"b packed in fp32: written, read": 0}),
    ],
)  # fmt: skip
def test_traffic_by_hand(name: str, fields: dict[str, Any], plan: dict[str, Any], expected: dict[str, int]) -> None:
    assert OPERATORS[name].make(**fields).traffic(plan) == expected


WIDTH_BITS = {
    "fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "fp8_e4m3": 8, "fp8_e5m2": 8, "int32": 32, "int8": 8, "int4": 4,
    "nvfp4": 4, "mxfp4": 4, "fp8_e8m0": 8,
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
    "prefetch": ("none", "nta"),
}
FEW = {"streams": (1, 2, 4, 8), "stride": (1, 1, 3)}  # integers of which most values are refused


def kind(field: dataclasses.Field[Any]) -> str:
    return field.type if isinstance(field.type, str) else field.type.__name__


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
        elif kind(field) == "int":
            values[field.name] = draw(st.integers(1, 3000) | st.sampled_from([1, 2, 4, 8, 16]))
        elif kind(field) == "bool":
            values[field.name] = draw(st.booleans())
        elif kind(field) == "float":
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


def test_seq_len_where_it_means_nothing() -> None:
    with pytest.raises(Error, match="seq_len"):
        Softmax.make(seq_len=3)
    with pytest.raises(Error, match="either seq_len or seq_q"):
        Attention.make(seq_len=3, seq_q=3)
    with pytest.raises(Error, match="either seq_len or seq_kv"):
        Attention().replace(seq_len=3, seq_kv=4)
    with pytest.raises(Error, match=r"unknown field 'seqlenq'.*seq_q"):
        Attention.make(seqlenq=3)


NO_INTEGERS = [-1, -(2**63), 2**62 + 1, 2**63, 1.0, 1.5, math.nan, math.inf, True, False, "three", None, [3], np.float64(2)]
CHOICES = ("access", "activation", "form", "pages", "pattern", "scales")
NO_NUMBERS = [math.nan, math.inf, -math.inf, True, "1e-5", None, [1.0]]
FIELDS = [(operator, field) for operator in OPERATORS.values() for field in dataclasses.fields(operator)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("operator", "field"), FIELDS, ids=[f"{operator.name}-{field.name}" for operator, field in FIELDS])
def test_bad_fields_are_named(operator: type[Operator], field: dataclasses.Field[Any]) -> None:
    if kind(field) == "int":
        bad = NO_INTEGERS if field.name in operator.small else [0, *NO_INTEGERS]
    elif kind(field) == "float":
        bad = NO_NUMBERS
    elif kind(field) == "bool":
        bad = [1, 0, "yes", None, 1.0]
    else:
        bad = ["fp33", "", 7, None, ["fp32"]] if field.name.endswith("dtype") or field.name in CHOICES else []
    for value in bad:
        with pytest.raises(Error) as caught:
            operator(**{field.name: value})
        words = str(caught.value)
        assert field.name in words, f"{operator.name} {field.name}={value!r}: {words}"
        if field.name != "dtype":  # an unknown dtype is unknown to all
            assert operator.name in words, words


@pytest.mark.parametrize("eps", [0.0, -1e-5])
@pytest.mark.parametrize("operator", [RmsNorm, LayerNorm])
def test_eps_is_positive(operator: type[Operator], eps: float) -> None:
    with pytest.raises(Error, match="eps must be above 0"):
        operator(eps=eps)  # type: ignore[call-arg]


def test_mixed_intensity_is_bounded() -> None:
    with pytest.raises(Error, match="mixed_intensity: every must be one of 1, 2, 4, 8, got 3"):
        MixedIntensity(every=3)
    with pytest.raises(Error, match="mixed_intensity: multiply_adds must be at most 16384, got 16385"):
        MixedIntensity(multiply_adds=16385)


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


def test_streams_are_a_power_of_two() -> None:
    with pytest.raises(Error, match="stream: streams must be one of 1, 2, 4, 8, got 3"):
        Stream(streams=3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"size_bytes": 100}, "size_bytes must be a multiple of 64, got 100"),
        ({"size_bytes": 2**37}, "size_bytes must be below 128 GiB"),
        ({"pages": "giant"}, "pages must be one of huge, small, got 'giant'"),
        ({"dtype": "fp32"}, "dtype must be one of int32"),
    ],
)
def test_bad_chases(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Error, match=words):
        OPERATORS["pointer_chase"].make(**fields)
    assert OPERATORS["pointer_chase"].make(size_bytes=2**37 - 64).footprint_bytes() == 68 * (2**31 - 1) + 4


def test_bad_pairs_of_threads() -> None:
    with pytest.raises(Error, match="two different threads, got 3 twice"):
        OPERATORS["core_to_core"].make(first=3, second=3)
    with pytest.raises(Error, match=r"rounds must be below 2\*\*30"):
        OPERATORS["core_to_core"].make(rounds=2**30)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stride": 0}, "stride must be between 1"),
        ({"stride": 10, "elements": 10}, r"stride must be 1, or less than elements \(10\), got 10"),
        ({"stride": 2, "access": "copy"}, "stride and prefetch are of access 'read' only, not of 'copy'"),
        ({"prefetch": "nta", "access": "triad"}, "stride and prefetch are of access 'read' only, not of 'triad'"),
        ({"prefetch": "t0"}, "prefetch must be one of none, nta, got 't0'"),
        ({"stride": 2, "streams": 2}, "one stream and no prefetch"),
        ({"stride": 2, "prefetch": "nta"}, "one stream and no prefetch"),
        ({"stride": 2, "isa": "avx2"}, "strided loads are scalar ones; leave isa empty, not 'avx2'"),
    ],
)
def test_strides_and_prefetches_are_of_reads(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Error, match=message):
        Stream.make(**fields)


def test_heads_are_shared_evenly() -> None:
    with pytest.raises(Error, match="heads 6 and kv_heads 4"):
        Attention(heads=6, kv_heads=4)
    assert Attention(heads=6, kv_heads=0).kv_heads == 6


def test_causal_queries_all_see_a_key() -> None:
    with pytest.raises(Error, match="seq_q 5 > seq_kv 3"):
        Attention(seq_q=5, seq_kv=3, causal=True)


def test_tensors_past_2_62_bytes_are_named() -> None:
    with pytest.raises(Error, match="softmax: tensor 'x'"):
        Softmax(rows=2**31, columns=2**31)
    with pytest.raises(Error, match="matmul: tensor"):
        Matmul(rows=2**40, columns=1, inner=2**40)
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
    assert Attention(heads=8).replace(heads=16).kv_heads == 16
    assert Attention(heads=8, kv_heads=2).replace(heads=16).kv_heads == 2
    assert Attention(heads=8).replace(heads=16, kv_heads=4).kv_heads == 4
