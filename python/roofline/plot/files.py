"""Saves a roofline plot as pictures and as the data in them; it reads saved machines and results, and measures nothing."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path

from ..errors import Error
from ..machine import Machine, write_atomically
from ..results import Measurement, records_to_csv
from . import style
from .axes import _import, draw
from .data import roofline_data

DPI = 200


def save(
    machine: Machine, measurements: Iterable[Measurement] | None, directory: str | os.PathLike[str], *, dtype: str | None = None
) -> tuple[Path, Path, Path]:
    """Write roofline.svg, roofline.png and roofline.csv into `directory` (made if absent) and return their paths.

    The same data gives the same SVG and CSV, byte for byte, with the same matplotlib. Raises Error as `roofline` does,
    and where a file cannot be written.
    """
    _import()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    given = list(measurements or ())
    records = roofline_data(machine, given, dtype=dtype)
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error(f"cannot make the folder {folder}: {error.strerror or error}") from error
    with rc_context(dict(style.RC)):
        figure = Figure()
        draw(machine, given, figure.add_subplot(), dtype=dtype, fit=True)
        svg, png = io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=DPI)
    paths = folder / "roofline.svg", folder / "roofline.png", folder / "roofline.csv"
    for path, content in zip(paths, (svg.getvalue(), png.getvalue(), records_to_csv(records).encode()), strict=True):
        write_atomically(path, content)
    return paths
