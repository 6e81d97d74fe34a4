"""Machines: ceilings, size curves and measured rooflines, the statistics behind them, and the files that hold them."""

from __future__ import annotations

from ..probes import CACHES, LEVELS, MEMORIES, RATE_UNITS, memory_level
from ..probes.levels import cache_capacity, cache_level, curve_capacity, held_by, lasting_capacity, own_bytes
from .ceiling import UNVERIFIED, Ceiling, fmt_modes
from .curve import Plateau, SizeCurve, SizePoint
from .empirical import EmpiricalRoofline, IntensityPoint, SustainedSample, last_half
from .files import to_json
from .fit import Estimate, Fit, fit_roofline, fmt_p
from .given import Given, in_order, machine_of, machines_of
from .kernel_time import KernelTime
from .machine import Machine, load_machines, save_machines
from .output import marked, require_file, require_replaceable, write_atomically
from .sanity import TOLERANCE
from .statistics import FEWEST, IMPLAUSIBLE, MOVED, Summary, bars_name, grouped, modes, summary

__all__ = [
    "CACHES", "FEWEST", "IMPLAUSIBLE", "LEVELS", "MEMORIES", "MOVED", "RATE_UNITS", "TOLERANCE", "UNVERIFIED", "Ceiling",
    "EmpiricalRoofline", "Estimate", "Fit", "Given", "IntensityPoint", "KernelTime", "Machine", "Plateau", "SizeCurve",
    "SizePoint", "Summary", "SustainedSample", "bars_name", "cache_capacity", "cache_level", "curve_capacity", "fit_roofline",
    "fmt_modes", "fmt_p", "grouped", "held_by", "in_order", "last_half", "lasting_capacity", "load_machines", "machine_of",
    "machines_of", "marked", "memory_level", "modes", "own_bytes", "require_file", "require_replaceable", "save_machines",
    "summary", "to_json", "write_atomically",
]  # fmt: skip
