"""Multi-head latent attention over its compressed cache: the absorbed form, which decode uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array, any_of, blocks
from ..references import matmul
from ..tensor_spec import TensorSpec
from .attention import Parts
from .base import Case, Product
from .masked import Masked, averaged, by_query

_DTYPES = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaDecode(Masked):
    """out = softmax((q_latent cᵀ + q_rope k_ropeᵀ) / sqrt(qk_nope_head_dim + qk_rope_head_dim)) c, each head by itself.

    The cache holds a latent c of kv_lora_rank numbers and a rotated key of qk_rope_head_dim per token, for all heads together.
    Queries come multiplied by the keys' up-projection, and out still awaits that of the values: two `Bmm`. causal aligns the last
    query with the last key. dtype: of queries and out. cache_dtype, rope_dtype: of c and of the rotated keys. scale_block: numbers
    of c to an fp32 scale; 0: none. With keys and values of every head, as in prefill: `MlaPrefill`. Source: DeepSeek-V2
    (arXiv:2405.04434), section 2.1. Raises Error for bad fields.
    """

    batch: int = 1
    heads: int = 128
    seq_q: int = 1
    seq_kv: int = 4096
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    causal: bool = True
    scale_block: int = 0
    dtype: str = "bf16"
    cache_dtype: str = "bf16"
    rope_dtype: str = "bf16"

    name = "mla_decode"
    summary = "multi-head latent attention over the compressed cache (absorbed form)"
    small = frozenset({"scale_block"})
    allowed = dict.fromkeys(("dtype", "cache_dtype", "rope_dtype"), _DTYPES)
    variants = {
        "split_kv": Parts(
            summary="one pass: the keys are shared out to blocks, whose parts are added up at the end",
            dtypes={"cpu": ("fp32", "fp16", "bf16"), "cuda": ("fp16", "bf16")},
        ),
    }

    def inputs(self) -> tuple[TensorSpec, ...]:
        queries, cached = (self.batch, self.heads, self.seq_q), (self.batch, self.seq_kv)
        scales = (TensorSpec(name="scales", shape=(*cached, blocks(self.kv_lora_rank, self.scale_block)), dtype="fp32"),)
        return (
            TensorSpec(name="q_latent", shape=(*queries, self.kv_lora_rank), dtype=self.dtype),
            TensorSpec(name="q_rope", shape=(*queries, self.qk_rope_head_dim), dtype=self.dtype),
            TensorSpec(name="c", shape=(*cached, self.kv_lora_rank), dtype=self.cache_dtype),
            TensorSpec(name="k_rope", shape=(*cached, self.qk_rope_head_dim), dtype=self.rope_dtype),
            *(scales if any_of(self.scale_block > 0) else ()),
        )

    def widths(self) -> tuple[int, int]:
        return self.kv_lora_rank + self.qk_rope_head_dim, self.kv_lora_rank

    def flops(self) -> dict[str, int]:
        pairs = self.pairs()
        return {
            "q·cᵀ": 2 * pairs * self.kv_lora_rank,
            "q_rope·kᵀ": 2 * pairs * self.qk_rope_head_dim,
            "scale": pairs,
            "softmax": 5 * pairs,  # compare, subtract, exp, add, divide
            "p·c": 2 * pairs * self.kv_lora_rank,
            "dequantise": self.batch * self.seq_kv * self.kv_lora_rank * (self.scale_block > 0),
        }

    def products(self) -> tuple[Product, ...]:
        """All heads share one latent: their queries are rows of one product."""
        rows, keys, rank = self.heads * self.seq_q, self.seq_kv, self.kv_lora_rank
        return (
            Product(term="q·cᵀ", count=self.batch, rows=rows, columns=keys, inner=rank),
            Product(term="q_rope·kᵀ", count=self.batch, rows=rows, columns=keys, inner=self.qk_rope_head_dim),
            Product(term="p·c", count=self.batch, rows=rows, columns=rank, inner=keys),
        )

    def operations(self) -> dict[str, int]:
        flops, pairs = self.flops(), self.pairs()
        product = flops["q·cᵀ"] + flops["q_rope·kᵀ"] + flops["p·c"]
        return {"product": product, "exp": pairs, "other": 5 * pairs + flops["dequantise"]}

    def tolerance(self) -> tuple[float, float]:
        # As `Attention`: rows of out are averages of numbers of size 1, by probabilities rounded once.
        return {"fp32": (1e-5, 1e-4), "fp16": (2e-3, 1e-2)}.get(self.dtype, (1.5e-2, 4e-2))

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices along [batch * heads * seq_q]; out is then [len(rows), kv_lora_rank]."""
        latent, rotated, c = tensors["q_latent"], tensors["q_rope"], tensors["c"]
        if self.scale_block:
            c = c * np.repeat(tensors["scales"], self.scale_block, axis=-1)[..., : self.kv_lora_rank]
        scale = 1 / math.sqrt(self.qk_nope_head_dim + self.qk_rope_head_dim)

        def one(batch: int, head: int, query: int) -> Array:
            seen = slice(self.visible(query))
            q = np.concatenate([latent[batch, head, query : query + 1], rotated[batch, head, query : query + 1]], axis=-1)
            k = np.concatenate([c[batch, seen], tensors["k_rope"][batch, seen]], axis=-1)
            return averaged(matmul(q, k.T) * scale, c[batch, seen])

        return {"out": by_query((self.batch, self.heads, self.seq_q), rows, one)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        few = {"heads": 3, "kv_lora_rank": 5, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2}
        given = (
            {"heads": 1, "seq_kv": 1, "kv_lora_rank": 1, "qk_rope_head_dim": 1},
            {**few, "batch": 2, "seq_q": 3, "seq_kv": 7},
            {**few, "batch": 2, "seq_q": 3, "seq_kv": 7, "causal": False, "scale_block": 4, "cache_dtype": "fp8_e4m3"},
            {**few, "seq_q": 8, "seq_kv": 11, "dtype": "fp16"},
            *({"heads": 16, "seq_kv": 200, "cache_dtype": fp8, "rope_dtype": fp8} for fp8 in ("fp8_e4m3", "fp8_e5m2")),
        )
        served = (
            {"heads": 16, "seq_kv": 333},
            {"batch": 2, "heads": 70, "seq_q": 2, "seq_kv": 130},
            {"batch": 2, "heads": 96, "seq_kv": 333},
            {"heads": 3, "seq_q": 5, "seq_kv": 65, "kv_lora_rank": 256, "qk_rope_head_dim": 32, "causal": False},
        )
        kept = (case for d in ("fp32", "bf16", "fp16") for case in cls.grid(served, dtype=d, cache_dtype=d, rope_dtype=d))
        many = cls(batch=128, seq_q=2, seq_kv=32768, cache_dtype="fp8_e4m3", scale_block=128)
        return (*cls.grid(given), *kept, Case(problem=many, slow=True))
