"""Aligned text tables for terminals."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

Row = Sequence[str]


def width(text: str) -> int:
    """Columns a text takes in a terminal: combining marks take none, East Asian wide characters two."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] in "-–+∞<>" or cell in ("nan", "inf")


def right_aligned(headers: Row, rows: Sequence[Row]) -> list[bool]:
    """Per column: whether all its cells look like numbers."""
    return [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(headers))]


def text_table(headers: Row, rows: Sequence[Row], *, title: str = "", notes: Sequence[str] = ()) -> str:
    """Headers and rows (each as long as the headers) in aligned columns, numbers to the right; no trailing spaces or newline."""
    flat = [[" ".join(cell.split()) for cell in row] for row in (headers, *rows)]
    widths = [max(width(row[i]) for row in flat) for i in range(len(headers))]
    right = right_aligned(headers, flat[1:])

    def line(row: Row) -> str:
        cells = (
            (" " * (w - width(c)) + c) if r else (c + " " * (w - width(c))) for c, w, r in zip(row, widths, right, strict=True)
        )
        return "  ".join(cells).rstrip()

    rule = "  ".join("─" * w for w in widths)
    lines = [title] if title else []
    if headers:
        lines += [line(flat[0]), rule, *map(line, flat[1:])]
    return "\n".join([*lines, *notes])
