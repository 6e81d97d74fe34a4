"""`roofline plot`: pictures by name, each with its data beside it. Names and flags are those of the list in `roofline.plot`."""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..machine.naming import machine_list
from ..reading import is_there
from ..units import parse_bytes, parse_si, parse_time_s
from ..words import nearest, whole
from .exit_codes import OK, BadInput, checking_input
from .fields import typed
from .inputs import output_file, write_outputs
from .terminal import Terminal

GROUPS = {
    "machine": "of a machine: a machine.json, a report's folder, or a datasheet of `roofline hardware`",
    "measured": "of measurements: a results.jsonl, or the folder that it is in",
    "model": "of a model or an operator on machines (--machine)",
}
MACHINES = ("machine", "machines")
# Suffixes of keywords that are units: how their flags are read.
UNITS: dict[str, Callable[[str], Any]] = {
    "_bytes_per_s": lambda text: parse_si(text, "B/s"), "_bytes": parse_bytes, "_s": parse_time_s
}  # fmt: skip
TYPES: dict[str, Callable[[str], Any]] = {"int": whole, "float": float}


def _pictures() -> Any:
    from ..plot import PICTURES

    return PICTURES


def names() -> tuple[str, ...]:
    return tuple(name.replace("_", "-") for name in _pictures())


def description() -> str:
    """The names, one line each."""
    width = max(map(len, names()))
    lines = ["Draw pictures, each as SVG and PNG with its data as CSV. `roofline plot NAME --help` lists the flags of one.", "",
             f"{'roofline plot PATH':<{width + 4}}a machine.json or a report's folder: every picture that it holds"]  # fmt: skip
    for group, about in GROUPS.items():
        lines += ["", f"{about}:"]
        lines += [f"  {name.replace('_', '-'):<{width}}  {p.about}" for name, p in _pictures().items() if p.group == group]
    return "\n".join([*lines, "", 'Example: roofline plot decode-heatmap Llama-3-8B --machine "H100 SXM" -o pictures'])


# -- flags --------------------------------------------------------------------------------------------------------------------


def flag_of(name: str) -> str:
    """The flag of a keyword: its name without its unit."""
    plain = next((name.removesuffix(unit) for unit in UNITS if name.endswith(unit)), name)
    return f"--{plain.replace('_', '-')}"


def _reader(parameter: inspect.Parameter) -> Callable[[str], Any]:
    by_unit = next((read for unit, read in UNITS.items() if parameter.name.endswith(unit)), None)
    return by_unit or TYPES.get(str(parameter.annotation).removesuffix(" | None"), str)


def documented(picture: Any) -> dict[str, str]:
    """What the docstrings of a picture and of the keywords it shares say of each keyword."""
    from ..plot.figure import Assumptions, Look, Steps

    text = "\n".join(inspect.cleandoc(each.__doc__ or "") for each in (Look, Steps, Assumptions, picture))
    joined = re.sub(r"\n {8,}(?=\S)", " ", text)
    return dict(re.findall(r"^    (\w+): (.+)$", joined, re.MULTILINE))


def _parameters(picture: Any) -> list[inspect.Parameter]:
    """Those that a command line can give: words and numbers."""
    found = inspect.signature(picture).parameters.values()
    return [p for p in found if p.name != "ax" and not str(p.annotation).startswith(("Sequence[", "Mapping[str, Mapping"))]


def _positional(picture: Any) -> list[str]:
    """Parameters that words without a flag are for, in order."""
    kinds = [p for p in _parameters(picture) if p.kind is p.POSITIONAL_OR_KEYWORD]
    of_machine = picture.group == "machine"
    return [p.name for p in kinds if of_machine or p.name not in MACHINES]


def add_flags(parser: argparse.ArgumentParser, picture: Any) -> None:
    """The flags of one picture, from its signature."""
    about, group = documented(picture), parser.add_argument_group("of this picture")
    for p in _parameters(picture):
        if p.name in MACHINES or flag_of(p.name) in parser._option_string_actions:
            continue
        said, refusing = about.get(p.name, "").replace("%", "%%"), f"--no-{p.name.replace('_', '-')}"
        if p.annotation == "bool":
            if refusing not in parser._option_string_actions:
                group.add_argument(refusing, dest=f"of_{p.name}", action="store_const", const=False, help=said)
            continue
        default = f" (default {p.default})" if isinstance(p.default, (int, float, str)) and "default" not in said else ""
        group.add_argument(
            flag_of(p.name), dest=f"of_{p.name}", type=typed(_reader(p)), metavar=p.name.upper(), help=said + default
        )


def flags(parser: argparse.ArgumentParser, name: str | None = None) -> None:
    """The flags that pictures share, and those of the picture `name`. "" stands for a path; None adds the flags of all pictures."""
    parser.description = description()
    parser.add_argument("what", metavar="NAME|PATH", help="a picture's name, or a machine.json, or the folder of a report")
    parser.add_argument("subject", metavar="WHAT", nargs="*", help="its subject: a model, an operator, a machine, results")
    parser.add_argument("--machine", metavar="FILE|NAME", action="append", default=[],
                        help="a machine.json, or a datasheet of `roofline hardware`; several with commas")  # fmt: skip
    parser.add_argument("--device", help="which machine of a file")
    parser.add_argument(
        "-o", "--out", metavar="DIR|FILE", help="a folder, or a .svg, .png or .csv file (default: here, or beside PATH)"
    )
    if name is None:
        for each in _pictures().values():
            add_flags(parser, each)
    elif (picture := _pictures().get(name.replace("-", "_"))) is not None:
        add_flags(parser, picture)
        parser.description = inspect.cleandoc(picture.__doc__ or "").partition("\n\nArgs:")[0]
    else:
        for shared in ("title", "theme", "results", "dtype"):
            said = documented(_pictures()["roofline"])[shared]
            parser.add_argument(f"--{shared}", dest=f"of_{shared}", metavar=shared.upper(), help=said)


def named_in(arguments: Sequence[str]) -> str:
    """The picture that a command line asks for, "" where it is none."""
    known = set(names())
    return next((word for word in arguments if word in known), "")


# -- the command --------------------------------------------------------------------------------------------------------------


def plot(options: argparse.Namespace) -> int:
    """Draw what NAME|PATH asks for. Raises BadInput for a name that does not exist."""
    name = options.what
    if name in names():
        return _named(options, name.replace("-", "_"))
    path = Path(name)
    if os.path.exists(name) or path.suffix or "/" in name:
        if options.subject:
            raise BadInput(f"{options.subject[0]}: a path takes no second argument; put a picture's name first")
        return _held(options, path)
    raise BadInput(f"there is no picture {name!r:.60}{suggestion(name)}, and no such file; `roofline plot --help` lists them")


def suggestion(name: str) -> str:
    wanted = name.lower().replace("_", "-")
    close = nearest(wanted, names()) or [each for each in names() if any(part and part in each for part in wanted.split("-"))][:3]
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def _given(options: argparse.Namespace) -> dict[str, Any]:
    return {key.removeprefix("of_"): value for key, value in vars(options).items() if key.startswith("of_") and value is not None}


def _machines(options: argparse.Namespace) -> list[Any]:
    from ..machine import machine_of

    return [machine_of(each, options.device) for given in options.machine for each in machine_list(given)]


def _named(options: argparse.Namespace, name: str) -> int:
    picture = _pictures()[name]
    shown = name.replace("_", "-")
    signature, given = inspect.signature(picture).parameters, _given(options)
    with checking_input():
        machines = _machines(options)
        many = "machines" in signature
        takes = next((each for each in MACHINES if each in signature), None)
        subjects = [each for each in _positional(picture) if each not in given and not (machines and each in MACHINES)]
        if len(options.subject) > len(subjects):
            what = (
                f"one machine: a path, or --machine once; {shown} got"
                if picture.group == "machine" and machines
                else "fewer words:"
            )
            raise BadInput(f"give {what} {' '.join(options.subject)!r:.80}")
        given |= dict(zip(subjects, options.subject, strict=False))
        if machines and takes is None:
            raise BadInput(f"{shown} takes no --machine")
        if len(machines) > 1 and not many:
            raise BadInput(f"{shown} takes one --machine, got {len(machines)}")
        if machines and takes:
            given[takes] = machines if many else machines[0]
        missing = [p.name for p in signature.values() if p.default is p.empty and p.name not in given]
        if missing:
            flag = {"machine": "--machine (a machine.json, or a datasheet such as 'H100 SXM')"}.get(
                missing[0].removesuffix("s"), ""
            )
            raise BadInput(f"{shown} needs {flag or f'{missing[0].upper()}: {documented(picture).get(missing[0], missing[0])}'}")
        folder = _beside(picture, given)
        if options.json:
            from ..plot.figure import joined

            Terminal().json(joined(picture.panels(**_without(given, "title", "theme"))))
            return OK
        return _write(options, folder, lambda suffixes: _drawn(picture, suffixes, **given))


def _beside(picture: Any, given: dict[str, Any]) -> Path:
    """The folder of a machine file or report, whose results are drawn too where they are not named; else the one that we are in."""
    words = (v for k, v in given.items() if k in (*MACHINES, "results", "a") and isinstance(v, str))
    path = next((Path(v) for v in words if is_there(v, "machine.json", "results.jsonl")), None)
    if path is None:
        return Path()
    folder = path if path.is_dir() else path.parent
    if picture.__name__ == "roofline" and path.is_dir() and (folder / "results.jsonl").exists():
        given.setdefault("results", str(folder))
    return folder


def _without(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


def _held(options: argparse.Namespace, path: Path) -> int:
    """Every picture that a machine file or a report's folder holds something for."""
    from ..machine import Machine
    from ..plot import held_pictures

    with checking_input():
        if options.machine:
            raise BadInput("give one machine: a path, or --machine once")
        machine = Machine.load(path, options.device)
        given = _given(options)
        folder = path if path.is_dir() else path.parent
        if path.is_dir() and (folder / "results.jsonl").exists():
            given.setdefault("results", str(folder))
        held = held_pictures(machine) or ["roofline"]
        own = {name: given if name == "roofline" else {k: v for k, v in given.items() if k in ("title", "theme")} for name in held}
        if options.json:
            Terminal().json(_pictures()[held[0]].data(machine, **_without(own[held[0]], "title", "theme")))
            return OK
        if options.out and Path(options.out).suffix and not Path(options.out).is_dir():
            held = held[:1]

        def drawn(suffixes: Iterable[str]) -> dict[str, bytes]:
            each = (_drawn(_pictures()[name], suffixes, machine, **own[name]) for name in held)
            return {file: content for files in each for file, content in files.items()}

        return _write(options, folder, drawn)


def _drawn(picture: Any, suffixes: Iterable[str], *args: Any, **given: Any) -> dict[str, bytes]:
    """What the files of a picture hold, by their names; other files are not drawn."""
    from ..plot.figure import contents_of

    made = contents_of(picture.panels(*args, **given), suffixes, title=given.get("title"), theme=given.get("theme"))
    return {f"{picture.__name__}{suffix}": content for suffix, content in made.items()}


def _write(options: argparse.Namespace, folder: Path, drawn: Callable[[Iterable[str]], Mapping[str, bytes]]) -> int:
    """Write the pictures into the folder that is asked for, or of its files the one that is."""
    from ..plot.figure import SUFFIXES
    from ..report.files import require_folder

    out = Path(options.out) if options.out else folder
    inputs = (*options.machine, *options.subject, *(v for v in _given(options).values() if isinstance(v, str)))
    single = bool(out.suffix) and not out.is_dir()
    if single:
        if out.suffix not in SUFFIXES:
            raise BadInput(f"{out}: cannot write a {out.suffix} file; use {', '.join(sorted(SUFFIXES))}, or a folder")
        output_file(str(out), SUFFIXES, *inputs)
    else:
        require_folder(out)
    made = drawn((out.suffix,) if single else SUFFIXES)
    contents = {out if single else out / name: content for name, content in made.items()}
    write_outputs(contents, options)
    if not options.quiet:
        Terminal().lines(f"wrote {file}" for file in contents)
    return OK
