"""A roof around a measurement: short probes directly before and after it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .._repr import json_form, values_of
from ..errors import Error
from ..reading import Sample, Scalars, Text
from ..words import require_one_of

BRACKETED = ("bandwidth", "compute", "latency", "link")  # kinds of roof


def positive(name: str, samples: tuple[float, ...]) -> tuple[float, ...]:
    values = tuple(float(sample) for sample in samples)
    if not all(0 < value < float("inf") for value in values):
        raise Error(f"{name} must be positive finite numbers")
    return values


def roof_value(kind: str, samples: Sequence[float]) -> float:
    """The rate that samples of a roof of this kind stand for: their median; of a latency the shortest.

    A launch takes below a microsecond: whatever else the machine does can lengthen it many times over, and nothing shortens it.
    A median of few samples taken in such a moment would make the launch the bound of a problem that it does not bound.
    """
    return min(samples) if kind == "latency" else statistics.median(samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Short probes of one roof directly before and after a measurement, on the same threads and level.

    kind: "bandwidth", "link" (samples in bytes/s), "compute" (FLOP/s) or "latency" (seconds). problem: {"operator": ..., **fields}.
    """

    label: Text
    kind: Text
    before_samples: tuple[Sample, ...]
    after_samples: tuple[Sample, ...] = ()
    level: Text = ""
    problem: Scalars = field(default_factory=dict)
    variant: str = ""

    derived_keys: ClassVar[frozenset[str]] = frozenset({"median_before", "median_after"})

    def __post_init__(self) -> None:
        require_one_of(f"bracket {self.label!r:.80}: kind", self.kind, BRACKETED)
        for name in ("before_samples", "after_samples"):
            object.__setattr__(self, name, positive(f"bracket {self.label!r:.80}: {name}", getattr(self, name)))
        if not self.before_samples:
            raise Error(f"bracket {self.label!r:.80}: before_samples is empty")

    @property
    def median_before(self) -> float:
        return statistics.median(self.before_samples)

    @property
    def median_after(self) -> float | None:
        return statistics.median(self.after_samples) if self.after_samples else None

    @property
    def value(self) -> float:
        """The roof around the measurement: the mean of both medians (the one before where there is none after).

        For a latency it is the shortest sample, see `roof_value`.
        """
        if self.kind == "latency":
            return roof_value(self.kind, self.samples)
        after = self.median_after
        return self.median_before if after is None else (self.median_before + after) / 2

    @property
    def moved(self) -> float:
        """|after - before| / the smaller of both; 0 without an after."""
        after = self.median_after
        return 0.0 if after is None else abs(after - self.median_before) / min(after, self.median_before)

    @property
    def samples(self) -> tuple[float, ...]:
        return self.before_samples + self.after_samples

    def time_s(self, flops: int, bytes_: int, link_bytes: int = 0, *, rate: float | None = None) -> float:
        """Seconds this roof allows for that work, at `value` or another `rate` of the roof."""
        rate = self.value if rate is None else rate
        work = {"bandwidth": bytes_, "link": link_bytes, "compute": flops}
        return rate if self.kind == "latency" else work[self.kind] / rate

    def to_dict(self) -> dict[str, Any]:
        return {**json_form(self), **values_of(self, "median_before median_after")}
