"""Taking a census: the calls of each phase, priced one by one on a machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import Error
from ..machine import Given, Machine, in_order, machine_of
from ..operators import GroupedMatmul
from ..prediction import predict_problem
from ..results import Measurement
from ..transformer import Given as Model, Phase, TransformerConfig, calls_of, model_of, phase_of, ranks_on
from ..transformer.predicting import unread_note
from ..transformer.pricing import linked
from ..units import fmt_number
from ..words import arguments_checked
from .entries import Entry
from .listing import Census
from .matching import filled


def _notes(config: TransformerConfig, machine: Machine | None, entries: Sequence[Entry], launch_s: float | None) -> Iterable[str]:
    if config.unread:
        yield unread_note(config)
    experts = [e.problem for e in entries if isinstance(e.problem, GroupedMatmul)]
    if experts:
        least, most = (fmt_number(f(float(p.touched()) for p in experts)) for f in (min, max))
        read = least if least == most else f"{least} to {most}"
        own = config.experts // experts[0].ranks
        yield f"experts: {read} of {own} are read, as expected where tokens choose evenly; batch and M are averages"
    if machine is not None and launch_s is None and not any(c.kind == "latency" and not c.level for c in machine.ceilings):
        yield f"{machine.name}: no launch latency is known, so launches take no time"


@arguments_checked
def census_of(
    config: Model,
    phases: Phase | str | Sequence[Phase | str] = ("prefill", "decode"),
    machine: Given | None = None,
    *,
    tp: int | None = None,
    ep: int = 1,
    lm_head: bool = True,
    fused: bool = True,
    launch_s: float | None = None,
    link_bytes_per_s: float | None = None,
    results: Iterable[Measurement] | None = None,
) -> Census:
    """Every kernel of each phase: its products, FLOPs, bytes and intensity, and on a machine its bound and expected time.

    `census_of("Llama-3-8B", ["prefill", "decode"], "H100")`.

    Args:
        config: an object or words, as `roofline.predict` takes them; so are phases, machine, tp, ep, lm_head, fused, launch_s
            and link_bytes_per_s. Whether the model fits in memory is not asked.
        results: measurements (a `Results`) of the machine's kind of device that stand beside the kernels of their shape.

    Raises:
        Error: for what the operators or ranks refuse, for ceilings that are missing, and for results of another kind of device.
    """
    with in_order("census_of takes the machine third", config, phases):
        config = model_of(config)
        asked = [phase_of(phase) for phase in ([phases] if isinstance(phases, (Phase, str)) else phases)]
    machine = None if machine is None else machine_of(machine)
    tp = (tp or 1) if machine is None else ranks_on(machine, tp, ep)
    if not asked:
        raise Error("a census needs at least one phase")
    on = None if machine is None else linked(machine, link_bytes_per_s)
    entries = []
    for phase in asked:
        for call in calls_of(config, phase, tp=tp, ep=ep, lm_head=lm_head, fused=fused):
            plan = {"variant": call.variant} if call.variant else None
            placed = None if on is None else predict_problem(on, call.problem, plan=plan, launch_s=launch_s)
            entries.append(Entry(phase=phase, call=call, placed=placed))
    notes = [*_notes(config, machine, entries, launch_s), *(note for e in entries if e.placed for note in e.placed.notes)]
    if results is not None:
        found, said = filled(entries, results, machine)
        entries = [Entry(phase=e.phase, call=e.call, placed=e.placed, measured=found.get(index)) for index, e in enumerate(entries)]
        notes += said
    return Census(
        config=config, machine="" if machine is None else machine.name, tp=tp, ep=ep, entries=tuple(entries), fused=fused,
        notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip
