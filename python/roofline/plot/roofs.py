"""Roofs as lines: the charts of machines' ceilings, and what of machines stands in other charts and under them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counts import by_key
from ..errors import Error
from ..machine import Ceiling, Given, Machine, machine_of, machines_of
from ..model import Roofs, attainable_flops_per_s, machine_roofs, ridge_flops_per_byte
from ..operators import Operator
from ..units import fmt_number, fmt_si
from ..words import counted
from . import style
from .charts import DIRECT, NAMED, SPREAD, Chart, Dot, Guide, Line, series_lines
from .panels import Point

Machines = Given | Sequence[Given]
INTENSITY = "Arithmetic intensity [FLOP/byte]"


def several(machines: Machines, least: int = 0) -> tuple[Machine, ...]:
    """One or several machines as a tuple. Raises Error where two have one name: their lines could not be told apart."""
    found = tuple(machines_of(machines))
    names = [m.name for m in found]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise Error(f"two machines are called {twice[0]!r:.80}: give one of them another name, or leave it out")
    if len(found) < least:
        raise Error("give at least one machine, such as 'H100', or one that was measured")
    return found


def machine_line(machine: Machine, *more: str) -> str:
    """Device, threads, date and clock, and what else is said of all points."""
    clocks = sorted({c.clock_hz for c in machine.ceilings if c.clock_hz})
    between = f"{fmt_si(clocks[0], 'Hz')} to " if clocks and clocks[-1] / clocks[0] > 1 + SPREAD else ""
    threads = max((c.threads for c in machine.ceilings), default=0)
    facts = (
        f"{machine.name} ({machine.device})",
        counted(threads, "thread") if threads else "",
        machine.created_utc.replace("T", " ")[:16] + " UTC" if machine.created_utc else "",
        f"clock {between}{fmt_si(clocks[-1], 'Hz')}" if clocks else "",
        *more,
    )
    return "  ·  ".join(fact for fact in facts if fact)


def machine_notes(machines: Iterable[Machine | None]) -> list[str]:
    """A line for each machine, which says whether its numbers come from a datasheet; None is skipped."""
    given = [m for m in machines if m is not None]
    return [machine_line(m, "from its datasheet" if all(c.source == "datasheet" for c in m.ceilings) else "") for m in given]


def dashes_of(*ceilings: Ceiling) -> Any:
    """Solid where all were measured, dashed where one is a datasheet's."""
    return "-" if all(c.source == "measured" for c in ceilings) else style.DASHED


def stated(machine: Machine) -> Any:
    """The dashes of a machine's roofs: solid where any was measured."""
    return "-" if any(c.source == "measured" for c in machine.ceilings) else style.DASHED


def peaks(machine: Machine) -> list[tuple[str, Ceiling]]:
    """Compute roofs, highest first, each with its name; dtypes of one unit and one rate are joined: "fp16/bf16 tensor"."""
    kinds = {(c.dtype, c.accumulator or c.dtype, c.unit) for c in machine.roofs("compute")}
    roofs = sorted((machine.compute(*kind) for kind in sorted(kinds)), key=lambda c: -c.value)
    widest = {(c.dtype, c.unit): sum((o.dtype, o.unit) == (c.dtype, c.unit) for o in roofs) for c in roofs}
    sums = [f"→{c.accumulator}" if widest[c.dtype, c.unit] > 1 and c.accumulator not in ("", c.dtype) else "" for c in roofs]
    joined = by_key(((c.unit, c.value, c.unverified), (c.dtype + into, c)) for c, into in zip(roofs, sums, strict=True))
    return [
        (" ".join(("/".join(dict.fromkeys(name for name, _ in same)), *(["tensor"] if unit == "tensor" else []))), same[0][1])
        for (unit, _, _), same in joined.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A ridge point as a horizontal."""

    label: str
    y: float
    dashes: Any = style.DASHED


def ridge_of(problem: Operator, machine: Machine | None) -> float | None:
    if machine is None:
        return None
    ridge = machine_roofs(machine, problem).ridge_flops_per_byte
    return ridge if math.isfinite(ridge) else None


def ridge_levels(machines: Iterable[Machine], problems: Iterable[Operator]) -> list[Level]:
    """A level for each ridge point that these problems meet. Raises Error naming a ceiling that is missing."""
    found: dict[tuple[str, str], Level] = {}
    asked = list(problems)
    for machine in machines:
        for problem in asked:
            roofs = machine_roofs(machine, problem)
            if "compute" in roofs.labels:
                ridge = fmt_number(roofs.ridge_flops_per_byte)
                label = f"{machine.name}: {ridge} FLOP/byte ({roofs.labels['compute']})"
                found.setdefault((machine.name, ridge), Level(label=label, y=roofs.ridge_flops_per_byte, dashes=stated(machine)))
    return list(found.values())


def intensity_chart(
    title: str, x_label: str, x: str, lines: Mapping[str, Sequence[Point]], levels: Sequence[Level],
    crossings: Sequence[Dot] = (), *, notes: Sequence[str], fits: Mapping[str, Sequence[bool]] | None = None,
) -> Chart:  # fmt: skip
    """Intensity over a batch or a length: a line for each series, ridge points across, highest first, and crosses where they meet.

    element of its records: "point", "level" and "crossing"; x: what the horizontal axis is called there. fits: as of a line.
    """
    rows = [
        {"element": "point", "label": name, x: at, "flops_per_byte": y, **({"fits": fits[name][i]} if fits else {})}
        for name, points in lines.items() for i, (at, y) in enumerate(points)
    ]  # fmt: skip
    rows += [{"element": "level", "label": level.label, "flops_per_byte": level.y} for level in levels]
    rows += [{"element": "crossing", "label": dot.name, x: dot.x, "flops_per_byte": dot.y} for dot in crossings]
    key, ends = len(lines) > DIRECT, [at for at, _ in next(iter(lines.values()))]
    across = [
        Line(label=level.label.partition(" (")[0] if key else level.label, points=[(ends[0], level.y), (ends[-1], level.y)],
             colour="muted", dashes=level.dashes, width=0.9, write="" if key else "flat", key=key, small=True, gid="level")
        for level in sorted(levels, key=lambda each: -each.y)
    ]  # fmt: skip
    return Chart(title=title, x_label=x_label, x_kind="count", y_label=INTENSITY, lines=[*series_lines(lines, fits), *across],
                 dots=crossings, rows=rows, notes=notes)  # fmt: skip


def roofline_curve(
    machine: Given, *, dtype: str = "fp32", level: str | None = None, access: str = "read", points: int = 200
) -> list[dict[str, float]]:
    """The attainable performance of one dtype and memory level over arithmetic intensity.

    Records {"flops_per_byte", "flops_per_s"}: `points` of them log-spaced from 1/64 to 64 times the ridge point, and the
    ridge point itself. Raises Error where a ceiling was not measured or points < 2.
    """
    machine = machine_of(machine)
    if points < 2:
        raise Error(f"points must be at least 2, got {points}")
    compute, bandwidth = machine.compute(dtype).value, machine.bandwidth(level, access).value
    ridge = float(ridge_flops_per_byte(compute, bandwidth))
    spread = np.geomspace(ridge / 64, ridge * 64, points)
    x = np.union1d(spread[~np.isclose(spread, ridge, rtol=1e-9)], [ridge])
    y = attainable_flops_per_s(x, compute, bandwidth)
    return [{"flops_per_byte": float(a), "flops_per_s": float(b)} for a, b in zip(x, y, strict=True)]


# -- rooflines ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """A roof: bytes/s where `slope`, else FLOP/s. start, end: intensities where it begins (a flat one: its elbow) and ends.

    written: whether its label stands at it. record: more of its two records.
    """

    label: str
    rate: float
    slope: bool
    colour: str = "ink"
    dashes: Any = "-"
    width: float = 1.4
    start: float = 0.0
    end: float = math.inf
    element: str = ""
    written: bool = True
    record: Mapping[str, Any] | None = None

    def at(self, x: float) -> float:
        return self.rate * x if self.slope else self.rate


def roofs_chart(
    title: str,
    roofs: Sequence[Roof],
    dots: Sequence[Dot] = (),
    *,
    ridges: Sequence[Point] = (),
    guides: Sequence[Guide] = (),
    paths: Sequence[Line] = (),
    elbow: Point | None = None,
    elbow_name: str = "",
    notes: Sequence[str] = (),
    named: int = NAMED,
    more: Sequence[Mapping[str, Any]] = (),
    limits: tuple[Point, Point] | None = None,
) -> Chart:
    """Roofs with dots under them. Sloped ones stop at the highest flat one. paths: lines through dots. more: records behind.

    limits: of x and y; None: as far as its own dots and roofs reach.

    element of its records: "memory_roof" and "compute_roof" (two records: the ends of a line), "ridge", "guide", "dot".
    """
    found = [at for path in paths for at in path.points]
    xs = [x for x, _ in (*ridges, *found)] + [guide.x for guide in guides] + [dot.x for dot in dots]
    low, high = min(xs, default=1.0) / 4, max(xs, default=1.0) * 8
    flat, slow = [roof.rate for roof in roofs if not roof.slope], min((r.rate for r in roofs if r.slope), default=None)
    ys = [dot.y for dot in dots] + [y for _, y in found] + [end for dot in dots if dot.bar for end in dot.bar]
    ticks = [dot.tick for dot in dots if dot.tick]
    top = max(flat, default=max(ys, default=max((r.rate for r in roofs), default=1.0)) * 2)
    bottom = min([*ys, *(rate / 4 for rate in flat), *([slow * low * 2] if slow else [])]) / 2.5
    above = max([top * 3, *(1.5 * y for y in (*ys, *ticks))])
    (low, high), (bottom, above) = limits or ((low, high), (bottom, above))
    lines, rows = [], []
    for roof in roofs:
        ends = (max(low, bottom / roof.rate), min(top / roof.rate, roof.end, high)) if roof.slope else (max(roof.start, low), high)
        element = roof.element or ("memory_roof" if roof.slope else "compute_roof")
        rate = {"bandwidth_bytes_per_s": roof.rate} if roof.slope else {}
        for x in ends:
            rows.append({"element": element, "label": roof.label, "flops_per_byte": x, "flops_per_s": roof.at(x), **rate,
                         **(roof.record or {})})  # fmt: skip
        if ends[0] < ends[1]:
            lines.append(
                Line(label=roof.label, points=[(x, roof.at(x)) for x in ends], colour=roof.colour, dashes=roof.dashes,
                     width=roof.width, write="" if not roof.written else "slope" if roof.slope else "flat", small=roof.width <= 1,
                     gid="roof")
            )  # fmt: skip
    rows += [{"element": "ridge", "label": f"{fmt_number(x)} FLOP/byte", "flops_per_byte": x, "flops_per_s": y} for x, y in ridges]
    rows += [{"element": "guide", "label": guide.name, "flops_per_byte": guide.x} for guide in guides]
    rows += [{"element": "dot", "label": dot.name, "flops_per_byte": dot.x, "flops_per_s": dot.y, **dot.record} for dot in dots]
    return Chart(
        title=title, x_label=INTENSITY, y_label="Performance", y_unit="FLOP/s", lines=[*lines, *paths], dots=dots, ridges=ridges,
        guides=guides, elbow=elbow, elbow_name=elbow_name, x_limits=(low, high), y_limits=(bottom, above),
        named=named, notes=notes, rows=[*rows, *more],
    )  # fmt: skip


def limits_of(charts: Sequence[Chart]) -> tuple[Point, Point]:
    """Limits of x and y that have room for all of these charts of roofs."""
    xs, ys = [x for chart in charts for x in chart.x_limits or ()], [y for chart in charts for y in chart.y_limits or ()]
    return (min(xs), max(xs)), (min(ys), max(ys))


def met_roofs(dashes: Any, roofs: Iterable[Roofs]) -> tuple[list[Roof], list[Point]]:
    """The roofs that some problems meet, each once, and the ridge points they make."""
    found = list(roofs)
    memory = {r.labels["memory"]: r.bandwidth_bytes_per_s for r in found}
    compute: dict[float, list[str]] = {}
    for r in found:
        if "compute" in r.labels and r.labels["compute"] not in compute.setdefault(r.compute_flops_per_s, []):
            compute[r.compute_flops_per_s].append(r.labels["compute"])
    fastest, slowest = max(memory.values()), min(memory.values())
    slopes = [Roof(label=label, rate=rate, slope=True, dashes=dashes, width=1.4 if rate == fastest else 0.9)
              for label, rate in memory.items()]  # fmt: skip
    flats = [Roof(label=" = ".join(labels), rate=rate, slope=False, dashes=dashes, start=rate / fastest,
                  colour=style.dtype_colour(labels[0].split("→")[0].split()[0]))
             for rate, labels in sorted(compute.items(), reverse=True)]  # fmt: skip
    ridges = dict.fromkeys((r.ridge_flops_per_byte, r.compute_flops_per_s) for r in found
                           if "compute" in r.labels and r.bandwidth_bytes_per_s == slowest)  # fmt: skip
    return [*slopes, *flats], list(ridges)
