"""The gate of a SwiGLU block between its products (Shazeer, GLU variants improve Transformer, 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from ..counts import Array
from ..references import exp
from ..tensor_spec import TensorSpec
from .base import Case, Operator, Variant
from .mapped import BOTH, Rowwise


@dataclass(frozen=True, slots=True, kw_only=True)
class SiluMul(Rowwise):
    """y = gate / (1 + e^-gate) · up, element by element.

    rows, columns: of gate, up and y. Raises Error for bad fields.
    """

    rows: int = 4096
    columns: int = 4096
    dtype: str = "bf16"

    name = "silu_mul"
    summary = "silu(gate) · up, the gate of a SwiGLU block"
    mix = "add"
    variants = {"fused": Variant(summary="each element of gate and up is read once, each result written once", dtypes=BOTH)}

    pieces = Operator.pieces  # threads share its elements, and not its rows

    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(name=name, shape=(self.rows, self.columns), dtype=self.dtype) for name in ("gate", "up"))

    def flops(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {"silu": 3 * elements, "multiply": elements}  # exp, addition, division

    def operations(self) -> dict[str, int]:
        elements = self.rows * self.columns
        return {"exp": elements, "other": 3 * elements}

    def mapped(self, gate: Array, up: Array) -> dict[str, Array]:
        return {"y": gate / (1.0 + exp(-gate)) * up}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1), (5, 1), (3, 16), (7, 31), (1000, 1009))
        others = cls.grid(((37, 129),), "rows columns", dtype=("fp32", "fp16"))
        return (*cls.grid(shapes, "rows columns"), *others, Case(problem=cls(rows=65536, columns=65536), slow=True))
