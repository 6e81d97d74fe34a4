"""`roofline cheat-sheet`: one table of a model on a machine; nothing is measured."""

from __future__ import annotations

import argparse

from ..words import whole
from .exit_codes import OK, checking_input
from .fields import listed, typed
from .models import config_flag, dtypes_of, launch_flag, link_flag, model_flags, ranks_flags
from .terminal import Terminal


def flags(parser: argparse.ArgumentParser) -> None:
    config_flag(parser)
    parser.add_argument(
        "--machine",
        metavar="FILE|NAME",
        required=True,
        help="a datasheet of `roofline hardware`, 8xH100, a machine.json, or rates: 2TB/s,bf16=500TFLOP/s",
    )
    parser.add_argument("--device", help="which machine of the file")
    phase = parser.add_argument_group("phases")
    phase.add_argument(
        "--batch",
        type=listed(whole),
        default=[1, 32, 128],
        metavar="LIST",
        help="sequences that decode at a time (default 1,32,128)",
    )
    phase.add_argument("--seq-kv", type=typed(whole), default=2048, help="keys that each of them sees (default 2048)")
    phase.add_argument("--seq-q", type=typed(whole), default=1024, help="tokens of the prompt in prefill (default 1024)")
    model_flags(parser)
    ranks_flags(parser)
    launch_flag(parser)
    link_flag(parser)


def cheat_sheet(options: argparse.Namespace) -> int:
    from ..cheat_sheets import cheat_sheet as made
    from ..machine import machine_of

    screen = Terminal(wide=options.wide)
    with checking_input():
        found = made(
            machine_of(options.machine, options.device), options.config, batch=options.batch, seq_kv=options.seq_kv,
            seq_q=options.seq_q, tp=options.tp, ep=options.ep, lm_head=options.lm_head, fused=options.fused,
            launch_s=options.launch, link_bytes_per_s=options.link, **dtypes_of(options),
        )  # fmt: skip
    if options.json:
        screen.json(found.to_dict())
        return OK
    headers, rows = found.table()
    screen.table(
        headers, rows, title=f"{found.model} on {found.machine}", wide=("what helps",),
        drop=("context", "ridge", "share", "above ridge from", "FLOP/byte"),
    )  # fmt: skip
    screen.line()
    screen.lines(f"{name}: {value}" for name, value in found.summary())
    if not options.quiet:
        screen.line()
        screen.lines(found.notes)
    return OK
