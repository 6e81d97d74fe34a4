"""What A and B are, and whether they can be compared at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import Error
from ..machine import Machine, load_machines
from ..reading import RESULTS, from_json, is_there, read_bytes
from ..results import Measurement, Results
from ..words import arguments_checked, backend_of
from .claims import against
from .matching import Found, machines, points
from .rows import Comparison

Comparable = Machine | Results | Sequence[Measurement] | str | os.PathLike[str]
MACHINE_FILE, RESULTS_FILE = "machine.json", "results.jsonl"  # in the folder of a report
FILES = (".json", ".jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Machines by kind of device, the first of each; results; what it is called in messages."""

    name: str
    machines: dict[str, Machine]
    results: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()

    @property
    def claim(self) -> Machine | None:
        """The datasheet's machine, where that is all there is."""
        (machine,) = self.machines.values() if len(self.machines) == 1 and not self.results else (None,)
        stated = machine is not None and bool(machine.ceilings) and all(c.source == "datasheet" for c in machine.ceilings)
        return machine if stated else None

    @property
    def title(self) -> str:
        if self.machines:
            parts = [", ".join(filter(None, (m.name, m.device, m.created_utc))) for m in self.machines.values()]
        else:
            parts = [*dict.fromkeys(m.processor for m in self.results), *dict.fromkeys(m.utc for m in self.results[:1])]
        return "; ".join(filter(None, parts))


def _first_of_each(name: str, found: Iterable[Machine]) -> tuple[dict[str, Machine], tuple[str, ...]]:
    kept: dict[str, Machine] = {}
    left_out = [m.device for m in found if kept.setdefault(backend_of(m.device), m) is not m]
    return kept, (f"{name}: {', '.join(left_out)} left out, the first of each kind of device is compared",) if left_out else ()


def _is_results(path: Path) -> bool:
    """Whether a file begins with a line that is a measurement; an empty .jsonl is a results file too."""
    if path.suffix == ".jsonl":
        return True
    try:
        first = from_json(read_bytes(path, RESULTS).partition(b"\n")[0], where=str(path))
    except Error:
        return False  # load_machines states its error
    return isinstance(first, dict) and "operator" in first


def _read(name: str, given: Comparable) -> _Side:
    if isinstance(given, Machine):
        return _Side(name=name, machines={backend_of(given.device): given}, results=())
    if not isinstance(given, (str, os.PathLike)):
        measured = tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(isinstance(m, Measurement) for m in measured):
            raise Error(
                f"{name} must be a Machine, measurements, or the path of a file or folder of them, got {type(given).__name__}"
            )
        if not measured:
            raise Error(f"{name} holds no measurements")
        return _Side(name=name, machines={}, results=measured)
    path = Path(given)
    there = is_there(path, MACHINE_FILE, RESULTS_FILE)
    if isinstance(given, str) and not there and path.suffix not in FILES and os.sep not in given:
        try:
            return _read(name, Machine.from_datasheet(given))
        except Error as error:
            if not os.path.isdir(path):
                raise Error(f"{name}: there is no file or folder {given!r:.80}, and {error}") from None
    name = f"{name} ({path})"
    if path.is_dir():
        files = [path / MACHINE_FILE, path / RESULTS_FILE]
        if not any(file.exists() for file in files):
            raise Error(f"{name} is a folder without {MACHINE_FILE} and {RESULTS_FILE}: name a report's folder, or a file")
        found = load_machines(files[0]) if files[0].exists() else ()
        results = Results.load(files[1]) if files[1].exists() else Results()
    elif _is_results(path):
        found, results = (), Results.load(path)
        if not results:
            raise Error(f"{name} holds no measurements")
    else:
        found, results = load_machines(path), Results()
    kept, notes = _first_of_each(name, found)
    return _Side(name=name, machines=kept, results=tuple(results), notes=(*notes, *results.notes))


def _what(side: _Side) -> str:
    return " and ".join(filter(None, ("ceilings" if side.machines else "", "measurements" if side.results else "")))


def _require_common(a: _Side, b: _Side) -> None:
    both = [(side, set(side.machines), {backend_of(m.device) for m in side.results}) for side in (a, b)]
    (_, machines_a, results_a), (_, machines_b, results_b) = both
    if not (machines_a and machines_b) and not (results_a and results_b):
        raise Error(f"{a.name} holds {_what(a)} and {b.name} holds {_what(b)}: give two machine files, or two results files")
    for of_a, of_b in ((machines_a, machines_b), (results_a, results_b)):
        if of_a and of_b and not of_a & of_b:
            raise Error(
                f"{a.name} is of {', '.join(sorted(of_a))} and {b.name} of {', '.join(sorted(of_b))}: these have no ceiling and no "
                "point in common; compare two devices of one kind"
            )


@arguments_checked
def compare(a: Comparable, b: Comparable) -> Comparison:
    """A and B side by side, with 95 % intervals and a verdict for each thing both have.

    `compare("machine.json", "H100")`.

    Each is a Machine, measurements, the path of a machine file, a results file or a report's folder, or the name of a datasheet.
    Where one of them is a datasheet, every peak stated there stands beside the best measured ceiling of its kind. Between machines
    of different names the number of threads and the sizes of probes need not be equal; a note says where they are not.

    Raises:
        Error: for files that cannot be read, for a machine against measurements, and for different kinds of device.
    """
    left, right = _read("A", a), _read("B", b)
    claim = right.claim or left.claim
    if claim is not None and not (left.claim and right.claim):
        return _claimed(claim, left if right.claim else right)
    _require_common(left, right)
    found = [points(left.results, right.results)]
    for kind in dict.fromkeys((*right.machines, *left.machines)):
        of_a, of_b = left.machines.get(kind), right.machines.get(kind)
        lone = [f"{kind}: all ceilings"]
        found.insert(0, machines(of_a, of_b) if of_a and of_b else Found([], lone if of_a else [], lone if of_b else []))
    rows = [row for part in found for row in part.rows]
    notes = [*left.notes, *right.notes]
    if not rows:
        notes.append("A and B have nothing in common: no ceiling and no point of one is in the other")
    return Comparison(
        kind="measured",
        a=left.title,
        b=right.title,
        rows=tuple(rows),
        only_a=tuple(name for part in found for name in part.only_a),
        only_b=tuple(name for part in found for name in part.only_b),
        notes=tuple(notes),
    )


def _claimed(claim: Machine, side: _Side) -> Comparison:
    machine = side.machines.get(backend_of(claim.device))
    if machine is None:
        there = ", ".join(side.machines) or "measurements only"
        raise Error(
            f"{claim.name} is a {claim.device} device and {side.name} holds {there}: name a datasheet of the device measured"
        )
    rows, only = against(claim, machine)
    title = ", ".join(filter(None, (machine.name, machine.device, machine.created_utc)))
    return Comparison(
        kind="datasheet", a=f"{claim.name}, datasheet", b=title, rows=tuple(rows), only_b=tuple(only), notes=side.notes
    )
