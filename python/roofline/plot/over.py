"""Intensity, throughput and latency over a batch or a length: what is drawn, from costs, calls and estimates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import Error
from ..machine import Machine
from ..operators import Bmm, Counts, Operator, Softmax, count, growth
from ..transformer import Call, Decode, ModelPrediction, ModelPredictions, Prefill, TransformerConfig, calls_of, predict_steps
from ..transformer.advice import ridge_batches
from ..units import fmt_number
from .asked import Size, axis, checked, modelled, one_of_axis, work_of
from .chart import Chart, Crossing, Level, Series
from .ridges import Machines, machine_notes, ridge_levels, several
from .show import quantity_of

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SEQS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
INTENSITY = "Arithmetic intensity [FLOP/byte]"
RATES = ("flops_per_byte", "tokens_per_s")
OVER = ("batch", "seq_kv")
NAMED_CROSSINGS = 3  # of more lines the notes name where they meet a ridge point
FIELDS = ("rows", "tokens", "batch")  # of operators: what a batch makes more of

Model = TransformerConfig | Operator | Mapping[str, Operator]
Options = Mapping[str, Any]  # further arguments of `roofline.predict`


def named(model: Operator | Mapping[str, Operator]) -> dict[str, Operator]:
    """Problems with their names. Raises Error where there is none."""
    found = {model.name.replace("_", " "): model} if isinstance(model, Operator) else dict(model)
    if not found:
        raise Error("give at least one problem to draw")
    return found


def counts_of(calls: Iterable[Call]) -> Counts:
    """FLOPs and bytes of all runs of calls."""
    return sum((c.count * count(c.problem, variant=c.variant if c.variant in c.problem.variants else "") for c in calls), Counts())


# -- intensity over a batch ---------------------------------------------------------------------------------------------------


def _field(problem: Operator) -> str:
    have = problem.to_dict()
    for name in FIELDS:
        if name in have:
            return name
    raise Error(f"{problem.name}: has none of {', '.join(FIELDS)} to make a batch of; it has {', '.join(have)}")


def _crossings(
    problems: Mapping[str, tuple[Operator, str]], machines: Sequence[Machine], most: int
) -> Iterable[tuple[str, str, Crossing]]:
    """Where each problem meets the ridge points of its own arithmetic: (machine and ridge point, problem, crossing)."""
    for name, (problem, field) in problems.items():
        try:
            grown = growth(problem, field)
        except Error:  # not linear (experts), or nothing is shared (attention)
            continue
        for machine in machines:
            for level in ridge_levels([machine], [problem]):
                batch = grown.reaches(level.y)
                if batch is not None and 1 <= batch <= most:
                    at = f"{machine.name}, {fmt_number(level.y)} FLOP/byte"
                    yield at, name, Crossing(label=fmt_number(batch), x=batch, y=level.y)


def batch_chart(model: Any, machines: Machines, *, batch: Size = BATCHES, seq_kv: int | str = 2048) -> Chart:
    """Series of each product and of attention over the batch of a decode step, or of problems over their rows."""
    sizes, given, model = checked("batch", batch), several(machines), work_of(model)
    seq_kv = one_of_axis(seq_kv, 2048)
    lines: dict[str, list[tuple[float, float]]] = {}
    problems: dict[str, tuple[Operator, str]] = {}
    if isinstance(model, TransformerConfig):
        what, x_label = f"{model.name}, decode", "Batch"
        for size in sizes:
            joined: dict[str, list[Call]] = {}
            for call in calls_of(model, Decode(batch=size, seq_kv=seq_kv)):
                if call.weights or call.cached:
                    joined.setdefault(call.name, []).append(call)
            for name, calls in joined.items():
                lines.setdefault(name, []).append((size, counts_of(calls).flops_per_byte))
                problems[name] = calls[0].problem, next((f for f in FIELDS if f in calls[0].problem.to_dict()), "")
        notes = [f"{model.name}, each kernel of a decode step by itself; attention over {seq_kv} keys a sequence"]
    else:
        every = named(model)
        fields = {name: _field(problem) for name, problem in every.items()}
        what, x_label = ", ".join(every), " or ".join(dict.fromkeys(fields.values())).capitalize()
        for name, problem in every.items():
            lines[name] = [(n, count(problem.replace(**{fields[name]: n})).flops_per_byte) for n in sizes]
            problems[name] = problem, fields[name]
        notes = []
    levels = ridge_levels(given, (problem for problem, _ in problems.values() if problem.has_products()))
    met = list(_crossings({name: each for name, each in problems.items() if each[1]}, given, sizes[-1]))
    crossings = [c for _, _, c in met]
    if len(lines) > NAMED_CROSSINGS:
        for at in dict.fromkeys(at for at, _, _ in met):
            notes.append(f"{at}: crossed by {', '.join(f'{name} at {c.label}' for where, name, c in met if where == at)}")
        crossings = [Crossing(label="", x=c.x, y=c.y) for c in crossings]
    return Chart(
        title=f"Intensity over batch: {what}", x_name="batch", x_label=x_label, y_name="flops_per_byte", y_label=INTENSITY,
        series=tuple(Series(label=name, points=tuple(points)) for name, points in lines.items()), levels=levels,
        crossings=tuple(crossings), notes=(*machine_notes(given), *notes),
    )  # fmt: skip


# -- intensity over a length --------------------------------------------------------------------------------------------------


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
        raise Error(f"{problem.name}: is no attention: it has not the two products with a softmax between them")
    dtype = problem.compute()[0]

    def kernel(p: Any) -> Operator:
        return Bmm(batch=int(p.count), rows=int(p.rows), columns=int(p.columns), inner=int(p.inner), dtype=dtype, out_dtype=dtype)

    rows = int(scores[0].count * scores[0].rows)
    steps: dict[str, Operator] = {p.term: kernel(p) for p in scores}
    steps["softmax"] = Softmax(rows=rows, columns=int(scores[0].columns), dtype=dtype)
    return {**steps, values.term: kernel(values)}


def seq_chart(model: Any, machines: Machines, *, seq_q: Size = SEQS, batch: int = 1) -> Chart:
    """Series of attention unfused and fused over the length, and of a configuration its whole prefill."""
    sizes, given, model = checked("seq_q", seq_q), several(machines), work_of(model)
    lines: dict[str, list[tuple[float, float]]] = {"attention, unfused": [], "attention, fused": []}
    for seq in sizes:
        if isinstance(model, TransformerConfig):
            calls = calls_of(model, Prefill(batch=batch, seq_q=seq))
            problem = unmasked(attention_of(model, seq, batch))
            lines.setdefault("whole prefill", []).append((seq, counts_of(calls).flops_per_byte))
            decode = [c for c in calls_of(model, Decode(batch=batch, seq_kv=seq)) if c.cached]
            lines.setdefault("attention, decode", []).append((seq, counts_of(decode).flops_per_byte))
        else:
            problem = unmasked(model.replace(seq_q=seq, seq_kv=seq))
        lines["attention, unfused"].append((seq, count(*unfused(problem).values()).flops_per_byte))
        lines["attention, fused"].append((seq, count(problem).flops_per_byte))
    what = model.name if isinstance(model, TransformerConfig) else model.name.replace("_", " ")
    levels = ridge_levels(given, [problem])
    return Chart(
        title=f"Intensity over sequence length: {what}", x_name="seq", x_label="Sequence length [tokens]",
        y_name="flops_per_byte", y_label=INTENSITY,
        series=tuple(Series(label=name, points=tuple(points)) for name, points in lines.items()), levels=levels,
        notes=(
            *machine_notes(given),
            "unfused: scores in attention's dtype pass memory four times; fused: q, k, v and the result once; both without a mask",
            "dashed: ridge points of attention's dtype",
        ),
    )  # fmt: skip


# -- decode over a batch or a length ------------------------------------------------------------------------------------------


def estimates(config: TransformerConfig, machine: Machine, batches: Any, seqs: Any, how: Options) -> ModelPredictions:
    """Decode steps of each batch and length (arrays that broadcast) on the machine, whether they fit or not."""
    return predict_steps(machine, config, Decode.many(batch=batches, seq_kv=seqs), **asked(how))


def asked(how: Options) -> Options:
    return {name: value for name, value in how.items() if name != "must_fit"}


UNSAID = ("lm_head", "fused", "counting", "utilisation")  # options that `ModelPrediction.counted` tells


def estimate_notes(found: Iterable[ModelPrediction | ModelPredictions]) -> tuple[str, ...]:
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
    said = [f"note: {'; '.join(machines[key])}: {text}" if machines[key] else f"note: {text}" for key, text in texts.items()]
    fused = "" if changed.fused else " Not fused."
    return (f"{every[0].counted[0]}{fused}", *([", ".join(given)] if given else []), *said)


def _series(machine: Machine, sizes: Sequence[int], values: Any, found: ModelPredictions) -> Series:
    points = tuple(zip(sizes, values.tolist(), strict=True))
    return Series(label=machine.name, points=points, fits=tuple(found.fits.tolist()))


def _hollow(series: Iterable[Series]) -> tuple[str, ...]:
    return ("hollow: does not fit in memory",) if any(False in s.fits for s in series) else ()


def _machines(machines: Machines) -> tuple[Machine, ...]:
    if not (given := several(machines)):
        raise Error("give at least one machine, such as 'H100', or one that was measured")
    return given


def decode_chart(
    config: Any,
    machines: Machines,
    *,
    quantity: str = "flops_per_byte",
    batch: Size = BATCHES,
    seq_kv: int | str = 2048,
    **how: Any,
) -> Chart:
    """A decode step's intensity (one line, which no machine changes) or tokens per second (one a machine) over the batch."""
    quantity_of(quantity, RATES)
    sizes, given, (config, how) = checked("batch", batch), _machines(machines), modelled(config, how)
    seq_kv = one_of_axis(seq_kv, 2048)
    found = [(m, estimates(config, m, sizes, seq_kv, how)) for m in given]
    notes = [*machine_notes(given), f"{config.name}, {seq_kv} keys a sequence"]
    if quantity == "tokens_per_s":
        series = tuple(_series(m, sizes, each.tokens_per_s, each) for m, each in found)
        return Chart(
            title=f"Decode throughput over batch: {config.name}", x_name="batch", x_label="Batch", y_name="tokens_per_s",
            y_label="Throughput of all sequences [tok/s]", unit="tok/s", series=series,
            notes=(*notes, *_hollow(series), *estimate_notes(each for _, each in found)),
        )  # fmt: skip
    levels, crossings = [], []
    for m in given:
        crossed = ridge_batches(config, [seq_kv], m, **asked(how))[0]
        levels.append(Level(label=f"{m.name}: {fmt_number(crossed.ridge)} FLOP/byte", y=crossed.ridge))
        if crossed.batch is not None and sizes[0] <= crossed.batch <= sizes[-1]:
            crossings.append(Crossing(label=f"batch {fmt_number(crossed.batch)}", x=crossed.batch, y=crossed.ridge))
        notes.append(f"{m.name}: {crossed.text}")
    line = Series(label=config.name, points=tuple(zip(sizes, found[0][1].flops_per_byte.tolist(), strict=True)))
    return Chart(
        title=f"Decode intensity over batch: {config.name}", x_name="batch", x_label="Batch", y_name="flops_per_byte",
        y_label=INTENSITY, series=(line,), levels=tuple(levels), crossings=tuple(crossings),
        notes=(*notes, "dashed: ridge points of the product with most FLOPs; a cross counts the FLOPs of products alone",
               *estimate_notes([found[0][1]])),
    )  # fmt: skip


def latency_chart(
    config: Any,
    machines: Machines,
    *,
    over: str = "batch",
    batch: Size | None = None,
    seq_kv: Size | None = None,
    **how: Any,
) -> Chart:
    """Time per output token over the batch (at seq_kv keys) or over the keys (at one batch), a line a machine."""
    if over not in OVER:
        raise Error(f"over must be one of {', '.join(OVER)}, got {over!r:.80}")
    given, (config, how) = _machines(machines), modelled(config, how)
    if over == "batch":
        sizes, keys = axis("batch", batch, BATCHES), one_of_axis(seq_kv, 2048)
        found, kept = [(m, estimates(config, m, sizes, keys, how)) for m in given], f"{keys} keys a sequence"
    else:
        sizes, one = axis("seq_kv", seq_kv, SEQS), one_of_axis(batch, 1)
        found, kept = [(m, estimates(config, m, one, sizes, how)) for m in given], f"batch {one}"
    series = tuple(_series(m, sizes, each.tpot_s, each) for m, each in found)
    names = {"batch": ("batch", "Batch"), "seq_kv": ("KV length", "Context length [tokens]")}
    return Chart(
        title=f"Time per output token over {names[over][0]}: {config.name}", x_name=over, x_label=names[over][1],
        y_name="time_s", y_label="Time per output token [s]", unit="s", series=series,
        notes=(*machine_notes(given), f"{config.name}, {kept}", *_hollow(series),
               *estimate_notes(each for _, each in found)),
    )  # fmt: skip
