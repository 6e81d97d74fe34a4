"""How objects show themselves: tables as aligned text and as HTML. It knows rows and columns, not what they mean."""

from __future__ import annotations

from .html import html_table
from .text import Row, text_table

__all__ = ["Row", "html_table", "text_table"]
