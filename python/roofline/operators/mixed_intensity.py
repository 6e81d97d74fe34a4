"""A read with a chosen number of multiply-adds per element: the points of a measured roofline, from bandwidth to arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array, any_of
from ..dtypes import dtype
from ..references import chunks
from ..tensor_spec import TensorSpec
from .base import Case, Facts, Operator, Variant

ALPHA, GAMMA = -(2.0**-9), 0.75
MOST = 16384  # multiply_adds: y then is 1e-14 of x, far from denormal
LINE_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedIntensity(Operator):
    """sum of y gamma over the elements of a, where y = a, then multiply_adds - 1 times y <- y + y alpha.

    elements: of a, best a multiple of 4096 bytes (where `every` is 1: of 1280 bytes) per thread, which are whole tiles of
    every instruction set. passes: over a in one launch. multiply_adds: per element, up to 16384. every: of so many lines
    of 64 bytes only the first is computed on, the others are loaded. streams: address streams per thread, 1 or 2. isa:
    instruction set to use, empty for the widest there is. Raises Error for bad fields.
    """

    elements: int = 1 << 26
    passes: int = 1
    multiply_adds: int = 1
    every: int = 1
    streams: int = 1
    isa: str = ""
    dtype: str = "fp32"

    name = "mixed_intensity"
    summary = "a read with a chosen number of multiply-adds per element, from bandwidth to arithmetic"
    mix = "read"
    sums_in_chunks = True
    allowed = {"dtype": ("fp32", "fp64"), "every": (1, 2, 4, 8), "streams": (1, 2)}
    variants = {
        "read": Variant(
            summary="loads, multiply-adds in registers, one sum", dtypes={"cpu": ("fp32", "fp64"), "cuda": ("fp32", "fp64")}
        )
    }

    def check(self) -> None:
        self.require(self.multiply_adds <= MOST, f"multiply_adds must be at most {MOST}, got {{multiply_adds}}")

    def _line(self) -> int:
        """Elements of one line."""
        return 8 * LINE_BYTES // dtype(self.dtype).bits

    def computed(self) -> int:
        """Elements that are computed on."""
        line = self._line()
        period = line * self.every
        periods, rest = self.elements // period, self.elements % period
        return periods * line + rest - (rest > line) * (rest - line)

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="a", shape=(self.elements,), dtype=self.dtype),)

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="sum", shape=(1,), dtype="fp64", role="out"),)

    def flops(self) -> dict[str, int]:
        return {"multiply-add": 2 * self.multiply_adds * self.computed() * self.passes}

    def traffic(self, plan: Facts) -> dict[str, int]:
        return {"further passes": (self.passes - 1) * self.inputs()[0].size_bytes} if any_of(self.passes > 1) else {}

    def operations(self) -> dict[str, int]:
        return {"other": self.total_flops() // 2}  # one instruction for two operations

    def tolerance(self) -> tuple[float, float]:
        eps = dtype(self.dtype).eps
        return 4 * eps * self.passes * self.elements, 4 * eps  # as of stream's read: partial sums in the array's precision

    def _computed(self, a: Array) -> Array:
        """The elements of `a` that multiply-adds are done on: every such line of them."""
        line = self._line()
        period = line * self.every
        whole = len(a) // period * period
        return np.concatenate((a[:whole].reshape(-1, period)[:, :line].ravel(), a[whole:][:line])) if self.every > 1 else a

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        a = tensors["a"]
        if a.dtype != object:  # in closed form, where the loop would take minutes; chunks hold whole periods
            shrunk = (1 + ALPHA) ** (self.multiply_adds - 1)
            total = sum(float(np.add.reduce(self._computed(part))) for part in chunks(a))
            return {"sum": np.array([self.passes * GAMMA * shrunk * total])}
        y = self._computed(a)
        total = 0.0
        for _ in range(self.passes):
            advanced = y
            for _ in range(self.multiply_adds - 1):
                advanced = advanced + advanced * ALPHA
            total = np.add.reduce(advanced * GAMMA, axis=0, initial=total)
        return {"sum": np.reshape(np.asarray(total), (1,))}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        # Every compiled number of multiply-adds, the run-time ones around a round of eight, every share of lines, awkward lengths.
        numbers = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 40)
        sizes = (1, 7, 64, 100, 333, 1000, 4099, 1029, 640, 2049, 515, 262147)
        small = tuple((n, m, 1 + m % 2) for n, m in zip(sizes, numbers, strict=True))
        lines = ((17, 1, 2, 1), (1000, 1, 2, 2), (4099, 1, 4, 1), (10007, 1, 8, 2), (5003, 5, 2, 2), (9001, 11, 8, 1))
        return (
            *cls.grid(small, "elements multiply_adds streams", dtype=("fp32", "fp64")),
            *cls.grid(lines, "elements multiply_adds every streams", dtype=("fp32", "fp64")),
            *cls.grid(((4096, 3, 2), (700, 2, 65)), "elements passes multiply_adds"),
            Case(problem=cls(elements=2**31 + 17, multiply_adds=3), slow=True),
        )
