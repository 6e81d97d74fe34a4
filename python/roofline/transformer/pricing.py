"""The time of each call on a machine, and the roof that it spends it under."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counts import larger, pick
from ..machine import Ceiling, Machine
from ..operators.base import WORK
from ..prediction import Prediction, predict
from ..units import LINKS, fmt_si, within
from .layers import Call

FULL, WEIGHTS_AND_KV = "full", "weights_and_kv"
ROUNDING = 1e-12  # of a time: a difference of floating-point sums below this is 0
COUNTINGS = (FULL, WEIGHTS_AND_KV)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an estimate is made; the arguments of `estimate`."""

    tp: int = 1
    ep: int = 1
    lm_head: bool = True
    fused: bool = True
    counting: str = FULL
    compute_utilisation: float = 1.0
    bandwidth_utilisation: float = 1.0
    overhead_s: float = 0.0
    launch_s: float | None = None
    link_bytes_per_s: float | None = None
    link_latency_s: float = 0.0
    memory_share: float = 1.0
    memory_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A call with its time. time_s: of all its runs; profile: the same seconds by roof. roofs: labels of the ceilings that count.

    flops and bytes: of all runs, as far as they are counted. bound: the roof with most of the time.
    """

    call: Call
    time_s: float
    profile: Mapping[str, float]
    flops: int
    product_flops: int
    bytes: int
    roofs: tuple[str, ...]
    notes: tuple[str, ...] = ()
    peak_flops_per_s: float = 0.0

    @property
    def bound(self) -> str:
        return max(self.profile, key=lambda roof: self.profile[roof], default="")

    @property
    def each_s(self) -> float:
        return self.time_s / self.call.count

    @property
    def flops_per_byte(self) -> float | None:
        return self.flops / self.bytes if self.bytes else None

    def to_dict(self) -> dict[str, Any]:
        problem = self.call.problem
        return {
            "name": self.call.name,
            "group": self.call.group,
            "count": self.call.count,
            "sharded": self.call.sharded,
            "operator": problem.name,
            "problem": problem.to_dict(),
            "time_s": self.time_s,
            "bound": self.bound,
            "flops": self.flops,
            "bytes": self.bytes,
            "weights_bytes": self.call.count * self.call.weights_bytes,
            "cached_bytes": self.call.count * self.call.cached_bytes,
        }


def linked(machine: Machine, bytes_per_s: float | None) -> Machine:
    """The machine with this link to other ranks (what one receives, and sends as much) instead of its own; None keeps that."""
    if bytes_per_s is None:
        return machine
    rate = within("link_bytes_per_s", "bytes/s", bytes_per_s, LINKS)
    given = Ceiling(probe="link", samples=(rate,), source="datasheet", reason="as given")
    return dataclasses.replace(machine, ceilings=(*(c for c in machine.ceilings if c.kind != "link"), given))


def longest(seconds: Mapping[str, Any]) -> dict[str, Any]:
    """The longest of these times alone; of several problems at once each time where it is the longest, and 0 elsewhere."""
    most = functools.reduce(larger, seconds.values(), 0.0)
    left: Any = True
    found = {}
    for name, each in seconds.items():
        here = (each == most) & left
        left = left & ~here if isinstance(here, np.ndarray) else left and not here
        if np.any(here):
            found[name] = pick(here, each, 0.0)
    return found


def _profile(prediction: Prediction) -> dict[str, Any]:
    """A prediction's seconds by roof: its launch, its longest level or kind of work, and what overlap does not hide."""
    parts = prediction.parts
    launch = parts.get("launch", 0.0)
    work = {kind: seconds for kind, seconds in parts.items() if kind in WORK}
    levels = {name: seconds for name, seconds in parts.items() if name not in WORK and name != "launch"}
    computing = sum(work.values())
    kinds = {kind: pick(seconds > 0, computing, 0.0) for kind, seconds in longest(work).items()}
    most = longest({**levels, **kinds})
    left = larger(prediction.time_s - launch - sum(most.values()), 0.0) if most else 0.0
    least = ROUNDING * prediction.time_s
    return {roof: seconds for roof, seconds in {"launch": launch, **most, "overlap": left}.items() if np.any(seconds > least)}


def _times(profile: Mapping[str, float], count: int) -> dict[str, float]:
    return {roof: seconds * count for roof, seconds in profile.items()}


def _product_flops(call: Call) -> int:
    return call.problem.work({"variant": call.variant}).get("product", 0)


def price(call: Call, machine: Machine, options: Options) -> Part | None:
    """The call's part of the time; None for what `options.counting` leaves out.

    full: the expected time of the problem (`predict`), and link_latency_s more for a collective. weights_and_kv: only the weights
    of products and the KV cache move, only products compute, and both overlap perfectly. Several problems at once (`Decode.many`)
    make a part whose numbers are arrays.
    """
    count, problem = call.count, call.problem
    found = predict(
        machine, problem, plan={"variant": call.variant} if call.variant else None, launch_s=options.launch_s,
        utilisation={"compute": options.compute_utilisation, "bandwidth": options.bandwidth_utilisation},
    )  # fmt: skip
    if options.counting == WEIGHTS_AND_KV:
        moved = call.weights_bytes + call.cached_bytes
        if not np.any(moved):
            return None
        roofs, flops = found.roofs, _product_flops(call)
        terms = longest({"product": flops / roofs.compute_flops_per_s, roofs.level: moved / roofs.bandwidth_bytes_per_s})
        labels = tuple(roofs.labels[name] for name in ("memory", "compute") if name in roofs.labels)
        return Part(
            call=call, time_s=count * sum(terms.values()), profile=_times(terms, count), flops=count * flops,
            product_flops=count * flops, bytes=count * moved, roofs=labels, notes=found.notes,
            peak_flops_per_s=roofs.compute_flops_per_s,
        )  # fmt: skip
    profile, time_s = _profile(found), found.time_s
    labelled = dict(found.roofs.labels)
    if options.launch_s is not None:
        labelled["launch"] = f"launch {fmt_si(options.launch_s, 's')}, as given"
    if options.link_latency_s and np.any(problem.link_bytes() > 0):
        profile, time_s = {**profile, "link latency": options.link_latency_s}, time_s + options.link_latency_s
    return Part(
        call=call, time_s=count * time_s, profile=_times(profile, count), flops=count * found.flops,
        product_flops=count * _product_flops(call), bytes=count * found.bytes, roofs=tuple(labelled.values()), notes=found.notes,
        peak_flops_per_s=found.roofs.compute_flops_per_s,
    )  # fmt: skip
