"""Which problems are compared."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofline.errors import Error
from roofline.operators import OPERATORS

STAGES = {
    "attention": "self-attention, 8 heads, with and without a causal mask",
    "decode": "attention of one query to a cache of keys that heads share in groups",
    "matmul": "products with constant weights over rows",
    "ffn": "the feed-forward block over the batch",
    "rms_norm": "rows normalised by their root mean square",
    "layer_norm": "layer normalisation of rows",
    "softmax": "softmax of rows",
    "gelu": "the exact GELU",
    "silu_mul": "silu(gate) · up",
    "quantized_matmul": "products with weights of 4 bits in groups of 128",
}
LENGTHS = (512, 1024, 2048, 4096, 8192)
BATCHES = (1, 4, 16, 64, 256, 1024, 4096)
DTYPES = ("fp32", "bf16")
SLOW_FLOPS_PER_S, SLOW_BYTES_PER_S = 40e9, 5e9  # of no machine in particular: to do short problems first


@dataclass(frozen=True)
class Point:
    """cold: operands come from memory, else they may stay in the caches from call to call."""

    stage: str
    what: str
    operator: str
    fields: dict[str, Any]
    cold: bool = True

    @property
    def name(self) -> str:
        return f"{self.what}, {'cold' if self.cold else 'warm'}"

    def row(self, problem: Mapping[str, Any], reason: str = "") -> dict[str, Any]:
        """What is stored of it, with nothing known yet. problem: all fields."""
        return {
            "name": self.name, "stage": self.stage, "operator": self.operator, "problem": dict(problem),
            "cache": "cold" if self.cold else "warm", "reason": reason, "ours": {}, "roofs": {}, "rivals": {}, "pairs": [],
        }  # fmt: skip

    def cost_s(self) -> float:
        """About what a call takes; 0 where there is no such problem."""
        try:
            problem = OPERATORS[self.operator].make(**self.fields)
        except Error:
            return 0.0
        return problem.total_flops() / SLOW_FLOPS_PER_S + problem.compulsory_bytes() / SLOW_BYTES_PER_S


def _attention() -> Iterator[Point]:
    for dtype in DTYPES:
        for causal in (False, True):
            for dim in (64, 128):
                for length in LENGTHS:
                    what = f"attention {dtype} L {length} D {dim}{' causal' if causal else ''}"
                    fields = {"heads": 8, "seq_len": length, "head_dim": dim, "causal": causal, "dtype": dtype}
                    yield Point("attention", what, "attention", fields)
        for batch in (1, 4):
            fields = {"batch": batch, "heads": 32, "kv_heads": 8, "seq_q": 1, "seq_kv": 4096, "head_dim": 128, "dtype": dtype}
            yield Point("decode", f"decode {dtype} batch {batch}, 4096 keys, 32 heads on 8", "attention", fields)


def _products() -> Iterator[Point]:
    for dtype in (*DTYPES, "int8"):
        for batch in BATCHES:
            fields = {"rows": batch, "columns": 4096, "inner": 4096, "dtype": dtype}
            yield Point("matmul", f"matmul {dtype} {batch} × 4096 × 4096", "matmul", fields)
            fields = {"batch": batch, "seq_q": 1, "d_model": 1024, "d_ff": 4096, "dtype": dtype}
            yield Point("ffn", f"ffn {dtype} batch {batch}, 1024 to 4096, gelu", "ffn", fields)
    for rows in (1, 16, 256, 1024):
        fields = {"rows": rows, "columns": 4096, "inner": 4096, "dtype": "fp64"}
        yield Point("matmul", f"matmul fp64 {rows} × 4096 × 4096", "matmul", fields)
    for dtype in DTYPES:
        for rows in (1, 16, 256):
            fields = {"rows": rows, "weight_bits": 4.0, "group_size": 128, "dtype": dtype, "out_dtype": dtype}
            yield Point("quantized_matmul", f"4-bit weights {dtype} {rows} × 4096 × 4096", "quantized_matmul", fields)


def _rows() -> Iterator[Point]:
    for operator in ("rms_norm", "layer_norm", "softmax", "gelu", "silu_mul"):
        for dtype in DTYPES:
            for rows, columns, cold in ((4096, 4096, True), (256, 1024, False)):
                shape = {"elements": rows * columns} if operator == "gelu" else {"rows": rows, "columns": columns}
                what = f"{operator} {dtype} {rows} × {columns}"
                yield Point(operator, what, operator, {**shape, "dtype": dtype}, cold)


def points(only: Sequence[str] = (), most: int = 0) -> list[Point]:
    """All of the stages `only` (none: of all) in the order of the table; with `most` so many of them, evenly chosen."""
    order = list(STAGES)
    every = sorted((*_attention(), *_products(), *_rows()), key=lambda point: order.index(point.stage))
    kept = [point for point in every if not only or point.stage in only]
    if not most or most >= len(kept):
        return kept
    return [kept[round(i * (len(kept) - 1) / max(most - 1, 1))] for i in range(most)]
