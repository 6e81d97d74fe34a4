"""Which memory level holds a working set, from cache sizes alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def held_by(facts: Mapping[str, Any], size_bytes: Any) -> Iterator[tuple[str, Any]]:
    """Each level with whether it is the fastest that holds `size_bytes`, spread over all threads: a bool, or an array of them."""
    left: Any = True
    for level in LEVELS[:-1]:
        capacity = FITS * cache_capacity(facts, level)
        if capacity:
            fits = (size_bytes > 0) & (size_bytes <= capacity) & left
            yield level, fits
            left = left & (fits ^ True)
    yield LEVELS[-1], left


def cache_level(facts: Mapping[str, Any], size_bytes: int) -> str:
    """The fastest level that holds `size_bytes`, spread over all threads."""
    return next(level for level, holds in held_by(facts, size_bytes) if holds)


def own_bytes(facts: Mapping[str, Any], size_bytes: Any) -> Any:
    """What `size_bytes` of each thread's own data are over all threads: they meet its L1 and L2, and its share of L3."""
    return size_bytes * max(int(facts.get("threads") or 1), 1)
