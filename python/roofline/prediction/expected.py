"""What every expected time says of itself, and shares of the ceilings that are reached."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._repr import Parts, Records, Row, Shown, values_of
from ..counts import any_of, larger, pick, summed
from ..errors import Error
from ..operators.base import WORK
from ..units import SHARES, fmt_number, fmt_shares, fmt_si, within
from ..words import hint

UTILISED = ("compute", "bandwidth", "link")  # what a share of the peak is given for
Utilisation = float | str | Mapping[str, float]


def utilisation_of(given: Utilisation | None) -> dict[str, float]:
    """Shares by UTILISED: of a number all three, of words such as "compute=0.7,bandwidth=0.8" and mappings those that they name.

    Raises Error for another name, and for shares that are none.
    """
    if isinstance(given, str):
        words = [part.partition("=") for part in given.split(",")]
        try:
            named = {name.strip(): float(value or name) for name, _, value in words}
        except ValueError:
            raise Error(f"utilisation is a share such as 0.8, or compute=0.7,bandwidth=0.8, got {given!r:.80}") from None
        if len(named) < len(words):
            raise Error(f"utilisation: a share is given twice in {given!r:.80}")
        given = named if all(equals for _, equals, _ in words) else next(iter(named.values())) if len(words) == 1 else named
    shares = dict.fromkeys(UTILISED, 1.0)
    stated = {} if given is None else dict(given) if isinstance(given, Mapping) else dict.fromkeys(UTILISED, given)
    for roof, share in stated.items():
        if roof not in UTILISED:
            raise Error(f"utilisation is given for {', '.join(UTILISED)}, not for {roof!r:.80}{hint(roof, UTILISED)}")
        shares[roof] = within(f"utilisation of {roof}", "a share", share, SHARES)
    return shares


def longest(seconds: Mapping[str, Any]) -> dict[str, Any]:
    """The longest of these times alone; of several problems at once each time where it is the longest, and 0 elsewhere."""
    most = functools.reduce(larger, seconds.values(), 0.0)
    left: Any = True
    found = {}
    for name, each in seconds.items():
        here = (each == most) & left
        left = left & ~here if isinstance(here, np.ndarray) else left and not here
        if any_of(here):
            found[name] = pick(here, each, 0.0)
    return found


# What prints call a roof.
ROOF_WORDS: Mapping[str, str] = {"product": "GEMM", "other": "other arithmetic"}


class Expected(Shown, Records):
    """An expected time, of one problem or of a model's phase: what both say of it. Times in seconds, sizes in bytes."""

    __slots__ = ()

    time_s: float
    flops: int
    bytes: int
    bound: str

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.time_s

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.time_s

    @property
    def flops_per_byte(self) -> float:
        return self.flops / self.bytes if self.bytes else math.inf

    @property
    def profile(self) -> Mapping[str, float]:
        """Seconds by roof: memory levels, "product", "exp", "other", "launch", "link", and what overlap does not hide."""
        raise NotImplementedError

    @property
    def what(self) -> str:
        """The problem or the model, in short."""
        raise NotImplementedError

    def quantities(self) -> dict[str, str]:
        """What a table shows of it, name by name, as text."""
        profile = sorted(self.profile.items(), key=lambda item: -item[1])
        return {
            "time": fmt_si(self.time_s, "s", 4),
            "bound by": fmt_roofs(dict(profile), self.time_s),
            "FLOPs": fmt_si(self.flops, "FLOP"),
            "bytes": fmt_si(self.bytes, "B"),
            "FLOP/byte": fmt_number(self.flops_per_byte),
            "rate": f"{fmt_si(self.flops_per_s, 'FLOP/s')}, {fmt_si(self.bytes_per_s, 'B/s')}",
        }

    def record(self) -> dict[str, Any]:
        """Numbers of it as one flat row, units in the names."""
        return values_of(self, "what time_s bound flops bytes flops_per_byte flops_per_s bytes_per_s")

    def to_records(self) -> list[dict[str, Any]]:
        """`record` alone, as a table of one row."""
        return [self.record()]


def fmt_roofs(profile: Mapping[str, float], time_s: float) -> str:
    """The roofs that take most of a time: "DRAM 94.6 %, GEMM 5.4 %"."""
    return fmt_shares({ROOF_WORDS.get(name, name): seconds for name, seconds in profile.items()}, time_s)


def bound_of(profile: Mapping[str, float]) -> str:
    """The roof with most of the time, "compute" for all kinds of arithmetic together; "" where nothing takes any."""
    joined = summed(("compute" if roof in WORK else roof, seconds) for roof, seconds in profile.items())
    return max(joined, key=lambda name: joined[name], default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change and its expected gain. gain: the rate with it over the rate without. time_s: with it; bound: what then takes
    most of that ("" where that is not known). at_most: the gain is that of reaching a roof, which few kernels do. detail: why, and
    what else to know.
    """

    change: str
    gain: float
    time_s: float
    bound: str = ""
    at_most: bool = False
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class AdviceTable(Shown, Records, tuple[Advice, ...]):
    """Several changes, which show themselves as one table."""

    __slots__ = ()

    def to_records(self) -> list[dict[str, Any]]:
        """A record of each: change, gain, time_s, bound, at_most, detail."""
        return [each.to_dict() for each in self]

    def table(self) -> tuple[Row, list[Row]]:
        rows: list[Row] = [
            (a.change, f"{'≤ ' if a.at_most else ''}{a.gain:.2f}×", fmt_si(a.time_s, "s"), a.bound, a.detail) for a in self
        ]
        return ("change", "gain", "time", "then bound by", "why"), rows

    def _table(self) -> Parts:
        return "What would it take", *self.table(), ()
