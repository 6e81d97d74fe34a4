"""All ridge points of machines."""

from __future__ import annotations

from typing import Any, Unpack

from ...machine import UNVERIFIED
from ...model import ridge_table
from ...units import fmt_number, fmt_si
from ..bars import Bar, Row, Rows
from ..figure import Look, Panels, picture
from ..roofs import Machines, machine_notes, peaks, several

FILLS = {"core": "DRAM", "tensor": "product"}


@picture("from which intensity on each arithmetic is the limit", group="machine", example="plot.ridge_points([a100, h100])")
def ridge_points(machines: Machines, *, access: str = "read", **look: Unpack[Look]) -> Panels:
    """A row for each compute roof and memory level: its peak over its bandwidth. dtypes of one unit and rate share a row.

    Args:
        machines: one or several.
        access: of the bandwidth: read, write, copy, triad.

    element of the records "row": machine, level, dtype, unit, compute_flops_per_s, bandwidth_bytes_per_s, ridge_flops_per_byte,
    from
    `roofline.ridge_table`.
    """
    rows: list[Row] = []
    given = several(machines, 1)
    for machine in given:
        rows.append(Row(label=machine.name, heading=True))
        found = peaks(machine)
        kept = {(c.dtype, c.accumulator or c.dtype, c.unit): (name, c) for name, c in found}
        table = ridge_table(machine, access=access)
        levels = dict.fromkeys(each["level"] for each in table)
        for each in table:
            name, ceiling = kept.get((each["dtype"], each["accumulator"], each["unit"]), ("", None))
            if ceiling is None:
                continue  # joined with another one of the same rate
            level = f", {each['level']}" if len(levels) > 1 else ""
            doubted = ceiling.unverified or machine.bandwidth(each["level"], access).unverified
            ridge = each["ridge_flops_per_byte"]
            over = f"{fmt_si(each['compute_flops_per_s'], 'FLOP/s')} over {fmt_si(each['bandwidth_bytes_per_s'], 'B/s')}"
            more: dict[str, Any] = {"machine": machine.name, **each, "unverified": doubted}
            rows.append(
                Row(label=f"{name}{level}", bars=[Bar(end=ridge, fill=FILLS[each["unit"]], key=each["unit"])], record=more,
                    text=f"{fmt_number(ridge)} = {over}{f' ({UNVERIFIED})' if doubted else ''}")
            )  # fmt: skip
    yield Rows(
        title="Ridge points" if len(given) > 1 else f"Ridge points of {given[0].name}", x_label="Ridge point [FLOP/byte]",
        rows=rows, log=True, names={"tensor": "tensor units", "core": "cores"},
        notes=[*machine_notes(given), "below its ridge point a problem is memory-bound, above it compute-bound"],
    )  # fmt: skip
