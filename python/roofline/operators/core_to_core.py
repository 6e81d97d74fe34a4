"""A cache line that two threads hand back and forth: the price of communication between cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array
from ..tensor_spec import TensorSpec
from .base import Case, Variant
from .mapped import Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreToCore(Moved):
    """handovers = 2 rounds: how often the threads `first` and `second`, in turn, counted up a number in one cache line.

    first, second: numbers of two threads of the device, from 0. rounds: of one launch; a round is there and back, so that one
    way takes half of a round's time. Raises Error for bad fields.
    """

    first: int = 0
    second: int = 1
    rounds: int = 1000

    name = "core_to_core"
    summary = "two threads hand one cache line back and forth: the latency between cores"
    mix = "read"
    variants = {"ping_pong": Variant(summary="each waits for the other's store", dtypes={"cpu": ("fp32",)})}
    small = frozenset({"first", "second"})

    def check(self) -> None:
        self.require(self.first != self.second, "first and second must be two different threads, got {first} twice")
        self.require(self.rounds < 2**30, "rounds must be below 2**30, got {rounds}")

    def inputs(self) -> tuple[TensorSpec, ...]:
        return ()

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="handovers", shape=(1,), dtype="int32", role="out"),)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        return {"handovers": np.full(1, 2.0 * self.rounds)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        return cls.grid(((0, 1, 1), (1, 0, 7), (0, 1, 1000)), "first second rounds")
