"""Lines over a batch or a length, with ridge points as horizontals: what is drawn, and how."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .._repr import printable
from ..units import fmt_number, fmt_si
from . import style
from .frame import frame
from .labels import PADDING, Canvas, rectangle
from .lettering import around, extent, halo, label_around, label_flat
from .show import Records, Size, left_of, outside, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIRECT = 6  # more lines than this are named in a legend
TICKS = 12  # labelled values on the x axis at most
WEIGHT = 3  # of lines against the distance of a label
LEAST = 4.0  # the y axis spans at least this factor, so that it has ticks to read


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line through points (x, y). fits: whether the point is possible (else hollow: out of memory), one for each."""

    label: str
    points: tuple[tuple[float, float], ...]
    fits: tuple[bool, ...] = ()

    def fitting(self, index: int) -> bool:
        return not self.fits or self.fits[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A horizontal: a ridge point."""

    label: str
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where a series meets a level."""

    label: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A whole plot as data. x_name, y_name: keys of its records, with the unit; x_label, y_label: of the axes.

    unit: of y, with a prefix on the axis, or "" for plain numbers.
    """

    title: str
    x_name: str
    x_label: str
    y_name: str
    y_label: str
    series: tuple[Series, ...]
    unit: str = ""
    levels: tuple[Level, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    notes: tuple[str, ...] = ()
    low: ClassVar[bool] = False

    def records(self) -> Records:
        """element: "point", "level" (a ridge point), "crossing" (where a line meets one), "note"."""
        x, y = self.x_name, self.y_name
        return table(
            [
                *({"element": "point", "label": s.label, x: at, y: value, "fits": s.fitting(i)}
                  for s in self.series for i, (at, value) in enumerate(s.points)),
                *({"element": "level", "label": level.label, y: level.y} for level in self.levels),
                *({"element": "crossing", "label": c.label, x: c.x, y: c.y} for c in self.crossings),
            ],
            self.notes,
        )  # fmt: skip

    # -- limits -----------------------------------------------------------------------------------------------------------

    @property
    def direct(self) -> bool:
        """Whether lines are named beside them."""
        return len(self.series) <= DIRECT

    def x_limits(self) -> tuple[float, float]:
        xs = [x for s in self.series for x, _ in s.points]
        low, high = min(xs), max(xs)
        span = max(high / low, 2.0)
        return low / span**0.03, high * span ** (0.2 if self.direct and len(self.series) > 1 else 0.06)

    def y_limits(self) -> tuple[float, float]:
        ys = [y for s in self.series for _, y in s.points] + [level.y for level in self.levels]
        low, high = min(ys), max(ys)
        if high / low < LEAST:
            middle = math.sqrt(low * high)
            low, high = middle / math.sqrt(LEAST), middle * math.sqrt(LEAST)
        return low / (high / low) ** 0.08, high * (high / low) ** 0.1

    # -- drawing ----------------------------------------------------------------------------------------------------------

    def size(self, ax: Axes) -> Size:
        return Size(left=left_of(ax))

    def paint(self, ax: Axes) -> None:
        low, high = self.x_limits()
        bottom, top = self.y_limits()
        frame(ax, self.title, self.x_label, self.y_label, (low, high), (bottom, top), math.sqrt(bottom * top) if self.unit else 1.0)
        x_ticks(ax, sorted({x for s in self.series for x, _ in s.points}))
        y_ticks(ax, bottom, top)
        for level in self.levels:
            ax.plot([low, high], [level.y] * 2, color=style.MUTED, linewidth=0.9, linestyle=(0, (5, 3)), zorder=2.0,
                    label=f"_{level.label}", gid=f"level {level.label}")  # fmt: skip
        for index, s in enumerate(self.series):
            colour, marker, dashes = style.series(index)
            xs, ys = zip(*s.points, strict=True)
            ax.plot(xs, ys, color=colour, linewidth=1.3, linestyle=dashes, zorder=2.8, label=f"_{s.label}", gid=f"line {index + 1}")
            for fits in (True, False):
                some = [at for i, at in enumerate(s.points) if s.fitting(i) is fits]
                if some:
                    ax.plot(*zip(*some, strict=True), linestyle="none", marker=marker, markersize=5.2, zorder=3.2,
                            markerfacecolor=colour if fits else "white", markeredgecolor="white" if fits else colour,
                            markeredgewidth=0.6 if fits else 1.1, label=f"_{s.label}",
                            gid=f"points {index + 1}" if fits else f"hollow {index + 1}")  # fmt: skip
        for c in self.crossings:
            ax.plot([c.x], [c.y], linestyle="none", marker="x", markersize=6, markeredgecolor=style.INK, markeredgewidth=1.3,
                    zorder=3.6, label="_crossing", gid="crossing")  # fmt: skip

    def legend(self, ax: Axes) -> Any:
        if self.direct:
            return None
        from matplotlib.lines import Line2D

        handles = []
        for index, _ in enumerate(self.series):
            colour, marker, dashes = style.series(index)
            handles.append(Line2D([], [], color=colour, marker=marker, markersize=5, linestyle=dashes, linewidth=1.3,
                                  markeredgecolor="white", markeredgewidth=0.6))  # fmt: skip
        handles += [Line2D([], [], color=style.MUTED, linewidth=0.9, linestyle=(0, (5, 3))) for _ in self.levels]
        names = [*(s.label for s in self.series), *(level.label.replace(" (", "\n(") for level in self.levels)]
        return outside(ax, handles, names, handlelength=3.2)

    def _canvas(self, ax: Axes) -> Canvas:
        box, pixel, to = ax.bbox, ax.figure.dpi / 72, ax.transData.transform
        canvas = Canvas(rectangle(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2))
        for level in self.levels:
            canvas.add_line(to((ax.get_xlim()[0], level.y)), to((ax.get_xlim()[1], level.y)))
        for s in self.series:
            corners = [to(at) for at in s.points]
            canvas.add_markers(corners, 3.2 * pixel)
            for start, end in itertools.pairwise(corners):
                for _ in range(WEIGHT):
                    canvas.add_line(start, end)
        canvas.add_markers([to((c.x, c.y)) for c in self.crossings], 3.5 * pixel)
        return canvas

    def write(self, ax: Axes) -> None:
        canvas = self._canvas(ax)
        low, high = ax.get_xlim()
        if self.direct and len(self.series) > 1:
            for index, s in enumerate(self.series):
                self._name(ax, canvas, s, style.series(index)[0], f"name {index + 1}")
        for group in self._near(ax):
            words = "\n".join(level.label if self.direct else fmt_number(level.y) for level in group)
            gaps, sides = ((2.0, 4.0), ("above", "below")) if len(group) == 1 else ((2.0, 5.0, 9.0, 14.0), ("above",))
            label_flat(ax, canvas, ((low, group[0].y), (high, group[0].y)), words, size=style.TINY, colour=style.MUTED,
                       gaps=gaps, sides=sides)  # fmt: skip
        for c in (c for c in self.crossings if c.label):
            label_around(ax, canvas, (c.x, c.y), c.label, size=style.TINY, colour=style.INK, gid="crossing")
        if len(self.series) <= 3:
            for index, s in enumerate(self.series):
                for x, y in dict.fromkeys((s.points[0], s.points[-1])):
                    words = fmt_si(y, self.unit) if self.unit else fmt_number(y)
                    label_around(ax, canvas, (x, y), words, size=style.TINY, colour=style.series(index)[0], gid="value")

    def _near(self, ax: Axes) -> list[list[Level]]:
        """Levels, highest first, those together whose labels would not fit between them."""
        groups: list[list[Level]] = []
        for level in sorted(self.levels, key=lambda each: -each.y):
            last = groups[-1][-1].y if groups else math.inf
            apart = math.log(last / level.y) / math.log(ax.get_ylim()[1] / ax.get_ylim()[0]) * ax.bbox.height
            if groups and apart < 2 * style.TINY * ax.figure.dpi / 72:
                groups[-1].append(level)
            else:
                groups.append([level])
        return groups

    def _name(self, ax: Axes, canvas: Canvas, s: Series, colour: str, gid: str) -> None:
        """The line's name at one of its points, the last one if there is room."""
        pixel, padding = ax.figure.dpi / 72, PADDING * ax.figure.dpi / 100
        width, height = extent(ax, s.label, style.SMALL)
        places = [
            (cost + 1.5 * order, box, (low, point))
            for order, point in enumerate(reversed(s.points))
            for cost, box, low in around(ax.transData.transform(point), width, height, pixel, padding)
        ]
        (low, point), _ = canvas.place(sorted(places, key=lambda place: place[0]))
        back = ax.transData.inverted().transform
        x, y = back(low)
        ax.text(x, y, printable(s.label), fontsize=style.SMALL, color=colour, ha="left", va="bottom", zorder=5,
                path_effects=halo(), gid=gid)  # fmt: skip
        leader(ax, point, low, width, height, colour)


def leader(ax: Axes, point: Sequence[float], low: Any, width: float, height: float, colour: str) -> None:
    """A thin line from a point to its label, where that had to move away."""
    pixel, to, back = ax.figure.dpi / 72, ax.transData.transform, ax.transData.inverted().transform
    anchor = to(point)
    nearest = (min(max(anchor[0], low[0]), low[0] + width), min(max(anchor[1], low[1]), low[1] + height))
    if ((anchor - nearest) ** 2).sum() > (11 * pixel) ** 2:
        ax.plot(*zip(point, back(nearest), strict=True), color=colour, linewidth=0.5, zorder=3.1, label="_leader")


def fmt_count(value: float) -> str:
    """A batch or a length as people write it."""
    return str(int(value)) if float(value).is_integer() else fmt_number(value)


def x_ticks(ax: Axes, values: Sequence[float]) -> None:
    """Ticks at the values, as many as fit."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    step = -(-len(values) // TICKS)
    kept = list(values)[::step]
    ax.xaxis.set_major_locator(FixedLocator(kept))
    ax.xaxis.set_major_formatter(FixedFormatter([fmt_count(value) for value in kept]))
    ax.xaxis.set_minor_locator(NullLocator())


def y_ticks(ax: Axes, bottom: float, top: float) -> None:
    """Powers of ten, and steps between them where the axis spans few."""
    from matplotlib.ticker import LogLocator

    decades = math.log10(top / bottom)
    if decades < 2.6:
        subs = (1.0, 2.0, 5.0) if decades > 1.2 else (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
        ax.yaxis.set_major_locator(LogLocator(subs=subs, numticks=20))
