"""Rows of horizontal bars and markers with their values in a column beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .._repr import printable
from ..units import fmt_number, si_prefix
from . import style
from .frame import WIDTH
from .lettering import extent
from .show import Records, Size, outside, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.2  # inches
COLUMN = 0.1  # inches between the axes and the values beside them
BAR = 0.62  # of a row's height


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """From `start` (0: the axis) to `end`. key: of the legend ("": none)."""

    end: float
    start: float = 0.0
    colour: str = style.BLUE
    hatch: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A marker at x. key: of the legend."""

    x: float
    marker: str
    colour: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. text: beside the axes. record: what it is, as flat values."""

    label: str
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()
    text: str = ""
    heading: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A whole plot as data. names: of each legend key, in the order it lists them. text_label: a heading over the values.

    unit: of x, with a prefix on the axis ("": plain numbers).
    """

    title: str
    x_label: str
    rows: tuple[Row, ...]
    log: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None
    text_label: str = ""
    width: float = WIDTH
    unit: str = ""
    low: ClassVar[bool] = True

    def records(self) -> Records:
        """element: "row"; what a row says of itself."""
        return table([{"element": "row", "label": row.label, **row.record} for row in self.rows if not row.heading], self.notes)

    def _x_limits(self) -> tuple[float, float]:
        if self.limits is not None:
            return self.limits
        xs = [x for row in self.rows for x in (*(bar.end for bar in row.bars), *(mark.x for mark in row.marks)) if x > 0]
        low, high = min(xs, default=1.0), max(xs, default=1.0)
        if not self.log:
            return 0.0, high * 1.04
        span = max(high / low, 4.0)
        return low / span**0.06 / (2 if any(row.bars for row in self.rows) else 1), high * span**0.04

    def size(self, ax: Axes) -> Size:
        dpi = ax.figure.dpi
        left = max(extent(ax, row.label, style.SMALL)[0] * (1.1 if row.heading else 1.0) for row in self.rows) / dpi
        right = max(extent(ax, text, style.TINY)[0] for text in (*(row.text for row in self.rows), self.text_label)) / dpi
        return Size(
            width=self.width, height=ROW * (len(self.rows) + 0.8), left=left * 1.03 + 0.2, right=right * 1.06 + COLUMN + 0.12
        )

    def paint(self, ax: Axes) -> None:
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

        low, high = self._x_limits()
        ax.set_xscale("log" if self.log else "linear")
        ax.set_xlim(low, high)
        ax.set_ylim(len(self.rows) - 0.1, -0.9)
        ax.yaxis.set_major_locator(FixedLocator([]))
        ax.yaxis.set_minor_locator(NullLocator())
        factor, prefix = si_prefix(high) if self.unit else (1.0, "")
        digits = 1 if self.log else 3
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value / factor, digits)))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.grid(True, axis="x", which="major", color="#D9DBDE", linewidth=0.5, zorder=0)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(axis="x", which="major", length=4)
        ax.set_xlabel(f"{self.x_label} [{prefix}{self.unit}]" if self.unit else self.x_label)
        ax.set_title(printable(self.title), loc="left", fontsize=10.5, fontweight="bold", pad=8)
        for y, row in enumerate(self.rows):
            for index, bar in enumerate(row.bars):
                start = max(bar.start, low)
                ax.barh(y, bar.end - start, left=start, height=BAR, color=bar.colour, hatch=bar.hatch, edgecolor=style.INK,
                        linewidth=0.4, zorder=2, gid=f"bar {y} {index}")  # fmt: skip
            xs = [mark.x for mark in row.marks if mark.marker != "|"]
            if len(xs) > 1:
                ax.plot([min(xs), max(xs)], [y, y], color=style.MUTED, linewidth=0.8, zorder=2.4, label="_span")
            for index, mark in enumerate(row.marks):
                tick = mark.marker == "|"
                ax.plot([mark.x], [y], linestyle="none", marker=mark.marker, markersize=11 if tick else 6, color=mark.colour,
                        markeredgewidth=1.6 if tick else 0.6, markeredgecolor=mark.colour if tick else "white",
                        zorder=2.6 if tick else 3, label="_mark", gid=f"mark {y} {index}")  # fmt: skip

    def legend(self, ax: Axes) -> Any:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        found: dict[str, Any] = {}
        for row in self.rows:
            for bar in row.bars:
                if bar.key and bar.key not in found:
                    found[bar.key] = Patch(facecolor=bar.colour, hatch=bar.hatch, edgecolor=style.INK, linewidth=0.4)
            for mark in row.marks:
                if mark.key not in found:
                    tick = mark.marker == "|"
                    found[mark.key] = Line2D([], [], linestyle="none", marker=mark.marker, markersize=9 if tick else 6,
                                             color=mark.colour, markeredgecolor=mark.colour if tick else "white",
                                             markeredgewidth=1.6 if tick else 0.6)  # fmt: skip
        keys = [key for key in self.names if key in found]
        if not keys:
            return None
        gap = self.size(ax).right - 0.05
        return outside(ax, [found[key] for key in keys], [self.names[key] for key in keys], handlelength=1.8, gap=gap)

    def write(self, ax: Axes) -> None:
        from matplotlib.transforms import ScaledTranslation

        scale = ax.figure.dpi_scale_trans
        left = ax.get_yaxis_transform() + ScaledTranslation(-0.07, 0, scale)
        right = ax.get_yaxis_transform() + ScaledTranslation(COLUMN, 0, scale)
        for y, row in enumerate(self.rows):
            ax.text(0, y, printable(row.label), transform=left, fontsize=style.SMALL, ha="right", va="center", clip_on=False,
                    fontweight="bold" if row.heading else "normal", gid=f"row {y}")  # fmt: skip
            if row.text:
                ax.text(1, y, printable(row.text), transform=right, fontsize=style.TINY, ha="left", va="center", clip_on=False,
                        gid=f"value {y}")  # fmt: skip
        if self.text_label:
            ax.text(1, -1.0, self.text_label, transform=right, fontsize=style.TINY, color=style.MUTED, ha="left", va="center",
                    clip_on=False, gid="values")  # fmt: skip


def plain(value: float, digits: int) -> str:
    """A tick's number without trailing zeros."""
    text = fmt_number(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text
