"""What a kernel takes beyond its parts: found on standard problems (probe "kernel"), and carried over to others."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .counts import larger, pick
from .errors import Error
from .machine import MEMORIES, Ceiling, Machine
from .operators import Operator, from_dict

# Weights beside one standard problem, whose weight is 1: of the factors and of the seconds that are expected without any, and of
# those that all problems of the variant show, beside those of one dtype; and of a standard problem that other work disturbed.
UNKNOWN, SHOWN, DISTURBED = (0.4, 0.15), (1.5, 1.0), 0.3
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
    memory = sum(parts.get(name, 0.0) for name in MEMORIES)
    rest = sum(seconds for name, seconds in parts.items() if name not in (*MEMORIES, "launch"))
    return memory**2 / larger(memory**2 + rest**2, 1e-300)


def kernel_costs(machine: Machine, problem: Operator, variant: str) -> KernelCosts | None:
    """What `machine` knows of the costs of a kernel; None where that kernel was not timed.

    Five numbers by least squares in the relative error of the standard problems' times, none of them negative: of all problems of
    the variant first, and from there of those in the problem's dtype with few or with many rows as it has, which are kernels of
    their own. Of a batch of problems (`Operator.many`) with both, its numbers are arrays.
    """
    own = (c for c in machine.of("kernel") if (c.params.get("operator"), c.variant) == (problem.name, variant))
    rows = tuple(row for c in own if (row := _row(c)))
    if not rows:
        return None
    few, dtype = problem.few_rows(), stored(problem)
    if not isinstance(few, np.ndarray):
        return _costs(rows, dtype, bool(few))
    short, long = (astuple(_costs(rows, dtype, path)) for path in (True, False))
    return KernelCosts(*(pick(few, a, b) for a, b in zip(short, long, strict=True)))


@dataclass(frozen=True, slots=True)
class _Row:
    """An equation of the least squares: its weight, the five coefficients, and the right-hand side, all but the weight over the
    measured time; and what tells kernels of one variant apart."""

    weight: float
    counts: tuple[float, ...]
    wanted: float
    dtype: str
    few: bool


def _row(c: Ceiling) -> _Row | None:
    """None where the ceiling does not say what was timed."""
    problem = problem_of(c.problem)
    known = [c.plan.get(name) for name in ("predicted_s", "launch_s", "memory_share")]
    if problem is None or not all(isinstance(value, float) for value in known):
        return None
    predicted_s, launch_s, share = (float(value) for value in known)  # type: ignore[arg-type]
    time_s = problem.compulsory_bytes() / c.value
    overlapped_s = max(predicted_s - launch_s, 0.0)
    counts = (overlapped_s * share, overlapped_s * (1 - share), problem.loops(), 1.0, float(bool(c.params.get("cold"))))
    return _Row(
        weight=DISTURBED if c.status == "contended" else 1.0, counts=tuple(count / time_s for count in counts),
        wanted=max(1 - launch_s / time_s, 0.0), dtype=stored(problem), few=bool(problem.few_rows()),
    )  # fmt: skip


def stored(problem: Operator) -> str:
    """The dtype that tells its kernels apart."""
    return str(problem.to_dict().get("dtype", ""))


def problem_of(stated: Mapping[str, Any]) -> Operator | None:
    """The problem that a ceiling states; None where this package would not make it."""
    return _problem(json.dumps(dict(stated), default=str))


@functools.lru_cache(maxsize=1024)
def _problem(text: str) -> Operator | None:
    fields = json.loads(text)  # every prediction asks for the same few
    try:
        return from_dict(str(fields.pop("operator", "")), fields)
    except Error:
        return None


@functools.lru_cache(maxsize=256)
def _costs(rows: tuple[_Row, ...], dtype: str, few: bool) -> KernelCosts:
    known = _fitted(rows, KernelCosts(), UNKNOWN)
    same = [row for row in rows if row.dtype == dtype]
    for some in (same, [row for row in same if row.few == few]):
        known = _fitted(some, known, SHOWN) if 0 < len(some) < len(rows) else known
    return known


def _fitted(rows: Sequence[_Row], expected: KernelCosts, trusted: tuple[float, float]) -> KernelCosts:
    """The costs that explain the rows, and are those expected as far as no row tells. trusted: weights of factors and seconds."""
    weights = np.array([row.weight for row in rows])
    counts, wanted = np.array([row.counts for row in rows]), np.array([row.wanted for row in rows])
    factors, seconds = trusted
    prior = np.array([factors, factors, seconds / LOOP_S, seconds / START_S, seconds / START_S])
    x = _not_negative(
        np.vstack([weights[:, None] * counts, np.diag(prior)]), np.concatenate([weights * wanted, prior * astuple(expected)])
    )
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
