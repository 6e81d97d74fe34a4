"""`roofline machine new`: a datasheet of one's own, with a comment on every key."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from .exit_codes import OK, BadInput, checking_input
from .inputs import output_file
from .terminal import Terminal

DEVICES = ("cuda", "rocm", "cpu", "tpu", "hpu")


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="new", choices=("new",), help="write a TOML file, each key with a comment")
    parser.add_argument("name", metavar="NAME", nargs="+", help="the device's name, vendor first: Acme X1")
    parser.add_argument(
        "--rates", metavar="RATES", help="its rates: 2TB/s,bf16=500TFLOP/s,memory=80GB,link=450GB/s (default: an example's)"
    )
    parser.add_argument("--kind", choices=DEVICES, default="cuda", help="kind of device (default cuda)")
    parser.add_argument("-o", "--out", metavar="FILE", help="the file (default: the name in lower case, with .toml)")


def machine(options: argparse.Namespace) -> int:
    from ..hardware import template
    from ..machine import write_atomically
    from ..machine.naming import peaks_of

    name = " ".join(options.name)
    with checking_input():
        rates = None
        if options.rates is not None:
            rates = {key: value for key, value in peaks_of(options.rates).items() if key != "name"}
        text = template(name, rates, device=options.kind)
        slug = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-") or "machine"
        out = output_file(options.out or f"{slug}.toml", (".toml",))
        assert out is not None
        if Path(out).exists() and not options.force:
            raise BadInput(f"{out} exists; choose another file with -o, or replace it with --force")
        write_atomically(out, text)
    screen = Terminal(wide=options.wide)
    if options.json:
        screen.json({"file": str(out), "name": name})
    elif not options.quiet:
        screen.line(f"wrote {out}: fill it in, then use it as --machine {out}")
        screen.line("in ~/.config/roofline/hardware it is known by its name")
    return OK
