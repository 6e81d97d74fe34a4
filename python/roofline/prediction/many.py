"""Expected times of many problems at once: arrays instead of numbers, from the same formulas."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Error
from ..machine import LEVELS, Given, Machine, held_by, in_order, machine_of
from ..operators import operator_named
from ..operators.base import Facts, Operator
from ..words import arguments_checked
from .expected import Utilisation
from .problems import Assumed


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Predictions:
    """Many predictions of one operator, as arrays of one shape; each as in `Prediction`. level: where the operands lie."""

    time_s: NDArray[np.float64]
    roof_s: NDArray[np.float64]
    bound: NDArray[np.str_]
    level: NDArray[np.str_]
    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]

    @property
    def flops_per_s(self) -> NDArray[np.float64]:
        return np.asarray(self.flops / self.time_s)

    @property
    def flops_per_byte(self) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.flops / self.bytes)

    def __len__(self) -> int:
        return len(self.time_s)

    def __repr__(self) -> str:
        bounds = ", ".join(f"{count} {name}" for name, count in zip(*np.unique(self.bound, return_counts=True), strict=True))
        return f"Predictions({list(self.time_s.shape)}, bound: {bounds or 'none'})"


_KINDS = {"time_s": "f8", "roof_s": "f8", "bound": "U7", "level": "U7", "flops": "f8", "bytes": "f8"}
CHUNK = 1 << 13  # predictions at a time: their two dozen arrays stay in a second-level cache


@arguments_checked
def predict_many(
    machine: Given,
    operator: type[Operator] | str,
    *,
    variant: str | None = None,
    plan: Facts | None = None,
    level: str | None = None,
    fitting: bool = False,
    threads: int | None = None,
    unit: str | None = None,
    utilisation: Utilisation | None = None,
    launch_s: float | None = None,
    knee: float | None = None,
    **given: Any,
) -> Predictions:
    """`predict` for all problems of NumPy arrays that broadcast: predict_many("H100", "attention", seq_q=1, seq_kv=lengths).

    Args:
        given: fields of the operator, numbers as arrays (see `Operator.many`).
        fitting: the operands of each problem lie in the fastest measured level that holds them (a warm run), instead of `level`
            for all.

    Raises:
        Error: as `predict` does, and for fields, naming the values of the first problem that is refused.
    """
    assumed = Assumed(threads=threads, unit=unit, utilisation=utilisation, launch_s=launch_s, knee=knee)
    with in_order("predict_many takes the machine first", operator):
        machine = machine_of(machine)
    operator = operator_named(operator) if isinstance(operator, str) else operator
    if not (isinstance(operator, type) and issubclass(operator, Operator)):
        raise Error(f"predict_many: an operator must be a class or a name, such as 'matmul', got {operator!r:.60}")
    # Columns of data frames are arrays too, and ranges.
    arrayed = {name: hasattr(value, "__array__") or isinstance(value, range) for name, value in given.items()}
    given = {name: np.asarray(value) if arrayed[name] else value for name, value in given.items()}
    expanded = operator.expand(given)
    arrays = {name: np.asarray(value) for name, value in expanded.items() if isinstance(value, (np.ndarray, list, tuple))}
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        raise Error(f"{operator.name}: the fields do not broadcast: {shapes}") from None
    flat = {name: np.broadcast_to(array, shape).reshape(-1) for name, array in arrays.items()}
    count = math.prod(shape)
    found = {name: np.empty(count, dtype=kind) for name, kind in _KINDS.items()}
    caches = machine.facts if machine.device == "cpu" else {}
    for begin in range(0, count, CHUNK):
        part = slice(begin, begin + CHUNK)
        fields = {**expanded, **{name: array[part] for name, array in flat.items()}}
        problem = operator.many(**fields)
        everywhere = np.ones(min(CHUNK, count - begin), dtype=bool)
        for where, there in _levels(machine, problem, caches, everywhere) if fitting else ((level, everywhere),):
            if not there.all():
                problem = operator.many(**{name: x[there] if name in flat else x for name, x in fields.items()})
            expected = dataclasses.replace(assumed, level=where).prediction(machine, problem, variant, plan)
            answers = {name: expected.roofs.level if name == "level" else getattr(expected, name) for name in _KINDS}
            for name, values in answers.items():
                found[name][part][there] = values
    return Predictions(**{name: values.reshape(shape) for name, values in found.items()})


def _levels(machine: Machine, problem: Operator, facts: Mapping[str, Any], everywhere: Any) -> Iterator[tuple[str, Any]]:
    """Each measured level with the problems whose tensors it is the fastest to hold, as a mask."""
    measured = machine.levels()
    masks = {level: everywhere & False for level in measured}
    for level, there in held_by(facts, problem.footprint_bytes() * everywhere):
        # A level that was not measured stands for the next one farther out.
        near = next((other for other in measured if LEVELS.index(other) >= LEVELS.index(level)), None)
        if near is not None:
            masks[near] |= there
    return ((level, mask) for level, mask in masks.items() if mask.any())
