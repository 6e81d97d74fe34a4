"""Memory accesses of the STREAM kind: the probes of the bandwidth roofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counts import Array, any_of
from ..dtypes import dtype
from ..references import chunks
from ..tensor_spec import Role, TensorSpec
from ..units import KIB
from .base import MIXES, Case, Facts, Operator, Variant

LINE_BYTES = 64  # of a cache line, on every CPU with kernels here but some Arm ones (128)
PREFETCHES = ("none", "nta", "sparse")
IN_FLIGHT_BYTES = (0, 32 * KIB, 64 * KIB, 96 * KIB, 128 * KIB, 192 * KIB)
MOST_PASSES = 64  # that the reference repeats: beyond, every further one does the same


class _NonTemporal(Variant):
    def suits(self, problem: Stream, device: str) -> bool:
        return problem.access not in ("read", "update")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Operator):
    """read: sum of a; write: c = factor; copy: c = a; scale: c = factor a; add: c = a + b; triad: c = a + factor b; update:
    c = factor c, in place.

    elements: of each array. passes: over the arrays in one launch (more than one to see a cache). streams: address streams per
    thread. isa: instruction set to use, empty for the widest there is (on a GPU: empty for 128-bit accesses, or "scalar" for
    single elements). For reads only: prefetch ("none"; "nta": past the caches, for every line; "sparse": to L2, for one line in
    four) and stride (in elements: 0, stride, 2 stride, ..., then 1, 1 + stride, ..., so that every element is still read once,
    by scalar loads with one stream; within each thread's range on a CPU, shared out to neighbouring threads on a GPU).
    in_flight_bytes: kept on the way for each multiprocessor of a GPU, 0 for what serves best. Source of the accesses: McCalpin,
    STREAM (1995). Raises Error for bad fields.
    """

    access: str = "read"
    elements: int = 1 << 26
    passes: int = 1
    streams: int = 1
    stride: int = 1
    prefetch: str = "none"
    isa: str = ""
    in_flight_bytes: int = 0
    factor: float = 3.0
    dtype: str = "fp32"

    name = "stream"
    summary = "memory accesses of the STREAM kind, the probes of the bandwidth roofs"
    allowed = {
        "access": MIXES, "dtype": ("fp32", "fp64"), "streams": (1, 2, 4, 8), "prefetch": PREFETCHES,
        "in_flight_bytes": IN_FLIGHT_BYTES,
    }  # fmt: skip
    variants = {
        "cached": Variant(summary="each block re-reads its own part through L1", dtypes={"cuda": ("fp32",)}, asked=True),
        "shared": Variant(summary="each block re-reads its own part from shared memory", dtypes={"cuda": ("fp32",)}, asked=True),
        "driver": Variant(summary="a copy by the GPU's driver", dtypes={"cuda": ("fp32", "fp64")}, asked=True),
        "bulk": Variant(summary="tiles of bulk copies (TMA) through shared memory", dtypes={"cuda": ("fp32", "fp64")}, asked=True),
        "loads": Variant(
            summary="a read's loads without its additions, but in the last pass, which gives the sum of all",
            dtypes={"cpu": ("fp32", "fp64")},
            asked=True,
        ),
        "plain": Variant(
            summary="ordinary stores: a written line is read first", dtypes={"cpu": ("fp32", "fp64"), "cuda": ("fp32", "fp64")}
        ),
        "non_temporal": _NonTemporal(summary="stores that bypass the caches", dtypes={"cpu": ("fp32", "fp64")}),
    }
    small = frozenset({"in_flight_bytes"})
    sums_in_chunks = True

    def check(self) -> None:
        plain, together = self.prefetch == "none", self.stride == 1
        self.require(
            (self.access == "read") | (plain & together),
            "stride and prefetch are of access 'read' only, not of '{access}'; leave them out",
        )
        self.require(together | (self.stride < self.elements), "stride must be 1, or less than elements ({elements}), got {stride}")
        self.require(
            together | (plain & (self.streams == 1)),
            "a strided read has one stream and no prefetch; use streams=1, prefetch='none'",
        )
        self.require(together | (self.isa in ("", "scalar")), "strided loads are scalar ones; leave isa empty, not '{isa}'")

    @property
    def mix(self) -> str:  # type: ignore[override]
        return self.access

    def inputs(self) -> tuple[TensorSpec, ...]:
        present = {"a": self.access not in ("write", "update"), "b": self.access in ("add", "triad")}
        return tuple(TensorSpec(name=n, shape=(self.elements,), dtype=self.dtype) for n in "ab" if present[n])

    def outputs(self) -> tuple[TensorSpec, ...]:
        if self.access == "read":
            return (TensorSpec(name="sum", shape=(1,), dtype="fp64", role="out"),)
        role: Role = "in_out" if self.access == "update" else "out"
        return (TensorSpec(name="c", shape=(self.elements,), dtype=self.dtype, role=role),)

    def flops(self) -> dict[str, int]:
        per_element = {"read": 1, "write": 0, "copy": 0, "scale": 1, "add": 1, "triad": 2, "update": 1}[self.access]
        return {self.access: per_element * self.elements * self.passes}

    def traffic(self, plan: Facts) -> dict[str, int]:
        """A strided walk uses one element of a line and needs the line again in the next walk. Lines are of 64 bytes, or what the
        plan's line_bytes says; nothing is fetched again where the lines of one walk stay in the last cache (its lines_cached)."""
        arrays = self.pass_bytes()
        terms = {"further passes": (self.passes - 1) * arrays} if any_of(self.passes > 1) else {}
        if any_of(self.stride > 1) and not plan.get("lines_cached", False):
            per_line = int(plan.get("line_bytes", LINE_BYTES)) * 8 // dtype(self.dtype).bits
            walks = self.stride - (self.stride > per_line) * (self.stride - per_line)  # that share a line: at most per_line
            terms["lines fetched again"] = (walks - 1) * arrays * self.passes
        return terms

    def pass_bytes(self) -> int:
        """What one pass moves: every array once, an updated one to and fro."""
        return sum(t.moved_bytes for t in self.tensors() if t.name != "sum")

    def tolerance(self) -> tuple[float, float]:
        eps = dtype(self.dtype).eps
        if self.access == "update":  # every pass rounds again
            return 4 * eps, 4 * eps * self.passes
        if self.access == "read":  # partial sums in the array's own precision; terms of variance 1
            return 4 * eps * self.passes * self.elements, 4 * eps
        return 4 * eps, 4 * eps

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices of elements (all accesses but read)."""
        if self.access == "read":
            total: Any = 0.0
            if tensors["a"].dtype != object:
                total = self.passes * sum(float(np.add.reduce(part)) for part in chunks(tensors["a"]))
            else:  # arithmetic that is counted
                for _ in range(self.passes):
                    total = np.add.reduce(tensors["a"], axis=0, initial=total)
            return {"sum": np.reshape(np.asarray(total), (1,))}
        if self.access == "write":
            return {"c": np.full(self.elements if rows is None else len(rows), self.factor)}
        if self.access == "update":
            c = np.asarray(tensors["c"]) if rows is None else tensors["c"][rows]
            for _ in range(self.passes if self.passes < MOST_PASSES else 0):
                c = self.factor * c
            return {"c": c if self.passes < MOST_PASSES else self.factor**self.passes * c}
        whole = (tensors.get("a"), tensors.get("b"))
        a, b = (x if x is None else np.asarray(x) if rows is None else x[rows] for x in whole)
        assert a is not None
        for _ in range(min(self.passes, MOST_PASSES)):
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
        sizes = ((1, 1), (7, 2), (64, 4), (1000, 8), (4099, 1), (262147, 2))  # elements, streams
        passes = (
            {"access": "read", "elements": 4096, "passes": 3},
            {"access": "read", "elements": 70_003, "passes": 5, "streams": 8, "prefetch": "nta", "dtype": "fp64"},
            {"access": "triad", "elements": 513, "passes": 2},
            {"access": "update", "elements": 70_003, "passes": 5, "streams": 4},
            {"access": "update", "elements": 4096, "passes": 100, "factor": -1.0},
        )
        strides = ((3, 2), (10, 3), (1000, 7), (4099, 16), (4099, 4098), (262147, 1024))
        # More pieces than stages, with a short last one, over and over.
        flying = ((40_961, 32 * KIB, "fp32"), (700_003, 128 * KIB, "fp64"))
        return (
            *cls.grid(sizes, "elements streams", access=MIXES),
            *cls.grid(flying, "elements in_flight_bytes dtype", access=MIXES, passes=2),
            *cls.grid(passes),
            *cls.grid((1027,), "elements", access=MIXES, dtype="fp64"),
            # Streams of several pages begin at different places of their pages.
            *cls.grid((8 * 67589 + 3,), "elements", access=("read", "triad"), streams=(2, 4, 8)),
            *cls.grid(((1, 1), (4099, 2), (540715, 8)), "elements streams", prefetch=PREFETCHES[1:]),
            *cls.grid(strides, "elements stride", passes=1, dtype="fp32"),
            *cls.grid(strides, "elements stride", passes=3, dtype="fp64"),
            *cls.grid((1003,), "elements", access=MIXES, streams=4, passes=2, isa="scalar"),
            Case(problem=cls(access="copy", elements=2**31 + 17), slow=True),
        )
