"""How far what a standard problem takes beyond the costs of its kernel (`kernel_costs`) holds for others: simple kriging."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import dtype
from .operators import Operator
from .words import annotated

# In the logarithm of the time: usual size of the time beyond the costs, and how well one measurement repeats.
SPREAD, REPEATED, REPEATED_DISTURBED = 0.35, 0.08, 0.16
# In squared distances: a size NEAR times as large, and another mode, among them dtypes.
NEAR, OTHER = 32.0, 0.15
LEAST_S = 1e-9  # of the parts that are compared
LINE_BYTES, VECTOR_BYTES = 64, 16
SEVERAL = 16  # rows of a product, up to which each number of them takes its own time


@dataclass(frozen=True, slots=True, eq=False)
class Nearby:
    """Standard problems, by `features_of`: what each adds, and the inverse of their covariance."""

    seen: tuple[NDArray[Any], ...]
    weights: NDArray[np.float64]
    inverse: NDArray[np.float64]

    @classmethod
    def of(cls, features: Sequence[tuple[Any, ...]], beyond: Sequence[float], disturbed: Sequence[bool]) -> Nearby:
        """Problems and the logarithm of what each took over what its costs say; those that other work disturbed count less."""
        seen = tuple(np.array(column) for column in zip(*features, strict=True))
        noise = np.diag(np.where(disturbed, REPEATED_DISTURBED, REPEATED) ** 2)
        inverse = np.asarray(np.linalg.inv(_covariance(seen, seen) + noise), dtype=np.float64)
        return cls(seen, inverse @ np.asarray(beyond), inverse)

    def doubt(self, features: tuple[Any, ...]) -> float:
        near = _covariance(self.seen, features)
        return math.sqrt(max(SPREAD**2 - float(near @ self.inverse @ near), 0.0))

    def leave_one_out(self) -> NDArray[np.float64]:
        """The logarithm of what each problem took over what the others alone lead to expect."""
        return np.asarray(self.weights / np.diag(self.inverse))

    def share(self, features: tuple[Any, ...]) -> Any:
        """How much longer than its costs say a problem is expected to take, over these; an array for a batch."""
        logarithm: Any = self.weights @ _covariance(self.seen, features)
        share = np.expm1(logarithm)
        return share if np.ndim(share) else float(share)


def features_of(
    problem: Operator, tile: tuple[int, int], memory_s: Any, rest_s: Any, launch_s: Any, vectors: Any = None
) -> tuple[Any, ...]:
    """What tells it from other problems of its operator: its sizes in octaves, and how it meets the machine as it is just now.

    Where it has matrix products, the sizes of the first count for half: heads of a batch, and queries that share keys, are as many
    more.
    Sizes and seconds of a batch are arrays. vectors: `vector_bytes`.
    """
    found: list[Any] = []
    products = problem.products()[:1]
    sizes = [size for p in products for size in (p.count, p.rows, p.columns, p.inner)]
    for field in fields(problem):  # type: ignore[arg-type]
        value = getattr(problem, field.name)
        if annotated(field) == "int":
            sizes.append(np.maximum(value, 1))
        elif annotated(field) != "float":
            found.append(value)
    found += [np.log2(size) * (0.7 if products else 1.0) for size in sizes]
    # Whether memory or the core is busier, how far apart the cores are, and how long it takes.
    busier = np.log2(np.maximum(memory_s, LEAST_S) / np.maximum(rest_s, LEAST_S))
    found += [np.clip(busier, -6, 6) / 2, np.log2(np.maximum(launch_s, LEAST_S)) / 2]
    found.append(np.log2(LEAST_S + memory_s + rest_s + launch_s))
    tensors = problem.tensors()
    first = next((t for t in tensors if len(t.shape) > 1), tensors[0])
    lines = np.multiply(first.shape[-1], dtype(first.dtype).bits) / (8 * LINE_BYTES)
    found.append(1.0 * (lines == np.floor(lines)))
    if vectors is not None:
        found.append(2.0 * np.log2(VECTOR_BYTES / vectors))
    for p in products:
        rows, columns = np.asarray(p.rows), np.asarray(p.columns)
        beyond = np.ceil(rows / tile[0]) * tile[0] / rows  # what the last tile has too many
        found += [2.0 * (np.asarray(problem.rows_kind()) > 0), np.where(rows > tile[0], 4 * np.log2(beyond), 0.0)]
        ragged = columns % (LINE_BYTES / 4) > 0  # rows of sums in fp32 are no whole lines: of few columns the last ones are many
        found.append(2.0 * np.log2(1 + ragged * LINE_BYTES / columns))
        found.append(1.5 * np.log2(np.clip(rows, 1, SEVERAL)))  # kernels of one row, two, ... are apart
    return tuple(found)


def vector_bytes(problem: Operator, variant: str, sms: int) -> Any:
    """Bytes that a GPU's load takes of every row of the matrices, up to VECTOR_BYTES as rows are aligned; None on a CPU."""
    if not sms:
        return None
    found: Any = VECTOR_BYTES
    for row, bits in ((t.shape[-1], dtype(t.dtype).bits) for t in problem.matrices({"variant": variant})):
        found = np.gcd(found, np.asarray(row).astype(np.int64) * bits // 8)
    return np.maximum(found, 1)


def _covariance(seen: tuple[NDArray[Any], ...], others: tuple[Any, ...]) -> NDArray[np.float64]:
    """Between every problem seen (rows) and one other, or each of several (columns): Matérn's, of smoothness 5/2.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, equation 4.17.
    """
    distance: Any = 0.0
    for column, other in zip(seen, others, strict=True):
        one = column[:, None]
        distance = distance + (((one - other) / np.log2(NEAR)) ** 2 if one.dtype.kind == "f" else OTHER * (one != other))
    reach = np.sqrt(5.0 * distance)
    found = np.asarray(SPREAD**2 * (1 + reach + reach**2 / 3) * np.exp(-reach))
    return found if any(np.ndim(other) for other in others) else found[:, 0]
