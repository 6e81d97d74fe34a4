"""Disks that fail: what `os.write` and `os.fsync` may be replaced by."""

import errno
import os
from collections.abc import Callable
from typing import NoReturn


def full(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half_written(least: int, fail: Callable[[], object]) -> Callable[[int, bytes], int]:
    """Writes half of what it is given, and fails where that is less than `least` bytes."""
    write = os.write

    def half(handle: int, data: bytes) -> int:
        if len(data) < least:
            fail()
        return write(handle, data[: len(data) // 2])

    return half
