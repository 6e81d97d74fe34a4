"""The arithmetic that references are written in.

It runs on float64 arrays and, in the tests, on numbers that count their own arithmetic. A reduction of n elements starts from its
identity and so counts n operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .counts import Array

CHUNK = 1 << 22  # elements: of float64 32 MiB


def _unary(x: Array, method: str, function: Any) -> Array:
    if x.dtype == object:
        return np.frompyfunc(lambda element: getattr(element, method)(), 1, 1)(x)  # type: ignore[no-any-return]
    return function(x)  # type: ignore[no-any-return]


def exp(x: Array) -> Array:
    return _unary(x, "exp", np.exp)


def log(x: Array) -> Array:
    return _unary(x, "log", np.log)


def sqrt(x: Array) -> Array:
    return _unary(x, "sqrt", np.sqrt)


def tanh(x: Array) -> Array:
    return _unary(x, "tanh", np.tanh)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Array) -> Array:
    return _unary(x, "erf", _erf)


def maximum(x: Array, y: Any) -> Array:
    """One comparison per element; the selection is free."""
    return np.maximum(x, y)  # type: ignore[no-any-return]


def to_int8(x: Array) -> Array:
    """Rounded to nearest even, within -128 and 127. A conversion: it counts nothing."""
    return x if x.dtype == object else np.clip(np.rint(x), -128, 127)


def sum_(x: Array, axis: int, keepdims: bool = False) -> Array:
    """n additions for n elements: it starts from 0."""
    return np.add.reduce(x, axis=axis, keepdims=keepdims, initial=0.0)  # type: ignore[call-overload,no-any-return]


def max_(x: Array, axis: int, keepdims: bool = False) -> Array:
    """n comparisons for n elements: it starts from -inf."""
    return np.maximum.reduce(x, axis=axis, keepdims=keepdims, initial=-np.inf)  # type: ignore[call-overload,no-any-return]


def top(x: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of each row, largest first (on a tie the leftmost), and where they stand: [..., count] both.

    By as many successive maxima of the remaining values: count n - count (count - 1) / 2 comparisons for n elements.
    """
    if x.dtype != object:
        at = np.argsort(-x, axis=-1, kind="stable")[..., :count]
        return np.take_along_axis(x, at, axis=-1), at
    rows = x.reshape(-1, x.shape[-1])
    at = np.empty((len(rows), count), dtype=np.intp)
    for row, found in zip(rows, at, strict=True):
        left = list(range(len(row)))
        for position in range(count):
            best, where = -math.inf, left[0]
            for index in left:
                if row[index] > best:
                    best, where = row[index], index
            found[position] = where
            left.remove(where)
    at = at.reshape(*x.shape[:-1], count)
    return np.take_along_axis(x, at, axis=-1), at


def matmul(a: Array, b: Array) -> Array:
    """[..., M, K] x [..., K, N] -> [..., M, N]: M N K multiplications and as many additions."""
    if a.dtype == object:
        return sum_(a[..., :, :, None] * b[..., None, :, :], axis=-2)
    rows = max(CHUNK // b.shape[-1], 1)
    if isinstance(b, np.ndarray) or b.ndim != 2 or len(b) <= rows:
        return np.matmul(a, b)  # type: ignore[no-any-return]
    # Arrays that are widened where they are indexed: in parts that stay in a cache.
    a = np.asarray(a)
    return sum(np.matmul(a[..., k : k + rows], b[k : k + rows]) for k in range(0, len(b), rows))


def uniform_fp16(generator: np.random.Generator, shape: tuple[int, ...], size: float) -> Array:
    """Random numbers of fp16 of variance size squared. By a table: to round each takes five times as long."""
    values = (size * np.linspace(-math.sqrt(3), math.sqrt(3), 2**16)).astype(np.float16)
    return values[np.frombuffer(generator.bytes(2 * math.prod(shape)), dtype=np.uint16)].reshape(shape)


def chunks(a: Array) -> Iterator[Array]:
    """`a` in parts of at most 4 Mi elements, a multiple of every vector and line."""
    for begin in range(0, len(a), CHUNK):
        yield a[begin : begin + CHUNK]
