"""Text inside Axes that never overlaps: along a slope, on a flat line, around a point, at a line's end.

Places are found when the figure is drawn, since only then a layout engine has given the axes theirs, and again whenever their size
changes. Each label takes the cheapest of its candidates that leaves the axes and covers another label nowhere; one that has none is
left out, and the number of those stands in a corner: they are in the records.

adjustText does not do this. It moves upright text once, when it is called, by forces: a label cannot run along a sloped roof or
slide along a flat one, a later layout undoes the result, and what finds no room stays where it overlaps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from .._repr import printable
from ..counts import Array
from . import style
from .panels import Point

Candidate = tuple[float, Array, Point, float]  # preference, boxes [n, 4] in pixels, anchor in pixels, rotation in degrees
PAD = 1.6  # points of air around a label
STEP = 4.0  # points between the samples of a line
MARKER = 150.0  # what covering a marker costs, in samples of lines


def _box(x: float, y: float, width: float, height: float) -> Array:
    return np.array([(x, y, x + width, y + height)])


class Labels(Artist):
    """The labels of one Axes, in the order they were asked for, the first the most important."""

    def __init__(self, ax: Axes, theme: style.Theme) -> None:
        super().__init__()
        self.ax = ax
        self.set_zorder(-10)  # drawn before the text that it places
        self.set_in_layout(False)
        self.theme = theme
        self.asked: list[tuple[Any, Any, Point | None, Callable[..., Iterator[Candidate]]]] = []
        self.lines: list[tuple[Array, float]] = []  # data coordinates [n, 2], weight
        self.points: list[Point] = []
        self.placed_at: tuple[float, ...] = ()
        self.missing = 0
        self.more = ax.text(0, 0, "+0", fontsize=style.TINY, color=theme("muted"), zorder=6, gid="left out")
        self.more.set_in_layout(False)
        ax.add_artist(self)

    # -- asking -----------------------------------------------------------------------------------------------------------

    def avoid_line(self, points: Any, weight: float = 1.0) -> None:
        self.lines.append((np.asarray(points, dtype=float), weight))

    def _ask(self, words: str, candidates: Callable[..., Iterator[Candidate]], *, size: float, colour: str, gid: str,
             bold: bool = False,
             leader: Point | None = None) -> None:  # fmt: skip
        ax, paper = self.ax, self.theme("paper")
        text = ax.text(0, 0, printable(words), fontsize=size, color=self.theme(colour), zorder=5, rotation_mode="anchor", gid=gid,
                       fontweight="bold" if bold else "normal", transform=None,
                       bbox={"boxstyle": "square,pad=0.08", "facecolor": paper, "edgecolor": "none", "alpha": 0.8})  # fmt: skip
        text.set_in_layout(False)
        line = None
        if leader is not None:
            (line,) = ax.plot([], [], color=self.theme("muted"), linewidth=0.5, zorder=3.1, label="_leader")
        self.asked.append((text, line, leader, candidates))

    def around(self, at: Point, words: str, *, colour: str = "ink", gid: str, bold: bool = False) -> None:
        """A label near a point, with a thin leader where it had to move away."""

        def candidates(to: Any, width: float, height: float, pixel: float) -> Iterator[Candidate]:
            x, y = to(at)
            for ring, radius in enumerate((6, 9, 14, 20, 28, 38, 50, 64)):
                for order, (dx, dy) in enumerate(((1, 0), (1, 1), (1, -1), (-1, 0), (-1, 1), (-1, -1), (0, 1), (0, -1))):
                    left = x + dx * (radius * pixel + width / 2) - width / 2
                    low = y + dy * (radius * pixel + height / 2) - height / 2
                    yield ring * 6 + order * 0.2, _box(left, low, width, height), (left, low), 0.0

        self._ask(words, candidates, size=style.TINY, colour=colour, gid=gid, bold=bold, leader=at)

    def end_of(self, points: list[Point], words: str, *, size: float = style.SMALL, colour: str, gid: str) -> None:
        """A line's name at one of its points, the last one if there is room."""

        def candidates(to: Any, width: float, height: float, pixel: float) -> Iterator[Candidate]:
            for order, at in enumerate(reversed(points)):
                x, y = to(at)
                for ring, radius in enumerate((5, 9, 14, 20)):
                    for side, (dx, dy) in enumerate(((1, 0), (1, 1), (1, -1), (0, 1), (0, -1), (-1, 1), (-1, -1))):
                        left = x + dx * (radius * pixel + width / 2) - width / 2
                        low = y + dy * (radius * pixel + height / 2) - height / 2
                        yield ring * 5 + side * 0.4 + order * 1.5, _box(left, low, width, height), (left, low), 0.0

        self._ask(words, candidates, size=size, colour=colour, gid=gid)

    def flat(self, start: Point, end: Point, words: str, *, size: float, colour: str, gid: str) -> None:
        """On a flat line at its right end, above it; below it, or further left, where that is taken."""

        def candidates(to: Any, width: float, height: float, pixel: float) -> Iterator[Candidate]:
            ax = self.ax
            left, y = to(start)
            right = min(to(end)[0], ax.bbox.x1) - 4 * pixel
            left = max(left, ax.bbox.x0)
            for share in np.linspace(0, 1, 25):
                x = right - max(right - left - width, 0.0) * share
                for gap in (2, 5, 9, 14, 20):
                    for worse, low in ((0.0, y + gap * pixel), (1.0, y - gap * pixel - height)):
                        yield share * 8 + worse + gap * 0.4, _box(x - width, low, width, height), (x - width, low), 0.0

        self._ask(words, candidates, size=size, colour=colour, gid=gid)

    def slope(self, start: Point, end: Point, words: str, *, size: float, colour: str, gid: str) -> None:
        """Along a sloped line, as near to its middle as is free."""

        def candidates(to: Any, width: float, height: float, pixel: float) -> Iterator[Candidate]:
            ends = np.array([to(start), to(end)])
            along = ends[1] - ends[0]
            length = float(np.hypot(*along))
            if length == 0:
                return
            along = along / length
            across = np.array([-along[1], along[0]])
            angle = math.degrees(math.atan2(along[1], along[0]))
            pieces = max(int(width / height), 1)
            side = height * float(np.abs(along).sum())  # of the squares that cover the turned text
            for share in np.linspace(0.02, 0.98, 33):
                for gap in (2.0, 4.0, 7.0):
                    for worse, offset in ((0.0, gap * pixel), (2.0, -gap * pixel - height)):
                        low = ends[0] + along * (length * share - width / 2) + across * offset
                        at = np.linspace(0.0, 1.0, pieces + 1)[:, None]
                        middles = low + across * (height / 2) + along * (height / 2 + at * max(width - height, 0.0))
                        boxes = np.hstack([middles - side / 2, middles + side / 2])
                        yield abs(share - 0.45) * 6 + worse + gap * 0.3, boxes, (float(low[0]), float(low[1])), angle

        self._ask(words, candidates, size=size, colour=colour, gid=gid)

    def corner(self, x: float, words: str, *, left: bool, colour: str, gid: str) -> None:
        """At the bottom of the axes, left or right of x."""

        def candidates(to: Any, width: float, height: float, pixel: float) -> Iterator[Candidate]:
            ax = self.ax
            at = to((x, 1.0))[0] + (-8 * pixel - width if left else 8 * pixel)
            for step in range(16):
                low = ax.bbox.y0 + (4 + 8 * step) * pixel
                yield float(step), _box(at, low, width, height), (at, low), 0.0

        self._ask(words, candidates, size=style.SMALL, colour=colour, gid=gid)

    # -- placing ----------------------------------------------------------------------------------------------------------

    def draw(self, renderer: Any) -> None:
        ax = self.ax
        now = (*ax.bbox.bounds, float(ax.get_figure(root=True).dpi), *ax.get_xlim(), *ax.get_ylim())  # type: ignore[union-attr]
        if now != self.placed_at:
            self.placed_at = now
            self._place(ax, renderer)

    def _obstacles(self, ax: Axes, pixel: float) -> tuple[Array, Array]:
        """Samples of lines and markers in pixels [n, 2], and what covering each costs [n]."""
        to = ax.transData.transform
        found, weights = [np.empty((0, 2))], [np.empty(0)]
        for points, weight in self.lines:
            corners = to(points)
            for start, end in itertools.pairwise(corners):
                steps = min(max(int(math.dist(start, end) / (STEP * pixel)), 1), 400) + 1
                found.append(start + np.linspace(0, 1, steps)[:, None] * (end - start))
                weights.append(np.full(steps, weight))
        if self.points:
            offsets = np.array([(dx, dy) for dx in (-3.2, 0, 3.2) for dy in (-3.2, 0, 3.2)]) * pixel
            centres = to(np.array(self.points, dtype=float))
            found.append((centres[:, None, :] + offsets).reshape(-1, 2))
            weights.append(np.full(len(found[-1]), MARKER))
        return np.concatenate(found), np.concatenate(weights)

    def _place(self, ax: Axes, renderer: Any) -> None:
        pixel = float(ax.get_figure(root=True).dpi) / 72  # type: ignore[union-attr]
        points, weights = self._obstacles(ax, pixel)
        bounds, pad = ax.bbox, PAD * pixel
        taken = np.empty((0, 4))  # boxes of the labels so far
        self.missing = 0
        self.more.set_visible(False)
        for text, line, leader, candidates in self.asked:
            text.set_rotation(0)  # in the middle of nowhere, to be measured
            text.set_position((0, 0))
            text.set_visible(True)
            size = text.get_window_extent(renderer)
            found = list(candidates(ax.transData.transform, size.width, size.height, pixel))
            best = self._best(found, taken, points, weights, bounds, pad)
            text.set_visible(best is not None)
            if line is not None:
                line.set_visible(False)
            if best is None:
                self.missing += 1
                continue
            _, boxes, anchor, angle = best
            taken = np.concatenate([taken, boxes + np.array([-pad, -pad, pad, pad])])
            text.set_horizontalalignment("left")
            text.set_verticalalignment("bottom")
            text.set_position(anchor)
            text.set_rotation(angle)
            if line is not None and leader is not None:
                self._lead(ax, line, leader, boxes[0], pixel)
        if self.missing:
            self._tell_missing(ax, renderer, taken, pixel)

    @staticmethod
    def _best(found: list[Candidate], taken: Array, points: Array, weights: Array, bounds: Any, pad: float) -> Candidate | None:
        best, least = None, math.inf
        for candidate in sorted(found, key=lambda each: each[0]):
            preference, boxes, _, _ = candidate
            if preference >= least:
                break
            low, high = boxes.min(axis=0), boxes.max(axis=0)
            if low[0] < bounds.x0 + pad or low[1] < bounds.y0 + pad or high[2] > bounds.x1 - pad or high[3] > bounds.y1 - pad:
                continue
            if len(taken) and (
                (boxes[:, None, 0] < taken[:, 2]) & (boxes[:, None, 2] > taken[:, 0])
                & (boxes[:, None, 1] < taken[:, 3]) & (boxes[:, None, 3] > taken[:, 1])
            ).any():  # fmt: skip
                continue
            near = (points[:, 0] > low[0]) & (points[:, 0] < high[2]) & (points[:, 1] > low[1]) & (points[:, 1] < high[3])
            cost = preference
            if near.any():
                x, y = points[near].T
                inside = (
                    (x > boxes[:, None, 0]) & (x < boxes[:, None, 2]) & (y > boxes[:, None, 1]) & (y < boxes[:, None, 3])
                ).any(axis=0)
                cost += float(weights[near][inside].sum())
            if cost < least:
                best, least = candidate, cost
        return best

    def _lead(self, ax: Axes, line: Any, at: Point, box: Array, pixel: float) -> None:
        anchor = ax.transData.transform(at)
        nearest = np.clip(anchor, box[:2], box[2:])
        if math.dist(anchor, nearest) > 11 * pixel:
            line.set_data(*zip(at, ax.transData.inverted().transform(nearest), strict=True))
            line.set_visible(True)

    def _tell_missing(self, ax: Axes, renderer: Any, taken: Array, pixel: float) -> None:
        self.more.set_text(f"+{self.missing} names in the table")
        self.more.set_transform(None)
        self.more.set_visible(True)
        size = self.more.get_window_extent(renderer)
        for left in (ax.bbox.x0 + 4 * pixel, ax.bbox.x1 - size.width - 4 * pixel):
            for step in range(24):
                low = ax.bbox.y1 - size.height - (3 + 9 * step) * pixel
                box = _box(left, low, size.width, size.height)[0]
                free = not len(taken) or not (
                    (box[0] < taken[:, 2]) & (box[2] > taken[:, 0]) & (box[1] < taken[:, 3]) & (box[3] > taken[:, 1])
                ).any()  # fmt: skip
                if free and low > ax.bbox.y0 and left + size.width < ax.bbox.x1:
                    self.more.set_position((left, low))
                    return
        self.more.set_visible(False)
