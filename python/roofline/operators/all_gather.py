"""The parts of a tensor that the ranks hold, put together on every rank, by a ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array
from ..tensor_spec import TensorSpec
from .collective import Collective, by_nccl
from .mapped import Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGather(Moved, Collective):
    """out = the parts of all ranks, one after the other: what one rank moves.

    elements: of the whole; a part has elements / ranks (rounded up), and a rank receives, and sends, ranks - 1 of them over its
    link. Source: as of `AllReduce`. Raises Error for bad fields.
    """

    elements: int = 1 << 24
    ranks: int = 8
    dtype: str = "bf16"

    name = "all_gather"
    summary = "the parts of all ranks put together on each, by a ring; per rank"
    mix = "copy"
    variants = by_nccl("fp64", "fp32", "fp16", "bf16", "int8")

    def check(self) -> None:
        self.one_of("dtype", ("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"))

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="x", shape=(self.chunk(),), dtype=self.dtype),
            TensorSpec(name="others", shape=(self.ranks - 1, self.chunk()), dtype=self.dtype, link=True),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="out", shape=(self.elements,), dtype=self.dtype, role="out"),)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """Of the rank that holds the first part. rows: indices of elements."""
        whole = np.concatenate([tensors["x"], tensors["others"].reshape(-1)])[: self.elements]
        return {"out": whole if rows is None else whole[rows]}
