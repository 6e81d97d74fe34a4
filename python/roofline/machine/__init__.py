"""Machines and their ceilings, the statistics behind them, and the files that hold them."""

from __future__ import annotations

from .ceiling import LEVELS, RATE_UNITS, Ceiling, fmt_modes
from .files import SCHEMA_VERSION, build, check_version, from_json, to_json, write_atomically
from .levels import cache_capacity, cache_level, core_level
from .machine import ACCESS_FALLBACK, Machine, load_machines, save_machines
from .statistics import Mode, Summary, modes, summary

__all__ = [
    "ACCESS_FALLBACK",
    "LEVELS",
    "RATE_UNITS",
    "SCHEMA_VERSION",
    "Ceiling",
    "Machine",
    "Mode",
    "Summary",
    "build",
    "cache_capacity",
    "cache_level",
    "check_version",
    "core_level",
    "fmt_modes",
    "from_json",
    "load_machines",
    "modes",
    "save_machines",
    "summary",
    "to_json",
    "write_atomically",
]
