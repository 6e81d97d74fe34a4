"""Softmax over the rows of a matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..counts import Array
from ..dtypes import dtype
from ..references import exp, max_, sum_
from ..tensor_spec import TensorSpec
from .base import Case, Facts, Operator, Variant


class _Fused(Variant):
    def traffic(self, problem: Softmax, plan: Facts) -> dict[str, int]:
        """Nothing while a row stays in cache (the plan's row_cached); else each pass meets memory."""
        if plan.get("row_cached", True):
            return {}
        (x,) = problem.inputs()
        # A kernel may compute the exponentials twice instead of keeping them.
        kept = {"exponentials read and written": 2 * x.size_bytes} if plan.get("exponentials_kept", True) else {}
        return {"x for the exponentials": x.size_bytes, **kept}

    def reuse(self, problem: Softmax, plan: Facts) -> dict[str, tuple[int, int]]:
        if not plan.get("row_cached", True):
            return {}
        (x,) = problem.inputs()
        row = x.size_bytes // problem.rows
        return {"x for the exponentials": (x.size_bytes, row), "exponentials written and read": (2 * x.size_bytes, 2 * row)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax(Operator):
    """y = e^(x - max) / sum e^(x - max), with the maximum and the sum of each row, so that no exponential overflows.

    rows, columns: of x and y. A row with a NaN becomes NaN. Raises Error for bad fields.
    """

    rows: int = 4096
    columns: int = 4096
    dtype: str = "fp32"

    name = "softmax"
    summary = "softmax over rows, numerically safe"
    mix = "copy"
    variants = {
        "fused": _Fused(
            summary="a row is read from memory once; its exponentials wait in cache for their sum",
            dtypes={"cpu": ("fp32", "bf16", "fp16"), "cuda": ("fp32", "fp16", "bf16")},
        ),
    }

    def check(self) -> None:
        self.one_of("dtype", ("fp32", "fp16", "bf16"))

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="x", shape=(self.rows, self.columns), dtype=self.dtype),)

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="y", shape=(self.rows, self.columns), dtype=self.dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {"max": elements, "subtract": elements, "exp": elements, "sum": elements, "divide": elements}

    def operations(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {"exp": elements, "other": 4 * elements}

    def compute(self) -> tuple[str, str]:
        return self.dtype, "fp32"

    def tolerance(self) -> tuple[float, float]:
        # Results are as small as a row is long, so next to nothing is absolute: a step below fp16's normal numbers. Sums are
        # in fp32, of long rows in parts; a result is rounded once.
        eps = dtype(self.dtype).eps
        return eps * 2.0**-14, eps + dtype("fp32").eps * (16 + math.sqrt(self.columns) / 4)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices of rows."""
        x = tensors["x"] if rows is None else tensors["x"][rows]
        weights = exp(x - max_(x, axis=-1, keepdims=True))
        return {"y": weights / sum_(weights, axis=-1, keepdims=True)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1), (1, 7), (5, 1), (3, 16), (7, 31), (13, 64), (2, 127), (17, 1000), (3, 4097), (1, 100003), (997, 129))
        small = tuple(Case(problem=cls(rows=rows, columns=columns)) for rows, columns in shapes)
        narrow = tuple(
            Case(problem=cls(rows=rows, columns=columns, dtype=dtype))
            for dtype in ("fp16", "bf16")
            for rows, columns in ((70, 64), (7, 31), (5, 4096), (3, 4097), (2, 50000))
        )
        # Results beyond a cache, with rows that end inside a line: non-temporal stores.
        beyond = (Case(problem=cls(rows=4099, columns=4099)),)
        return small + narrow + beyond + (Case(problem=cls(rows=2**19 + 3, columns=4099), slow=True),)
