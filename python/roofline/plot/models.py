"""What pictures of models have in common: phases and their names, calls and counts, predictions and the notes on them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..census import census_of
from ..counts import Array
from ..errors import Error
from ..machine import Machine
from ..operators import Bmm, Counts, Operator, Softmax, count
from ..transformer import (
    Call,
    Decode,
    Mixed,
    ModelPrediction,
    ModelPredictions,
    Phase,
    Prefill,
    TransformerConfig,
    calls_of,
    predict_steps,
)
from ..units import fmt_percent
from .asked import Measured, results_of
from .charts import Line, series_lines
from .panels import Records

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SEQS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
LADDER: tuple[Phase, ...] = (Prefill(seq_q=1024), Decode(batch=1), Decode(batch=32), Decode(batch=128))
TYPES: tuple[Phase, ...] = (Prefill(seq_q=1024), Decode(batch=1))
TAKEN = ("tp", "ep", "lm_head", "fused", "launch_s", "link_bytes_per_s")  # options of a prediction that a census has too
UNSAID = ("lm_head", "fused", "counting", "utilisation")  # options that `ModelPrediction.counted` tells
HOLLOW = "hollow: does not fit in memory"


def short(phase: Phase) -> str:
    """A phase as a dot is called: "decode, batch 32", "prefill of 1024"."""
    batch = f", batch {phase.batch}" if phase.batch > 1 or not isinstance(phase, Prefill) else ""
    if isinstance(phase, Decode):
        drafted = f", {phase.seq_q} tokens" if phase.seq_q > 1 else ""
        return f"{phase.name}{batch}{drafted}"
    length = getattr(phase, "seq_q", None)
    beside = f" beside {phase.prefill_seq_q}" if isinstance(phase, Mixed) else ""
    return f"{phase.name}{f' of {length}' if length else ''}{batch}{beside}"


def names_of(phases: Sequence[Phase]) -> list[str]:
    """Short names, and whole ones where short ones are equal. Raises Error where a phase is given twice."""
    if len(set(phases)) < len(phases) or not phases:
        raise Error("give at least one phase, and each once")
    brief = [short(phase) for phase in phases]
    return [name if brief.count(name) == 1 else str(phase) for name, phase in zip(brief, phases, strict=True)]


def counts_of(calls: Iterable[Call]) -> Counts:
    """FLOPs and bytes of all runs of calls."""
    return sum((c.count * count(c.problem, variant=c.variant if c.variant in c.problem.variants else "") for c in calls), Counts())


# -- attention in separate kernels --------------------------------------------------------------------------------------------


def attention_of(config: TransformerConfig, seq_len: int, batch: int = 1) -> Operator:
    """The attention that takes most of a prefill, by itself and without a mask."""
    calls = [c for c in calls_of(config, Prefill(batch=batch, seq_q=seq_len)) if not c.weights and len(c.problem.products()) > 1]
    if not calls:
        raise Error(f"{config.name}: its attention is not one kernel of several products")
    return max(calls, key=lambda c: c.count * c.problem.total_flops()).problem


def unmasked(problem: Operator) -> Operator:
    return problem.replace(causal=False) if "causal" in problem.to_dict() else problem


def unfused(problem: Operator) -> dict[str, Operator]:
    """Attention in separate kernels whose scores pass through memory: its products, and a softmax of their rows.

    In the attention's dtype throughout, without a mask. Raises Error for problems that are no attention.
    """
    *scores, values = problem.products() or (None,)
    if not scores or values is None or any(float(p.count * p.rows) % 1 for p in scores):
        raise Error(f"{problem.name}: is not attention: it lacks two products with a softmax between them")
    dtype = problem.compute()[0]

    def kernel(p: Any) -> Operator:
        return Bmm(batch=int(p.count), rows=int(p.rows), columns=int(p.columns), inner=int(p.inner), dtype=dtype, out_dtype=dtype)

    rows = int(scores[0].count * scores[0].rows)
    steps: dict[str, Operator] = {p.term: kernel(p) for p in scores}
    steps["softmax"] = Softmax(rows=rows, columns=int(scores[0].columns), dtype=dtype)
    return {**steps, values.term: kernel(values)}


# -- predictions --------------------------------------------------------------------------------------------------------------


def decode_steps(config: TransformerConfig, machine: Machine, batches: Any, seqs: Any, how: Mapping[str, Any]) -> ModelPredictions:
    """Decode steps of each batch and length (arrays that broadcast) on the machine, whether they fit or not."""
    return predict_steps(machine, config, Decode.many(batch=batches, seq_kv=seqs), **how)


def prediction_notes(found: Iterable[ModelPrediction | ModelPredictions]) -> tuple[str, ...]:
    """What was counted, and what was assumed, each once; of keys that are too many the most."""
    every = list(found)
    changed = every[0].options
    given = [f"{f.name} {getattr(changed, f.name):g}" for f in dataclasses.fields(changed) if f.name not in UNSAID
             and getattr(changed, f.name) not in (None, f.default)]  # fmt: skip
    given += [f"{roof} utilisation {share:g}" for roof, share in changed.utilisation.items() if share != 1]
    texts: dict[tuple[str, str], str] = {}
    machines: dict[tuple[str, str], dict[str, None]] = {}
    for note in (note for e in every for note in e.assumed if note.kind != "experts"):
        key = note.kind, "" if note.kind == "length" else note.text
        texts[key] = note.text
        machines.setdefault(key, {}).update({note.machine: None} if note.machine else {})
    said = [f"{'; '.join(machines[key])}: {text}" if machines[key] else text for key, text in texts.items()]
    fused = "" if changed.fused else " Not fused."
    return (f"{every[0].counted[0]}{fused}", *([", ".join(given)] if given else []), *said)


def measured_steps(
    config: TransformerConfig, machine: Machine, batches: Any, seqs: Any, results: Measured, how: Mapping[str, Any]
) -> tuple[Array, str]:
    """Seconds of decode steps of each batch and length (arrays that broadcast) from kernels that were measured, the others as
    expected, and a note on the share that was. NaN where no kernel of a step was measured. Raises Error as `census_of`.
    """
    own = {name: how[name] for name in TAKEN if name in how}
    every = np.broadcast_arrays(batches, seqs)
    steps = [Decode(batch=b, seq_kv=k) for b, k in zip(*(each.ravel().tolist() for each in every), strict=True)]
    census = census_of(config, steps, machine, results=results_of(results), **own)
    times, shares = [], []
    for step in steps:
        entries = census.of(step)
        seen = math.fsum(e.count * e.measured_s for e in entries if e.measured_s)
        rest = math.fsum(e.count * e.time_s for e in entries if not e.measured_s and e.time_s)
        times.append(seen + rest if seen else math.nan)
        shares.append(seen / (seen + rest) if seen else 0.0)
    of = " to ".join(dict.fromkeys(fmt_percent(share, 2) for share in (min(shares), max(shares))))
    return np.array(times).reshape(every[0].shape), f"measured: kernels that were timed, {of} of the time; all others as expected"


def lines_over(
    x: str, xs: Sequence[int], y: str, values: Mapping[str, Array], fits: Mapping[str, Sequence[bool]]
) -> tuple[list[Line], Records, list[str]]:
    """Lines through the finite values, their table rows, and the note on hollow points: steps that do not fit into memory."""
    lines = {name: [(a, b) for a, b in zip(xs, ys.tolist(), strict=True) if np.isfinite(b)] for name, ys in values.items()}
    rows: Records = [
        {"element": "point", "label": name, x: a, y: b, "fits": fits[name][i] if name in fits else None}
        for name, points in lines.items() for i, (a, b) in enumerate(points)
    ]  # fmt: skip
    drawn = series_lines({name: points for name, points in lines.items() if points}, fits)
    return drawn, rows, [] if all(map(all, fits.values())) else [HOLLOW]
