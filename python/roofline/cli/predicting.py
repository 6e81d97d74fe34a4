"""`roofline predict`: the expected time of a whole model's phase, from a configuration and a machine; nothing is measured."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import Error
from ..units import fmt_si, parse_bytes, parse_si, parse_time_s
from .outcomes import OK, BadInput, checking_input
from .terminal import Terminal

PHASES = ("prefill", "decode", "mixed", "training")
# Fields of phases as flags: (flag, type, what it is, phases that have it).
FIELDS: tuple[tuple[str, str, str], ...] = (
    ("batch", "int", "sequences at a time (default 1)"),
    ("seq_len", "int", "shorthand: tokens of a prompt or sample, in decode the keys of the cache"),
    ("seq_q", "int", "new tokens of each sequence; in decode more than 1 is speculative"),
    ("seq_kv", "int", "keys that the last of them sees, its own included"),
    ("chunk", "int", "prefill: tokens of a sequence per step (default: all at once)"),
    ("accepted", "float", "decode: tokens that a speculative step keeps on average (default: all)"),
    ("prefill_seq_q", "int", "mixed: tokens of the prompt that is prefilled beside the decode"),
    ("prefill_seq_kv", "int", "mixed: keys that the last of those sees"),
    ("recompute", "str", "training: none or full"),
    ("gradients", "str", "training: dtype of the gradients (default fp32)"),
    ("moments", "str", "training: dtype of Adam's moments (default fp32)"),
)


def _typed(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """An argument's type whose errors are ours."""

    def read(text: str) -> Any:
        try:
            return convert(text)
        except (Error, ValueError) as error:
            raise argparse.ArgumentTypeError(
                str(error) if isinstance(error, Error) else f"must be a number, got {text!r}"
            ) from error

    return read


_TYPES: dict[str, Callable[[str], Any]] = {"int": _typed(int), "float": _typed(float), "str": str}


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config", metavar="CONFIG", help="a preset (Llama-3-8B, DeepSeek-V3, …), or a Hugging Face config.json or its folder"
    )
    parser.add_argument(
        "--machine", metavar="FILE|NAME", required=True, help="a machine.json, or a datasheet of `roofline hardware`"
    )
    parser.add_argument("--device", help="which machine of the file")
    phase = parser.add_argument_group("phase")
    phase.add_argument("--phase", choices=PHASES, default="decode", help="what is asked of the model (default decode)")
    for name, kind, meaning in FIELDS:
        phase.add_argument(f"--{name.replace('_', '-')}", type=_TYPES[kind], help=meaning)
    phase.add_argument("--no-master", dest="master", action="store_false", help="training: no fp32 copy of the weights")
    model = parser.add_argument_group("model")
    model.add_argument("--dtype", help="of weights and activations: bf16, fp16, fp32")
    model.add_argument(
        "--weights", metavar="DTYPE", help="of the matrices of layers: also fp8_e4m3, int8, int4 (scales are not counted)"
    )
    model.add_argument(
        "--activations", metavar="DTYPE", help="that products read: with narrow --weights also fp8_e4m3, int8 (default: as --dtype)"
    )
    model.add_argument("--kv", metavar="DTYPE", help="of the KV cache: also fp8_e4m3, int8")
    model.add_argument("--no-lm-head", dest="lm_head", action="store_false", help="without the product that makes logits")
    model.add_argument(
        "--no-fused", dest="fused", action="store_false", help="separate products, and scores of attention in memory"
    )
    how = parser.add_argument_group("how it is counted")
    how.add_argument("--tp", type=_TYPES["int"], default=1, help="ranks of tensor parallelism (default 1)")
    how.add_argument(
        "--counting", choices=("full", "weights-and-kv"), default="full", help="everything, or weights and KV cache alone"
    )
    how.add_argument("--compute-utilisation", type=_TYPES["float"], default=1.0, metavar="SHARE", help="of compute ceilings")
    how.add_argument("--bandwidth-utilisation", type=_TYPES["float"], default=1.0, metavar="SHARE", help="of bandwidth ceilings")
    how.add_argument("--overhead", type=_typed(parse_time_s), default=0.0, metavar="TIME", help="added to each step, e.g. 100us")
    how.add_argument("--launch", type=_typed(parse_time_s), metavar="TIME", help="of each kernel (default: the machine's latency)")
    how.add_argument(
        "--link", type=_typed(lambda text: parse_si(text, "B/s")), metavar="RATE", help="between ranks, one way: 450GB/s"
    )
    how.add_argument("--link-latency", type=_typed(parse_time_s), default=0.0, metavar="TIME", help="of a collective, e.g. 10us")
    how.add_argument("--memory", type=_typed(parse_bytes), metavar="SIZE", help="of one device, e.g. 80GB (default: the machine's)")
    how.add_argument(
        "--memory-share", type=_TYPES["float"], default=1.0, metavar="SHARE", help="of it that may be used (default 1)"
    )
    how.add_argument("--ignore-memory", action="store_true", help="estimate what does not fit in memory too")
    how.add_argument("--advice", action="store_true", help="also what changes would gain")
    how.add_argument("--against", metavar="FILE|NAME", action="append", default=[], help="with --advice: another machine")


def _machine(given: str, device: str | None) -> Any:
    from ..machine import Machine

    path = Path(given)
    if path.exists() or path.suffix == ".json" or os.sep in given:
        return Machine.load(path / "machine.json" if path.is_dir() else path, device)
    return Machine.from_datasheet(given)


def _config(options: argparse.Namespace) -> Any:
    from ..transformer import Quantization, from_hugging_face, preset
    from ..transformer.config import DTYPES

    given = options.config
    if os.path.exists(given) or given.endswith(".json") or os.sep in given:
        config = from_hugging_face(given, dtype=options.dtype)
    else:
        config = preset(given)
        if options.dtype:
            config = config.replace(weights=options.dtype, activations=options.dtype)
    if options.weights in DTYPES:
        config = config.replace(quantization=None, weights=options.weights)
    elif options.weights:
        config = config.replace(quantization=Quantization(weights=options.weights))
    if options.activations in DTYPES:
        config = config.replace(activations=options.activations)
    elif options.activations:
        if config.quantization is None:
            raise BadInput(f"--activations {options.activations} is of products with narrow weights: give --weights too")
        config = config.replace(quantization=dataclasses.replace(config.quantization, activations=options.activations))
    return config.replace(kv=options.kv) if options.kv else config


def _phase(options: argparse.Namespace) -> Any:
    from ..transformer.phases import PHASES as known

    cls = known[options.phase]
    names = {field.name for field in dataclasses.fields(cls)}
    given = {name: getattr(options, name) for name, _, _ in FIELDS if getattr(options, name) is not None}
    if (length := given.pop("seq_len", None)) is not None:
        field = "seq_kv" if options.phase in ("decode", "mixed") else "seq_q"
        if field in given:
            raise BadInput(f"give either --seq-len or --{field.replace('_', '-')}, not both")
        given[field] = length
    if not options.master:
        given["master"] = False
    if foreign := [f"--{name.replace('_', '-')}" for name in given if name not in names]:
        raise BadInput(f"{', '.join(foreign)} is not of --phase {options.phase}, which has {', '.join(sorted(names))}")
    return cls(**given)


def predict(options: argparse.Namespace) -> int:
    from ..transformer import advise, estimate, ridge_batch

    screen = Terminal()
    with checking_input():
        machine = _machine(options.machine, options.device)
        others = [_machine(name, None) for name in options.against]
        if others and not options.advice:
            raise BadInput("--against belongs to --advice")
        found = estimate(
            _config(options), _phase(options), machine, tp=options.tp, lm_head=options.lm_head, fused=options.fused,
            counting=options.counting.replace("-", "_"), compute_utilisation=options.compute_utilisation,
            bandwidth_utilisation=options.bandwidth_utilisation, overhead_s=options.overhead, launch_s=options.launch,
            link_bytes_per_s=options.link, link_latency_s=options.link_latency, memory_share=options.memory_share,
            memory_bytes=options.memory, must_fit=not options.ignore_memory,
        )  # fmt: skip
        advice = advise(found, machine, others) if options.advice else ()
        ridge = ridge_batch(found, machine) if options.advice else None
    if options.json:
        wanted = {"advice": [item.to_dict() for item in advice], "ridge": ridge.to_dict()} if ridge is not None else {}
        screen.json(found.to_dict() | wanted)
        return OK
    headers, rows = found.table()
    if not options.quiet:
        screen.table(headers, rows, title=f"{found.config.name}, {found.phase}, on {found.machine}", wide=("part",))
        screen.line()
    screen.table(("", "value"), found.summary(), wide=("value",))
    screen.line()
    if advice:
        gains = [(a.change, f"{'≤ ' if a.at_most else ''}{a.gain:.3f}×", fmt_si(a.time_s, "s"), a.bound, a.detail) for a in advice]
        headers = ("what would it take", "tokens/s", "time", "then bound by", "and")
        screen.table(headers, gains, wide=("what would it take", "and"))
        screen.line()
    if ridge is not None:
        screen.line(f"compute-bound: {ridge.text}")
        screen.line()
    if not options.quiet:
        screen.lines(found.remarks())
    return OK
