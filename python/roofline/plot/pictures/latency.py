"""Load latency of each memory level as dots."""

from __future__ import annotations

from typing import Unpack

from ...errors import Error
from ...machine import LEVELS, Ceiling, Given, Machine, bars_name, machine_of
from ...units import fmt_number, fmt_si
from .. import style
from ..charts import Chart, Dot
from ..figure import Look, Panels, picture
from ..roofs import machine_line


def latencies(machine: Machine) -> list[Ceiling]:
    """Load latencies by level, nearest first."""
    found = [c for c in machine.ceilings if c.kind == "latency" and c.level and c.status != "implausible"]
    return sorted(found, key=lambda c: (LEVELS.index(c.level), c.value))


@picture("how long a load takes from each level", group="machine", example="plot.latency(curves)")
def latency(machine: Given, **look: Unpack[Look]) -> Panels:
    """Load latency of a machine by memory level, on a logarithmic axis, with 95 % intervals; also in cycles if the clock is known.

    Args:
        machine: a Machine that was measured, or what `Machine.load` takes.

    element of the records "latency": level, pages, time_s, low, high, cycles, clock_hz. Raises Error where none was measured.
    """
    machine = machine_of(machine)
    found = latencies(machine)
    if not found:
        raise Error(f"{machine.name} has no load latency to draw: measure pointer_chase")
    levels = [level for level in LEVELS if any(c.level == level for c in found)]
    dots = []
    for c in found:
        colour, marker = style.LEVELS[c.level]
        small = c.problem.get("pages") == "small"
        n = c.value * c.clock_hz if c.clock_hz else None
        cycles = f", {fmt_number(n, 3 if n >= 100 else 2)} cycles" if n else ""
        dots.append(Dot(name=f"{fmt_si(c.value, 's')}{cycles}{', 4 KiB pages' if small else ''}", x=levels.index(c.level) + 1,
                        y=c.value, marker=marker, colour=colour, hollow=small, bar=(c.summary.low, c.summary.high)))  # fmt: skip
    pages = "; filled: huge pages, hollow: 4 KiB pages" if any(dot.hollow for dot in dots) else ""
    rows = [
        {"element": "latency", "label": c.name, "level": c.level, "pages": c.problem.get("pages"), "time_s": c.value,
         "low": c.summary.low, "high": c.summary.high, "cycles": c.value * c.clock_hz if c.clock_hz else None,
         "clock_hz": c.clock_hz, "huge_page_share": c.plan.get("huge_page_share"), "status": c.status, "source": c.source}
        for c in found
    ]  # fmt: skip
    yield Chart(
        title=f"Load latency of {machine.name}", x_label="Memory level", x_kind=levels, y_label="Latency", y_unit="s", dots=dots,
        y_limits=(min(c.summary.low for c in found) / 2, max(c.summary.high for c in found) * 2), named=99, rows=rows,
        notes=[machine_line(machine), f"bars: {bars_name(c.summary for c in found)}{pages}"],
    )  # fmt: skip
