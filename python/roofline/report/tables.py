"""The tables of a report: what each column says, once, for report.md, the terminal and the tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .._repr import Row
from ..counts import by_key
from ..kernel_costs import kernel_costs, problem_of, stored
from ..machine import FEWEST, LEVELS, MOVED, RATE_UNITS, Ceiling, Machine
from ..machine.sanity import states
from ..operators import OPERATORS, Operator, from_dict
from ..operators.scales import shown_fields
from ..prediction import default_variant
from ..results import Measurement
from ..units import GIGA, MISSING, fmt_interval, fmt_number, fmt_percent, fmt_si
from ..words import backend_of, counted

KIND_ORDER = ("bandwidth", "link", "transfer", "compute", "latency")
UNDISTURBED = "ok"  # measurements in any other state are shown, and never averaged
NEAR = 0.5  # a roof that allows at least this share of the limiting roof's time is one the model overlaps perfectly
SLOWER = 0.95  # of a default's time: another variant that takes less is said to be faster
TOLD_S, TOLD_JOINS = 1e-12, 1e-3  # costs of a kernel below these are told as 0
KERNELS = (
    "Measured over expected time of the parts, and what is added to it, from standard problems; what these do not tell is as "
    "a CPU's kernels usually have it. joins: how long threads wait for each other inside the kernel, over the time of its launches."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Headers and rows of text cells. wide: headers of columns that may be folded. drop: of those that a narrow terminal goes
    without, the first one first.
    """

    headers: Row
    rows: Sequence[Row]
    wide: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


def varying(results: Iterable[Measurement]) -> dict[str, frozenset[str]]:
    """Per operator: the fields with more than one value among `results`."""
    seen: dict[str, dict[str, set[object]]] = {}
    for m in results:
        for name, value in m.problem.items():
            seen.setdefault(m.operator, {}).setdefault(name, set()).add(value)
    return {operator: frozenset(name for name, values in fields.items() if len(values) > 1) for operator, fields in seen.items()}


def defaults_used(results: Iterable[Measurement]) -> list[str]:
    """Per operator present: the defaults that `Measurement.brief_problem` leaves out."""
    lines = []
    for name in dict.fromkeys(m.operator for m in results):
        if cls := OPERATORS.get(name):
            fields = " ".join(f"{field}={value}" for field, value in shown_fields(cls().to_dict()).items() if field != "dtype")
            lines.append(f"{name} {fields}")
    return lines


def ordered(results: Iterable[Measurement]) -> list[Measurement]:
    """By operator and variant in declared order, then as measured."""
    names = list(OPERATORS)

    def rank(m: Measurement) -> tuple[int, int]:
        variants = list(OPERATORS[m.operator].variants) if m.operator in OPERATORS else []
        return (
            names.index(m.operator) if m.operator in names else len(names),
            variants.index(m.variant) if m.variant in variants else len(variants),
        )

    return sorted(results, key=rank)


def usual(results: Iterable[Measurement], machine: Machine) -> list[Measurement]:
    """The undisturbed results of the variants that run by default, and of `naive`."""
    ok = (m for m in results if m.status == UNDISTURBED)
    return [m for m in ok if m.variant in ("naive", from_dict(m.operator, m.problem).default_variant(machine.device))]


def fit_for_a_page(results: Iterable[Measurement]) -> list[Measurement]:
    """The first two results of each kernel, dtype and cache state; the first one of `naive`."""
    shown, seen = [], Counter[tuple[str, str, str, str]]()
    for m in results:
        kind = (m.operator, m.variant, m.dtype, m.cache_state)
        seen[kind] += 1
        shown += [m] if seen[kind] <= (1 if m.variant == "naive" else 2) else []
    return shown


def ordered_ceilings(machine: Machine) -> list[Ceiling]:
    """Bandwidths from the slowest level on, then compute, then latencies; most threads first."""

    def rank(c: Ceiling) -> tuple[int, int, int]:
        level = -LEVELS.index(c.level) if c.level in LEVELS else 0
        return KIND_ORDER.index(c.kind), -c.threads, level

    return sorted(machine.ceilings, key=rank)


def fmt_mode_shares(c: Ceiling) -> str:
    """ "101 GB/s (60 %) or 50.0 GB/s (40 %)"; "one" where a single mode was seen."""
    if not c.bimodal:
        return "one"
    return " or ".join(f"{fmt_si(mode.value, RATE_UNITS[c.kind])} ({fmt_percent(mode.share, 2)})" for mode in c.modes)


def _power(conditions: Mapping[str, object]) -> str:
    power = conditions.get("power_w")
    return f"{fmt_number(power)} W" if isinstance(power, (int, float)) else MISSING


def ceiling_table(machine: Machine) -> Table:
    """Median, its 95 % interval, n, clock, modes, and power where some device tells it.

    A bimodal ceiling has no median: it would lie between the modes. With fewer than 6 samples the interval is a range, and says so.
    """
    powers = ("power",) if any("power_w" in c.conditions for c in machine.ceilings) else ()
    rows = []
    for c in ordered_ceilings(machine):
        s, unit = c.summary, RATE_UNITS[c.kind]
        spread = fmt_interval(s.low, s.high, unit) + ("" if s.n >= FEWEST else " (range)")
        middle = (MISSING, MISSING) if c.bimodal else (fmt_si(s.median, unit), spread)
        power = [_power(c.conditions) for _ in powers]
        clock = fmt_si(c.clock_hz, "Hz")
        rows.append((c.name, *middle, str(s.n), fmt_mode_shares(c), str(c.threads or MISSING), clock, *power, c.state))
    headers = ("ceiling", "median", "95 % interval", "n", "modes", "threads", "clock", *powers, "status")
    return Table(headers=headers, rows=rows, wide=("modes",), drop=("clock", "threads", "n"))


def kernel_table(machine: Machine) -> Table:
    """What each kernel takes beyond its parts, from its times on standard problems; see `KernelCosts`."""
    rows = []
    kernels: dict[tuple[str, ...], tuple[Operator, str]] = {}
    for timed in machine.kernels:
        if problem := problem_of(timed.problem):
            few = ("", "few rows", "one row")[problem.rows_kind()]
            kernels.setdefault((problem.name, timed.variant, stored(problem), few), (problem, timed.variant))
    for names, (problem, variant) in kernels.items():
        if found := kernel_costs(machine, problem, variant):
            factors = (f"× {fmt_number(factor)}" for factor in (found.memory, found.caches))
            seconds = (fmt_si(x if x >= TOLD_S else 0.0, "s") for x in (found.loop_s, found.start_s, found.cold_s))
            joins = (f"× {fmt_number(count if count >= TOLD_JOINS else 0.0)}" for count in (found.joins, found.cold_joins))
            rows.append((*names, *factors, *seconds, *joins))
    headers = (
        "operator", "variant", "dtype", "", "in memory", "in caches", "each loop", "start", "cold start more", "joins",
        "cold joins more",
    )  # fmt: skip
    return Table(headers=headers, rows=rows)


def fmt_error(error: float | None) -> str:
    return MISSING if error is None else ("+" if error > 0 else "") + fmt_percent(error)


def _energies(m: Measurement) -> tuple[str, ...]:
    """Power, and the energy of a launch over its FLOPs, its bytes and its tokens."""
    energy = m.energy_per_launch_j

    def per(count: int) -> str:
        return fmt_si(energy / count, "J") if energy is not None and count else MISSING

    return _power(m.conditions), per(m.total_flops), per(m.total_bytes), per(m.tokens)


def _reached(m: Measurement, always: frozenset[str]) -> tuple[str, ...]:
    """The problem, the cache state, the time, and GFLOP/s and GB/s."""
    rates = (MISSING if rate is None else fmt_number(rate / GIGA) for rate in (m.flops_per_s, m.bytes_per_s))
    return m.brief_problem(always) if m.problem else MISSING, m.cache_state, fmt_si(m.time_s, "s"), *rates


def operator_table(results: Iterable[Measurement], machine: Machine | None) -> Table:
    """Everything of a point in one row, for report.md; modes, power and energy where some point has them."""
    rows = []
    listed = ordered(results)
    # Brackets taken while other work ran scatter by themselves: their modes are not the roof's.
    best = [None if machine is None or m.status == "contended" else m.share_of_best_mode(machine) for m in listed]
    modes = ("of best mode",) if any(share is not None for share in best) else ()
    energies = ("power", "per FLOP", "per byte", "per token") if any("power_w" in m.conditions for m in listed) else ()
    differing = varying(listed)
    for m, share in zip(listed, best, strict=True):
        shares = fmt_percent(m.settled_share), *([fmt_percent(share)] if modes else ())
        error = MISSING if m.status == "contended" else fmt_error(m.prediction_error)
        rows.append((m.operator, m.variant, *_reached(m, differing[m.operator]), fmt_number(m.flops_per_byte), m.bound or MISSING,
                     *shares, fmt_si(m.prediction.get("time_s"), "s"), error, *(_energies(m) if energies else ()),
                     m.status.replace("_", " ")))  # fmt: skip
    headers = (
        "operator", "variant", "problem", "cache", "time", "GFLOP/s", "GB/s", "FLOP/byte", "bound", "of attainable", *modes,
        "predicted", "error", *energies, "status",
    )  # fmt: skip
    return Table(headers=headers, rows=rows, wide=("problem",))


def steps_table(results: Iterable[Measurement]) -> Table:
    """A row for each step that was timed alone, and their sum: seconds, and as a share of the whole kernel's time."""
    timed = [m for m in results if m.time_s is not None and m.steps_s()]
    always = varying(timed)
    rows = []
    for m in timed:
        whole, steps = m.time_s or 0.0, m.steps_s()
        first = (m.operator, m.variant, m.brief_problem(always[m.operator]))
        for name, seconds in [*steps.items(), ("sum", sum(steps.values()))]:
            rows.append((*first, name, fmt_si(seconds, "s"), fmt_percent(seconds / whole)))
            first = ("", "", "")
    return Table(headers=("operator", "variant", "problem", "step", "time", "of the whole"), rows=rows)


def compact_table(results: Iterable[Measurement], *, sort: bool = True) -> Table:
    """The same for a terminal; the status only where some point is not ok. sort: by operator, else as given."""
    listed = ordered(results) if sort else list(results)
    differing = varying(listed)
    states = any(m.status != UNDISTURBED for m in listed)
    rows = []
    for m in listed:
        share = MISSING if m.settled_share is None else f"{fmt_percent(m.settled_share)} {m.bound}"
        error = MISSING if m.status == "contended" else fmt_error(m.prediction_error)
        row = (f"{m.operator} {m.variant}".strip(), *_reached(m, differing[m.operator]), share, error)
        rows.append((*row, m.status.replace("_", " ")) if states else row)
    headers = ("operator", "problem", "cache", "time", "GFLOP/s", "GB/s", "of attainable", "error")
    return Table(
        headers=(*headers, "status") if states else headers, rows=rows, wide=("problem",), drop=("cache", "GFLOP/s", "GB/s")
    )  # fmt: skip


def _cause(found: Measurement | Ceiling) -> str:
    """Its reason, without the shares of time that differ from one contended point to the next."""
    return found.reason.partition(":")[0] if found.status == "contended" else found.reason


def reasons(results: Iterable[Measurement]) -> list[str]:
    """Why points are not ok, equal reasons of an operator said once."""
    grouped: dict[tuple[str, str], list[str]] = {}
    points = ordered(results)
    fields = varying(points)
    for m in points:
        if m.status != UNDISTURBED:
            grouped.setdefault((m.status, _cause(m)), []).append(
                f"{m.operator} {m.variant} ({m.brief_problem(fields[m.operator])}, {m.cache_state})"
            )
    lines = []
    for (status, cause), names in grouped.items():
        listed = ", ".join(names) if len(names) <= 3 else f"{len(names)} points"
        lines.append(f"{status.replace('_', ' ')}: {listed}" + (f": {cause}" if cause else ""))
    return lines


def slower_defaults(machine: Machine, results: Iterable[Measurement]) -> list[str]:
    """Problems that a variant ran clearly faster than the one that runs by default, both undisturbed."""
    fields = varying(listed := ordered(results))
    named = ((f"{m.operator} ({m.brief_problem(fields[m.operator])}, {m.cache_state})", m) for m in listed)
    lines = []
    for name, each in by_key((name, m) for name, m in named if m.status == UNDISTURBED).items():
        times = {m.variant: m.time_s or 0.0 for m in each}
        if len(times) < 2 or each[0].operator not in OPERATORS:
            continue
        problem = from_dict(each[0].operator, each[0].problem)
        ruled = default_variant(machine, problem, backend_of(machine.device), times.__contains__)
        best = min(times, key=lambda variant: times[variant])
        if ruled in times and times[best] < SLOWER * times[ruled]:
            ratio = fmt_number(times[ruled] / times[best])
            lines.append(f"{name}: {ruled} runs by default, and takes {ratio} times as long as {best}")
    return lines


def sanity_lines(machine: Machine) -> list[str]:
    """`Machine.sanity`, with the ceilings in one state and for one cause named together."""
    disturbed = [c for c in machine.ceilings if c.status != UNDISTURBED]
    lines = []
    for (status, cause), members in by_key(((c.status, _cause(c)), c) for c in disturbed).items():
        names = ", ".join(f"{c.name} ({counted(c.threads, 'thread')})" for c in members)
        many = "all" if len(members) == len(machine.ceilings) else f"{len(members)} of"
        listed = names if len(members) <= 3 else f"{many} {len(machine.ceilings)} ceilings"
        why = members[0].reason if len({c.reason for c in members}) == 1 else cause
        lines.append(f"{status.replace('_', ' ')}: {listed}" + (f": {why}" if why else ""))
    named = set(states(disturbed))
    return [*lines, *(line for line in machine.sanity() if line not in named)]


def why_wrong(m: Measurement) -> str:
    """The known cause of a prediction's error, which explains its sign.

    Either way: roofs that moved, terms that are near each other, spread. Too short: what was left out, the kernel below its roof.
    Too long: a part that alone takes longer than the run.
    """
    error = m.prediction_error
    if error is None or m.time_s is None:
        return ""
    causes = []
    bracket = m.limiting_bracket
    if bracket is not None and bracket.median_after is not None and bracket.moved > MOVED:
        slower = (bracket.median_after < bracket.median_before) != (bracket.kind == "latency")
        if slower == (error < 0):
            causes.append(f"the {bracket.label} roof moved by {fmt_percent(bracket.moved, 2)} meanwhile")
    terms = sorted(m.prediction.get("terms", {}).items(), key=lambda item: -item[1])
    if len(terms) > 1 and terms[0][1] > 0 and terms[1][1] >= NEAR * terms[0][1]:
        causes.append(
            f"{terms[0][0]} ({fmt_si(terms[0][1], 's')}) and {terms[1][0]} ({fmt_si(terms[1][1], 's')}) are near each other, "
            f"and may overlap {'less' if error < 0 else 'more'} than the model has it"
        )
    s = m.summary
    if s is not None and (s.p95 - s.p5) > 0.1 * s.median:
        causes.append(f"its times spread from {fmt_si(s.p5, 's')} to {fmt_si(s.p95, 's')} (p5 to p95)")
    if error < 0:
        if m.prediction.get("most_s"):
            causes.append("the prediction leaves out what caches without a ceiling serve")
        if m.share_of_bracket is not None and m.share_of_bracket < 1:
            causes.append(f"the kernel reaches {fmt_percent(m.share_of_bracket)} of its {m.bound} roof")
    else:
        long = {name: seconds for name, seconds in m.prediction.get("parts", {}).items() if seconds > m.time_s}
        causes += [f"{name} alone ({fmt_si(seconds, 's')}) takes longer than the run" for name, seconds in long.items()]
    return "; ".join(causes)
