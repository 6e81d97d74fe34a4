"""What a file of another tool holds for us."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._repr import json_form
from ..errors import Error
from ..machine import MEMORIES, Ceiling, Machine
from ..reading import LOG, SCHEMA_VERSION, read_bytes
from ..results import Measurement
from ..words import backend_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Points and ceilings of one file, and notes on omissions and assumptions.

    tool: "ncu" or "nccl-tests". machine: the device as the file names it, with the ceilings found; without ceilings there may be
    none. Provenance of every point and of the machine holds the tool, its version as far as it says, and the file's SHA-256.
    """

    tool: str
    measurements: tuple[Measurement, ...] = ()
    machine: Machine | None = None
    notes: tuple[str, ...] = ()

    @property
    def ceilings(self) -> tuple[Ceiling, ...]:
        return self.machine.ceilings if self.machine else ()

    def added_to(self, machine: Machine) -> Machine:
        """`machine` with the ceilings of the file, which replace those of the same problem, kind and tool.

        Raises Error where the file has none, and for a machine that is no GPU.
        """
        if self.machine is None or not self.ceilings:
            raise Error(f"the {self.tool} file holds no ceiling for {machine.name}")
        if backend_of(machine.device) == "cpu":
            raise Error(f"{machine.name} is a CPU; the ceilings of {self.tool} are those of a GPU, {self.machine.name}")

        own = [level for level in machine.levels() if level in MEMORIES]  # a tool's DRAM is the memory that this machine has
        added = [dataclasses.replace(c, level=own[0]) if own and c.level in MEMORIES else c for c in self.ceilings]

        def same(one: Ceiling, other: Ceiling) -> bool:
            return one.plan.get("tool") == self.tool and (one.name, dict(one.problem)) == (other.name, dict(other.problem))

        kept = tuple(c for c in machine.ceilings if not any(same(c, new) for new in added))
        before = [item for item in machine.provenance.get("imported", []) if item != self.machine.provenance["imported"][0]]
        provenance = {**machine.provenance, "imported": [*before, *self.machine.provenance["imported"]]}
        return dataclasses.replace(machine, ceilings=(*kept, *added), provenance=provenance)

    def to_dict(self) -> dict[str, Any]:
        """JSON form; see schemas/import.schema.json."""
        return {"schema_version": SCHEMA_VERSION, "kind": "import", **json_form(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file's lines, what messages call it, and what points remember of it: no path, and no host."""

    where: str
    lines: tuple[str, ...]
    sha256: str

    def provenance(self, tool: str, **more: Any) -> dict[str, Any]:
        return {"tool": tool, "file_sha256": self.sha256, **{key: value for key, value in more.items() if value}}


def source_of(path: str | os.PathLike[str]) -> Source:
    """Raises Error for a file that cannot be read, is no text, or is empty."""
    where = os.fspath(path)
    content = read_bytes(path, LOG)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = "export a report with `ncu --import REPORT --page raw --csv`" if where.endswith(".ncu-rep") else "it is binary"
        raise Error(f"{where} is not text (byte {error.start}): {hint}") from error
    if "\0" in text:
        raise Error(f"{where} is not text: it holds null bytes")
    if not text.strip():
        raise Error(f"{where} is empty")
    return Source(where=where, lines=tuple(text.splitlines()), sha256=hashlib.sha256(content).hexdigest())


def machine_from(name: str, ceilings: tuple[Ceiling, ...], provenance: Mapping[str, Any], facts: Mapping[str, Any]) -> Machine:
    return Machine(name=name, device="cuda:0", facts=dict(facts), ceilings=ceilings, provenance={"imported": [dict(provenance)]})
