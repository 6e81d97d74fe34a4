"""Results files: JSON Lines, one measurement a line, and what people make of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, overload

from .._repr import Parts, Records, Row, Shown, records_to_csv
from ..errors import Error
from ..machine import require_replaceable, write_atomically
from ..reading import RESULTS, check_version, from_json, read_bytes
from ..units import fmt_percent, fmt_si
from ..words import counted
from .record import Measurement

DISTURBED = ("contended", "roof_moved")
TORN = b'{"schema_version":'  # what begins like this may have been cut short by a kill


@dataclass(frozen=True, slots=True, repr=False)
class Results(Shown, Records, Sequence[Measurement]):
    """Measurements in the order they were made. notes: what a reader of their file should know."""

    measurements: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "measurements", tuple(self.measurements))

    def __len__(self) -> int:
        return len(self.measurements)

    @overload
    def __getitem__(self, index: int) -> Measurement: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Measurement | Self:
        if isinstance(index, slice):
            return type(self)(self.measurements[index], self.notes)
        return self.measurements[index]

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.measurements)

    def keys(self, statuses: Iterable[str] | None = None) -> frozenset[str]:
        """Keys of the measurements present, with one of `statuses` only if given: what a resumed sweep need not repeat."""
        wanted = None if statuses is None else set(statuses)
        return frozenset(m.key for m in self.measurements if wanted is None or m.status in wanted)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The measurements of a results file, or of a report's folder; a disturbed one gives way to a later one of the same key.

        An empty file is fine. A last line cut short by a kill, which begins as a measurement does, is left out and noted.
        Raises Error with the line number for any other damage, for a newer schema_version, and for a file that cannot be read.
        """
        path = os.path.join(path, "results.jsonl") if os.path.isdir(path) else path
        lines = read_bytes(path, RESULTS).split(b"\n")
        measurements, notes = [], []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"results file {os.fspath(path)}, line {number}"
            try:
                data = from_json(line, where=where)
            except Error:
                if number < len(lines) or not TORN.startswith(line[: len(TORN)]):
                    raise
                notes.append(f"line {number} was cut short (the run was killed or the disk was full) and is left out")
                continue
            if not isinstance(data, dict):
                raise Error(f"{where} must be a JSON object, got {data!r:.60}")
            check_version(data, where=where)
            if data.get("kind") == "machines":
                raise Error(f"{where}: this is a machine file, not a results file")
            measurements.append(Measurement.from_dict(data, where=where))
        last = {m.key: index for index, m in enumerate(measurements)}
        kept = (m for index, m in enumerate(measurements) if m.status not in DISTURBED or last[m.key] == index)
        return cls(tuple(kept), tuple(notes))

    def to_records(self) -> list[dict[str, Any]]:
        """Flat dicts for `pd.DataFrame(...)`: numbers are numbers, units are in the names, None where there is no value."""
        return [measurement.to_record() for measurement in self.measurements]

    def to_csv(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the records as CSV, atomically: one header, "." decimals, empty cells where there is no value.

        Raises Error where it cannot be written, and for a file there that is no such table, unless `force`.
        """
        text = records_to_csv(self.to_records())
        require_replaceable(path, text, force=force)
        write_atomically(path, text)

    def _table(self) -> Parts:
        headers: Row = (
            "operator", "variant", "problem", "threads", "cache", "time", "FLOP/s", "B/s", "bound", "of attainable", "error",
            "status",
        )  # fmt: skip
        rows: list[Row] = []
        for m in self.measurements:
            error = "–" if m.prediction_error is None else f"{m.prediction_error:+.1%}".replace("%", " %")
            rates = fmt_si(m.flops_per_s, "FLOP/s"), fmt_si(m.bytes_per_s, "B/s")
            status = m.status + (f": {m.reason}" if m.reason and m.status != "ok" else "")
            rows.append((m.operator, m.variant, m.short_problem, str(m.threads), m.cache_state, fmt_si(m.time_s, "s"), *rates,
                         m.bound, fmt_percent(m.settled_share), error, status))  # fmt: skip
        return repr(self), headers, rows, self.notes

    def __repr__(self) -> str:
        counts = Counter(m.status for m in self.measurements)
        by_status = "".join(f", {n} {status}" for status, n in counts.items())
        return f"Results({counted(len(self), 'measurement')}{by_status})"
