"""Bytes at every memory level of a tiled matrix product or attention, from the tiles alone: no counters and no machine.

A tile is the part of a problem that is worked on at a time, and kept nearer to the cores than a memory level. What it needs comes
from that level once for each tile, whatever the tile before it had: the next one may run elsewhere.

    c = a b by rows x columns of c:  a ceil(N / columns) + b ceil(M / rows) + c;  c (2 ceil(K / inner) - 1) where sums leave it
    tiled attention by queries:      q + out + (k + v) blocks of queries (causal: as far as a block's last query sees)
    naive attention:                 q blocks of keys + out + (k + v) blocks of queries + 4 scores (each written or read, fp32)

Sources: Goto and van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34(3), 2008; Dao, FlashAttention-2,
2023; Yang, Kurth and Williams, Hierarchical roofline analysis for GPUs, CCPE 32, 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .counts import ceil_div
from .errors import Error
from .machine import LEVELS
from .operators import Attention, Operator
from .tensor_spec import size_bytes
from .words import arguments_checked, require_one_of

_SIDES: Mapping[str, tuple[str, ...]] = {
    "matmul": ("rows", "columns", "inner"),
    "bmm": ("rows", "columns", "inner"),
    "quantized_matmul": ("rows", "columns", "inner"),
    "attention": ("queries", "keys", "heads"),
}


@arguments_checked
def level_bytes(problem: Operator, tiles: Mapping[str, Mapping[str, int]], *, variant: str = "tiled") -> dict[str, dict[str, int]]:
    """Bytes that each level serves, by term, fastest level first: {"L2": {"a": ..., "b": ..., "c": ...}, "DRAM": ...}.

    `level_bytes(Matmul(rows=512, columns=512, inner=512), {"L2": {"rows": 64, "columns": 64}})`.

    matmul, bmm, quantized_matmul: rows and columns of c, which keeps its sums; inner, where they leave the tile every so often.
    attention: queries and heads in a block, of one KV head (without heads: queries of all its heads in one run, as decode kernels
    and tiled on CPUs have them); keys, which come in whole blocks (left out: as many as are seen, and q stays).

    Args:
        tiles: of each level of interest the tile kept nearer than it: the tile in registers for "L1" (a GPU's shared memory), a
            thread block's for "L2", for "DRAM" what the last cache holds. A side that is left out is whole, and {} is the
            compulsory bytes.
        variant: "tiled", whose scores stay nearer than every level, or "naive", which passes them through all.

    Raises:
        Error: for other operators, levels and sides, and for tiles that do not nest: a nearer one is never larger.
    """
    if problem.name not in _SIDES:
        raise Error(f"{problem.name}: its tiles are not known; level_bytes does {', '.join(_SIDES)}")
    if variant not in ("naive", "tiled"):
        raise Error(f"variant must be naive or tiled, got {variant!r:.80}")
    for level in tiles:
        require_one_of("level", level, LEVELS)
    ordered = {level: tiles[level] for level in LEVELS if level in tiles}
    nearer: Mapping[str, int] = {}
    for level, tile in ordered.items():
        for side, size in tile.items():
            if side not in _SIDES[problem.name]:
                raise Error(f"{problem.name}: a tile has {', '.join(_SIDES[problem.name])}, not {side!r:.80}")
            if type(size) is not int or size < 1:
                raise Error(f"{problem.name}: {side} of the tile for {level} must be a whole number from 1, got {size!r:.80}")
            inside = nearer.get(side, 0 if level == next(iter(ordered)) or side in ("keys", "heads") else math.inf)
            if inside > size:
                least = "all" if inside == math.inf else inside
                raise Error(f"{problem.name}: {side} of the tile for {level} are {size}, but those nearer the cores {least}")
        nearer = tile
    if isinstance(problem, Attention):
        return {level: _attention(problem, tile, variant) for level, tile in ordered.items()}
    return {level: _product(problem, tile) for level, tile in ordered.items()}


def _product(problem: Operator, tile: Mapping[str, int]) -> dict[str, int]:
    rows, columns, inner = (ceil_div(getattr(problem, side), tile.get(side, getattr(problem, side))) for side in _SIDES["matmul"])
    found = {t.name: t.moved_bytes * (columns if t.name.startswith("a") else rows) for t in problem.inputs()}  # a, a_scale
    [c] = problem.outputs()
    sums = {"sums written and read again": 2 * (inner - 1) * c.moved_bytes} if inner > 1 else {}
    return {**found, c.name: c.moved_bytes, **sums}


def _attention(problem: Attention, tile: Mapping[str, int], variant: str) -> dict[str, int]:
    group, keys = problem.heads // problem.kv_heads, tile.get("keys")
    packed = "heads" not in tile
    run = group * problem.seq_q if packed else problem.seq_q  # rows of queries that blocks divide
    first = np.arange(0, run, tile.get("queries", run))
    end = np.minimum(first + tile.get("queries", run), run)
    seen = np.full(len(first), problem.seq_kv)
    if problem.causal:
        last = (end - 1) % problem.seq_q
        ends_head = (end - 1) // problem.seq_q > first // problem.seq_q  # and holds the last query of the head before
        seen = np.where(ends_head, problem.seq_kv, last + problem.seq_kv - problem.seq_q + 1)
    blocks = -(-seen // keys) if keys else np.ones_like(seen)  # of keys
    read = np.minimum(blocks * keys, problem.seq_kv) if keys else seen
    passes = 1 if packed else ceil_div(group, tile["heads"])  # over the queries, each for some heads
    row = size_bytes((problem.head_dim,), problem.dtype)
    every = problem.batch * problem.kv_heads * row
    once = every * group * problem.seq_q  # q, and out
    walked = every * passes * int(read.sum())
    sums = {tensor.name: tensor.moved_bytes for tensor in problem.outputs()[1:]}
    if variant == "tiled":
        return {"q": once, "k": walked, "v": walked, "out": once, **sums}
    again = every * int(((end - first) * blocks).sum()) * (1 if packed else group)
    return {"q": again, "k": walked, "v": walked, "out": once, **sums, "scores": 4 * size_bytes((problem.pairs(),), "fp32")}
