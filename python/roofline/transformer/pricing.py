"""The time of each call on a machine, and the roof that it spends it under."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._repr import values_of
from ..counts import any_of, smaller
from ..kernel_costs import is_timed, kernel_costs
from ..machine import Ceiling, Machine
from ..model import Roofs
from ..operators import Operator
from ..prediction import UTILISED, bound_of, longest, predict_problem
from ..units import LINKS, fmt_si, within
from ..words import backend_of
from .layers import Call
from .problems import forms

FULL, WEIGHTS_AND_KV = "full", "weights_and_kv"
COUNTINGS = (FULL, WEIGHTS_AND_KV)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a phase is predicted; the arguments of `predict_model`."""

    tp: int = 1
    ep: int = 1
    lm_head: bool = True
    fused: bool = True
    counting: str = FULL
    utilisation: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(UTILISED, 1.0))
    overhead_s: float = 0.0
    launch_s: float | None = None
    link_bytes_per_s: float | None = None
    link_latency_s: float = 0.0
    memory_share: float = 1.0
    memory_bytes: float | None = None
    kernels: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A call with its time. time_s: of all its runs; profile: the same seconds by roof. roofs: labels of the ceilings that count.

    flops and bytes: of all runs, as far as they are counted. bound: the roof with most of the time. peak_flops_per_s,
    peak_bytes_per_s: its ceilings, fully used.
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
    peak_bytes_per_s: float = 0.0

    @property
    def bound(self) -> str:
        return bound_of(self.profile)

    @property
    def flops_per_byte(self) -> float | None:
        return self.flops / self.bytes if self.bytes else None

    def to_dict(self) -> dict[str, Any]:
        problem = self.call.problem
        return {
            **values_of(self.call, "name group count sharded"),
            "operator": problem.name,
            "problem": problem.to_dict(),
            **values_of(self, "time_s bound flops bytes"),
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


def _times(profile: Mapping[str, float], count: int) -> dict[str, float]:
    return {roof: seconds * count for roof, seconds in profile.items()}


def _peaks(roofs: Roofs, options: Options) -> dict[str, float]:
    return {
        "peak_flops_per_s": roofs.compute_flops_per_s / options.utilisation["compute"],
        "peak_bytes_per_s": roofs.bandwidth_bytes_per_s / options.utilisation["bandwidth"],
    }


def _product_flops(call: Call) -> int:
    return call.problem.work({"variant": call.variant}).get("product", 0)


def _kernel_s(problem: Operator, machine: Machine, options: Options) -> Any:
    """Expected seconds of the fastest kernel that the machine timed in the problem's dtype; None without one."""
    kind, found = backend_of(machine.device), []
    for form in forms(problem):
        for variant in form.variants:
            able = is_timed(machine, form, variant) and form.suits(variant, kind)
            costs = kernel_costs(machine, form, variant, planned=False) if able else None
            if costs is not None and not costs.replaced:
                how: dict[str, Any] = {"launch_s": options.launch_s, "utilisation": options.utilisation}
                found.append(predict_problem(machine, form, variant=variant, **how).time_s)
    return functools.reduce(smaller, found) if found else None


def price(call: Call, machine: Machine, options: Options) -> Part | None:
    """The call's part of the time; None for what `options.counting` leaves out.

    full: the expected time of the problem (`predict_problem`), and link_latency_s more for a collective; with options.kernels that
    of the fastest kernel which the machine timed, its profile as that of the problem. weights_and_kv: only the
    weights of products and the KV cache move, only products compute, and both overlap perfectly. Several problems at once
    (`Decode.many`) make a part whose numbers are arrays.
    """
    count, problem = call.count, call.problem
    found = predict_problem(
        machine, problem, plan={"variant": call.variant} if call.variant else None, launch_s=options.launch_s,
        utilisation=options.utilisation,
    )  # fmt: skip
    if options.counting == WEIGHTS_AND_KV:
        moved = call.weights_bytes + call.cached_bytes
        if not any_of(moved):
            return None
        roofs, flops = found.roofs, _product_flops(call)
        terms = longest({"product": flops / roofs.compute_flops_per_s, roofs.level: moved / roofs.bandwidth_bytes_per_s})
        labels = tuple(roofs.labels[name] for name in ("memory", "compute") if name in roofs.labels)
        return Part(
            call=call, time_s=count * sum(terms.values()), profile=_times(terms, count), flops=count * flops,
            product_flops=count * flops, bytes=count * moved, roofs=labels, notes=found.notes,
            **_peaks(roofs, options),
        )  # fmt: skip
    profile, time_s = found.profile, found.time_s
    if options.kernels and (kernel_s := _kernel_s(problem, machine, options)) is not None:
        profile, time_s = {roof: seconds * (kernel_s / time_s) for roof, seconds in profile.items()}, kernel_s
    labelled = dict(found.roofs.labels)
    if options.launch_s is not None:
        labelled["launch"] = f"launch {fmt_si(options.launch_s, 's')}, as given"
    if options.link_latency_s and any_of(problem.link_bytes() > 0):
        profile, time_s = {**profile, "link latency": options.link_latency_s}, time_s + options.link_latency_s
    return Part(
        call=call, time_s=count * time_s, profile=_times(profile, count), flops=count * found.flops,
        product_flops=count * _product_flops(call), bytes=count * found.bytes, roofs=tuple(labelled.values()), notes=found.notes,
        **_peaks(found.roofs, options),
    )  # fmt: skip
