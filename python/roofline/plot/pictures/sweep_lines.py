"""A sweep over one field as lines, measured and expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from ...machine import Given, machine_of
from ...words import require_one_of
from .. import style
from ..asked import Measured, Work
from ..charts import DIRECT, Chart, Line
from ..figure import Look, Panels, picture
from ..roofs import machine_notes
from ..swept import QUANTITIES, Swept, axis_of, points_of, same_operator, varying


@picture("a measured sweep over any field, beside the model's", group="measured",
         example='plot.sweep_lines(machine=h100, work="matmul", axes="rows=1:4k", y="flops_per_s")')  # fmt: skip
def sweep_lines(
    results: Measured | None = None, machine: Given | None = None, *, work: Work | None = None,
    axes: Mapping[str, Any] | str | None = None, x: str | None = None, y: str = "time_s", variant: str | None = None,
    **look: Unpack[Look],
) -> Panels:  # fmt: skip
    """A line for each variant and for each value of the fields that vary besides x: measured solid, what the model expects dashed.

    Args:
        results: measurements of a sweep, a results.jsonl or its folder.
        machine: one, for the model's lines.
        work: an operator: only its measurements; without results the problem whose `axes` the model sweeps.
        axes: without results: {"batch": [1, 8], "seq_kv": "1k,8k"}, or "batch=1:64;seq_kv=1k,8k".
        x: the field (default: the one with most values).
        y: time_s, flops_per_s, bytes_per_s, tokens_per_s, flops_per_byte, share_of_bracket.
        variant: only this one.

    element of the records "point": label, of ("measured" or "model"), the fields, the quantity; low and high of a measured time.
    """
    label, unit = QUANTITIES[require_one_of("y", y, QUANTITIES)]
    on = None if machine is None else machine_of(machine)
    points = same_operator(points_of(results, work, axes, on, variant))
    field = axis_of(x, points)
    others = [name for name in varying(points) if name != field and not {name, field} <= {"seq_q", "seq_kv"}]
    others += [name for name in ("dtype",) if len({p.fields.get(name) for p in points}) > 1]
    variants = len({p.variant for p in points}) > 1
    groups: dict[str, list[Swept]] = {}
    for p in points:
        words = [p.variant or points[0].problem.name] if variants or not others else []
        groups.setdefault(", ".join([*words, *(f"{name} {p.fields[name]}" for name in others)]), []).append(p)
    lines, rows = [], []
    direct = len(groups) <= DIRECT // 2
    for index, (name, members) in enumerate(groups.items()):
        colour, marker, _ = style.series(index)
        for of in ("measured", "model"):
            found = {float(p.fields[field]): (value, p) for p in members if (value := p.value(y, of)) is not None}
            if not found:
                continue
            both = on is not None and results is not None
            text = f"{name}, {of}" if both and of == "model" else name
            at = sorted(found)
            seen = [m.interval for v in at if (m := found[v][1].measured) is not None and m.interval is not None]
            lines.append(
                Line(label=text, points=[(v, found[v][0]) for v in at], colour=colour, marker=marker, hollow=of == "model",
                     dashes="-" if of == "measured" else style.DASHED, write="end" if direct and (len(groups) > 1 or both) else "",
                     key=not direct, bars=seen if y == "time_s" and of == "measured" else ())
            )  # fmt: skip
            for v in at:
                value, p = found[v]
                status = p.measured.status if of == "measured" and p.measured is not None else None
                rows.append({"element": "point", "label": name, "of": of, **p.fields, y: value, "status": status})
    disturbed = sum(p.measured is not None and p.measured.status != "ok" for p in points)
    notes = [*machine_notes([on]), *(["solid: measured; dashed: what the model expects"] if on else [])]
    notes += [f"{disturbed} of {len(points)} points were disturbed"] if disturbed else []
    whole = all(isinstance(p.fields[field], int) for p in points)
    yield Chart(
        title=f"{label.partition(' [')[0]} over {field}: {points[0].problem.name.replace('_', ' ')}", x_label=field,
        x_kind="count" if whole else "log", y_label=label, y_unit=unit, lines=lines, rows=rows, notes=notes,
    )  # fmt: skip
