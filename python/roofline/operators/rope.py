"""Rotary position embedding of queries and keys, in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array
from ..dtypes import FLOATS, from_float64
from ..tensor_spec import TensorSpec
from .base import Case, Operator, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope(Operator):
    """(x, y) becomes (x cos - y sin, y cos + x sin) for every pair of halves of a head, in place.

    q: [batch, seq_q, heads, head_dim], k: [batch, seq_q, kv_heads, head_dim]; head_dim is the rotated part, and even. cos, sin:
    [batch, seq_q, head_dim / 2] in table_dtype, one row for each token's position. Source: Su et al., RoFormer (2021). Raises
    Error for bad fields.
    """

    batch: int = 1
    seq_q: int = 2048
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    dtype: str = "bf16"
    table_dtype: str = "fp32"

    name = "rope"
    summary = "rotary position embedding of queries and keys, in place"
    mix = "update"
    allowed = {"dtype": FLOATS, "table_dtype": FLOATS}
    variants = {
        "fused": Variant(
            summary="q and k are read and written once; a token's cos and sin are read once for all its heads",
            dtypes={"cpu": ("fp32", "fp16", "bf16"), "cuda": ("fp32", "fp16", "bf16")},
        ),
    }

    def check(self) -> None:
        self.require(self.head_dim % 2 == 0, "head_dim must be even, since numbers are rotated in pairs, got {head_dim}")

    def inputs(self) -> tuple[TensorSpec, ...]:
        shape = (self.batch, self.seq_q, self.head_dim // 2)
        return tuple(TensorSpec(name=name, shape=shape, dtype=self.table_dtype) for name in ("cos", "sin"))

    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(name=name, shape=(self.batch, self.seq_q, heads, self.head_dim), dtype=self.dtype, role="in_out")
            for name, heads in (("q", self.heads), ("k", self.kv_heads))
        )

    def flops(self) -> dict[str, int]:
        each = 3 * self.batch * self.seq_q * self.head_dim  # a pair: four multiplications, a subtraction, an addition
        return {"rotate q": each * self.heads, "rotate k": each * self.kv_heads}

    def loops(self) -> int:
        return self.batch * self.seq_q * (self.heads + self.kv_heads)

    def initial(self, tensor: str, generator: np.random.Generator) -> Array | None:
        """Tables of angles: pairs that keep their length, since a launch rotates what the one before left."""
        if tensor not in ("cos", "sin"):
            return None
        frequencies = 10000.0 ** -(np.arange(self.head_dim // 2) * 2 / self.head_dim)
        angles = np.arange(self.seq_q)[:, None] * frequencies
        table = np.cos(angles) if tensor == "cos" else np.sin(angles)
        return from_float64(np.tile(table, (self.batch, 1, 1)), self.table_dtype)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices along [batch * seq_q * heads], and modulo [batch * seq_q * kv_heads] of k; [len(rows), head_dim] each."""
        half = self.head_dim // 2
        cos, sin = (tensors[name].reshape(self.batch * self.seq_q, half) for name in ("cos", "sin"))
        found = {}
        for name, heads in (("q", self.heads), ("k", self.kv_heads)):
            flat = tensors[name].reshape(self.batch * self.seq_q * heads, self.head_dim)
            at = np.arange(len(flat)) if rows is None else rows % len(flat)
            both, c, s = flat[at], cos[at // heads], sin[at // heads]
            x, y = both[:, :half], both[:, half:]
            rotated = np.concatenate([x * c - y * s, y * c + x * s], axis=-1)
            found[name] = rotated if rows is not None else rotated.reshape(tensors[name].shape)
        return found

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1, 1, 1, 2), (2, 3, 4, 2, 6), (1, 5, 3, 1, 8), (2, 37, 5, 1, 128), (1, 8192, 128, 1, 64))
        small = cls.grid(shapes, "batch seq_q heads kv_heads head_dim")
        tables = cls.grid((33,), "seq_q", heads=3, kv_heads=2, head_dim=64, dtype=FLOATS, table_dtype=FLOATS)
        return (*small, *tables, Case(problem=cls(seq_q=2**17, heads=128, kv_heads=1), slow=True))
