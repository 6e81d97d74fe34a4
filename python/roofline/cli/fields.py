"""Flags of an operator, made from its dataclass: no operator is named here."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..dtypes import dtype_name
from ..errors import Error
from ..operators import Operator
from ..operators.scales import GEMM, Scaled
from ..words import ALIASES, annotated, split, whole

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def typed(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """An argument's type whose errors are ours."""

    def read(text: str) -> Any:
        try:
            return convert(text)
        except (Error, ValueError) as error:
            said = str(error) if isinstance(error, Error) else f"must be a number, got {text!r:.80}"
            raise argparse.ArgumentTypeError(said) from error

    return read


def listed(convert: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """A type for comma lists of another."""
    return typed(lambda text: [convert(part) for part in split(text)])


def _truth(text: str) -> bool:
    if text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    raise Error(f"must be true or false, got {text!r:.80}")


def add_aliases(group: Any, names: Iterable[str]) -> None:
    """The names that these fields have elsewhere, as flags that help does not list: --batch-size, --context, --M."""
    known, have = group._option_string_actions, tuple(names)
    for word, meant in ALIASES.items():
        target = next((name for name in meant if name in have), None)
        alias = flag(word)
        if target is not None and word not in have and alias not in known and flag(target) in known:
            known[alias] = known[flag(target)]


READERS: Mapping[str, Callable[[str], Any]] = {"int": whole, "float": float, "bool": _truth, "str": str}


def add_fields(parser: argparse.ArgumentParser, operator: type[Operator], *, lists: bool) -> None:
    """One flag per field, the shorthand --seq-len where it means something, and --variant. lists: comma lists are values."""
    group = parser.add_argument_group(
        f"fields of {operator.name}", "a list of values, separated by commas, is a sweep" if lists else None
    )
    names = set()
    for field in dataclasses.fields(operator):  # type: ignore[arg-type]
        kind = annotated(field)
        read = dtype_name if field.name.endswith("dtype") else READERS[kind]
        names.add(field.name)
        shown = f"default {field.default}" if field.default != "" else "default: chosen by the kernel"
        if allowed := operator.allowed.get(field.name):
            shown = f"{', '.join(map(str, allowed))} ({shown})"
        shown += f"; also {flag(letter)}" if (letter := GEMM.get(field.name)) and set(GEMM) <= set(operator.field_names()) else ""
        common: dict[str, Any] = {"dest": f"field_{field.name}", "default": argparse.SUPPRESS, "help": shown}
        if kind == "bool" and lists:
            group.add_argument(flag(field.name), nargs="?", const=[True], type=listed(read), metavar="true,false", **common)
            no = {"const": [False], "action": "store_const", "dest": common["dest"], "default": argparse.SUPPRESS}
            group.add_argument(f"--no-{field.name.replace('_', '-')}", **no)
        elif kind == "bool":
            group.add_argument(flag(field.name), action=argparse.BooleanOptionalAction, **common)
        else:
            group.add_argument(
                flag(field.name), type=listed(read) if lists else typed(read), metavar="N,…" if lists else kind.upper(), **common
            )
    if lengths := operator.length_fields():
        group.add_argument(
            "--seq-len",
            dest="field_seq_len",
            default=argparse.SUPPRESS,
            type=listed(whole) if lists else typed(whole),
            metavar="N,…" if lists else "INT",
            help=f"shorthand for {' = '.join(lengths)}",
        )
    add_aliases(group, names)
    group.add_argument(
        "--variant",
        type=listed(str) if lists else str,
        help=f"{', '.join(operator.variants) or 'none'} (default: the last that suits the problem here)",
    )


def given_fields(options: argparse.Namespace) -> dict[str, Any]:
    """The fields that stand in the command line."""
    return {name.removeprefix("field_"): value for name, value in vars(options).items() if name.startswith("field_")}


def description(operator: type[Operator]) -> str:
    """What the operator computes and what its variants do, in plain English."""
    said = re.sub(r"\s+Raises Error for bad\s+fields\.", "", inspect.cleandoc(operator.__doc__ or ""))
    if issubclass(operator, Scaled):
        said = (
            said.replace("see `scales.Scaled`", "see below") + "\n\n" + inspect.cleandoc(Scaled.__doc__ or "").partition("\n\n")[2]
        )
    lines = [f"{operator.name}: {operator.summary}", "", said]
    if operator.variants:
        lines += ["", "variants, slowest first:"]
    for name, variant in operator.variants.items():
        kinds = "; ".join(f"{backend}: {', '.join(dtypes)}" for backend, dtypes in variant.dtypes.items())
        lines.append(f"  {name} ({kinds}): {variant.summary}")
    return "\n".join(lines)
