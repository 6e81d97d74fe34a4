"""The files of a report, written from saved measurements: nothing here measures."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..ceilings import PENDING
from ..errors import Error
from ..machine import Machine, load_machines, write_atomically
from ..plot.files import held_pictures, saved
from ..results import Measurement, Results
from .markdown import TITLE, end_checks, left_out_lines, markdown, report_facts
from .tables import MOVED

MACHINE, RESULTS, TEXT, TABLE = "machine.json", "results.jsonl", "report.md", "results.csv"
SERIES = ("empirical", "size_curve", "latency")  # stems of the pictures of what only a thorough machine holds
PICTURES = tuple(f"{stem}.{suffix}" for stem in ("roofline", *SERIES) for suffix in ("svg", "png", "csv"))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """One device measured: its ceilings, its operators, and where the files are."""

    machine: Machine
    results: Results
    out: Path
    files: tuple[Path, ...] = ()

    @property
    def left_out(self) -> list[str]:
        """What was not measured, and why."""
        return left_out_lines(self.machine)

    @property
    def end_check(self) -> list[str]:
        """Labels of the main roofs that moved between start and end."""
        return [check.label for check in end_checks(self.machine) if check.moved > MOVED]

    def __repr__(self) -> str:
        return f"Report({self.machine!r}, {self.results!r}, {str(self.out)!r})"


def require_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, made if absent and proved writable. Raises Error before anything is measured in vain."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Error(f"cannot write into {folder}: {error.strerror or error}; choose another folder") from error
    return folder


def require_file(path: str | os.PathLike[str]) -> Path:
    """The path of a file that can be written, as it was before. Raises Error before anything is measured in vain."""
    file = Path(path)
    fresh = not file.exists()
    try:
        with open(file, "ab"):
            pass
        if fresh:
            file.unlink()
    except OSError as error:
        raise Error(f"cannot write {file}: {error.strerror or error}; choose another file") from error
    return file


def begin(path: str | os.PathLike[str], *, resume: bool = False) -> Path:
    """The folder of a new report: the files of an earlier report in it are replaced, others are never touched.

    resume: keep a machine file whose measurement was interrupted, to be finished. Raises Error where the folder cannot be written,
    or holds a file of one of our names that no report wrote.
    """
    folder = require_folder(path)
    text, machine, results = folder / TEXT, folder / MACHINE, folder / RESULTS

    def refuse(file: Path) -> Error:
        return Error(f"{file} was not written by a report; choose another folder, or move it away")

    ours = unfinished = False
    if text.exists():
        with open(text, encoding="utf-8", errors="replace") as file:
            ours = file.readline().startswith(TITLE)
        if not ours:
            raise refuse(text)
    if machine.exists() and not ours:
        try:
            found = load_machines(machine)
            unfinished = any(m.provenance.get(PENDING) for m in found)
            ours = unfinished or any(report_facts(m) for m in found)
        except Error as error:
            raise refuse(machine) from error
        if not ours:
            raise refuse(machine)
    if results.exists() and results.stat().st_size and not ours:
        raise refuse(results)
    # What is left of an earlier report would describe another run beside the new results.
    for name in (TEXT, RESULTS, TABLE, *PICTURES, *(() if resume and unfinished else (MACHINE,))):
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise Error(f"cannot replace {folder / name}: {error.strerror or error}; choose another folder") from error
    return folder


def render(machine: Machine, results: Iterable[Measurement], out: str | os.PathLike[str], *, plot: bool = True) -> tuple[Path, ...]:
    """Write report.md, results.csv and (plot) the pictures with their data into `out`; nothing is measured.

    The same machine and results give the same text. Returns the paths. Raises Error where a file cannot be written.
    """
    folder = require_folder(out)
    given = results if isinstance(results, Results) else Results(tuple(results))
    makers, wanted = saved(machine, given), held_pictures(machine)
    if any(c.kind in ("bandwidth", "compute") for c in machine.ceilings):
        wanted = ["roofline", *wanted]
    pictures = [file for name in wanted for file in makers[name][1](folder)] if plot else []
    write_atomically(folder / TEXT, markdown(machine, given, pictures=[p.name for p in pictures if p.suffix == ".png"]))
    given.to_csv(folder / TABLE)
    return (folder / TEXT, folder / TABLE, *pictures)


def load(folder: str | os.PathLike[str]) -> tuple[Machine, Results]:
    """The machine and the results of a report's folder (no results where there are none). Raises Error as `Machine.load`."""
    path = Path(folder)
    machine = Machine.load(path / MACHINE)
    results = Results.load(path / RESULTS) if (path / RESULTS).exists() else Results()
    return machine, results
