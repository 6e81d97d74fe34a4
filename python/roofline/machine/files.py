"""Values as JSON."""

from __future__ import annotations

import json
import re

import numpy as np

from ..errors import Error

_NUMBERS = re.compile(r"\[\n *([-+.\deE]+(?:,\n *[-+.\deE]+)*)\n *\]")  # no string has a line break


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} {value!r:.80} has no JSON form")


def to_json(value: object, *, where: str, indent: int | None = None, canonical: bool = False) -> str:
    """JSON text. Raises Error naming `where` for NaN, infinities and objects without a JSON form.

    indent: of keys; numbers in a list share a line. canonical: sorted keys and no spaces, so that equal values give equal text.
    """
    try:
        text = json.dumps(
            value, allow_nan=False, ensure_ascii=canonical, default=_plain, indent=indent, sort_keys=canonical,
            separators=(",", ":") if canonical or indent is None else None,
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        raise Error(f"{where} cannot be written as JSON: {error}") from error
    return text if indent is None else _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)
