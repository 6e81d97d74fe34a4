"""`roofline crossover`: the batch from which an operator is compute-bound, by machine and dtype; nothing is measured."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any

from ..errors import Error
from ..machine import machines_of
from ..operators.scales import heading_fields
from ..units import fmt_number, fmt_si
from .exit_codes import OK, BadInput, checking_input
from .fields import given_fields
from .terminal import Terminal

DTYPES = ("fp32", "bf16", "fp16", "fp8_e4m3", "int8")


def flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("crossover")
    group.add_argument(
        "--machine", metavar="NAME,…", required=True, help="datasheets of `roofline hardware`, or machine files: a line each"
    )
    group.add_argument("--over", metavar="FIELD", default="", help="the field that grows (default: rows, tokens, batch or seq_q)")


def crossover(options: argparse.Namespace) -> int:
    from ..crossovers import growing
    from ..operators import operator_named

    screen = Terminal(wide=options.wide)
    fields = given_fields(options)
    operator = operator_named(options.operator)
    with checking_input():
        machines = machines_of(options.machine)
        problem = growing(operator, fields, options.over)
        found = [row for machine in machines for row in _rows(machine, problem, options.over, "dtype" in fields)]
        if (over := found[0][2].over) in fields:
            raise BadInput(f"--{over.replace('_', '-')} is the field that grows: leave it out, or let another one grow with --over")
    if options.json:
        records = [{"machine": name, "dtype": dtype, **met.to_dict()} for name, dtype, met, *_ in found]
        screen.json({"operator": problem.name, "problem": problem.to_dict(), "crossings": records})
        return OK
    every = [(dtype, heading_fields(one, over, "dtype")) for _, dtype, _, _, one in found]
    fixed = {name: {fields.get(name, dtype) for dtype, fields in every} for _, fields in every for name in fields}
    shown = ", ".join(f"{name} {'by dtype' if len(values) > 1 else values.pop()}" for name, values in fixed.items())
    screen.lines([f"{problem.name}, {shown}: compute-bound from which {over}?"])
    screen.line()
    rows = [
        (name, dtype, "never" if met.batch is None else f"{max(math.ceil(met.batch), 1)}", fmt_number(met.ridge),
         fmt_si(roofs.compute_flops_per_s, "FLOP/s"), fmt_si(roofs.bandwidth_bytes_per_s, "B/s"))
        for name, dtype, met, roofs, _ in found
    ]  # fmt: skip
    screen.table(("machine", "dtype", f"from {over}", "ridge FLOP/byte", "compute", "memory"), rows, drop=("memory", "compute"))
    never = {fmt_number(met.limit): None for _, _, met, *_ in found if met.batch is None}
    if never:
        screen.line()
        screen.line(f"never: with {over} the intensity saturates at {', '.join(never)} FLOP/byte, below the ridge")
    return OK


def _rows(machine: Any, problem: Any, over: str, given: bool) -> Iterator[tuple[str, str, Any, Any, Any]]:
    """A row for each dtype that the operator takes and the machine has a roof for, or for the one that was given."""
    from ..crossovers import crossover as crossing
    from ..model import compute_ceiling, machine_roofs

    own = problem.to_dict()["dtype"]
    refused = None
    met = 0
    for dtype in (own,) if given else DTYPES:
        try:
            one = problem.replace(dtype=dtype)
            roofs = machine_roofs(machine, one)
        except Error as error:
            refused = error
            continue
        if not given and compute_ceiling(machine, one, None, None)[1]:
            continue  # a wider dtype stands in for it
        met += 1
        yield machine.name, dtype, crossing(machine, one, over), roofs, one
    if not met:
        raise BadInput(str(refused))
