"""Rows of bars: intensity of operations, steps of attention, and where a phase's time goes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import Error
from ..machine import Given, Machine, machine_of
from ..model import machine_roofs
from ..operators import Operator, count
from ..transformer import Call, Decode, ModelPrediction, Phase, Prefill, TransformerConfig, calls_of
from ..units import fmt_number, fmt_percent, fmt_si
from . import style
from .asked import Phases, phases_of, work_of
from .bars import Bar, Bars, Mark, Row
from .over import attention_of, counts_of, estimate_notes, named, unfused, unmasked
from .placing import names_of
from .ridges import machine_notes
from .show import quantity_of

TYPES: tuple[Phase, ...] = (Prefill(seq_q=1024), Decode(batch=1))
STEP_QUANTITIES = ("flops", "bytes", "flops_per_byte")
STEP_LABELS: Mapping[str, tuple[str, str]] = {
    "flops": ("FLOPs", "FLOP"), "bytes": ("Bytes moved", "B"), "flops_per_byte": ("Arithmetic intensity [FLOP/byte]", ""),
}  # fmt: skip
LEAST_SHARE = 0.005  # parts of less of the time are joined
RIDGE = "ridge"


# -- intensity by operation ---------------------------------------------------------------------------------------------------


def _ridge(problem: Operator, machine: Machine | None) -> float | None:
    if machine is None:
        return None
    ridge = machine_roofs(machine, problem).ridge_flops_per_byte
    return ridge if math.isfinite(ridge) else None


def operations_bars(
    model: Any,
    machine: Given | None = None,
    *,
    phase: Phases = TYPES,
) -> Bars:
    """A row for each kernel of a model, with a marker for each phase; or for each problem. A tick is the row's ridge point."""
    model, machine, phases = work_of(model), None if machine is None else machine_of(machine), phases_of(phase)
    if isinstance(model, TransformerConfig):
        names = names_of(phases)
        calls: dict[str, dict[str, list[Call]]] = {}
        for name, each_phase in zip(names, phases, strict=True):
            for call in calls_of(model, each_phase):
                calls.setdefault(call.name, {}).setdefault(name, []).append(call)
        found = {kernel: {n: (counts_of(each), each[0].problem) for n, each in by.items()} for kernel, by in calls.items()}
        title, notes = f"Intensity by operation: {model.name}", [f"{model.name}, one layer's kernels and those of the whole model"]
    else:
        names, problems = ["problem"], named(model)
        found = {name: {"problem": (count(problem), problem)} for name, problem in problems.items()}
        title, notes = "Intensity by operation", []
    rows, absent = [], []
    looks = {name: style.series(index) for index, name in enumerate(names)}
    for kernel, by in found.items():
        marks, record, ridges = [], dict[str, Any](), set()
        for name, (counts, problem) in by.items():
            if not counts.flops:
                continue
            colour, marker, _ = looks[name]
            marks.append(Mark(x=counts.flops_per_byte, marker=marker, colour=colour, key=name))
            record[f"flops_per_byte, {name}" if len(names) > 1 else "flops_per_byte"] = counts.flops_per_byte
            ridges.add(_ridge(problem, machine))
        if not marks:
            absent.append(kernel)
            continue
        ticks = sorted(ridge for ridge in ridges if ridge is not None)
        values = {mark.key: fmt_number(mark.x) for mark in marks}
        text = " / ".join(values.get(name, "–") for name in names)
        record["ridge_flops_per_byte"] = ticks[0] if ticks else None
        marks += [Mark(x=tick, marker="|", colour=style.INK, key=RIDGE) for tick in ticks]
        rows.append(Row(label=kernel, marks=tuple(marks), text=text, record=record))
    if not rows:
        raise Error("none of these computes anything, so none has an intensity")
    notes = [*([] if machine is None else machine_notes([machine])), *notes]
    notes += [f"values: {' / '.join(names)}"] if len(names) > 1 else []
    notes += [f"computes nothing: {', '.join(absent)}"] if absent else []
    legend = {**({name: name for name in names} if len(names) > 1 else {}), RIDGE: "its ridge point"}
    return Bars(title=title, x_label="Arithmetic intensity [FLOP/byte]", rows=tuple(rows), log=True, names=legend,
                notes=tuple(notes))  # fmt: skip


# -- steps of attention -------------------------------------------------------------------------------------------------------


def steps_bars(
    model: Any, machine: Given | None = None, *, quantity: str = "flops_per_byte", seq_len: int = 4096
) -> Bars:
    """Attention kernel by kernel, unfused and fused: its FLOPs, bytes or intensity."""
    quantity_of(quantity, STEP_QUANTITIES)
    model, machine = work_of(model), None if machine is None else machine_of(machine)
    problem = unmasked(attention_of(model, seq_len) if isinstance(model, TransformerConfig) else model)
    steps = unfused(problem)
    parts = {name: count(step) for name, step in steps.items()}
    parts["unfused, all"] = count(*steps.values())
    parts["fused"] = count(problem)
    label, unit = STEP_LABELS[quantity]
    rows = []
    for index, (name, counts) in enumerate(parts.items()):
        value = getattr(counts, quantity)
        record: dict[str, Any] = {"flops": counts.flops, "bytes": counts.bytes, "flops_per_byte": counts.flops_per_byte}
        own = steps.get(name, problem)
        ridge = _ridge(own, machine) if quantity == "flops_per_byte" else None
        marks = (Mark(x=ridge, marker="|", colour=style.INK, key=RIDGE),) if ridge else ()
        record["ridge_flops_per_byte"] = ridge
        whole = index >= len(steps)
        colour, hatch = (
            style.ROOF_FILLS["product" if name != "softmax" else "exp"] if not whole else (style.ROOF_FILLS["overhead"][0], "")
        )
        rows.append(
            Row(label=name, bars=(Bar(end=float(value), colour=colour, hatch=hatch),), marks=marks, record=record,
                text=fmt_si(value, unit) if unit else fmt_number(value))
        )  # fmt: skip
    fields = problem.to_dict()
    what = ", ".join(
        f"{key} {fields[key]}" for key in ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim", "dtype") if key in fields
    )
    source = f"{model.name}: " if isinstance(model, TransformerConfig) else ""
    notes = [] if machine is None or quantity != "flops_per_byte" else [*machine_notes([machine])]
    notes.append(f"{source}{problem.name.replace('_', ' ')}, one layer, no mask: {what}")
    notes.append("unfused: a kernel each, scores in attention's dtype pass memory four times; fused: q, k, v and the result once")
    titles = {
        "flops": "FLOPs of attention's steps",
        "bytes": "Bytes of attention's steps",
        "flops_per_byte": "Intensity of attention's steps",
    }
    return Bars(title=titles[quantity], x_label=label, rows=tuple(rows), log=not unit, unit=unit, notes=tuple(notes), width=5.2,
                names={RIDGE: "ridge point"})  # fmt: skip


# -- where the time goes ------------------------------------------------------------------------------------------------------


def profile_bars(found: ModelPrediction) -> Bars:
    """A phase's time: all of it by roof, then kernel by kernel, as shares."""
    total = found.time_s

    def row(label: str, profile: Mapping[str, float], seconds: float, **more: Any) -> Row:
        bars, start = [], 0.0
        for roof, each in profile.items():
            colour, hatch = style.ROOF_FILLS.get(roof, ("#FFFFFF", "xx"))
            bars.append(Bar(start=start, end=start + 100 * each / total, colour=colour, hatch=hatch, key=roof))
            start += 100 * each / total
        record = {"time_s": seconds, "share": seconds / total, **{f"{roof}_s": profile.get(roof, 0.0) for roof in found.profile}}
        return Row(
            label=label, bars=tuple(bars), text=f"{fmt_percent(seconds / total)}  {fmt_si(seconds, 's')}", record={**record, **more}
        )

    by_name: dict[str, dict[str, float]] = {}
    costs: dict[str, list[int]] = {}
    for part in found.parts:
        own = by_name.setdefault(part.call.name, {})
        for roof, seconds in part.profile.items():
            own[roof] = own.get(roof, 0.0) + seconds
        cost = costs.setdefault(part.call.name, [0, 0])
        cost[0] += part.flops
        cost[1] += part.bytes
    if found.overhead_s:
        by_name["overhead"] = {"overhead": found.overhead_s}
    order = sorted(by_name, key=lambda name: -math.fsum(by_name[name].values()))
    large = [name for name in order if math.fsum(by_name[name].values()) >= LEAST_SHARE * total]
    small = [name for name in order if name not in large]
    rows = [row("all", found.profile, total, flops=found.flops, bytes=found.bytes, bound=found.bound)]
    for name in large:
        flops, moved = costs.get(name, [0, 0])
        own = by_name[name]
        rows.append(row(name, own, math.fsum(own.values()), flops=flops, bytes=moved, bound=max(own, key=lambda roof: own[roof])))
    if small:
        rest: dict[str, float] = {}
        for name in small:
            for roof, seconds in by_name[name].items():
                rest[roof] = rest.get(roof, 0.0) + seconds
        rows.append(row(f"{len(small)} others" if len(small) > 1 else small[0], rest, math.fsum(rest.values())))
    words = {"product": "matrix products", "exp": "exponentials", "other": "other arithmetic", "overlap": "not overlapped"}
    notes = [
        f"{found.config.name}, {found.phase}, on {found.machine}: {fmt_si(total, 's', 4)}, {fmt_si(found.tokens_per_s, 'tok/s')}"
    ]
    notes.append(f"ceilings: {'; '.join(found.ceilings)}")
    notes += [f"others: {', '.join(small)}"] if len(small) > 1 else []
    notes += estimate_notes([found])
    return Bars(
        title=f"Where the time goes: {found.config.name}, {names_of([found.phase])[0]}",
        x_label="Share of the time [%]", rows=tuple(rows),
        names={roof: words.get(roof, roof) for roof in style.ROOF_FILLS}, notes=tuple(notes), limits=(0.0, 100.0), width=5.2,
    )  # fmt: skip
