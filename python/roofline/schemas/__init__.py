"""The JSON Schema (draft 2020-12) of every file and of every `--json`.

A file beside this one has the schema of one format, short of what follows from the classes that are written, which `schema` adds.
An object with `properties` has all of them but those in `optional`, and no others unless it is `open`. A property that states no
type has that of the field or attribute of the class in `python`; numbers are not negative. A text is a property's description, and
`plain` lists properties without one.
"""

from __future__ import annotations

import functools
import importlib
import json
import types
import typing
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Annotated, Any

from msgspec import Meta

from ..words import require_one_of

SUFFIX = ".schema.json"
_PLAIN: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
_TYPED = frozenset({"type", "$ref", "const", "enum", "anyOf", "oneOf", "properties"})

Json = dict[str, Any]


def kinds() -> tuple[str, ...]:
    """The formats that have a schema: "machine", "results", …"""
    return tuple(sorted(f.name.removesuffix(SUFFIX) for f in files(__name__).iterdir() if f.name.endswith(SUFFIX)))


def schema(kind: str) -> Json:
    """The JSON Schema of a format: `schema("machine")`. Raises Error for an unknown kind."""
    require_one_of("the kind of a schema", kind, kinds())
    short = json.loads((files(__name__) / f"{kind}{SUFFIX}").read_text(encoding="utf-8"))
    named = {_class_of(part["python"]): name for name, part in short.get("$defs", {}).items() if "python" in part}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:roofline:schema:{kind}:{short.pop('version')}"}
    return {**head, **_whole(short, named)}


@functools.cache
def _class_of(name: str) -> Any:
    module, _, cls = name.rpartition(".")
    return getattr(importlib.import_module(f"roofline.{module}"), cls)


def _whole(part: Any, named: Mapping[Any, str]) -> Any:
    """A part of a schema with what its file leaves out. named: the definitions of classes."""
    if isinstance(part, list):
        return [_whole(item, named) for item in part]
    if not isinstance(part, dict):
        return part
    made = dict(part)
    record = _class_of(made.pop("python")) if "python" in made else None
    optional, is_open = made.pop("optional", "").split(), made.pop("open", False)
    listed: Json = {name: {} for name in made.pop("plain", "").split()} | made.pop("properties", {})
    made = {name: _whole(item, named) for name, item in made.items()}
    if not listed:
        return made
    closed = {"additionalProperties": False, "required": [name for name in listed if name not in optional]}
    properties = {name: _property(name, item, record, named) for name, item in listed.items()}
    return {"type": "object", **({} if is_open else closed), **made, "properties": properties}


def _property(name: str, given: Any, record: Any, named: Mapping[Any, str]) -> Json:
    stated: Json = {"description": given} if isinstance(given, str) else _whole(given, named)
    if record is None or _TYPED & stated.keys():
        return stated
    attribute = getattr(record, name, None)
    hints = typing.get_type_hints(attribute.fget if isinstance(attribute, property) else record, include_extras=True)
    return {**_type(hints["return" if isinstance(attribute, property) else name], named), **stated}


def _type(hint: Any, named: Mapping[Any, str]) -> Json:
    """The schema of a type's values."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        least = next((meta.ge for meta in arguments[1:] if isinstance(meta, Meta) and meta.ge is not None), None)
        return {**_type(arguments[0], named), **({} if least is None else {"minimum": least})}
    if origin in (typing.Union, types.UnionType):
        parts = [_type(each, named) for each in arguments]
        if any("$ref" in part for part in parts):
            return {"anyOf": parts}
        return {**{key: value for part in parts for key, value in part.items()}, "type": [part["type"] for part in parts]}
    if hint in named:
        return {"$ref": f"#/$defs/{named[hint]}"}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint], **({"minimum": 0} if hint in (int, float) else {})}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        values = {} if arguments[1] is Any else _type(arguments[1], named)
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _type(arguments[0], named)}
    raise TypeError(f"no JSON form is known of {hint}")
