"""Lines, dots and verticals over two axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..units import fmt_bytes, fmt_number, fmt_si, si_prefix
from . import style
from .panels import LEGEND, Point, Records, Room, fmt_count, key_of, plain, room_of, set_legend, set_sizes, set_title, table
from .style import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .labels import Labels

NAMED = 8  # with more dots, numbers stand at them and the legend names them
DIRECT = 6  # more lines than this are named in a legend
SAME = 0.02  # dots nearer than this share of the axes in both directions share a label
SPREAD = 0.03  # a wider spread gets bars


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines, dots and guides over two axes. y_unit, x_unit: with a prefix on the axis, "" for plain numbers.

    x_kind: "log", "size" (bytes in powers of two), "count" (powers of two) or names of places from 1 on. ridges: hollow rings with
    their intensity in the colour of the flat line that begins there. elbow: between the shaded memory-bound and compute-bound
    regions. limits: of the data where None.
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
        ax.set_yscale("log")
        ax.set_xlim(*x_limits)
        ax.set_ylim(*y_limits)
        factor, prefix = si_prefix(math.sqrt(y_limits[0] * y_limits[1])) if self.y_unit else (1.0, "")
        ax.set_xlabel(self.x_label)
        ax.set_ylabel(f"{self.y_label} [{prefix}{self.y_unit}]" if self.y_unit else self.y_label)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_locator(LogLocator(subs=(2.0, 5.0), numticks=12))
            axis.set_minor_formatter(NullFormatter())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value / factor, 2)))
        decades = math.log10(y_limits[1] / y_limits[0])
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
        ax.tick_params(which="minor", labelbottom=False, labelleft=False)  # empty as they are, each would be measured
        ax.grid(True, which="major", color=theme("grid"), linewidth=0.5, zorder=0)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        set_sizes(ax, room)
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
                if kind == "end":
                    inside = [at for at in line.points if low <= at[0] <= high and bottom <= at[1] <= top]
                    labels.end_of(inside or list(line.points), line.label, colour=line.colour, gid=f"name {index}")
                else:
                    along, size = labels.flat if kind == "flat" else labels.slope, style.TINY if line.small else style.SMALL
                    along(line.points[0], line.points[-1], line.label, size=size, colour=line.colour, gid=f"label {line.label}")
        if self._numbered:
            for group in self._groups(ax):
                first = self.dots[group[0]]
                labels.around((first.x, first.y), ranges([i + 1 for i in group]), gid=f"name {group[0] + 1}", bold=True)
        else:
            for index, dot in enumerate(self.dots, start=1):
                if dot.labelled:
                    labels.around((dot.x, dot.y), f"{dot.name}  {dot.text}".rstrip(), gid=f"name {index}")
        begun = {line.points[0]: line.colour for line in self.lines if line.write == "flat"}
        for x, y in self.ridges:
            labels.around((x, y), fmt_number(x, 3), colour=begun.get((x, y), "muted"), gid="ridge")
        for guide in self.guides:
            labels.end_of([(guide.x, bottom * (top / bottom) ** share) for share in (0.06, 0.12, 0.18, 0.24, 0.5, 0.95)],
                          guide.name, size=style.TINY, colour="muted", gid="guide")  # fmt: skip
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
        keyed = (line for line in self.lines if line.key)
        named = [(line.label, key_of(theme, line.colour, line.marker, line.dashes, line.hollow, line.width)) for line in keyed]
        if self._numbered:
            dots = {f"{i}  {d.name}  {d.text}".rstrip(): d for i, d in enumerate(self.dots, start=1)}
            named += [(name, key_of(theme, d.colour, d.marker, hollow=d.hollow)) for name, d in dots.items()]
        else:
            named += [(key, key_of(theme, d.colour, d.marker)) for key, d in {d.key: d for d in self.dots if d.key}.items()]
        set_legend(ax, theme, named, room)


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
