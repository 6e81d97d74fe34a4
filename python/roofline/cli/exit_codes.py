"""Exit codes, and the exceptions that stand for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..errors import Error, Unsupported

OK, FAILED, USAGE, MISSING, INTERRUPTED = 0, 1, 2, 3, 130


# Arguments of Python that flags of another name stand for, and what errors say of them.
_FLAGS: Mapping[str, str] = {
    "must_fit=False": "--ignore-memory", "link_bytes_per_s=450e9": "--link 450GB/s", "launch_s": "--launch",
    "overhead_s": "--overhead", "link_latency_s": "--link-latency", "link_bytes_per_s": "--link", "memory_bytes": "--memory",
    "memory_share": "--memory-share", "price_per_hour": "--price-per-hour", "give dtype=": "give --dtype",
    "weights='bf16'": "--weights bf16",
}  # fmt: skip
_ARGUMENT = re.compile("|".join(map(re.escape, _FLAGS)))


class BadInput(Error):
    """What the user gave cannot be used: flags, values, files."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a line on the results kept and their place."""


@contextmanager
def checking_input() -> Iterator[None]:
    """Errors in here are the user's input, not a failed run."""
    try:
        yield
    except (BadInput, Unsupported):
        raise
    except Error as error:
        raise BadInput(_ARGUMENT.sub(lambda found: _FLAGS[found[0]], str(error))) from error
