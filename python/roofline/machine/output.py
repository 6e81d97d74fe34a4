"""Files that users name: which are replaced or refused, links, streams, locks, and writes that survive crashes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from ..errors import Error, require_type

Name = str | os.PathLike[str]

FORCE = "choose another file, move it away, or replace it with --force (Python: force=True)"
MOST_LINKS = 40  # as Linux
STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2} | {f"{at}/{n}": n for at in ("/dev/fd", "/proc/self/fd") for n in (1, 2)}
HEAD, TAIL = 4096, 256
_JSON = re.compile(rb'\s*\{\s*"schema_version":\s*\d+,\s*(?:"\w+":\s*"\w*",\s*)*?"(?:kind":\s*"(\w+)|(key)":)')
_TEXT = re.compile(rb"<!-- written by roofline (\w+) -->\s*\Z")
_COLUMNS = re.compile(rb"\w+(?:,\w+){1,2}(?=[,\r\n])")
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}


def target_of(path: Name) -> str:
    """The file behind a path's symbolic links, absent or not, or one of STREAMS. Raises Error for a loop of links."""
    require_type("the path of a file", path, (str, os.PathLike), "text or a Path")
    target = os.fspath(path)
    for _ in range(MOST_LINKS):
        if target in STREAMS:
            return target
        try:
            link = os.readlink(target)
        except (OSError, ValueError):  # no link; what else is wrong is said where the file is opened
            return target
        target = os.path.join(os.path.dirname(target), link)
    raise Error(f"cannot write {os.fspath(path)}: {os.strerror(errno.ELOOP)}")


def is_stream(path: Name) -> bool:
    """Whether a path is stdout, stderr or a character device such as /dev/null: written to, and never read or replaced.

    Raises Error for a folder, a FIFO, a socket, a disk: neither that nor a regular file nor absent.
    """
    target = target_of(path)
    if target in STREAMS:
        return True
    try:
        mode = os.stat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise Error(f"cannot write {os.fspath(path)}: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(mode) and not stat.S_ISCHR(mode):
        said = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "it is no regular file"
        raise Error(f"cannot write {os.fspath(path)}: {said}; choose another file")
    return stat.S_ISCHR(mode)


def open_stream(path: Name) -> int:
    """A descriptor of what `is_stream` found, to write to and to close."""
    target = target_of(path)
    if target not in STREAMS:
        return os.open(target, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # what was printed before comes before
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    return os.dup(STREAMS[target])


def write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def same_file(one: Name, other: Name) -> bool:
    """Whether two paths are one file, by hard or symbolic links too; absent ones by their paths."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return os.path.realpath(one) == os.path.realpath(other)


def require_apart(file: Name, others: Iterable[Name | None]) -> None:
    """Raises Error where the same command reads or also writes a file. A folder stands for the files read in it."""
    for other in others:
        if other is None:
            continue
        inside = [Path(other, name) for name in ("machine.json", "results.jsonl", "config.json")] if os.path.isdir(other) else []
        if any(same_file(file, each) for each in (other, *inside)):
            raise Error(f"{os.fspath(file)} is a file that the same command reads or writes; choose another file")


def require_file(path: Name, *, apart_from: Iterable[Name | None] = ()) -> Path:
    """The path of a file that can be written; nothing is made or changed. Raises Error before anything is measured in vain.

    apart_from: see `require_apart`.
    """
    target, file = Path(target_of(path)), Path(path)
    require_apart(file, apart_from)
    try:
        if is_stream(file):
            return file
        if target.exists():
            os.close(os.open(target, os.O_WRONLY))
        else:
            with tempfile.TemporaryFile(dir=target.parent):
                pass
    except OSError as error:
        raise Error(f"cannot write {file}: {error.strerror or error}; choose another file") from error
    return file


def mark_of(head: bytes, tail: bytes) -> str:
    """What kind of our files begins and ends so: JSON by its `kind`, tables by their first columns. "" for other files."""
    if found := _JSON.match(head):
        return f"JSON {(found[1] or found[2]).decode()}"
    if found := _TEXT.search(tail):
        return f"text {found[1].decode()}"
    if head.startswith(b"\x89PNG"):
        return "PNG" if b"Software\0roofline" in head else ""
    if head.startswith(b"<?xml"):
        return "SVG" if b"<dc:title>roofline</dc:title>" in head else ""
    found = _COLUMNS.match(head)
    return f"CSV {found[0].decode()}" if found else ""


def require_replaceable(path: Name, content: str | bytes, *, force: bool = False) -> None:
    """Raises Error where the file is there, is not empty, and is of another kind than `content`, unless that is forced."""
    if is_stream(path) or force:
        return
    data = content.encode() if isinstance(content, str) else content
    try:
        with open(target_of(path), "rb") as file:
            head = file.read(HEAD)
            file.seek(max(file.seek(0, os.SEEK_END) - TAIL, 0))
            tail = file.read(TAIL)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise Error(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error
    wanted = mark_of(data[:HEAD], data[-TAIL:])
    if head and (not wanted or mark_of(head, tail) != wanted):
        raise Error(f"{os.fspath(path)} exists, and this command does not write such files; {FORCE}")


def marked(text: str, command: str) -> str:
    """Text with a last line by which `require_replaceable` knows it: with lines of the user's behind it, it is not ours."""
    return f"{text.rstrip()}\n\n<!-- written by roofline {command} -->\n"


def write_atomically(path: Name, content: str | bytes) -> None:
    """Write a whole file or leave the old one as it was; a symbolic link stays, and the file behind it is written.

    The content goes to a temporary file in the same folder, to the disk, and then into place; a stream just gets it. Raises
    Error naming the path and the cause (no space, no permission, no such folder).
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    target, temporary = Path(target_of(path)), ""
    stream = is_stream(path)
    try:
        if stream:
            handle = open_stream(path)
            try:
                write_all(handle, data)
            finally:
                os.close(handle)
            return
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:200]}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        kept = "the file that was there is unchanged" if target.is_file() else "nothing was written"
        said = "" if stream else f"; {kept}"
        raise Error(f"cannot write {os.fspath(path)}: {error.strerror or error}{said}") from error
    finally:
        if temporary:  # gone where it took its place
            with contextlib.suppress(OSError):
                os.unlink(temporary)


@cache
def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


@contextlib.contextmanager
def locked(handle: int, *, shared: bool = False) -> Iterator[None]:
    """A lock of an open file among processes and threads that ask for it, until the block ends.

    Where the system or the file's file system has no locks (some network file systems), it goes on without: several
    processes that append to one file there can lose lines.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        yield
        return
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
