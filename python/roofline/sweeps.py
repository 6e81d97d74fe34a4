"""Sweeps: one operator over the values of its fields, each point appended to disk as soon as it is there."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .errors import Error
from .machine import Machine
from .measurement import Device, Policy, attempt, open_device
from .measurement.progress import Progress, ProgressOption
from .model import default_variant
from .operators import Operator
from .results import Measurement, Results, append_to, measurement_key

# A point with one of these need not be measured again; a contended one, or one whose roof moved, is.
SETTLED = ("ok", "implausible", "unsupported", "out_of_memory")
MOST_POINTS = 1_000_000


def _values(name: str, given: Any) -> list[Any]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        return [given]
    values = list(given)
    if not values:
        raise Error(f"sweep: {name} is empty; give at least one value")
    return values


def points(
    problem: Operator, variant: str | Sequence[str] | None, device: Device, axes: Mapping[str, Any]
) -> list[tuple[Operator, str]]:
    """The sweep's problems and variants, the last axis fastest. Raises Error for bad fields, before anything is measured."""
    names = list(axes)
    lists = [_values(name, axes[name]) for name in names]
    variants = [] if variant is None else [str(v) for v in _values("variant", variant)]
    for name in variants:
        if problem.variants and name not in problem.variants:
            raise Error(f"{problem.name}: unknown variant {name!r}; it has {', '.join(problem.variants)}")
    count = len(variants) or 1
    for values in lists:
        count *= len(values)
    if count > MOST_POINTS:
        raise Error(f"sweep: {count} points are more than {MOST_POINTS}; give fewer values")
    found = []
    for combination in itertools.product(*lists):
        made = problem.replace(**dict(zip(names, combination, strict=True)))
        found += [(made, name) for name in variants or [default_variant(made, device.backend)]]
    return found


def sweep(
    problem: Operator,
    *,
    variant: str | Sequence[str] | None = None,
    device: str | Device | None = None,
    threads: int = 0,
    machine: Machine | None = None,
    cache_state: str = "cold",
    seed: int = 0,
    policy: Policy | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: ProgressOption = None,
    **axes: Any,
) -> Results:
    """Measure `problem` for every combination of `axes`: lists of values for its fields, or for the shorthand `seq_len`.

    `sweep(Attention(head_dim=128), batch=[1, 8, 64], seq_len=[1024, 8192])`. variant: one, several, or None for the
    default of each point.
    out: a results file (JSON Lines). Each point is on disk before the next begins, and a sweep run again with the same file
    measures only what is missing (or was contended). A point that cannot run is a result with its reason.

    Returns the points of this sweep in order. Raises Error for bad input before anything is measured; on Ctrl-C what is
    finished is on disk.
    """
    opened = open_device(device, threads)
    todo = points(problem, variant, opened, axes)
    known: dict[str, Measurement] = {}
    if out is not None and os.path.exists(out):
        known = {m.key: m for m in Results.load(out) if m.status in SETTLED}
    found: list[Measurement] = []
    with Progress(progress, len(todo)) as shown:
        for point, name in todo:
            shown.step(f"{point.name} {name} {' '.join(f'{axis}={getattr(point, axis, axes[axis])}' for axis in axes)}".strip())
            key = measurement_key(point.name, point.to_dict(), name, opened.name, opened.threads, cache_state)
            measurement = known.get(key)
            if measurement is None:
                measurement = attempt(
                    point, variant=name, device=opened, machine=machine, cache_state=cache_state, seed=seed, policy=policy
                )
                if out is not None:
                    append_to(out, measurement)
            found.append(measurement)
    return Results(tuple(found))
