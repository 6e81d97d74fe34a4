"""A datasheet as ceilings: one sample each, and a reason wherever nobody has verified the number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..hardware import Datasheet, Number, datasheet, read
from ..probes import memory_level
from ..reading import HARDWARE, read_text
from .ceiling import UNVERIFIED, Ceiling

SOURCE = "datasheet"


def _reason(number: Number) -> str:
    words = ["" if number.verified else f"{UNVERIFIED}: {number.source}", "disputed" if number.disputed else "", number.note]
    return "; ".join(word for word in words if word)


def _ceilings(sheet: Datasheet) -> Iterator[Ceiling]:
    bandwidth = sheet.numbers["memory_bytes_per_s"]
    # A datasheet has one bandwidth for every access; variant plain, so that in-place operators meet it too.
    memory = memory_level({"memory_type": sheet.memory_type})
    yield Ceiling(
        probe="stream", level=memory, access="read", variant="plain", samples=(bandwidth.value,), source=SOURCE,
        reason=_reason(bandwidth),
    )  # fmt: skip
    link = sheet.numbers.get("link_bytes_per_s")
    if link and link.value:  # both directions together
        yield Ceiling(probe="link", samples=(link.value / 2,), source=SOURCE, reason=_reason(link))
    threads = int(sheet.value("cores") or 0)
    for peak in sheet.peaks():
        if peak.mix:  # more than multiply-adds alone: above what any other peak is compared with
            continue
        for dtype in peak.dtypes:
            yield Ceiling(
                probe="mma" if peak.unit == "tensor" else "fma", dtype=dtype, accumulator=peak.accumulator, unit=peak.unit,
                isa=peak.isa, threads=threads, samples=(peak.value,), source=SOURCE, reason=_reason(peak),
            )  # fmt: skip


def parts_of(given: str | Path) -> dict[str, Any]:
    """The fields of a Machine from a datasheet, by its name, or by its path that of a file. Raises Error as these do."""
    if isinstance(given, Path):
        sheet = read(read_text(given, HARDWARE), id=given.stem.casefold(), where=str(given), origin=str(given))
    else:
        sheet = datasheet(given)
    facts = {key: int(n.value) if n.value == int(n.value) else n.value for key, n in sheet.numbers.items()}
    stated = {"form_factor": sheet.form_factor, "compute_capability": sheet.compute_capability}
    return {
        "name": sheet.name,
        "device": sheet.device,
        "facts": {"datasheet": sheet.id, **{key: text for key, text in stated.items() if text}, **facts},
        "ceilings": tuple(_ceilings(sheet)),
        "provenance": {"datasheet": sheet.to_dict()},
    }
