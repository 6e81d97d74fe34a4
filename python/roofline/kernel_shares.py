"""How much longer a kernel takes than its parts: found on standard problems, and carried over to those that are like them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import Error
from .machine import Ceiling, Machine
from .operators import from_dict

LEAST, MOST = 0.5, 20.0  # of a factor
NEAR = 0.1  # squared distance below which two problems are the same
FAR = 1.5  # distance from which a kernel is taken for no slower than its parts


@dataclass(frozen=True, slots=True)
class Known:
    """A standard problem: the logarithms of its FLOP/byte and of its predicted seconds, and measured over predicted time."""

    log_intensity: float
    log_time: float
    log_factor: float
    ceiling: Ceiling


def known_kernels(machine: Machine, operator: str, variant: str, *, cold: bool) -> list[Known]:
    """What `machine` knows of a kernel with its operands in memory (cold) or in caches."""
    if not variant:
        return []
    own = [c for c in machine.of("kernel") if (c.params.get("operator"), c.variant) == (operator, variant)]
    return [made for c in own if c.params.get("cold") == cold and (made := _known(c))]


def _known(c: Ceiling) -> Known | None:
    predicted_s, fields = c.plan.get("predicted_s"), dict(c.problem)
    try:
        problem = from_dict(str(fields.pop("operator", "")), fields)
    except Error:
        return None
    if not isinstance(predicted_s, float) or predicted_s <= 0:
        return None
    moved = problem.compulsory_bytes()
    factor = min(max(moved / c.value / predicted_s, LEAST), MOST)
    return Known(math.log(max(problem.total_flops(), 1) / moved), math.log(predicted_s), math.log(factor), c)


def factor(known: Sequence[Known], flops: Any, moved: Any, time_s: Any) -> Any:
    """Measured over predicted time of problems like these: the mean of the logarithms, weighted by nearness in FLOP/byte and time.

    flops, moved, time_s: numbers, or arrays of one shape. 1 where nothing is known.
    """
    if not known:
        return 1.0
    intensity, seconds = np.log(np.maximum(flops, 1) / np.maximum(moved, 1)), np.log(np.maximum(time_s, 1e-12))
    weights = [1 / (NEAR + (intensity - k.log_intensity) ** 2 + (0.5 * (seconds - k.log_time)) ** 2) ** 2 for k in known]
    found = np.exp(sum(w * k.log_factor for w, k in zip(weights, known, strict=True)) / (sum(weights) + (NEAR + FAR**2) ** -2))
    return found if np.ndim(found) else float(found)
