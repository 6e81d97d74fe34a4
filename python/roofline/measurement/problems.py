"""Which problems show a roof: the probe of a level, an access, an instruction set, sized for a device."""

from __future__ import annotations

import math

from ..cost import dtype as dtype_named
from ..errors import Error, Unsupported
from ..machine import cache_capacity
from ..operators import Fma, MixedIntensity, Operator, PointerChase, Stream
from ..operators.pointer_chase import LINE_BYTES
from ..operators.stream import IN_FLIGHT_BYTES
from ..units import KIB, MIB, fmt_bytes
from .devices import Device, build_info
from .units import launch_steps

# DRAM probes use arrays of at least this (and four times the last-level cache), so that nothing survives between passes.
DRAM_ARRAY_BYTES = 256 * MIB
GPU_ARRAY_BYTES = 1024 * MIB
# Of a launch, over arrays that no cache keeps: the 4 to 5 us in which a GPU's loads start and end are then below 0.5 % of it.
GPU_DRAM_PASSES = 4
# One launch in a cache covers about this much per thread: 0.15 ms and more, so that the fork-join (< 1 us) is below 0.5 %.
CACHE_LAUNCH_BYTES = 32 * MIB
# Cache probes fill this share of a level: far from the edge, where stacks and page tables already push lines out, and far above
# the level below. L3 less, since it is shared beyond the threads that measure.
CACHE_SHARE = {"L1": 0.5, "L2": 0.5, "L3": 0.25}
# Of a GPU a launch in a cache moves so much for every SM: 0.25 ms and more at the 128 bytes a cycle of an L1; a launch costs 2 us.
GPU_LAUNCH_BYTES = 64 * MIB
# But no more passes than this over a small set: each waits for L2 once, 0.3 us and more, and adds its rounding errors to a sum.
GPU_MOST_PASSES = 1024
# Of the L2 of a GPU: a line may lie in both its halves, so that more than 40 % need not stay. Of an L1: whole rounds of its probe.
GPU_L2_SHARE, GPU_L1_SHARE, GPU_L1_ROUND = 0.35, 0.25, 16 * KIB
ARRAYS = {"read": 1, "write": 1, "copy": 2, "scale": 2, "add": 3, "triad": 3}

# Whole blocks of every set: 12 and 15 registers of up to 32 and 16 lanes, 24 of up to 8; AMX: four tiles of 256.
CHAINS_PER_THREAD = 3840
AMX_CHAINS_PER_THREAD = 16384
FMA_STEPS = 4096  # per chain: 0.1 to 3 ms a launch; whole rounds of every kernel


def dram_array_bytes(device: Device) -> int:
    """Size of one array of a DRAM probe; less where memory is short."""
    cache = int(device.facts.get("l3_bytes") or device.facts.get("l2_bytes") or 0)
    memory = int(device.facts.get("memory_bytes") or 2**33)
    least = DRAM_ARRAY_BYTES if device.backend == "cpu" else GPU_ARRAY_BYTES
    return max(min(max(least, 4 * cache), memory // 12), MIB)


def stream_problem(device: Device, level: str, access: str, streams: int = 1, dtype: str = "fp32") -> Stream:
    """The probe of one level: arrays that fill the level's share, and enough passes for a launch."""
    element = int(dtype_named(dtype).bits) // 8
    if level == "DRAM":
        passes = 1 if device.backend == "cpu" else GPU_DRAM_PASSES
        return Stream(access=access, elements=dram_array_bytes(device) // element, passes=passes, streams=streams, dtype=dtype)
    if device.backend != "cpu":
        return _gpu_stream_problem(device, level, access, streams, dtype)
    size = cache_capacity(device.facts, level) * CACHE_SHARE[level]
    whole = 64 * max(device.threads, 1)  # whole cache lines for every thread
    per_array = max(int(size) // ARRAYS[access] // whole * whole, whole)
    passes = max(1, CACHE_LAUNCH_BYTES * max(device.threads, 1) // max(per_array * ARRAYS[access], 1))
    return Stream(access=access, elements=max(per_array // element, 1), passes=passes, streams=streams, dtype=dtype)


def _gpu_stream_problem(device: Device, level: str, access: str, streams: int, dtype: str) -> Stream:
    """As `stream_problem`: a third of L2, or (of `cached` and `shared`) a quarter of every L1. Raises Unsupported without such."""
    sms, capacity = int(device.facts["sms"]), cache_capacity(device.facts, level)
    if not capacity:
        raise Unsupported(f"{device.title} has no {level}, or does not say how large it is")
    if level == "L1":
        size = max(int(capacity / sms * GPU_L1_SHARE) // GPU_L1_ROUND, 1) * GPU_L1_ROUND * sms
    else:
        size = int(capacity * GPU_L2_SHARE)
    element = int(dtype_named(dtype).bits) // 8
    per_array = max(size // ARRAYS[access] // KIB, 1) * KIB
    passes = max(1, GPU_LAUNCH_BYTES * sms // (per_array * ARRAYS[access]))
    return Stream(access=access, elements=per_array // element, passes=passes, streams=streams, dtype=dtype)


def size_problem(device: Device, size_bytes: int, access: str = "read") -> Stream:
    """fp32 accesses to a working set of `size_bytes`, over all arrays and threads: a point of the bandwidth curve over size.

    Each array is rounded down to 1 KiB (where it has less: to whole cache lines, where it has less: to one) per thread, of a GPU
    per SM, so that every one has the same work and whole steps of the kernels; `footprint_bytes` says what it came to. As many
    passes as make a launch long against its fork-join, of a GPU at most 1024. Raises Error where size_bytes is not positive or
    `access` is unknown.
    """
    if size_bytes < 1 or access not in ARRAYS:
        raise Error(f"size_problem: needs size_bytes >= 1 and one of {', '.join(ARRAYS)}, got {size_bytes} and {access!r:.80}")
    per_array = size_bytes // ARRAYS[access]
    threads, launch, most = device.threads, CACHE_LAUNCH_BYTES, 2**40
    if device.backend != "cpu":
        threads, launch, most = int(device.facts["sms"]), GPU_LAUNCH_BYTES, GPU_MOST_PASSES
    whole = next((w for w in (1024 * threads, 64 * threads) if w <= per_array), 64 * threads)
    per_array = max(per_array // whole, 1) * whole
    passes = max(1, min(launch * threads // (per_array * ARRAYS[access]), most))
    return Stream(access=access, elements=per_array // 4, passes=passes)


# Hops of one launch: tens of thousands of times its call (some ns), and below 20 ms even where a hop takes 400 ns.
HOPS = {"L1": 200_000, "L2": 100_000, "L3": 50_000, "DRAM": 50_000}
GPU_HOPS = {"L1": 200_000, "L2": 20_000, "DRAM": 10_000}  # of some 20, 150 and 500 ns


def chase_problem(device: Device, level: str, pages: str = "huge") -> PointerChase:
    """The latency probe of one level. One core runs, so that its own caches count. Raises Unsupported where it has none.

    L1 and L2: half of them. L3: eight times L2, or a quarter of L3 if that is less, but at least twice L2. DRAM: eight times L3
    and at least 256 MiB, so that what a lap leaves in the caches is little of the next one; less where memory is short. Of a GPU: a
    quarter of one SM's L1, a quarter of L2, and for DRAM eight times L2.
    """
    if device.backend != "cpu":
        return _gpu_chase_problem(device, level, pages)
    if level not in HOPS:
        raise Error(f"level must be one of {', '.join(HOPS)}, got {level!r:.80}")
    l1, l2, l3 = (int(device.facts.get(f"{name}_bytes") or 0) for name in ("l1", "l2", "l3"))
    last = l3 or l2
    if level == "DRAM":
        size = min(max(8 * last, DRAM_ARRAY_BYTES), int(device.facts.get("memory_bytes") or 2**33) // 8)
        if size < 4 * last:
            raise Unsupported(
                f"latency of DRAM: an eighth of memory, {fmt_bytes(size)}, is too little beside a cache of {fmt_bytes(last)}"
            )
    else:
        size = {"L1": l1 // 2, "L2": l2 // 2, "L3": max(2 * l2, min(8 * l2, l3 // 4)) if l3 else 0}[level]
    if size < LINE_BYTES:
        raise Unsupported(f"{device.title} has no {level}, or does not say how large it is")
    return PointerChase(size_bytes=size // LINE_BYTES * LINE_BYTES, hops=HOPS[level], pages=pages)


def _gpu_chase_problem(device: Device, level: str, pages: str) -> PointerChase:
    if level not in GPU_HOPS:
        raise Unsupported(f"a GPU has no {level}")
    l1, l2 = cache_capacity(device.facts, "L1") // int(device.facts["sms"]), cache_capacity(device.facts, "L2")
    last = min(max(8 * l2, DRAM_ARRAY_BYTES), int(device.facts.get("memory_bytes") or 2**33) // 8)
    size = {"L1": l1 // 4, "L2": l2 // 4, "DRAM": last}[level] // LINE_BYTES * LINE_BYTES
    if not size or (level == "DRAM" and not l2):
        raise Unsupported(f"{device.title} does not say how large its {'L2' if level == 'DRAM' else level} is")
    return PointerChase(size_bytes=size, hops=GPU_HOPS[level], pages=pages)


_VECTORS = ("scalar", "avx2", "avx512", "neon")
_ISAS_OF = {
    "fp32": _VECTORS,
    "fp64": _VECTORS,
    "fp16": ("avx512_fp16", "neon_dotprod_fp16"),
    "bf16": ("avx512_bf16", "amx", "neon_bf16_i8mm"),
    "int8": ("avx512_bf16", "amx", "neon_dotprod_fp16", "neon_bf16_i8mm"),
}


def fma_isas(device: Device, dtype: str, pattern: str = "fma") -> list[str]:
    """Instruction sets of this CPU with a multiply-add of this dtype, widest first; none on other devices."""
    built = str(build_info()["isas"]).split()
    usable = [isa for isa in str(device.facts.get("isas", "")).split(",") if isa in built]
    able = _ISAS_OF.get(dtype, ()) if pattern == "fma" else _VECTORS[1:]
    return [isa for isa in usable[::-1] if isa in able]


def fma_problem(device: Device, dtype: str, isa: str = "", pattern: str = "fma") -> Fma:
    """The probe of a dtype on one instruction set (empty: the widest there is). Raises Unsupported where there is none."""
    if dtype not in _ISAS_OF or (pattern == "fma_add" and dtype not in ("fp32", "fp64")):
        raise Unsupported(f"there is no multiply-add probe of {dtype}{' with additions' if pattern == 'fma_add' else ''}")
    isa = isa or next(iter(fma_isas(device, dtype, pattern)), "")  # by name, so that brackets pool with the ceiling
    if device.backend == "cpu":
        chains = (AMX_CHAINS_PER_THREAD if isa == "amx" else CHAINS_PER_THREAD) * device.threads
        steps = FMA_STEPS
    else:  # every thread a multiprocessor can hold, with eight independent chains each, or eight pairs
        chains = 8 * int(device.facts["sms"]) * int(device.facts["threads_per_sm"]) * (1 + (dtype == "fp16" or isa == "f32x2"))
        steps = launch_steps(device, 2 * chains, dtype, "core")
    return Fma(chains=chains, steps=steps, isa=isa, pattern=pattern, dtype=dtype)


# Whole tiles of mixed_intensity on every instruction set, in bytes per thread: where every line is computed on, and where not.
MIXED_TILE_BYTES = (1280, 4096)
MIXED_LAUNCH_S = 0.5e-3
# FLOP/s and bytes/s per thread that are taken where the roofs are not known; a launch then lasts 0.2 to 2 ms on any core of today.
GUESSED_FLOPS_PER_S = {"fp32": 120e9, "fp64": 60e9}
GUESSED_BYTES_PER_S = 60e9
# The same per SM: 128 lanes at 1.5 GHz, a tenth of them of fp64, and more than DRAM gives; and whole tiles of four blocks.
GPU_GUESSED_FLOPS_PER_S = {"fp32": 400e9, "fp64": 40e9}
GPU_GUESSED_BYTES_PER_S = 40e9
GPU_MIXED_TILE_BYTES = 64 * KIB


def mixed_intensity_grid(
    device: Device, level: str, dtype: str = "fp32", *, flops_per_s: float = 0.0, bytes_per_s: float = 0.0, streams: int = 1
) -> list[MixedIntensity]:
    """Problems of one level from 1/16 to 256 FLOP/byte in rising order, three an octave; about thirty.

    flops_per_s, bytes_per_s: the roofs of all threads, if known: then four an octave within a factor of two of their knee and two
    elsewhere, and launches of 0.5 ms in caches. Measure them in random order, so that drift is not intensity.
    """
    element = int(dtype_named(dtype).bits) // 8
    on_cpu = device.backend == "cpu"
    units = device.threads if on_cpu else int(device.facts["sms"])
    compute = flops_per_s or (GUESSED_FLOPS_PER_S if on_cpu else GPU_GUESSED_FLOPS_PER_S)[dtype] * units
    bandwidth = bytes_per_s or (GUESSED_BYTES_PER_S if on_cpu else GPU_GUESSED_BYTES_PER_S) * units
    targets = [2.0 ** (third / 3) for third in range(-12, 25)]
    if flops_per_s and bytes_per_s:
        knee = flops_per_s / bytes_per_s
        targets = [2.0 ** (half / 2) for half in range(-8, 17) if not 0.5 < 2.0 ** (half / 2) / knee < 2]
        targets += [knee * 2.0 ** (quarter / 4) for quarter in range(-4, 5)]
    # Below one multiply-add per element, one or three of them on every second, fourth or eighth line.
    choices = [(adds, every) for adds in (1, 3) for every in (8, 4, 2)] + [(adds, 1) for adds in range(1, 128 * element + 1)]
    intensity = {choice: 2 * choice[0] / element / choice[1] for choice in choices}
    wanted = (target for target in targets if 1 / 16 <= target <= 256)
    chosen = {min(choices, key=lambda choice: abs(math.log(intensity[choice] / target))) for target in wanted}
    size = stream_problem(device, level, "read", dtype=dtype).elements * element
    found = []
    for multiply_adds, every in sorted(chosen, key=lambda choice: intensity[choice]):
        whole = (MIXED_TILE_BYTES[every > 1] if on_cpu else GPU_MIXED_TILE_BYTES) * units
        size_bytes = max(size // whole, 1) * whole
        pass_s = max(size_bytes / bandwidth, size_bytes * intensity[multiply_adds, every] / compute)
        passes = 1 if level == "DRAM" else max(1, round(MIXED_LAUNCH_S / pass_s))
        sized = MixedIntensity(elements=size_bytes // element, passes=passes, streams=streams, dtype=dtype)
        found.append(sized.replace(multiply_adds=multiply_adds, every=every))
    return found


def _gpu_stream_candidates(
    device: Device, level: str, access: str, *, in_place: bool, thorough: bool
) -> list[tuple[Operator, str]]:
    problem = stream_problem(device, level, access)
    if level == "L1":
        return [(problem, "cached")] if access == "read" else []
    variants = ["plain"] if device.missing("stream", "bulk", "fp32") else ["plain", "bulk"]
    if level == "DRAM" and access != "read" and not in_place:
        variants.append("non_temporal")
    return [
        (problem.replace(in_flight_bytes=size), variant)
        for variant in variants
        for size in (IN_FLIGHT_BYTES if thorough else IN_FLIGHT_BYTES[:1])
    ]


def stream_candidates(
    device: Device, level: str, access: str, *, in_place: bool = False, thorough: bool = False
) -> list[tuple[Operator, str]]:
    """Configurations that may serve a bandwidth roof best: address streams, a prefetch, and for writers the kind of store.

    Of a GPU: loads into registers or bulk copies; with `thorough` every number of bytes in flight of each.
    """
    if device.backend != "cpu":
        return _gpu_stream_candidates(device, level, access, in_place=in_place, thorough=thorough)
    if level != "DRAM":
        return [(stream_problem(device, level, access, count), "plain") for count in (1, 2)]
    if access == "read":
        plain = [stream_problem(device, level, access, count) for count in (1, 2, 4, 8)]
        return [(problem, "plain") for problem in (*plain, plain[-1].replace(prefetch="nta"))]
    variants = ["plain"] if in_place else ["plain", "non_temporal"]
    return [(stream_problem(device, level, access, count), variant) for variant in variants for count in (1, 2, 4)]
