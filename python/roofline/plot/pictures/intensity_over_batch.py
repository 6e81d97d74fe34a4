"""Arithmetic intensity over the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Unpack

from ...counts import by_key
from ...errors import Error
from ...machine import Machine
from ...operators import Operator, count, growth
from ...transformer import Decode, TransformerConfig, calls_of
from ...units import fmt_number
from ..asked import Size, Work, checked, named, single, work_of
from ..charts import Dot
from ..figure import Look, Panels, picture
from ..models import BATCHES, counts_of
from ..roofs import Machines, intensity_chart, machine_notes, ridge_levels, several

NAMED_CROSSINGS = 3  # of more lines the notes name where they meet a ridge point
FIELDS = ("rows", "tokens", "batch")  # of operators: what a batch makes more of


def _field(problem: Operator) -> str:
    have = problem.to_dict()
    for name in FIELDS:
        if name in have:
            return name
    raise Error(f"{problem.name}: has none of {', '.join(FIELDS)} to make a batch of; it has {', '.join(have)}")


def _crossings(
    problems: Mapping[str, tuple[Operator, str]], machines: Sequence[Machine], most: int
) -> Iterator[tuple[str, str, float, float]]:
    """Where each problem meets the ridge points of its own arithmetic: (machine and ridge point, problem, batch, ridge)."""
    for name, (problem, field) in problems.items():
        try:
            grown = growth(problem, field)
        except Error:  # not linear (experts), or nothing is shared (attention)
            continue
        for machine in machines:
            for level in ridge_levels([machine], [problem]):
                batch = grown.reaches(level.y)
                if batch is not None and 1 <= batch <= most:
                    yield f"{machine.name}, {fmt_number(level.y)} FLOP/byte", name, batch, level.y


@picture("at which batch each product becomes compute-bound; why attention does not", group="model",
         example="plot.intensity_over_batch(llama, machines=[a100, h100])")  # fmt: skip
def intensity_over_batch(
    work: Work, *, machines: Machines = (), batch: Size = BATCHES, seq_kv: int | str = 2048, **look: Unpack[Look]
) -> Panels:
    """Intensity of each product of a decode step and of its attention over the batch, or of problems over their rows.

    Ridge points of the machines are horizontals, and crosses stand where a line meets one.

    Args:
        work: a model, a problem, problems by name, or words.
        machines: none, one or several.
        batch: the sizes.
        seq_kv: keys of a sequence, for attention.

    element of the records: "point", "level" (a ridge point) and "crossing": label, batch, flops_per_byte.
    """
    sizes, given, model = checked("batch", batch), several(machines), work_of(work)
    lines: dict[str, list[tuple[float, float]]] = {}
    problems: dict[str, tuple[Operator, str]] = {}
    if isinstance(model, TransformerConfig):
        keys = single("seq_kv", seq_kv)
        what, x_label = f"{model.name}, decode", "Batch"
        for size in sizes:
            kept = (call for call in calls_of(model, Decode(batch=size, seq_kv=keys)) if call.weights or call.cached)
            for name, calls in by_key((call.name, call) for call in kept).items():
                lines.setdefault(name, []).append((size, counts_of(calls).flops_per_byte))
                problems[name] = calls[0].problem, next((f for f in FIELDS if f in calls[0].problem.to_dict()), "")
        notes = [f"{model.name}, each kernel of a decode step by itself; attention over {keys} keys a sequence"]
    else:
        every = named(model)
        fields = {name: _field(problem) for name, problem in every.items()}
        what, x_label, notes = ", ".join(every), " or ".join(dict.fromkeys(fields.values())).capitalize(), []
        for name, problem in every.items():
            lines[name] = [(n, count(problem.replace(**{fields[name]: n})).flops_per_byte) for n in sizes]
            problems[name] = problem, fields[name]
    levels = ridge_levels(given, (problem for problem, _ in problems.values() if problem.has_products()))
    met = list(_crossings({name: each for name, each in problems.items() if each[1]}, given, sizes[-1]))
    many = len(lines) > NAMED_CROSSINGS
    if many:
        for at in dict.fromkeys(at for at, *_ in met):
            notes.append(f"{at}: crossed by {', '.join(f'{name} at {fmt_number(x)}' for where, name, x, _ in met if where == at)}")
    crossings = [Dot(name=fmt_number(x), x=x, y=y, marker="X", colour="ink", labelled=not many) for _, _, x, y in met]
    notes = [*machine_notes(given), *notes]
    yield intensity_chart(f"Intensity over batch: {what}", x_label, "batch", lines, levels, crossings, notes=notes)
