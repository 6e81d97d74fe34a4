"""HTML tables for notebooks: everything escaped, no colours of their own (so legible in dark themes), a table without CSS too."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as escaped

from .text import Row, printable, right_aligned

SHORT = 18  # characters of a cell that stays in one line: a number and its unit, an interval


def escape(text: str) -> str:
    return escaped(printable(text))


def html_table(headers: Row, rows: Sequence[Row], *, title: str = "", notes: Sequence[str] = ()) -> str:
    """Headers and rows (each as long as the headers) as one HTML table with a caption, and notes below it."""
    right = right_aligned(headers, rows)
    align = [f' style="text-align:{"right" if r else "left"}"' for r in right]
    parts = ["<div><table>"]
    if title:
        parts.append(f'<caption style="text-align:left"><b>{escape(title)}</b></caption>')
    if headers:
        parts.append(
            "<thead><tr>"
            + "".join(f'<th scope="col"{a}>{escape(h)}</th>' for h, a in zip(headers, align, strict=True))
            + "</tr></thead>"
        )
    body = ("<tr>" + "".join(_cell(c, r) for c, r in zip(row, right, strict=True)) + "</tr>" for row in rows)
    parts += ["<tbody>", *body, "</tbody></table>"]
    parts += [f"<p>{escape(note)}</p>" for note in notes]
    return "".join([*parts, "</div>"])


def _cell(text: str, right: bool) -> str:
    whole = ";white-space:nowrap" if len(text) <= SHORT else ""
    return f'<td style="text-align:{"right" if right else "left"}{whole}">{escape(text)}</td>'
