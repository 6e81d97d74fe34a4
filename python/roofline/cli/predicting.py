"""`roofline predict`: the expected time of a problem or of a whole model's phase on a machine; nothing is measured."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..units import fmt_si, parse_bytes, parse_time_s
from ..words import split, whole
from .exit_codes import OK, BadInput, checking_input
from .fields import add_fields, description, given_fields as operator_fields, listed, typed
from .models import PHASES, dtypes_of, field_flags, given_fields, launch_flag, link_flag, model_flags, ranks_flags
from .terminal import Terminal

if TYPE_CHECKING:
    from ..operators import Operator

MODELS = ("lm_head", "fused", "tp", "ep", "price_per_hour")  # options that go to `predict` under their own names
WIDE = ("part", "value", "at best", "realistic", "ceiling")
DROPPED = ("group", "FLOPs", "bytes", "count", "FLOP/byte")  # columns of parts, the one of least worth first


def flags(parser: argparse.ArgumentParser, operator: type[Operator] | None = None) -> None:
    """The flags of a model, or of `operator`. Lists with commas make a table with a column for each combination."""
    what = "a model: a preset (Llama-3-8B, DeepSeek-V3, …) or a Hugging Face config.json or its folder; or an operator and its"
    what += " fields: matmul --M 512 --N 8k --K 8k"
    parser.add_argument("what", metavar="WHAT", help=argparse.SUPPRESS if operator else what)
    parser.add_argument(
        "--machine", metavar="NAME|FILE,…", required=True,
        help="datasheets of `roofline hardware`, 8xH100 (tensor parallel over its link), machine files, report folders, or rates: "
        "2TB/s,bf16=500TFLOP/s",
    )  # fmt: skip
    parser.add_argument("--device", help="which machine of a file")
    if operator is None:
        phase = parser.add_argument_group("phase", "A list of values, separated by commas, makes a column for each.")
        phase.add_argument("--phase", metavar="NAME,…", default="decode", help=f"{', '.join(PHASES)} or serving (default decode)")
        field_flags(phase, lists=True)
        model_flags(parser)
    else:
        parser.prog = f"{parser.prog} {operator.name}"
        parser.description = description(operator)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        add_fields(parser, operator, lists=True)
    how = parser.add_argument_group("how it is counted")
    how.add_argument(
        "--utilisation", metavar="SHARE", help="reached share of the ceilings: 0.8, or compute=0.7,bandwidth=0.8,link=0.9"
    )
    launch_flag(how)
    if operator is None:
        _how_of_models(how)
    else:
        how.add_argument("--level", help="where the operands lie: DRAM (default), L3, L2, L1")
        how.add_argument("--threads", type=typed(whole), help="CPU threads (default: the most that were measured)")
        how.add_argument("--unit", choices=("core", "tensor"), help="unit of the compute ceiling (default: tensor for GEMMs)")


def _how_of_models(how: Any) -> None:
    ranks_flags(how, lists=True)
    how.add_argument(
        "--counting", choices=("full", "weights-and-kv"), default="full", help="everything, or weights and KV cache alone"
    )
    how.add_argument(
        "--price-per-hour", type=listed(float), metavar="PRICE,…", help="serving: of a device; gives the cost of a million tokens"
    )
    how.add_argument("--overhead", type=typed(parse_time_s), default=0.0, metavar="TIME", help="added to each step, e.g. 100us")
    link_flag(how)
    how.add_argument("--link-latency", type=typed(parse_time_s), default=0.0, metavar="TIME", help="collective latency, e.g. 10us")
    how.add_argument("--memory", type=typed(parse_bytes), metavar="SIZE", help="device memory, e.g. 80GB (default: the machine's)")
    how.add_argument(
        "--memory-share", type=typed(float), default=1.0, metavar="SHARE", help="share of the memory that may be used (default 1)"
    )
    how.add_argument("--ignore-memory", action="store_true", help="predict models that do not fit in memory, too")
    how.add_argument("--advice", action="store_true", help="also list changes with their gain")
    how.add_argument(
        "--against", metavar="FILE|NAME", action="append", default=[], help="another machine in the advice, which this asks for too"
    )


def named_in(arguments: Sequence[str]) -> type[Operator] | None:
    """The operator that the command line asks about, None for a model: a word of its own that is no flag's value."""
    from ..operators import OPERATORS, named_operator

    for before, word in itertools.pairwise(("", *arguments[list(arguments).index("predict") + 1 :])):
        value = before.startswith("--") and "=" not in before and before not in ("--quiet", "--json")
        if not word.startswith("-") and not value and (name := named_operator(word)):
            return OPERATORS[name]
    return None


def predict(options: argparse.Namespace) -> int:
    from ..machine import machine_of
    from ..machine.naming import machine_list
    from ..questions import PredictionTable, predict as ask

    screen = Terminal(wide=options.wide)
    with checking_input():
        machines = [machine_of(name, options.device) for name in machine_list(options.machine)]
        of_model = hasattr(options, "phase")
        own = {} if of_model else {name: getattr(options, name) for name in ("variant", "level", "threads", "unit")}
        how = _of_model(options) if of_model else operator_fields(options) | own
        asked = split(options.phase) if of_model else None
        found = ask(machines, options.what, asked, utilisation=options.utilisation, launch_s=options.launch, **how)
        single = not isinstance(found, PredictionTable)
        if of_model and not single and (options.advice or options.against):
            raise BadInput("--advice takes one prediction: give one value of each flag")
        extra = _advice(options, found, machines[0]) if of_model and single else None
    if options.json:
        more = extra[1] if extra else {}
        screen.json((found.as_answer() if single else found.to_dict()) | more)
        return OK
    if single:
        _show(found, screen, options.quiet, extra[0] if extra else ())
    else:
        headers, rows = found.table()
        screen.table(headers, rows, wide=headers[1:])
        screen.line()
        if not options.quiet:
            screen.lines(f"note: {note}" for note in found.notes)
    return OK


def _of_model(options: argparse.Namespace) -> dict[str, Any]:
    return {
        **dtypes_of(options), **given_fields(options), **{name: getattr(options, name) for name in MODELS},
        "counting": options.counting.replace("-", "_"), "overhead_s": options.overhead, "link_bytes_per_s": options.link,
        "link_latency_s": options.link_latency, "memory_share": options.memory_share, "memory_bytes": options.memory,
        "must_fit": not options.ignore_memory,
    }  # fmt: skip


def _advice(options: argparse.Namespace, found: Any, machine: Any) -> tuple[list[Any], dict[str, Any]] | None:
    """Gains of changes, as printed text and as JSON; None where not asked for."""
    from ..machine import machine_of
    from ..transformer import advise, ridge_batch

    others = [machine_of(name) for name in options.against]
    if not (options.advice or others):
        return None
    advice, ridge = advise(found, machine, others), ridge_batch(found, machine)
    return [advice, ridge], {"advice": [item.to_dict() for item in advice], "ridge": ridge.to_dict()}


def _show(found: Any, screen: Terminal, quiet: bool, extra: Sequence[Any]) -> None:
    """The answer, then its parts, the advice and the assumptions."""
    summary = getattr(found, "summary", None)
    if summary is not None:
        screen.table(("", "value"), summary(), title=found.title, wide=WIDE)
        screen.line()
    if summary is None or not quiet:
        screen.table(*found.table(), title="" if summary else found.title, wide=WIDE, drop=DROPPED)
        screen.line()
    if extra:
        advice, ridge = extra
        gains = [(a.change, f"{'≤ ' if a.at_most else ''}{a.gain:.3f}×", fmt_si(a.time_s, "s"), a.bound, a.detail) for a in advice]
        headers = ("what would it take", "gain in tok/s", "time", "then bound by", "note")
        screen.table(headers, gains, wide=("what would it take", "note"), drop=("note",))
        screen.line()
        screen.lines([f"compute-bound: {ridge.text}"])
        screen.line()
    if not quiet:
        screen.lines(found.remarks())
