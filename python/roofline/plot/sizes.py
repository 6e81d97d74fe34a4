"""Bandwidth over working-set size: what was measured, the plateaus found in it, and where the caches are said to end."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._repr import printable
from ..errors import Error
from ..machine import Given, Machine, Plateau, SizeCurve, bars_name, curve_capacity, machine_of
from ..units import fmt_bytes
from . import style
from .frame import WIDTH, fit_figure, frame, machine_line, new_axes, wrapped, write_footer
from .labels import Canvas, rectangle
from .lettering import extent, halo, import_matplotlib
from .show import retitled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))  # by number of threads, most first
TICKS = 10  # labelled sizes at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A whole plot as data: curves with their plateaus, cache sizes (level, bytes), notes, and the limits."""

    curves: tuple[tuple[SizeCurve, tuple[Plateau, ...]], ...]
    caches: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]
    x_limits: tuple[float, float]
    y_limits: tuple[float, float]


def picture(machine: Machine, *, access: str | None = None, threads: int | None = None) -> Shown:
    """All that is drawn. Raises Error where there is no such curve."""
    curves = [c for c in machine.curves if access in (None, c.access) and threads in (None, c.threads)]
    if not curves:
        present = "; ".join(c.name for c in machine.curves) or "none"
        raise Error(f"{machine.name} has no size curve to draw there (measured: {present})")
    sizes = [p.size_bytes for c in curves for p in c.points]
    values = [v for c in curves for p in c.points for v in (p.summary.low, p.summary.high)]
    x_limits = min(sizes) / 1.5, max(sizes) * 1.7
    most = max(c.threads for c in curves)
    capacities = [(level, curve_capacity(machine.facts, level, most or None)) for level in ("L1", "L2", "L3")]
    caches = tuple((level, size) for level, size in capacities if x_limits[0] < size < x_limits[1])
    said = [(c.name, note) for c in curves for note in c.findings(machine.facts)]
    said += [(c.name, c.status + (f": {c.reason}" if c.reason else "")) for c in curves if c.status != "ok"]
    grouped: dict[str, list[str]] = {}
    for name, words in said:
        grouped.setdefault(words, []).append(name)
    notes = [f"{'; '.join(names)}: {words}" for words, names in grouped.items()]
    if caches:
        over = f" over {most} threads" if most > 1 else ""
        notes.insert(
            0,
            f"thin verticals: cache sizes as reported{over}; bars: plateaus found in the curve; points with "
            f"{bars_name(p.summary for c in curves for p in c.points)}",
        )
    bottom, top = min(values) / 1.5, max(values)
    return Shown(
        curves=tuple((c, c.plateaus(machine.facts)) for c in curves),
        caches=caches,
        notes=tuple(notes),
        x_limits=x_limits,
        y_limits=(bottom, top * (top / bottom) ** 0.13),
    )


def size_curve_data(machine: Given, *, access: str | None = None, threads: int | None = None) -> list[dict[str, Any]]:
    """Everything `size_curve` draws as flat records, all with the same keys.

    element: "point", "plateau" (size_bytes to to_bytes), "cache" (its reported size), "note". low, high: 95 % intervals of
    bytes_per_s. Raises Error as `size_curve` does.
    """
    machine = machine_of(machine)
    shown = picture(machine, access=access, threads=threads)
    keys = (
        "element", "label", "level", "access", "variant", "isa", "threads", "size_bytes", "to_bytes", "bytes_per_s", "low", "high",
        "status",
    )  # fmt: skip
    empty: dict[str, Any] = dict.fromkeys(keys)
    records: list[dict[str, Any]] = []
    for c, plateaus in shown.curves:
        what = {"label": c.name, "access": c.access, "variant": c.variant or None, "isa": c.isa or None, "threads": c.threads}
        own = {**empty, **what, "status": c.status}
        for p in c.points:
            s = p.summary
            where = {"size_bytes": p.size_bytes, "bytes_per_s": s.median, "low": s.low, "high": s.high}
            records.append({**own, "element": "point", **where})
        for plateau in plateaus:
            ends = {"size_bytes": plateau.from_bytes, "to_bytes": plateau.to_bytes}
            values = {"bytes_per_s": plateau.value, "low": plateau.low, "high": plateau.high}
            records.append({**own, "element": "plateau", "level": plateau.level, **ends, **values})
    records += [{**empty, "element": "cache", "label": level, "level": level, "size_bytes": size} for level, size in shown.caches]
    return records + [{**empty, "element": "note", "label": note} for note in shown.notes]


# -- drawing ------------------------------------------------------------------------------------------------------------------


def _looks(curves: list[SizeCurve]) -> list[tuple[str, Any, str]]:
    """Colour, dashes and marker of each: by access, threads, and variant."""
    counts = sorted({c.threads for c in curves}, reverse=True)
    found = []
    for c in curves:
        plain = c.variant != "non_temporal"
        dashes = LINES[counts.index(c.threads) % len(LINES)]
        found.append((style.ACCESS_COLOURS[c.access], dashes, style.ACCESS_MARKERS[c.access] if plain else "x"))
    return found


def _size_ticks(ax: Axes, limits: tuple[float, float]) -> None:
    """Powers of two, as few as fit."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    first, last = math.ceil(math.log2(limits[0])), math.floor(math.log2(limits[1]))
    step = next(step for step in (1, 2, 4, 5, 10) if (last - first) // step < TICKS or step == 10)
    ax.xaxis.set_major_locator(FixedLocator([2.0**k for k in range(-(-first // step) * step, last + 1, step)]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: fmt_bytes(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _draw_curves(ax: Axes, shown: Shown, looks: list[tuple[str, Any, str]]) -> None:
    for _, size in shown.caches:
        ax.plot([size, size], shown.y_limits, color=style.MUTED, linewidth=0.6, linestyle=(0, (2, 2)), zorder=1.5,
                label="_cache", gid="cache")  # fmt: skip
    for index, ((c, plateaus), (colour, dashes, marker)) in enumerate(zip(shown.curves, looks, strict=True), start=1):
        summaries = [p.summary for p in c.points]
        x, y = [p.size_bytes for p in c.points], [s.median for s in summaries]
        bars = [[s.median - s.low for s in summaries], [s.high - s.median for s in summaries]]
        ax.errorbar(x, y, yerr=bars, fmt="none", ecolor=colour, elinewidth=0.8, capsize=1.4, zorder=3.0, label="_interval")
        ax.plot(x, y, color=colour, linestyle=dashes, linewidth=0.9, marker=marker, markersize=2.8, zorder=3.1,
                label=f"_{c.name}", gid=f"curve {index}")  # fmt: skip
        for p in plateaus:
            ax.plot([p.from_bytes, p.to_bytes], [p.value] * 2, color=colour, linewidth=5, alpha=0.32, solid_capstyle="round",
                    zorder=2.6, label="_plateau", gid=f"plateau {index}")  # fmt: skip


def _beside(
    ax: Axes, canvas: Canvas, ends: tuple[float, float], y: float, words: str, colour: str, gid: str, shares: tuple[float, ...]
) -> None:
    """Words above a flat run of sizes, or below it, or further off; shares: where their middle is along it, best first."""
    pixel = ax.figure.dpi / 72
    to, back = ax.transData.transform, ax.transData.inverted().transform
    width, height = extent(ax, words, style.TINY)
    (x0, at_y), (x1, _) = to((ends[0], y)), to((ends[1], y))
    places = []
    for gap, (order, share) in itertools.product((5, 9, 14, 20, 28, 38, 50), enumerate(shares)):
        left = min(max(x0 + (x1 - x0) * share - width / 2, ax.bbox.x0 + 4 * pixel), ax.bbox.x1 - width - 4 * pixel)
        for worse, low in ((0.0, at_y + gap * pixel), (0.8, at_y - gap * pixel - height)):
            box = rectangle(left - pixel, low - pixel, left + width + pixel, low + height + pixel)
            places.append((0.2 * gap + worse + 0.3 * order, box, (left, low)))
    at, _ = canvas.place(sorted(places, key=lambda place: place[0]))
    x, y = back(at)
    ax.text(x, y, printable(words), fontsize=style.TINY, color=colour, ha="left", va="bottom", zorder=5, path_effects=halo(),
            gid=gid)  # fmt: skip


def _write(ax: Axes, shown: Shown, looks: list[tuple[str, Any, str]]) -> None:
    box, pixel = ax.bbox, ax.figure.dpi / 72
    to, back = ax.transData.transform, ax.transData.inverted().transform
    canvas = Canvas(rectangle(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2))
    for _, size in shown.caches:
        canvas.add_line(to((size, shown.y_limits[0])), to((size, shown.y_limits[1])))
    for c, plateaus in shown.curves:
        corners = [to((p.size_bytes, p.summary.median)) for p in c.points]
        canvas.add_markers(corners, 2.5 * pixel)
        for start, end in itertools.pairwise(corners):
            canvas.add_line(start, end)
        for p in plateaus:
            canvas.add_line(to((p.from_bytes, p.value)), to((p.to_bytes, p.value)))
    for level, size in shown.caches:  # at the top, left of its line
        words = f"{level} {fmt_bytes(size)}"
        width, height = extent(ax, words, style.TINY)
        places = []
        for step in range(6):
            for worse, left in ((0.0, to((size, 1.0))[0] - width - 3 * pixel), (0.5, to((size, 1.0))[0] + 3 * pixel)):
                low = box.y1 - (4 + 11 * step) * pixel - height
                places.append((step + worse, rectangle(left, low, left + width, low + height), (left, low)))
        at, _ = canvas.place(sorted(places, key=lambda place: place[0]))
        x, y = back(at)
        ax.text(x, y, printable(words), fontsize=style.TINY, color=style.MUTED, ha="left", va="bottom", zorder=5,
                path_effects=halo(),
                gid="cache")  # fmt: skip
    for index, ((c, plateaus), (colour, _, _)) in enumerate(zip(shown.curves, looks, strict=True), start=1):
        first = plateaus[0] if plateaus else None
        ends = c.points[0].size_bytes, first.to_bytes if first else c.points[-1].size_bytes
        y = first.value if first else c.points[0].summary.median
        _beside(ax, canvas, ends, y, c.name, colour, f"name {index}", (0.0, 0.25, 0.5, 1.0))
    for (_, plateaus), (colour, _, _) in zip(shown.curves, looks, strict=True):
        for p in plateaus:
            _beside(ax, canvas, (p.from_bytes, p.to_bytes), p.value, p.label, colour, "plateau", (0.5, 0.75, 0.25, 1.0, 0.0))


def draw(machine: Machine, shown: Shown, ax: Axes, *, fit: bool) -> Axes:
    """Draw on `ax`; `fit`: size its figure, which is ours, around the notes."""
    from matplotlib import rc_context

    figure: Any = ax.figure
    looks = _looks([c for c, _ in shown.curves])
    with rc_context(dict(style.RC)):
        title = f"Bandwidth over working-set size, {machine.name}"
        middle = math.sqrt(shown.y_limits[0] * shown.y_limits[1])
        frame(ax, title, "Working set of all threads", "Bandwidth [B/s]", shown.x_limits, shown.y_limits, middle)
        _size_ticks(ax, shown.x_limits)
        _draw_curves(ax, shown, looks)
        footer = wrapped([machine_line(machine), *shown.notes], WIDTH if fit else ax.bbox.width / figure.dpi)
        if fit:
            fit_figure(figure, ax, len(footer))
        else:
            figure.figure.draw_without_rendering()  # a layout engine moves the axes only when it draws
        write_footer(ax, footer)
        _write(ax, shown, looks)
    return ax


def size_curve(
    machine: Given, *, ax: Axes | None = None, title: str | None = None, access: str | None = None, threads: int | None = None
) -> Axes:
    """Bandwidth of `machine` over the size of the working set, per access and number of threads.

    Log-log; data coordinates are bytes (of all threads together) and bytes/s. Plateaus that `SizeCurve.plateaus` finds are
    bars with their values, reported cache sizes thin verticals. access, threads: only these.

    ax: None makes a new figure. Returns the Axes; shows nothing and changes no global setting. Raises Error where the
    machine has no such curve or matplotlib is missing.
    """
    machine = machine_of(machine)
    import_matplotlib()
    shown = picture(machine, access=access, threads=threads)
    if ax is not None:
        return retitled(draw(machine, shown, ax, fit=False), title)
    made = new_axes()
    return retitled(draw(machine, shown, made, fit=True), title)
