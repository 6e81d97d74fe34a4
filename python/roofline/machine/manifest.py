"""The list beside a report's files of what the package wrote there: the SHA-256 of each file, so that no other is replaced."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import Error
from ..reading import MACHINE, RESULTS, SCHEMA_VERSION, from_json, read_bytes
from .files import to_json
from .output import require_replaceable, write_atomically

MANIFEST = ".roofline-report.json"


def digest(file: Path) -> str:
    """Raises Error for a file that cannot be read."""
    return hashlib.sha256(read_bytes(file, RESULTS)).hexdigest()


def manifest(folder: Path) -> dict[str, Any]:
    """What the list of a folder says; empty where there is none."""
    file = folder / MANIFEST
    try:
        found = from_json(read_bytes(file, MACHINE), where=str(file))
    except Error:
        found = {}  # nothing is known of the files beside it
    return found if isinstance(found, dict) and isinstance(found.get("sha256"), list) else {}


def written(folder: Path) -> set[str]:
    """The SHA-256 of every file that the package wrote into a report's folder."""
    return {str(each) for each in manifest(folder).get("sha256", ())}


def write_manifest(folder: Path, digests: Iterable[str], **more: bool) -> None:
    """Write the list of a folder. Raises Error where it cannot be written."""
    content = {"schema_version": SCHEMA_VERSION, "kind": "report_files", **more, "sha256": sorted(digests)}
    text = to_json(content, where=str(folder / MANIFEST), indent=1) + "\n"
    require_replaceable(folder / MANIFEST, text)
    write_atomically(folder / MANIFEST, text)


def replace_all(contents: Mapping[Path, str | bytes], *, force: bool = False) -> None:
    """Write files, and none of them where one is there that is no such file; `force` replaces that too.

    They are added to the list of their folder, where it has one. Raises Error.
    """
    for path, content in contents.items():
        require_replaceable(path, content, force=force)
    for path, content in contents.items():
        write_atomically(path, content)
    for path in contents:
        if stated := manifest(path.parent):
            more = {name: value for name, value in stated.items() if isinstance(value, bool)}
            write_manifest(path.parent, {*written(path.parent), digest(path)}, **more)
