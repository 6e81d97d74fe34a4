"""Measuring the ceilings and series of a device: each checked, sampled, and on disk before the next begins."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ..errors import Error, OutOfMemory, Unsupported
from ..kernel_costs import leave_one_out, problem_of
from ..machine import IMPLAUSIBLE, Ceiling, EmpiricalRoofline, KernelTime, Machine, SizeCurve, last_half
from ..machine.ceiling import vector_operations
from ..measurement import Policy
from ..measurement.devices import Device, exclusive, open_device, provenance, utc_now
from ..measurement.disturbances import clock_hz, disturbed
from ..measurement.policy import QUICK, THOROUGH
from ..measurement.probing import fastest
from ..measurement.progress import Progress, ProgressOption
from ..probes import DEPTHS, Standard, Wanted, standard_problems
from ..probes.base import DEEPEST, FURTHER, REPORT, ROOFS
from ..probes.gpu_units import rate
from ..units import fmt_percent
from ..words import arguments_checked, require_one_of
from .again import in_another_state
from .kept import PENDING, Kept
from .series import long_load
from .share import last_cache_share
from .standard import Surroundings, averaged, kernel_time
from .wanted import wanted, wanted_series

T = TypeVar("T")

QUICK_S = 9.0  # measurements begun by then end within 10 s
STANDARD = Policy(min_s=0.3, max_s=1.5, tries=3)
POLICIES = {"quick": QUICK, REPORT: QUICK, "standard": STANDARD, "thorough": THOROUGH}
LATE = "the time limit was reached"
STANDARD_PROBLEMS = "kernels on standard problems"
# Those with a larger leave-one-out residual are timed again, up to this share of them and of a time limit: a guest's memory and
# cores change for seconds.
MOST_RESIDUAL, MOST_AGAIN, AGAIN_TIME = 0.15, 0.1, 0.06
# A report times all its standard problems again until this share of the time limit is used; the rest is kept for first timings.
ALL_AGAIN_TIME = 0.75
# A core runs its widest instructions at a clock of their own, which it takes up after some tenths of a second.
WARM_S = 0.3
FAILURE = "failed: "  # begins the reason of what was left out although it should have run


def warm(policy: Policy) -> Policy:
    return dataclasses.replace(
        policy, warmup_min_s=max(policy.warmup_min_s, WARM_S), warmup_max_s=max(policy.warmup_max_s, 2 * WARM_S)
    )


@exclusive
def ceiling(device: Device, what: Wanted, policy: Policy) -> Ceiling:
    """One ceiling: checked, then sampled once. Raises Unsupported, and Error for a wrong result."""
    found = fastest(device, what)
    found.verify(f"the probe {what.label}")
    seen = found.sampled(device, warm(policy) if what.probe.operator == "fma" else policy)
    load = last_half(long_load(device, found)) if what.sustained else ()
    clocks = [sample.clock_hz for sample in load if sample.clock_hz]
    made = Ceiling(
        probe=what.probe.id,
        samples=tuple(sample.flops_per_s for sample in load) or tuple(found.rates(seen["samples_s"])),
        **{each.name: getattr(found.identity, each.name) for each in dataclasses.fields(found.identity)},
        sustained=what.sustained,
        threads=device.threads,
        problem=found.described(),
        plan=found.plan(),
        clock_hz=statistics.median_high(clocks) if clocks else clock_hz(seen) or None,
        conditions=dict(seen["conditions"]),
        status="contended" if seen["contended"] else "ok",
        reason=disturbed(seen, device.facts),
    )
    return _with_unit_rate(made, device) if "sms" in device.facts else _with_operations(made)


def _with_unit_rate(made: Ceiling, device: Device) -> Ceiling:
    """A GPU's compute ceiling with the operations of its unit per cycle and multiprocessor, where they are known.

    A rate above 103 % of it at the measured clock is implausible, unless the known peak is an estimate. A library chooses what it
    adds products up in: its own are held against the fastest.
    """
    if made.kind != "compute":
        return made
    accumulator = "" if made.probe.startswith("gemm.") else made.accumulator
    known = rate(device, made.dtype, made.unit, accumulator)
    if known is None:
        return made
    made = dataclasses.replace(made, ops_per_cycle=float(known.flops_per_cycle))
    share = made.value / (made.clock_hz * known.flops_per_cycle * int(device.facts["sms"])) if made.clock_hz else 0.0
    if share <= IMPLAUSIBLE or known.estimated:
        return made
    reason = f"{fmt_percent(share)} of what its units do at the measured clock ({known.source})"
    return dataclasses.replace(made, status="implausible", reason=reason)


def _with_operations(made: Ceiling) -> Ceiling:
    """An undisturbed multiply-add ceiling with its operations per cycle and thread, if a whole number of vectors' worth.

    A rate above 103 % of them is implausible.
    """
    known = made.clock_hz and made.threads and made.status == "ok"
    if made.probe not in ("fma", "fma.add") or not known:
        return made
    assert made.clock_hz is not None
    per_cycle = made.value / made.clock_hz / made.threads
    nearest = vector_operations(per_cycle)
    return dataclasses.replace(made, ops_per_cycle=nearest) if per_cycle <= IMPLAUSIBLE * nearest else made


def better(one: Ceiling, other: Ceiling) -> Ceiling:
    """The undisturbed one of two measurements of one ceiling, else the better: other load never helps."""
    if (one.status == "ok") != (other.status == "ok"):
        return one if one.status == "ok" else other
    return max(one, other, key=lambda c: -c.value if c.kind == "latency" else c.value)


def burst_and_sustained(machine: Machine) -> tuple[Ceiling, ...]:
    """The sustained ceilings that the machine's long loads show: their last half, beside the burst of the same problem."""
    found = []
    for swept in machine.empirical:
        _, burst = swept.peers(machine.ceilings)
        if swept.settled and burst is not None and burst.probe == "fma":
            samples = tuple(sample.flops_per_s for sample in swept.settled)
            clocks = [sample.clock_hz for sample in swept.settled if sample.clock_hz]
            long = dataclasses.replace(
                burst,
                samples=samples,
                sustained=True,
                clock_hz=statistics.median_high(clocks) if clocks else None,
                ops_per_cycle=None,
                conditions={},  # those of the burst
                status=swept.status,
                reason=swept.reason,
            )
            found.append(_with_operations(long))
    return tuple(found)


def timed_again(
    device: Device, todo: Sequence[Standard], shown: Progress, late: Callable[..., bool], surroundings: Surroundings
) -> dict[Standard, KernelTime]:
    """As many of these, which are timed and so checked already, as a deadline allows."""
    shown.total += len(todo)
    found: dict[Standard, KernelTime] = {}
    for standard in todo:
        shown.step(f"{standard.label}, again")
        if late():
            break
        with contextlib.suppress(Error, MemoryError):  # its first time stays
            found[standard] = kernel_time(device, standard, surroundings, checked=True)
    return found


class _Run:
    """What one call of measure_machine has found so far, by label."""

    def __init__(self, device: Device, depth: str, policy: Policy, options: Mapping[str, Any], kept: Kept) -> None:
        self.device, self.depth, self.policy, self.options, self.kept = device, depth, policy, options, kept
        self.plan = [(what.label, where, what) for where, what in wanted(device, depth)]
        self.series = wanted_series(device, depth)
        self.standard = tuple(standard_problems(device, depth))
        self.ceilings: dict[str, Ceiling] = {}
        self.kernels: dict[Standard, KernelTime] = {}
        self.found_series: dict[str, SizeCurve | EmpiricalRoofline] = {}
        self.left_out: dict[str, str] = {}
        self.shared: set[Device] = set()  # whose share of the last cache was looked for
        if kept.begun is not None:
            self._take_over(kept.begun)

    def _take_over(self, machine: Machine) -> None:
        done = [str(label) for label in machine.provenance.get("done", ())]
        planned = {label for label, _, _ in self.plan}
        parts: list[Ceiling | SizeCurve | EmpiricalRoofline] = [
            *machine.ceilings[: sum(label in planned for label in done)],  # before those that series show
            *machine.curves,
            *machine.empirical,
        ]
        if len(done) != len(parts):
            raise Error(f"{self.kept.side}: provenance: done has {len(done)} labels for {len(parts)} parts; start anew")
        for label, part in zip(done, parts, strict=True):
            if isinstance(part, Ceiling):
                self.ceilings[label] = part
            else:
                self.found_series[label] = part
        self.left_out = dict(machine.provenance.get("left_out", {}))
        for timed in machine.kernels:
            if (problem := problem_of(timed.problem)) is not None:
                self.kernels[Standard(problem, timed.variant, timed.cold)] = timed

    def find_share(self, device: Device) -> None:
        """What the device gets of its last cache, once the roofs around it are known: sets and stores are then sized by it."""
        if device not in self.shared:
            self.shared.add(device)
            if share := last_cache_share(device):
                device.learn({"l3_share_bytes": share})

    @property
    def labels(self) -> list[str]:
        return [label for label, _, _ in self.plan] + [s.label for s in self.series]

    def pending(self) -> list[str]:
        have = {*self.ceilings, *self.found_series, *self.left_out}
        return [label for label in self.labels if label not in have]

    def machine(self, *, finished: bool = False) -> Machine:
        """All ceilings so far; until they are complete, the provenance names those pending."""
        curves = {label: s for label, s in self.found_series.items() if isinstance(s, SizeCurve)}
        empirical = {label: s for label, s in self.found_series.items() if isinstance(s, EmpiricalRoofline)}
        in_order = [label for label in self.labels if label in self.ceilings]
        stated = {
            **provenance(self.device, 1),
            "policy": self.policy.to_dict(),
            "depth": self.depth,
            "left_out": dict(self.left_out),
        }
        if not finished:
            done = [*in_order, *curves, *empirical]
            stated |= {"options": dict(self.options), "done": done, PENDING: self.pending()}
        made = Machine(
            name=self.device.title, device=self.device.name, facts=dict(self.device.facts),
            ceilings=tuple(self.ceilings[label] for label in in_order), curves=tuple(curves.values()),
            empirical=tuple(empirical.values()), kernels=tuple(self.kernels.values()), created_utc=utc_now(), provenance=stated,
        )  # fmt: skip
        return dataclasses.replace(made, ceilings=(*made.ceilings, *burst_and_sustained(made)))

    def tried(self, label: str, measured: Callable[[], T]) -> T | None:
        """What `measured` gives; None for what cannot be measured here or fails, which is left out with its reason."""
        try:
            return measured()
        except (Unsupported, OutOfMemory, MemoryError) as reason:
            self.left_out[label] = str(reason) or "host memory is exhausted"
        except Error as failure:  # a wrong result, a lost GPU: no reason to lose the others
            self.left_out[label] = f"{FAILURE}{failure}"
        return None

    def attempt(self, label: str, measured: Callable[[], Ceiling | SizeCurve | EmpiricalRoofline]) -> None:
        """One piece, kept and on disk."""
        made = self.tried(label, measured)
        if isinstance(made, Ceiling):
            before = self.ceilings.get(label)
            self.ceilings[label] = made if before is None else better(before, made)
        elif made is not None:
            self.found_series[label] = made
        self.kept.save(self.machine)

    def measure_again(
        self, items: Sequence[tuple[str, Device, Wanted]], why: str, shown: Progress, late: Callable[..., bool]
    ) -> None:
        """Ceilings once more; the better one of each is kept."""
        shown.total += len(items)
        for label, where, what in items:
            shown.step(f"{label}, again ({why})")
            if not late():
                self.attempt(label, partial(ceiling, where, what, self.policy))

    def time_kernels(self, shown: Progress, late: Callable[..., bool]) -> None:
        """Every kernel on its standard problems. What cannot run is left out; what a deadline leaves out is counted."""
        # What was timed before an interruption says nothing of the parts of the others.
        surroundings = Surroundings(self.device, dataclasses.replace(self.machine(), kernels=()))
        todo = [standard for standard in self.standard if standard not in self.kernels]
        many = DEEPEST[self.depth] >= FURTHER  # else too few of a variant to say what one more should take
        for index, standard in enumerate(todo):
            shown.step(standard.label)
            if late(1 - AGAIN_TIME * many):
                self.left_out[STANDARD_PROBLEMS] = f"{len(todo) - index} of {len(self.standard)}: {LATE}"
                break
            made = self.tried(standard.label, partial(kernel_time, self.device, standard, surroundings))
            if made is not None:
                self.kernels[standard] = made
            self.kept.save_soon(self.machine)
        if many:
            return self._time_again(shown, late, surroundings)
        again = timed_again(self.device, tuple(self.kernels), shown, partial(late, ALL_AGAIN_TIME), surroundings)
        self.kernels |= {standard: averaged(self.kernels[standard], made) for standard, made in again.items()}

    def _time_again(self, shown: Progress, late: Callable[..., bool], surroundings: Surroundings) -> None:
        """Those with the largest residuals once more; of two times the one with the smaller residual is kept."""

        def residuals(kernels: Mapping[Standard, KernelTime]) -> dict[Standard, float]:
            return dict(zip(kernels, map(abs, leave_one_out(tuple(kernels.values()))), strict=True))

        before = residuals(self.kernels)
        todo = sorted((each for each in before if before[each] > MOST_RESIDUAL), key=lambda each: -before[each])
        again = timed_again(self.device, todo[: int(MOST_AGAIN * len(before))], shown, late, surroundings)
        after = residuals(self.kernels | again) if again else {}
        self.kernels |= {standard: made for standard, made in again.items() if after[standard] < before[standard]}


@arguments_checked
def measure_machine(
    device: str | Device | None = None,
    *,
    threads: int = 0,
    quick: bool = False,
    thorough: bool = False,
    policy: Policy | None = None,
    progress: ProgressOption = None,
    deadline_s: float | None = None,
    out: str | os.PathLike[str] | None = None,
    unfinished: str | os.PathLike[str] | None = None,
    force: bool = False,
    arena_bytes: int | None = None,
    depth: str | None = None,
) -> Machine:
    """The ceilings of one device: bandwidth by level and access, arithmetic by dtype and instruction set, latencies.

    `measure_machine("cpu", quick=True)`. The roofs are measured twice where a virtual machine was slower or faster for the first
    ones (see `in_another_state`). A ceiling that other work disturbed is measured again after the others, up to policy.tries times
    in all.

    Args:
        device: "cpu", "cuda:0"; None is the first GPU, else the CPU.
        threads: of a CPU, 0 for all usable cores.
        quick: the main ceilings only, in 10 s (deadline_s is QUICK_S where there is no policy).
        thorough: every access at every level with all threads and with one, strides, the knee at every level, size curves and a
            long load; minutes.
        deadline_s: a ceiling not begun by then is left out, and the machine's provenance names it under left_out; what fails (a
            probe with a wrong result) too, with a reason that begins with "failed: ".
        out: a machine file. The finished machine takes the place of the same device and name in it, and all others are kept;
            until then it stays as it was.
        unfinished: the file written after every ceiling (default: `out` with .partial behind it, which goes in the end); the
            same call goes on with it.
        force: replace an `out` that is no machine file, and an unfinished measurement of other options.
        arena_bytes: memory for the arrays of all probes; None is the smaller of 4 GiB and a quarter of the available memory.
        depth: "report" is what a report measures, quick and what predictions need.

    Raises:
        Error: for bad input and for such files.
        Unsupported: where there is no such device.
    """
    if quick and thorough:
        raise Error("measure_machine: quick and thorough exclude each other")
    opened = open_device(device, threads)
    if arena_bytes is not None:
        opened.limit_arena(arena_bytes)
    if depth is None:
        depth = DEPTHS[0] if quick else DEPTHS[2] if thorough else DEPTHS[1]
    require_one_of("depth", depth, POLICIES)
    rules = policy or POLICIES[depth]
    options = {"depth": depth, "threads": opened.threads, "policy": rules.to_dict()}
    run = _Run(opened, depth, rules, options, Kept(out, unfinished, options, opened, force))
    begun = time.monotonic()
    if quick and policy is None and deadline_s is None:
        deadline_s = QUICK_S

    def late(share: float = 1.0) -> bool:
        return deadline_s is not None and bool(run.ceilings) and time.monotonic() - begun > share * deadline_s

    todo = run.pending()
    with Progress(progress, len(todo) + len(run.standard) - len(run.kernels)) as shown:
        for label, where, what in run.plan:
            if label not in todo:
                continue
            if what.rank != ROOFS:
                run.find_share(where)
            shown.step(label)
            if late():
                run.left_out[label] = LATE
            else:
                run.attempt(label, partial(ceiling, where, what, rules))
        roofs = [item for item in run.plan if item[0] in todo and item[0] in run.ceilings and item[2].rank == ROOFS]
        if roofs and not late() and in_another_state(opened, run.machine(), rules):
            run.measure_again(roofs, "the main roofs moved", shown, late)
        # Before the kernels, whose parts are worked out from these ceilings: one that is measured later would not match them.
        for again in range(1, rules.tries):
            disturbed = [item for item in run.plan if item[0] in run.ceilings and run.ceilings[item[0]].status == "contended"]
            if not disturbed or late():
                break
            run.measure_again(disturbed, f"{again + 1} of {rules.tries}", shown, late)
        run.time_kernels(shown, late)
        for series in run.series:
            if series.label not in todo:
                continue
            shown.step(series.label)
            if late():
                run.left_out[series.label] = LATE
            else:
                run.attempt(series.label, partial(series.measure, run.machine()))
    made = run.machine(finished=True)
    run.kept.finish(made)
    return made
