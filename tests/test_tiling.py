"""Bytes of tiled kernels at every level, held against caches simulated access by access, and against the least there is."""

import itertools
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tables import refused

from roofline.errors import Error
from roofline.operators import Attention, Bmm, Matmul, Operator, QuantizedMatmul, Relu
from roofline.tiling import level_bytes

Access = tuple[str, tuple[int, ...]]  # a tensor, and an element of it


def misses(accesses: Iterator[Access | None], capacity: int) -> Counter[str]:
    """Elements that a cache of `capacity` elements, least recently used out first, has to fetch, by tensor. None: it is emptied."""
    held: OrderedDict[Access, None] = OrderedDict()
    found: Counter[str] = Counter()
    for access in accesses:
        if access is None:
            held.clear()
            continue
        if access in held:
            held.move_to_end(access)
            continue
        found[access[0]] += 1
        held[access] = None
        if len(held) > capacity:
            held.popitem(last=False)
    return found


def tiles(size: int, tile: int) -> Iterator[range]:
    return (range(begin, min(begin + tile, size)) for begin in range(0, size, tile))


# -- matrix products ------------------------------------------------------------------------------------------------------


def products(m: int, n: int, k: int, rows: int, columns: int, inner: int) -> Iterator[Access | None]:
    """What a blocked product reads and writes, in order: inner slices, tiles of c in each, and multiply-adds in each tile."""
    for piece in tiles(k, inner):
        for block, strip in itertools.product(tiles(m, rows), tiles(n, columns)):
            yield None  # another core, or thread block, takes the tile
            for x in piece:
                for i, j in itertools.product(block, strip):
                    yield "a", (i, x)
                    yield "b", (x, j)
                    yield f"c{piece.start}", (i, j)


@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "columns", "inner"),
    [
        (12, 12, 12, 4, 4, 12), (12, 8, 10, 4, 2, 10), (13, 11, 7, 4, 3, 7), (9, 9, 9, 9, 9, 9), (13, 11, 7, 4, 3, 3),
        (6, 5, 8, 6, 5, 2),
    ],
)  # fmt: skip
def test_products_in_a_simulated_cache(m: int, n: int, k: int, rows: int, columns: int, inner: int) -> None:
    # Room for a tile of c, and for a column of a and a row of b, twice: the last ones are younger than some of c.
    counted = misses(products(m, n, k, rows, columns, inner), rows * columns + 2 * (rows + columns))
    tile = {"rows": rows, "columns": columns, "inner": inner}
    found = level_bytes(Matmul(rows=m, columns=n, inner=k), {"L2": tile})["L2"]
    assert (found["a"], found["b"]) == (4 * counted["a"], 4 * counted["b"])
    # Each slice fetches c for itself; the first starts from zeros, and each writes it.
    slices = sum(count for name, count in counted.items() if name.startswith("c"))
    assert found["c"] + found.get("sums written and read again", 0) == 4 * (2 * slices - m * n)


def test_a_shared_cache_holds_what_runs_together() -> None:
    """Two thread blocks by two, step by step through a shared cache: to memory they are one tile of twice the sides."""

    def together(side: int, k: int, block: int) -> Iterator[Access | None]:
        for i0, j0 in itertools.product(range(0, side, 2 * block), repeat=2):
            for x in range(k):
                for down, right in itertools.product(range(2), repeat=2):
                    rows = range(i0 + down * block, i0 + (down + 1) * block)
                    columns = range(j0 + right * block, j0 + (right + 1) * block)
                    yield from (("a", (i, x)) for i in rows)
                    yield from (("b", (x, j)) for j in columns)

    counted = misses(together(16, 40, 4), 2 * (8 + 8))
    given = {"L2": {"rows": 4, "columns": 4}, "DRAM": {"rows": 8, "columns": 8}}
    found = level_bytes(Matmul(rows=16, columns=16, inner=40), given)
    assert (found["DRAM"]["a"], found["DRAM"]["b"]) == (4 * counted["a"], 4 * counted["b"])
    assert found["L2"]["a"] == 2 * found["DRAM"]["a"]  # without the shared cache


def test_a_product_by_hand() -> None:
    # 4096³ in fp32, 64 MiB each. Registers of 8 x 8, thread blocks of 128 x 256, a last cache of 1024 x 2048:
    # a passes 512, 16 and 2 times, b 512, 32 and 4 times, c once.
    given = {"L1": {"rows": 8, "columns": 8}, "L2": {"rows": 128, "columns": 256}, "DRAM": {"rows": 1024, "columns": 2048}}
    found = level_bytes(Matmul(), given)
    size = 64 << 20
    assert found == {
        "L1": {"a": 512 * size, "b": 512 * size, "c": size},
        "L2": {"a": 16 * size, "b": 32 * size, "c": size},
        "DRAM": {"a": 2 * size, "b": 4 * size, "c": size},
    }
    assert list(level_bytes(Matmul(), dict(reversed(given.items())))) == ["L1", "L2", "DRAM"]
    # 4-bit weights: b and its scales pass together, 2 MiB + 64 KiB for each of two blocks of rows.
    quantised = QuantizedMatmul(rows=256, columns=1024, inner=4096)
    assert level_bytes(quantised, {"L2": {"rows": 128}})["L2"] == {"a": 2 << 20, "b": 4 << 20, "scale": 128 << 10, "c": 512 << 10}
    batched = level_bytes(Bmm(batch=3, rows=4, columns=8, inner=2, scales="row", dtype="int8"), {"L2": {"columns": 4}})["L2"]
    assert batched == {"a": 48, "b": 48, "a_scale": 96, "b_scale": 96, "c": 192}


# -- attention ------------------------------------------------------------------------------------------------------------


def blocks_of(problem: Attention, tile: dict[str, int]) -> Iterator[list[tuple[int, int]]]:
    """Blocks of (head, query) of one KV head."""
    group = problem.heads // problem.kv_heads
    if "heads" not in tile:
        run = [(head, query) for head in range(group) for query in range(problem.seq_q)]
        yield from ([run[at] for at in part] for part in tiles(len(run), tile.get("queries", len(run))))
        return
    for heads, queries in itertools.product(tiles(group, tile["heads"]), tiles(problem.seq_q, tile.get("queries", problem.seq_q))):
        yield [(head, query) for head in heads for query in queries]


def key_blocks(problem: Attention, block: list[tuple[int, int]], tile: dict[str, int]) -> list[range]:
    """The blocks of keys of which a query of the block sees any."""
    seen = max(problem.visible(query) for _, query in block)
    if "keys" not in tile:
        return [range(seen)]
    return [keys for keys in tiles(problem.seq_kv, tile["keys"]) if keys.start < seen]


def tiled_pass(problem: Attention, tile: dict[str, int]) -> Iterator[Access | None]:
    """A block of queries and its results stay; keys and values pass by in blocks."""
    for block in blocks_of(problem, tile):
        yield None
        for keys in key_blocks(problem, block, tile):
            for key, d in itertools.product(keys, range(problem.head_dim)):
                yield from (("q", (*at, d)) for at in block)
                yield "k", (key, d)
            for key, d in itertools.product(keys, range(problem.head_dim)):
                yield "v", (key, d)
                yield from (("out", (*at, d)) for at in block)


def naive_passes(problem: Attention, tile: dict[str, int]) -> Iterator[Access | None]:
    """Three passes: q·kᵀ block by block of keys, softmax row by row, p·v with a block's results kept."""
    sees = [(problem.visible(query)) for query in range(problem.seq_q)]
    for block in blocks_of(problem, tile):
        for keys in key_blocks(problem, block, tile):
            yield None
            for key, d in itertools.product(keys, range(problem.head_dim)):
                yield from (("q", (*at, d)) for at in block)
                yield "k", (key, d)
            yield from (("scores", (*at, key)) for at in block for key in keys if key < sees[at[1]])
    for at in itertools.product(range(problem.heads // problem.kv_heads), range(problem.seq_q)):
        for way in ("scores", "scores"):  # read, and written
            yield None
            yield from ((way, (*at, key)) for key in range(sees[at[1]]))
    for block in blocks_of(problem, tile):
        yield None
        for keys in key_blocks(problem, block, tile):
            for key in keys:
                yield from (("scores", (*at, key)) for at in block if key < sees[at[1]])
                for d in range(problem.head_dim):
                    yield "v", (key, d)
                    yield from (("out", (*at, d)) for at in block)


PROBLEMS = [
    Attention(heads=2, kv_heads=1, seq_q=6, seq_kv=8, head_dim=3),
    Attention(heads=2, kv_heads=1, seq_q=6, seq_kv=8, head_dim=3, causal=True),
    Attention(batch=2, heads=6, kv_heads=2, seq_q=7, seq_kv=7, head_dim=2, causal=True),
    Attention(heads=8, kv_heads=1, seq_q=1, seq_kv=13, head_dim=4),
    Attention(heads=1, seq_q=9, seq_kv=20, head_dim=1, causal=True),
]
TILES = [
    {},
    {"queries": 4},
    {"queries": 4, "keys": 3},
    {"queries": 2, "keys": 4, "heads": 1},
    {"queries": 3, "heads": 2},
    {"keys": 2},
]


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: "-".join(str(value) for value in p.values().values()))
@pytest.mark.parametrize(("variant", "accesses"), [("tiled", tiled_pass), ("naive", naive_passes)])
def test_attention_in_a_simulated_cache(problem: Attention, tile: dict[str, int], variant: str, accesses: Any) -> None:
    """One KV head with all its query heads; the others are alike."""
    rows = max(len(block) for block in blocks_of(problem, tile))
    keys = max(len(keys) for block in blocks_of(problem, tile) for keys in key_blocks(problem, block, tile))
    # Room for a block's queries and results, a block of keys and one of values, what follows them, and a column of scores.
    counted = misses(accesses(problem, tile), (2 * rows + 2 * keys + 1) * problem.head_dim + rows)
    found = level_bytes(problem, {"L2": tile}, variant=variant)["L2"]
    each = problem.batch * problem.kv_heads * 4
    assert found == {name: each * count for name, count in counted.items()}


def test_attention_by_hand() -> None:
    # 2048 queries in blocks of 128 over all keys in fp16: 16 passes over K and V of 8 heads x 2048 x 64; causal sees
    # 128, 256, ..., 2048 keys: 8.5 passes. Tiles in order: shared memory from L2, all of it from memory.
    plain, causal = Attention(dtype="fp16"), Attention(dtype="fp16", causal=True)
    operand = 8 * 2048 * 64 * 2
    given = {"L2": {"queries": 128, "keys": 64, "heads": 1}, "DRAM": {}}
    found = level_bytes(plain, given)
    assert found["L2"] == {"q": operand, "k": 16 * operand, "v": 16 * operand, "out": operand}
    assert found["DRAM"] == {"q": operand, "k": operand, "v": operand, "out": operand}
    assert level_bytes(causal, given)["L2"]["k"] == 17 * operand // 2
    # naive: q again for each of 32 blocks of keys, and the scores of fp32 four times.
    assert level_bytes(plain, given, variant="naive")["L2"] == {
        "q": 32 * operand, "k": 16 * operand, "v": 16 * operand, "out": operand, "scores": 4 * 4 * 8 * 2048 * 2048
    }  # fmt: skip
    # Decode of 32 heads over 8 KV heads: their four queries share one pass, or each has its own.
    decode = Attention(heads=32, kv_heads=8, seq_q=1, seq_kv=4096, dtype="fp16")
    together, apart = (level_bytes(decode, {"L2": tile})["L2"] for tile in ({"queries": 64}, {"heads": 1}))
    assert apart["k"] == 4 * together["k"] == 4 * 8 * 4096 * 64 * 2


# -- what must hold -------------------------------------------------------------------------------------------------------

SIDE = st.integers(1, 70)


@given(st.data())
def test_never_less_than_the_least(data: st.DataObject) -> None:
    """Every level serves the compulsory bytes at least, and no tile at all is exactly these, with the scores of naive."""
    sides = {side: data.draw(SIDE) for side in ("rows", "columns", "inner")}
    group, kv_heads, seq_q = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3)), data.draw(SIDE)
    attention = Attention(
        heads=group * kv_heads, kv_heads=kv_heads, seq_q=seq_q, seq_kv=seq_q + data.draw(SIDE), head_dim=data.draw(SIDE),
        causal=data.draw(st.booleans()),
    )  # fmt: skip
    variant = data.draw(st.sampled_from(("naive", "tiled")))
    asked: list[tuple[Operator, tuple[str, ...]]] = [
        (Matmul(**sides), ("rows", "columns", "inner")), (Bmm(batch=2, **sides), ("rows", "columns")),
        (QuantizedMatmul(**sides, weight_bits=1.58), ("rows", "columns")), (attention, ("queries", "keys", "heads")),
    ]  # fmt: skip
    for problem, names in asked:
        tile = {name: data.draw(SIDE) for name in names if data.draw(st.booleans())}
        far = {name: side * data.draw(st.integers(1, 3)) for name, side in tile.items() if name != "keys"}
        found = level_bytes(problem, {"L2": tile, "DRAM": far, "L3": far}, variant=variant)
        scores = sum(problem.traffic({"variant": variant}).values()) if problem is attention else 0
        least = problem.compulsory_bytes() + scores
        near, middle, outer = (sum(found[level].values()) for level in ("L2", "L3", "DRAM"))
        assert near >= outer == middle >= least
        assert sum(level_bytes(problem, {"DRAM": {}}, variant=variant)["DRAM"].values()) == least


test_bad_tiles = refused(
    lambda problem, tiles_given: level_bytes(problem, tiles_given),
    (Relu(), {"L2": {}}, "relu: its tiles are not known; level_bytes does matmul, bmm, quantized_matmul, attention"),
    (Matmul(), {"L4": {}}, "level must be one of L1, L2, L3, DRAM, GDDR, HBM, got 'L4'"),
    (Matmul(), {"L2": {"queries": 4}}, "matmul: a tile has rows, columns, inner, not 'queries'"),
    (Attention(), {"L2": {"keys": 0}}, "attention: keys of the tile for L2 must be a whole number from 1, got 0"),
    (Attention(), {"L2": {"keys": 2.0}}, "a whole number from 1, got 2.0"),
    (Matmul(), {"DRAM": {"rows": 4}, "L2": {"rows": 8}}, "rows of the tile for DRAM are 4, but those nearer the cores 8"),
    (Matmul(), {"DRAM": {"rows": 4}, "L2": {}}, "rows of the tile for DRAM are 4, but those nearer the cores all"),
)


def test_bad_variants() -> None:
    with pytest.raises(Error, match="variant must be naive or tiled, got 'flash'"):
        level_bytes(Attention(), {}, variant="flash")
