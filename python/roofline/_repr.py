"""How objects show themselves: tables as aligned text, HTML, Markdown and CSV. It knows rows and columns, not what they mean."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import io
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from html import escape as escaped
from typing import Any

from .errors import Error

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
    several = re.match(r"\d+x\w", cell)  # devices: 8xH100
    return not cell or (cell[0].isdigit() and not several) or cell[0] in "-–+∞<>≤" or cell in ("nan", "inf")


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


# -- Markdown and CSV ---------------------------------------------------------------------------------------------------------


_HTML, _LINK = re.compile(r"[\\<]"), re.compile(r"[\\<\[\]]")  # without these, * _ and ` only change the type face
_LINKED = re.compile(r"\][(\[:]")  # what makes brackets a link, a picture, or the address of one


def markdown(text: str) -> str:
    """One line of Markdown that shows `text`: no HTML, no link, no further line."""
    line = flat(text)
    return (_LINK if _LINKED.search(line) else _HTML).sub(r"\\\g<0>", line)


def _spreadsheet_cell(value: Any) -> Any:
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
        writer.writerow(map(_spreadsheet_cell, columns))
    writer.writerows([_spreadsheet_cell(record.get(name)) for name in columns] for record in records)
    return out.getvalue()


# -- HTML for notebooks: everything escaped, no colours of their own (so legible in dark themes), a table without CSS too -----


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
    body = ("<tr>" + "".join(_html_cell(c, r) for c, r in zip(row, right, strict=True)) + "</tr>" for row in rows)
    parts += ["<tbody>", *body, "</tbody></table>"]
    parts += [f"<p>{escape(note)}</p>" for note in notes]
    return "".join([*parts, "</div>"])


def _html_cell(text: str, right: bool) -> str:
    whole = ";white-space:nowrap" if len(text) <= SHORT else ""
    return f'<td style="text-align:{"right" if right else "left"}{whole}">{escape(text)}</td>'


# -- objects ------------------------------------------------------------------------------------------------------------------


Parts = tuple[str, Row, Sequence[Row], Sequence[str]]  # title, headers, rows, notes


class Shown:
    """Base of objects that show themselves as one table, which `_table` gives."""

    __slots__ = ()

    def _table(self) -> Parts:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        title, headers, rows, notes = self._table()
        return html_table(headers, rows, title=title, notes=notes)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        title, headers, rows, notes = self._table()
        printer.text(f"{type(self).__name__}(…)" if cycle else text_table(headers, rows, title=title, notes=notes))


class Records:
    """Base of objects with flat records, which are also tables of other libraries."""

    __slots__ = ()

    def to_records(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _columns(self) -> dict[str, list[Any]]:
        records = self.to_records()
        names = dict.fromkeys(name for record in records for name in record)
        return {name: [record.get(name) for record in records] for name in names}

    def to_pandas(self) -> Any:
        """A pandas DataFrame of `to_records`. Raises Error where pandas is not installed."""
        return _installed("pandas").DataFrame(self._columns())

    def to_polars(self) -> Any:
        """A polars DataFrame of `to_records`. Raises Error where polars is not installed."""
        return _installed("polars").DataFrame(self._columns(), strict=False)


def _installed(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise Error(f"{library} is not installed: `pip install {library}`, or use to_records()") from error


def json_form(value: Any) -> Any:
    """A dataclass as its fields, by name; sequences as lists, mappings as dicts, records in them by their own `to_dict`."""
    if dataclasses.is_dataclass(value):
        return {f.name: _part(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: _part(item) for name, item in value.items()}
    return [_part(item) for item in value] if isinstance(value, (tuple, list)) else value


def _part(value: Any) -> Any:
    if isinstance(value, (float, int, str)):  # results have thousands of samples
        return value
    return value.to_dict() if hasattr(value, "to_dict") else json_form(value)


def values_of(record: object, names: str) -> dict[str, Any]:
    """The JSON form of its attributes. names: with blanks between them."""
    return {name: _part(getattr(record, name)) for name in names.split()}
