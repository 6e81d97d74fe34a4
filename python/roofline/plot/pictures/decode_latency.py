"""Latency of decode over the batch or the context length, per token or per request."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from ...transformer import Given as Model
from ...words import require_one_of
from ..asked import Measured, Size, axis, modelled, one_of_axis, single, wanted
from ..charts import Chart
from ..figure import Assumptions, Panels, picture
from ..models import BATCHES, SEQS, decode_steps, lines_over, measured_steps, prediction_notes
from ..roofs import Machines, machine_notes, several

OVER = ("batch", "seq_kv")
PER = ("token", "request")
AXES = {"batch": ("batch", "Batch"), "seq_kv": ("context length", "Context length [tokens]")}


@picture("what it costs: time per output token or per request over the batch, or over the keys", group="model",
         example='plot.decode_latency(h100, llama, over="seq_kv")')  # fmt: skip
def decode_latency(
    machines: Machines, model: Model, *, over: str | None = None, per: str = "token", batch: Size | None = None,
    seq_kv: Size | None = None, output: Size = 256, results: Measured | None = None, **how: Unpack[Assumptions],
) -> Panels:  # fmt: skip
    """Time per output token, or of a request's whole answer, over the batch and over the context length.

    A request's answer takes `output` decode steps, whose context grows by as many keys: the mean of the first and last step counts.

    Args:
        machines: one or several.
        model: a model.
        over: batch, seq_kv (default: both).
        per: token, request.
        batch: the sizes, and over seq_kv one size (default 1).
        seq_kv: the context lengths, and over batch one length (default 2048).
        output: tokens of an answer.
        results: measurements of the model's kernels on the first machine, which are a line of their own.

    element of the records "point": label, batch or seq_kv, time_s, fits.
    """
    given, (config, options) = several(machines, 1), modelled(model, how)
    require_one_of("per", per, PER)
    answer = single("output", output)
    for each in wanted("over", over, OVER):
        if each == "batch":
            sizes, keys = axis("batch", batch, BATCHES), one_of_axis(seq_kv, 2048)
            batches, lengths, kept = np.array(sizes), np.full(len(sizes), keys), f"{keys} keys a sequence"
        else:
            sizes, one = axis("seq_kv", seq_kv, SEQS), one_of_axis(batch, 1)
            batches, lengths, kept = np.full(len(sizes), one), np.array(sizes), f"batch {one}"

        found = [(m, decode_steps(config, m, batches, lengths, options)) for m in given]
        times = {m.name: e.tpot_s for m, e in found}
        notes = [f"{config.name}, {kept}"]
        if per == "request":
            ends = {m.name: decode_steps(config, m, batches, lengths + answer, options).tpot_s for m in given}
            times = {name: answer * (first + ends[name]) / 2 for name, first in times.items()}
            notes.append(f"an answer of {answer} tokens; its prompt's prefill is not in it")
        if results is not None:
            first, note = measured_steps(config, given[0], batches, lengths, results, options)
            if per == "request":
                last, _ = measured_steps(config, given[0], batches, lengths + answer, results, options)
                first = answer * (first + np.where(np.isfinite(last), last, first)) / 2
            times[f"{given[0].name}, measured"] = first
            notes.append(note)
        lines, rows, more = lines_over(each, sizes, "time_s", times, {m.name: e.fits.tolist() for m, e in found})
        what = "Time per output token" if per == "token" else f"Time of {answer} tokens"
        yield Chart(
            title=f"{what} over {AXES[each][0]}: {config.name}", x_label=AXES[each][1], x_kind="count", y_label=what, y_unit="s",
            lines=lines, rows=rows, notes=[*machine_notes(given), *notes, *more, *prediction_notes(e for _, e in found)],
        )  # fmt: skip
