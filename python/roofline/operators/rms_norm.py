"""Root-mean-square normalisation of rows (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..counts import Array
from ..references import sqrt, sum_
from ..tensor_spec import TensorSpec
from .base import Case, Facts, Operator, Variant


class _Fused(Variant):
    def traffic(self, problem: RmsNorm, plan: Facts) -> dict[str, int]:
        """Nothing while a row and the weight stay in cache (the plan's row_cached); else each pass meets memory."""
        if plan.get("row_cached", True):
            return {}
        x, weight = problem.inputs()
        return {"x for the result": x.size_bytes, "weight for further rows": (problem.rows - 1) * weight.size_bytes}

    def reuse(self, problem: RmsNorm, plan: Facts) -> dict[str, tuple[int, int]]:
        if not plan.get("row_cached", True):
            return {}
        x, weight = problem.inputs()
        row = x.size_bytes // problem.rows
        further = (problem.rows - 1) * weight.size_bytes
        return {"x for the result": (x.size_bytes, row), "weight for further rows": (further, 2 * row + weight.size_bytes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNorm(Operator):
    """y = x / sqrt(mean(x²) + eps) weight, with the mean over each row.

    rows, columns: of x and y; eps: above 0. A row with a NaN becomes NaN. Raises Error for bad fields.
    """

    rows: int = 4096
    columns: int = 4096
    eps: float = 1e-6
    dtype: str = "fp32"

    name = "rms_norm"
    summary = "root-mean-square normalisation of rows"
    mix = "copy"
    variants = {
        "fused": _Fused(
            summary="a row is read from memory for its sum of squares and from cache for the result",
            dtypes={"cpu": ("fp32", "bf16", "fp16"), "cuda": ("fp32", "fp16", "bf16")},
        ),
    }

    def check(self) -> None:
        self.one_of("dtype", ("fp32", "fp16", "bf16"))
        self.require(self.eps > 0, "eps must be above 0, got {eps}")

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="x", shape=(self.rows, self.columns), dtype=self.dtype),
            TensorSpec(name="weight", shape=(self.columns,), dtype=self.dtype, role="constant"),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="y", shape=(self.rows, self.columns), dtype=self.dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {"mean square": 2 * elements + self.rows, "root": 2 * self.rows, "divide": elements, "weight": elements}

    def compute(self) -> tuple[str, str]:
        return self.dtype, "fp32"

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices of rows."""
        x = tensors["x"] if rows is None else tensors["x"][rows]
        root = sqrt(sum_(x * x, axis=-1, keepdims=True) / self.columns + self.eps)
        return {"y": x / root * tensors["weight"]}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1), (1, 7), (5, 1), (3, 16), (7, 31), (13, 64), (2, 127), (17, 1000), (3, 4097), (1, 100003), (997, 129))
        small = tuple(Case(problem=cls(rows=rows, columns=columns)) for rows, columns in shapes)
        eps = (Case(problem=cls(rows=11, columns=130, eps=0.5)),)
        narrow = tuple(
            Case(problem=cls(rows=rows, columns=columns, dtype=dtype))
            for dtype in ("fp16", "bf16")
            for rows, columns in ((70, 64), (7, 31), (5, 4096), (3, 4097), (2, 50000))
        )
        # Results beyond a cache, with rows that end inside a line: non-temporal stores.
        beyond = (Case(problem=cls(rows=4099, columns=4099)),)
        return small + narrow + eps + beyond + (Case(problem=cls(rows=2**19 + 3, columns=4099), slow=True),)
