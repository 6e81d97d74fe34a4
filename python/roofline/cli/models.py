"""What the commands about whole models take: a configuration, phases, a machine."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import Error
from .outcomes import BadInput

PHASES = ("prefill", "decode", "mixed", "training")
# Fields of phases as flags: (field, type, what it is).
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


def typed(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """An argument's type whose errors are ours."""

    def read(text: str) -> Any:
        try:
            return convert(text)
        except (Error, ValueError) as error:
            raise argparse.ArgumentTypeError(
                str(error) if isinstance(error, Error) else f"must be a number, got {text!r:.80}"
            ) from error

    return read


TYPES: dict[str, Callable[[str], Any]] = {"int": typed(int), "float": typed(float), "str": str}


def config_flag(parser: argparse.ArgumentParser) -> None:
    """CONFIG, the model."""
    parser.add_argument(
        "config", metavar="CONFIG", help="a preset (Llama-3-8B, DeepSeek-V3, …), or a Hugging Face config.json or its folder"
    )


def model_flags(parser: argparse.ArgumentParser) -> None:
    """What is changed of it, and how it is taken apart."""
    model = parser.add_argument_group("model")
    model.add_argument("--dtype", help="of weights and activations: bf16, fp16, fp32")
    model.add_argument(
        "--weights",
        metavar="DTYPE",
        help="of the matrices of layers: also fp8_e4m3, int8 (one scale per tensor), nvfp4 (one 8-bit scale per 16), mxfp4 (8 bits "
        "per 32), int4 (16 bits per 128), scales counted",
    )
    model.add_argument(
        "--activations", metavar="DTYPE", help="that products read: with narrow --weights also fp8_e4m3, int8 (default: as --dtype)"
    )
    model.add_argument("--kv", metavar="DTYPE", help="of the KV cache: also fp8_e4m3, int8")
    model.add_argument("--no-lm-head", dest="lm_head", action="store_false", help="without the product that makes logits")
    model.add_argument(
        "--no-fused", dest="fused", action="store_false", help="separate products, and scores of attention in memory"
    )


def field_flags(group: Any, **instead: Callable[[str], Any]) -> None:
    """A flag for each field of a phase. instead: types of single ones."""
    for name, kind, meaning in FIELDS:
        group.add_argument(f"--{name.replace('_', '-')}", type=instead.get(name, TYPES[kind]), help=meaning)
    group.add_argument("--no-master", dest="master", action="store_false", help="training: no fp32 copy of the weights")


def ranks_flags(group: Any) -> None:
    """Over how many devices the model is spread."""
    group.add_argument("--tp", type=TYPES["int"], default=1, help="ranks of tensor parallelism (default 1)")
    group.add_argument(
        "--ep", type=TYPES["int"], default=1, help="ranks of expert parallelism, which share the batch too (default 1)"
    )


def machine_of(given: str, device: str | None) -> Any:
    """The machine of a file, a folder or a datasheet. Raises Error."""
    from ..machine import Machine

    path = Path(given)
    if path.exists() or path.suffix == ".json" or os.sep in given:
        return Machine.load(path / "machine.json" if path.is_dir() else path, device)
    return Machine.from_datasheet(given)


def config_of(options: argparse.Namespace) -> Any:
    """The configuration that CONFIG and the flags of `model_flags` name. Raises Error."""
    from ..transformer import from_hugging_face, preset
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
        config = config.replace(weights=options.weights)
    if options.activations in DTYPES:
        config = config.replace(activations=options.activations)
    elif options.activations:
        if config.quantization is None:
            raise BadInput(f"--activations {options.activations} is of products with narrow weights: give --weights too")
        config = config.replace(quantization=dataclasses.replace(config.quantization, activations=options.activations))
    return config.replace(kv=options.kv) if options.kv else config


def given_fields(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of phases that were given as flags."""
    given = {name: getattr(options, name) for name, _, _ in FIELDS if getattr(options, name) is not None}
    return given if options.master else {**given, "master": False}


def phase_of(name: str, fields: Mapping[str, Any]) -> Any:
    """The phase of this name with these fields, `seq_len` included. Raises BadInput for a field that it has not."""
    from ..transformer.phases import PHASES as known

    cls, given = known[name], dict(fields)
    names = {field.name for field in dataclasses.fields(cls)}
    if (length := given.pop("seq_len", None)) is not None:
        field = "seq_kv" if name in ("decode", "mixed") else "seq_q"
        if field in given:
            raise BadInput(f"give either --seq-len or --{field.replace('_', '-')}, not both")
        given[field] = length
    if foreign := [f"--{each.replace('_', '-')}" for each in given if each not in names]:
        raise BadInput(f"{', '.join(foreign)} is not of --phase {name}, which has {', '.join(sorted(names))}")
    return cls(**given)
