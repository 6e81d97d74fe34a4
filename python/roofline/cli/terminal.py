"""What the commands print: tables that fit the terminal, in the characters it has, and JSON."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from .._repr import Row, printable, right_aligned, text_table, width
from .exit_codes import OK

if TYPE_CHECKING:
    from ..report.tables import Table

NARROWEST = 14  # a folded column is still readable at this width
# For terminals without Unicode: nearest characters, of the same width where there is one.
_PLAIN = str.maketrans(
    {
        "µ": "u", "μ": "u", "–": "-", "—": "-", "−": "-", "─": "-", "·": "*", "…": "~", "±": "~", "ᵀ": "T", "²": "2", "×": "x",
        "→": ">", "≥": ">", "≤": "<", "√": "V", "∞": "i", "⌈": "[", "⌉": "]", "⌊": "[", "⌋": "]", "⁹": "9", "’": "'",
    }
)  # fmt: skip


class Terminal:
    """One output stream: rich tables on a terminal, plain aligned text elsewhere, and never an encoding error."""

    def __init__(
        self, stream: TextIO | None = None, *, is_terminal: bool | None = None, columns: int | None = None, wide: bool = False
    ) -> None:
        """wide: tables keep all columns, however many characters they take."""
        self.wide = wide
        self.stream = sys.stdout if stream is None else stream
        self.encoding = getattr(self.stream, "encoding", None) or "utf-8"
        self.is_terminal = self.stream.isatty() if is_terminal is None else is_terminal
        self._columns = columns

    def fit(self, text: str) -> str:
        """`text` in characters that the stream can encode and the terminal only shows."""
        text = printable(text)
        try:
            text.encode(self.encoding)
            return text
        except UnicodeEncodeError:
            return text.translate(_PLAIN).encode(self.encoding, "replace").decode(self.encoding)

    def line(self, text: str = "") -> None:
        self.stream.write(self.fit(text) + "\n")

    def lines(self, texts: Iterable[str]) -> None:
        """Each text on a line of its own; on a terminal those that are longer are broken between words."""
        for text in texts:
            broken = self.is_terminal and not self.wide and width(text) > self.columns()
            self.line(textwrap.fill(text, self.columns(), subsequent_indent="  ", break_long_words=False) if broken else text)

    def notes(self, title: str, texts: Sequence[str]) -> None:
        """A heading and indented lines, or nothing where there are none."""
        if texts:
            self.line(title)
            self.lines(f"  {text}" for text in texts)
            self.line()

    def table(
        self, headers: Row, rows: Sequence[Row], *, title: str = "", wide: Sequence[str] = (), drop: Sequence[str] = ()
    ) -> None:
        """wide: headers of columns that may be folded. drop: of those that a narrow terminal goes without, the first one first.
        On one that is too narrow still, the first column and some of the others, and below them the first and the next.
        """
        if not rows:
            return
        if not self.is_terminal or self.wide:
            self.line(text_table(headers, rows, title=title))
            return
        columns = self.columns()
        flat = [[" ".join(self.fit(cell).split()) for cell in row] for row in (headers, *rows)]
        left_out: list[str] = []
        while True:
            kept = [i for i, name in enumerate(headers) if name not in left_out]
            natural = [max(width(row[i]) for row in flat) for i in kept]
            least = sum(min(n, NARROWEST) if headers[i] in wide else n for n, i in zip(natural, kept, strict=True)) + len(kept) - 1
            more = [name for name in drop if name in headers and name not in left_out]
            if least <= columns or not more:
                break
            left_out.append(more[0])
        narrow = {i: min(n, NARROWEST) if headers[i] in wide else n for n, i in zip(natural, kept, strict=True)}
        blocks = [kept[:1]]
        for i in kept[1:]:
            if len(blocks[-1]) > 1 and sum(narrow[j] + 1 for j in blocks[-1]) + narrow[i] > columns:
                blocks.append(kept[:1])
            blocks[-1].append(i)
        for block in blocks:
            if block is not blocks[0]:
                self.line()
            gap = 2 if sum(natural[kept.index(i)] + 2 for i in block) - 2 <= columns else 1
            # Two columns that are too wide all the same are broken by the terminal, which loses nothing.
            room = max(columns, sum(narrow[i] + 1 for i in block) - 1)
            self._rich([[row[i] for i in block] for row in flat], title, wide, room, gap)
            title = ""
        if left_out:
            self.line(f"(left out: {', '.join(name for name in headers if name in left_out)}; --wide shows all)")

    def show(self, table: Table, *, title: str = "") -> None:
        """A table of a report."""
        self.table(table.headers, table.rows, title=title, wide=table.wide, drop=table.drop)

    def columns(self) -> int:
        """Width of the terminal; COLUMNS wins."""
        if self._columns is not None:
            return self._columns
        import shutil

        return shutil.get_terminal_size((100, 24)).columns

    def _rich(self, flat: Sequence[Row], title: str, wide: Sequence[str], columns: int, gap: int) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(
            file=self.stream, width=columns, height=50, force_terminal=True, highlight=False, markup=False, emoji=False
        )
        headers, rows = flat[0], flat[1:]
        plain = self.fit("─") != "─"
        table = Table(
            title=None,
            box=box.ASCII2 if plain else box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, gap - 1, 0, 0),
            header_style="bold",
        )
        for index, (name, right) in enumerate(zip(headers, right_aligned(headers, rows), strict=True)):
            folded, natural = name in wide, max(width(row[index]) for row in flat)
            table.add_column(
                name,
                justify="right" if right else "left",
                no_wrap=not folded,
                overflow="fold",
                min_width=min(NARROWEST, natural) if folded else natural,
            )
        for row in rows:
            table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
        if title:
            console.print(Text(self.fit(title), style="bold"))
        console.print(table)

    def json(self, value: Any) -> None:
        """One line of JSON. Raises roofline.Error for what has no JSON form."""
        from ..machine import to_json
        from ..reading import from_json

        text = to_json(value, where="the output")
        if self.fit(text) != text:
            text = json.dumps(from_json(text, where="the output"), ensure_ascii=True)
        self.stream.write(text + "\n")
        self.stream.flush()


def _style(cell: str) -> str:
    return {"ok": "green", "missing": "red", "failed": "red", "implausible": "red", "warning": "yellow", "contended": "yellow"}.get(
        cell, "yellow" if cell == "roof moved" else ""
    )


def progress_option(quiet: bool, as_json: bool) -> bool | None:
    """A bar on stderr in a terminal, unless it is switched off. NO_COLOR does not matter: the bar has no colours."""
    return False if quiet or (as_json and not sys.stderr.isatty()) or os.environ.get("TERM") == "dumb" else None


def version(as_json: bool) -> int:
    from .. import __version__

    screen = Terminal()
    screen.json({"roofline": __version__}) if as_json else screen.line(f"roofline {__version__}")
    return OK
