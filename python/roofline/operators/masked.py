"""What forms of attention have in common: queries in groups of heads, and the keys that each of them sees."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..counts import Array, pick
from ..references import exp, matmul, max_, sum_
from .base import Operator


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
        self.require(
            not self.causal or self.seq_q <= self.seq_kv,
            "causal with seq_q {seq_q} > seq_kv {seq_kv}: the first queries would see no key; use seq_q <= seq_kv",
        )

    @property
    def group(self) -> int:
        """Query heads of one head of keys and values."""
        return self.heads // getattr(self, "kv_heads", self.heads)

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
