"""Whole numbers of formulas: Python's integers, or float64 arrays in a batch of problems (`Operator.many`); and sums by key."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
K = TypeVar("K")
V = TypeVar("V")


class Sizes(np.ndarray[Any, np.dtype[Any]]):
    """A number of each of many problems: what makes a batch of problems where it is given as a field. Arithmetic keeps the type."""


def sizes(values: Any) -> Any:
    return np.asarray(values).view(Sizes)


_NEARLY = 1 - 2.0**-48  # decimal fractions are rounded in float64: 400 x 1.58 is 632, and never 633 when rounded up


def ceil_div(a: Any, b: Any) -> Any:
    """a / b rounded up."""
    if type(a) is int and type(b) is int:
        return -(-a // b)
    return np.ceil(a / b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else math.ceil(a / b)


def larger(a: Any, b: Any) -> Any:
    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


def smaller(a: Any, b: Any) -> Any:
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


def pick(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b."""
    return np.where(condition, a, b) if isinstance(condition, np.ndarray) else a if condition else b


def any_of(x: Any) -> Any:
    """Whether a number is not 0, or any number of an array: in a tenth of the time of np.any, which makes arrays of numbers."""
    return x.any() if isinstance(x, np.ndarray) else x


def all_of(x: Any) -> Any:
    """Whether a number is not 0, or all numbers of an array."""
    return x.all() if isinstance(x, np.ndarray) else x


def blocks(elements: Any, block: Any) -> Any:
    """How many blocks cover the elements; 0 where `block` is 0."""
    return pick(block > 0, ceil_div(elements, larger(block, 1)), 0)


def whole(x: Any) -> Any:
    """x rounded up, where x is a product of fractions and has their rounding errors."""
    return np.ceil(x * _NEARLY) if isinstance(x, np.ndarray) else math.ceil(float(x) * _NEARLY)


def ratio(bits: Any) -> Any:
    """A width in bits as the decimal it was written as: 1.58 is 79 / 50."""
    return bits if isinstance(bits, np.ndarray) else Fraction(repr(float(bits)))


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, in the order in which the keys first appear."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def summed(pairs: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    """The sum of the values of each key, in the order in which the keys first appear."""
    return {key: sum(values) for key, values in by_key(pairs).items()}
