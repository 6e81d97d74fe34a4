"""A census as tables, Markdown, records and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .._repr import Records, Row, github_table, html_table, markdown, printable, records_to_csv, text_table, values_of
from ..reading import SCHEMA_VERSION
from ..transformer import Phase, TransformerConfig
from ..units import MISSING, fmt_number, fmt_percent, fmt_share, fmt_si
from ..words import counted
from .entries import Entry

SIZES = ("kernel", "runs", "batch", "M", "N", "K", "dtype", "FLOPs", "bytes", "FLOP/byte")
PLACES = ("ridge", "bound", "attainable", "time", "share")
TIMES = ("measured", "of attainable")

LEGEND = (
    "runs: how often the phase runs it; FLOPs, bytes and times are of one run, and of all of them in the last row",
    "batch, M, N, K: of its matrix products, [M, K] × [K, N]; what a mask hides counts in the sizes, not in the FLOPs",
)
PLACED = (
    "ridge: the intensity in FLOP/byte at which its compute roof begins; bound: the roof that allows it the longest time",
    "attainable: FLOP/s under its roofs; time: expected; share: of the phase's time",
)


def _size(value: float) -> str:
    return str(round(value)) if math.isclose(value, round(value), rel_tol=1e-9) else fmt_number(value)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Census(Records):
    """The kernels of one or several phases of a model, in the order they run.

    Each `Entry` has what a plot of kernels needs: name, phase, flops_per_byte, attainable_flops_per_s, bound, ridge_flops_per_byte,
    time_s and measured_s.

    Attributes:
        machine: its name, "" without one.
    """

    config: TransformerConfig
    machine: str
    entries: tuple[Entry, ...]
    tp: int = 1
    ep: int = 1
    fused: bool = True
    notes: tuple[str, ...] = ()

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(dict.fromkeys(entry.phase for entry in self.entries))

    def of(self, phase: Phase) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.phase == phase)

    def time_s(self, phase: Phase) -> float | None:
        """Expected, of all runs one after the other; None without a machine."""
        return math.fsum(e.count * e.time_s for e in self.of(phase) if e.time_s is not None) if self.machine else None

    def utilisation(self, phase: Phase) -> tuple[float, float] | None:
        """(MFU, MBU) at the expected time, see `ModelPrediction`; None without a machine."""
        total, own = self.time_s(phase), [(entry, entry.placed.roofs) for entry in self.of(phase) if entry.placed]
        if not total or not own:
            return None
        products = sum(entry.count * flops for entry, _ in own for _, flops in entry.product_flops())
        peak = max((roofs.compute_flops_per_s for entry, roofs in own if entry.products), default=math.inf)
        moved = sum(entry.count * entry.bytes for entry, _ in own)
        return products / (total * peak), moved / (total * max(roofs.bandwidth_bytes_per_s for _, roofs in own))

    def share(self, entry: Entry) -> float | None:
        """Its share of the phase's time."""
        total = self.time_s(entry.phase)
        return entry.count * entry.time_s / total if total and entry.time_s is not None else None

    # -- showing ----------------------------------------------------------------------------------------------------------

    @property
    def measured(self) -> bool:
        return any(entry.measured is not None for entry in self.entries)

    def table(self, phase: Phase) -> tuple[Row, list[Row]]:
        """Headers and rows of one phase: its kernels, under those with several products one row for each, and the total."""
        headers = SIZES + (PLACES if self.machine else ()) + (TIMES if self.measured else ())
        rows = [row for entry in self.of(phase) for row in self._rows(entry)]
        return headers, [*rows, self._total(phase)]

    def _rows(self, entry: Entry) -> Iterator[Row]:
        one = entry.products[0] if len(entry.products) == 1 else None
        sizes = [_size(x) for x in (one.count, one.rows, one.columns, one.inner)] if one else [""] * 4
        costs = [fmt_si(entry.flops, "FLOP"), fmt_si(entry.bytes, "B"), fmt_number(entry.flops_per_byte)]
        row = [entry.name, str(entry.count), *sizes, entry.stored, *costs]
        if self.machine:
            ridge, attainable = fmt_number(entry.ridge_flops_per_byte), fmt_si(entry.attainable_flops_per_s, "FLOP/s")
            row += [ridge, entry.bound or "", attainable, fmt_si(entry.time_s, "s"), fmt_share(self.share(entry))]
        if self.measured:
            row += [fmt_si(entry.measured_s, "s"), fmt_percent(entry.share_of_roof)]
        yield row
        if one is None:
            for product, flops in entry.product_flops():
                sizes = [_size(x) for x in (product.count, product.rows, product.columns, product.inner)]
                yield self._filled([f"{entry.name}: {product.term}", "", *sizes, "", fmt_si(flops, "FLOP")])

    def _filled(self, cells: list[str]) -> Row:
        width = len(SIZES) + len(PLACES) * bool(self.machine) + len(TIMES) * self.measured
        return [*cells, *[""] * (width - len(cells))]

    def _total(self, phase: Phase) -> Row:
        own = self.of(phase)
        flops, moved = sum(e.count * e.flops for e in own), sum(e.count * e.bytes for e in own)
        cells = ["all", str(sum(e.count for e in own)), "", "", "", "", "", fmt_si(flops, "FLOP"), fmt_si(moved, "B")]
        cells.append(fmt_number(flops / moved) if moved else MISSING)
        if self.machine:
            cells += ["", "", "", fmt_si(self.time_s(phase), "s"), fmt_percent(1.0)]
        return self._filled(cells)

    def title(self, phase: Phase) -> str:
        ranks = f", one of {max(self.tp, self.ep)} ranks" if max(self.tp, self.ep) > 1 else ""
        return f"{self.config.name}, {phase}{ranks}{', on ' + self.machine if self.machine else ''}"

    @property
    def ceilings(self) -> tuple[str, ...]:
        """Labels of the roofs that were met."""
        return tuple(dict.fromkeys(label for e in self.entries if e.placed for label in e.placed.roofs.labels.values()))

    def remarks(self) -> list[str]:
        """The meaning of the columns, the roofs, and the assumptions."""
        roofs = [*PLACED, f"roofs: {'; '.join(self.ceilings)}"] if self.machine else []
        times = ["measured: of one run; of attainable: the time its roofs allow over that"] if self.measured else []
        used = [(phase, self.utilisation(phase)) for phase in self.phases]
        shares = [f"{phase.name}, batch {phase.batch}: MFU {fmt_percent(x[0])}, MBU {fmt_percent(x[1])}" for phase, x in used if x]
        return [*shares, *LEGEND, *roofs, *times, *(f"note: {note}" for note in self.notes)]

    def to_markdown(self) -> str:
        """A heading and a GitHub table for each phase, and the remarks."""
        parts = [f"### {markdown(self.title(phase))}\n\n{github_table(*self.table(phase))}\n" for phase in self.phases]
        return "\n".join([*parts, *(f"* {markdown(line)}" for line in self.remarks())]) + "\n"

    def to_records(self) -> list[dict[str, Any]]:
        """Flat dicts, one for each kernel of each phase, for `pd.DataFrame(...)`: of one run, units in the names."""
        head = {"config": self.config.name, "machine": self.machine or None}
        return [{**head, **entry.to_record(), "share": self.share(entry)} for entry in self.entries]

    def to_csv(self) -> str:
        """The records as CSV text."""
        return records_to_csv(self.to_records())

    def __repr__(self) -> str:
        on = f" on {self.machine}" if self.machine else ""
        phases = counted(len(self.phases), "phase")
        return printable(f"Census({self.config.name!r}{on}: {len(self.entries)} kernels in {phases})")

    def _tables(self) -> Sequence[tuple[str, Row, list[Row]]]:
        return [(self.title(phase), *self.table(phase)) for phase in self.phases]

    def _repr_html_(self) -> str:
        *first, (title, headers, rows) = self._tables()
        last = html_table(headers, rows, title=title, notes=self.remarks())
        return "".join([*(html_table(h, r, title=t) for t, h, r in first), last])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        tables = [text_table(headers, rows, title=title) for title, headers, rows in self._tables()]
        printer.text("Census(…)" if cycle else "\n\n".join([*tables, "\n".join(self.remarks())]))

    def to_dict(self) -> dict[str, Any]:
        """JSON form, see `census.schema.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "census",
            **values_of(self, "config tp ep fused ceilings notes"),
            "machine": self.machine or None,
            "phases": [
                {
                    "phase": phase.to_dict(),
                    "flops": sum(e.count * e.flops for e in self.of(phase)),
                    "bytes": sum(e.count * e.bytes for e in self.of(phase)),
                    "time_s": self.time_s(phase),
                    "kernels": [{**entry.to_dict(), "share": self.share(entry)} for entry in self.of(phase)],
                }
                for phase in self.phases
            ],
        }
