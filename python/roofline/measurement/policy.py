"""How long and how carefully to sample."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import Any

from ..errors import Error, is_number, is_whole, plain
from ..words import ByName, annotated

LEAST_S = 0.5  # of samples, however little time is left


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(ByName):
    """How long and how carefully to sample; times are in seconds.

    Attributes:
        noise: half-width of the 95 % interval over the median.
        limit_s: of one measurement with its preparation: samples are fewer, and no try begins, where it would take longer.
    """

    warmup_min_s: float = 0.1
    warmup_max_s: float = 0.4
    batch_s: float = 5e-3
    min_samples: int = 10
    min_s: float = 0.5
    max_s: float = 5.0
    noise: float = 0.005
    bracket_s: float = 0.012
    tries: int = 3
    limit_s: float = 10.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, whole = plain(getattr(self, field.name)), annotated(field) == "int"
            object.__setattr__(self, field.name, value)
            if not (is_whole(value) if whole else is_number(value)) or not 0 <= value <= (2**31 if whole else sys.float_info.max):
                kind = "whole number from 0 to 2**31" if whole else "number of at least 0"
                raise Error(f"{field.name} must be a {kind}, got {value!r:.80}")
        if self.min_samples < 3 or self.tries < 1:
            raise Error("min_samples must be at least 3 and tries at least 1")
        if self.limit_s < self.max_s:
            raise Error(f"limit_s ({self.limit_s} s) must be at least max_s ({self.max_s} s)")
        if self.warmup_max_s < self.warmup_min_s:
            raise Error(f"warmup_max_s ({self.warmup_max_s} s) must be at least warmup_min_s ({self.warmup_min_s} s)")

    def within(self, left_s: float) -> Policy:
        """One try that takes samples for at most `left_s`, and half a second at least."""
        max_s = max(min(self.max_s, left_s - self.warmup_max_s), min(self.max_s, LEAST_S))
        return dataclasses.replace(self, max_s=max_s, min_s=min(self.min_s, max_s), tries=1)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


REPORT = Policy(warmup_min_s=0.03, warmup_max_s=0.12, min_s=0.15, max_s=0.4, noise=0.01, tries=2)
QUICK = Policy(warmup_min_s=0.02, warmup_max_s=0.08, min_s=0.05, max_s=0.15, noise=0.02, tries=2)
THOROUGH = Policy(warmup_min_s=0.2, warmup_max_s=0.8, min_s=0.5, max_s=3.0, limit_s=30.0)
