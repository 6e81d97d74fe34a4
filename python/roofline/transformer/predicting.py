"""The expected time of a phase: its calls, priced one by one on a machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from .._repr import values_of
from ..dtypes import dtype
from ..errors import Error, require_type, shown
from ..machine import Machine
from ..operators import GroupedMatmul
from ..prediction import utilisation_of
from ..units import SECONDS, SHARES, fmt_number, fmt_si, within
from ..words import hint, require_one_of
from .calls import calls_of
from .config import TransformerConfig
from .memory import Memory, memory_of
from .phases import Decode, Phase, Training
from .pricing import COUNTINGS, FULL, Options, Part, linked, price
from .quantization import Quantization
from .records import ModelPrediction, Note

FUSED = "Fused: q, k and v in one product, gate and up in one, residual and norm, attention with its scores on the chip."
APART = "Not fused: a product each for q, k, v, gate and up, and scores of attention written to memory and read back."


# What well-made software reaches where nothing was measured: library GEMMs 70 to 80 % of the peak, streaming kernels 80 to 90 %
# of the memory's, collectives less of a link; a launch in a CUDA graph, and a collective of a few bytes on one node.
REALISTIC_SHARES = {"compute": 0.7, "bandwidth": 0.85, "link": 0.8}
REALISTIC_LAUNCH_S, REALISTIC_COLLECTIVE_S = 2e-6, 10e-6
ONE_BOARD = 8  # devices that a link joins where nothing else is known: HGX and OAM boards have so many, racks such as NVL72 more


def realistic(machine: Machine, how: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Options with usual values in the place of missing ones, and these values in plain English; "" where it is nothing.

    Measured ceilings are reached already: they stay. Where the machine timed kernels, these are the usual values.
    """
    changed, said = dict(how), []
    counted = how.get("counting", FULL) == FULL
    if all(c.source == "measured" for c in machine.ceilings):
        kernels = counted and bool(machine.kernels)
        return {**changed, "kernels": kernels}, "this package's kernels, as timed on this machine" if kernels else ""
    if how.get("utilisation") is None:
        changed["utilisation"] = REALISTIC_SHARES
        said.append(", ".join(f"{100 * share:.0f} % of {name}" for name, share in REALISTIC_SHARES.items()))
    if counted and how.get("launch_s") is None and not any(c.kind == "latency" and not c.level for c in machine.ceilings):
        changed["launch_s"] = REALISTIC_LAUNCH_S
        said.append(f"{fmt_si(REALISTIC_LAUNCH_S, 's')} a launch")
    if not how.get("link_latency_s") and ranks_on(machine, how.get("tp"), how.get("ep", 1)) * how.get("ep", 1) > 1:
        changed["link_latency_s"] = REALISTIC_COLLECTIVE_S
        said.append(f"{fmt_si(REALISTIC_COLLECTIVE_S, 's')} a collective")
    return changed, ", ".join(said)


def _check(options: Options) -> None:
    for name in ("lm_head", "fused", "kernels"):
        if not isinstance(getattr(options, name), bool):
            raise Error(f"{name} must be True or False, got {shown(getattr(options, name))}")
    require_one_of("counting", options.counting, COUNTINGS)
    for name in ("overhead_s", "launch_s", "link_latency_s"):
        value = getattr(options, name)
        if name != "launch_s" or value is not None:
            within(name, "seconds", value, SECONDS)
    within("memory_share", "a share", options.memory_share, SHARES)
    utilisation_of(options.utilisation)


def _stored(narrow: Quantization | None) -> str:
    """How quantized weights count, in parentheses; "" for a model without any."""
    if narrow is None:
        return ""
    scales = " with their scales" if narrow.bits > float(dtype(narrow.weights).bits) else ""
    return f" ({narrow.weights} of {narrow.covers.replace('_', ' ')}, {narrow.bits:g} bits each{scales})"


def _counted(config: TransformerConfig, phase: Phase, options: Options) -> tuple[str, ...]:
    head = "lm_head" if options.lm_head else "no lm_head"
    weights = f"weights{_stored(config.quantization)}"
    if options.counting != FULL:
        return (
            f"Counted: {weights} of all products ({head}) and the KV cache, once a step each, and the products' FLOPs.",
            "Not counted: activations, norms and all else that is no product, embedding rows, launches.",
        )
    kept = "" if isinstance(phase, Training) else ", new keys and values written to the cache"
    return (
        f"Counted: every product, attention, norm, rotation and activation, embedding rows, {head}{kept}.",
        f"Each reads its {weights}, cache and activations once, and writes its result once.",
        "Not counted: biases, sampling, conversions to narrower activations, and what runs between the calls.",
        FUSED if options.fused else APART,
    )


def unread_note(config: TransformerConfig) -> str:
    """What a config.json states that nothing here reads."""
    return f"{config.name}: nothing here reads these keys of its config.json, and none of them counts: {', '.join(config.unread)}"


def notes_on(config: TransformerConfig, phase: Phase, machine: Machine, options: Options, parts: Iterable[Part]) -> Iterator[Note]:
    """What the time of these parts assumes. phase: of several at once the one with most sequences and keys."""
    c = config
    if c.unread:
        yield Note(kind="config", text=unread_note(c))
    known = options.launch_s is not None or any(x.kind == "latency" and not x.level for x in machine.ceilings)
    if options.counting == FULL and not known:
        text = "no launch latency is known, so launches take no time at best"
        yield Note(kind="launch", text=text, machine=machine.name)
    if c.max_seq and phase.longest > c.max_seq:
        yield Note(kind="length", text=f"{phase.longest} keys are more than the {c.max_seq} that {c.name} was made for")
    if isinstance(phase, Decode) and phase.seq_q > 1:
        kept = f"{fmt_number(phase.tokens_per_sequence)} of {phase.seq_q} tokens are kept"
        best = "" if phase.accepted else ", the best case"
        yield Note(kind="speculation", text=f"speculative decoding: {kept}{best}; the draft's own cost is not in it")
    experts = [part.call.problem for part in parts if isinstance(part.call.problem, GroupedMatmul)]
    if experts:
        read = max(float(np.max(problem.touched())) for problem in experts)
        own, sequences = c.experts // options.ep, phase.batch // options.ep
        text = f"experts: {fmt_number(read)} of {own} are read per layer and step, as expected where tokens choose evenly"
        yield Note(kind="experts", text=text)
        if options.ep > 1:
            text = (
                f"ep {options.ep}: every rank has {own} experts, {sequences} sequences and all other weights, and equally many "
                "tokens reach each, which real routers do not grant"
            )
            yield Note(kind="ranks", text=text)
            reached = float(np.max(experts[0].reached()))
            within = f", chosen within {c.groups_per_token} of {c.expert_groups} groups of experts" if c.expert_groups else ""
            text = f"a token goes to {fmt_number(reached)} of {options.ep} ranks on average{within}"
            yield Note(kind="ranks", text=text)
    if options.tp > 1:
        if not c.mla and c.kv_heads < options.tp:
            text = f"tp {options.tp}: {c.kv_heads} KV heads are replicated, {options.tp // c.kv_heads} times each"
            yield Note(kind="ranks", text=text)
        if c.mla:
            yield Note(kind="ranks", text=f"tp {options.tp}: every rank keeps all latents")
        if c.vocabulary % options.tp:
            yield Note(kind="ranks", text=f"tp {options.tp}: the vocabulary is padded to a multiple of it")
    if (options.tp > 1 or options.ep > 1) and not options.link_latency_s:
        yield Note(kind="link", text="collectives take their bytes over the link and no latency at best")
    if (ranks := options.tp * options.ep) > ONE_BOARD and options.link_bytes_per_s is None:
        joined = f"all {ranks} devices are taken to be joined by one link of {fmt_si(machine.link().value, 'B/s')}"
        slower = f"a board joins {ONE_BOARD} as a rule, and a network between boards is slower"
        yield Note(kind="link", text=f"{joined}; {slower}: link_bytes_per_s (--link) gives its rate", machine=machine.name)
    for text in dict.fromkeys(note for part in parts for note in part.notes):
        yield Note(kind="roof", text=text)


def priced(config: TransformerConfig, phase: Phase, machine: Machine, options: Options) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """The parts of a phase, and the contents counted. Raises Error as `predict_model`."""
    _check(options)
    on = linked(machine, options.link_bytes_per_s)
    calls = calls_of(config, phase, tp=options.tp, ep=options.ep, lm_head=options.lm_head, fused=options.fused)
    parts = (price(call, on, options) for call in calls)
    return tuple(part for part in parts if part is not None), _counted(config, phase, options)


def ranks_on(machine: Machine, tp: int | None, ep: int) -> int:
    """Ranks of tensor parallelism: as given, else all devices of the machine. Raises Error where it has others ("8xH100")."""
    if tp is None:
        tp = 1 if ep != 1 else machine.devices
    if machine.devices > 1 and isinstance(tp, int) and isinstance(ep, int) and tp * ep != machine.devices:
        said = f"{machine.name} has {machine.devices} devices, not tp {shown(tp)} × ep {shown(ep)}"
        raise Error(f"{said}: give one of them, or none (ep takes the place of tp)")
    return tp


def options_of(machine: Machine, how: Mapping[str, Any]) -> Options:
    """The options stated in `how`, and usual ones for the rest. Raises Error for an option that `predict_model` does not have."""
    names = [field.name for field in fields(Options)]
    if unknown := [name for name in how if name not in names]:
        near = hint(unknown[0], (*names, "batch", "seq_kv", "seq_q", "phase", "quantity", "title"))
        raise Error(f"a prediction has no option {unknown[0]!r}{near}; it has {', '.join(names)}")
    tp = ranks_on(machine, how.get("tp"), how.get("ep", 1))
    return Options(**{**how, "tp": tp, "utilisation": utilisation_of(how.get("utilisation"))})


def memory_on(config: TransformerConfig, phase: Phase, machine: Machine, options: Options, asked: Phase | None) -> Memory:
    """What a rank keeps. Raises Error naming what is `asked`, if anything, where that does not fit."""
    found = memory_of(
        config, phase, machine, **values_of(options, "tp ep lm_head"), share=options.memory_share,
        capacity_bytes=options.memory_bytes,
    )  # fmt: skip
    if asked is not None and found.fits is False:
        raise Error(f"{config.name}, {asked}: {found.text} (must_fit=False predicts it nevertheless)")
    return found


def predict_model(
    machine: Machine, config: TransformerConfig, phase: Phase, *, must_fit: bool = True, **how: Any
) -> ModelPrediction:
    """The expected time of `phase` on `machine`: the sum of its calls, one after the other; see `roofline.predict`.

    Args:
        how: fields of `Options`; tp is the number of the machine's devices where it is not given.
    """
    require_type("must_fit", must_fit, bool, "True or False")
    options = options_of(machine, how)
    parts, counted = priced(config, phase, machine, options)
    return ModelPrediction(
        config=config, phase=phase, machine=machine.name, options=options, parts=parts,
        memory=memory_on(config, phase, machine, options, phase if must_fit else None),
        ceilings=tuple(dict.fromkeys(label for part in parts for label in part.roofs)), counted=counted,
        assumed=tuple(notes_on(config, phase, machine, options, parts)),
    )  # fmt: skip
