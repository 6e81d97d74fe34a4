"""The figures of the documents this project comes from, and the numbers and texts in them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIGURES = json.loads((Path(__file__).parent / "data" / "document_figures.json").read_text(encoding="utf-8"))["figures"]
BY_ID: dict[str, dict[str, Any]] = {figure["id"]: figure for figure in FIGURES}
# A decode step of a "7B" against 2048 keys as a notebook counts it, and its seconds at shares of an H100's peaks, by batch.
DECODE_7B = {step["batch"]: step for step in BY_ID["decode-7b-batches"]["expected"]}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every number and text of nested lists and objects, with the way to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def values(value: Any) -> list[Any]:
    return [leaf for _, leaf in leaves(value)]
