"""How many parameters a transformer has, by what they belong to, and how many of them one token meets."""

from __future__ import annotations

from .config import TransformerConfig

GROUPS = ("embedding", "attention", "ffn", "experts", "shared experts", "router", "norm", "head")


def attention_parameters(config: TransformerConfig) -> int:
    """Of one layer, norms of q, k and of latents included."""
    c = config
    out = c.heads * c.value_dim * c.d_model + c.output_bias * c.d_model
    if c.mla:
        queries = c.heads * c.head_dim
        q = c.d_model * c.q_lora_rank + c.q_lora_rank + c.q_lora_rank * queries if c.q_lora_rank else c.d_model * queries
        latent = c.d_model * (c.kv_lora_rank + c.rope_head_dim) + c.kv_lora_rank
        return q + latent + c.kv_lora_rank * c.heads * (c.nope_head_dim + c.v_head_dim) + out
    width = (c.heads + 2 * c.kv_heads) * c.head_dim
    return c.d_model * width + c.qkv_bias * width + out + 2 * c.qk_norm * c.head_dim + c.sinks * c.heads


def ffn_parameters(config: TransformerConfig, d_ff: int) -> int:
    """Of one FFN of width d_ff."""
    bias = config.ffn_bias * ((config.matrices - 1) * d_ff + config.d_model)
    return config.matrices * config.d_model * d_ff + bias


def parameters(config: TransformerConfig) -> dict[str, int]:
    """Parameters by GROUPS; those a model has not are 0. Tied embeddings count once, as "embedding"."""
    c = config
    mixtures = c.mixtures
    norm = c.d_model * (2 if c.norm == "layer_norm" else 1)
    shared = c.matrices * c.d_model * c.shared_d_ff + c.shared_gate * c.d_model
    return {
        "embedding": (c.vocabulary + c.positions) * c.d_model,
        "attention": c.layers * attention_parameters(c),
        "ffn": (c.layers - mixtures) * ffn_parameters(c, c.d_ff),
        "experts": mixtures * c.experts * ffn_parameters(c, c.expert_d_ff),
        "shared experts": mixtures * shared if c.shared_experts else 0,
        "router": mixtures * (c.d_model + c.router_bias) * c.experts,
        "norm": (c.layers * c.norms + 1) * norm,
        "head": 0 if c.tied_embeddings else c.vocabulary * c.d_model,
    }


def total_parameters(config: TransformerConfig) -> int:
    return sum(parameters(config).values())


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
