"""Measurements, and the files and tables of them."""

from __future__ import annotations

from .._repr import records_to_csv
from .advice import advise
from .record import CACHE_STATES, STATUSES, Bracket, Measurement, measurement_key, roof_value
from .results import Results, append_to

__all__ = [
    "CACHE_STATES",
    "STATUSES",
    "Bracket",
    "Measurement",
    "Results",
    "advise",
    "append_to",
    "measurement_key",
    "records_to_csv",
    "roof_value",
]
