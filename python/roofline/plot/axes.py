"""Draws a roofline on Axes. matplotlib is imported only when something is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .._repr import printable
from ..dtypes import dtype_name
from ..machine import Given, Machine, machine_of
from ..results import Measurement
from ..units import fmt_number
from . import style
from .data import Picture, Point, Roof, picture
from .frame import GAP, SPREAD, WIDTH, fit_figure, frame, machine_line, new_axes, wrapped, write_footer
from .given import Points, own_points
from .labels import Canvas, rectangle
from .lettering import extent, import_matplotlib, label_around, label_flat, label_slope

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 8  # with more points, numbers stand at the points and the legend names them
HINTED = 1.06  # letters are rounded to pixels: the same text is up to this much wider in a coarser picture


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
        if (m := p.measurement) is not None:
            groups.setdefault((m.operator, m.variant, m.dtype, m.device, m.threads, m.cache_state), []).append(p)
    for members in groups.values():
        problems = [p.measurement.problem for p in members if p.measurement is not None]
        varying = [name for name in problems[0] if any(problem.get(name) != problems[0][name] for problem in problems)]
        # seq_len sweeps change both sequence lengths together.
        if len(members) >= 3 and varying and (len(varying) == 1 or set(varying) == {"seq_q", "seq_kv"}):
            yield members


def _draw_points(ax: Axes, shown: Picture, markers: dict[str, str]) -> None:
    for members in _sweeps(shown.points):
        colour = style.dtype_colour(members[0].dtype)
        ax.plot([p.x for p in members], [p.y for p in members], color=colour, linewidth=0.7, alpha=0.45, zorder=2.8, label="_sweep")
    for index, p in enumerate(shown.points, start=1):
        colour = style.dtype_colour(p.dtype)
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
        ax.plot([p.x], [p.y], linestyle="none", marker=markers[p.kind], markersize=6.5, zorder=4,
                markerfacecolor="white" if hollow else colour, markeredgecolor=colour if hollow else "white",
                markeredgewidth=1.4 if hollow else 0.7, label=f"_point {p.name}", gid=f"point {index}")  # fmt: skip


# -- labels ---------------------------------------------------------------------------------------------------------------


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


def _label_points(ax: Axes, shown: Picture, canvas: Canvas, numbered: bool) -> None:
    for index, p in enumerate(shown.points, start=1):
        words = str(index) if numbered else f"{p.name}  {p.shares}".rstrip()
        label_around(ax, canvas, (p.x, p.y), words, size=style.TINY, colour=style.INK, gid=f"name {index}", bold=numbered)


def _label_regions(ax: Axes, shown: Picture, canvas: Canvas) -> None:
    if shown.elbow is None:
        return
    to, back, pixel = ax.transData.transform, ax.transData.inverted().transform, ax.figure.dpi / 72
    split = to(shown.elbow)[0]
    for words, x, colour in (("memory-bound", split - 8 * pixel, style.BLUE), ("compute-bound", split + 8 * pixel, "#9A6A00")):
        width, height = extent(ax, words, style.SMALL)
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
        ax.text(at_x, at_y, printable(words), fontsize=style.SMALL, color=colour, style="italic",
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
        handles = [handle(markers[p.kind], style.dtype_colour(p.dtype), p.implausible) for p in shown.points]
        return handles, [f"{index}  {p.name}  {p.shares}".rstrip() for index, p in enumerate(shown.points, start=1)]
    pairs = dict.fromkeys((p.kind, p.dtype) for p in shown.points)
    return [handle(markers[o], style.dtype_colour(d)) for o, d in pairs], [f"{o} {d}".strip() for o, d in pairs]


def _legend(ax: Axes, handles: list[Any], names: list[str], *, outside: bool) -> Any:
    if not handles:
        return None
    place: dict[str, Any] = {"loc": "upper left"}
    if outside:
        share = GAP / (ax.bbox.width / ax.figure.dpi)
        place |= {"bbox_to_anchor": (1 + share, 1.0), "borderaxespad": 0.0}
    spacing = 0.35 if len(names) <= 24 else 0.15
    names = [*map(printable, names)]
    return ax.legend(handles, names, fontsize=style.TINY, labelspacing=spacing, handletextpad=0.4, handlelength=1.2, **place)


def _footer(machine: Machine, shown: Picture) -> list[str]:
    """Device, date and clock; then the notes."""
    states = sorted({p.measurement.cache_state for p in shown.points if p.measurement is not None})
    lines = [machine_line(machine, f"points measured {' and '.join(states)}" if states else "")]
    if shown.points and any(p.tick is not None for p in shown.points):
        lines.append("ticks and percentages: the roof measured directly around each point")
    return [*lines, *shown.notes]


def _frame(ax: Axes, shown: Picture, machine: Machine, title: str | None) -> None:
    top = max([r.rate for r in shown.roofs if not r.memory] or [p.y for p in shown.points] or [shown.y_limits[1]])
    limits = shown.x_limits, shown.y_limits
    frame(
        ax,
        f"Roofline of {machine.name}" if title is None else title,
        "Arithmetic intensity [FLOP/byte]",
        "Performance [FLOP/s]",
        *limits,
        top,
    )


def _label_roofs(ax: Axes, shown: Picture, canvas: Canvas) -> None:
    for memory, write in ((False, label_flat), (True, label_slope)):
        for roof in (r for r in shown.roofs if r.memory == memory):
            ends = (roof.x_from, roof.at(roof.x_from)), (roof.x_to, roof.at(roof.x_to))
            size = style.SMALL if roof.best else style.TINY
            write(ax, canvas, ends, roof.label, size=size, colour=_roof_style(roof)["color"])


def draw(
    machine: Machine,
    measurements: Iterable[Measurement] | None,
    ax: Axes,
    *,
    points: Points | None = None,
    dtype: str | None,
    title: str | None = None,
    fit: bool,
) -> Axes:
    """Draw on `ax`; `fit`: size its figure, which is ours, around the legend and the notes."""
    from matplotlib import rc_context

    given, own = list(measurements or ()), own_points(points)
    shown = picture(machine, given, points=own, dtype=dtype)
    numbered = len(shown.points) > NAMED
    if numbered:
        shown = picture(machine, given, points=own, dtype=dtype, numbered=True)
    markers = style.markers(p.kind for p in shown.points)
    figure: Any = ax.figure
    with rc_context(dict(style.RC)):
        _frame(ax, shown, machine, title)
        _draw_roofs(ax, shown)
        _draw_points(ax, shown, markers)
        footer = wrapped(_footer(machine, shown), WIDTH if fit else ax.bbox.width / figure.dpi)
        handles, names = _handles(shown, markers, numbered)
        outside = len(names) > NAMED
        if fit:
            fit_figure(figure, ax, len(footer))
        legend = _legend(ax, handles, names, outside=outside)
        if fit and outside:
            box = legend.get_window_extent()
            fit_figure(figure, ax, len(footer), HINTED * box.width / figure.dpi)
            legend = _legend(ax, handles, names, outside=True)
        elif not fit:
            figure.figure.draw_without_rendering()  # a layout engine moves the axes only when it draws
        write_footer(ax, footer)

        canvas = _canvas(ax, shown)
        if legend is not None and not outside:
            box = legend.get_window_extent()
            canvas.add_label(rectangle(box.x0, box.y0, box.x1, box.y1))
        _label_roofs(ax, shown, canvas)
        for x, y in shown.ridges:
            label_around(ax, canvas, (x, y), fmt_number(x, 3), size=style.TINY, colour=style.MUTED, gid="ridge")
        _label_points(ax, shown, canvas, numbered)
        _label_regions(ax, shown, canvas)
    return ax


def roofline(
    machine: Given,
    measurements: Iterable[Measurement] | None = None,
    *,
    points: Points | None = None,
    ax: Axes | None = None,
    dtype: str | None = None,
    title: str | None = None,
) -> Axes:
    """A roofline plot: performance over arithmetic intensity, the machine's ceilings, and how near measurements come to them.

    Log-log; data coordinates are FLOP/byte and FLOP/s. One sloped line per memory level, one flat line per dtype and
    instruction set, theoretical ones dashed, bimodal ones once per mode, ridge points marked. A measurement's marker is
    its operator, its colour its dtype; the dotted gap runs up to a tick at the roof measured around it. Implausible
    points are hollow. With more than eight points numbers stand at the points and the legend names them.

    points: your own, as (name, FLOP/byte, FLOP/s) or (name, FLOP/byte, FLOP/s, dtype), as {name: (FLOP/byte, FLOP/s)}, or
    the path of a CSV or JSON file with columns name, flops_per_byte, flops_per_s and dtype; rates may be text such as
    "3.1 TFLOP/s". Each shows its share of what the machine's DRAM and its compute roof (of the point's dtype, else the
    highest) allow there.
    ax: None makes a new figure. dtype: only its roofs and points. title: another one. Returns the Axes; shows nothing and
    changes no global setting. Raises Error where the machine has no ceilings to draw or matplotlib is missing.
    """
    machine, dtype = machine_of(machine), None if dtype is None else dtype_name(dtype)
    import_matplotlib()
    if ax is not None:
        return draw(machine, measurements, ax, points=points, dtype=dtype, title=title, fit=False)
    own = own_points(points)
    picture(machine, (), points=own, dtype=dtype)  # a bad machine or point raises before a figure exists
    return draw(machine, measurements, new_axes(), points=own, dtype=dtype, title=title, fit=True)
