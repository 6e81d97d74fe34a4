"""Words on Axes: along a slope, on a flat line, around a point. Where they go is decided by `labels.Canvas`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from .._repr import printable
from ..counts import Array
from ..errors import Error
from . import style
from .labels import PADDING, Canvas, rectangle, rotated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Ends = tuple[tuple[float, float], tuple[float, float]]  # of a line, in data coordinates


def import_matplotlib() -> None:
    """Raises Error, with the cure, where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise Error("plots need matplotlib: `pip install matplotlib`, or use roofline_data() for the data") from error


@cache
def _sloped_text() -> type[Any]:
    """A Text that runs along slope 1 of its log-log Axes, whatever the figure is resized to."""
    from matplotlib.text import Text

    class SlopedText(Text):
        roofline_sloped = True
        roofline_upright = False

        def get_rotation(self) -> float:
            axes = self.axes
            if self.roofline_upright or axes is None:
                return 0.0
            x, y = axes.get_xlim()[0], axes.get_ylim()[0]
            (x0, y0), (x1, y1) = axes.transData.transform([(x, y), (x * 2, y * 2)])
            return math.degrees(math.atan2(y1 - y0, x1 - x0))

    return SlopedText


def halo() -> list[Any]:
    """Path effects that keep text readable over lines."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.2, foreground="white")]


def extent(ax: Axes, text: str, size: float) -> tuple[float, float]:
    """Width and height in pixels of one upright line of text."""
    probe = ax.text(0, 0, printable(text), fontsize=size, transform=None)
    box = probe.get_window_extent()
    probe.remove()
    return float(box.width), float(box.height)


def label_slope(
    ax: Axes, canvas: Canvas, ends: Ends, words: str, *, size: float, colour: str, gaps: tuple[float, ...] = (2.0,)
) -> None:
    """A label on a line of slope 1 and along it, as near to the middle as is free. gaps: see `label_flat`."""
    pixel = ax.figure.dpi / 72
    padding = PADDING * ax.figure.dpi / 100
    to, back = ax.transData.transform, ax.transData.inverted().transform
    text = _sloped_text()(0, 0, words, fontsize=size, color=colour, ha="center", va="bottom", rotation_mode="anchor",
                          zorder=5, path_effects=halo(), gid=f"label {words}")  # fmt: skip
    text.set_transform(ax.transData)
    ax.add_artist(text)
    text.set_clip_on(False)
    width, height = extent(ax, words, text.get_fontsize())
    angle = text.get_rotation()
    start, end = to(ends[0]), to(ends[1])

    def candidates() -> Iterator[tuple[float, Array, tuple[Array, str]]]:
        for step in range(61):
            share = step / 60
            anchor = start + (end - start) * share
            for gap, (side, sign) in itertools.product(gaps, (("bottom", 1), ("top", -1))):
                at = rotated((anchor + (0, sign * gap * pixel))[None, :], anchor, angle)[0]
                y0 = at[1] if side == "bottom" else at[1] - height
                upright = rectangle(at[0] - width / 2 - padding, y0 - padding, at[0] + width / 2 + padding, y0 + height + padding)
                cost = abs(share - 0.45) * 6 + (side == "top") * 3 + 0.2 * (gap - gaps[0])
                yield cost, rotated(upright, at, angle), (at, side)

    (at, side), _ = canvas.place(sorted(candidates(), key=lambda c: c[0]))
    text.set_position(back(at))
    text.set_verticalalignment(side)


def label_flat(
    ax: Axes,
    canvas: Canvas,
    ends: Ends,
    words: str,
    *,
    size: float,
    colour: str,
    gaps: tuple[float, ...] = (2.0,),
    sides: tuple[str, ...] = ("above", "below"),
) -> None:
    """A label at the right end of a flat line, above it; below it, or further left, where that is taken.

    gaps: points between line and label that may be tried. sides: those that may be, best first.
    """
    pixel = ax.figure.dpi / 72
    padding = PADDING * ax.figure.dpi / 100
    width, height = extent(ax, words, size)
    right, y = ax.transData.transform(ends[1])
    right = min(right, ax.bbox.x1) - 5 * pixel
    left = max(ax.transData.transform(ends[0])[0], ax.bbox.x0)

    def candidates() -> Iterator[tuple[float, Array, tuple[float, float]]]:
        for step in range(40):
            x = right - (right - left - width) * step / 39
            for gap, (worse, side) in itertools.product(gaps, enumerate(sides)):
                low = y + gap * pixel if side == "above" else y - gap * pixel - height
                box = rectangle(x - width - padding, low - padding, x + padding, low + height + padding)
                yield step * 0.3 + worse + 0.2 * (gap - gaps[0]), box, (x, low)

    (x, low), _ = canvas.place(sorted(candidates(), key=lambda c: c[0]))
    at_x, at_y = ax.transData.inverted().transform((x, low))
    ax.text(at_x, at_y, printable(words), fontsize=size, color=colour, ha="right", va="bottom", zorder=5,
            path_effects=halo(), gid=f"label {words}")  # fmt: skip


def around(anchor: Array, width: float, height: float, pixel: float, padding: float) -> Iterator[tuple[float, Array, Array]]:
    """Places for a label around an anchor, nearest first: (preference, corners, lower left corner)."""
    directions = ((1, 0), (1, 1), (1, -1), (-1, 0), (-1, 1), (-1, -1), (0, 1), (0, -1))
    for ring, radius in enumerate((6, 9, 14, 20, 28, 38, 50, 64, 80, 98)):
        for order, (dx, dy) in enumerate(directions):
            centre = anchor + (dx * (radius * pixel + width / 2), dy * (radius * pixel + height / 2))
            low = centre - (width / 2, height / 2)
            box = rectangle(low[0] - padding, low[1] - padding, low[0] + width + padding, low[1] + height + padding)
            yield ring * 6.0 + order * 0.2, box, low


def label_around(
    ax: Axes, canvas: Canvas, at: tuple[float, float], words: str, *, size: float, colour: str, gid: str, bold: bool = False
) -> bool:
    """A label near a point, with a thin leader where it had to move away. False if it overlaps another."""
    pixel = ax.figure.dpi / 72
    width, height = extent(ax, words, size)
    width *= 1.12 if bold else 1.0
    anchor = ax.transData.transform(at)
    low, cost = canvas.place(around(anchor, width, height, pixel, PADDING * ax.figure.dpi / 100))
    back = ax.transData.inverted().transform
    at_x, at_y = back(low)
    ax.text(at_x, at_y, printable(words), fontsize=size, color=colour, ha="left", va="bottom", zorder=5, path_effects=halo(),
            gid=gid, fontweight="bold" if bold else "normal")  # fmt: skip
    nearest = (min(max(anchor[0], low[0]), low[0] + width), min(max(anchor[1], low[1]), low[1] + height))
    if ((anchor - nearest) ** 2).sum() > (11 * pixel) ** 2:
        ax.plot(*zip(at, back(nearest), strict=True), color=style.MUTED, linewidth=0.5, zorder=3.1, label="_leader")
    return cost < 1e5
