"""Which memory level holds a working set, from cache sizes alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .ceiling import LEVELS

# A set that fills a cache to the last byte does not stay in it: code, stacks and other data are there too.
FITS = 0.9


def cache_capacity(facts: Mapping[str, Any], level: str, threads: int | None = None) -> int:
    """Bytes of a cache level over `threads` (None: those of `facts`); 0 where there is none.

    L1 and L2 belong to a core and count once per thread, at most once per core where facts say `cores`; L3 is shared.
    """
    size = int(facts.get(f"{level.lower()}_bytes") or 0)
    count = threads or int(facts.get("threads") or 1)
    return size if level == "L3" else size * max(min(count, int(facts.get("cores") or count)), 1)


def cache_level(facts: Mapping[str, Any], size_bytes: int) -> str:
    """The fastest level that holds `size_bytes`, spread over all threads."""
    for level in LEVELS[:-1]:
        if 0 < size_bytes <= FITS * cache_capacity(facts, level):
            return level
    return LEVELS[-1]


def core_level(facts: Mapping[str, Any], size_bytes: int) -> str:
    """The fastest level that holds `size_bytes` of each thread's own data: its L1 and L2, and its share of L3."""
    threads = max(int(facts.get("threads") or 1), 1)
    return cache_level(facts, size_bytes * threads)
