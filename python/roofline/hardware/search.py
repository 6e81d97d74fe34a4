"""Finding datasheets: those of the package, the user's beside and above them, and one of them by the names people use."""

from __future__ import annotations

import difflib
import importlib.resources
import os
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from ..errors import Error
from ..reading import HARDWARE, read_text
from .datasheet import Datasheet, read

VARIABLE = "ROOFLINE_HARDWARE_PATH"
SUFFIX = ".toml"


def spelled(name: str) -> str:
    """A name without case, spaces, dashes and brackets: "H100-SXM5" and "h100 sxm5" are the same."""
    return "".join(c for c in name.casefold() if c.isalnum() or c == "+")


@cache
def _packaged() -> Mapping[str, Datasheet]:
    files = [f for f in importlib.resources.files(__package__).iterdir() if f.name.endswith(SUFFIX)]
    named = {file.name.removesuffix(SUFFIX): file for file in sorted(files, key=lambda f: f.name)}
    return {id: read(file.read_text(encoding="utf-8"), id=id, where=file.name) for id, file in named.items()}


def _folders() -> Iterator[Path]:
    """The user's folders, the least important first. Raises Error for a folder that the variable names and that is none."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        # A relative path is to be ignored, as the XDG specification has it.
        base = Path(configured) if os.path.isabs(configured) else Path.home() / ".config"
    except RuntimeError:  # nobody's home
        base = None
    if base is not None:
        yield base / "roofline" / "hardware"
    for name in reversed(os.environ.get(VARIABLE, "").split(os.pathsep)):
        if name and not os.path.isdir(name):
            raise Error(f"{VARIABLE} names {name}, which is not a folder; correct or unset it")
        if name:
            yield Path(name)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError:  # no such folder, or one of somebody else
        return []


def _found() -> tuple[dict[str, Datasheet], dict[str, Error]]:
    """All datasheets by id, the package's first, and the errors of those that cannot be read."""
    found, broken = dict(_packaged()), dict[str, Error]()
    for folder in _folders():
        for path in _listed(folder):
            id = path.stem.casefold()
            try:
                found[id] = read(read_text(path, HARDWARE), id=id, where=str(path), origin=str(path))
                broken.pop(id, None)
            except Error as error:
                broken[id] = error
    # A file meant to replace another datasheet does not leave that one in its place.
    return {id: sheet for id, sheet in found.items() if id not in broken}, broken


def _warn(broken: Mapping[str, Error]) -> None:
    for error in broken.values():
        warnings.warn(f"a datasheet of yours is left out: {error}", stacklevel=3)


def datasheets() -> dict[str, Datasheet]:
    """All of them by id (the file's name), the package's first.

    A user's file replaces the one of the same id or adds one: from `~/.config/roofline/hardware` (or XDG_CONFIG_HOME), and
    above that from the folders in ROOFLINE_HARDWARE_PATH, the first of them last. One that cannot be read is left out with a
    warning that names the file and its key.
    """
    found, broken = _found()
    _warn(broken)
    return found


def _names(sheet: Datasheet) -> set[str]:
    """Every spelling of a datasheet's id, name and aliases, with and without the vendor."""
    vendor = spelled(sheet.vendor)
    names = {spelled(name) for name in (sheet.id, sheet.name, *sheet.aliases)}
    return names | {vendor + name for name in names} | {name.removeprefix(vendor) for name in names}


def datasheet(name: str) -> Datasheet:
    """The datasheet of an id, a name or an alias, with or without its vendor, whatever the case, spaces and dashes.

    Raises Error for a name that several share, for an unknown one with those that resemble it, and for a file of the user's that
    cannot be read where its id is asked for; otherwise that is a warning.
    """
    (sheets, broken), wanted = _found(), spelled(name)
    replaced = {id for id in broken if id in _packaged() and wanted in _names(_packaged()[id])}
    if asked := next((id for id in broken if spelled(id) == wanted or id in replaced), None):
        raise broken[asked]
    _warn(broken)
    if exact := [s for s in sheets.values() if spelled(s.id) == wanted]:
        return exact[0]
    names = {id: _names(sheet) for id, sheet in sheets.items()}
    matching = [id for id, own in names.items() if wanted in own]
    if len(matching) == 1:
        return sheets[matching[0]]
    if matching:
        raise Error(f"{name!r:.80} is ambiguous: {', '.join(matching)} differ; name one of them")
    near = [id for id, own in names.items() if len(wanted) > 1 and any(wanted in n for n in own)]
    alike = difflib.get_close_matches(wanted, sorted({n for own in names.values() for n in own}), n=5, cutoff=0.7)
    near += [id for n in alike for id, own in names.items() if n in own]
    hint = f" (did you mean {', '.join(list(dict.fromkeys(near))[:6])}?)" if near else ""
    raise Error(f"there is no datasheet of {name!r:.80}{hint}; `roofline hardware` lists them, {VARIABLE} adds folders of yours")
