"""A roofline with named workloads."""

from __future__ import annotations

from typing import Unpack

from ...errors import Error
from ...machine import Given, machine_of
from ...model import machine_roofs, place
from ...transformer import TransformerConfig, predict_model
from ...units import fmt_number
from .. import style
from ..asked import Work, modelled, named, phases_of, work_of
from ..charts import Dot
from ..figure import Panels, StepsAssumptions, picture
from ..models import HOLLOW, LADDER, names_of, prediction_notes
from ..roofs import machine_notes, met_roofs, roofs_chart, stated


@picture("where whole phases lie under the roofs", group="model", example="plot.workloads(h100, llama)")
def workloads(machine: Given, work: Work, **how: Unpack[StepsAssumptions]) -> Panels:
    """Phases of a model at their expected FLOP/s, or problems at what their roofs allow. What does not fit in memory is hollow.

    Args:
        machine: one.
        work: a model, a problem, problems by name, or words.

    element of the records: "memory_roof" and "compute_roof" (the ends of a line), "ridge" and "dot".
    """
    machine, rest, given = machine_of(machine), dict(how), work_of(work)
    phases = phases_of(rest, LADDER)
    dots, notes = [], machine_notes([machine])
    if isinstance(given, TransformerConfig):
        config, options = modelled(given, rest)
        found = [predict_model(machine, config, each, must_fit=False, **options) for each in phases]
        roofs = [machine_roofs(machine, part.call.problem) for e in found for part in e.parts if part.product_flops]
        for index, (name, e) in enumerate(zip(names_of(phases), found, strict=True)):
            colour, marker, _ = style.series(index)
            fits = e.memory.fits is not False
            record = {"phase": str(e.phase), "time_s": e.time_s, "bound": e.bound, "flops": e.flops, "bytes": e.bytes, "fits": fits}
            dots.append(Dot(name=name, x=e.flops_per_byte, y=e.flops / e.time_s, marker=marker, colour=colour, hollow=not fits,
                            text=f"{fmt_number(e.flops_per_byte)} FLOP/byte", record=record))  # fmt: skip
        notes.append(f"{config.name}: FLOPs of a whole phase over its expected time, kernel by kernel; so a dot is below its roof")
        notes += [HOLLOW] if any(dot.hollow for dot in dots) else []
        notes += prediction_notes(found)
        title = f"{config.name} on the roofline of {machine.name}"
    else:
        every = {name: place(problem, machine) for name, problem in named(given).items()}
        roofs = [each.roofs for each in every.values()]
        for index, (name, each) in enumerate(every.items()):
            if not each.counts.flops:
                raise Error(f"{name}: computes nothing, so it has no place on a roofline")
            colour, marker, _ = style.series(index)
            record = {"time_s": each.time_s, "bound": each.bound, "flops": each.counts.flops, "bytes": each.counts.bytes}
            dots.append(Dot(name=name, x=each.flops_per_byte, y=each.attainable_flops_per_s, marker=marker, colour=colour,
                            text=f"{fmt_number(each.flops_per_byte)} FLOP/byte", record=record))  # fmt: skip
        notes.append("dots: what the roofs allow")
        title = f"Workloads on the roofline of {machine.name}"
    lines, ridges = met_roofs(stated(machine), roofs)
    yield roofs_chart(title, lines, dots, ridges=ridges, notes=notes)
