"""Subcommands. An operator's flags are made only when a command asks for them."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ..words import hint
from . import flags
from .exit_codes import OK, BadInput
from .flags import Now, list_devices_flag, module_named, operator_flags, talking

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
    """argparse, with errors of our kind: one line, exit code 2. inner: the parsers that know the flags, for the one above them."""

    inner: Sequence[Parser] = ()

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)

    def error(self, message: str) -> NoReturn:
        asked = self.inner[0] if self.inner and message.startswith("unrecognized") else self
        raise BadInput(f"{self._meant(message):.1000} (`{asked.prog} --help` lists them all)")

    def _meant(self, message: str) -> str:
        """The message, with what resembles a flag or a choice that is not there."""
        if match := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message):
            choices = re.findall(r"[\w-]+", match[2])
            said = f"{message[: match.start()]}there is no {match[1]!r:.80}{hint(match[1], choices)}"
            return f"{said}; use one of {', '.join(choices)}"
        if message.startswith("unrecognized arguments: --"):
            flag = re.split("[ =]", message.removeprefix("unrecognized arguments: "))[0]
            return message + hint(flag, [known for parser in self.inner or (self,) for known in parser._option_string_actions])
        return message

    def print_help(self, file: Any = None) -> None:
        from .terminal import Terminal

        Terminal(file or sys.stdout).line(self.format_help().rstrip())


@dataclass(frozen=True, slots=True)
class Command:
    about: str
    home: str  # the module that has it, as a function
    fill: Callable[[argparse.ArgumentParser], None] | None = None  # its flags; None: `flags` of that module, or of an operator
    function: str = ""  # where the command's name is no name in Python
    operator: bool = False  # an operator stands behind it
    replaces: bool = False  # what -o names is replaced; others append to it


COMMANDS = {
    "report": Command("measure everything and write a report", "measuring", flags.report, replaces=True),
    "measure": Command("measure the ceilings of a device into a machine file", "measuring", flags.measure, replaces=True),
    "run": Command("time one problem of an operator", "measuring", operator=True),
    "sweep": Command("time an operator over lists of values", "measuring", operator=True),
    "plot": Command("draw saved files, or the roofline as a model: pictures by name", "plotting", replaces=True),
    "explain": Command("explain one point: FLOPs, bytes, roofs, prediction", "info", flags.explain_file, operator=True),
    "predict": Command("predict the time of a whole model, or of one operator, on machines", "predicting"),
    "crossover": Command("the batch from which an operator is compute-bound on a machine", "crossing", operator=True),
    "census": Command("list every kernel of a model with its shapes, FLOPs, bytes, intensity and bound", "census", replaces=True),
    "cheat-sheet": Command(
        "one table of a model on a machine: intensity, bound, tokens/s, and what would help", "cheat_sheets", function="cheat_sheet"
    ),
    "import": Command(
        "read points and ceilings from files of other tools: ncu --csv, nccl-tests",
        "importing",
        flags.imported,
        function="import_file",
    ),
    "compare": Command("set two machines, datasheets or results files side by side", "comparing", flags.compare, replaces=True),
    "claims": Command(
        "check what well-known texts on the roofline claim, each with a line of Python that shows it", "claims", flags.claims
    ),
    "hardware": Command("show what vendors state about devices, with sources", "hardware", flags.hardware),
    "completion": Command("print the script that completes commands, operators and flags in a shell", "info", flags.completion),
    "machine": Command("write a datasheet of your own to fill in", "machines", replaces=True),
    "doctor": Command("say what works here, what does not, why, and the cure", "info", flags.doctor),
}


def _add_operators(parser: argparse.ArgumentParser, command: str, arguments: Sequence[str], as_json: bool) -> list[Parser]:
    """Nested subcommands, one per operator; returns those that `arguments` name, which have flags."""
    from ..operators import OPERATORS
    from .fields import description

    inner: list[Parser] = []
    nested = parser.add_subparsers(dest="operator", metavar="OPERATOR", required=True, parser_class=Parser, title="operators")
    for name, cls in OPERATORS.items():
        own = nested.add_parser(name, help=cls.summary, description=description(cls))
        if name in arguments:
            operator_flags(own, command, cls)
            talking(own, as_json)
            inner.append(own)
    return inner


def _command(commands: Any, name: str) -> Parser:
    about = COMMANDS[name].about
    own: Parser = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
    return own


def _fill(own: Parser, name: str, arguments: Sequence[str] | None) -> None:
    """Its own flags: of the picture or operator that the arguments name; without arguments all there are."""
    command = COMMANDS[name]
    if command.fill is not None:
        return command.fill(own)
    module = module_named(command.home)
    named = () if arguments is None or not hasattr(module, "named_in") else (module.named_in(arguments),)
    module.flags(own, *named)


def _common(own: Parser, name: str, as_json: bool) -> None:
    """The flags of every command that takes no operator."""
    if COMMANDS[name].replaces:
        own.add_argument("--force", action="store_true", help="replace files that this command did not write, too")
    talking(own, as_json)
    for action in own._actions:
        if isinstance(action, flags.Now):  # those of its own do not know yet
            action.as_json = as_json


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
    parser.add_argument("--version", action=Now, answer=("terminal", "version"), as_json=as_json, help="print the version")
    list_devices_flag(parser, as_json)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    asked = next((a for a in arguments if a in COMMANDS), None)
    for name in COMMANDS:
        own = _command(commands, name)
        if name != asked:
            continue
        files_too = COMMANDS[name].fill is not None
        if COMMANDS[name].operator and (not files_too or _names_operator(arguments)):
            parser.inner = _add_operators(own, name, arguments, as_json)
            if not files_too:
                list_devices_flag(own, as_json, "list devices")
            continue
        _fill(own, name, arguments)
        _common(own, name, as_json)
        parser.inner = (own,)
    return parser


def _spelled(arguments: Sequence[str]) -> list[str]:
    """The command line with our name of the operator behind a command that takes one: "gemm" is matmul."""
    found = list(arguments)
    at = next((i + 1 for i, word in enumerate(found[:-1]) if word in COMMANDS), 0)
    if at and COMMANDS[found[at - 1]].operator and not os.path.isfile(found[at]):
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
    if getattr(options, "describe", False) and getattr(options, "json", False):
        raise BadInput("--describe answers in words: leave --json out")
    asked = COMMANDS[options.command]
    command: Callable[[argparse.Namespace], int] = getattr(module_named(asked.home), asked.function or options.command)
    return command(options)
