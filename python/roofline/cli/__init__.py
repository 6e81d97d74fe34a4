"""The command `roofline`: one entry point, its exit codes, and how errors and interruptions are said.

Exit codes: 0 ok, 1 failed, 2 bad input or usage, 3 backend missing, 130 interrupted. Heavy modules are imported by the
commands that need them, so that `roofline --help` is quick.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence

from .._repr import printable
from ..errors import Error, Unsupported
from .outcomes import FAILED, INTERRUPTED, MISSING, USAGE, BadInput, Interrupted

__all__ = ["main"]


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody reads stderr: the exit code still tells
        print(f"roofline: {printable(line)}", file=sys.stderr, flush=True)


def _silence(stream_name: str) -> None:
    """What is still buffered for a reader that has gone must not raise again when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), getattr(sys, stream_name).fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` is without the program's name. Returns the exit code; prints errors as one line on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
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
        _say(f"error: the package {error.name} is not installed: pip install {error.name}")
        return MISSING
    except OSError as error:
        if verbose:
            traceback.print_exc()
        _silence("stdout")
        where = f" {error.filename!s:.200}" if error.filename else " the output"
        _say(f"error: cannot write{where}: {error.strerror or error}")
        return FAILED
