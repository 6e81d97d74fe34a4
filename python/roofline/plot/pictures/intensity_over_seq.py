"""Arithmetic intensity over the sequence length."""

from __future__ import annotations

from typing import Unpack

from ...operators import count
from ...transformer import Decode, Prefill, TransformerConfig, calls_of
from ..asked import Size, Work, checked, work_of
from ..figure import Look, Panels, picture
from ..models import SEQS, attention_of, counts_of, unfused, unmasked
from ..roofs import Machines, intensity_chart, machine_notes, ridge_levels, several


@picture("what fusing attention gains as the prompt grows", group="model", example="plot.intensity_over_seq(llama, machines=h100)")
def intensity_over_seq(work: Work, *, machines: Machines = (), seq_q: Size = SEQS, batch: int = 1, **look: Unpack[Look]) -> Panels:
    """Intensity of attention unfused and fused over the sequence length; of a model also that of its phases.

    Unfused attention is a kernel for each product and one for the softmax.

    Args:
        work: a model, or an attention problem.
        machines: none, one or several, whose ridge points are horizontals.
        seq_q: the lengths.
        batch: sequences.

    element of the records: "point" and "level" (a ridge point): label, seq, flops_per_byte.
    """
    sizes, given, model = checked("seq_q", seq_q), several(machines), work_of(work)
    lines: dict[str, list[tuple[float, float]]] = {"attention, unfused": [], "attention, fused": []}
    for seq in sizes:
        if isinstance(model, TransformerConfig):
            problem = unmasked(attention_of(model, seq, batch))
            prefill = counts_of(calls_of(model, Prefill(batch=batch, seq_q=seq)))
            lines.setdefault("whole prefill", []).append((seq, prefill.flops_per_byte))
            decode = [c for c in calls_of(model, Decode(batch=batch, seq_kv=seq)) if c.cached]
            lines.setdefault("attention, decode", []).append((seq, counts_of(decode).flops_per_byte))
        else:
            problem = unmasked(model.replace(seq_q=seq, seq_kv=seq))
        lines["attention, unfused"].append((seq, count(*unfused(problem).values()).flops_per_byte))
        lines["attention, fused"].append((seq, count(problem).flops_per_byte))
    levels = ridge_levels(given, [problem])
    what = model.name if isinstance(model, TransformerConfig) else model.name.replace("_", " ")
    unfused_is = (
        "unfused: scores in attention's dtype pass memory four times; fused: q, k, v and the result once; both without a mask"
    )
    notes = [*machine_notes(given), unfused_is, *(["horizontals: ridge points of attention's dtype"] if levels else [])]
    title = f"Intensity over sequence length: {what}"
    yield intensity_chart(title, "Sequence length [tokens]", "seq", lines, levels, notes=notes)
