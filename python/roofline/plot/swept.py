"""Sweeps as points: measured ones from results, expected ones from the model, each with the fields that vary."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import Error, is_whole
from ..machine import Machine
from ..operators import Operator, from_dict
from ..prediction import Prediction, predict_problem
from ..results import Measurement
from ..words import hint, numbers
from .asked import Measured, Work, named, results_of, work_of

# What a point has: quantity -> (axis, unit).
QUANTITIES: Mapping[str, tuple[str, str]] = {
    "time_s": ("Time", "s"),
    "flops_per_s": ("Performance", "FLOP/s"),
    "bytes_per_s": ("Bandwidth", "B/s"),
    "tokens_per_s": ("Throughput", "tok/s"),
    "flops_per_byte": ("Arithmetic intensity [FLOP/byte]", ""),
    "share_of_bracket": ("Share of the roof", ""),
}
LENGTH = ("seq_q", "seq_kv")  # where a sweep changes both, it is one axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A point: its fields, the variant, what was measured and what was expected (None where that was not)."""

    problem: Operator
    fields: Mapping[str, Any]
    variant: str
    measured: Measurement | None
    expected: Prediction | None

    def value(self, quantity: str, of: str) -> float | None:
        """The value of "measured" or "model"; None where there is none."""
        found = self.measured if of == "measured" else self.expected
        if quantity == "tokens_per_s":
            rows = self.fields.get("seq_q", self.fields.get("tokens", self.fields.get("rows", 1)))
            return int(rows) * int(self.fields.get("batch", 1)) / found.time_s if found is not None and found.time_s else None
        value = getattr(found, quantity, None)
        return None if value is None else float(value)


def axes_of(given: Mapping[str, Any] | str | None) -> dict[str, list[Any]]:
    """The values of each field: {"batch": [1, 8], "seq_kv": "1k,8k"}, or words "batch=1:64;seq_kv=1k,8k". Raises Error."""
    if given is None:
        return {}
    if isinstance(given, str):
        parts = [part.partition("=") for part in given.split(";") if part.strip()]
        if not all(values for _, _, values in parts):
            raise Error(f"axes are written batch=1:64;seq_kv=1k,8k, got {given!r:.80}")
        given = {name.strip().replace("-", "_"): values for name, _, values in parts}
    return {name: numbers(v) if isinstance(v, str) else list(v) if hasattr(v, "__iter__") else [v] for name, v in given.items()}


def points_of(
    results: Measured | None, work: Work | None, axes: Mapping[str, Any] | str | None, machine: Machine | None, variant: str | None
) -> list[Swept]:
    """The points of measurements, or of a problem over axes. Raises Error where there is none."""
    if results is not None and axes is not None:
        raise Error("axes are for an operator without measurements; of measurements, choose a field with x")
    found: list[tuple[Operator, str, Measurement | None]] = []
    operator = None
    if work is not None:
        ((_, operator),) = named(work_of(work)).items() if not isinstance(work_of(work), type) else (("", work_of(work)),)
    for m in results_of(results):
        if m.time_s is None or variant not in (None, m.variant) or (operator is not None and m.operator != operator.name):
            continue
        try:
            found.append((from_dict(m.operator, m.problem), m.variant, m))
        except Error:
            continue  # of another tool: it has no problem of ours
    if results is None:
        if operator is None:
            raise Error("give measurements (results), or an operator (work) with axes, such as {'rows': [1, 64, 4096]}")
        lists = axes_of(axes)
        for values in itertools.product(*lists.values()):
            found.append((operator.replace(**operator.expand(dict(zip(lists, values, strict=True)))), variant or "", None))
    if not found:
        raise Error("there is nothing to draw: no measurement of that operator and variant has a time")
    return [
        Swept(problem=p, fields=p.to_dict(), variant=v, measured=m,
              expected=None if machine is None else predict_problem(machine, p, variant=v or None,
                                                                    plan=m.plan if m and m.plan else None))
        for p, v, m in found
    ]  # fmt: skip


def varying(points: Sequence[Swept]) -> list[str]:
    """Fields of which there are several values, those of one length joined to seq_kv; numbers only."""
    names = [name for name, value in points[0].fields.items() if is_whole(value)]
    several = [name for name in names if len({p.fields.get(name) for p in points}) > 1]
    if set(LENGTH) <= set(several) and all(p.fields["seq_q"] == p.fields["seq_kv"] for p in points):
        several.remove("seq_q")
    return several


def axis_of(name: str | None, points: Sequence[Swept], taken: Sequence[str] = ()) -> str:
    """The field that is asked for, or the first that varies. Raises Error where there is none."""
    have = [each for each in varying(points) if each not in taken]
    if name is None:
        if not have:
            none = f"no field but {' and '.join(taken)}" if taken else "no field"
            raise Error(f"{none} has two values among these points; their fields are {', '.join(points[0].fields)}")
        return max(have, key=lambda each: len({p.fields[each] for p in points}))
    if name not in points[0].fields:
        raise Error(f"{points[0].problem.name} has no field {name!r:.40}{hint(name, points[0].fields)}")
    return name


def same_operator(points: Sequence[Swept]) -> list[Swept]:
    """Those of the operator that most are of, whose fields one axis can have."""
    names = [p.problem.name for p in points]
    most = max(dict.fromkeys(names), key=names.count)
    return [p for p in points if p.problem.name == most]
