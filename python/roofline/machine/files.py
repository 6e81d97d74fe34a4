"""Files that survive crashes and full disks, and values as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from ..errors import Error


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a whole file or leave the old one as it was.

    The content goes to a temporary file in the same folder, to the disk, and then into place. Raises Error naming the
    path and the cause (no space, no permission, no such folder).
    """
    target = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        kept = "the file that was there is unchanged" if target.is_file() else "nothing was written"
        raise Error(f"cannot write {target}: {error.strerror or error}; {kept}") from error


@cache
def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} {value!r:.80} has no JSON form")


def to_json(value: object, *, where: str, indent: int | None = None, canonical: bool = False) -> str:
    """JSON text. Raises Error naming `where` for NaN, infinities and objects without a JSON form.

    canonical: sorted keys and no spaces, so that equal values give equal text.
    """
    try:
        return json.dumps(
            value,
            allow_nan=False,
            ensure_ascii=canonical,
            default=_plain,
            indent=indent,
            sort_keys=canonical,
            separators=(",", ":") if canonical or indent is None else None,
        )
    except (TypeError, ValueError) as error:
        raise Error(f"{where} cannot be written as JSON: {error}") from error
