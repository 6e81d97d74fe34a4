"""What would it take, from a measurement: what keeps it below its roof, and what each change is expected to gain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ..counts import ceil_div
from ..dtypes import dtype as known_dtype
from ..errors import Error
from ..machine import Ceiling, Machine
from ..operators import Operator
from ..operators.scales import scales_name
from ..prediction import Advice, AdviceTable, Prediction, predict_problem
from ..probes import ALIGNED
from ..units import fmt_percent, fmt_si
from ..words import backend_of
from .record import Measurement, problem_behind

LOW = 0.8  # of its roof: below this the kernel is what stops a problem, above it the roof
SHORT = 10  # launches: threads start and stop, and memory answers, in about one; a shorter run says nothing of its roof
WORTH = 1.02  # gains below this are noise
LIKE = (0.85, 1.05)  # of the roof of another path: a rate in between looks like that path
APART = 1.5  # between the roofs of two paths, so that a slow run on one is not taken for the other
PADDED = ("rows", "columns", "inner", "head_dim", "d_model", "d_ff")  # fields that products are tiled along


def _gain(m: Measurement, change: str, gain: float, detail: str, *, bound: str = "", at_most: bool = False) -> Advice:
    assert m.time_s is not None
    return Advice(change=change, gain=gain, time_s=m.time_s / gain, bound=bound, at_most=at_most, detail=detail)


def _launch_s(m: Measurement) -> float:
    parts = m.prediction.get("parts", {})
    return float(parts.get("launch") or max((b.value for b in m.brackets if b.kind == "latency"), default=0.0))


def _work_s(m: Measurement) -> float:
    """The time that its roofs allow, launches apart."""
    return max((m.allowed_s(b) for b in m.brackets if b.kind != "latency"), default=0.0)


def _little(m: Measurement) -> bool:
    """Whether it does too little for its roof to be in sight."""
    return _work_s(m) < SHORT * _launch_s(m)


def _launch(m: Measurement) -> Iterator[Advice]:
    """Too little work: where one launch does more of it, what the launch takes is gone, and of little work all that is no roof."""
    launch_s, work_s = _launch_s(m), _work_s(m)
    if m.time_s is None or not launch_s or not work_s:
        return
    left = work_s if _little(m) else max(m.time_s - launch_s, work_s)
    detail = f"its roofs allow {fmt_si(work_s, 's')}, a launch takes {fmt_si(launch_s, 's')} (gain: per unit of work)"
    yield _gain(m, "more work in one launch", m.time_s / left, detail, at_most=True)


def _misaligned(problem: Operator) -> dict[str, int]:
    """Fields that leave vectors or tiles of a product partly empty, and the next size that does not."""
    sizes = {name: getattr(problem, name) for name in PADDED if hasattr(problem, name)}
    return {name: ceil_div(size, ALIGNED) * ALIGNED for name, size in sizes.items() if size > ALIGNED and size % ALIGNED}


def _pair(machine: Machine, m: Measurement, problem: Operator) -> float | None:
    """The library's rate for a product of aligned sizes over that for one just below (2048 over 2047); None without such a pair.

    Both of this dtype, these threads and scales, undisturbed, and alike in all else; of several pairs that of the nearest size.
    """
    scales = scales_name(m.problem)

    def by_size(probe: str) -> dict[tuple[object, ...], Ceiling]:
        found = machine.of(probe, dtype=m.dtype, threads=m.threads)
        usable = [c for c in found if c.status == "ok" and c.params.get("scales", "") == scales and _edge(c) > ALIGNED]
        return {(_edge(c), c.accumulator, c.unit, c.variant, c.isa): c for c in usable}

    even = by_size("gemm.square")
    pairs = [
        (odd, even[key])
        for (_, *alike), odd in by_size("gemm.misaligned").items()
        if (key := (ceil_div(_edge(odd), ALIGNED) * ALIGNED, *alike)) in even
    ]
    if not pairs:
        return None
    odd, whole = min(pairs, key=lambda pair: abs(math.log(_edge(pair[0]) ** 3 / problem.product_size())))
    return whole.value / odd.value


def _edge(c: Ceiling) -> int:
    size = c.params.get("size")
    return size if isinstance(size, int) else 0


def _kernel(m: Measurement, problem: Operator | None, machine: Machine) -> Iterator[Advice]:
    """A low share of the roof: sizes, the path of the dtype, the kernel itself."""
    share, reached = m.share_of_bracket, m.flops_per_s
    if not share or reached is None or share >= LOW or m.bound == "launch" or _little(m):
        return
    whose = "the library" if m.variant == "library" else f"the kernel {m.variant}".strip()
    low = f"{whose} reaches {fmt_percent(share)} of its {m.bound} roof"
    products = problem is not None and m.bound == "compute" and problem.product_size() > 0
    padding = _misaligned(problem) if problem is not None and products else {}
    if problem is not None and padding:
        more = problem.replace(**padding).total_flops() / problem.total_flops()
        pair = _pair(machine, m, problem)
        sizes = ", ".join(f"{name} {size}" for name, size in padding.items())
        known = f"aligned products are {pair:.2f} times as fast here" if pair else "what the roof allows"
        detail = f"{low} with sizes that are no multiples of {ALIGNED}; {known}, for {fmt_percent(more - 1)} more FLOPs"
        yield _gain(m, f"pad to {sizes}", (pair or 1 / share) / more, detail, at_most=pair is None)
    elif products:
        low += f" with sizes that are multiples of {ALIGNED}"
    own = m.limiting_bracket
    if m.bound == "compute" and own is not None:
        slower = [
            c
            for c in machine.roofs("compute")
            if c.value * APART < own.value and c.threads in (0, m.threads) and LIKE[0] <= reached / c.value <= LIKE[1]
        ]
        if slower:
            path = min(slower, key=lambda c: abs(reached / c.value - 1))
            detail = f"{fmt_si(reached, 'FLOP/s')} is {fmt_percent(reached / path.value)} of {path.label}: it looks like that path"
            yield _gain(m, f"the path of {m.dtype} ({own.label})", 1 / share, detail, at_most=True)
    cure = "; `roofline doctor --libraries` looks for the cause" if m.variant == "library" and m.operator == "matmul" else ""
    yield _gain(m, f"a kernel at the {m.bound} roof", 1 / share, low + cure, bound=m.bound, at_most=True)


def _same_point(m: Measurement, other: Measurement) -> bool:
    names = ("operator", "problem", "device", "threads", "cache_state")
    return other.variant != m.variant and all(getattr(other, name) == getattr(m, name) for name in names)


def _expected(m: Measurement, problem: Operator, machine: Machine | None, variant: str) -> Prediction | None:
    if machine is None:
        return None
    try:
        return predict_problem(machine, problem, variant=variant, level=m.level or None, threads=m.threads or None)
    except Error:
        return None


def _variants(m: Measurement, problem: Operator, machine: Machine | None, peers: Iterable[Measurement]) -> Iterator[Advice]:
    """Other variants, measured ones before expected ones, as far as kernels for them are there.

    Both sides of a comparison are expected without the facts of a plan: nothing is known of that of the other.
    """
    backend = backend_of(m.device)
    timed = {p.variant: p for p in peers if _same_point(m, p) and p.time_s is not None}
    now = _expected(m, problem, machine, m.variant)
    for name, variant in problem.variants.items():
        if name == m.variant or (backend and m.dtype not in variant.dtypes.get(backend, ())):
            continue
        if name in timed:
            faster = timed[name].time_s
            assert m.time_s is not None and faster is not None
            yield _gain(m, f"variant {name}", m.time_s / faster, "as measured beside it", bound=timed[name].bound)
        elif now is not None and problem.suits(name, backend) and (new := _expected(m, problem, machine, name)) is not None:
            detail = f"{fmt_si(now.bytes - new.bytes, 'B')} fewer" if now.bytes > new.bytes else "both times predicted"
            yield _gain(m, f"variant {name}", now.time_s / new.time_s, detail, bound=new.bound)


def _narrower(m: Measurement, problem: Operator, machine: Machine) -> Iterator[Advice]:
    """Narrower dtypes that the variant has kernels for."""
    now = _expected(m, problem, machine, m.variant)
    if now is None or not m.dtype:
        return
    backend, own = backend_of(m.device), known_dtype(m.dtype)
    for name in dict.fromkeys(ceiling.dtype for ceiling in machine.roofs("compute")):
        other = known_dtype(name)
        if other.bits >= own.bits or (other.eps == 0) != (own.eps == 0):  # an integer is no narrower float
            continue
        runs = problem.variants.get(m.variant)
        if backend and (runs is None or name not in runs.dtypes.get(backend, ())):
            continue
        try:
            changed = problem.replace(dtype=name)
        except Error:
            continue
        if (new := _expected(m, changed, machine, m.variant)) is not None:
            detail = "fewer bytes and another compute roof; both times predicted"
            yield _gain(m, f"in {name}", now.time_s / new.time_s, detail, bound=new.bound)


def faster_variant(m: Measurement, machine: Machine | None, peers: Iterable[Measurement] = ()) -> Advice | None:
    """The variant that is fastest for this problem here and faster than the one that ran, as measured (peers) or predicted."""
    problem = problem_behind(m)
    if problem is None or m.time_s is None:
        return None
    settled = [p for p in peers if p.status == "ok"]
    return max((a for a in _variants(m, problem, machine, settled) if a.gain >= WORTH), key=lambda a: a.gain, default=None)


def advise(measured: Measurement, machine: Machine, peers: Iterable[Measurement] = ()) -> AdviceTable:
    """Changes to the kernel measured on `machine`, by their gain, largest first; none where nothing was timed.

    More work in one launch; sizes that are multiples of 16, the path of its dtype and the kernel itself, where it is below 80 % of
    its roof; other variants and narrower dtypes. Gains below 2 % are left out.

    Args:
        peers: measurements beside it, of which those of the same problem say what another variant really gains.
    """
    m = measured
    if m.time_s is None:
        return AdviceTable()
    problem = problem_behind(m)
    found = [*_launch(m), *_kernel(m, problem, machine)]
    if problem is not None:
        found += [*_variants(m, problem, machine, peers), *_narrower(m, problem, machine)]
    return AdviceTable(sorted((item for item in found if item.gain >= WORTH), key=lambda item: -item.gain))
