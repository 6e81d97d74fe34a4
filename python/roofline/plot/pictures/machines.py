"""Several machines' rooflines in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ...dtypes import dtype_name
from ...errors import Error
from ...machine import Machine
from ...model import place
from ...operators import Counts, count
from ...transformer import TransformerConfig, calls_of
from ...units import fmt_si
from .. import style
from ..asked import Work, named, phases_of, work_of
from ..charts import Dot, Guide
from ..figure import Panels, Steps, picture
from ..models import LADDER, counts_of, names_of
from ..roofs import Machines, Roof, dashes_of, machine_notes, roofs_chart, several

COMMON = ("bf16", "fp16", "fp32", "fp64")  # the first that all have


def _common(machines: Sequence[Machine], dtype: str | None) -> str:
    if dtype is not None:
        return dtype_name(dtype)
    have = [{c.dtype for c in m.roofs("compute")} for m in machines]
    for name in COMMON:
        if all(name in each for each in have):
            return name
    raise Error(f"{', '.join(m.name for m in machines)} have none of {', '.join(COMMON)} in common: give one dtype that all have")


@picture("what another machine would change", group="model", example="plot.machines([a100, h100, gb200], llama)")
def machines(machines: Machines, work: Work | None = None, *, dtype: str | None = None, **look: Unpack[Steps]) -> Panels:
    """One roof a machine (solid where it was measured), and workloads as verticals with a dot on each roof.

    Args:
        machines: one or several.
        work: a model, a problem, problems by name, or words.
        dtype: of the arithmetic (the first that all have of bf16, fp16, fp32, fp64).

    element of the records as of `workloads`; "guide": a workload's intensity.
    """
    given, work, phases = several(machines, 1), None if work is None else work_of(work), phases_of(dict(look), LADDER)
    kind = _common(given, dtype)
    counts: dict[str, Counts] = {}
    if isinstance(work, TransformerConfig):
        counts = {name: counts_of(calls_of(work, each)) for name, each in zip(names_of(phases), phases, strict=True)}
    elif work is not None:
        counts = {name: count(problem) for name, problem in named(work).items()}
    roofs, ridges, dots, notes = [], [], [], list(machine_notes(given))
    for index, machine in enumerate(given):
        colour, marker, _ = style.series(index)
        compute, memory, ridge = machine.compute(kind), machine.bandwidth(), machine.ridge(kind)
        doubted = " (unverified)" if compute.unverified or memory.unverified else ""
        unit, dashes = " tensor" if compute.unit == "tensor" else "", dashes_of(compute, memory)
        roofs.append(Roof(label=f"{machine.name} {fmt_si(memory.value, 'B/s')}", rate=memory.value, slope=True, colour=colour,
                          dashes=dashes, end=ridge, width=1.0))  # fmt: skip
        roofs.append(Roof(label=f"{machine.name}: {kind}{unit} {fmt_si(compute.value, 'FLOP/s')}{doubted}", rate=compute.value,
                          slope=False, colour=colour, dashes=dashes, start=ridge))  # fmt: skip
        ridges.append((ridge, compute.value))
        for name, each in counts.items():
            placed = place(each, machine, kind)
            record = {"machine": machine.name, "workload": name, "bound": placed.bound, "flops": each.flops, "bytes": each.bytes}
            dots.append(Dot(name=f"{name} on {machine.name}", x=placed.flops_per_byte, y=placed.attainable_flops_per_s,
                            marker=marker, colour=colour, labelled=False, record=record))  # fmt: skip
    if isinstance(work, TransformerConfig):
        notes.append(f"verticals: phases of {work.name} as a whole, with the {kind} roof for all of their arithmetic")
    title = f"{len(given)} machines, {kind}" if len(given) > 1 else f"{given[0].name}, {kind}"
    guides = [Guide(x=each.flops_per_byte, name=name) for name, each in counts.items()]
    yield roofs_chart(title, roofs, dots, ridges=ridges, guides=guides, notes=notes)
