"""Numbers copied into another dtype: new keys and values into a cache, activations before a narrower product."""

from __future__ import annotations

from dataclasses import dataclass

from ..counts import Array
from ..dtypes import dtype
from .base import Case, Variant
from .mapped import BOTH, Elementwise, Moved

_DTYPES = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4", "mxfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Convert(Moved, Elementwise):
    """y = x in another dtype (or the same: a copy). Conversion is free; what scales would cost is not in it.

    It rounds to nearest even. In 8 bits values too large, infinity too, become the largest number; NaN stays NaN (int8: 0).
    elements: of x and y. dtype: of x; out_dtype: of y. Raises Error for bad fields.
    """

    elements: int = 1 << 24
    dtype: str = "bf16"
    out_dtype: str = "bf16"

    name = "convert"
    summary = "numbers copied into another dtype"
    allowed = {"dtype": _DTYPES, "out_dtype": _DTYPES}
    variants = {"fused": Variant(summary="each element is read once and written once", dtypes=BOTH)}

    def tolerance(self) -> tuple[float, float]:
        """Half a step of out_dtype; absolute, of the numbers below its normal ones."""
        eps = dtype(self.out_dtype).eps
        absolute = {"int8": 0.5, "fp8_e4m3": 2.0**-10, "fp8_e5m2": 2.0**-17}.get(self.out_dtype, eps * 2.0**-14)
        return absolute, eps / 2 * (1 + 2.0**-20)

    def mapped(self, x: Array) -> dict[str, Array]:
        return {"y": x}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        floating, narrow = ("fp32", "fp16", "bf16"), ("int8", "fp8_e4m3", "fp8_e5m2")
        return (
            *cls.grid(((1, "bf16"), (17, "fp8_e4m3")), "elements out_dtype"),
            *cls.grid((4099,), "elements", dtype=floating, out_dtype=floating),
            *cls.grid((4099, 3_000_017), "elements", dtype=floating, out_dtype=narrow),
            Case(problem=cls(elements=2**31 + 17, out_dtype="int4"), slow=True),
        )
