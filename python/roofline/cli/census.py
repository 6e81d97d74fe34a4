"""`roofline census`: every kernel of a model's phases, its place on a machine's roofline, and measurements of its shape."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..machine import machine_of
from ..words import whole
from .exit_codes import OK, BadInput, checking_input
from .fields import listed
from .inputs import document, output_file, write_outputs
from .models import PHASES, config_flag, dtypes_of, field_flags, given_fields, launch_flag, link_flag, model_flags, ranks_flags
from .terminal import Terminal

SUFFIXES = (".md", ".csv", ".json")
PICTURES = (".svg", ".png")
MOST_PHASES = 64
DROPPED = ("attainable", "ridge", "FLOPs", "dtype", "batch", "bytes", "runs")  # columns, the one of least worth first
# Fields that several phases have and mean differently by: of several phases they go to these.
OWNERS = {"seq_q": ("prefill", "training"), "seq_kv": ("decode", "mixed")}


def flags(parser: argparse.ArgumentParser) -> None:
    config_flag(parser)
    parser.add_argument(
        "--machine", metavar="NAME|FILE", help="a datasheet of `roofline hardware`, or a machine.json: also ridge, bound and time"
    )
    parser.add_argument("--device", help="which machine of the file")
    parser.add_argument("--results", metavar="FILE", help="a results.jsonl: also the measured time of kernels of the same shape")
    phase = parser.add_argument_group(
        "phases", "With several phases --seq-q is that of prefill and training, and --seq-kv that of decode and mixed."
    )
    phase.add_argument(
        "--phase", metavar="LIST", default="prefill,decode", help=f"{', '.join(PHASES)}; with commas (default prefill,decode)"
    )
    field_flags(phase, batch=listed(whole))
    model_flags(parser)
    ranks_flags(parser)
    launch_flag(parser)
    link_flag(parser)
    parser.add_argument("--format", choices=("table", "markdown", "csv"), default="table", help="output format (default table)")
    parser.add_argument("-o", "--out", metavar="FILE", help=f"also write it, as {', '.join(SUFFIXES)}")
    parser.add_argument(
        "--plot", metavar="FILE", help="also draw the kernels of each phase on their roofs, as .svg or .png, the data beside it"
    )


def _phases(options: argparse.Namespace) -> Iterator[Any]:
    """Each phase that was asked for with each batch. Raises BadInput."""
    from ..transformer import phase_of
    from ..transformer.phases import PHASES as known

    names = list(dict.fromkeys(name.strip() for name in options.phase.split(",")))
    if unknown := [name for name in names if name not in PHASES]:
        raise BadInput(f"--phase: unknown phase {unknown[0]!r:.40}; use {', '.join(PHASES)}, with commas between several")
    fields = given_fields(options)
    batches = fields.pop("batch", [1])
    if len(names) * len(batches) > MOST_PHASES:
        raise BadInput(f"{len(names)} phases of {len(batches)} batches are more than {MOST_PHASES} tables; give fewer batches")
    if len(names) == 1:
        yield from (phase_of(names[0], {**fields, "batch": batch}) for batch in batches)
        return
    own = {name: {*known[name].__dataclass_fields__, "seq_len"} for name in names}
    taken = set()
    for name in names:
        mine = {field: x for field, x in fields.items() if field in own[name] and name in OWNERS.get(field, (name,))}
        taken |= {*mine}
        yield from (phase_of(name, {**mine, "batch": batch}) for batch in batches)
    if left := [f"--{field.replace('_', '-')}" for field in fields if field not in taken]:
        raise BadInput(f"{', '.join(left)} is a field of no --phase {options.phase}")


def census(options: argparse.Namespace) -> int:
    from ..census import census_of
    from ..results import Results
    from ..transformer import model_of

    screen, inputs = Terminal(wide=options.wide), (options.config, options.machine, options.results)
    out = output_file(options.out, SUFFIXES, *inputs)
    picture = output_file(options.plot, PICTURES, *inputs)
    if picture is not None:
        output_file(str(picture.with_suffix(".csv")), (".csv",), *inputs, out)
        if not options.machine:
            raise BadInput("--plot needs --machine: without one the kernels have no roofs")
    with checking_input():
        made = census_of(
            model_of(options.config, **dtypes_of(options)), list(_phases(options)),
            machine_of(options.machine, options.device) if options.machine else None, tp=options.tp, ep=options.ep,
            lm_head=options.lm_head, fused=options.fused, launch_s=options.launch, link_bytes_per_s=options.link,
            results=Results.load(options.results) if options.results else None,
        )  # fmt: skip
    contents: dict[Path, str | bytes] = {} if out is None else {out: document(made, out, "census", made.to_markdown)}
    write_outputs(contents | ({} if picture is None else _drawn(made, picture)), options)
    if options.json:
        screen.json(made.to_dict())
    elif options.format == "table":
        if not (options.quiet and out):
            _show(made, screen)
    else:
        screen.line((made.to_markdown() if options.format == "markdown" else made.to_csv()).rstrip("\n"))
    return OK


def _show(made: Any, screen: Terminal) -> None:
    for phase in made.phases:
        screen.table(*made.table(phase), title=made.title(phase), wide=("kernel", "dtype"), drop=DROPPED)
        screen.line()
    screen.lines(made.remarks())


def _drawn(made: Any, picture: Path) -> dict[Path, bytes]:
    """The picture, and its data beside it."""
    from ..plot import kernel_placement
    from ..plot.figure import contents_of

    drawn = contents_of(kernel_placement.panels(made), (picture.suffix, ".csv"))
    return {picture.with_suffix(suffix): content for suffix, content in drawn.items()}
