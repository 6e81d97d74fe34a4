"""What the examination of the numeric libraries found: plain records, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._repr import json_form, values_of
from ..machine import summary
from .rules import Cpu

SCHEMA_VERSION = 1
BELOW = 0.80  # of the roof: a tuned GEMM of this size reaches 85 to 98 % of it
GAINED = 1.05  # a cure that gains less is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """A changed environment that was tried, in turn with the given one. gain: rate with it over rate without, of each pair."""

    environment: Mapping[str, str | None]
    before_samples_s: tuple[float, ...] = ()
    after_samples_s: tuple[float, ...] = ()
    gains: tuple[float, ...] = ()
    share: float | None = None
    reason: str = ""  # why it could not be tried to the end

    @property
    def gain(self) -> float | None:
        return float(np.median(self.gains)) if self.gains else None

    @property
    def works(self) -> bool:
        return (self.gain or 0.0) >= GAINED or (not self.before_samples_s and bool(self.after_samples_s))

    def to_dict(self) -> dict[str, Any]:
        return {**json_form(self), **values_of(self, "gain works")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One product of one library: `size` cubed, on `threads` (0: not known). share: of the roof, the median of its turns."""

    library: str
    dtype: str
    asked: int
    threads: int = 0
    size: int = 0
    status: str = "ok"
    reason: str = ""
    blas: str = ""
    blas_version: str = ""
    layer: str = ""
    kernels: str = ""
    build: str = ""
    samples_s: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    roof: str = ""
    roof_samples: tuple[float, ...] = ()
    busy_cores: float = 0.0
    load: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    why: tuple[str, ...] = ()
    cure: Cure | None = None

    @property
    def flops(self) -> int:
        return 2 * self.size**3

    @property
    def share(self) -> float | None:
        return float(np.median(self.shares)) if self.shares else None

    @property
    def below(self) -> bool:
        return self.share is not None and self.share < BELOW

    def rates(self, samples_s: Sequence[float]) -> list[float]:
        return [self.flops / s for s in samples_s]

    def to_dict(self) -> dict[str, Any]:
        rates = summary(self.rates(self.samples_s)) if self.samples_s else None
        median, low, high = (rates.median, rates.low, rates.high) if rates else (None, None, None)
        derived = {"flops_per_s": median, "flops_per_s_low": low, "flops_per_s_high": high, **values_of(self, "share below")}
        return {**json_form(self), "derived": derived}


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """state: "ok", "absent" or "broken"; `reason` says why it is not ok."""

    name: str
    state: str
    version: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    cpu: Cpu
    libraries: tuple[Library, ...]
    runs: tuple[Run, ...]
    provenance: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "kind": "libraries", "below": BELOW, **json_form(self)}
