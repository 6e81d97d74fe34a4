"""One problem, timed: allocate, bind, check, bracket, sample, and put the record together."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import Error, OutOfMemory, Unsupported, require_type
from ..kernel_costs import kernel_costs, untimed
from ..machine import IMPLAUSIBLE, MOVED, Given, Machine, machine_of
from ..model import Roofs, bound, machine_roofs, terms_s
from ..operators import Operator, problem_of
from ..prediction import Rates, expect, machine_rates
from ..probes.gpu_units import core_flops_per_s
from ..probes.levels import last_cache
from ..results import Bracket, Measurement, roof_value
from ..units import fmt_percent, fmt_si
from ..words import arguments_checked
from .devices import Device, measuring, open_device, provenance, utc_now
from .disturbances import disturbed
from .policy import LEAST_S, Policy
from .preparing import Prepared, checked_seed, prepare
from .probing import Ready, roofs_of
from .tensors import check

PART = 0.25  # of the last cache, above which a warm set may not stay there in whole
PAUSE_S = 0.05  # before the second try of a contended measurement; twice as long before each further one


def timed(prepared: Prepared, policy: Policy, step: int = -1) -> dict[str, Any]:
    """Samples without brackets: for ceilings, which are their own roof, and for single steps."""
    result: dict[str, Any] = prepared.device.core.sample(prepared.sets, step, prepared.flush_each, policy=policy.to_dict())
    return result


Expected = Callable[[Roofs], Mapping[str, Any]]  # roofs as the brackets show them -> the prediction to store


def roofs_seen(rates: Mapping[str, Sequence[float]], level: str) -> Roofs:
    """The roofs that rates of brackets show, by kind."""
    kinds = {kind: roof_value(kind, list(seen)) for kind, seen in rates.items()}
    return Roofs(
        compute_flops_per_s=kinds.get("compute", math.inf),
        bandwidth_bytes_per_s=kinds["bandwidth"],
        floor_s=kinds.get("latency", 0.0),
        level=level,
        link_bytes_per_s=kinds.get("link"),
    )


def freeze(probes: list[Ready], frozen: dict[str, Any], expected: Expected, level: str, before_s: list[list[float]]) -> int:
    """Stores the prediction by the brackets before in `frozen`, before the problem runs. Gives the index of the limiting roof."""
    frozen.clear()
    frozen.update(expected(roofs_seen({p.kind: p.rates(s) for p, s in zip(probes, before_s, strict=True)}, level)))
    frozen["frozen_utc"] = utc_now()
    kind = {"compute": "compute", "launch": "latency", "link": "link"}.get(frozen["bound"], "bandwidth")
    return next(index for index, p in enumerate(probes) if p.kind == kind)


def from_roofs(flops: int, bytes_: int) -> Expected:
    """The prediction of work known by its FLOPs and bytes alone: what the roofs allow."""

    def expected(roofs: Roofs) -> Mapping[str, Any]:
        terms = {name: float(value) for name, value in terms_s(flops, bytes_, roofs).items()}
        limit = str(bound(flops, bytes_, roofs))
        return {"time_s": terms[limit], "roof_s": terms[limit], "bound": limit, "terms": terms, "parts": terms}

    return expected


def from_rates(
    prepared: Prepared, machine: Machine | None, level: str, arithmetic: str = "", *, own: bool = False
) -> Expected:  # fmt: skip
    """The prediction from the roofs around the problem, and for the rest from `machine`'s ceilings, scaled as the roofs moved.

    arithmetic: of the compute roof around it, where that is not the problem's own. own: products at the rates of the problem's own
    all the same, as beside the costs of a kernel; else they are where `machine` timed that kernel.
    """
    problem, moved = prepared.problem, prepared.moved(level)

    def expected(roofs: Roofs) -> Mapping[str, Any]:
        peak = roofs.compute_flops_per_s
        link = {} if roofs.link_bytes_per_s is None else {"link": roofs.link_bytes_per_s}
        # An instruction that is no multiply-add does one operation, not two.
        other = min(peak, core_flops_per_s(prepared.device)) / 2
        rates = Rates(
            bandwidths={level: roofs.bandwidth_bytes_per_s, **link},
            work={"product": peak, "exp": other, "other": other},
            launch_s=roofs.floor_s,
        )
        kernel = None if machine is None else kernel_costs(machine, problem, prepared.variant)
        if machine is not None:
            where = level if level in machine.levels() else None
            stated = machine_roofs(machine, problem, level=where, arithmetic=arithmetic)
            of_own = machine_roofs(machine, problem, level=where) if own else stated
            known = machine_rates(machine, problem, of_own, variant=prepared.variant)
            same = math.isfinite(peak) and (not arithmetic or bool(machine.of("fma", dtype=arithmetic)))
            change = peak / stated.compute_flops_per_s if same else 1.0
            rates = known.scaled(bandwidths=rates.bandwidths, compute=change, launch_s=roofs.floor_s)
        if arithmetic and kernel is None and not own:
            rates = dataclasses.replace(rates, work={**rates.work, "product": peak})
        found = expect(problem, prepared.plan, prepared.caches, roofs, rates, moved, kernel)
        if machine is not None and kernel is None:
            found = dataclasses.replace(found, notes=(*found.notes, *untimed(machine, problem, prepared.variant)))
        return found.to_dict()

    return expected


def launches_moved(brackets: Sequence[Bracket], expected: Mapping[str, Any]) -> str:
    """How launches changed by more than MOVED of the expected time, as where a host moves a guest's cores; else empty."""
    launch = next((b for b in brackets if b.kind == "latency" and b.median_after), None)
    share = expected["parts"].get("launch", 0.0) / expected["time_s"]
    if launch is None or share * launch.moved <= MOVED:
        return ""
    seconds = " and ".join(fmt_si(s, "s") for s in (launch.median_before, launch.median_after))
    return f"a launch took {seconds} before and after the measurement"


def bracketed(
    device: Device, sets: list[Any], flush_each: bool, probes: list[Ready], expected: Expected, level: str, policy: Policy
) -> dict[str, Any]:
    """Brackets, samples, brackets: everything of a Measurement that comes from the clock."""
    frozen: dict[str, Any] = {}
    freezing = partial(freeze, probes, frozen, expected, level)
    seen = device.core.measure(sets, flush_each, [(p.sets, p.flush) for p in probes], freezing, policy.to_dict())
    brackets = tuple(
        Bracket(
            label=p.label, kind=p.kind, level=p.level, problem=p.described(), variant=p.variant,
            before_samples=tuple(p.rates(before)), after_samples=tuple(p.rates(after)),
        )
        for p, before, after in zip(probes, seen["before_s"], seen["after_s"], strict=True)
    )  # fmt: skip
    status, reason = "ok", ""
    if seen["contended"]:
        status, reason = "contended", disturbed(seen, device.facts)
    elif seen["roof_moved"]:
        b = brackets[seen["limiting"]]
        status = "roof_moved"
        reason = f"the {b.label} roof moved by {fmt_percent(b.moved, 2)} around the measurement"
    elif reason := launches_moved(brackets, frozen):
        status = "roof_moved"
    return {
        "samples_s": tuple(map(float, seen["samples_s"])),
        "launches_per_sample": int(seen["launches_per_sample"]),
        "warmup_s": float(seen["warmup_s"]),
        "stop_reason": seen["stop_reason"],
        "repeats": int(seen["repeats"]),
        "load": dict(seen["load"]),
        "conditions": dict(seen["conditions"]),
        "clock_hz_before": float(seen["clock_before_hz"]) or None,
        "clock_hz_after": float(seen["clock_after_hz"]) or None,
        "brackets": brackets,
        "prediction": frozen,
        "status": status,
        "reason": reason,
    }


def tried(sampled: Callable[[Policy], dict[str, Any]], policy: Policy, begun: float) -> dict[str, Any]:
    """What `sampled` gives undisturbed, tried policy.tries times as far as limit_s from `begun` allows; else the last one."""
    for attempt in range(policy.tries):
        start = time.monotonic()
        clock = sampled(policy.within(policy.limit_s - (start - begun))) | {"repeats": attempt}
        if clock["status"] == "ok" or attempt + 1 == policy.tries:
            break
        now = time.monotonic()
        if 2 * now - start - begun > policy.limit_s:
            clock["reason"] += f"; {policy.limit_s:g} s leave no time for another try"
            break
        if clock["status"] == "contended":
            time.sleep(PAUSE_S * 2**attempt)
    return clock


def kept_share(prepared: Prepared, level: str) -> float:
    """The share of a launch's compulsory bytes that its memory roof does not bound.

    Results that fit in the last cache, if other lines fill it before the launch: they are written back later. All bytes of a warm
    set that the last cache may hold in part, since it may hold another part of the roof's own set.
    """
    if level == "L3" and prepared.working_set_bytes() > PART * last_cache(prepared.device.facts):
        return 1.0
    written = sum(t.size_bytes for t in prepared.problem.outputs() if not t.link)
    fits = prepared.flush_each and written <= last_cache(prepared.device.facts)
    return written / prepared.problem.compulsory_bytes() if fits else 0.0


def with_plausibility(measurement: Measurement, kept: float = 0.0) -> Measurement:
    """`implausible` where a point is above 103 % of its bracket: evidence of wrong units, work or caches, never a win.

    kept: see `kept_share`; so many of the bytes that a memory roof bounds need not have reached memory.
    """
    share = measurement.share_of_bracket
    if share is not None and measurement.bound == measurement.level:
        share *= 1 - kept
    if measurement.status == "ok" and share is not None and share > IMPLAUSIBLE:
        roof = measurement.bound
        reason = f"{fmt_percent(share)} of its {roof} roof"
        reason += ": bytes or FLOPs did not happen as counted, or it was higher than around the point"
        return dataclasses.replace(measurement, status="implausible", reason=reason)
    return measurement


def checked_options(opened: Device, machine: Given | None, policy: Policy | None) -> tuple[Machine | None, Policy]:
    """The machine, and the policy or the usual one. Raises Error for anything else, and for a machine of another device."""
    require_type("policy", policy, (Policy, type(None)), "a roofline.Policy")
    machine = None if machine is None else machine_of(machine)
    if machine is not None and machine.device != opened.name:
        raise Error(f"machine {machine.name!r:.80} is {machine.device}, not {opened.name}; measure that device's ceilings first")
    return machine, policy or Policy()


def made_on(device: Device, cache_state: str, seed: int = 0) -> dict[str, Any]:
    """Where and when a measurement is made, as it states that."""
    return {
        "device": device.name, "threads": device.threads, "cache_state": cache_state, "seed": seed, "utc": utc_now(),
        "provenance": provenance(device, seed),
    }  # fmt: skip


@arguments_checked
def measure(
    problem: Operator | type[Operator] | str,
    *,
    variant: str | None = None,
    device: str | Device | None = None,
    threads: int = 0,
    machine: Given | None = None,
    cache_state: str = "cold",
    seed: int = 0,
    policy: Policy | None = None,
    steps: bool = True,
    **fields: Any,
) -> Measurement:
    """Time one problem: correctness first, then samples between brackets of its own roofs.

    Args:
        problem: an object or words, as in `roofline.predict`: measure("attention", seq_q=1, seq_kv="8k").
        fields: of an operator by name, or changed of a problem.
        variant: None is the operator's default on this device, or the fastest by `machine` where that timed several kernels.
        device: "cpu", "cuda:0"; None is the first GPU, else the CPU.
        machine: its best configurations of the roofs are used; without one they are found in a short calibration.
        cache_state: "cold" (operands come from DRAM) or "warm".
        steps: time each step of a kernel of several alone, too.

    Raises:
        Error: bad input, or a wrong result.
        Unsupported: no such kernel here, with the reason.
        OutOfMemory: too large for the memory.
    """
    problem = problem_of(problem, fields)
    require_type("variant", variant, (str, type(None)), "the name of a variant")
    opened = open_device(device, threads)
    machine, policy = checked_options(opened, machine, policy)
    begun = time.monotonic()
    with measuring(opened):
        if machine is not None:
            opened.learn(machine.facts)
        prepared = prepare(opened, problem, variant or opened.default_variant(problem, machine), cache_state, seed)
        prepared.sets[0].run()
        correctness = check(problem, prepared.tensors[0], seed)
        if not correctness["passed"]:
            raise Error(f"{problem.name} {prepared.variant}: {correctness['reason']}; nothing was timed")

        level = prepared.placed(cache_state)
        moved = prepared.moved(level)[level]
        flops, arithmetic = problem.flops(), prepared.plan.get("arithmetic", "")
        probes = roofs_of(
            opened, mix=problem.mix, arithmetic=arithmetic or problem.compute()[0], level=level, flops=sum(flops.values()),
            machine=machine, products=bool(problem.products()), ranks=prepared.plan.get("ranks", 1),
            set_bytes=prepared.working_set_bytes(),
        )  # fmt: skip
        expected = from_rates(prepared, machine, level, arithmetic)
        clock = tried(partial(bracketed, opened, prepared.sets, prepared.flush_each, probes, expected, level), policy, begun)
        names = list(prepared.sets[0].steps)
        alone: dict[str, tuple[float, ...]] = {}
        if steps and len(names) > 1:
            left_s = max(policy.limit_s - (time.monotonic() - begun), LEAST_S) / len(names)
            short = dataclasses.replace(
                policy, max_s=min(policy.max_s / 4, 0.5, left_s), min_s=min(policy.min_s / 4, 0.1, left_s), warmup_min_s=0.0,
                warmup_max_s=0.05,
            )  # fmt: skip
            alone = {name: tuple(map(float, timed(prepared, short, index)["samples_s"])) for index, name in enumerate(names)}
        measured = Measurement(
            operator=problem.name, problem=problem.to_dict(), variant=prepared.variant, plan=prepared.plan, steps=alone,
            flops=flops, bytes=moved, link_bytes=problem.link_bytes(), level=level, correctness=correctness,
            **made_on(opened, cache_state, seed), **clock,
        )  # fmt: skip
        return with_plausibility(measured, kept_share(prepared, level))


def attempt(problem: Operator | type[Operator] | str, *, variant: str | None = None, device: str | Device | None = None,
            threads: int = 0, cache_state: str = "cold", seed: int = 0, **options: Any) -> Measurement:  # fmt: skip
    """As `measure`, but what cannot run is a result too: status unsupported, out_of_memory or failed, with the reason."""
    problem = problem_of(problem)
    opened, machine, seed = open_device(device, threads), options.get("machine"), checked_seed(seed)
    try:
        return measure(problem, variant=variant, device=opened, cache_state=cache_state, seed=seed, **options)
    except Unsupported as error:
        status, reason = "unsupported", str(error)
    except (OutOfMemory, MemoryError) as error:
        status, reason = "out_of_memory", str(error) or "host memory is exhausted"
    except Error as error:
        status, reason = "failed", str(error)
    return Measurement(
        operator=problem.name, problem=problem.to_dict(), status=status, reason=reason, flops=problem.flops(),
        variant=variant or opened.default_variant(problem, machine if isinstance(machine, Machine) else None),
        bytes={"compulsory": problem.compulsory_bytes()}, **made_on(opened, cache_state, seed),
    )  # fmt: skip
