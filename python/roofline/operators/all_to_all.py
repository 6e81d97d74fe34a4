"""Every rank hands each other one a part of its own: tokens on their way to experts, and their results on the way back."""

from __future__ import annotations

from dataclasses import dataclass

from .collective import Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class AllToAll(Exchange):
    """out = the part that each rank has for this one, in the order of ranks: what one rank moves.

    elements: that a rank holds, before and after; a part has elements / ranks (rounded up), and a rank receives, and sends,
    ranks - 1 of them over its link. Raises Error for bad fields.
    """

    elements: int = 1 << 24
    ranks: int = 8
    dtype: str = "bf16"

    name = "all_to_all"
    summary = "every rank hands each other one a part of its own; per rank"
    allowed = {"dtype": ("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "nvfp4", "mxfp4")}

    def held(self) -> int:
        return self.elements
