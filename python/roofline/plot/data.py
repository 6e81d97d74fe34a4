"""Everything a roofline plot shows, as plain records: what to draw is decided here, how is decided in `axes`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DTYPES
from ..errors import Error
from ..machine import MEMORIES, Ceiling, Given, Machine, machine_of
from ..model import attainable_flops_per_s, ridge_flops_per_byte
from ..results import Bracket, Measurement
from ..units import fmt_number, fmt_percent, fmt_si
from .given import OwnPoint, Points, own_points

IMPLAUSIBLE = 1.03  # a share of the bracket above this is evidence of an error, never a win
DIFFERENT = 0.05  # bracket and ceiling further apart than this are both stated
GIVEN = "given point"
NAME_LENGTH = 46  # longer names are shortened in the middle


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """One line: a mode of a ceiling. rate: bytes/s for memory, FLOP/s for compute. x from..to in FLOP/byte."""

    ceiling: Ceiling
    rate: float
    best: bool  # the best mode, of the best instruction set or the read access
    label: str
    x_from: float
    x_to: float

    @property
    def memory(self) -> bool:
        return self.ceiling.kind == "bandwidth"

    def at(self, x: float) -> float:
        return self.rate * x if self.memory else self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement, or a point of somebody else's (measurement is None). x in FLOP/byte, y in FLOP/s; tick: FLOP/s its bracket
    allows (its ceiling, without a bracket).
    """

    measurement: Measurement | None
    name: str
    kind: str  # its operator; of a given point GIVEN
    dtype: str
    status: str
    x: float
    y: float
    y_low: float
    y_high: float
    tick: float | None
    share: float | None  # of the bracket
    ceiling_share: float | None
    implausible: bool

    @property
    def shares(self) -> str:
        """What the plot prints: the share of the bracket, and of the ceiling where the two differ by more than 5 %."""
        if self.share is None:
            return f"{fmt_percent(self.ceiling_share, 2)} of ceiling" if self.ceiling_share is not None else ""
        text = percent(self.share)
        if self.ceiling_share is not None and abs(self.ceiling_share / self.share - 1) > DIFFERENT:
            text += f" ({percent(self.ceiling_share)} of ceiling)"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A whole plot as data: lines, ridge points (FLOP/byte, FLOP/s), points, what has no place among them, and the limits."""

    roofs: tuple[Roof, ...]
    ridges: tuple[tuple[float, float], ...]
    points: tuple[Point, ...]
    notes: tuple[str, ...]
    elbow: tuple[float, float] | None  # between the shaded memory-bound and compute-bound regions
    x_limits: tuple[float, float]
    y_limits: tuple[float, float]


def percent(share: float) -> str:
    """A share as the plot prints it: whole percents, two digits below ten."""
    return fmt_percent(share, 2 if share < 0.995 else 3)


# -- which ceilings are drawn ---------------------------------------------------------------------------------------------


def _strongest(ceilings: Iterable[Ceiling]) -> Ceiling | None:
    """Of equal ceilings: most threads, then ok, then the highest."""
    return max(ceilings, key=lambda c: (c.threads, c.status == "ok", c.value), default=None)


def _drawn(machine: Machine, measurements: Sequence[Measurement], dtype: str | None) -> list[tuple[Ceiling, bool]]:
    """Ceilings to draw, and whether each is a main one: per level the read roof and those that are met; per dtype every set."""
    chosen: list[tuple[Ceiling, bool]] = []
    for source in ("measured", "datasheet"):
        own = dataclasses.replace(machine, ceilings=tuple(c for c in machine.ceilings if c.source == source and c.is_roof))
        for level in own.levels():
            main = own.bandwidth(level)
            chosen.append((main, True))
            met = {
                str(b.problem.get("access", ""))
                for m in measurements
                for b in m.brackets
                if b.kind == "bandwidth" and b.level == level
            }
            for access in sorted(met - {main.access, ""}):
                other = own.bandwidth(level, access)
                if other.access == access and abs(other.value / main.value - 1) > DIFFERENT:
                    chosen.append((other, False))
        groups: dict[tuple[str, str, str], list[Ceiling]] = {}
        for c in own.ceilings:
            if c.kind == "compute" and dtype in (None, c.dtype):
                groups.setdefault((c.dtype, c.unit, c.isa), []).append(c)
        strongest = [c for c in map(_strongest, groups.values()) if c is not None]
        for c in sorted(strongest, key=lambda c: -c.value):
            best = max((o.value for o in strongest if (o.dtype, o.unit) == (c.dtype, c.unit)), default=c.value)
            chosen.append((c, c.value == best))
    return chosen


def _labels(ceiling: Ceiling) -> list[tuple[float, str]]:
    """(rate, label) per mode, best first."""
    suffix = "" if ceiling.source == "measured" else f" ({ceiling.source})"
    if not ceiling.bimodal:
        return [(ceiling.value, ceiling.label + suffix)]
    unit = "B/s" if ceiling.kind == "bandwidth" else "FLOP/s"
    return [
        (mode.value, f"{ceiling.name} {fmt_si(mode.value, unit)} ({fmt_percent(mode.share, 2)} of samples)")
        for mode in ceiling.modes
    ]


def _joined(ceilings: Iterable[Ceiling]) -> dict[int, str]:
    """Labels of datasheet peaks of one unit and rate by the `id` of the first; "" for the others, which are the same line."""
    groups: dict[tuple[Any, ...], list[Ceiling]] = {}
    for c in ceilings:
        if c.kind == "compute" and c.source == "datasheet":
            groups.setdefault((c.unit, c.isa, c.value, c.unverified), []).append(c)
    found: dict[int, str] = {}
    for first, *others in groups.values():
        if others:
            dtypes = "/".join(dict.fromkeys(c.dtype for c in (first, *others)))
            words = dtypes, "tensor" if first.unit == "tensor" else first.isa, first.stated
            found |= {id(first): f"{' '.join(word for word in words if word)} ({first.source})", **{id(c): "" for c in others}}
    return found


# -- points ---------------------------------------------------------------------------------------------------------------


def _shorten(text: str) -> str:
    if len(text) <= NAME_LENGTH:
        return text
    half = (NAME_LENGTH - 1) // 2
    return f"{text[:half].rstrip()}…{text[-half:].lstrip()}"


def short_names(measurements: Sequence[Measurement]) -> list[str]:
    """A name per measurement: operator, variant, and what differs among measurements of the operator. Equal ones stay equal."""

    def facts(m: Measurement) -> dict[str, Any]:
        conditions = {"threads": f"{m.threads} threads", "cache_state": m.cache_state, "device": m.device}
        return {**{name: f"{name}={value}" for name, value in m.problem.items() if name != "dtype"}, "dtype": m.dtype, **conditions}

    names = []
    for m in measurements:
        own = facts(m)
        others = [facts(o) for o in measurements if o.operator == m.operator]
        differing = [text for name, text in own.items() if any(o.get(name) != text for o in others)]
        names.append(_shorten(" ".join([m.operator, m.variant, *differing]).replace("  ", " ").strip()))
    return names


def _ceiling_of(machine: Machine, m: Measurement, bracket: Bracket | None) -> tuple[Bracket | None, float | None]:
    """The machine's rate for the roof that bounds `m` (its limiting bracket's roof), or None where it was not measured."""
    if bracket is None:
        return None, None
    match = machine.matching(bracket.problem, variant=bracket.variant) if bracket.problem else None
    try:
        if match is not None:
            return bracket, match.value
        if bracket.kind == "bandwidth":
            return bracket, machine.bandwidth(bracket.level or m.level or None, str(bracket.problem.get("access", "read"))).value
        return bracket, machine.compute(m.dtype).value if bracket.kind == "compute" else machine.latency().value
    except Error:
        return bracket, None


def _ceiling_share(machine: Machine, m: Measurement, time_s: float) -> float | None:
    """attainable time by the machine's ceilings / measured time; None where the roof was not measured."""
    bracket, rate = _ceiling_of(machine, m, m.limiting_bracket)
    if bracket is not None:
        return None if rate is None else m.allowed_s(bracket, rate) / time_s
    try:
        compute = machine.compute(m.dtype).value
        bandwidth = machine.bandwidth(m.level or None).value
    except Error:
        return None
    return max(m.total_flops / compute, m.total_bytes / bandwidth) / time_s


def _points(machine: Machine, measurements: Sequence[Measurement]) -> tuple[list[Point], list[str]]:
    points, notes = [], []
    for m, name in zip(measurements, short_names(measurements), strict=True):
        time_s, s = m.time_s, m.summary
        if time_s is None or s is None:
            notes.append(f"{name}: {m.status.replace('_', ' ')}" + (f" ({m.reason})" if m.reason else ""))
            continue
        share, ceiling_share = m.share_of_bracket, _ceiling_share(machine, m, time_s)
        if not m.total_flops or not m.total_bytes:
            missing = "FLOPs" if not m.total_flops else "bytes"
            reached = f", {percent(share)} of its bracket" if share is not None else ""
            notes.append(f"{name}: no {missing}, so no place on logarithmic axes; {fmt_si(time_s, 's')}{reached}")
            continue
        attainable = m.attainable_s
        if attainable is None and ceiling_share is not None:
            attainable = ceiling_share * time_s
        points.append(
            Point(
                measurement=m,
                name=name,
                kind=m.operator,
                dtype=m.dtype,
                status=m.status,
                x=m.total_flops / m.total_bytes,
                y=m.total_flops / time_s,
                y_low=m.total_flops / s.p95,
                y_high=m.total_flops / s.p5,
                tick=m.total_flops / attainable if attainable else None,
                share=share,
                ceiling_share=ceiling_share,
                implausible=m.status == "implausible"
                or (share or 0) > IMPLAUSIBLE
                or (share is None and (ceiling_share or 0) > IMPLAUSIBLE),
            )
        )
    return points, notes


def _given(machine: Machine, points: Iterable[OwnPoint], dtype: str | None) -> list[Point]:
    """Given points. Their share is of what memory and the compute roof of their dtype (without one, the highest) allow."""
    found = []
    for each in points:
        kind = each.dtype or dtype or ""
        rates = [c.value for c in machine.roofs("compute") if kind in ("", c.dtype)]
        slopes = [
            each.flops_per_byte * c.value for c in machine.roofs("bandwidth") if c.level in MEMORIES and c.access in ("", "read")
        ]
        roofs = ([max(rates)] if rates else []) + ([max(slopes)] if slopes else [])
        share = each.flops_per_s / min(roofs) if roofs else None
        found.append(
            Point(measurement=None, name=each.name, kind=GIVEN, dtype=kind, status="ok", x=each.flops_per_byte, y=each.flops_per_s,
                  y_low=each.flops_per_s, y_high=each.flops_per_s, tick=None, share=None, ceiling_share=share,
                  implausible=(share or 0) > IMPLAUSIBLE)
        )  # fmt: skip
    return found


def _listed(points: Sequence[Point], number: bool) -> list[str]:
    """Notes on points that are not plain results, each point named (by its number, where the plot shows numbers)."""
    groups: dict[str, list[str]] = {}
    for index, point in enumerate(points, start=1):
        state = "implausible" if point.implausible else point.status
        if state != "ok":
            shares = f" {point.shares}" if point.implausible and point.shares else ""
            groups.setdefault(state, []).append((str(index) if number else point.name) + shares)
    explanations = {
        "implausible": "implausible (hollow: above its roof, so its FLOPs, bytes or timing are wrong)",
        "roof_moved": "roof moved while measuring",
        "contended": "contended by other load",
    }
    return [f"{explanations.get(state, state)}: {', '.join(names)}" for state, names in groups.items()]


# -- the picture ----------------------------------------------------------------------------------------------------------


def picture(
    machine: Machine,
    measurements: Iterable[Measurement] | None = None,
    *,
    points: Points | None = None,
    dtype: str | None = None,
    numbered: bool = False,
) -> Picture:
    """All that is drawn for this machine and these measurements.

    points: given ones, see `own_points`. dtype: only roofs, measurements and points of this one (a note counts the others),
    and given points without one. numbered: notes name points by number. Raises Error for a bad point, and where the machine
    has no bandwidth and no compute ceiling, or none for `dtype`.
    """
    given = list(measurements or ())
    kept = [m for m in given if dtype in (None, m.dtype)]
    notes = [f"{len(given) - len(kept)} measurements of other dtypes than {dtype} are not shown"] if len(kept) < len(given) else []
    drawn = _drawn(machine, kept, dtype)
    flat = [c for c, _ in drawn if c.kind == "compute"]
    sloped = [c for c, _ in drawn if c.kind == "bandwidth"]
    if not flat and not sloped:
        raise Error(f"{machine.name} has no ceilings to draw: measure the machine first")
    if dtype is not None and not flat:
        notes.append(f"no {dtype} compute roof was measured")
    drawn_points, absent = _points(machine, kept)
    notes += absent
    own = own_points(points)
    kept_own = [each for each in own if dtype in (None, each.dtype) or not each.dtype]
    if len(kept_own) < len(own):
        notes.append(f"{len(own) - len(kept_own)} given points of other dtypes than {dtype} are not shown")
    drawn_points += _given(machine, kept_own, dtype)
    roofless = sorted({p.dtype for p in drawn_points} - {c.dtype for c in flat} - {""})
    notes += [f"{name} has no compute roof here; its points are drawn" for name in roofless if name != dtype]
    notes += _listed(drawn_points, numbered)

    top = max(
        (c.value for c in flat), default=max((p.y for p in drawn_points), default=max((c.value for c in sloped), default=1.0)) * 2
    )
    fastest = max((c.value for c in sloped), default=None)
    main = [c for c, is_main in drawn if is_main and c.source == "measured"] or [c for c, is_main in drawn if is_main]
    slowest = min((c.value for c in main if c.kind == "bandwidth"), default=None)
    ridges: list[tuple[float, float]] = []
    best = {c.dtype: c.value for c in sorted((c for c in main if c.kind == "compute"), key=lambda c: c.value)}
    if slowest is not None:
        ridges += [(float(ridge_flops_per_byte(value, slowest)), value) for value in best.values()]
        if best:
            peak = max(best.values())
            ridges += [
                (float(ridge_flops_per_byte(peak, c.value)), peak) for c in main if c.kind == "bandwidth" and c.value != slowest
            ]

    xs = [p.x for p in drawn_points] + [x for x, _ in ridges] or [1.0]
    x_limits = min(xs) / 4, max(xs) * 8
    lowest = [p.y_low for p in drawn_points] + ([slowest * x_limits[0] * 2] if slowest else []) + [c.value / 4 for c in flat]
    highest = [value for p in drawn_points for value in (p.y_high, p.tick) if value is not None]
    y_limits = min(lowest) / 2.5, max([top * 3, *(value * 1.5 for value in highest)])

    roofs, joined = [], _joined(c for c, _ in drawn)
    for ceiling, is_main in drawn:
        for index, (rate, label) in enumerate(_labels(ceiling)):
            label = joined.get(id(ceiling), label)
            if not label:
                continue
            if ceiling.kind == "bandwidth":
                span = (max(x_limits[0], y_limits[0] / rate), top / rate)
            else:
                span = (rate / fastest if fastest else x_limits[0], x_limits[1])
            roofs.append(Roof(ceiling=ceiling, rate=rate, best=is_main and index == 0, label=label, x_from=span[0], x_to=span[1]))
    # The shading splits at the elbow of the roofs most points meet: their commonest dtype, else fp32, else the best.
    counts: dict[str, int] = {}
    for p in drawn_points:
        counts[p.dtype] = counts.get(p.dtype, 0) + 1
    preferred = [*sorted(counts, key=lambda name: -counts[name]), "fp32", *DTYPES]
    primary = next((best[name] for name in preferred if name in best), None)
    elbow = (primary / slowest, primary) if primary and slowest else None
    return Picture(
        roofs=tuple(roofs),
        ridges=tuple(dict.fromkeys(ridges)),
        points=tuple(drawn_points),
        notes=tuple(notes),
        elbow=elbow,
        x_limits=x_limits,
        y_limits=y_limits,
    )


def roofline_data(
    machine: Given,
    measurements: Iterable[Measurement] | None = None,
    *,
    points: Points | None = None,
    dtype: str | None = None,
) -> list[dict[str, Any]]:
    """Everything the plot draws as flat records, all with the same keys, for CSV or another plotting library.

    element: "memory_roof" and "compute_roof" (two records: the ends of a line), "ridge", "measurement", "point" (given),
    "note".
    Coordinates: flops_per_byte and flops_per_s. Raises Error as `roofline` does.
    """
    machine = machine_of(machine)
    shown = picture(machine, measurements, points=points, dtype=dtype)
    keys = (
        "element", "label", "flops_per_byte", "flops_per_s", "attainable_flops_per_s", "share_of_bracket", "share_of_ceiling",
        "bandwidth_bytes_per_s", "level", "access", "dtype", "operator", "variant", "status", "source", "implausible",
    )  # fmt: skip
    empty: dict[str, Any] = dict.fromkeys(keys)
    records = []
    for roof in shown.roofs:
        c = roof.ceiling
        for x in (roof.x_from, roof.x_to):
            element = "memory_roof" if roof.memory else "compute_roof"
            where = {"flops_per_byte": x, "flops_per_s": roof.at(x), "bandwidth_bytes_per_s": roof.rate if roof.memory else None}
            what: dict[str, Any] = {
                "level": c.level or None,
                "access": c.access or None,
                "dtype": c.dtype or None,
                "variant": c.variant or None,
            }
            records.append(
                {**empty, "element": element, "label": roof.label, **where, **what, "status": c.status, "source": c.source}
            )
    for x, y in shown.ridges:
        records.append({**empty, "element": "ridge", "label": f"{fmt_number(x)} FLOP/byte", "flops_per_byte": x, "flops_per_s": y})
    for p in shown.points:
        m = p.measurement
        where = {"flops_per_byte": p.x, "flops_per_s": p.y, "attainable_flops_per_s": p.tick}
        what = {"dtype": p.dtype or None, "implausible": p.implausible, "source": "given"}
        if m is not None:
            what |= {
                "level": m.level or None,
                "operator": m.operator,
                "variant": m.variant,
                "status": m.status,
                "source": "measured",
            }
        shares = {"share_of_bracket": p.share, "share_of_ceiling": p.ceiling_share}
        records.append(
            {**empty, "element": "measurement" if m is not None else "point", "label": p.name, **where, **what, **shares}
        )
    return records + [{**empty, "element": "note", "label": note} for note in shown.notes]


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
