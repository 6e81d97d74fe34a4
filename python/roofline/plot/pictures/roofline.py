"""A machine's ceilings, and how near measurements come to them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from ...counts import by_key
from ...dtypes import DTYPES, dtype_name
from ...errors import Error, is_whole
from ...machine import IMPLAUSIBLE, MEMORIES, Ceiling, Given, Machine, machine_of
from ...model import ridge_flops_per_byte
from ...operators.scales import one_length, shown_fields
from ...results import Bracket, Measurement
from ...units import fmt_bytes, fmt_percent, fmt_si, parse_bytes
from ...words import counted, require_one_of
from .. import style
from ..asked import Measured, results_of
from ..charts import NAMED, Chart, Dot, Line
from ..figure import Look, Panels, picture
from ..given import OwnPoint, Points, own_points
from ..panels import Point
from ..roofs import Roof, machine_line, roofs_chart

DIFFERENT = 0.05  # bracket and ceiling further apart than this are both stated
GIVEN = "given point"
CACHES = {"user": "in a state of the caller's"}  # of the caches, where print and file differ
NAME_LENGTH = 46  # letters of a name that the legend has room for, beside its number and shares
STATES: Mapping[str, str] = {
    "implausible": "implausible (hollow: above its roof, so its FLOPs, bytes or timing are wrong)",
    "roof_moved": "roof moved while measuring",
    "contended": "contended by other load",
}


# -- which ceilings are drawn -------------------------------------------------------------------------------------------------


def _ranked(machine: Machine, measurements: Sequence[Measurement], dtype: str | None) -> list[tuple[Ceiling, str]]:
    """Ceilings and their parts: "main" (of a level the read roof, of a dtype and unit the best), "met" by a point, "other"."""
    found: list[tuple[Ceiling, str]] = []
    met = {(b.level, str(b.problem.get("access", ""))) for m in measurements for b in m.brackets if b.kind == "bandwidth"}
    for source in ("measured", "datasheet"):
        own = dataclasses.replace(machine, ceilings=tuple(c for c in machine.ceilings if c.source == source and c.is_roof))
        for level in own.levels():
            main = own.bandwidth(level)
            found.append((main, "main"))
            others = {c.access: own.bandwidth(level, c.access) for c in own.ceilings if c.kind == "bandwidth" and c.level == level}
            for access, other in sorted(others.items()):
                if other.access == access and abs(other.value / main.value - 1) > DIFFERENT:
                    found.append((other, "met" if (level, access) in met else "other"))
        flat = (c for c in own.ceilings if c.kind == "compute" and dtype in (None, c.dtype))
        groups = by_key(((c.dtype, c.unit, c.isa), c) for c in flat)
        # Among equal ceilings: most threads, then ok, then the highest.
        strongest = [max(each, key=lambda c: (c.threads, c.status == "ok", c.value)) for each in groups.values()]
        for c in sorted(strongest, key=lambda c: -c.value):
            best = max(o.value for o in strongest if (o.dtype, o.unit) == (c.dtype, c.unit))
            found.append((c, "main" if c.value == best else "other"))
    return found


def _joined(ceilings: Iterable[Ceiling]) -> dict[int, str]:
    """Labels of datasheet peaks of one unit and rate by the `id` of the first; "" for the others, which are the same line."""
    peaks = (c for c in ceilings if c.kind == "compute" and c.source == "datasheet")
    found: dict[int, str] = {}
    for first, *others in by_key(((c.unit, c.isa, c.value, c.unverified), c) for c in peaks).values():
        if others:
            dtypes = "/".join(dict.fromkeys(c.dtype for c in (first, *others)))
            words = dtypes, "tensor" if first.unit == "tensor" else first.isa, first.stated
            found |= {id(first): f"{' '.join(word for word in words if word)} ({first.source})", **{id(c): "" for c in others}}
    return found


def _roofs(ranked: Sequence[tuple[Ceiling, str]], fastest: float | None, shown: str) -> list[Roof]:
    """The roofs that are drawn; the second mode of a main one thin and without a label, which names both."""
    labels = _joined(c for c, _ in ranked)
    theory = all(c.source == "datasheet" for c, _ in ranked)
    found = []
    for c, part in ranked:
        measured = c.source == "measured"
        label = labels.get(id(c), c.label if measured else f"{c.label} ({c.source})")
        if not label or (part == "other" and shown == "main"):
            continue
        colour = c.level if c.kind == "bandwidth" else style.dtype_colour(c.dtype)
        record = {"level": c.level or None, "access": c.access or None, "dtype": c.dtype or None, "variant": c.variant or None,
                  "status": c.status, "source": c.source}  # fmt: skip
        modes = [mode.value for mode in c.modes] if c.bimodal and part == "main" else [c.value]
        for index, rate in enumerate(sorted(modes, key=lambda value: value != c.value)):
            main = part == "main" and not index
            found.append(
                Roof(label=label, rate=rate, slope=c.kind == "bandwidth", colour=colour,
                     width=0.9 if not main else 1.7 if measured else 1.2 if theory else 0.9,
                     dashes=style.DASHES[3] if index else "-" if measured else style.DASHED, written=not index,
                     start=rate / fastest if fastest and c.kind == "compute" else 0.0, record=record)
            )  # fmt: skip
    return found


# -- points -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A measurement, or a point of somebody else's (measurement is None), where it lies. share: of its bracket.

    Attributes:
        tick: FLOP/s that its bracket allows (its ceiling, without a bracket).
    """

    measurement: Measurement | None
    name: str
    kind: str
    dtype: str
    status: str
    x: float
    y: float
    bar: Point
    tick: float | None
    share: float | None
    ceiling_share: float | None

    @property
    def implausible(self) -> bool:
        share = self.share if self.share is not None else self.ceiling_share
        return self.status == "implausible" or (self.status != "contended" and (share or 0) > IMPLAUSIBLE)

    @property
    def shares(self) -> str:
        """The share of the bracket, and in parentheses that of the ceiling, where the two differ by more than 5 %."""
        if self.share is None:
            return f"{fmt_percent(self.ceiling_share, 2)} of ceiling" if self.ceiling_share is not None else ""
        text = percent(self.share)
        if self.ceiling_share is not None and abs(self.ceiling_share / self.share - 1) > DIFFERENT:
            text += f" ({percent(self.ceiling_share)})"
        return text

    def dot(self, marker: str) -> Dot:
        m = self.measurement
        record: dict[str, Any] = {
            "element": "point" if m is None else "measurement", "dtype": self.dtype or None, "implausible": self.implausible,
            "source": "given" if m is None else "measured", "attainable_flops_per_s": self.tick, "share_of_bracket": self.share,
            "share_of_ceiling": self.ceiling_share,
        }  # fmt: skip
        if m is not None:
            record |= {"level": m.level or None, "operator": m.operator, "variant": m.variant, "status": m.status}
        return Dot(name=self.name, x=self.x, y=self.y, marker=marker, colour=style.dtype_colour(self.dtype),
                   hollow=self.implausible, text=self.shares, tick=self.tick, bar=self.bar, key=f"{self.kind} {self.dtype}".strip(),
                   record=record)  # fmt: skip


def percent(share: float) -> str:
    """A share as pictures print it: whole percents, two digits below ten."""
    return fmt_percent(share, 2 if share < 0.995 else 3)


def short_names(measurements: Sequence[Measurement]) -> list[str]:
    """A name per measurement: operator, variant, and what differs among measurements of the operator. Equal ones stay equal.

    A long name leaves out fields that it does not need to be told from the others, the last ones first.
    """
    stated = [_words(m) for m in measurements]
    names = []
    for m, words in zip(measurements, stated, strict=True):
        others = [w for o, w in zip(measurements, stated, strict=True) if o.operator == m.operator]
        kept = [name for name in words if any(o.get(name) != words[name] for o in others)]
        for name in reversed(kept):
            if name != "dtype" and len(_name(m, words, kept)) > NAME_LENGTH:
                fewer = [each for each in kept if each != name]
                kept = fewer if _alike(words, others, fewer) == _alike(words, others, kept) else kept
        names.append(_name(m, words, kept))
    return names


def _name(m: Measurement, words: Mapping[str, str], kept: Sequence[str]) -> str:
    return " ".join(word for word in (m.operator, m.variant, *(words[name] for name in kept if name != "variant")) if word)


def _words(m: Measurement) -> dict[str, str]:
    """What tells a measurement from another, as its name states it; a flag that is off is ""."""
    fields = one_length(shown_fields({name: value for name, value in m.problem.items() if name != "dtype"}))
    words = {name: (name if value else "") if isinstance(value, bool) else f"{name}={value}" for name, value in fields.items()}
    conditions = {"threads": counted(m.threads, "thread"), "cache_state": m.cache_state, "device": m.device}
    return {**words, "variant": m.variant, "dtype": m.dtype, **conditions}


def _alike(words: Mapping[str, str], others: Sequence[Mapping[str, str]], names: Sequence[str]) -> int:
    """How many others state the same of these fields."""
    return sum(all(o.get(name) == words[name] for name in names) for o in others)


def _rate_of(machine: Machine, m: Measurement, bracket: Bracket) -> float | None:
    """The machine's rate for the roof that bounds `m`, or None where it was not measured."""
    match = machine.matching(bracket.problem, variant=bracket.variant) if bracket.problem else None
    try:
        if match is not None:
            return match.value
        if bracket.kind == "bandwidth":
            return machine.bandwidth(bracket.level or m.level or None, str(bracket.problem.get("access", "read"))).value
        return machine.compute(m.dtype).value if bracket.kind == "compute" else machine.latency().value
    except Error:
        return None


def ceiling_share(machine: Machine, m: Measurement, time_s: float) -> float | None:
    """attainable time by the machine's ceilings / measured time; None where the roof was not measured."""
    if (bracket := m.limiting_bracket) is not None:
        rate = _rate_of(machine, m, bracket)
        return None if rate is None else m.allowed_s(bracket, rate) / time_s
    try:
        compute, bandwidth = machine.compute(m.dtype).value, machine.bandwidth(m.level or None).value
    except Error:
        return None
    return max(m.total_flops / compute, m.total_bytes / bandwidth) / time_s


def placed(machine: Machine, measurements: Sequence[Measurement]) -> tuple[list[Placed], list[str]]:
    """Measurements where they lie, and notes on those that have no place."""
    points, notes = [], []
    for m, name in zip(measurements, short_names(measurements), strict=True):
        time_s, s = m.time_s, m.summary
        if time_s is None or s is None:
            notes.append(f"{name}: {m.status.replace('_', ' ')}" + (f" ({m.reason})" if m.reason else ""))
            continue
        share, of_ceiling = m.share_of_bracket, ceiling_share(machine, m, time_s)
        if not m.total_flops or not m.total_bytes:
            missing = "FLOPs" if not m.total_flops else "bytes"
            reached = f", {percent(share)} of its bracket" if share is not None else ""
            notes.append(f"{name}: no {missing}, so no place on logarithmic axes; {fmt_si(time_s, 's')}{reached}")
            continue
        allowed = m.attainable_s if m.attainable_s is not None else of_ceiling * time_s if of_ceiling is not None else None
        points.append(
            Placed(measurement=m, name=name, kind=m.operator, dtype=m.dtype, status=m.status, x=m.total_flops / m.total_bytes,
                   y=m.total_flops / time_s, bar=(m.total_flops / s.p95, m.total_flops / s.p5),
                   tick=m.total_flops / allowed if allowed else None, share=share, ceiling_share=of_ceiling)
        )  # fmt: skip
    return points, notes


def _given(machine: Machine, points: Iterable[OwnPoint], dtype: str | None) -> list[Placed]:
    """Given points. Their share is of what memory and the compute roof of their dtype (without one, the highest) allow."""
    found = []
    for each in points:
        kind = each.dtype or dtype or ""
        rates = [c.value for c in machine.roofs("compute") if kind in ("", c.dtype)]
        slopes = [
            each.flops_per_byte * c.value for c in machine.roofs("bandwidth") if c.level in MEMORIES and c.access in ("", "read")
        ]
        roofs = ([max(rates)] if rates else []) + ([max(slopes)] if slopes else [])
        found.append(
            Placed(measurement=None, name=each.name, kind=GIVEN, dtype=kind, status="ok", x=each.flops_per_byte, y=each.flops_per_s,
                   bar=(each.flops_per_s, each.flops_per_s), tick=None, share=None,
                   ceiling_share=each.flops_per_s / min(roofs) if roofs else None)
        )  # fmt: skip
    return found


def sweeps(points: Sequence[Placed]) -> Iterator[list[Placed]]:
    """Runs of at least three points of one kernel that differ in one numeric field, in that field's order of measurement."""
    timed = ((p, m) for p in points if (m := p.measurement) is not None)
    groups = by_key(((m.operator, m.variant, m.dtype, m.device, m.threads, m.cache_state), p) for p, m in timed)
    for members in groups.values():
        problems = [p.measurement.problem for p in members if p.measurement is not None]
        varying = [name for name in problems[0] if any(problem.get(name) != problems[0][name] for problem in problems)]
        numeric = all(is_whole(problem[name]) for problem in problems for name in varying)
        # seq_len sweeps change both sequence lengths together.
        if len(members) >= 3 and numeric and (len(varying) == 1 or set(varying) == {"seq_q", "seq_kv"}):
            yield members


def _listed(points: Sequence[Placed], number: bool) -> list[str]:
    """Notes on points that are not plain results, each point named (by its number, where the picture shows numbers)."""
    groups: dict[str, list[str]] = {}
    for index, point in enumerate(points, start=1):
        state = "implausible" if point.implausible else point.status
        if state != "ok":
            shares = f" {point.shares}" if point.implausible and point.shares else ""
            groups.setdefault(state, []).append((str(index) if number else point.name) + shares)
    order = sorted(groups, key=lambda state: list(STATES).index(state) if state in STATES else len(STATES))
    return [f"{STATES.get(state, state)}: {', '.join(groups[state])}" for state in order]


# -- the picture --------------------------------------------------------------------------------------------------------------


def _floor(machine: Machine, floor_bytes: int | str | None, points: Sequence[Placed]) -> list[Roof]:
    """The launch as a third roof: of kernels that move so many bytes, or None: of the largest one that it bounds, if any."""
    own = [p.measurement.total_bytes for p in points if p.measurement is not None and p.measurement.bound == "launch"]
    moved = parse_bytes(floor_bytes) if floor_bytes is not None else max(own, default=0)
    if not moved or (floor_bytes is None and not any(not c.level for c in machine.roofs("latency"))):
        return []
    launch = machine.latency()
    label = f"{launch.label}: {fmt_bytes(moved)} a launch"
    return [Roof(label=label, rate=moved / launch.value, slope=True, colour="purple", width=0.9, element="launch_roof",
                 dashes=style.DASHES[2] if launch.source == "measured" else style.DASHED)]  # fmt: skip


def roofline_chart(
    machine: Machine, given: Sequence[Measurement], own: Sequence[OwnPoint], dtype: str | None, floor_bytes: int | str | None,
    shown: str,
) -> Chart:  # fmt: skip
    kept = [m for m in given if dtype in (None, m.dtype)]
    notes = [f"{len(given) - len(kept)} measurements of other dtypes than {dtype} are not shown"] if len(kept) < len(given) else []
    ranked = _ranked(machine, kept, dtype)
    flat = [c for c, _ in ranked if c.kind == "compute"]
    sloped = [c for c, _ in ranked if c.kind == "bandwidth"]
    if not flat and not sloped:
        raise Error(f"{machine.name} has no ceilings to draw: measure the machine first")
    if dtype is not None and not flat:
        notes.append(f"no {dtype} compute roof was measured")
    points, absent = placed(machine, kept)
    kept_own = [each for each in own if dtype in (None, each.dtype) or not each.dtype]
    if len(kept_own) < len(own):
        notes.append(f"{len(own) - len(kept_own)} given points of other dtypes than {dtype} are not shown")
    points += _given(machine, kept_own, dtype)
    roofless = sorted({p.dtype for p in points} - {c.dtype for c in flat} - {""})
    notes += [f"{name} has no compute roof here; its points are drawn" for name in roofless if name != dtype]
    notes += [*_listed(points, len(points) > NAMED), *absent]
    notes += [f"{c.name}: {c.stated}, a ceiling that is not drawn" for c, part in ranked if part == "other" and shown == "main"]
    fastest = max((c.value for c in sloped), default=None)
    main = [c for c, part in ranked if part == "main" and c.source == "measured"] or [c for c, part in ranked if part == "main"]
    ridges, elbow, split = _ridges(main, points, dtype)
    roofs = [*_roofs(ranked, fastest, shown), *_floor(machine, floor_bytes, points)]
    markers = style.markers(p.kind for p in points)
    paths = [Line(label="sweep", points=[(p.x, p.y) for p in run], colour=style.dtype_colour(run[0].dtype), width=0.7, gid="sweep")
             for run in sweeps(points)]  # fmt: skip
    states = sorted({CACHES.get(m.cache_state, m.cache_state) for p in points if (m := p.measurement) is not None})
    sheet = "from its datasheet" if all(c.source == "datasheet" for c in machine.ceilings) else ""
    first = [machine_line(machine, sheet, f"points measured {' and '.join(states)}" if states else "")]
    if any(p.share is not None for p in points):
        in_parentheses = "; in parentheses: of the ceiling" if any("(" in p.shares for p in points) else ""
        first.append(f"ticks and percentages: the roof measured directly around each point{in_parentheses}")
    return roofs_chart(
        f"Roofline of {machine.name}", roofs, [p.dot(markers[p.kind]) for p in points], ridges=ridges, paths=paths, elbow=elbow,
        elbow_name=split, notes=[*first, *notes],
    )  # fmt: skip


def _ridges(main: Sequence[Ceiling], points: Sequence[Placed], dtype: str | None) -> tuple[list[Point], Point | None, str]:
    """Ridge points, the one where the shading splits, and its dtype: the one asked for, that of most points, or a usual one."""
    slowest = min((c.value for c in main if c.kind == "bandwidth"), default=None)
    best = {c.dtype: c.value for c in sorted((c for c in main if c.kind == "compute"), key=lambda c: c.value)}
    if slowest is None or not best:
        return [], None, ""
    ridges = [(float(ridge_flops_per_byte(value, slowest)), value) for value in best.values()]
    usual = ("bf16", "fp16", "fp32") if any(c.unit == "tensor" for c in main) else ("fp32",)
    preferred = [dtype or "", *(name for name, _ in Counter(p.dtype for p in points).most_common()), *usual, *DTYPES]
    split = next(name for name in preferred if name in best)
    peak = best[split]
    ridges += [(float(ridge_flops_per_byte(peak, c.value)), peak) for c in main if c.kind == "bandwidth" and c.value != slowest]
    return list(dict.fromkeys(ridges)), (peak / slowest, peak), split


@picture(
    "a machine's ceilings, and how far measurements are below them", group="machine", example="plot.roofline(machine, results)"
)
def roofline(
    machine: Given, results: Measured | None = None, *, points: Points | None = None, dtype: str | None = None,
    datasheet: Given | None = None, floor_bytes: int | str | None = None, ceilings: str = "main", **look: Unpack[Look],
) -> Panels:  # fmt: skip
    """Performance over arithmetic intensity: the machine's ceilings, and measurements or your own points below them.

    Log-log; data coordinates are FLOP/byte and FLOP/s. One sloped line per memory level, one flat line per dtype; measured ones
    solid, a datasheet's dashed. The second mode of a bimodal ceiling is thin. A measurement's marker is its operator, its colour
    its dtype; the dotted gap runs up to a tick at the roof measured around it. Implausible points are hollow. With more than eight
    points numbers stand at the points and the legend names them.

    Args:
        machine: a Machine, or what `Machine.load` takes.
        results: measurements, a results.jsonl or its folder.
        points: your own: (name, FLOP/byte, FLOP/s[, dtype]), {name: (FLOP/byte, FLOP/s)}, or a CSV or JSON file with the columns
            name,
            flops_per_byte, flops_per_s, dtype; rates may be text ("3.1 TFLOP/s"). Each shows its share of the attainable.
        dtype: only its roofs and points; ridge points and shading are its own.
        datasheet: another machine whose stated ceilings are drawn over the measured ones.
        floor_bytes: bytes that a kernel moves: the launch is a third roof for such kernels (default: that of points which it
            bounds).
        ceilings: "main", those that points are held against, or "all".

    Raises Error where the machine has no ceilings, for a bad point, and for names that do not exist.
    """
    machine, dtype = machine_of(machine), None if dtype is None else dtype_name(dtype)
    require_one_of("ceilings", ceilings, ("main", "all"))
    if datasheet is not None:
        sheet = [c for c in machine_of(datasheet).ceilings if c.source == "datasheet"]
        machine = dataclasses.replace(machine, ceilings=(*machine.ceilings, *sheet))
    yield roofline_chart(machine, results_of(results), own_points(points), dtype, floor_bytes, ceilings)
