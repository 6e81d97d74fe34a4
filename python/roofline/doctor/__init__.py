"""What works here, what does not, why, and the cure; and how near the numeric libraries come to the roof."""

from __future__ import annotations

from .checks import MISSING, OK, WARNING, Check, doctor, required
from .findings import BELOW, Cure, Library, Report, Run
from .libraries import time_libraries

__all__ = ["BELOW", "MISSING", "OK", "WARNING", "Check", "Cure", "Library", "Report", "Run", "doctor", "required", "time_libraries"]
