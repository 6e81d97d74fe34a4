"""The rates of a machine for a problem: bytes/s by level, operations/s by kind, and the sharpness of its knee."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counts import any_of, larger, pick, smaller
from ..errors import Error
from ..kernel_costs import is_timed
from ..machine import LEVELS, MEMORIES, Ceiling, Machine, held_by, own_bytes
from ..model import Roofs, bandwidth_of, compute_ceiling, core_ceiling
from ..operators.base import WORK, Facts, Operator
from ..operators.scales import USUAL_SCALES, scales_name
from ..same import Same

KNEE = 3.0  # the sharpness p where no knee was measured, and that of a kernel's cache time and arithmetic
Sizes = list[tuple[float, Ceiling]]  # by growing size


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """bandwidths: bytes/s by level. work: operations/s by kind (all of WORK). launch_s: of one step. knee: p of the p-norm."""

    bandwidths: Mapping[str, float]
    work: Mapping[str, float]
    launch_s: float = 0.0
    knee: float = KNEE
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def scaled(self, *, bandwidths: Mapping[str, float], compute: float, launch_s: float) -> Rates:
        """With these `bandwidths` (bytes/s by level), every kind of work times `compute` (a factor), and another launch floor."""
        return dataclasses.replace(
            self,
            bandwidths={**self.bandwidths, **bandwidths},
            work={kind: rate * compute for kind, rate in self.work.items()},
            launch_s=launch_s,
        )

    def derated(self, shares: Mapping[str, float]) -> Rates:
        """With `shares` of all work ("compute"), of every memory level ("bandwidth"), and of the link."""
        levels = {
            level: rate * shares.get("link" if level == "link" else "bandwidth", 1.0) for level, rate in self.bandwidths.items()
        }
        return dataclasses.replace(
            self,
            bandwidths=levels,
            work={kind: rate * shares.get("compute", 1.0) for kind, rate in self.work.items()},
            labels={
                name: share_of(label, shares, "compute" if name in WORK else "link" if name == "link" else "bandwidth")
                for name, label in self.labels.items()
            },
        )

    def parts_s(self, work: Mapping[str, int], moved: Mapping[str, int], launches: int = 1) -> dict[str, float]:
        """Seconds of each part alone: memory levels, kinds of work, and "launch"."""
        parts = {level: size / self.bandwidths[level] for level, size in moved.items() if any_of(size)}
        parts |= {kind: count / self.work[kind] for kind, count in work.items() if any_of(count)}
        return parts | {"launch": launches * self.launch_s}

    def time_s(self, parts: Mapping[str, float]) -> float:
        """The expected time from `parts_s`."""
        arithmetic = sum(seconds for name, seconds in parts.items() if name in WORK)
        levels = [seconds for name, seconds in parts.items() if name not in WORK and name != "launch"]
        longest = functools.reduce(larger, (*levels, arithmetic), 0.0)
        if math.isinf(self.knee):
            return parts.get("launch", 0.0) + longest
        scale = larger(longest, sys.float_info.min)  # where nothing takes time at all
        norm: float = sum((seconds / scale) ** self.knee for seconds in (*levels, arithmetic)) ** (1 / self.knee)
        return parts.get("launch", 0.0) + longest * norm


def memory_and_rest_s(parts: Mapping[str, Any]) -> tuple[Any, Any]:
    """Seconds of the bytes from memory, and of all else but launches together; parts: `Rates.parts_s`."""
    rest = {name: seconds for name, seconds in parts.items() if name not in (*MEMORIES, "launch")}
    return sum(parts.get(name, 0.0) for name in MEMORIES), Rates(bandwidths={}, work={}).time_s(rest)


def share_of(label: str, shares: Mapping[str, float], roof: str) -> str:
    share = shares.get(roof, 1.0)
    return label if share == 1 else f"{label} × {share:g}"


def moved_bytes(problem: Operator, plan: Facts, facts: Mapping[str, Any], level: str) -> dict[str, dict[str, int]]:
    """Bytes by memory level and term, compulsory ones first, with the operands in `level`. facts: cache sizes; none: no caches.

    What a variant moves beyond the compulsory bytes reaches memory unless a cache holds its workspace (`Variant.workspace_bytes`).
    """
    found: dict[str, dict[str, int]] = {level: {"compulsory": problem.compulsory_bytes()}}
    beyond = problem.traffic(plan)
    if beyond:
        for where, there in held_by(facts, problem.workspace_bytes(plan)) if level == "DRAM" else ((level, True),):
            if any_of(there):
                found.setdefault(where, {}).update({term: size * there for term, size in beyond.items()})
    return found


def reused_bytes(problem: Operator, plan: Facts, facts: Mapping[str, Any]) -> dict[str, int]:
    """Bytes that a variant finds again in a cache (`Operator.reuse`) by the level that holds them; none where no cache is known."""
    found: dict[str, int] = {}
    if any(facts.get(f"{level.lower()}_bytes") for level in LEVELS):
        for size, footprint in problem.reuse(plan).values():
            for where, there in held_by(facts, own_bytes(facts, footprint)):
                if any_of(there):
                    found[where] = found.get(where, 0) + size * there
    return found


@functools.lru_cache(maxsize=1024)
def _products(asked: Same[Machine], dtype: str, own_scales: str, threads: int | None) -> tuple[Sizes, Sizes]:
    """The library's products in a dtype: aligned squares by their edge, and narrow ones by their rows.

    With a problem's own scales; where none were measured with these, with the dtype's usual ones, else without. The fastest counts
    where several have one size.
    """
    machine = asked.held
    most = threads or max((c.threads for c in machine.ceilings if c.kind == "compute"), default=0)
    squares, narrow = (machine.of(probe, dtype=dtype, threads=most) for probe in ("gemm.square", "gemm.narrow"))
    for scales in (own_scales, scales_name(USUAL_SCALES.get(dtype, {})), ""):
        if by_edge := _by_size([c for c in squares if c.params.get("scales", "") == scales], "size"):
            return by_edge, [item for item in _by_size(narrow, "rows") if item[0] < by_edge[0][0]]
    return [], []


def _by_size(ceilings: Sequence[Ceiling], param: str) -> Sizes:
    """Each with the number of that parameter, in rising order; of several of one size the fastest."""
    found = {float(c.params[param]): c for c in sorted(ceilings, key=lambda c: c.value) if isinstance(c.params.get(param), int)}
    return sorted(found.items())


def _product_rate(sizes: Sizes, narrow: Sizes, size: Any, width: Any) -> Any:
    """Rate of a product of `size` (cube root of rows x columns x inner) and `width` (the smaller of rows and columns; 0: unknown).

    Linear in log(size) between the measured ones, beyond them the nearest; no faster than narrow ones (log over log of width).
    """
    rate = np.interp(np.log(size), np.log([measured for measured, _ in sizes]), [ceiling.value for _, ceiling in sizes])
    if not narrow:
        return rate
    ends = [*narrow, sizes[0]]
    slow = np.exp(
        np.interp(np.log(pick(width > 0, width, math.inf)), np.log([w for w, _ in ends]), np.log([c.value for _, c in ends]))
    )
    return smaller(rate, pick((width > 0) & (width < sizes[0][0]), slow, math.inf))


def machine_rates(
    machine: Machine, problem: Operator, roofs: Roofs, *, variant: str = "", threads: int | None = None, unit: str | None = None
) -> Rates:
    """What the parts of a variant run at on `machine`; what was not measured falls back to the roof above it.

    Products run at the library's rate for their size, narrow ones at that for their rows, and those of a variant with kernels of
    its own at the library's rate for the largest; without a library at the multiply-add peak. "other" runs at half of the cores'
    peak (tensor units do nothing else than products), one operation where a multiply-add counts two; "exp" at its own ceiling, else
    as "other". Levels run at the problem's mix. The roofs may be of a plan's arithmetic; but what a timed kernel takes beyond its
    parts is known beside parts in the problem's own, and so its work runs at that.
    """
    peak = roofs.compute_flops_per_s
    if math.isfinite(peak) and is_timed(machine, problem, variant):
        peak = compute_ceiling(machine, problem, threads, unit)[0].value
    cores = core_ceiling(machine, problem, threads)
    half = (peak if cores is None else min(cores.value, peak)) / 2
    work = {"product": peak, "exp": half, "other": half}
    labels = {} if cores is None else dict.fromkeys(("exp", "other"), f"half of {cores.label}")
    sizes, narrow = _products(Same(machine), problem.compute()[0], scales_name(problem.to_dict()), threads)
    if sizes:
        own = variant in problem.variants and problem.variants[variant].own_products
        product, width = (0, 0) if own else (problem.product_size(), problem.product_width())
        edge = pick(product > 0, product, math.inf) ** (1 / 3)
        rate = smaller(_product_rate(sizes, narrow, edge, width), peak)
        work["product"] = rate if isinstance(product, np.ndarray) else float(rate)
        labels["product"] = sizes[-1][1].label
    exps = machine.of("exp")
    exps = [c for c in exps if c.threads == (threads or max(c.threads for c in exps))]
    if exps:
        fastest = max(exps, key=lambda c: c.value)
        work["exp"], labels["exp"] = fastest.value, fastest.label
    bandwidths = {roofs.level: roofs.bandwidth_bytes_per_s}
    for level in machine.levels():
        if level not in bandwidths:
            ceiling = bandwidth_of(Same(machine), level, problem.mix, threads)
            bandwidths[level] = ceiling.value
            labels[level] = ceiling.label
    if roofs.link_bytes_per_s is not None:
        bandwidths["link"], labels["link"] = roofs.link_bytes_per_s, roofs.labels["link"]
    return Rates(bandwidths=bandwidths, work=work, launch_s=roofs.floor_s, knee=_knee(machine, roofs.level), labels=labels)


def _knee(machine: Machine, level: str) -> float:
    """p of the undisturbed sweep over intensity at `level`, else at memory; KNEE where there is none, infinite on paper.

    The lower end of its 95 % interval: operators overlap memory and arithmetic no better than the sweep's kernel, made for it.
    """
    if not any(c.source == "measured" for c in machine.ceilings):
        return math.inf
    for wanted in (level, *MEMORIES):
        for swept in machine.empirical:
            if swept.level == wanted and swept.status == "ok":
                try:
                    p = swept.fit.p
                except Error:
                    continue
                if p is not None:
                    return max(p.low, 1.0)
    return KNEE
