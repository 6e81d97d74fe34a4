"""compare.png: the feed-forward block over the batch, ours and the rivals under the roofline of the points."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roofline.plot import save_panels
from roofline.plot.charts import Chart, series_lines
from roofline.units import fmt_number

from .judging import disturbed, judged, ours_s, roof_s, steady, times

Row = Mapping[str, Any]
Lines = dict[str, list[tuple[float, float, bool]]]


def _points(rows: Sequence[Row]) -> Lines:
    """FLOP/s over the batch by what ran, and whether the machine was the same meanwhile."""
    lines: Lines = {}
    for row in rows:
        batch, flops = float(row["problem"]["batch"]), float(row["ours"]["flops"])
        calm = not disturbed(row) and steady(row)
        lines.setdefault("roofline", []).append((batch, flops / roof_s(row), calm))
        if own := ours_s(row):
            lines.setdefault("ours", []).append((batch, flops / own, calm))
        for name, (seen, turns) in times(row).items():
            lines.setdefault(name, []).append((batch, flops / seen, calm and turns))
    return lines


def charts(rows: Sequence[Row], about: Mapping[str, Any]) -> list[Chart]:
    """One for each dtype with two batches or more."""
    made = []
    ran = [row for row in rows if row["stage"] == "ffn" and not row["reason"] and "after" in row["roofs"]]
    for dtype in dict.fromkeys(row["problem"]["dtype"] for row in ran):
        some = sorted((row for row in ran if row["problem"]["dtype"] == dtype), key=lambda row: row["problem"]["batch"])
        if len(some) < 2:
            continue
        p = some[0]["problem"]
        lines = _points(some)
        named = {name: [(x, y) for x, y, _ in seen] for name, seen in lines.items()}
        fits = {name: [calm for _, _, calm in seen] for name, seen in lines.items()}
        records = [
            {"element": "point", "label": name, "batch": x, "flops_per_s": y, "fits": calm}
            for name, seen in lines.items()
            for x, y, calm in seen
        ]
        shares = [100 * share for share in (judged(row).share for row in some) if share] or [0.0]
        notes = [
            f"{about['ours']['cpu_name']}, {about['threads']} threads; x of [batch, {p['d_model']}], hidden {p['d_ff']}, "
            f"{p['activation']}, weights constant; every call from memory",
            "roofline: read bandwidth and multiply-adds measured around each point; ours at "
            f"{fmt_number(min(shares))} to {fmt_number(max(shares))} % of it",
        ]
        if any(not calm for seen in lines.values() for _, _, calm in seen):
            notes.append("hollow: the roof moved, other load ran, or far behind and timed in one short turn only")
        made.append(
            Chart(
                title=f"Feed-forward block over batch, {dtype}", x_label="Batch", x_kind="count", y_label="Performance",
                y_unit="FLOP/s",
                lines=series_lines(named, fits), rows=records, notes=notes,
            )
        )  # fmt: skip
    return made


def save(out: Path, rows: Sequence[Row], about: Mapping[str, Any]) -> bool:
    """Write compare.png, .svg and .csv; False where there is nothing to draw."""
    shown = charts(rows, about)
    if shown:
        save_panels(out, "compare", shown)
    return bool(shown)
