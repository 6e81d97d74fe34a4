"""Multi-head latent attention with the keys and values of every head: the form that prefill uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array
from ..references import matmul
from ..tensor_spec import TensorSpec
from .attention import Tiled, averaged_tolerance
from .base import Case
from .masked import Masked, averaged, by_query


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaPrefill(Masked):
    """out = softmax((q_nope k_nopeᵀ + q_rope k_ropeᵀ) / sqrt(qk_nope_head_dim + qk_rope_head_dim)) v, each head by itself.

    Keys and values come multiplied out from the latent (a `Bmm` or `QuantizedMatmul` before it); the rotated part of the keys is
    one for all heads. Many queries on one key make this cheaper than the absorbed form of `MlaDecode`: 2 (128 + 64 + 128) FLOPs a
    pair in DeepSeek-V3, against 2 (512 + 64 + 512). causal aligns the last query with the last key. Source: DeepSeek-V2
    (arXiv:2405.04434), section 2.1. Raises Error for bad fields.
    """

    batch: int = 1
    heads: int = 128
    seq_q: int = 2048
    seq_kv: int = 2048
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    causal: bool = True
    dtype: str = "bf16"

    name = "mla_prefill"
    summary = "multi-head latent attention with keys and values of every head"
    allowed = {"dtype": ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")}
    variants = {
        "tiled": Tiled(
            summary="one pass, blocks of scores and a running softmax stay on the chip", dtypes={"cpu": ("fp32", "fp16", "bf16")}
        )
    }

    def inputs(self) -> tuple[TensorSpec, ...]:
        queries, keys = (self.batch, self.heads, self.seq_q), (self.batch, self.heads, self.seq_kv)
        return (
            TensorSpec(name="q", shape=(*queries, self.widths()[0]), dtype=self.dtype),
            TensorSpec(name="k_nope", shape=(*keys, self.qk_nope_head_dim), dtype=self.dtype),
            TensorSpec(name="k_rope", shape=(self.batch, self.seq_kv, self.qk_rope_head_dim), dtype=self.dtype),
            TensorSpec(name="v", shape=(*keys, self.v_head_dim), dtype=self.dtype),
        )

    def flops(self) -> dict[str, int]:
        pairs = self.pairs()
        return {
            "q·kᵀ": 2 * pairs * self.widths()[0],
            "scale": pairs,
            "softmax": 5 * pairs,  # compare, subtract, exp, add, divide
            "p·v": 2 * pairs * self.v_head_dim,
        }

    def widths(self) -> tuple[int, int]:
        return self.qk_nope_head_dim + self.qk_rope_head_dim, self.v_head_dim

    def kv_bytes(self) -> tuple[int, int]:
        """Bytes of all keys and values, with the rotated part once; and those of one head."""
        _, *kv = self.inputs()
        return sum(tensor.size_bytes for tensor in kv), self.seq_kv * self.key_bytes()

    def operations_of(self, pairs: int) -> dict[str, int]:
        """For so many pairs of a query and a key."""
        return {"product": 2 * pairs * sum(self.widths()), "exp": pairs, "other": 5 * pairs}

    def loops(self) -> int:
        return self.pairs()

    def tolerance(self) -> tuple[float, float]:
        return averaged_tolerance(self.dtype, self.visible(0))

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices along [batch * heads * seq_q]; out is then [len(rows), v_head_dim]."""
        scale = 1 / math.sqrt(self.widths()[0])

        def one(batch: int, head: int, query: int) -> Array:
            seen = slice(self.visible(query))
            k = np.concatenate([tensors["k_nope"][batch, head, seen], tensors["k_rope"][batch, seen]], axis=-1)
            return averaged(matmul(tensors["q"][batch, head, query : query + 1], k.T) * scale, tensors["v"][batch, head, seen])

        return {"out": by_query((self.batch, self.heads, self.seq_q), rows, one)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        few = {"heads": 2, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2, "v_head_dim": 5}
        given = (
            {"heads": 1, "seq_len": 1, "qk_nope_head_dim": 1, "qk_rope_head_dim": 1, "v_head_dim": 1},
            {**few, "batch": 2, "seq_q": 3, "seq_kv": 7},
            {**few, "seq_q": 5, "seq_kv": 3, "causal": False, "dtype": "fp8_e4m3"},
        )
        shapes = (
            {"batch": 2, "heads": 3, "seq_q": 37, "seq_kv": 141},
            {"heads": 2, "seq_len": 130, "qk_nope_head_dim": 17, "qk_rope_head_dim": 5, "v_head_dim": 33},
            {"heads": 1, "seq_q": 150, "seq_kv": 70, "qk_rope_head_dim": 16, "causal": False},
        )
        # More than 2**31 pairs.
        big = Case(problem=cls(heads=1, seq_q=65537, seq_kv=65537, qk_nope_head_dim=2, qk_rope_head_dim=2, v_head_dim=2), slow=True)
        return (*cls.grid(given), *cls.grid(shapes, dtype=("fp32", "bf16", "fp16")), big)
