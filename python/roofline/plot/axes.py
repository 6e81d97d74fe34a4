"""Draws a roofline on Axes. matplotlib is imported only when something is drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from ..cost import Array
from ..errors import Error
from ..machine import Machine
from ..results import Measurement
from ..units import fmt_number, fmt_si, si_prefix
from . import style
from .data import Picture, Point, Roof, picture
from .labels import PADDING, Canvas, rectangle, rotated

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = 8  # with more points, numbers stand at the points and the legend names them
LEFT, RIGHT, TOP, BOTTOM = 0.72, 0.18, 0.46, 0.62  # inches around the axes
WIDTH, HEIGHT = 6.7, 4.5  # of the axes, inches
LINE = 0.135  # inches per line of notes
GAP = 0.14  # inches between axes and a legend outside
HINTED = 1.06  # letters are rounded to pixels: the same text is up to this much wider in a coarser picture
SPREAD = 0.03  # a spread of the times beyond this gets error bars


def _import() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise Error("plots need matplotlib: `pip install matplotlib`, or use roofline_data() for the data") from error


@cache
def _sloped_text() -> type[Any]:
    """A Text that runs along slope 1 of its log-log Axes, whatever the figure is resized to."""
    import math

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


def _halo() -> list[Any]:
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.2, foreground="white")]


# -- lines ----------------------------------------------------------------------------------------------------------------


def _roof_style(roof: Roof) -> dict[str, Any]:
    measured = roof.ceiling.source == "measured"
    colour = style.LEVEL_COLOURS.get(roof.ceiling.level, style.INK) if roof.memory else style.dtype_colour(roof.ceiling.dtype)
    width = 1.7 if roof.best and measured else 0.9
    dashes = "-" if measured and roof.rate == roof.ceiling.value else (0, (5, 3)) if not measured else (0, (6, 1.5, 1, 1.5))
    return {"color": colour, "linewidth": width, "linestyle": dashes, "solid_capstyle": "butt", "zorder": 2.5 if roof.best else 2.2}


def _draw_roofs(ax: Axes, shown: Picture) -> None:
    bottom, right = shown.y_limits[0], shown.x_limits[1]
    if shown.elbow is not None:
        x, y = shown.elbow
        left = shown.x_limits[0]
        start = max(y / x * left, bottom)
        ax.fill_between([max(left, bottom * x / y), x], bottom, [start, y], color=style.MEMORY_SHADE, linewidth=0, zorder=0.5)
        ax.fill_between([x, right], bottom, y, color=style.COMPUTE_SHADE, linewidth=0, zorder=0.5)
    for roof in shown.roofs:
        ends = [roof.x_from, roof.x_to]
        ax.plot(ends, [roof.at(x) for x in ends], label="_" + roof.label, gid=f"roof {roof.label}", **_roof_style(roof))
    if shown.ridges:
        xs, ys = zip(*shown.ridges, strict=True)
        ax.plot(xs, ys, linestyle="none", marker="o", markersize=4, markerfacecolor="white", markeredgecolor=style.INK,
                markeredgewidth=0.9, zorder=3.2, label="_ridge points", gid="ridge points")  # fmt: skip


def _sweeps(points: tuple[Point, ...]) -> Iterator[list[Point]]:
    """Runs of at least three points of one kernel that differ in one numeric field, in that field's order of measurement."""
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for p in points:
        m = p.measurement
        groups.setdefault((m.operator, m.variant, m.dtype, m.device, m.threads, m.cache_state), []).append(p)
    for members in groups.values():
        problems = [p.measurement.problem for p in members]
        varying = [name for name in problems[0] if any(problem.get(name) != problems[0][name] for problem in problems)]
        # seq_len sweeps change both sequence lengths together.
        if len(members) >= 3 and varying and (len(varying) == 1 or set(varying) == {"seq_q", "seq_kv"}):
            yield members


def _draw_points(ax: Axes, shown: Picture, markers: dict[str, str]) -> None:
    for members in _sweeps(shown.points):
        colour = style.dtype_colour(members[0].measurement.dtype)
        ax.plot([p.x for p in members], [p.y for p in members], color=colour, linewidth=0.7, alpha=0.45, zorder=2.8, label="_sweep")
    for index, p in enumerate(shown.points, start=1):
        colour = style.dtype_colour(p.measurement.dtype)
        if p.tick is not None:
            ax.plot(
                [p.x, p.x],
                [p.y, p.tick],
                color=colour,
                linewidth=0.9,
                linestyle=(0, (1, 1.2)),
                zorder=3.3,
                label="_gap",
                gid=f"gap {index}",
            )
            ax.plot(
                [p.x],
                [p.tick],
                color=colour,
                marker="_",
                markersize=8,
                markeredgewidth=1.6,
                zorder=3.4,
                label="_bracket",
                gid=f"tick {index}",
            )
        if (p.y_high - p.y_low) / p.y > SPREAD:
            ax.errorbar([p.x], [p.y], yerr=[[max(p.y - p.y_low, 0)], [max(p.y_high - p.y, 0)]], fmt="none", ecolor=colour,
                        elinewidth=0.9, capsize=2, zorder=3.5, label="_spread")  # fmt: skip
        hollow = p.implausible
        ax.plot([p.x], [p.y], linestyle="none", marker=markers[p.measurement.operator], markersize=6.5, zorder=4,
                markerfacecolor="white" if hollow else colour, markeredgecolor=colour if hollow else "white",
                markeredgewidth=1.4 if hollow else 0.7, label=f"_point {p.name}", gid=f"point {index}")  # fmt: skip


# -- labels ---------------------------------------------------------------------------------------------------------------


def _extent(ax: Axes, text: str, size: float) -> tuple[float, float]:
    """Width and height in pixels of one upright line of text."""
    probe = ax.text(0, 0, text, fontsize=size, transform=None)
    box = probe.get_window_extent()
    probe.remove()
    return float(box.width), float(box.height)


def _canvas(ax: Axes, shown: Picture) -> Canvas:
    box, dpi = ax.bbox, ax.figure.dpi
    canvas = Canvas(rectangle(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2))
    to = ax.transData.transform
    for roof in shown.roofs:
        canvas.add_line(to((roof.x_from, roof.at(roof.x_from))), to((roof.x_to, roof.at(roof.x_to))))
    canvas.add_markers([to((p.x, p.y)) for p in shown.points], 4.5 * dpi / 72)
    canvas.add_markers([to(ridge) for ridge in shown.ridges], 2.5 * dpi / 72)
    for p in shown.points:
        if p.tick is not None:
            canvas.add_line(to((p.x, p.y)), to((p.x, p.tick)))
            canvas.add_markers([to((p.x, p.tick))], 2 * dpi / 72)
    return canvas


def _label_slopes(ax: Axes, shown: Picture, canvas: Canvas) -> None:
    """Each memory roof's label on its line and along it, as near to the middle as is free."""
    pixel = ax.figure.dpi / 72
    padding = PADDING * ax.figure.dpi / 100
    to, back = ax.transData.transform, ax.transData.inverted().transform
    for roof in (r for r in shown.roofs if r.memory):
        colour, size = _roof_style(roof)["color"], style.SMALL if roof.best else style.TINY
        text = _sloped_text()(0, 0, roof.label, fontsize=size, color=colour, ha="center", va="bottom", rotation_mode="anchor",
                              zorder=5, path_effects=_halo(), gid=f"label {roof.label}")  # fmt: skip
        text.set_transform(ax.transData)
        ax.add_artist(text)
        text.set_clip_on(False)
        width, height = _extent(ax, roof.label, text.get_fontsize())
        angle = text.get_rotation()
        start, end = to((roof.x_from, roof.at(roof.x_from))), to((roof.x_to, roof.at(roof.x_to)))

        def candidates(
            start: Array = start, end: Array = end, width: float = width, height: float = height, angle: float = angle
        ) -> Iterator[tuple[float, Array, tuple[Array, str]]]:
            for step in range(61):
                share = step / 60
                anchor = start + (end - start) * share
                for side, offset in (("bottom", 2.0 * pixel), ("top", -2.0 * pixel)):
                    at = rotated((anchor + (0, offset))[None, :], anchor, angle)[0]
                    y0 = at[1] if side == "bottom" else at[1] - height
                    upright = rectangle(
                        at[0] - width / 2 - padding, y0 - padding, at[0] + width / 2 + padding, y0 + height + padding
                    )
                    yield abs(share - 0.45) * 6 + (side == "top") * 3, rotated(upright, at, angle), (at, side)

        (at, side), _ = canvas.place(sorted(candidates(), key=lambda c: c[0]))
        text.set_position(back(at))
        text.set_verticalalignment(side)


def _label_flats(ax: Axes, shown: Picture, canvas: Canvas) -> None:
    """Each compute roof's label at the right end of its line, above it; below it, or further left, where that is taken."""
    pixel = ax.figure.dpi / 72
    padding = PADDING * ax.figure.dpi / 100
    to, back = ax.transData.transform, ax.transData.inverted().transform
    for roof in (r for r in shown.roofs if not r.memory):
        size = style.SMALL if roof.best else style.TINY
        width, height = _extent(ax, roof.label, size)
        right, y = to((roof.x_to, roof.rate))
        right = min(right, ax.bbox.x1) - 5 * pixel
        left = max(to((roof.x_from, roof.rate))[0], ax.bbox.x0)

        def candidates(
            right: float = right, left: float = left, y: float = y, width: float = width, height: float = height
        ) -> Iterator[tuple[float, Array, tuple[float, float]]]:
            for step in range(40):
                x = right - (right - left - width) * step / 39
                for low, worse in ((y + 2 * pixel, 0.0), (y - 2 * pixel - height, 1.0)):
                    yield (
                        step * 0.3 + worse,
                        rectangle(x - width - padding, low - padding, x + padding, low + height + padding),
                        (x, low),
                    )

        (x, low), _ = canvas.place(sorted(candidates(), key=lambda c: c[0]))
        colour = _roof_style(roof)["color"]
        at_x, at_y = back((x, low))
        ax.text(at_x, at_y, roof.label, fontsize=size, color=colour, ha="right", va="bottom", zorder=5,
                path_effects=_halo(), gid=f"label {roof.label}")  # fmt: skip


def _around(anchor: Array, width: float, height: float, pixel: float, padding: float) -> Iterator[tuple[float, Array, Array]]:
    """Places for a label around an anchor, nearest first: (preference, corners, lower left corner)."""
    directions = ((1, 0), (1, 1), (1, -1), (-1, 0), (-1, 1), (-1, -1), (0, 1), (0, -1))
    for ring, radius in enumerate((6, 9, 14, 20, 28, 38, 50, 64, 80, 98)):
        for order, (dx, dy) in enumerate(directions):
            centre = anchor + (dx * (radius * pixel + width / 2), dy * (radius * pixel + height / 2))
            low = centre - (width / 2, height / 2)
            box = rectangle(low[0] - padding, low[1] - padding, low[0] + width + padding, low[1] + height + padding)
            yield ring * 6.0 + order * 0.2, box, low


def _label_around(
    ax: Axes, canvas: Canvas, at: tuple[float, float], words: str, *, size: float, colour: str, gid: str, bold: bool = False
) -> bool:
    """A label near a point, with a thin leader where it had to move away. False if it overlaps another."""
    pixel = ax.figure.dpi / 72
    width, height = _extent(ax, words, size)
    width *= 1.12 if bold else 1.0
    anchor = ax.transData.transform(at)
    low, cost = canvas.place(_around(anchor, width, height, pixel, PADDING * ax.figure.dpi / 100))
    back = ax.transData.inverted().transform
    at_x, at_y = back(low)
    ax.text(at_x, at_y, words, fontsize=size, color=colour, ha="left", va="bottom", zorder=5, path_effects=_halo(), gid=gid,
            fontweight="bold" if bold else "normal")  # fmt: skip
    nearest = (min(max(anchor[0], low[0]), low[0] + width), min(max(anchor[1], low[1]), low[1] + height))
    if ((anchor - nearest) ** 2).sum() > (11 * pixel) ** 2:
        ax.plot(*zip(at, back(nearest), strict=True), color=style.MUTED, linewidth=0.5, zorder=3.1, label="_leader")
    return cost < 1e5


def _label_points(ax: Axes, shown: Picture, canvas: Canvas, numbered: bool) -> None:
    for index, p in enumerate(shown.points, start=1):
        words = str(index) if numbered else f"{p.name}  {p.shares}".rstrip()
        _label_around(ax, canvas, (p.x, p.y), words, size=style.TINY, colour=style.INK, gid=f"name {index}", bold=numbered)


def _label_regions(ax: Axes, shown: Picture, canvas: Canvas) -> None:
    if shown.elbow is None:
        return
    to, back, pixel = ax.transData.transform, ax.transData.inverted().transform, ax.figure.dpi / 72
    split = to(shown.elbow)[0]
    for words, x, colour in (("memory-bound", split - 8 * pixel, style.BLUE), ("compute-bound", split + 8 * pixel, "#9A6A00")):
        width, height = _extent(ax, words, style.SMALL)
        left = x - width if words == "memory-bound" else x
        if left < ax.bbox.x0 or left + width > ax.bbox.x1:
            continue
        places = [
            (
                float(step),
                rectangle(left, ax.bbox.y0 + (5 + 8 * step) * pixel, left + width, ax.bbox.y0 + (5 + 8 * step) * pixel + height),
                step,
            )
            for step in range(20)
        ]
        step, _ = canvas.place(places)
        at_x, at_y = back((left, ax.bbox.y0 + (5 + 8 * step) * pixel))
        ax.text(at_x, at_y, words, fontsize=style.SMALL, color=colour, style="italic",
                ha="left", va="bottom", zorder=1, gid=f"region {words}")  # fmt: skip


# -- legend, footer, size -------------------------------------------------------------------------------------------------


def _handles(shown: Picture, markers: dict[str, str], numbered: bool) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D

    def handle(marker: str, colour: str, hollow: bool = False) -> Any:
        face, edge = ("white", colour) if hollow else (colour, "white")
        return Line2D(
            [],
            [],
            linestyle="none",
            marker=marker,
            markersize=6,
            markerfacecolor=face,
            markeredgecolor=edge,
            markeredgewidth=1.2 if hollow else 0.6,
        )

    if numbered:
        handles = [
            handle(markers[p.measurement.operator], style.dtype_colour(p.measurement.dtype), p.implausible) for p in shown.points
        ]
        return handles, [f"{index}  {p.name}  {p.shares}".rstrip() for index, p in enumerate(shown.points, start=1)]
    pairs = dict.fromkeys((p.measurement.operator, p.measurement.dtype) for p in shown.points)
    return [handle(markers[o], style.dtype_colour(d)) for o, d in pairs], [f"{o} {d}".strip() for o, d in pairs]


def _legend(ax: Axes, handles: list[Any], names: list[str], *, outside: bool) -> Any:
    if not handles:
        return None
    place: dict[str, Any] = {"loc": "upper left"}
    if outside:
        share = GAP / (ax.bbox.width / ax.figure.dpi)
        place |= {"bbox_to_anchor": (1 + share, 1.0), "borderaxespad": 0.0}
    spacing = 0.35 if len(names) <= 24 else 0.15
    return ax.legend(handles, names, fontsize=style.TINY, labelspacing=spacing, handletextpad=0.4, handlelength=1.2, **place)


def _footer(machine: Machine, shown: Picture, columns: int) -> list[str]:
    """Device, date and clock; then the notes, wrapped."""
    clocks = sorted({c.clock_hz for c in machine.ceilings if c.clock_hz})
    between = f"{fmt_si(clocks[0], 'Hz')} to " if clocks and clocks[-1] / clocks[0] > 1 + SPREAD else ""
    threads = max((c.threads for c in machine.ceilings), default=0)
    states = sorted({p.measurement.cache_state for p in shown.points})
    facts = (
        f"{machine.name} ({machine.device})",
        f"{threads} threads" if threads else "",
        machine.created_utc.replace("T", " ")[:16] + " UTC" if machine.created_utc else "",
        f"clock {between}{fmt_si(clocks[-1], 'Hz')}" if clocks else "",
        f"points measured {' and '.join(states)}" if states else "",
    )
    lines = ["  ·  ".join(fact for fact in facts if fact)]
    if shown.points and any(p.tick is not None for p in shown.points):
        lines.append("ticks and percentages: the roof measured directly around each point")
    return [part for line in [*lines, *shown.notes] for part in textwrap.wrap(line, columns, subsequent_indent="    ")]


def _fit(figure: Figure, ax: Axes, notes: int, legend_inches: float) -> None:
    """Size a figure of our own around axes of a fixed size, so that legend and notes are inside it."""
    bottom = BOTTOM + notes * LINE
    width = LEFT + WIDTH + max(RIGHT, legend_inches + GAP + 0.1 if legend_inches else 0)
    height = TOP + HEIGHT + bottom
    figure.set_size_inches(width, height)
    ax.set_position((LEFT / width, bottom / height, WIDTH / width, HEIGHT / height))


def _frame(ax: Axes, shown: Picture, machine: Machine) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(*shown.x_limits)
    ax.set_ylim(*shown.y_limits)
    top = max([r.rate for r in shown.roofs if not r.memory] or [p.y for p in shown.points] or [shown.y_limits[1]])
    factor, prefix = si_prefix(top)
    ax.set_xlabel("Arithmetic intensity [FLOP/byte]")
    ax.set_ylabel(f"Performance [{prefix}FLOP/s]")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: fmt_number(value, 1)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: fmt_number(value / factor, 1)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(LogLocator(subs=tuple(range(2, 10)), numticks=12))
        axis.set_minor_formatter(NullFormatter())
    ax.tick_params(which="both", direction="out", length=2.5)
    ax.tick_params(which="major", length=4)
    ax.grid(True, which="major", color="#D9DBDE", linewidth=0.5, zorder=0)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(f"Roofline of {machine.name}", loc="left", fontsize=10.5, fontweight="bold", pad=8)


def draw(machine: Machine, measurements: Iterable[Measurement] | None, ax: Axes, *, dtype: str | None, fit: bool) -> Axes:
    """Draw on `ax`; `fit`: size its figure, which is ours, around the legend and the notes."""
    from matplotlib import rc_context
    from matplotlib.transforms import ScaledTranslation

    given = list(measurements or ())
    shown = picture(machine, given, dtype=dtype)
    numbered = len(shown.points) > NAMED
    if numbered:
        shown = picture(machine, given, dtype=dtype, numbered=True)
    markers = style.markers(p.measurement.operator for p in shown.points)
    figure: Any = ax.figure
    with rc_context(dict(style.RC)):
        _frame(ax, shown, machine)
        _draw_roofs(ax, shown)
        _draw_points(ax, shown, markers)
        columns = int((WIDTH if fit else ax.bbox.width / figure.dpi) * 72 / (style.TINY * 0.5))
        footer = _footer(machine, shown, columns)
        handles, names = _handles(shown, markers, numbered)
        outside = len(names) > NAMED
        if fit:
            _fit(figure, ax, len(footer), 0.0)
        legend = _legend(ax, handles, names, outside=outside)
        if fit and outside:
            box = legend.get_window_extent()
            _fit(figure, ax, len(footer), HINTED * box.width / figure.dpi)
            legend = _legend(ax, handles, names, outside=True)
        elif not fit:
            figure.figure.draw_without_rendering()  # a layout engine moves the axes only when it draws
        below = ScaledTranslation(0, -0.46, figure.dpi_scale_trans)
        ax.text(0, 0, "\n".join(footer), transform=ax.transAxes + below, fontsize=style.TINY, color=style.MUTED,
                ha="left", va="top", linespacing=1.25, gid="footer")  # fmt: skip

        canvas = _canvas(ax, shown)
        if legend is not None and not outside:
            box = legend.get_window_extent()
            canvas.add_label(rectangle(box.x0, box.y0, box.x1, box.y1))
        _label_flats(ax, shown, canvas)
        _label_slopes(ax, shown, canvas)
        for x, y in shown.ridges:
            _label_around(ax, canvas, (x, y), fmt_number(x, 3), size=style.TINY, colour=style.MUTED, gid="ridge")
        _label_points(ax, shown, canvas, numbered)
        _label_regions(ax, shown, canvas)
    return ax


def roofline(
    machine: Machine, measurements: Iterable[Measurement] | None = None, *, ax: Axes | None = None, dtype: str | None = None
) -> Axes:
    """A roofline plot: performance over arithmetic intensity, the machine's ceilings, and how near measurements come to them.

    Log-log; data coordinates are FLOP/byte and FLOP/s. One sloped line per memory level, one flat line per dtype and
    instruction set, theoretical ones dashed, bimodal ones once per mode, ridge points marked. A measurement's marker is
    its operator, its colour its dtype; the dotted gap runs up to a tick at the roof measured around it. Implausible
    points are hollow. With more than eight points numbers stand at the points and the legend names them.

    ax: None makes a new figure. dtype: only its roofs and measurements. Returns the Axes; shows nothing and changes no
    global setting. Raises Error where the machine has no ceilings to draw or matplotlib is missing.
    """
    _import()
    if ax is not None:
        return draw(machine, measurements, ax, dtype=dtype, fit=False)
    from matplotlib import pyplot, rc_context

    picture(machine, (), dtype=dtype)  # a bad machine raises before a figure exists
    with rc_context(dict(style.RC)):
        made = pyplot.figure().add_subplot()
    return draw(machine, measurements, made, dtype=dtype, fit=True)
