"""Roofline plots and the data in them. matplotlib is imported only when something is drawn."""

from __future__ import annotations

from .axes import roofline
from .data import roofline_curve, roofline_data
from .files import save

__all__ = ["roofline", "roofline_curve", "roofline_data", "save"]
