"""Pictures of machines, measurements and models, and the data in them. matplotlib is imported only when something is drawn.

Each picture is a function that draws on Axes: `plot.roofline("H100")`. `plot.roofline.data("H100")` gives what it draws as records,
and `plot.roofline.save("folder", "H100")` writes it as SVG and PNG with the records as CSV. Machines, models, problems and phases
are objects or words ("H100", "Llama-3-8B", "decode"); sizes are numbers, lists or words ("1,8,64", "1:1k": every power of two).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import pictures
from .figure import Picture, save_panels
from .pictures import *  # noqa: F403
from .roofs import roofline_curve

PICTURES: Mapping[str, Picture[Any]] = {
    name: found
    for name, found in sorted(vars(pictures).items())
    if hasattr(found, "save") and name == getattr(found, "__name__", "")
}
_DATA = {f"{name}_data": found.data for name, found in PICTURES.items()}
globals().update(_DATA)

__all__ = [*PICTURES, *_DATA, "PICTURES", "roofline_curve", "save_panels"]


def held_pictures(machine: Any) -> list[str]:
    """The names of the pictures that a machine alone has something for."""
    latencies = any(c.kind == "latency" and c.level and c.status != "implausible" for c in machine.ceilings)
    roofs = any(c.kind in ("bandwidth", "compute") for c in machine.ceilings)
    have = {"roofline": roofs, "empirical": bool(machine.empirical), "size_curve": bool(machine.curves), "latency": latencies}
    return [name for name, there in have.items() if there]
