"""Measurements, and the files and tables of them."""

from __future__ import annotations

from .._repr import records_to_csv
from .advice import advise, faster_variant
from .appending import append_to, begun
from .brackets import Bracket, roof_value
from .record import CACHE_STATES, STATUSES, Measurement, measurement_key, problem_behind
from .results import Results

__all__ = [
    "CACHE_STATES", "STATUSES", "Bracket", "Measurement", "Results", "advise", "append_to", "begun", "faster_variant",
    "measurement_key", "problem_behind", "records_to_csv", "roof_value",
]  # fmt: skip
