"""Places text so that no two labels overlap: candidates in order of preference, the first free one, else the least bad.

Everything is in display coordinates (pixels). Labels may be rotated, so boxes are oriented rectangles, compared by
separating axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..counts import Array

Place = Sequence[float] | Array  # x and y

PADDING = 1.5  # pixels of air around a label, per 100 dpi


def rectangle(x0: float, y0: float, x1: float, y1: float) -> Array:
    """Corners [4, 2] of an upright box."""
    return np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])


def rotated(corners: Array, about: Place, degrees: float) -> Array:
    """Corners [4, 2] turned about a point."""
    angle = math.radians(degrees)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    centre = np.asarray(about)
    turned: Array = (corners - centre) @ turn + centre
    return turned


def text_corners(text: Any, padding: float = 0.0) -> Array:
    """Corners [4, 2] in pixels of a matplotlib Text as drawn (rotation mode "anchor" where it is rotated)."""
    angle = text.get_rotation()
    turned = getattr(text, "roofline_sloped", False)
    if turned:
        text.roofline_upright = True
    try:
        box = text.get_window_extent()
    finally:
        if turned:
            text.roofline_upright = False
    corners = rectangle(box.x0 - padding, box.y0 - padding, box.x1 + padding, box.y1 + padding)
    if not turned:
        return corners
    return rotated(corners, text.get_transform().transform(text.get_position()), angle)


def overlap(a: Array, b: Array) -> bool:
    """Whether two convex quadrangles [4, 2] share area, by the separating axis theorem."""
    first, second = a.tolist(), b.tolist()  # of so few numbers arrays are slower
    for corners in (first, second):
        for (x0, y0), (x1, y1) in itertools.pairwise(corners[:3]):
            pa, pb = ([(x1 - x0) * y - (y1 - y0) * x for x, y in each] for each in (first, second))
            if max(pa) <= min(pb) or max(pb) <= min(pa):
                return False
    return True


def bounding_box(corners: Array) -> tuple[Array, Array]:
    """The least and the greatest x and y of corners [n, 2]."""
    return corners.min(axis=0), corners.max(axis=0)


def contains(corners: Array, points: Array) -> Array:
    """Which of points [n, 2] lie inside a quadrangle [4, 2]: booleans [n]."""
    near = ((points >= corners.min(axis=0)) & (points <= corners.max(axis=0))).all(axis=1)  # few of many
    found = np.zeros(len(points), dtype=bool)
    edges = np.roll(corners, -1, axis=0) - corners
    away = points[near, None, :] - corners[None, :, :]
    sides = edges[None, :, 0] * away[:, :, 1] - edges[None, :, 1] * away[:, :, 0]
    found[near] = np.all(sides >= 0, axis=1) | np.all(sides <= 0, axis=1)
    return found


class Canvas:
    """What is already drawn on an Axes: labels (never overlapped if it can be helped), markers and lines (avoided)."""

    def __init__(self, bounds: Array) -> None:
        self.bounds = bounds  # [4, 2]; labels stay inside
        self.labels = np.empty((0, 4, 2))
        self.markers = np.empty((0, 2))
        self.lines = np.empty((0, 2))

    def add_label(self, corners: Array) -> None:
        """A label that has its place."""
        self.labels = np.concatenate([self.labels, corners[None]])

    def add_markers(self, points: Iterable[Place], radius: float) -> None:
        """Markers as small squares of points around their centres."""
        offsets = [(dx * radius, dy * radius) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
        more = [(x + dx, y + dy) for x, y in points for dx, dy in offsets]
        if more:
            self.markers = np.vstack([self.markers, more])

    def add_line(self, start: Place, end: Place) -> None:
        """A straight line, sampled every two pixels."""
        length = math.dist(start, end)
        steps = np.linspace(0, 1, max(int(length / 2), 2))[:, None]
        self.lines = np.vstack([self.lines, np.asarray(start) + steps * (np.asarray(end) - np.asarray(start))])

    def cost(self, corners: Array, most: float = math.inf) -> float:
        """0 for a free place; a label below or a border crossed costs more than any number of markers and lines.

        Beyond `most` the lines and markers are no longer counted.
        """
        (low, high), (left, right) = bounding_box(self.bounds), bounding_box(corners)
        outside = bool((left < low).any() or (right > high).any())
        begins, ends = np.maximum(low, left), np.minimum(high, right)
        near = ((self.labels.min(axis=1) < ends) & (self.labels.max(axis=1) > begins)).all(axis=1)
        found = 1e6 * sum(overlap(corners, label) for label in self.labels[near]) + 1e5 * outside
        if found > most:
            return found
        return found + 1e3 * int(contains(corners, self.markers).sum()) + float(contains(corners, self.lines).sum())

    def place(self, candidates: Iterable[tuple[float, Array, Any]]) -> tuple[Any, float]:
        """Takes the cheapest of (preference cost, corners, value) and returns (value, what it overlaps: 0 is nothing).

        The first candidate that costs nothing ends the search.
        """
        best: tuple[float, float, Array, Any] | None = None
        for preference, corners, value in candidates:
            if best is not None and preference >= best[0]:
                continue
            taken = self.cost(corners, math.inf if best is None else best[0])
            if best is None or preference + taken < best[0]:
                best = preference + taken, taken, corners, value
        assert best is not None
        self.add_label(best[2])
        return best[3], best[1]
