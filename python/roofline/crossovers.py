"""The batch from which a problem is compute-bound: where its intensity, which grows with the batch, meets the ridge point."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._repr import Parts, Records, Row, Shown
from .errors import Error
from .machine import Given, in_order, machine_of
from .model import machine_roofs
from .operators import Growth, Operator, count, growth, operator_named, problem_of
from .units import fmt_number
from .words import arguments_checked, hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing(Shown, Records):
    """Where intensity, which grows with the batch, meets a ridge.

    Attributes:
        batch: there (a fraction), None where it never does: every sequence then brings bytes of its own.
        limit: the intensity that an endless batch approaches, in FLOP/byte.
        ridge: the ridge point, in FLOP/byte.
        over: the field that grows, where it is another one than the batch.
    """

    batch: float | None
    limit: float
    ridge: float
    over: str = "batch"

    @property
    def text(self) -> str:
        ridge = f"the ridge of {fmt_number(self.ridge)} FLOP/byte"
        if self.batch is None:
            return f"no {self.over} reaches it: the intensity saturates at {fmt_number(self.limit)} FLOP/byte, below {ridge}"
        return f"from {self.over} {math.ceil(self.batch)} on the intensity is above {ridge}"

    def __repr__(self) -> str:
        return f"Crossing({self.text})"

    def _table(self) -> Parts:
        rows: list[Row] = [
            (f"{self.over} at the ridge", "none" if self.batch is None else fmt_number(self.batch)),
            ("intensity without end", f"{fmt_number(self.limit)} FLOP/byte"),
            ("ridge", f"{fmt_number(self.ridge)} FLOP/byte"),
        ]
        return "Crossing", ("", ""), rows, (self.text,)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_records(self) -> list[dict[str, Any]]:
        """`to_dict` alone, as a table of one row."""
        return [self.to_dict()]


def _met(grown: Growth, ridge: float, over: str) -> Crossing:
    return Crossing(batch=grown.reaches(ridge), limit=grown.limit, ridge=ridge, over=over)


def crossing(*, flops_each: float, bytes_each: float, bytes_once: float, ridge: float, over: str = "batch") -> Crossing:
    """The b at which b flops_each / (bytes_once + b bytes_each) is the ridge. All above 0."""
    return _met(Growth(flops_each=flops_each, bytes_each=bytes_each, bytes_once=bytes_once), ridge, over)


SHARING = ("rows", "tokens", "batch", "seq_q")  # fields of which all read the same weights, keys or values
ENDLESS = 1 << 40


def _searched(problem: Operator, over: str, ridge: float) -> Crossing | None:
    """Where counts do not grow linearly: more tokens touch more experts, whose weights are then read. None: no intensity grows."""

    def intensity(size: int) -> float:
        return count(problem.replace(**{over: size})).flops_per_byte

    try:
        least, limit = intensity(1), intensity(ENDLESS)
    except Error:  # the field has an upper bound
        return None
    if limit <= 1.01 * least:
        return None
    batch: float | None = 0.0 if ridge <= least else None
    if least < ridge < limit:
        above = bisect.bisect_left(range(ENDLESS), ridge, 1, key=intensity)
        low, high = intensity(above - 1), intensity(above)
        batch = above - 1 + (ridge - low) / (high - low)
    return Crossing(batch=batch, limit=limit, ridge=ridge, over=over)


def _crossing(problem: Operator, over: str, ridge: float) -> Crossing:
    """Raises Error where the intensity does not grow."""
    try:
        return _met(growth(problem, over), ridge, over)
    except Error:
        if (found := _searched(problem, over, ridge)) is None:
            raise
        return found


def growing(problem: Operator | type[Operator] | str, fields: Mapping[str, Any], over: str = "") -> Operator:
    """The problem whose `over` grows. An operator's name or class means the batch of a decode step, unless `over` is given."""
    if isinstance(problem, Operator):
        return problem_of(problem, fields)
    operator = operator_named(problem) if isinstance(problem, str) else problem
    given = operator.expand(fields)
    if over in ("", "batch") and {"batch", "seq_q"} <= set(operator.field_names()):
        given.setdefault("seq_q", 1)
    return operator.make(**given)


@arguments_checked
def crossover(
    machine: Given, problem: Operator | type[Operator] | str, over: str = "", *, level: str | None = None, **fields: Any
) -> Crossing:
    """The batch from which `problem` is compute-bound on `machine`: crossover("A100", "ffn", dtype="bf16", d_model=4096).batch.

    Args:
        machine: an object or words, as in `roofline.predict`.
        problem: likewise; an operator by its name is a decode step (seq_q 1) unless seq_q is given.
        over: the field that grows; "" is the first of SHARING with which its FLOPs per byte grow.
        level: of the operands (None: the slowest).

    Raises:
        Error: where no field does, and naming a ceiling that is missing.
    """
    with in_order("crossover takes the machine first", problem):
        machine = machine_of(machine)
    problem = growing(problem, fields, over)
    known, ridge = problem.field_names(), machine_roofs(machine, problem, level=level).ridge_flops_per_byte
    for name in (over,) if over else SHARING:
        if name not in known:
            if over:
                raise Error(f"{problem.name} has no field {over!r:.80}{hint(over, known)}; it has {', '.join(known)}")
            continue
        try:
            found = _crossing(problem, name, ridge)
        except Error:
            if over:
                raise
            continue
        if name in problem.expand(fields):
            raise Error(f"{problem.name}: {name} is the field that grows: leave it out, or let another one grow with over=")
        return found
    way = f"`roofline predict {problem.name}` tells the bound of one size"
    fault = f"its FLOPs per byte grow with none of {', '.join(SHARING)}"
    raise Error(f"{problem.name}: {fault}; {way}")
