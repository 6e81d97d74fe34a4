"""Ridge points: those that problems meet, as lines in other plots, and all of a machine's as a plot of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import Error
from ..machine import UNVERIFIED, Ceiling, Given, Machine, machines_of
from ..model import machine_roofs, ridge_table
from ..operators import Operator
from ..units import fmt_number, fmt_si
from .bars import Bar, Bars, Row
from .chart import Level
from .frame import machine_line
from .style import ROOF_FILLS

FILLS = {"core": ROOF_FILLS["DRAM"], "tensor": ROOF_FILLS["product"]}
Machines = Given | Sequence[Given]


def several(machines: Machines) -> tuple[Machine, ...]:
    """One or several machines as a tuple. Raises Error where two have one name: their lines could not be told apart."""
    found = tuple(machines_of(machines))
    names = [m.name for m in found]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise Error(f"two machines are called {twice[0]!r:.80}: give one of them another name, or leave it out")
    return found


def ridge_levels(machines: Iterable[Machine], problems: Iterable[Operator]) -> tuple[Level, ...]:
    """A level for each ridge point that these problems meet. Raises Error naming a ceiling that is missing."""
    found: dict[tuple[str, str], Level] = {}
    asked = list(problems)
    for machine in machines:
        for problem in asked:
            roofs = machine_roofs(machine, problem)
            if "compute" not in roofs.labels:
                continue
            label = f"{machine.name}: {fmt_number(roofs.ridge_flops_per_byte)} FLOP/byte ({roofs.labels['compute']})"
            found.setdefault(
                (machine.name, fmt_number(roofs.ridge_flops_per_byte)), Level(label=label, y=roofs.ridge_flops_per_byte)
            )
    return tuple(found.values())


def machine_notes(machines: Iterable[Machine]) -> tuple[str, ...]:
    """A line on each machine, and whether its numbers are a datasheet's."""
    return tuple(
        machine_line(m, *(("from its datasheet",) if all(c.source == "datasheet" for c in m.ceilings) else ())) for m in machines
    )


def peaks(machine: Machine) -> list[tuple[str, Ceiling]]:
    """Compute roofs, highest first, each with its name; dtypes of one unit and one rate are joined: "fp16/bf16 tensor"."""
    joined: dict[tuple[str, float, bool], list[tuple[str, Ceiling]]] = {}
    kinds = {(c.dtype, c.accumulator or c.dtype, c.unit) for c in machine.roofs("compute")}
    roofs = sorted((machine.compute(*kind) for kind in sorted(kinds)), key=lambda c: -c.value)
    widest = {(c.dtype, c.unit): sum((o.dtype, o.unit) == (c.dtype, c.unit) for o in roofs) for c in roofs}
    for c in roofs:
        sums = f"→{c.accumulator}" if widest[c.dtype, c.unit] > 1 and c.accumulator not in ("", c.dtype) else ""
        joined.setdefault((c.unit, c.value, c.unverified), []).append((c.dtype + sums, c))
    return [
        (" ".join(("/".join(dict.fromkeys(name for name, _ in same)), *(["tensor"] if unit == "tensor" else []))), same[0][1])
        for (unit, _, _), same in joined.items()
    ]


def ridge_bars(machines: Machines, *, access: str = "read") -> Bars:
    rows: list[Row] = []
    given = several(machines)
    for machine in given:
        rows.append(Row(label=machine.name, heading=True))
        named = {id(c): name for name, c in peaks(machine)}
        kept = {(c.dtype, c.accumulator or c.dtype, c.unit): c for c in (c for _, c in peaks(machine))}
        table = ridge_table(machine, access=access)
        levels = dict.fromkeys(each["level"] for each in table)
        for each in table:
            ceiling = kept.get((each["dtype"], each["accumulator"], each["unit"]))
            if ceiling is None:
                continue  # joined with another one of the same rate
            level = f", {each['level']}" if len(levels) > 1 else ""
            memory = machine.bandwidth(each["level"], access)
            doubted = f" ({UNVERIFIED})" if ceiling.unverified or memory.unverified else ""
            ridge = each["ridge_flops_per_byte"]
            over = f"{fmt_si(each['compute_flops_per_s'], 'FLOP/s')} over {fmt_si(each['bandwidth_bytes_per_s'], 'B/s')}"
            more: dict[str, Any] = {"machine": machine.name, **each, "unverified": bool(doubted)}
            rows.append(
                Row(
                    label=f"{named[id(ceiling)]}{level}",
                    bars=(Bar(end=ridge, colour=FILLS[each["unit"]][0], hatch=FILLS[each["unit"]][1], key=each["unit"]),),
                    text=f"{fmt_number(ridge)} = {over}{doubted}",
                    record=more,
                )
            )
    return Bars(
        title="Ridge points" if len(given) > 1 else f"Ridge points of {given[0].name}",
        x_label="Ridge point [FLOP/byte]", rows=tuple(rows), log=True,
        names={"tensor": "tensor units", "core": "cores"},
        notes=(*machine_notes(given), "below its ridge point a problem is memory-bound, above it compute-bound"),
    )  # fmt: skip
