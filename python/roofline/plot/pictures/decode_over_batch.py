"""A decode step over the batch: its intensity and its throughput."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from ...transformer import Given as Model
from ...transformer.advice import ridge_batches
from ...units import fmt_number
from ..asked import Measured, Size, checked, modelled, single, wanted
from ..charts import Chart, Dot
from ..figure import Assumptions, Panels, picture
from ..models import BATCHES, HOLLOW, decode_steps, lines_over, measured_steps, prediction_notes
from ..roofs import Level, Machines, intensity_chart, machine_notes, several, stated

QUANTITIES = ("flops_per_byte", "tokens_per_s")


@picture("what a larger batch gains: intensity, or tokens per second", group="model",
         example="plot.decode_over_batch([a100, h100], llama)")  # fmt: skip
def decode_over_batch(
    machines: Machines, model: Model, *, quantity: str | None = None, batch: Size = BATCHES, seq_kv: Size = 2048,
    results: Measured | None = None, **how: Unpack[Assumptions],
) -> Panels:  # fmt: skip
    """A decode step over the batch: its intensity with the ridge points, and its throughput. Hollow does not fit in memory.

    Args:
        machines: one or several.
        model: a model.
        quantity: flops_per_byte, tokens_per_s (default: both).
        batch: the sizes.
        seq_kv: keys of a sequence.
        results: measurements of its kernels on the first machine, whose throughput is a line of its own.

    element of the records: "point", "level" and "crossing": label, batch, and flops_per_byte or tokens_per_s.
    """
    sizes, given, (config, options) = checked("batch", batch), several(machines, 1), modelled(model, how)
    keys = single("seq_kv", seq_kv)
    found = [(m, decode_steps(config, m, sizes, keys, options)) for m in given]
    notes = [*machine_notes(given), f"{config.name}, {keys} keys a sequence"]
    for each in wanted("quantity", quantity, QUANTITIES):
        if each == "tokens_per_s":
            rates, timed = {m.name: e.tokens_per_s for m, e in found}, []
            if results is not None:
                times, note = measured_steps(config, given[0], sizes, keys, results, options)
                rates[f"{given[0].name}, measured"] = np.array(sizes) / times
                timed.append(note)
            lines, rows, more = lines_over("batch", sizes, each, rates, {m.name: e.fits.tolist() for m, e in found})
            yield Chart(
                title=f"Decode throughput over batch: {config.name}", x_label="Batch", x_kind="count", y_label="Throughput",
                y_unit="tok/s", lines=lines, rows=rows, notes=[*more, *notes, *timed, *prediction_notes(e for _, e in found)],
            )  # fmt: skip
            continue
        levels, crossings, texts = [], [], []
        for m in given:
            crossed = ridge_batches(config, [keys], m, **options)[0]
            levels.append(Level(label=f"{m.name}: {fmt_number(crossed.ridge)} FLOP/byte", y=crossed.ridge, dashes=stated(m)))
            if crossed.batch is not None and sizes[0] <= crossed.batch <= sizes[-1]:
                crossings.append(
                    Dot(name=f"batch {fmt_number(crossed.batch)}", x=crossed.batch, y=crossed.ridge, marker="X", colour="ink")
                )
            texts.append(f"{m.name}: {crossed.text}")
        line = {config.name: list(zip(sizes, found[0][1].flops_per_byte.tolist(), strict=True))}
        fits = {config.name: np.any([e.fits for _, e in found], axis=0).tolist()}
        unfit = [] if all(fits[config.name]) else [HOLLOW if len(found) == 1 else "hollow: fits in no machine's memory"]
        counted = "horizontals: ridge points of the product with most FLOPs; a cross counts the FLOPs of products alone"
        said = [*unfit, *notes, *texts, counted, *prediction_notes([found[0][1]])]
        title = f"Decode intensity over batch: {config.name}"
        yield intensity_chart(title, "Batch", "batch", line, levels, crossings, notes=said, fits=fits)
