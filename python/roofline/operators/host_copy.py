"""Copies between a device's memory and the host's: the probe of the link between them."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Variant
from .transfer import Transfer

DIRECTIONS = ("to_device", "from_device", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCopy(Transfer):
    """to_device: c = what the host holds, a copy of a; from_device: the host gets a, and `sample` is 4 KiB of it read back.

    size_bytes: of one direction. direction: to_device, from_device, or both at the same time. dtype: of
    bytes. Raises Error for bad fields.
    """

    size_bytes: int = 1 << 28
    direction: str = "to_device"
    dtype: str = "int8"

    name = "host_copy"
    summary = "a copy between the host's memory and a device's"
    variants = {
        "pageable": Variant(summary="ordinary memory of the host, through the driver's buffers", dtypes={"cuda": ("int8",)}),
        "pinned": Variant(summary="page-locked memory of the host, by the copy engine", dtypes={"cuda": ("int8",)}),
    }
    inward, outward = DIRECTIONS[:2]
