"""The command `roofline`: one entry point, its exit codes, and how errors and interruptions are said.

Exit codes: 0 ok, 1 failed, 2 bad input or usage, 3 backend missing, 130 interrupted. Heavy modules are imported by the
commands that need them, so that `roofline --help` is quick.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence

from .._repr import printable
from ..errors import Error, Unsupported
from .exit_codes import FAILED, INTERRUPTED, MISSING, USAGE, BadInput, Interrupted

__all__ = ["main"]


LONGEST = 1400  # characters of a line that quotes the input


def _say(line: str) -> None:
    """One line on stderr: no control characters, and of a long one the beginning and the end."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    line = line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 3 :]}"
    with contextlib.suppress(OSError, ValueError):  # nobody reads stderr: the exit code still tells
        print(f"roofline: {printable(line)}", file=sys.stderr, flush=True)


def _silence(stream_name: str) -> None:
    """Output still buffered for a reader that has gone must not raise again when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), getattr(sys, stream_name).fileno())


def _open_streams() -> None:
    """Streams that were closed before we began: writing to stdout fails as it does to a full disk, stderr says nothing."""
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _warned(message: Warning | str, *_: object, **__: object) -> None:
    _say(f"warning: {' '.join(str(message).split())}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` is without the program's name. Returns the exit code; prints errors as one line on stderr."""
    _open_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    with warnings.catch_warnings():
        warnings.showwarning = _warned
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    verbose = any(argument in ("-v", "--verbose") for argument in arguments)
    try:
        from .parser import dispatch

        try:
            code = dispatch(arguments)
        except SystemExit as end:  # --help and --version
            code = end.code if isinstance(end.code, int) else 0
        sys.stdout.flush()  # here, where a failure is still said: Python itself ends with 120
        return code
    except KeyboardInterrupt as stopped:
        _say("interrupted" + (f"; {stopped}" if isinstance(stopped, Interrupted) else ""))
        return INTERRUPTED
    except BrokenPipeError:
        _silence("stdout")
        return FAILED
    except Error as error:
        if verbose:
            traceback.print_exc()
        _say(f"error: {' '.join(str(error).split())}")
        return USAGE if isinstance(error, BadInput) else MISSING if isinstance(error, Unsupported) else FAILED
    except ModuleNotFoundError as error:
        if verbose or (error.name or "").startswith("roofline"):
            traceback.print_exc()
        package = (error.name or "").partition(".")[0]
        _say(f"error: the package {package} is not installed: pip install {package}")
        return MISSING
    except OSError as error:
        if verbose:
            traceback.print_exc()
        _silence("stdout")
        where = f" {error.filename!s:.200}" if error.filename else " the output"
        _say(f"error: cannot write{where}: {error.strerror or error}")
        return FAILED
