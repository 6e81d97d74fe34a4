"""What collectives have in common: who computes them, the chunks of a ring, and the problems that tests run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..counts import Array, ceil_div
from ..dtypes import dtype
from ..tensor_spec import TensorSpec
from .base import Case, Operator, Variant
from .mapped import Moved


def by_nccl(*dtypes: str) -> dict[str, Variant]:
    """The variants of a collective that NCCL has for these dtypes."""
    return {
        "library": Variant(
            summary="NCCL between the GPUs of one machine; what other ranks hold is laid out before the clock starts",
            dtypes={"cuda": dtypes},
        ),
    }


class Collective(Operator, abstract=True):
    """A tensor of `elements` in chunks of elements / ranks (rounded up)."""

    elements: int
    ranks: int
    dtype: str

    def chunk(self) -> int:
        return ceil_div(self.elements, self.ranks)  # type: ignore[no-any-return]

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1), (12, 4), (17, 4), (5, 8), (100, 2), (100_000, 1))
        return (*cls.grid(shapes, "elements ranks"), *cls.grid(((2**34, 72),), "elements ranks", slow=True))


class Exchange(Moved, Collective, abstract=True):
    """Every rank puts its own part before those that the others have for it."""

    mix = "copy"
    variants = by_nccl("fp64", "fp32", "fp16", "bf16", "int8")

    def held(self) -> int:
        """The length of x: what a rank holds before."""
        raise NotImplementedError

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="x", shape=(self.held(),), dtype=self.dtype),
            TensorSpec(name="others", shape=(self.ranks - 1, self.chunk()), dtype=self.dtype, link=True),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="out", shape=(self.elements,), dtype=self.dtype, role="out"),)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """The first rank's. others: the parts that the other ranks have for it. rows: indices of elements."""
        whole = np.concatenate([tensors["x"][: self.chunk()], tensors["others"].reshape(-1)])[: self.elements]
        return {"out": whole if rows is None else whole[rows]}


class Sum(Collective, abstract=True):
    """Every rank adds up one chunk of all ranks."""

    allowed = {"dtype": ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")}
    variants = by_nccl("fp32", "fp16", "bf16")

    def flops(self) -> dict[str, int]:
        return {"add": (self.ranks - 1) * self.chunk()}

    def tolerance(self) -> tuple[float, float]:
        """For terms of variance 1, rounded after every addition."""
        eps = dtype(self.dtype).eps
        return (self.ranks + 2) * eps, 2 * eps

    def summed(self, x: Array, partial: Array) -> Array:
        """The first chunk of x and those of the other ranks."""
        return sum(partial, x[: self.chunk()])
