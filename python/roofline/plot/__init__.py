"""Roofline plots, size curves and latencies, and the data in them. matplotlib is imported only when something is drawn."""

from __future__ import annotations

from .axes import roofline
from .data import roofline_curve, roofline_data
from .files import save, save_empirical, save_latency, save_size_curve
from .latencies import latency, latency_data
from .measured import empirical, empirical_data
from .sizes import size_curve, size_curve_data

__all__ = [
    "empirical",
    "empirical_data",
    "latency",
    "latency_data",
    "roofline",
    "roofline_curve",
    "roofline_data",
    "save",
    "save_empirical",
    "save_latency",
    "save_size_curve",
    "size_curve",
    "size_curve_data",
]
