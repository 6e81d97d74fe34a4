"""The backward pass of attention, from the outputs and one number per query that the forward pass kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counts import Array, ceil_div, larger
from ..dtypes import FLOATS
from ..references import exp, matmul, sum_
from ..tensor_spec import TensorSpec, size_bytes
from .attention import Parts
from .base import Case, Facts, Product
from .masked import Masked


class _Tiled(Parts):
    """Blocks of keys meet all queries that see them; what each adds to dq is summed at the end."""

    def pieces(self, problem: AttentionBackward) -> Any:
        return problem.batch * problem.kv_heads * ceil_div(problem.seq_kv, 128)

    def work(self, problem: AttentionBackward, plan: Facts) -> dict[str, int]:
        # The plan counts wasted work: masked pairs along the diagonal, and lanes of vectors without a key.
        work = problem.operations()
        computed = int(plan.get("scores_elements", 0)) or problem.pairs()
        return work | {"product": 10 * computed * problem.head_dim, "exp": computed}

    def reuse(self, problem: AttentionBackward, plan: Facts) -> dict[str, tuple[int, int]]:
        # Each block of keys reads q and dout of the queries that see it, and reads and writes their dq in fp32.
        block = int(plan.get("key_block", 128))
        queries = problem.batch * problem.heads * problem.seq_q
        met = larger(ceil_div(problem.pairs(), block) - queries, 0) * problem.head_dim  # beyond the first time
        heads = problem.group * problem.seq_q * problem.head_dim
        size = size_bytes((1,), problem.dtype)
        return {
            "q and dout for further keys": (2 * size * met, 2 * size * heads),
            "dq read and written for further keys": (8 * met, 4 * heads),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBackward(Masked):
    """dq, dk and dv of softmax(q kᵀ / sqrt(head_dim)) v, each head by itself, with the scores computed again.

    q, out, dout, dq: [batch, heads, seq_q, head_dim]; k, v, dk, dv: [batch, kv_heads, seq_kv, head_dim]; logsumexp: [batch, heads,
    seq_q] in fp32, of the scaled scores. causal aligns the last query with the last key; kv_heads = 0 means as many as heads. Five
    products, against two of the forward pass. Source: FlashAttention-2 (arXiv:2307.08691), algorithm 2. Raises Error for bad
    fields.
    """

    batch: int = 1
    heads: int = 8
    kv_heads: int = 0
    seq_q: int = 2048
    seq_kv: int = 2048
    head_dim: int = 64
    causal: bool = True
    dtype: str = "bf16"

    name = "attention_backward"
    summary = "gradients of attention, with its scores computed again"
    small = frozenset({"kv_heads"})
    allowed = {"dtype": FLOATS}
    variants = {
        "tiled": _Tiled(
            summary="blocks of keys meet all queries; scores computed again once, parts of dq added up at the end",
            dtypes={"cpu": FLOATS},
            launched=3,
        ),
    }

    def _tensor(self, name: str, keys: bool, role: Any) -> TensorSpec:
        shape = (
            (self.batch, self.kv_heads, self.seq_kv, self.head_dim) if keys else (self.batch, self.heads, self.seq_q, self.head_dim)
        )
        return TensorSpec(name=name, shape=shape, dtype=self.dtype, role=role)

    def inputs(self) -> tuple[TensorSpec, ...]:
        given = tuple(self._tensor(name, name in "kv", "in") for name in ("q", "k", "v", "out", "dout"))
        return (*given, TensorSpec(name="logsumexp", shape=(self.batch, self.heads, self.seq_q), dtype="fp32"))

    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(self._tensor(name, name != "dq", "out") for name in ("dq", "dk", "dv"))

    def flops(self) -> dict[str, int]:
        pairs = self.pairs()
        product = 2 * pairs * self.head_dim
        return {
            "q·kᵀ": product,
            "scale": pairs,
            "softmax": 2 * pairs,  # subtract, exp
            "pᵀ·dout": product,
            "dout·vᵀ": product,
            "out·dout": 2 * self.batch * self.heads * self.seq_q * self.head_dim,
            "ds": 3 * pairs,  # subtract, multiply, scale
            "ds·k": product,
            "dsᵀ·q": product,
        }

    def products(self) -> tuple[Product, ...]:
        """Heads that share keys and values are rows of one product, or terms of its sums."""
        count, rows, keys, width = self.batch * self.kv_heads, self.group * self.seq_q, self.seq_kv, self.head_dim
        sizes = {
            "q·kᵀ": (rows, keys, width), "pᵀ·dout": (keys, width, rows), "dout·vᵀ": (rows, keys, width),
            "ds·k": (rows, width, keys), "dsᵀ·q": (keys, width, rows),
        }  # fmt: skip
        return tuple(Product(term=term, count=count, rows=m, columns=n, inner=k) for term, (m, n, k) in sizes.items())

    def operations(self) -> dict[str, int]:
        pairs = self.pairs()
        products = 10 * pairs * self.head_dim
        return {"product": products, "exp": pairs, "other": self.total_flops() - products - pairs}

    def _visible(self) -> Array:
        """Keys that each query of a head sees, [seq_q]."""
        hidden = np.arange(self.seq_q)[::-1] if self.causal else np.zeros(self.seq_q)
        return self.seq_kv - hidden

    def initial(self, tensor: str, generator: np.random.Generator) -> Array | None:
        # Scores have variance 1, so the mean exponential is exp(1/2), and probabilities of a query add up to about 1.
        if tensor != "logsumexp":
            return None
        return np.broadcast_to(np.log(self._visible()) + 0.5, (self.batch, self.heads, self.seq_q)).astype(np.float32, order="C")

    def tolerance(self) -> tuple[float, float]:
        """(absolute, relative) error: that of probabilities, and of gradients of scores, rounded once to bf16 where dtype is.

        With `initial` a probability is about e^(1/2) / keys (root mean square), and the gradient of a score sqrt(2) times it. Their
        errors are those of independent terms, of heavy tails.
        """
        absolute, relative = {"fp32": (2e-5, 1e-4), "fp16": (1e-3, 1e-2), "bf16": (8 * 2.0**-9, 2e-2)}[self.dtype]
        keys = self._visible()
        queries = self.group * float(np.sum(keys**-2.0))  # of dk and dv, of a key that all of them see
        return absolute * math.sqrt(2 * math.e * max(queries, 1 / float(keys[0]))), relative

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices along [batch * heads * seq_q], of dq only; gradients of keys need every query."""
        q, k, v, out, dout, logsumexp = (tensors[name] for name in ("q", "k", "v", "out", "dout", "logsumexp"))
        group, scale, later = self.group, 1 / math.sqrt(self.head_dim), self.seq_kv - self.seq_q
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        for batch, kv_head in np.ndindex(self.batch, self.kv_heads):
            heads = slice(kv_head * group, (kv_head + 1) * group)
            p = np.zeros((group, self.seq_q, self.seq_kv), dtype=q.dtype)
            ds = np.zeros_like(p)
            step = 1 if self.causal else self.seq_q  # masked pairs are not computed: causal goes query by query
            for member, first in np.ndindex(group, self.seq_q // step):
                head, at = heads.start + member, slice(first, first + step)
                seen = slice(first + later + 1 if self.causal else self.seq_kv)
                keys, values = k[batch, kv_head, seen], v[batch, kv_head, seen]
                shifted = matmul(q[batch, head, at], keys.T) * scale - logsumexp[batch, head, at, None]
                delta = sum_(out[batch, head, at] * dout[batch, head, at], axis=-1, keepdims=True)
                p[member, at, seen] = exp(shifted)
                ds[member, at, seen] = p[member, at, seen] * (matmul(dout[batch, head, at], values.T) - delta) * scale
                dq[batch, head, at] = matmul(ds[member, at, seen], keys)
            for key in range(self.seq_kv):
                seeing = slice(max(key - later, 0) if self.causal else 0, None)
                for gradient, weights, terms in ((dk, ds, q), (dv, p, dout)):
                    column = weights[:, seeing, key].reshape(1, -1)
                    gradient[batch, kv_head, key] = matmul(column, terms[batch, heads, seeing].reshape(-1, self.head_dim))[0]
        flat = dq.reshape(-1, self.head_dim)  # there may be fewer than of dk, whose rows are counted then
        return {"dq": dq if rows is None else flat[rows % len(flat)], "dk": dk, "dv": dv}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        return cls.grid((
            {"heads": 1, "seq_q": 1, "seq_kv": 1, "head_dim": 1},
            {"heads": 2, "kv_heads": 1, "seq_q": 3, "seq_kv": 5, "head_dim": 4},
            {"batch": 2, "heads": 2, "seq_q": 4, "seq_kv": 3, "head_dim": 2, "causal": False},
            {"heads": 6, "kv_heads": 2, "seq_q": 70, "seq_kv": 133, "head_dim": 40, "dtype": "fp32"},
            {"heads": 2, "seq_q": 67, "seq_kv": 35, "head_dim": 17, "causal": False, "dtype": "fp32"},
            {"heads": 1, "seq_q": 9, "seq_kv": 20, "head_dim": 512, "dtype": "fp16"},
            {"batch": 2, "heads": 4, "kv_heads": 1, "seq_q": 30, "seq_kv": 150, "head_dim": 64, "dtype": "bf16"},
        ))  # fmt: skip
