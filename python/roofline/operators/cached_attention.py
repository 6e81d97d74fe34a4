"""Attention over a KV cache: within a window, from a cache of another dtype, with sinks, in pages, of several lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counts import Array, any_of, blocks, larger, pick, smaller
from ..references import exp, matmul, max_, maximum, sum_, tanh
from ..tensor_spec import TensorSpec, size_bytes
from .attention import FEW_QUERIES, Parts, Tiled, averaged_tolerance
from .base import Case, Operator
from .masked import Masked, by_query

_DTYPES = ("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")


class _SplitKv(Parts):
    def suits(self, problem: CachedAttention, device: str) -> bool:
        # On a CPU those of few queries alone; a GPU has no other.
        return device != "cpu" or problem.seq_q <= FEW_QUERIES


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAttention(Masked):
    """out = softmax(q kᵀ / sqrt(head_dim)) v, causal: the last query sees the last key, and each one `window` keys at most.

    q, out: [batch, heads, seq_q, head_dim] in dtype; k, v: [batch, kv_heads, keys, head_dim] in kv_dtype, where keys are those of
    the seq_kv that some query sees. page_size: tokens to a page, in [pages, kv_heads, page_size, head_dim], which `page_table`
    [batch, pages of each] (int32) names in order; 0: one piece. window: 0 for all keys. sinks: every head has one more score, of no
    key, that takes part in the softmax. softcap: scores become softcap tanh(score / softcap); 0: they stay. shortest: lengths of
    sequences are spread evenly from this to seq_kv, and `lengths` [batch] (int32) holds them; the last query of each sees its last
    key, and its keys come first in its part of the cache; 0: all have seq_kv. Source of windows: Longformer (arXiv:2004.05150); of
    sinks: arXiv:2309.17453; of pages: arXiv:2309.06180; of the cap: Gemma 2 (arXiv:2408.00118). Raises Error for bad fields.
    """

    batch: int = 1
    heads: int = 32
    kv_heads: int = 8
    seq_q: int = 1
    seq_kv: int = 2048
    head_dim: int = 128
    window: int = 0
    sinks: bool = False
    page_size: int = 0
    softcap: float = 0.0
    shortest: int = 0
    dtype: str = "bf16"
    kv_dtype: str = "bf16"

    name = "cached_attention"
    summary = "causal attention over a KV cache, of another dtype or within a window"
    causal = True
    small = frozenset({"window", "page_size", "shortest"})
    allowed = {"dtype": _DTYPES, "kv_dtype": (*_DTYPES, "int8", "int4")}
    variants = {
        "tiled": Tiled(
            summary="one pass, blocks of scores and a running softmax stay on the chip; the cache is widened block by block",
            dtypes={"cpu": ("fp32", "fp64", "fp16", "bf16")},
        ),
        "split_kv": _SplitKv(
            summary="one pass for few queries: the keys are shared out to blocks, whose parts are added up at the end",
            dtypes={"cpu": ("fp32", "fp64", "fp16", "bf16"), "cuda": ("fp32", "fp16", "bf16")},
        ),
    }

    def check(self) -> None:
        self.require(
            (self.dtype == "fp64") == (self.kv_dtype == "fp64"),
            "fp64 is the dtype of both or of none, got dtype {dtype} and kv_dtype {kv_dtype}",
        )
        Masked.check(self)
        self.require(
            (self.softcap == 0) | ((self.softcap >= 1e-30) & (self.softcap <= 1e30)),
            "softcap must be 0 or from 1e-30 to 1e30, got {softcap}",
        )
        self.require(
            (self.shortest == 0) | ((self.seq_q <= self.shortest) & (self.shortest <= self.seq_kv)),
            "shortest must be 0 or from seq_q {seq_q} to seq_kv {seq_kv}, got {shortest}",
        )

    def _most(self, length: Any) -> Any:
        """Keys that one query sees at most, of a sequence of this length."""
        return pick(self.window > 0, smaller(self.window, length), length)

    def _kept(self, length: Any) -> Any:
        """Keys that some query of a sequence of this length sees: the last ones."""
        return smaller(length, self._most(length) + self.seq_q - 1)

    def keys(self) -> Any:
        """Keys that some query of the longest sequence sees."""
        return self._kept(self.seq_kv)

    def _length(self, sequence: int) -> Any:
        spread = self.shortest + (self.seq_kv - self.shortest) * sequence // larger(self.batch - 1, 1)
        return pick((self.shortest > 0) & (self.batch > 1), spread, self.seq_kv)

    def _over_sequences(self, count: Callable[[Any], Any]) -> Any:
        """The sum over all sequences of what `count` makes of their lengths."""
        if not any_of(self.shortest):
            return self.batch * count(self.seq_kv)
        return sum(pick(i < self.batch, count(self._length(i)), 0) for i in range(int(np.max(self.batch))))

    def pairs(self) -> Any:
        """Pairs of a query and a key it sees, over all heads."""

        def seen(length: Any) -> Any:
            first, most = length - self.seq_q + 1, self._most(length)  # first: keys before the end of the first query's row
            growing = smaller(larger(most - first, 0), self.seq_q)  # queries that see all keys before them
            return growing * first + growing * (growing - 1) // 2 + (self.seq_q - growing) * most

        return self.heads * self._over_sequences(seen)

    def inputs(self) -> tuple[TensorSpec, ...]:
        paged, entries = self.page_size > 0, blocks(self.keys(), self.page_size)
        pages = pick(paged, self.batch * entries, self.batch)
        kv = (pages, self.kv_heads, pick(paged, self.page_size, self.keys()), self.head_dim)
        ragged = bool(any_of(self.shortest))
        touched = size_bytes((self._over_sequences(self._kept), self.kv_heads, self.head_dim), self.kv_dtype)
        touched = touched if ragged or any_of(paged) else None
        used = 4 * self._over_sequences(lambda length: blocks(self._kept(length), self.page_size)) if ragged else None
        table = TensorSpec(name="page_table", shape=(self.batch, entries), dtype="int32", below=pages, touched_bytes=used)
        lengths = TensorSpec(
            name="lengths", shape=(pick(self.shortest > 0, self.batch, 0),), dtype="int32", least=self.seq_q, below=self.seq_kv + 1
        )
        sinks = TensorSpec(name="sinks", shape=(self.heads,), dtype="fp32", role="constant")
        return (
            TensorSpec(name="q", shape=(self.batch, self.heads, self.seq_q, self.head_dim), dtype=self.dtype),
            TensorSpec(name="k", shape=kv, dtype=self.kv_dtype, touched_bytes=touched),
            TensorSpec(name="v", shape=kv, dtype=self.kv_dtype, touched_bytes=touched),
            *((table,) if any_of(paged) else ()),
            *((lengths,) if ragged else ()),
            *((sinks,) if self.sinks else ()),
        )

    def flops(self) -> dict[str, int]:
        pairs = self.pairs()
        product = 2 * pairs * self.head_dim
        # softmax: compare, subtract, exp, add, divide; a sink all but the division
        sinks = {"sinks": 4 * self.batch * self.heads * self.seq_q} if self.sinks else {}
        capped = {"softcap": 3 * pairs * (self.softcap > 0)} if any_of(self.softcap) else {}  # divide, tanh, multiply
        return {"q·kᵀ": product, "scale": pairs, **capped, "softmax": 5 * pairs, **sinks, "p·v": product}

    def mean_keys(self) -> Any:
        return self._over_sequences(self._kept) / self.batch if any_of(self.shortest) else self.keys()

    def kv_bytes(self) -> tuple[Any, Any]:
        """Bytes of K and V: all that some query sees, and those of one KV head."""
        kept = self._over_sequences(self._kept)
        return kept * self.kv_heads * self.key_bytes(), self.keys() * self.key_bytes()

    def operations_of(self, pairs: Any) -> dict[str, Any]:
        """For so many pairs of a query and a key."""
        sinks, capped = self.flops().get("sinks", 0) // 4, self.softcap > 0
        return {
            "product": 4 * pairs * self.head_dim,
            "exp": pairs * (1 + capped) + sinks,
            "other": pairs * (5 + 2 * capped) + 3 * sinks,
        }

    def tolerance(self) -> tuple[float, float]:
        # Whole numbers are of a size of up to 128: scores lie so far apart then that few keys have all the weight.
        size = {"int8": 128.0, "int4": 8.0}.get(self.kv_dtype, 1.0)
        shortest = self.shortest or self.seq_kv
        fewest = min(self._most(shortest), shortest - self.seq_q + 1) if size == 1 else 1
        absolute, relative = averaged_tolerance(self.dtype, fewest)
        return absolute * size, relative

    def initial(self, tensor: str, generator: np.random.Generator) -> Array | None:
        if tensor == "lengths":
            return np.array([self._length(i) for i in range(self.batch)], dtype=np.int32)
        if tensor != "page_table":
            return Operator.initial(self, tensor, generator)
        shape = next(spec.shape for spec in self.inputs() if spec.name == tensor)
        return generator.permutation(math.prod(shape)).astype(np.int32).reshape(shape)  # every page once

    def _cached(self, tensors: Mapping[str, Array], name: str, batch: int, kv_head: int, seen: slice) -> Array:
        """[keys of seen, head_dim]."""
        if not self.page_size:
            return tensors[name][batch, kv_head, seen]
        wanted = np.arange(seen.start, seen.stop)
        table = np.asarray(tensors["page_table"][batch]).astype(np.int64)
        rows: Array = tensors[name][table[wanted // self.page_size], kv_head, wanted % self.page_size]
        return rows

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices along [batch * heads * seq_q]; out is then [len(rows), head_dim]."""

        def one(batch: int, head: int, query: int) -> Array:
            length = int(tensors["lengths"][batch]) if self.shortest else self.seq_kv
            end = query + self._kept(length) - self.seq_q + 1
            seen = slice(max(end - self._most(length), 0), end)
            k_seen, v_seen = (self._cached(tensors, name, batch, head // self.group, seen) for name in ("k", "v"))
            scores = matmul(tensors["q"][batch, head, query : query + 1], k_seen.T) * (1 / math.sqrt(self.head_dim))
            if self.softcap:
                scores = self.softcap * tanh(scores / self.softcap)
            largest = max_(scores, axis=-1, keepdims=True)
            if self.sinks:
                largest = maximum(largest, tensors["sinks"][head : head + 1, None])
            weights = exp(scores - largest)
            total = sum_(weights, axis=-1, keepdims=True)
            if self.sinks:
                total = total + exp(tensors["sinks"][head : head + 1, None] - largest)
            return matmul(weights / total, v_seen)

        return {"out": by_query((self.batch, self.heads, self.seq_q), rows, one)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        given = (
            {"heads": 1, "kv_heads": 1, "seq_kv": 1, "head_dim": 1},
            {"heads": 4, "kv_heads": 2, "seq_q": 3, "seq_kv": 7, "head_dim": 5},
            {"heads": 2, "kv_heads": 1, "seq_q": 5, "seq_kv": 9, "head_dim": 3, "window": 4, "sinks": True},
            {"batch": 2, "heads": 2, "kv_heads": 2, "seq_q": 6, "seq_kv": 6, "head_dim": 2, "window": 3},
            {"heads": 2, "kv_heads": 1, "seq_q": 2, "seq_kv": 4, "head_dim": 3, "window": 9, "sinks": True},
            {"batch": 2, "heads": 2, "kv_heads": 1, "seq_q": 2, "seq_kv": 7, "head_dim": 3, "page_size": 3},
            {"heads": 2, "kv_heads": 2, "seq_kv": 9, "head_dim": 2, "page_size": 4, "window": 5},
            {"heads": 2, "kv_heads": 1, "seq_q": 3, "seq_kv": 7, "head_dim": 3, "softcap": 1.5},
            {"batch": 3, "heads": 2, "kv_heads": 1, "seq_q": 2, "seq_kv": 9, "head_dim": 3, "shortest": 2, "window": 4},
            {"batch": 4, "heads": 2, "kv_heads": 2, "seq_kv": 9, "head_dim": 2, "shortest": 1, "page_size": 4, "sinks": True},
        )
        served = (
            {"batch": 2, "heads": 16, "kv_heads": 2, "seq_kv": 777},
            {"batch": 3, "heads": 4, "kv_heads": 2, "seq_q": 5, "seq_kv": 300, "head_dim": 64},
            {"heads": 40, "kv_heads": 1, "seq_q": 8, "seq_kv": 520, "head_dim": 256},
            {"heads": 8, "kv_heads": 2, "seq_q": 3, "seq_kv": 400, "head_dim": 64, "window": 128, "sinks": True},
            {"batch": 2, "heads": 8, "kv_heads": 2, "seq_q": 2, "seq_kv": 301, "page_size": 16},
            {"batch": 2, "heads": 8, "kv_heads": 2, "seq_kv": 301, "page_size": 64, "window": 200, "sinks": True},
            {"batch": 3, "heads": 4, "kv_heads": 2, "seq_q": 3, "seq_kv": 900, "head_dim": 64, "softcap": 2.0, "shortest": 5},
            {"heads": 2, "kv_heads": 1, "seq_q": 270, "seq_kv": 500, "head_dim": 40, "window": 70, "sinks": True, "softcap": 2.0},
            {"batch": 2, "heads": 4, "kv_heads": 2, "seq_q": 70, "seq_kv": 301, "head_dim": 72, "page_size": 16, "shortest": 70},
            {"heads": 16, "kv_heads": 2, "seq_q": 7, "seq_kv": 400, "head_dim": 64, "window": 128, "sinks": True, "softcap": 2.0},
            {"batch": 2, "heads": 16, "kv_heads": 2, "seq_q": 4, "seq_kv": 301, "page_size": 16},
        )
        wide = (*served[2:4], *served[5:])
        narrow = {"heads": 8, "kv_heads": 2, "seq_q": 2, "seq_kv": 333}
        caches = (
            *(
                {**narrow, **fields, "kv_dtype": fp8}
                for fp8 in ("fp8_e4m3", "fp8_e5m2")
                for fields in (
                    {},
                    {"batch": 2, "seq_q": 8, "head_dim": 96, "page_size": 32},
                    {"seq_q": 90, "head_dim": 24, "page_size": 32, "window": 33},
                    {"batch": 3, "seq_q": 3, "seq_kv": 900, "shortest": 5, "page_size": 16},
                )
            ),
            {**narrow, "kv_dtype": "int8"},
            {**narrow, "seq_q": 70, "head_dim": 72, "page_size": 16, "kv_dtype": "int8"},
            {**narrow, "seq_q": 4, "head_dim": 64, "window": 128, "sinks": True, "page_size": 8, "kv_dtype": "int8"},
        )
        halves = ("bf16", "fp16")
        return (
            *cls.grid(given),
            *(case for d in halves for case in cls.grid(served, dtype=d, kv_dtype=d)),
            *(case for d in ("fp32", "fp64") for case in cls.grid(wide, dtype=d, kv_dtype=d)),
            *cls.grid(caches, dtype=halves),
            *cls.grid((narrow,), dtype="fp32", kv_dtype=("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8")),
            *cls.grid((narrow,), dtype="bf16", kv_dtype=("fp32", "fp16")),
            Case(problem=cls(batch=128, heads=64, seq_kv=131072, kv_dtype="fp8_e4m3"), slow=True),
        )
