"""Points that somebody else measured: a name, an intensity and a rate, from Python, CSV or JSON."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..dtypes import dtype_name
from ..errors import Error
from ..reading import POINTS, from_json, read_text
from ..units import parse_si

# Names of columns: ours first.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "name": ("name", "label", "kernel"),
    "flops_per_byte": ("flops_per_byte", "intensity", "arithmetic_intensity", "ai"),
    "flops_per_s": ("flops_per_s", "rate", "performance"),
    "dtype": ("dtype",),
}
FORM = 'a point is (name, FLOP/byte, FLOP/s), such as ("my kernel", 12.5, "3.1 TFLOP/s"), and a dtype as fourth if it has one'


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPoint:
    """name; flops_per_byte and flops_per_s, both positive; dtype: "" where it is not said."""

    name: str
    flops_per_byte: float
    flops_per_s: float
    dtype: str = ""


Given = OwnPoint | Sequence[Any] | Mapping[str, Any]
Points = Iterable[Given] | Mapping[str, Sequence[Any]] | str | os.PathLike[str]


def own_points(given: Points | None) -> list[OwnPoint]:
    """Points of tuples (name, FLOP/byte, FLOP/s[, dtype]), of {name: (FLOP/byte, FLOP/s)}, of records with the keys of COLUMNS,
    of a pandas DataFrame with such columns, or of the path of a CSV or JSON file with such records.

    Rates may be text with a unit: "3.1 TFLOP/s". Raises Error naming the point and its fault.
    """
    if given is None:
        return []
    if isinstance(given, (str, os.PathLike)):
        return _read(Path(given))
    to_dict = getattr(given, "to_dict", None) if hasattr(given, "columns") else None
    if to_dict is not None:
        given = to_dict("records")
    if isinstance(given, Mapping):
        given = [(name, *_parts(values, f"point {name!r:.60}")) for name, values in given.items()]
    if not isinstance(given, Iterable):
        raise Error(f"points must be a list of (name, FLOP/byte, FLOP/s), a mapping, a data frame or a file, got {given!r:.60}")
    listed: list[Any] = [*given]
    return [_point(each, f"point {index}") for index, each in enumerate(listed, start=1)]


def _read(path: Path) -> list[OwnPoint]:
    text = read_text(path, POINTS, "utf-8-sig")
    if path.suffix.lower() == ".json":
        records = from_json(text, where=str(path))
        if isinstance(records, dict):
            records = records.get("points", records)
        if isinstance(records, dict):
            records = [{"name": name, **values} if isinstance(values, dict) else [name, *_parts(values, f"{path}: {name!r:.60}")]
                       for name, values in records.items()]  # fmt: skip
        if not isinstance(records, list):
            raise Error(f"{path}: must be a list of points; {FORM}")
    else:
        records = list(csv.DictReader(text.splitlines()))
    if not records:
        raise Error(f"{path}: has no points; a CSV file begins with the columns name,flops_per_byte,flops_per_s")
    return [_point(each, f"{path}: point {index}") for index, each in enumerate(records, start=1)]


def _parts(values: Any, where: str) -> Sequence[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__") or len(values) not in (2, 3):
        raise Error(f"{where}: must be FLOP/byte and FLOP/s, got {values!r:.80}")
    return list(values)


def _point(given: Any, where: str) -> OwnPoint:
    name: Any
    x: Any
    y: Any
    dtype: Any
    if isinstance(given, OwnPoint):
        name, x, y, dtype = given.name, given.flops_per_byte, given.flops_per_s, given.dtype
    elif isinstance(given, Mapping):
        lower = {str(key).strip().lower(): value for key, value in given.items()}
        found = {ours: next((lower[name] for name in names if name in lower), None) for ours, names in COLUMNS.items()}
        if missing := [ours for ours, value in found.items() if value in (None, "") and ours != "dtype"]:
            raise Error(f"{where} lacks {', '.join(missing)}; its columns are {', '.join(lower)[:120]}")
        name, x, y, dtype = found["name"], found["flops_per_byte"], found["flops_per_s"], found["dtype"] or ""
    elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)) and len(given) in (3, 4):
        name, x, y, dtype = (*given, "")[:4]
    else:
        raise Error(f"{where}: got {given!r:.80}; {FORM}")
    where = f"{where}, {str(name)!r:.60}"
    try:
        dtype = "" if dtype in (None, "") or dtype != dtype else dtype_name(dtype)  # a missing value of pandas is None or NaN
    except Error as error:
        raise Error(f"{where}: {error}") from error
    return OwnPoint(
        name=str(name), flops_per_byte=_number(x, "FLOP/byte", where), flops_per_s=_number(y, "FLOP/s", where), dtype=dtype
    )


def _number(given: Any, unit: str, where: str) -> float:
    try:
        value = parse_si(given, unit) if isinstance(given, str) else float(given)
    except (Error, TypeError, ValueError) as error:
        raise Error(f"{where}: {unit}: {error}") from error
    if not (math.isfinite(value) and value > 0):
        raise Error(f"{where}: {unit} must be positive, got {given!r:.60}")
    return value
