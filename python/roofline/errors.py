"""The package's errors. A message names the fault, its place and its cure."""

from __future__ import annotations

import re
from typing import Any, TypeGuard

_LONG = re.compile(r"[^\s/]{120,}")  # no name of a folder or an option is as long; what a user gave may be


class Error(ValueError):
    """Bad input, or a failure whose message is meant for the user. Longer words in it are cut to 80 characters."""

    def __init__(self, *words: object) -> None:
        super().__init__(*(_LONG.sub(lambda m: f"{m[0][:80]}…", w) if isinstance(w, str) else w for w in words))


class Unsupported(Error):
    """This device, build or library cannot do it. In a sweep it is a result with its reason, never a crash."""


class OutOfMemory(Error):
    """The device lacks the memory that a problem needs. In a sweep it is a result with its reason."""


def shown(value: object) -> str:
    """A value as an error quotes it: short, whatever it is."""
    try:
        return repr(value)[:60]
    except (ValueError, RecursionError):  # an integer of thousands of digits, an object without an end
        return f"a {type(value).__name__} too large to print"


def require_type(name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """Raises Error naming the argument unless `value` is of `kind`."""
    if not isinstance(value, kind):
        raise Error(f"{name} must be {wanted}, got {value!r:.60}")


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is an integer or a float."""
    return is_whole(value) or isinstance(value, float)


def plain(value: Any) -> Any:
    """A NumPy scalar as Python's own number, anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
