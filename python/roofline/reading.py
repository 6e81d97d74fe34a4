"""Reading a user's file: regular files only, a limit on the bytes of each kind, JSON, and values of the declared types."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import stat
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from .errors import Error, is_whole, require_type
from .units import GIB, MIB, fmt_bytes

# In every file; any change of a file's keys raises it. 1: machines without curves and empirical; 2: no conditions; 3: no kernels.
SCHEMA_VERSION = 4

# What is read of each kind of file, in bytes. A thorough machine file takes 2 MB, a line of a results file 4 kB, a config.json a
# few thousand bytes, a datasheet 10 kB.
MACHINE, RESULTS, CONFIG, HARDWARE, LOG = "machine file", "results file", "configuration", "hardware file", "log"
POINTS = "file of points"
LIMITS: Mapping[str, int] = {MACHINE: 64 * MIB, RESULTS: GIB, CONFIG: 4 * MIB, HARDWARE: MIB, LOG: GIB, POINTS: 64 * MIB}
CHUNK_BYTES = MIB

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)  # fmt: skip


def is_there(path: str | os.PathLike[str], *holding: str) -> bool:
    """Whether a word is a path: of a file, or of a folder that holds one of these. Any other folder may share a name by chance."""
    return os.path.exists(path) and (not os.path.isdir(path) or any(os.path.exists(os.path.join(path, each)) for each in holding))


# -- types of values, and the ranges outside which nothing was measured ---------------------------------------------------

MOST = 2**63 - 1
Whole = Annotated[int, Meta(ge=0, le=MOST, description="a count, or bytes")]
Integer = Annotated[int, Meta(ge=-MOST, le=MOST)]
Seconds = Annotated[float, Meta(ge=1e-15, le=1e9, description="seconds")]
Duration = Annotated[float, Meta(ge=0, le=1e12, description="seconds, 0 included")]
Sample = Annotated[float, Meta(ge=1e-15, le=1e24, description="bytes/s, FLOP/s, or seconds of a latency")]
Rate = Annotated[float, Meta(ge=1e-6, le=1e24, description="bytes/s, FLOP/s or Hz")]
Intensity = Annotated[float, Meta(ge=1e-12, le=1e12, description="FLOP/byte")]
Share = Annotated[float, Meta(ge=0, le=1e6, description="a fraction; of load over all threads it may pass 1")]
Amount = Annotated[float, Meta(ge=0, le=1e24)]
T = TypeVar("T")
Text = Annotated[str, Meta(max_length=1 << 16)]
Scalar = bool | Integer | Annotated[float, Meta(ge=-1e300, le=1e300)] | Text | None


@dataclasses.dataclass(frozen=True, slots=True)
class Keys:
    """Annotates a mapping: the TypedDict of the keys that are used, and the type of every other value."""

    known: Any = dict
    others: Any = Scalar


Scalars = Annotated[Mapping[str, Any], Keys()]


# -- bytes ----------------------------------------------------------------------------------------------------------------


def _check(found: os.stat_result, kind: str, where: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = next((name for fits, name in _KINDS if fits(found.st_mode)), "no file")
        raise Error(f"cannot read {where}: it is {what}; name a regular file")
    _check_size(found.st_size, kind, where)


def _check_size(size: int, kind: str, where: str) -> None:
    if size > LIMITS[kind]:
        raise Error(f"{where} has more than {fmt_bytes(LIMITS[kind])}, the most that is read of a {kind}: name another file")


def read_bytes(path: str | os.PathLike[str], kind: str) -> bytes:
    """The content of a user's file of a kind in LIMITS.

    Raises Error naming the file where it is no regular file (a symbolic link to one is), for one with more bytes than the kind may
    have, also where it grows meanwhile or states no size, and for one that cannot be read. Nothing waits for a writer.
    """
    require_type(f"the path of a {kind}", path, (str, os.PathLike), "text or a Path")
    where, most = f"{kind} {os.fspath(path)}", LIMITS[kind]
    try:
        _check(os.stat(path), kind, where)  # before it is opened: opening a device may act on it
        # The file may be another by now: without O_NONBLOCK a FIFO would wait for its writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb", buffering=0) as file:
            _check(os.fstat(handle), kind, where)
            parts, size = [], 0
            while size <= most and (part := file.read(CHUNK_BYTES)):
                parts.append(part)
                size += len(part)
    except (OSError, ValueError) as error:
        if isinstance(error, Error):
            raise
        raise Error(f"cannot read {where}: {getattr(error, 'strerror', None) or error}") from error
    _check_size(size, kind, where)
    return b"".join(parts)


def read_text(path: str | os.PathLike[str], kind: str, encoding: str = "utf-8") -> str:
    """As `read_bytes`, decoded. Raises Error also for bytes that are no UTF-8."""
    try:
        return read_bytes(path, kind).decode(encoding)
    except UnicodeDecodeError as error:
        raise Error(f"cannot read {kind} {os.fspath(path)}: byte {error.start} is not UTF-8") from error


# -- JSON -----------------------------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> typing.NoReturn:
    raise ValueError(f"it contains {name}, which is not a number JSON allows")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"it has the key {twice!r:.60} twice")
    return found


_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def from_json(text: str | bytes, *, where: str) -> Any:
    """The value of JSON text.

    Raises Error naming `where` and the position; NaN, Infinity, repeated keys and halves of surrogate pairs are refused.
    """
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
        if _ESCAPED_SURROGATE.search(content):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise Error(f"{where} is not valid JSON: it is nested too deeply") from error
    except UnicodeEncodeError as error:
        raise Error(f"{where} is not valid JSON: it has half of a surrogate pair, which is not a character") from error
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        several = isinstance(error, json.JSONDecodeError) and error.msg == "Extra data" and error.lineno > 1
        lines = several or content.strip() == b"{"  # each file where the other is expected
        cause = "only a results file holds one object a line" if lines else "the file is truncated or was edited"
        raise Error(f"{where} is not valid JSON ({error!s:.200}); {cause}") from error
    return value


def check_version(data: Mapping[str, Any], *, where: str) -> None:
    """Raises Error unless `data` carries the schema_version that this version of the package reads."""
    if "schema_version" not in data:
        raise Error(f"{where} has no schema_version: it is not a file of this package")
    version = data["schema_version"]
    if not is_whole(version):
        raise Error(f"{where} has the schema_version {version!r:.60}, which must be the integer {SCHEMA_VERSION}")
    if version > SCHEMA_VERSION:
        raise Error(f"{where} has schema_version {version!r:.60}, this version reads {SCHEMA_VERSION}: upgrade roofline")
    if version < 1:
        raise Error(f"{where} has schema_version {version!r:.60}, which never existed")
    if version < SCHEMA_VERSION:
        raise Error(f"{where} has schema_version {version}, this version reads only {SCHEMA_VERSION}: measure again")


# -- types ----------------------------------------------------------------------------------------------------------------

_WORDS = {
    "float": "a number", "int": "an integer", "str": "text", "bool": "true or false", "array": "a list", "object": "an object",
    "null": "null",
}  # fmt: skip


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return {
        name: hint
        for name, hint in typing.get_type_hints(kind, include_extras=True).items()
        if typing.get_origin(hint) is not typing.ClassVar
    }


def _parts(kind: Any) -> tuple[Any, tuple[Any, ...], Keys | None]:
    """Origin or class, arguments, and the Keys of an annotated type, None left out of a union."""
    keys = None
    while typing.get_origin(kind) is Annotated:
        keys = next((item for item in kind.__metadata__ if isinstance(item, Keys)), keys)
        kind = kind.__origin__
    arguments = typing.get_args(kind)
    if type(None) in arguments and len(arguments) == 2:
        return _parts(next(a for a in arguments if a is not type(None)))
    return typing.get_origin(kind) or kind, arguments, keys


def _is_record(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)


@functools.cache
def _with_keys(record: Any) -> Mapping[str, Any]:
    """The fields of a record whose values have keys that `_check_keys` looks at."""
    found = {}
    for name, hint in _hints(record).items():
        origin, arguments, keys = _parts(hint)
        if keys is not None or _is_record(origin) or (origin is tuple and _is_record(_parts(arguments[0])[0])):
            found[name] = hint
    return found


def _plural(text: str) -> str:
    """msgspec's words as ours: "Expected `int | null`, got `str`" is "must be an integer or null, got text"."""
    text = re.sub(r"`([^`]*)`", lambda m: " or ".join(_WORDS.get(word, word) for word in m[1].split(" | ")), text)
    return re.sub("^Expected ", "must be ", text).replace("Object missing required field ", "lacks ")


def _locate(value: Any, kind: Any, path: str) -> tuple[str, Any]:
    """msgspec's path with the keys of mappings in it, which it leaves out, and the value that is there."""
    words = ""
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        origin, arguments, _ = _parts(kind)
        if name:
            value, kind, words = value[name], _hints(origin)[name], f"{words}: {name}"
        elif index == "...":
            item_kind = arguments[1]
            key = next(key for key, item in value.items() if _refusal(item, item_kind))
            value, kind, words = value[key], item_kind, f"{words}[{key!r:.60}]"
        else:
            value, kind, words = value[int(index)], arguments[0], f"{words}[{index}]"
    return words.removeprefix(": "), value


def _refusal(value: Any, kind: Any) -> str:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


DAMAGED = ": the file is damaged or was edited; measure again"


def _converted(value: Any, kind: Any, where: str, cure: str = DAMAGED) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `$")
        place, found = _locate(value, kind, path.rstrip("`"))
        place = f"{where}{place}" if place.startswith("[") else f"{where}: {place}" if place else where
        if isinstance(error.__cause__, Error):  # of __post_init__
            raise Error(f"{place}: {error.__cause__}") from error
        if said.startswith("Object missing"):
            raise Error(f"{place} {_plural(said)}{cure}") from error
        said = said.replace("Number out of range", "Expected a finite number")
        raise Error(f"{place} {_plural(said.partition(', got')[0])}, got {_shown(found)}") from error


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except ValueError:  # an integer of thousands of digits
        return "an integer of thousands of digits"


def _check_keys(value: Any, kind: Any, where: str) -> None:
    """Raises Error for a key that nothing reads, and for values in a mapping whose annotation has Keys."""
    if not isinstance(value, (Mapping, list)):
        return
    origin, arguments, keys = _parts(kind)
    if keys is not None and isinstance(value, Mapping):
        known = _hints(keys.known) if _is_record(keys.known) else {}
        _converted({key: item for key, item in value.items() if key in known}, keys.known, where)
        others: Any = Mapping
        _converted({key: item for key, item in value.items() if key not in known}, others[str, keys.others], where)
    elif _is_record(origin) and isinstance(value, Mapping):
        hints = _hints(origin)
        derived: frozenset[str] = getattr(origin, "derived_keys", frozenset())
        for key in value.keys() - hints.keys() - derived if dataclasses.is_dataclass(origin) else ():
            raise Error(f"{where} has the unknown key {key!r:.60}; known are {', '.join(hints)}")
        for name, hint in _with_keys(origin).items():
            if name in value:
                _check_keys(value[name], hint, f"{where}: {name}")
    elif origin is tuple and isinstance(value, list) and _is_record(_parts(arguments[0])[0]):
        for index, item in enumerate(value):
            _check_keys(item, arguments[0], f"{where}[{index}]")


def build(cls: type[T], data: Any, *, where: str, cure: str = DAMAGED) -> T:
    """An instance of the dataclass `cls` from its JSON object, every key, type and range checked. cure: said of a missing key.

    Keys in `cls.derived_keys`, if it has them, are written for readers and ignored here. Raises Error naming `where`,
    the path of the value, and its error.
    """
    if not isinstance(data, Mapping):
        raise Error(f"{where} must be an object, got {_shown(data)}")
    _check_keys(data, cls, where)
    made: T = _converted(data, cls, where, cure)
    return made
