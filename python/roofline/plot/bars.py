"""Rows of bars and markers, with their values beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._repr import printable
from ..units import si_prefix
from . import style
from .panels import Point, Records, Room, columns_in, key_of, plain, room_of, set_legend, set_sizes, set_title, shortened, table
from .style import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """From `start` (0: the axis) to `end`. fill: a name of a theme's fills. key: of the legend ("": none)."""

    end: float
    start: float = 0.0
    fill: str = "DRAM"
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A marker at x. key: of the legend."""

    x: float
    marker: str
    colour: str
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. text: beside the axes. record: what it is, as flat values."""

    label: str
    bars: Sequence[Bar] = ()
    marks: Sequence[Mark] = ()
    text: str = ""
    heading: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of bars and markers with their values beside them. names: of each legend key, in the order it lists them.

    unit: of x, with a prefix on the axis ("": plain numbers). line: a vertical across all rows.
    """

    title: str
    x_label: str
    rows: Sequence[Row]
    log: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    limits: Point | None = None
    unit: str = ""
    line: float | None = None

    @property
    def records(self) -> Records:
        """element: "row"; what a row says of itself."""
        return table([{"element": "row", "label": row.label, **row.record} for row in self.rows if not row.heading], self.notes)

    @property
    def size(self) -> Point:
        return 8.6, min(max(1.9 + 0.2 * len(self.rows), 2.8), 14.0)

    def _x_limits(self, rows: Sequence[Row]) -> Point:
        if self.limits is not None:
            return self.limits
        xs = [x for row in rows for x in (*(bar.end for bar in row.bars), *(mark.x for mark in row.marks)) if x > 0]
        low, high = min(xs, default=1.0), max(xs, default=1.0)
        if not self.log:
            return 0.0, high * 1.04
        span = max(high / low, 4.0)
        return low / span**0.06 / (2 if any(row.bars for row in rows) else 1), high * span**0.04

    def paint(self, ax: Axes, theme: Theme) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

        room = room_of(ax, rows=True)
        size = 6.0 if room.compact else style.SMALL
        most = max(int((room.height - 1.35) / (size * 0.0185)), 3)
        rows = list(self.rows if len(self.rows) <= most else [*self.rows[: most - 1], Row(label="…", text="")])
        if len(self.rows) > most:
            rows[-1] = Row(label=f"{len(self.rows) - most + 1} more in the table", heading=True)
        names = [shortened(printable(row.label), columns_in(room.width * 0.34, size)) for row in rows]
        low, high = self._x_limits(rows)
        ax.set_xscale("log" if self.log else "linear")
        ax.set_xlim(low, high)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_yticks(range(len(rows)), names, fontsize=size)
        for label, row in zip(ax.get_yticklabels(), rows, strict=True):
            label.set_fontweight("bold" if row.heading else "normal")
        factor, prefix = si_prefix(high) if self.unit else (1.0, "")
        width = max(room.width * 0.3, 1.0)
        ax.xaxis.set_major_locator(LogLocator(numticks=max(int(width / 0.5), 2)) if self.log else
                                   MaxNLocator(max(int(width / 0.6), 1)))  # fmt: skip
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value / factor, 3)))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.tick_params(which="minor", labelbottom=False)  # empty as they are, each would be measured
        ax.grid(True, axis="x", which="major", color=theme("grid"), linewidth=0.5, zorder=0)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlabel(f"{self.x_label} [{prefix}{self.unit}]" if self.unit else self.x_label)
        set_sizes(ax, room)
        ax.tick_params(axis="y", length=0, labelsize=size)
        set_title(ax, self.title, room, left=room.width * 0.3 if names else 0.8)
        if self.line is not None:
            ax.plot([self.line] * 2, [-0.6, len(rows) - 0.4], color=theme("muted"), linewidth=0.9, linestyle=style.DASHED,
                    zorder=1.5,
                    label="_line", gid="line")  # fmt: skip
        for y, row in enumerate(rows):
            self._row(ax, theme, y, row, low)
        wide = room.width >= 5
        if wide:
            for y, row in enumerate(rows):
                if row.text:
                    ax.annotate(printable(row.text), (1, y), xycoords=("axes fraction", "data"), xytext=(6, 0),
                                textcoords="offset points", fontsize=min(size, style.TINY), va="center",
                                annotation_clip=False, gid=f"value {y}")  # fmt: skip
        letters = max((len(row.text) for row in rows), default=0) if wide else 0
        self._legend(ax, theme, rows, room, 0.12 + letters * min(size, style.TINY) * 0.62 / 72)

    def _row(self, ax: Axes, theme: Theme, y: int, row: Row, low: float) -> None:
        for index, bar in enumerate(row.bars):
            start = max(bar.start, low)
            ax.barh(y, bar.end - start, left=start, height=0.66, color=theme.fills.get(bar.fill, bar.fill),
                    hatch=style.HATCHES.get(bar.fill, ""), edgecolor=theme("ink"), linewidth=0.4, zorder=2,
                    gid=f"bar {y} {index}")  # fmt: skip
        xs = [mark.x for mark in row.marks if mark.marker != "|"]
        if len(xs) > 1:
            ax.plot([min(xs), max(xs)], [y, y], color=theme("muted"), linewidth=0.8, zorder=2.4, label="_span")
        for index, mark in enumerate(row.marks):
            tick, colour = mark.marker == "|", theme(mark.colour)
            ax.plot([mark.x], [y], linestyle="none", marker=mark.marker, markersize=10 if tick else 5.5, color=colour,
                    markeredgewidth=1.6 if tick else 0.6, markeredgecolor=colour if tick else theme("paper"),
                    zorder=2.6 if tick else 3, label="_mark", gid=f"mark {y} {index}")  # fmt: skip

    def _legend(self, ax: Axes, theme: Theme, rows: Sequence[Row], room: Room, gap: float) -> None:
        from matplotlib.patches import Patch

        found: dict[str, Any] = {}
        for row in rows:
            for bar in row.bars:
                if bar.key and bar.key not in found:
                    found[bar.key] = Patch(facecolor=theme.fills.get(bar.fill, bar.fill), hatch=style.HATCHES.get(bar.fill, ""),
                                           edgecolor=theme("ink"), linewidth=0.4)  # fmt: skip
            for mark in row.marks:
                if mark.key and mark.key not in found:
                    found[mark.key] = key_of(theme, mark.colour, mark.marker)
        set_legend(ax, theme, [(name, found[key]) for key, name in self.names.items() if key in found], room, gap)
