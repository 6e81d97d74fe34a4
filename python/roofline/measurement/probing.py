"""Probes on a device: bound, in the configuration that serves each roof best, and checked."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dtypes import WIDER
from ..errors import Error, Unsupported
from ..machine import Ceiling, Machine
from ..operators import ForkJoin, Matmul, Operator, Stream, from_dict
from ..operators.scales import USUAL_SCALES
from ..probes import Identity, Probe, Wanted, probe_named
from ..probes.bandwidth import STREAM, most_array_bytes, size_problem, stream_candidates
from ..probes.base import Candidate, want
from ..probes.compute import FMA, fma_problem
from ..probes.gpu_units import LIBRARY_SIZE, library_is_faster, rate, tensor_problem, tensor_variants
from ..probes.latency import LAUNCH
from ..probes.levels import MEMORIES, memory_level, warm_level
from ..probes.products import SQUARE, product
from ..probes.tensor import MMA
from ..probes.transfer import LINK, link_problem
from .arena import LEAST_BYTES
from .devices import Device
from .tensors import Held, allocate_all, allocate_one, bind, check, huge_page_share

if TYPE_CHECKING:
    from .policy import Policy

Problem = dict[str, Any]


@dataclass(slots=True)
class Ready:
    """A probe, bound and ready. work: FLOPs, bytes or (of a latency) hops, round trips or calls per launch. flush: before each."""

    probe: Probe
    identity: Identity
    problem: Operator
    variant: str
    work: int
    flush: bool
    sets: list[Any]
    tensors: dict[str, Held]

    @property
    def kind(self) -> str:
        return self.probe.kind

    @property
    def level(self) -> str:
        return self.identity.level

    @property
    def label(self) -> str:
        return self.probe.name(self.identity)

    def rates(self, seconds: Any) -> list[float]:
        """Seconds per launch as bytes/s, FLOP/s, or seconds per hop, round trip or call."""
        return [float(s) / self.work if self.kind == "latency" else self.work / float(s) for s in seconds]

    def verify(self, name: str) -> None:
        """One launch, and its result against the reference. Raises Error naming `name` where it is wrong."""
        tensors = dict(self.tensors)
        for held in self.tensors.values():
            held.guard()  # another probe may have written there since
            if held.spec.role == "out":
                held.memory.fill("int8", held.spec.size_bytes, "pattern", 0, held.offset)
            elif held.spec.role == "in_out":
                held.memory.fill(held.spec.dtype, math.prod(held.spec.shape), "uniform", 1, held.offset)
                tensors[held.spec.name] = dataclasses.replace(held, before=held.raw().copy().view)
        self.sets[0].run()
        correctness = check(self.problem, tensors)
        if not correctness["passed"]:
            raise Error(f"{name} computes a wrong result: {correctness['reason']}")

    def sampled(self, device: Device, policy: Policy) -> dict[str, Any]:
        """What `Device.core.sample` says of it."""
        seen: dict[str, Any] = device.core.sample(self.sets, flush_each=self.flush, policy=policy.to_dict())
        return seen

    def plan(self) -> dict[str, Any]:
        """Facts of what runs, with `huge_page_share` of tensors of 2 MiB and more where the system tells."""
        share = huge_page_share(self.tensors.values())
        flushed = {"flushed": True} if self.flush else {}
        return {"variant": self.variant, **flushed, **({} if share is None else {"huge_page_share": share}), **self.sets[0].plan}

    def described(self) -> Problem:
        return {"operator": self.problem.name, **self.problem.to_dict()}


def _tensors(device: Device, problem: Operator) -> dict[str, Held]:
    """Large arrays of fp32 and fp64, and whatever is written first, in the device's arena; the rest apart."""
    specs = problem.tensors()
    large = [spec for spec in specs if spec.size_bytes >= LEAST_BYTES and spec.dtype in ("fp32", "fp64")]
    shared = device.arena.held(large)
    return {spec.name: shared.get(spec.name) or allocate_one(device, problem, spec, index) for index, spec in enumerate(specs)}


def ready(device: Device, probe: Probe, problem: Operator, variant: str, level: str = "", *, kept: bool = True) -> Ready:
    """The probe, bound; with `kept` once for the device's life. Raises Unsupported with the reason, and OutOfMemory."""
    key = (probe, problem, variant, level)
    if kept and key in device.roofs:
        return device.roofs[key]  # type: ignore[no-any-return]
    if reason := device.missing(problem.name, variant, getattr(problem, "dtype", "fp32")):
        raise Unsupported(reason)
    tensors = _tensors(device, problem) if kept else allocate_all(device, problem, 1)
    found = Ready(
        probe=probe, identity=probe.identity(device, problem, variant, level), problem=problem, variant=variant,
        work=probe.work(problem), flush=level in MEMORIES and bool(device.facts.get("flush")),
        sets=[bind(device, problem, variant, tensors)], tensors=tensors,
    )  # fmt: skip
    if kept:
        device.roofs[key] = found
    return found


# A calibration: single launches, in turn, in so many rounds and until this much time is spent. A launch may take 50 ms to flush
# caches, so candidates that stay below HOPELESS of the best rate in the first FEW rounds are left out of the others.
ROUNDS, FEW = 7, 2
CALIBRATION_S = 0.03
HOPELESS, NEARLY = 0.7, 0.99  # of the best rate


def _once(candidate: Ready) -> float:
    """Seconds of one launch, flushed before where the probe is."""
    return float(candidate.sets[0].run(flush=candidate.flush))


def _shares(rounds: list[list[float]]) -> list[tuple[float, ...]]:
    """Each candidate's share of the sum of all rates, round by round."""
    return list(zip(*([rate / sum(each) for rate in each] for each in rounds), strict=True))


def fastest(device: Device, wanted: Wanted) -> Ready:
    """Time the candidates in turn for CALIBRATION_S, and return the one with the best rate: by the median of its shares of a round.

    The fastest single launch misleads: one stream from L2 gave 280 GB/s on Zen 5, and 480 in one of forty launches. So do rates of
    several rounds: a guest's memory went from 35 to 60 GB/s and back within seconds. Rates within 1 % of the best are ties on a
    CPU, unless caches are flushed; the last wins, because more streams depend less on prefetchers.

    Raises:
        Unsupported: no candidate runs.
    """
    key = (wanted.probe, wanted.candidates, wanted.level)
    if key in device.roofs:
        return device.roofs[key]  # type: ignore[no-any-return]
    able, reasons = [], []
    for problem, variant in wanted.require():
        try:
            able.append(ready(device, wanted.probe, problem, variant, wanted.level, kept=wanted.kept))
        except Unsupported as reason:
            reasons.append(str(reason))
    if not able:
        raise Unsupported("; ".join(dict.fromkeys(reasons)))
    best = able[0]
    if len(able) > 1:
        rounds: list[list[float]] = []
        begun = time.monotonic()
        while len(rounds) < ROUNDS or time.monotonic() - begun < CALIBRATION_S:
            rounds.append([candidate.rates([_once(candidate)])[0] for candidate in able])
            if len(rounds) == FEW:
                most = [max(shares) for shares in _shares(rounds)]
                kept = [index for index, share in enumerate(most) if share >= HOPELESS * max(most)]
                able, rounds = [able[index] for index in kept], [[each[index] for index in kept] for each in rounds]
        rates = [statistics.median(shares) for shares in _shares(rounds)]
        near = max(rates) if best.flush or device.backend != "cpu" else NEARLY * max(rates)
        best = [candidate for candidate, rate in zip(able, rates, strict=True) if rate >= near][-1]
    if wanted.kept:
        device.roofs[key] = best
    return best


def bandwidth_probe(device: Device, level: str, access: str, *, machine: Machine | None, set_bytes: int = 0) -> Ready:
    """The roof of an access to a level, in the configuration that `machine` found; of ordinary and non-temporal stores, which it
    measured one after the other while memory may have changed its rate, those that are faster when both run in turn. set_bytes: of
    the problem's warm set; L3 shows its roof over as much (`as_large`)."""
    probe, candidates = STREAM, list[Candidate]()
    if machine is not None and level in machine.levels():
        best = machine.bandwidth(level, access)
        if best.problem and best.source == "measured":
            found = [measured_again(device, best)]
            with suppress(Error):
                other = machine.bandwidth(level, best.access, variant={"plain": "non_temporal"}.get(best.variant, "plain"))
                if device.backend == "cpu" and other.access == best.access and other.problem:
                    found.append(measured_again(device, other))
            probe, candidates = found[0].probe, [(one.problem, one.variant) for one in found]
    candidates = candidates or stream_candidates(device, level, access)
    if level == "L3":
        candidates = [(as_large(device, problem, set_bytes), variant) for problem, variant in candidates]
    return fastest(device, want(probe, device, 0, *candidates, level=level))


def as_large(device: Device, problem: Operator, set_bytes: int) -> Operator:
    """A cache's probe over about `set_bytes`, in quarters of octaves, so that problems of near sizes share one.

    How much of a larger set stays there changes: a guest shares L3 with others, and its cores have one each or one together as the
    host moves them. On Zen 5 two cores of one L3 of 32 MiB copied 16, 32 and 64 MiB at 236, 139 and 67 GB/s.
    """
    assert isinstance(problem, Stream)
    rounded = round(2 ** (round(4 * math.log2(max(set_bytes, 1))) / 4))
    larger = size_problem(device, min(rounded, most_array_bytes(device)), problem.access)
    return problem.replace(elements=larger.elements, passes=larger.passes) if larger.elements > problem.elements else problem


def measured_again(device: Device, ceiling: Ceiling) -> Ready:
    """The probe of a measured ceiling. Raises Error where its problem cannot be made, Unsupported where it cannot run here."""
    values = dict(ceiling.problem)
    problem = from_dict(str(values.pop("operator", "")), values)
    return ready(device, probe_named(ceiling.probe), problem, ceiling.variant, ceiling.level)


def tensor_probe(device: Device, dtype: str) -> Ready | None:
    """The probe of a GPU's tensor units for products of a dtype, else of the narrowest that holds its numbers; None without one.

    Where no probe here issues the units' fastest instructions it is the library's product.
    """
    if "sms" not in device.facts:
        return None
    for name in (dtype, *WIDER.get(dtype, ())):
        candidates: list[tuple[Probe, Operator, str]] = []
        if name in Matmul.variants["library"].dtypes["cuda"] and library_is_faster(device) and name not in ("fp32", "fp64"):
            square = product(LIBRARY_SIZE, LIBRARY_SIZE, LIBRARY_SIZE, name, **USUAL_SCALES.get(name, {}))
            candidates.append((SQUARE, square, "library"))
        if name != "fp64" or rate(device, name, "tensor") is not None:
            candidates += [(MMA, tensor_problem(device, variant, name), variant) for variant in tensor_variants(device, name)]
        for probe, problem, variant in candidates:
            try:
                return ready(device, probe, problem, variant)
            except Unsupported:
                continue
        if name == "fp32":
            break
    return None


def compute_probe(device: Device, dtype: str, *, products: bool = False) -> Ready | None:
    """The multiply-add probe of a dtype, or of fp32 where the device has none of that dtype; None where there is neither.

    products: of a problem whose arithmetic is matrix products, which a GPU's tensor units do.
    """
    if products and (found := tensor_probe(device, dtype)) is not None:
        return found
    for candidate in dict.fromkeys((dtype, "fp32")):
        try:
            return ready(device, FMA, fma_problem(device, candidate), "registers")
        except Unsupported:
            continue
    return None


def roofs_of(
    device: Device,
    *,
    mix: str,
    arithmetic: str,
    level: str,
    flops: int,
    machine: Machine | None,
    products: bool = False,
    ranks: int = 1,
    set_bytes: int = 0,
) -> list[Ready]:
    """The candidate roofs of a problem: its memory level at its mix, its arithmetic, the launch, and with ranks their link."""
    found = [bandwidth_probe(device, level, mix, machine=machine, set_bytes=set_bytes)]
    if flops:
        compute = compute_probe(device, arithmetic, products=products)
        found += [compute] if compute else []
    found.append(ready(device, LAUNCH, ForkJoin(), "pool"))
    if ranks > 1:
        found.append(ready(device, LINK, link_problem(ranks), "library"))
    return found


def level_of(device: Device, size_bytes: int, cache_state: str) -> str:
    """Where the operands lie: memory when cold, else the smallest level that holds them, or L3 that holds a part."""
    return memory_level(device.facts) if cache_state != "warm" else warm_level(device.facts, size_bytes)
