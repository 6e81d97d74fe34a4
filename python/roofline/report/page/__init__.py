"""The report as one HTML file, from saved measurements: it asks for nothing over a network, and opens from a folder.

The pictures are plotly's, because its script comes inside a kept package and draws log axes with hover in SVG, which prints; the
page is a jinja2 template, which escapes whatever names hold.
"""

from __future__ import annotations

import base64
import gzip
import os
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..._repr import printable, right_aligned
from ...errors import Error
from ...machine import Given, Machine, machine_of
from ...machine.output import marked, require_replaceable, write_atomically
from ...results import Measurement, Results
from .contents import page_contents


@lru_cache(maxsize=1)
def _plotly() -> str:
    """plotly's script, compressed, as base64: a browser unpacks it, and a file takes 1.9 MB of 4.8."""
    script: str = import_module("plotly.offline").get_plotlyjs()
    return base64.b64encode(gzip.compress(script.encode(), 9, mtime=0)).decode()


def require_packages() -> None:
    """Raises Error where a package of the extra `html` is missing: said before anything is measured."""
    for name in ("plotly", "jinja2"):
        if find_spec(name) is None:
            raise Error(f"the HTML report needs {name}: pip install 'roofline[html]'")


def _shown(value: Any) -> Any:
    return printable(value) if type(value) is str else value


def page_text(machine: Machine, results: Results) -> str:
    """The text of the HTML file. The same machine and results give the same text. Raises Error where an extra is missing."""
    require_packages()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).parent
    loader = FileSystemLoader(folder)
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                       finalize=_shown)  # fmt: skip
    parts = {name: (folder / f"page.{name}").read_text(encoding="utf-8") for name in ("css", "js")}
    made.globals["right_aligned"] = right_aligned
    return marked(made.get_template("page.html").render(plotly=_plotly(), **parts, **page_contents(machine, results)), "report")


def html(
    machine: Given,
    results: Iterable[Measurement] | str | os.PathLike[str] = (),
    out: str | os.PathLike[str] = "report.html",
    *,
    force: bool = False,
) -> Path:
    """Write a report as one HTML file of about 2 MB that needs no network; nothing is measured. Returns its path.

    `html("roofline-report", "roofline-report/results.jsonl", "report.html")`, or with objects: `html(machine, results)`.

    Args:
        machine: whatever `Machine.load` takes, or a Machine.
        results: measurements, or a results file; those of a sweep over two fields become a map.

    Raises:
        Error: for what cannot be read, for a file `out` that this would not write (unless `force`), and where the packages of
            the extra `html` are missing.
    """
    found = machine_of(machine)
    given = Results.load(results) if isinstance(results, (str, os.PathLike)) else Results(tuple(results))
    text, path = page_text(found, given), Path(out)
    require_replaceable(path, text, force=force)
    write_atomically(path, text)
    return path
