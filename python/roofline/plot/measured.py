"""The measured roofline: a mixed-intensity sweep per memory level, its fit and knee, and the ceilings it should approach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._repr import printable
from ..errors import Error
from ..machine import Ceiling, EmpiricalRoofline, Fit, Given, Machine, bars_name, fmt_p, machine_of
from ..units import fmt_number, fmt_percent, fmt_si, si_prefix
from . import style
from .frame import WIDTH, fit_figure, frame, machine_line, new_axes, wrapped, write_footer
from .labels import Canvas, rectangle
from .lettering import Ends, extent, halo, import_matplotlib, label_around, label_flat, label_slope
from .show import retitled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAPS = (2.0, 4.0, 6.0, 8.0, 11.0, 15.0, 20.0, 28.0)  # points: measured points stand on the lines that are labelled
THROTTLED = 0.97  # of the reference clock: below it the curve at the clock of each point is drawn too
CURVE = 160  # points of a fitted curve
STYLES = {"measured": ("-", 1.0), "theoretical": ((0, (5, 3)), 0.8), "sustained": ((0, (6, 1.5, 1, 1.5)), 1.2)}
KEPT = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A roof that is not fitted. rate: bytes/s where `slope`, else FLOP/s. kind: a key of STYLES."""

    kind: str
    label: str
    rate: float
    slope: bool
    colour: str
    x_from: float = 0.0
    x_to: float = 0.0

    @property
    def ends(self) -> Ends:
        return tuple((x, self.rate * x if self.slope else self.rate) for x in (self.x_from, self.x_to))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A whole plot as data: sweeps with their fits (None: too few points), roofs, notes, and the limits."""

    sweeps: tuple[tuple[EmpiricalRoofline, Fit | None], ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    x_limits: tuple[float, float]
    y_limits: tuple[float, float]


def _fit(sweep: EmpiricalRoofline) -> Fit | None:
    try:
        return sweep.fit
    except Error:
        return None


def _chosen(
    machine: Machine, level: str | None, dtype: str | None, threads: int | None
) -> tuple[list[EmpiricalRoofline], list[str]]:
    """The sweeps of one dtype and number of threads, and notes on the others. Raises Error where there are none."""
    found = [e for e in machine.empirical if level in (None, e.level)]
    dtypes = list(dict.fromkeys(e.dtype for e in found))
    dtype = dtype or ("fp32" if "fp32" in dtypes else next(iter(dtypes), ""))
    chosen = [e for e in found if e.dtype == dtype]
    threads = max((e.threads for e in chosen), default=0) if threads is None else threads
    chosen = [e for e in chosen if e.threads == threads]
    if not chosen:
        present = "; ".join(f"{e.name} with {e.threads} threads" for e in machine.empirical) or "none"
        raise Error(f"{machine.name} has no mixed-intensity sweep to draw there (measured: {present})")
    others = [e for e in found if e not in chosen]
    listed = dict.fromkeys(f"{e.dtype} with {e.threads} threads" for e in others)
    return chosen, [f"not shown: {len(others)} more, of {', '.join(listed)}"] if others else []


def _theory(c: Ceiling) -> Line | None:
    """What the instructions of a ceiling allow at the clock it was measured at."""
    if not c.ops_per_cycle or not c.clock_hz:
        return None
    threads = max(c.threads, 1)
    rate = c.ops_per_cycle * c.clock_hz * threads
    each = f"{c.ops_per_cycle:g} FLOP/cycle × {threads} × {fmt_si(c.clock_hz, 'Hz')}"
    return Line(kind="theoretical", label=f"{each} = {fmt_si(rate, 'FLOP/s')}", rate=rate, slope=False, colour=style.MUTED)


def _lines(machine: Machine, sweeps: Iterable[EmpiricalRoofline]) -> list[Line]:
    """Measured ceilings, theory and sustained levels, each once."""
    found: list[Line] = []
    sheets = [c for c in machine.ceilings if c.source == "datasheet" and c.is_roof]
    for e in sweeps:
        colour = style.SWEEP_COLOURS[e.level]
        memory, compute = e.peers(machine.ceilings)
        if memory is not None:
            found.append(Line(kind="measured", label=memory.label, rate=memory.value, slope=True, colour=colour))
        if compute is not None:
            found.append(Line(kind="measured", label=compute.label, rate=compute.value, slope=False, colour=style.INK))
            if theory := _theory(compute):
                found.append(theory)
        burst, arithmetic = e.burst_flops_per_s, f"{e.dtype} {e.isa}".strip()
        if compute is None and burst:
            label = f"{arithmetic} burst {fmt_si(burst, 'FLOP/s')}"
            found.append(Line(kind="measured", label=label, rate=burst, slope=False, colour=style.INK))
        long = e.sustained_flops_per_s
        reference = burst or (compute.value if compute else None)
        if long:
            share = f", {fmt_percent(long / reference, 2)} of burst" if reference else ""
            label = f"{arithmetic} sustained {fmt_si(long, 'FLOP/s')}{share}"
            found.append(Line(kind="sustained", label=label, rate=long, slope=False, colour=style.SUSTAINED))
        for c in sheets:
            if (c.kind, c.level) == ("bandwidth", e.level) or (c.kind, c.dtype, c.unit) == ("compute", e.dtype, "core"):
                slope, label = c.kind == "bandwidth", f"{c.label} (datasheet)"
                found.append(Line(kind="theoretical", label=label, rate=c.value, slope=slope, colour=style.MUTED))
    return list({line.label: line for line in found}.values())


def _stated(e: EmpiricalRoofline, fit: Fit) -> str:
    """The fit in a line: parameters with 95 % intervals, and how well it describes the points."""
    parts = []
    for name, found, unit in (("β", fit.bandwidth, "B/s"), ("π", fit.peak, "FLOP/s")):
        if found is not None:
            factor, prefix = si_prefix(found.value)
            value, low, high = (fmt_number(v / factor) for v in (found.value, found.low, found.high))
            parts.append(f"{name} {value} [{low}, {high}] {prefix}{unit}")
    residuals = f"residual {fmt_percent(fit.median_residual, 2)} median, {fmt_percent(fit.max_residual, 2)} at most"
    return f"{e.name}: {', '.join([*parts, fit.text.replace('p = ', f'p{KEPT}={KEPT}'), residuals])}"


def picture(machine: Machine, *, level: str | None = None, dtype: str | None = None, threads: int | None = None) -> Shown:
    """All that is drawn. Raises Error where there is no such sweep."""
    sweeps, notes = _chosen(machine, level, dtype, threads)
    pairs = tuple((e, _fit(e)) for e in sweeps)
    lines = _lines(machine, sweeps)
    xs = [p.intensity_flops_per_byte for e in sweeps for p in e.points]
    ys = [value for e in sweeps for p in e.points for value in (p.summary.low, p.summary.high)]
    flat = [line.rate for line in lines if not line.slope]
    top = max([*flat, *(fit.peak.value for _, fit in pairs if fit and fit.peak)] or [max(ys)])
    fastest = max((line.rate for line in lines if line.slope), default=None)
    knees = sum(fit is not None and fit.knee is not None for _, fit in pairs)
    bottom, highest = min(ys) / 2, max(top, *ys)
    # A row above the roofs for each knee's label: about 13 of the 324 points that the axes are high.
    y_limits = bottom, highest * (highest / bottom) ** (0.04 * (knees + 2.5))
    x_limits = min(xs) / 1.6, max(xs) * 1.6
    placed = []
    for line in lines:
        if line.slope:
            ends = max(x_limits[0], y_limits[0] / line.rate), min(top / line.rate, x_limits[1])
        else:
            ends = max(line.rate / fastest, x_limits[0]) if fastest else x_limits[0], x_limits[1]
        if ends[0] < ends[1]:
            fields = {"kind": line.kind, "label": line.label, "rate": line.rate, "slope": line.slope, "colour": line.colour}
            placed.append(Line(**fields, x_from=ends[0], x_to=ends[1]))  # type: ignore[arg-type]
    stated = [_stated(e, fit) for e, fit in pairs if fit]
    said = [note for e in sweeps for note in e.notes(machine.ceilings)]
    return Shown(sweeps=pairs, lines=tuple(placed), notes=(*stated, *said, *notes), x_limits=x_limits, y_limits=y_limits)


def _curve(e: EmpiricalRoofline, fit: Fit) -> tuple[Any, Any]:
    """Intensities and fitted FLOP/s at the reference clock, over the sweep and through the knee itself."""
    xs = [p.intensity_flops_per_byte for p in e.points]
    grid = np.geomspace(min(xs), max(xs), CURVE)
    if fit.knee is not None and min(xs) < fit.knee.value < max(xs):
        grid = np.union1d(grid, [fit.knee.value])
    return grid, fit.at(grid)


def _at_clocks(e: EmpiricalRoofline, fit: Fit) -> list[tuple[float, float]]:
    """Intensity and fitted FLOP/s at the clock of each point, by intensity; nothing where the clock stays."""
    found = sorted((p.intensity_flops_per_byte, p.clock_hz or fit.clock_hz) for p in e.points)
    if fit.clock_hz is None or min(clock or fit.clock_hz for _, clock in found) >= THROTTLED * fit.clock_hz:
        return []
    return [(x, float(fit.at(x, clock))) for x, clock in found]


def empirical_data(
    machine: Given, *, level: str | None = None, dtype: str | None = None, threads: int | None = None
) -> list[dict[str, Any]]:
    """Everything `empirical` draws as flat records, all with the same keys.

    element: "point" (low, high: 95 % interval of flops_per_s), "fit" (the curve), "fit_at_clock" (where clocks fell), "knee"
    (low, high: of flops_per_byte), "parameter" (low, high: of value; label: "bandwidth", "peak", "p", "knee_efficiency"; an
    infinite p is empty), "measured_roof", "theoretical_roof" and "sustained_roof" (two records: the ends of a line),
    "sustained" (the load over time), "note".
    Raises Error as `empirical` does.
    """
    machine = machine_of(machine)
    shown = picture(machine, level=level, dtype=dtype, threads=threads)
    keys = (
        "element", "label", "level", "access", "dtype", "isa", "threads", "flops_per_byte", "flops_per_s", "low", "high", "value",
        "time_s", "clock_hz",
    )  # fmt: skip
    empty: dict[str, Any] = dict.fromkeys(keys)
    records: list[dict[str, Any]] = []
    for e, fit in shown.sweeps:
        what = {"label": e.name, "level": e.level, "access": e.access, "dtype": e.dtype, "isa": e.isa or None, "threads": e.threads}
        own = {**empty, **what}
        for p in e.points:
            s = p.summary
            where = {"flops_per_byte": p.intensity_flops_per_byte, "flops_per_s": s.median, "low": s.low, "high": s.high}
            records.append({**own, "element": "point", **where, "clock_hz": p.clock_hz})
        if fit is not None:
            curve = zip(*_curve(e, fit), strict=True)
            records += [{**own, "element": "fit", "flops_per_byte": float(x), "flops_per_s": float(y)} for x, y in curve]
            slow = _at_clocks(e, fit)
            records += [{**own, "element": "fit_at_clock", "flops_per_byte": x, "flops_per_s": y} for x, y in slow]
            if fit.knee is not None:
                where = {"flops_per_byte": fit.knee.value, "flops_per_s": float(fit.at(fit.knee.value))}
                records.append({**own, "element": "knee", **where, "low": fit.knee.low, "high": fit.knee.high})
            for name, found in (("bandwidth", fit.bandwidth), ("peak", fit.peak), ("p", fit.p)):
                if found is not None:
                    values = {key: v if np.isfinite(v) else None for key, v in zip(("value", "low", "high"),
                              (found.value, found.low, found.high), strict=True)}  # fmt: skip
                    records.append({**own, "element": "parameter", "label": name, **values, "clock_hz": fit.clock_hz})
            if fit.knee_efficiency is not None:
                records.append({**own, "element": "parameter", "label": "knee_efficiency", "value": fit.knee_efficiency})
        for sample in e.sustained:
            over = {"time_s": sample.time_s, "flops_per_s": sample.flops_per_s, "clock_hz": sample.clock_hz}
            records.append({**own, "element": "sustained", **over})
    for line in shown.lines:
        for x, y in line.ends:
            records.append({**empty, "element": f"{line.kind}_roof", "label": line.label, "flops_per_byte": x, "flops_per_s": y})
    return records + [{**empty, "element": "note", "label": note} for note in shown.notes]


# -- drawing ------------------------------------------------------------------------------------------------------------------


def _draw_lines(ax: Axes, shown: Shown) -> None:
    for line in shown.lines:
        (x0, y0), (x1, y1) = line.ends
        dashes, width = STYLES[line.kind]
        ax.plot([x0, x1], [y0, y1], color=line.colour, linestyle=dashes, linewidth=width, alpha=0.9, zorder=2.2,
                label=f"_{line.label}", gid=f"roof {line.label}", solid_capstyle="butt")  # fmt: skip


def _draw_sweeps(ax: Axes, shown: Shown) -> None:
    for index, (e, fit) in enumerate(shown.sweeps, start=1):
        colour = style.SWEEP_COLOURS[e.level]
        summaries = [p.summary for p in e.points]
        x, y = [p.intensity_flops_per_byte for p in e.points], [s.median for s in summaries]
        bars = [[s.median - s.low for s in summaries], [s.high - s.median for s in summaries]]
        ax.errorbar(x, y, yerr=bars, fmt="none", ecolor=colour, elinewidth=0.9, capsize=1.8, zorder=3.4, label="_interval")
        ax.plot(x, y, linestyle="none", marker=style.SWEEP_MARKERS[e.level], markersize=4.2, markerfacecolor="white",
                markeredgecolor=colour, markeredgewidth=1.0, zorder=3.5, label=f"_{e.name}", gid=f"points {index}")  # fmt: skip
        if fit is None or (fit.bandwidth is None and fit.peak is None):
            continue
        ax.plot(*_curve(e, fit), color=colour, linewidth=1.6, zorder=3.0, label=f"_fit {e.name}", gid=f"fit {index}")
        if slow := _at_clocks(e, fit):
            ax.plot(*zip(*slow, strict=True), color=colour, linewidth=1.2, linestyle=(0, (1, 1.2)), zorder=2.9,
                    label="_fit at clock", gid=f"fit at clock {index}")  # fmt: skip
        if fit.knee is not None:
            at = fit.knee.value, float(fit.at(fit.knee.value))
            around = [[fit.knee.value - fit.knee.low], [fit.knee.high - fit.knee.value]]
            ax.errorbar([at[0]], [at[1]], xerr=around, fmt="none", ecolor=style.INK, elinewidth=1.3, capsize=3, zorder=4.1,
                        label="_knee interval")  # fmt: skip
            ax.plot([at[0]], [at[1]], linestyle="none", marker="*", markersize=9, markerfacecolor=colour,
                    markeredgecolor=style.INK, markeredgewidth=0.7, zorder=4.2, label="_knee", gid=f"knee {index}")  # fmt: skip


def _canvas(ax: Axes, shown: Shown) -> Canvas:
    box, pixel = ax.bbox, ax.figure.dpi / 72
    canvas = Canvas(rectangle(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2))
    to = ax.transData.transform
    for line in shown.lines:
        canvas.add_line(to(line.ends[0]), to(line.ends[1]))
    for e, fit in shown.sweeps:
        canvas.add_markers([to((p.intensity_flops_per_byte, p.summary.median)) for p in e.points], 3.5 * pixel)
        if fit is not None:
            corners = to(np.column_stack(_curve(e, fit)))
            for start, end in zip(corners[:-1:8], corners[8::8], strict=False):
                canvas.add_line(start, end)
            if fit.knee is not None:
                canvas.add_markers([to((fit.knee.value, float(fit.at(fit.knee.value))))], 5 * pixel)
    return canvas


def _write(ax: Axes, shown: Shown, canvas: Canvas) -> None:
    for line in sorted(shown.lines, key=lambda found: (found.slope, list(STYLES).index(found.kind))):
        size = style.SMALL if line.kind == "measured" else style.TINY
        if line.slope:
            label_slope(ax, canvas, line.ends, line.label, size=size, colour=line.colour, gaps=GAPS[:5])
        else:
            sides = {"measured": ("above", "below"), "theoretical": ("above",), "sustained": ("below",)}[line.kind]
            label_flat(ax, canvas, line.ends, line.label, size=size, colour=line.colour, gaps=GAPS, sides=sides)
    for index, (e, fit) in enumerate(shown.sweeps, start=1):
        if fit is None or fit.knee is None:
            first = min(e.points, key=lambda p: p.intensity_flops_per_byte)
            at = first.intensity_flops_per_byte, first.summary.median
            words, colour = f"{e.level} {e.access}", style.SWEEP_COLOURS[e.level]
            label_around(ax, canvas, at, words, size=style.SMALL, colour=colour, gid=f"name {index}")


def _write_knees(ax: Axes, shown: Shown, canvas: Canvas) -> None:
    """Each knee's label up and to its left, in rows that rise to the right, so that no leader crosses a label."""
    pixel = ax.figure.dpi / 72
    to, back = ax.transData.transform, ax.transData.inverted().transform
    found = [
        (fit.knee, fit.p, e, float(fit.at(fit.knee.value)), i) for i, (e, fit) in enumerate(shown.sweeps, 1) if fit and fit.knee
    ]
    low = to((1.0, max([line.rate for line in shown.lines if not line.slope] + [y for *_, y, _ in found], default=1.0)))[1]
    for knee, p, e, y, index in sorted(found, key=lambda item: item[0].value):
        assert p is not None
        words = f"{e.level} {e.access} knee {fmt_number(knee.value)} [{fmt_number(knee.low)}, {fmt_number(knee.high)}], {fmt_p(p)}"
        width, height = extent(ax, words, style.TINY)
        low += height + 4 * pixel
        x, star = to((knee.value, y))
        left = max(x - width + 4 * pixel, ax.bbox.x0 + 4 * pixel)
        canvas.add_label(rectangle(left - 2 * pixel, low - 2 * pixel, left + width + 2 * pixel, low + height + 2 * pixel))
        canvas.add_line((x, star), (x, low))
        colour = style.SWEEP_COLOURS[e.level]
        ax.plot([knee.value] * 2, [y, back((x, low - pixel))[1]], color=colour, linewidth=0.6, zorder=2.9, label="_leader")
        at_x, at_y = back((left, low))
        ax.text(at_x, at_y, printable(words), fontsize=style.TINY, color=colour, ha="left", va="bottom", zorder=5,
                path_effects=halo(),
                gid=f"knee {index}")  # fmt: skip


def draw(machine: Machine, shown: Shown, ax: Axes, *, fit: bool) -> Axes:
    """Draw on `ax`; `fit`: size its figure, which is ours, around the notes."""
    from matplotlib import rc_context

    figure: Any = ax.figure
    with rc_context(dict(style.RC)):
        sweeps = shown.sweeps
        top = max(line.rate for line in shown.lines if not line.slope) if shown.lines else shown.y_limits[1]
        title = f"Measured roofline of {machine.name}, {sweeps[0][0].dtype}"
        frame(ax, title, "Arithmetic intensity [FLOP/byte]", "Performance [FLOP/s]", shown.x_limits, shown.y_limits, top)
        _draw_lines(ax, shown)
        _draw_sweeps(ax, shown)
        bars = bars_name(p.summary for e, _ in sweeps for p in e.points)
        explained = f"bars: {bars}; thin lines: measured ceilings, dashed: theoretical; star: the fitted knee"
        if any(found and _at_clocks(e, found) for e, found in sweeps):
            explained += "; dotted: the fit at the clock of each point"
        footer = wrapped([machine_line(machine), explained, *shown.notes], WIDTH if fit else ax.bbox.width / figure.dpi)
        if fit:
            fit_figure(figure, ax, len(footer))
        else:
            figure.figure.draw_without_rendering()  # a layout engine moves the axes only when it draws
        write_footer(ax, footer)
        canvas = _canvas(ax, shown)
        _write_knees(ax, shown, canvas)
        _write(ax, shown, canvas)
    return ax


def empirical(
    machine: Given,
    *,
    ax: Axes | None = None, title: str | None = None,
    level: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
) -> Axes:
    """The measured roofline of `machine`: points of its mixed-intensity sweeps, the fitted curves, and their knees.

    Log-log; data coordinates are FLOP/byte and FLOP/s. One curve per memory level, with 95 % bars on points and knees;
    measured ceilings solid, theoretical ones dashed and thin, the sustained level beside the burst. level: only this one.
    dtype: fp32 if there is such a sweep, else the first; threads: the most; a note counts what is not shown.

    ax: None makes a new figure. Returns the Axes; shows nothing and changes no global setting. Raises Error where the
    machine has no such sweep or matplotlib is missing.
    """
    machine = machine_of(machine)
    import_matplotlib()
    shown = picture(machine, level=level, dtype=dtype, threads=threads)
    if ax is not None:
        return retitled(draw(machine, shown, ax, fit=False), title)
    made = new_axes()
    return retitled(draw(machine, shown, made, fit=True), title)
