"""Rectified linear unit after a bias: the tail of a linear layer."""

from __future__ import annotations

from dataclasses import dataclass

from ..counts import Array
from ..references import maximum
from .base import Facts
from .mapped import BOTH, RowCached, Rowwise


class _Fused(RowCached):
    def again(self, problem: BiasRelu, plan: Facts) -> dict[str, tuple[int, int]]:
        x, bias = problem.inputs()
        return {"bias for further rows": ((problem.rows - 1) * bias.size_bytes, 2 * x.size_bytes // problem.rows + bias.size_bytes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasRelu(Rowwise):
    """y = max(x + bias, 0), with one bias for each column.

    rows, columns: of x and y. A NaN stays one. Raises Error for bad fields.
    """

    rows: int = 4096
    columns: int = 4096
    dtype: str = "fp32"

    name = "bias_relu"
    summary = "max(x + bias, 0), one bias for each column"
    constants = ("bias",)
    variants = {"fused": _Fused(summary="each element read once and written once; the bias stays in cache", dtypes=BOTH)}

    def flops(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {"bias": elements, "compare": elements}

    def mapped(self, x: Array, bias: Array) -> dict[str, Array]:
        return {"y": maximum(x + bias, 0.0)}
