"""Which ceiling of A is which of B, which point is which, and what the pair says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..counts import by_key
from ..machine import MEMORIES, MOVED, RATE_UNITS, Ceiling, Machine, grouped, summary, to_json
from ..results import Measurement
from ..units import MISSING, fmt_si
from ..words import backend_of, counted
from .numbers import Median, by_modes, estimate, ratio, status_of, verdict
from .rows import POINT_KEYS, SHARES, Pair

CLAIMED, ABSENT = "as stated", "not measured"
QUANTITIES: Mapping[str, str] = {
    "bandwidth": "bytes_per_s", "compute": "flops_per_s", "latency": "time_s", "link": "bytes_per_s", "transfer": "bytes_per_s",
}  # fmt: skip


class Found(NamedTuple):
    """The rows of what both sides have, and the names of what only one has."""

    rows: list[Pair]
    only_a: list[str]
    only_b: list[str]


def _canonical(value: Mapping[str, Any]) -> str:
    return to_json(dict(value), where="a problem", canonical=True)


def _named_as(c: Ceiling, memory: str) -> str:
    """Its name, with `memory` in the place of the kind of memory: DRAM stands beside HBM."""
    return c.name.replace(c.level, memory, 1) if c.level in MEMORIES else c.name


def _ceiling_key(c: Ceiling, threads: str, exact: bool) -> tuple[object, ...]:
    """What it is. Its name tells ceilings of a probe apart; the other fields of a problem (streams, stores) are found by tuning."""
    return (c.probe, _named_as(c, "memory"), c.accumulator or c.dtype, c.unit, threads, _canonical(c.problem) if exact else "")


def _matched(
    a: Sequence[Any], b: Sequence[Any], keys: Sequence[Callable[[Any, bool], Any]]
) -> tuple[list[tuple[Any, Any]], list[Any], list[Any]]:
    """Pairs with equal keys, the strictest key first, where each side has one of that key; and the rest of both."""
    pairs: list[tuple[Any, Any]] = []
    left, right = list(a), list(b)
    for key in keys:
        own, other = by_key((key(item, True), item) for item in left), by_key((key(item, False), item) for item in right)
        for name, items in own.items():
            if len(items) == 1 and len(other.get(name, ())) == 1:
                pairs.append((items[0], other[name][0]))
        used = {id(item) for pair in pairs for item in pair}
        left, right = [i for i in left if id(i) not in used], [i for i in right if id(i) not in used]
    order = {id(item): index for index, item in enumerate(a)}
    return sorted(pairs, key=lambda pair: order[id(pair[0])]), left, right


def _all(threads: int, most: int) -> str:
    return "all" if threads == most else str(threads)


def differences(a: Mapping[str, Any], b: Mapping[str, Any], threads: tuple[int, int]) -> str:
    """Where two problems that stand for the same ceiling or point differ: "streams 2 against 4"."""
    values = {name: [MISSING if side.get(name) in (None, "") else side[name] for side in (a, b)] for name in (*a, *b)}
    differing = [f"{name} {x} against {y}" for name, (x, y) in values.items() if x != y]
    if threads[0] != threads[1]:
        differing.insert(0, f"threads {threads[0]} against {threads[1]}")
    return ", ".join(differing)


def _states(a: Ceiling | Measurement, b: Ceiling | Measurement) -> list[str]:
    """Which side is not ok, and why; of contention the shares of the load are left to the files."""
    said = [f"{m.status.replace('_', ' ')}" + (f": {m.reason}" if m.reason and m.status != "contended" else "") for m in (a, b)]
    if a.status == b.status != "ok" and said[0] == said[1]:
        return [f"A and B: {said[0]}"]
    return [f"{side}: {text}" for side, m, text in (("A", a, said[0]), ("B", b, said[1])) if m.status != "ok"]


# -- ceilings -----------------------------------------------------------------------------------------------------------------


def named(c: Ceiling) -> str:
    return f"{c.name}, {counted(c.threads, 'thread')}" if c.threads else c.name


def _pair_name(a: Ceiling, b: Ceiling) -> str:
    if a.level != b.level:
        return _named_as(a, f"{a.level} or {b.level}")
    return named(a) if a.threads == b.threads else a.name


def of_best_mode(c: Ceiling) -> Median:
    groups = grouped(c.samples)
    return estimate(groups[0 if c.kind == "latency" else -1], c.status, tuple(m.value for m in c.modes) if c.bimodal else ())


def _ceiling_pair(a: Ceiling, b: Ceiling) -> Pair:
    higher, bimodal = a.kind != "latency", a.bimodal or b.bimodal
    left, right = of_best_mode(a), of_best_mode(b)
    found = ratio(left, right)
    claimed = a.source == b.source == "datasheet"
    said = by_modes(a.samples, b.samples, higher) if bimodal else verdict(found, higher)
    notes = [differences(a.problem, b.problem, (a.threads, b.threads)), "B / A is that of the best modes" if bimodal else ""]
    notes += [f"{side}: {c.state}" for side, c in (("A", a), ("B", b)) if c.unverified]
    notes += _states(a, b)
    return Pair(
        section="ceiling", name=_pair_name(a, b), quantity=QUANTITIES[a.kind], a=left, b=right,
        verdict=CLAIMED if claimed else status_of(a.status, b.status) or said,
        ratio=found[0], ratio_low=found[1], ratio_high=found[2], notes=tuple(filter(None, notes)),
    )  # fmt: skip


def _identity(machine: Machine) -> tuple[object, ...]:
    """Guests name their processors by family alone: what else tells two machines apart."""
    return (machine.name, *(machine.facts.get(name) for name in ("cpu_family", "cpu_model", "usable_cores", "architecture")))


def machines(a: Machine, b: Machine) -> Found:
    most = {True: max((c.threads for c in a.ceilings), default=0), False: max((c.threads for c in b.ceilings), default=0)}
    keys: list[Callable[[Ceiling, bool], Any]] = [
        lambda c, _: _ceiling_key(c, str(c.threads), True),
        lambda c, _: _ceiling_key(c, str(c.threads), False),
    ]
    if _identity(a) != _identity(b):  # the number of threads belongs to the machine, as the sizes of its caches do
        keys.append(lambda c, of_a: _ceiling_key(c, _all(c.threads, most[of_a]), False))
    pairs, left, right = _matched(a.ceilings, b.ceilings, keys)
    return Found([_ceiling_pair(x, y) for x, y in pairs], [named(c) for c in left], [named(c) for c in right])


# -- points -------------------------------------------------------------------------------------------------------------------


def _last(results: Iterable[Measurement]) -> list[Measurement]:
    """One of each point: the last that was timed, else the last."""
    kept: dict[str, Measurement] = {}
    for m in results:
        if m.samples_s or not (m.key in kept and kept[m.key].samples_s):
            kept[m.key] = m
    return list(kept.values())


def _point_name(m: Measurement) -> str:
    return " ".join(filter(None, (m.operator, m.variant, m.brief_problem(), m.cache_state)))


def _share(m: Measurement) -> Median | None:
    """Share of the bracket: the scatter of the times and of the probes around them, added in logarithms."""
    bracket, s, share = m.limiting_bracket, m.summary, m.share_of_bracket
    if bracket is None or s is None or share is None:
        return None
    probes = summary(bracket.samples)
    down = math.hypot(math.log(s.high / s.median), math.log(probes.high / probes.median))
    up = math.hypot(math.log(s.median / s.low), math.log(probes.median / probes.low))
    return Median(value=share, low=share * math.exp(-down), high=share * math.exp(up), n=s.n, status=m.status)


def _roofs_differ(a: Measurement, b: Measurement) -> str:
    """In words, where two points met different roofs or one that had moved; "" where they met the same, or nothing is known."""
    x, y = a.limiting_bracket, b.limiting_bracket
    if x is None or y is None:
        return ""
    values = [fmt_si(bracket.value, RATE_UNITS[bracket.kind]) for bracket in (x, y)]
    if x.label != y.label:
        return f"different roofs, {x.label} {values[0]} and {y.label} {values[1]}"
    if abs(y.value - x.value) > MOVED * min(x.value, y.value):
        return f"the {x.label} roof differs, {values[0]} and {values[1]}"
    return ""


def _point_pair(a: Measurement, b: Measurement) -> Pair:
    times = [estimate(m.samples_s, m.status) if m.samples_s else None for m in (a, b)]
    shares = [_share(m) for m in (a, b)]
    differ = _roofs_differ(a, b)
    sides, quantity = (shares, "share_of_bracket") if differ else (times, "time_s")
    found: tuple[float | None, float | None, float | None] = (None, None, None)
    said = ""
    if sides[0] is not None and sides[1] is not None:
        several = not differ and max(len(grouped(m.samples_s)) for m in (a, b)) > 1
        measured = ratio(sides[0], sides[1])
        found, said = measured, by_modes(a.samples_s, b.samples_s, False) if several else verdict(measured, bool(differ))
    notes = [differences(a.problem, b.problem, (a.threads, b.threads))]
    if differ and None not in times:
        notes.append(f"{differ}: {SHARES} ({', '.join(fmt_si(m.time_s, 's') for m in (a, b))})")
    notes += _states(a, b)
    roofs = [m.limiting_bracket.value if m.limiting_bracket else None for m in (a, b)]
    values = (*(m.time_s for m in (a, b)), *(m.share_of_bracket for m in (a, b)), *roofs)
    return Pair(
        section="point", name=_point_name(a), quantity=quantity, a=sides[0], b=sides[1],
        verdict=status_of(a.status, b.status) or said or ABSENT,
        ratio=found[0], ratio_low=found[1], ratio_high=found[2], notes=tuple(filter(None, notes)),
        of_points=dict(zip(POINT_KEYS, values, strict=True)),
    )  # fmt: skip


def points(a: Sequence[Measurement], b: Sequence[Measurement]) -> Found:
    most = {True: max((m.threads for m in a), default=0), False: max((m.threads for m in b), default=0)}
    processors = [{m.processor for m in side} for side in (a, b)]

    def key(m: Measurement, threads: str) -> tuple[str, ...]:
        return (m.operator, _canonical(m.problem), m.variant, m.cache_state, backend_of(m.device), threads)

    keys: list[Callable[[Measurement, bool], Any]] = [lambda m, _: key(m, str(m.threads))]
    if processors[0] != processors[1]:
        keys.append(lambda m, of_a: key(m, _all(m.threads, most[of_a])))
    pairs, left, right = _matched(_last(a), _last(b), keys)
    return Found([_point_pair(x, y) for x, y in pairs], [_point_name(m) for m in left], [_point_name(m) for m in right])
