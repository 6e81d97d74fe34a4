"""Commands that measure: ceilings, one problem, a sweep, a whole report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..machine import Machine
from ..operators import operator_named
from ..words import counted
from .exit_codes import FAILED, OK, BadInput, Interrupted, checking_input
from .fields import given_fields
from .inputs import BY_STATUS, asked_problem, attempted, device_of, machine_for, policy_of, results_file
from .terminal import Terminal, progress_option


def measure(options: argparse.Namespace) -> int:
    from ..ceilings import FAILURE, STANDARD, machines_in, measure_machine, side_file
    from ..machine import require_file
    from ..report.tables import ceiling_table, sanity_lines

    device, screen = device_of(options), Terminal(wide=options.wide)
    if options.describe:
        from .describe import describe_ceilings

        depth = "quick" if options.quick else "thorough" if options.thorough else "standard"
        screen.lines(describe_ceilings(device, depth))
        return OK
    with checking_input():
        out = require_file(options.out)
        machines_in(out, force=options.force)
    try:
        machine = measure_machine(
            device, quick=options.quick, thorough=options.thorough, policy=policy_of(options, STANDARD),
            progress=progress_option(options.quiet, options.json), out=out, force=options.force,
        )  # fmt: skip
    except KeyboardInterrupt:
        side = side_file(out)
        kept = len(Machine.load(side).ceilings) if side.is_file() else 0
        where = f"{kept} ceilings are in {side}; the same command goes on with them" if kept else "no ceiling is finished"
        raise Interrupted(where + (f", and {out} is as it was" if out.is_file() else "")) from None
    if options.json:
        screen.json(machine.to_dict())
    elif not options.quiet:
        screen.show(ceiling_table(machine), title=f"{machine.name}, {machine.device}")
        screen.line()
        screen.notes("left out:", [f"{name}: {reason}" for name, reason in machine.provenance["left_out"].items()])
        screen.notes("notes:", sanity_lines(machine))
        screen.line(f"saved in {out}")
    failed = any(reason.startswith(FAILURE) for reason in machine.provenance["left_out"].values())
    return FAILED if failed else OK


def run(options: argparse.Namespace) -> int:
    from ..results import append_to, begun, faster_variant

    screen = Terminal(wide=options.wide)
    problem = asked_problem(options, screen)
    if problem is None:
        return OK
    if options.once and (options.out or options.json):
        raise BadInput("--once measures nothing that -o or --json could hold: leave them out")
    out = results_file(options.out, options.machine)
    device = device_of(options)
    machine = machine_for(options, device)
    if options.once:
        return _once(device, problem, options.variant, options.seed, screen)
    measured = attempted(options, problem, device, machine)
    beside = [] if out is None else begun(out)
    if out is not None:
        append_to(out, measured)
    if options.json:
        screen.json(measured.to_dict())
    elif not (options.quiet and out):
        title, _, rows, _ = measured._table()
        screen.table(("", title), rows, wide=(title,))
        faster = None if options.variant else faster_variant(measured, machine, beside)
        if faster is not None:
            said = f"the default variant {measured.variant} is slower here: {faster.change} is {faster.gain:.2f}× as fast"
            screen.lines([f"note: {said}, {faster.detail}; --{faster.change}"])
    return BY_STATUS.get(measured.status, OK)


def _once(device: Any, problem: Any, variant: str | None, seed: int, screen: Terminal) -> int:
    from ..measurement.preparing import prepare

    prepared = prepare(device, problem, variant, "warm", seed)
    prepared.sets[0].run(profiled=True)
    screen.line(f"{problem.name} {prepared.variant} was launched once on {device.name}; nothing was timed or checked")
    return OK


def sweep(options: argparse.Namespace) -> int:
    from ..measurement import Policy
    from ..report.tables import compact_table, reasons
    from ..sweeps import measure_points, points

    cls, screen = operator_named(options.operator), Terminal(wide=options.wide)
    axes = given_fields(options)
    with checking_input():
        for name in options.variant or ():
            cls.require_variant(name)
    out = None if options.describe else results_file(options.out, options.machine)
    device = device_of(options)
    machine = machine_for(options, device)
    with checking_input():
        # The first value of each axis need not suit the operator's other defaults: fields of one problem are set together.
        start = cls.make(**{name: values[0] for name, values in axes.items()})
        todo = points(start, options.variant, device, axes, machine)
    if options.describe:
        from .describe import describe_memory, describe_problem, describe_time

        memory = describe_memory(device, [problem for problem, _ in todo], options.cache_state)
        time = describe_time(todo, policy_of(options, Policy()), machine)
        screen.lines([*describe_problem(start, "the first problem"), "", memory, time])
        return OK
    try:
        results = measure_points(
            todo, cache_state=options.cache_state, seed=options.seed, policy=policy_of(options, Policy()), out=out,
            progress=progress_option(options.quiet, options.json),
        )  # fmt: skip
    except KeyboardInterrupt:
        raise Interrupted(_kept(out, len(todo))) from None
    if options.json:
        for m in results:
            screen.json(m.to_dict())
    elif not (options.quiet and out):
        screen.show(compact_table(results, sort=False))
        screen.line()
        screen.notes("not ok:", reasons(results))
    codes = {BY_STATUS.get(m.status, OK) for m in results}
    failed = any(m.status == "failed" for m in results)
    return FAILED if failed else codes.pop() if len(codes) == 1 else OK


def _kept(out: Path | None, total: int | None = None) -> str:
    """What an interruption leaves behind, in one line."""
    from ..results import Results

    if out is None:
        return "nothing was kept (with -o FILE every finished point is)"
    done = len(Results.load(out)) if out.is_file() else 0
    if not done:
        return "no point is finished"
    count = counted(done, "finished point") + (f" of {total}" if total is not None and done <= total else "")
    return f"{count} in {out}"


def report(options: argparse.Namespace) -> int:
    from ..ceilings.measuring import POLICIES
    from ..machine.output import require_apart
    from ..measurement.policy import REPORT
    from ..report import report as measured
    from ..report.files import DEFAULT, NAMES, RESULTS, UNFINISHED, begin

    screen = Terminal(wide=options.wide)
    if options.source is not None:
        return _reported(options, screen)
    if options.sweeps:
        raise BadInput("--sweep takes saved results: give --from DIR too")
    device = device_of(options)
    machine = machine_for(options, device)
    if options.describe:
        from .describe import describe_ceilings, describe_operators, describe_points

        # The default report measures the main ceilings only, as with --quick.
        ceilings = describe_ceilings(device, "thorough" if options.thorough else "quick")
        points = describe_points(device, machine, quick=options.quick, thorough=options.thorough)
        screen.lines([*ceilings, "", *points, "", *describe_operators()])
        return OK
    with checking_input():
        out = Path(options.out or DEFAULT)
        for file in (folder / name for folder in (out, out / UNFINISHED) for name in NAMES):
            require_apart(file, (options.machine,))
        folder = begin(out, thorough=options.thorough, force=options.force)
    try:
        made = measured(
            folder, device=device, quick=options.quick, thorough=options.thorough, machine=machine, plot=options.plot,
            html=options.html, progress=progress_option(options.quiet, options.json), time_limit_s=options.time_limit,
            seed=options.seed, policy=policy_of(options, REPORT), ceilings_policy=policy_of(options, POLICIES["report"]),
            force=options.force,
        )  # fmt: skip
    except KeyboardInterrupt:
        work = folder / UNFINISHED
        kept = _kept(work / RESULTS)
        if (work / "machine.json").exists():
            kept += f"; `roofline report --from {work}` reports what was measured"
        raise Interrupted(kept) from None
    if options.json:
        screen.json({"machine": made.machine.to_dict(), "results": [m.to_dict() for m in made.results]})
    elif not options.quiet:
        _show_report(made, screen)
    statuses = {m.status for m in made.results}
    return FAILED if "failed" in statuses else OK


def _reported(options: argparse.Namespace, screen: Terminal) -> int:
    """The report of saved measurements."""
    from ..report.files import PAGE, PICTURES, TABLE, TEXT, load, render, require_folder, require_ours
    from ..report.page import require_packages
    from ..results import Results

    with checking_input():
        machine, results = load(options.source)
        if options.html:
            require_packages()
        elif options.sweeps:
            raise BadInput("--sweep adds to the HTML report: give --html too")
        sweeps = [m for file in options.sweeps for m in Results.load(file)]
        out = require_folder(options.out or options.source)
        written = (TEXT, TABLE, *([PAGE] if options.html else []), *(PICTURES if options.plot else ()))
        require_ours(out, written, force=options.force)
    files = render(machine, results, out, plot=options.plot, html=options.html, also=sweeps, force=options.force)
    if not options.quiet:
        screen.lines(f"wrote {file}" for file in files)
    return OK


def _show_report(made: Any, screen: Terminal) -> None:
    from ..report.markdown import end_check_lines, left_out_counts, prediction_lines
    from ..report.tables import ceiling_table, compact_table, reasons, sanity_lines, slower_defaults

    screen.show(ceiling_table(made.machine), title=f"Ceilings of {made.machine.name}, {made.machine.device}")
    screen.line()
    screen.show(compact_table(made.results), title="Operators")
    screen.line()
    screen.notes("not ok:", reasons(made.results))
    screen.notes("defaults that are not the fastest:", slower_defaults(made.machine, made.results))
    screen.notes("prediction:", prediction_lines(made.results)[:1])
    screen.notes("roofs at the end:", end_check_lines(made.machine))
    screen.notes("notes:", sanity_lines(made.machine))
    screen.notes("left out (report.md names each):", left_out_counts(made.machine))
    screen.line(f"files in {made.out}: {', '.join(file.name for file in made.files)}")
