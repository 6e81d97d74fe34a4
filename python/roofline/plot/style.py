"""Colours, markers, dashes and hatches: one style, light and dark, safe for the colour-blind and readable in grey.

Colours have names, and a theme says which they are: dark enough to be written in on white, light enough on the dark paper. The hues
are those of Okabe and Ito, "Color Universal Design" (2008). Nothing is set globally.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import Error
from ..machine import MEMORIES
from ..words import require_one_of


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a picture by name; `paper` is its ground, pale and dark are the ends of a heat map's scale (least, most)."""

    name: str
    colours: Mapping[str, str]
    fills: Mapping[str, str]

    def __call__(self, colour: str) -> str:
        """The colour of this name; any other text is one itself."""
        return self.colours.get(colour, colour)


LIGHT = Theme(
    "light",
    {
        "paper": "#FFFFFF", "ink": "#222222", "muted": "#5F6368", "grid": "#D9DBDE", "blue": "#0066A1", "red": "#C04A00",
        "green": "#007A5A", "purple": "#A0467A", "brown": "#8A5A00", "slate": "#4B5FA8", "memory": "#EDF4FA", "compute": "#FCF6E9",
        "pale": "#F1F6FA", "dark": "#0B4A75", "more": "#8C3A00", "L1": "#80858B", "L2": "#62676E", "L3": "#44494F",
        **dict.fromkeys(MEMORIES, "#1A1A1A"),
    },
    {
        **dict.fromkeys(MEMORIES, "#7FB2D9"),
        "L3": "#B5D2E8", "L2": "#D5E5F2", "L1": "#EDF4FA", "product": "#F2C46B", "exp": "#F8E0AE",
        "other": "#FBEFD5", "launch": "#D9A2C0", "link": "#9CCFBC", "link latency": "#D3EBE2", "overlap": "#E4E6E8",
        "overhead": "#C6C9CC", "unfit": "#F4F4F5",
    },
)  # fmt: skip
DARK = Theme(
    "dark",
    {
        "paper": "#16181C", "ink": "#E8EAED", "muted": "#A3A9B0", "grid": "#3A3E44", "blue": "#5AB4F0", "red": "#FF8A3D",
        "green": "#3CCB9B", "purple": "#E48FC0", "brown": "#D9A94A", "slate": "#9DB0F5", "memory": "#1B2530", "compute": "#28231A",
        "pale": "#1E2A36", "dark": "#8CCBF7", "more": "#FFB27A", "L1": "#8A8F96", "L2": "#A8ADB4", "L3": "#C6CBD1",
        **dict.fromkeys(MEMORIES, "#F2F3F5"),
    },
    {
        **dict.fromkeys(MEMORIES, "#2F6F9F"),
        "L3": "#25567B", "L2": "#1E4160", "L1": "#1A3145", "product": "#A9771F", "exp": "#7D5A1E",
        "other": "#574019", "launch": "#8A4F71", "link": "#2F7E66", "link latency": "#235C4B", "overlap": "#3A3E44",
        "overhead": "#5A5F66", "unfit": "#22252A",
    },
)  # fmt: skip
THEMES: Mapping[str, Theme] = {theme.name: theme for theme in (LIGHT, DARK)}

DTYPES: Mapping[str, str] = {"fp32": "blue", "fp64": "red", "bf16": "green", "fp16": "purple", "tf32": "slate", "int8": "brown"}
LEVELS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(MEMORIES, ("blue", "o")), "L3": ("red", "s"), "L2": ("green", "^"), "L1": ("purple", "D"),
}  # fmt: skip
ACCESS: Mapping[str, tuple[str, str]] = {
    "read": ("blue", "o"), "write": ("red", "s"), "copy": ("green", "^"), "scale": ("purple", "D"), "add": ("brown", "v"),
    "triad": ("ink", "P"), "update": ("slate", "X"),
}  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8", "H")
SERIES = ("blue", "red", "green", "purple", "brown", "ink", "slate")
DASHED: Any = (0, (5, 3))  # a datasheet's number
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
HATCHES: Mapping[str, str] = {
    "L3": "||||", "L2": "----", "L1": "||||", "product": "////", "exp": "....", "other": "xxxx", "launch": "\\\\\\\\",
    "link": "++++", "link latency": "oo", "overlap": "...", "overhead": "xx", "unfit": "//",
}  # fmt: skip
TITLE, TEXT, SMALL, TINY = 10.5, 9.0, 8.0, 7.0  # points


def theme_of(name: str | None, ax: Any = None) -> Theme:
    """The theme of this name. None: the one that suits the ground of `ax`, light for a new figure. Raises Error."""
    if name is not None:
        return THEMES[require_one_of("theme", name, THEMES)]
    from matplotlib.colors import to_rgb

    if ax is not None and not hasattr(ax, "get_facecolor"):
        raise Error(f"ax must be matplotlib Axes, got {ax!r:.60}")
    return DARK if ax is not None and sum(to_rgb(ax.get_facecolor())) < 1.2 else LIGHT


def rc(theme: Theme) -> dict[Any, Any]:
    """Settings of matplotlib while a picture is drawn."""
    ink, paper = theme("ink"), theme("paper")
    return {
        "font.size": TEXT, "font.family": "sans-serif", "axes.linewidth": 0.8, "axes.edgecolor": ink, "axes.labelcolor": ink,
        "text.color": ink, "xtick.color": ink, "ytick.color": ink, "figure.facecolor": paper, "axes.facecolor": paper,
        "savefig.facecolor": paper, "hatch.color": ink, "hatch.linewidth": 0.5, "legend.frameon": False,
        "svg.hashsalt": "roofline",  # the same data gives the same file
        "svg.fonttype": "none",  # text stays text
        "text.parse_math": False,  # names may hold dollars
    }  # fmt: skip


def dtype_colour(dtype: str) -> str:
    return DTYPES.get(dtype, "ink")


def markers(kinds: Iterable[str]) -> dict[str, str]:
    """One marker for each kind, in the order they appear; they repeat after the fifteenth."""
    return {name: MARKERS[i % len(MARKERS)] for i, name in enumerate(dict.fromkeys(kinds))}


def series(index: int) -> tuple[str, str, Any]:
    """Colour, marker and dashes of a series; no two of the first 60 share marker and dashes."""
    return SERIES[index % len(SERIES)], MARKERS[index % len(MARKERS)], DASHES[index % len(DASHES)]
