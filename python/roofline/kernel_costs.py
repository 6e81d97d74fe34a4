"""What a kernel takes beyond its parts: found on standard problems (probe "kernel"), and carried over to others."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .counts import larger
from .errors import Error
from .machine import LEVELS, Ceiling, Machine
from .operators import Operator, from_dict

# Weights beside one standard problem, whose weight is 1: of "its parts take what they should", of "nothing takes time besides", and
# of a standard problem that other work disturbed.
PRIOR, NOTHING, DISTURBED = 0.4, 0.15, 0.3
LEAST, MOST = 0.5, 20.0  # of the factors
LOOP_S, START_S = 100e-9, 2e-6  # upper ends of what is usual: what no standard problem shows stays well below


@dataclass(frozen=True, slots=True)
class KernelCosts:
    """memory, caches: measured over expected time of the parts where memory, and where caches or arithmetic take most of it.

    loop_s: seconds each time the innermost loop begins (`Operator.loops`), by all threads together. start_s: of one run;
    cold_s: more where its operands come from memory.
    """

    memory: float = 1.0
    caches: float = 1.0
    loop_s: float = 0.0
    start_s: float = 0.0
    cold_s: float = 0.0

    def more_s(self, problem: Operator, parts: Mapping[str, Any], overlapped_s: Any, *, cold: bool) -> dict[str, Any]:
        """Seconds beyond the parts, which take `overlapped_s` together and without launches: "kernel" (negative: it is faster
        than its parts), "loops" and "start".
        """
        share = memory_share(parts)
        factor = self.memory * share + self.caches * (1 - share)
        return {
            "kernel": overlapped_s * (factor - 1),
            "loops": problem.loops() * self.loop_s,
            "start": self.start_s + cold * self.cold_s,
        }


def memory_share(parts: Mapping[str, Any]) -> Any:
    """How far memory decides: 1 where nothing else takes time, 0.5 where the rest takes as long, and quickly less below."""
    memory = parts.get(LEVELS[-1], 0.0)
    rest = sum(seconds for name, seconds in parts.items() if name not in (LEVELS[-1], "launch"))
    return memory**2 / larger(memory**2 + rest**2, 1e-300)


def kernel_costs(machine: Machine, operator: str, variant: str) -> KernelCosts | None:
    """What `machine` knows of the costs of a kernel; None where that kernel was not timed.

    Five numbers by least squares in the relative error of the standard problems' times, none of them negative.
    """
    own = (c for c in machine.of("kernel") if (c.params.get("operator"), c.variant) == (operator, variant))
    rows = tuple(row for c in own if (row := _row(c)))
    return _fitted(rows) if rows else None


def _row(c: Ceiling) -> tuple[float, ...] | None:
    """An equation of the least squares: its weight, the five coefficients, and the right-hand side, all but the weight over the
    measured time. None where the ceiling does not say what was timed.
    """
    sizes = _sizes(json.dumps(dict(c.problem), default=str))
    known = [c.plan.get(name) for name in ("predicted_s", "launch_s", "memory_share")]
    if sizes is None or not all(isinstance(value, float) for value in known):
        return None
    predicted_s, launch_s, share = (float(value) for value in known)  # type: ignore[arg-type]
    moved_bytes, loops = sizes
    time_s = moved_bytes / c.value
    overlapped_s = max(predicted_s - launch_s, 0.0)
    counts = (overlapped_s * share, overlapped_s * (1 - share), loops, 1.0, float(bool(c.params.get("cold"))))
    return (DISTURBED if c.status == "contended" else 1.0, *(count / time_s for count in counts), max(1 - launch_s / time_s, 0.0))


@functools.lru_cache(maxsize=1024)
def _sizes(problem: str) -> tuple[int, int] | None:
    """Compulsory bytes and loops of a problem in JSON: every prediction asks for those of the same few."""
    fields = json.loads(problem)
    try:
        made = from_dict(str(fields.pop("operator", "")), fields)
    except Error:
        return None
    return made.compulsory_bytes(), made.loops()


@functools.lru_cache(maxsize=256)
def _fitted(rows: tuple[tuple[float, ...], ...]) -> KernelCosts:
    table = np.array(rows)
    weights, counts, wanted = table[:, 0], table[:, 1:-1], table[:, -1]
    # Without a problem that tells: the factors are 1, and the rest is nothing.
    prior = np.diag([PRIOR, PRIOR, NOTHING / LOOP_S, NOTHING / START_S, NOTHING / START_S])
    x = _not_negative(np.vstack([weights[:, None] * counts, prior]), np.concatenate([weights * wanted, [PRIOR, PRIOR, 0, 0, 0]]))
    memory, caches = (min(max(float(factor), LEAST), MOST) for factor in x[:2])
    return KernelCosts(memory, caches, *(float(seconds) for seconds in x[2:]))


def _not_negative(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """x >= 0 with the least |a x - b|: the best of the least squares over every choice of columns."""
    count = a.shape[1]
    best, least = np.zeros(count), float(b @ b)
    for size in range(1, count + 1):
        for columns in combinations(range(count), size):
            x = np.zeros(count)
            x[list(columns)] = np.linalg.lstsq(a[:, columns], b, rcond=None)[0]
            error = float(np.sum((a @ x - b) ** 2))
            if error < least and not (x < 0).any():
                best, least = x, error
    return best
