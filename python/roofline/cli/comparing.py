"""`roofline compare`: two of files and datasheets, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .exit_codes import OK, checking_input
from .inputs import output_file, write_outputs
from .terminal import Terminal

SUFFIXES = (".json", ".csv", ".md")


def compare(options: argparse.Namespace) -> int:
    from ..comparison import compare as compared

    screen = Terminal(wide=options.wide)
    out = output_file(options.out, SUFFIXES, options.a, options.b)
    with checking_input():
        made = compared(options.a, options.b)
    if out is not None:
        write_outputs({out: _content(made, out)}, options)
    if options.json:
        screen.json(made.to_dict())
    elif not (options.quiet and out):
        _show(made, screen)
        if out is not None:
            screen.line(f"saved in {out}")
    return OK


def _titles(made: Any) -> tuple[str, str]:
    first, second = ("claimed", "measured") if made.kind == "datasheet" else ("A", "B")
    return f"{first}: {made.a}", f"{second}: {made.b}"


def _show(made: Any, screen: Terminal) -> None:
    screen.lines(_titles(made))
    screen.line()
    headers, rows = made.table()
    screen.table(headers, rows, wide=(headers[0], "verdict"))
    screen.line()
    screen.notes("notes:", [*made.row_notes, *made.notes])
    screen.notes("not compared:", made.absent)
    screen.lines(made.footer)


def _content(made: Any, out: Path) -> str:
    from ..machine import marked, to_json
    from ..report.markdown import markdown_table
    from ..report.tables import Table
    from ..results import records_to_csv

    if out.suffix == ".json":
        return to_json(made.to_dict(), where=str(out), indent=1) + "\n"
    if out.suffix == ".csv":
        return records_to_csv(made.to_records())
    headers, rows = made.table()
    lines = [f"* {line}" for line in (*_titles(made), *made.row_notes, *made.notes, *made.absent, *made.footer)]
    return marked("\n".join([markdown_table(Table(headers=headers, rows=rows)), "", *lines]), "compare")
