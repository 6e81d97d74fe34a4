"""What this machine gets of its last cache: a guest is told the size of the whole host's, and shares it with others."""

from __future__ import annotations

import math

from ..errors import Unsupported
from ..measurement.devices import Device, exclusive
from ..measurement.policy import Policy
from ..measurement.probing import ready
from ..probes.bandwidth import STREAM, cache_set_bytes, size_problem
from ..units import MIB

BRIEF = Policy(warmup_min_s=0.0, warmup_max_s=0.01, batch_s=2e-3, min_samples=3, min_s=0.01, max_s=0.05, noise=0.05, tries=1)
PER_OCTAVE = 2
TRIES = 4  # of a size, while other work runs: a window of 10 ms is easily disturbed
FASTER = 1.2  # than memory, so that the two can be told apart
BEYOND = 0.1  # of the way from the cache's time to memory's: all that a set larger than the reported size may take


@exclusive
def last_cache_share(device: Device) -> int | None:
    """Bytes of the largest working set that L3 serves: repeated reads of rising sets, against reads of flushed ones.

    A guest that is told one L3 may run on cores that have one each: sets beyond the reported size count where L3 clearly serves
    them. None where the two rates are too near each other, where other work ran, or where there is no L3 or no flush.
    """
    facts = device.facts
    reported, instances = int(facts.get("l3_bytes") or 0), int(facts.get("l3_instances") or 1)
    try:
        smallest = cache_set_bytes(device, "L3")
    except Unsupported:
        return None
    if not facts.get("flush"):
        return None

    disturbed = False

    def rate(size: int, level: str = "") -> float:
        nonlocal disturbed
        problem = size_problem(device, size).replace(streams=4)
        found = ready(device, STREAM, problem.replace(passes=1) if level else problem, "plain", level)
        best = 0.0
        for _ in range(TRIES):
            seen = found.sampled(device, BRIEF)
            best = max(best, *found.rates(seen["samples_s"]))
            if not seen["contended"]:
                return best
        disturbed = True
        return best

    largest = min(reported // instances * int(facts["threads"]), device.arena_bytes - MIB)
    near, far = rate(smallest), rate(max(smallest, min(largest, 64 * MIB)), "DRAM")
    if near < FASTER * far or disturbed:
        return None
    between, clearly_near = math.sqrt(near * far), 1 / ((1 - BEYOND) / near + BEYOND / far)
    held = smallest
    steps = round(PER_OCTAVE * math.log2(largest / smallest))
    for step in range(1, steps + 1):
        size = min(round(smallest * 2 ** (step / PER_OCTAVE)), largest)
        if rate(size) < (between if size <= reported else clearly_near):
            break
        held = size
    return None if disturbed else held
