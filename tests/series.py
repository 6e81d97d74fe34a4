"""Series of known numbers, as if measured: sweeps over the intensity, curves over the working set, and a CPU with both."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from example import CACHES, around, bandwidth, fma, launch

from roofline.machine import Ceiling, EmpiricalRoofline, IntensityPoint, Machine, SizeCurve, SizePoint, SustainedSample
from roofline.units import KIB, MIB

BETA, PI = 38e9, 220e9  # bytes/s and FLOP/s: a knee at 5.79 FLOP/byte
CLOCK = 3.44e9
ELEMENTS = {"L1": 1 << 12, "L2": 1 << 17, "L3": 1 << 22, "DRAM": 1 << 26}  # of the probes of `zen`
NOISY: dict[str, Any] = {"noise": 0.012, "scatter": 0.006}
Sweep = tuple[list[float], list[list[float]], list[float | None]]


def knee_curve(intensity: float, p: float, beta: float = BETA, peak: float = PI) -> float:
    """R(I) as it is written on paper."""
    if math.isinf(p):
        return min(beta * intensity, peak)
    return ((beta * intensity) ** -p + peak**-p) ** (-1 / p)


def sweep(
    p: float,
    *,
    seed: int = 0,
    points: int = 30,
    samples: int = 10,
    noise: float = 0.01,
    scatter: float = 0.0,
    beta: float = BETA,
    peak: float = PI,
    clock: Callable[[float], float] | None = None,
) -> Sweep:
    """From knee / 32 to knee x 32. noise: of each sample; scatter: of each point; clock: share of 3 GHz at an intensity."""
    random = np.random.default_rng(seed)
    intensities = [float(x) for x in np.geomspace(1 / 32, 32, points) * peak / beta]
    values = []
    for x in intensities:
        exact = knee_curve(x, p, beta, peak * (clock(x) if clock else 1.0)) * math.exp(scatter * random.standard_normal())
        values.append([float(v) for v in exact * np.exp(noise * random.standard_normal(samples))])
    return intensities, values, [3e9 * clock(x) if clock else None for x in intensities]


def swept(
    p: float = 4.0, *, beta: float = BETA, peak: float = PI, points: int = 24, seed: int = 0, noise: float = 0.003,
    scatter: float = 0.0, clock: Callable[[float], float] = lambda x: 1.0, **more: Any,
) -> EmpiricalRoofline:  # fmt: skip
    """A sweep as a machine has it; clock: share of CLOCK."""
    given = sweep(p, seed=seed, points=points, noise=noise, scatter=scatter, beta=beta, peak=peak, clock=clock)
    found = tuple(
        IntensityPoint(intensity_flops_per_byte=x, samples=tuple(samples), clock_hz=CLOCK * clock(x))
        for x, samples, _ in zip(*given, strict=True)
    )
    stated = {"level": "DRAM", "access": "read", "dtype": "fp32", "isa": "avx2", "threads": 2, "points": found}
    return EmpiricalRoofline(**{**stated, **more})


def steps(size: float) -> float:
    """Bytes/s of two cores with 32 KiB and 1 MiB each, and 32 MiB shared."""
    return 880e9 if size <= 60 * KIB else 430e9 if size <= 1.9 * MIB else 200e9 if size <= 28 * MIB else BETA


def curve(
    shape: Callable[[float], float], *, low: int = 2 * KIB, high: int = 1 << 30, per_octave: int = 3, scatter: float = 0.0,
    seed: int = 0, **more: Any,
) -> SizeCurve:  # fmt: skip
    """scatter: of each size's bandwidth; its samples scatter by 0.5 % more."""
    random = np.random.default_rng(seed)
    sizes = np.geomspace(low, high, round(math.log2(high / low) * per_octave) + 1)
    values = [shape(size) * math.exp(scatter * random.standard_normal()) for size in sizes]
    points = tuple(
        SizePoint(size_bytes=round(size), samples=tuple(value * np.exp(0.005 * random.standard_normal(8))))
        for size, value in zip(sizes, values, strict=True)
    )
    return SizeCurve(**{"access": "read", "threads": 2, "isa": "avx2", "points": points, **more})


def memory(level: str, access: str, value: float, **more: Any) -> Ceiling:
    problem = {"operator": "stream", "access": access, "elements": ELEMENTS[level], "dtype": "fp32"}
    return bandwidth(around(value), access, level, problem=problem, **more)


def compute(dtype: str, isa: str, value: float, **more: Any) -> Ceiling:
    problem = {"operator": "fma", "dtype": dtype}
    return fma(around(value), dtype, **{"accumulator": dtype, "isa": isa, "clock_hz": CLOCK, "problem": problem, **more})


def chase(level: str, value: float, pages: str) -> Ceiling:
    problem = {"operator": "pointer_chase", "pages": pages}
    return Ceiling(probe="pointer_chase", level=level, samples=around(value), problem=problem, clock_hz=CLOCK, threads=1)


@cache
def zen() -> Machine:
    """A CPU with ceilings of every kind, sweeps and curves."""

    def one_core(size: float) -> float:
        return 0.5 * steps(2 * size if size < 1.9 * MIB else size)

    load = tuple(SustainedSample(time_s=i + 1.0, flops_per_s=PI * (1 - 0.12 * (1 - math.exp(-i / 4)))) for i in range(20))
    return Machine(
        name="AMD EPYC 9R14", created_utc="2026-11-20T10:15:00Z", facts=CACHES,
        ceilings=(
            memory("L1", "read", 880e9), memory("L2", "read", 430e9), memory("L3", "read", 200e9), memory("DRAM", "read", BETA),
            memory("DRAM", "copy", 36e9), memory("DRAM", "copy", 50e9, variant="non_temporal"),
            compute("fp32", "avx2", PI, ops_per_cycle=33.0), compute("fp64", "avx2", 110e9), compute("fp32", "scalar", 14e9),
            compute("fp32", "avx2", 330e9, probe="fma.add", problem={"pattern": "fma_add"}), launch(around(3.4e-6)),
            chase("L1", 1.2e-9, "huge"), chase("L3", 14e-9, "huge"), chase("L3", 21e-9, "small"),
            chase("DRAM", 98e-9, "huge"), chase("DRAM", 131e-9, "small"),
        ),
        empirical=(
            swept(3.1, burst=around(PI), sustained=load, **NOISY), swept(level="L3", beta=200e9, seed=1, **NOISY),
            swept(6.0, level="L2", beta=430e9, seed=2, **NOISY), swept(2.0, level="L1", beta=880e9, seed=3, **NOISY),
            swept(peak=109e9, dtype="fp64", **NOISY),
        ),
        curves=(
            curve(steps), curve(lambda size: 0.7 * steps(size), access="copy", seed=1), curve(one_core, threads=1, seed=2),
        ),
    )  # fmt: skip
