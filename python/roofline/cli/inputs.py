"""What the options of a command stand for: devices, machines, sampling rules, files."""

from __future__ import annotations

import argparse
import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import Error, Unsupported
from ..operators import Operator, operator_named
from .exit_codes import FAILED, MISSING, BadInput, checking_input
from .fields import given_fields
from .terminal import Terminal

MODEL = ("cpu_name", "cpu_family", "cpu_model", "gpu_name")  # facts that tell a processor from another
# Exit codes of one measurement; every other status is a result.
BY_STATUS = {"unsupported": MISSING, "out_of_memory": FAILED, "failed": FAILED}


def backend() -> None:
    """Raises Unsupported where the compiled module does not load: a missing backend, not bad input."""
    from ..measurement.devices import core

    try:
        core()
    except Error as error:
        raise Unsupported(str(error)) from error


def policy_of(options: argparse.Namespace, usual: Any) -> Any:
    """The sampling rules that the flags ask for, from `usual`."""
    from ..measurement.policy import QUICK, THOROUGH

    rules = QUICK if options.quick else THOROUGH if options.thorough else usual
    changes: dict[str, Any] = {}
    if options.min_samples is not None:
        changes["min_samples"] = options.min_samples
    if options.max_noise is not None:
        changes["noise"] = options.max_noise
    if options.timeout is not None:
        limit = options.timeout
        changes |= {"limit_s": max(rules.limit_s, (rules.tries + 1) * limit), "max_s": limit, "min_s": min(rules.min_s, limit)}
        changes |= {"warmup_min_s": min(rules.warmup_min_s, limit), "warmup_max_s": min(rules.warmup_max_s, limit)}
    return dataclasses.replace(rules, **changes)


def attempted(options: argparse.Namespace, problem: Any, device: Any, machine: Any) -> Any:
    """The measurement of one problem, as the flags say."""
    from ..measurement import Policy, attempt

    how = {"cache_state": options.cache_state, "seed": options.seed, "policy": policy_of(options, Policy())}
    return attempt(problem, variant=options.variant, device=device, machine=machine, **how)


def device_of(options: argparse.Namespace) -> Any:
    from ..measurement import open_device

    backend()
    with checking_input():
        device = open_device(options.device, options.threads)
        if options.arena:
            device.limit_arena(options.arena)
        return device


def machine_of(path: str | None, device: str | None) -> Any:
    from ..machine import Machine

    if path is None:
        return None
    with checking_input():
        return Machine.load(path, device)


def machine_for(options: argparse.Namespace, device: Any) -> Any:
    """The machine that predicts what `device` will measure. Warns where it was measured on another model of processor."""
    machine = machine_of(options.machine, device.name)
    if machine is not None and machine.device != device.name:
        said = f"--machine {options.machine}: {machine.name} is {machine.device}, and {device.name} is measured"
        raise BadInput(f"{said}: give a machine file of {device.name}, as `roofline measure` writes it")
    stated = {} if machine is None else {name: machine.facts.get(name) for name in MODEL}
    if any(value not in (None, device.facts.get(name)) for name, value in stated.items()):
        other = ", ".join(f"{name} {value}" for name, value in stated.items() if value is not None)
        own = ", ".join(f"{name} {device.facts[name]}" for name in stated if device.facts.get(name) is not None)
        warnings.warn(f"{options.machine} was measured elsewhere ({other}; here {own}): it predicts that machine", stacklevel=2)
    return machine


def asked_problem(options: argparse.Namespace, screen: Terminal) -> Operator | None:
    """The problem in the command line; None where only its description was asked for, which is printed."""
    with checking_input():
        problem = operator_named(options.operator).make(**given_fields(options))
        if options.variant is not None:
            problem.require_variant(options.variant)
    if not options.describe:
        return problem
    from .describe import describe_memory, describe_problem

    machine_of(options.machine, options.device)  # a file that is no machine's is said now too
    screen.lines(describe_problem(problem))
    with suppress(Error):  # where nothing can be measured the rest is still true
        screen.lines([describe_memory(device_of(options), [problem], options.cache_state)])
    return None


def results_file(path: str | None, *apart_from: str | None) -> Path | None:
    """A results file that can be appended to: absent, empty, or with results in it. Raises BadInput before anything is measured."""
    from ..machine import require_file
    from ..results import begun

    if path is None:
        return None
    with checking_input():
        file = require_file(path, apart_from=apart_from)
        begun(file)
        if file.suffix in (".csv", ".md", ".html", ".xlsx", ".parquet"):
            said = f"{file}: results are JSON Lines: name the file results.jsonl"
            raise BadInput(f"{said}; Results.to_csv and Results.to_pandas make tables of it")
    return file


def output_file(path: str | None, suffixes: Sequence[str], *apart_from: str | os.PathLike[str] | None) -> Path | None:
    """A file to be written, of one of these suffixes. Raises BadInput where that cannot be."""
    from ..machine import require_file

    if path is None:
        return None
    with checking_input():
        if Path(path).suffix not in suffixes:
            raise BadInput(f"{path}: cannot write a {Path(path).suffix or 'nameless'} file; use {', '.join(suffixes)}")
        return require_file(path, apart_from=apart_from)


def document(made: Any, out: Path, command: str, markdown: Callable[[], str]) -> str:
    """What a command made, as a file of this suffix."""
    from ..machine import marked, to_json
    from ..results import records_to_csv

    if out.suffix == ".json":
        return to_json(made.to_dict(), where=str(out), indent=1) + "\n"
    return records_to_csv(made.to_records()) if out.suffix == ".csv" else marked(markdown(), command)


def write_outputs(contents: Mapping[Path, str | bytes], options: argparse.Namespace) -> None:
    """Write files. Raises BadInput, and writes none, where one is there that the command did not write (unless --force)."""
    from ..machine import require_replaceable
    from ..machine.manifest import replace_all

    with checking_input():
        for path, content in contents.items():
            require_replaceable(path, content, force=options.force)
    replace_all(contents, force=True)
