"""The roofline as measured: a sweep over arithmetic intensity at one memory level, burst and sustained arithmetic, and its fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from .._repr import json_form, values_of
from ..dtypes import dtype as known_dtype
from ..errors import Error
from ..operators.base import MIXES
from ..probes import LEVELS
from ..reading import Intensity, Rate, Scalars, Seconds, Text, Whole
from ..units import fmt_number, fmt_percent, fmt_si
from ..words import require_one_of
from .ceiling import Ceiling
from .fit import Fit, fit_roofline
from .statistics import Summary, summary

SUSTAINED_S = 10.0  # a shorter load meets no limit of power or heat
SETTLED = 0.5  # the share of the series, at its end, that is the sustained level
REACHES = 0.95  # of a ceiling: a sweep below it is limited by its own kernel

# Fits take tenths of a second and are asked for by files, plots and tables alike.
_fit = lru_cache(maxsize=64)(fit_roofline)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntensityPoint:
    """One arithmetic intensity: FLOP/s of each timed batch. clock_hz: of the cores meanwhile, None where unknown.

    problem: {"operator": name, **fields}, enough to measure it again.
    """

    intensity_flops_per_byte: Intensity
    samples: tuple[Rate, ...]
    clock_hz: Rate | None = None
    problem: Scalars = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", tuple(float(sample) for sample in self.samples))
        where = f"intensity point at {fmt_number(self.intensity_flops_per_byte)} FLOP/byte"
        if not 0 < self.intensity_flops_per_byte < math.inf:
            raise Error(f"{where}: the intensity must be positive and finite")
        if not self.samples or not all(0 < sample < math.inf for sample in self.samples):
            raise Error(f"{where}: samples must be positive finite numbers (FLOP/s), and at least one")
        if self.clock_hz is not None and not 0 < self.clock_hz < math.inf:
            raise Error(f"{where}: clock_hz must be positive and finite, or None where unknown")

    @property
    def summary(self) -> Summary:
        return summary(self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedSample:
    """One interval of a long load: FLOP/s, ending time_s after its start; clock_hz None where unknown."""

    time_s: Seconds
    flops_per_s: Rate
    clock_hz: Rate | None = None

    def __post_init__(self) -> None:
        numbers = {"time_s": self.time_s, "flops_per_s": self.flops_per_s, "clock_hz": self.clock_hz}
        for name, value in numbers.items():
            if value is not None and not 0 < value < math.inf:
                raise Error(f"sustained sample: {name} must be positive and finite, got {value!r:.80}")


def last_half(load: Sequence[SustainedSample]) -> tuple[SustainedSample, ...]:
    """The end of a long load, where power and heat have settled: SETTLED of its time. load: not empty."""
    start = load[-1].time_s * (1 - SETTLED)
    return tuple(sample for sample in load if sample.time_s > start)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmpiricalRoofline:
    """A mixed-intensity sweep of one kernel at one memory level.

    Attributes:
        points: of different intensities, in any order.
        burst: FLOP/s of the same arithmetic without memory, seconds of load only.
        sustained: the same under load for 10 s and more, in order of time; empty where it was not measured.

    Raises:
        Error: for fields outside their lists, no points, an intensity twice, and times that do not rise.
    """

    level: Text
    access: Text
    dtype: Text
    points: tuple[IntensityPoint, ...]
    isa: Text = ""
    threads: Whole = 0
    burst: tuple[Rate, ...] = ()
    sustained: tuple[SustainedSample, ...] = ()
    status: Text = "ok"
    reason: Text = ""

    derived_keys: ClassVar[frozenset[str]] = frozenset({"label", "fit", "burst_flops_per_s", "sustained_flops_per_s"})

    def __post_init__(self) -> None:
        require_one_of("empirical roofline: level", self.level, LEVELS)
        require_one_of("empirical roofline: access", self.access, MIXES)
        require_one_of("empirical roofline: status", self.status, ("ok", "contended"))
        known_dtype(self.dtype)
        object.__setattr__(self, "burst", tuple(float(sample) for sample in self.burst))
        if not self.points:
            raise Error(f"empirical roofline {self.name}: it has no points")
        found = [point.intensity_flops_per_byte for point in self.points]
        twice = next((x for x in found if found.count(x) > 1), None)
        if twice is not None:
            raise Error(f"empirical roofline {self.name}: the intensity {twice:g} FLOP/byte is there twice; pool its samples")
        if not all(0 < sample < math.inf for sample in self.burst):
            raise Error(f"empirical roofline {self.name}: burst must be positive finite numbers (FLOP/s)")
        times = [sample.time_s for sample in self.sustained]
        if times != sorted(set(times)):
            raise Error(f"empirical roofline {self.name}: the times of sustained must rise")

    @property
    def name(self) -> str:
        """The level, access and arithmetic: "DRAM read, fp32 avx2"."""
        return f"{self.level} {self.access}, {f'{self.dtype} {self.isa}'.strip()}"

    @property
    def fit(self) -> Fit:
        """The fitted roofline. Raises Error for fewer than five intensities."""
        ordered = sorted(self.points, key=lambda point: point.intensity_flops_per_byte)
        return _fit(
            tuple(point.intensity_flops_per_byte for point in ordered),
            tuple(point.samples for point in ordered),
            tuple(point.clock_hz for point in ordered),
        )

    @property
    def label(self) -> str:
        """Name and result: "DRAM read, fp32 avx2: knee 5.79 FLOP/byte [5.61, 5.98], p = 3.1 [2.5, 4.3]"."""
        try:
            return f"{self.name}: {self.fit.text}"
        except Error as error:
            return f"{self.name}: {error}"

    @property
    def burst_flops_per_s(self) -> float | None:
        return summary(self.burst).median if self.burst else None

    @property
    def settled(self) -> tuple[SustainedSample, ...]:
        """The last half of the load; empty where it lasted less than 10 s."""
        if not self.sustained or self.sustained[-1].time_s < SUSTAINED_S:
            return ()
        return last_half(self.sustained)

    @property
    def sustained_flops_per_s(self) -> float | None:
        """Median of the last half of a load of 10 s and more; None where there was none."""
        return summary(sample.flops_per_s for sample in self.settled).median if self.settled else None

    def peers(self, ceilings: Sequence[Ceiling]) -> tuple[Ceiling | None, Ceiling | None]:
        """The bandwidth and the compute roof in `ceilings` that this sweep approaches: same level and access, same arithmetic."""

        def best(kind: str, **wanted: str) -> Ceiling | None:
            same = [c for c in ceilings if c.kind == kind and c.is_roof and c.source == "measured" and c.threads == self.threads]
            found = [c for c in same if all(getattr(c, key) == value for key, value in wanted.items())]
            return max(found, key=lambda c: c.value, default=None)

        isa = {"isa": self.isa} if self.isa else {}
        return best("bandwidth", level=self.level, access=self.access), best("compute", dtype=self.dtype, unit="core", **isa)

    def notes(self, ceilings: Sequence[Ceiling] = ()) -> list[str]:
        """What limits the result, in plain English: the fit's notes, and the sweep against the ceilings it should approach.

        Compute is compared per cycle where both clocks are known, so that throttling is no fault of the kernel.
        """
        try:
            fitted = self.fit
        except Error as error:
            return [f"{self.name}: {error}"]
        memory, compute = self.peers(ceilings)
        lines = list(fitted.notes)
        if fitted.bandwidth and memory and fitted.bandwidth.value < REACHES * memory.value:
            share = fmt_percent(fitted.bandwidth.value / memory.value)
            lines.append(f"the sweep reaches {share} of {memory.label}: its kernel limits it, or the machine moved")
        if fitted.peak and compute:
            clocks = compute.clock_hz / fitted.clock_hz if compute.clock_hz and fitted.clock_hz else 1.0
            share_of_peak = fitted.peak.value * clocks / compute.value
            if share_of_peak < REACHES:
                roof = compute.label + (" a cycle" if clocks != 1.0 else "")
                lines.append(
                    f"the sweep reaches {fmt_percent(share_of_peak)} of {roof}: its kernel limits it, or the machine moved"
                )
        if self.sustained and not self.settled:
            lines.append(f"the load lasted {fmt_si(self.sustained[-1].time_s, 's')}: too short for a sustained level (10 s)")
        if self.status != "ok":
            lines.append(self.status + (f": {self.reason}" if self.reason else ""))
        return [f"{self.name}: {line}" for line in lines]

    def to_dict(self) -> dict[str, Any]:
        """JSON form; `derived_keys` are for readers and ignored when read back; `fit` is null where there are too few points."""
        try:
            fitted = self.fit.to_dict()
        except Error:
            fitted = None
        rates = values_of(self, "burst_flops_per_s sustained_flops_per_s")
        return {**json_form(self), "label": self.label, "fit": fitted, **rates}
