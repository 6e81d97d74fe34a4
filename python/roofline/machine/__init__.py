"""Machines: ceilings, size curves and measured rooflines, the statistics behind them, and the files that hold them."""

from __future__ import annotations

from .ceiling import ALIGNED, GEMM, HOST_CALLS, LEVELS, RATE_UNITS, TRANSFERS, UNVERIFIED, VARIANTS, Ceiling, fmt_modes
from .curve import Plateau, SizeCurve, SizePoint
from .empirical import EmpiricalRoofline, IntensityPoint, SustainedSample, last_half
from .files import SCHEMA_VERSION, build, check_version, from_json, to_json, write_atomically
from .fit import Estimate, Fit, fit_roofline, fmt_p, hierarchical_time_s
from .levels import cache_capacity, cache_level, curve_capacity, held_by, lasting_capacity, own_bytes
from .machine import ACCESS_FALLBACK, Machine, load_machines, save_machines
from .sanity import TOLERANCE
from .statistics import FEWEST, Mode, Summary, bars_name, grouped, modes, summary

__all__ = [
    "ACCESS_FALLBACK",
    "ALIGNED",
    "FEWEST",
    "GEMM",
    "HOST_CALLS",
    "LEVELS",
    "RATE_UNITS",
    "SCHEMA_VERSION",
    "TOLERANCE",
    "TRANSFERS",
    "UNVERIFIED",
    "VARIANTS",
    "Ceiling",
    "EmpiricalRoofline",
    "Estimate",
    "Fit",
    "IntensityPoint",
    "Machine",
    "Mode",
    "Plateau",
    "SizeCurve",
    "SizePoint",
    "Summary",
    "SustainedSample",
    "bars_name",
    "build",
    "cache_capacity",
    "cache_level",
    "check_version",
    "curve_capacity",
    "fit_roofline",
    "fmt_modes",
    "fmt_p",
    "from_json",
    "grouped",
    "held_by",
    "hierarchical_time_s",
    "last_half",
    "lasting_capacity",
    "load_machines",
    "modes",
    "own_bytes",
    "save_machines",
    "summary",
    "to_json",
    "write_atomically",
]
