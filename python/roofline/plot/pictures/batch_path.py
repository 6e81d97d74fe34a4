"""The path of a point over the batch on a roofline, expected and measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from ...errors import Error
from ...machine import Given, Machine, machine_of
from ...model import machine_roofs, place
from ...operators import Operator, from_dict
from ...transformer import Decode, TransformerConfig, predict_model
from .. import style
from ..asked import Measured, Size, Work, checked, modelled, named, results_of, single, work_of
from ..charts import Dot, Line
from ..figure import Assumptions, Panels, picture
from ..models import BATCHES, HOLLOW, decode_steps, measured_steps, prediction_notes
from ..panels import Point
from ..roofs import machine_notes, met_roofs, roofs_chart, stated
from .intensity_over_batch import _field

Step = tuple[float, float, float]  # batch, FLOP/byte, FLOP/s


def _measured(problem: Operator, field: str, results: Measured | None) -> list[Step]:
    """Measured points of the problem with another size of `field`, the fastest of each."""
    found: dict[int, Step] = {}
    for m in results_of(results):
        if m.operator == problem.name and m.flops_per_s and m.flops_per_byte and m.time_s:
            own = from_dict(m.operator, m.problem).to_dict()
            if all(own[name] == value for name, value in problem.to_dict().items() if name != field):
                step = (float(own[field]), m.flops_per_byte, m.flops_per_s)
                found[own[field]] = max(found.get(own[field], step), step, key=lambda each: each[2])
    return sorted(found.values())


def _path(name: str, steps: Sequence[Step], index: int, of: str, fits: Sequence[bool] = ()) -> tuple[Line, list[Dot], list[Any]]:
    colour, marker, _ = style.series(index)
    points: list[Point] = [(x, y) for _, x, y in steps]
    line = Line(label=f"{name}, {of}", points=points, colour=colour, marker=marker, hollow=of == "model", width=1.1, fits=fits,
                dashes="-" if of == "measured" else style.DASHED, gid="path")  # fmt: skip
    ends = [
        Dot(name=f"{n:g}", x=x, y=y, marker=marker, colour=colour, hollow=of == "model")
        for n, x, y in dict.fromkeys((steps[0], steps[-1]))
    ]
    ends[-1] = Dot(name=f"{name} {ends[-1].name}" if len(ends) > 1 or len(steps) == 1 else name, x=ends[-1].x, y=ends[-1].y,
                   marker=marker, colour=colour, hollow=of == "model", text=of)  # fmt: skip
    rows = [{"element": "path", "label": name, "of": of, "batch": n, "flops_per_byte": x, "flops_per_s": y} for n, x, y in steps]
    return line, ends, rows


@picture("how a larger batch moves a point along the roofs, expected and measured", group="model",
         example='plot.batch_path(h100, llama, batch="1:256")')  # fmt: skip
def batch_path(
    machine: Given, work: Work, *, batch: Size = BATCHES, seq_kv: Size = 2048, results: Measured | None = None,
    **how: Unpack[Assumptions],
) -> Panels:  # fmt: skip
    """A decode step of a model, or problems, from the smallest batch to the largest: a line on the roofline with its ends named.

    Dashed and hollow: expected (of a problem: what the roofs allow). Solid and filled: measured.

    Args:
        machine: one.
        work: a model, a problem, problems by name, or words.
        batch: the sizes; of a problem its rows, tokens or batch.
        seq_kv: keys of a sequence, of a model.
        results: measurements of the problem's sizes, or of the model's kernels, a results.jsonl or its folder.

    element of the records: "path": label, of ("model" or "measured"), batch, flops_per_byte, flops_per_s; and as of `workloads`.
    """
    on, sizes, model = machine_of(machine), checked("batch", batch), work_of(work)
    if isinstance(model, TransformerConfig):
        config, options = modelled(model, how)
        yield _of_model(on, config, sizes, single("seq_kv", seq_kv), results, options)
        return
    lines, dots, rows, roofs = [], [], [], []
    for index, (name, problem) in enumerate(named(model).items()):
        field = _field(problem)
        placed = [(n, place(problem.replace(**{field: n}), on)) for n in sizes]
        if not placed[0][1].counts.flops:
            raise Error(f"{name}: computes nothing, so it has no place on a roofline")
        roofs += [p.roofs for _, p in placed]
        paths = {"model": [(float(n), p.flops_per_byte, p.attainable_flops_per_s) for n, p in placed]}
        if seen := _measured(problem, field, results):
            paths["measured"] = seen
        elif results is not None:
            raise Error(f"no measurement is one of {name} over its {field}")
        for of, steps in paths.items():
            line, ends, more = _path(f"{name}, {field}", steps, index, of)
            lines.append(line)
            dots += ends
            rows += more
    found, ridges = met_roofs(stated(on), roofs)
    notes = [*machine_notes([on]), "dashed: what the roofs allow; solid: measured"]
    yield roofs_chart(
        f"Over the batch on the roofline of {on.name}", found, dots, paths=lines, ridges=ridges, notes=notes, more=rows
    )


def _of_model(on: Machine, config: Any, sizes: tuple[int, ...], keys: int, results: Measured | None, how: Any) -> Any:
    e = decode_steps(config, on, sizes, keys, how)
    steps = list(zip(map(float, sizes), e.flops_per_byte.tolist(), (e.flops / e.time_s).tolist(), strict=True))
    line, ends, more = _path("batch", steps, 0, "model", e.fits.tolist())
    lines, dots, rows = [line], ends, more
    notes = [*machine_notes([on]), f"{config.name}, {keys} keys a sequence: FLOPs of a whole decode step over its time"]
    notes += [HOLLOW] if not e.fits.all() else []
    if results is not None:
        times, note = measured_steps(config, on, sizes, keys, results, how)
        seen = [(n, x, float(f) / t) for (n, x, _), f, t in zip(steps, e.flops, times.tolist(), strict=True) if np.isfinite(t)]
        if seen:
            line, ends, more = _path("batch", seen, 1, "measured")
            lines.append(line)
            dots += ends
            rows += more
        notes.append(note)
    parts = predict_model(on, config, Decode(batch=sizes[-1], seq_kv=keys), must_fit=False, **how).parts
    roofs, ridges = met_roofs(stated(on), [machine_roofs(on, part.call.problem) for part in parts if part.product_flops])
    return roofs_chart(f"{config.name} over the batch on the roofline of {on.name}", roofs, dots, paths=lines, ridges=ridges,
                       notes=[*notes, *prediction_notes([e])], more=rows)  # fmt: skip
