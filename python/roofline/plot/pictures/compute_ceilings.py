"""Several compute ceilings over one memory ceiling, four dots of a model, and what a library reaches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Unpack

from ...machine import Ceiling, Given, Machine, machine_of
from ...model import machine_roofs, place
from ...transformer import Call, Decode, Given as Model, Phase, Prefill, TransformerConfig, calls_of, model_of
from ...units import fmt_number, fmt_percent, fmt_si
from .. import style
from ..asked import single
from ..charts import Dot
from ..figure import Look, Panels, picture
from ..models import counts_of
from ..roofs import Roof, dashes_of, machine_notes, peaks, roofs_chart

MOST = 5
# First the narrow products, then what every device has. One of each row.
PREFERRED: tuple[tuple[tuple[str, str], ...], ...] = (
    (("fp8_e4m3", "tensor"), ("int8", "tensor"), ("int8", "core")),
    (("fp16", "tensor"), ("bf16", "tensor"), ("bf16", "core"), ("fp16", "core")),
    (("tf32", "tensor"),),
    (("fp32", "core"),),
    (("fp64", "core"),),
)


def _ceilings(machine: Machine, kinds: Sequence[tuple[str, str]] | None, met: Iterable[float]) -> list[tuple[str, Ceiling]]:
    """Those of `kinds`; or those that are met (by their rates), and others in the order of PREFERRED, up to MOST."""
    found = peaks(machine)
    if kinds is not None:
        wanted = [machine.compute(dtype, unit=unit) for dtype, unit in kinds]  # raises Error for a kind that the machine lacks
        return [(f"{c.dtype} {'tensor' if c.unit == 'tensor' else ''}".strip(), c) for c in sorted(wanted, key=lambda c: -c.value)]
    have = {(name.partition("→")[0], c.unit): (text, c) for text, c in found[::-1] for name in text.split()[0].split("/")}
    rates = set(met)
    first = [each for each in found if each[1].value in rates]
    chosen = [next((have[kind] for kind in row if kind in have), None) for row in PREFERRED]
    order = [*first, *(each for each in chosen if each is not None), *found]
    return sorted(list({text: (text, c) for text, c in order}.values())[:MOST], key=lambda each: -each[1].value)


def _four(config: TransformerConfig, batch: int, seq_kv: int, seq_q: int) -> dict[str, list[Call]]:
    """The dots' calls by name: decode attention, the FFN of one token, of a batch, and of a prompt."""

    def ffn(phase: Phase) -> list[Call]:
        return [call for call in calls_of(config, phase) if call.group == "ffn"]

    return {
        "attention, decode": [call for call in calls_of(config, Decode(seq_kv=seq_kv)) if call.cached],
        "FFN, decode": ffn(Decode(seq_kv=seq_kv)),
        f"FFN, decode, batch {batch}": ffn(Decode(batch=batch, seq_kv=seq_kv)),
        f"FFN, prefill of {seq_q}": ffn(Prefill(seq_q=seq_q)),
    }


def library_gemms(machine: Machine) -> list[Ceiling]:
    """Matrix products of a library as measured, the best of each dtype."""
    found: dict[str, Ceiling] = {}
    for c in machine.roofs("compute"):
        if c.source == "measured" and c.probe == "gemm.square" and (c.dtype not in found or c.value > found[c.dtype].value):
            found[c.dtype] = c
    return list(found.values())


@picture(
    "five ceilings over one memory: where a token, a batch and a prompt lie, and what a library was measured at", group="model",
    example='plot.compute_ceilings(a100, preset("7B"))',
)  # fmt: skip
def compute_ceilings(
    machine: Given, model: Model, *, measured: Given | None = None, kinds: Sequence[tuple[str, str]] | None = None,
    batch: int | str = 16, seq_kv: int | str = 2048, seq_q: int | str = 2048, **look: Unpack[Look],
) -> Panels:  # fmt: skip
    """Five compute ceilings over one memory ceiling, with four dots: decode attention, and the FFN of a token, a batch, a prompt.

    Args:
        machine: one.
        model: a model.
        measured: another machine whose library products are drawn, instead of those of `machine`.
        kinds: other ceilings, as (dtype, unit).
        batch: of the third dot.
        seq_kv: keys of a sequence in decode.
        seq_q: tokens of the prompt.

    element of the records as of `workloads`, and "library_gemm": what a library's product was measured at.
    """
    machine, config = machine_of(machine), model_of(model)
    source = machine if measured is None else machine_of(measured)
    one, keys, prompt = single("batch", batch), single("seq_kv", seq_kv), single("seq_q", seq_q)
    placed = []
    for name, calls in _four(config, one, keys, prompt).items():
        main = max(calls, key=lambda call: call.count * call.problem.total_flops())
        placed.append((name, place(counts_of(calls), machine_roofs(machine, main.problem))))
    memory = machine.bandwidth()
    roofs, ridges = [Roof(label=memory.label, rate=memory.value, slope=True, dashes=dashes_of(memory))], []
    for name, c in _ceilings(machine, kinds, (each.roofs.compute_flops_per_s for _, each in placed)):
        roofs.append(Roof(label=f"{name} {c.stated}", rate=c.value, slope=False, dashes=dashes_of(c), start=c.value / memory.value,
                          colour=style.dtype_colour(c.dtype)))  # fmt: skip
        ridges.append((machine.ridge(c.dtype, c.accumulator or None, c.unit), c.value))
    gemms = library_gemms(source)
    shown = {c.dtype for _, c in peaks(machine)}
    for c in gemms:
        if c.dtype in shown:
            share = fmt_percent(c.value / machine.compute(c.dtype).value, 2)
            label = f"library GEMM, measured: {c.dtype} {fmt_si(c.value, 'FLOP/s')}, {share}"
            roofs.append(Roof(label=label, rate=c.value, slope=False, dashes=style.DASHES[2], width=1.0,
                              start=c.value / memory.value, element="library_gemm"))  # fmt: skip
    dots = []
    for index, (name, each) in enumerate(placed):
        colour, marker, _ = style.series(index)
        record = {"bound": each.bound, "flops": each.counts.flops, "bytes": each.counts.bytes, "share_of_peak": each.share_of_peak,
                  "roof": each.roofs.labels["compute"]}  # fmt: skip
        dots.append(Dot(name=name, x=each.flops_per_byte, y=each.attainable_flops_per_s, marker=marker, colour=colour,
                        text=f"{fmt_number(each.flops_per_byte)} FLOP/byte", record=record))  # fmt: skip
    notes = machine_notes([machine] if source is machine else [machine, source])
    notes.append(f"dots: {config.name}, all layers, what the roofs allow; its products meet {dots[-1].record['roof']}")
    notes += [] if gemms else [f"no product of a library was measured on {source.name}"]
    yield roofs_chart(f"Compute ceilings of {machine.name}, and {config.name}", roofs, dots, ridges=ridges, notes=notes)
