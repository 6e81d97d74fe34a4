"""What copies between a device's memory and memory elsewhere have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from ..counts import Array, smaller
from ..tensor_spec import TensorSpec
from .base import Case
from .mapped import Moved

CASE_SIZES = (1, 63, 64, 100, 4096, 4097, 1 << 20, 5_000_011)
PIECE_BYTES, PIECES = 64, 64  # of what left the device, so much comes back to be compared


class Transfer(Moved, abstract=True):
    """Operators with the fields `direction` and `size_bytes`; `inward` and `outward` name their directions.

    What leaves the device is `a`, and `sample`, evenly spread pieces of it, comes back from the far side in the same launch.
    What comes to the device, `c`, is a copy of `a` that lay on the far side before.
    """

    direction: str
    size_bytes: int
    mix = "copy"
    allowed = {"dtype": ("int8",)}
    inward: ClassVar[str]
    outward: ClassVar[str]

    def check(self) -> None:
        self.one_of("direction", (self.inward, self.outward, "both"))

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="a", shape=(self.size_bytes,), dtype="int8"),)

    def outputs(self) -> tuple[TensorSpec, ...]:
        found = []
        if self.direction != self.outward:
            found.append(TensorSpec(name="c", shape=(self.size_bytes,), dtype="int8", role="out"))
        if self.direction != self.inward:
            width = smaller(self.size_bytes, PIECE_BYTES)
            pieces = smaller(self.size_bytes // width, PIECES)
            found.append(TensorSpec(name="sample", shape=(pieces * width,), dtype="int8", role="out"))
        return tuple(found)

    def compulsory_bytes(self) -> int:
        """What the device's memory gives and takes, which is what crosses the link in both directions."""
        return self.size_bytes * (1 + (self.direction == "both"))

    def compute(self) -> tuple[str, str]:
        return "int8", "int32"

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices of elements of `c`; `sample` is always whole."""
        a = tensors["a"]
        found = {}
        for spec in self.outputs():
            if spec.name == "c":
                found["c"] = a if rows is None else a[rows]
                continue
            width = min(self.size_bytes, PIECE_BYTES)
            pieces = spec.shape[0] // width
            pitch = self.size_bytes // pieces
            at = (np.arange(pieces)[:, None] * pitch + np.arange(width)).ravel()
            found["sample"] = a[at]
        return found

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        return cls.grid(CASE_SIZES, "size_bytes", direction=(cls.inward, cls.outward, "both"))
