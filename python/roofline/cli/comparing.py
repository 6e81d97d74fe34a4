"""`roofline compare`: two of files and datasheets, side by side."""

from __future__ import annotations

import argparse
from typing import Any

from .._repr import github_table
from .exit_codes import OK, checking_input
from .inputs import document, output_file, write_outputs
from .terminal import Terminal

SUFFIXES = (".json", ".csv", ".md")


def compare(options: argparse.Namespace) -> int:
    from ..comparison import compare as compared

    screen = Terminal(wide=options.wide)
    out = output_file(options.out, SUFFIXES, options.a, options.b)
    with checking_input():
        made = compared(options.a, options.b)
    if out is not None:
        write_outputs({out: document(made, out, "compare", lambda: _markdown(made))}, options)
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


def _markdown(made: Any) -> str:
    lines = [f"* {line}" for line in (*_titles(made), *made.row_notes, *made.notes, *made.absent, *made.footer)]
    return "\n".join([github_table(*made.table()), "", *lines])
