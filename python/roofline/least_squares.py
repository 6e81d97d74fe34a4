"""Least squares with solutions that are not negative."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def not_negative(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """x >= 0 with the least |a x - b|, `a` of full rank. Source: Lawson and Hanson, Solving Least Squares Problems, chapter 23."""
    scale = np.linalg.norm(a, axis=0)
    a = a / scale
    normal, right = a.T @ a, a.T @ b
    tolerance = 1e-12 * float(np.linalg.norm(b))

    def solved(free: NDArray[np.bool_]) -> NDArray[np.float64]:
        best = np.zeros(len(free))
        best[free] = np.linalg.solve(normal[np.ix_(free, free)], right[free])
        return best

    free = np.ones(a.shape[1], dtype=bool)
    while not ((x := solved(free))[free] > 0).all():  # from all, not from none: most stay positive
        free &= x > 0
    for _ in range(10 * len(x)):
        slope = np.where(free, -np.inf, right - normal @ x)
        if slope.max() <= tolerance:
            break
        free[slope.argmax()] = True
        while True:
            best = solved(free)
            if (best[free] > 0).all():
                break
            below = free & (best <= 0)
            step = np.min(x[below] / (x[below] - best[below]))
            x = np.where(free, x + step * (best - x), 0.0)
            free &= x > tolerance
            x[~free] = 0.0
        x = best
    return np.asarray(x / scale)
