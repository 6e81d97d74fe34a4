"""How many parameters a transformer has, by what they belong to, how many of them one token meets, and what they weigh."""

from __future__ import annotations

import math

from ..dtypes import dtype
from .config import TransformerConfig
from .ranks import Ranks, ranks_of

GROUPS = ("embedding", "attention", "ffn", "experts", "shared experts", "router", "norm", "head")
PARTS = {"attention": "attention", "ffn": "ffn", "shared experts": "ffn", "experts": "experts"}  # as quantization covers them


def _attention(config: TransformerConfig, r: Ranks) -> tuple[int, int]:
    """Parameters of one layer's attention: numbers in matrices, and all others (norms of q, k and latents, biases, sinks)."""
    c = config
    out = r.heads * c.value_dim * c.d_model
    if c.mla:
        queries = r.heads * c.head_dim
        q = c.q_lora_rank * (c.d_model + queries) if c.q_lora_rank else c.d_model * queries
        latent = c.d_model * (c.kv_lora_rank + c.rope_head_dim)
        return q + latent + c.kv_lora_rank * r.heads * (c.nope_head_dim + c.v_head_dim) + out, c.q_lora_rank + c.kv_lora_rank
    width = (r.heads + 2 * r.kv_heads) * c.head_dim
    others = c.qkv_bias * width + c.output_bias * c.d_model + 2 * c.qk_norm * c.head_dim + c.sinks * r.heads
    return c.d_model * width + out, others


def _ffn(config: TransformerConfig, d_ff: int) -> tuple[int, int]:
    """Parameters of one FFN of width d_ff: numbers in matrices, and in biases."""
    c = config
    return c.matrices * c.d_model * d_ff, c.ffn_bias * ((c.matrices - 1) * d_ff + c.d_model)


def _split(config: TransformerConfig, r: Ranks) -> dict[str, tuple[int, int]]:
    """By GROUPS: numbers in matrices that quantization may narrow, and all others."""
    c = config
    mixtures = c.mixtures

    def times(count: int, each: tuple[int, int]) -> tuple[int, int]:
        return count * each[0], count * each[1]

    shared = (c.matrices * c.d_model * r.shared_d_ff, c.shared_gate * c.d_model)
    return {
        "embedding": (0, (r.vocabulary + c.positions) * c.d_model),
        "attention": times(c.layers, _attention(c, r)),
        "ffn": times(c.layers - mixtures, _ffn(c, r.d_ff)),
        "experts": times(mixtures * c.experts // r.ep, _ffn(c, r.expert_d_ff)),
        "shared experts": times(mixtures if c.shared_experts else 0, shared),
        "router": (0, mixtures * (c.d_model + c.router_bias) * c.experts),
        "norm": (0, (c.layers * c.norms + 1) * c.d_model * (2 if c.norm == "layer_norm" else 1)),
        "head": (0, 0 if c.tied_embeddings else r.vocabulary * c.d_model),
    }


def parameters(config: TransformerConfig, *, tp: int = 1, ep: int = 1) -> dict[str, int]:
    """Parameters by GROUPS, of one rank of tp or ep; 0 for absent parts. Tied embeddings count once, as "embedding"."""
    return {group: sum(counts) for group, counts in _split(config, ranks_of(config, tp, ep)).items()}


def total_parameters(config: TransformerConfig, *, tp: int = 1, ep: int = 1) -> int:
    return sum(parameters(config, tp=tp, ep=ep).values())


def active_parameters(config: TransformerConfig, *, embedding: bool = True) -> int:
    """Parameters that one token meets: of each mixture only experts_per_token experts.

    embedding: count the embedding table, though one row of it is read (as DeepSeek does; OpenAI does not). A tied table is the
    head too and counts either way.
    """
    counts = parameters(config)
    if config.experts:
        counts["experts"] = counts["experts"] // config.experts * config.experts_per_token
    left_out = 0 if embedding or config.tied_embeddings else counts["embedding"]
    return sum(counts.values()) - left_out


def weights_bytes(config: TransformerConfig, *, tp: int = 1, ep: int = 1) -> int:
    """Memory of the weights of one rank of tp or ep, as they are stored."""
    c, r = config, ranks_of(config, tp, ep)
    q, plain = c.quantization, float(dtype(c.weights).bits)
    bits = 0.0
    for group, (matrices, others) in _split(c, r).items():
        output = c.layers * r.heads * c.value_dim * c.d_model if group == "attention" else 0
        for part, count in ((PARTS.get(group, ""), matrices - output), ("output", output)):
            bits += count * (q.bits if q is not None and q.narrows(part) else plain)
        bits += others * plain
    return math.ceil(bits / 8)
