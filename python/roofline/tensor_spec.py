"""A tensor of an operator, and the bytes it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from .counts import ceil_div, whole
from .dtypes import dtype

Role = Literal["in", "out", "constant", "in_out"]


def size_bytes(shape: tuple[Any, ...], dtype_name: str, bits: Any = None) -> Any:
    """Bytes of a dense tensor, rounded up to whole bytes. bits: of an element, where it is packed otherwise than its dtype."""
    elements, width = math.prod(shape), dtype(dtype_name).bits if bits is None else bits
    if isinstance(elements, np.ndarray) and isinstance(width, Fraction):
        width = float(width)
    total = elements * width
    return whole(total / 8) if isinstance(total, np.ndarray) else ceil_div(total, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor of an operator: enough to allocate, fill, check and count it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role = "in"  # constant: the same in every launch, so that bind may pack it
    bits: Any = None  # of an element as stored, where that is not its dtype's: packed weights, scales
    touched_bytes: int | None = None  # what one launch reads or writes of it, where that is not all
    least: int = 0  # the smallest valid index or length
    below: int = 0  # valid indices and lengths are below this; 0: any number
    link: bool = False  # arrives from other ranks: in no memory of this one

    @property
    def size_bytes(self) -> int:
        return size_bytes(self.shape, self.dtype, self.bits)  # type: ignore[no-any-return]

    @property
    def used_bytes(self) -> int:
        """What one launch reads or writes of it."""
        return self.size_bytes if self.touched_bytes is None else self.touched_bytes

    @property
    def moved_bytes(self) -> int:
        """Compulsory bytes: every used byte once; twice (read and written) where it is updated in place."""
        return self.used_bytes * (2 if self.role == "in_out" else 1)
