"""Tables as they stand in files: GitHub's Markdown, and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .text import Row, flat, printable, right_aligned

_HTML, _LINK = re.compile(r"[\\<]"), re.compile(r"[\\<\[\]]")  # without these, * _ and ` only change the type face
_LINKED = re.compile(r"\][(\[:]")  # what makes brackets a link, a picture, or the address of one


def markdown(text: str) -> str:
    """One line of Markdown that shows `text`: no HTML, no link, no further line."""
    line = flat(text)
    return (_LINK if _LINKED.search(line) else _HTML).sub(r"\\\g<0>", line)


def _cell(value: Any) -> Any:
    """A value as a spreadsheet shows it: text that it would take for a formula gets an apostrophe, numbers stay as they are."""
    if not isinstance(value, str):
        return value
    return ("'" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else "") + printable(value)


def github_table(headers: Row, rows: Sequence[Row], cell: Callable[[str], str] = markdown) -> str:
    """A GitHub table, columns of numbers to the right. `cell` makes Markdown of a cell's text; `str` if it is Markdown already."""

    def line(cells: Row) -> str:
        return "| " + " | ".join(cell(text).replace("|", "\\|") for text in cells) + " |"

    rule = ["---:" if right else "---" for right in right_aligned(headers, rows)]
    return "\n".join([line(headers), f"| {' | '.join(rule)} |", *map(line, rows)])


def records_to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """CSV text of flat records, the columns in the order they first appear; empty cells for None and missing keys."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if columns:
        writer.writerow(map(_cell, columns))
    writer.writerows([_cell(record.get(name)) for name in columns] for record in records)
    return out.getvalue()
