"""The kernels of a phase on the roofs they meet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Unpack

from ...census import Census, Entry, census_of
from ...errors import Error
from ...machine import Given, machine_of
from ...transformer import Given as Model, Phase
from ...units import fmt_percent, fmt_si
from ..asked import Measured, modelled, phases_of, results_of
from ..charts import Chart, Dot
from ..figure import Panels, StepsAssumptions, picture
from ..models import TAKEN, TYPES, short
from ..panels import Point
from ..roofs import limits_of, met_roofs, roofs_chart, stated

GROUP_MARKERS: Mapping[str, str] = {
    "attention": "o", "ffn": "s", "norm": "^", "head": "D", "embedding": "v", "communication": "P", "loss": "X", "optimizer": "h",
}  # fmt: skip
BOUND_COLOURS: Mapping[str, str] = {"compute": "red", "launch": "purple", "link": "green"}  # memory: blue


def _dot(census: Census, entry: Entry, x: float, allowed: float) -> Dot:
    measured = entry.measured_s
    share = census.share(entry)
    words = fmt_percent(share, 2) + (f", measured {fmt_percent(entry.share_of_roof, 2)} of roof" if measured else "")
    record = {
        "phase": str(entry.phase), "group": entry.call.group, "count": entry.count, "dtype": entry.dtype, "bound": entry.bound,
        "attainable_flops_per_s": allowed, "ridge_flops_per_byte": entry.ridge_flops_per_byte, "time_s": entry.time_s,
        "share": share, "measured_s": measured,
    }  # fmt: skip
    return Dot(name=entry.name, x=x, y=entry.flops / measured if measured else allowed, text=words, record=record,
               marker=GROUP_MARKERS.get(entry.call.group, "*"), colour=BOUND_COLOURS.get(entry.bound or "", "blue"))  # fmt: skip


def _chart(census: Census, phase: Phase, dashes: Any, limits: tuple[Point, Point] | None = None) -> Chart:
    entries = [e for e in census.of(phase) if e.placed is not None]
    dots, absent = [], []
    for e in entries:
        x, y = e.flops_per_byte, e.attainable_flops_per_s
        if not x or not y or not math.isfinite(x):
            absent.append(f"{e.name} {fmt_percent(census.share(e), 2)}")
        else:
            dots.append(_dot(census, e, x, y))
    if not dots:
        raise Error(f"{census.title(phase)}: no kernel computes and moves anything")
    roofs, ridges = met_roofs(dashes, [e.placed.roofs for e in entries if e.placed is not None and e.flops])
    notes = [f"{census.config.name}, {phase}, on {census.machine}; shares of the expected {fmt_si(census.time_s(phase), 's')}"]
    notes.append("markers: ● attention, ■ FFN, ▲ norm, ◆ head; blue: bound by memory, orange: by compute, purple: by launches")
    if any(e.measured_s for e in entries):
        notes.append("measured kernels lie where they were measured, all others where their roofs allow")
    notes += [f"no place, since they compute or move nothing: {', '.join(absent)}"] if absent else []
    return roofs_chart(f"Kernels of {census.config.name}, {short(phase)}", roofs, dots, ridges=ridges, named=0,
                       notes=[*notes, *census.notes], limits=limits)  # fmt: skip


@picture(
    "where each kernel lies, and its share of the time", group="model", example='plot.kernel_placement(h100, llama, phase="decode")'
)
def kernel_placement(
    machine: Given | Census, model: Model | None = None, *, results: Measured | None = None,
    **how: Unpack[StepsAssumptions],
) -> Panels:  # fmt: skip
    """The kernels of a phase on the roofs they meet, with their shares of its time; a panel a phase,
    all with the same axes.

    Numbers stand at the dots, names in the legend. Kernels that were measured lie where they were measured.

    Args:
        machine: one, or a census that was taken on one.
        model: a model; a census has its own.
        results: measurements, a results.jsonl or its folder, to stand beside the kernels of their shape.

    element of the records as of `workloads`; a dot has phase, group, count, bound, attainable_flops_per_s, time_s, share,
    measured_s.
    """
    rest = dict(how)
    asked = phases_of(rest, ())
    if isinstance(machine, Census):
        census = machine
        if model is not None:
            raise Error("kernel_placement: a census has its model and phases; phase= chooses among them")
        try:
            dashes = stated(machine_of(census.machine or "-"))
        except Error:
            dashes = "-"  # a machine of the caller's own
    else:
        if model is None:
            raise Error("kernel_placement needs a model beside its machine, such as 'Llama-3-8B'")
        config, options = modelled(model, rest)
        taken = {name: value for name, value in options.items() if name in TAKEN}
        on = machine_of(machine)
        seen = results_of(results)
        census, dashes = census_of(config, asked or TYPES, on, results=seen or None, **taken), stated(on)
    if not census.machine:
        raise Error("this census was taken without a machine: its kernels have no roofs")
    for each in asked or census.phases:
        if each not in census.phases:
            raise Error(f"the census has no phase {each}; it has {'; '.join(map(str, census.phases))}")
    shown = asked or census.phases
    limits = limits_of([_chart(census, each, dashes) for each in shown])
    yield from (_chart(census, each, dashes, limits) for each in shown)
