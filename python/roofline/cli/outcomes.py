"""Exit codes, and the exceptions that stand for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import Error, Unsupported

OK, FAILED, USAGE, MISSING, INTERRUPTED = 0, 1, 2, 3, 130


class BadInput(Error):
    """What the user gave cannot be used: flags, values, files."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a line on what is kept and where."""


@contextmanager
def checking_input() -> Iterator[None]:
    """Errors in here are the user's input, not a failed run."""
    try:
        yield
    except (BadInput, Unsupported):
        raise
    except Error as error:
        raise BadInput(str(error)) from error
