"""One block of a device's memory that all its probes share: no probe has arrays of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import OutOfMemory
from ..probes import Wanted
from ..tensor_spec import TensorSpec
from ..units import GIB, fmt_bytes
from .tensors import GUARD_BYTES, HUGE_PAGE_BYTES, Held

LIMIT_BYTES = 4 * GIB
REGIONS = 3  # for what a probe reads (a, b) and writes (c)
LEAST_BYTES = 32 * 1024  # of a tensor; smaller ones are allocated apart


def arena_bytes(available: int, asked: int | None = None) -> int:
    """The smaller of LIMIT_BYTES and a quarter of the available memory, in whole regions; or as much as is asked for.

    Raises OutOfMemory where more is asked for than is available.
    """
    if asked is not None and asked > available:
        raise OutOfMemory(f"{fmt_bytes(asked)} are asked for the arrays of probes, {fmt_bytes(available)} are available")
    size = min(LIMIT_BYTES, available // 4) if asked is None else asked
    return max(size // (REGIONS * HUGE_PAGE_BYTES), 1) * REGIONS * HUGE_PAGE_BYTES


def needs(wanted: Iterable[Wanted]) -> tuple[int, int]:
    """Bytes of the arena that these probes touch, and the most that one of the others allocates apart."""
    shared = apart = 0
    for what in wanted:
        sizes = [sum(spec.size_bytes for spec in problem.tensors()) for problem, _ in what.candidates if not what.missing]
        if what.kept:
            shared = max(shared, *sizes, 0)
        else:
            apart = max(apart, *sizes, 0)
    return shared, apart


class Arena:
    """Three regions, of which only what probes ask for is touched. Inputs hold random fp32 numbers, which never change."""

    def __init__(self, core: Any, size_bytes: int) -> None:
        self._core, self._region = core, size_bytes // REGIONS
        self._memory: Any = None
        self._filled = [0] * REGIONS

    @property
    def touched_bytes(self) -> int:
        return sum(min(filled, self._region) for filled in self._filled)

    def held(self, specs: Iterable[TensorSpec]) -> dict[str, Held]:
        """The tensors of one problem, each in a region of its own; one alone may use them all. Raises OutOfMemory.

        Inputs hold random numbers, where they are floating-point ones. Outputs may be overwritten by the next problem.
        """
        if self._memory is None:
            self._memory = self._core.memory(REGIONS * self._region)
        specs = list(specs)
        found: dict[str, Held] = {}
        used = 0
        for spec in specs:
            region = used if spec.role == "in" else REGIONS - 1
            used += spec.role == "in"
            size = spec.size_bytes + 2 * GUARD_BYTES
            room = self._region * (REGIONS if len(specs) == 1 and spec.role == "in" else 1)
            if size > room or region >= REGIONS:
                raise OutOfMemory(f"the arrays of probes have {fmt_bytes(room)}, {spec.name} needs {fmt_bytes(size)}")
            self._fill(region, size, random=spec.role == "in")
            found[spec.name] = Held(spec, self._memory, region * self._region + GUARD_BYTES, touched=lambda: self.touched_bytes)
        return found

    def _fill(self, region: int, size: int, *, random: bool) -> None:
        """Touch a region up to `size`, with random numbers or zeros; it may reach into the next ones."""
        begin = self._filled[region]
        if size <= begin:
            return
        end = (size + HUGE_PAGE_BYTES - 1) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        offset = region * self._region
        seed = 17 * region + begin // HUGE_PAGE_BYTES
        self._memory.fill("fp32", (end - begin) // 4, "uniform" if random else "zeros", seed, offset + begin)
        self._filled[region] = end
        for each in range(region + 1, REGIONS):
            covered = min(max(offset + end - each * self._region, 0), self._region)
            self._filled[each] = max(self._filled[each], covered)
