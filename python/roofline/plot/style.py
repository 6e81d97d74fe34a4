"""Colours, markers and line styles of the plots: safe for the colour-blind, readable in grey, never set globally."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# Okabe and Ito, "Color Universal Design" (2008).
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK = "#CC79A7", "#56B4E9", "#000000"
INK, MUTED = "#222222", "#5F6368"

DTYPE_COLOURS: Mapping[str, str] = {
    "fp32": BLUE,
    "fp64": VERMILLION,
    "bf16": GREEN,
    "fp16": PURPLE,
    "tf32": SKY,
    "int8": ORANGE,
}
LEVEL_COLOURS: Mapping[str, str] = {"DRAM": "#1A1A1A", "L3": "#4A4F55", "L2": "#6B7077", "L1": "#8A8F96"}
# Of measured sweeps, whose levels stand beside each other in one picture.
SWEEP_COLOURS: Mapping[str, str] = {"DRAM": BLUE, "L3": VERMILLION, "L2": "#007A5A", "L1": "#A0467A"}
SWEEP_MARKERS: Mapping[str, str] = {"DRAM": "o", "L3": "s", "L2": "^", "L1": "D"}
ACCESS_COLOURS: Mapping[str, str] = {
    "read": BLUE, "write": VERMILLION, "copy": "#007A5A", "scale": "#A0467A", "add": "#8A5A00", "triad": INK,
}  # fmt: skip
ACCESS_MARKERS: Mapping[str, str] = {"read": "o", "write": "s", "copy": "^", "scale": "D", "add": "v", "triad": "P"}
SUSTAINED = "#8A5A00"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8", "H")

MEMORY_SHADE, COMPUTE_SHADE = "#0072B20F", "#E69F0017"  # with alpha
SMALL, TINY = 8.0, 7.0  # points
RC: Mapping[Any, Any] = {  # the keys that matplotlib allows differ by its version
    "font.size": 9.0,
    "axes.linewidth": 0.8,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "roofline",  # the same data gives the same file
    "legend.frameon": False,
}


def dtype_colour(dtype: str) -> str:
    """The colour of a dtype: its own, or black for the rare ones."""
    return DTYPE_COLOURS.get(dtype, BLACK)


def markers(operators: Iterable[str]) -> dict[str, str]:
    """One marker per operator, in the order they appear; they repeat after the fifteenth."""
    return {name: MARKERS[i % len(MARKERS)] for i, name in enumerate(dict.fromkeys(operators))}
