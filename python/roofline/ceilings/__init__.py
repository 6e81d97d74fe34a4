"""Which measured problems make a Machine. There is no second timing loop: a ceiling is a problem, timed like any other."""

from __future__ import annotations

from .measuring import FAILURE, PENDING, STANDARD, measure_machine
from .wanted import DEPTHS, Wanted, WantedSeries, wanted, wanted_series

__all__ = ["DEPTHS", "FAILURE", "PENDING", "STANDARD", "Wanted", "WantedSeries", "measure_machine", "wanted", "wanted_series"]
