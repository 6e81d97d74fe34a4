"""What forms of attention have in common: queries in groups of heads, and the keys that each of them sees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..counts import Array, pick
from ..references import exp, matmul, max_, sum_
from ..tensor_spec import TensorSpec, size_bytes
from .base import Operator, Product


def averaged(scores: Array, v: Array) -> Array:
    """Rows of softmax(scores) v."""
    weights = exp(scores - max_(scores, axis=-1, keepdims=True))
    return matmul(weights / sum_(weights, axis=-1, keepdims=True), v)


def by_query(shape: tuple[int, int, int], rows: Array | None, one: Callable[[int, int, int], Array]) -> Array:
    """one(batch, head, query) of each of these rows of [batch, heads, seq_q]; of all in that shape."""
    asked = range(math.prod(shape)) if rows is None else rows
    out = np.concatenate([one(*(int(index) for index in np.unravel_index(int(row), shape))) for row in asked])
    return out if rows is not None else out.reshape(*shape, -1)


class Masked(Operator, abstract=True):
    """Every query sees all keys; causal aligns the last query with the last key: query i sees keys j <= i + seq_kv - seq_q.

    Where there are kv_heads, 0 of them means as many as heads, and the field then holds that number.
    """

    batch: int
    heads: int
    seq_q: int
    seq_kv: int
    head_dim: int
    causal: bool
    dtype: str

    mix = "read"
    products_in_blocks = True

    def check(self) -> None:
        if "kv_heads" in self.field_names():
            kv_heads = self.kv_heads  # type: ignore[attr-defined]
            object.__setattr__(self, "kv_heads", pick(kv_heads == 0, self.heads, kv_heads))
            self.require(
                self.heads % self.kv_heads == 0,  # type: ignore[attr-defined]
                "heads must be a multiple of kv_heads, got heads {heads} and kv_heads {kv_heads}",
            )
        why = "causal with " * ("causal" in self.field_names())
        self.require(
            not self.causal or self.seq_q <= self.seq_kv,
            why + "seq_q {seq_q} > seq_kv {seq_kv}: the first queries would see no key; use seq_q <= seq_kv",
        )

    @property
    def group(self) -> int:
        """Query heads of one head of keys and values."""
        return self.heads // getattr(self, "kv_heads", self.heads)

    def widths(self) -> tuple[Any, Any]:
        """Numbers of one head of k, and of v."""
        return self.head_dim, self.head_dim

    def mean_keys(self) -> Any:
        """Keys that some query sees, of a sequence on average."""
        return self.seq_kv

    def products(self) -> tuple[Product, ...]:
        """Heads that share keys and values are rows of one product."""
        count, rows = self.batch * getattr(self, "kv_heads", self.heads), self.group * self.seq_q
        keys, (inner, columns) = self.mean_keys(), self.widths()
        return (
            Product(term="q·kᵀ", count=count, rows=rows, columns=keys, inner=inner),
            Product(term="p·v", count=count, rows=rows, columns=columns, inner=keys),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        shape = (self.batch, self.heads, self.seq_q, self.widths()[1])
        return (TensorSpec(name="out", shape=shape, dtype=self.dtype, role="out"),)

    def key_bytes(self) -> Any:
        """Bytes of one key and its value in one KV head."""
        return size_bytes((sum(self.widths()),), getattr(self, "kv_dtype", self.dtype))

    def visible(self, query: int) -> int:
        """Keys that a query sees: a leading part of all keys."""
        return query + self.seq_kv - self.seq_q + 1 if self.causal else self.seq_kv

    def pairs(self) -> int:
        """Pairs of a query and a key it sees, over all heads."""
        masked = self.seq_q * (self.seq_q - 1) // 2 if self.causal else 0
        return self.batch * self.heads * (self.seq_q * self.seq_kv - masked)

    def operations_of(self, pairs: int) -> dict[str, int]:
        """`operations` for so many pairs of a query and a key."""
        raise NotImplementedError

    def operations(self) -> dict[str, int]:
        return self.operations_of(self.pairs())
