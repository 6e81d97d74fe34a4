"""Arithmetic intensity by operation."""

from __future__ import annotations

from typing import Any, Unpack

from ...errors import Error
from ...machine import Given, machine_of
from ...operators import count
from ...transformer import Call, TransformerConfig, calls_of
from ...units import fmt_number
from .. import style
from ..asked import Work, named, phases_of, work_of
from ..bars import Mark, Row, Rows
from ..figure import Panels, Steps, picture
from ..models import TYPES, counts_of, names_of
from ..roofs import INTENSITY, machine_notes, ridge_of

RIDGE = "ridge"


@picture("the intensity of each operation, by phase, and how far from its ridge point", group="model",
         example="plot.operations(deepseek, machine=gb200)")  # fmt: skip
def operations(work: Work, *, machine: Given | None = None, **look: Unpack[Steps]) -> Panels:
    """A row for each kernel of a model, with a marker for each phase; or a row for each problem.

    Args:
        work: a model, a problem, problems by name, or words.
        machine: also the ridge point of each row's arithmetic, as a tick.

    element of the records "row": flops_per_byte (of each phase) and ridge_flops_per_byte.
    """
    model, machine, phases = work_of(work), None if machine is None else machine_of(machine), phases_of(dict(look), TYPES)
    if isinstance(model, TransformerConfig):
        names = names_of(phases)
        calls: dict[str, dict[str, list[Call]]] = {}
        for name, each_phase in zip(names, phases, strict=True):
            for call in calls_of(model, each_phase):
                calls.setdefault(call.name, {}).setdefault(name, []).append(call)
        found = {kernel: {n: (counts_of(each), each[0].problem) for n, each in by.items()} for kernel, by in calls.items()}
        title, notes = f"Intensity by operation: {model.name}", [f"{model.name}, one layer's kernels and those of the whole model"]
    else:
        names = ["problem"]
        found = {name: {"problem": (count(problem), problem)} for name, problem in named(model).items()}
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
            ridges.add(ridge_of(problem, machine))
        if not marks:
            absent.append(kernel)
            continue
        ticks = sorted(ridge for ridge in ridges if ridge is not None)
        values = {mark.key: fmt_number(mark.x) for mark in marks}
        record["ridge_flops_per_byte"] = ticks[0] if ticks else None
        marks += [Mark(x=tick, marker="|", colour="ink", key=RIDGE) for tick in ticks]
        rows.append(Row(label=kernel, marks=marks, text=" / ".join(values.get(name, "–") for name in names), record=record))
    if not rows:
        raise Error("none of these computes anything, so none has an intensity")
    notes = [*machine_notes([machine]), *notes]
    notes += [f"values: {' / '.join(names)}"] if len(names) > 1 else []
    notes += [f"computes nothing: {', '.join(absent)}"] if absent else []
    legend = {**({name: name for name in names} if len(names) > 1 else {}), RIDGE: "its ridge point"}
    yield Rows(title=title, x_label=INTENSITY, rows=rows, log=True, names=legend, notes=notes)
