"""Attention kernel by kernel: what it computes, moves and takes, as a model and as measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from ...errors import Error
from ...machine import Given, machine_of
from ...model import machine_roofs, time_s as allowed_s
from ...operators import Attention, Counts, Operator, count
from ...results import Measurement
from ...tensor_spec import size_bytes
from ...transformer import TransformerConfig
from ...units import fmt_number, fmt_si
from ..asked import Measured, Size, Work, results_of, single, wanted, work_of
from ..bars import Bar, Mark, Row, Rows
from ..figure import Look, Panels, picture
from ..models import attention_of, unfused, unmasked
from ..roofs import machine_notes

# quantity: (title, axis, unit); the last three need a machine or measurements.
QUANTITIES: Mapping[str, tuple[str, str, str]] = {
    "flops_per_byte": ("Intensity of attention's steps", "Arithmetic intensity [FLOP/byte]", ""),
    "flops": ("FLOPs of attention's steps", "FLOPs", "FLOP"),
    "bytes": ("Bytes of attention's steps", "Bytes moved", "B"),
    "time_s": ("Time of attention's steps", "Time", "s"),
    "flops_per_s": ("Performance of attention's steps", "Performance", "FLOP/s"),
    "bytes_per_s": ("Bandwidth of attention's steps", "Bandwidth", "B/s"),
}
COUNTED = ("flops", "bytes", "flops_per_byte")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel, or all: what it counts, the seconds that its roofs allow and those that were measured, and its ridge point."""

    counts: Counts
    allowed_s: float | None = None
    measured_s: float | None = None
    ridge: float | None = None
    kind: str = "overhead"

    def value(self, quantity: str, seconds: float | None) -> float | None:
        if quantity in COUNTED:
            return float(getattr(self.counts, quantity))
        if seconds is None:
            return None
        return seconds if quantity == "time_s" else getattr(self.counts, quantity.removesuffix("_per_s")) / seconds


def _counts(problem: Operator, name: str, kernel: Operator) -> Counts:
    """Counts of one kernel; in causal attention only of the scores that are kept."""
    found = count(kernel)
    if not isinstance(problem, Attention) or not problem.causal:
        return found
    scores = problem.batch * problem.heads * problem.seq_q * problem.seq_kv
    passes = 2 if name == "softmax" else 1
    skipped = passes * (size_bytes((scores,), kernel.compute()[0]) - size_bytes((problem.pairs(),), kernel.compute()[0]))
    return Counts(flops=round(found.flops * problem.pairs() / scores), bytes=found.bytes - skipped)


def _measured(results: list[Measurement], problem: Operator | None) -> tuple[Measurement | None, Measurement | None]:
    """The attention of several steps that was timed, and the fastest fused one of its problem."""
    fields = None if problem is None else problem.to_dict()
    own = [m for m in results if m.operator == "attention" and m.time_s and fields in (None, dict(m.problem))]
    steps = next((m for m in own if len(m.steps) > 1), None)
    if steps is None:
        return None, None
    fused = [m for m in own if dict(m.problem) == dict(steps.problem) and not m.steps and m.cache_state == steps.cache_state]
    return steps, min(fused, key=lambda m: m.time_s or 0.0, default=None)


@picture("FLOPs, bytes, intensity, time and rates of attention kernel by kernel: what fusion saves", group="model",
         example="plot.attention_steps(llama, machine=h100)")  # fmt: skip
def attention_steps(
    work: Work | None = None, *, machine: Given | None = None, quantity: str | None = None, seq_len: Size = 4096,
    results: Measured | None = None, **look: Unpack[Look],
) -> Panels:  # fmt: skip
    """Attention step by step, each product and the softmax a kernel of its own, beside all of them and the fused kernel.

    Bars are measured where there are measurements, else what the model says; a tick is what the roofs of the machine allow.

    Args:
        work: a model, or an attention problem (default: the first one of `results` whose steps were timed).
        machine: one, for ridge points, and for the time that its roofs allow.
        quantity: flops_per_byte, flops, bytes; with a machine or measurements also time_s, flops_per_s, bytes_per_s (default: all).
        seq_len: tokens, for a model.
        results: measurements of attention with its steps (the variant naive), a results.jsonl or its folder.

    element of the records "row": flops, bytes, flops_per_byte, ridge_flops_per_byte, expected_s, measured_s.
    """
    found, on = results_of(results), None if machine is None else machine_of(machine)
    given: Any = None if work is None else work_of(work)
    if isinstance(given, TransformerConfig):
        problem: Operator = unmasked(attention_of(given, single("seq_len", seq_len)))
        seen, fused = _measured(found, problem)
    else:
        seen, fused = _measured(found, given)
        if seen is None and results is not None:
            raise Error("no measurement there has the steps of this attention: measure attention with variant='naive'")
        if given is None and seen is None:
            raise Error("attention_steps needs a model, an attention problem, or measurements of attention with its steps")
        problem = Attention(**seen.problem) if seen is not None else unmasked(given)
    steps: dict[str, Step] = {}
    for name, kernel in unfused(problem).items():
        counts = _counts(problem, name, kernel)
        roofs = None if on is None else machine_roofs(on, kernel)
        steps[name] = Step(
            counts=counts, kind="exp" if name == "softmax" else "product",
            ridge=None if roofs is None else roofs.ridge_flops_per_byte,
            allowed_s=None if roofs is None else float(allowed_s(counts.flops, counts.bytes, roofs)),
            measured_s=statistics.median(seen.steps[name]) if seen is not None and name in seen.steps else None,
        )  # fmt: skip
    every, whole, roofs = list(steps.values()), count(problem), None if on is None else machine_roofs(on, problem)
    steps["unfused, all"] = Step(
        counts=sum((s.counts for s in every), Counts()), measured_s=seen.time_s if seen is not None else None,
        allowed_s=None if on is None else sum(s.allowed_s or 0.0 for s in every),
    )  # fmt: skip
    steps["fused"] = Step(counts=whole, allowed_s=None if roofs is None else float(allowed_s(whole.flops, whole.bytes, roofs)),
                          measured_s=fused.time_s if fused is not None else None,
                          ridge=None if roofs is None else roofs.ridge_flops_per_byte)  # fmt: skip
    timed = on is not None or seen is not None
    fields = problem.to_dict()
    what = ", ".join(
        f"{k} {fields[k]}" for k in ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim", "dtype") if k in fields
    )
    mask = "causal" if fields.get("causal") else "no mask"
    notes = [*machine_notes([on]), f"{problem.name.replace('_', ' ')}, one layer, {mask}: {what}"]
    if seen:
        beside = fused.variant if fused else "no fused one"
        notes.append(f"bars: measured, {seen.variant} and {beside}; ticks: what the roofs allow")
    notes.append("unfused: a kernel each, scores in attention's dtype pass memory four times; fused: q, k, v and the result once")
    for each in wanted("quantity", quantity, tuple(QUANTITIES) if timed else ("flops_per_byte", "flops", "bytes")):
        yield _rows(each, steps, notes)


def _rows(quantity: str, steps: Mapping[str, Step], notes: list[str]) -> Rows:
    title, axis, unit = QUANTITIES[quantity]
    rows = []
    for name, step in steps.items():
        seen, allowed = step.value(quantity, step.measured_s), step.value(quantity, step.allowed_s)
        value = seen if seen is not None else allowed
        mark = step.ridge if quantity == "flops_per_byte" else allowed if seen is not None and quantity not in COUNTED else None
        counts = step.counts
        record = {"flops": counts.flops, "bytes": counts.bytes, "flops_per_byte": counts.flops_per_byte,
                  "ridge_flops_per_byte": step.ridge, "expected_s": step.allowed_s, "measured_s": step.measured_s}  # fmt: skip
        text = "–" if value is None else fmt_si(value, unit) if unit else fmt_number(value)
        rows.append(Row(label=name, bars=[Bar(end=value, fill=step.kind)] if value else [], record=record, text=text,
                        marks=[Mark(x=mark, marker="|", colour="ink", key="tick")] if mark else []))  # fmt: skip
    tick = "ridge point" if quantity == "flops_per_byte" else "roofs allow"
    return Rows(title=title, x_label=axis, rows=rows, log=not unit, unit=unit, notes=notes, names={"tick": tick})
