"""Statistics of timing samples, in one place: medians with distribution-free intervals, and modes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ..errors import Error

MODE_GAP = 0.20  # neighbours in sorted order further apart than this belong to different modes
CORRELATED = 0.3  # lag-1 autocorrelation above which samples that follow each other are not independent
FEWEST = 6  # samples whose median has a 95 % interval: minimum to maximum covers that of n in 1 - 2 ** (1 - n) of all cases
MOVED = 0.05  # the bracket rule: measurements of a roof further apart than this are two different roofs
IMPLAUSIBLE = 1.03  # a share of a roof above this is evidence of an error, never a win
INTERVAL = "95 % interval"
MODE_SHARE = 0.15  # fewer samples than this share are outliers, not a mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Order statistics of samples, in the samples' unit. low..high is the 95 % interval of the median.

    Of fewer than FEWEST samples it is their range: a median of so few has no such interval.
    """

    median: float
    low: float
    high: float
    minimum: float
    maximum: float
    p5: float
    p95: float
    n: int

    @property
    def interval_name(self) -> str:
        """What low..high is: "95 % interval" or "range"."""
        return INTERVAL if self.n >= FEWEST else "range"


def bars_name(summaries: Iterable[Summary]) -> str:
    """What the bars of a plot from low to high are."""
    names = {s.interval_name for s in summaries if s.n > 1}
    return {frozenset({"range"}): "ranges", frozenset({"range", INTERVAL}): f"{INTERVAL}s, ranges where n < {FEWEST}"}.get(
        frozenset(names), f"{INTERVAL}s"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One mode of the samples: its median, the share of all samples in it, and their number."""

    value: float
    share: float
    n: int


def autocorrelation(samples: Iterable[float]) -> float:
    """Correlation of each sample with the next, in the order given; 0 for fewer than ten samples, or equal ones."""
    values = np.asarray(list(samples), dtype=np.float64)
    if len(values) < 10:
        return 0.0
    off = values - values.mean()
    total = float(off @ off)
    return float(off[:-1] @ off[1:]) / total if total > 0 else 0.0


def _checked(samples: Iterable[float]) -> list[float]:
    ordered = sorted(float(sample) for sample in samples)
    if not ordered:
        raise Error("no samples to summarise: at least one is needed")
    if not all(math.isfinite(sample) for sample in ordered):
        raise Error("samples must be finite numbers; one of them is NaN or infinite")
    return ordered


def summary(samples: Iterable[float]) -> Summary:
    """Median, its distribution-free 95 % interval, and the spread. Raises Error for no samples, NaN or infinity.

    The interval runs between the order statistics of ranks floor((n - 1.96 sqrt n) / 2) and ceil(1 + (n + 1.96 sqrt n) / 2),
    clipped to 1..n (Le Boudec, Performance Evaluation of Computer and Communication Systems, 2010). It assumes nothing
    about the distribution, but does assume independent samples: where the lag-1 autocorrelation r of the samples as they
    were taken is above 0.3, 1.96 sqrt n grows by sqrt((1 + r) / (1 - r)), the variance of a mean of such a series (AR(1)).
    """
    taken = list(samples)
    ordered = _checked(taken)
    n = len(ordered)
    r = min(autocorrelation(taken), 0.99)
    half = 1.96 * math.sqrt(n) * (math.sqrt((1 + r) / (1 - r)) if r > CORRELATED else 1.0)
    low = max(math.floor((n - half) / 2), 1)
    high = min(math.ceil(1 + (n + half) / 2), n)
    p5, median, p95 = (float(value) for value in np.percentile(ordered, (5, 50, 95)))
    return Summary(
        median=median, low=ordered[low - 1], high=ordered[high - 1], minimum=ordered[0], maximum=ordered[-1], p5=p5, p95=p95, n=n
    )


def grouped(samples: Iterable[float]) -> tuple[tuple[float, ...], ...]:
    """The samples of each mode as they were taken, lowest mode first; all of them in one group where no two modes are seen.

    Sorted samples are split at every gap of 20 % and more of the lower neighbour. A group with less than 15 % of the
    samples, or with a single one, is an outlier and belongs to no mode. Raises Error as `summary` does.
    """
    taken = tuple(float(sample) for sample in samples)
    ordered = _checked(taken)
    groups: list[list[float]] = [[ordered[0]]]
    for lower, upper in pairwise(ordered):
        if upper - lower >= MODE_GAP * abs(lower) and upper > lower:
            groups.append([])
        groups[-1].append(upper)
    kept = [group for group in groups if len(group) >= max(MODE_SHARE * len(ordered), 2)]
    if len(kept) < 2:
        return (taken,)
    return tuple(tuple(sample for sample in taken if group[0] <= sample <= group[-1]) for group in kept)


def modes(samples: Iterable[float]) -> tuple[Mode, ...]:
    """The modes of positive samples (see `grouped`), lowest first; one mode (the median of all) where no two are seen."""
    seen = list(samples)
    return tuple(Mode(value=float(np.median(group)), share=len(group) / len(seen), n=len(group)) for group in grouped(seen))


# They take tuples of samples: plots and tables ask for the same ones again and again.
summary_of, modes_of = lru_cache(maxsize=8192)(summary), lru_cache(maxsize=4096)(modes)
