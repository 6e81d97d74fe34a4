"""Measurements, and the files and tables of them."""

from __future__ import annotations

from .._repr import records_to_csv
from .advice import advise, faster_variant
from .appending import append_to, begun
from .record import CACHE_STATES, STATUSES, Bracket, Measurement, kind_of, measurement_key, problem_behind, roof_value
from .results import Results

__all__ = [
    "CACHE_STATES", "STATUSES", "Bracket", "Measurement", "Results", "advise", "append_to", "begun", "faster_variant",
    "kind_of", "measurement_key", "problem_behind", "records_to_csv", "roof_value",
]  # fmt: skip
