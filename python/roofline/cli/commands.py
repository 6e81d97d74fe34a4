"""What each subcommand does with its options."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import Any

from ..errors import Error, Unsupported
from .fields import given_fields, known_variant, problem_of
from .outcomes import FAILED, MISSING, OK, BadInput, Interrupted, checking_input
from .terminal import Terminal, progress_option

_BY_STATUS = {"unsupported": MISSING, "out_of_memory": FAILED, "failed": FAILED}


def _backend() -> None:
    """Raises Unsupported where the compiled module does not load: a missing backend, not bad input."""
    from ..measurement.devices import core

    try:
        core()
    except Error as error:
        raise Unsupported(str(error)) from error


def _policy(options: argparse.Namespace, usual: Any) -> Any:
    """The sampling rules that the flags ask for, from `usual`."""
    from ..measurement.timing import QUICK, THOROUGH

    rules = QUICK if options.quick else THOROUGH if options.thorough else usual
    changes: dict[str, Any] = {}
    if options.min_samples is not None:
        changes["min_samples"] = options.min_samples
    if options.max_noise is not None:
        changes["noise"] = options.max_noise
    if options.timeout is not None:
        limit = options.timeout
        changes |= {"max_s": limit, "min_s": min(rules.min_s, limit)}
        changes |= {"warmup_min_s": min(rules.warmup_min_s, limit), "warmup_max_s": min(rules.warmup_max_s, limit)}
    return dataclasses.replace(rules, **changes)


def _device(options: argparse.Namespace) -> Any:
    from ..measurement import open_device

    _backend()
    with checking_input():
        return open_device(options.device, options.threads)


def _machine(path: str | None, device: str | None) -> Any:
    from ..machine import Machine

    if path is None:
        return None
    with checking_input():
        return Machine.load(Path(path) / "machine.json" if os.path.isdir(path) else path, device)


def _operator(options: argparse.Namespace) -> Any:
    from ..operators import operator_named

    return operator_named(options.operator)


def _results_file(path: str | None) -> Path | None:
    """A results file that can be appended to: absent, empty, or with results in it. Raises BadInput before anything is measured."""
    from ..report.files import require_file
    from ..results import Results

    if path is None:
        return None
    with checking_input():
        file = require_file(path)
        if file.is_file() and file.stat().st_size:
            Results.load(file)
    return file


def version(as_json: bool) -> int:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        found = installed("roofline")
    except PackageNotFoundError:
        from ..measurement import build_info

        _backend()
        found = str(build_info()["version"])
    screen = Terminal()
    screen.json({"roofline": found}) if as_json else screen.line(f"roofline {found}")
    return OK


def devices(as_json: bool) -> int:
    from ..measurement import list_devices

    _backend()
    found, screen = list_devices(), Terminal()
    if as_json:
        screen.json(found)
    else:
        rows = [(d["name"], "missing" if d["missing"] else "ok", d["missing"] or d["summary"]) for d in found]
        screen.table(("device", "state", "what it is"), rows, wide=("what it is",))
    return OK


# -- measuring ------------------------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> int:
    from ..ceilings import measure_machine
    from ..measurement import Policy
    from ..report.files import require_file
    from ..report.tables import ceiling_table, sanity_lines

    device, screen = _device(options), Terminal()
    if options.describe:
        from .describe import describe_ceilings

        screen.lines(describe_ceilings(device, options.quick))
        return OK
    with checking_input():
        out = require_file(options.out)
    rules = _policy(options, Policy(warmup_min_s=0.1, min_s=0.3, max_s=2.0))
    machine = measure_machine(
        device, quick=options.quick, thorough=options.thorough, policy=rules, progress=progress_option(options.quiet, options.json)
    )
    machine.save(out)
    if options.json:
        screen.json(machine.to_dict())
    elif not options.quiet:
        shown = ceiling_table(machine)
        screen.table(shown.headers, shown.rows, title=f"{machine.name}, {machine.device}", wide=shown.wide)
        screen.line()
        screen.notes("left out:", [f"{name}: {reason}" for name, reason in machine.provenance["left_out"].items()])
        screen.notes("notes:", sanity_lines(machine))
        screen.line(f"saved in {out}")
    return OK


def run(options: argparse.Namespace) -> int:
    from ..measurement import Policy, attempt
    from ..results import append_to

    cls, screen = _operator(options), Terminal()
    with checking_input():
        problem = problem_of(cls, options)
        known_variant(cls, options.variant)
    if options.describe:
        from .describe import describe_problem

        screen.lines(describe_problem(problem))
        return OK
    machine = _machine(options.machine, options.device)
    out = _results_file(options.out)
    device = _device(options)
    if options.once:
        return _once(device, problem, options.variant, options.seed, screen)
    measured = attempt(
        problem, variant=options.variant, device=device, machine=machine, cache_state=options.cache_state, seed=options.seed,
        policy=_policy(options, Policy()),
    )  # fmt: skip
    if out is not None:
        append_to(out, measured)
    if options.json:
        screen.json(measured.to_dict())
    elif not (options.quiet and out):
        title, _, rows = measured._table()
        screen.table(("", title), rows, wide=(title,))
    return _BY_STATUS.get(measured.status, OK)


def _once(device: Any, problem: Any, variant: str | None, seed: int, screen: Terminal) -> int:
    from ..measurement.timing import prepare

    prepared = prepare(device, problem, variant, "warm", seed)
    prepared.sets[0].run()
    screen.line(f"{problem.name} {prepared.variant} was launched once on {device.name}; nothing was timed or checked")
    return OK


def sweep(options: argparse.Namespace) -> int:
    from ..measurement import Policy
    from ..sweeps import points
    from ..sweeps import sweep as swept

    cls, screen = _operator(options), Terminal()
    axes = given_fields(options)
    for name in options.variant or ():
        known_variant(cls, name)
    if options.describe:
        from .describe import describe_problem

        with checking_input():
            first = {name: values[0] for name, values in axes.items()}
            screen.lines(describe_problem(cls.make(**first)))
        return OK
    machine = _machine(options.machine, options.device)
    out = _results_file(options.out)
    device = _device(options)
    with checking_input():
        # The first value of each axis need not suit the operator's other defaults: fields of one problem are set together.
        start = cls.make(**{name: values[0] for name, values in axes.items()})
        total = len(points(start, options.variant, device, axes))
    try:
        results = swept(
            start, variant=options.variant, device=device, machine=machine, cache_state=options.cache_state, seed=options.seed,
            policy=_policy(options, Policy()), out=out, progress=progress_option(options.quiet, options.json), **axes,
        )  # fmt: skip
    except KeyboardInterrupt:
        raise Interrupted(_kept(out, total)) from None
    _show_sweep(results, screen, options.json, options.quiet and out is not None)
    codes = {_BY_STATUS.get(m.status, OK) for m in results}
    failed = any(m.status == "failed" for m in results)
    return FAILED if failed else codes.pop() if len(codes) == 1 else OK


def _show_sweep(results: Any, screen: Terminal, as_json: bool, silent: bool) -> None:
    from ..report.tables import compact_table, reasons

    if as_json:
        for m in results:
            screen.json(m.to_dict())
    elif not silent:
        shown = compact_table(results, sort=False)
        screen.table(shown.headers, shown.rows, wide=shown.wide)
        screen.line()
        screen.notes("not ok:", reasons(results))


def _kept(out: Path | None, total: int | None = None) -> str:
    """What an interruption leaves behind, in one line."""
    from ..results import Results

    if out is None:
        return "nothing was kept (with -o FILE every finished point is)"
    done = len(Results.load(out)) if out.is_file() else 0
    count = f"{done} finished point{'s' * (done != 1)}" + (f" of {total}" if total is not None and done <= total else "")
    return f"{count} in {out}"


def report(options: argparse.Namespace) -> int:
    from ..measurement.timing import REPORT
    from ..report import report as measured
    from ..report.files import begin, load, render

    screen = Terminal()
    if options.source is not None:
        with checking_input():
            machine, results = load(options.source)
            out = Path(options.source if options.out == "./roofline-report" else options.out)
        files = render(machine, results, out, plot=options.plot)
        if not options.quiet:
            screen.lines(f"wrote {file}" for file in files)
        return OK
    device = _device(options)
    if options.describe:
        from .describe import describe_ceilings, describe_operators

        screen.lines([*describe_ceilings(device, options.quick), "", *describe_operators()])
        return OK
    machine = _machine(options.machine, device.name)
    with checking_input():
        folder = begin(options.out)
    try:
        made = measured(
            folder, device=device, quick=options.quick, thorough=options.thorough, machine=machine, plot=options.plot,
            progress=progress_option(options.quiet, options.json), time_limit_s=options.time_limit, seed=options.seed,
            policy=_policy(options, REPORT),
        )  # fmt: skip
    except KeyboardInterrupt:
        raise Interrupted(_kept(folder / "results.jsonl") + "; the ceilings are in machine.json once all were measured") from None
    if options.json:
        screen.json({"machine": made.machine.to_dict(), "results": [m.to_dict() for m in made.results]})
    elif not options.quiet:
        _show_report(made, screen)
    statuses = {m.status for m in made.results}
    return FAILED if "failed" in statuses else OK


def _show_report(made: Any, screen: Terminal) -> None:
    from ..report.markdown import end_check_lines, prediction_lines
    from ..report.tables import ceiling_table, compact_table, reasons, sanity_lines

    shown = ceiling_table(made.machine)
    screen.table(shown.headers, shown.rows, title=f"Ceilings of {made.machine.name}, {made.machine.device}", wide=shown.wide)
    screen.line()
    shown = compact_table(made.results)
    screen.table(shown.headers, shown.rows, title="Operators", wide=shown.wide)
    screen.line()
    screen.notes("not ok:", reasons(made.results))
    screen.notes("prediction:", prediction_lines(made.results)[:1])
    screen.notes("roofs at the end:", end_check_lines(made.machine))
    screen.notes("notes:", sanity_lines(made.machine))
    screen.notes("left out:", made.left_out)
    screen.line(f"files in {made.out}: {', '.join(file.name for file in made.files)}")


# -- looking at what was measured -----------------------------------------------------------------------------------------


def plot(options: argparse.Namespace) -> int:
    from ..plot import roofline_data, save
    from ..report.files import PICTURES, require_file, require_folder
    from ..results import Results

    given = Path(options.machine_file)
    folder = given if given.is_dir() else given.parent
    machine = _machine(options.machine_file, options.device)
    with checking_input():
        usual = folder / "results.jsonl"
        source = options.results or (usual if given.is_dir() and usual.exists() else None)
        results = Results.load(source) if source is not None else Results()
    if options.json:
        Terminal().json(roofline_data(machine, results, dtype=options.dtype))
        return OK
    out = Path(options.out) if options.out else folder
    suffixes = {Path(name).suffix for name in PICTURES}
    if out.suffix and not out.is_dir():
        if out.suffix not in suffixes:
            raise BadInput(f"{out}: cannot write a {out.suffix} file; use {', '.join(sorted(suffixes))}, or a folder")
        with checking_input():
            require_file(out)
        _one_picture(machine, results, out, options.dtype)
        files: tuple[Path, ...] = (out,)
    else:
        with checking_input():
            require_folder(out)
        files = save(machine, results, out, dtype=options.dtype)
    if not options.quiet:
        Terminal().lines(f"wrote {file}" for file in files)
    return OK


def _one_picture(machine: Any, results: Any, out: Path, dtype: str | None) -> None:
    import tempfile

    from ..machine import write_atomically
    from ..plot import save

    with tempfile.TemporaryDirectory() as temporary:
        for file in save(machine, results, temporary, dtype=dtype):
            if file.suffix == out.suffix:
                write_atomically(out, file.read_bytes())


def explain(options: argparse.Namespace) -> int:
    from ..measurement import Policy, attempt
    from ..report import explain as explained

    screen = Terminal()
    if hasattr(options, "operator"):
        cls = _operator(options)
        with checking_input():
            problem = problem_of(cls, options)
            known_variant(cls, options.variant)
        if options.describe:
            from .describe import describe_problem

            screen.lines(describe_problem(problem))
            return OK
        machine = _machine(options.machine, options.device)
        measured = attempt(
            problem, variant=options.variant, device=_device(options), machine=machine, cache_state=options.cache_state, seed=options.seed,
            policy=_policy(options, Policy()),
        )  # fmt: skip
    else:
        found = _saved_point(options, screen)
        if found is None:
            return OK
        measured, machine = found
    explanation = explained(measured, machine)
    if options.json:
        screen.json(explanation.to_dict())
        return OK
    screen.line(explanation.title)
    for section in explanation.sections:
        screen.line()
        if section.table is not None:
            screen.table(section.table.headers, section.table.rows, title=section.title, wide=section.table.wide)
        else:
            screen.line(section.title)
        screen.lines(section.lines)
    return _BY_STATUS.get(measured.status, OK) if hasattr(options, "operator") else OK


def _saved_point(options: argparse.Namespace, screen: Terminal) -> tuple[Any, Any] | None:
    """The measurement and the machine that the user names; None where only the list of points was asked for."""
    from ..operators import OPERATORS
    from ..report.tables import brief_problem
    from ..results import Results

    path = Path(options.file)
    if not path.exists():
        raise BadInput(f"{options.file} is neither a file nor an operator ({', '.join(OPERATORS)})")
    file = path / "results.jsonl" if path.is_dir() else path
    beside = file.parent / "machine.json"
    with checking_input():
        results = Results.load(file)
        machine = _machine(options.machine or (str(beside) if path.is_dir() and beside.exists() else None), None)
        if not results:
            raise BadInput(f"{file} holds no results")
        if options.point is None and len(results) > 1:
            rows = [(str(i), m.operator, m.variant, brief_problem(m), m.cache_state, m.status, m.key[:12]) for i, m in enumerate(results, start=1)]
            if options.json:
                screen.json([{"point": int(row[0]), "key": m.key, "operator": row[1]} for row, m in zip(rows, results, strict=True)])
            else:
                screen.table(("point", "operator", "variant", "problem", "cache", "status", "key"), rows, wide=("problem",))
                screen.line(f"roofline explain {options.file} POINT explains one of them")
            return None
        wanted = options.point or "1"
        if wanted.isdigit() and 1 <= int(wanted) <= len(results):
            return results[int(wanted) - 1], machine
        matching = [m for m in results if m.key.startswith(wanted)]
        if not matching:
            raise BadInput(f"{file} has no point {wanted!r}: give a number from 1 to {len(results)}, or the beginning of a key")
        return matching[-1], machine


def doctor(options: argparse.Namespace) -> int:
    from ..doctor import MISSING as ABSENT
    from ..doctor import REQUIRED
    from ..doctor import doctor as looked

    checks, screen = looked(), Terminal()
    if options.json:
        screen.json([check.to_dict() for check in checks])
    else:
        screen.table(("what", "state", "detail"), [(c.name, c.state, c.detail) for c in checks], wide=("detail",))
        screen.line()
        screen.notes("cures:", [f"{c.name}: {c.cure}" for c in checks if c.cure and c.state != OK])
    needed = {"compiled module", *REQUIRED}
    return MISSING if any(c.name in needed and c.state == ABSENT for c in checks) else OK
