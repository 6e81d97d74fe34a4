"""Self-distrust: ceilings that contradict each other or the hardware, said in plain English."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..cost import DTYPES
from ..operators.base import MIXES
from ..units import fmt_percent, fmt_si
from .ceiling import LEVELS, RATE_UNITS, Ceiling

TOLERANCE = 0.03  # measured ceilings of an idle machine repeat within this


def _best(ceilings: Sequence[Ceiling]) -> Ceiling | None:
    return max(ceilings, key=lambda c: c.value, default=None)


def _hierarchy(bandwidths: Sequence[Ceiling]) -> list[str]:
    found = []
    for threads in sorted({c.threads for c in bandwidths}):
        for access in MIXES:
            best = [
                _best([c for c in bandwidths if (c.level, c.access, c.threads) == (level, access, threads)]) for level in LEVELS
            ]
            for near, far in pairwise(c for c in best if c is not None):
                if near.value < far.value * (1 - TOLERANCE):
                    found.append(
                        f"{near.label} is slower than {far.label} ({threads} threads), though {near.level} is nearer: "
                        f"the {near.level} probe was disturbed or its working set does not stay in {near.level}"
                    )
    return found


def _widths(computes: Sequence[Ceiling]) -> list[str]:
    found = []
    for group in sorted({(c.unit, c.isa, c.threads) for c in computes}):
        members = sorted((c for c in computes if (c.unit, c.isa, c.threads) == group), key=lambda c: -DTYPES[c.dtype].bits)
        for wide, narrow in pairwise(members):
            if DTYPES[wide.dtype].bits > DTYPES[narrow.dtype].bits and narrow.value < wide.value * (1 - TOLERANCE):
                found.append(
                    f"{narrow.label} is slower than {wide.label}, though its elements are narrower: the probe was disturbed, "
                    f"or {narrow.dtype} runs without instructions of its own"
                )
    return found


def _threads(ceilings: Sequence[Ceiling]) -> list[str]:
    found = []
    groups: dict[tuple[str, ...], list[Ceiling]] = {}
    for c in ceilings:
        if c.kind != "latency" and c.threads:
            groups.setdefault((c.kind, c.level, c.access, c.variant, c.dtype, c.accumulator, c.unit, c.isa), []).append(c)
    for members in groups.values():
        for few, many in pairwise(sorted(members, key=lambda c: c.threads)):
            if few.threads == many.threads:
                continue
            if many.value < few.value * (1 - TOLERANCE):
                found.append(f"{many.label} with {many.threads} threads is slower than with {few.threads} ({few.label})")
            if many.value > few.value * many.threads / few.threads * (1 + TOLERANCE):
                found.append(
                    f"{many.label} with {many.threads} threads is more than {many.threads / few.threads:.3g} times {few.label} "
                    f"with {few.threads}: one of the two was disturbed"
                )
    return found


def _possible(computes: Sequence[Ceiling]) -> list[str]:
    found = []
    for c in computes:
        if c.ops_per_cycle and c.clock_hz and c.source == "measured":
            limit = c.ops_per_cycle * c.clock_hz * max(c.threads, 1)
            if c.value > limit * (1 + TOLERANCE):
                found.append(
                    f"{c.label} is {fmt_percent(c.value / limit)} of what its instructions allow at {fmt_si(c.clock_hz, 'Hz')} "
                    f"({fmt_si(limit, RATE_UNITS[c.kind])}): the operation count or the clock is wrong"
                )
    return found


def flags(ceilings: Sequence[Ceiling]) -> list[str]:
    """Plain-English flags; empty where nothing contradicts, with 3 % tolerance.

    Rules: a nearer memory level is not slower, access by access (better of plain and non-temporal); a narrower dtype is
    not slower on the same unit and instruction set; more threads are not slower, and not more than proportionally
    faster; compute is not above clock x operations per cycle; every ceiling that is not `ok`, or has two modes, is named.
    """
    measured = [c for c in ceilings if c.source == "measured" and c.status != "implausible"]
    bandwidths = [c for c in measured if c.kind == "bandwidth"]
    computes = [c for c in measured if c.kind == "compute"]
    states = [
        f"{c.label} is {c.status.replace('_', ' ')}" + (f": {c.reason}" if c.reason else "") for c in ceilings if c.status != "ok"
    ]
    moving = [
        f"{c.label} has {len(c.modes)} modes, "
        f"seen in {' and '.join(fmt_percent(mode.share, 2) for mode in c.modes)} of {c.summary.n} samples"
        for c in measured
        if c.bimodal
    ]
    return [*_hierarchy(bandwidths), *_widths(computes), *_threads(measured), *_possible(computes), *states, *moving]
