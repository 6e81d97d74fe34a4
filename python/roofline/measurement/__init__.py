"""Running and timing problems: the only part of the package that touches the compiled module."""

from __future__ import annotations

from .callables import measure_callable
from .devices import Device, build_info, default_device, libraries, list_devices, open_device
from .exchange import DeviceArray
from .policy import Policy
from .running import run
from .timing import attempt, measure

__all__ = [
    "Device", "DeviceArray", "Policy", "attempt", "build_info", "default_device", "libraries", "list_devices", "measure",
    "measure_callable", "open_device", "run",
]  # fmt: skip
