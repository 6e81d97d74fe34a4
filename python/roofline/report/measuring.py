"""A whole report: ceilings, operators, the end check, and files, within one deadline."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

from .._repr import values_of
from ..ceilings import main_roofs_again, measure_machine
from ..ceilings.measuring import LATE
from ..errors import Error, is_number
from ..machine import Ceiling, Machine
from ..measurement import Device, Policy, attempt, open_device
from ..measurement.devices import utc_now
from ..measurement.policy import QUICK, REPORT, THOROUGH
from ..measurement.preparing import checked_seed
from ..measurement.progress import Progress, ProgressOption
from ..measurement.tensors import WHOLE_CHECK_BYTES, WHOLE_CHECK_FLOPS
from ..prediction import predict_problem
from ..results import Bracket, Measurement, Results, append_to
from .files import DEFAULT, MACHINE, RESULTS, UNFINISHED, Report, begin, finish, render
from .page import require_packages
from .points import Point, default_points

DEFAULT_S, QUICK_S = 55.0, 25.0
CEILINGS_SHARE = 0.6  # at most, of the time limit; the rest serves the operators
RESERVE_S = 5.0  # kept for the end check, the pictures and the files


def _limit(time_limit_s: float | None, quick: bool, thorough: bool) -> float | None:
    if time_limit_s is None:
        return None if thorough else QUICK_S if quick else DEFAULT_S
    if not is_number(time_limit_s) or not 0 < time_limit_s < float("inf"):
        raise Error(f"time_limit_s must be a positive number of seconds, got {time_limit_s!r:.80}")
    return float(time_limit_s)


def end_check(device: Device, machine: Machine, policy: Policy) -> list[tuple[Ceiling, Bracket, bool]]:
    """The main roofs again, on the same probes: (ceiling, start and end as a bracket, whether other work ran)."""
    found = []
    for c, rates, contended in main_roofs_again(device, machine, policy):
        same = values_of(c, "kind level problem variant")
        found.append((c, Bracket(label=c.name, before_samples=c.samples, after_samples=rates, **same), contended))
    return found


def pooled(machine: Machine, results: Iterable[Measurement]) -> Machine:
    """The machine with the bracket samples of its roofs; those taken while other work ran are left out."""
    for m in results:
        if m.status == "contended":
            continue
        for bracket in m.brackets:
            if bracket.problem:
                machine = machine.pooled(bracket.problem, bracket.samples, variant=bracket.variant, threads=m.threads)
    return machine


def _with(machine: Machine, facts: dict[str, Any]) -> Machine:
    return dataclasses.replace(machine, provenance={**machine.provenance, "report": facts})


def report(
    out: str | os.PathLike[str] = DEFAULT,
    *,
    device: str | Device | None = None,
    threads: int = 0,
    quick: bool = False,
    thorough: bool = False,
    machine: Machine | None = None,
    progress: ProgressOption = None,
    plot: bool = True,
    html: bool = False,
    time_limit_s: float | None = None,
    seed: int = 0,
    policy: Policy | None = None,
    ceilings_policy: Policy | None = None,
    force: bool = False,
) -> Report:
    """Measure the ceilings of a device, then every operator against them, and write the files of a report into `out`.

    `report("roofline-report", quick=True).machine`.

    The main ceilings, or with thorough all of them. machine: ceilings measured before; then none is measured again.
    time_limit_s: for everything together; None is 55 s, 25 s with quick, none with thorough. A point not begun by then is left
    out, and the report names it. html: also report.html, one file with interactive pictures (see `html`). When all is there, it
    takes the place of an earlier report in `out`, which stays as it was until then; other files in it are never touched.
    policy and ceilings_policy: how operators and how ceilings are sampled; None is what quick, thorough or neither asks of each.
    force: replace files in `out` of the names that a report writes, whoever wrote them.

    Each result is on disk before the next begins, in machine.json and results.jsonl of the folder `unfinished` in `out`: on Ctrl-C
    they stay there, and with thorough the same call goes on with the ceilings. Raises Error for bad input, where `out` cannot be
    written, and for a file in it that no report wrote, before anything is measured.
    """
    if quick and thorough:
        raise Error("report: quick and thorough exclude each other")
    checked_seed(seed)
    begun, began_utc = time.monotonic(), utc_now()
    limit = _limit(time_limit_s, quick, thorough)
    if html:
        require_packages()
    opened = open_device(device, threads)
    folder = begin(out, thorough=thorough, force=force)
    work = folder / UNFINISHED
    rules = policy or (QUICK if quick else THOROUGH if thorough else REPORT)
    facts: dict[str, Any] = {"began_utc": began_utc, "time_limit_s": limit, "seed": seed, "left_out": [], "end_check": []}
    if machine is None:
        machine = measure_machine(
            opened, depth="quick" if quick else "thorough" if thorough else "report", policy=ceilings_policy, progress=progress,
            deadline_s=None if limit is None else limit * CEILINGS_SHARE, unfinished=work / MACHINE, force=force,
        )  # fmt: skip
        machine = _with(machine, facts)
    else:
        machine = _with(machine, facts)
        machine.save(work / MACHINE)

    points = default_points(machine.facts, opened.backend, machine, quick=quick, thorough=thorough, limit_s=limit)
    results, late = _operators(points, opened, machine, rules, work / RESULTS, begun, limit, seed, progress)
    facts["left_out"] = [{**point.described(), "reason": LATE} for point in late]
    checks = end_check(opened, machine, rules)
    facts["end_check"] = [ends.to_dict() for _, ends, _ in checks]
    machine = pooled(machine, results)
    for c, ends, contended in checks:
        if not contended:
            machine = machine.pooled(c.problem, ends.after_samples, variant=c.variant, threads=c.threads)
    facts["took_s"] = round(time.monotonic() - begun, 1)
    machine = _with(machine, facts)
    machine.save(work / MACHINE)
    render(machine, results, work, plot=plot, html=html)
    return Report(machine=machine, results=results, out=folder, files=finish(folder, force=force))


FILL_BYTES_PER_S, CHECK_FLOPS_PER_S, CHECK_BYTES_PER_S = 1e9, 2e9, 4e8  # random data, and NumPy's float64, by one core of today
GPU_FILLS_BYTES_PER_S = 1e11
BUSY = 2.0  # times the estimated cost: nothing is then measured again
PREDICTED_SHARE = 0.5  # of the time of a launch that is expected of slow variants
SAMPLED_SHARE = 0.5  # of a point's time: the rest fills, checks, warms up and brackets


def shorter(rules: Policy, each_s: float) -> Policy:
    """The rules with samples so short that a point takes about each_s."""
    most_s = min(rules.max_s, max(SAMPLED_SHARE * each_s, QUICK.min_s))
    warmup_s = min(rules.warmup_max_s, max(most_s / 4, rules.warmup_min_s))
    tries = 1 if most_s < rules.max_s else rules.tries
    return dataclasses.replace(rules, max_s=most_s, min_s=min(rules.min_s, most_s), warmup_max_s=warmup_s, tries=tries)


def cost_s(point: Point, machine: Machine, rules: Policy) -> float:
    """What timing a point takes, about: filling and checking its tensors, brackets, warm-up and samples."""
    size, flops = point.problem.footprint_bytes(), point.problem.total_flops()
    try:
        launch_s = predict_problem(machine, point.problem, variant=point.variant).time_s / PREDICTED_SHARE
    except Error:  # roofs were left out for lack of time
        launch_s = 0.0
    prepared = size / (GPU_FILLS_BYTES_PER_S if "sms" in machine.facts else FILL_BYTES_PER_S)
    checked = min(size, WHOLE_CHECK_BYTES) / CHECK_BYTES_PER_S + min(flops, WHOLE_CHECK_FLOPS) / CHECK_FLOPS_PER_S
    samples = max(rules.min_s, rules.min_samples * launch_s)
    brackets = 6 * rules.bracket_s  # three roofs, before and after
    return prepared + checked + brackets + max(rules.warmup_min_s, launch_s) + samples


def _operators(
    points: Sequence[Point],
    device: Device,
    machine: Machine,
    rules: Policy,
    path: os.PathLike[str],
    begun: float,
    limit: float | None,
    seed: int,
    progress: ProgressOption,
) -> tuple[Results, list[Point]]:
    """Every point that fits the time limit, each on disk as soon as it is there; and those that do not."""
    found: list[Measurement] = []
    late: list[Point] = []
    slower = 1.0  # than estimated: the host is busy, or slow
    with Progress(progress, len(points)) as shown:
        first = sum(point.first for point in points)  # that are still to come
        for point in points:
            shown.step(f"{point.problem.name} {point.variant}, {point.cache_state}")
            at, own = time.monotonic(), rules if slower < BUSY else dataclasses.replace(rules, tries=1)
            if limit is not None:
                left_s = limit - min(RESERVE_S, limit / 4) - (at - begun)
                own = shorter(own, left_s / first) if point.first else own
                first -= point.first
            expected = cost_s(point, machine, own)
            if limit is not None and slower * expected > left_s:
                late.append(point)
                continue
            measurement = attempt(
                point.problem, variant=point.variant, device=device, machine=machine, cache_state=point.cache_state, seed=seed,
                policy=own,
            )  # fmt: skip
            append_to(path, measurement)
            found.append(measurement)
            if measurement.samples_s:
                slower = max(0.8 * slower + 0.2 * (time.monotonic() - at) / expected, 0.5)
    return Results(tuple(found)), late
