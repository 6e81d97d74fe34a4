"""Load latency of each memory level as dots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Error
from ..machine import LEVELS, Ceiling, Given, Machine, bars_name, machine_of
from ..units import NANO, fmt_number, fmt_si
from . import style
from .frame import WIDTH, fit_figure, frame, machine_line, new_axes, wrapped, write_footer
from .labels import Canvas, rectangle
from .lettering import import_matplotlib, label_around
from .show import retitled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _shown(machine: Machine) -> list[Ceiling]:
    """Load latencies by level, nearest first. Raises Error where there are none."""
    found = [c for c in machine.ceilings if c.kind == "latency" and c.level and c.status != "implausible"]
    if not found:
        raise Error(f"{machine.name} has no load latency to draw: measure pointer_chase")
    return sorted(found, key=lambda c: (LEVELS.index(c.level), c.value))


def latency_data(machine: Given) -> list[dict[str, Any]]:
    """What `latency` draws as flat records: median with 95 % interval in s, and in cycles where the clock is known."""
    machine = machine_of(machine)
    return [
        {
            "element": "latency", "label": c.name, "level": c.level, "pages": c.problem.get("pages"), "time_s": c.value,
            "low": c.summary.low, "high": c.summary.high, "cycles": c.value * c.clock_hz if c.clock_hz else None,
            "clock_hz": c.clock_hz, "huge_page_share": c.plan.get("huge_page_share"), "status": c.status, "source": c.source,
        }
        for c in _shown(machine)
    ]  # fmt: skip


def draw(machine: Machine, ax: Axes, *, fit: bool) -> Axes:
    """Draw on `ax`; `fit`: size its figure, which is ours, around the notes."""
    from matplotlib import rc_context
    from matplotlib.ticker import FixedLocator, NullLocator

    found = _shown(machine)
    levels = [level for level in LEVELS if any(c.level == level for c in found)]
    figure: Any = ax.figure
    with rc_context(dict(style.RC)):
        lowest, highest = min(c.summary.low for c in found), max(c.summary.high for c in found)
        title = f"Load latency of {machine.name}"
        frame(ax, title, "Memory level", "Latency [s]", (0.5, len(levels) + 0.5), (lowest / 2, highest * 2), NANO)
        ax.set_xscale("linear")
        ax.xaxis.set_major_locator(FixedLocator(list(range(1, len(levels) + 1))))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(range(1, len(levels) + 1), levels)
        ax.yaxis.set_major_formatter(lambda value, _: fmt_number(value / NANO, 1))
        ax.set_ylabel("Latency [ns]")
        small = any(c.problem.get("pages") == "small" for c in found)
        pages = "; filled: huge pages, hollow: 4 KiB pages" if small else ""
        lines = [machine_line(machine), f"bars: {bars_name(c.summary for c in found)}{pages}"]
        footer = wrapped(lines, WIDTH if fit else ax.bbox.width / figure.dpi)
        if fit:
            fit_figure(figure, ax, len(footer))
        else:
            figure.figure.draw_without_rendering()  # a layout engine moves the axes only when it draws
        write_footer(ax, footer)
        box, pixel = ax.bbox, figure.dpi / 72
        canvas = Canvas(rectangle(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2))
        places = [(levels.index(c.level) + 1, c.value) for c in found]
        canvas.add_markers([ax.transData.transform(at) for at in places], 4 * pixel)
        for index, (c, at) in enumerate(zip(found, places, strict=True), start=1):
            colour, hollow, s = style.SWEEP_COLOURS[c.level], c.problem.get("pages") == "small", c.summary
            bars = [[max(c.value - s.low, 0)], [max(s.high - c.value, 0)]]
            ax.errorbar([at[0]], [at[1]], yerr=bars, fmt="none", ecolor=colour, elinewidth=0.9, capsize=2, label="_interval")
            ax.plot([at[0]], [at[1]], linestyle="none", marker=style.SWEEP_MARKERS[c.level], markersize=7,
                    markerfacecolor="white" if hollow else colour, markeredgecolor=colour, label=f"_{c.name}",
                    gid=f"latency {index}")  # fmt: skip
            cycles = f", {fmt_number(c.value * c.clock_hz, 3 if c.value * c.clock_hz >= 100 else 2)} cycles" if c.clock_hz else ""
            pages = ", 4 KiB pages" if hollow else ""
            words = f"{fmt_si(c.value, 's')}{cycles}{pages}"
            label_around(ax, canvas, at, words, size=style.TINY, colour=colour, gid=f"name {index}")
    return ax


def latency(machine: Given, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Load latency of `machine` by memory level, in ns on a logarithmic axis, with 95 % intervals.

    ax: None makes a new figure. Returns the Axes; shows nothing and changes no global setting. Raises Error where no
    latency of a level was measured or matplotlib is missing.
    """
    machine = machine_of(machine)
    import_matplotlib()
    _shown(machine)
    if ax is not None:
        return retitled(draw(machine, ax, fit=False), title)
    made = new_axes()
    return retitled(draw(machine, made, fit=True), title)
