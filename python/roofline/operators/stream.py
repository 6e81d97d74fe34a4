"""Memory accesses of the STREAM kind: the probes of the bandwidth roofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..cost import Array, TensorSpec, dtype
from .base import MIXES, Case, Facts, Operator, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Operator):
    """read: sum of a; write: c = factor; copy: c = a; scale: c = factor a; add: c = a + b; triad: c = a + factor b.

    elements: of each array. passes: over the arrays in one launch (more than one to see a cache). streams: address
    streams per thread. Source of the accesses: McCalpin, STREAM (1995). Raises Error for bad fields.
    """

    access: str = "read"
    elements: int = 1 << 26
    passes: int = 1
    streams: int = 1
    factor: float = 3.0
    dtype: str = "fp32"

    name = "stream"
    summary = "memory accesses of the STREAM kind, the probes of the bandwidth roofs"
    variants = {
        "plain": Variant(
            summary="ordinary stores: a written line is read first", dtypes={"cpu": ("fp32", "fp64"), "cuda": ("fp32", "fp64")}
        ),
        "non_temporal": Variant(summary="stores that bypass the caches", dtypes={"cpu": ("fp32", "fp64")}),
    }

    def check(self) -> None:
        self.one_of("access", MIXES)
        self.one_of("dtype", ("fp32", "fp64"))
        self.one_of("streams", (1, 2, 4, 8))

    @property
    def mix(self) -> str:  # type: ignore[override]
        return self.access

    def _arrays(self) -> dict[str, bool]:
        return {"a": self.access != "write", "b": self.access in ("add", "triad"), "c": self.access != "read"}

    def inputs(self) -> tuple[TensorSpec, ...]:
        present = self._arrays()
        return tuple(TensorSpec(name=n, shape=(self.elements,), dtype=self.dtype) for n in "ab" if present[n])

    def outputs(self) -> tuple[TensorSpec, ...]:
        if self.access == "read":
            return (TensorSpec(name="sum", shape=(1,), dtype="fp64", role="out"),)
        return (TensorSpec(name="c", shape=(self.elements,), dtype=self.dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        per_element = {"read": 1, "write": 0, "copy": 0, "scale": 1, "add": 1, "triad": 2}[self.access]
        return {self.access: per_element * self.elements * self.passes}

    def traffic(self, plan: Facts) -> dict[str, int]:
        arrays = sum(t.size_bytes for t in self.tensors() if t.name != "sum")
        return {"further passes": (self.passes - 1) * arrays} if np.any(self.passes > 1) else {}

    def compute(self) -> tuple[str, str]:
        return self.dtype, self.dtype

    def tolerance(self) -> tuple[float, float]:
        eps = dtype(self.dtype).eps
        if self.access == "read":  # partial sums in the array's own precision; terms of variance 1
            return 4 * eps * self.passes * self.elements, 4 * eps
        return 4 * eps, 4 * eps

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices of elements (all accesses but read)."""
        if self.access == "read":
            total = 0.0
            for _ in range(self.passes):
                total = np.add.reduce(tensors["a"], axis=0, initial=total)
            return {"sum": np.reshape(np.asarray(total), (1,))}
        if self.access == "write":
            return {"c": np.full(self.elements if rows is None else len(rows), self.factor)}
        a, b = (x if x is None or rows is None else x[rows] for x in (tensors.get("a"), tensors.get("b")))
        assert a is not None
        for _ in range(self.passes):
            if self.access == "copy":
                c = a
            elif self.access == "scale":
                c = self.factor * a
            else:
                assert b is not None
                c = a + b if self.access == "add" else a + self.factor * b
        return {"c": c}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        sizes = (1, 7, 64, 1000, 4099, 262147)
        streams = (1, 2, 4, 8, 1, 2)
        small = tuple(
            Case(problem=cls(access=access, elements=n, streams=s)) for access in MIXES for n, s in zip(sizes, streams, strict=True)
        )
        passes = (
            Case(problem=cls(access="read", elements=4096, passes=3)),
            Case(problem=cls(access="triad", elements=513, passes=2)),
        )
        doubles = tuple(Case(problem=cls(access=access, elements=1027, dtype="fp64")) for access in MIXES)
        big = (Case(problem=cls(access="copy", elements=2**31 + 17), slow=True),)
        return small + passes + doubles + big
