"""Commands that show the installation and its measurements: devices, completion, doctor, explain."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from ..units import GIGA, fmt_number, fmt_percent
from ..words import counted, hint
from .exit_codes import MISSING, OK, BadInput, checking_input
from .inputs import BY_STATUS, asked_problem, attempted, backend, device_of, machine_for, machine_of
from .terminal import Terminal, progress_option

SHORTEST_KEY = 7  # fewer digits are a line number, and not the beginning of a key


def devices(as_json: bool) -> int:
    from ..measurement import list_devices

    backend()
    found, screen = list_devices(), Terminal()
    if as_json:
        screen.json(found)
    else:
        rows = [(d["name"], "missing" if d["missing"] else "ok", d["missing"] or d["summary"]) for d in found]
        screen.table(("device", "state", "what it is"), rows, wide=("what it is",))
    return OK


def completion(options: argparse.Namespace) -> int:
    """Prints the completion script of a shell."""
    import shtab

    from .parser import whole

    script = shtab.complete(whole(), options.shell)
    if options.json:
        Terminal().json({"shell": options.shell, "script": script})
    else:
        sys.stdout.write(script + "\n")
    return OK


def explain(options: argparse.Namespace) -> int:
    from ..report import explain as explained

    screen, peers = Terminal(wide=options.wide), ()
    if hasattr(options, "operator"):
        problem = asked_problem(options, screen)
        if problem is None:
            return OK
        device = device_of(options)
        machine = machine_for(options, device)
        measured = attempted(options, problem, device, machine)
    else:
        found = _saved_point(options, screen)
        if found is None:
            return OK
        measured, machine, peers = found
    explanation = explained(measured, machine, peers)
    if options.json:
        screen.json(explanation.to_dict())
        return OK
    screen.lines([explanation.title])
    for section in explanation.sections:
        screen.line()
        if section.table.headers:
            screen.show(section.table, title=section.title)
        else:
            screen.line(section.title)
        screen.lines(section.lines)
    return BY_STATUS.get(measured.status, OK) if hasattr(options, "operator") else OK


def _saved_point(options: argparse.Namespace, screen: Terminal) -> tuple[Any, Any, Any] | None:
    """The measurement and the machine that the user names, and all of its file; None where their list alone was asked for."""
    from ..operators import OPERATORS
    from ..report.tables import varying
    from ..results import Results

    path = Path(options.file)
    if not os.path.exists(path):
        said = f"{options.file} is neither a file nor an operator{hint(options.file, OPERATORS)}"
        raise BadInput(f"{said}: name a results.jsonl, its folder, or an operator such as attention")
    file = path / "results.jsonl" if path.is_dir() else path
    beside = file.parent / "machine.json"
    with checking_input():
        results = Results.load(file)
        machine = machine_of(options.machine or (str(beside) if path.is_dir() and beside.exists() else None), None)
        if not results:
            raise BadInput(f"{file} holds no results")
        if options.point is None and len(results) > 1:
            names = varying(results)
            rows = [
                (str(i), m.operator, m.variant, m.brief_problem(names[m.operator]), m.cache_state, m.status, m.key[:12])
                for i, m in enumerate(results, start=1)
            ]
            if options.json:
                screen.json(
                    [{"point": int(row[0]), "key": m.key, "operator": row[1]} for row, m in zip(rows, results, strict=True)]
                )
            else:
                screen.table(("point", "operator", "variant", "problem", "cache", "status", "key"), rows, wide=("problem",))
                screen.line(f"roofline explain {options.file} POINT explains one of them")
            return None
        wanted = options.point or "1"
        if wanted.isascii() and wanted.isdigit() and len(wanted) < SHORTEST_KEY:
            matching = list(results[int(wanted) - 1 : int(wanted)]) if int(wanted) else []
        else:
            matching = [m for m in results if m.key.startswith(wanted)]
        if not matching:
            raise BadInput(f"{file} has no point {wanted!r:.80}: give a number from 1 to {len(results)}, or the beginning of a key")
        return matching[-1], machine, results


def doctor(options: argparse.Namespace) -> int:
    from ..doctor import MISSING as ABSENT, doctor as looked, required

    if options.libraries:
        return _libraries(options)
    if options.quick or not options.cure:
        raise BadInput("--quick and --no-cure belong to `roofline doctor --libraries`")
    checks, screen = looked(), Terminal(wide=options.wide)
    if options.json:
        screen.json([check.to_dict() for check in checks])
    else:
        screen.table(("what", "state", "detail"), [(c.name, c.state, c.detail) for c in checks], wide=("detail",))
        screen.line()
        screen.notes("cures:", [f"{c.name}: {c.cure}" for c in checks if c.cure])
    needed = {"compiled module", *(need.name for need in required())}
    return MISSING if any(c.name in needed and c.state == ABSENT for c in checks) else OK


def _libraries(options: argparse.Namespace) -> int:
    from ..doctor import BELOW, time_libraries

    backend()
    report = time_libraries(quick=options.quick, cure=options.cure, progress=progress_option(options.quiet, options.json))
    screen = Terminal(wide=options.wide)
    if options.json:
        screen.json(report.to_dict())
        return OK
    cpu = report.cpu
    title = f"matrix products on {cpu.name}, {counted(cpu.cores, 'core')}, {cpu.widest() or cpu.isas[-1]}"
    headers = ("library", "dtype", "threads", "kernels", "n", "GFLOP/s", "of roof", "why", "cure", "gain")
    screen.table(
        headers, [_library_row(run) for run in report.runs if run.status != "unsupported"], title=title, wide=("why", "cure")
    )
    screen.line()
    absent = [library.name for library in report.libraries if library.state == "absent"]
    broken = [f"{library.name} {library.reason}" for library in report.libraries if library.state == "broken"]
    screen.lines([f"absent: {', '.join(absent)}"] if absent else [])
    screen.lines(f"broken: {text}" for text in broken)
    screen.lines(f"unsupported: {run.library} {run.dtype}: {run.reason}" for run in report.runs if run.status == "unsupported")
    versions = [f"{library.name} {library.version}" for library in report.libraries if library.state == "ok"]
    screen.line(f"timed: {', '.join(versions) or 'none'}")
    screen.line(
        f"The roof is the multiply-add probe of the same dtype and threads, in turn with the library. Below {fmt_percent(BELOW)} a "
        "run is said to be below it; a cure is an environment, tried in turn with yours, and its gain the median ratio of pairs."
    )
    return OK


def _library_row(run: Any) -> tuple[str, ...]:
    from ..doctor.rules import shown
    from ..machine import summary

    def rate(samples_s: Any) -> str:
        return fmt_number(summary(run.rates(samples_s)).median / GIGA)

    why = [f"{run.status}: {run.reason}"] if run.status != "ok" else []
    why += run.why
    if run.below and not why:
        why.append("below, and no rule says why")
    cure, gain = "", ""
    if run.cure is not None:
        cure = shown(run.cure.environment)
        pair = [rate(s) for s in (run.cure.before_samples_s, run.cure.after_samples_s) if s]
        gain = " → ".join(pair) + (f" ({run.cure.gain:.2f}×)" if run.cure.gain else "")
        gain = run.cure.reason or (gain if run.cure.works else f"none: {gain}")
    elif run.below and run.why:
        cure = "none known"
    measured = ""
    if run.samples_s:
        found = summary(run.rates(run.samples_s))
        measured = f"{fmt_number(found.median / GIGA)} [{fmt_number(found.low / GIGA)} … {fmt_number(found.high / GIGA)}]"
    return (
        run.library,
        run.dtype,
        str(run.threads or run.asked or "?"),
        " ".join(word for word in (run.blas, run.blas_version, run.kernels) if word),
        str(run.size),
        measured,
        f"{fmt_percent(run.share)} of {run.roof}" if run.share is not None else "",
        "; ".join(why),
        cure,
        gain,
    )
