"""A problem on a device: its buffers, allocated, filled and bound, and where its operands lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import Error, OutOfMemory, Unsupported
from ..operators import Operator
from ..prediction import moved_bytes
from ..probes.levels import last_cache
from ..results import CACHE_STATES
from ..units import fmt_bytes
from ..words import dimension
from .devices import Device
from .probing import level_of
from .tensors import Held, allocate_all, bind, require_kernels

MOST_SETS = 64  # of rotating buffers; a smaller problem is made cold by emptying the caches instead


@dataclass(slots=True)
class Prepared:
    """A problem on a device, once per set of buffers."""

    device: Device
    problem: Operator
    variant: str
    sets: list[Any]
    tensors: list[dict[str, Held]]
    plan: dict[str, Any]
    flush_each: bool

    def working_set_bytes(self) -> int:
        """What one launch touches: tensors, of weights as much of their packed copy where there is one, and workspace."""
        specs = [t for t in self.problem.tensors() if not t.link]
        weights = [t for t in specs if t.role == "constant"]
        copied = int(self.plan.get("packed_bytes", 0)) / max(sum(t.size_bytes for t in weights), 1)  # of each byte of weights
        own = sum(t.used_bytes for t in specs if t.role != "constant")
        read = sum(t.used_bytes for t in weights)
        return own + math.ceil(read * max(copied, 1.0)) + int(self.plan.get("workspace_bytes", 0))

    @property
    def caches(self) -> Mapping[str, Any]:
        """Facts with cache sizes where they mean something."""
        return {} if "sms" in self.device.facts else self.device.facts

    def placed(self, cache_state: str) -> str:
        """The level of the operands."""
        return level_of(self.device, self.working_set_bytes(), cache_state)

    def moved(self, level: str) -> dict[str, dict[str, int]]:
        """Bytes by level and term with the operands in `level`. What a cache keeps of them is named in the plan."""
        found = moved_bytes(self.problem, self.plan, self.caches, level)
        kept = [(where, terms[term]) for where, terms in found.items() for term in self.problem.traffic(self.plan) if term in terms]
        if kept and kept[0][0] != level:
            self.plan["cached_traffic_bytes"], self.plan["cached_traffic_level"] = sum(size for _, size in kept), kept[0][0]
        return found


def checked_seed(seed: int) -> int:
    """Raises Error for what does not seed the random data."""
    return dimension("seed", seed, 0, 31)


def cold_sets(facts: Mapping[str, Any], problem: Operator, apart: int = 0) -> tuple[int, bool]:
    """How many sets of buffers launches on cold memory take in turns, and whether the caches are emptied before each.

    facts: of the device. apart: bytes of workspace and packed operands, which come once per set too.
    """
    cache, footprint = last_cache(facts), problem.footprint_bytes()
    used = sum(t.used_bytes for t in problem.tensors() if not t.link)
    if facts.get("flush"):  # the lines of one set, before each launch, unless most of them are gone by then
        return 1, 0 < used < 4 * cache
    # Between two launches on the same set the tensors of the others pass: four caches' worth, since stores may bypass the
    # cache and its replacement may keep old lines. A few rows of a large table would take many tables.
    wanted = 1 if used >= 8 * cache else 1 + math.ceil(4 * cache / max(used, 1))
    if used > 0 and (wanted > MOST_SETS or (wanted > 1 and used < footprint)):
        return 1, True
    if apart:
        wanted = min(wanted, 1 + math.ceil(4 * cache / (footprint + apart)))
    return wanted if footprint else 1, False


def prepare(device: Device, problem: Operator, variant: str | None, cache_state: str, seed: int) -> Prepared:
    """Allocate, fill and bind as many sets of buffers as the cache state needs. Raises Unsupported and OutOfMemory."""
    if cache_state not in CACHE_STATES[:2]:
        raise Error(f"cache_state must be cold or warm, got {cache_state!r:.80}")
    require_kernels(problem)
    chosen = variant or device.default_variant(problem)
    problem.require_variant(chosen)

    if reason := device.missing(problem.name, chosen, getattr(problem, "dtype", "fp32")):
        raise Unsupported(f"{problem.name} {chosen}: {reason}")
    # Memory is only taken when it is touched, so that the sum is asked for before the parts.
    footprint, have = problem.footprint_bytes(), device.core.available_bytes()
    if footprint > have:
        raise OutOfMemory(
            f"{problem.name}: its tensors take {fmt_bytes(footprint)}, {fmt_bytes(have)} are available; use smaller dimensions"
        )
    tensors = [allocate_all(device, problem, checked_seed(seed))]
    sets = [bind(device, problem, chosen, tensors[0])]
    plan = {"variant": chosen, **sets[0].plan}
    apart = int(plan.get("workspace_bytes", 0)) + int(plan.get("packed_bytes", 0))
    wanted, flush_each = cold_sets(device.facts, problem, apart) if cache_state == "cold" else (1, False)
    for index in range(1, wanted):
        tensors.append(allocate_all(device, problem, seed + index))
        sets.append(bind(device, problem, chosen, tensors[-1]))
    plan["buffer_sets"] = len(sets)
    return Prepared(device, problem, chosen, sets, tensors, plan, flush_each)
