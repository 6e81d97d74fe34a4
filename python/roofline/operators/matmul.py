"""The matrix product, the probe of the compute roofs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import dtypes, references
from ..counts import Array, any_of, ceil_div, larger
from ..tensor_spec import TensorSpec
from .activations import ACTIVATIONS, activated, exponentials
from .base import Case, Facts, Variant
from .scales import Scaled

# The dtype of c, and of the sums.
_RESULT = {
    "fp32": "fp32", "fp64": "fp64", "bf16": "fp32", "int8": "int32", "fp16": "fp32", "tf32": "fp32", "fp8_e4m3": "fp32",
    "fp8_e5m2": "fp32", "nvfp4": "fp32",
}  # fmt: skip
_DTYPES = tuple(_RESULT)
ALONG_INNER = ("int8", "fp8_e4m3", "nvfp4")  # dtypes whose kernels read both operands along inner
MOST_INNER_INT8 = 2**17 - 1  # one more product of -128 by -128, and the sum leaves an int32


# How far gelu_tanh(x) may be off after cuBLASLt's product of 16 bits and fewer: by |x| / 2 times the error of `tanh.approx.f32`,
# 2**-11 of a number below 1 (PTX ISA), up to |x| = 3, above which tanh is 1.
TANH_APPROXIMATED = 1.5 * 2.0**-11


def lost(dtype: str, inner: int) -> float:
    """What a tensor unit may lose of a sum of `inner` terms of variance 1 beside the roundings of its accumulator.

    tf32: operands lose their last 13 bits, 2**-9 of a product at most, and the errors add up like the terms. Others cut a sum off
    each time that products come to it, always towards 0. fp8: Hopper's units keep about 14 bits of a sum while 32 products at a
    time come to it (DeepSeek-V3 Technical Report, section 3.3.2); the largest of many such errors is several times 2**-13 of the
    sum. 16 bits: 24 bits of a sum, 16 products at a time.
    """
    if dtype == "tf32":
        return 2.0**-6 * math.sqrt(inner)
    if dtype in ("fp8_e4m3", "nvfp4"):
        return 2.0**-10 * math.sqrt(inner) * ceil_div(inner, 32)  # type: ignore[no-any-return]
    if dtype in ("fp16", "bf16"):
        return 2.0**-22 * math.sqrt(inner) * ceil_div(inner, 16)  # type: ignore[no-any-return]
    return 0.0


def spread(dtype: str) -> float:
    """Variance of random numbers, root of that of a term: 1, but of nvfp4, whose bits are random, the mean of 0 … 36, 68.5 / 8."""
    return 68.5 / 8 if dtype == "nvfp4" else 1.0


class _Library(Variant):
    """On a CPU a thread adds the bias and applies the activation to each block of c that the library has written."""

    def traffic(self, problem: Matmul, plan: Facts) -> dict[str, int]:
        if not problem.finished or plan.get("epilogue") == "fused":
            return {}
        return {"c read, written again": 2 * problem.outputs()[0].size_bytes}

    def reuse(self, problem: Matmul, plan: Facts) -> dict[str, tuple[int, int]]:
        threads = plan.get("threads", 1)
        return {term: (size, size // 2 // threads) for term, size in self.traffic(problem, plan).items()}


class _Tiled(Variant):
    def pieces(self, problem: Matmul) -> Any:
        # Strips of columns, and many rows in parts.
        return ceil_div(problem.columns, 32) * larger(problem.rows // 56, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul(Scaled):
    """c = activation(a b + bias): the GEMM of the textbooks with M = rows, N = columns, K = inner.

    a: [rows, inner]. b: [inner, columns], constant: packing it happens before the clock starts, and its time and bytes are in
    the plan (pack_s, packed_bytes). c: [rows, columns], fp32 for fp16, bf16, fp8, nvfp4 and tf32 inputs (tf32 ones are stored as
    fp32), int32 for int8 ones (exact; inner below 2**17). scales, scale_block, scale_columns, scale_bits: see `scales.Scaled`; they
    are constant too. MXFP8 is dtype fp8_e4m3, block, 32, 8 bits; NVFP4 is dtype nvfp4, two_level, 16, 8 bits; 128 numbers of a and
    128 x 128 of b are fp8_e4m3, block, 128, scale_columns 128, 32 bits.
    bias: whether one number for each column, in the dtype of c, is added; activation: none, relu, gelu (with erf), gelu_tanh or
    silu, x / (1 + e^-x). Both need a c in fp32. Raises Error for bad fields.
    """

    rows: int = 4096
    columns: int = 4096
    inner: int = 4096
    scales: str = "none"
    scale_block: int = 32
    scale_columns: int = 1
    scale_bits: int = 32
    bias: bool = False
    activation: str = "none"
    dtype: str = "fp32"

    name = "matmul"
    summary = "the matrix product, the probe of the compute roofs"
    mix = "read"
    allowed = {"dtype": _DTYPES, "activation": ("none", *ACTIVATIONS), **Scaled.allowed}
    variants = {
        "library": _Library(
            summary="oneDNN (fp32, bf16, int8) or OpenBLAS (fp64, fp32 where it is the faster), one block of c per thread; on a "
            "GPU cuBLASLt, the fastest of its heuristic's proposals",
            dtypes={
                "cpu": ("fp32", "fp64", "bf16", "int8"),
                "cuda": ("fp64", "fp32", "tf32", "fp16", "bf16", "int8", "fp8_e4m3", "nvfp4"),
            },
            shared_sums=True,
        ),
        "tiled": _Tiled(
            summary="our own kernels on packed strips of b, sums in fp32 (int8: int32, fp64: fp64); few rows read b in one stream "
            "or several; bias and activation while a cache holds c",
            dtypes={"cpu": ("fp32", "fp64", "bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2")},
            own_products=True,
        ),
        "fast_accumulation": Variant(
            summary="as library on a GPU, with sums left to its tensor cores, which keep fewer bits of them than fp32 has",
            dtypes={"cuda": ("fp8_e4m3",)},
            shared_sums=True,
        ),
    }

    def check(self) -> None:
        Scaled.check(self)
        self.require(
            not self.finished or _RESULT[self.dtype] == "fp32",
            "bias and activation need a c in fp32, and of {dtype} it is none; use bias False and activation none, or fp32",
        )
        self.require(
            self.dtype != "int8" or self.inner <= MOST_INNER_INT8,
            "inner must be below 2**17 for int8, so that sums fit in int32, got {inner}",
        )

    @property
    def finished(self) -> bool:
        """Whether anything becomes of the product."""
        return self.bias or self.activation != "none"

    def inputs(self) -> tuple[TensorSpec, ...]:
        bias = TensorSpec(name="bias", shape=(self.columns,), dtype=_RESULT[self.dtype], role="constant")
        return (
            TensorSpec(name="a", shape=(self.rows, self.inner), dtype=self.dtype),
            TensorSpec(name="b", shape=(self.inner, self.columns), dtype=self.dtype, role="constant"),
            *self.scale_tensors(role="constant"),
            *((bias,) if self.bias else ()),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="c", shape=(self.rows, self.columns), dtype=_RESULT[self.dtype], role="out"),)

    def flops(self) -> dict[str, int]:
        results, elements = self.rows * self.columns, self.inner * (self.rows + self.columns)
        scale = {} if self.scales == "none" else {"scale": self.scale_flops(results, elements)}
        bias = {"bias": results} if self.bias else {}
        activation = {} if self.activation == "none" else {"activation": ACTIVATIONS[self.activation] * results}
        return {"a·b": 2 * results * self.inner, **scale, **bias, **activation}

    def operations(self) -> dict[str, int]:
        flops = self.flops()
        product, exps = flops.pop("a·b"), exponentials(self.activation) * self.rows * self.columns
        counts = {"exp": exps, "other": sum(flops.values()) - exps}
        return {"product": product, **{kind: count for kind, count in counts.items() if flops and (kind != "exp" or any_of(exps))}}

    def tolerance(self) -> tuple[float, float]:
        """Absolute, for terms of variance 1.

        A sum of n terms is about sqrt(n), and each of its n roundings errs by up to eps / 2 of that: 0.14 eps n as the root of
        the mean square where terms are added one by one. The largest of many outputs is up to 7 times that.
        """
        if self.dtype == "int8":
            return 0.0, 0.0
        eps = dtypes.dtype(_RESULT[self.dtype]).eps
        if self.dtype == "tf32":
            return self.largest_scale() * lost("tf32", self.inner), 4 * dtypes.dtype("tf32").eps
        largest = self.largest_scale() * spread(self.dtype)
        activated = TANH_APPROXIMATED if self.activation == "gelu_tanh" and dtypes.dtype(self.dtype).bits <= 16 else 0.0
        return largest * ((2 * self.inner + 16) * eps + lost(self.dtype, self.inner)) + activated, 4 * eps

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: rows of a and c."""
        a = tensors["a"] if rows is None else tensors["a"][rows]
        if rows is not None and self.scales not in ("none", "tensor"):
            tensors = {**tensors, "a_scale": tensors["a_scale"][rows]}
        a, b = self.scaled_operands(a, tensors["b"], tensors)
        c = self.scaled_results(references.matmul(a, b), tensors)
        if self.bias:
            c = c + tensors["bias"]
        return {"c": c if self.activation == "none" else activated(self.activation, c)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = (
            (1, 1, 1),
            (1, 4099, 257),  # one row, split by columns
            (3, 5, 7),
            (17, 129, 65),
            (37, 50, 41),
            (64, 64, 64),
            (127, 131, 137),
            (2000, 3, 5),  # tall
            (3, 2000, 9),  # flat
            (1000, 1, 333),  # one column
            (1, 1, 10007),  # one sum
            (129, 1024, 500),  # rows and columns that no tile divides
        )
        whole = tuple(dtype for dtype in _DTYPES if dtype != "nvfp4")
        sixteens = ((1, 16, 16), (37, 48, 80), (129, 256, 1024), (300, 1040, 64))  # as kernels of 8 bits want inner and columns
        scales = (
            ("fp8_e4m3", "tensor", 128, 1, 32), ("fp8_e4m3", "row", 128, 1, 32), ("fp8_e4m3", "block", 128, 1, 32),
            ("fp8_e4m3", "block", 128, 128, 32), ("fp8_e4m3", "block", 32, 1, 8), ("nvfp4", "block", 16, 1, 8),
            ("nvfp4", "two_level", 16, 1, 8),
        )  # fmt: skip
        names = "dtype scales scale_block scale_columns scale_bits rows columns inner"
        scaled = ((*how, *sizes) for how in scales for sizes in ((3, 16, 32), (70, 144, 288), (129, 256, 1024), (256, 384, 640)))
        some = ((3, 531, 7), (70, 130, 33))
        return (
            *cls.grid(shapes, "rows columns inner", dtype=whole),
            *cls.grid(sixteens, "rows columns inner", dtype=("int8", "fp8_e4m3")),
            *cls.grid(scaled, names),
            *(
                case
                for dtypes_, sizes in ((("fp32",), ((1, 1, 1), *some, (129, 1040, 64))), (("bf16", "fp16"), some))
                for bias, activations in ((True, ("none", *ACTIVATIONS)), (False, tuple(ACTIVATIONS)))
                for case in cls.grid(sizes, "rows columns inner", bias=bias, activation=activations, dtype=dtypes_)
            ),
            Case(problem=cls(rows=46351, columns=46337, inner=3), slow=True),  # c
            Case(problem=cls(rows=2**31 // 64 + 33, columns=3, inner=64, dtype="int8"), slow=True),  # a
        )
