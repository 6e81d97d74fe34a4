"""Bandwidth of collectives over the message size."""

from __future__ import annotations

from typing import Unpack

from ...errors import Error
from ...machine import Given, machine_of
from ...operators import Operator, from_dict
from ...tensor_spec import size_bytes
from ...units import fmt_si
from .. import style
from ..asked import Measured, Size, checked, results_of, work_of
from ..charts import DIRECT, Chart, Line
from ..figure import Look, Panels, picture
from ..roofs import machine_notes

SIZES = tuple(1 << k for k in range(12, 31, 2))


@picture("from which message on a link is used: bandwidth of collectives over the size", group="measured",
         example='plot.collectives(machine="H100", work="all_reduce")')  # fmt: skip
def collectives(
    results: Measured | None = None, machine: Given | None = None, *, work: str | Operator = "all_reduce", size: Size = SIZES,
    link_latency_s: float = 10e-6, **look: Unpack[Look],
) -> Panels:  # fmt: skip
    """Bytes that a rank receives per second over the bytes of the tensor: measured solid, the link's rate and its latency dashed.

    Args:
        results: measurements of collectives, a results.jsonl or its folder, such as `roofline import` makes of logs of nccl-tests.
        machine: one with a link: what it allows, and the expected time with the latency of each collective.
        work: the collective that is expected, where there are no measurements.
        size: bytes of the tensor, where there are no measurements.
        link_latency_s: of a collective, in the expected time.

    element of the records: "point": label, of, size_bytes, link_bytes, time_s, link_bytes_per_s.
    """
    on = None if machine is None else machine_of(machine)
    groups: dict[str, list[tuple[float, int, float]]] = {}
    problems: dict[str, Operator] = {}
    for m in results_of(results):
        if m.link_bytes and m.time_s and "elements" in m.problem:
            problem = from_dict(m.operator, m.problem)
            name = f"{m.operator} of {m.problem.get('ranks', '?')}, {m.dtype}"
            moved = float(size_bytes((int(m.problem["elements"]),), m.dtype))
            groups.setdefault(name, []).append((moved, m.link_bytes, m.time_s))
            problems[name] = problem
    if results is not None and not groups:
        raise Error("no measurement is one of a collective with a size")
    if results is None:
        problem = work_of(work)
        problems[problem.name] = problem
        if on is None:
            raise Error("give measurements of collectives (results), or a machine with a link")
    lines, rows = [], []
    link = None if on is None else on.link()
    for index, (name, problem) in enumerate(problems.items()):
        colour, marker, _ = style.series(index)
        found = {"measured": sorted(groups.get(name, []))}
        many = len(problems) > DIRECT // 2
        if link is not None:
            sizes = sorted({moved for moved, _, _ in found["measured"]}) or checked("size", size)
            each = float(size_bytes((1,), str(problem.to_dict().get("dtype", "bf16"))))
            sent = [(float(moved), problem.replace(elements=max(int(moved / each), 1)).link_bytes()) for moved in sizes]
            found["model"] = [(moved, received, link_latency_s + received / link.value) for moved, received in sent]
        for of, points in found.items():
            model = of == "model"
            rows += [{"element": "point", "label": name, "of": of, "size_bytes": moved, "link_bytes": received, "time_s": t,
                      "link_bytes_per_s": received / t} for moved, received, t in points]  # fmt: skip
            if points:
                lines.append(Line(label=f"{name}, expected" if model else name, colour=colour, marker=marker, hollow=model,
                                  points=[(moved, received / t) for moved, received, t in points if received], key=many,
                                  dashes=style.DASHED if model else "-", write="" if many else "end"))  # fmt: skip
    ends = [x for line in lines for x, _ in line.points]
    if link is not None:
        lines.append(Line(label=f"{link.label}", points=[(min(ends), link.value), (max(ends), link.value)], colour="muted",
                          width=0.9, dashes="-" if link.source == "measured" else style.DASHED, write="flat", small=True,
                          gid="level"))  # fmt: skip
    notes = [*machine_notes([on]), "bandwidth: bytes that one rank receives (and sends as many) over the time"]
    notes += [f"expected: the link, and {fmt_si(link_latency_s, 's')} for each collective"] if link is not None else []
    yield Chart(title="Bandwidth of collectives over the message size", x_label="Bytes of the tensor", x_kind="size",
                y_label="Bandwidth of a rank", y_unit="B/s", lines=lines, rows=rows, notes=notes)  # fmt: skip
