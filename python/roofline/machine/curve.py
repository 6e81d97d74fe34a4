"""Bandwidth over working-set size, and the plateaus found in it: what each cache gives, and where it ends."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._repr import json_form
from ..errors import Error
from ..operators.base import MIXES
from ..probes import CACHES, memory_level
from ..probes.levels import curve_capacity, lasting_capacity
from ..reading import Sample, Scalars, Text, Whole
from ..units import fmt_bytes, fmt_percent, fmt_si
from ..words import counted, require_one_of
from .statistics import Summary, summary, summary_of

Floats = NDArray[np.float64]

FLAT = 0.05  # sizes of a plateau lie within this of its value, and its ends within twice this of each other
LEAST = 3  # sizes that make a plateau
NOISE = (0.01, 0.05)  # relative: neighbours are never judged finer than the first, and beyond the second nothing is found
OUTLIER = 3.0  # times the noise: a size farther off counts as this far and no more
HOLDS = (0.4, 1.5)  # of a cache's reported size: a plateau that ends outside contradicts it


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePoint:
    """One working set over all threads: bytes/s of each timed batch. problem: enough to measure it again."""

    size_bytes: Whole
    samples: tuple[Sample, ...]
    problem: Scalars = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", tuple(float(sample) for sample in self.samples))
        if self.size_bytes < 1:
            raise Error(f"size point: size_bytes must be positive, got {self.size_bytes}")
        if not self.samples or not all(0 < sample < math.inf for sample in self.samples):
            raise Error(f"size point at {fmt_bytes(self.size_bytes)}: samples must be positive finite numbers (B/s), at least one")

    @property
    def summary(self) -> Summary:
        return summary_of(self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """A run of sizes with one bandwidth, both ends included. low..high: 95 % interval of the median over its sizes (bytes/s).

    level: the cache whose reported size holds it, "DRAM", or "?" where no reported size explains it.
    """

    from_bytes: int
    to_bytes: int
    value: float
    low: float
    high: float
    n: int
    level: str = "?"

    @property
    def label(self) -> str:
        return f"{self.level} {fmt_si(self.value, 'B/s')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCurve:
    """Bandwidth of one access over the size of its working set, which all threads together hold.

    Attributes:
        points: kept in order of size.

    Raises:
        Error: for no points, a size twice, and an access that does not exist.
    """

    access: Text
    points: tuple[SizePoint, ...]
    threads: Whole = 0
    isa: Text = ""
    variant: Text = ""
    status: Text = "ok"
    reason: Text = ""

    derived_keys: ClassVar[frozenset[str]] = frozenset({"plateaus"})

    def __post_init__(self) -> None:
        require_one_of("size curve: access", self.access, MIXES)
        require_one_of("size curve: status", self.status, ("ok", "contended"))
        object.__setattr__(self, "points", tuple(sorted(self.points, key=lambda point: point.size_bytes)))
        if not self.points:
            raise Error(f"size curve {self.name}: it has no points")
        for one, other in pairwise(self.points):
            if one.size_bytes == other.size_bytes:
                raise Error(f"size curve {self.name}: the size {fmt_bytes(one.size_bytes)} is there twice; pool its samples")

    @property
    def name(self) -> str:
        """The access, instruction set and threads: "read avx2, 2 threads"."""
        words = [self.access, "NT" if self.variant == "non_temporal" else "", self.isa]
        threads = counted(self.threads, "thread") if self.threads else ""
        return ", ".join(part for part in (" ".join(word for word in words if word), threads) if part)

    @property
    def noise(self) -> float:
        """How much neighbouring sizes scatter, relative; 0 where there are fewer than three."""
        y = np.log([point.summary.median for point in self.points])
        if len(y) < 3:
            return 0.0
        # Steps spoil the first differences where plateaus are short, slopes where they are long; noise is in both.
        first, second = np.abs(np.diff(y)) / math.sqrt(2), np.abs(np.diff(y, 2)) / math.sqrt(6)
        return float(1.4826 * min(np.median(first), np.median(second)))

    def plateaus(self, facts: Mapping[str, Any] | None = None) -> tuple[Plateau, ...]:
        """Runs of three sizes and more whose bandwidth is flat, smallest first, found from the curve alone.

        The curve (log over log) is cut into flat and sloped pieces by dynamic programming: least loss, plus a penalty for
        every piece. Slopes and shorter runs are transitions. facts: a machine's, for the cache level each is named after.
        Nothing is found where neighbouring sizes scatter by more than 5 %.
        """
        medians = tuple(point.summary.median for point in self.points)
        runs = () if self.noise > NOISE[1] else _runs(tuple(point.size_bytes for point in self.points), medians, self.noise)
        found = []
        for run in runs:
            s = summary(self.points[i].summary.median for i in run)
            sizes = self.points[run[0]].size_bytes, self.points[run[-1]].size_bytes
            found.append(Plateau(from_bytes=sizes[0], to_bytes=sizes[1], value=s.median, low=s.low, high=s.high, n=len(run)))
        return self._named(found, facts or {})

    def _named(self, found: list[Plateau], facts: Mapping[str, Any]) -> tuple[Plateau, ...]:
        caches = {level: size for level in CACHES if (size := curve_capacity(facts, level, self.threads or None))}
        named = []
        for index, plateau in enumerate(found):
            middle = math.sqrt(plateau.from_bytes * plateau.to_bytes)
            # A set of twice a cache's size finds at most half of itself there: no cache has a plateau so long.
            level = next((level for level, size in caches.items() if middle <= size and plateau.to_bytes <= 2 * size), None)
            # Beyond every cache only the last can be DRAM: one before it is a cache that nobody reported.
            level = level or (memory_level(facts) if caches and index == len(found) - 1 else "?")
            named.append(dataclasses.replace(plateau, level=level))
        return tuple(named)

    def notes(self, facts: Mapping[str, Any]) -> list[str]:
        """`findings`, each with the curve's name."""
        return [f"{self.name}: {line}" for line in self.findings(facts)]

    def findings(self, facts: Mapping[str, Any]) -> list[str]:
        """Where the curve contradicts the reported cache sizes, in plain English; and why it says nothing, if so."""
        if self.noise > NOISE[1]:
            return [f"sizes next to each other differ by {fmt_percent(self.noise, 2)}: too noisy to find plateaus"]
        found = self.plateaus(facts)
        lines = []
        nearer = 0
        for level in CACHES:
            reported = curve_capacity(facts, level, self.threads or None)
            if not reported:
                continue
            own = [plateau for plateau in found if plateau.level == level]
            inside = [point for point in self.points if nearer < point.size_bytes <= reported]
            each = "" if level == "L3" or self.threads in (0, 1) else f" over {self.threads} threads"
            stated = f"reported {level} {fmt_bytes(reported)}{each}, but"
            least = min(HOLDS[0] * reported, lasting_capacity(facts, level, self.threads or None))
            if own and own[-1].to_bytes < least and own[-1].to_bytes < self.points[-1].size_bytes:
                lines.append(
                    f"{stated} its bandwidth holds only up to {fmt_bytes(own[-1].to_bytes)}: "
                    f"shared with others, filled unevenly by small pages, or smaller than reported"
                )
            elif own and own[-1].to_bytes > HOLDS[1] * reported:
                lines.append(
                    f"{stated} its bandwidth holds up to {fmt_bytes(own[-1].to_bytes)}: "
                    f"larger than reported, or the next level is as fast"
                )
            elif not own and len(inside) >= LEAST and found:
                across = next((p for p in found if p.from_bytes <= reported < p.to_bytes), None)
                if across is not None and level != "L3":
                    why = f"bandwidth is flat from {fmt_bytes(across.from_bytes)} to {fmt_bytes(across.to_bytes)}, across its end"
                elif self.noise > FLAT / 2:
                    why = f"no plateau in it: neighbouring sizes differ by {fmt_percent(self.noise, 2)}"
                else:
                    why = "no plateau in it: shared with others, or not there for this process"
                lines.append(f"{stated} {why}")
            nearer = reported
        lines += [
            f"{fmt_si(plateau.value, 'B/s')} from {fmt_bytes(plateau.from_bytes)} to {fmt_bytes(plateau.to_bytes)} belongs to no "
            f"reported level: a cache that the system does not name"
            for plateau in found
            if plateau.level == "?" and any(curve_capacity(facts, level) for level in CACHES)
        ]
        return lines

    def to_dict(self, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """JSON form; `plateaus` is for readers and ignored when read back."""
        return {**json_form(self), "plateaus": json_form(self.plateaus(facts))}


# -- finding plateaus ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _runs(sizes: tuple[int, ...], medians: tuple[float, ...], noise: float) -> tuple[tuple[int, ...], ...]:
    """Indices of the sizes of each plateau."""
    x, y = np.log(sizes), np.log(medians)
    runs = (_flat(y, begin, end) for begin, end in _pieces(x, y, max(noise, NOISE[0])))
    return tuple(tuple(run) for run in _merged([run for run in runs if run], y))


def _pieces(x: Floats, y: Floats, noise: float) -> list[tuple[int, int]]:
    """The cheapest cut of y [n] over x [n] into flat and sloped pieces: (start, end) of each, end excluded.

    A piece costs its squared residuals in units of the noise (at most 9 a size), and ln n for each of its parameters: a
    level and a border, and of a slope that as well (the Bayesian information criterion).
    """
    n = len(y)
    price = math.log(n)

    def loss(residual: Floats) -> float:
        return float(np.minimum(((residual - _middle(residual)) / noise) ** 2, OUTLIER**2).sum())

    best = [0.0] + [math.inf] * n
    start = [0] * (n + 1)
    for end in range(1, n + 1):
        for begin in range(end - 1, -1, -1):
            if best[begin] + 2 * price >= best[end]:
                continue
            part, third = y[begin:end], (end - begin) // 3
            cost = 2 * price + loss(part)
            if third:
                # The line through the medians of its first and last third: an outlier inside does not tilt it.
                run = _middle(x[end - third : end]) - _middle(x[begin : begin + third])
                slope = (_middle(part[-third:]) - _middle(part[:third])) / run
                cost = min(cost, 3 * price + loss(part - slope * x[begin:end]))
            if best[begin] + cost < best[end]:
                best[end], start[end] = best[begin] + cost, begin
    pieces = []
    end = n
    while end:
        pieces.append((start[end], end))
        end = start[end]
    return pieces[::-1]


def _middle(values: Floats) -> float:
    """The lower median; a fifth of the time of np.median for a few values."""
    return float(np.sort(values)[(len(values) - 1) // 2])


def _flat(y: Floats, begin: int, end: int) -> list[int]:
    """The sizes of a piece that make a plateau; none where it is sloped, scattered or short."""
    middle = np.median(y[begin:end])
    run = [i for i in range(begin, end) if abs(y[i] - middle) <= FLAT]
    if len(run) < LEAST or len(run) < 0.75 * (run[-1] - run[0] + 1) or run[-1] - run[0] + 1 < 0.75 * (end - begin):
        return []
    third = max(len(run) // 3, 1)
    drift = np.median(y[run[-third:]]) - np.median(y[run[:third]])
    return run if abs(drift) <= 2 * FLAT else []


def _merged(runs: Sequence[list[int]], y: Floats) -> list[list[int]]:
    """Neighbouring runs of one level, at most one size apart, as one."""
    merged: list[list[int]] = []
    for run in runs:
        if merged and run[0] - merged[-1][-1] <= 2 and abs(np.median(y[run]) - np.median(y[merged[-1]])) <= FLAT:
            merged[-1] += run
        else:
            merged.append(run)
    return merged
