"""Rooflines with named dots on them: a model's workloads, its kernels, several machines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .._repr import printable
from ..units import fmt_number
from . import style
from .axes import NAMED
from .chart import y_ticks
from .frame import frame
from .labels import Canvas, rectangle
from .lettering import extent, halo, label_around, label_flat, label_slope
from .show import Records, Size, left_of, outside, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WEIGHT = 3  # of lines against the distance of a label
SAME = 0.02  # dots nearer than this share of the axes in both directions share a label
GAPS = (2.0, 5.0, 9.0, 14.0, 20.0, 28.0)  # points between a line and its label that may be tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A roof: bytes/s where `slope`, else FLOP/s. start: intensity where a flat one begins (its elbow). group: whose it is."""

    label: str
    rate: float
    slope: bool
    colour: str = style.INK
    dashes: Any = "-"
    width: float = 1.4
    start: float = 0.0
    end: float = math.inf  # of a slope: intensity where it ends
    kind: str = ""

    def at(self, x: float) -> float:
        return self.rate * x if self.slope else self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A named point. roof: FLOP/s its roofs allow there. text: what a legend adds to the name. record: what else it is."""

    name: str
    x: float
    y: float
    marker: str = "o"
    colour: str = style.BLUE
    hollow: bool = False
    text: str = ""
    labelled: bool = True
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofDots:
    """A whole plot as data. ridges: (FLOP/byte, FLOP/s). guides: verticals (FLOP/byte, name)."""

    title: str
    lines: tuple[Line, ...]
    dots: tuple[Dot, ...] = ()
    ridges: tuple[tuple[float, float], ...] = ()
    guides: tuple[tuple[float, str], ...] = ()
    notes: tuple[str, ...] = ()
    named: int = NAMED
    low: ClassVar[bool] = False

    def records(self) -> Records:
        """element: "memory_roof" and "compute_roof" (two records: the ends of a line), "ridge", "guide", "dot", "note"."""
        found: list[dict[str, Any]] = []
        for line in self.lines:
            element = "memory_roof" if line.slope else line.kind or "compute_roof"
            for x in self._span(line):
                found.append({"element": element, "label": line.label, "flops_per_byte": x, "flops_per_s": line.at(x)})
        for x, y in self.ridges:
            found.append({"element": "ridge", "label": f"{fmt_number(x)} FLOP/byte", "flops_per_byte": x, "flops_per_s": y})
        found += [{"element": "guide", "label": name, "flops_per_byte": x} for x, name in self.guides]
        for dot in self.dots:
            found.append({"element": "dot", "label": dot.name, "flops_per_byte": dot.x, "flops_per_s": dot.y, **dot.record})
        return table(found, self.notes)

    # -- limits -----------------------------------------------------------------------------------------------------------

    @property
    def numbered(self) -> bool:
        return sum(dot.labelled for dot in self.dots) > self.named

    def x_limits(self) -> tuple[float, float]:
        xs = [x for x, _ in (*self.ridges, *self.guides)] + [dot.x for dot in self.dots]
        return min(xs, default=1.0) / 4, max(xs, default=1.0) * 8

    def y_limits(self) -> tuple[float, float]:
        low, _ = self.x_limits()
        flat = [line.rate for line in self.lines if not line.slope]
        ys = [dot.y for dot in self.dots]
        slow = min((line.rate for line in self.lines if line.slope), default=None)
        lowest = min([*ys, *(rate / 4 for rate in flat), *([slow * low * 2] if slow else [])])
        return lowest / 2.5, max([*flat, *ys]) * 3

    def _span(self, line: Line) -> tuple[float, float]:
        low, high = self.x_limits()
        if not line.slope:
            return max(line.start, low), high
        top = max(other.rate for other in self.lines if not other.slope) if any(not o.slope for o in self.lines) else math.inf
        return max(low, self.y_limits()[0] / line.rate), min(top / line.rate, line.end, high)

    # -- drawing ----------------------------------------------------------------------------------------------------------

    def size(self, ax: Axes) -> Size:
        return Size(left=left_of(ax))

    def paint(self, ax: Axes) -> None:
        x_limits, y_limits = self.x_limits(), self.y_limits()
        middle = math.sqrt(y_limits[0] * y_limits[1])
        frame(ax, self.title, "Arithmetic intensity [FLOP/byte]", "Performance [FLOP/s]", x_limits, y_limits, middle)
        y_ticks(ax, *y_limits)
        for x, _ in self.guides:
            ax.plot(
                [x, x], y_limits, color=style.MUTED, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1.6, label="_guide", gid="guide"
            )
        for line in self.lines:
            ends = self._span(line)
            ax.plot(ends, [line.at(x) for x in ends], color=line.colour, linewidth=line.width, linestyle=line.dashes, zorder=2.4,
                    solid_capstyle="butt", label=f"_{line.label}", gid=f"roof {line.label}")  # fmt: skip
        if self.ridges:
            ax.plot(*zip(*self.ridges, strict=True), linestyle="none", marker="o", markersize=4, markerfacecolor="white",
                    markeredgecolor=style.INK, markeredgewidth=0.9, zorder=3.2, label="_ridge points",
                    gid="ridge points")  # fmt: skip
        sizes = self._marker_sizes(x_limits, y_limits)
        for index, (dot, points) in enumerate(zip(self.dots, sizes, strict=True), start=1):
            ax.plot([dot.x], [dot.y], linestyle="none", marker=dot.marker, markersize=points, zorder=4,
                    markerfacecolor="white" if dot.hollow else dot.colour, markeredgecolor=dot.colour if dot.hollow else "white",
                    markeredgewidth=1.4 if dot.hollow else 0.7, label=f"_{dot.name}", gid=f"dot {index}")  # fmt: skip

    def _marker_sizes(self, x_limits: tuple[float, float], y_limits: tuple[float, float]) -> list[float]:
        """In points; larger where a later dot lies on one, so that both are seen."""
        if self.numbered:
            return [6.5] * len(self.dots)
        spans = [math.log(high / low) for low, high in (x_limits, y_limits)]

        def on(a: Dot, b: Dot) -> bool:
            return all(abs(math.log(p / q)) < SAME / 2 * span for p, q, span in zip((a.x, a.y), (b.x, b.y), spans, strict=True))

        return [6.5 + 4.5 * min(sum(on(dot, other) for other in self.dots[i + 1 :]), 2) for i, dot in enumerate(self.dots)]

    def legend(self, ax: Axes) -> Any:
        if not self.numbered:
            return None
        from matplotlib.lines import Line2D

        handles = [
            Line2D([], [], linestyle="none", marker=d.marker, markersize=6, markerfacecolor="white" if d.hollow else d.colour,
                   markeredgecolor=d.colour if d.hollow else "white", markeredgewidth=1.2 if d.hollow else 0.6)
            for d in self.dots
        ]  # fmt: skip
        names = [f"{i}  {d.name}  {d.text}".rstrip() for i, d in enumerate(self.dots, start=1)]
        return outside(ax, handles, names, handlelength=1.2)

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

    def write(self, ax: Axes) -> None:
        box, pixel, to = ax.bbox, ax.figure.dpi / 72, ax.transData.transform
        canvas = Canvas(rectangle(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2))
        low, high = ax.get_ylim()
        for line in self.lines:
            start, end = self._span(line)
            for _ in range(WEIGHT):
                canvas.add_line(to((start, line.at(start))), to((end, line.at(end))))
        for x, _ in self.guides:
            canvas.add_line(to((x, low)), to((x, high)))
        canvas.add_markers([to((dot.x, dot.y)) for dot in self.dots], 4.5 * pixel)
        canvas.add_markers([to(ridge) for ridge in self.ridges], 2.5 * pixel)
        for slope, put in ((False, label_flat), (True, label_slope)):
            for line in (line for line in self.lines if line.slope == slope):
                start, end = self._span(line)
                size = style.SMALL if line.width > 1 else style.TINY
                put(ax, canvas, ((start, line.at(start)), (end, line.at(end))), line.label, size=size,
                    colour=style.INKS.get(line.colour, line.colour), gaps=GAPS)  # fmt: skip
        for x, name in self.guides:
            self._name_guide(ax, canvas, x, name)
        if self.numbered:
            for group in self._groups(ax):
                first = self.dots[group[0]]
                label_around(ax, canvas, (first.x, first.y), ranges([i + 1 for i in group]), size=style.TINY, colour=style.INK,
                             gid=f"name {group[0] + 1}", bold=True)  # fmt: skip
        else:
            for index, dot in ((i, dot) for i, dot in enumerate(self.dots, start=1) if dot.labelled):
                words = f"{dot.name}  {dot.text}".rstrip()
                label_around(ax, canvas, (dot.x, dot.y), words, size=style.TINY, colour=style.INK, gid=f"name {index}")
        for x, y in self.ridges:
            label_around(ax, canvas, (x, y), fmt_number(x), size=style.TINY, colour=style.MUTED, gid="ridge")

    def _name_guide(self, ax: Axes, canvas: Canvas, x: float, name: str) -> None:
        """At the foot of its vertical, right of it or left, or further up."""
        box, pixel = ax.bbox, ax.figure.dpi / 72
        width, height = extent(ax, name, style.TINY)
        at = ax.transData.transform((x, 1.0))[0]

        def places() -> Iterator[tuple[float, Any, tuple[float, float]]]:
            for step, (side, left) in itertools.product(range(14), enumerate((at + 3 * pixel, at - width - 3 * pixel))):
                y = box.y0 + (5 + 11 * step) * pixel
                yield step + 0.5 * side, rectangle(left - 1, y - 1, left + width + 1, y + height + 1), (left, y)

        place, _ = canvas.place(sorted(places(), key=lambda each: each[0]))
        at_x, at_y = ax.transData.inverted().transform(place)
        ax.text(at_x, at_y, printable(name), fontsize=style.TINY, color=style.MUTED, ha="left", va="bottom", zorder=5,
                path_effects=halo(),
                gid="guide")  # fmt: skip


def ranges(numbers: list[int]) -> str:
    """Numbers with runs joined: [1, 3, 4, 5] is "1, 3–5"."""
    parts: list[str] = []
    for _, run in itertools.groupby(enumerate(sorted(numbers)), lambda item: item[1] - item[0]):
        found = [number for _, number in run]
        parts.append(
            str(found[0]) if len(found) == 1 else f"{found[0]}–{found[-1]}" if len(found) > 2 else f"{found[0]}, {found[1]}"
        )
    return ", ".join(parts)
