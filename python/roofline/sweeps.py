"""Sweeps: one operator over the values of its fields, each point appended to disk as soon as it is there."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import Error
from .machine import Given, Machine, machine_of
from .measurement import Device, Policy, attempt, open_device
from .measurement.progress import Progress, ProgressOption
from .operators import Operator, problem_of
from .results import Measurement, Results, append_to, begun, measurement_key
from .words import arguments_checked, split

# A point with one of these need not be measured again; a contended one, one whose roof moved, or one that found no memory, is.
SETTLED = ("ok", "implausible", "unsupported")
MOST_POINTS = 1_000_000


def _values(name: str, given: Any) -> Sequence[Any]:
    """The values of an axis; of an endless iterable one more than a sweep may have. Raises Error where there is none."""
    if isinstance(given, str):
        return split(given)
    if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        return [given]
    given = given.tolist() if isinstance(given, np.ndarray) else given
    # One value beyond the limit is enough to see that the list is too long.
    values = given[: MOST_POINTS + 1] if isinstance(given, (range, list, tuple)) else list(itertools.islice(given, MOST_POINTS + 1))
    if not values:
        raise Error(f"sweep: {name} is empty; give at least one value")
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The problems and variants of a sweep, each made when it is asked for; the last axis changes fastest."""

    problem: Operator
    variants: tuple[str, ...]  # none: the default of each problem on `device`
    axes: Mapping[str, Sequence[Any]]
    device: Device
    machine: Machine | None = None  # by whose measured kernels the default is chosen

    def __len__(self) -> int:
        return min(max(len(self.variants), 1) * math.prod(map(len, self.axes.values())), MOST_POINTS + 1)

    def __iter__(self) -> Iterator[tuple[Operator, str]]:
        for combination in itertools.product(*self.axes.values()):
            made = self.problem.replace(**dict(zip(self.axes, combination, strict=True)))
            yield from ((made, name) for name in self.variants or (self.device.default_variant(made, self.machine),))

    def check(self) -> None:
        """Raises Error for the first problem that the operator refuses; numbers are checked as arrays, many at a time."""
        numbers = {name: np.asarray(values) for name, values in self.axes.items() if _are_numbers(values)}
        words = {name: values for name, values in self.axes.items() if name not in numbers}
        shape = tuple(map(len, numbers.values()))
        for combination in itertools.product(*words.values()):
            fields = self.problem.to_dict() | self.problem.expand(dict(zip(words, combination, strict=True)))
            for begin in range(0, math.prod(shape), CHUNK):
                at = np.unravel_index(np.arange(begin, min(begin + CHUNK, math.prod(shape))), shape) if shape else ()
                several = {name: values[index] for (name, values), index in zip(numbers.items(), at, strict=True)}
                type(self.problem).many(**fields | self.problem.expand(several))


CHUNK = 1 << 16  # problems that are checked at a time


def _are_numbers(values: Sequence[Any]) -> bool:
    """Whether all are whole numbers of 64 bits, or all are fractions."""
    kinds = {int} if isinstance(values, range) else set(map(type, values))
    return kinds in ({int}, {float}) and np.asarray(values).dtype.kind == ("i" if int in kinds else "f")


def points(
    problem: Operator, variant: str | Sequence[str] | None, device: Device, axes: Mapping[str, Any], machine: Machine | None = None
) -> Points:
    """The sweep's problems and variants. Raises Error for bad fields and for too many points, before anything is measured."""
    lists = {name: _values(name, values) for name, values in axes.items()}
    variants = () if variant is None else tuple(map(str, _values("variant", variant)))
    for name in variants:
        if problem.variants:
            problem.require_variant(name)
    found = Points(problem=problem, variants=variants, axes=lists, device=device, machine=machine)
    if len(found) > MOST_POINTS:
        raise Error(f"sweep: more than {MOST_POINTS} points; give fewer values")
    found.check()
    return found


@arguments_checked
def sweep(
    problem: Operator | type[Operator] | str,
    *,
    variant: str | Sequence[str] | None = None,
    device: str | Device | None = None,
    threads: int = 0,
    machine: Given | None = None,
    cache_state: str = "cold",
    seed: int = 0,
    policy: Policy | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: ProgressOption = None,
    **axes: Any,
) -> Results:
    """Measure `problem` for every combination of `axes`: lists of values for its fields, or for the shorthand `seq_len`.

    `sweep("attention", head_dim=128, batch=[1, 8, 64], seq_len=["1k", "8k"])`; problem and machine are objects or words, as in
    `roofline.predict`.

    Args:
        variant: one, several, or None for the default of each point.
        out: a results file (JSON Lines). Each point is on disk before the next begins, and a sweep run again with the same file
            measures only what is missing, was disturbed, or comes from another processor or other instruction sets; what is
            disturbed again is no new line. A point that cannot run is a result with its reason.

    Returns:
        The points of this sweep in order.

    Raises:
        Error: for bad input before anything is measured; on Ctrl-C finished points are on disk.
    """
    opened = open_device(device, threads)
    problem, machine = problem_of(problem), None if machine is None else machine_of(machine)
    todo = points(problem, variant, opened, axes, machine)
    return measure_points(todo, cache_state=cache_state, out=out, progress=progress, seed=seed, policy=policy)


def _is_from(device: Device, measurement: Measurement) -> bool:
    """Whether the same model of processor measured it, with the same instruction sets, as far as it says so."""
    facts = measurement.provenance.get("device", {})
    return all(facts.get(name) in (None, device.facts.get(name)) for name in ("cpu_name", "gpu_name", "isas"))


def measure_points(
    todo: Points, *, cache_state: str, out: str | os.PathLike[str] | None, progress: ProgressOption, **how: Any
) -> Results:
    """`sweep` for `points`. how: of `attempt`."""
    device = todo.device
    known: dict[str, Measurement] = {}
    if out is not None:
        own = (m for m in begun(out) if _is_from(device, m))
        known = {m.key: m for m in sorted(own, key=lambda m: m.status in SETTLED)}  # an undisturbed one last
    fields = todo.problem.expand(dict.fromkeys(todo.axes))  # seq_len is two of them
    found: list[Measurement] = []
    with Progress(progress, len(todo)) as shown:
        for point, name in todo:
            sizes = " ".join(f"{axis}={getattr(point, axis)}" for axis in fields)
            shown.step(f"{point.name} {name} {sizes}".strip())
            key = measurement_key(point.name, point.to_dict(), name, device.name, device.threads, cache_state)
            measurement = known.get(key)
            if measurement is None or measurement.status not in SETTLED:
                earlier = measurement
                measurement = attempt(point, variant=name, device=device, machine=todo.machine, cache_state=cache_state, **how)
                repeated = earlier is not None and earlier.status == measurement.status  # disturbed again
                if out is not None and not repeated:
                    append_to(out, measurement)
            found.append(measurement)
    return Results(tuple(found))
