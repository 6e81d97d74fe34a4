"""Flags and subcommands. An operator's flags are made only when a command asks for them."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import Error
from ..units import MIB, parse_bytes
from ..words import hint
from .exit_codes import OK, BadInput

EPILOG = """exit codes: 0 ok, 1 failed, 2 bad input or usage, 3 backend missing, 130 interrupted (finished results stay on disk)

examples:
  roofline report                                     ceilings, operators, files in ./roofline-report, in under a minute
  roofline run attention --seq-len 1024 --causal      one problem
  roofline sweep attention --seq-len 256,1024 --variant naive,tiled -o attention.jsonl
  roofline explain attention.jsonl 1                  one point, step by step
  roofline predict Llama-3-70B --machine 8xH100,8xGB200 --batch 32,64 --seq-kv 8k --weights fp8      decode, a column each
  roofline predict matmul --M 512 --N 8k --K 8k --dtype bf16 --machine H100                          one problem
  roofline crossover ffn --machine A100,H100          the batch from which an FFN is compute-bound
  roofline census Llama-3-8B --machine "H100 SXM"     its kernels: M, N, K, FLOPs, bytes, intensity, bound
  roofline compare before.json after.json             what changed by more than its noise
  roofline claims --wrong                             what well-known texts on the roofline have wrong, and the call that shows it
  roofline doctor                                     missing parts, and their cure"""


class _Once(argparse._StoreAction):
    """A flag with one value: given again it would silently replace the first."""

    seen = False

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if self.seen and option_string:
            parser.error(f"argument {option_string}: is given more than once, and takes one value")
        self.seen = True
        super().__call__(parser, namespace, values, option_string)


class Parser(argparse.ArgumentParser):
    """argparse, with errors of our kind: one line, exit code 2. known: the flags of the command, for the parser above it."""

    known: Sequence[str] = ()

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{self._meant(message):.1000} (`{self.prog} --help` lists them all)")

    def _meant(self, message: str) -> str:
        """The message, with what resembles a flag or a choice that is not there."""
        if match := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message):
            choices = re.findall(r"[\w-]+", match[2])
            said = f"{message[: match.start()]}there is no {match[1]!r:.80}{hint(match[1], choices)}"
            return f"{said}; use one of {', '.join(choices)}"
        if message.startswith("unrecognized arguments: --"):
            flag = re.split("[ =]", message.removeprefix("unrecognized arguments: "))[0]
            return message + hint(flag, self.known or self._option_string_actions)
        return message

    def print_help(self, file: Any = None) -> None:
        from .terminal import Terminal

        Terminal(file or sys.stdout).line(self.format_help().rstrip())


class _Now(argparse.Action):
    """A flag that answers at once and ends, like --version. answer: a function, by its module and name."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, answer: tuple[str, str], as_json: bool, **more: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **more)
        self.answer, self.as_json = answer, as_json

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> NoReturn:
        module, name = self.answer
        raise SystemExit(getattr(_module(module), name)(self.as_json))


def _module(name: str) -> Any:
    return importlib.import_module(f".{name}", __package__)


def _list_devices(parser: Any, as_json: bool, help: str = "list devices, and the reason where there is none") -> None:
    parser.add_argument("--list-devices", action=_Now, answer=("info", "devices"), as_json=as_json, help=help)


def _checked(read: Callable[[str], Any], fits: Callable[[Any], bool], what: str) -> Callable[[str], Any]:
    """A type for values that fit. what: these, as an error says."""

    def reader(text: str) -> Any:
        with contextlib.suppress(Error, ValueError):
            if fits(value := read(text)):
                return value
        raise argparse.ArgumentTypeError(f"must be {what}, got {text!r:.80}")

    return reader


def _whole(least: int) -> Callable[[str], Any]:
    return _checked(int, lambda value: least <= value < 2**31, f"a whole number from {least}")


_positive = _checked(float, lambda value: 0 < value < float("inf"), "a positive number of seconds")
_bytes = _checked(parse_bytes, lambda value: MIB <= value < 2**50, "a size from 1MiB, such as 512MiB or 8GB")
_share = _checked(
    lambda text: float(text.rstrip("% ")) / (100 if text.rstrip().endswith("%") else 1), lambda value: 0 <= value < 1,
    "a share such as 0.01 or 1%",
)  # fmt: skip


def _talking(parser: argparse.ArgumentParser, as_json: bool) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="JSON on stdout instead of tables")
    group.add_argument("--wide", action="store_true", help="tables with all columns, however wide the terminal is")
    group.add_argument("--quiet", action="store_true", help="no progress, and no table where there is a file")
    group.add_argument("-v", "--verbose", action="store_true", help="a traceback with an error")
    _list_devices(group, as_json)


def _measuring(parser: argparse.ArgumentParser, *, machine: bool = True) -> None:
    group = parser.add_argument_group("measuring")
    group.add_argument("--device", help="cpu, cuda:0 (default: the first GPU, else the CPU)")
    group.add_argument("--threads", type=_whole(0), default=0, help="CPU threads (default: all usable cores)")
    group.add_argument("--seed", type=_whole(0), default=0, help="seed of the random data (default 0)")
    pace = group.add_mutually_exclusive_group()
    pace.add_argument("--quick", action="store_true", help="short samples, fewer ceilings and points")
    pace.add_argument("--thorough", action="store_true", help="long samples, and every ceiling and series: 10 to 20 minutes")
    group.add_argument("--min-samples", type=_whole(3), help="at least this many samples a point (unless --timeout comes first)")
    group.add_argument(
        "--max-noise", type=_share, help="stop when the 95 %% interval is this narrow: half-width over median, 0.01 or 1%%"
    )
    group.add_argument("--timeout", type=_positive, metavar="S", help="at most this many seconds of samples a point")
    group.add_argument(
        "--arena",
        type=_bytes,
        metavar="SIZE",
        help="memory for the arrays of all probes (default: a quarter of the free memory, at most 4GiB)",
    )
    group.add_argument("--describe", action="store_true", help="say in plain English what would be measured, and measure nothing")
    if machine:
        group.add_argument("--machine", metavar="FILE", help="a machine.json with ceilings measured before")


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--out",
        metavar="DIR",
        help="folder of the files (default ./roofline-report, with --from its DIR); an earlier report in it is replaced when this "
        "one is finished, no other file",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="DIR",
        help="write the text, tables and pictures of DIR's saved files again; measure nothing",
    )
    parser.add_argument("--no-plot", dest="plot", action="store_false", help="no pictures")
    parser.add_argument(
        "--html",
        action="store_true",
        help="also report.html: everything in one file with interactive pictures, which needs no network (pip install "
        "'roofline[html]')",
    )
    parser.add_argument(
        "--sweep",
        dest="sweeps",
        action="append",
        default=[],
        metavar="FILE",
        help="with --from and --html: a results file, shown beside the report's own; two swept fields make a map; repeatable",
    )
    parser.add_argument(
        "--time-limit", type=_positive, metavar="S", help="for everything (default 55, --quick 25, --thorough none)"
    )
    _measuring(parser)


def _measure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--out",
        default="machine.json",
        metavar="FILE",
        help="machine file (default machine.json): takes the place of the same device in it when it is finished, others stay",
    )
    _measuring(parser, machine=False)


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "a", metavar="A", help="a machine.json, a results.jsonl, the folder of a report, or a datasheet of `roofline hardware`"
    )
    parser.add_argument("b", metavar="B", help="another one; a measured machine beside a datasheet shows the shares it reaches")
    parser.add_argument("-o", "--out", metavar="FILE", help="also write it as .json, .csv or .md")


def _hardware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "device_name", metavar="NAME", nargs="*", help="one device, e.g. H200 SXM, with its sources (default: a list of all)"
    )


def _import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="output of `ncu --csv`, or a log of nccl-tests (told by its content)")
    parser.add_argument("-o", "--out", metavar="FILE", help="append the points to this results file (JSON Lines)")
    parser.add_argument("--machine", metavar="FILE", help="add the ceilings to this machine file; created if it is absent")
    parser.add_argument("--device", help="which machine of that file (default: its first GPU)")
    parser.add_argument("--tool", choices=("ncu", "nccl-tests"), help="the tool that wrote FILE (default: told by its content)")
    parser.add_argument("--collective", metavar="NAME", help="collective of an nccl-tests log that names none, e.g. all_reduce")
    parser.add_argument(
        "--ncu-metrics", action=_Now, answer=("importing", "ncu_metrics"), as_json=False, help="print the value for ncu --metrics"
    )


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help='the shell that runs eval "$(roofline completion bash)"')


def _claims(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("claim_id", metavar="ID", nargs="?", help="one claim, with the call that shows it (default: a list of all)")
    parser.add_argument("--document", metavar="TITLE", help="only those of the text with this in its title")
    parser.add_argument("--wrong", action="store_true", help="only those that do not hold")


def _explain_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="OPERATOR|FILE", help="an operator (then its fields: a fresh measurement), or a results.jsonl or its folder"
    )
    parser.add_argument(
        "point",
        nargs="?",
        metavar="POINT",
        help="line in the file (1 is the first) or the beginning of a key; without it, the list",
    )
    parser.add_argument(
        "--machine", metavar="FILE", help="a machine.json: also the time at each ceiling (default: machine.json in the folder)"
    )
    parser.add_argument("--describe", action="store_true", help=argparse.SUPPRESS)


def _operator(parser: argparse.ArgumentParser, command: str, cls: Any) -> None:
    from .fields import add_fields

    add_fields(parser, cls, lists=command == "sweep")
    if command == "crossover":
        return _module("crossing").flags(parser)  # type: ignore[no-any-return]
    if command == "run":
        parser.add_argument("--once", action="store_true", help="launch once, untimed and unchecked: for profilers")
        parser.add_argument("-o", "--out", metavar="FILE", help="append the result to this results file (JSON Lines)")
    elif command == "sweep":
        parser.add_argument(
            "-o",
            "--out",
            metavar="FILE",
            help="results file (JSON Lines): each point at once; run again, it measures only the missing ones",
        )
    parser.add_argument(
        "--cache-state", choices=("cold", "warm"), default="cold", help="operands come from DRAM (cold, default) or stay in cache"
    )
    _measuring(parser)


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--libraries",
        action="store_true",
        help="time GEMMs of NumPy, SciPy, PyTorch, ONNX Runtime and roofline here against the roof, and try cures",
    )
    parser.add_argument("--quick", action="store_true", help="with --libraries: smaller GEMMs, on all cores only")
    parser.add_argument("--no-cure", dest="cure", action="store_false", help="with --libraries: name a cure, but do not try it")


@dataclass(frozen=True, slots=True)
class Command:
    about: str
    home: str  # the module that has it, as a function
    fill: Callable[[argparse.ArgumentParser], None] | None = None  # its flags; None: `flags` of that module, or of an operator
    function: str = ""  # where the command's name is no name in Python
    operator: bool = False  # an operator stands behind it
    replaces: bool = False  # what -o names is replaced; others append to it


COMMANDS = {
    "report": Command("measure everything and write a report", "measuring", _report, replaces=True),
    "measure": Command("measure the ceilings of a device into a machine file", "measuring", _measure, replaces=True),
    "run": Command("time one problem of an operator", "measuring", operator=True),
    "sweep": Command("time an operator over lists of values", "measuring", operator=True),
    "plot": Command("draw saved files, or the roofline as a model: pictures by name", "plotting", replaces=True),
    "explain": Command("explain one point: FLOPs, bytes, roofs, prediction", "info", _explain_file, operator=True),
    "predict": Command("predict the time of a whole model, or of one operator, on machines", "predicting"),
    "crossover": Command("the batch from which an operator is compute-bound on a machine", "crossing", operator=True),
    "census": Command("list every kernel of a model with its shapes, FLOPs, bytes, intensity and bound", "census", replaces=True),
    "cheat-sheet": Command(
        "one table of a model on a machine: intensity, bound, tokens/s, and what would help", "cheat_sheets", function="cheat_sheet"
    ),
    "import": Command(
        "read points and ceilings from files of other tools: ncu --csv, nccl-tests", "importing", _import, function="import_file"
    ),
    "compare": Command("set two machines, datasheets or results files side by side", "comparing", _compare, replaces=True),
    "claims": Command(
        "check what well-known texts on the roofline claim, each with a line of Python that shows it", "claims", _claims
    ),
    "hardware": Command("show what vendors state about devices, with sources", "hardware", _hardware),
    "completion": Command("print the script that completes commands, operators and flags in a shell", "info", _completion),
    "machine": Command("write a datasheet of your own to fill in", "machines", replaces=True),
    "doctor": Command("say what works here, what does not, why, and the cure", "info", _doctor),
}


def _add_operators(parser: argparse.ArgumentParser, command: str, arguments: Sequence[str], as_json: bool) -> list[str]:
    """Nested subcommands, one per operator; returns the flags of those that `arguments` name, which have some."""
    from ..operators import OPERATORS
    from .fields import description

    known: list[str] = []
    nested = parser.add_subparsers(dest="operator", metavar="OPERATOR", required=True, parser_class=Parser, title="operators")
    for name, cls in OPERATORS.items():
        own = nested.add_parser(name, help=cls.summary, description=description(cls))
        if name in arguments:
            _operator(own, command, cls)
            _talking(own, as_json)
            known += own._option_string_actions
    return known


def _command(commands: Any, name: str) -> Parser:
    about = COMMANDS[name].about
    own: Parser = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
    return own


def _fill(own: Parser, name: str, arguments: Sequence[str] | None) -> None:
    """Its own flags: of the picture or operator that the arguments name; without arguments all there are."""
    command = COMMANDS[name]
    if command.fill is not None:
        return command.fill(own)
    module = _module(command.home)
    named = () if arguments is None or not hasattr(module, "named_in") else (module.named_in(arguments),)
    module.flags(own, *named)


def _common(own: Parser, name: str, as_json: bool) -> None:
    """The flags of every command that takes no operator."""
    if COMMANDS[name].replaces:
        own.add_argument("--force", action="store_true", help="replace files that this command did not write, too")
    _talking(own, as_json)


def whole() -> Parser:
    """A parser with the flags of every command and operator, for what lists them all: it takes a second."""
    from ..operators import OPERATORS

    parser = Parser(prog="roofline")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, command in COMMANDS.items():
        own = _command(commands, name)
        if command.operator:
            _add_operators(own, name, tuple(OPERATORS), as_json=False)
        else:
            _fill(own, name, None)
            _common(own, name, as_json=False)
    return parser


def build(arguments: Sequence[str]) -> Parser:
    """The parser for these arguments: the flags of operators are there only where the command has some."""
    as_json = "--json" in arguments
    summary = "Measure what a machine can do, and how far operators are from it."
    parser = Parser(prog="roofline", description=summary, epilog=EPILOG)
    parser.add_argument("--version", action=_Now, answer=("info", "version"), as_json=as_json, help="print the version")
    _list_devices(parser, as_json)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    asked = next((a for a in arguments if a in COMMANDS), None)
    for name in COMMANDS:
        own = _command(commands, name)
        if name != asked:
            continue
        files_too = COMMANDS[name].fill is not None
        if COMMANDS[name].operator and (not files_too or _names_operator(arguments)):
            parser.known = _add_operators(own, name, arguments, as_json)
            if not files_too:
                _list_devices(own, as_json, "list devices")
            continue
        _fill(own, name, arguments)
        _common(own, name, as_json)
        parser.known = tuple(own._option_string_actions)
    return parser


def _spelled(arguments: Sequence[str]) -> list[str]:
    """The command line with our name of the operator behind a command that takes one: "gemm" is matmul."""
    found = list(arguments)
    at = next((i + 1 for i, word in enumerate(found[:-1]) if word in COMMANDS), 0)
    if at and COMMANDS[found[at - 1]].operator and not os.path.exists(found[at]):
        from ..operators import named_operator

        found[at] = named_operator(found[at]) or found[at]
    return found


def _names_operator(arguments: Sequence[str]) -> bool:
    """Whether the word after `explain` is an operator, and not a file."""
    from ..operators import OPERATORS

    after = arguments[list(arguments).index("explain") + 1 :]
    return bool(after) and after[0] in OPERATORS


def dispatch(arguments: Sequence[str]) -> int:
    """Parse and run. Raises BadInput for what cannot be parsed."""
    if not arguments:
        build([]).print_help()
        return OK
    if empty := next((argument for argument in arguments if argument.startswith("-") and argument.endswith("=--")), None):
        raise BadInput(f"argument {empty.removesuffix('=--')[:80]}: '--' is not a value")  # argparse would take it for none at all
    arguments = _spelled(arguments)
    options = build(arguments).parse_args(list(arguments))
    asked = COMMANDS[options.command]
    command: Callable[[argparse.Namespace], int] = getattr(_module(asked.home), asked.function or options.command)
    return command(options)
