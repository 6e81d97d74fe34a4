"""The roofline model: how fast a problem can run, and what stops it.

attainable [FLOP/s] = min(compute, intensity x bandwidth); time [s] = max(flops / compute, bytes / bandwidth, floor).
Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009; the floor is the launch as a third roof.
Functions take NumPy arrays that broadcast, and give arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._repr import Parts, Records, Row, Shown, printable
from .counts import any_of
from .dtypes import WIDER, dtype_name
from .errors import Error, require_type
from .machine import UNVERIFIED, Ceiling, Given, Machine, in_order, machine_of
from .operators import Counts, Operator, count, problem_of
from .same import Same
from .units import RATES, fmt_number, fmt_percent, fmt_si, within
from .words import arguments_checked

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """The roofs one problem meets: FLOP/s, bytes/s, seconds. `level` names the memory level.

    Attributes:
        labels: term -> ceiling as printed.
        link_bytes_per_s: to the other ranks, for problems that have any; None for the rest.
    """

    compute_flops_per_s: float
    bandwidth_bytes_per_s: float
    floor_s: float = 0.0
    level: str = "DRAM"
    labels: Mapping[str, str] = field(default_factory=dict)
    link_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        link = self.link_bytes_per_s is None or self.link_bytes_per_s > 0
        if not (self.compute_flops_per_s > 0 and self.bandwidth_bytes_per_s > 0 and self.floor_s >= 0 and link):
            raise Error(f"roofs must be positive (and the floor not negative), got {self}")
        for name, rate in (("compute_flops_per_s", self.compute_flops_per_s), ("link_bytes_per_s", self.link_bytes_per_s)):
            if rate not in (None, math.inf):
                within(name, "a rate", rate, RATES)
        within("bandwidth_bytes_per_s", "a rate", self.bandwidth_bytes_per_s, RATES)

    @property
    def ridge_flops_per_byte(self) -> float:
        """The arithmetic intensity at which both roofs meet."""
        return self.compute_flops_per_s / self.bandwidth_bytes_per_s

    def derated(self, *, compute: float = 1.0, bandwidth: float = 1.0, link: float = 1.0) -> Roofs:
        """The roofs at these shares of compute, bandwidth and link. Raises Error unless all are above 0."""
        return dataclasses.replace(
            self,
            compute_flops_per_s=self.compute_flops_per_s * compute,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * bandwidth,
            link_bytes_per_s=None if self.link_bytes_per_s is None else self.link_bytes_per_s * link,
        )


def attainable_flops_per_s(intensity: ArrayLike, compute: ArrayLike, bandwidth: ArrayLike) -> Floats:
    """min(compute, intensity x bandwidth) in FLOP/s, for FLOP/byte, FLOP/s and bytes/s of any broadcasting shapes."""
    slope = np.asarray(intensity, dtype=np.float64) * np.asarray(bandwidth, dtype=np.float64)
    return np.asarray(np.minimum(np.asarray(compute, dtype=np.float64), slope))


def ridge_flops_per_byte(compute: ArrayLike, bandwidth: ArrayLike) -> Floats:
    """compute / bandwidth: the intensity above which compute is the roof."""
    return np.asarray(np.asarray(compute, dtype=np.float64) / np.asarray(bandwidth, dtype=np.float64))


class RidgeTable(Shown, Records, list[dict[str, Any]]):
    """Ridge points as records, which show themselves as one table."""

    __slots__ = ()

    def to_records(self) -> list[dict[str, Any]]:
        return list(self)

    def _table(self) -> Parts:
        rows: list[Row] = [
            (f"{r['level']} {r['access']}", fmt_si(r["bandwidth_bytes_per_s"], "B/s"), r["dtype"], r["accumulator"], r["unit"],
             fmt_si(r["compute_flops_per_s"], "FLOP/s"), fmt_number(r["ridge_flops_per_byte"]))
            for r in self
        ]  # fmt: skip
        return "Ridge points", ("memory", "bandwidth", "dtype", "sums in", "unit", "peak", "FLOP/byte"), rows, ()


@arguments_checked
def ridge_table(machine: Given, *, access: str = "read") -> RidgeTable:
    """Every ridge point of a machine as records, by memory level (slowest first) and compute roof (highest first).

    `ridge_table("H100")[0]["ridge_flops_per_byte"]`.

    Keys: level, access, bandwidth_bytes_per_s, dtype, accumulator, unit, compute_flops_per_s, ridge_flops_per_byte. The roofs are
    those that problems are held against. Raises Error where no bandwidth is known.
    """
    machine = machine_of(machine)
    kinds = {(c.dtype, c.accumulator or c.dtype, c.unit) for c in machine.roofs("compute")}
    peaks = sorted((machine.compute(*kind).value, *kind) for kind in kinds)[::-1]
    memories = [machine.bandwidth(level, access) for level in machine.levels()[::-1]] or [machine.bandwidth()]  # raises
    return RidgeTable(
        {
            "level": memory.level, "access": memory.access, "bandwidth_bytes_per_s": memory.value, "dtype": dtype,
            "accumulator": accumulator, "unit": unit, "compute_flops_per_s": peak,
            "ridge_flops_per_byte": float(ridge_flops_per_byte(peak, memory.value)),
        }
        for memory in memories
        for peak, dtype, accumulator, unit in peaks
    )  # fmt: skip


def terms_s(
    flops: ArrayLike, bytes_: ArrayLike, roofs: Roofs, link_bytes: ArrayLike = 0, launches: ArrayLike = 1
) -> dict[str, Floats]:
    """Seconds per roof if it were the only one, by name: "compute", the memory level, "launch", "link". Shapes broadcast.

    launches: 0 where the calling thread does the work alone, for which the floor of a launch does not count.
    """
    work, moved, sent = np.broadcast_arrays(*(np.asarray(count, dtype=np.float64) for count in (flops, bytes_, link_bytes)))
    link = {} if roofs.link_bytes_per_s is None else {"link": np.asarray(sent / roofs.link_bytes_per_s)}
    return {
        "compute": np.asarray(work / roofs.compute_flops_per_s),
        roofs.level: np.asarray(moved / roofs.bandwidth_bytes_per_s),
        "launch": np.asarray(np.full(work.shape, roofs.floor_s) * launches),
        **link,
    }


def time_s(flops: ArrayLike, bytes_: ArrayLike, roofs: Roofs, link_bytes: ArrayLike = 0, launches: ArrayLike = 1) -> Floats:
    """max(flops / compute, bytes / bandwidth, floor, link bytes / link) in seconds: perfect overlap, a lower bound of any time."""
    return np.asarray(np.maximum.reduce(list(terms_s(flops, bytes_, roofs, link_bytes, launches).values())))


def bound(
    flops: ArrayLike, bytes_: ArrayLike, roofs: Roofs, link_bytes: ArrayLike = 0, launches: ArrayLike = 1
) -> NDArray[np.str_]:
    """Which roof decides: "compute", the memory level's name, "launch" or "link". On a tie the first of these."""
    terms = terms_s(flops, bytes_, roofs, link_bytes, launches)
    return np.asarray(np.array(list(terms))[np.argmax(np.stack(list(terms.values())), axis=0)])


@functools.lru_cache(maxsize=1024)
def bandwidth_of(asked: Same[Machine], level: str | None, mix: str, threads: int | None) -> Ceiling:
    """`Machine.bandwidth`, which every part of a model asks for again."""
    return asked.held.bandwidth(level, mix, threads)


@functools.lru_cache(maxsize=1024)
def _compute_ceiling(
    asked: Same[Machine], arithmetic: tuple[str, str], threads: int | None, unit: str | None
) -> tuple[Ceiling, str] | None:
    """The roof of (dtype, accumulator) on a unit (None: the better), and a note where it is another one.

    That is of the dtype with any accumulator, else of the narrowest dtype that holds all its numbers, else of the accumulator's
    own arithmetic; None where there is no such roof.
    """
    machine, (dtype, accumulator) = asked.held, arithmetic
    roofs = [c for c in machine.roofs("compute") if unit in (None, c.unit)]
    of_cores = " of the cores" if unit == "core" and any(c.unit != unit for c in machine.roofs("compute")) else ""
    for name in dict.fromkeys((dtype, *WIDER.get(dtype, ()), accumulator)):
        for kept in (accumulator, None):
            if any(c.dtype == name and kept in (None, c.accumulator or c.dtype) for c in roofs):
                ceiling = machine.compute(name, kept, unit, threads)
                if name != dtype:
                    return ceiling, f"no {dtype} peak{of_cores} is known: {ceiling.name} is used"
                other = f"no {dtype}→{accumulator} peak{of_cores} is known: {ceiling.name} is used"
                return ceiling, "" if kept else other
    return None


def compute_ceiling(
    machine: Machine, problem: Operator, threads: int | None, unit: str | None, arithmetic: str = ""
) -> tuple[Ceiling, str]:
    """The compute roof of `problem` on a unit, and a note or "". None: tensor units for products only, else the cores.

    arithmetic: the dtype that a kernel computes in, where its plan names another than the problem's; it counts where it was
    measured. Raises Error naming the missing roof.
    """
    if arithmetic and machine.of("fma", dtype=arithmetic):
        return machine.compute(arithmetic, None, "core", threads), ""
    asked = (unit,) if unit or problem.has_products() else ("core", None)
    for each in asked:
        if found := _compute_ceiling(Same(machine), problem.compute(), threads, each):
            return found
    dtype, accumulator = problem.compute()
    return machine.compute(dtype, accumulator, unit, threads), ""  # raises


def core_ceiling(machine: Machine, problem: Operator, threads: int | None) -> Ceiling | None:
    """What does the arithmetic of `problem` that is no matrix product; None where nothing is known of the cores."""
    found = _compute_ceiling(Same(machine), problem.compute(), threads, "core")
    return found and found[0]


def machine_roofs(machine: Machine, problem: Operator, *, level: str | None = None, arithmetic: str = "") -> Roofs:
    """The roofs `problem` meets: its dtype's compute, its mix's bandwidth at `level` (None: the slowest), the launch floor.

    Matrix products use tensor units; operators without matrix products use the cores. arithmetic: see `compute_ceiling`.

    A mix counts with the better of plain and non-temporal stores. A problem without FLOPs has an infinite compute roof; a machine
    without a launch latency a floor of 0. Raises Error naming a ceiling that is missing.
    """
    return roofs_and_notes(machine, problem, level, None, None, arithmetic)[0]


def roofs_and_notes(
    machine: Machine, problem: Operator, level: str | None, threads: int | None, unit: str | None, arithmetic: str
) -> tuple[Roofs, tuple[str, ...]]:
    none = type(None)
    require_type("level", level, (str, none), "a memory level such as 'L2'")
    require_type("threads", threads, (int, none), "a whole number")
    require_type("unit", unit, (str, none), "'core' or 'tensor'")
    memory = bandwidth_of(Same(machine), level, problem.mix, threads)
    same = memory.access == problem.mix or memory.source == "datasheet"  # of which one bandwidth is for every access
    notes = [] if same else [f"no {memory.level} {problem.mix} roof: {memory.name} is used"]
    labels = {"memory": memory.label}
    compute = float("inf")
    if any_of(problem.total_flops() > 0):
        ceiling, note = compute_ceiling(machine, problem, threads, unit, arithmetic)
        compute, labels["compute"] = ceiling.value, ceiling.label
        notes += [note] if note else []
    floor = 0.0
    if any(not c.level for c in machine.roofs("latency")):
        launch = machine.latency()
        floor, labels["launch"] = launch.value, launch.label
    link = None
    if any_of(problem.link_bytes() > 0):
        ceiling = machine.link()
        link, labels["link"] = ceiling.value, ceiling.label
    notes += [f"{label} has two modes: the better one is used" for label in labels.values() if " or " in label]
    notes += [f"{label}: a datasheet's number that nobody has verified" for label in labels.values() if UNVERIFIED in label]
    roofs = Roofs(
        compute_flops_per_s=compute, bandwidth_bytes_per_s=memory.value, floor_s=floor, level=memory.level, labels=labels,
        link_bytes_per_s=link,
    )  # fmt: skip
    return roofs, tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement(Shown):
    """Where work lies under two roofs, compute and one memory level, by the model alone."""

    counts: Counts
    roofs: Roofs

    @property
    def flops_per_byte(self) -> float:
        return self.counts.flops_per_byte

    @property
    def ridge_flops_per_byte(self) -> float:
        return self.roofs.ridge_flops_per_byte

    @property
    def below_ridge(self) -> float:
        """Ridge over intensity: how many times more FLOPs a byte would do before compute is the roof."""
        return self.ridge_flops_per_byte / self.flops_per_byte

    @property
    def time_s(self) -> float:
        """A lower bound."""
        return float(time_s(self.counts.flops, self.counts.bytes, self.roofs))

    @property
    def bound(self) -> str:
        """ "compute", the memory level, or "launch"."""
        return str(bound(self.counts.flops, self.counts.bytes, self.roofs))

    @property
    def attainable_flops_per_s(self) -> float:
        return self.counts.flops / self.time_s

    @property
    def share_of_peak(self) -> float:
        """Attainable over the compute roof: what FLOP/s utilisation could be at best."""
        return self.attainable_flops_per_s / self.roofs.compute_flops_per_s

    def __repr__(self) -> str:
        where = f"{fmt_number(self.flops_per_byte)} FLOP/byte, ridge {fmt_number(self.ridge_flops_per_byte)}"
        return printable(f"Placement({self.bound}-bound, at least {fmt_si(self.time_s, 's')}, {where})")

    def _table(self) -> Parts:
        rows: list[Row] = [
            ("bound", self.bound),
            ("time, at least", fmt_si(self.time_s, "s")),
            ("attainable", f"{fmt_si(self.attainable_flops_per_s, 'FLOP/s')}, {fmt_percent(self.share_of_peak)} of peak"),
            ("intensity", f"{fmt_number(self.flops_per_byte)} FLOP/byte"),
            ("ridge", f"{fmt_number(self.ridge_flops_per_byte)} FLOP/byte"),
            ("FLOPs", fmt_si(self.counts.flops, "FLOP")),
            ("bytes", fmt_si(self.counts.bytes, "B")),
            *(("roof", label) for label in self.roofs.labels.values()),
        ]
        return "Placement", ("", ""), rows, ()


@arguments_checked
def place(
    work: Counts | Operator | type[Operator] | str, on: Given | Roofs, dtype: Any = "", *, level: str | None = None, **fields: Any
) -> Placement:
    """Where a problem, or counts of several, lies on the roofline of a machine or of given roofs.

    place("gemm", "H100", M=512, N=4096, K=4096): problems and machines are objects or words, as in `roofline.predict`.

    Args:
        dtype: of the arithmetic (the problem's own where it is left out).
        level: of the operands; None is the slowest.

    Raises:
        Error: naming a ceiling that is missing, and for counts on a machine without a dtype.
    """
    if not isinstance(work, Counts):
        with in_order("place takes the machine second", work):
            work = problem_of(work, {**fields, **({"dtype": dtype} if dtype and not isinstance(work, Operator) else {})})
    elif fields:
        raise Error(f"place: counts have no fields, got {', '.join(fields)}")
    counts = count(work) if isinstance(work, Operator) else work
    if not (counts.flops or counts.bytes):
        raise Error("place: counts of nothing have no place")
    dtype = dtype and dtype_name(dtype)
    if isinstance(on, Roofs):
        return Placement(counts=counts, roofs=on)
    on = machine_of(on)
    if not dtype and isinstance(work, Operator):
        return Placement(counts=counts, roofs=machine_roofs(on, work, level=level))
    if not dtype:
        raise Error("place: counts have no dtype of their own; name that of their arithmetic, e.g. dtype='fp16'")
    memory = on.bandwidth(level)
    roofs = Roofs(
        compute_flops_per_s=on.compute(dtype).value, bandwidth_bytes_per_s=memory.value, level=memory.level,
        labels={"memory": memory.label, "compute": on.compute(dtype).label},
    )  # fmt: skip
    return Placement(counts=counts, roofs=roofs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How much of one ceiling a run reached. share: 1 is the ceiling. reached: its rate (for latency, its time).

    own: the ceiling belongs to the run's dtype (bandwidths and the launch floor always do).
    """

    ceiling: Ceiling
    reached: float
    share: float
    own: bool

    @property
    def text(self) -> str:
        return f"{fmt_percent(self.share)} of {self.ceiling.label}"


def gaps(machine: Machine, flops: int, bytes_: int, time_s: float, dtype: str) -> tuple[Gap, ...]:
    """The share of every ceiling of `machine` that a run of `flops` and `bytes_` in `time_s` seconds reached.

    In the machine's order, without implausible and diagnostic ceilings and load latencies. Raises Error unless time_s > 0.
    """
    if not 0 < time_s < float("inf"):
        raise Error(f"time_s must be positive and finite, got {time_s!r:.80}")
    found = []
    for c in machine.ceilings:
        if c.status == "implausible" or c.diagnostic or c.kind == "link" or (c.kind == "latency" and c.level):
            continue
        reached = {"bandwidth": bytes_ / time_s, "compute": flops / time_s, "latency": time_s}[c.kind]
        share = c.value / time_s if c.kind == "latency" else reached / c.value
        found.append(Gap(ceiling=c, reached=reached, share=share, own=c.kind != "compute" or c.dtype == dtype))
    return tuple(found)
