"""Copies between the memories of two devices: the probe of the link between them."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Variant
from .transfer import Transfer

DIRECTIONS = ("from_peer", "to_peer", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCopy(Transfer):
    """from_peer: c = what the peer holds, a copy of a; to_peer: the peer gets a, and `sample` is 4 KiB of it read back.

    peer: the number of the other device. size_bytes: of one direction. direction: from_peer, to_peer, or both at the same time.
    dtype: of bytes. Raises Error for bad fields.
    """

    size_bytes: int = 1 << 28
    direction: str = "from_peer"
    peer: int = 1
    dtype: str = "int8"

    name = "peer_copy"
    summary = "a copy between the memories of two devices"
    variants = {
        "kernel": Variant(summary="loads and stores of a kernel over peer access", dtypes={"cuda": ("int8",)}),
        "copy_engine": Variant(summary="the copy engine", dtypes={"cuda": ("int8",)}),
    }
    small = frozenset({"peer"})
    inward, outward = DIRECTIONS[:2]
