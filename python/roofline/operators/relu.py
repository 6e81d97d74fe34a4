"""Rectified linear unit."""

from __future__ import annotations

from dataclasses import dataclass

from ..counts import Array
from ..references import maximum
from .base import Case, Variant
from .mapped import BOTH, Elementwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Relu(Elementwise):
    """y = max(x, 0).

    elements: of x and y. A NaN stays one. Raises Error for bad fields.
    """

    elements: int = 1 << 24
    dtype: str = "fp32"

    name = "relu"
    summary = "max(x, 0), element by element"
    variants = {"fused": Variant(summary="each element read once and written once", dtypes=BOTH)}

    def flops(self) -> dict[str, int]:
        return {"compare": self.elements}

    def mapped(self, x: Array) -> dict[str, Array]:
        return {"y": maximum(x, 0.0)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        sizes = (1, 2, 15, 16, 17, 63, 64, 1000, 4099, 262147, 20_000_003)  # the last is beyond most caches
        narrow = cls.grid((1, 17, 4099), "elements", dtype=("fp16", "bf16"))
        return (*cls.grid(sizes, "elements"), *narrow, Case(problem=cls(elements=2**31 + 17), slow=True))
