"""What pictures are made of. A panel is data: its title, its marks, its records (all that is drawn, as flat dicts) and its notes.

`charts.Chart` has lines and dots over two axes, `bars.Rows` rows of bars, `cells.Cells` a value for each of x and y. Each draws
itself on Axes. Here is what they share: titles, legends, and how much room there is. Colours are names of a theme. matplotlib is
imported only when something is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .._repr import printable
from ..units import fmt_number, without_zeros
from . import style
from .style import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Records = list[dict[str, Any]]
Point = tuple[float, float]
LEGEND = 0.42  # of the width at most
LINE = 0.125  # inches of a line of a legend


class Panel(Protocol):
    """A whole plot as data, which draws itself. size: inches of a figure of its own."""

    @property
    def title(self) -> str: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def records(self) -> Records: ...
    @property
    def size(self) -> Point: ...
    def paint(self, ax: Axes, theme: Theme) -> None: ...


def fmt_count(value: float) -> str:
    """A batch or a length as people write it."""
    return str(int(value)) if float(value).is_integer() else fmt_number(value)


def plain(value: float, digits: int = 3) -> str:
    """A number without trailing zeros."""
    return without_zeros(fmt_number(value, digits))


def table(records: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> Records:
    """The records with every key of any of them, and one for each note (element "note")."""
    keys = dict.fromkeys(key for record in [{"element": "", "label": ""}, *records] for key in record)
    empty: dict[str, Any] = dict.fromkeys(keys)
    return [{**empty, **record} for record in [*records, *({"element": "note", "label": note} for note in notes)]]


@dataclass(frozen=True, slots=True)
class Room:
    """Inches that a panel has for everything around and in it; compact: small letters."""

    width: float
    height: float
    rows: bool = False  # whose height goes by their number

    @property
    def compact(self) -> bool:
        return self.width < 5 or (self.height < 3.6 and not self.rows)


def room_of(ax: Axes, rows: bool = False) -> Room:
    figure: Any = ax.figure
    dpi = figure.dpi
    spec = ax.get_subplotspec()
    if spec is None:
        return Room(ax.bbox.width / dpi + 0.9, ax.bbox.height / dpi + 0.9, rows)
    grid = spec.get_gridspec()
    width = figure.bbox.width / dpi * len(spec.colspan) / grid.ncols
    return Room(width, figure.bbox.height / dpi * len(spec.rowspan) / grid.nrows, rows)


def columns_in(inches: float, size: float) -> int:
    """Letters of this size that fit into a line."""
    return max(int(inches * 72 / (size * 0.58)), 12)


def shortened(text: str, columns: int) -> str:
    """A name with its middle left out where it is too long."""
    if len(text) <= columns:
        return text
    half = (columns - 1) // 2
    return f"{text[:half].rstrip()}…{text[len(text) - half :].lstrip()}"


def set_title(ax: Axes, title: str, room: Room, left: float = 0.8) -> None:
    size = 8.5 if room.compact else style.TITLE
    wrapped = textwrap.wrap(printable(title), columns_in(room.width - left - 0.1, size * 1.1))[:2]
    ax.set_title("\n".join(wrapped), loc="left", fontsize=size, fontweight="bold", pad=6)


def set_legend(ax: Axes, theme: Theme, named: Sequence[tuple[str, Any]], room: Room, gap: float = 0.1) -> None:
    """Right of the axes, with no more rows and letters than fit; the last row counts the others. named: names and handles."""
    if not named:
        return
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    size = 6.0 if room.compact else style.TINY
    most = max(int((room.height - 1.3) / (size / style.TINY * LINE * 1.12)), 3)
    rows = [(shortened(printable(name), columns_in(room.width * LEGEND - 0.35, size)), handle) for name, handle in named]
    if len(rows) > most:
        rows[most - 1 :] = [(f"{len(rows) - most + 1} more in the table", Line2D([], [], linestyle="none"))]
    names, handles = zip(*rows, strict=True)
    figure: Any = ax.figure
    place = ax.transAxes + ScaledTranslation(gap, 0, figure.dpi_scale_trans)
    ax.legend(handles, names, fontsize=size, labelspacing=0.3, handletextpad=0.5, handlelength=1.8, loc="upper left",
              bbox_to_anchor=(1.0, 1.0), bbox_transform=place, borderaxespad=0.0, labelcolor=theme("ink"))  # fmt: skip


def key_of(theme: Theme, colour: str, marker: str, dashes: Any = "none", hollow: bool = False, width: float = 1.3) -> Any:
    from matplotlib.lines import Line2D

    ink = theme(colour)
    return Line2D([], [], color=ink, linestyle=dashes, linewidth=width, marker=marker or "none", markersize=5.5,
                  markerfacecolor=theme("paper") if hollow else ink, markeredgecolor=ink, markeredgewidth=1.0)  # fmt: skip


def set_sizes(ax: Axes, room: Room) -> None:
    size = style.TINY if room.compact else style.TEXT
    ax.tick_params(labelsize=size - 0.5)
    ax.xaxis.label.set_fontsize(size)
    ax.yaxis.label.set_fontsize(size)
