"""Two machines, or one before and after: the ratio of each ceiling and each point."""

from __future__ import annotations

from typing import Any, Unpack

from ...comparison import Comparable, compare
from ...errors import Error
from ...units import fmt_percent
from ...words import require_one_of
from ..bars import Bar, Mark, Row, Rows
from ..figure import Look, Panels, picture

SECTIONS = {"ceiling": "Ceilings", "point": "Points", "claim": "What the vendor states"}
WHAT = ("all", "ceiling", "point")
LOOKS = {"faster": ("green", "^"), "slower": ("red", "v")}


@picture("what changed: a machine before and after, or two of them", group="measured",
         example='plot.comparison("A100 SXM 80GB", "H100 SXM")')  # fmt: skip
def comparison(a: Comparable, b: Comparable, *, what: str = "all", **look: Unpack[Look]) -> Panels:
    """B over A of every ceiling and point that both have, with 95 % intervals; the vertical is no change.

    Against a datasheet it is the measured value over the stated one.

    Args:
        a: a machine, measurements, a machine file, a results.jsonl, a report's folder, or the name of a datasheet.
        b: another one.
        what: all, ceiling, point.

    element of the records "row": section, quantity, a, b, ratio, ratio_low, ratio_high, verdict, as `roofline.compare` says them.
    """
    require_one_of("what", what, WHAT)
    found = compare(a, b)
    rows: list[Row] = []
    for section, title in SECTIONS.items():
        own = [r for r in found.to_records() if r["section"] == section and r["ratio"] and what in ("all", section)]
        rows += [Row(label=title, heading=True)] if own and what == "all" else []
        for r in own:
            colour, marker = next((look for word, look in LOOKS.items() if word in str(r["verdict"])), ("muted", "o"))
            marks = [Mark(x=r["ratio"], marker=marker, colour=colour, key=str(r["verdict"]))]
            low, high = r["ratio_low"] or r["ratio"], r["ratio_high"] or r["ratio"]
            record: dict[str, Any] = {key: value for key, value in r.items() if key != "name"}
            bars = [Bar(start=low, end=high, fill="overlap")] if high > low else []
            change = ("+" if r["ratio"] > 1 else "") + fmt_percent(r["ratio"] - 1, 2)
            rows.append(Row(label=r["name"], bars=bars, marks=marks, text=f"{change}  {r['verdict']}", record=record))
    if not any(not row.heading for row in rows):
        raise Error(f"{found.a} and {found.b} share nothing to compare")
    xs = [x for row in rows for x in (*(m.x for m in row.marks), *(e for bar in row.bars for e in (bar.start, bar.end)))]
    names = dict.fromkeys(mark.key for row in rows for mark in row.marks)
    absent = [f"only {side}: {', '.join(only)}" for side, only in ((found.a, found.only_a), (found.b, found.only_b)) if only]
    yield Rows(
        title="What changed: B over A" if found.kind == "measured" else "Measured over stated", x_label="B / A", rows=rows,
        log=max(xs) / min(xs) > 4, line=1.0,
        names={name: name for name in names}, limits=(min([*xs, 1.0]) * 0.92, max([*xs, 1.0]) * 1.06),
        notes=[f"A: {found.a}", f"B: {found.b}", *found.footer, *found.notes, *absent],
    )  # fmt: skip
