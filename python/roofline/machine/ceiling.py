"""One ceiling of a device: its probe, the raw samples, and the rate they stand for."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .._repr import Parts, Row, Shown, json_form, printable, values_of
from ..dtypes import UNITS, dtype as known_dtype
from ..errors import Error
from ..operators.base import MIXES
from ..probes import LEVELS, RATE_UNITS, TRANSFERS, Probe, probe_named
from ..reading import Amount, Sample, Scalars, Text, Whole
from ..units import RATES, fmt_percent, fmt_si, within, without_zeros
from ..words import counted, require_one_of
from .facts import StatedConditions, StatedPlan
from .statistics import Mode, Summary, modes_of, summary_of

STATUSES = ("ok", "contended", "implausible", "roof_moved")
SOURCES = ("measured", "datasheet")
ACCESSES: Mapping[str, Iterable[str]] = {"bandwidth": MIXES, "transfer": TRANSFERS}
UNVERIFIED = "unverified"  # what the reason of a datasheet's ceiling begins with where its source was not seen to state it


def fmt_modes(values: Iterable[float], unit: str) -> str:
    """The values of modes as people read them: "101 or 50 GB/s"."""
    texts = [fmt_si(value, unit) for value in values]
    numbers = [without_zeros(text.split(" ")[0]) for text in texts]
    if len(texts) == 1:
        return texts[0]
    suffixes = {text.split(" ")[1] for text in texts}
    if len(suffixes) == 1:
        return f"{' or '.join(numbers)} {suffixes.pop()}"
    return " or ".join(f"{number} {text.split(' ')[1]}" for number, text in zip(numbers, texts, strict=True))


@functools.lru_cache(maxsize=4096)
def _stated(samples: tuple[float, ...], kind: str) -> str:
    """Modes as people read them, best first: predictions name the same ceilings thousands of times."""
    return fmt_modes((mode.value for mode in _best_first(samples, kind)), RATE_UNITS[kind])


def _best_first(samples: tuple[float, ...], kind: str) -> tuple[Mode, ...]:
    found = modes_of(samples)
    return found if kind == "latency" else found[::-1]


def vector_operations(per_cycle: float) -> float:
    """The FLOP per cycle that a core's vector units allow, nearest to a measured rate.

    An instruction issues a power of two operations, one to four of them a cycle (AMD and Intel cores: two; some: more): k x 2^n.
    """
    return float(min((k * 2**n for k in (1, 3) for n in range(12)), key=lambda ops: abs(ops / per_cycle - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling(Shown):
    """A measured problem (or a datasheet number) that bounds others.

    Attributes:
        probe: the id of one of `probes.PROBES`, which says what kind of ceiling it is; level, access, variant, dtype,
            accumulator, unit, isa and params say which of its ceilings.
        samples: bytes/s ("bandwidth", "link", "transfer"), FLOP/s ("compute") or seconds ("latency"), one per timed batch,
            positive.
        problem: {"operator": name, **fields}, enough to measure it again.
        threads: of the probe (0 where it means nothing).
        plan: facts of the kernel that ran (implementation, streams, huge_page_share, ...).
        sustained: the rate after 10 s and more of load, at the clock that power and heat then allow; else it is a burst.
        ops_per_cycle: FLOP per cycle that the instruction set allows a thread, or a GPU's unit a multiprocessor.
        clock_hz: while it was measured.
        conditions: what the device said of itself meanwhile (clocks, power, temperature, shares of what held its clocks).

    Raises:
        Error: for a probe and fields outside the lists above and for samples that are not positive numbers.
    """

    probe: Text
    samples: tuple[Sample, ...]
    level: Text = ""  # bandwidth, and the latency of one memory level
    access: Text = ""  # bandwidth, and the direction of a transfer
    variant: Text = ""
    dtype: Text = ""  # compute
    accumulator: Text = ""
    unit: Text = "core"
    isa: Text = ""
    params: Scalars = field(default_factory=dict)
    threads: Whole = 0
    problem: Scalars = field(default_factory=dict)
    plan: StatedPlan = field(default_factory=dict)
    sustained: bool = False
    clock_hz: Amount | None = None
    ops_per_cycle: Amount | None = None
    conditions: StatedConditions = field(default_factory=dict)
    status: Text = "ok"
    reason: Text = ""
    source: Text = "measured"

    derived_keys: ClassVar[frozenset[str]] = frozenset({"kind", "label", "value", "summary", "modes"})

    def __post_init__(self) -> None:
        probe_named(self.probe)
        require_one_of("ceiling: unit", self.unit, UNITS)
        require_one_of("ceiling: status", self.status, STATUSES)
        require_one_of("ceiling: source", self.source, SOURCES)
        if self.kind == "bandwidth" or self.level:
            require_one_of("ceiling: level", self.level, LEVELS)
        if self.kind in ACCESSES:
            require_one_of("ceiling: access", self.access, ACCESSES[self.kind])
        if self.kind == "compute":
            known_dtype(self.dtype)
        object.__setattr__(self, "samples", tuple(float(sample) for sample in self.samples))
        if not self.samples:
            raise Error(f"ceiling {self.name}: it has no samples")
        if not all(0 < sample < float("inf") for sample in self.samples):
            raise Error(f"ceiling {self.name}: samples must be positive finite numbers ({RATE_UNITS[self.kind]})")
        for sample in (min(self.samples), max(self.samples)):
            within(f"ceiling {self.name}: samples", f"a number of {RATE_UNITS[self.kind]}", sample, RATES)

    @property
    def summary(self) -> Summary:
        """Order statistics of all samples. Where `bimodal`, the median says nothing: use `modes`."""
        return summary_of(self.samples)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes, best first: highest rate, or lowest time."""
        return _best_first(self.samples, self.kind)

    @property
    def bimodal(self) -> bool:
        return len(modes_of(self.samples)) > 1

    @property
    def value(self) -> float:
        """Median of the best mode, in bytes/s, FLOP/s or seconds."""
        return self.modes[0].value

    @property
    def _probe(self) -> Probe:
        return probe_named(self.probe)

    @property
    def kind(self) -> str:
        """bandwidth, compute, latency, link or transfer."""
        return self._probe.kind

    @property
    def diagnostic(self) -> bool:
        """Whether it was measured to understand the machine and is no roof of a problem."""
        return not self._probe.roof

    @property
    def is_floor(self) -> bool:
        """Whether it is the least time of a launch."""
        return self._probe.floor

    @property
    def is_roof(self) -> bool:
        """Whether problems are held against it: plausible, a burst and not diagnostic."""
        return self.status != "implausible" and not self.diagnostic and not self.sustained

    @property
    def name(self) -> str:
        """What it is, without its value: "DRAM read", "bf16→fp32 tensor", "fp32 avx2 FMA+ADD", "DRAM latency 4 KiB pages"."""
        return f"{self._probe.name(self)} sustained" if self.sustained else self._probe.name(self)

    @property
    def unverified(self) -> bool:
        """Whether it is a datasheet number that nobody has seen at its source."""
        return self.source == "datasheet" and self.reason.startswith(UNVERIFIED)

    @property
    def state(self) -> str:
        """Status and reason as a table prints them; of a datasheet's ceiling also that."""
        return ", ".join(
            word.replace("_", " ")
            for word in (
                "" if self.source == "measured" else self.source,
                "" if self.status == "ok" and self.source != "measured" else self.status,
                UNVERIFIED if self.unverified else "",
                "power limited" if self.conditions.get("power_limited") else "",
            )
            if word
        )

    @property
    def label(self) -> str:
        """Name and value as a plot prints them: "DRAM read 47.2 GB/s"; a bimodal one names its modes, "101 or 50 GB/s".

        A datasheet number that is not verified says so.
        """
        return f"{self.name} {self.stated}"

    @property
    def stated(self) -> str:
        """The label without the name."""
        return _stated(self.samples, self.kind) + (f" ({UNVERIFIED})" if self.unverified else "")

    @property
    def spread(self) -> str:
        """ "±0.4 %", the 95 % interval around the median; "±2 % (range)" of few samples; "" of one, and where there are modes."""
        s = self.summary
        if self.bimodal or s.n == 1:
            return ""
        share = fmt_percent(max(s.high - s.median, s.median - s.low) / s.median, 2)
        return f"±{share}" + (" (range)" if s.interval_name == "range" else "")

    def __repr__(self) -> str:
        threads = counted(self.threads, "thread") if self.threads else ""
        words = (self.label, self.spread, f"n = {self.summary.n}", threads, self.state)
        return printable(f"Ceiling({', '.join(word for word in words if word)})")

    def _table(self) -> Parts:
        s, unit = self.summary, RATE_UNITS[self.kind]
        modes = [f"{fmt_si(mode.value, unit)} ({fmt_percent(mode.share, 2)} of samples)" for mode in self.modes]
        rows: list[Row] = [("value", self.stated)]
        rows += [(s.interval_name, f"{fmt_si(s.low, unit)} … {fmt_si(s.high, unit)}")] if self.spread else []
        rows += [("modes", " or ".join(modes))] if self.bimodal else []
        rows.append(("samples", f"{s.n}, {fmt_si(s.minimum, unit)} … {fmt_si(s.maximum, unit)}"))
        rows += [("threads", str(self.threads))] if self.threads else []
        rows += [("clock", fmt_si(self.clock_hz, "Hz"))] if self.clock_hz else []
        fields = " ".join(f"{name}={value}" for name, value in self.problem.items() if value != "")
        rows += [("problem", fields)] if fields else []
        rows.append(("status", self.state + (f": {self.reason}" if self.reason else "")))
        return self.name, ("", ""), rows, ()

    def pooled(self, samples: Iterable[float]) -> Ceiling:
        """This ceiling with more samples of the same roof (brackets, the end check)."""
        made = dataclasses.replace(self, samples=self.samples + tuple(samples))
        if not (self.ops_per_cycle and self.clock_hz and self.threads):
            return made
        return dataclasses.replace(made, ops_per_cycle=vector_operations(made.value / self.clock_hz / self.threads))

    def to_dict(self) -> dict[str, Any]:
        """JSON form; `kind`, `label`, `value`, `summary` and `modes` are for readers and ignored when read back."""
        return {**json_form(self), **values_of(self, "kind label value summary modes")}
