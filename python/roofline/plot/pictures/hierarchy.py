"""One problem at every memory level: the bytes that each level serves, naive and tiled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Unpack

from ...errors import Error
from ...machine import LEVELS, MEMORIES, Given, Machine, machine_of, memory_level
from ...model import machine_roofs
from ...operators import Attention, Operator, count
from ...results import Measurement
from ...tensor_spec import size_bytes
from ...tiling import level_bytes
from ...transformer import TransformerConfig
from ...units import fmt_bytes, fmt_number
from .. import style
from ..asked import Measured, Work, named, results_of, work_of
from ..charts import Dot, Line
from ..figure import Look, Panels, picture
from ..roofs import Roof, dashes_of, machine_notes, roofs_chart
from .compute_ceilings import MOST

# Bytes that keep a tile nearer than the level: what registers hold for L1, then each cache. For a machine that reports none.
NEARER: Mapping[str, Mapping[str, int]] = {
    "cpu": {"L1": 2 << 10, "L2": 32 << 10, "L3": 1 << 20},
    "cuda": {"L1": 64 << 10, "L2": 128 << 10},
}
FACTS = {"L2": "l1_bytes", "L3": "l2_bytes", **dict.fromkeys(MEMORIES, "l3_bytes")}  # whose cache is nearer than a level


def tiles_of(machine: Machine, problem: Operator, levels: list[str]) -> dict[str, dict[str, int]]:
    """A square tile for each level that half of the cache nearer than it holds, in powers of two."""
    kind = "cpu" if machine.device == "cpu" else "cuda"
    each = float(size_bytes((1,), problem.compute()[0]))
    tiles, least = {}, 1
    for level in levels:
        fact = "l2_bytes" if kind == "cuda" and level in MEMORIES else FACTS.get(level, "")
        room = float(machine.facts.get(fact) or NEARER[kind].get(level, 32 << 20)) / 2
        if isinstance(problem, Attention):
            d = problem.head_dim
            side = math.sqrt(d * d + room / each) - d  # 2 side d + side² numbers
            limits = {"queries": problem.seq_q * (problem.heads // problem.kv_heads), "keys": problem.seq_kv}
        else:
            side = math.sqrt(room / each)
            limits = {"rows": int(getattr(problem, "rows", 1)), "columns": int(getattr(problem, "columns", 1))}
        least = max(least, 1 << max(int(math.log2(max(side, 1.0))), 0))
        tiles[level] = {name: min(least, limit) for name, limit in limits.items()}
    return tiles


@picture("one problem at every memory level: what tiling saves of each level's bytes", group="model",
         example="plot.hierarchy(machine, Attention(seq_q=2048, seq_kv=2048))")  # fmt: skip
def hierarchy(
    machine: Given, work: Work | None = None, *, tiles: Mapping[str, Mapping[str, int]] | None = None,
    results: Measured | None = None,
    **look: Unpack[Look],
) -> Panels:  # fmt: skip
    """A product or attention with a dot at each memory level: the same FLOPs over the bytes that the level serves, naive and tiled.

    The dots of a kernel lie at one height: what all levels and the arithmetic allow,
    or what was measured. Bytes come from the tiles
    (`roofline.level_bytes`), of profiled kernels from their counters.

    Args:
        machine: one, with a bandwidth for each level that is to be seen.
        work: matmul, bmm, quantized_matmul or attention; None: only what was profiled.
        tiles: of each level the tile kept nearer than it (default: squares that half of the nearer cache holds; naive: 1 × 1).
        results: measurements of the problem, or kernels imported from `ncu`, whose rate and bytes at L1, L2 and DRAM are those of
            its counters (L1 without shared memory).

    element of the records: "dot": variant, level, bytes, flops_per_byte, flops_per_s; and as of `workloads`.
    """
    on = machine_of(machine)
    profiled: list[Any] = [m for m in results_of(results) if m.variant == "ncu" and m.time_s and m.total_flops and m.total_bytes]
    levels = [level for level in LEVELS if level in on.levels()]
    if work is None:
        if not profiled:
            raise Error("hierarchy needs a problem, such as attention or matmul, or results with kernels that ncu profiled")
        name, said = "profiled kernels", []
        arithmetic = {dtype: on.compute(dtype) for dtype in dict.fromkeys(m.dtype for m in profiled)}
        flat = [(c.label, c.value, dtype) for dtype, c in arithmetic.items()]
        levels = [level for level in levels if any(level in _served(m, on) for m in profiled)]
    else:
        given = work_of(work)
        if isinstance(given, TransformerConfig):
            raise Error("hierarchy takes one problem, such as attention or matmul, not a model")
        ((name, problem),) = named(given).items()
        compute = machine_roofs(on, problem)
        flat = [(compute.labels.get("compute", "compute"), compute.compute_flops_per_s, problem.compute()[0])]
        shown = tiles if tiles is not None else tiles_of(on, problem, levels)
        levels = [level for level in levels if level in shown]
        if not levels:
            raise Error(f"{on.name} has a bandwidth of none of the levels of these tiles: {', '.join(shown)}")
        kept = "; ".join(f"{level} {' × '.join(map(str, shown[level].values()))}" for level in levels)
        work_said = f"{fmt_number(problem.total_flops() / 1e9)} GFLOP, {fmt_bytes(float(count(problem).bytes))} compulsory"
        said = [f"{name}: {work_said}; tiles kept nearer than a level: {kept}",
                "hollow: what the levels and the arithmetic allow together; filled: measured"]  # fmt: skip
    roofs = []
    for level in levels:
        c = on.bandwidth(level)
        roofs.append(Roof(label=c.label, rate=c.value, slope=True, colour=level, dashes=dashes_of(c), width=1.4))
    fastest = max((roof.rate for roof in roofs), default=on.bandwidth().value)
    roofs += [Roof(label=label, rate=rate, slope=False, start=rate / fastest, colour=style.dtype_colour(dtype),
                   dashes=roofs[0].dashes if roofs else "-") for label, rate, dtype in flat]  # fmt: skip
    dots: list[Dot] = []
    paths: list[Line] = []

    def add(variant: str, flops: float, moved: Mapping[str, float], y: float, measured: bool) -> None:
        colour, marker, dashes = style.series(len(paths))
        for level, served in moved.items():
            record = {"variant": variant, "level": level, "bytes": served, "measured": measured}
            text = f"{variant} {level}" if level in (next(iter(moved)), list(moved)[-1]) or len(moved) < MOST else ""
            dots.append(Dot(name=text, x=flops / served, y=y, marker=marker, colour=colour, hollow=not measured,
                            text=f"{fmt_number(flops / served)}", record=record))  # fmt: skip
        points = [(dot.x, dot.y) for dot in dots[-len(moved) :]]
        paths.append(Line(label=variant, points=points, colour=colour, dashes=dashes, width=0.9, gid="path"))

    if work is not None:
        rates, flops = _measured(problem, results), float(problem.total_flops())
        attends = isinstance(problem, Attention)
        single = {level: ({"rows": 1, "columns": 1} if not attends else dict(shown[level])) for level in levels}
        for variant, chosen in (("naive", single), ("tiled", shown)):
            own = level_bytes(problem, {level: chosen[level] for level in levels}, variant=variant if attends else "tiled")
            moved = {level: float(sum(terms.values())) for level, terms in own.items()}
            slowest = max([flops / compute.compute_flops_per_s, *(b / on.bandwidth(level).value for level, b in moved.items())])
            add(variant, flops, moved, rates.get(variant, flops / slowest), variant in rates)
    for m in profiled:
        add(m.operator, float(m.total_flops), _served(m, on), float(m.total_flops / m.time_s), True)
    if profiled:
        said.append("kernels under ncu: bytes that its counters saw at each level, L1 without shared memory")
    title = f"{name[0].upper()}{name[1:]} at every memory level of {on.name}"
    yield roofs_chart(title, roofs, dots, paths=paths, notes=[*machine_notes([on]), *said], named=12)


def _measured(problem: Operator, results: Measured | None) -> dict[str, float]:
    """FLOP/s of each variant of the problem, the fastest; of a product every variant but naive is tiled."""
    found: dict[str, float] = {}
    for m in results_of(results):
        if m.operator == problem.name and dict(m.problem) == problem.to_dict() and m.flops_per_s and m.variant != "ncu":
            name = "naive" if m.variant == "naive" else "tiled"
            found[name] = max(found.get(name, 0.0), m.flops_per_s)
    return found


def _served(m: Measurement, on: Machine) -> dict[str, float]:
    """Bytes that each level served, nearest first; of a profile without cache counters those of the memory alone."""
    caches = {level: float(m.plan.get(f"{level.lower()}_served_bytes", 0)) for level in ("L1", "L2")}
    return {level: served for level, served in caches.items() if served} | {memory_level(on.facts): float(m.total_bytes)}
