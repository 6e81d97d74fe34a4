"""What the commands about whole models take: a configuration, phases, a machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..units import parse_rate, parse_time_s
from ..words import whole
from .fields import READERS, add_aliases, listed, typed

PHASES = ("prefill", "decode", "mixed", "training")
# Fields of phases as flags: (field, type, what it is).
FIELDS: tuple[tuple[str, str, str], ...] = (
    ("batch", "int", "sequences at a time (default 1)"),
    ("seq_len", "int", "shorthand: tokens of a prompt or sample, in decode the keys of the cache"),
    ("seq_q", "int", "new tokens of each sequence; in decode more than 1 is speculative"),
    ("seq_kv", "int", "context length: keys that the last of them sees, its own included; 8k is 8192"),
    ("output", "int", "serving: tokens of each answer (default 256)"),
    ("chunk", "int", "prefill: tokens of a sequence per step (default: all at once)"),
    ("accepted", "float", "decode: tokens that a speculative step keeps on average (default: all)"),
    ("prefill_seq_q", "int", "mixed: tokens of the prompt that is prefilled beside the decode"),
    ("prefill_seq_kv", "int", "mixed: keys that the last of those sees"),
    ("recompute", "str", "training: none or full"),
    ("gradients", "str", "training: dtype of the gradients (default fp32)"),
    ("moments", "str", "training: dtype of Adam's moments (default fp32)"),
)


def config_flag(parser: argparse.ArgumentParser) -> None:
    """CONFIG, the model."""
    parser.add_argument(
        "config", metavar="CONFIG", help="a preset (Llama-3-8B, DeepSeek-V3, …), or a Hugging Face config.json or its folder"
    )


def model_flags(parser: argparse.ArgumentParser) -> None:
    """What is changed of it, and how it is taken apart."""
    model = parser.add_argument_group("model")
    model.add_argument("--dtype", help="dtype of weights and activations: bf16, fp16, fp32")
    model.add_argument(
        "--quantization", metavar="NAME", help="of weights and GEMM inputs: fp8, int8, w4a16, awq, gptq, nvfp4, mxfp4, none"
    )
    model.add_argument(
        "--weights",
        metavar="DTYPE",
        help="dtype of the layers' weight matrices alone: also fp8, int8 (one scale per tensor), nvfp4 (one 8-bit scale per 16), "
        "mxfp4 (8 bits per 32), int4 (16 bits per 128), scales counted",
    )
    model.add_argument(
        "--activations", metavar="DTYPE", help="dtype of GEMM inputs: with narrow --weights also fp8, int8 (default: as --dtype)"
    )
    model.add_argument("--kv", metavar="DTYPE", help="dtype of the KV cache: also fp8, int8")
    model.add_argument("--no-lm-head", dest="lm_head", action="store_false", help="without the GEMM that makes the logits")
    model.add_argument("--no-fused", dest="fused", action="store_false", help="separate GEMMs, and attention scores in memory")


def field_flags(group: Any, *, lists: bool = False, **instead: Callable[[str], Any]) -> None:
    """A flag for each field of a phase, aliases included. lists: each takes a comma list. instead: types of single ones."""
    for name, kind, meaning in FIELDS:
        read = instead.get(name) or (listed if lists else typed)(READERS[kind])
        group.add_argument(f"--{name.replace('_', '-')}", type=read, metavar=f"{kind.upper()}{',…' if lists else ''}", help=meaning)
    group.add_argument("--no-master", dest="master", action="store_false", help="training: no fp32 copy of the weights")
    add_aliases(group, [name for name, _, _ in FIELDS])


def ranks_flags(group: Any, *, lists: bool = False) -> None:
    """Over how many devices the model is spread."""
    read = (listed if lists else typed)(whole)
    group.add_argument("--tp", type=read, help="ranks of tensor parallelism (default: those of 8xH100, else 1)")
    group.add_argument("--ep", type=read, default=1, help="ranks of expert parallelism, which share the batch too (default 1)")


def launch_flag(group: Any) -> None:
    group.add_argument("--launch", type=typed(parse_time_s), metavar="TIME", help="launch latency (default: the machine's)")


def link_flag(group: Any) -> None:
    group.add_argument(
        "--link", type=typed(lambda text: parse_rate(text, "B/s")), metavar="RATE", help="bandwidth between ranks, one way: 450GB/s"
    )


def dtypes_of(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("dtype", "quantization", "weights", "activations", "kv")}


def given_fields(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of phases that were given as flags."""
    given = {name: getattr(options, name) for name, _, _ in FIELDS if getattr(options, name) is not None}
    return given if options.master else {**given, "master": False}
