"""What pictures are made of: lines and dots over two axes (Chart), rows of bars (Rows), cells (Cells); each draws itself on Axes.

A panel is data: its title, its marks, its records (all that is drawn, as flat dicts) and its notes. Colours are names of a theme.
matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._repr import printable
from ..units import fmt_bytes, fmt_number, fmt_si, si_prefix
from . import style
from .style import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .labels import Labels

Records = list[dict[str, Any]]
Point = tuple[float, float]
NAMED = 8  # with more dots, numbers stand at them and the legend names them
DIRECT = 6  # more lines than this are named in a legend
SAME = 0.02  # dots nearer than this share of the axes in both directions share a label
SPREAD = 0.03  # a wider spread gets bars
WRITTEN = 200  # cells: the numbers of more are in the table alone
LEGEND = 0.42  # of the width at most
LINE = 0.125  # inches of a line of a legend


# -- marks --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through points. write: how its name stands there: "slope", "flat" (at its right end), "end", "" (nowhere).

    fits: whether each point is possible (else hollow). bars: intervals (low, high) of y. values: of the first and last point.
    """

    label: str
    points: Sequence[Point]
    colour: str = "ink"
    dashes: Any = "-"
    width: float = 1.3
    marker: str = ""
    fits: Sequence[bool] = ()
    bars: Sequence[tuple[float, float]] = ()
    write: str = ""
    small: bool = False
    key: bool = False  # in the legend
    hollow: bool = False  # all its markers
    gid: str = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A named point. text: what follows its name. tick: y that its roof allows. bar: interval of y. key: of the legend."""

    name: str
    x: float
    y: float
    marker: str = "o"
    colour: str = "blue"
    hollow: bool = False
    text: str = ""
    tick: float | None = None
    bar: tuple[float, float] | None = None
    labelled: bool = True
    key: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A vertical with a name at its top."""

    x: float
    name: str


def fmt_count(value: float) -> str:
    """A batch or a length as people write it."""
    return str(int(value)) if float(value).is_integer() else fmt_number(value)


def plain(value: float, digits: int = 3) -> str:
    """A number without trailing zeros."""
    text = fmt_number(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def table(records: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> Records:
    """The records with every key of any of them, and one for each note (element "note")."""
    keys = dict.fromkeys(key for record in [{"element": "", "label": ""}, *records] for key in record)
    empty: dict[str, Any] = dict.fromkeys(keys)
    return [{**empty, **record} for record in [*records, *({"element": "note", "label": note} for note in notes)]]


# -- around the data ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """Inches that a panel has for everything around and in it; compact: small letters."""

    width: float
    height: float
    rows: bool = False  # whose height goes by their number

    @property
    def compact(self) -> bool:
        return self.width < 5 or (self.height < 3.6 and not self.rows)


def room_of(ax: Axes) -> Room:
    figure: Any = ax.figure
    dpi = figure.dpi
    spec = ax.get_subplotspec()
    if spec is None:
        return Room(ax.bbox.width / dpi + 0.9, ax.bbox.height / dpi + 0.9)
    grid = spec.get_gridspec()
    width = figure.bbox.width / dpi * len(spec.colspan) / grid.ncols
    return Room(width, figure.bbox.height / dpi * len(spec.rowspan) / grid.nrows)


def columns_in(inches: float, size: float) -> int:
    """Letters of this size that fit into a line."""
    return max(int(inches * 72 / (size * 0.58)), 12)


def shortened(text: str, columns: int) -> str:
    """A name with its middle left out where it is too long."""
    if len(text) <= columns:
        return text
    half = (columns - 1) // 2
    return f"{text[:half].rstrip()}…{text[len(text) - half :].lstrip()}"


def set_title(ax: Axes, title: str, room: Room, left: float = 0.8) -> None:
    size = 8.5 if room.compact else style.TITLE
    wrapped = textwrap.wrap(printable(title), columns_in(room.width - left - 0.1, size * 1.1))[:2]
    ax.set_title("\n".join(wrapped), loc="left", fontsize=size, fontweight="bold", pad=6)


def set_legend(ax: Axes, theme: Theme, handles: Sequence[Any], names: Sequence[str], room: Room, gap: float = 0.1) -> None:
    """Right of the axes, with no more rows and letters than fit; the last row counts what is left out."""
    if not handles:
        return
    from matplotlib.transforms import ScaledTranslation

    size = 6.0 if room.compact else style.TINY
    most = max(int((room.height - 1.3) / (size / style.TINY * LINE * 1.12)), 3)
    handles, names = list(handles), [shortened(printable(name), columns_in(room.width * LEGEND - 0.35, size)) for name in names]
    if len(names) > most:
        left_out = len(names) - most + 1
        handles, names = [*handles[: most - 1], _blank()], [*names[: most - 1], f"{left_out} more in the table"]
    figure: Any = ax.figure
    place = ax.transAxes + ScaledTranslation(gap, 0, figure.dpi_scale_trans)
    ax.legend(handles, names, fontsize=size, labelspacing=0.3, handletextpad=0.5, handlelength=1.8, loc="upper left",
              bbox_to_anchor=(1.0, 1.0), bbox_transform=place, borderaxespad=0.0, labelcolor=theme("ink"))  # fmt: skip


def _blank() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none")


def _key(theme: Theme, colour: str, marker: str, dashes: Any = "none", hollow: bool = False, width: float = 1.3) -> Any:
    from matplotlib.lines import Line2D

    ink = theme(colour)
    return Line2D([], [], color=ink, linestyle=dashes, linewidth=width, marker=marker or "none", markersize=5.5,
                  markerfacecolor=theme("paper") if hollow else ink, markeredgecolor=ink, markeredgewidth=1.0)  # fmt: skip


def _sized(ax: Axes, room: Room) -> None:
    size = style.TINY if room.compact else style.TEXT
    ax.tick_params(labelsize=size - 0.5)
    ax.xaxis.label.set_fontsize(size)
    ax.yaxis.label.set_fontsize(size)


# -- charts -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines, dots and guides over two axes. y_unit, x_unit: with a prefix on the axis, "" for plain numbers.

    x_kind: "log", "size" (bytes in powers of two), "count" (powers of two) or names of places from 1 on. ridges: hollow rings with
    their intensity. elbow: between the shaded memory-bound and compute-bound regions. limits: of the data where None.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line] = ()
    dots: Sequence[Dot] = ()
    guides: Sequence[Guide] = ()
    ridges: Sequence[Point] = ()
    elbow: Point | None = None
    elbow_name: str = ""  # of the arithmetic that it is of
    x_kind: str | Sequence[str] = "log"
    x_unit: str = ""
    y_unit: str = ""
    y_log: bool = True
    x_limits: Point | None = None
    y_limits: Point | None = None
    named: int = NAMED
    values: bool = True  # of the ends of up to three lines are written
    notes: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any]] = ()

    @property
    def records(self) -> Records:
        return table(self.rows, self.notes)

    @property
    def size(self) -> Point:
        entries = len(self.dots) if self._numbered else 0
        return (9.2 if self._keyed else 7.6), min(max(5.4, 1.5 + 0.145 * entries), 9.5)

    @property
    def _numbered(self) -> bool:
        return sum(dot.labelled for dot in self.dots) > self.named

    def _limits(self) -> tuple[Point, Point]:
        every = [at for line in self.lines for at in line.points] + [(dot.x, dot.y) for dot in self.dots]
        xs = [x for x, _ in every] + [guide.x for guide in self.guides]
        ys = [y for _, y in every] + [end for line in self.lines for bar in line.bars for end in bar]
        ys += [y for dot in self.dots for y in ((dot.tick,) if dot.tick else ())]
        x_limits, y_limits = self.x_limits, self.y_limits
        if x_limits is None and isinstance(self.x_kind, str):
            low, high = min(xs), max(xs)
            span = max(high / low, 2.0)
            direct = sum(line.write == "end" for line in self.lines) > 1
            x_limits = low / span**0.05, high * span ** (0.22 if direct else 0.06)
        if y_limits is None:
            low, high = min(ys), max(ys)
            if not self.y_log:
                return x_limits or (0.5, len(self.x_kind) + 0.5), (0.0, high * 1.08)
            if high / low < 4:
                middle = math.sqrt(low * high)
                low, high = middle / 2, middle * 2
            y_limits = low / (high / low) ** 0.08, high * (high / low) ** 0.1
        return x_limits or (0.5, len(self.x_kind) + 0.5), y_limits

    def paint(self, ax: Axes, theme: Theme) -> None:
        from .labels import Labels

        room = room_of(ax)
        (low, high), (bottom, top) = self._limits()
        self._axes(ax, theme, (low, high), (bottom, top), room)
        labels = Labels(ax, theme)
        self._shade(ax, theme, low, bottom)
        for guide in self.guides:
            ax.plot([guide.x] * 2, [bottom, top], color=theme("muted"), linewidth=0.7, linestyle=(0, (1, 2)), zorder=1.6,
                    label="_guide", gid="guide")  # fmt: skip
            labels.avoid_line([(guide.x, bottom), (guide.x, top)])
        for index, line in enumerate(self.lines, start=1):
            self._line(ax, theme, labels, line, index)
        if self.ridges:
            ax.plot(*zip(*self.ridges, strict=True), linestyle="none", marker="o", markersize=4, markerfacecolor=theme("paper"),
                    markeredgecolor=theme("ink"), markeredgewidth=0.9, zorder=3.2, label="_ridges", gid="ridges")  # fmt: skip
            labels.points += self.ridges
        for index, dot in enumerate(self.dots, start=1):
            self._dot(ax, theme, labels, dot, index)
        self._write(ax, labels, (low, high), (bottom, top))
        self._legend(ax, theme, room)

    def _axes(self, ax: Axes, theme: Theme, x_limits: Point, y_limits: Point, room: Room) -> None:
        from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

        named = not isinstance(self.x_kind, str)
        ax.set_xscale("linear" if named else "log")
        ax.set_yscale("log" if self.y_log else "linear")
        ax.set_xlim(*x_limits)
        ax.set_ylim(*y_limits)
        middle = math.sqrt(y_limits[0] * y_limits[1]) if self.y_log else y_limits[1]
        factor, prefix = si_prefix(middle) if self.y_unit else (1.0, "")
        ax.set_xlabel(self.x_label)
        ax.set_ylabel(f"{self.y_label} [{prefix}{self.y_unit}]" if self.y_unit else self.y_label)
        formatter: Any = FuncFormatter(lambda value, _: plain(value / factor, 2))
        for axis, log in ((ax.xaxis, not named), (ax.yaxis, self.y_log)):
            if log:
                axis.set_minor_locator(LogLocator(subs=tuple(range(2, 10)), numticks=12))
            axis.set_minor_formatter(NullFormatter())
        ax.yaxis.set_major_formatter(formatter)
        decades = math.log10(y_limits[1] / y_limits[0]) if self.y_log else 9.0
        if decades < 2.6 and room.height >= 3.6:
            ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=20))
        elif decades < 1.3:
            ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=20))
        if named:
            ax.xaxis.set_major_locator(FixedLocator(list(range(1, len(self.x_kind) + 1))))
            ax.xaxis.set_major_formatter(FixedFormatter(list(self.x_kind)))
            ax.xaxis.set_minor_locator(NullLocator())
        elif self.x_kind in ("size", "count"):
            write = fmt_bytes if self.x_kind == "size" else fmt_count
            first, last = math.ceil(math.log2(x_limits[0]) - 1e-9), math.floor(math.log2(x_limits[1]) + 1e-9)
            most = max(int((room.width - 1.2) * (1 - LEGEND * self._keyed) / (0.62 if self.x_kind == "size" else 0.48)), 2)
            step = -(-(last - first + 1) // most)
            ax.xaxis.set_major_locator(FixedLocator([2.0**k for k in range(first, last + 1, step)]))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
        elif self.x_unit:
            x_factor, x_prefix = si_prefix(math.sqrt(x_limits[0] * x_limits[1]))
            ax.set_xlabel(f"{self.x_label} [{x_prefix}{self.x_unit}]")
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value / x_factor, 2)))
        else:
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value, 2)))
        ax.tick_params(which="both", direction="out", length=2.5)
        ax.tick_params(which="major", length=4)
        ax.grid(True, which="major", color=theme("grid"), linewidth=0.5, zorder=0)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        _sized(ax, room)
        set_title(ax, self.title, room)

    def _shade(self, ax: Axes, theme: Theme, left: float, bottom: float) -> None:
        if self.elbow is None:
            return
        x, y = self.elbow
        right = ax.get_xlim()[1]
        start = max(left, bottom * x / y)
        ax.fill_between([start, x], bottom, [y / x * start, y], color=theme("memory"), linewidth=0, zorder=0.5)
        ax.fill_between([x, right], bottom, y, color=theme("compute"), linewidth=0, zorder=0.5)

    def _line(self, ax: Axes, theme: Theme, labels: Labels, line: Line, index: int) -> None:
        colour = theme(line.colour)
        xs, ys = zip(*line.points, strict=True)
        ax.plot(xs, ys, color=colour, linestyle=line.dashes, linewidth=line.width, zorder=2.4, solid_capstyle="butt",
                label=f"_{line.label}", gid=f"{line.gid} {line.label if line.gid == 'roof' else index}")  # fmt: skip
        labels.avoid_line(line.points, 1.0 if line.width else 0.0)
        if line.bars:
            low, high = np.array(line.bars).T
            shown = np.array(ys)
            ax.errorbar(xs, ys, yerr=[np.maximum(shown - low, 0), np.maximum(high - shown, 0)], fmt="none", ecolor=colour,
                        elinewidth=0.8, capsize=1.5, zorder=3.0, label="_interval")  # fmt: skip
        if line.marker:
            labels.points += line.points
            for fits in (True, False):
                some = [at for i, at in enumerate(line.points) if (not line.fits or line.fits[i]) is fits]
                if some:
                    hollow = line.hollow or not fits
                    ax.plot(*zip(*some, strict=True), linestyle="none", marker=line.marker, markersize=4.8, zorder=3.2,
                            markerfacecolor=theme("paper") if hollow else colour, markeredgecolor=colour, markeredgewidth=1.0,
                            label=f"_{line.label}", gid=f"{'points' if fits else 'hollow'} {index}")  # fmt: skip

    def _dot(self, ax: Axes, theme: Theme, labels: Labels, dot: Dot, index: int) -> None:
        colour = theme(dot.colour)
        labels.points.append((dot.x, dot.y))
        if dot.tick is not None:
            ax.plot([dot.x] * 2, [dot.y, dot.tick], color=colour, linewidth=0.9, linestyle=(0, (1, 1.2)), zorder=3.3, label="_gap",
                    gid=f"gap {index}")  # fmt: skip
            ax.plot([dot.x], [dot.tick], color=colour, marker="_", markersize=8, markeredgewidth=1.6, zorder=3.4, label="_tick",
                    gid=f"tick {index}")  # fmt: skip
            labels.avoid_line([(dot.x, dot.y), (dot.x, dot.tick)])
        if dot.bar is not None and (dot.bar[1] - dot.bar[0]) / dot.y > SPREAD:
            ends = [[max(dot.y - dot.bar[0], 0)], [max(dot.bar[1] - dot.y, 0)]]
            ax.errorbar([dot.x], [dot.y], yerr=ends, fmt="none", ecolor=colour, elinewidth=0.9, capsize=2, zorder=3.5,
                        label="_spread")  # fmt: skip
        ax.plot([dot.x], [dot.y], linestyle="none", marker=dot.marker, markersize=11 if dot.marker == "*" else 6.5, zorder=4,
                markerfacecolor=theme("paper") if dot.hollow else colour, markeredgecolor=colour if dot.hollow else theme("paper"),
                markeredgewidth=1.4 if dot.hollow else 0.7, label=f"_{dot.name}", gid=f"dot {index}")  # fmt: skip

    def _write(self, ax: Axes, labels: Labels, x_limits: Point, y_limits: Point) -> None:
        (low, high), (bottom, top) = x_limits, y_limits
        for kind in ("flat", "slope", "end"):
            for index, line in enumerate(self.lines, start=1):
                if line.write != kind:
                    continue
                size, gid = style.TINY if line.small else style.SMALL, f"label {line.label}"
                if kind == "flat":
                    labels.flat(line.points[0], line.points[-1], line.label, size=size, colour=line.colour, gid=gid)
                elif kind == "slope":
                    labels.slope(line.points[0], line.points[-1], line.label, size=size, colour=line.colour, gid=gid)
                else:
                    inside = [at for at in line.points if low <= at[0] <= high and bottom <= at[1] <= top]
                    labels.end_of(inside or list(line.points), line.label, colour=line.colour, gid=f"name {index}")
        if self._numbered:
            for group in self._groups(ax):
                first = self.dots[group[0]]
                labels.around((first.x, first.y), ranges([i + 1 for i in group]), gid=f"name {group[0] + 1}", bold=True)
        else:
            for index, dot in enumerate(self.dots, start=1):
                if dot.labelled:
                    labels.around((dot.x, dot.y), f"{dot.name}  {dot.text}".rstrip(), gid=f"name {index}")
        for x, y in self.ridges:
            labels.around((x, y), fmt_number(x, 3), colour="muted", gid="ridge")
        for guide in self.guides:
            labels.end_of([(guide.x, bottom * (top / bottom) ** share) for share in (0.06, 0.12, 0.18, 0.24, 0.5, 0.95)],
                          guide.name,
                          size=style.TINY, colour="muted", gid="guide")  # fmt: skip
        written = [line for line in self.lines if line.marker and self.values]
        if 0 < len(written) <= 3 and not self.dots:
            for line in written:
                for x, y in dict.fromkeys((line.points[0], line.points[-1])):
                    labels.around((x, y), fmt_si(y, self.y_unit) if self.y_unit else fmt_number(y), colour=line.colour, gid="value")
        if self.elbow is not None:
            of = f" in {self.elbow_name}" if self.elbow_name else ""
            labels.corner(self.elbow[0], f"memory-bound{of}", left=True, colour="blue", gid="region memory-bound")
            labels.corner(self.elbow[0], f"compute-bound{of}", left=False, colour="brown", gid="region compute-bound")

    def _groups(self, ax: Axes) -> list[list[int]]:
        """Indices of dots that lie on each other, in the order of the first of each."""
        share = ax.transAxes.inverted().transform
        places = [share(ax.transData.transform((dot.x, dot.y))) for dot in self.dots]
        groups: list[list[int]] = []
        for index, at in enumerate(places):
            near = next((g for g in groups if abs(places[g[0]] - at).max() < SAME), None)
            if near is None:
                groups.append([index])
            else:
                near.append(index)
        return groups

    @property
    def _keyed(self) -> bool:
        return self._numbered or any(line.key for line in self.lines) or any(dot.key for dot in self.dots)

    def _legend(self, ax: Axes, theme: Theme, room: Room) -> None:
        handles = [_key(theme, line.colour, line.marker, line.dashes, line.hollow, line.width) for line in self.lines if line.key]
        names = [line.label for line in self.lines if line.key]
        if self._numbered:
            handles += [_key(theme, d.colour, d.marker, hollow=d.hollow) for d in self.dots]
            names += [f"{i}  {d.name}  {d.text}".rstrip() for i, d in enumerate(self.dots, start=1)]
        else:
            keys = {dot.key: dot for dot in self.dots if dot.key}
            handles += [_key(theme, d.colour, d.marker) for d in keys.values()]
            names += list(keys)
        set_legend(ax, theme, handles, names, room)


def ranges(numbers: list[int]) -> str:
    """Numbers with runs joined: [1, 3, 4, 5] is "1, 3–5"."""
    parts: list[str] = []
    for _, run in itertools.groupby(enumerate(sorted(numbers)), lambda item: item[1] - item[0]):
        found = [number for _, number in run]
        parts.append(f"{found[0]}–{found[-1]}" if len(found) > 2 else ", ".join(map(str, found)))
    return ", ".join(parts)


def series_lines(named: Mapping[str, Sequence[Point]], fits: Mapping[str, Sequence[bool]] | None = None) -> list[Line]:
    """A line for each series, told apart by colour, marker and dashes; named at its end, or in the legend where they are many."""
    direct = len(named) <= DIRECT
    found = []
    for index, (label, points) in enumerate(named.items()):
        colour, marker, dashes = style.series(index)
        write = "end" if direct and len(named) > 1 else ""
        found.append(Line(label=label, points=list(points), colour=colour, marker=marker, dashes=dashes, write=write,
                          key=not direct, fits=(fits or {}).get(label, ())))  # fmt: skip
    return found


# -- rows of bars -------------------------------------------------------------------------------------------------------------


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

        room = dataclasses.replace(room_of(ax), rows=True)
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
        ax.grid(True, axis="x", which="major", color=theme("grid"), linewidth=0.5, zorder=0)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlabel(f"{self.x_label} [{prefix}{self.unit}]" if self.unit else self.x_label)
        _sized(ax, room)
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
                    found[mark.key] = _key(theme, mark.colour, mark.marker)
        keys = [key for key in self.names if key in found]
        set_legend(ax, theme, [found[key] for key in keys], [self.names[key] for key in keys], room, gap)


# -- cells --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """A value for each of x and y. values: numbers or names [y, x], NaN or "" where there is none; texts: as written in the cells.

    scale: "log" (more is further from the ground), "ratio" (how far from 1, on which side) or "names" (of fills). fits: what does
    not is hatched. border: the steps between cells on either side of the ridge point, `border_name` its legend.
    """

    title: str
    x_label: str
    y_label: str
    xs: Sequence[float]
    ys: Sequence[float]
    values: Any
    texts: Sequence[Sequence[str]]
    scale: str = "log"
    fits: Any = None
    border: Sequence[tuple[Point, Point]] = ()
    border_name: str = ""
    unfit: str = "does not fit in memory"
    notes: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any]] = ()

    @property
    def records(self) -> Records:
        return table(self.rows, self.notes)

    @property
    def size(self) -> Point:
        return min(max(2.6 + 0.66 * len(self.xs), 6.6), 11.0), min(max(1.9 + 0.3 * len(self.ys), 3.2), 8.0)

    def _shares(self) -> Any:
        """0 to 1: how far from the ground each number is; of ratios -1 to 1."""
        with np.errstate(all="ignore"):
            logs = np.log(np.asarray(self.values, dtype=float))
        if not np.isfinite(logs).any():
            return np.zeros_like(logs)
        if self.scale == "ratio":
            most = max(float(np.nanmax(np.abs(logs))), 1e-9)
            return logs / most
        low, high = float(np.nanmin(logs)), float(np.nanmax(logs))
        return (logs - low) / (high - low) if high > low else logs * 0.0

    def _rgb(self, theme: Theme, shares: Any) -> Any:
        from matplotlib.colors import to_rgb

        pale, dark, more = (np.array(to_rgb(theme(name))) for name in ("pale", "dark", "more"))
        depth = np.abs(np.nan_to_num(shares))[..., None]
        end = np.where((np.nan_to_num(shares) < 0)[..., None], more, dark) if self.scale == "ratio" else dark
        return pale + (end - pale) * depth

    def paint(self, ax: Axes, theme: Theme) -> None:
        from matplotlib.patches import Rectangle

        room = dataclasses.replace(room_of(ax), rows=True)
        size = 6.0 if room.compact else style.TINY
        rows, columns = len(self.ys), len(self.xs)
        inches = (room.width * 0.72 - 0.7) / columns, (room.height - 1.5) / rows
        longest = max((len(text) for row in self.texts for text in row), default=1)
        written = rows * columns <= WRITTEN and inches[0] > longest * size * 0.62 / 72 and inches[1] > size * 1.25 / 72
        for axis, sizes, least in (("x", self.xs, 0.45), ("y", self.ys, 0.16)):
            step = max(math.ceil(least / inches[0 if axis == "x" else 1]), 1)
            ax.set(**{f"{axis}lim": (-0.5, len(sizes) - 0.5)})
            getattr(ax, f"set_{axis}ticks")(range(0, len(sizes), step), [fmt_count(v) for v in sizes[::step]])
        ax.tick_params(length=0)
        ax.set_xlabel(self.x_label)
        ax.set_ylabel(self.y_label)
        _sized(ax, room)
        set_title(ax, self.title, room)
        fits = np.ones((rows, columns), dtype=bool) if self.fits is None else np.asarray(self.fits)
        names = self.scale == "names"
        rgb = None if names else self._rgb(theme, self._shares())
        if rgb is not None:
            ax.imshow(rgb, origin="lower", aspect="auto", zorder=1, interpolation="none", gid="cells")
        kinds = np.where(fits, np.asarray(self.values, dtype=object) if names else "", "unfit")
        missing = np.array([[not text for text in row] for row in self.texts])
        kinds = np.where(missing, "unfit", kinds)
        for name, (top, end), (left, right) in blocks(kinds.tolist()):
            if name:
                ax.add_patch(Rectangle((left - 0.5, top - 0.5), right - left, end - top, facecolor=_fill(theme, name),
                                       hatch=style.HATCHES.get(_kind(name), ""), edgecolor=theme("muted"), linewidth=0.4,
                                       zorder=1.5,
                                       gid=f"block {name} {top} {left}"))  # fmt: skip
        for zorder, (colour, width) in enumerate((("paper", 4.2), ("red", 2.2)), start=2):
            for ends in self.border:
                ax.plot(*ends, color=theme(colour), linewidth=width, zorder=zorder, label="_ridge",
                        solid_capstyle="projecting", gid="border" if zorder > 2 else "air")  # fmt: skip
        if written:
            self._write(ax, theme, rgb, kinds, size)
        self._legend(ax, theme, rgb is not None and not written, kinds, room)

    def _write(self, ax: Axes, theme: Theme, rgb: Any, kinds: Any, size: float) -> None:
        for row, column in itertools.product(range(len(self.ys)), range(len(self.xs))):
            text, kind = self.texts[row][column], kinds[row, column]
            ground = rgb[row, column] if rgb is not None and not kind else None
            ink = theme("ink") if ground is None else _contrast(ground)
            back = {"boxstyle": "square,pad=0.1", "facecolor": _fill(theme, kind), "edgecolor": "none"} if kind else None
            if text:
                ax.text(column, row, printable(text), fontsize=size, color=ink, ha="center", va="center", zorder=4, bbox=back,
                        gid=f"value {row} {column}")  # fmt: skip

    def _legend(self, ax: Axes, theme: Theme, scale: bool, kinds: Any, room: Room) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Any] = []
        names: list[str] = []
        if self.border:
            handles.append(Line2D([], [], color=theme("red"), linewidth=2.2))
            names.append(self.border_name)
        for kind in dict.fromkeys(kinds.reshape(-1).tolist()):
            if kind:
                handles.append(Patch(facecolor=_fill(theme, kind), hatch=style.HATCHES.get(_kind(kind), ""),
                                     edgecolor=theme("muted"),
                                     linewidth=0.4))  # fmt: skip
                names.append(self.unfit if kind == "unfit" else kind)
        if scale:
            flat = np.asarray(self.values, dtype=float).reshape(-1)
            texts = [text for row in self.texts for text in row]
            order = [i for i in np.argsort(flat) if texts[i]]
            shares = self._shares().reshape(-1)
            for i in dict.fromkeys((order[0], order[len(order) // 2], order[-1]) if order else ()):
                handles.append(Patch(facecolor=self._rgb(theme, shares[i : i + 1])[0], edgecolor=theme("muted"), linewidth=0.4))
                names.append(texts[i])
        set_legend(ax, theme, handles, names, room)


def _kind(name: str) -> str:
    return {"compute": "product"}.get(name, name)


def _fill(theme: Theme, name: str) -> str:
    return theme.fills.get(_kind(name), theme("paper"))


def _contrast(ground: Any) -> str:
    """White or near black, whichever stands out."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in ground]
    return "#111111" if 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.19 else "#FFFFFF"


Span = tuple[int, int]


def blocks(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, Span, Span]]:
    """Equal cells of a grid as few rectangles: (name, rows, columns), each from the first to behind the last."""
    begun: dict[tuple[str, Span], int] = {}
    for index, row in enumerate([*rows, ()]):
        runs, start = [], 0
        for name, cells in itertools.groupby(row):
            stop = start + sum(1 for _ in cells)
            runs.append((name, (start, stop)))
            start = stop
        for run in [run for run in begun if run not in runs]:
            yield run[0], (begun.pop(run), index), run[1]
        for run in runs:
            begun.setdefault(run, index)


Panel = Chart | Rows | Cells
