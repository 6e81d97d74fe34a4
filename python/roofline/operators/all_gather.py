"""The parts of a tensor that the ranks hold, put together on every rank, by a ring."""

from __future__ import annotations

from dataclasses import dataclass

from .collective import Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGather(Exchange):
    """out = the parts of all ranks, one after the other: what one rank moves.

    elements: of the whole; a part has elements / ranks (rounded up), and a rank receives, and sends, ranks - 1 of them over its
    link. Source: as of `AllReduce`. Raises Error for bad fields.
    """

    elements: int = 1 << 24
    ranks: int = 8
    dtype: str = "bf16"

    name = "all_gather"
    summary = "the parts of all ranks put together on each, by a ring; per rank"
    allowed = {"dtype": ("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8")}

    def held(self) -> int:
        return self.chunk()
