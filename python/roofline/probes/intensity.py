"""Problems of rising arithmetic intensity, from bandwidth to arithmetic: the points of a measured roofline."""

from __future__ import annotations

import math

from ..dtypes import dtype as dtype_named
from ..operators import MixedIntensity, Operator
from ..units import KIB
from .bandwidth import stream_problem
from .base import Identified, Identity, Probe, Target, words
from .levels import MEMORIES

# Whole tiles of mixed_intensity on every instruction set, in bytes per thread: where every line is computed on, and where not.
MIXED_TILE_BYTES = (1280, 4096)
MIXED_LAUNCH_S = 0.5e-3
# FLOP/s and bytes/s per thread that are taken where the roofs are not known; a launch then lasts 0.2 to 2 ms on any core of today.
GUESSED_FLOPS_PER_S = {"fp32": 120e9, "fp64": 60e9}
GUESSED_BYTES_PER_S = 60e9
# The same per SM: 128 lanes at 1.5 GHz, a tenth of them of fp64, and more than DRAM gives; and whole tiles of four blocks.
GPU_GUESSED_FLOPS_PER_S = {"fp32": 400e9, "fp64": 40e9}
GPU_GUESSED_BYTES_PER_S = 40e9
GPU_MIXED_TILE_BYTES = 64 * KIB


def mixed_intensity_grid(
    target: Target, level: str, dtype: str = "fp32", *, flops_per_s: float = 0.0, bytes_per_s: float = 0.0
) -> list[MixedIntensity]:
    """Problems of one level from 1/16 to 256 FLOP/byte in rising order, three an octave; about thirty.

    flops_per_s, bytes_per_s: the roofs of all threads, if known: then four an octave within a factor of two of their knee and two
    elsewhere, and launches of 0.5 ms in caches. Measure them in random order, so that drift is not intensity.
    Raises Unsupported where the level cannot be shown.
    """
    element = dtype_named(dtype).bits // 8
    on_cpu = "sms" not in target.facts
    units = target.threads if on_cpu else int(target.facts["sms"])
    compute = flops_per_s or (GUESSED_FLOPS_PER_S if on_cpu else GPU_GUESSED_FLOPS_PER_S)[dtype] * units
    bandwidth = bytes_per_s or (GUESSED_BYTES_PER_S if on_cpu else GPU_GUESSED_BYTES_PER_S) * units
    targets = [2.0 ** (third / 3) for third in range(-12, 25)]
    if flops_per_s and bytes_per_s:
        knee = flops_per_s / bytes_per_s
        targets = [2.0 ** (half / 2) for half in range(-8, 17) if not 0.5 < 2.0 ** (half / 2) / knee < 2]
        targets += [knee * 2.0 ** (quarter / 4) for quarter in range(-4, 5)]
    # Below one multiply-add per element, one or three of them on every second, fourth or eighth line.
    choices = [(adds, every) for adds in (1, 3) for every in (8, 4, 2)] + [(adds, 1) for adds in range(1, 128 * element + 1)]
    intensity = {choice: 2 * choice[0] / element / choice[1] for choice in choices}
    wanted = (aim for aim in targets if 1 / 16 <= aim <= 256)
    chosen = {min(choices, key=lambda choice: abs(math.log(intensity[choice] / aim))) for aim in wanted}
    size = stream_problem(target, level, "read", dtype=dtype).elements * element
    found = []
    for multiply_adds, every in sorted(chosen, key=lambda choice: intensity[choice]):
        whole = (MIXED_TILE_BYTES[every > 1] if on_cpu else GPU_MIXED_TILE_BYTES) * units
        size_bytes = max(size // whole, 1) * whole
        pass_s = max(size_bytes / bandwidth, size_bytes * intensity[multiply_adds, every] / compute)
        passes = 1 if level in MEMORIES else max(1, round(MIXED_LAUNCH_S / pass_s))
        sized = MixedIntensity(elements=size_bytes // element, passes=passes, dtype=dtype)
        found.append(sized.replace(multiply_adds=multiply_adds, every=every))
    return found


def _identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
    return Identity(level=level, access=problem.mix, variant=variant, dtype=problem.compute()[0])


def _name(c: Identified) -> str:
    return words(c.level, c.access, "over intensity")


INTENSITY = Probe(
    id="mixed_intensity", kind="compute", operator="mixed_intensity", summary=MixedIntensity.summary, roof=False,
    work=Operator.total_flops, identity=_identity, name=_name, wanted={},
)  # fmt: skip
