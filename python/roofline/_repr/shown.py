"""What objects with a table share: aligned text in a terminal, escaped HTML in a notebook."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from .html import html_table
from .text import Row, text_table

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
    """Its attributes, for a JSON form. names: with blanks between them."""
    return {name: getattr(record, name) for name in names.split()}
