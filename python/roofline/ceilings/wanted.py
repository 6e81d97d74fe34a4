"""What is measured of a device, by depth: quick (the main roofs), standard (every roof), thorough (everything there is)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..errors import Unsupported
from ..machine import GEMM, HOST_CALLS, TRANSFERS, VARIANTS, EmpiricalRoofline, Machine, SizeCurve, cache_capacity
from ..measurement.devices import Device, list_devices, open_device
from ..measurement.problems import chase_problem, fma_isas, fma_problem, stream_candidates, stream_problem
from ..measurement.roofs import Probe, fastest, link_probe, probe
from ..measurement.units import core_isas, peak_flops_per_s, tensor_problem, tensor_variants, unit_of
from ..operators import MIXES, CoreToCore, Exp, ForkJoin, HostCopy, Matmul, Operator, PeerCopy
from ..operators.host_copy import DIRECTIONS
from ..operators.mma import ACCUMULATORS
from ..operators.peer_copy import DIRECTIONS as PEER_DIRECTIONS
from ..operators.scales import USUAL_SCALES, scales_name
from ..units import GIB, MIB
from .series import intensity_sweep, size_curve

DEPTHS = ("quick", "standard", "thorough")
COMPUTE = ("fp32", "fp64", "fp16", "bf16", "int8")
PRODUCT_DTYPES = ("fp32", "fp64", "bf16", "int8")
PRODUCTS = (64, 256, 512, 1024, GEMM)  # sizes of the library's square products: small ones run below its plateau
NARROW = (1, 8, 32)  # rows of products with 512 columns for two threads: b stays in L2, and is read once for few rows
NARROW_COLUMNS, NARROW_INNER = 256, 512  # columns per thread
MISALIGNED = (255, 1023, GEMM - 1)
CORE_DTYPES = ("fp32", "fp64", "fp16")  # of a GPU
DATA = ("random", "constant", "zeros")
SUSTAINED = "bf16"  # the dtype of a GPU's long load
GPU_PRODUCTS = ((8192, 8192, 8192), (4096, 4096, 4096), (16384, 8192, 8192))  # rows, columns, inner
GPU_MISALIGNED = ((8191, 8191, 8191),)
# How else operands of few bits are scaled: cuBLASLt takes fp32 scales of rows and blocks on sm_90 only, blocks of 32 and 16 from
# sm_100 on.
GPU_SCALES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "fp8_e4m3": (
        {"scales": "tensor"},
        {"scales": "row"},
        {"scales": "block", "scale_block": 128},
        {"scales": "block", "scale_block": 128, "scale_columns": 128},
        {"scales": "block", "scale_block": 32, "scale_bits": 8},
    ),
    "nvfp4": ({"scales": "block", "scale_block": 16, "scale_bits": 8},),
}
LONGEST_S = 0.2  # of a launch
STRIDES = (2, 4, 8, 16)  # fp32 elements: the last uses one element of a line of 64 bytes
GPU_STRIDES = (*STRIDES, 32)  # one element of every sector of 32 bytes from 8 on, of a line of 128 at 32
GRAPH_NODES = 256  # of one graph: its own launch is spread over them
TRANSFER_BYTES = 512 * MIB  # 10 ms at 50 GB/s
STORING = ("write", "copy", "triad")  # measured with stores that bypass the caches where the data could stay in one
PARTNERS = 8  # threads that exchange a line with thread 0, spread evenly over all
EXP_ELEMENTS = 2048  # per thread, with its result half of an L1 cache of 32 KiB
EXP_PASSES = 256  # about 0.2 ms


@dataclass(frozen=True, slots=True)
class Wanted:
    """A ceiling to measure: how to find its probe, and what to call it."""

    label: str
    kind: str
    find: Callable[[], Probe]
    isa: str = ""
    sustained: bool = False  # after a long load, not a burst


@dataclass(frozen=True, slots=True)
class WantedSeries:
    """A series to measure once the ceilings are known: bandwidth over size, or rate over arithmetic intensity."""

    label: str
    measure: Callable[[Machine], SizeCurve | EmpiricalRoofline]


def _single(device: Device) -> Device | None:
    """The same CPU with one thread; None where it has only one or is no CPU."""
    return open_device("cpu", 1) if device.backend == "cpu" and device.threads > 1 else None


def _latencies(device: Device, depth: str) -> Iterator[Wanted]:
    yield Wanted("fork-join", "latency", partial(probe, device, ForkJoin(), "pool"))
    if depth == "quick":
        return
    if device.backend != "cpu":
        yield from _gpu_latencies(device)
        return
    yield Wanted("call", "latency", partial(probe, device, ForkJoin(), "call"))
    for level in ("L1", "L2", "L3", "DRAM"):
        if level == "DRAM" or cache_capacity(device.facts, level):
            yield Wanted(f"{level} latency", "latency", partial(_chase, device, level, "huge"))
    if depth == "thorough":
        yield Wanted("DRAM latency 4 KiB pages", "latency", partial(_chase, device, "DRAM", "small"))
    others = range(1, device.threads)
    step = max(len(others) // PARTNERS, 1)
    for other in list(others)[::step] if depth == "thorough" else list(others)[:1]:
        yield Wanted(f"core-to-core 0–{other}", "latency", partial(probe, device, CoreToCore(second=other), "ping_pong"))


def _gpu_latencies(device: Device) -> Iterator[Wanted]:
    for variant, problem in (
        ("call", ForkJoin()), ("synchronised", ForkJoin()), ("graph", ForkJoin(calls=GRAPH_NODES))
    ):  # fmt: skip
        yield Wanted(HOST_CALLS[variant], "latency", partial(probe, device, problem, variant))
    for level in ("L1", "L2", "DRAM"):
        yield Wanted(f"{level} latency", "latency", partial(_chase, device, level, "huge"))


def _gpus() -> list[str]:
    """Those of this machine that can be used."""
    return [d["name"] for d in list_devices() if d["name"].startswith("cuda") and not d["missing"]]


def _transfers(device: Device, depth: str) -> Iterator[Wanted]:
    """Of a GPU: copies to and from the host, and to and from every other GPU here."""
    if device.backend == "cpu" or depth == "quick":
        return
    size = min(TRANSFER_BYTES, int(device.facts.get("memory_bytes") or TRANSFER_BYTES * 16) // 16)
    for variant in ("pinned", "pageable") if depth == "thorough" else ("pinned",):
        for direction in DIRECTIONS:
            problem = HostCopy(size_bytes=size, direction=direction)
            yield Wanted(f"{TRANSFERS[direction]} {variant}", "transfer", partial(_not_kept, device, problem, variant))
    others = [name for name in _gpus() if name != device.name]
    for peer in (int(name.partition(":")[2]) for name in others if depth == "thorough" or name == others[0]):
        for variant in ("copy_engine", "kernel") if depth == "thorough" else ("copy_engine",):
            for direction in PEER_DIRECTIONS if depth == "thorough" else PEER_DIRECTIONS[::2]:
                name = f"{TRANSFERS[direction]} {peer} {variant.replace('_', ' ')}"
                to_peer = PeerCopy(size_bytes=size, direction=direction, peer=peer)
                yield Wanted(name, "transfer", partial(_not_kept, device, to_peer, variant))


def _chase(device: Device, level: str, pages: str) -> Probe:
    return probe(device, chase_problem(device, level, pages), "dependent", level)


def _links(device: Device) -> Iterator[Wanted]:
    """Between all GPUs of this machine, where there are several."""
    gpus = _gpus()
    if device.backend == "cuda" and len(gpus) > 1:
        yield Wanted("link", "link", partial(link_probe, device, len(gpus)))


def _bandwidths(device: Device, depth: str) -> Iterator[Wanted]:
    accesses = ("read", "copy", "triad") if depth == "quick" else MIXES
    for access in accesses:
        by_variant: dict[str, list[tuple[Operator, str]]] = {}
        for candidate in stream_candidates(device, "DRAM", access, thorough=depth == "thorough"):
            by_variant.setdefault(VARIANTS.get(candidate[1], ""), []).append(candidate)
        for name, candidates in by_variant.items():
            yield Wanted(f"DRAM {access} {name}".rstrip(), "bandwidth", partial(fastest, device, candidates, "DRAM"))
    if device.backend != "cpu":
        yield from _gpu_caches(device, depth, accesses)
        return
    levels = [level for level in ("L3", "L2", "L1") if cache_capacity(device.facts, level)]
    for level in levels:
        for access in accesses[:2] if depth == "quick" else accesses:
            yield Wanted(
                f"{level} {access}", "bandwidth", partial(fastest, device, stream_candidates(device, level, access), level)
            )
        for access in STORING if depth == "thorough" else ():
            bypassing = [(problem, "non_temporal") for problem, _ in stream_candidates(device, level, access)]
            yield Wanted(f"{level} {access} NT", "bandwidth", partial(fastest, device, bypassing, level))
    if depth == "thorough":
        yield from _uncoalesced(device, levels)


def _gpu_caches(device: Device, depth: str, accesses: tuple[str, ...]) -> Iterator[Wanted]:
    if cache_capacity(device.facts, "L2"):
        for access in accesses[:2] if depth == "quick" else accesses:
            candidates = stream_candidates(device, "L2", access, thorough=depth == "thorough")
            yield Wanted(f"L2 {access}", "bandwidth", partial(fastest, device, candidates, "L2"))
    if cache_capacity(device.facts, "L1"):
        yield Wanted("L1 read", "bandwidth", partial(fastest, device, stream_candidates(device, "L1", "read"), "L1"))
        if depth != "quick":
            problem = stream_problem(device, "L1", "read")
            yield Wanted("L1 read shared memory", "bandwidth", partial(probe, device, problem, "shared", "L1"))
    if depth == "thorough":
        yield from _uncoalesced(device, ["L2"] if cache_capacity(device.facts, "L2") else [])


def _uncoalesced(device: Device, levels: list[str]) -> Iterator[Wanted]:
    """What an access costs that uses part of a line, or one element at a time."""
    for stride in STRIDES if device.backend == "cpu" else GPU_STRIDES:
        problem = stream_problem(device, "DRAM", "read").replace(stride=stride, passes=1)  # a pass is as many walks
        yield Wanted(f"DRAM read stride {stride}", "bandwidth", partial(probe, device, problem, "plain", "DRAM"))
    for level in ("DRAM", *levels):
        found = [(problem, variant) for problem, variant in stream_candidates(device, level, "read") if variant == "plain"]
        scalar = [(problem.replace(isa="scalar"), variant) for problem, variant in found]
        yield Wanted(f"{level} read scalar", "bandwidth", partial(fastest, device, scalar, level), "scalar")


def _computes(device: Device, depth: str) -> Iterator[Wanted]:
    if device.backend == "cuda":
        yield from _units(device, depth)
        return
    for dtype in COMPUTE:
        for isa in fma_isas(device, dtype)[: 1 if depth == "quick" else None] or [""]:
            find = partial(_multiply_adds, device, dtype, isa, "fma")
            yield Wanted(f"{dtype} {isa}".strip(), "compute", find, isa)
        mixed = fma_isas(device, dtype, "fma_add") if depth != "quick" and dtype in ("fp32", "fp64") else []
        for isa in mixed[:1]:
            find = partial(_multiply_adds, device, dtype, isa, "fma_add")
            yield Wanted(f"{dtype} {isa} FMA+ADD", "compute", find, isa)


def _units(device: Device, depth: str) -> Iterator[Wanted]:
    """A GPU's cores by multiply-adds, its tensor units by products of tiles, and what the library makes of these."""
    for dtype in CORE_DTYPES:
        for isa in core_isas(device, dtype):
            yield Wanted(f"{dtype} {isa}".strip(), "compute", partial(_multiply_adds, device, dtype, isa, "fma"), isa)
    for dtype, accumulators in ACCUMULATORS.items():
        variants = tensor_variants(device, dtype)
        for variant in variants[:1] if depth == "quick" else variants:
            for accumulator in accumulators[:1] if depth == "quick" or variant == "wgmma" else accumulators:
                for data in DATA if depth == "thorough" else DATA[:1]:
                    into = "" if accumulator == dtype else f"→{accumulator}"
                    label = f"{dtype}{into} tensor {variant} {data.removeprefix('random')}".strip()
                    yield Wanted(label, "compute", partial(_tiles, device, variant, dtype, accumulator, data))
    yield from _gpu_library(device, depth)
    if depth == "thorough":
        variant = tensor_variants(device, SUSTAINED)[0]
        accumulator = ACCUMULATORS[SUSTAINED][0]
        find = partial(_tiles, device, variant, SUSTAINED, accumulator, "random")
        yield Wanted(f"{SUSTAINED}→{accumulator} tensor {variant} sustained", "compute", find, sustained=True)


def _tiles(device: Device, variant: str, dtype: str, accumulator: str, data: str) -> Probe:
    if reason := device.missing("mma", variant, dtype):
        raise Unsupported(reason)
    return probe(device, tensor_problem(device, variant, dtype, accumulator, data), variant)


def _gpu_library(device: Device, depth: str) -> Iterator[Wanted]:
    """Products of the library in every dtype it has. Operands and result together are larger than the second-level cache."""
    for dtype in Matmul.variants["library"].dtypes["cuda"]:
        sizes = GPU_PRODUCTS[:1] if depth == "quick" else GPU_PRODUCTS
        misaligned = GPU_MISALIGNED if depth == "thorough" or (depth == "standard" and dtype == SUSTAINED) else ()
        wanted = [(size, USUAL_SCALES.get(dtype, {})) for size in (*sizes, *misaligned)]
        wanted += [(GPU_PRODUCTS[0], how) for how in GPU_SCALES.get(dtype, ()) if depth != "quick"]
        for (rows, columns, inner), how in wanted:
            text = "×".join(map(str, (rows, columns, inner) if len({rows, columns, inner}) > 1 else (rows,)))
            problem = Matmul.make(rows=rows, columns=columns, inner=inner, dtype=dtype, **how)
            label = f"{dtype} GEMM {text} {scales_name(how)}".rstrip()
            yield Wanted(label, "compute", partial(_gpu_gemm, device, problem))


def _gpu_gemm(device: Device, problem: Matmul) -> Probe:
    if reason := device.missing("matmul", "library", problem.dtype):
        raise Unsupported(reason)
    seconds = problem.total_flops() / peak_flops_per_s(device, problem.dtype, unit_of(device, problem))
    if seconds > LONGEST_S:
        raise Unsupported(f"one launch would take {seconds:.2g} s or more: {problem.dtype} is too slow here for this size")
    return _not_kept(device, problem, "library")


def _not_kept(device: Device, problem: Operator, variant: str) -> Probe:
    """A probe that brackets nothing, and whose memory, up to gigabytes, goes with it."""
    return probe(device, problem, variant, inputs={})


def _multiply_adds(device: Device, dtype: str, isa: str, pattern: str) -> Probe:
    return probe(device, fma_problem(device, dtype, isa, pattern), "registers")


def _library(device: Device, depth: str) -> Iterator[Wanted]:
    """The library's matrix products, aligned at several sizes and misaligned; and exponentials."""
    for dtype in PRODUCT_DTYPES:
        sizes = PRODUCTS if dtype == "fp32" or depth == "thorough" else PRODUCTS[-1:]
        misaligned = MISALIGNED if depth == "thorough" else MISALIGNED[-1:] if dtype == "fp32" else ()
        for size in (*sizes, *misaligned):
            name = f"{dtype} GEMM{'' if size == GEMM else f' {size}'}"
            problem = Matmul(rows=size, columns=size, inner=size, dtype=dtype)
            yield Wanted(name, "compute", partial(_gemm, device, problem))
        for rows in NARROW:
            problem = Matmul(rows=rows, columns=NARROW_COLUMNS * device.threads, inner=NARROW_INNER, dtype=dtype)
            name = f"{dtype} GEMM {rows}×{problem.columns}×{problem.inner}"
            yield Wanted(name, "compute", partial(_gemm, device, problem))
    exponentials = Exp(elements=EXP_ELEMENTS * device.threads, passes=EXP_PASSES)
    yield Wanted("fp32 exp", "compute", partial(probe, device, exponentials, "vector"))


def _gemm(device: Device, problem: Matmul) -> Probe:
    if device.backend not in problem.variants["library"].dtypes:
        raise Unsupported(f"{device.name} has no library GEMM")
    return probe(device, problem, "library")


def _own(device: Device, depth: str) -> Iterator[Wanted]:
    """What is measured with all of a device."""
    yield from _latencies(device, depth)
    yield from _bandwidths(device, depth)
    yield from _transfers(device, depth)
    yield from _computes(device, depth)


def wanted(device: Device, depth: str = "standard") -> list[tuple[Device, Wanted]]:
    """Every ceiling to measure on `device`, in order; on CPUs with one thread too: the main roofs, or with thorough all of them."""
    all_ = [(device, w) for w in _own(device, depth)]
    all_ += [(device, w) for w in _links(device)]
    if depth != "quick" and device.backend == "cpu":
        all_ += [(device, w) for w in _library(device, depth)]
    single = None if depth == "quick" else _single(device)
    if single is not None:
        if depth == "thorough":
            all_ += [(single, w) for w in (*_bandwidths(single, depth), *_computes(single, depth), *_library(single, "standard"))]
        else:
            all_ += [(single, w) for w in _bandwidths(single, "quick") if w.label in ("DRAM read", "DRAM copy")]
            all_ += [(single, w) for w in _computes(single, "quick")]
    return all_


def wanted_series(device: Device, depth: str = "standard") -> list[WantedSeries]:
    """Every series: the knee of DRAM, or with thorough that of every level, a long load, and curves over size."""
    if depth == "quick":
        return []
    if depth == "standard":
        return [WantedSeries("DRAM read over intensity", partial(intensity_sweep, device, "DRAM"))]
    found = [WantedSeries("DRAM read over intensity, and 12 s of load", partial(intensity_sweep, device, "DRAM", sustained=True))]
    for level in ("L3", "L2", "L1") if device.backend == "cpu" else ("L2",):
        if cache_capacity(device.facts, level):
            found.append(WantedSeries(f"{level} read over intensity", partial(intensity_sweep, device, level)))
    found.append(WantedSeries("DRAM read over intensity, fp64", partial(intensity_sweep, device, "DRAM", dtype="fp64")))
    single = _single(device)
    largest = GIB if device.backend == "cpu" else max(GIB, 16 * cache_capacity(device.facts, "L2"))
    for access in ("read", "copy"):
        found.append(WantedSeries(f"{access} over size", partial(size_curve, device, access, largest=largest)))
    if single is not None:
        found.append(WantedSeries("read over size (1 thread)", partial(size_curve, single, "read")))
    return found
