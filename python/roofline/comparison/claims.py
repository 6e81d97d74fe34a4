"""A vendor's claim beside one measured machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..machine import MEMORIES, UNVERIFIED, Ceiling, Machine
from ..words import backend_of
from .matching import ABSENT, QUANTITIES, named, of_best_mode
from .numbers import estimate, status_of
from .rows import Pair

MEASURED = "measured"


def _measured_unit(c: Ceiling, device: str) -> str:
    """A CPU's matrix units are those of AMX; a library's product uses them where the processor has them."""
    return ("tensor" if c.isa == "amx" else "core") if device == "cpu" else c.unit


def against(sheet: Machine, machine: Machine) -> tuple[list[Pair], list[str]]:
    """Every peak of a datasheet beside the best measured ceiling of its kind; and the ceilings measured without a claim."""
    usable = [c for c in machine.ceilings if c.source == "measured" and c.is_roof]
    rows, used = [], set()
    for claim in sheet.ceilings:
        levels = MEMORIES if claim.level in MEMORIES else (claim.level,)
        same = [c for c in usable if c.kind == claim.kind and c.level in levels and c.dtype == claim.dtype]
        if claim.kind == "compute":
            device, rivals = backend_of(sheet.device), [c for c in sheet.ceilings if (c.dtype, c.unit) == (claim.dtype, claim.unit)]
            units = {c.unit for c in sheet.ceilings if c.dtype == claim.dtype}
            if len(units) > 1 or device != "cpu":
                same = [c for c in same if _measured_unit(c, device) == claim.unit]
            if len({c.accumulator for c in rivals}) > 1:
                same = [c for c in same if (c.accumulator or c.dtype) == claim.accumulator]
        used |= {id(c) for c in same}
        rows.append(_claim(claim, same, claim.level or claim.name))
        driver = sheet.facts.get("driver_memory_bytes_per_s")
        if claim.kind == "bandwidth" and driver:
            other = dataclasses.replace(claim, samples=(float(driver),), reason=UNVERIFIED if not _driver_verified(sheet) else "")
            rows.append(_claim(other, same, f"{claim.level}, clock × width by the driver"))
    return rows, [named(c) for c in machine.ceilings if id(c) not in used]


def _driver_verified(sheet: Machine) -> bool:
    stated = sheet.provenance.get("datasheet", {}).get("driver_memory_bytes_per_s", {})
    return bool(stated.get("verified"))


def _claim(claim: Ceiling, measured: Sequence[Ceiling], name: str) -> Pair:
    best = max(measured, key=lambda c: c.value, default=None)
    notes = [UNVERIFIED if claim.unverified else ""]
    stated, reached = estimate(claim.samples), None
    ratios: tuple[float | None, ...] = (None, None, None)
    said = ABSENT
    if best is not None:
        reached = of_best_mode(best)
        ratios = tuple(rate / stated.value for rate in (reached.value, reached.low, reached.high))
        said = status_of(best.status) or MEASURED
        cores = f", and claimed for {claim.threads} cores" if claim.threads not in (0, best.threads) else ""
        notes.append(f"measured by {named(best)}{cores}" if cores or best.name != claim.name else "")
    return Pair(
        section="claim", name=name, quantity=QUANTITIES[claim.kind], a=stated, b=reached, verdict=said, ratio=ratios[0],
        ratio_low=ratios[1], ratio_high=ratios[2], notes=tuple(filter(None, notes)),
    )  # fmt: skip
