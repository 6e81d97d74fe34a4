"""The measured roofline: a sweep over intensity per memory level, its fit and knee, and the ceilings it should approach."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Unpack

import numpy as np

from ...errors import Error
from ...machine import EmpiricalRoofline, Fit, Given, Machine, bars_name, fmt_p, machine_of
from ...units import fmt_number, fmt_percent, fmt_si, si_prefix
from .. import style
from ..charts import Dot, Line
from ..figure import Look, Panels, picture
from ..roofs import Roof, machine_line, roofs_chart

THROTTLED = 0.97  # of the reference clock: below it the curve at the clock of each point is drawn too
CURVE = 160  # points of a fitted curve
NARROW = "\N{NO-BREAK SPACE}"


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


def _roofs(machine: Machine, sweeps: Iterable[EmpiricalRoofline]) -> list[Roof]:
    """Measured ceilings, what instructions allow at the clock, and sustained levels, each once."""
    found: list[Roof] = []

    def add(kind: str, label: str, rate: float, slope: bool, colour: str) -> None:
        dashes, width = {"measured": ("-", 1.0), "theoretical": (style.DASHED, 0.8), "sustained": (style.DASHES[3], 1.2)}[kind]
        found.append(Roof(label=label, rate=rate, slope=slope, colour=colour, dashes=dashes, width=width, element=f"{kind}_roof"))

    for e in sweeps:
        memory, compute = e.peers(machine.ceilings)
        if memory is not None:
            add("measured", memory.label, memory.value, True, style.LEVELS[e.level][0])
        if compute is not None:
            add("measured", compute.label, compute.value, False, "ink")
            if compute.ops_per_cycle and compute.clock_hz:
                each = f"{compute.ops_per_cycle:g} FLOP/cycle × {max(compute.threads, 1)} × {fmt_si(compute.clock_hz, 'Hz')}"
                rate = compute.ops_per_cycle * compute.clock_hz * max(compute.threads, 1)
                add("theoretical", f"{each} = {fmt_si(rate, 'FLOP/s')}", rate, False, "muted")
        burst, arithmetic = e.burst_flops_per_s, f"{e.dtype} {e.isa}".strip()
        if compute is None and burst:
            add("measured", f"{arithmetic} burst {fmt_si(burst, 'FLOP/s')}", burst, False, "ink")
        if long := e.sustained_flops_per_s:
            reference = burst or (compute.value if compute else None)
            share = f", {fmt_percent(long / reference, 2)} of burst" if reference else ""
            add("sustained", f"{arithmetic} sustained {fmt_si(long, 'FLOP/s')}{share}", long, False, "brown")
        for c in (c for c in machine.ceilings if c.source == "datasheet" and c.is_roof):
            if (c.kind, c.level) == ("bandwidth", e.level) or (c.kind, c.dtype, c.unit) == ("compute", e.dtype, "core"):
                add("theoretical", f"{c.label} (datasheet)", c.value, c.kind == "bandwidth", "muted")
    fastest = max((roof.rate for roof in found if roof.slope), default=None)
    if fastest:
        found = [roof if roof.slope else dataclasses.replace(roof, start=roof.rate / fastest) for roof in found]
    return list({roof.label: roof for roof in found}.values())


def _stated(e: EmpiricalRoofline, fit: Fit) -> str:
    """The fit in a line: parameters with 95 % intervals, and how well it describes the points."""
    parts = []
    for name, found, unit in (("β", fit.bandwidth, "B/s"), ("π", fit.peak, "FLOP/s")):
        if found is not None:
            factor, prefix = si_prefix(found.value)
            value, low, high = (fmt_number(v / factor) for v in (found.value, found.low, found.high))
            parts.append(f"{name} {value} [{low}, {high}] {prefix}{unit}")
    residuals = f"residual {fmt_percent(fit.median_residual, 2)} median, {fmt_percent(fit.max_residual, 2)} at most"
    return f"{e.name}: {', '.join([*parts, fit.text.replace('p = ', f'p{NARROW}={NARROW}'), residuals])}"


def _curve(e: EmpiricalRoofline, fit: Fit) -> list[tuple[float, float]]:
    """Intensities and fitted FLOP/s at the reference clock, over the sweep and through the knee itself."""
    xs = [p.intensity_flops_per_byte for p in e.points]
    grid = np.geomspace(min(xs), max(xs), CURVE)
    if fit.knee is not None and min(xs) < fit.knee.value < max(xs):
        grid = np.union1d(grid, [fit.knee.value])
    return [(float(x), float(y)) for x, y in zip(grid, fit.at(grid), strict=True)]


def _at_clocks(e: EmpiricalRoofline, fit: Fit) -> list[tuple[float, float]]:
    """Intensity and fitted FLOP/s at the clock of each point, by intensity; nothing where the clock stays."""
    found = sorted((p.intensity_flops_per_byte, p.clock_hz or fit.clock_hz) for p in e.points)
    if fit.clock_hz is None or min(clock or fit.clock_hz for _, clock in found) >= THROTTLED * fit.clock_hz:
        return []
    return [(x, float(fit.at(x, clock))) for x, clock in found]


def _rows(e: EmpiricalRoofline, fit: Fit | None) -> list[dict[str, Any]]:
    own: dict[str, Any] = {"label": e.name, "level": e.level, "access": e.access, "dtype": e.dtype, "isa": e.isa or None,
                           "threads": e.threads}  # fmt: skip
    rows = [
        {**own, "element": "point", "flops_per_byte": p.intensity_flops_per_byte, "flops_per_s": p.summary.median,
         "low": p.summary.low, "high": p.summary.high, "clock_hz": p.clock_hz}
        for p in e.points
    ]  # fmt: skip
    if fit is not None:
        rows += [{**own, "element": "fit", "flops_per_byte": x, "flops_per_s": y} for x, y in _curve(e, fit)]
        rows += [{**own, "element": "fit_at_clock", "flops_per_byte": x, "flops_per_s": y} for x, y in _at_clocks(e, fit)]
        if fit.knee is not None:
            rows.append({**own, "element": "knee", "flops_per_byte": fit.knee.value, "flops_per_s": float(fit.at(fit.knee.value)),
                         "low": fit.knee.low, "high": fit.knee.high})  # fmt: skip
        for name, found in (("bandwidth", fit.bandwidth), ("peak", fit.peak), ("p", fit.p)):
            if found is not None:
                ends = {"value": found.value, "low": found.low, "high": found.high}
                rows.append({**own, "element": "parameter", "label": name, "clock_hz": fit.clock_hz,
                             **{key: v if np.isfinite(v) else None for key, v in ends.items()}})  # fmt: skip
        if fit.knee_efficiency is not None:
            rows.append({**own, "element": "parameter", "label": "knee_efficiency", "value": fit.knee_efficiency})
    return rows + [
        {**own, "element": "sustained", "time_s": s.time_s, "flops_per_s": s.flops_per_s, "clock_hz": s.clock_hz}
        for s in e.sustained
    ]


@picture("the measured roofline: sweeps over intensity, their fits and knees", group="machine", example="plot.empirical(curves)")
def empirical(
    machine: Given, *, level: str | None = None, dtype: str | None = None, threads: int | None = None, **look: Unpack[Look]
) -> Panels:
    """Points of a machine's mixed-intensity sweeps, the fitted curves, and their knees.

    Log-log; data coordinates are FLOP/byte and FLOP/s. One curve per memory level, with 95 % bars,
    and the knee's interval in its name; measured
    ceilings solid, theoretical ones dashed and thin, the sustained level beside the burst.

    Args:
        machine: a Machine with such sweeps, or what `Machine.load` takes.
        level: only this one.
        dtype: of the sweeps (fp32 where there is such a one, else the first).
        threads: of the sweeps (the most).

    element of the records: "point" (low, high: 95 % interval of flops_per_s), "fit", "fit_at_clock" (where clocks fell),
    "knee" (low,
    high: of flops_per_byte), "parameter" (label: bandwidth, peak, p, knee_efficiency; an infinite p is empty), "measured_roof",
    "theoretical_roof" and "sustained_roof" (two records: the ends of a line), "sustained" (the load over time).
    Raises Error where the machine has no such sweep.
    """
    machine = machine_of(machine)
    sweeps, others = _chosen(machine, level, dtype, threads)
    pairs = [(e, _fit(e)) for e in sweeps]
    paths: list[Line] = []
    dots: list[Dot] = []
    for e, fit in pairs:
        colour, marker = style.LEVELS[e.level]
        points = [(p.intensity_flops_per_byte, p.summary.median) for p in e.points]
        named = fit is None or fit.knee is None
        paths.append(Line(label=f"{e.level} {e.access}", points=points, colour=colour, marker=marker, hollow=True, width=0.0,
                          dashes="none", bars=[(p.summary.low, p.summary.high) for p in e.points], write="end" if named else "",
                          gid="sweep"))  # fmt: skip
        if fit is None or (fit.bandwidth is None and fit.peak is None):
            continue
        paths.append(Line(label=f"fit {e.name}", points=_curve(e, fit), colour=colour, width=1.6, gid="fit"))
        if slow := _at_clocks(e, fit):
            paths.append(
                Line(label="fit at clock", points=slow, colour=colour, width=1.2, dashes=style.DASHES[2], gid="fit at clock")
            )
        if fit.knee is not None and fit.p is not None:
            knee = fit.knee
            words = f"{e.level} {e.access} knee {fmt_number(knee.value)} [{fmt_number(knee.low)}, {fmt_number(knee.high)}]"
            dots.append(Dot(name=f"{words}, {fmt_p(fit.p)}", x=knee.value, y=float(fit.at(knee.value)), marker="*", colour=colour))
    bars = bars_name(p.summary for e in sweeps for p in e.points)
    explained = f"bars: {bars}; thin lines: measured ceilings, dashed: theoretical; star: the fitted knee"
    if any(fit and _at_clocks(e, fit) for e, fit in pairs):
        explained += "; dotted: the fit at the clock of each point"
    said = [note for e in sweeps for note in e.notes(machine.ceilings)]
    notes = [machine_line(machine), explained, *(_stated(e, fit) for e, fit in pairs if fit), *said, *others]
    chart = roofs_chart(f"Measured roofline of {machine.name}, {sweeps[0].dtype}", _roofs(machine, sweeps), dots, paths=paths,
                        notes=notes, more=[row for e, fit in pairs for row in _rows(e, fit)])  # fmt: skip
    xs = [p.intensity_flops_per_byte for e in sweeps for p in e.points]
    rows = [row for row in chart.rows if row["element"] != "dot"]
    yield dataclasses.replace(chart, x_limits=(min(xs) / 1.6, max(xs) * 1.6), rows=rows)
