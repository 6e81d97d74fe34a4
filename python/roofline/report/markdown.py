"""The text of report.md: every figure comes from machine.json or results.jsonl beside it, and can be computed from them again."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .._repr import github_table, markdown as escaped
from ..counts import by_key
from ..errors import Error
from ..machine import MOVED, RATE_UNITS, Machine
from ..operators import OPERATORS
from ..probes.levels import stated_caches
from ..reading import build
from ..results import Bracket, Measurement
from ..units import fmt_bytes, fmt_number, fmt_percent, fmt_si
from ..words import counted
from .tables import (
    KERNELS,
    UNDISTURBED,
    Table,
    ceiling_table,
    defaults_used,
    fmt_error,
    kernel_table,
    operator_table,
    reasons,
    sanity_lines,
    slower_defaults,
    steps_table,
    why_wrong,
)

TITLE = "# Roofline report"
POINT_KEYS = ("operator", "variant", "problem", "cache_state")
WORST = 10  # predictions that are listed

RULES = (
    "FLOPs: one per add, multiply, divide, square root, exp, log, tanh, erf and comparison; negation, absolute value, "
    "conversion and selection are free. A multiply-add is two. Masked pairs of attention are not counted, whatever the "
    "kernel computes. All terms are counted, softmax and scale included.",
    "Bytes: every operand once (K and V by KV heads), plus what the variant is modelled to move beyond that; modelled, not "
    "counted by hardware. GB/s and GFLOP/s are decimal (10⁹).",
    "Time: median over batches of launches; operands come from DRAM (cold) or stay in a cache (warm). Outputs are checked "
    "against a float64 reference before anything is timed.",
    "of attainable: attainable time over measured time, by short probes of the point's own roofs directly before and after it."
    " of best mode: the same against the faster mode, where a roof was seen in two. predicted: from the probes before, "
    "fixed before the operator ran; error is predicted / measured − 1.",
    "Above 103 % of its bracket a point is implausible: evidence of an error, never a win. contended (other work ran on "
    "these cores) and roof moved (its bracket's ends differ by more than 5 %) are shown, and never averaged.",
)


def markdown_table(table: Table) -> str:
    """A GitHub table; columns of numbers to the right, cells escaped."""
    return github_table(table.headers, table.rows)


def _bullets(lines: Iterable[str], none: str = "") -> str:
    return "\n".join(f"* {escaped(line)}" for line in lines) or none


def report_facts(machine: Machine) -> Mapping[str, Any]:
    """What a report stored beside the ceilings: began_utc, took_s, time_limit_s, left_out, end_check. Empty for others."""
    found = machine.provenance.get("report", {})
    return found if isinstance(found, Mapping) else {}


def conditions(machine: Machine) -> list[str]:
    """Device, software and circumstances as plain lines."""
    facts, provenance, run = machine.facts, machine.provenance, report_facts(machine)
    caches = stated_caches(facts)
    versions = ", ".join(f"{name} {value}" for name, value in dict(provenance.get("versions", {})).items())
    build_facts = dict(provenance.get("build", {}))
    lines = [f"device: {machine.device}, {machine.name}" + (f", {facts['threads']} threads" if facts.get("threads") else "")]
    if facts.get("isas"):
        lines.append(f"instruction sets: {str(facts['isas']).replace(',', ', ')}")
    if caches:
        lines.append(f"caches: {', '.join(caches)} (L1 and L2 of one core)")
    if facts.get("memory_bytes"):
        lines.append(f"memory: {fmt_bytes(int(facts['memory_bytes']))}")
    when = f"date: {run.get('began_utc') or machine.created_utc}"
    if "took_s" in run:
        limit = run.get("time_limit_s")
        when += f"; took {fmt_number(run['took_s'])} s" + (
            f" of at most {fmt_number(limit)} s" if limit else ", without a time limit"
        )
    lines.append(when)
    if provenance.get("os"):
        lines.append(f"system: {provenance['os']}")
    shown = {
        "governor": "frequency governor", "huge_pages": "huge pages", "driver_version": "driver", "runtime_version": "CUDA runtime",
    }  # fmt: skip
    stated = [f"{name} {facts[key]}" for key, name in shown.items() if facts.get(key)]
    if facts.get("virtual_machine"):
        stated.append("in a virtual machine")
    if provenance.get("roofline_isa"):
        stated.append(f"ROOFLINE_ISA={provenance['roofline_isa']}")
    if "seed" in run:
        stated.append(f"seed {run['seed']}")
    lines.append(f"conditions: {', '.join(stated) or 'none recorded'}")
    if versions:
        lines.append(f"versions: {versions}; built by {build_facts.get('compiler', 'an unknown compiler')}")
    return lines


def end_check_lines(machine: Machine) -> list[str]:
    """Whether the main roofs moved between the start and the end of the report, or the faults of a file that was edited."""
    found = enumerate(report_facts(machine).get("end_check", []))
    try:
        checks = [build(Bracket, item, where=f"provenance: report: end_check[{index}]") for index, item in found]
    except Error as error:
        return [str(error)]
    lines = []
    for check in checks:
        unit = RATE_UNITS[check.kind]
        ends = f"{fmt_si(check.median_before, unit)} at the start, {fmt_si(check.median_after, unit)} at the end"
        verdict = f"moved by {fmt_percent(check.moved, 2)}" if check.moved > MOVED else "did not move"
        lines.append(f"{check.label}: {verdict} ({ends})")
    return lines


def _joined(lines: Iterable[tuple[str, str]]) -> list[str]:
    """(name, reason) pairs with the names of equal reasons together."""
    grouped = by_key((reason, name) for name, reason in lines)
    return [f"{', '.join(names)}: {reason}" for reason, names in grouped.items()]


def left_out_lines(machine: Machine) -> list[str]:
    """What was not measured, and why: ceilings first, then points; equal reasons together."""
    ceilings = _joined(dict(machine.provenance.get("left_out", {})).items())
    points = []
    for item in report_facts(machine).get("left_out", []):
        m = Measurement(device=machine.device, threads=0, status="unsupported", **{name: item[name] for name in POINT_KEYS})
        points.append((f"{m.operator} {m.variant} ({m.brief_problem()}, {m.cache_state})", str(item["reason"])))
    return [*(f"ceilings {line}" for line in ceilings), *(f"operators {line}" for line in _joined(points))]


MEASURES = {"ceilings": "`roofline measure`", "points": "`roofline report --thorough`, or a longer --time-limit,"}


def left_out_counts(machine: Machine) -> list[str]:
    """How many ceilings and points were not measured for one reason, of which operators, and what measures them."""
    counted: dict[tuple[str, str], Counter[str]] = {}
    for name, reason in dict(machine.provenance.get("left_out", {})).items():
        operator = name.split(" ")[0]
        counted.setdefault(("ceilings", reason), Counter())[operator if operator in OPERATORS else "roofs and rates"] += 1
    for item in report_facts(machine).get("left_out", []):
        counted.setdefault(("points", str(item["reason"])), Counter())[item["operator"]] += 1
    lines = []
    for (what, reason), of in counted.items():
        each = ", ".join(f"{name} {count}" for name, count in of.most_common())
        lines.append(f"{of.total()} {what[: -1 if of.total() == 1 else None]} ({each}): {reason}; {MEASURES[what]} measures them")
    return lines


def prediction_lines(results: Iterable[Measurement]) -> list[str]:
    """Median and 95th percentile of |predicted / measured - 1|, and the worst points with the known causes.

    Points that were contended or whose roof moved are counted, and not averaged in.
    """
    timed = [(abs(m.prediction_error), m) for m in results if m.prediction_error is not None]
    used = [(error, m) for error, m in timed if m.status == UNDISTURBED]
    disturbed = f"; left out: {counted(len(timed) - len(used), 'disturbed point')}" if len(used) < len(timed) else ""
    if not used:
        return [f"no undisturbed point to average{disturbed}"]
    errors = [error for error, _ in used]
    middle, high = fmt_percent(statistics.median(errors)), fmt_percent(float(np.percentile(errors, 95)))
    lines = [f"|error| over {counted(len(used), 'point')}: median {middle}, 95th percentile {high}{disturbed}"]
    for _, m in sorted(used, key=lambda pair: -pair[0])[:WORST]:
        said = "; ".join(filter(None, (fmt_error(m.prediction_error), why_wrong(m))))
        lines.append(f"{m.operator} {m.variant} ({m.brief_problem()}, {m.cache_state}): {said}")
    return lines


def series_lines(machine: Machine) -> list[str]:
    """Knees and sustained rates of the sweeps over intensity, plateaus of the curves over size."""
    lines = []
    for swept in machine.empirical:
        burst, long = swept.burst_flops_per_s, swept.sustained_flops_per_s
        lines.append(swept.label)
        if burst and long:
            lines[-1] += f"; under load for {fmt_si(swept.sustained[-1].time_s, 's')} {fmt_percent(long / burst)} of its burst"
    for curve in machine.curves:
        found = ", ".join(plateau.label for plateau in curve.plateaus(machine.facts)) or "no plateau"
        lines.append(f"{curve.name}: {found}")
    return lines


def markdown(machine: Machine, results: Sequence[Measurement], *, pictures: Sequence[str] = ("roofline.png",)) -> str:
    """The whole of report.md. pictures: file names to refer to."""
    parts = [f"{TITLE}: {escaped(machine.name)}", _bullets(conditions(machine))]
    parts += [f"![{name.removesuffix('.png').replace('_', ' ')}]({name})" for name in pictures]
    parts += ["## Ceilings", markdown_table(ceiling_table(machine))]
    if (kernels := kernel_table(machine)).rows:
        parts += ["## Kernels", KERNELS, markdown_table(kernels)]
    if series := series_lines(machine):
        parts += ["## Series", _bullets(series)]
    parts += ["## Operators", markdown_table(operator_table(results, machine)) if results else "None was measured."]
    if defaults := defaults_used(results):
        parts.append("Fields that are not named have their defaults:\n\n" + _bullets(defaults))
    if (steps := steps_table(results)).rows:
        parts += ["## Steps", "Kernels of several steps, each step timed alone:", markdown_table(steps)]
    if why := reasons(results):
        parts.append("Points that are not ok:\n\n" + _bullets(why))
    if slower := slower_defaults(machine, results):
        parts.append("Defaults that are not the fastest:\n\n" + _bullets(slower))
    parts += ["## Prediction", _bullets(prediction_lines(results))]
    parts += ["## Roofs at the end", _bullets(end_check_lines(machine), "They were not measured again.")]
    parts += ["## Sanity", _bullets(sanity_lines(machine), "Nothing contradicts: levels, widths, threads and clocks agree.")]
    parts += ["## Left out", _bullets(left_out_lines(machine), "Nothing.")]
    parts += ["## Counting rules", _bullets(RULES)]
    return "\n\n".join(parts) + "\n"
