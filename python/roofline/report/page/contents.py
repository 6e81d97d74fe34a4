"""What the page shows: tables, and the numbers behind its interactive pictures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..._repr import Row, printable
from ...counts import by_key
from ...errors import Error, is_number
from ...machine import LEVELS, RATE_UNITS, Ceiling, Machine, memory_level
from ...model import compute_ceiling
from ...operators import from_dict
from ...results import Measurement, Results
from ...results.advice import advise
from ...units import MISSING, fmt_interval, fmt_number, fmt_percent, fmt_si
from ...words import counted
from .. import markdown as text
from ..tables import (
    KERNELS,
    Table,
    ceiling_table,
    defaults_used,
    fmt_error,
    fmt_mode_shares,
    kernel_table,
    operator_table,
    ordered,
    ordered_ceilings,
    reasons,
    sanity_lines,
    steps_table,
    varying,
    why_wrong,
)

DOTS = 60  # of a ceiling's samples: quantiles stand for more
ADVICE = 3  # for each point: the changes that gain most
NEAR = 1.25  # measured over predicted time, either way: the band of the picture
MOST_MAPS = 12

Key = Callable[[Measurement], float | None]
# By header of `operator_table`: what its columns are sorted by, where that is not their text.
SORTED: dict[str, Key] = {
    "time": lambda m: m.time_s,
    "GFLOP/s": lambda m: m.flops_per_s,
    "GB/s": lambda m: m.bytes_per_s,
    "FLOP/byte": lambda m: m.flops_per_byte,
    "of attainable": lambda m: m.settled_share,
    "predicted": lambda m: m.prediction.get("time_s"),
    "error": lambda m: m.prediction_error,
}


# -- the roofline -------------------------------------------------------------------------------------------------------------


def _drawn(machine: Machine) -> list[Ceiling]:
    """The roofs that a problem can meet: with the most threads, and of a library's products the fastest of each dtype."""
    roofs = [c for c in ordered_ceilings(machine) if c.is_roof and (c.kind in ("bandwidth", "compute", "link") or c.is_floor)]
    most = max((c.threads for c in roofs), default=0)
    kept: dict[tuple[Any, ...], Ceiling] = {}
    for index, c in enumerate(c for c in roofs if c.threads in (0, most)):
        key = (c.probe, c.dtype, c.source) if c.probe.startswith("gemm") else (index,)
        if key not in kept or c.value > kept[key].value:
            kept[key] = c
    return list(kept.values())


def _ceilings(machine: Machine, results: Iterable[Measurement]) -> list[dict[str, Any]]:
    """on: read at each level, what limits some measurement, and the best of each dtype."""
    met = {(b.level, b.problem.get("access")) for m in results if (b := m.limiting_bracket) is not None}
    best: dict[str, float] = {}
    drawn = _drawn(machine)
    for c in drawn:
        if c.kind == "compute":
            best[c.dtype] = max(best.get(c.dtype, 0.0), c.value)
    found = []
    for c in drawn:
        on = c.value == best[c.dtype] if c.kind == "compute" else c.access in ("read", "") or (c.level, c.access) in met
        s, unit = c.summary, RATE_UNITS[c.kind]
        spread = f"modes {fmt_mode_shares(c)}" if c.bimodal else f"{s.interval_name} {fmt_interval(s.low, s.high, unit)}"
        stated = f"{spread}, n = {s.n}" if s.n > 1 else c.state
        found.append({
            "name": c.name, "label": c.label, "kind": c.kind, "level": c.level, "access": c.access, "dtype": c.dtype,
            "unit": c.unit, "rate": c.value, "modes": [mode.value for mode in c.modes], "spread": stated, "on": on,
        })  # fmt: skip
    return found


def _meets(machine: Machine, m: Measurement) -> tuple[str, str]:
    """dtype and access of the roofs that a measurement is held against."""
    access = next((str(b.problem["access"]) for b in m.brackets if b.kind == "bandwidth" and "access" in b.problem), "read")
    try:
        problem = from_dict(m.operator, m.problem)
        return compute_ceiling(machine, problem, m.threads or None, None, m.plan.get("arithmetic", ""))[0].dtype, access
    except Error:  # a callable, or a roof that was not measured
        return m.dtype, access


def _points(machine: Machine, listed: Sequence[Measurement]) -> list[dict[str, Any]]:
    """A record for each measurement that has FLOPs, bytes and a time; row: which of `listed` it is."""
    names, found = varying(listed), []
    for row, m in enumerate(listed):
        s = m.summary
        if s is None or not m.total_flops or not m.total_bytes:
            continue
        dtype, access = _meets(machine, m)
        hover = [
            f"{m.operator} {m.variant}".strip(),
            m.brief_problem(names[m.operator]),
            ", ".join(word for word in (m.dtype, m.cache_state, m.threads and counted(m.threads, "thread")) if word),
            f"intensity {fmt_number(m.flops_per_byte)} FLOP/byte",
            f"rate {fmt_si(m.flops_per_s, 'FLOP/s')}, {fmt_si(m.bytes_per_s, 'B/s')}",
            f"time {fmt_si(s.median, 's')}, {s.interval_name} {fmt_interval(s.low, s.high, 's')}, {s.n} samples",
            f"{fmt_percent(m.share_of_bracket)} of its bracket, bound by {m.bound or MISSING}",
            f"status {m.status.replace('_', ' ')}",
        ]
        found.append({
            "row": row, "operator": m.operator, "dtype": m.dtype, "roof": dtype, "access": access,
            "level": m.level or memory_level(machine.facts), "x": m.flops_per_byte, "y": m.flops_per_s,
            "flops": m.total_flops, "bytes": m.total_bytes, "link": m.link_bytes, "alone": m.alone,
            "time": s.median, "ok": m.status == "ok", "hover": hover,
        })  # fmt: skip
    return found


def _predicted(listed: Sequence[Measurement]) -> list[dict[str, Any]]:
    names, found = varying(listed), []
    for m in listed:
        if m.prediction_error is None:
            continue
        hover = [
            f"{m.operator} {m.variant}".strip(),
            m.brief_problem(names[m.operator]),
            f"predicted {fmt_si(m.prediction['time_s'], 's')}, measured {fmt_si(m.time_s, 's')}: {fmt_error(m.prediction_error)}",
            why_wrong(m) or "within the usual range",
        ]
        found.append({
            "operator": m.operator, "x": m.prediction["time_s"], "y": m.time_s, "ok": m.status == "ok", "hover": hover,
        })  # fmt: skip
    return found


# -- tables -------------------------------------------------------------------------------------------------------------------


def _strip(c: Ceiling) -> dict[str, Any]:
    """Its samples as places from 0 to 1 of their range, and that range in words; of many the quantiles."""
    s, unit = c.summary, RATE_UNITS[c.kind]
    values = list(c.samples) if len(c.samples) <= DOTS else statistics.quantiles(c.samples, n=DOTS + 1, method="inclusive")
    low, high = min(values) / 1.02, max(values) * 1.02
    return {
        "dots": [round((value - low) / (high - low), 3) for value in values],
        "modes": [round((mode.value - low) / (high - low), 3) for mode in c.modes],
        "words": f"{s.n} samples from {fmt_si(s.minimum, unit)} to {fmt_si(s.maximum, unit)}",
    }


def _rows(listed: Sequence[Measurement], table: Table) -> list[dict[str, Any]]:
    """The operators' rows with what each cell is sorted by (None: its text)."""
    keys = [SORTED.get(header) for header in table.headers]
    return [
        {
            "cells": [
                (cell, None if key is None else -1e300 if (value := key(m)) is None else value)
                for cell, key in zip(row, keys, strict=True)
            ],
            "bound": m.bound,
            "dtype": m.dtype,
            "status": m.status,
        }
        for m, row in zip(listed, table.rows, strict=True)
    ]


def _climb(listed: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Problems that ran by several variants, slowest first: how much faster each is than that."""
    timed = [m for m in listed if m.time_s is not None and m.status not in ("implausible", "failed")]
    groups = by_key(
        ((m.operator, *sorted((name, str(value)) for name, value in m.problem.items()), m.threads, m.cache_state), m) for m in timed
    )
    names, found = varying(listed), []
    for unsorted in groups.values():
        members = sorted(unsorted, key=lambda m: -(m.time_s or 0.0))
        first = members[0]
        if len({m.variant for m in members}) < 2 or first.time_s is None:
            continue
        best = max(m.flops_per_s or 0.0 for m in members) or 1.0
        steps = [
            {
                "variant": m.variant,
                "time": fmt_si(m.time_s, "s"),
                "rate": fmt_si(m.flops_per_s, "FLOP/s"),
                "faster": f"{fmt_number(first.time_s / (m.time_s or first.time_s))}×",
                "share": fmt_percent(m.share_of_bracket),
                "bound": m.bound or MISSING,
                "width": round(100 * (m.flops_per_s or 0.0) / best, 1),
                "status": m.status.replace("_", " "),
            }
            for m in members
        ]
        found.append({"title": f"{first.operator}: {first.brief_problem(names[first.operator])}, {first.cache_state}",
                      "steps": steps})  # fmt: skip
    return found


def _maps(listed: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Sweeps over two fields: for each operator, variant and dtype the two numeric fields with most values, where they cross."""
    groups = by_key(((m.operator, m.variant, m.dtype, m.cache_state), m) for m in listed if m.time_s is not None)
    found = []
    for (operator, variant, dtype, state), members in groups.items():
        fields = {name: {m.problem.get(name) for m in members} for name in members[0].problem}
        axes: dict[str, list[Any]] = {
            name: sorted(filter(is_number, values), key=float)
            for name, values in fields.items()
            if len(values) > 1 and all(map(is_number, values))
        }
        if axes.get("seq_q") and axes.get("seq_q") == axes.get("seq_kv"):
            axes = {name: values for name, values in axes.items() if name != "seq_q"}
        if axes.get("heads") and axes.get("heads") == axes.get("kv_heads"):
            axes = {name: values for name, values in axes.items() if name != "kv_heads"}
        chosen = sorted(axes, key=lambda name: -len(axes[name]))[:2]
        if len(chosen) < 2:
            continue
        down, across = sorted(chosen, key=lambda name: len(axes[name]))
        cells = {(m.problem[down], m.problem[across]): m for m in members}
        if 2 * len(cells) < len(axes[down]) * len(axes[across]) or len(cells) < 4:
            continue
        rows = [(str(y), [_map_cell(cells.get((y, x))) for x in axes[across]]) for y in axes[down]]
        title = " ".join(word for word in (operator, variant, dtype) if word)
        found.append({"title": f"{title}, {state}", "down": down, "across": across, "rows": rows,
                      "columns": [str(x) for x in axes[across]]})  # fmt: skip
    return found[:MOST_MAPS]


QUANTITIES = ("share of its roof", "time", "FLOP/s", "B/s", "predicted / measured")


def _map_cell(m: Measurement | None) -> dict[str, Any] | None:
    """What a cell shows of each quantity, and a number from 0 to 1 for its shade."""
    if m is None:
        return None
    error = m.prediction_error
    texts = (fmt_percent(m.share_of_bracket, 2), fmt_si(m.time_s, "s"), fmt_si(m.flops_per_s, "FLOP/s"),
             fmt_si(m.bytes_per_s, "B/s"), MISSING if error is None else fmt_number(1 + error))  # fmt: skip
    values = (m.share_of_bracket, m.time_s, m.flops_per_s, m.bytes_per_s, None if error is None else 1 + error)
    return {"texts": texts, "values": values, "status": m.status.replace("_", " ")}


def _advice(machine: Machine, listed: Sequence[Measurement]) -> Table:
    rows: list[Row] = []
    names = varying(listed)
    gains = []
    for m in listed:
        if m.status in ("ok", "roof_moved"):
            gains += [(item, m) for item in advise(m, machine, listed)[:ADVICE]]
    for item, m in sorted(gains, key=lambda pair: -pair[0].gain):
        what = f"{m.operator} {m.variant}".strip()
        rows.append((what, m.brief_problem(names[m.operator]), item.change, f"{'≤ ' if item.at_most else ''}{item.gain:.2f}×",
                     fmt_si(item.time_s, "s"), item.bound or MISSING, item.detail))  # fmt: skip
    return Table(headers=("operator", "problem", "change", "gain", "time then", "bound then", "why"), rows=rows,
                 wide=("problem", "change", "why"))  # fmt: skip


def _commands(machine: Machine) -> list[str]:
    """What was run, as far as the files say, and what writes this page again."""
    run, provenance = text.report_facts(machine), machine.provenance
    made = dict(provenance.get("versions", {})).get("roofline")
    lines = [f"pip install 'roofline[html]=={made}'"] if made else []
    if not run:
        return [*lines, "roofline report --html"]
    depth = {"quick": " --quick", "thorough": " --thorough"}.get(str(provenance.get("depth", "")), "")
    limit = f" --time-limit {fmt_number(run['time_limit_s'])}" if run.get("time_limit_s") else ""
    isa = f"ROOFLINE_ISA={provenance['roofline_isa']} " if provenance.get("roofline_isa") else ""
    threads = f" --threads {machine.facts['threads']}" if machine.device == "cpu" and machine.facts.get("threads") else ""
    lines.append(f"{isa}roofline report --device {machine.device}{threads}{depth}{limit} --seed {run.get('seed', 0)} --html")
    return [*lines, "roofline report --from roofline-report --html"]


def _clean(value: Any) -> Any:
    """Data for the script with characters that act on a display made visible, as in the text of the page."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, (list, tuple)) else value


def page_contents(machine: Machine, results: Results) -> dict[str, Any]:
    """Every name that the template uses."""
    listed = ordered(results)
    table = operator_table(listed, machine)
    ceilings = ceiling_table(machine)
    points = _points(machine, listed)
    data = {"ceilings": _ceilings(machine, listed), "points": points, "levels": list(LEVELS)[::-1],
            "predicted": _predicted(listed), "near": NEAR}  # fmt: skip
    rows = _rows(listed, table)
    ends = text.end_check_lines(machine)
    moved = [line for line in ends if "did not move (" not in line]
    return {
        "title": f"Roofline of {machine.name}",
        "machine": machine,
        "conditions": text.conditions(machine),
        "headline": [c.label for c in _headline(machine)],
        "data": _clean(data),
        "ceilings": ceilings,
        "strips": [_strip(c) for c in ordered_ceilings(machine)],
        "kernels": kernel_table(machine),
        "kernels_about": KERNELS,
        "series": text.series_lines(machine),
        "operators": table,
        "rows": rows,
        "bounds": sorted({row["bound"] for row in rows} - {""}),
        "dtypes": sorted({row["dtype"] for row in rows} - {""}),
        "statuses": sorted({row["status"] for row in rows}),
        "defaults": defaults_used(listed),
        "steps": steps_table(listed),
        "climb": _climb(listed),
        "maps": _maps(listed),
        "quantities": QUANTITIES,
        "prediction": text.prediction_lines(listed),
        "advice": _advice(machine, listed),
        "warnings": [*reasons(results), *sanity_lines(machine), *moved, *results.notes],
        "left_out": text.left_out_lines(machine),
        "ends": ends,
        "commands": _commands(machine),
        "rules": text.RULES,
    }


def _headline(machine: Machine) -> list[Ceiling]:
    """The slowest level's read, and the best compute roof of each dtype."""
    found = [machine.bandwidth()] if machine.levels() else []
    dtypes = dict.fromkeys(c.dtype for c in machine.roofs("compute"))
    return [*found, *(machine.compute(dtype) for dtype in dtypes)]
