"""Every kernel on its standard problems: how long it took, and what the roofs of that second said of its parts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from ..errors import Error
from ..machine import MEMORIES, MOVED, Ceiling, KernelTime, Machine
from ..measurement import Policy
from ..measurement.devices import Device, exclusive
from ..measurement.preparing import prepare
from ..measurement.probing import Ready, roofs_of
from ..measurement.tensors import check
from ..measurement.timing import from_rates, roofs_seen, timed
from ..model import Roofs
from ..operators import Operator
from ..prediction import memory_and_rest_s
from ..probes import Standard
from ..probes.standard import NAMES
from ..units import MIB

# There are thousands, and an error of one affects few predictions: each is sampled for some milliseconds.
BRIEF = Policy(warmup_min_s=0.001, warmup_max_s=0.0015, batch_s=3e-4, min_samples=3, min_s=0.002, max_s=0.004, tries=1)
# Its array must be in its cache again: another kernel has run since, and a cache keeps new lines only after some passes.
# Around one of thousands a short look is enough; around the few problems of reports a wrong one would move the costs of a kernel.
ROOF = Policy(warmup_min_s=0.005, warmup_max_s=0.01, batch_s=2e-3, min_samples=5, min_s=0.012, max_s=0.04, tries=1)
SHORT_ROOF = Policy(warmup_min_s=0.004, warmup_max_s=0.008, batch_s=1.5e-3, min_samples=5, min_s=0.008, max_s=0.016, tries=1)
# Elements of each of its flushed arrays at most. From 16 MiB up size makes no difference (an Intel Xeon reads 16 to 256 MiB of fp32
# at 26 GB/s, and copies them at 36), but to flush and to read a machine's array of 256 MiB takes 40 ms.
ROOF_ELEMENTS = 4 * MIB
# Where the host moves a guest's cores apart and together, launches take one time or another from one problem to the next.
LAUNCH = Policy(warmup_min_s=0.0, warmup_max_s=0.0, batch_s=5e-5, min_samples=3, min_s=0.0, max_s=2e-4, tries=1)
# How long a roof holds before it is measured again: least, first and most. Memory has been seen to double within minutes, and
# arithmetic to halve while other guests use the same cores. The time doubles where the roof did not move, and else is a quarter.
FRESH_S = (0.5, 4.0, 16.0)
FRESH_GPU_S = (0.5, 60.0, 240.0)  # a GPU's roofs keep still, and a turn through all its kernels takes longer than 16 s
# Where launches take this many times as long or as short, the host has moved the cores: apart, where each may have a cache and a
# way to memory of its own, or together, up to two hardware threads of one core. Roofs are others then, and what was timed meanwhile
# is timed again. Around the few problems of reports roofs hold for the least time, and one that has just moved by JUMPED for none:
# a wrong one would move the costs of a kernel.
LAUNCH_MOVED, JUMPED = 2.0, 0.2
TRIES = 3
MOST_SAMPLES = 5  # that are kept of one, evenly among all in order, the least among them
CHECKED: dict[str, Any] = {"whole_flops": 2e7, "whole_bytes": 2**20, "sampled_rows": 4}  # see `check`


class Seen(NamedTuple):
    """A roof: when it was measured, how long it holds from there, how long a launch took then, its rates, whether they jumped."""

    begun: float
    holds_s: float
    launch_s: float
    rates: list[float]
    jumped: bool


class Surroundings:
    """The roofs around standard problems: each kept while it holds, and around those of reports for the least time."""

    def __init__(self, device: Device, machine: Machine) -> None:
        flushed = bool(device.facts.get("flush"))
        self.device = device
        self.machine = dataclasses.replace(machine, ceilings=tuple(_brief(c, flushed) for c in machine.ceilings))
        self._seen: dict[int, list[Seen]] = {}  # by the probe, which the device keeps: one for each time that launches took

    def around(
        self, problem: Operator, level: str, timed: Callable[[], Any], arithmetic: str = "", set_bytes: int = 0
    ) -> tuple[Roofs, Any]:
        """The roofs of `problem`, launches before and after `timed`, and what that returns. arithmetic: see `from_rates`;
        set_bytes: see `bandwidth_probe`."""
        probes = roofs_of(
            self.device, mix=problem.mix, arithmetic=arithmetic or problem.compute()[0], level=level, flops=problem.total_flops(),
            machine=self.machine, products=bool(problem.products()), set_bytes=set_bytes,
        )  # fmt: skip
        launch = next(probe for probe in probes if probe.kind == "latency")
        few = problem in NAMES
        if "sms" in self.device.facts:  # no host moves a GPU's cores: a launch takes what it took, like the other roofs
            return roofs_seen({probe.kind: self._rates(probe, 1.0, few) for probe in probes}, level), timed()
        for _ in range(TRIES):
            before = launch.sampled(self.device, LAUNCH)["samples_s"]
            rates = {probe.kind: self._rates(probe, min(before), few) for probe in probes if probe.kind != "latency"}
            seen = timed()
            after = launch.sampled(self.device, LAUNCH)["samples_s"]
            if _as_long(min(before), min(after)):
                break
        else:
            seen["contended"] = True
        return roofs_seen({**rates, "latency": launch.rates([*before, *after])}, level), seen

    def _rates(self, probe: Ready, launch_s: float, few: bool) -> list[float]:
        begun = time.monotonic()
        kept = self._seen.setdefault(id(probe), [])
        seen = next((each for each in reversed(kept) if _as_long(launch_s, each.launch_s)), None)
        least_s, holds_s, most_s = FRESH_GPU_S if "sms" in self.device.facts else FRESH_S
        if seen is not None and begun - seen.begun <= ((0.0 if seen.jumped else least_s) if few else seen.holds_s):
            return seen.rates
        policy = ROOF if few else SHORT_ROOF
        rates = probe.rates(probe.sampled(self.device, policy)["samples_s"])
        change = 0.0
        if seen is not None:
            change = abs(median(rates) / median(seen.rates) - 1)
            same = change < MOVED
            holds_s = min(2 * seen.holds_s, most_s) if same else max(seen.holds_s / 4, least_s)
            if not same:  # for good, or while another guest was busy for some milliseconds
                rates = max(rates, probe.rates(probe.sampled(self.device, policy)["samples_s"]), key=median)
            kept.remove(seen)
        kept.append(Seen(begun, holds_s, launch_s, rates, change > JUMPED))
        return rates


def _brief(ceiling: Ceiling, flushed: bool) -> Ceiling:
    """A ceiling of memory over flushed arrays: with at most ROOF_ELEMENTS in each; any other as it was measured."""
    elements = ceiling.problem.get("elements", 0)
    if not flushed or ceiling.level not in MEMORIES or elements <= ROOF_ELEMENTS:
        return ceiling
    return dataclasses.replace(ceiling, problem={**ceiling.problem, "elements": ROOF_ELEMENTS})


def _as_long(launch_s: float, other_s: float) -> bool:
    return 1 / LAUNCH_MOVED < launch_s / other_s < LAUNCH_MOVED


def kept_fields(problem: Operator) -> dict[str, Any]:
    """The fields of a problem that differ from their defaults; all where others would then be found from these."""
    every, defaults = problem.to_dict(), type(problem)().to_dict()
    given = {name: value for name, value in every.items() if value != defaults[name]}
    return given if type(problem)(**given) == problem else every


def _rounded(seconds: float) -> float:
    """To four digits, which a machine file keeps."""
    return float(f"{seconds:.4g}")


@exclusive
def kernel_time(device: Device, standard: Standard, surroundings: Surroundings, *, checked: bool = False) -> KernelTime:
    """A kernel on a standard problem: checked unless it was before, then sampled.

    Raises Unsupported where it cannot run, Error where it is wrong.
    """
    problem, variant, cold = standard
    prepared = prepare(device, problem, variant, "cold" if cold else "warm", 0)
    if not checked:
        prepared.sets[0].run()
        correctness = check(problem, prepared.tensors[0], 0, **CHECKED)
        if not correctness["passed"]:
            raise Error(f"{standard.label}: {correctness['reason']}")
    level, arithmetic = prepared.placed("cold" if cold else "warm"), prepared.plan.get("arithmetic", "")
    roofs, seen = surroundings.around(problem, level, partial(timed, prepared, BRIEF), arithmetic, prepared.working_set_bytes())
    parts = from_rates(prepared, surroundings.machine, level, arithmetic, own=True)(roofs)["parts"]
    memory_s, rest_s = memory_and_rest_s(parts)
    bare = dataclasses.replace(prepared, plan={"variant": variant})
    unplanned = memory_and_rest_s(from_rates(bare, surroundings.machine, level, arithmetic, own=True)(roofs)["parts"])
    samples = sorted(seen["samples_s"])
    rows, _, columns = str(prepared.plan.get("tile", "1x1")).partition("x")  # "14x32"
    return KernelTime(
        problem={"operator": problem.name, **kept_fields(problem)},
        variant=variant,
        cold=cold,
        samples_s=tuple(_rounded(s) for s in samples[:: -(-len(samples) // MOST_SAMPLES)]),
        launch_s=_rounded(parts.get("launch", 0.0)),
        memory_s=_rounded(memory_s),
        rest_s=_rounded(rest_s),
        unplanned=None if unplanned == (memory_s, rest_s) else (_rounded(unplanned[0]), _rounded(unplanned[1])),
        threads=max(device.threads, 1),
        tile=(int(rows), int(columns)),
        sms=int(device.facts.get("sms", 0)),
        status="contended" if seen["contended"] else "ok",
    )


def _parts_s(timed: KernelTime) -> float:
    return timed.launch_s + timed.memory_s + timed.rest_s


def averaged(one: KernelTime, other: KernelTime) -> KernelTime:
    """Two timings of one problem as one: the undisturbed one, else the samples of both beside the mean of their parts.

    The later one where the roofs moved between them: `KernelTime.time_s`, a quartile, would be of the faster one alone.
    """
    if one.status != other.status:
        return one if one.status == "ok" else other
    if abs(_parts_s(one) / _parts_s(other) - 1) > MOVED:
        return other

    def mean(a: float, b: float) -> float:
        return _rounded((a + b) / 2)

    unplanned = None
    if one.unplanned and other.unplanned:
        unplanned = mean(one.unplanned[0], other.unplanned[0]), mean(one.unplanned[1], other.unplanned[1])
    return dataclasses.replace(
        one,
        samples_s=(*one.samples_s, *other.samples_s),
        launch_s=mean(one.launch_s, other.launch_s),
        memory_s=mean(one.memory_s, other.memory_s),
        rest_s=mean(one.rest_s, other.rest_s),
        unplanned=unplanned,
    )
