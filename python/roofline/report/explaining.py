"""One measured point, step by step: where its FLOPs and bytes come from, which roof stopped it, and what was predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._repr import printable, text_table
from ..machine import RATE_UNITS, Machine
from ..model import gaps
from ..operators import Operator
from ..prediction import ROOF_WORDS
from ..results import Measurement, advise, problem_behind
from ..units import MISSING, fmt_bytes, fmt_interval, fmt_number, fmt_percent, fmt_si
from ..words import counted
from .formulas import flops_formulas, tensor_bytes, tensor_formulas, traffic_formulas
from .tables import Table, fmt_error, why_wrong

NO_TABLE = Table(headers=(), rows=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One heading with a table, lines, or both."""

    title: str
    table: Table = NO_TABLE
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation:
    """What `explain` found, as sections of text and as the measurement itself."""

    title: str
    measurement: Measurement
    sections: tuple[Section, ...]

    def __str__(self) -> str:
        parts = [self.title]
        for section in self.sections:
            table = [text_table(section.table.headers, section.table.rows)] if section.table.headers else []
            parts.append("\n".join([section.title, *table, *section.lines]))
        return printable("\n\n".join(parts))

    def __repr__(self) -> str:
        return f"Explanation({self.title!r})"

    def to_dict(self) -> dict[str, Any]:
        """JSON form: title, the whole measurement, and each section's title, headers, rows and lines."""
        sections = [
            {"title": s.title, "headers": list(s.table.headers), "rows": [list(r) for r in s.table.rows], "lines": list(s.lines)}
            for s in self.sections
        ]
        return {"title": self.title, "measurement": self.measurement.to_dict(), "sections": sections}


def _flops(m: Measurement, problem: Operator | None) -> Section:
    formulas = flops_formulas(problem) if problem else {}
    total = m.total_flops
    rows = [
        (term, formulas.get(term, MISSING), str(count), fmt_percent(count / total if total else 0.0))
        for term, count in m.flops.items()
    ]
    rows.append(("total", "", str(total), fmt_si(float(total), "FLOP")))
    return Section(title="FLOPs", table=Table(headers=("term", "formula", "FLOPs", "share"), rows=rows, wide=("formula",)))


def _bytes(m: Measurement, problem: Operator | None) -> Section:
    rows: list[tuple[str, ...]] = []
    beyond: Mapping[str, str] = {}
    if problem is not None:
        shapes = {t.name: f"{t.name} {list(t.shape)} {t.dtype}" for t in problem.tensors()}
        formulas, sizes = tensor_formulas(problem), tensor_bytes(problem)
        rows += [(shapes[name], formulas.get(name, MISSING), str(size), fmt_bytes(size)) for name, size in sizes.items()]
        beyond = traffic_formulas(problem, {"variant": m.variant, **m.plan}) if m.plan else {}
    for term, count in m.bytes.items():
        name = term if term == "compulsory" else f"beyond: {term}"
        rows += [] if problem and term == "compulsory" else [(name, beyond.get(term, MISSING), str(count), fmt_bytes(count))]
    rows.append(("total", "", str(m.total_bytes), fmt_bytes(m.total_bytes)))
    where = f"Bytes at {m.level}" if m.level else "Bytes"
    table = Table(headers=("operand", "formula", "bytes", "size"), rows=rows, wide=("operand", "formula"))
    intensity = (f"intensity: {fmt_number(m.flops_per_byte)} FLOP/byte (FLOPs over bytes)",) if m.total_bytes else ()
    return Section(title=where, table=table, lines=intensity)


def _roofs(m: Measurement) -> Section:
    limiting = m.limiting_bracket
    rows = []
    for b in m.brackets:
        ends = (fmt_si(median, RATE_UNITS[b.kind]) for median in (b.median_before, b.median_after))
        allowed = m.allowed_s(b)
        share = "" if m.time_s is None else fmt_percent(allowed / m.time_s)
        mark = "the roof" if b is limiting else ""
        rows.append((b.label, *ends, fmt_percent(b.moved, 2), str(len(b.samples)), fmt_si(allowed, "s"), share, mark))
    headers = ("roof", "before", "after", "moved", "n", "time at this roof", "of measured", "")
    lines = []
    found = {b.kind: b for b in m.brackets}
    if "compute" in found and "bandwidth" in found and m.flops_per_byte is not None:
        ridge = found["compute"].value / found["bandwidth"].value
        side = "left of it: memory-bound" if m.flops_per_byte < ridge else "right of it: compute-bound"
        lines.append(
            f"the two roofs meet at {fmt_number(ridge)} FLOP/byte; {fmt_number(m.flops_per_byte)} lies {side}, "
            "unless the launch is longer"
        )
    table = Table(headers=headers, rows=rows, drop=("moved", "n", "after"))
    return Section(title="Roofs around it", table=table, lines=tuple(lines))


def _timing(m: Measurement) -> Section:
    s = m.summary
    if s is None:
        return Section(title="Time", lines=("nothing was timed",))
    lines = [
        f"median {fmt_si(s.median, 's')}" + (f", {s.interval_name} {fmt_interval(s.low, s.high, 's')}" if s.n > 1 else ""),
        f"{s.n} samples from {fmt_si(s.minimum, 's')} to {fmt_si(s.maximum, 's')}, p5 to p95 {fmt_interval(s.p5, s.p95, 's')}",
        f"launches in a sample: {m.launches_per_sample}; warm-up {fmt_si(m.warmup_s, 's')}; "
        f"stopped by {m.stop_reason or 'an unknown rule'}; {counted(m.repeats, 'attempt')} thrown away",
        f"{fmt_si(m.flops_per_s, 'FLOP/s')} and {fmt_si(m.bytes_per_s, 'B/s')}",
    ]
    clocks = [fmt_si(c, "Hz") for c in (m.clock_hz_before, m.clock_hz_after) if c]
    if clocks:
        lines.append(f"clock: {' before, '.join(clocks)}{' after' if len(clocks) == 2 else ''}")
    if m.correctness.get("checked"):
        rows = m.correctness.get("rows")
        scope = f"{rows} sampled rows" if rows else "everything"
        share = m.correctness.get("tolerance_relative")
        relative = f" + {fmt_number(share)} · |reference|" if share else ""
        lines.append(
            f"checked against float64 ({scope}): largest error {fmt_number(m.correctness.get('max_error'))}, "
            f"tolerance {fmt_number(m.correctness.get('tolerance'))}{relative}"
        )
    lines += [f"step {name} alone: {fmt_si(s, 's')} (n = {len(m.steps[name])})" for name, s in m.steps_s().items()]
    return Section(title="Time", lines=tuple(lines))


def _prediction(m: Measurement) -> Section:
    if "time_s" not in m.prediction:
        return Section(title="Prediction", lines=("none was stored",))
    terms, parts = m.prediction.get("terms", {}), m.prediction.get("parts", {})
    rows = [(f"{name} roof", fmt_si(seconds, "s")) for name, seconds in terms.items()]
    if parts != terms:
        rows += [(ROOF_WORDS.get(name, name), fmt_si(seconds, "s")) for name, seconds in parts.items() if seconds > 0]
    most = f" to {fmt_si(m.prediction['most_s'], 's')}" if m.prediction.get("most_s") else ""
    lines = [
        f"predicted {fmt_si(m.prediction['time_s'], 's')}{most} ({m.prediction.get('bound', '')}-bound), "
        "fixed before the operator ran",
        *m.prediction.get("notes", ()),
    ]
    if m.time_s is not None:
        error = f"predicted / measured − 1 is the error, {fmt_error(m.prediction_error)}"
        lines.append(f"measured {fmt_si(m.time_s, 's')}: {error}")
        lines.append(f"why: {why_wrong(m) or 'nothing is known'}")
    return Section(title="Prediction", table=Table(headers=("roof or part", "time"), rows=rows), lines=tuple(lines))


def _ceilings(m: Measurement, machine: Machine) -> Section:
    if m.time_s is None:
        return Section(title=f"Ceilings of {machine.name}", lines=("nothing was timed",))
    rows = [
        (gap.ceiling.label, str(gap.ceiling.threads or MISSING), fmt_si(gap.share * m.time_s, "s"), fmt_percent(gap.share))
        for gap in gaps(machine, m.total_flops, m.total_bytes, m.time_s, m.dtype)
        if gap.own and gap.share > 0
    ]
    return Section(
        title=f"Ceilings of {machine.name}", table=Table(headers=("ceiling", "threads", "time at it", "of measured"), rows=rows)
    )


def _advice(m: Measurement, machine: Machine, peers: Iterable[Measurement]) -> Section:
    headers, rows = advise(m, machine, peers).table()
    lines = [] if rows else ["no known change gains more than 2 %"]
    if m.status == "contended":
        lines.append("other work ran beside it, and part of a gain may be what that took")
    return Section(title="What would it take", table=Table(headers=headers, rows=rows, wide=("change", "why")), lines=tuple(lines))


def explain(measurement: Measurement, machine: Machine | None = None, peers: Iterable[Measurement] = ()) -> Explanation:
    """Formulas of FLOPs and bytes by term, the brackets, samples, prediction and outcome; with `machine`, the time at each ceiling
    and what each change would gain.

    `print(explain(results[0], machine, results))`.

    peers: measurements beside it, for the gain of other variants. Works on saved measurements; measures nothing.
    """
    m = measurement
    problem = problem_behind(m)
    threads = f", {counted(m.threads, 'thread')}" if m.threads else ""  # none is known of an imported one
    title = f"{m.operator} {m.variant}: {m.brief_problem()}; {m.device}{threads}, {m.cache_state}"
    sections = [_flops(m, problem), _bytes(m, problem)]
    if m.brackets:
        sections.append(_roofs(m))
    sections += [_timing(m), _prediction(m)]
    if machine is not None:
        sections.append(_ceilings(m, machine))
        if m.time_s is not None:
            sections.append(_advice(m, machine, peers))
    outcome = m.status.replace("_", " ") + (f": {m.reason}" if m.reason else "")
    reached = f"{fmt_percent(m.settled_share)} of its {m.bound} roof" if m.settled_share is not None else "no roof to compare with"
    sections.append(Section(title="Outcome", lines=(reached, f"status: {outcome}")))
    return Explanation(title=title, measurement=m, sections=tuple(sections))
