"""The flags of commands, those of an operator's fields and of models apart."""

from __future__ import annotations

import argparse
import contextlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..errors import Error
from ..units import MIB, parse_bytes


class Now(argparse.Action):
    """A flag that answers at once and ends, like --version. answer: a function, by its module and name."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, answer: tuple[str, str], as_json: bool, **more: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **more)
        self.answer, self.as_json = answer, as_json

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> NoReturn:
        module, name = self.answer
        raise SystemExit(getattr(module_named(module), name)(self.as_json))


def module_named(name: str) -> Any:
    return importlib.import_module(f".{name}", __package__)


def list_devices_flag(parser: Any, as_json: bool, help: str = "list devices, and the reason where there is none") -> None:
    parser.add_argument("--list-devices", action=Now, answer=("info", "devices"), as_json=as_json, help=help)


def _checked(read: Callable[[str], Any], fits: Callable[[Any], bool], what: str) -> Callable[[str], Any]:
    """A type for values that fit. what: these, as an error says."""

    def reader(text: str) -> Any:
        with contextlib.suppress(Error, ValueError):
            if fits(value := read(text)):
                return value
        raise argparse.ArgumentTypeError(f"must be {what}, got {text!r:.80}")

    return reader


def _whole(least: int) -> Callable[[str], Any]:
    return _checked(int, lambda value: least <= value < 2**31, f"a whole number from {least} to 2**31 - 1")


_positive = _checked(float, lambda value: 0 < value < float("inf"), "a positive number of seconds")
_bytes = _checked(parse_bytes, lambda value: MIB <= value < 2**50, "a size from 1MiB, such as 512MiB or 8GB")
_share = _checked(
    lambda text: float(text.rstrip("% ")) / (100 if text.rstrip().endswith("%") else 1), lambda value: 0 <= value < 1,
    "a share such as 0.01 or 1%",
)  # fmt: skip


def talking(parser: argparse.ArgumentParser, as_json: bool) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="JSON on stdout instead of tables")
    group.add_argument("--wide", action="store_true", help="tables with all columns, however wide the terminal is")
    group.add_argument("--quiet", action="store_true", help="no progress, and no table where there is a file")
    group.add_argument("-v", "--verbose", action="store_true", help="a traceback with an error")
    list_devices_flag(group, as_json)


def measuring(parser: argparse.ArgumentParser, *, machine: bool = True) -> None:
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


def report(parser: argparse.ArgumentParser) -> None:
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
    measuring(parser)


def measure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--out",
        default="machine.json",
        metavar="FILE",
        help="machine file (default machine.json): takes the place of the same device in it when it is finished, others stay",
    )
    measuring(parser, machine=False)


def compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "a", metavar="A", help="a machine.json, a results.jsonl, the folder of a report, or a datasheet of `roofline hardware`"
    )
    parser.add_argument("b", metavar="B", help="another one; a measured machine beside a datasheet shows the shares it reaches")
    parser.add_argument("-o", "--out", metavar="FILE", help="also write it as .json, .csv or .md")


def hardware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "device_name", metavar="NAME", nargs="*", help="one device, e.g. H200 SXM, with its sources (default: a list of all)"
    )


def imported(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="output of `ncu --csv`, or a log of nccl-tests (told by its content)")
    parser.add_argument("-o", "--out", metavar="FILE", help="append the points to this results file (JSON Lines)")
    parser.add_argument("--machine", metavar="FILE", help="add the ceilings to this machine file; created if it is absent")
    parser.add_argument("--device", help="which machine of that file (default: its first GPU)")
    parser.add_argument("--tool", choices=("ncu", "nccl-tests"), help="the tool that wrote FILE (default: told by its content)")
    parser.add_argument("--collective", metavar="NAME", help="collective of an nccl-tests log that names none, e.g. all_reduce")
    parser.add_argument(
        "--ncu-metrics", action=Now, answer=("importing", "ncu_metrics"), as_json=False, help="print the value for ncu --metrics"
    )


def completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help='the shell that runs eval "$(roofline completion bash)"')


def claims(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("claim_id", metavar="ID", nargs="?", help="one claim, with the call that shows it (default: a list of all)")
    parser.add_argument("--document", metavar="TITLE", help="only those of the text with this in its title")
    parser.add_argument("--wrong", action="store_true", help="only those that do not hold")


def explain_file(parser: argparse.ArgumentParser) -> None:
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


def operator_flags(parser: argparse.ArgumentParser, command: str, cls: Any) -> None:
    from .fields import add_fields

    add_fields(parser, cls, lists=command == "sweep")
    if command == "crossover":
        return module_named("crossing").flags(parser)  # type: ignore[no-any-return]
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
    measuring(parser)


def doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--libraries",
        action="store_true",
        help="time GEMMs of NumPy, SciPy, PyTorch, ONNX Runtime and roofline here against the roof, and try cures",
    )
    parser.add_argument("--quick", action="store_true", help="with --libraries: smaller GEMMs, on all cores only")
    parser.add_argument("--no-cure", dest="cure", action="store_false", help="with --libraries: name a cure, but do not try it")
