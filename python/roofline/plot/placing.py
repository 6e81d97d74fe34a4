"""Workloads, kernels and machines as dots and lines of a roofline: what is drawn, from costs, estimates and a census."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..census import Census, Entry
from ..dtypes import dtype_name
from ..errors import Error
from ..machine import Ceiling, Given, Machine, machine_of
from ..model import Roofs, machine_roofs, place
from ..operators import Counts
from ..transformer import Call, Decode, Mixed, Phase, Prefill, TransformerConfig, calls_of, model_of, predict_model
from ..units import fmt_number, fmt_percent, fmt_si
from . import style
from .asked import Phases, modelled, phases_of, work_of
from .over import counts_of, estimate_notes, named
from .ridges import Machines, machine_notes, peaks, several
from .roofs import Dot, Line, RoofDots

PHASES: tuple[Phase, ...] = (Prefill(seq_q=1024), Decode(batch=1), Decode(batch=32), Decode(batch=128))
MOST_CEILINGS = 5
# The roofs of "one plot, several ceilings": first the narrow products, then what every device has. One of each row.
PREFERRED: tuple[tuple[tuple[str, str], ...], ...] = (
    (("fp8_e4m3", "tensor"), ("int8", "tensor"), ("int8", "core")),
    (("fp16", "tensor"), ("bf16", "tensor"), ("bf16", "core"), ("fp16", "core")),
    (("tf32", "tensor"),),
    (("fp32", "core"),),
    (("fp64", "core"),),
)
COMMON = ("bf16", "fp16", "fp32", "fp64")  # of several machines: the first that all have
GROUP_MARKERS: Mapping[str, str] = {
    "attention": "o", "ffn": "s", "norm": "^", "head": "D", "embedding": "v", "communication": "P", "loss": "X", "optimizer": "h",
}  # fmt: skip
BOUND_COLOURS: Mapping[str, str] = {"compute": style.VERMILLION, "launch": "#A0467A", "link": "#007A5A"}  # memory: blue
DATASHEET = (0, (5, 3))


def short(phase: Phase) -> str:
    """A phase as a dot is called: "decode, batch 32", "prefill of 1024"."""
    batch = f", batch {phase.batch}" if phase.batch > 1 or not isinstance(phase, Prefill) else ""
    if isinstance(phase, Decode):
        drafted = f", {phase.seq_q} tokens" if phase.seq_q > 1 else ""
        return f"{phase.name}{batch}{drafted}"
    length = getattr(phase, "seq_q", None)
    beside = f" beside {phase.prefill_seq_q}" if isinstance(phase, Mixed) else ""
    return f"{phase.name}{f' of {length}' if length else ''}{batch}{beside}"


def names_of(phases: Sequence[Phase]) -> list[str]:
    """Short names, and whole ones where short ones are equal. Raises Error where a phase is given twice."""
    if len(set(phases)) < len(phases) or not phases:
        raise Error("give at least one phase, and each once")
    brief = [short(phase) for phase in phases]
    return [name if brief.count(name) == 1 else str(phase) for name, phase in zip(brief, phases, strict=True)]


def _dashes(machine: Machine) -> Any:
    return "-" if any(c.source == "measured" for c in machine.ceilings) else DATASHEET


def _lines(dashes: Any, roofs: Iterable[Roofs]) -> tuple[tuple[Line, ...], tuple[tuple[float, float], ...]]:
    """The roofs that some problems meet, each once, and the ridge points they make."""
    found = list(roofs)
    memory = {r.labels["memory"]: r.bandwidth_bytes_per_s for r in found}
    compute = {r.labels["compute"]: r.compute_flops_per_s for r in found if "compute" in r.labels}
    fastest, slowest = max(memory.values()), min(memory.values())
    slopes = [
        Line(label=label, rate=rate, slope=True, dashes=dashes, width=1.4 if rate == fastest else 0.9, colour=style.INK)
        for label, rate in memory.items()
    ]
    flats = [
        Line(label=label, rate=rate, slope=False, dashes=dashes, start=rate / fastest, 
             colour=style.dtype_colour(label.split("→")[0].split()[0]))
        for label, rate in sorted(joined(compute).items(), key=lambda item: -item[1])
    ]  # fmt: skip
    ridges = dict.fromkeys(
        (r.ridge_flops_per_byte, r.compute_flops_per_s)
        for r in found
        if "compute" in r.labels and r.bandwidth_bytes_per_s == slowest
    )
    return (*slopes, *flats), tuple(ridges)


def joined(rates: Mapping[str, float]) -> dict[str, float]:
    """Labels with their rates, those of one rate joined."""
    by_rate: dict[float, list[str]] = {}
    for label, rate in rates.items():
        by_rate.setdefault(rate, []).append(label)
    return {" = ".join(labels): rate for rate, labels in by_rate.items()}


# -- workloads ----------------------------------------------------------------------------------------------------------------


def workloads_roofs(
    machine: Given, work: Any, *, phase: Phases = PHASES, **how: Any
) -> RoofDots:
    """Phases of a model (at their expected rate) or problems (at what their roofs allow) on one machine's roofs."""
    machine, work, phases = machine_of(machine), work_of(work), phases_of(phase)
    dots, notes = [], list(machine_notes([machine]))
    if isinstance(work, TransformerConfig):
        work, how = modelled(work, how)
        found = [predict_model(machine, work, each, **{**how, "must_fit": False}) for each in phases]
        roofs = [machine_roofs(machine, part.call.problem) for e in found for part in e.parts if part.product_flops]
        for index, (name, e) in enumerate(zip(names_of(phases), found, strict=True)):
            colour, marker, _ = style.series(index)
            fits = e.memory.fits is not False
            record = {"phase": str(e.phase), "time_s": e.time_s, "bound": e.bound, "flops": e.flops, "bytes": e.bytes, "fits": fits}
            dots.append(Dot(name=name, x=e.flops_per_byte, y=e.flops / e.time_s, marker=marker, colour=colour, hollow=not fits,
                            text=f"{fmt_number(e.flops_per_byte)} FLOP/byte", record=record))  # fmt: skip
        notes.append(f"{work.name}: FLOPs of a whole phase over its expected time, kernel by kernel; so a dot is below its roof")
        notes += ["hollow: does not fit in memory"] if any(dot.hollow for dot in dots) else []
        notes += estimate_notes(found)
        title = f"{work.name} on the roofline of {machine.name}"
    else:
        every = named(work)
        placed = {name: place(problem, machine) for name, problem in every.items()}
        roofs = [each.roofs for each in placed.values()]
        for index, (name, each) in enumerate(placed.items()):
            if not each.counts.flops:
                raise Error(f"{name}: computes nothing, so it has no place on a roofline")
            colour, marker, _ = style.series(index)
            record = {"time_s": each.time_s, "bound": each.bound, "flops": each.counts.flops, "bytes": each.counts.bytes}
            dots.append(Dot(name=name, x=each.flops_per_byte, y=each.attainable_flops_per_s, marker=marker, colour=colour,
                            text=f"{fmt_number(each.flops_per_byte)} FLOP/byte", record=record))  # fmt: skip
        notes.append("dots: what the roofs allow")
        title = f"Workloads on the roofline of {machine.name}"
    lines, ridges = _lines(_dashes(machine), roofs)
    return RoofDots(title=title, lines=lines, dots=tuple(dots), ridges=ridges, notes=tuple(notes))


# -- several ceilings, four dots, and what a library reaches ------------------------------------------------------------------


def _ceilings(machine: Machine, kinds: Sequence[tuple[str, str]] | None, met: Iterable[float]) -> list[tuple[str, Ceiling]]:
    """Those of `kinds`; or those that are met (by their rates), and others in the order of PREFERRED, up to MOST_CEILINGS."""
    found = peaks(machine)
    if kinds is not None:
        # Raises Error for a kind that the machine has not.
        wanted = [machine.compute(dtype, unit=unit) for dtype, unit in kinds]
        return [(f"{c.dtype} {'tensor' if c.unit == 'tensor' else ''}".strip(), c) for c in sorted(wanted, key=lambda c: -c.value)]
    have = {(name.partition("→")[0], c.unit): (text, c) for text, c in found[::-1] for name in text.split()[0].split("/")}
    rates = set(met)
    wanted_first = [each for each in found if each[1].value in rates]
    chosen = [next((have[kind] for kind in row if kind in have), None) for row in PREFERRED]
    order = [*wanted_first, *(each for each in chosen if each is not None), *found]
    listed = list({text: (text, c) for text, c in order}.values())[:MOST_CEILINGS]
    return sorted(listed, key=lambda each: -each[1].value)


def _four(config: TransformerConfig, batch: int, seq_kv: int, seq_q: int) -> dict[str, list[Call]]:
    """The dots' calls by name: decode attention, the FFN of one token, of a batch, and of a prompt."""

    def ffn(phase: Phase) -> list[Call]:
        return [call for call in calls_of(config, phase) if call.group == "ffn"]

    attended = [call for call in calls_of(config, Decode(seq_kv=seq_kv)) if call.cached]
    return {
        "attention, decode": attended,
        "FFN, decode": ffn(Decode(seq_kv=seq_kv)),
        f"FFN, decode, batch {batch}": ffn(Decode(batch=batch, seq_kv=seq_kv)),
        f"FFN, prefill of {seq_q}": ffn(Prefill(seq_q=seq_q)),
    }


def library_gemms(machine: Machine) -> list[Ceiling]:
    """Matrix products of a library as measured, the best of each dtype."""
    found: dict[str, Ceiling] = {}
    for c in machine.roofs("compute"):
        if (
            c.source == "measured"
            and c.probe == "gemm.square"
            and c.value > (found[c.dtype].value if c.dtype in found else 0)
        ):
            found[c.dtype] = c
    return list(found.values())


def ceilings_roofs(
    machine: Given,
    config: Any,
    *,
    measured: Given | None = None,
    kinds: Sequence[tuple[str, str]] | None = None,
    batch: int = 16,
    seq_kv: int = 2048,
    seq_q: int = 2048,
) -> RoofDots:
    """Several compute roofs over one memory roof, four named dots of a model, and what a library's product was measured at."""
    machine, config = machine_of(machine), model_of(config)
    measured = None if measured is None else machine_of(measured)
    placed_dots = []
    for name, calls in _four(config, batch, seq_kv, seq_q).items():
        main = max(calls, key=lambda call: call.count * call.problem.total_flops())
        placed_dots.append((name, place(counts_of(calls), machine_roofs(machine, main.problem))))
    memory = machine.bandwidth()
    dashes = _dashes(machine)
    lines = [Line(label=memory.label, rate=memory.value, slope=True, dashes=dashes)]
    ridges = []
    for name, c in _ceilings(machine, kinds, (each.roofs.compute_flops_per_s for _, each in placed_dots)):
        label = f"{name} {c.stated}"
        lines.append(
            Line(
                label=label,
                rate=c.value,
                slope=False,
                dashes=dashes,
                start=c.value / memory.value,
                colour=style.dtype_colour(c.dtype),
            )
        )
        ridges.append((machine.ridge(c.dtype, c.accumulator or None, c.unit), c.value))
    source = measured or machine
    gemms = library_gemms(source)
    shown = {c.dtype for _, c in peaks(machine)}
    for c in gemms:
        if c.dtype in shown:
            share = fmt_percent(c.value / machine.compute(c.dtype).value, 2)
            label = f"library GEMM, measured: {c.dtype} {fmt_si(c.value, 'FLOP/s')}, {share}"
            lines.append(Line(label=label, rate=c.value, slope=False, dashes=(0, (1, 1)), width=1.8, start=c.value / memory.value,
                              colour=style.INK, kind="library_gemm"))  # fmt: skip
    dots = []
    for index, (name, placed) in enumerate(placed_dots):
        colour, marker, _ = style.series(index)
        record = {"bound": placed.bound, "flops": placed.counts.flops, "bytes": placed.counts.bytes,
                  "share_of_peak": placed.share_of_peak, "roof": placed.roofs.labels["compute"]}  # fmt: skip
        dots.append(Dot(name=name, x=placed.flops_per_byte, y=placed.attainable_flops_per_s, marker=marker, colour=colour,
                        text=f"{fmt_number(placed.flops_per_byte)} FLOP/byte", record=record))  # fmt: skip
    roof = dots[-1].record["roof"]
    notes = [*machine_notes([machine] if source is machine else [machine, source])]
    notes.append(f"dots: {config.name}, all layers, what the roofs allow; its products meet {roof}")
    notes += [] if gemms else [f"no product of a library was measured on {source.name}"]
    return RoofDots(title=f"Compute ceilings of {machine.name}, and {config.name}", lines=tuple(lines), dots=tuple(dots),
                    ridges=tuple(ridges), notes=tuple(notes))  # fmt: skip


# -- several machines ---------------------------------------------------------------------------------------------------------


def _common(machines: Sequence[Machine], dtype: str | None) -> str:
    if dtype is not None:
        return dtype
    have = [{c.dtype for c in m.roofs("compute")} for m in machines]
    for name in COMMON:
        if all(name in each for each in have):
            return name
    raise Error(f"{', '.join(m.name for m in machines)} have none of {', '.join(COMMON)} in common: give one dtype that all have")


def machines_roofs(
    machines: Machines,
    work: Any = None,
    *,
    dtype: str | None = None,
    phase: Phases = PHASES,
) -> RoofDots:
    """One roof a machine, and workloads as verticals with a dot where each machine's roof is."""
    given, work, phases = several(machines), work_of(work), phases_of(phase)
    dtype = None if dtype is None else dtype_name(dtype)
    if not given:
        raise Error("give at least one machine")
    kind = _common(given, dtype)
    counts: dict[str, Counts] = {}
    if isinstance(work, TransformerConfig):
        counts = {name: counts_of(calls_of(work, each)) for name, each in zip(names_of(phases), phases, strict=True)}
    elif work is not None:
        counts = {name: counts_of([Call(name=name, group="", problem=problem)]) for name, problem in named(work).items()}
    lines, ridges, dots, notes = [], [], [], list(machine_notes(given))
    for index, machine in enumerate(given):
        colour, marker, dashes = style.series(index)
        compute, memory = machine.compute(kind), machine.bandwidth()
        ridge = machine.ridge(kind)
        doubted = " (unverified)" if compute.unverified or memory.unverified else ""
        lines.append(Line(label=f"{machine.name} {fmt_si(memory.value, 'B/s')}", rate=memory.value, slope=True, colour=colour,
                          dashes=dashes, end=ridge, width=1.0))  # fmt: skip
        lines.append(Line(label=f"{machine.name}: {kind}{' tensor' if compute.unit == 'tensor' else ''} "
                                f"{fmt_si(compute.value, 'FLOP/s')}{doubted}", rate=compute.value, slope=False, colour=colour,
                          dashes=dashes, start=ridge))  # fmt: skip
        ridges.append((ridge, compute.value))
        for name, each in counts.items():
            placed = place(each, machine, kind)
            record = {"machine": machine.name, "workload": name, "bound": placed.bound, "flops": each.flops, "bytes": each.bytes}
            dots.append(Dot(name=f"{name} on {machine.name}", x=placed.flops_per_byte, y=placed.attainable_flops_per_s,
                            marker=marker, colour=colour, labelled=False, record=record))  # fmt: skip
    guides = tuple((each.flops_per_byte, name) for name, each in counts.items())
    if isinstance(work, TransformerConfig):
        notes.append(f"verticals: phases of {work.name} as a whole, with the {kind} roof for all of their arithmetic")
    return RoofDots(
        title=f"{len(given)} machines, {kind}" if len(given) > 1 else f"{given[0].name}, {kind}", lines=tuple(lines),
        dots=tuple(dots), ridges=tuple(ridges), guides=guides, notes=tuple(notes),
    )  # fmt: skip


# -- kernels of a census ------------------------------------------------------------------------------------------------------


def _phase(census: Census, phase: Phase | None) -> Phase:
    if not census.machine:
        raise Error("this census was taken without a machine: its kernels have no roofs")
    if phase is None:
        return census.phases[0]
    if phase not in census.phases:
        raise Error(f"the census has no phase {phase}; it has {'; '.join(map(str, census.phases))}")
    return phase


def _kernel_dot(census: Census, entry: Entry, x: float, allowed: float) -> Dot:
    measured = entry.measured_s
    y = entry.flops / measured if measured else allowed
    share = census.share(entry)
    words = f"{fmt_percent(share, 2)}" + (f", measured {fmt_percent(entry.share_of_roof, 2)} of roof" if measured else "")
    record = {
        "phase": str(entry.phase), "group": entry.call.group, "count": entry.count, "dtype": entry.dtype, "bound": entry.bound,
        "attainable_flops_per_s": allowed, "ridge_flops_per_byte": entry.ridge_flops_per_byte, "time_s": entry.time_s,
        "share": share, "measured_s": measured,
    }  # fmt: skip
    return Dot(name=entry.name, x=x, y=y, marker=GROUP_MARKERS.get(entry.call.group, "*"), text=words,
               colour=BOUND_COLOURS.get(entry.bound or "", style.BLUE), record=record)  # fmt: skip


def placement_roofs(census: Census, phase: Phase | None = None) -> RoofDots:
    """The kernels of one phase (None: the first) where their roofs, or measurements, put them."""
    asked = _phase(census, phase)
    entries = [e for e in census.of(asked) if e.placed is not None]
    dots, absent = [], []
    for e in entries:
        x, y = e.flops_per_byte, e.attainable_flops_per_s
        if not x or not y or not math.isfinite(x):
            absent.append(f"{e.name} {fmt_percent(census.share(e), 2)}")
        else:
            dots.append(_kernel_dot(census, e, x, y))
    if not dots:
        raise Error(f"{census.title(asked)}: no kernel computes and moves anything")
    lines, ridges = _census_lines(entries)
    notes = [f"{census.config.name}, {asked}, on {census.machine}; shares of the expected {fmt_si(census.time_s(asked), 's')}"]
    notes.append("markers: ● attention, ■ FFN, ▲ norm, ◆ head; blue: bound by memory, red: by compute, purple: by launches")
    notes += [f"no place, since they compute or move nothing: {', '.join(absent)}"] if absent else []
    if any(e.measured_s for e in entries):
        notes.append("measured kernels lie where they were measured, all others where their roofs allow")
    notes += [f"note: {note}" for note in census.notes]
    return RoofDots(title=f"Kernels of {census.config.name}, {short(asked)}", lines=lines, dots=tuple(dots), ridges=ridges,
                    notes=tuple(notes), named=0)  # fmt: skip


def _census_lines(entries: Sequence[Entry]) -> tuple[tuple[Line, ...], tuple[tuple[float, float], ...]]:
    roofs = [e.placed.roofs for e in entries if e.placed is not None and e.flops]
    return _lines("-", roofs)
