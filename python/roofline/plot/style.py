"""Colours, markers and line styles of the plots: safe for the colour-blind, readable in grey, never set globally."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..machine import MEMORIES

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
LEVEL_COLOURS: Mapping[str, str] = {**dict.fromkeys(MEMORIES, "#1A1A1A"), "L3": "#4A4F55", "L2": "#6B7077", "L1": "#8A8F96"}
# Of measured sweeps, whose levels stand beside each other in one picture.
SWEEP_COLOURS: Mapping[str, str] = {**dict.fromkeys(MEMORIES, BLUE), "L3": VERMILLION, "L2": "#007A5A", "L1": "#A0467A"}
SWEEP_MARKERS: Mapping[str, str] = {**dict.fromkeys(MEMORIES, "o"), "L3": "s", "L2": "^", "L1": "D"}
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
    "text.parse_math": False,  # names may hold dollars
}


def dtype_colour(dtype: str) -> str:
    """The colour of a dtype: its own, or black for the rare ones."""
    return DTYPE_COLOURS.get(dtype, BLACK)


def markers(operators: Iterable[str]) -> dict[str, str]:
    """One marker per operator, in the order they appear; they repeat after the fifteenth."""
    return {name: MARKERS[i % len(MARKERS)] for i, name in enumerate(dict.fromkeys(operators))}


# Series that stand beside each other: dark enough to be written in, and told apart by marker and dashes too.
SERIES_COLOURS = (BLUE, VERMILLION, "#007A5A", "#A0467A", "#8A5A00", INK, "#4B5FA8")
SERIES_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
# Darker shades of colours that are too light to be written in.
INKS: Mapping[str, str] = {SKY: "#1B6FA3", ORANGE: "#8A5A00", PURPLE: "#A0467A", GREEN: "#007A5A"}
# What time is spent on: fill and hatch, so that neighbours differ in grey too.
ROOF_FILLS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(MEMORIES, ("#7FB2D9", "")),
    "L3": ("#B5D2E8", "||||"),
    "L2": ("#D5E5F2", "----"),
    "L1": ("#EDF4FA", "||||"),
    "product": ("#F2C46B", "////"),
    "exp": ("#F8E0AE", "...."),
    "other": ("#FBEFD5", "xxxx"),
    "launch": ("#D9A2C0", "\\\\\\\\"),
    "link": ("#9CCFBC", "++++"),
    "link latency": ("#D3EBE2", "oo"),
    "overlap": ("#E4E6E8", "..."),
    "overhead": ("#C6C9CC", "xx"),
}
# Bounds under which kernels stand, as `Entry.bound` names them.
BOUND_FILLS: Mapping[str, tuple[str, str]] = {**ROOF_FILLS, "compute": ROOF_FILLS["product"]}


def series(index: int) -> tuple[str, str, Any]:
    """Colour, marker and dashes of a series; no two of the first 60 share marker and dashes."""
    return (
        SERIES_COLOURS[index % len(SERIES_COLOURS)],
        MARKERS[index % len(MARKERS)],
        SERIES_DASHES[index % len(SERIES_DASHES)],
    )
