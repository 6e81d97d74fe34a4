"""The sum of a tensor over all ranks, on every rank, by a ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array
from ..tensor_spec import TensorSpec
from .collective import Sum


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(Sum):
    """x = sum of x over all ranks, in place: what one rank computes and moves.

    A ring: chunks of elements / ranks (rounded up) go round once to be added up and once to be handed on, so that a rank receives,
    and sends, 2 (ranks - 1) chunks over its link. Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters
    of workstations (2009). The latency of the ring's steps is not modelled. Raises Error for bad fields.
    """

    elements: int = 1 << 24
    ranks: int = 8
    dtype: str = "bf16"

    name = "all_reduce"
    summary = "the sum of a tensor over all ranks, by a ring; per rank"
    mix = "update"

    def inputs(self) -> tuple[TensorSpec, ...]:
        shape = (self.ranks - 1, self.chunk())
        return tuple(TensorSpec(name=name, shape=shape, dtype=self.dtype, link=True) for name in ("partial", "finished"))

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="x", shape=(self.elements,), dtype=self.dtype, role="in_out"),)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """On the rank that adds up the first chunk. partial: that chunk of the others; finished: theirs. rows: of elements."""
        own = self.summed(tensors["x"], tensors["partial"])
        whole = np.concatenate([own, tensors["finished"].reshape(-1)])[: self.elements]
        return {"x": whole if rows is None else whole[rows]}
