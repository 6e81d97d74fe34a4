"""`roofline hardware`: the datasheets there are, and one of them with its sources."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from .._repr import Row
from ..units import MISSING, fmt_bytes, fmt_number, fmt_si, without_zeros
from .exit_codes import OK, checking_input
from .terminal import Terminal

MARK = " ?"  # after a number that nobody has seen at its source
LEGEND = "? unverified: nobody has seen this number at a source."


def hardware(options: argparse.Namespace) -> int:
    from ..hardware import datasheet, datasheets
    from ..reading import SCHEMA_VERSION

    screen = Terminal(wide=options.wide)
    with checking_input():
        if options.device_name:
            sheets: Sequence[Any] = [datasheet(" ".join(options.device_name))]
        else:
            sheets = list(datasheets().values())
    if options.json:
        screen.json({"schema_version": SCHEMA_VERSION, "kind": "hardware", "devices": [sheet.to_dict() for sheet in sheets]})
    elif options.device_name:
        _one(sheets[0], screen)
    else:
        rows = [_row(sheet) for sheet in sheets]
        headers = ("id", "name", "FP32", "BF16", "FP8", "memory", "bandwidth", "TDP")
        screen.table(headers, rows, wide=("name",), drop=("TDP", "FP32", "FP8"))
        screen.line()
        screen.lines(_legend(sheets))
        screen.line("roofline hardware ID shows one with its sources; roofline compare FILE ID holds a machine against it")
    return OK


def _legend(sheets: Sequence[Any]) -> list[str]:
    """What the mark means, where there is one."""
    return [] if all(number.verified for sheet in sheets for number in sheet.counted()) else [LEGEND]


def _marked(value: float, unit: str, verified: bool) -> str:
    """To four digits, as vendors state numbers, and counts to all of theirs. Powers have no prefix: 1000 W."""
    if unit in ("", "W", "FLOP"):
        number = fmt_number(value, max(4, len(str(int(value)))))
    else:
        number, _, unit = fmt_si(value, unit, 4).partition(" ")
    return f"{without_zeros(number)} {unit}".rstrip() + ("" if verified else MARK)


def _best(peaks: Iterable[Any], dtype: str) -> str:
    """The highest peak of a dtype."""
    own = [p for p in peaks if dtype == p.dtype and not p.mix]
    best = max(own, key=lambda p: p.value, default=None)
    return MISSING if best is None else _marked(best.value, "FLOP/s", best.verified)


def _stated(sheet: Any, key: str) -> str:
    from ..hardware.datasheet import NUMBERS

    number = sheet.numbers.get(key)
    if number is None:
        return MISSING
    if NUMBERS[key] == "B":  # caches and memories are made in powers of two
        return fmt_bytes(number.value) + ("" if number.verified else MARK)
    return _marked(number.value, NUMBERS[key], number.verified)


def _row(sheet: Any) -> Row:
    peaks = sheet.peaks()
    tops = (_best(peaks, "fp32"), _best(peaks, "bf16"), _best(peaks, "fp8"))
    return (sheet.id, sheet.name, *tops, *(_stated(sheet, key) for key in ("memory_bytes", "memory_bytes_per_s", "tdp_w")))


def _one(sheet: Any, screen: Terminal) -> None:
    capability = f"compute capability {sheet.compute_capability}" if sheet.compute_capability else ""
    form = f"form factor {sheet.form_factor}" if sheet.form_factor else ""
    what = ", ".join(filter(None, (sheet.name, form, capability, sheet.memory_type)))
    screen.line(f"{what} ({sheet.id}{', from ' + sheet.origin if sheet.origin else ''})")
    if sheet.aliases:
        screen.line(f"also called {', '.join(sheet.aliases)}")
    screen.lines(sheet.notes)
    screen.line()
    wide = ("source", "note")
    numbers = [
        (key, _stated(sheet, key), n.source, _note(n, "both directions together" if "link" in key else ""))
        for key, n in sheet.numbers.items()
    ]
    screen.table(("number", "value", *wide), numbers, wide=wide)
    groups = (
        ("dense peaks", sheet.dense, "FLOP/s"),
        ("with 2:4-sparse operands", sheet.sparse, "FLOP/s"),
        ("per cycle and core", sheet.per_cycle, "FLOP"),
        ("all cores at the boost clock, which they need not hold", () if sheet.dense else sheet.peaks(), "FLOP/s"),
    )
    for title, peaks, unit in groups:
        rows = [
            (" ".join(filter(None, (p.dtype, p.unit, f"→{p.accumulator}" if p.accumulator != p.dtype else "", p.isa, p.mix))),
             _marked(p.value, unit, p.verified), p.source, _note(p))
            for p in peaks
        ]  # fmt: skip
        if rows:
            screen.line()
            screen.table(("peak", "value", *wide), rows, title=title, wide=("peak", *wide))
    screen.line()
    screen.lines(_legend([sheet]))


def _note(number: Any, meant: str = "") -> str:
    return "; ".join(filter(None, (meant, "disputed" if number.disputed else "", number.note)))
