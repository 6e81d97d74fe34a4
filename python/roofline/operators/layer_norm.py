"""Layer normalisation of rows (Ba, Kiros and Hinton, "Layer Normalization", 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..counts import Array
from ..dtypes import dtype
from ..references import sqrt, sum_
from .base import Facts
from .mapped import BOTH, RowCached, Rowwise


class _OnePass(RowCached):
    """Sums and sums of squares together; then the result."""

    passes: ClassVar[tuple[str, ...]] = ("x for the result",)  # what reads x again

    def again(self, problem: LayerNorm, plan: Facts) -> dict[str, tuple[int, int]]:
        x, weight, bias = problem.inputs()
        row, parameters = x.size_bytes // problem.rows, weight.size_bytes + bias.size_bytes
        constants = ((problem.rows - 1) * parameters, 2 * row + parameters)
        return {**dict.fromkeys(self.passes, (x.size_bytes, row)), "weight and bias for further rows": constants}


class _TwoPass(_OnePass):
    passes = ("x for the variance", "x for the result")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm(Rowwise):
    """y = (x - mean) / sqrt(variance + eps) weight + bias, with the mean and variance of each row.

    rows, columns: of x and y; eps: above 0. A row with a NaN becomes NaN. Raises Error for bad fields.
    """

    rows: int = 4096
    columns: int = 4096
    eps: float = 1e-5
    dtype: str = "fp32"

    name = "layer_norm"
    summary = "layer normalisation of rows"
    constants = ("weight", "bias")
    variants = {
        "two_pass": _TwoPass(
            summary="mean first, then the variance from deviations: safe for any mean; a row is read from memory once", dtypes=BOTH
        ),
        "one_pass": _OnePass(
            summary="sums of d and d² together, d = x less the row's first element; their difference loses digits where that "
            "element is far from the mean: a relative error of eps (1 + d(mean)² / variance) in the variance",
            dtypes={"cpu": ("fp32", "bf16", "fp16")},
        ),
    }

    def flops(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {
            "mean": elements + self.rows, "deviations": elements, "variance": 2 * elements + self.rows, "root": 2 * self.rows,
            "divide": elements, "weight": elements, "bias": elements,
        }  # fmt: skip

    def tolerance(self) -> tuple[float, float]:
        # A row of few elements may have next to no variance: the root of eps is then what its mean's rounding is divided by. In
        # longer rows of random data the shift of one_pass stays within two deviations, and 5 eps of the variance are lost at most.
        eps = dtype(self.dtype).eps
        return 16 * eps * (1.0 if self.columns >= 16 else max(1.0, self.eps**-0.5)), 32 * eps

    def mapped(self, x: Array, weight: Array, bias: Array) -> dict[str, Array]:
        deviations = x - sum_(x, axis=-1, keepdims=True) / self.columns
        variance = sum_(deviations * deviations, axis=-1, keepdims=True) / self.columns
        return {"y": deviations / sqrt(variance + self.eps) * weight + bias}
