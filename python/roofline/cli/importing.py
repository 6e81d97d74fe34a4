"""`roofline import`: a file of another tool as points of a results file and ceilings of a machine file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..units import fmt_number, fmt_si
from ..words import backend_of, counted
from .exit_codes import OK, BadInput, checking_input
from .inputs import results_file
from .terminal import Terminal

NAME_LENGTH = 40  # kernels of templates have names of hundreds of characters


def ncu_metrics(as_json: bool) -> int:
    from ..importers import NCU_METRICS

    screen = Terminal()
    screen.json({"metrics": NCU_METRICS.split(",")}) if as_json else screen.line(NCU_METRICS)
    return OK


def import_file(options: argparse.Namespace) -> int:
    from ..importers import read

    if options.device and not options.machine:
        raise BadInput("--device names a machine of a file: give --machine FILE too")
    with checking_input():
        found = read(options.file, tool=options.tool, collective=options.collective)
        machines = _machines(options, found)
    out = results_file(options.out, options.file, options.machine)
    screen = Terminal(wide=options.wide)
    saved = [*_append(found, out), *_save(found, machines, options.machine)]
    if options.json:
        screen.json(found.to_dict())
    elif not (options.quiet and saved):
        _show(found, screen)
        screen.lines(saved)
    return OK


def _machines(options: argparse.Namespace, found: Any) -> tuple[Any, ...]:
    """Those of the machine file with the ceilings added to one of them; none where there is nothing to write."""
    from ..machine import load_machines, require_file

    if not options.machine:
        return ()
    path = require_file(options.machine, apart_from=(options.file,))
    if not found.ceilings:
        raise BadInput(f"{options.file} holds no ceiling that --machine could take")
    if not path.exists():
        if options.device:
            raise BadInput(f"{path} is not there, so it has no device {options.device!r:.80}")
        return (found.machine,)
    machines = load_machines(path)
    wanted = options.device
    fitting = [m for m in machines if (wanted in (m.device, m.name) if wanted else backend_of(m.device) != "cpu")]
    if not fitting:
        there = ", ".join(f"{m.device} ({m.name})" for m in machines)
        raise BadInput(f"{path} has no {f'device {wanted!r:.80}' if wanted else 'GPU'}, only {there}")
    return tuple(found.added_to(m) if m is fitting[0] else m for m in machines)


def _append(found: Any, out: Path | None) -> list[str]:
    from ..results import append_to, begun

    if out is None:
        return []
    before = [m.to_dict() for m in begun(out)]
    new = [m for m in found.measurements if m.to_dict() not in before]
    for measurement in new:
        append_to(out, measurement)
    there = len(found.measurements) - len(new)
    return [f"{counted(len(new), 'point')} appended to {out}" + (f", {there} were in it" if there else "")]


def _save(found: Any, machines: tuple[Any, ...], path: str | None) -> list[str]:
    from ..machine import save_machines

    if not machines or path is None:
        return []
    save_machines(machines, path, force=True)  # they were read from it
    taker = next(m for m in machines if all(c in m.ceilings for c in found.ceilings))
    return [f"ceilings of {found.machine.name} saved in {path}, as those of {taker.name}"]


def _show(found: Any, screen: Terminal) -> None:
    rows = [
        (m.operator[:NAME_LENGTH], m.dtype, str(len(m.samples_s)), fmt_si(m.time_s, "s"), fmt_si(m.flops_per_s, "FLOP/s"),
         fmt_si(m.bytes_per_s, "B/s"), fmt_number(m.flops_per_byte), m.status + (f": {m.reason}" if m.reason else ""))
        for m in found.measurements
    ]  # fmt: skip
    headers = ("what", "dtype", "n", "time", "FLOP/s", "B/s", "FLOP/byte", "status")
    screen.table(headers, rows, title=f"points, from {found.tool}", wide=("what", "status"))
    screen.line()
    ceilings = [(c.name, c.stated, str(c.summary.n), c.state, c.reason) for c in found.ceilings]
    title = f"ceilings of {found.machine.name}" if found.machine else ""
    screen.table(("ceiling", "value", "n", "source", "what it is"), ceilings, title=title, wide=("what it is",))
    if ceilings:
        screen.line()
    screen.notes("notes:", found.notes)
