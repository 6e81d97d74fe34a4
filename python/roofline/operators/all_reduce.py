"""The sum of a tensor over all ranks, on every rank, by a ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array, ceil_div
from ..dtypes import dtype
from ..tensor_spec import TensorSpec
from .base import Case, Operator
from .collective import by_nccl, cases_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(Operator):
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
    variants = by_nccl("fp32", "fp16", "bf16")

    def check(self) -> None:
        self.one_of("dtype", ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2"))

    def chunk(self) -> int:
        return ceil_div(self.elements, self.ranks)  # type: ignore[no-any-return]

    def inputs(self) -> tuple[TensorSpec, ...]:
        shape = (self.ranks - 1, self.chunk())
        return tuple(TensorSpec(name=name, shape=shape, dtype=self.dtype, link=True) for name in ("partial", "finished"))

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="x", shape=(self.elements,), dtype=self.dtype, role="in_out"),)

    def flops(self) -> dict[str, int]:
        return {"add": (self.ranks - 1) * self.chunk()}

    def compute(self) -> tuple[str, str]:
        return self.dtype, "fp32"

    def tolerance(self) -> tuple[float, float]:
        """Of terms of variance 1, rounded after every addition."""
        eps = dtype(self.dtype).eps
        return (self.ranks + 2) * eps, 2 * eps

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """Of the rank that adds up the first chunk. partial: that chunk of the others; finished: theirs. rows: of elements."""
        own = tensors["x"][: self.chunk()]
        for other in tensors["partial"]:
            own = own + other
        whole = np.concatenate([own, tensors["finished"].reshape(-1)])[: self.elements]
        return {"x": whole if rows is None else whole[rows]}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        return cases_of(cls)
