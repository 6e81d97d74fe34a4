"""A decode step over batch and context length, with the border at which it crosses the ridge point."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Unpack

import numpy as np

from ...errors import Error
from ...machine import Given, machine_of
from ...transformer import Crossing, Given as Model
from ...transformer.advice import ridge_batches
from ...units import fmt_number
from ...words import require_one_of
from ..asked import Measured, Size, checked, modelled, wanted
from ..cells import WRITTEN, Cells, written
from ..figure import Assumptions, Panels, picture
from ..models import BATCHES, decode_steps, measured_steps, prediction_notes
from ..panels import Point
from ..roofs import machine_notes

SEQS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
QUANTITIES: Mapping[str, str] = {
    "flops_per_byte": "Decode intensity [FLOP/byte]",
    "bound": "Roof with most of a decode step",
    "tokens_per_s": "Decode throughput [tok/s]",
    "time_s": "Time per output token [s]",
}
TIMED = ("tokens_per_s", "time_s")
OF = ("model", "measured", "ratio")


def border(batches: Sequence[int], crossings: Sequence[Crossing]) -> Iterator[tuple[Point, Point]]:
    """The edges between cells below the ridge point and cells above it, as (x, x) and (y, y) in columns and rows."""
    rows = len(batches)
    # How many batches are below it; None meets it never, which is above all.
    below = [rows if c.batch is None else sum(batch < c.batch for batch in batches) for c in crossings]
    for column, n in enumerate(below):
        if 0 < n < rows:
            yield (column - 0.5, column + 0.5), (n - 0.5, n - 0.5)
    for column, (left, right) in enumerate(itertools.pairwise(below)):
        if left != right:
            yield (column + 0.5, column + 0.5), (left - 0.5, right - 0.5)


@picture("both at once: intensity, bound, tokens per second or time, what fits, and where the ridge point is crossed",
         group="model",
         example="plot.decode_heatmap(h100, llama)")  # fmt: skip
def decode_heatmap(
    machine: Given, model: Model, *, quantity: str | None = None, batch: Size = BATCHES, seq_kv: Size = SEQS,
    results: Measured | None = None, of: str = "model", **how: Unpack[Assumptions],
) -> Panels:  # fmt: skip
    """A decode step over batch and context length. The border is where its intensity crosses the ridge point.

    Cells that do not fit in memory are hatched. With more than 200 cells only the table has the numbers.

    Args:
        machine: one.
        model: a model.
        quantity: flops_per_byte, bound, tokens_per_s, time_s (default: all; measured: the last two).
        batch: the rows.
        seq_kv: the columns.
        results: measurements of the model's kernels on that machine.
        of: model, measured, or ratio: measured over model, as a difference in percent.

    element of the records: "cell" (flops_per_byte, bound, tokens_per_s, time_s, measured_s, fits) and "ridge" (the batch where each
    length crosses it).
    """
    require_one_of("of", of, OF)
    asked = wanted("quantity", quantity, tuple(QUANTITIES) if of == "model" else TIMED)
    rows, columns, on = checked("batch", batch), checked("seq_kv", seq_kv), machine_of(machine)
    if of != "model" and results is None:
        raise Error(f"of={of!r} needs measurements: results=, or --results FILE")
    config, options = modelled(model, how)
    e = decode_steps(config, on, np.array(rows)[:, None], columns, options)
    crossings = ridge_batches(config, columns, on, **options)
    met = [c for c in crossings if c.batch is not None and c.batch <= rows[-1]]
    said = [] if met else [f"no batch up to {rows[-1]} meets the ridge point of {fmt_number(crossings[0].ridge)} FLOP/byte here"]
    said += ["the border counts the FLOPs of products alone, over all bytes"] if met else []
    notes = [*machine_notes([on]), f"{config.name}: a decode step of all sequences", *said]
    seen = np.full(e.time_s.shape, np.nan)
    if results is not None:
        seen, note = measured_steps(config, on, np.array(rows)[:, None], columns, results, options)
        notes.append(note)
    notes += prediction_notes([e])
    if len(rows) * len(columns) > WRITTEN:
        notes.append(f"more than {WRITTEN} cells: the numbers are in the table that is saved beside the picture")
    edges = list(border(rows, crossings))
    for each in asked:
        values = {"tokens_per_s": e.tokens_per_s, "time_s": e.tpot_s}.get(each, getattr(e, each, None))
        if of != "model":
            own = np.array(rows)[:, None] / seen if each == "tokens_per_s" else seen
            values = own if of == "measured" else own / values
        unit = {"tokens_per_s": "", "time_s": "s"}.get(each)
        texts = [[written(v, unit, ratio=of == "ratio") for v in row] for row in np.asarray(values, dtype=object).tolist()]
        cells = [
            {"element": "cell", "label": texts[i][j], "batch": b, "seq_kv": k, "flops_per_byte": float(e.flops_per_byte[i, j]),
             "bound": str(e.bound[i, j]), "tokens_per_s": float(e.tokens_per_s[i, j]), "time_s": float(e.time_s[i, j]),
             "measured_s": float(seen[i, j]) if np.isfinite(seen[i, j]) else None, "fits": bool(e.fits[i, j])}
            for (i, b), (j, k) in itertools.product(enumerate(rows), enumerate(columns))
        ]  # fmt: skip
        ridges = [{"element": "ridge", "label": c.text, "batch": c.batch, "seq_kv": k, "flops_per_byte": c.ridge}
                  for k, c in zip(columns, crossings, strict=True)]  # fmt: skip
        suffix = {"model": "", "measured": ", measured", "ratio": ", measured over model"}[of]
        yield Cells(
            title=f"{QUANTITIES[each]}{suffix}: {config.name}", x_label="Context length [tokens]", y_label="Batch", xs=columns,
            ys=rows, values=values, texts=texts, fits=e.fits, border=edges, notes=notes, rows=[*cells, *ridges],
            border_name=f"ridge point, {fmt_number(crossings[0].ridge)} FLOP/byte",
            scale="names" if each == "bound" else "ratio" if of == "ratio" else "log",
        )  # fmt: skip
