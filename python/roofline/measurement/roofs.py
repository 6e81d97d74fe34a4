"""The roofs around a measurement: which probes bracket a problem, in the configuration that serves each roof best."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..cost import WIDER, TensorSpec
from ..errors import Error, Unsupported
from ..machine import HOST_CALLS, TRANSFERS, VARIANTS, Machine, cache_level
from ..operators import (
    AllGather,
    CoreToCore,
    ForkJoin,
    HostCopy,
    Matmul,
    Mma,
    Operator,
    PeerCopy,
    PointerChase,
    Stream,
    from_dict,
)
from ..operators.scales import USUAL_SCALES
from .devices import Device
from .problems import dram_array_bytes, fma_problem, stream_candidates
from .tensors import Held, allocate, allocate_all, bind, check, huge_page_share
from .units import LIBRARY_SIZE, library_is_faster, rate, tensor_problem, tensor_variants

LINK_ELEMENTS = 2**28  # bf16: half a GiB, where a ring's start no longer counts

Problem = dict[str, Any]


@dataclass(slots=True)
class Probe:
    """A roof's probe, bound and ready: `work` is FLOPs, bytes or (of a latency) hops, round trips or calls per launch."""

    kind: str
    level: str
    label: str
    problem: Operator
    variant: str
    work: int
    sets: list[Any]
    tensors: dict[str, Held]

    def rates(self, seconds: Any) -> list[float]:
        """Seconds per launch as bytes/s, FLOP/s, or seconds per hop, round trip or call."""
        return [float(s) / self.work if self.kind == "latency" else self.work / float(s) for s in seconds]

    def verify(self, name: str, last: dict[Any, Any] | None = None) -> None:
        """One launch, and its result against the reference (last: see `check`). Raises Error naming `name` where it is wrong."""
        self.sets[0].run()
        correctness = check(self.problem, self.tensors, last=last)
        if not correctness["passed"]:
            raise Error(f"{name} computes a wrong result: {correctness['reason']}")

    def plan(self) -> dict[str, Any]:
        """Facts of what runs, with `huge_page_share` of tensors of 2 MiB and more where the system tells."""
        share = huge_page_share(self.tensors.values())
        return {"variant": self.variant, **({} if share is None else {"huge_page_share": share}), **self.sets[0].plan}

    def described(self) -> Problem:
        return {"operator": self.problem.name, **self.problem.to_dict()}


ARRAYS = {spec.name: index for index, spec in enumerate(Stream(access="triad").tensors())}  # of all accesses, and their data


def _dram_array(device: Device, name: str) -> Held:
    """An array that all DRAM probes of a device share: allocated and touched once."""
    key = ("dram", name)
    if key not in device.roofs:
        spec = TensorSpec(name=name, shape=(dram_array_bytes(device) // 4,), dtype="fp32")
        device.roofs[key] = allocate(device, spec, 1, ARRAYS[name])
    return device.roofs[key]  # type: ignore[no-any-return]


def probe(
    device: Device, problem: Operator, variant: str, level: str = "", *, inputs: dict[TensorSpec, Held] | None = None
) -> Probe:
    """Bound once and kept for the device's life; or with `inputs` not kept, and its inputs taken from there, or put there.

    Raises Unsupported.
    """
    key = ("probe", problem, variant)
    if inputs is None and key in device.roofs:
        return device.roofs[key]  # type: ignore[no-any-return]
    shared = isinstance(problem, Stream) and problem.dtype == "fp32" and problem.elements == dram_array_bytes(device) // 4
    tensors: dict[str, Held]
    if inputs is not None:
        tensors = {}
        for index, spec in enumerate(problem.tensors()):
            if spec.role != "in":
                tensors[spec.name] = allocate(device, spec, 1, index)
            else:
                tensors[spec.name] = inputs.get(spec) or inputs.setdefault(spec, allocate(device, spec, 1, index))
    elif shared:
        tensors = {
            spec.name: Held(spec, _dram_array(device, spec.name).memory) if spec.name in ARRAYS else allocate(device, spec, 1, 9)
            for spec in problem.tensors()
        }
    else:
        tensors = allocate_all(device, problem, 1)
    bound = bind(device, problem, variant, tensors)
    if isinstance(problem, Stream):
        work = sum(t.size_bytes for t in problem.tensors() if t.name != "sum") * problem.passes
        found = Probe(
            "bandwidth",
            level,
            " ".join(filter(None, (level, problem.access, VARIANTS.get(variant, "")))),
            problem,
            variant,
            work,
            [bound],
            tensors,
        )
    elif isinstance(problem, ForkJoin):
        label = HOST_CALLS.get(variant, "fork-join")
        found = Probe("latency", "", label, problem, variant, problem.calls, [bound], tensors)
    elif isinstance(problem, PointerChase):
        found = Probe("latency", level, f"{level} pointer-chase".strip(), problem, variant, problem.hops, [bound], tensors)
    elif isinstance(problem, (HostCopy, PeerCopy)):
        label = f"{TRANSFERS[problem.direction]} {variant.replace('_', ' ')}"
        found = Probe("transfer", "", label, problem, variant, problem.transferred_bytes(), [bound], tensors)
    elif isinstance(problem, AllGather):
        found = Probe("link", "", f"link of {problem.ranks} ranks", problem, variant, problem.link_bytes(), [bound], tensors)
    elif isinstance(problem, CoreToCore):
        found = Probe("latency", "", "core-to-core", problem, variant, problem.rounds, [bound], tensors)
    else:
        which = f"tensor {variant}" if isinstance(problem, Mma) else str(bound.plan.get("isa", ""))
        found = Probe(
            "compute", "", f"{problem.compute()[0]} {which}".strip(), problem, variant, problem.total_flops(), [bound], tensors
        )
    if inputs is None:
        device.roofs[key] = found
    return found


# Of a calibration: single launches, in turn, at least this often, and on until this much time is spent.
ROUNDS = 3
CALIBRATION_S = 0.03


def fastest(device: Device, candidates: list[tuple[Operator, str]], level: str) -> Probe:
    """The candidate of the fastest launch in a short, alternating calibration. Raises Unsupported where none runs."""
    key = ("fastest", tuple(candidates))
    if key in device.roofs:
        return device.roofs[key]  # type: ignore[no-any-return]
    able, reasons = [], []
    for problem, variant in candidates:
        try:
            able.append(probe(device, problem, variant, level))
        except Unsupported as reason:
            reasons.append(str(reason))
    if not able:
        raise Unsupported("; ".join(dict.fromkeys(reasons)))
    best = able[0]
    if len(able) > 1:
        seconds = [float("inf")] * len(able)  # of the fastest launch: other load only lengthens one
        begun, rounds = time.monotonic(), 0
        while rounds < ROUNDS or time.monotonic() - begun < CALIBRATION_S:
            seconds = [min(s, candidate.sets[0].run()) for s, candidate in zip(seconds, able, strict=True)]
            rounds += 1
        best = max(zip(able, seconds, strict=True), key=lambda pair: pair[0].rates([pair[1]])[0])[0]
    device.roofs[key] = best
    return best


def bandwidth_probe(device: Device, level: str, access: str, *, in_place: bool, machine: Machine | None) -> Probe:
    if machine is not None and level in machine.levels():
        ceiling = machine.bandwidth(level, access, variant="plain" if in_place else None)
        if ceiling.problem and ceiling.source == "measured":
            return probe(device, _remade(ceiling.problem), ceiling.variant or "plain", level)
    return fastest(device, stream_candidates(device, level, access, in_place=in_place), level)


def tensor_probe(device: Device, dtype: str) -> Probe | None:
    """The probe of a GPU's tensor units for products of a dtype, else of the narrowest that holds its numbers; None without one.

    Where no probe here issues the units' fastest instructions it is the library's product.
    """
    if device.backend != "cuda":
        return None
    for name in (dtype, *WIDER.get(dtype, ())):
        candidates: list[tuple[Operator, str]] = []
        if name in Matmul.variants["library"].dtypes["cuda"] and library_is_faster(device) and name not in ("fp32", "fp64"):
            size = LIBRARY_SIZE
            product = Matmul.make(rows=size, columns=size, inner=size, dtype=name, **USUAL_SCALES.get(name, {}))
            candidates.append((product, "library"))
        if name != "fp64" or rate(device, name, "tensor") is not None:
            candidates += [(tensor_problem(device, variant, name), variant) for variant in tensor_variants(device, name)]
        for problem, variant in candidates:
            try:
                return probe(device, problem, variant)
            except Unsupported:
                continue
        if name == "fp32":
            break
    return None


def compute_probe(device: Device, dtype: str, *, products: bool = False) -> Probe | None:
    """The multiply-add probe of a dtype, or of fp32 where the device has none of that dtype; None where there is neither.

    products: of a problem whose arithmetic is matrix products, which a GPU's tensor units do.
    """
    if products and (found := tensor_probe(device, dtype)) is not None:
        return found
    for candidate in dict.fromkeys((dtype, "fp32")):
        try:
            widest = probe(device, fma_problem(device, candidate), "registers")
            # By the name of its instruction set, as the ceiling was measured, so that the two pool.
            isa = str(widest.sets[0].plan.get("isa", "")) if device.backend == "cpu" else ""
            return probe(device, fma_problem(device, candidate, isa), "registers") if isa else widest
        except Unsupported:
            continue
    return None


def _remade(problem: Mapping[str, Any]) -> Operator:
    values = dict(problem)
    return from_dict(str(values.pop("operator")), values)


def link_probe(device: Device, ranks: int) -> Probe:
    """The link to so many ranks, this one among them: parts gathered, large enough for its plateau. Raises Unsupported."""
    gathered = AllGather(elements=LINK_ELEMENTS // ranks * ranks, ranks=ranks, dtype="bf16")
    return probe(device, gathered, "library")


def roofs_of(
    device: Device,
    *,
    mix: str,
    arithmetic: str,
    level: str,
    in_place: bool,
    flops: int,
    machine: Machine | None,
    products: bool = False,
    ranks: int = 1,
) -> list[Probe]:
    """The candidate roofs of a problem: its memory level at its mix, its arithmetic, the launch, and with ranks their link."""
    found = [bandwidth_probe(device, level, mix, in_place=in_place, machine=machine)]
    if flops:
        compute = compute_probe(device, arithmetic, products=products)
        found += [compute] if compute else []
    found.append(probe(device, ForkJoin(), "pool"))
    if ranks > 1:
        found.append(link_probe(device, ranks))
    return found


def level_of(device: Device, size_bytes: int, cache_state: str) -> str:
    """Where the operands lie: DRAM when cold, else the smallest level that holds them."""
    return "DRAM" if cache_state != "warm" else cache_level(device.facts, size_bytes)
