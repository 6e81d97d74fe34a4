"""Rectified linear unit after a bias: the tail of a linear layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..counts import Array
from ..references import maximum
from ..tensor_spec import TensorSpec
from .base import Case, Facts, Operator, Variant


class _Fused(Variant):
    def traffic(self, problem: BiasRelu, plan: Facts) -> dict[str, int]:
        """Nothing while the bias stays in cache (the plan's row_cached); else every row reads it again."""
        if plan.get("row_cached", True):
            return {}
        _, bias = problem.inputs()
        return {"bias for further rows": (problem.rows - 1) * bias.size_bytes}

    def reuse(self, problem: BiasRelu, plan: Facts) -> dict[str, tuple[int, int]]:
        if not plan.get("row_cached", True):
            return {}
        x, bias = problem.inputs()
        return {"bias for further rows": ((problem.rows - 1) * bias.size_bytes, 2 * x.size_bytes // problem.rows + bias.size_bytes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasRelu(Operator):
    """y = max(x + bias, 0), with one bias for each column.

    rows, columns: of x and y. A NaN stays one. Raises Error for bad fields.
    """

    rows: int = 4096
    columns: int = 4096
    dtype: str = "fp32"

    name = "bias_relu"
    summary = "max(x + bias, 0), one bias for each column"
    mix = "copy"
    variants = {
        "fused": _Fused(
            summary="each element read once and written once; the bias stays in cache",
            dtypes={"cpu": ("fp32", "bf16", "fp16"), "cuda": ("fp32", "fp16", "bf16")},
        ),
    }

    def check(self) -> None:
        self.one_of("dtype", ("fp32", "fp16", "bf16"))

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="x", shape=(self.rows, self.columns), dtype=self.dtype),
            TensorSpec(name="bias", shape=(self.columns,), dtype=self.dtype, role="constant"),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="y", shape=(self.rows, self.columns), dtype=self.dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {"bias": elements, "compare": elements}

    def compute(self) -> tuple[str, str]:
        return self.dtype, "fp32"

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices of rows."""
        x = tensors["x"] if rows is None else tensors["x"][rows]
        return {"y": maximum(x + tensors["bias"], 0.0)}

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
