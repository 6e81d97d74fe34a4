"""Ceilings of a device, by depth: quick (for reports and predictions), standard (every roof), thorough (all there is)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..machine import EmpiricalRoofline, Machine, SizeCurve, cache_capacity, memory_level
from ..measurement.devices import Device, open_device
from ..probes import Wanted, wanted as wanted_of_all
from ..probes.base import DEEPEST, FURTHER, REPORT, ROOFS
from .series import intensity_sweep, size_curve

ONE_THREAD = ("stream", "stream.scalar", "stream.strided", "fma", "fma.add", "gemm.square", "gemm.narrow", "gemm.misaligned", "exp")


@dataclass(frozen=True, slots=True)
class WantedSeries:
    """A series to measure once the ceilings are known: bandwidth over size, or rate over arithmetic intensity."""

    label: str
    measure: Callable[[Machine], SizeCurve | EmpiricalRoofline]


def single(device: Device) -> Device | None:
    """The same CPU with one thread, its arrays of probes as limited; None where it has only one or is no CPU."""
    if device.threads < 2:
        return None
    alone = open_device(device.name, 1)
    if device.arena_limit is not None:
        alone.limit_arena(device.arena_limit)
    return alone


def wanted(device: Device, depth: str = "standard") -> list[tuple[Device, Wanted]]:
    """Every ceiling to measure, the most worth knowing first; on CPUs with one thread too: the roofs, with thorough all of them."""
    found = [(device, what) for what in wanted_of_all(device, depth)]
    alone = single(device) if DEEPEST[depth] >= FURTHER else None
    if alone is not None:
        own = [what for what in wanted_of_all(alone, depth) if what.probe.id in ONE_THREAD]
        found += [
            (alone, dataclasses.replace(what, label=f"{what.label} (1 thread)"))
            for what in own
            if what.rank == ROOFS or depth == "thorough"
        ]
    return found


def wanted_series(device: Device, depth: str = "standard") -> list[WantedSeries]:
    """Every series: the knee of memory, or with thorough that of every level, a long load, and curves over size."""
    if depth in ("quick", REPORT):
        return []
    memory = memory_level(device.facts)
    if depth == "standard":
        return [WantedSeries(f"{memory} read over intensity", partial(intensity_sweep, device, memory))]
    long = partial(intensity_sweep, device, memory, sustained=True)
    found = [WantedSeries(f"{memory} read over intensity, and 12 s of load", long)]
    for level in ("L3", "L2", "L1") if device.threads else ("L2",):
        if cache_capacity(device.facts, level):
            found.append(WantedSeries(f"{level} read over intensity", partial(intensity_sweep, device, level)))
    found.append(WantedSeries(f"{memory} read over intensity, fp64", partial(intensity_sweep, device, memory, dtype="fp64")))
    for access in ("read", "copy"):
        found.append(WantedSeries(f"{access} over size", partial(size_curve, device, access)))
    alone = single(device)
    if alone is not None:
        found.append(WantedSeries("read over size (1 thread)", partial(size_curve, alone, "read")))
    return found
