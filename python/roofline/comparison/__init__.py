"""Two machines, two results files, or a vendor's claim and a machine, side by side: what differs by more than its noise."""

from __future__ import annotations

from .numbers import Median
from .rows import Comparison, Pair
from .sides import Comparable, compare

__all__ = ["Comparable", "Comparison", "Median", "Pair", "compare"]
