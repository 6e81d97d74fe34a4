"""Bandwidth over working-set size: measured points, the plateaus found in them, and the reported sizes of the caches."""

from __future__ import annotations

from typing import Any, Unpack

from ...counts import by_key
from ...errors import Error
from ...machine import Given, bars_name, curve_capacity, machine_of
from ...units import fmt_bytes
from .. import style
from ..charts import Chart, Guide, Line
from ..figure import Look, Panels, picture
from ..roofs import machine_line


@picture("bandwidth over the working set: where the caches end", group="machine", example="plot.size_curve(curves)")
def size_curve(machine: Given, *, access: str | None = None, threads: int | None = None, **look: Unpack[Look]) -> Panels:
    """Bandwidth of a machine over the size of the working set, per access and number of threads.

    Log-log; data coordinates are bytes (of all threads together) and bytes/s. Plateaus that `SizeCurve.plateaus` finds are bars
    with their values, reported cache sizes thin verticals.

    Args:
        machine: a Machine with such curves, or what `Machine.load` takes.
        access: only this one.
        threads: only the curves of so many.

    element of the records: "point", "plateau" (size_bytes to to_bytes), "cache" (its reported size); low, high: 95 % intervals of
    bytes_per_s. Raises Error where the machine has no such curve.
    """
    machine = machine_of(machine)
    curves = [c for c in machine.curves if access in (None, c.access) and threads in (None, c.threads)]
    if not curves:
        present = "; ".join(c.name for c in machine.curves) or "none"
        raise Error(f"{machine.name} has no size curve to draw there (measured: {present})")
    counts = sorted({c.threads for c in curves}, reverse=True)
    lines, rows, said = [], [], list[tuple[str, str]]()
    for c in curves:
        colour, marker = style.ACCESS[c.access]
        points = [(float(p.size_bytes), p.summary.median) for p in c.points]
        lines.append(Line(label=c.name, points=points, colour=colour, marker=marker if c.variant != "non_temporal" else "x",
                          width=0.9, dashes=style.DASHES[counts.index(c.threads) % 4], write="end",
                          bars=[(p.summary.low, p.summary.high) for p in c.points], gid="curve"))  # fmt: skip
        own: dict[str, Any] = {"label": c.name, "access": c.access, "variant": c.variant or None, "isa": c.isa or None,
                               "threads": c.threads, "status": c.status}  # fmt: skip
        rows += [{**own, "element": "point", "size_bytes": p.size_bytes, "bytes_per_s": p.summary.median, "low": p.summary.low,
                  "high": p.summary.high} for p in c.points]  # fmt: skip
        for p in c.plateaus(machine.facts):
            lines.append(Line(label=p.label, points=[(p.from_bytes, p.value), (p.to_bytes, p.value)], colour=colour, width=4.0,
                              write="flat", small=True, gid="plateau"))  # fmt: skip
            rows.append({**own, "element": "plateau", "level": p.level, "size_bytes": p.from_bytes, "to_bytes": p.to_bytes,
                         "bytes_per_s": p.value, "low": p.low, "high": p.high})  # fmt: skip
        said += [(c.name, note) for note in c.findings(machine.facts)]
        said += [(c.name, c.status + (f": {c.reason}" if c.reason else ""))] if c.status != "ok" else []
    sizes = [p.size_bytes for c in curves for p in c.points]
    most = max(counts)
    capacities = [(level, curve_capacity(machine.facts, level, most or None)) for level in ("L1", "L2", "L3")]
    caches = [(level, size) for level, size in capacities if min(sizes) / 1.5 < size < max(sizes) * 1.7]
    rows += [{"element": "cache", "label": level, "level": level, "size_bytes": size} for level, size in caches]
    grouped = by_key((words, name) for name, words in said)
    over = f" over {most} threads" if most > 1 else ""
    bars = bars_name(p.summary for c in curves for p in c.points)
    first = (
        [f"thin verticals: cache sizes as reported{over}; bars: plateaus found in the curve; points with {bars}"] if caches else []
    )
    yield Chart(
        title=f"Bandwidth over working-set size, {machine.name}", x_label="Working set of all threads", x_kind="size", values=False,
        y_label="Bandwidth", y_unit="B/s", lines=lines, guides=[Guide(x=size, name=f"{level} {fmt_bytes(size)}") for level,
                                                                size in caches],
        x_limits=(min(sizes) / 1.5, max(sizes) * 1.7), rows=rows,
        notes=[machine_line(machine), *first, *(f"{'; '.join(names)}: {words}" for words, names in grouped.items())],
    )  # fmt: skip
