"""Two medians: the ratio, its 95 % interval, and whether it is a change.

The interval combines those of both medians in logarithms (Zou and Donner, Statistics in Medicine 27, 2008, "method of variance
estimates recovery"). It assumes no distribution, but independent samples of one run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..machine import FEWEST, TOLERANCE, grouped, summary
from ..units import fmt_percent

FASTER, SLOWER, SAME = "faster", "slower", "no significant change"
OVERLAP, FEW = "bimodal: modes overlap", "too few samples"
TESTED = (FASTER, SLOWER, SAME)
BY_CHANCE = 0.05  # of the rows without a change, at 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Median:
    """A median with its 95 % interval. modes: their medians, best first, where there are several; value is then the best's."""

    value: float
    low: float
    high: float
    n: int
    modes: tuple[float, ...] = ()
    status: str = "ok"

    @property
    def mark(self) -> str:
        """ "±1.2 %": the wider half of the interval, of few samples that of their range; nothing for one sample."""
        half = max(self.high - self.value, self.value - self.low) / self.value
        return "" if self.n < 2 else f" ±{fmt_percent(half, 2)}{'' if self.n >= FEWEST else ' (range)'}"


def estimate(samples: Iterable[float], status: str = "ok", modes: tuple[float, ...] = ()) -> Median:
    s = summary(samples)
    return Median(value=s.median, low=s.low, high=s.high, n=s.n, status=status, modes=modes)


def ratio(a: Median, b: Median) -> tuple[float, float | None, float | None]:
    """b / a of two medians, and its 95 % interval; no interval where one of the medians has none."""
    middle = b.value / a.value
    if min(a.n, b.n) < FEWEST:
        return middle, None, None
    below = math.hypot(math.log(b.value / b.low), math.log(a.high / a.value))
    above = math.hypot(math.log(b.high / b.value), math.log(a.value / a.low))
    return middle, middle * math.exp(-below), middle * math.exp(above)


def verdict(found: tuple[float, float | None, float | None], higher_is_faster: bool) -> str:
    """A ratio is a change where its interval excludes 1 and it is more than a machine's repeatability."""
    middle, low, high = found
    if low is None or high is None:
        return FEW
    if low <= 1 <= high or max(middle, 1 / middle) <= 1 + TOLERANCE:
        return SAME
    return FASTER if (middle > 1) == higher_is_faster else SLOWER


def by_modes(a: Sequence[float], b: Sequence[float], higher_is_faster: bool) -> str:
    """The verdict on samples of which one side or both have several modes.

    As many modes: one by one, and a change only where all agree. Otherwise a change only where every mode of A differs from every
    mode of B in the same way; where each mode of the side with fewer is one of the other's, nothing changed; else they overlap.
    """
    left, right = (grouped(samples)[:: -1 if higher_is_faster else 1] for samples in (a, b))
    table = [[_of_mode(x, y, higher_is_faster) for y in right] for x in left]
    if len(left) == len(right):
        seen = {table[i][i] for i in range(len(table))}
        return seen.pop() if len(seen) == 1 else OVERLAP
    everything = {cell for line in table for cell in line}
    if len(everything) == 1:
        return everything.pop()
    fewer = table if len(left) < len(right) else [list(line) for line in zip(*table, strict=True)]
    return SAME if all(SAME in line for line in fewer) else OVERLAP


def _of_mode(a: Sequence[float], b: Sequence[float], higher_is_faster: bool) -> str:
    """Compares two modes. One whose median lies among the other's samples, or with few samples, is no change."""
    x, y = estimate(a), estimate(b)
    if min(b) <= x.value <= max(b) or min(a) <= y.value <= max(a):
        return SAME
    found = verdict(ratio(x, y), higher_is_faster)
    return SAME if found == FEW else found


def status_of(*states: str) -> str:
    """The first that is not ok, as a verdict; "" where all are."""
    return next((state.replace("_", " ") for state in states if state != "ok"), "")
