"""Root-mean-square normalisation of rows (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from ..counts import Array
from ..references import sqrt, sum_
from .base import Facts
from .mapped import BOTH, RowCached, Rowwise


class _Fused(RowCached):
    def again(self, problem: RmsNorm, plan: Facts) -> dict[str, tuple[int, int]]:
        x, weight = problem.inputs()
        row, further = x.size_bytes // problem.rows, (problem.rows - 1) * weight.size_bytes
        return {"x for the result": (x.size_bytes, row), "weight for further rows": (further, 2 * row + weight.size_bytes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNorm(Rowwise):
    """y = x / sqrt(mean(x²) + eps) weight, with the mean over each row.

    rows, columns: of x and y; eps: above 0. A row with a NaN becomes NaN. Raises Error for bad fields.
    """

    rows: int = 4096
    columns: int = 4096
    eps: float = 1e-6
    dtype: str = "fp32"

    name = "rms_norm"
    summary = "root-mean-square normalisation of rows"
    constants = ("weight",)
    variants = {
        "fused": _Fused(summary="a row is read from memory for its sum of squares and from cache for the result", dtypes=BOTH),
    }

    def flops(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {"mean square": 2 * elements + self.rows, "root": 2 * self.rows, "divide": elements, "weight": elements}

    def mapped(self, x: Array, weight: Array) -> dict[str, Array]:
        root = sqrt(sum_(x * x, axis=-1, keepdims=True) / self.columns + self.eps)
        return {"y": x / root * weight}
