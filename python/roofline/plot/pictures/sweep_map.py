"""A sweep over two fields as maps: measured, expected, and their ratio."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from ...errors import Error
from ...machine import Given, machine_of
from ...words import require_one_of
from ..asked import Measured, Work, wanted
from ..cells import Cells, written
from ..figure import Look, Panels, picture
from ..roofs import machine_notes
from ..swept import QUANTITIES, Swept, axis_of, points_of, same_operator

OF = ("measured", "model", "ratio")


@picture("a sweep over two fields: measured, the model's, and where they differ", group="measured",
         example='plot.sweep_map(machine=h100, work="attention", axes="batch=1:16;seq_kv=256:8k")')  # fmt: skip
def sweep_map(
    results: Measured | None = None, machine: Given | None = None, *, work: Work | None = None,
    axes: Mapping[str, Any] | str | None = None, x: str | None = None, y: str | None = None, quantity: str = "time_s",
    of: str | None = None, variant: str | None = None, **look: Unpack[Look],
) -> Panels:  # fmt: skip
    """A quantity over two fields, as measured, as the model expects it on a machine, and the one over the other.

    Args:
        results: measurements of a sweep, a results.jsonl or its folder.
        machine: one, for the model and the ratio.
        work: an operator: only its measurements; without results the problem whose `axes` the model sweeps.
        axes: without results: {"batch": [1, 8], "seq_kv": "1k,8k"}, or "batch=1:64;seq_kv=1k,8k".
        x: the field of the columns (default: the one with most values).
        y: the field of the rows (default: the next).
        quantity: time_s, flops_per_s, bytes_per_s, tokens_per_s, flops_per_byte, share_of_bracket.
        of: measured, model, or ratio: measured over model, as a difference in percent (default: all).
        variant: only this one (default: the one with most points).

    element of the records "cell": the fields, measured, model, ratio. Cells that were not measured are hatched.
    """
    label, unit = QUANTITIES[require_one_of("quantity", quantity, QUANTITIES)]
    on = None if machine is None else machine_of(machine)
    points = same_operator(points_of(results, work, axes, on, variant))
    names = [p.variant for p in points]
    chosen = max(dict.fromkeys(names), key=names.count)
    points = [p for p in points if p.variant == chosen]
    column = axis_of(x, points, [y] if y else [])
    row = axis_of(y, points, [column])
    if column == row:
        raise Error(f"x and y must be two fields, got {column} twice")
    at: dict[tuple[Any, Any], Swept] = {(p.fields[row], p.fields[column]): p for p in points}
    ys, xs = sorted({key[0] for key in at}), sorted({key[1] for key in at})
    values: dict[str, Any] = {name: np.full((len(ys), len(xs)), np.nan) for name in OF}
    for (i, r), (j, c) in itertools.product(enumerate(ys), enumerate(xs)):
        for name in ("measured", "model"):
            found = at[r, c].value(quantity, name) if (r, c) in at else None
            values[name][i, j] = np.nan if found is None else found
    values["ratio"] = values["measured"] / values["model"]
    there = [name for name in OF if np.isfinite(values[name]).any()]
    if not there:
        raise Error(f"these points have no {quantity}: give measurements, or a machine")
    rows = [
        {"element": "cell", "label": points[0].problem.name, row: r, column: c,
         **{name: None if np.isnan(values[name][i, j]) else float(values[name][i, j]) for name in OF}}
        for (i, r), (j, c) in itertools.product(enumerate(ys), enumerate(xs))
    ]  # fmt: skip
    held = {
        k: v for k, v in points[0].fields.items() if k not in (row, column, "seq_q") and len({p.fields[k] for p in points}) == 1
    }
    notes = [*machine_notes([on]), f"{chosen or 'compulsory bytes'}: {', '.join(f'{k} {v}' for k, v in held.items())}"]
    what = points[0].problem.name.replace("_", " ")
    for each in wanted("of", of, there):
        if each not in there:
            raise Error(f"there is no {each} here: {'measure it' if each == 'measured' else 'give a machine and measurements'}")
        shown, ratio = values[each], each == "ratio"
        of_cells = "%" if quantity == "share_of_bracket" else "s" if unit == "s" else "" if unit else None
        title = f"{label.partition(' [')[0]}{f' [{unit}]' if unit else ''} of {what}, {'measured over model' if ratio else each}"
        yield Cells(
            title=title, x_label=column, y_label=row,
            xs=xs, ys=ys, values=shown, texts=[[written(v, of_cells, 2, ratio=ratio) for v in line] for line in shown.tolist()],
            scale="ratio" if ratio else "log", unfit="not measured", notes=notes, rows=rows,
        )  # fmt: skip
