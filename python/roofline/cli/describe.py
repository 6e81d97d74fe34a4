"""Plain English: what a ceiling is, what an operator does."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from ..counts import by_key
from ..errors import Error
from ..machine import Machine
from ..operators import OPERATORS, Operator, Stream
from ..probes import standard_problems
from ..report.formulas import flops_formulas, tensor_formulas
from ..units import fmt_bytes, fmt_duration
from ..words import counted
from .fields import description

PREPARED_S = 0.5  # of a point: its operands, the check of its result, the brackets


def describe_ceilings(device: Any, depth: str) -> Iterator[str]:
    """Each ceiling and series that would be measured, with what it means. depth: see `ceilings.DEPTHS`."""
    from ..ceilings import wanted, wanted_series
    from ..measurement.arena import needs

    accesses = inspect.cleandoc(Stream.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    yield f"Ceilings of {device.title} ({device.name}, {device.threads} threads). Accesses: {accesses}"
    all_ = wanted(device, depth)
    devices = by_key((where, what) for where, what in all_)  # the same CPU with one thread is one of its own
    needed = [needs(each) for each in devices.values()]
    standards = list(standard_problems(device, depth))
    apart = max(0, *(most for _, most in needed), *(standard.problem.footprint_bytes() for standard in standards))
    limit = f"at most {fmt_bytes(device.arena_bytes)}{' for each number of threads' * (len(devices) > 1)}, see --arena"
    parts = [f"{fmt_bytes(sum(shared for shared, _ in needed))} for the arrays of all probes ({limit})"]
    parts += [f"{fmt_bytes(apart)} for one problem beside them"] if apart else []
    yield f"Memory: {', '.join(parts)}, {fmt_bytes(sum(each.flush_bytes for each in devices))} to flush the caches"
    kernels = Counter(f"{standard.problem.name} {standard.variant}" for standard in standards)
    for where, what in all_:
        problem, variant = what.candidates[0]
        more = what.probe.describe(what.probe.identity(where, problem, variant, what.level))
        missing = f"; left out: {what.missing}" if what.missing else ""
        yield f"  {what.label}: {more or what.probe.summary}{missing}"
    if kernels:
        each = ", ".join(f"{name} {count}" for name, count in kernels.items())
        yield f"  {kernels.total()} standard problems, on which each kernel is timed: {each}"
    for series in wanted_series(device, depth):
        yield f"  {series.label}"


def describe_points(device: Any, machine: Machine | None, *, quick: bool, thorough: bool) -> Iterator[str]:
    """How many problems a report times, and what the largest allocates. Without a machine's ceilings none is made smaller."""
    from ..report.points import default_points

    known = machine or Machine(name=device.title, facts=device.facts)
    points = default_points(device.facts, device.backend, known, quick=quick, thorough=thorough)
    yield f"{counted(len(points), 'point')} of operators, as many as the time limit allows; what is slow here gets smaller problems"
    yield describe_memory(device, (point.problem for point in points), "cold")


def describe_operators() -> Iterator[str]:
    """What every operator computes."""
    yield "Operators (`roofline run OPERATOR --describe` says more of one)"
    yield from (f"  {cls.name}: {cls.summary}" for cls in OPERATORS.values())


def describe_time(todo: Any, policy: Any, machine: Any) -> str:
    """How long a sweep takes: by its sampling rules, and with a machine by the predicted time of each point."""
    from ..prediction import predict_problem

    usual = most = 0.0
    for problem, variant in todo:
        launch_s = 0.0
        if machine is not None:
            with suppress(Error):
                launch_s = predict_problem(machine, problem, variant=variant).time_s
        sampling = min(max(2 * policy.min_s, policy.min_samples * launch_s), max(policy.max_s, 3 * launch_s))
        usual += PREPARED_S + policy.warmup_min_s + sampling
        most += max(policy.limit_s, 3 * launch_s)
    said = f"{counted(len(todo), 'point')}: about {fmt_duration(usual)} on an idle machine, at most {fmt_duration(most)}"
    return f"{said}; --quick and --timeout change that" + ("" if machine else "; with --machine long launches count too")


def describe_memory(device: Any, problems: Iterable[Operator], cache_state: str) -> str:
    """What the largest of these problems and the probes around it allocate."""
    from ..measurement.preparing import cold_sets

    cold = cache_state == "cold"
    tensors = max((p.footprint_bytes() * (cold_sets(device.facts, p)[0] if cold else 1) for p in problems), default=0)
    parts = (
        f"{fmt_bytes(tensors)} for tensors", "the kernel's workspace", f"at most {fmt_bytes(device.arena_bytes)} for probes",
        f"{fmt_bytes(device.flush_bytes)} to flush the caches",
    )  # fmt: skip
    return f"memory: {', '.join(parts)}"


def describe_problem(problem: Operator, which: str = "this problem") -> Iterator[str]:
    """One operator, and how FLOPs and bytes of this problem are counted."""
    yield from description(type(problem)).splitlines()
    yield ""
    yield f"{which}: " + " ".join(f"{name}={value}" for name, value in problem.to_dict().items())
    counts = problem.flops()
    for term, formula in flops_formulas(problem).items():
        yield f"  FLOPs, {term}: {formula[2:]} = {counts[term]}"
    sizes = {t.name: t.moved_bytes for t in problem.tensors()}
    for name, formula in tensor_formulas(problem).items():
        yield f"  bytes, {name}: {formula[2:]} = {sizes[name]}"
    yield f"  its memory roof is the {problem.mix} bandwidth, its compute roof that of {problem.compute()[0]}"
