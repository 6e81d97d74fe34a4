"""The sum of a tensor over all ranks, one part of it on each, by a ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..counts import Array
from ..tensor_spec import TensorSpec
from .collective import Sum


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceScatter(Sum):
    """out = this rank's part of the sum of x over all ranks: what one rank computes and moves.

    elements: of x; a part has elements / ranks (rounded up), and a rank receives, and sends, ranks - 1 of them over its link.
    Source: as of `AllReduce`. Raises Error for bad fields.
    """

    elements: int = 1 << 24
    ranks: int = 8
    dtype: str = "bf16"

    name = "reduce_scatter"
    summary = "the sum of a tensor over all ranks, a part on each, by a ring; per rank"
    mix = "read"

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="x", shape=(self.elements,), dtype=self.dtype),
            TensorSpec(name="partial", shape=(self.ranks - 1, self.chunk()), dtype=self.dtype, link=True),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="out", shape=(self.chunk(),), dtype=self.dtype, role="out"),)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """The result of the rank that keeps the first part. partial: that part of the others. rows: indices of out."""
        own = self.summed(tensors["x"], tensors["partial"])
        return {"out": own if rows is None else own[rows]}
