"""A heatmap of a decode step over batch and KV length, with the border at which it crosses the ridge point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .._repr import printable
from ..machine import Machine
from ..transformer import Crossing, Decode, Estimate, TransformerConfig, ridge_batch
from ..units import fmt_number, fmt_si
from . import style
from .chart import fmt_count
from .lettering import halo
from .over import BATCHES, checked, estimate_notes, estimates
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
UNFIT_FILL = ("#F4F4F5", "//", style.MUTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A whole plot as data: estimates[i][j] of batches[i] and seqs[j]; crossings[j]: where the batch meets the ridge point."""

    quantity: str
    config: TransformerConfig
    batches: tuple[int, ...]
    seqs: tuple[int, ...]
    estimates: tuple[tuple[Estimate, ...], ...]
    crossings: tuple[Crossing, ...]
    notes: tuple[str, ...] = field(default=())
    low: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return f"{QUANTITIES[self.quantity]}: {self.config.name}"

    def value(self, found: Estimate) -> float | str:
        value: float | str = getattr(found, self.quantity)
        return value

    def records(self) -> Records:
        """element: "cell", "ridge" (batch: where the intensity meets it; empty: never), "note"."""
        cells = [
            {"element": "cell", "label": self.text(e), "batch": batch, "seq_kv": seq, "flops_per_byte": e.flops_per_byte,
             "bound": e.bound, "tokens_per_s": e.tokens_per_s, "time_s": e.time_s, "fits": e.memory.fits is not False}
            for batch, row in zip(self.batches, self.estimates, strict=True) for seq, e in zip(self.seqs, row, strict=True)
        ]  # fmt: skip
        ridges = [
            {"element": "ridge", "label": c.text, "batch": c.batch, "seq_kv": seq, "flops_per_byte": c.ridge}
            for seq, c in zip(self.seqs, self.crossings, strict=True)
        ]
        return table([*cells, *ridges], self.notes)

    def text(self, found: Estimate) -> str:
        value = self.value(found)
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
        return Size(left=left_of(ax), width=max(CELL[0] * len(self.seqs), LEAST), height=max(CELL[1] * len(self.batches), 1.2))

    def _fill(self, share: float) -> tuple[str, str]:
        """Colour of a cell, and of its words."""
        from matplotlib.colors import to_hex, to_rgb

        red, green, blue = (a + (b - a) * share for a, b in zip(to_rgb(PALE), to_rgb(DARK), strict=True))
        return to_hex((red, green, blue)), "white" if share > WHITE else style.INK

    def _fills(self) -> list[list[tuple[str, str, str]]]:
        """Colour, hatch, and colour of the words, of each cell."""
        values = [math.log(float(value)) for row in self.estimates for e in row if not isinstance(value := self.value(e), str)]
        low, high = min(values, default=0.0), max(values, default=0.0)

        def fill(e: Estimate) -> tuple[str, str, str]:
            if e.memory.fits is False:
                return UNFIT_FILL
            value = self.value(e)
            if isinstance(value, str):
                return (*style.ROOF_FILLS.get(value, ("#FFFFFF", "")), style.INK)
            colour, ink = self._fill((math.log(value) - low) / (high - low) if high > low else 0.0)
            return colour, "", ink

        return [[fill(e) for e in row] for row in self.estimates]

    def paint(self, ax: Axes) -> None:
        from matplotlib.patches import Rectangle

        ax.set_xlim(-0.5, len(self.seqs) - 0.5)
        ax.set_ylim(-0.5, len(self.batches) - 0.5)
        ax.set_xticks(range(len(self.seqs)), [fmt_count(n) for n in self.seqs])
        ax.set_yticks(range(len(self.batches)), [fmt_count(n) for n in self.batches])
        ax.tick_params(length=0)
        ax.set_xlabel("Keys in the cache of a sequence")
        ax.set_ylabel("Batch")
        ax.set_title(printable(self.title), loc="left", fontsize=10.5, fontweight="bold", pad=8)
        for (row, fills), each in zip(enumerate(self._fills()), self.estimates, strict=True):
            for (column, (colour, hatch, _)), e in zip(enumerate(fills), each, strict=True):
                box = (column - 0.5, row - 0.5)
                edge = UNFIT_EDGE if e.memory.fits is False else EDGE
                ax.add_patch(Rectangle(box, 1, 1, facecolor=colour, edgecolor=edge, hatch=hatch, linewidth=0.5, zorder=1,
                                       gid=f"cell {row} {column}"))  # fmt: skip
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
        if any(e.memory.fits is False for row in self.estimates for e in row):
            handles.append(Patch(facecolor=UNFIT_FILL[0], edgecolor="#B9BEC3", hatch="////", linewidth=0.4))
            names.append(UNFIT)
        if self.quantity == "bound":
            for roof in dict.fromkeys(e.bound for row in self.estimates for e in row if e.memory.fits is not False):
                colour, hatch = style.ROOF_FILLS.get(roof, ("#FFFFFF", ""))
                handles.append(Patch(facecolor=colour, hatch=hatch, edgecolor=EDGE, linewidth=0.4))
                names.append("matrix products" if roof == "product" else roof)
        return outside(ax, handles, names, handlelength=1.8) if handles else None

    def write(self, ax: Axes) -> None:
        for (row, fills), each in zip(enumerate(self._fills()), self.estimates, strict=True):
            for (column, (_, hatch, ink)), e in zip(enumerate(fills), each, strict=True):
                effects = halo() if hatch and e.memory.fits is not False else []
                ax.text(column, row, self.text(e), fontsize=style.TINY, color=ink, ha="center", va="center", zorder=4,
                        path_effects=effects, gid=f"value {row} {column}")  # fmt: skip


def heatmap_grid(
    config: TransformerConfig,
    machine: Machine,
    *,
    quantity: str = "flops_per_byte",
    batches: Sequence[int] = BATCHES,
    seqs: Sequence[int] = SEQS,
    **how: Any,
) -> Grid:
    quantity_of(quantity, tuple(QUANTITIES))
    rows, columns = checked("batches", batches), checked("seqs", seqs)
    found = tuple(tuple(estimates(config, machine, (Decode(batch=b, seq_kv=s) for s in columns), how)) for b in rows)
    crossings = tuple(ridge_batch(e, machine) for e in found[0])
    met = [c for c in crossings if c.batch is not None and c.batch <= rows[-1]]
    said = [] if met else [f"no batch up to {rows[-1]} meets the ridge point of {fmt_number(crossings[0].ridge)} FLOP/byte here"]
    counted = "the border counts the FLOPs of products alone, over all bytes" if met else ""
    notes = (*machine_notes([machine]), f"{config.name}: a decode step of all sequences", *said, *([counted] if counted else []))
    return Grid(quantity=quantity, config=config, batches=rows, seqs=columns, estimates=found, crossings=crossings,
                notes=(*notes, *estimate_notes(e for row in found for e in row)))  # fmt: skip
