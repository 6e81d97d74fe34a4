"""How objects show themselves: tables as aligned text, HTML, Markdown and CSV. It knows rows and columns, not what they mean."""

from __future__ import annotations

from .files import github_table, records_to_csv
from .html import html_table
from .text import Row, text_table

__all__ = ["Row", "github_table", "html_table", "records_to_csv", "text_table"]
