"""A heatmap of a decode step over batch and KV length, with the border at which it crosses the ridge point."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .._repr import printable
from ..machine import Given, machine_of
from ..transformer import Crossing, ModelPredictions, TransformerConfig
from ..transformer.advice import ridge_batches
from ..units import fmt_number, fmt_si
from . import style
from .asked import Size as Sizes
from .asked import checked, modelled
from .chart import fmt_count
from .lettering import halo
from .over import BATCHES, asked, estimate_notes, estimates
from .ridges import machine_notes
from .show import Records, Size, left_of, outside, quantity_of, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEQS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
QUANTITIES: Mapping[str, str] = {
    "flops_per_byte": "Decode intensity [FLOP/byte]",
    "bound": "Roof with most of a decode step",
    "tokens_per_s": "Decode throughput [tok/s]",
}
CELL = (0.66, 0.3)  # inches
LEAST = 5.4  # inches of the axes, for the title
PALE, DARK = "#F1F6FA", "#0B4A75"
WHITE = 0.58  # of the way between these: from here on words are white
UNFIT = "does not fit in memory"
EDGE, UNFIT_EDGE = "#B9BEC3", "#DADDE0"
WRITTEN = 200  # cells: of more the numbers are in the table alone, and no axis has ticks for all
LONGEST = 40  # rows or columns of a grid with numbers
UNWRITTEN = f"more than {WRITTEN} cells, or {LONGEST} of one axis: the numbers are in the table that is saved beside the picture"
LARGE = (9.0, 6.0)  # inches of a grid without
TICKS = 16  # of an axis without numbers
UNFIT_FILL = ("#F4F4F5", "//", style.MUTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A whole plot as data: estimates [batches, seqs]; crossings[j]: where the batch meets the ridge point at seqs[j]."""

    quantity: str
    config: TransformerConfig
    batches: tuple[int, ...]
    seqs: tuple[int, ...]
    estimates: ModelPredictions
    crossings: tuple[Crossing, ...]
    notes: tuple[str, ...] = field(default=())
    low: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return f"{QUANTITIES[self.quantity]}: {self.config.name}"

    @property
    def written(self) -> bool:
        """Whether every cell has its number."""
        return len(self.batches) * len(self.seqs) <= WRITTEN and max(len(self.batches), len(self.seqs)) <= LONGEST

    @property
    def values(self) -> Any:
        """Numbers or names of roofs, [batches, seqs]."""
        return getattr(self.estimates, self.quantity)

    def records(self) -> Records:
        """element: "cell", "ridge" (batch: where the intensity meets it; empty: never), "note"."""
        e, names = self.estimates, ("flops_per_byte", "bound", "tokens_per_s", "time_s", "fits")
        columns = [getattr(e, name).reshape(-1).tolist() for name in names]
        labels = map(self.text, self.values.reshape(-1).tolist())
        cells = [
            {"element": "cell", "label": label, "batch": batch, "seq_kv": seq, **dict(zip(names, found, strict=True))}
            for label, (batch, seq), *found in zip(labels, itertools.product(self.batches, self.seqs), *columns, strict=True)
        ]
        ridges = [
            {"element": "ridge", "label": c.text, "batch": c.batch, "seq_kv": seq, "flops_per_byte": c.ridge}
            for seq, c in zip(self.seqs, self.crossings, strict=True)
        ]
        return table([*cells, *ridges], self.notes)

    def text(self, value: float | str) -> str:
        if isinstance(value, str):
            return value
        return fmt_si(value, "").replace(" ", "") if self.quantity == "tokens_per_s" else fmt_number(value)

    def border(self) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        """The edges between cells below the ridge point and cells above it, in columns and rows."""
        rows = len(self.batches)
        # How many batches are below it; None meets it never, which is above all.
        below = [rows if c.batch is None else sum(batch < c.batch for batch in self.batches) for c in self.crossings]
        for column, count in enumerate(below):
            if 0 < count < rows:
                yield (column - 0.5, count - 0.5), (column + 0.5, count - 0.5)
        for column, (left, right) in enumerate(itertools.pairwise(below)):
            if left != right:
                yield (column + 0.5, left - 0.5), (column + 0.5, right - 0.5)

    # -- drawing ----------------------------------------------------------------------------------------------------------

    def size(self, ax: Axes) -> Size:
        width, height = CELL[0] * len(self.seqs), CELL[1] * len(self.batches)
        if not self.written:
            width, height = min(width, LARGE[0]), min(height, LARGE[1])
        return Size(left=left_of(ax), width=max(width, LEAST), height=max(height, 1.2))

    def _fill(self, share: float) -> tuple[str, str]:
        """Colour of a cell, and of its words."""
        from matplotlib.colors import to_hex, to_rgb

        red, green, blue = (a + (b - a) * share for a, b in zip(to_rgb(PALE), to_rgb(DARK), strict=True))
        return to_hex((red, green, blue)), "white" if share > WHITE else style.INK

    def _shares(self) -> Any:
        """How dark each cell is, [batches, seqs]: 0 for the lowest number, 1 for the highest, by its logarithm."""
        logs = np.log(self.values)
        low, high = float(logs.min()), float(logs.max())
        return (logs - low) / (high - low) if high > low else logs * 0.0

    def _fills(self) -> list[list[tuple[str, str, str]]]:
        """Colour, hatch, and colour of the words, of each cell."""
        named = self.quantity == "bound"
        values = (self.values if named else self._shares()).tolist()

        def fill(value: Any, fits: bool) -> tuple[str, str, str]:
            if not fits:
                return UNFIT_FILL
            if named:
                return (*style.BOUND_FILLS.get(value, ("#FFFFFF", "")), style.INK)
            colour, ink = self._fill(value)
            return colour, "", ink

        return [list(map(fill, row, fits)) for row, fits in zip(values, self.estimates.fits.tolist(), strict=True)]

    def _paint_cells(self, ax: Axes) -> None:
        from matplotlib.patches import Rectangle

        for (row, fills), each in zip(enumerate(self._fills()), self.estimates.fits.tolist(), strict=True):
            for (column, (colour, hatch, _)), fits in zip(enumerate(fills), each, strict=True):
                ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor=EDGE if fits else UNFIT_EDGE,
                                       hatch=hatch, linewidth=0.5, zorder=1, gid=f"cell {row} {column}"))  # fmt: skip

    def _paint_blocks(self, ax: Axes) -> None:
        """One image of all numbers, and a rectangle for each block of equal cells without one."""
        from matplotlib.colors import to_rgb
        from matplotlib.patches import Rectangle

        fits = self.estimates.fits
        if self.quantity == "bound":
            names = np.where(fits, self.values, UNFIT)
        else:
            names = np.where(fits, "", UNFIT)
            ends = np.array([to_rgb(PALE), to_rgb(DARK)])
            box = (-0.5, len(self.seqs) - 0.5, -0.5, len(self.batches) - 0.5)
            ax.imshow(ends[0] + (ends[1] - ends[0]) * self._shares()[..., None], origin="lower", aspect="auto", zorder=1,
                      interpolation="none", extent=box, gid="cells")  # fmt: skip
        for name, rows, columns in blocks(names.tolist()):
            if name:
                colour, hatch = UNFIT_FILL[:2] if name == UNFIT else style.BOUND_FILLS.get(name, ("#FFFFFF", ""))
                ax.add_patch(Rectangle((columns[0] - 0.5, rows[0] - 0.5), columns[1] - columns[0], rows[1] - rows[0], hatch=hatch,
                                       facecolor=colour, edgecolor=UNFIT_EDGE if name == UNFIT else EDGE, linewidth=0.0, zorder=1.5,
                                       gid=f"block {name} {rows[0]} {columns[0]}"))  # fmt: skip

    def paint(self, ax: Axes) -> None:
        for name, sizes in (("x", self.seqs), ("y", self.batches)):
            at = range(0, len(sizes), 1 if self.written else math.ceil(len(sizes) / TICKS))
            ax.set(**{f"{name}lim": (-0.5, len(sizes) - 0.5)})
            getattr(ax, f"set_{name}ticks")(at, [fmt_count(sizes[index]) for index in at])
        ax.tick_params(length=0)
        ax.set_xlabel("Context length [tokens]")
        ax.set_ylabel("Batch")
        ax.set_title(printable(self.title), loc="left", fontsize=10.5, fontweight="bold", pad=8)
        if self.written:
            self._paint_cells(ax)
        else:
            self._paint_blocks(ax)
        for zorder, (colour, width) in enumerate((("white", 4.2), (style.VERMILLION, 2.2)), start=2):
            for start, end in self.border():
                ax.plot(*zip(start, end, strict=True), color=colour, linewidth=width, zorder=zorder, solid_capstyle="projecting",
                        label="_ridge", gid="border" if zorder > 2 else "air")  # fmt: skip

    def legend(self, ax: Axes) -> Any:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Any] = []
        names: list[str] = []
        if any(True for _ in self.border()):
            handles.append(Line2D([], [], color=style.VERMILLION, linewidth=2.2))
            names.append(f"ridge point, {fmt_number(self.crossings[0].ridge)} FLOP/byte")
        fits = self.estimates.fits
        if not fits.all():
            handles.append(Patch(facecolor=UNFIT_FILL[0], edgecolor="#B9BEC3", hatch="////", linewidth=0.4))
            names.append(UNFIT)
        if self.quantity == "bound":
            for roof in dict.fromkeys(self.values[fits].tolist()):
                colour, hatch = style.BOUND_FILLS.get(roof, ("#FFFFFF", ""))
                handles.append(Patch(facecolor=colour, hatch=hatch, edgecolor=EDGE, linewidth=0.4))
                names.append(roof)
        elif not self.written:
            low, high = float(self.values.min()), float(self.values.max())
            for share, value in ((0.0, low), (0.5, math.sqrt(low * high)), (1.0, high)):
                handles.append(Patch(facecolor=self._fill(share)[0], edgecolor=EDGE, linewidth=0.4))
                names.append(self.text(value))
        return outside(ax, handles, names, handlelength=1.8) if handles else None

    def write(self, ax: Axes) -> None:
        if not self.written:
            return
        rows = zip(self._fills(), self.values.tolist(), self.estimates.fits.tolist(), strict=True)
        for row, (fills, values, each) in enumerate(rows):
            for column, ((_, hatch, ink), value, fits) in enumerate(zip(fills, values, each, strict=True)):
                ax.text(column, row, self.text(value), fontsize=style.TINY, color=ink, ha="center", va="center", zorder=4,
                        path_effects=halo() if hatch and not fits else [], gid=f"value {row} {column}")  # fmt: skip


Span = tuple[int, int]


def blocks(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, Span, Span]]:
    """Equal cells of a grid as few rectangles: (name, rows, columns), each from the first to behind the last."""
    begun: dict[tuple[str, Span], int] = {}
    for index, row in enumerate([*rows, ()]):
        runs, start = [], 0
        for name, cells in itertools.groupby(row):
            stop = start + sum(1 for _ in cells)
            runs.append((name, (start, stop)))
            start = stop
        for run in [run for run in begun if run not in runs]:
            yield run[0], (begun.pop(run), index), run[1]
        for run in runs:
            begun.setdefault(run, index)


def heatmap_grid(
    config: Any,
    machine: Given,
    *,
    quantity: str = "flops_per_byte",
    batch: Sizes = BATCHES,
    seq_kv: Sizes = SEQS,
    **how: Any,
) -> Grid:
    quantity_of(quantity, tuple(QUANTITIES))
    rows, columns, machine = checked("batch", batch), checked("seq_kv", seq_kv), machine_of(machine)
    config, how = modelled(config, how)
    found = estimates(config, machine, np.array(rows)[:, None], columns, how)
    crossings = ridge_batches(config, columns, machine, **asked(how))
    met = [c for c in crossings if c.batch is not None and c.batch <= rows[-1]]
    said = [] if met else [f"no batch up to {rows[-1]} meets the ridge point of {fmt_number(crossings[0].ridge)} FLOP/byte here"]
    counted = "the border counts the FLOPs of products alone, over all bytes" if met else ""
    notes = (*machine_notes([machine]), f"{config.name}: a decode step of all sequences", *said, *([counted] if counted else []))
    made = Grid(quantity=quantity, config=config, batches=rows, seqs=columns, estimates=found, crossings=crossings,
                notes=(*notes, *estimate_notes([found])))  # fmt: skip
    return made if made.written else dataclasses.replace(made, notes=(*made.notes, UNWRITTEN))
