"""Aligned text tables for terminals."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

Row = Sequence[str]
WORDS = 7  # more are no number: "1.2 GB/s ... 1.3 GB/s (range)" has six

# What a terminal obeys rather than shows: control characters but tabs and line ends, and marks that turn the direction of text or
# break lines; and halves of surrogate pairs, which no encoding takes.
_OBEYED = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff\\ud800-\\udfff]")


def printable(text: str) -> str:
    """`text` with visible escapes, as repr() has them, for every character that acts on a terminal instead of being shown."""
    return _OBEYED.sub(lambda match: repr(match[0])[1:-1], text)


def flat(text: str) -> str:
    """`printable` on one line, with single spaces."""
    return printable(" ".join(text.split()))


def width(text: str) -> int:
    """Columns a text takes in a terminal: combining marks take none, East Asian wide characters two."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] in "-–+∞<>≤" or cell in ("nan", "inf")


def right_aligned(headers: Row, rows: Sequence[Row]) -> list[bool]:
    """Per column: whether all its cells look like numbers, and none like a sentence that begins with one."""
    return [bool(rows) and all(_is_number(row[i]) and len(row[i].split()) < WORDS for row in rows) for i in range(len(headers))]


def text_table(headers: Row, rows: Sequence[Row], *, title: str = "", notes: Sequence[str] = ()) -> str:
    """Headers and rows (each as long as the headers) in aligned columns, numbers to the right; no trailing spaces or newline."""
    cells = [[flat(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(width(row[i]) for row in cells) for i in range(len(headers))]
    right = right_aligned(headers, cells[1:])

    def line(row: Row) -> str:
        padded = (
            (" " * (w - width(c)) + c) if r else (c + " " * (w - width(c))) for c, w, r in zip(row, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    rule = "  ".join("─" * w for w in widths)
    lines = [printable(title)] if title else []
    if headers:
        lines += [line(cells[0]), rule, *map(line, cells[1:])]
    return "\n".join([*lines, *map(printable, notes)])
