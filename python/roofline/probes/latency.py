"""Latencies: of loads from every memory level, between cores, and of launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from ..errors import Unsupported
from ..operators import CoreToCore, ForkJoin, PointerChase
from ..operators.pointer_chase import LINE_BYTES
from ..units import MIB, fmt_bytes
from ..words import require_one_of
from .bandwidth import cache_set_bytes, dram_array_bytes, most_array_bytes
from .base import FURTHER, ROOFS, THOROUGH, Probe, Target, Wanted, identified_by, want, words
from .levels import MEMORIES, cache_capacity, last_cache, memory_level

# Hops of one launch: tens of thousands of times its call (some ns), and below 20 ms even where a hop takes 400 ns.
HOPS = {"L1": 200_000, "L2": 100_000, "L3": 50_000, "DRAM": 50_000}
GPU_HOPS, GPU_MEMORY_HOPS = {"L1": 200_000, "L2": 20_000}, 10_000  # of some 20, 150 and 500 ns
GPU_DRAM_BYTES = 256 * MIB
PARTNERS = 8  # threads that exchange a line with thread 0, spread evenly over all
GRAPH_NODES = 256  # of one graph: its own launch is spread over them
# Variants of fork_join that are no floor of an operator: its launch wakes every thread, or is queued behind others.
HOST_CALLS = {"call": "call", "synchronised": "launch and wait", "graph": "graph node"}
HOST_SUMMARIES = {
    "call": "one empty call, without waking any thread; on a GPU what a launch costs the host",
    "synchronised": "an empty launch, and the wait until it is done: what a synchronous call costs",
    "graph": "an empty kernel within a replayed CUDA graph",
}


def chase_problem(target: Target, level: str, pages: str = "huge") -> PointerChase:
    """The latency probe of one level. One core runs, so that its own caches count. Raises Unsupported where it has none.

    L1 and L2: half of one core's. L3: as its bandwidth probe, at most half of one L3. DRAM: an array of the bandwidth probes,
    flushed or far larger than any cache. On a GPU: a quarter of one SM's L1, a quarter of L2, and for DRAM eight times L2.
    """
    if "sms" in target.facts:
        return _gpu_chase_problem(target, level, pages)
    require_one_of("level", level, HOPS)
    if level == "DRAM":
        size = dram_array_bytes(target)
    elif level == "L3":
        size = min(cache_set_bytes(target, "L3"), cache_capacity(target.facts, "L3", 1) // 2)
    else:
        size = cache_capacity(target.facts, level, 1) // 2
    if size < LINE_BYTES:
        raise Unsupported(f"{target.title} has no {level}, or does not say how large it is")
    return PointerChase(size_bytes=size // LINE_BYTES * LINE_BYTES, hops=HOPS[level], pages=pages)


def _gpu_chase_problem(target: Target, level: str, pages: str) -> PointerChase:
    if level not in (*GPU_HOPS, *MEMORIES):
        raise Unsupported(f"a GPU has no {level}")
    memory = level in MEMORIES
    l1, l2 = cache_capacity(target.facts, "L1") // int(target.facts["sms"]), cache_capacity(target.facts, "L2")
    far = min(max(8 * l2, GPU_DRAM_BYTES), most_array_bytes(target))
    size = {"L1": l1 // 4, "L2": l2 // 4}.get(level, far) // LINE_BYTES * LINE_BYTES
    if not size or (memory and not l2):
        raise Unsupported(f"{target.title} does not say how large its {'L2' if memory else level} is")
    if memory and size < 4 * last_cache(target.facts):
        raise Unsupported(f"latency of {level}: {fmt_bytes(size)} is too little beside a cache of {fmt_bytes(l2)}")
    return PointerChase(size_bytes=size, hops=GPU_HOPS.get(level, GPU_MEMORY_HOPS), pages=pages)


def _chase(target: Target, rank: int, level: str, pages: str = "huge") -> Wanted:
    try:
        return want(CHASE, target, rank, (chase_problem(target, level, pages), "dependent"), level=level, kept=False)
    except Unsupported as reason:
        unsized = PointerChase(size_bytes=LINE_BYTES, hops=1, pages=pages)
        return want(CHASE, target, rank, (unsized, "dependent"), level=level, missing=str(reason))


def _chases(target: Target, depth: str) -> Iterator[Wanted]:
    memory = memory_level(target.facts)
    for level in (*GPU_HOPS, memory) if "sms" in target.facts else HOPS:
        if level == memory or cache_capacity(target.facts, level):
            yield _chase(target, FURTHER, level)


def _cpu_chases(target: Target, depth: str) -> Iterator[Wanted]:
    yield from _chases(target, depth)
    yield _chase(target, THOROUGH, "DRAM", "small")


def _pairs(target: Target, depth: str) -> Iterator[Wanted]:
    others = range(1, target.threads)
    step = max(len(others) // PARTNERS, 1)
    for index, other in enumerate(list(others)[::step]):
        yield want(CORE_TO_CORE, target, THOROUGH if index else FURTHER, (CoreToCore(second=other), "ping_pong"))


def _launch(target: Target, depth: str) -> Iterator[Wanted]:
    yield want(LAUNCH, target, ROOFS, (ForkJoin(), "pool"))


def _host_calls(*variants: str) -> Callable[[Target, str], Iterator[Wanted]]:
    def wanted(target: Target, depth: str) -> Iterator[Wanted]:
        for variant in variants:
            calls = ForkJoin(calls=GRAPH_NODES) if variant == "graph" else ForkJoin()
            yield want(HOST_CALL, target, FURTHER, (calls, variant))

    return wanted


LAUNCH = Probe(
    id="launch", kind="latency", operator="fork_join", summary=f"{ForkJoin.summary}: no operator can be shorter", floor=True,
    work=attrgetter("calls"), identity=identified_by(), name=lambda c: "fork-join", wanted={"cpu": _launch, "cuda": _launch},
)  # fmt: skip
HOST_CALL = Probe(
    id="launch.host", kind="latency", operator="fork_join", summary="what a launch costs the host", roof=False,
    work=attrgetter("calls"), identity=identified_by(), name=lambda c: HOST_CALLS.get(c.variant, "call"),
    describe=lambda c: HOST_SUMMARIES[c.variant],
    wanted={"cpu": _host_calls("call"), "cuda": _host_calls("call", "synchronised", "graph")},
)  # fmt: skip
CHASE = Probe(
    id="pointer_chase", kind="latency", operator="pointer_chase", summary=PointerChase.summary,
    work=attrgetter("hops"), identity=identified_by("pages"), wanted={"cpu": _cpu_chases, "cuda": _chases},
    name=lambda c: words(c.level, "latency", "4 KiB pages" if c.params.get("pages") == "small" else ""),
)  # fmt: skip
CORE_TO_CORE = Probe(
    id="core_to_core", kind="latency", operator="core_to_core", summary=CoreToCore.summary, roof=False,
    work=attrgetter("rounds"), identity=identified_by("first", "second"), wanted={"cpu": _pairs},
    name=lambda c: words("core-to-core", "–".join(str(c.params[end]) for end in ("first", "second") if end in c.params)),
)  # fmt: skip
