"""Which operator stands for which part of a transformer, and in which dtypes: the one place that names them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._repr import values_of
from ..counts import all_of, sizes
from ..dtypes import dtype as known_dtype
from ..operators import (
    AllGather,
    AllReduce,
    AllToAll,
    Attention,
    Bmm,
    CachedAttention,
    Convert,
    Embedding,
    Gelu,
    GroupedMatmul,
    LayerNorm,
    LmHead,
    Matmul,
    MlaDecode,
    MlaPrefill,
    Operator,
    QuantizedMatmul,
    ResidualRmsNorm,
    RmsNorm,
    Rope,
    SiluMul,
    TopkSigmoid,
    TopkSoftmax,
)
from .config import TransformerConfig
from .phases import Segment
from .quantization import Quantization

CACHED = ("k", "v", "c", "k_rope", "scales")  # tensors of attention that lie in the KV cache
WEIGHTS = ("b", "scale", "zero", "b_scale", "b_whole", "w", "w_up", "w_gate", "w_down")  # of products

FOUR_BITS = ("nvfp4", "mxfp4")


def _quantized(config: TransformerConfig, part: str) -> Quantization | None:
    found = config.quantization
    return found if found is not None and found.narrows(part) else None


def _width(name: str) -> float:
    return float(known_dtype(name).bits)


def plain_product(config: TransformerConfig, rows: int, inner: int, columns: int, out_dtype: str = "") -> Operator:
    """[rows, inner] x [inner, columns] with weights in the model's dtype, whatever the quantization; out_dtype: "" for its own."""
    c = config
    return QuantizedMatmul(
        rows=rows, columns=columns, inner=inner, weight_bits=_width(c.weights), group_size=0, scale_bits=0, dtype=c.activations,
        out_dtype=out_dtype or c.activations,
    )  # fmt: skip


def product(config: TransformerConfig, part: str, rows: int, inner: int, columns: int) -> Operator:
    """[rows, inner] x [inner, columns] with a layer's weights as they are stored. part: see `Quantization.narrows`.

    Weights alone of few bits: each meets its scale on the way to an arithmetic in the activations' dtype. Both: products of the
    narrow numbers, with the scales' bytes spread over the weights.
    """
    c, q = config, _quantized(config, part)
    if q is None:
        return plain_product(c, rows, inner, columns)
    if q.activations:
        return QuantizedMatmul(
            rows=rows, columns=columns, inner=inner, weight_bits=q.bits, group_size=0, scale_bits=0, dtype=q.activations,
            out_dtype=c.activations,
        )  # fmt: skip
    return QuantizedMatmul(
        rows=rows, columns=columns, inner=inner, weight_bits=_width(q.weights), group_size=q.group or 0,
        scale_bits=q.scale_bits or 0, zero_bits=q.zero_bits, dtype=c.activations, out_dtype=c.activations,
    )  # fmt: skip


def experts(config: TransformerConfig, tokens: int, d_ff: int, ranks: int) -> GroupedMatmul:
    """The routed experts of one mixture, of (local) width d_ff: products, activation between them, weighted sum.

    ranks: among which they are spread, each with `tokens` tokens.
    """
    c, q = config, _quantized(config, "experts")
    groups = {"groups": c.expert_groups, "groups_per_token": c.groups_per_token} if ranks > 1 and c.expert_groups else {}
    return GroupedMatmul(
        tokens=tokens, experts=c.experts, experts_per_token=c.experts_per_token, ranks=ranks, d_model=c.d_model, d_ff=d_ff,
        activation="swiglu" if c.gated else "relu" if c.activation == "relu" else "gelu",
        weight_bits=q.bits if q else _width(c.weights), dtype=q.activations if q and q.activations else c.activations,
        out_dtype=c.activations, **groups,
    )  # fmt: skip


def top_k(config: TransformerConfig, tokens: int) -> Operator:
    c = config
    both: dict[str, Any] = {"tokens": tokens, "dtype": c.activations, **values_of(c, "experts experts_per_token")}
    return TopkSigmoid(**both, biased=c.router_bias) if c.router == "sigmoid" else TopkSoftmax(**both)


def attention(config: TransformerConfig, heads: int, kv_heads: int, segment: Segment, window: int) -> Operator:
    """window: 0 for all keys."""
    c, s = config, segment
    inside = window if window and s.longer_than(window) else 0
    both: dict[str, Any] = {
        "batch": s.batch, "heads": heads, "kv_heads": kv_heads, "seq_q": s.seq_q, "seq_kv": s.seq_kv, "head_dim": c.head_dim,
        "dtype": c.activations,
    }  # fmt: skip
    if not inside and not c.sinks and c.kv == c.activations:
        return Attention(**both, causal=True)
    return CachedAttention(**both, window=inside, sinks=c.sinks, kv_dtype=c.kv)


def mla_decode(config: TransformerConfig, heads: int, segment: Segment) -> Operator:
    c, s = config, segment
    return MlaDecode(
        batch=s.batch, heads=heads, seq_q=s.seq_q, seq_kv=s.seq_kv, kv_lora_rank=c.kv_lora_rank, qk_nope_head_dim=c.nope_head_dim,
        qk_rope_head_dim=c.rope_head_dim, dtype=c.activations, cache_dtype=c.kv, rope_dtype=c.kv,
    )  # fmt: skip


def mla_prefill(config: TransformerConfig, heads: int, segment: Segment) -> Operator:
    c, s = config, segment
    return MlaPrefill(
        batch=s.batch, heads=heads, seq_q=s.seq_q, seq_kv=s.seq_kv, qk_nope_head_dim=c.nope_head_dim,
        qk_rope_head_dim=c.rope_head_dim, v_head_dim=c.v_head_dim, dtype=c.activations,
    )  # fmt: skip


def absorbed(config: TransformerConfig, heads: int, tokens: int) -> tuple[Operator, Operator]:
    """MLA's way of queries into the latent space and of its result out of it, one small product per head each."""
    c, q = config, _quantized(config, "attention")
    asked = q.activations if q is not None else ""
    # These run in fp8 in four-bit models too (SGLang: bmm_fp8): the up-projection is taken apart and stored anew.
    narrow = asked if asked.startswith("fp8") else "fp8_e4m3" if asked in FOUR_BITS else ""
    dtype, scales = (narrow, "tensor") if narrow else (c.activations, "none")

    def each(inner: int, columns: int) -> Operator:
        return Bmm(
            batch=heads, rows=tokens, inner=inner, columns=columns, dtype=dtype, out_dtype=c.activations, scales=scales,
            scale_bits=32,
        )  # fmt: skip

    return each(c.nope_head_dim, c.kv_lora_rank), each(c.kv_lora_rank, c.v_head_dim)


def rope(config: TransformerConfig, tokens: int, heads: int, kv_heads: int) -> Operator:
    return Rope(seq_q=tokens, heads=heads, kv_heads=kv_heads, head_dim=config.rotated, dtype=config.activations)


def cache_write(config: TransformerConfig, elements: int) -> Operator:
    return Convert(elements=elements, dtype=config.activations, out_dtype=config.kv)


def norm(config: TransformerConfig, rows: int, columns: int) -> Operator:
    if config.norm == "layer_norm":
        return LayerNorm(rows=rows, columns=columns, dtype=config.activations)
    return RmsNorm(rows=rows, columns=columns, dtype=config.activations)


def residual_norm(config: TransformerConfig, rows: int) -> Operator:
    """Stands for layer norms too: they move the same bytes but for a bias of d_model numbers."""
    return ResidualRmsNorm(rows=rows, columns=config.d_model, dtype=config.activations)


def activation(config: TransformerConfig, rows: int, columns: int) -> Operator:
    """Between the products of a dense FFN. Gated ones cost as silu, others as gelu; both are bound by memory."""
    if config.gated:
        return SiluMul(rows=rows, columns=columns, dtype=config.activations)
    return Gelu(elements=rows * columns, form="tanh", dtype=config.activations)


def embedding(config: TransformerConfig, tokens: int) -> Operator:
    return Embedding(tokens=tokens, vocabulary=config.vocabulary, d_model=config.d_model, dtype=config.weights)


def forms(problem: Operator) -> tuple[Operator, ...]:
    """As what kernels may run it: weights that are not quantized in a plain GEMM, logits in fp32 or in a GEMM; else as it is."""
    c: Any = problem

    def made(operator: type[Operator], **fields: Any) -> Operator:
        """Sizes of a batch are float64, and fields are whole numbers."""
        whole = {name: x.astype(np.int64) if isinstance(x, np.ndarray) else x for name, x in fields.items()}
        return operator.many(**whole, dtype=c.dtype)

    if isinstance(c, QuantizedMatmul) and c.dtype in Matmul.allowed["dtype"] and all_of(c.weight_bits == known_dtype(c.dtype).bits):
        return (made(Matmul, rows=c.rows, columns=c.columns, inner=c.inner),)
    if isinstance(c, LmHead) and c.dtype in Matmul.allowed["dtype"] and c.weight_dtype == c.dtype:
        logits = made(LmHead, tokens=c.tokens, d_model=c.d_model, vocabulary=c.vocabulary, weight_dtype=c.dtype)
        return logits, made(Matmul, rows=c.tokens, columns=c.vocabulary, inner=c.d_model)
    return (problem,)


def lm_head(config: TransformerConfig, rows: int, vocabulary: int) -> Operator:
    c = config
    return LmHead(
        tokens=rows, d_model=c.d_model, vocabulary=vocabulary, dtype=c.activations, weight_dtype=c.weights, out_dtype=c.activations
    )


def all_reduce(config: TransformerConfig, tokens: int, ranks: int) -> Operator:
    return AllReduce(elements=tokens * config.d_model, ranks=ranks, dtype=config.activations)


def all_to_all(config: TransformerConfig, routed: GroupedMatmul, dtype: str) -> Operator:
    """Tokens on their way to experts of other ranks, or what those make of them."""
    arriving = routed.arriving()
    if isinstance(arriving, np.ndarray):  # costs are float64, fields are whole numbers
        arriving = sizes(arriving.astype(np.int64))
    return AllToAll(elements=arriving * config.d_model, ranks=routed.ranks, dtype=dtype)


def all_gather(config: TransformerConfig, rows: int, vocabulary: int, ranks: int) -> Operator:
    return AllGather(elements=rows * vocabulary * ranks, ranks=ranks, dtype=config.activations)
