"""Which measured problems make a Machine. There is no second timing loop: a ceiling is a problem, timed like any other."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from .errors import Error, OutOfMemory, Unsupported
from .machine import GEMM, Ceiling, Machine, cache_capacity
from .measurement import Policy
from .measurement.devices import Device, open_device, provenance, utc_now
from .measurement.progress import Progress, ProgressOption
from .measurement.roofs import Probe, fastest, fma_isas, fma_problem, probe, stream_candidates
from .measurement.tensors import check
from .measurement.timing import IMPLAUSIBLE, QUICK, THOROUGH, contention
from .operators import MIXES, ForkJoin, Matmul, Operator

COMPUTE = ("fp32", "fp64", "bf16", "int8")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A ceiling to measure: how to find its probe, and what to call it."""

    label: str
    kind: str
    find: Callable[[], Probe]
    isa: str = ""


def _single(device: Device) -> Device | None:
    """The same CPU with one thread; None where it has only one or is no CPU."""
    return open_device("cpu", 1) if device.backend == "cpu" and device.threads > 1 else None


def _bandwidths(device: Device, quick: bool) -> Iterator[Wanted]:
    for access in ("read", "copy", "triad") if quick else MIXES:
        by_variant: dict[str, list[tuple[Operator, str]]] = {}
        for candidate in stream_candidates(device, "DRAM", access):
            by_variant.setdefault(candidate[1], []).append(candidate)
        for variant, candidates in by_variant.items():
            name = f"DRAM {access}{' NT' if variant == 'non_temporal' else ''}"
            yield Wanted(name, "bandwidth", partial(fastest, device, candidates, "DRAM"))
    if device.backend != "cpu":
        return
    for level in ("L3", "L2", "L1"):
        if not cache_capacity(device.facts, level):
            continue
        for access in ("read", "copy") if quick else MIXES:
            find = partial(fastest, device, stream_candidates(device, level, access), level)
            yield Wanted(f"{level} {access}", "bandwidth", find)


def _computes(device: Device, quick: bool) -> Iterator[Wanted]:
    for dtype in COMPUTE:
        for isa in fma_isas(device, dtype)[: 1 if quick else None] or [""]:
            find = partial(probe, device, fma_problem(device, dtype, isa), "registers")
            yield Wanted(f"{dtype} {isa}".strip(), "compute", find, isa)


def _library(device: Device) -> Iterator[Wanted]:
    for dtype in COMPUTE:
        problem = Matmul(rows=GEMM, columns=GEMM, inner=GEMM, dtype=dtype)
        yield Wanted(f"{dtype} GEMM", "compute", partial(_gemm, device, problem))


def _gemm(device: Device, problem: Matmul) -> Probe:
    if device.backend not in problem.variants["library"].dtypes:
        raise Unsupported(f"{device.name} has no library GEMM")
    return probe(device, problem, "library")


def wanted(device: Device, quick: bool) -> list[tuple[Device, Wanted]]:
    """Everything to measure on `device`, in order; on CPUs the main roofs with one thread too."""
    all_: list[tuple[Device, Wanted]] = [(device, Wanted("fork-join", "latency", partial(probe, device, ForkJoin(), "pool")))]
    all_ += [(device, w) for w in (*_bandwidths(device, quick), *_computes(device, quick))]
    if not quick and device.backend == "cpu":
        all_ += [(device, w) for w in _library(device)]
    single = None if quick else _single(device)
    if single is not None:
        all_ += [(single, w) for w in _bandwidths(single, True) if w.label in ("DRAM read", "DRAM copy")]
        all_ += [(single, w) for w in _computes(single, True)]
    return all_


def ceiling(device: Device, what: Wanted, policy: Policy) -> Ceiling:
    """One ceiling: checked, then sampled; again while contended. Raises Unsupported, and Error for a wrong result."""
    found = what.find()
    found.sets[0].run()
    correctness = check(found.problem, found.tensors)
    if not correctness["passed"]:
        raise Error(f"the probe {what.label} computes a wrong result: {correctness['reason']}")
    for attempt in range(policy.tries):
        seen = device.core.sample(found.sets, policy=policy.to_dict())
        if not seen["contended"] or attempt + 1 == policy.tries:
            break
        time.sleep(0.05 * (attempt + 1))
    clock = max(float(seen["clock_before_hz"]), float(seen["clock_after_hz"])) or None
    made = Ceiling(
        kind=what.kind,
        samples=tuple(found.rates(seen["samples_s"])),
        level=found.level,
        access=getattr(found.problem, "access", ""),
        variant=found.variant,
        dtype=found.problem.compute()[0] if what.kind == "compute" else "",
        accumulator=found.problem.compute()[1] if what.kind == "compute" else "",
        isa=what.isa,
        threads=device.threads,
        problem=found.described(),
        clock_hz=clock,
        status="contended" if seen["contended"] else "ok",
        reason=contention(seen["load"]) if seen["contended"] else "",
    )
    return _with_operations(made)


def _with_operations(made: Ceiling) -> Ceiling:
    """Of a multiply-add ceiling: its operations per cycle and thread, if they are a whole number of vectors' worth.

    An instruction issues a power of two operations, one to four of them a cycle (AMD and Intel cores: two; some: three or four), so
    that the measured value over the measured clock must come out near k x 2^n. A rate above 103 % of the nearest is implausible.
    """
    if made.kind != "compute" or made.problem.get("operator") != "fma" or not made.clock_hz or not made.threads:
        return made
    per_cycle = made.value / made.clock_hz / made.threads
    nearest = min((k * 2**n for k in (1, 3) for n in range(12)), key=lambda ops: abs(ops / per_cycle - 1))
    return dataclasses.replace(made, ops_per_cycle=float(nearest)) if per_cycle <= IMPLAUSIBLE * nearest else made


def measure_machine(
    device: str | Device | None = None,
    *,
    threads: int = 0,
    quick: bool = False,
    thorough: bool = False,
    policy: Policy | None = None,
    progress: ProgressOption = None,
    deadline_s: float | None = None,
) -> Machine:
    """The ceilings of one device: bandwidth by level and access, arithmetic by dtype and instruction set, the launch floor.

    device: "cpu", "cuda:0"; None is the first GPU, else the CPU. threads: of a CPU, 0 for all usable cores. quick: the main
    ceilings only, under 10 s. thorough: longer samples. deadline_s: ceilings not begun by then are left out, and the
    machine's provenance names them. Raises Error for bad input, Unsupported where there is no such device.
    """
    if quick and thorough:
        raise Error("measure_machine: quick and thorough exclude each other")
    opened = open_device(device, threads)
    rules = policy or (QUICK if quick else THOROUGH if thorough else Policy(warmup_min_s=0.1, min_s=0.3, max_s=2.0))
    plan = wanted(opened, quick)
    if deadline_s is not None:  # the main roofs first: without them nothing can be predicted
        main = {what.label for _, what in wanted(opened, True)}
        first = ("DRAM read", "fp32")
        plan.sort(key=lambda item: (item[0] is not opened or item[1].label not in main, not item[1].label.startswith(first)))
    begun = time.monotonic()
    ceilings: list[Ceiling] = []
    left_out: dict[str, str] = {}
    with Progress(progress, len(plan)) as shown:
        for index, (where, what) in enumerate(plan):
            label = what.label if where is opened else f"{what.label} (1 thread)"
            shown.step(label)
            if deadline_s is not None and index and time.monotonic() - begun > deadline_s:
                left_out[label] = "the time limit was reached"
                continue
            try:
                ceilings.append(ceiling(where, what, rules))
            except (Unsupported, OutOfMemory) as reason:
                left_out[label] = str(reason)
    return Machine(
        name=opened.title,
        device=opened.name,
        facts=dict(opened.facts),
        ceilings=tuple(ceilings),
        created_utc=utc_now(),
        provenance={**provenance(opened, 1), "policy": rules.to_dict(), "left_out": left_out},
    )
