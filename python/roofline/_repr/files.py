"""Tables as they stand in files: GitHub's Markdown, and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from .text import Row, right_aligned


def github_table(headers: Row, rows: Sequence[Row]) -> str:
    """A GitHub table; columns of numbers to the right, cells escaped."""

    def line(cells: Row) -> str:
        return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"

    rule = ["---:" if right else "---" for right in right_aligned(headers, rows)]
    return "\n".join([line(headers), line(rule), *map(line, rows)])


def records_to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """CSV text of flat records, the columns in the order they first appear; empty cells for None and missing keys."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if columns:
        writer.writerow(columns)
    writer.writerows([record.get(name) for name in columns] for record in records)
    return out.getvalue()
