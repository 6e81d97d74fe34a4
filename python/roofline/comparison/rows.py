"""A comparison as rows, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._repr import Parts, Records, Row, Shown, json_form
from ..counts import by_key
from ..machine import TOLERANCE, UNVERIFIED, fmt_modes
from ..reading import SCHEMA_VERSION
from ..units import MISSING, fmt_number, fmt_percent, fmt_si
from ..words import counted
from .numbers import BY_CHANCE, TESTED, Median

UNITS: Mapping[str, str] = {"bytes_per_s": "B/s", "flops_per_s": "FLOP/s", "time_s": "s"}
SHARES = "shares of it are compared, not the times"  # in the note of a point whose roof in A is not that in B
SHARES_OF_MANY = "the roofs of A and B differ: shares of them are compared, not the times; JSON, CSV and `to_records` have both"
FEW = 3  # rows that a note names
POINT_KEYS = ("a_time_s", "b_time_s", "a_share_of_bracket", "b_share_of_bracket", "a_bracket", "b_bracket")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One row: the same thing in A and in B. ratio: B / A of `quantity`, with its 95 % interval (None where there is none).

    section: "ceiling", "point" or "claim" (a is then what the vendor states). of_points: times, shares and roofs of a point.
    """

    section: str
    name: str
    quantity: str
    a: Median | None
    b: Median | None
    verdict: str
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    notes: tuple[str, ...] = ()
    of_points: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Shown, Records):
    """Rows that A and B share, the names of what only one has, and notes. kind: "measured" or "datasheet"."""

    kind: str
    a: str
    b: str
    rows: tuple[Pair, ...] = ()
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def footer(self) -> tuple[str, ...]:
        """What the verdicts mean, and how many of them chance alone would make."""
        if self.kind == "datasheet":
            return (
                "Claims are dense peaks at the stated clock; measured is the best ceiling of the same kind. Above 100 % the clock "
                "was above the stated one, or the work was not done as counted.",
            )
        tested = sum(row.verdict in TESTED for row in self.rows)
        if not tested:
            return ()
        return (
            f"{counted(tested, 'row')} with 95 % intervals: if nothing changed, up to {BY_CHANCE * tested:.1f} of these exclude 1 "
            "by chance.",
            f"A change below {fmt_percent(TOLERANCE)} counts as none: ceilings of an idle machine repeat within that. Intervals "
            "hold the scatter inside each run, not what differs from run to run.",
        )

    def to_records(self) -> list[dict[str, Any]]:
        """One flat dict a row, for `pd.DataFrame`; None where there is no value."""
        return [_record(row) for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """JSON form; see schemas/comparison.schema.json."""
        stated = json_form(self)
        top = {"schema_version": SCHEMA_VERSION, "mode": stated.pop("kind"), "kind": "comparison"}
        return {**top, **stated, "footer": list(self.footer)}

    def table(self) -> tuple[Row, list[Row]]:
        """Headers and rows of text cells; the notes of rows stand in `row_notes`."""
        if self.kind == "datasheet":
            headers: Row = ("peak", "claimed", "measured", "of claim", "verdict")
        else:
            headers = ("what", "A", "B", "B / A", "verdict")
        return headers, [
            (row.name, _value(row, row.a) + _mark(row), _value(row, row.b), self._ratio(row), row.verdict) for row in self.rows
        ]

    def _ratio(self, row: Pair) -> str:
        if row.ratio is None:
            return MISSING
        if self.kind == "datasheet":
            return fmt_percent(row.ratio)
        interval = f" [{fmt_number(row.ratio_low)}, {fmt_number(row.ratio_high)}]" if row.ratio_low is not None else ""
        return fmt_number(row.ratio) + interval

    @property
    def row_notes(self) -> tuple[str, ...]:
        """The notes of the rows, equal ones said once; of more than FEW points whose roofs differ, one for all."""
        said = [(note, row) for row in self.rows for note in row.notes]
        if sum(SHARES in note for note, _ in said) > FEW:
            said = [(SHARES_OF_MANY if SHARES in note else note, row) for note, row in said]
        names = by_key((note, row.name) for note, row in said if (note, row.section) != (UNVERIFIED, "claim"))  # the cell says it
        return tuple(f"{'; '.join(rows) if len(rows) <= FEW else f'{len(rows)} rows'}: {note}" for note, rows in names.items())

    @property
    def absent(self) -> tuple[str, ...]:
        """What only one side has, a line a side."""
        where = ("claimed only", "measured only") if self.kind == "datasheet" else ("only in A", "only in B")
        return tuple(f"{side}: {'; '.join(names)}" for side, names in zip(where, (self.only_a, self.only_b), strict=True) if names)

    def __repr__(self) -> str:
        counts = Counter(row.verdict for row in self.rows)
        return f"Comparison({len(self.rows)} rows{''.join(f', {n} {verdict}' for verdict, n in counts.items())})"

    def _table(self) -> Parts:
        return f"A: {self.a}\nB: {self.b}", *self.table(), [*self.row_notes, *self.absent, *self.notes, *self.footer]


def _mark(row: Pair) -> str:
    return f" ({UNVERIFIED})" if row.section == "claim" and UNVERIFIED in row.notes else ""


def _value(row: Pair, e: Median | None) -> str:
    if e is None:
        return MISSING
    if row.quantity not in UNITS:
        return f"{fmt_percent(e.value)}{e.mark}"
    unit = UNITS[row.quantity]
    return fmt_modes(e.modes, unit) if e.modes else f"{fmt_si(e.value, unit)}{e.mark}"


def _record(row: Pair) -> dict[str, Any]:
    sides: dict[str, Any] = {}
    for side, e in (("a", row.a), ("b", row.b)):
        sides |= {side: e.value if e else None, f"{side}_low": e.low if e else None, f"{side}_high": e.high if e else None}
        sides |= {f"{side}_samples": e.n if e else 0, f"{side}_status": e.status if e else None}
    points = {name: row.of_points.get(name) for name in POINT_KEYS}
    ratios = {"ratio": row.ratio, "ratio_low": row.ratio_low, "ratio_high": row.ratio_high}
    start = {"section": row.section, "name": row.name, "quantity": row.quantity}
    return {**start, **sides, **ratios, "verdict": row.verdict, **points, "notes": "; ".join(row.notes)}
