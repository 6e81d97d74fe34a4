"""What a measurement of a machine keeps on disk while it runs: a side file, until the machine takes its place in a machine file."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import Error
from ..machine import Machine, load_machines, require_file, save_machines
from ..machine.output import FORCE, is_stream
from ..measurement.devices import Device

SAVING = 20.0  # times as long as it takes lie between two savings of what comes quickly
PENDING = "pending"  # of the provenance: what a file still lacks


def side_file(out: str | os.PathLike[str]) -> Path:
    """Where an unfinished measurement into the machine file `out` lies."""
    return Path(f"{os.fspath(out)}.partial")


def machines_in(out: str | os.PathLike[str], *, force: bool = False) -> tuple[Machine, ...]:
    """The machines beside which another is put into a file. Raises Error for a file of another kind, unless it may be replaced."""
    if is_stream(out) or not os.path.exists(out) or not os.stat(out).st_size:
        return ()
    try:
        return load_machines(out)
    except Error as error:
        if force:
            return ()
        raise Error(f"{error}; it is not replaced: {FORCE}") from error


class Kept:
    """The files of one measurement. out: the machine file; side: the file written after every piece, and read to go on with it."""

    def __init__(
        self,
        out: str | os.PathLike[str] | None,
        side: str | os.PathLike[str] | None,
        options: Mapping[str, Any],
        device: Device,
        force: bool,
    ) -> None:
        self.out = Path(out) if out is not None else None
        self.force = force
        if side is None and out is not None and not is_stream(out):
            side = side_file(out)
        self.side = Path(side) if side is not None else None
        for file in (self.out, self.side):
            if file is not None:
                require_file(file)
        if self.out is not None:
            machines_in(self.out, force=force)
        self.begun = self._unfinished(options, device)
        self._due = 0.0

    def _unfinished(self, options: Mapping[str, Any], device: Device) -> Machine | None:
        """The machine in the side file. Raises Error where that is of something else."""
        if self.side is None or not self.side.exists() or not self.side.stat().st_size:
            return None
        try:
            machine = Machine.load(self.side)
        except Error as error:
            if self.force:
                return None
            raise Error(f"{error}; it is not replaced: {FORCE}") from error
        if PENDING not in machine.provenance and not self.force:
            raise Error(f"{self.side} holds a finished measurement, where this one keeps its unfinished parts; {FORCE}")
        before = machine.provenance.get("options")
        if (machine.device, machine.name, before) == (device.name, device.title, options):
            return machine
        if self.force:
            return None
        raise Error(
            f"{self.side} holds an unfinished measurement of {machine.name}, {machine.device}, with other options "
            f"({_changed(before, options) or 'another device'}); finish it with these, or begin anew: {FORCE}"
        )

    def save(self, machine: Callable[[], Machine]) -> None:
        """Keep the finished part of a machine."""
        if self.side is not None:
            begun = time.monotonic()
            machine().save(self.side, force=True)  # looked at before it was begun
            self._due = time.monotonic() + SAVING * (time.monotonic() - begun)

    def save_soon(self, machine: Callable[[], Machine]) -> None:
        """As `save`, unless that would take more than one SAVING-th of the time."""
        if time.monotonic() >= self._due:
            self.save(machine)

    def finish(self, machine: Machine) -> None:
        """Put the machine into its file, in the place of the same device and name, beside all others; the side file goes."""
        if self.out is None:
            return
        there = list(machines_in(self.out, force=self.force))  # again: minutes have passed
        same = [i for i, m in enumerate(there) if (m.device, m.name) == (machine.device, machine.name)]
        at = same[0] if same else len(there)
        save_machines([*there[:at], machine, *there[at + 1 :]], self.out, force=True)
        if self.side is not None:
            with contextlib.suppress(OSError):
                self.side.unlink(missing_ok=True)


def _changed(before: Any, now: Mapping[str, Any]) -> str:
    stated = before if isinstance(before, Mapping) else {}
    differing = [name for name in now if stated.get(name) != now[name]]
    return ", ".join(f"{name} {stated.get(name)}, now {now[name]}" for name in differing)
