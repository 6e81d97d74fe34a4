"""Arithmetic units of a GPU: which problem shows what each of them can do, and what none of them can be above."""

from __future__ import annotations

import math

from ..hardware import Rate, unit_rate
from ..operators import Matmul, Mma, Operator
from .base import Target

LAUNCH_S = 2e-3  # of a probe: its launch and its ramps are then below 1 %
_UNKNOWN = {"core": 256, "tensor": 1024}  # operations per cycle and multiprocessor where nothing is known, for sizes alone
_TILES_PER_SM = {"mma_sync": 24, "wgmma": 2}  # whole rounds of the warps, or warpgroups, that are resident
_PAIRED = ("sm_100", "sm_103")  # with multiply-adds of two fp32 at a time
LIBRARY_SIZE = 8192  # rows, columns and inner of a product that shows what the library reaches


def architecture(target: Target) -> str:
    return str(target.facts.get("architecture", ""))


def rate(target: Target, dtype: str, unit: str, accumulator: str = "") -> Rate | None:
    """Operations per cycle and multiprocessor of a GPU. accumulator: empty for the fastest. None where nothing is known."""
    digits = architecture(target).removeprefix("sm_")
    capability = f"{digits[:-1]}.{digits[-1:]}"
    return unit_rate(capability, target.title, dtype, unit, accumulator)


def peak_flops_per_s(target: Target, dtype: str, unit: str, accumulator: str = "") -> float:
    """About what a GPU can do at its highest clock, to size probes with."""
    known = rate(target, dtype, unit, accumulator)
    per_cycle = known.flops_per_cycle if known else _UNKNOWN[unit]
    return per_cycle * int(target.facts["sms"]) * float(target.facts.get("max_clock_hz") or 1e9)


def core_flops_per_s(target: Target) -> float:
    """What arithmetic outside tensor units can be at most: fp32 of a GPU's cores; infinite, so not known, elsewhere."""
    return peak_flops_per_s(target, "fp32", "core") if "sms" in target.facts else math.inf


def unit_of(target: Target, problem: Operator) -> str:
    """Where a probe computes: "tensor" for products on a GPU whose tensor units take the dtype, else "core"."""
    if "sms" not in target.facts or not isinstance(problem, (Matmul, Mma)):
        return "core"
    dtype = problem.compute()[0]
    known = dtype not in ("fp32", "fp64") or rate(target, dtype, "tensor") is not None
    return "tensor" if isinstance(problem, Mma) or known else "core"


def launch_steps(target: Target, flops_per_step: int, dtype: str, unit: str, accumulator: str = "") -> int:
    """Steps of a launch of about LAUNCH_S: whole rounds of the kernels and one, so that a result shows that they were done."""
    steps = LAUNCH_S * peak_flops_per_s(target, dtype, unit, accumulator) / flops_per_step
    return max(int(steps) // 64 * 64, 64) + 1


def core_isas(target: Target, dtype: str) -> list[str]:
    """Instruction sets of a GPU's cores for a dtype: the ordinary one (""), and pairs of fp32 where they are one instruction."""
    return ["", "f32x2"] if dtype == "fp32" and architecture(target) in _PAIRED else [""]


def tensor_variants(target: Target, dtype: str) -> list[str]:
    """Variants of mma that may drive the tensor units, the fastest first."""
    able = [name for name, declared in Mma.variants.items() if dtype in declared.dtypes.get(target.backend, ())]
    return [name for name in reversed(able) if name != "wgmma" or architecture(target) == "sm_90"]


def library_is_faster(target: Target) -> bool:
    """Whether the tensor units' own instructions (tcgen05) are used by the library alone."""
    return architecture(target) in ("sm_100", "sm_103", "sm_110")


def tensor_problem(target: Target, variant: str, dtype: str, accumulator: str = "", data: str = "random") -> Mma:
    """The probe of the tensor units by one variant."""
    tiles = _TILES_PER_SM[variant] * int(target.facts["sms"])
    one = Mma.make(tiles=tiles, steps=1, dtype=dtype, accumulator=accumulator, data=data, **Mma.tile(variant, dtype))
    return one.replace(steps=launch_steps(target, one.total_flops(), dtype, unit_of(target, one), accumulator))
