"""Series: bandwidth over the size of a working set, and the rate over arithmetic intensity.

Their points are measured in rounds, each in another random order, so that what drifts with time is not taken for size or
intensity.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from ..errors import Error, Unsupported
from ..machine import EmpiricalRoofline, IntensityPoint, Machine, SizeCurve, SizePoint, SustainedSample, cache_capacity
from ..measurement import Policy
from ..measurement.arena import REGIONS
from ..measurement.devices import Device, exclusive
from ..measurement.disturbances import clock_hz, disturbed
from ..measurement.probing import Ready, ready
from ..operators import Operator
from ..probes import Probe
from ..probes.bandwidth import ARRAYS, STREAM, size_problem
from ..probes.compute import FMA, fma_problem
from ..probes.intensity import INTENSITY, mixed_intensity_grid
from ..units import GIB, KIB, MIB

ROUNDS = 3  # undisturbed ones of every point
MOST_ROUNDS = 10
DISTURBED = 0.03  # below the best round of its point, while other work ran: taken again
POINT = Policy(warmup_min_s=0.0, warmup_max_s=0.01, batch_s=2e-3, min_samples=5, min_s=0.03, max_s=0.15, tries=1)
SMALLEST, LARGEST = 4 * KIB, GIB
PER_OCTAVE = 3
LOAD_S, INTERVAL_S = 12.0, 0.5  # of a sustained load: the last half of it counts
LOAD = Policy(warmup_min_s=0.0, warmup_max_s=0.0, batch_s=0.02, min_s=INTERVAL_S, max_s=INTERVAL_S, noise=0.0, tries=1)


@dataclass(slots=True)
class _Point:
    """One problem of a series and the rounds it was measured in: (rates, clock, why contended)."""

    found: Ready
    rounds: list[tuple[list[float], float, str]] = field(default_factory=list)

    def _kept(self) -> list[tuple[list[float], float, str]]:
        """Rounds without other work, and with it those that show nothing of it."""
        best = max(float(np.median(rates)) for rates, _, _ in self.rounds)
        return [r for r in self.rounds if not r[2] or float(np.median(r[0])) > best * (1 - DISTURBED)]

    @property
    def done(self) -> bool:
        return bool(self.rounds) and len(self._kept()) >= ROUNDS

    @property
    def samples(self) -> tuple[float, ...]:
        kept = self._kept() if self.done else self.rounds
        return tuple(rate for rates, _, _ in kept for rate in rates)

    @property
    def clock_hz(self) -> float | None:
        return float(np.median([clock for _, clock, _ in self.rounds])) or None

    @property
    def reason(self) -> str:
        return "" if self.done else self.rounds[-1][2]


def _arrays_bytes(problem: Operator) -> int:
    """What one pass goes over: all but the sum."""
    return sum(t.size_bytes for t in problem.tensors() if t.name != "sum")


def _prepared(device: Device, probe: Probe, problems: Sequence[Operator], variant: str, level: str) -> list[_Point]:
    """Every problem bound and its result checked."""
    points = []
    for problem in problems:
        found = ready(device, probe, problem, variant, level)
        found.verify(f"{problem.name} {dict(problem.to_dict())}")
        points.append(_Point(found))
    return points


def _measured(device: Device, points: Sequence[_Point], policy: Policy) -> tuple[str, str]:
    """Rounds until every point has enough undisturbed ones; the status of the series and its reason."""
    shuffle = random.Random(0).shuffle
    for _ in range(MOST_ROUNDS):
        order = [point for point in points if not point.done]
        shuffle(order)
        for point in order:
            seen = point.found.sampled(device, policy)
            point.rounds.append((point.found.rates(seen["samples_s"]), clock_hz(seen), disturbed(seen, device.facts)))
    left = [point for point in points if not point.done]
    if not left:
        return "ok", ""
    return "contended", f"{len(left)} of its {len(points)} points in every one of {MOST_ROUNDS} rounds: {left[-1].reason}"


def curve_sizes(largest: int = LARGEST) -> list[int]:
    """Sizes of a curve in bytes: three an octave from 4 KiB to `largest`."""
    sizes: list[int] = []
    while (size := round(SMALLEST * 2 ** (len(sizes) / PER_OCTAVE))) <= largest:
        sizes.append(size)
    return sizes


@exclusive
def size_curve(device: Device, access: str, machine: Machine, *, largest: int = LARGEST, policy: Policy = POINT) -> SizeCurve:
    """The bandwidth of `access` over working sets of all threads, 4 KiB to `largest` bytes, less where memory is short.

    Sizes that come to the same problem are measured once. On a GPU the largest is at least 16 times its L2.
    """
    room = device.arena_bytes // (1 if access == "read" else REGIONS) * ARRAYS[access]
    largest = max(largest, 16 * cache_capacity(device.facts, "L2")) if not device.threads else largest
    problems = dict.fromkeys(size_problem(device, size, access) for size in curve_sizes(min(largest, room - MIB)))
    points = _prepared(device, STREAM, list(problems), "plain", "")
    status, reason = _measured(device, points, policy)
    return SizeCurve(
        access=access,
        points=tuple(
            SizePoint(size_bytes=_arrays_bytes(p.found.problem), samples=p.samples, problem=p.found.described()) for p in points
        ),
        threads=device.threads,
        isa=str(points[0].found.sets[0].plan.get("isa", "")),
        status=status,
        reason=reason,
    )


@exclusive
def intensity_sweep(
    device: Device, level: str, machine: Machine, *, dtype: str = "fp32", sustained: bool = False, policy: Policy = POINT
) -> EmpiricalRoofline:
    """The mixed-intensity sweep of one level, between a burst of multiply-adds and (sustained) 12 s of them.

    machine: its roofs, if it has them, say where the knee will be. Raises Unsupported where there is no such kernel.
    """
    if reason := device.missing("mixed_intensity", "read", dtype):
        raise Unsupported(reason)
    flops_per_s = bytes_per_s = 0.0  # unknown: the grid is laid over guessed roofs, with more points far from the knee
    bursts: list[float] = []
    peak = ready(device, FMA, fma_problem(device, dtype), "registers")
    with suppress(Error):
        flops_per_s = machine.compute(dtype, threads=device.threads).value
        bytes_per_s = machine.bandwidth(level, "read", threads=device.threads).value

    def burst() -> None:
        bursts.extend(peak.rates(peak.sampled(device, policy)["samples_s"]))

    grid = mixed_intensity_grid(device, level, dtype, flops_per_s=flops_per_s, bytes_per_s=bytes_per_s)
    points = _prepared(device, INTENSITY, grid, "read", level)
    burst()
    status, reason = _measured(device, points, policy)
    burst()
    by_intensity = {}
    for point in points:
        problem = point.found.problem
        intensity = problem.total_flops() / (_arrays_bytes(problem) * int(problem.to_dict()["passes"]))
        by_intensity[intensity] = IntensityPoint(
            intensity_flops_per_byte=intensity, samples=point.samples, clock_hz=point.clock_hz, problem=point.found.described()
        )
    return EmpiricalRoofline(
        level=level,
        access="read",
        dtype=dtype,
        isa=str(points[0].found.sets[0].plan.get("isa", "")),
        threads=device.threads,
        points=tuple(by_intensity[intensity] for intensity in sorted(by_intensity)),
        burst=tuple(bursts),
        sustained=long_load(device, peak) if sustained else (),
        status=status,
        reason=reason,
    )


def long_load(device: Device, peak: Ready) -> tuple[SustainedSample, ...]:
    """Multiply-adds for LOAD_S, in intervals of half a second with the clock read between them (for some milliseconds)."""
    begun = time.monotonic()
    found: list[SustainedSample] = []
    while time.monotonic() - begun < LOAD_S:
        seen = peak.sampled(device, LOAD)
        rate = float(np.median(peak.rates(seen["samples_s"])))
        found.append(SustainedSample(time_s=time.monotonic() - begun, flops_per_s=rate, clock_hz=clock_hz(seen) or None))
    return tuple(found)
