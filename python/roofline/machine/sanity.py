"""Self-distrust: ceilings that contradict each other or the hardware, said in plain English."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..counts import by_key
from ..dtypes import DTYPES
from ..operators.base import MIXES
from ..probes import LEVELS, RATE_UNITS
from ..units import fmt_percent, fmt_si
from .ceiling import Ceiling
from .curve import SizeCurve
from .empirical import EmpiricalRoofline

TOLERANCE = 0.03  # measured ceilings of an idle machine repeat within this
UNIT = ("dtype", "accumulator", "unit", "isa", "threads")  # fields of ceilings of the same arithmetic unit
HUGE_PAGES = 0.9  # of a probe's memory: with fewer, address translation is measured too


def _hierarchy(grouped: Iterable[tuple[Any, Ceiling]]) -> Iterator[str]:
    """One sentence for each level that is slower than the next farther one. Ceilings with the same key are compared."""
    for _, members in sorted(by_key(grouped).items()):
        sign = -1 if members[0].kind == "latency" else 1
        best = [max((c for c in members if c.level == level), key=lambda c: sign * c.value, default=None) for level in LEVELS]
        for near, far in pairwise(c for c in best if c is not None):
            if sign * near.value < sign * far.value * (1 - sign * TOLERANCE):
                said = f"longer than {far.label}" if sign < 0 else f"slower than {far.label} ({near.threads} threads)"
                yield (
                    f"{near.label} is {said}, though {near.level} is nearer: "
                    f"the {near.level} probe was disturbed or its working set does not stay in {near.level}"
                )


def _against(some: Iterable[Ceiling], computes: Sequence[Ceiling], *fields: str) -> Iterator[tuple[Ceiling, Ceiling]]:
    """Each of some ceilings, with the best roof that equals it in these fields."""
    for c in some:
        same = [r for r in computes if r.is_roof and all(getattr(r, name) == getattr(c, name) for name in fields)]
        if same:
            yield c, max(same, key=lambda r: r.value)


def _arithmetic(computes: Sequence[Ceiling]) -> Iterator[str]:
    """Multiply-adds against the same with additions between them, which can only use more of a core, and the matrix products that
    are made of them; long loads against their bursts.
    """
    for mixed, plain in _against((c for c in computes if c.probe == "fma.add"), computes, *UNIT):
        if mixed.value < plain.value * (1 - TOLERANCE):
            yield f"{mixed.label} is slower than {plain.label}: one of the two was disturbed"
    products, others = ([c for c in computes if c.probe.startswith("gemm.") is of_a_library] for of_a_library in (True, False))
    for product, peak in _against(products, others, "dtype", "threads"):
        if product.value > peak.value * (1 + TOLERANCE):
            yield (
                f"{product.label} is {fmt_percent(product.value / peak.value)} of {peak.label}: the multiply-add probe was "
                f"disturbed, or the library computes with a unit that no probe measures"
            )
    for long, burst in _against((c for c in computes if c.sustained), computes, *UNIT, "problem"):
        if long.value > burst.value * (1 + TOLERANCE):
            yield f"{long.label} is faster than its burst, {burst.label}: the burst was disturbed"


def _pages(ceilings: Sequence[Ceiling]) -> list[str]:
    """DRAM probes that were to have huge pages, and got too few."""
    return [
        f"{c.label} had huge pages for only {fmt_percent(share, 2)} of its memory: it includes TLB misses"
        for c in ceilings
        if c.level == "DRAM" and (c.kind == "bandwidth" or c.params.get("pages") == "huge")
        if isinstance(share := c.plan.get("huge_page_share"), (int, float)) and share < HUGE_PAGES
    ]


def _widths(computes: Sequence[Ceiling]) -> Iterator[str]:
    kinds = by_key(((c.unit, c.isa, c.variant, c.threads, tuple(sorted(c.params.items()))), c) for c in computes)
    for _, members in sorted(kinds.items()):
        for wide, narrow in pairwise(sorted(members, key=lambda c: (-DTYPES[c.dtype].bits, c.value))):
            if DTYPES[wide.dtype].bits > DTYPES[narrow.dtype].bits and narrow.value < wide.value * (1 - TOLERANCE):
                yield (
                    f"{narrow.label} is slower than {wide.label}, though its elements are narrower: the probe was disturbed, "
                    f"or {narrow.dtype} runs without instructions of its own"
                )


def _threads(ceilings: Sequence[Ceiling]) -> Iterator[str]:
    rates = (c for c in ceilings if c.kind != "latency" and c.threads)
    for members in by_key(((c.kind, c.name, c.variant, c.accumulator), c) for c in rates).values():
        for few, many in pairwise(sorted(members, key=lambda c: c.threads)):
            if few.threads == many.threads:
                continue
            if many.value < few.value * (1 - TOLERANCE):
                yield f"{many.label} with {many.threads} threads is slower than with {few.threads} ({few.label})"
            if many.value > few.value * many.threads / few.threads * (1 + TOLERANCE):
                yield (
                    f"{many.label} with {many.threads} threads is more than {many.threads / few.threads:.3g} times {few.label} "
                    f"with {few.threads}: one of the two was disturbed"
                )


def _possible(computes: Sequence[Ceiling], facts: Mapping[str, Any]) -> Iterator[str]:
    for c in computes:
        limit = (c.ops_per_cycle or 0) * (c.clock_hz or 0) * (c.threads or int(facts.get("sms") or 1))
        if limit and c.source == "measured" and c.value > limit * (1 + TOLERANCE):
            yield (
                f"{c.label} is {fmt_percent(c.value / limit)} of what its instructions allow at {fmt_si(c.clock_hz, 'Hz')} "
                f"({fmt_si(limit, RATE_UNITS[c.kind])}): the operation count or the clock is wrong"
            )


def states(ceilings: Iterable[Ceiling]) -> list[str]:
    """Every ceiling that is not `ok`, with its reason."""
    return [
        f"{c.label}: {c.status.replace('_', ' ')}" + (f": {c.reason}" if c.reason else "") for c in ceilings if c.status != "ok"
    ]


def flags(
    ceilings: Sequence[Ceiling],
    curves: Sequence[SizeCurve] = (),
    empirical: Sequence[EmpiricalRoofline] = (),
    facts: Mapping[str, Any] | None = None,
) -> list[str]:
    """Plain-English flags; empty where nothing contradicts, with 3 % tolerance.

    Rules: a nearer memory level is not slower, access by access (better of plain and non-temporal), and its latency not
    longer; a narrower dtype is not slower on the same unit and instruction set; additions between multiply-adds do not slow
    them; a matrix product is not faster than multiply-adds; sustained is not above burst; more threads are not slower, and
    not more than proportionally faster; compute is not above clock x operations per cycle; DRAM probes have huge pages.
    Every ceiling that is not `ok` is named, and every other one that has several modes; then what `SizeCurve.notes` and
    `EmpiricalRoofline.notes` say.
    """
    measured = [c for c in ceilings if c.source == "measured" and c.status != "implausible"]
    bandwidths = [c for c in measured if c.kind == "bandwidth" and c.is_roof and c.access in MIXES]
    computes = [c for c in measured if c.kind == "compute"]
    moving = [
        f"{c.label} has {len(c.modes)} modes, "
        f"seen in {' and '.join(fmt_percent(mode.share, 2) for mode in c.modes)} of {c.summary.n} samples"
        for c in measured
        if c.bimodal and c.status == "ok"
    ]
    return [
        *_hierarchy(((c.threads, MIXES.index(c.access)), c) for c in bandwidths),
        *_hierarchy(((str(c.params.get("pages", "")), c.threads), c) for c in measured if c.kind == "latency"),
        *_widths([c for c in computes if c.is_roof]),
        *_arithmetic(computes),
        *_threads(measured),
        *_possible(computes, facts or {}),
        *_pages(measured),
        *states(ceilings),
        *moving,
        *(note for curve in curves for note in curve.notes(facts or {})),
        *(note for found in empirical for note in found.notes(ceilings)),
    ]
