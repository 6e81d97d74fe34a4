"""What every picture of the model has in common: a figure around axes, legends, notes, panels, and files from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from .._repr import printable
from ..errors import Error
from . import style
from .frame import BOTTOM, GAP, HEIGHT, LEFT, LINE, RIGHT, TOP, WIDTH, new_axes, wrapped, write_footer
from .lettering import import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Records = list[dict[str, Any]]
HINTED = 1.06  # letters are rounded to pixels: the same text is up to this much wider in a coarser picture
COLUMNS = 2  # panels side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Inches: of the axes, and left and right of them."""

    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = RIGHT


class Shown(Protocol):
    """A whole plot as data, and how it is drawn. `draw_shown` calls paint, then legend, then write."""

    low: ClassVar[bool]  # whether panels of it stand below each other

    @property
    def title(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def records(self) -> Records:
        """Everything drawn as flat records, all with the same keys."""
        ...

    def size(self, ax: Axes) -> Size: ...

    def paint(self, ax: Axes) -> None:
        """Frame, lines and markers."""
        ...

    def legend(self, ax: Axes) -> Any:
        """The legend, right of the axes or inside them, or None."""
        ...

    def write(self, ax: Axes) -> None:
        """Words, once the axes have their place and the legend too."""
        ...


def table(records: Sequence[dict[str, Any]], notes: Sequence[str]) -> Records:
    """The records with every key of any of them, and one for each note (element "note")."""
    keys = dict.fromkeys(key for record in [{"element": "", "label": ""}, *records] for key in record)
    empty: dict[str, Any] = dict.fromkeys(keys)
    return [{**empty, **record} for record in [*records, *({"element": "note", "label": note} for note in notes)]]


def outside(ax: Axes, handles: Sequence[Any], names: Sequence[str], **more: Any) -> Any:
    """A legend right of the axes, as far off as `Size.right` says (in `gap` inches)."""
    share = more.pop("gap", GAP) / (ax.bbox.width / ax.figure.dpi)
    spacing = 0.35 if len(names) <= 24 else 0.15
    names = [*map(printable, names)]
    return ax.legend(handles, names, fontsize=style.TINY, labelspacing=spacing, handletextpad=0.5, loc="upper left",
                     bbox_to_anchor=(1 + share, 1.0), borderaxespad=0.0, **more)  # fmt: skip


def left_of(ax: Axes) -> float:
    """Inches left of the axes that its tick labels and its y label take."""
    figure: Any = ax.figure
    low, high = sorted(ax.get_ylim())
    widths = [label.get_window_extent().width for label in ax.yaxis.get_ticklabels() if low <= label.get_position()[1] <= high]
    return max(LEFT, HINTED * float(max(widths, default=0.0)) / float(figure.dpi) + 0.42)


@dataclass(slots=True)
class _Panel:
    """A picture with its place: inches of the axes' lower left corner are found by `_arrange`."""

    shown: Shown
    ax: Axes
    size: Size
    footer: list[str]
    legend_inches: float = 0.0

    @property
    def right(self) -> float:
        return max(self.size.right, self.size.right + self.legend_inches + GAP if self.legend_inches else 0.0)

    @property
    def columns(self) -> float:
        return self.size.left + self.size.width + self.right

    @property
    def rows(self) -> float:
        return TOP + self.size.height + BOTTOM + len(self.footer) * LINE


def _arrange(figure: Any, panels: Sequence[_Panel], columns: int) -> None:
    """Size the figure and place the axes in rows of `columns`, each row as high as its highest panel."""
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    widths = [max(row[i].columns for row in rows if i < len(row)) for i in range(len(rows[0]))]
    heights = [max(panel.rows for panel in row) for row in rows]
    width, height = sum(widths), sum(heights)
    figure.set_size_inches(width, height)
    for number, row in enumerate(rows):
        top = height - sum(heights[:number]) - TOP
        for column, panel in enumerate(row):
            size, left = panel.size, sum(widths[:column]) + panel.size.left
            box = left / width, (top - size.height) / height, size.width / width, size.height / height
            panel.ax.set_position(box)


def _legend_inches(panel: _Panel) -> float:
    legend = panel.shown.legend(panel.ax)
    if legend is None:
        return 0.0
    box = legend.get_window_extent()
    inside = box.x0 < panel.ax.bbox.x1
    return 0.0 if inside else HINTED * float(box.width) / float(panel.ax.figure.dpi)


def draw_panels(shown: Sequence[Shown], axes: Sequence[Axes]) -> None:
    """Draw each on its axes and size their figure, which is ours, around all of them. A note is written once."""
    from matplotlib import rc_context

    columns = COLUMNS if len(shown) % COLUMNS == 0 and not any(each.low for each in shown) else 1

    figure: Any = axes[0].figure
    with rc_context(dict(style.RC)):
        said: set[str] = set()
        panels = []
        for each, ax in zip(shown, axes, strict=True):
            each.paint(ax)
            size = each.size(ax)
            panels.append(_Panel(each, ax, size, wrapped((note for note in each.notes if note not in said), size.width)))
            said |= set(each.notes)
        _arrange(figure, panels, columns)
        for panel in panels:
            panel.legend_inches = _legend_inches(panel)
        _arrange(figure, panels, columns)
        for panel in panels:
            panel.shown.legend(panel.ax)
            write_footer(panel.ax, panel.footer)
            panel.shown.write(panel.ax)


def draw_shown(shown: Shown, ax: Axes) -> Axes:
    """Draw on axes that somebody else has placed."""
    from matplotlib import rc_context

    figure: Any = ax.figure
    with rc_context(dict(style.RC)):
        shown.paint(ax)
        figure.figure.draw_without_rendering()  # a layout engine moves the axes only when it draws
        shown.legend(ax)
        write_footer(ax, wrapped(shown.notes, ax.bbox.width / figure.dpi))
        shown.write(ax)
    return ax


def retitled(ax: Axes, title: str | None) -> Axes:
    """The Axes under this title; None leaves its own."""
    if title is not None:
        ax.set_title(printable(title), loc="left", fontsize=10.5, fontweight="bold", pad=8)
    return ax


class Titled:
    """A picture under another title."""

    def __init__(self, shown: Shown, title: str) -> None:
        self.shown, self.title = shown, title

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shown, name)

    def paint(self, ax: Axes) -> None:
        self.shown.paint(ax)
        retitled(ax, self.title)


def titled(shown: Shown, title: str | None) -> Shown:
    """Under this title; None is its own."""
    return shown if title is None else cast(Shown, Titled(shown, title))


def show(shown: Shown, ax: Axes | None, title: str | None = None) -> Axes:
    """Draw on `ax`, or on a new figure of pyplot's, under `title` (None: its own). Raises Error where matplotlib is missing."""
    import_matplotlib()
    shown = titled(shown, title)
    if ax is not None:
        return draw_shown(shown, ax)
    made = new_axes()
    draw_panels([shown], [made])
    return made


def quantity_of(quantity: str, allowed: Sequence[str]) -> str:
    """Raises Error for a quantity that a plot has not."""
    if quantity not in allowed:
        raise Error(f"quantity must be one of {', '.join(allowed)}, got {quantity!r:.80}")
    return quantity
