"""A value for each of x and y: heat maps, and maps of names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._repr import printable
from ..units import fmt_number, fmt_percent, fmt_si
from . import style
from .panels import Point, Records, Room, fmt_count, room_of, set_legend, set_sizes, set_title, table
from .style import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WRITTEN = 200  # cells: the numbers of more are in the table alone
AIR = 0.35  # of a letter's height around a text on hatches: without it they look like strokes through it


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

        room = room_of(ax, rows=True)
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
        set_sizes(ax, room)
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
                                       zorder=1.5, gid=f"block {name} {top} {left}"))  # fmt: skip
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
            back = {"boxstyle": f"square,pad={AIR}", "facecolor": _fill(theme, kind), "edgecolor": "none"} if kind else None
            if text:
                ax.text(column, row, printable(text), fontsize=size, color=ink, ha="center", va="center", zorder=4, bbox=back,
                        gid=f"value {row} {column}")  # fmt: skip

    def _legend(self, ax: Axes, theme: Theme, scale: bool, kinds: Any, room: Room) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        named: list[tuple[str, Any]] = []
        if self.border:
            named.append((self.border_name, Line2D([], [], color=theme("red"), linewidth=2.2)))
        for kind in dict.fromkeys(kinds.reshape(-1).tolist()):
            if kind:
                patch = Patch(
                    facecolor=_fill(theme, kind), hatch=style.HATCHES.get(_kind(kind), ""), edgecolor=theme("muted"), linewidth=0.4
                )
                named.append((self.unfit if kind == "unfit" else kind, patch))
        if scale:
            flat = np.asarray(self.values, dtype=float).reshape(-1)
            texts = [text for row in self.texts for text in row]
            order = [i for i in np.argsort(flat) if texts[i]]
            shares = self._shares().reshape(-1)
            for i in dict.fromkeys((order[0], order[len(order) // 2], order[-1]) if order else ()):
                colour = self._rgb(theme, shares[i : i + 1])[0]
                named.append((texts[i], Patch(facecolor=colour, edgecolor=theme("muted"), linewidth=0.4)))
        set_legend(ax, theme, named, room)


def written(value: Any, unit: str | None, digits: int = 3, *, ratio: bool = False) -> str:
    """The text of a cell: a name, a percentage (for a ratio, its distance from 1), or a number, by its unit where it has one."""
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return ""
    if ratio or unit == "%":
        return fmt_percent(value - 1 if ratio else value, 2).replace(" ", "")
    return fmt_number(value, digits) if unit is None else fmt_si(value, unit, digits).replace(" ", "")


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
