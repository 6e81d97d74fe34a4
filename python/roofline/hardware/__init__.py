"""What vendors state about devices: one TOML file per device, read with its sources. Nothing here was measured by this package."""

from __future__ import annotations

from .datasheet import Datasheet, Number, Peak, read
from .search import VARIABLE, datasheet, datasheets

__all__ = ["VARIABLE", "Datasheet", "Number", "Peak", "datasheet", "datasheets", "read"]
