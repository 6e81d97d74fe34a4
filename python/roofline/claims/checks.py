"""A claim held against a number: a row that says pass or fail, and a table of such rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .._repr import Parts, Records, Row, Shown, text_table
from ..errors import Error, is_number
from ..units import fmt_number, fmt_percent, fmt_si, within, without_zeros

WITHIN = 0.01  # of a stated number, where nothing else is said: texts round to two or three digits
Scalar = float | int | str | bool
Found = Scalar | list[Scalar] | tuple[Scalar, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Check:
    """A claim, the value it states, the value found, and whether the two agree.

    Attributes:
        unit: of the value found, in base SI units; "" for plain numbers.
        why: the right value, or the reason.
    """

    claim: str
    wanted: str
    found: Found
    passed: bool
    unit: str = ""
    why: str = ""

    @property
    def verdict(self) -> str:
        return "pass" if self.passed else "FAIL"

    @property
    def shown(self) -> str:
        """The value found, in words."""
        return ", ".join(_text(each, self.unit) for each in _several(self.found))

    def to_dict(self) -> dict[str, Any]:
        found = list(self.found) if isinstance(self.found, tuple) else self.found
        stated = {name: getattr(self, name) for name in ("claim", "wanted", "passed", "unit", "why")}
        return {**stated, "found": found}

    def __repr__(self) -> str:
        return f"{self.verdict}: {self.claim} (wanted {self.wanted}, found {self.shown})"

    def _repr_html_(self) -> str:
        return Checks([self])._repr_html_()


class Checks(Shown, Records, tuple[Check, ...]):
    """Several checks, which show themselves as one table. They add up: `first + second` is a table of both."""

    __slots__ = ()

    def __new__(cls, checks: Iterable[Check] = ()) -> Checks:
        given = tuple(checks)
        if foreign := [each for each in given if not isinstance(each, Check)]:
            raise Error(f"Checks are made of what `roofline.check` gives, not of {foreign[0]!r:.80}")
        return super().__new__(cls, given)

    def __add__(self, other: tuple[Check, ...]) -> Checks:  # type: ignore[override]
        return Checks((*self, *other))

    @property
    def passed(self) -> bool:
        """Whether all do."""
        return all(each.passed for each in self)

    @property
    def failed(self) -> Checks:
        """Those that do not pass."""
        return Checks(each for each in self if not each.passed)

    def to_records(self) -> list[dict[str, Any]]:
        """A record of each: claim, wanted, passed, unit, why, found."""
        return [each.to_dict() for each in self]

    def table(self) -> tuple[Row, list[Row]]:
        """Headers and rows; the reason only where one is given."""
        why = any(each.why for each in self)
        headers = ("verdict", "claim", "wanted", "found", *(["why"] if why else []))
        return headers, [(c.verdict, c.claim, c.wanted, c.shown, *([c.why] if why else [])) for c in self]

    def _table(self) -> Parts:
        return "", *self.table(), [self.summary()]

    def __repr__(self) -> str:
        return text_table(*self.table(), notes=[self.summary()])

    def summary(self) -> str:
        return f"{sum(each.passed for each in self)} of {len(self)} pass"


def _several(found: Found) -> tuple[Scalar | None, ...]:
    return tuple(found) if isinstance(found, (list, tuple)) else (found,)


def _text(value: Scalar | None, unit: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, (str, bool)):
        return str(value)
    number, _, rest = (fmt_si(float(value), unit, 4) if unit else fmt_number(float(value), 4)).partition(" ")
    return f"{without_zeros(number)} {rest}".strip()


def _plain(found: Any) -> Found:
    """Numbers of NumPy as Python's, and arrays as lists. Raises Error for anything but a number, text, or a list of these."""
    value = found.tolist() if hasattr(found, "tolist") else found
    for each in _several(value):
        if not (each is None or isinstance(each, (str, bool)) or is_number(each)):
            raise Error(f"check: found must be a number, a text, True or False, or a list of these, got {each!r:.80}")
    return value if not isinstance(value, tuple) else list(value)


def check(
    claim: str,
    found: Any,
    *,
    equals: Any = None,
    tolerance: float = WITHIN,
    above: float | None = None,
    below: float | None = None,
    unit: str = "",
    why: str = "",
) -> Check:
    """Compare a claim with the value found: check("An H100's ridge point is 295", h100.ridge("fp16"), equals=295).

    Args:
        found: a number, a text, True or False, or a list of these, of which each must agree; None (nothing was found) agrees
            with nothing.
        equals: the value, or one for each; numbers agree within `tolerance` of it (a share, 0.01 unless given), all else
            exactly.
        above: a bound that numbers must keep, without the bound itself.
        below: likewise.
        unit: of the numbers, which are in base SI units ("FLOP/s").
        why: shown beside the verdict.

    Raises:
        Error: unless there is something to hold it against, and where lists differ in length.
    """
    if equals is None and above is None and below is None:
        raise Error("check: give equals, above or below, so that found can be compared with it")
    value, within_ = _plain(found), within("tolerance", "a share", tolerance, (0.0, 1.0))
    each = _several(value)
    if not each:
        raise Error("check: found is empty")
    wanted, passed = [], True
    if equals is not None:
        stated = _several(_plain(equals))
        if len(stated) not in (1, len(each)):
            raise Error(f"check: equals has {len(stated)} values for {len(each)} found; give one, or one for each")
        pairs = zip(each, stated * len(each) if len(stated) == 1 else stated, strict=False)
        passed &= all(_agrees(ours, theirs, within_) for ours, theirs in pairs)
        numbers = any(is_number(one) for one in stated)
        margin = f" ± {fmt_percent(within_, 2)}" if numbers and within_ else ""
        wanted.append(", ".join(_text(one, unit) for one in stated) + margin)
    for word, limit in (("above", above), ("below", below)):
        if limit is None:
            continue
        if not is_number(limit) or math.isnan(limit):
            raise Error(f"check: {word} must be a number, got {limit!r:.80}")
        passed &= all(is_number(one) and (one > limit if word == "above" else one < limit) for one in each)
        wanted.append(f"{word} {_text(limit, unit)}")
    return Check(claim=claim, wanted=", ".join(wanted), found=value, passed=passed, unit=unit, why=why)


def _agrees(ours: Any, theirs: Any, tolerance: float) -> bool:
    if is_number(ours) and is_number(theirs):
        return math.isclose(ours, theirs, rel_tol=0.0, abs_tol=tolerance * abs(theirs)) or ours == theirs
    return type(ours) is type(theirs) and bool(ours == theirs)
