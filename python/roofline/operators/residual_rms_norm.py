"""A residual connection and the normalisation after it, in one pass."""

from __future__ import annotations

from dataclasses import dataclass

from ..counts import Array
from ..references import sqrt, sum_
from ..tensor_spec import TensorSpec
from .base import Case, Facts, Variant
from .mapped import BOTH, Rowwise


class _Fused(Variant):
    def traffic(self, problem: ResidualRmsNorm, plan: Facts) -> dict[str, int]:
        """Nothing while a row stays in registers or cache (the plan's row_cached) between its sum of squares and its result."""
        return {} if plan.get("row_cached", True) else {"residual for the result": problem.outputs()[0].size_bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualRmsNorm(Rowwise):
    """residual = residual + x, in place; y = residual / sqrt(mean(residual²) + eps) weight, with the mean over each row.

    rows, columns: of x, residual and y; eps: above 0. Raises Error for bad fields.
    """

    rows: int = 4096
    columns: int = 4096
    eps: float = 1e-6
    dtype: str = "bf16"

    name = "residual_rms_norm"
    summary = "a residual added in place, and root-mean-square normalisation of the sum"
    mix = "update"
    constants = ("weight",)
    variants = {
        "fused": _Fused(
            summary="a row and its residual are read once; their sum stays on the chip until both results are written", dtypes=BOTH
        )
    }

    def outputs(self) -> tuple[TensorSpec, ...]:
        shape = (self.rows, self.columns)
        return (
            TensorSpec(name="residual", shape=shape, dtype=self.dtype, role="in_out"),
            TensorSpec(name="y", shape=shape, dtype=self.dtype, role="out"),
        )

    def flops(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {
            "add": elements, "mean square": 2 * elements + self.rows, "root": 2 * self.rows, "divide": elements, "weight": elements,
        }  # fmt: skip

    def mapped(self, x: Array, residual: Array, weight: Array) -> dict[str, Array]:
        total = residual + x
        root = sqrt(sum_(total * total, axis=-1, keepdims=True) / self.columns + self.eps)
        return {"residual": total, "y": total / root * weight}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1), (1, 7), (5, 1), (7, 31), (300, 128), (17, 1000), (5, 4096), (3, 4097), (3, 33000))
        others = cls.grid((130, 4096), "columns", rows=13, dtype=("fp32", "fp16"))
        return (*cls.grid(shapes, "rows columns"), *others, Case(problem=cls(rows=65536, columns=65536), slow=True))
