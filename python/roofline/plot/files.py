"""Saves plots as pictures and as the data in them; it reads saved machines and results, and measures nothing."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._repr import printable
from ..errors import Error
from ..machine import Machine
from ..machine.manifest import replace_all
from ..results import Measurement, records_to_csv
from . import axes, latencies, measured, sizes, style
from .data import roofline_data
from .given import Points, own_points
from .lettering import import_matplotlib
from .show import Shown, draw_panels, retitled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 200
Paths = tuple[Path, Path, Path]


def _save(directory: str | os.PathLike[str], stem: str, records: list[dict[str, Any]], draw: Callable[[Axes], object]) -> Paths:
    """Write stem.svg, stem.png and stem.csv of what `draw` puts on new axes."""
    return _write(directory, stem, records, lambda figure: draw(figure.add_subplot()))


def save_panels(directory: str | os.PathLike[str], stem: str, records: list[dict[str, Any]], shown: Sequence[Shown]) -> Paths:
    """Write stem.svg, stem.png and stem.csv of pictures side by side."""
    return _write(directory, stem, records, lambda figure: draw_panels(shown, [figure.add_axes((0, 0, 1, 1)) for _ in shown]))


def _write(directory: str | os.PathLike[str], stem: str, records: list[dict[str, Any]], draw: Callable[[Figure], object]) -> Paths:
    import_matplotlib()
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error(f"cannot make the folder {folder}: {error.strerror or error}") from error
    with rc_context(dict(style.RC)):
        figure = Figure()
        FigureCanvasAgg(figure)  # keeps its renderer: without one matplotlib makes a renderer for every text that is measured
        draw(figure)
        svg, png = io.BytesIO(), io.BytesIO()
        # By these names `require_replaceable` knows our pictures.
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": "roofline"})
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": "roofline"})
    paths = folder / f"{stem}.svg", folder / f"{stem}.png", folder / f"{stem}.csv"
    vectors = printable(svg.getvalue().decode()).encode()
    contents = dict(zip(paths, (vectors, png.getvalue(), records_to_csv(records).encode()), strict=True))
    replace_all(contents)
    return paths


def save(
    machine: Machine,
    measurements: Iterable[Measurement] | None,
    directory: str | os.PathLike[str],
    *,
    points: Points | None = None,
    dtype: str | None = None,
    title: str | None = None,
) -> Paths:
    """Write roofline.svg, roofline.png and roofline.csv into `directory` (made if absent) and return their paths.

    The same data gives the same SVG and CSV, byte for byte, with the same matplotlib. Raises Error as `roofline` does,
    and where a file cannot be written.
    """
    given, own = list(measurements or ()), own_points(points)
    records = roofline_data(machine, given, points=own, dtype=dtype)
    return _save(
        directory, "roofline", records, lambda ax: axes.draw(machine, given, ax, points=own, dtype=dtype, title=title, fit=True)
    )


def save_empirical(
    machine: Machine,
    directory: str | os.PathLike[str],
    *,
    level: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    title: str | None = None,
) -> Paths:
    """Write empirical.svg, .png and .csv as `save` does, of what `empirical` draws."""
    shown = measured.picture(machine, level=level, dtype=dtype, threads=threads)
    records = measured.empirical_data(machine, level=level, dtype=dtype, threads=threads)
    return _save(directory, "empirical", records, lambda ax: retitled(measured.draw(machine, shown, ax, fit=True), title))


def save_size_curve(
    machine: Machine, directory: str | os.PathLike[str], *, access: str | None = None, threads: int | None = None,
    title: str | None = None,
) -> Paths:
    """Write size_curve.svg, .png and .csv as `save` does, of what `size_curve` draws."""
    shown = sizes.picture(machine, access=access, threads=threads)
    records = sizes.size_curve_data(machine, access=access, threads=threads)
    return _save(directory, "size_curve", records, lambda ax: retitled(sizes.draw(machine, shown, ax, fit=True), title))


def save_latency(machine: Machine, directory: str | os.PathLike[str], *, title: str | None = None) -> Paths:
    """Write latency.svg, .png and .csv as `save` does, of what `latency` draws."""
    records = latencies.latency_data(machine)
    return _save(directory, "latency", records, lambda ax: retitled(latencies.draw(machine, ax, fit=True), title))


def held_pictures(machine: Machine) -> list[str]:
    """The names in `saved`, beyond the roofline, that this machine has something for."""
    latencies = any(c.kind == "latency" and c.level and c.status != "implausible" for c in machine.ceilings)
    have = {"empirical": bool(machine.empirical), "size-curve": bool(machine.curves), "latency": latencies}
    return [name for name, there in have.items() if there]


def saved(
    machine: Machine,
    measurements: Iterable[Measurement],
    *,
    points: Points | None = None,
    dtype: str | None = None,
    title: str | None = None,
) -> dict[str, tuple[Callable[[], list[dict[str, Any]]], Callable[[str | os.PathLike[str]], Paths]]]:
    """The pictures of a machine by name: what gives the records, and what saves it. dtype: only its roofs and points.

    points are the roofline's. title: instead of their own.
    """
    given, own = list(measurements), own_points(points)
    return {
        "roofline": (
            lambda: roofline_data(machine, given, points=own, dtype=dtype),
            lambda directory: save(machine, given, directory, points=own, dtype=dtype, title=title),
        ),
        "empirical": (
            lambda: measured.empirical_data(machine, dtype=dtype),
            lambda directory: save_empirical(machine, directory, dtype=dtype, title=title),
        ),
        "size-curve": (lambda: sizes.size_curve_data(machine), lambda directory: save_size_curve(machine, directory, title=title)),
        "latency": (lambda: latencies.latency_data(machine), lambda directory: save_latency(machine, directory, title=title)),
    }
