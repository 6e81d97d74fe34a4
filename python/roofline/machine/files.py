"""JSON that is checked key by key when it is read back."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import Error

# Of every file; any change of a file's keys raises it. 1: machines without curves and empirical; 2: no conditions.
SCHEMA_VERSION = 3


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} {value!r} has no JSON form")


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


def _refuse_constant(name: str) -> typing.NoReturn:
    raise ValueError(f"it contains {name}, which is not a number JSON allows")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"it has the key {twice!r:.60} twice")
    return found


def from_json(text: str | bytes, *, where: str) -> Any:
    """The value of JSON text. Raises Error naming `where` and the position; NaN, Infinity and repeated keys are refused."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError as error:
        raise Error(f"{where} is not valid JSON: it is nested too deeply") from error
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise Error(f"{where} is not valid JSON ({error}); the file is truncated or was edited") from error


def check_version(data: Mapping[str, Any], *, where: str) -> None:
    """Raises Error unless `data` carries a schema_version that this version of the package reads."""
    version = data.get("schema_version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise Error(f"{where} has no schema_version: it is not a file of this package")
    if version > SCHEMA_VERSION:
        raise Error(f"{where} has schema_version {version}, this version reads up to {SCHEMA_VERSION}: upgrade roofline")
    if version < 1:
        raise Error(f"{where} has schema_version {version}, which never existed")


def _field_types(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _convert(value: Any, kind: Any, where: str) -> Any:
    """`value`, read from JSON, as the annotated type `kind`; raises Error naming the place."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or kind is object:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _convert(value, next(a for a in arguments if a is not type(None)), where)
    if origin is tuple and isinstance(value, list):
        return tuple(_convert(item, arguments[0], f"{where}[{index}]") for index, item in enumerate(value))
    if (origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping") and isinstance(value, dict):
        return {key: _convert(item, arguments[1], f"{where}[{key!r}]") for key, item in value.items()}
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise Error(f"{where} must be a finite number, got {value!r:.60}")
        return number
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind in (str, bool) and isinstance(value, kind):
        return value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return build(kind, value, where=where)
    wanted = {float: "a number", int: "an integer", str: "text", bool: "true or false"}.get(
        kind, "a list" if origin is tuple else "an object"
    )
    raise Error(f"{where} must be {wanted}, got {value!r:.60}")


def build(cls: type[Any], data: Any, *, where: str) -> Any:
    """An instance of the dataclass `cls` from its JSON object, every key and type checked.

    Keys in `cls.derived_keys`, if it has them, are written for readers and ignored here. Raises Error naming `where`,
    the key, and what is wrong with it.
    """
    if not isinstance(data, dict):
        raise Error(f"{where} must be an object, got {data!r:.60}")
    known = _field_types(cls)
    derived: frozenset[str] = getattr(cls, "derived_keys", frozenset())
    unknown = [key for key in data if key not in known and key not in derived]
    if unknown:
        raise Error(f"{where} has the unknown key {unknown[0]!r}; known are {', '.join(known)}")
    required = [
        f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    missing = [name for name in required if name not in data]
    if missing:
        raise Error(f"{where} lacks {', '.join(missing)}: the file is damaged or was edited; measure again")
    values = {name: _convert(data[name], kind, f"{where}: {name}") for name, kind in known.items() if name in data}
    try:
        return cls(**values)
    except Error as error:
        raise Error(f"{where}: {error}") from error
