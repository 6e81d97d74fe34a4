"""Results files while they grow: a line a measurement, on the disk at once, by several processes at a time."""

from __future__ import annotations

import contextlib
import errno
import os

from ..errors import Error
from ..machine import to_json
from ..machine.output import is_stream, locked, open_stream, target_of, write_all
from ..reading import SCHEMA_VERSION, from_json
from .record import Measurement
from .results import Results

START = f'{{"schema_version":{SCHEMA_VERSION},"key":"'.encode()  # of every line that `append_to` writes
CHUNK = 1 << 16
LONGEST_FIRST = 1 << 24  # bytes of a first line that another program wrote again, in other words: a measurement has fewer


def append_to(path: str | os.PathLike[str], measurement: Measurement) -> None:
    """Append one measurement to a results file as one line, on the disk when this returns.

    A last line that an earlier kill cut short is removed first, if it begins as this function writes it. If the line cannot be
    written whole (a full disk), what was there before stays. The file is locked meanwhile, so that several processes may append
    at once; where the file system has no locks they may lose lines. Raises Error naming the path and the cause, and for a file
    that holds anything else, which is left as it is, and for a measurement that no reader takes.
    """
    where = f"the measurement of {measurement.operator}"
    text = to_json(measurement.to_dict(), where=where)
    Measurement.from_dict(from_json(text.encode(), where=where), where=where)
    line = f"{text}\n".encode()
    if not line.startswith(START):
        raise AssertionError("a line of a results file begins with its schema_version and key")
    stream = is_stream(path)
    try:
        if stream:
            handle = open_stream(path)
        else:
            handle = os.open(target_of(path), os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        try:
            if stream:
                write_all(handle, line)
            else:
                with locked(handle):
                    _append(handle, line, path)
        finally:
            os.close(handle)
    except OSError as error:
        raise Error(
            f"cannot append to results file {os.fspath(path)}: {error.strerror or error}; what was in it before is kept"
        ) from error


def _append(handle: int, line: bytes, path: str | os.PathLike[str]) -> None:
    kept, joint = _end(handle, path)
    if kept < os.fstat(handle).st_size:
        os.ftruncate(handle, kept)
    written = 0
    data = joint + line
    try:
        while written < len(data):
            written += os.write(handle, data[written:] if written else data)
        os.fsync(handle)
    except BaseException as stopped:
        whole = written == len(data) and not isinstance(stopped, OSError)
        if not whole and os.fstat(handle).st_size == kept + written:  # else another program wrote behind it
            with contextlib.suppress(OSError):
                os.ftruncate(handle, kept)
        raise


def _read(handle: int, start: int, end: int) -> bytes:
    os.lseek(handle, start, os.SEEK_SET)
    parts = []
    while start < end and (part := os.read(handle, end - start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _is_record(line: bytes) -> bool:
    try:
        found = from_json(line, where="the line")
    except Error:
        return False
    return isinstance(found, dict) and "schema_version" in found and "operator" in found


def _is_torn(line: bytes) -> bool:
    """Whether this is the beginning of a line of ours."""
    return START.startswith(line[: len(START)])


def _end(handle: int, path: str | os.PathLike[str]) -> tuple[int, bytes]:
    """Where the next line goes, and what goes before it: a newline where the last line lacks one.

    Only the first and the last line are looked at. Raises Error where one of them is neither a measurement nor, as the last, the
    beginning of a line of ours.
    """
    size = os.lseek(handle, 0, os.SEEK_END)
    first = b""
    while len(first) < min(size, LONGEST_FIRST) and b"\n" not in first.lstrip():
        first += _read(handle, len(first), min(size, len(first) * 2 + CHUNK))
        if first.startswith(START):
            break
    blank = not first.strip()
    if blank and len(first) == size:
        return size, b"\n" if first and not first.endswith(b"\n") else b""
    start = first.lstrip().partition(b"\n")[0]
    ours = start.startswith(START) or _is_record(start) or (b"\n" not in first.lstrip() and _is_torn(start))
    if blank or not ours:
        raise _foreign(path, "its first line")
    last, position, step = b"", size, CHUNK
    while position and b"\n" not in last:
        begin = max(position - step, 0)
        last = _read(handle, begin, position) + last
        position, step = begin, 2 * step
    partial = last.rpartition(b"\n")[2]
    if not partial.strip() or _is_record(partial):
        return size, b"\n" if partial else b""
    if not _is_torn(partial):
        raise _foreign(path, "its last line")
    return size - len(partial), b""


def _foreign(path: str | os.PathLike[str], what: str) -> Error:
    return Error(
        f"{os.fspath(path)} is not a results file: {what} is not a measurement. Nothing was written to it; choose another file"
    )


def begun(path: str | os.PathLike[str]) -> Results:
    """What a results file holds that `append_to` can append to; nothing where it is absent, or a stream such as /dev/stdout.

    Raises Error for a file that holds anything else, and as `Results.load`. No line is half written while this reads.
    """
    if is_stream(path):
        return Results()
    try:
        handle = os.open(target_of(path), os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return Results()
        raise Error(f"cannot read results file {os.fspath(path)}: {error.strerror or error}") from error
    try:
        with locked(handle, shared=True):
            if os.fstat(handle).st_size > LONGEST_FIRST:
                _end(handle, path)  # before all of it is read
            found = Results.load(path)  # which names the line's error
            _end(handle, path)
            return found
    except OSError as error:
        raise Error(f"cannot read results file {os.fspath(path)}: {error.strerror or error}") from error
    finally:
        os.close(handle)
