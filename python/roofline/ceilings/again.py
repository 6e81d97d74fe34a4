"""The main roofs again: whether a machine still is what its ceilings say."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from ..errors import Error
from ..machine import Ceiling, Machine
from ..machine.statistics import MODE_GAP
from ..measurement import Policy
from ..measurement.devices import Device, exclusive
from ..measurement.probing import measured_again


def main_roofs(machine: Machine) -> list[Ceiling]:
    """The slowest level's read and the fp32 multiply-add."""
    found = []
    asks: tuple[Callable[[], Ceiling], ...] = (machine.bandwidth, lambda: machine.compute("fp32"))
    for ask in asks:
        try:
            best = ask()
        except Error:
            continue
        own = [
            c
            for c in machine.ceilings
            if c.problem
            and c.source == "measured"
            and c.is_roof
            and c.threads == best.threads
            and (c.kind, c.level, c.access, c.dtype) == (best.kind, best.level, best.access, best.dtype)
            and c.probe in ("stream", "fma")
        ]
        found += [max(own, key=lambda c: c.value)] if own else []
    return found


@exclusive
def main_roofs_again(device: Device, machine: Machine, policy: Policy) -> list[tuple[Ceiling, tuple[float, ...], bool]]:
    """Each with samples of its probe now (bytes/s, FLOP/s), and whether other work ran meanwhile."""
    found = []
    for c in main_roofs(machine):
        try:
            again = measured_again(device, c)
        except Error:  # it cannot be measured here, or the file does not say how
            continue
        seen = again.sampled(device, policy)
        found.append((c, tuple(again.rates(seen["samples_s"])), bool(seen["contended"])))
    return found


def in_another_state(device: Device, machine: Machine, policy: Policy) -> bool:
    """Whether a main roof is further from its ceiling than one mode's samples are from each other.

    The cores and the memory of a virtual machine may be another guest's too, for seconds or minutes.
    """
    again = main_roofs_again(device, machine, policy)
    return any(abs(statistics.median(rates) / c.value - 1) > MODE_GAP for c, rates, _ in again)
