"""Loads that wait for each other: the probe of the latency of a memory level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counts import Array, any_of, larger, smaller
from ..tensor_spec import TensorSpec
from .base import Case, Facts, Variant
from .mapped import Moved

LINE_BYTES = 64
MOST_LINES = 2**31 - 1  # int32 numbers them


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerChase(Moved):
    """reached = the line that lies `hops` places after the first in `order`, a permutation of all lines, found line by line.

    size_bytes: of all lines, a multiple of 64. hops: of one launch, each a load at the address that the one before brought. A
    launch goes on where the last one ended. pages: "huge" or "small", as asked of the system; the plan's `huge_page_share`
    says what it gave. dtype: of the lines' numbers. Raises Error for bad fields.
    """

    size_bytes: int = 1 << 28
    hops: int = 50_000
    pages: str = "huge"
    dtype: str = "int32"

    name = "pointer_chase"
    summary = "loads that wait for each other, in random order over a set: the latency of its memory level"
    mix = "read"
    allowed = {"pages": ("huge", "small"), "dtype": ("int32",)}
    variants = {
        "dependent": Variant(summary="one thread, one load in flight", dtypes={"cpu": ("int32",), "cuda": ("int32",)}, launched=0),
    }

    def check(self) -> None:
        self.require(self.size_bytes % LINE_BYTES == 0, f"size_bytes must be a multiple of {LINE_BYTES}, got {{size_bytes}}")
        self.require(self.lines <= MOST_LINES, "size_bytes must be below 128 GiB, whose lines int32 can number, got {size_bytes}")

    @property
    def lines(self) -> int:
        return self.size_bytes // LINE_BYTES

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="order", shape=(self.lines,), dtype=self.dtype, role="constant"),)

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="reached", shape=(1,), dtype=self.dtype, role="out"),)

    def initial(self, tensor: str, generator: np.random.Generator) -> Array | None:
        return generator.permutation(np.arange(self.lines, dtype=np.int32)) if tensor == "order" else None

    def compulsory_bytes(self) -> int:
        """The lines that a launch visits, once each: not all of them, and not `order`, which only says how they lie."""
        return LINE_BYTES * smaller(self.hops, self.lines) + 4  # type: ignore[no-any-return]

    def footprint_bytes(self) -> int:
        """With the lines themselves, which bind lays out: asked for before `order` is made."""
        return self.size_bytes + sum(t.size_bytes for t in self.tensors())

    def traffic(self, plan: Facts) -> dict[str, int]:
        again = larger(self.hops - self.lines, 0)
        return {"lines visited again": LINE_BYTES * again} if any_of(again > 0) else {}

    def compute(self) -> tuple[str, str]:
        return "fp32", "fp32"

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        reached: Any = tensors["order"][self.hops % self.lines]
        return {"reached": np.reshape(np.asarray(reached), (1,))}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1), (1, 7), (2, 3), (3, 16), (17, 1000), (509, 33), (40_009, 100_003))
        small = cls.grid(((LINE_BYTES * n, hops) for n, hops in shapes), "size_bytes hops", pages=("huge", "small"))
        return (*small, Case(problem=cls(size_bytes=2**31 + 2**20, hops=1_000_003), slow=True))
