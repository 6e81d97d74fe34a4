"""Which measured problems make a Machine. There is no second timing loop: a ceiling is a problem, timed like any other."""

from __future__ import annotations

from ..probes import DEPTHS, Wanted
from .again import main_roofs_again
from .kept import machines_in, side_file
from .measuring import FAILURE, STANDARD, measure_machine
from .wanted import WantedSeries, wanted, wanted_series

__all__ = [
    "DEPTHS", "FAILURE", "STANDARD", "Wanted", "WantedSeries", "machines_in", "main_roofs_again", "measure_machine", "side_file",
    "wanted", "wanted_series",
]  # fmt: skip
