"""Probes: the problems whose results are ceilings. PROBES lists them; each file has all there is to say of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ..words import require_one_of
from .bandwidth import SCALAR, SHARED, STREAM, STRIDED, VARIANTS
from .base import DEPTHS, KINDS, RATE_UNITS, Identified, Identity, Probe, Target, Wanted, wanted_of
from .compute import EXP, FMA, FMA_ADD, FMA_OPERANDS
from .latency import CHASE, CORE_TO_CORE, HOST_CALL, LAUNCH
from .levels import CACHES, LEVELS, MEMORIES, memory_level
from .products import ALIGNED, GEMM, NARROWS, ODD, SQUARE, WIDE
from .standard import Standard, standard_problems
from .tensor import FLAT, MMA
from .transfer import HOST_COPY, LINK, PEER_COPY, TRANSFERS

PROBES: tuple[Probe, ...] = (
    LAUNCH, STREAM, FMA, MMA, LINK, EXP, SQUARE, NARROWS, WIDE, FMA_OPERANDS, ODD, FMA_ADD, HOST_CALL, CHASE, CORE_TO_CORE,
    HOST_COPY, PEER_COPY, SHARED, STRIDED, SCALAR, FLAT,
)  # fmt: skip
_BY_ID = {probe.id: probe for probe in PROBES}


def probe_named(id: str) -> Probe:
    """The probe of this id. Raises Error naming all of them."""
    require_one_of("a ceiling's probe", id, _BY_ID)
    return _BY_ID[id]


@cache
def roofs_of(kind: str) -> frozenset[str]:
    """The ids of the probes that measure the roofs of a kind."""
    return frozenset(probe.id for probe in PROBES if probe.kind == kind and probe.roof)


def wanted(target: Target, depth: str = "standard") -> Iterator[Wanted]:
    """Every ceiling to measure with all of a device, the most worth knowing first. depth: one of DEPTHS."""
    return wanted_of(PROBES, target, depth)


__all__ = [
    "ALIGNED", "CACHES", "DEPTHS", "GEMM", "KINDS", "LEVELS", "MEMORIES", "PROBES", "RATE_UNITS", "TRANSFERS", "VARIANTS",
    "Identified", "Identity", "Probe", "Standard", "Target", "Wanted", "memory_level", "probe_named", "roofs_of",
    "standard_problems", "wanted",
]  # fmt: skip
