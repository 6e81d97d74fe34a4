"""What vendors state about devices: one TOML file per device, read with its sources. Nothing here was measured by this package."""

from __future__ import annotations

from .datasheet import Datasheet, Number, Peak, read
from .rates import RATES, Rate, unit_rate, unit_rates
from .search import VARIABLE, datasheet, datasheets
from .template import template

__all__ = [
    "RATES", "VARIABLE", "Datasheet", "Number", "Peak", "Rate", "datasheet", "datasheets", "read", "template",
    "unit_rate", "unit_rates",
]  # fmt: skip
