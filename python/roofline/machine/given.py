"""Machines as callers give them: objects, names, paths, and lists of these."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import Error
from ..reading import is_there
from .machine import Machine
from .naming import machine_list

Given = Machine | str | os.PathLike[str]  # what `machine_of` takes


def machine_of(given: Given, device: str | None = None) -> Machine:
    """A machine, or what `Machine.load` takes. Raises Error as it does, for anything else, and for a device of one machine."""
    if isinstance(given, Machine):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise Error(f"a machine must be a Machine, a name such as 'H100', or a path, got {given!r:.60}")
    machine = Machine.load(given, device)
    if device not in (None, machine.device, machine.name):
        said = f"device {device!r:.80} would choose among the machines of a file"
        raise Error(f"{said}, but {os.fspath(given)!r:.80} is one machine: leave the device out")
    return machine


def machines_of(given: Given | Iterable[Given]) -> list[Machine]:
    """Machines from one or several of what `machine_of` takes, or from a comma list: "H100,GB200". Raises Error as it does."""
    if isinstance(given, str) and not is_there(given, "machine.json"):
        return [machine_of(each) for each in machine_list(given)]
    if isinstance(given, (Machine, str, os.PathLike)) or not isinstance(given, Iterable):
        return [machine_of(given)]
    return [machine_of(each) for each in given]


@contextmanager
def in_order(order: str, *others: Any) -> Iterator[None]:
    """What is raised in it says `order`, as "place takes the machine second", where one of `others` is a machine in its place."""
    try:
        yield
    except (Error, TypeError):
        for other in others:
            try:
                machine_of(other)
            except Error:
                continue
            raise Error(f"{order}, and {getattr(other, 'name', other)!r:.60} is one") from None
        raise
