"""The files of a report, written from saved measurements: nothing here measures."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ..ceilings.kept import PENDING
from ..errors import Error
from ..machine import Machine, write_atomically
from ..machine.manifest import MANIFEST, digest, manifest, write_manifest, written
from ..plot import PICTURES as DRAWN, held_pictures
from ..results import Measurement, Results, records_to_csv
from .markdown import left_out_lines, markdown
from .page import page_text

MACHINE, RESULTS, TEXT, TABLE = "machine.json", "results.jsonl", "report.md", "results.csv"
PAGE = "report.html"
SERIES = ("empirical", "size_curve", "latency")  # stems of the pictures of what only a thorough machine holds
PICTURES = tuple(f"{stem}.{suffix}" for stem in ("roofline", *SERIES) for suffix in ("svg", "png", "csv"))
NAMES = (MACHINE, RESULTS, TEXT, TABLE, PAGE, *PICTURES)
DEFAULT = "./roofline-report"
UNFINISHED = "unfinished"  # the folder in a report's folder that a report is measured into


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


def require_ours(folder: Path, names: Iterable[str], *, force: bool = False) -> None:
    """Raises Error for a file of one of these names that no report wrote, or that was changed since, unless that is forced.

    A report's files are known by the SHA-256 of each, in a list beside them.
    """
    known = written(folder)
    for name in names:
        file = folder / name
        if os.path.lexists(file) and not force and (not file.is_file() or digest(file) not in known):
            raise Error(
                f"{file} was not written by a report, or was changed since; choose another folder, move it away, or replace it "
                "with --force (Python: force=True)"
            )
        if file.is_dir():
            raise Error(f"{file} is a folder, where a report writes a file of that name; choose another folder, or move it away")


def begin(path: str | os.PathLike[str], *, thorough: bool = False, force: bool = False) -> Path:
    """The folder of a new report, and in it a folder for unfinished files; nothing else is changed.

    Unfinished files of an interrupted report are removed, but with thorough the ceilings of a thorough one are gone on with. Raises
    Error where the folder cannot be written, holds a file of one of our names that no report wrote, or has an unfinished thorough
    report in it that would be lost.
    """
    folder = require_folder(path)
    require_ours(folder, NAMES, force=force)
    work = folder / UNFINISHED
    stated = manifest(work)
    if not stated:
        require_ours(work, NAMES, force=force)
    lost = ", or replace it with --force (Python: force=True)"
    if stated.get("finished") and not force:
        raise Error(f"{work} holds a finished report that could not be put into {folder}; move it away{lost}")
    if stated.get("thorough") and not thorough and not force:
        raise Error(f"{work} holds an unfinished thorough report; go on with it (--thorough), choose another folder{lost}")
    require_folder(work)
    goes_on = thorough and stated.get("thorough") and not stated.get("finished") and _is_pending(work / MACHINE)
    _remove(work, [name for name in NAMES if not (goes_on and name == MACHINE)])
    write_manifest(work, (), thorough=thorough)
    return folder


def _is_pending(file: Path) -> bool:
    try:
        return PENDING in Machine.load(file).provenance
    except Error:
        return False


def finish(path: str | os.PathLike[str], *, force: bool = False) -> tuple[Path, ...]:
    """Put the files of the finished report into its folder, in the place of an earlier report's; their paths.

    Raises Error where a file of one of our names is there by now that no report wrote, and where one cannot be written; then
    the finished files stay where they are.
    """
    folder = Path(path)
    work = folder / UNFINISHED
    write_manifest(work, written(work), finished=True)
    try:
        require_ours(folder, NAMES, force=force)
        files = {name: (work / name).read_bytes() for name in NAMES if (work / name).is_file()}
        fresh = [sha256(content).hexdigest() for content in files.values()]
        write_manifest(folder, {*written(folder), *fresh})  # both: a kill before the next one leaves files that are known
        for name, content in files.items():
            write_atomically(folder / name, content)
        _remove(folder, [name for name in NAMES if name not in files])
        write_manifest(folder, fresh)
    except Error as error:
        raise Error(f"{error}. The finished report is in {work}") from error
    _remove(work, [*NAMES, MANIFEST])
    with contextlib.suppress(OSError):  # it holds files that are not ours
        work.rmdir()
    return tuple(folder / name for name in files)


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise Error(f"cannot replace {folder / name}: {error.strerror or error}; choose another folder") from error


def render(
    machine: Machine,
    results: Iterable[Measurement],
    out: str | os.PathLike[str],
    *,
    plot: bool = True,
    html: bool = False,
    also: Iterable[Measurement] = (),
    force: bool = False,
) -> tuple[Path, ...]:
    """Write report.md, results.csv, (plot) the pictures with their data and (html) report.html into `out`; nothing is measured.

    `render(machine, results, "folder", html=True)`.

    also: further measurements for report.html, such as a sweep's.

    The same machine and results give the same text. Returns the paths. Raises Error where a file cannot be written, and for one
    of these names that no report wrote, unless `force`; then nothing is written.
    """
    folder = require_folder(out)
    given = results if isinstance(results, Results) else Results(tuple(results))
    with tempfile.TemporaryDirectory() as temporary:
        subjects = [(name, (machine, given) if name == "roofline" else (machine,)) for name in held_pictures(machine)]
        pictures = [file for name, subject in subjects for file in DRAWN[name].save(temporary, *subject)] if plot else []
        names = [file.name for file in pictures]
        text = markdown(machine, given, pictures=[name for name in names if name.endswith(".png")])
        files = {TEXT: text.encode(), TABLE: records_to_csv(given.to_records()).encode()}
        files |= {PAGE: page_text(machine, Results((*given, *also))).encode()} if html else {}
        files |= {file.name: file.read_bytes() for file in pictures}
    require_ours(folder, files, force=force)
    write_manifest(folder, {*written(folder), *(sha256(content).hexdigest() for content in files.values())})
    for name, content in files.items():
        write_atomically(folder / name, content)
    return tuple(folder / name for name in files)


def load(folder: str | os.PathLike[str]) -> tuple[Machine, Results]:
    """The machine and the results of a report's folder (no results where there are none). Raises Error as `Machine.load`.

    `machine, results = load("roofline-report")`.
    """
    path = Path(folder)
    machine = Machine.load(path / MACHINE)
    results = Results.load(path / RESULTS) if (path / RESULTS).exists() else Results()
    return machine, results
