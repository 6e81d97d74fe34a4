"""One ceiling of a device: what was measured, its raw samples, and the rate they stand for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from ..cost import dtype as known_dtype
from ..errors import Error
from ..operators.base import MIXES
from ..operators.scales import scales_name
from ..reading import Amount, Sample, Scalars, Text, Whole, build
from ..units import RATES, fmt_si, within
from .facts import StatedConditions, StatedPlan
from .statistics import Mode, Summary, modes, summary

LEVELS = ("L1", "L2", "L3", "DRAM")  # fastest first; DRAM is also a GPU's HBM
# link: what one rank receives from others while it sends as much; transfer: what a copy to or from other memory moves.
KINDS = ("bandwidth", "compute", "latency", "link", "transfer")
TRANSFERS: Mapping[str, str] = {
    "to_device": "host to device", "from_device": "device to host", "to_peer": "device to peer", "from_peer": "peer to device",
    "both": "both directions",
}  # fmt: skip
UNITS = ("core", "tensor")
STATUSES = ("ok", "contended", "implausible", "roof_moved")
SOURCES = ("measured", "datasheet")
LAUNCHES = ("", "fork_join", "launch")  # operators whose latency is the floor of a launch; "" is a datasheet's
GEMM = 2048  # rows, columns and inner of the library's matrix product: large enough to be at its plateau
ALIGNED = 16  # elements: a matrix product of other sizes leaves vectors and tiles partly empty
UNVERIFIED = "unverified"  # what the reason of a datasheet's ceiling begins with where its source was not seen to state it
RATE_UNITS: Mapping[str, str] = {"bandwidth": "B/s", "compute": "FLOP/s", "latency": "s", "link": "B/s", "transfer": "B/s"}
# Variants of fork_join that are no floor of an operator: its launch wakes every thread, or is queued behind others.
HOST_CALLS: Mapping[str, str] = {"call": "call", "synchronised": "launch and wait", "graph": "graph node"}

VARIANTS: Mapping[str, str] = {"non_temporal": "NT", "shared": "shared memory"}  # of a bandwidth, as its name says them

# Results are hashable tuples of samples, and plots and tables ask for the same ones again and again.
_summary = lru_cache(maxsize=4096)(summary)
_modes = lru_cache(maxsize=4096)(modes)


def one_of(what: str, name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raises Error unless `value` is allowed for the field `name` of `what`."""
    if value not in allowed:
        raise Error(f"{what}: {name} must be one of {', '.join(map(repr, allowed))}, got {value!r:.80}")


def fmt_modes(values: Iterable[float], unit: str) -> str:
    """The values of modes as people read them: "101 or 50 GB/s"."""
    texts = [fmt_si(value, unit) for value in values]
    numbers = [number.rstrip("0").rstrip(".") if "." in number else number for number in (text.split(" ")[0] for text in texts)]
    if len(texts) == 1:
        return texts[0]
    suffixes = {text.split(" ")[1] for text in texts}
    if len(suffixes) == 1:
        return f"{' or '.join(numbers)} {suffixes.pop()}"
    return " or ".join(f"{number} {text.split(' ')[1]}" for number, text in zip(numbers, texts, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A measured problem (or a datasheet number) that bounds others.

    samples: bytes/s ("bandwidth", "link", "transfer"), FLOP/s ("compute") or seconds ("latency"), one per timed batch, positive.
    problem: {"operator": name, **fields}, enough to measure it again. threads: of the probe (0 where it means nothing).
    plan: facts of the kernel that ran (implementation, streams, huge_page_share, ...). sustained: the rate after 10 s and more
    of load, at the clock that power and heat then allow; else it is a burst.
    ops_per_cycle: FLOP per cycle that the instruction set allows a thread, or a GPU's unit a multiprocessor. clock_hz: while it
    was measured. conditions: what the device said of itself meanwhile (clocks, power, temperature, shares of what held its
    clocks).
    Raises Error for fields outside the lists above and for samples that are not positive numbers.
    """

    kind: Text
    samples: tuple[Sample, ...]
    level: Text = ""  # bandwidth, and the latency of one memory level
    access: Text = ""  # bandwidth, and the direction of a transfer
    variant: Text = ""
    dtype: Text = ""  # compute
    accumulator: Text = ""
    unit: Text = "core"
    isa: Text = ""
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

    derived_keys: ClassVar[frozenset[str]] = frozenset({"label", "value", "summary", "modes"})

    def __post_init__(self) -> None:
        one_of("ceiling", "kind", self.kind, KINDS)
        one_of("ceiling", "unit", self.unit, UNITS)
        one_of("ceiling", "status", self.status, STATUSES)
        one_of("ceiling", "source", self.source, SOURCES)
        if self.kind == "bandwidth":
            one_of("ceiling", "level", self.level, LEVELS)
            one_of("ceiling", "access", self.access, MIXES)
        if self.kind == "transfer":
            one_of("ceiling", "access", self.access, tuple(TRANSFERS))
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
        return _summary(self.samples)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes, best first: highest rate, or lowest time."""
        found = _modes(self.samples)
        return found if self.kind == "latency" else found[::-1]

    @property
    def bimodal(self) -> bool:
        return len(_modes(self.samples)) > 1

    @property
    def value(self) -> float:
        """Median of the best mode, in bytes/s, FLOP/s or seconds."""
        return self.modes[0].value

    @property
    def diagnostic(self) -> bool:
        """Whether it was measured to understand the machine and is no roof of a problem.

        These are: a transfer; a bandwidth with a stride, without vectors (isa "scalar") or of shared memory; multiply-adds mixed
        with additions, which no operator issues alone; products of constants or zeros, which draw less power; exponentials, which
        bound a part of an operator; a matrix product whose sizes are not multiples of 16; of latencies without a level, all but
        the launch on every thread (a bare call, core to core).
        """
        problem = self.problem
        if self.kind == "bandwidth":
            return self._stride > 1 or self._isa == "scalar" or self.variant == "shared"
        if self.kind == "transfer":
            return True
        if self.kind == "compute":
            mixed = problem.get("pattern") == "fma_add" or problem.get("operator") == "exp"
            return mixed or problem.get("data", "random") != "random" or any(size % ALIGNED for size in self.sizes)
        launch = problem.get("operator", "") in LAUNCHES and self.variant not in HOST_CALLS
        return self.kind == "latency" and not self.level and not launch

    @property
    def is_roof(self) -> bool:
        """Whether problems are held against it: a burst, plausible and not diagnostic."""
        return self.status != "implausible" and not self.diagnostic and not self.sustained

    @property
    def _isa(self) -> str:
        return self.isa or str(self.problem.get("isa", ""))

    @property
    def sizes(self) -> tuple[int, ...]:
        """rows, columns and inner of a matrix product; of other problems nothing."""
        if self.problem.get("operator") != "matmul":
            return ()
        found = (self.problem.get(name) for name in ("rows", "columns", "inner"))
        return tuple(size for size in found if isinstance(size, int))

    @property
    def _stride(self) -> int:
        stride = self.problem.get("stride", 1)
        return stride if isinstance(stride, int) else 1

    @property
    def name(self) -> str:
        """What it is, without its value: "DRAM read", "bf16 tensor", "fp32 avx2 FMA+ADD", "DRAM latency 4 KiB pages"."""
        problem = self.problem
        words: list[str]
        if self.kind == "bandwidth":
            stride = f"stride {self._stride}" if self._stride > 1 else ""
            words = [self.level, self.access, VARIANTS.get(self.variant, ""), stride, self._isa]
        elif self.kind == "compute":
            kept = "" if self.accumulator in ("", self.dtype) else f"→{self.accumulator}"
            sizes = dict.fromkeys(self.sizes)
            listed = "" if list(sizes) in ([], [GEMM]) else "×".join(map(str, sizes if len(sizes) == 1 else self.sizes))
            matrix_product = f"GEMM {listed}".strip() if problem.get("operator") == "matmul" else ""
            pattern = "FMA+ADD" if problem.get("pattern") == "fma_add" else "exp" if problem.get("operator") == "exp" else ""
            probe = self.variant if problem.get("operator") == "mma" else ""
            data = str(problem.get("data", "random")).removeprefix("random")
            unit = "tensor" if self.unit == "tensor" else ""
            words = [self.dtype + kept, unit, self.isa or matrix_product or probe, pattern, scales_name(problem), data]
        elif self.kind == "link":
            words = ["link"]
        elif self.kind == "transfer":
            peer = f"{problem['peer']}" if "peer" in problem else ""
            words = [TRANSFERS[self.access], peer, self.variant.replace("_", " ")]
        elif self.level:
            words = [self.level, "latency", "4 KiB pages" if problem.get("pages") == "small" else ""]
        else:
            operator = str(problem.get("operator", "latency"))
            pair = f"{problem['first']}–{problem['second']}" if operator == "core_to_core" and "second" in problem else ""
            words = [HOST_CALLS.get(self.variant, operator.replace("_", "-")), pair]
        return " ".join(word for word in (*words, "sustained" if self.sustained else "") if word)

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
        values = fmt_modes((mode.value for mode in self.modes), RATE_UNITS[self.kind])
        return values + (f" ({UNVERIFIED})" if self.unverified else "")

    def pooled(self, samples: Iterable[float]) -> Ceiling:
        """This ceiling with more samples of the same roof (brackets, the end check)."""
        return dataclasses.replace(self, samples=self.samples + tuple(samples))

    def to_dict(self) -> dict[str, Any]:
        """JSON form; `label`, `value`, `summary` and `modes` are for readers and ignored when read back."""
        stated = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        stated["problem"], stated["plan"], stated["conditions"] = dict(self.problem), dict(self.plan), dict(self.conditions)
        stated["samples"] = list(self.samples)
        return {
            **stated,
            "label": self.label,
            "value": self.value,
            "summary": dataclasses.asdict(self.summary),
            "modes": [dataclasses.asdict(mode) for mode in self.modes],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "ceiling") -> Ceiling:
        """The inverse of `to_dict`. Raises Error naming `where` and the key."""
        made: Ceiling = build(cls, data, where=where)
        return made
