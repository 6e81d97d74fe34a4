"""What would it take: each change with the gain that the model expects of it, as a number."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..crossovers import Crossing, crossing
from ..errors import Error
from ..machine import Given, Machine, machine_of, machines_of
from ..model import machine_roofs
from ..prediction import Advice, AdviceTable
from ..units import fmt_si
from .calls import calls_of
from .config import CACHES, TransformerConfig
from .many import uniform
from .phases import Decode, Mixed, Phase, Training
from .predicting import options_of, predict_model
from .pricing import Options
from .quantization import Quantization
from .records import ModelPrediction

DRAFTED = 4  # tokens of a speculative step
MANY = 64  # sequences, and twice as many, whose FLOPs and bytes tell how both grow
ALL_TOUCHED = 40  # times experts over experts_per_token: with so many tokens e^-40 of the experts are left out


def many_sequences(config: TransformerConfig, phase: Phase, ep: int) -> int:
    """A batch from which on FLOPs and bytes of a phase are linear: all experts are touched. Ranks of `ep` share it evenly."""
    tokens = ALL_TOUCHED * config.experts / config.experts_per_token if config.experts else 0
    each = max(s.seq_q for step in phase.steps() for s in step.segments)
    return math.ceil(max(MANY, tokens / each) / ep) * ep


def _crossings(config: TransformerConfig, phase: Phase, machine: Machine, options: Options) -> list[Crossing]:
    """The crossing of a phase; of several decode steps at once, all with the same kernels (`uniform`), that of each."""
    first = many_sequences(config, phase, options.ep)
    few, many = (
        calls_of(config, phase.replace(batch=batch), tp=options.tp, ep=options.ep, lm_head=options.lm_head, fused=options.fused)
        for batch in (first, 2 * first)
    )
    products, more = ([c.count * c.problem.work({"variant": c.variant}).get("product", 0) for c in calls] for calls in (few, many))
    bytes_few, bytes_many = (sum(call.count * call.problem.compulsory_bytes() for call in calls) for calls in (few, many))
    flops_each, bytes_each = (sum(more) - sum(products)) / first, (bytes_many - bytes_few) / first
    largest = np.argmax(np.stack(np.broadcast_arrays(*(np.asarray(n, dtype=np.float64) for n in products))), axis=0)
    ridges = np.zeros(len(few))
    for index in np.unique(largest):
        roofs = machine_roofs(machine, few[index].problem)
        ridges[index] = roofs.derated(
            compute=options.utilisation["compute"], bandwidth=options.utilisation["bandwidth"]
        ).ridge_flops_per_byte
    numbers = (flops_each, bytes_each, bytes_few - first * bytes_each, ridges[largest])
    columns = (np.broadcast_to(np.asarray(n, dtype=np.float64), largest.shape).reshape(-1).tolist() for n in numbers)
    return [
        crossing(flops_each=flops, bytes_each=moved, bytes_once=once, ridge=ridge)
        for flops, moved, once, ridge in zip(*columns, strict=True)
    ]


def ridge_batch(found: ModelPrediction, machine: Machine) -> Crossing:
    """The batch at which the phase of `found` as a whole (FLOPs of products over all bytes) reaches the ridge point of `machine`.

    FLOPs and bytes are linear in the batch (but for an embedding whose tokens share rows), so two batches give both. Experts are
    taken as all touched, as they are in any batch that is near a ridge. The ridge is that of the product with most FLOPs, with the
    prediction's utilisation.
    """
    return _crossings(found.config, found.phase, machine, found.options)[0]


def ridge_batches(config: TransformerConfig, seqs: Sequence[int], machine: Machine, **how: Any) -> tuple[Crossing, ...]:
    """`ridge_batch` of a decode step with each of these lengths. how: as for `predict_steps`."""
    options = options_of(machine, how)
    found: dict[int, Crossing] = {}
    for _, steps in uniform(config, Decode.many(batch=1, seq_kv=seqs)):
        found |= zip(np.asarray(steps.seq_kv).tolist(), _crossings(config, steps, machine, options), strict=True)
    return tuple(found[seq] for seq in seqs)


def narrower(config: TransformerConfig, machine: Machine) -> Iterator[tuple[str, TransformerConfig]]:
    """Weights and caches of fewer bits than the model's: (the change, the model with it)."""
    c = config
    bits = c.quantization.bits if c.quantization else 32.0 if c.weights == "fp32" else 16.0
    multiplies = any(ceiling.kind == "compute" and ceiling.dtype == "fp8_e4m3" for ceiling in machine.ceilings)
    if bits > 8.1:
        both = Quantization(weights="fp8_e4m3", activations="fp8_e4m3" if multiplies else "")
        yield f"weights{' and their products' if multiplies else ''} in fp8", c.replace(quantization=both)
    if bits > 5:
        yield "weights in int4, groups of 128", c.replace(weights="int4")
    if c.kv in CACHES[:3]:
        yield "KV cache in fp8", c.replace(kv="fp8_e4m3")


def faster(machine: Machine, factor: float, kind: str, level: str = "") -> Machine:
    """With the ceilings of one kind (and one level) so many times as high."""
    ceilings = (
        dataclasses.replace(c, samples=tuple(factor * x for x in c.samples)) if c.kind == kind and level in ("", c.level) else c
        for c in machine.ceilings
    )
    return dataclasses.replace(machine, ceilings=tuple(ceilings))


def advise(found: ModelPrediction, machine: Given, others: Given | Iterable[Given] = ()) -> AdviceTable:
    """Changes to `found`, a prediction on `machine`, by their expected gain, largest first: in tokens/s of all sequences.

    `advise(predict("H100", "Llama-3-8B", "decode", batch=8), "H100", "H200,GB200")`: machines are objects or words.

    Fusing (where it is not), narrower weights and cache, speculation, twice the batch, twice the TP or EP degree, each of `others`;
    and what the roofs that take the time are worth: twice the bandwidth, the arithmetic or the link, no launches, no overhead. What
    cannot be (dimensions that ranks do not divide, a ceiling that is missing) is left out.
    """
    machine, others = machine_of(machine), machines_of(others)
    c, phase = found.config, found.phase
    given = {field.name: getattr(found.options, field.name) for field in dataclasses.fields(found.options)}
    advice: list[Advice] = []

    def add(change: str, detail: Callable[[ModelPrediction], str] | None = None, at_most: bool = False, **changed: Any) -> None:
        arguments = {"config": c, "phase": phase, "machine": machine, "must_fit": False, **given, **changed}
        try:
            new = predict_model(arguments.pop("machine"), arguments.pop("config"), arguments.pop("phase"), **arguments)
        except Error:
            return
        fits = f"; {new.memory.text}" if new.memory.fits is False and found.memory.fits else ""
        words = f"{detail(new) if detail else ''}{fits}".removeprefix("; ")
        gain = new.tokens_per_s / found.tokens_per_s
        advice.append(Advice(change=change, gain=gain, time_s=new.time_s, bound=new.bound, at_most=at_most, detail=words))

    if not found.options.fused:
        add("fuse attention and products", fused=True)
    if not isinstance(phase, Training):
        for change, config in narrower(c, machine):
            add(change, config=config)
    if not isinstance(phase, Mixed):
        add("twice the batch", _per_user, phase=phase.replace(batch=2 * phase.batch))
    axis = "ep" if found.options.ep > 1 else "tp"
    add(f"twice the {axis.upper()} degree", _per_user, **{axis: 2 * given[axis]})
    if isinstance(phase, Decode) and phase.seq_q == 1 and phase.seq_kv >= DRAFTED:

        def pays(new: ModelPrediction) -> str:
            return f"pays from {new.time_s / found.time_s:.2f} accepted, draft not counted"

        add(f"speculative decoding, {DRAFTED} tokens accepted", pays, at_most=True, phase=phase.replace(seq_q=DRAFTED))
    spent = found.profile
    add("twice the bandwidth", machine=faster(machine, 2, "bandwidth"))
    add("twice the arithmetic", machine=faster(machine, 2, "compute"))
    if "link" in spent:
        rate = found.options.link_bytes_per_s
        add("twice the link", machine=faster(machine, 2, "link"), link_bytes_per_s=rate and 2 * rate)
    if "link latency" in spent:
        add("no latency of collectives", link_latency_s=0.0)
    if "launch" in spent:
        add("no launches between kernels (a graph, one kernel)", launch_s=0.0)
    if "overhead" in spent:
        add("no overhead", overhead_s=0.0)
    for other in others:
        add(other.name, machine=other)
    return AdviceTable(sorted(advice, key=lambda item: -item.gain))


def _per_user(new: ModelPrediction) -> str:
    return f"{fmt_si(new.tokens_per_s_per_user, 'tok/s')} per sequence"
