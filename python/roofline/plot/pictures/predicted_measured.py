"""Predicted against measured times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any, Unpack

from ...errors import Error
from ...machine import Given, machine_of
from ...operators import from_dict
from ...prediction import predict_problem
from ...results import Measurement
from ...units import fmt_percent
from ...words import counted
from .. import style
from ..asked import Measured, results_of
from ..charts import Chart, Dot, Line
from ..figure import Look, Panels, picture
from ..roofs import machine_notes
from .roofline import short_names

BANDS = (1.1, 1.5, 2.0)  # factors off


def _expected(m: Measurement, machine: Any) -> float | None:
    if machine is None:
        found = m.prediction.get("time_s")
        return None if found is None else float(found)
    try:
        problem = from_dict(m.operator, m.problem)
        return float(predict_problem(machine, problem, variant=m.variant or None, plan=m.plan or None).time_s)
    except Error:
        return None


@picture("how far predictions are from measurements", group="measured", example="plot.predicted_measured(results)")
def predicted_measured(results: Measured, machine: Given | None = None, **look: Unpack[Look]) -> Panels:
    """Predicted over measured time of each measurement, with bands of 10 %, 50 % and a factor of 2.

    Hollow points were disturbed; they count in no error.

    Args:
        results: measurements, a results.jsonl or its folder.
        machine: one, whose ceilings predict (default: the prediction that was made just before each measurement).

    element of the records: "measurement": operator, variant, dtype, measured_s, predicted_s, error (predicted / measured - 1),
    status;
    "error": the mean of their sizes.
    """
    on = None if machine is None else machine_of(machine)
    given = [m for m in results_of(results) if m.time_s]
    pairs = [(name, m, e) for name, m in zip(short_names(given), given, strict=True) if (e := _expected(m, on)) is not None]
    if not pairs:
        raise Error("no measurement there has a time and a prediction" + ("" if on is not None else ": give a machine"))
    markers = style.markers(m.operator for _, m, _ in pairs)
    dots = []
    for name, m, expected in pairs:
        seen = float(m.time_s or math.nan)
        record = {"element": "measurement", "operator": m.operator, "variant": m.variant, "dtype": m.dtype, "measured_s": seen,
                  "predicted_s": expected, "error": expected / seen - 1, "status": m.status}  # fmt: skip
        dots.append(Dot(name=name, x=seen, y=expected, marker=markers[m.operator], colour=style.dtype_colour(m.dtype),
                        record=record, hollow=m.status != "ok", key=f"{m.operator} {m.dtype}".strip(), labelled=False))  # fmt: skip
    low = min(min(d.x, d.y) for d in dots) / 1.6
    high = max(max(d.x, d.y) for d in dots) * 1.6
    lines = [Line(label="equal", points=[(low, low), (high, high)], colour="ink", width=1.1, write="slope", small=True)]
    for factor in BANDS:
        for sign, words in ((factor, f"{factor:g} × the time"), (1 / factor, "")):
            ends = [(low, low * sign), (high, high * sign)]
            lines.append(Line(label=words or f"1/{factor:g}", points=ends, colour="muted", width=0.7, dashes=style.DASHES[2],
                              write="slope" if words and factor > 1.2 else "", small=True))  # fmt: skip
    calm = [abs(d.record["error"]) for d in dots if not d.hollow]
    errors = {"mean": statistics.fmean(calm), "median": statistics.median(calm)} if calm else {}
    rows: list[Mapping[str, Any]] = [{"label": d.name, **d.record} for d in dots]
    rows += [{"element": "error", "label": f"{name} absolute error", "error": value} for name, value in errors.items()]
    disturbed = sum(d.hollow for d in dots)
    said = ", ".join(f"{name} absolute error {fmt_percent(value, 2)}" for name, value in errors.items())
    notes = [*machine_notes([on]), f"{counted(len(calm), 'undisturbed point')}: {said}" if calm else "none was undisturbed"]
    notes.append("predicted from " + ("the roofs measured just before each point" if on is None else "the machine's ceilings"))
    notes += [f"hollow: {counted(disturbed, 'disturbed point')}"] if disturbed else []
    yield Chart(
        title="Predicted against measured", x_label="Measured time", x_unit="s", y_label="Predicted time", y_unit="s", dots=dots,
        lines=lines, x_limits=(low, high), y_limits=(low, high), notes=notes, rows=rows,
    )  # fmt: skip
