"""How objects show themselves: tables as aligned text, HTML, Markdown and CSV. It knows rows and columns, not what they mean."""

from __future__ import annotations

from .files import github_table, markdown, records_to_csv
from .html import html_table
from .shown import Parts, Shown, json_form, values_of
from .text import Row, flat, printable, right_aligned, text_table

__all__ = [
    "Parts", "Row", "Shown", "flat", "github_table", "html_table", "json_form", "markdown", "printable", "records_to_csv",
    "right_aligned", "text_table", "values_of",
]  # fmt: skip
