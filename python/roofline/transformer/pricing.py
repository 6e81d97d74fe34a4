"""The time of each call on a machine, and the roof that it spends it under."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..machine import Ceiling, Machine
from ..model import roofs_and_notes
from ..operators.base import WORK
from ..prediction import Prediction, predict
from ..units import LINKS, SHARES, fmt_si, within
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
    given = Ceiling(kind="link", samples=(rate,), source="datasheet", reason="as given")
    return dataclasses.replace(machine, ceilings=(*(c for c in machine.ceilings if c.kind != "link"), given))


def scaled(machine: Machine, compute: float, bandwidth: float) -> tuple[Machine, dict[str, str]]:
    """The machine with its compute and bandwidth ceilings times these factors, and what each new label stands for."""
    for name, factor in (("compute_utilisation", compute), ("bandwidth_utilisation", bandwidth)):
        within(name, "a share", factor, SHARES)
    factors = {"compute": compute, "bandwidth": bandwidth}
    names: dict[str, str] = {}
    ceilings: list[Ceiling] = []
    for c in machine.ceilings:
        factor = factors.get(c.kind, 1.0)
        new = c if factor == 1 else dataclasses.replace(c, samples=tuple(sample * factor for sample in c.samples))
        names[new.label] = c.label if factor == 1 else f"{c.label} × {factor:g}"
        ceilings.append(new)
    return dataclasses.replace(machine, ceilings=tuple(ceilings)), names


def _profile(prediction: Prediction) -> dict[str, float]:
    """A prediction's seconds by roof: its launch, its longest level or kind of work, and what overlap does not hide."""
    parts = prediction.parts
    launch = parts.get("launch", 0.0)
    work = {kind: seconds for kind, seconds in parts.items() if kind in WORK}
    levels = {name: seconds for name, seconds in parts.items() if name not in WORK and name != "launch"}
    longest = {**levels, **({max(work, key=lambda kind: work[kind]): sum(work.values())} if work else {})}
    found = {"launch": launch}
    if longest:
        roof = max(longest, key=lambda name: longest[name])
        found[roof] = longest[roof]
        found["overlap"] = prediction.time_s - launch - longest[roof]
    return {roof: seconds for roof, seconds in found.items() if seconds > ROUNDING * prediction.time_s}


def _times(profile: Mapping[str, float], count: int) -> dict[str, float]:
    return {roof: seconds * count for roof, seconds in profile.items()}


def _product_flops(call: Call) -> int:
    return call.problem.work({"variant": call.variant}).get("product", 0)


def price(call: Call, machine: Machine, options: Options) -> Part | None:
    """The call's part of the time; None for what `options.counting` leaves out.

    full: the expected time of the problem (`predict`), and link_latency_s more for a collective. weights_and_kv: only the weights
    of products and the KV cache move, only products compute, and both overlap perfectly.
    """
    count, problem = call.count, call.problem
    if options.counting == WEIGHTS_AND_KV:
        moved = call.weights_bytes + call.cached_bytes
        if not moved:
            return None
        roofs, notes = roofs_and_notes(machine, problem, None, None)
        flops = _product_flops(call)
        terms = {"product": flops / roofs.compute_flops_per_s, roofs.level: moved / roofs.bandwidth_bytes_per_s}
        roof = max(terms, key=lambda name: terms[name])
        labels = tuple(roofs.labels[name] for name in ("memory", "compute") if name in roofs.labels)
        return Part(
            call=call, time_s=count * terms[roof], profile={roof: count * terms[roof]}, flops=count * flops,
            product_flops=count * flops, bytes=count * moved, roofs=labels, notes=notes, peak_flops_per_s=roofs.compute_flops_per_s,
        )  # fmt: skip
    found = predict(machine, problem, plan={"variant": call.variant} if call.variant else None, launch_s=options.launch_s)
    profile, time_s = _profile(found), found.time_s
    labelled = dict(found.roofs.labels)
    if options.launch_s is not None:
        labelled["launch"] = f"launch {fmt_si(options.launch_s, 's')}, as given"
    if options.link_latency_s and problem.link_bytes():
        profile, time_s = {**profile, "link latency": options.link_latency_s}, time_s + options.link_latency_s
    return Part(
        call=call, time_s=count * time_s, profile=_times(profile, count), flops=count * found.flops,
        product_flops=count * _product_flops(call), bytes=count * found.bytes, roofs=tuple(labelled.values()), notes=found.notes,
        peak_flops_per_s=found.roofs.compute_flops_per_s,
    )  # fmt: skip
