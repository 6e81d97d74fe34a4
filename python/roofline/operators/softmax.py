"""Softmax over the rows of a matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..counts import Array
from ..dtypes import dtype
from ..references import exp, max_, sum_
from .base import Facts
from .mapped import BOTH, RowCached, Rowwise


class _Fused(RowCached):
    def again(self, problem: Softmax, plan: Facts) -> dict[str, tuple[int, int]]:
        (x,) = problem.inputs()
        row = x.size_bytes // problem.rows
        # A kernel may compute the exponentials twice instead of keeping them, and need no maximum of all x before them.
        twice = {"x for the exponentials": (x.size_bytes, row)} if plan.get("x_read_twice", True) else {}
        kept = {"exponentials read and written": (2 * x.size_bytes, 2 * row)} if plan.get("exponentials_kept", True) else {}
        return {**twice, **kept}


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax(Rowwise):
    """y = e^(x - max) / sum e^(x - max), with the maximum and the sum of each row, so that no exponential overflows.

    rows, columns: of x and y. A row with a NaN becomes NaN. Raises Error for bad fields.
    """

    rows: int = 4096
    columns: int = 4096
    dtype: str = "fp32"

    name = "softmax"
    summary = "softmax over rows, numerically safe"
    variants = {
        "fused": _Fused(summary="a row is read from memory once; its exponentials wait in cache for their sum", dtypes=BOTH),
    }

    def flops(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {"max": elements, "subtract": elements, "exp": elements, "sum": elements, "divide": elements}

    def operations(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {"exp": elements, "other": 4 * elements}

    def tolerance(self) -> tuple[float, float]:
        # Results are as small as a row is long, so next to nothing is absolute: a step below fp16's normal numbers. Sums are
        # in fp32, of long rows in parts; a result is rounded once.
        eps = dtype(self.dtype).eps
        return eps * 2.0**-14, eps + dtype("fp32").eps * (16 + math.sqrt(self.columns) / 4)

    def mapped(self, x: Array) -> dict[str, Array]:
        weights = exp(x - max_(x, axis=-1, keepdims=True))
        return {"y": weights / sum_(weights, axis=-1, keepdims=True)}
