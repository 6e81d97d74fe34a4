"""Which memory level holds a working set, from cache sizes alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..units import KIB, fmt_bytes

CACHES, MEMORIES = ("L1", "L2", "L3"), ("DRAM", "GDDR", "HBM")
LEVELS = CACHES + MEMORIES  # fastest first; a machine has one memory
HBM_BUS_BITS = 1024  # one stack of it; a board of GDDR has at most 512

# A set that fills a cache to the last byte does not stay in it: code, stacks and other data are there too.
FITS = 0.9

# An SM of 8.0 and later has one array for L1 and shared memory, of which so much is always L1.
L1_BESIDE_SHARED_BYTES = 28 * KIB
# The L2 of large GPUs has two halves, and a line that both sides read may lie in each: data that stay must fit one, with room.
GPU_LASTING = 0.4
# Up to so many times the last cache, a warm set still finds a good part of itself there.
PARTLY = 2.0


def memory_level(facts: Mapping[str, Any]) -> str:
    """What a device's memory is: HBM or GDDR of a GPU, else DRAM. By what a datasheet or its name states, else by its bus."""
    stated = str(facts.get("memory_type") or facts.get("gpu_name") or "").upper()
    wide = _is_gpu(facts) and int(facts.get("memory_bus_bits") or 0) >= HBM_BUS_BITS
    kind = next((name for name in ("HBM", "GDDR") if name in stated), "HBM" if wide else "")
    return kind or ("GDDR" if _is_gpu(facts) and facts.get("memory_bus_bits") else "DRAM")


def _is_gpu(facts: Mapping[str, Any]) -> bool:
    return "sms" in facts


def cache_capacity(facts: Mapping[str, Any], level: str, threads: int | None = None) -> int:
    """Bytes of a cache level over `threads` (None: those of `facts`); 0 where there is none.

    L1 and L2 belong to a core and count once per thread, at most once per core where facts say `cores`. An L3 is shared by a group
    of cores, which fewer threads fill one after another; what a guest gets of it is l3_share_bytes, where that was measured. A GPU
    has an L1 in every SM, here without shared memory, and one L2.
    """
    if _is_gpu(facts):
        shared = int(facts.get("shared_bytes_per_sm") or 0)
        l1 = (shared + L1_BESIDE_SHARED_BYTES) * int(facts["sms"]) if shared else 0
        return {"L1": l1, "L2": int(facts.get("l2_bytes") or 0)}.get(level, 0)
    if level == "L3":
        size, instances = int(facts.get("l3_share_bytes") or facts.get("l3_bytes") or 0), int(facts.get("l3_instances") or 1)
        of_all = int(facts.get("threads") or 1)
        return size // instances * math.ceil(min(threads or of_all, of_all) * instances / of_all)
    size = int(facts.get(f"{level.lower()}_bytes") or 0)
    count = threads or int(facts.get("threads") or 1)
    return size * max(min(count, int(facts.get("cores") or count)), 1)


def stated_caches(facts: Mapping[str, Any]) -> list[str]:
    """Each cache with its size, as people read it: "L2 2 MiB", "L3 480 MiB (170 MiB to be had)", "L3 8 x 32 MiB"."""
    sizes = {name: int(facts.get(f"{name.lower()}_bytes") or 0) for name in CACHES}
    share = int(facts.get("l3_share_bytes") or 0)
    stated = {name: fmt_bytes(size) for name, size in sizes.items() if size}
    if (instances := int(facts.get("l3_instances") or 1)) > 1:
        stated["L3"] = f"{instances} x {fmt_bytes(sizes['L3'] // instances)}"
    if "L3" in stated and share not in (0, sizes["L3"]):
        stated["L3"] += f" ({fmt_bytes(share)} to be had)"
    return [f"{name} {size}" for name, size in stated.items()]


def last_cache(facts: Mapping[str, Any]) -> int:
    """Bytes of the largest cache that is known; 0 where none is."""
    return max(cache_capacity(facts, level) for level in CACHES)


def curve_capacity(facts: Mapping[str, Any], level: str, threads: int | None = None) -> int:
    """Bytes of a cache level that a curve over size can show: of a GPU only L2, for its loads go past L1."""
    return 0 if _is_gpu(facts) and level == "L1" else cache_capacity(facts, level, threads)


def lasting_capacity(facts: Mapping[str, Any], level: str, threads: int | None = None) -> int:
    """Bytes of a cache level in which operands may wait for a launch: of a GPU a part of its L2, since its L1 is empty by then."""
    if _is_gpu(facts):
        return int(GPU_LASTING * curve_capacity(facts, level))
    return cache_capacity(facts, level, threads)


def held_by(facts: Mapping[str, Any], size_bytes: Any) -> Iterator[tuple[str, Any]]:
    """Each level with whether it is the fastest that holds `size_bytes`, spread over all threads: a bool, or an array of them."""
    left: Any = True
    for level in CACHES:
        capacity = FITS * lasting_capacity(facts, level)
        if capacity:
            fits = (size_bytes > 0) & (size_bytes <= capacity) & left
            yield level, fits
            left = left & (fits ^ True)
    yield memory_level(facts), left


def cache_level(facts: Mapping[str, Any], size_bytes: int) -> str:
    """The fastest level that holds `size_bytes`, spread over all threads."""
    return next(level for level, holds in held_by(facts, size_bytes) if holds)


def warm_level(facts: Mapping[str, Any], size_bytes: int) -> str:
    """Where a set lies that is gone over launch after launch: L3 too where that holds a good part of it, else as `cache_level`."""
    level = cache_level(facts, size_bytes)
    return "L3" if level in MEMORIES and size_bytes <= PARTLY * lasting_capacity(facts, "L3") else level


def own_bytes(facts: Mapping[str, Any], size_bytes: Any) -> Any:
    """What `size_bytes` of each thread's own data are over all threads: they meet its L1 and L2, and its share of L3."""
    return size_bytes * max(int(facts.get("threads") or 1), 1)
