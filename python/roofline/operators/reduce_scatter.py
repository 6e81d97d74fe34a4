"""The sum of a tensor over all ranks, one part of it on each, by a ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..counts import Array, ceil_div
from ..dtypes import dtype
from ..tensor_spec import TensorSpec
from .base import Case, Operator
from .collective import by_nccl, cases_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceScatter(Operator):
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
    variants = by_nccl("fp32", "fp16", "bf16")

    def check(self) -> None:
        self.one_of("dtype", ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2"))

    def chunk(self) -> int:
        return ceil_div(self.elements, self.ranks)  # type: ignore[no-any-return]

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="x", shape=(self.elements,), dtype=self.dtype),
            TensorSpec(name="partial", shape=(self.ranks - 1, self.chunk()), dtype=self.dtype, link=True),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="out", shape=(self.chunk(),), dtype=self.dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        return {"add": (self.ranks - 1) * self.chunk()}

    def compute(self) -> tuple[str, str]:
        return self.dtype, "fp32"

    def tolerance(self) -> tuple[float, float]:
        """Of terms of variance 1, rounded after every addition."""
        eps = dtype(self.dtype).eps
        return (self.ranks + 2) * eps, 2 * eps

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """Of the rank that keeps the first part. partial: that part of the others. rows: indices of out."""
        own = tensors["x"][: self.chunk()]
        for other in tensors["partial"]:
            own = own + other
        return {"out": own if rows is None else own[rows]}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        return cases_of(cls)
