"""What a kernel takes beyond its parts: found on standard problems (`KernelTime`), and carried over to others."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .counts import by_key, ceil_div, larger, pick
from .errors import Error
from .least_squares import not_negative
from .machine import KernelTime, Machine
from .nearby import SPREAD, VECTOR_BYTES, Nearby, features_of, vector_bytes
from .operators import Operator, from_dict
from .same import Same

# p of the sum of memory and of the rest, which a kernel overlaps as far as this says.
SHARPNESS = 2.0
# How far fitted costs keep to expected ones: UNKNOWN where nothing was timed before, SHOWN where more problems showed them. Each
# holds the weight of the factors, in standard problems, and how far seconds may be off, over usual and over expected ones.
UNKNOWN, SHOWN = (0.4, 7.0, 0.0), (0.5, 0.01, 2.0)
# The weight of a standard problem that other work disturbed.
DISTURBED = {"contended": 0.3}
MEMORY = 2.0  # how much more the factor of memory is trusted: what makes a kernel slower than a roof that moves stays where it is
LEAST, MOST = 0.3, 100.0  # of the factors
# Upper ends of usual costs: those that no standard problem shows stay well below.
BYTE_S, WRITE_S, LOOP_S, START_S, PAGE_S = 100e-12, 200e-12, 10e-9, 0.5e-6, 200e-9
# The expected `joins` of a kernel, give or take as much. Standard problems that all ran on cores equally far apart cannot tell
# joins from the start. A GPU's kernels have more, or none.
JOINS, GPU_JOINS = 1.0, 4.0
RESULT_S = 0.5e-9  # instead of LOOP_S, of the results of products: their loops do many of them side by side
GPU_BYTE_S, GPU_WRITE_S, ELEMENT_S = 1e-12, 1e-12, 100e-9  # ELEMENT_S instead of LOOP_S: see `Variant.critical_path`
FEWER = 16  # standard problems of a variant than these say little of one more
STEPS = 6  # of the least squares, whose coefficients depend on the factors a little
SMALL_PAGE, HUGE_PAGE = 4096, 2 << 20
ALONE = 0.5  # exponent of unevenness in memory's time: one thread of n draws more than an n-th of what memory gives


def overlapped_s(*parts_s: Any) -> Any:
    """Seconds of all parts together; numbers or arrays."""
    most = functools.reduce(larger, parts_s, 1e-300)
    return most * sum((each / most) ** SHARPNESS for each in parts_s) ** (1 / SHARPNESS)


def cold_bytes(problem: Operator, cold: bool, *, gpu: bool) -> tuple[Any, Any, Any]:
    """Compulsory bytes from memory, those written, and a CPU's small pages (of tensors below a huge one): each ends prefetching."""
    whole = [t for t in problem.tensors() if t.touched_bytes is None]  # of others some rows, which are no run of pages
    small = sum((t.moved_bytes * (t.size_bytes < HUGE_PAGE) for t in whole), 0)
    written = sum((t.moved_bytes for t in problem.outputs()), 0)
    return problem.compulsory_bytes() * cold, written * cold, small * (cold and not gpu) / SMALL_PAGE


def padding(problem: Operator, width: int) -> Any:
    """Work of its products in whole strips of `width` columns over their work: 1.6 for 40 columns in strips of 32."""
    products = problem.products()
    if width <= 1 or not products:
        return 1.0
    whole = sum(p.count * p.rows * p.inner * np.ceil(p.columns / width) * width for p in products)
    return whole / sum(p.count * p.rows * p.inner * p.columns for p in products)


def unevenness(problem: Operator, variant: str, threads: int) -> Any:
    """The longest share of a thread over the mean one: 2 where two threads have one piece of work."""
    pieces = problem.pieces({"variant": variant})
    return pick(pieces > 0, ceil_div(pieces, threads) * threads / larger(pieces, 1), 1.0)


def of_longest_thread(
    problem: Operator, memory_s: Any, rest_s: Any, *, variant: str, threads: int, width: int, sms: int
) -> tuple[Any, Any, Any]:
    """Seconds of memory and of the rest, and loops, of the thread with the most work; the rest includes padding (`padding`).

    On a GPU the loops are those of its busiest multiprocessor (`Variant.critical_path`); the others use memory and units meanwhile.
    """
    if sms:
        return memory_s, rest_s, problem.critical_path({"variant": variant}, sms)
    uneven = unevenness(problem, variant, threads)
    return memory_s * uneven**ALONE, rest_s * uneven * padding(problem, width), problem.loops() * uneven


# In the order of `_Row.counts`.
FITTED = ("memory", "caches", "byte_s", "write_s", "loop_s", "start_s", "cold_s", "page_s", "joins", "cold_joins")


@dataclass(frozen=True, slots=True)
class KernelCosts:
    """memory, caches: measured over expected time of memory, and of caches and arithmetic. byte_s: seconds for each byte from
    memory that the kernel takes at least, however fast memory is just now; write_s: more for each of results that go there. loop_s:
    each time the innermost loop begins (`Operator.loops`), by all threads together. start_s: of one run; cold_s: more where its
    operands come from memory, and page_s for each small page of them. joins: the time that its threads wait for each other inside
    the kernel, over the time of its launches: both are longer where two cores are farther apart; cold_joins: more of it where its
    operands come from memory, as then do the lines by which threads wake each other.
    tile: rows and columns of the tiles that its products are computed in; 1 where no timed kernel says (`padding`).
    variant, threads, sms: what tells how evenly threads or multiprocessors share work (`unevenness`, `Variant.critical_path`).
    nearby: how the standard problems differ from what these say, and so problems near them.
    replaced: of a kernel in a dtype that no standard problem has, which ones stand for it.
    """

    memory: float = 1.0
    caches: float = 1.0
    byte_s: float = 0.0
    write_s: float = 0.0
    loop_s: float = 0.0
    start_s: float = 0.0
    cold_s: float = 0.0
    page_s: float = 0.0
    joins: float = 0.0
    cold_joins: float = 0.0
    tile: tuple[int, int] = (1, 1)
    variant: str = ""
    threads: int = 1
    sms: int = 0
    nearby: Nearby | None = None
    replaced: str = ""

    @classmethod
    def of(cls, fitted: Sequence[Any]) -> KernelCosts:
        return cls(**dict(zip(FITTED, fitted, strict=True)))

    def fitted(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in FITTED)

    def more_s(
        self, problem: Operator, memory_s: Any, rest_s: Any, expected_s: Any, *, cold: bool, launch_s: Any = 0.0
    ) -> dict[str, Any]:
        """Seconds beyond expected_s, without launches: "kernel" (negative: it is faster than its parts), "loops" and "start".

        memory_s, rest_s: of its bytes from memory, and of all else together. launch_s: of all its launches.
        """
        bytes_, written, pages = cold_bytes(problem, cold, gpu=self.sms > 0)
        features = self._features(problem, memory_s, rest_s, launch_s)
        memory_s, rest_s, loops = of_longest_thread(
            problem, memory_s, rest_s, variant=self.variant, threads=self.threads, width=self.tile[1], sms=self.sms
        )
        parts_s = (self.memory * memory_s, self.caches * rest_s, self.byte_s * bytes_)
        base_s, loops_s, start_s = self.seconds(parts_s, written, loops, cold, pages, launch_s)
        differs = 0.0 if self.nearby is None else (base_s + loops_s + start_s) * self.nearby.share(features)
        return {"kernel": base_s + differs - expected_s, "loops": loops_s, "start": start_s}

    def seconds(
        self, parts_s: Sequence[Any], written: Any, loops: Any, cold: Any, pages: Any, launch_s: Any
    ) -> tuple[Any, Any, Any]:
        """(the kernel's, its loops', its start's): parts_s overlap, and storing results in memory comes on top."""
        joins = self.joins + cold * self.cold_joins
        start_s = self.start_s + cold * self.cold_s + pages * self.page_s + launch_s * joins
        return overlapped_s(*parts_s) + written * self.write_s, loops * self.loop_s, start_s

    def doubt(self, problem: Operator, memory_s: float, rest_s: float, *, cold: bool, launch_s: float = 0.0) -> float:
        """Standard deviation of the logarithm of the time of one problem: little near a standard one, SPREAD far off."""
        return SPREAD if self.nearby is None else self.nearby.doubt(self._features(problem, memory_s, rest_s, launch_s))

    def _features(self, problem: Operator, memory_s: Any, rest_s: Any, launch_s: Any) -> tuple[Any, ...]:
        vectors = vector_bytes(problem, self.variant, self.sms)
        return features_of(problem, self.tile, memory_s, rest_s, launch_s, vectors)


# The expected costs of a CPU's kernels, which its own standard problems correct: rounded medians over 33 variants, from 10296
# standard problems of a Zen 5.
EXPECTED = KernelCosts(byte_s=4e-12, loop_s=0.5e-9, start_s=0.04e-6, cold_s=0.3e-6, page_s=7e-9, joins=JOINS, cold_joins=0.2)
EXPECTED_OF_PRODUCTS = KernelCosts(
    byte_s=5e-12, write_s=20e-12, loop_s=0.05e-9, start_s=0.3e-6, cold_s=0.65e-6, page_s=7e-9, joins=1.5 * JOINS, cold_joins=0.2
)


def kernel_costs(machine: Machine, problem: Operator, variant: str, *, planned: bool = True) -> KernelCosts | None:
    """What `machine` knows of the costs of a kernel; None where that kernel was not timed.

    planned: beyond parts that follow from a plan of the kernel, which counts what it pads and packs; else from the problem alone.

    Ten numbers by least squares in the relative error of the standard problems' times, none of them negative: of all problems of
    the variant first, from there of those with rows aligned alike, of those in the problem's dtype, and of those with as few rows
    (`kind_of`). For a batch of problems (`Operator.many`) its numbers are arrays.
    """
    timed = _timed(Same(machine.kernels), problem.name, variant, planned)
    if not timed.rows:
        return None
    kind, dtype = kind_of(problem, vector_bytes(problem, variant, timed.sms)), stored(problem)
    if isinstance(kind, np.ndarray):
        each = zip(*(timed.costs(dtype, one).fitted() for one in range(1 + kind.max(initial=0))), strict=True)
        found = KernelCosts.of([np.choose(kind, numbers) for numbers in each])
    else:
        found = timed.costs(dtype, kind)
    dtypes = sorted({row.dtype for row in timed.rows})
    others = f"no {dtype} {problem.name} {variant} was timed: kernels in {', '.join(dtypes)} stand for it"
    replaced = "" if dtype in dtypes else others
    return dataclasses.replace(
        found, tile=timed.tile, variant=variant, threads=timed.threads, sms=timed.sms, nearby=timed.nearby, replaced=replaced
    )


def is_timed(machine: Machine, problem: Operator, variant: str) -> bool:
    """Whether there are costs of this kernel; `kernel_costs` finds them, which takes a moment the first time."""
    return (problem.name, variant) in _names(Same(machine.kernels))


def timed_alike(machine: Machine, problem: Operator, variant: str) -> bool:
    """Whether `machine` timed this variant on problems with few rows, or with many, as `problem` has."""
    rows = _timed(Same(machine.kernels), problem.name, variant, False).rows
    return any((row.kind > 0) == (problem.rows_kind() > 0) for row in rows)


def untimed(machine: Machine, problem: Operator, variant: str) -> tuple[str, ...]:
    """A note where a machine timed kernels, but none of this variant."""
    known = variant in problem.variants and bool(machine.kernels)
    note = f"no {problem.name} {variant} was timed: it is expected to take what its parts take, which few kernels do"
    return (note,) if known else ()


@dataclass(frozen=True, slots=True)
class _Row:
    """A standard problem: what it took and what its parts take, in seconds; and what tells kernels of one variant apart.

    Of several problems every field is an array, or a tuple (`_together`).
    """

    weight: Any
    time_s: Any
    launch_s: Any
    memory_s: Any
    rest_s: Any
    bytes: Any
    written: Any
    pages: Any
    loops: Any
    cold: Any
    dtype: Any
    kind: Any
    products: bool
    tile: tuple[int, int]
    threads: int
    sms: int
    features: tuple[Any, ...]

    def costs_s(self, costs: KernelCosts) -> Any:
        """What it should take, its launch left out."""
        return sum(costs.seconds(self._parts_s(costs), self.written, self.loops, self.cold, self.pages, self.launch_s))

    def _parts_s(self, costs: KernelCosts) -> tuple[Any, ...]:
        return costs.memory * self.memory_s, costs.caches * self.rest_s, costs.byte_s * self.bytes

    def counts(self, costs: KernelCosts) -> tuple[Any, ...]:
        """Coefficients of the costs in its time, about these: the time of the overlapped parts is homogeneous in their factors."""
        parts_s = self._parts_s(costs)
        all_s = larger(overlapped_s(*parts_s), 1e-300)
        each = (self.memory_s, self.rest_s, self.bytes)
        slopes = (count * (part / all_s) ** (SHARPNESS - 1) for count, part in zip(each, parts_s, strict=True))
        return (*slopes, self.written, self.loops, 1.0, 1.0 * self.cold, self.pages, self.launch_s, self.cold * self.launch_s)


def _together(rows: Sequence[_Row]) -> _Row:
    """Some problems of one variant as one: the fields that differ are arrays."""
    same: dict[str, Any] = {name: getattr(rows[0], name) for name in ("products", "tile", "threads", "sms")} | {"features": ()}
    differing = (f.name for f in fields(_Row) if f.name not in same)
    columns: dict[str, Any] = {name: np.array([getattr(row, name) for row in rows]) for name in differing}
    return _Row(**same, **columns)


def _row(timed: KernelTime, planned: bool = True) -> _Row | None:
    """None where this package would not make its problem."""
    problem = problem_of(timed.problem)
    if problem is None or timed.variant not in problem.variants:
        return None
    bytes_, written, pages = cold_bytes(problem, timed.cold, gpu=timed.sms > 0)
    stated_s = timed.unplanned if timed.unplanned and not planned else (timed.memory_s, timed.rest_s)
    memory_s, rest_s, loops = of_longest_thread(
        problem, *stated_s, variant=timed.variant, threads=timed.threads, width=timed.tile[1], sms=timed.sms
    )
    vectors = vector_bytes(problem, timed.variant, timed.sms)
    return _Row(
        weight=DISTURBED.get(timed.status, 1.0), time_s=timed.time_s, launch_s=timed.launch_s, memory_s=memory_s, rest_s=rest_s,
        bytes=bytes_, written=written, pages=pages, loops=loops, cold=timed.cold, dtype=stored(problem),
        kind=kind_of(problem, vectors), products=bool(problem.products()), tile=timed.tile, threads=timed.threads, sms=timed.sms,
        features=features_of(problem, timed.tile, *stated_s, timed.launch_s, vectors),
    )  # fmt: skip


def kind_of(problem: Operator, vectors: Any) -> Any:
    """`Operator.rows_kind`, and 3 more for kernels of a GPU that load no whole vectors of a row. vectors: `vector_bytes`."""
    return problem.rows_kind() + (0 if vectors is None else 3 * (vectors < VECTOR_BYTES))


def stored(problem: Operator) -> str:
    """The dtype that tells its kernels apart."""
    return str(problem.to_dict().get("dtype", ""))


def problem_of(stated: Mapping[str, Any]) -> Operator | None:
    """The problem that is stated; None where this package would not make it."""
    return _problem(json.dumps(dict(stated), default=str))


@functools.lru_cache(maxsize=1024)
def _problem(text: str) -> Operator | None:
    stated = json.loads(text)  # every prediction asks for the same few
    try:
        return from_dict(str(stated.pop("operator", "")), stated)
    except Error:
        return None


class _Timed:
    """The standard problems of one variant, and what was found from them so far."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self.rows = tuple(rows)
        self.tile = max((row.tile for row in rows), default=(1, 1))
        self.threads = max((row.threads for row in rows), default=1)
        self.sms = max((row.sms for row in rows), default=0)
        self._costs: dict[tuple[str, int], KernelCosts] = {}

    def costs(self, dtype: str, kind: int) -> KernelCosts:
        if (dtype, kind) not in self._costs:
            alike = [row for row in self.rows if row.kind // 3 == kind // 3] or self.rows
            same = [row for row in alike if row.dtype == dtype]
            known = self.of_all
            for some in (alike, same, [row for row in same if row.kind == kind]):
                known = _fitted(some, known, SHOWN) if 0 < len(some) < len(self.rows) else known
            self._costs[dtype, kind] = known
        return self._costs[dtype, kind]

    @functools.cached_property
    def of_all(self) -> KernelCosts:
        expected = KernelCosts() if self.sms else EXPECTED_OF_PRODUCTS if self.rows[0].products else EXPECTED
        return _fitted(self.rows, expected, UNKNOWN)

    @functools.cached_property
    def nearby(self) -> Nearby:
        shown = [row.costs_s(self.costs(row.dtype, row.kind)) for row in self.rows]
        beyond = [
            math.log(max(row.time_s - row.launch_s, 0.1 * row.time_s) / max(s, 1e-12))
            for row, s in zip(self.rows, shown, strict=True)
        ]
        return Nearby.of([row.features for row in self.rows], beyond, [row.weight < 1 for row in self.rows])


def leave_one_out(kernels: Sequence[KernelTime]) -> list[float]:
    """How far each is from what all others of its variant lead to expect: the logarithm of the ratio, 0 where these are FEWER.

    Source: leave-one-out residuals, Rasmussen and Williams, Gaussian Processes for Machine Learning, equation 5.12.
    """
    found = [0.0] * len(kernels)
    rows_of = ((index, timed, row) for index, timed in enumerate(kernels) if (row := _row(timed)) is not None)
    groups = by_key(((timed.problem.get("operator"), timed.variant), (index, row)) for index, timed, row in rows_of)
    for group in groups.values():
        if len(group) < FEWER:
            continue
        indices, rows = zip(*group, strict=True)
        for index, beyond in zip(indices, _Timed(rows).nearby.leave_one_out(), strict=True):
            found[index] = float(beyond)
    return found


@functools.lru_cache(maxsize=16)
def _names(kernels: Same[tuple[KernelTime, ...]]) -> frozenset[tuple[Any, str]]:
    return frozenset((k.problem.get("operator"), k.variant) for k in kernels.held)


@functools.lru_cache(maxsize=256)
def _timed(kernels: Same[tuple[KernelTime, ...]], operator: str, variant: str, planned: bool) -> _Timed:
    own = (k for k in kernels.held if (k.problem.get("operator"), k.variant) == (operator, variant))
    return _Timed([row for k in own if (row := _row(k, planned)) is not None])


def _fitted(rows: Sequence[_Row], expected: KernelCosts, trusted: tuple[float, float, float]) -> KernelCosts:
    """The costs that explain the rows, and are those expected as far as no row tells. trusted: UNKNOWN or SHOWN."""
    all_ = _together(rows)
    wanted = all_.weight * np.maximum(1 - all_.launch_s / all_.time_s, 0.0)
    factors, of_usual, of_expected = trusted
    moved = (GPU_BYTE_S, GPU_WRITE_S, ELEMENT_S) if all_.sms else (BYTE_S, WRITE_S, RESULT_S if all_.products else LOOP_S)
    joins = GPU_JOINS if all_.sms else JOINS
    usual = (*moved, START_S, START_S, PAGE_S, joins, joins)
    far = (of_usual * each + of_expected * own for each, own in zip(usual, expected.fitted()[2:], strict=True))
    prior = np.array([MEMORY * factors, factors, *(1 / each for each in far)])
    right = np.concatenate([wanted, prior * np.array(expected.fitted())])
    found = dataclasses.replace(expected, byte_s=max(expected.byte_s, 0.1 * moved[0]))  # a part of nothing would stay nothing
    for _ in range(STEPS):
        counts = np.stack(np.broadcast_arrays(*all_.counts(found)), axis=1) * (all_.weight / all_.time_s)[:, None]
        x = not_negative(np.vstack([counts, np.diag(prior)]), right)
        memory, caches = (min(max(float(factor), LEAST), MOST) for factor in x[:2])
        found = KernelCosts.of([memory, caches, *x[2:].tolist()])
    return found
