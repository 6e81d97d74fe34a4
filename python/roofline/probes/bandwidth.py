"""Bandwidth of every memory level, by access; and what strides, scalar loads and shared memory come to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ..dtypes import dtype as dtype_named
from ..errors import Error, Unsupported
from ..operators import MIXES, Operator, Stream
from ..operators.stream import IN_FLIGHT_BYTES
from ..units import GIB, KIB, MIB, fmt_bytes
from .base import ACCESSES, FURTHER, REPORT, ROOFS, THOROUGH, Candidate, Identified, Identity, Probe, Target, Wanted, want, words
from .levels import MEMORIES, cache_capacity, last_cache, memory_level

# A flushed array reads at DRAM's rate from 16 MiB up; larger ones make a launch long against its ends.
DRAM_ARRAY_BYTES = {"quick": 64 * MIB, REPORT: 64 * MIB, "standard": 256 * MIB, "thorough": 512 * MIB}
LEAST_DRAM_ARRAY_BYTES = 16 * MIB
GPU_ARRAY_BYTES = GIB
# Over arrays that no cache keeps. A GPU's loads take 4 to 5 us to start and to end: less than 0.5 % of four passes.
DRAM_PASSES = {"cpu": 1, "cuda": 4}
# One launch in a cache covers about this much per thread: 0.15 ms and more, so that the fork-join (< 1 us) is below 0.5 %.
CACHE_LAUNCH_BYTES = 32 * MIB
# Probes of L1 and L2 fill half: far from the edge, where stacks and page tables already push lines out.
CACHE_SHARE = 0.5
# L3 is shared, with other guests too: a set of so many times all L2 is far above these, and small beside any share of it.
L3_OVER_L2 = 8
LEAST_OVER_NEARER = 1.5  # a smaller set says more of the nearer caches
# A launch in a GPU's cache moves so much for every SM: 0.25 ms and more at the 128 bytes a cycle of an L1; a launch costs 2 us.
GPU_LAUNCH_BYTES = 64 * MIB
# But no more passes than this over a small set: each waits for L2 once, 0.3 us and more, and adds its rounding errors to a sum.
GPU_MOST_PASSES = 1024
# A line may lie in both halves of a GPU's L2, so that more than 40 % need not stay. L1: whole rounds of its probe.
GPU_L2_SHARE, GPU_L1_SHARE, GPU_L1_ROUND = 0.35, 0.25, 16 * KIB
ARRAYS = {"read": 1, "write": 1, "copy": 2, "scale": 2, "add": 3, "triad": 3, "update": 1}
UPDATE = -1.0  # what an update multiplies by: launch after launch, numbers stay as large as they were
SCALAR_CACHES = {"cpu": ("L3", "L2", "L1"), "cuda": ("L2",)}
STORING = ("write", "copy", "triad")  # measured with stores that bypass the caches where the data could stay in one
HALF_LINES = "avx2"  # a Zen 4 core stores these faster to DRAM than whole lines: a triad by 15 %, copies by 3 to 5 %
STRIDES = {"cpu": (2, 4, 8, 16), "cuda": (2, 4, 8, 16, 32)}  # fp32: one element of a line of 64 bytes, of 128 bytes
VARIANTS = {"non_temporal": "NT", "shared": "shared memory"}  # as names say them

LEVEL_SUMMARIES = {
    **dict.fromkeys(MEMORIES, "arrays that no cache holds: they are flushed before each launch, or far larger than any cache"),
    "L3": "arrays that stay in the last cache",
    "L2": "arrays that stay in each core's second cache",
    "L1": "arrays that stay in each core's first cache",
}


# -- sizes ------------------------------------------------------------------------------------------------------------------


def most_array_bytes(target: Target) -> int:
    """Bytes of one array of a probe: a third of the arena, with room for its guard zones."""
    return (target.arena_bytes // 3 - 1) // MIB * MIB


def dram_array_bytes(target: Target, depth: str = "standard") -> int:
    """One of the three arrays of a DRAM probe, within the device's arena. Raises Unsupported where a cache would hold it."""
    most = most_array_bytes(target)
    if target.facts.get("flush"):
        size = min(DRAM_ARRAY_BYTES[depth], most)
        if size < LEAST_DRAM_ARRAY_BYTES:
            least = fmt_bytes(LEAST_DRAM_ARRAY_BYTES)
            raise Unsupported(f"DRAM: {fmt_bytes(most)} of memory for an array is too little; {least} is needed")
        return size
    usual = {"cpu": DRAM_ARRAY_BYTES[depth], "cuda": GPU_ARRAY_BYTES}[target.backend]
    size, cache = min(max(usual, 4 * last_cache(target.facts)), most), last_cache(target.facts)
    if size < 2 * cache:
        raise Unsupported(f"DRAM: {fmt_bytes(most)} of memory for an array is too little beside a cache of {fmt_bytes(cache)}")
    return max(size, MIB)


def cache_set_bytes(target: Target, level: str) -> int:
    """The working set that shows a cache of a CPU. Raises Unsupported where there is none, or where the nearer caches hold it."""
    size = cache_capacity(target.facts, level)
    if not size:
        raise Unsupported(f"{target.title} has no {level}, or does not say how large it is")
    most = most_array_bytes(target)
    if level == "L1":
        return min(int(size * CACHE_SHARE), most)
    near = {"L2": "L1", "L3": "L2"}[level]
    nearer = cache_capacity(target.facts, near)
    wanted = int(size * CACHE_SHARE)
    if level == "L3":
        wanted = min(max(L3_OVER_L2 * nearer, 4 * MIB), size // 4 if size // 4 >= 2 * nearer else size // 2)
    if min(wanted, most) < LEAST_OVER_NEARER * nearer:
        room, whose = (size, "") if wanted < LEAST_OVER_NEARER * nearer else (most, " of memory for an array")
        raise Unsupported(f"{level}: {fmt_bytes(room)}{whose} are too little beside the {fmt_bytes(nearer)} of all {near} together")
    return min(wanted, most)


def stream_problem(target: Target, level: str, access: str, *, dtype: str = "fp32", depth: str = "standard") -> Stream:
    """Arrays that come from `level`, and enough passes for a launch. Raises Unsupported where the level cannot be shown."""
    element = dtype_named(dtype).bits // 8
    if level in MEMORIES:
        size = dram_array_bytes(target, depth)
        passes = DRAM_PASSES[target.backend]
        return _stream(access=access, elements=size // element, passes=passes, dtype=dtype)
    set_bytes, whole, launch = {"cpu": _cpu_set, "cuda": _gpu_set}[target.backend](target, level)
    per_array = max(set_bytes // ARRAYS[access] // whole * whole, whole)
    passes = max(1, launch // (per_array * ARRAYS[access]))
    return _stream(access=access, elements=max(per_array // element, 1), passes=passes, dtype=dtype)


def _stream(*, access: str, **fields: Any) -> Stream:
    made = Stream(access=access, **fields)
    return made.replace(factor=UPDATE) if access == "update" else made


def _cpu_set(target: Target, level: str) -> tuple[int, int, int]:
    """Bytes of the working set, the granule of an array, and what one launch goes over."""
    threads = max(target.threads, 1)
    return cache_set_bytes(target, level), 64 * threads, CACHE_LAUNCH_BYTES * threads


def _gpu_set(target: Target, level: str) -> tuple[int, int, int]:
    sms, capacity = int(target.facts["sms"]), cache_capacity(target.facts, level)
    if not capacity:
        raise Unsupported(f"{target.title} has no {level}, or does not say how large it is")
    if level == "L1":
        size = max(int(capacity / sms * GPU_L1_SHARE) // GPU_L1_ROUND, 1) * GPU_L1_ROUND * sms
    else:
        size = int(capacity * GPU_L2_SHARE)
    return size, KIB, GPU_LAUNCH_BYTES * sms


def size_problem(target: Target, size_bytes: int, access: str = "read") -> Stream:
    """fp32 accesses to a working set of `size_bytes`, over all arrays and threads: a point of the bandwidth curve over size.

    Each array is rounded down to 1 KiB (where it has less: to whole cache lines, where it has less: to one) per thread, of a GPU
    per SM, so that every one has the same work and whole steps of the kernels; `footprint_bytes` says what it came to. As many
    passes as make a launch long against its fork-join, of a GPU at most 1024. Raises Error where size_bytes is not positive or
    `access` is unknown.
    """
    if size_bytes < 1 or access not in ARRAYS:
        raise Error(f"size_problem: needs size_bytes >= 1 and one of {', '.join(ARRAYS)}, got {size_bytes} and {access!r:.80}")
    per_array = size_bytes // ARRAYS[access]
    threads, launch, most = target.threads, CACHE_LAUNCH_BYTES, 2**40
    if "sms" in target.facts:
        threads, launch, most = int(target.facts["sms"]), GPU_LAUNCH_BYTES, GPU_MOST_PASSES
    whole = next((w for w in (1024 * threads, 64 * threads) if w <= per_array), 64 * threads)
    per_array = max(per_array // whole, 1) * whole
    passes = max(1, min(launch * threads // (per_array * ARRAYS[access]), most))
    return _stream(access=access, elements=per_array // 4, passes=passes)


# -- candidates -------------------------------------------------------------------------------------------------------------


def stream_candidates(target: Target, level: str, access: str, *, depth: str = "standard") -> list[Candidate]:
    """Configurations that may serve a bandwidth roof best. Raises Unsupported where the level cannot be shown.

    On CPUs: address streams, prefetches, loads whose values nobody uses, and for writers the kind of store. On GPUs, from memory:
    loads into registers and bulk copies, with every number of bytes in flight, and the driver's copy.
    """
    one = stream_problem(target, level, access, depth=depth)
    return {"cpu": _cpu_candidates, "cuda": _gpu_candidates}[target.backend](target, one, level, depth)


def _cpu_candidates(target: Target, one: Stream, level: str, depth: str) -> list[Candidate]:
    reads, of_core = one.access == "read", level in ("L1", "L2")
    if reads and level == "DRAM":
        plain = [one.replace(streams=count) for count in (1, 4, 8)]
        fetched = [plain[0].replace(prefetch="sparse"), plain[-1].replace(prefetch="nta")]
        return [(problem, "plain") for problem in (*plain, *fetched)]
    variants = ["plain"]
    if reads and not target.missing("stream", "loads", one.dtype):
        variants.append("loads")
    if not reads and not of_core and one.access != "update":  # memory may take results faster than a slow L3
        variants.append("non_temporal")
    counts = (1, 2) if of_core else (1, 2, 4)
    found: list[Candidate] = [(one.replace(streams=count), variant) for variant in variants for count in counts]
    if not reads and level == "DRAM" and "avx512" in target.kernel_isas:
        found += [(one.replace(isa=HALF_LINES), variant) for variant in variants]
    return found


def _gpu_candidates(target: Target, one: Stream, level: str, depth: str) -> list[Candidate]:
    if level == "L1":
        return [(one, "cached")] if one.access == "read" else []
    if level not in MEMORIES:
        return [(one, "plain")]
    # Blocks that stay store more slowly than a block for every tile, which in_flight_bytes 0 is.
    plain = IN_FLIGHT_BYTES if one.access == "read" or depth == "thorough" else IN_FLIGHT_BYTES[:1]
    bulk = () if target.missing("stream", "bulk", one.dtype) or one.access == "write" else IN_FLIGHT_BYTES[1:]
    found: list[Candidate] = [(one.replace(in_flight_bytes=size), "plain") for size in plain]
    found += [(one.replace(in_flight_bytes=size), "bulk") for size in bulk]
    return [*found, (one, "driver")] if one.access == "copy" else found


# -- problems wanted ---------------------------------------------------------------------------------------------------------


def _level(target: Target, rank: int, level: str, access: str, depth: str) -> Iterator[Wanted]:
    """A level's ceiling of one access; of DRAM and L3 one by ordinary stores and one by those that bypass the caches."""
    try:
        candidates = stream_candidates(target, level, access, depth=depth)
    except Unsupported as reason:
        unsized = Stream(access=access, elements=1)
        yield want(STREAM, target, rank, (unsized, "plain"), level=level, missing=str(reason))
        return
    for name in dict.fromkeys(VARIANTS.get(variant, "") for _, variant in candidates):
        alike = [candidate for candidate in candidates if VARIANTS.get(candidate[1], "") == name]
        yield want(STREAM, target, rank, *alike, level=level)


def _cpu_streams(target: Target, depth: str) -> Iterator[Wanted]:
    levels = [level for level in ("L3", "L2", "L1") if cache_capacity(target.facts, level)]
    for level in ("DRAM", *levels):
        for access in MIXES:
            usual = ("copy", "triad", "update") if level == "DRAM" else ("copy", "update")
            rank = ROOFS if access == "read" else ACCESSES if access in usual else FURTHER
            yield from _level(target, rank, level, access, depth)
    for level in (name for name in levels if name != "L3" and depth == "thorough"):
        for access in STORING:
            with suppress(Unsupported):
                bypassing = [(problem, "non_temporal") for problem, _ in stream_candidates(target, level, access)]
                yield want(STREAM, target, THOROUGH, *bypassing, level=level)


def _gpu_streams(target: Target, depth: str) -> Iterator[Wanted]:
    memory = memory_level(target.facts)
    for level in (memory, "L2"):
        for access in MIXES if level == memory or cache_capacity(target.facts, level) else ():
            usual = ("copy", "triad", "update") if level == memory else ("copy", "update")
            rank = ROOFS if access == "read" else ACCESSES if access in usual else FURTHER
            yield from _level(target, rank, level, access, depth)
    if cache_capacity(target.facts, "L1"):
        yield from _level(target, ROOFS, "L1", "read", depth)


def _shared(target: Target, depth: str) -> Iterator[Wanted]:
    if cache_capacity(target.facts, "L1"):
        yield want(SHARED, target, FURTHER, (stream_problem(target, "L1", "read"), "shared"), level="L1")


def _strided(target: Target, depth: str) -> Iterator[Wanted]:
    for stride in STRIDES[target.backend] if depth == "thorough" else ():
        memory = memory_level(target.facts)
        with suppress(Unsupported):  # the plain read says why
            one = stream_problem(target, memory, "read", depth=depth).replace(stride=stride, passes=1)  # a pass is as many walks
            yield want(STRIDED, target, THOROUGH, (one, "plain"), level=memory)


def _scalar(target: Target, depth: str) -> Iterator[Wanted]:
    for level in (
        (memory_level(target.facts), *(level for level in SCALAR_CACHES[target.backend] if cache_capacity(target.facts, level)))
        if depth == "thorough"
        else ()
    ):
        with suppress(Unsupported):
            found = [one for one, variant in stream_candidates(target, level, "read", depth=depth) if variant == "plain"]
            yield want(SCALAR, target, THOROUGH, *((one.replace(isa="scalar"), "plain") for one in found), level=level)


# -- the probes -------------------------------------------------------------------------------------------------------------


def _work(problem: Operator) -> int:
    assert isinstance(problem, Stream)
    return problem.pass_bytes() * problem.passes


def _identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
    assert isinstance(problem, Stream)
    stride = {"stride": problem.stride} if problem.stride > 1 else {}
    scalar = problem.isa if problem.isa == "scalar" else ""  # vectors of every width share one roof
    return Identity(level=level, access=problem.access, variant=variant, isa=scalar, params=stride)


def _name(c: Identified) -> str:
    stride = f"stride {c.params['stride']}" if "stride" in c.params else ""
    return words(c.level, c.access, VARIANTS.get(c.variant, ""), stride, c.isa)


def _described(c: Identified) -> str:
    bypassing = ", with stores that bypass the caches" if c.variant == "non_temporal" else ""
    return f"{c.access} bandwidth over {LEVEL_SUMMARIES.get(c.level, c.level)}{bypassing}"


STREAM = Probe(
    id="stream", kind="bandwidth", operator="stream", summary="bandwidth of a memory level, by access",
    work=_work, identity=_identity, name=_name, describe=_described, wanted={"cpu": _cpu_streams, "cuda": _gpu_streams},
)  # fmt: skip
SHARED = Probe(
    id="stream.shared", kind="bandwidth", operator="stream", summary="bandwidth of shared memory, each SM its own part", roof=False,
    work=_work, identity=_identity, name=_name, wanted={"cuda": _shared},
)  # fmt: skip
STRIDED = Probe(
    id="stream.strided", kind="bandwidth", operator="stream", roof=False,
    summary="one element of every stride a walk: what an uncoalesced access costs",
    work=_work, identity=_identity, name=_name, wanted={"cpu": _strided, "cuda": _strided},
)  # fmt: skip
SCALAR = Probe(
    id="stream.scalar", kind="bandwidth", operator="stream", summary="one element at a time: what code without vectors gets",
    roof=False, work=_work, identity=_identity, name=_name, wanted={"cpu": _scalar, "cuda": _scalar},
)  # fmt: skip
