"""Every rank hands each other one a part of its own: tokens on their way to experts, and their results on the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array
from ..tensor_spec import TensorSpec
from .collective import Collective, by_nccl
from .mapped import Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class AllToAll(Moved, Collective):
    """out = the part that each rank has for this one, in the order of ranks: what one rank moves.

    elements: that a rank holds, before and after; a part has elements / ranks (rounded up), and a rank receives, and sends,
    ranks - 1 of them over its link. Raises Error for bad fields.
    """

    elements: int = 1 << 24
    ranks: int = 8
    dtype: str = "bf16"

    name = "all_to_all"
    summary = "every rank hands each other one a part of its own; per rank"
    mix = "copy"
    variants = by_nccl("fp64", "fp32", "fp16", "bf16", "int8")

    def check(self) -> None:
        self.one_of("dtype", ("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "nvfp4", "mxfp4"))

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="x", shape=(self.elements,), dtype=self.dtype),
            TensorSpec(name="others", shape=(self.ranks - 1, self.chunk()), dtype=self.dtype, link=True),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="out", shape=(self.elements,), dtype=self.dtype, role="out"),)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """Of the first rank. others: the parts that the other ranks have for it. rows: indices of elements."""
        whole = np.concatenate([tensors["x"][: self.chunk()], tensors["others"].reshape(-1)])[: self.elements]
        return {"out": whole if rows is None else whole[rows]}
