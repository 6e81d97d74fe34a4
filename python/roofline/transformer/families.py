"""What a model_type of Hugging Face means beyond its config.json: facts of each architecture's code, one table.

A configuration states numbers; that Qwen2 adds a bias to q, k and v, or that Gemma 2 has four norms a layer, stands in the
model's code only. Sources: `configuration_*.py` and `modeling_*.py` of transformers, by model_type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Of one model_type.

    required: keys without a default that may be left out elsewhere. qkv_bias, output_bias, ffn_bias: True, False, or the key that
    says so (absent: False). tied: tie_word_embeddings where it is absent. window: how layers get one, see `hugging_face`.
    mixture: key of the number of experts; dense layers by "first_k_dense_replace", "decoder_sparse_step" or none ("").
    """

    gated: bool = True
    norm: str = "rms_norm"
    norms: int = 2
    qk_norm: bool = False
    tied: bool = False
    required: tuple[str, ...] = ()
    qkv_bias: bool | str = False
    output_bias: bool | str = False
    ffn_bias: bool | str = False
    window: str = ""  # "", "all" (sliding_window), "switched" (use_sliding_window), "listed" (layer_types), "even" (0, 2, …)
    mla: bool = False
    mixture: str = ""
    dense: str = ""
    expert_d_ff: str = "moe_intermediate_size"
    router: str = "softmax"
    router_bias: bool = False
    sinks: bool = False
    learned_positions: bool = False


_LLAMA = Family(qkv_bias="attention_bias", output_bias="attention_bias", ffn_bias="mlp_bias")
_QWEN3 = Family(qk_norm=True, qkv_bias="attention_bias", output_bias="attention_bias", window="switched", required=("head_dim",))

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": Family(window="all"),
    "mixtral": Family(window="all", mixture="num_local_experts", expert_d_ff="intermediate_size"),
    "qwen2": Family(qkv_bias=True, window="switched"),
    "qwen2_moe": Family(qkv_bias=True, window="switched", mixture="num_experts", dense="decoder_sparse_step"),
    "qwen3": _QWEN3,
    "qwen3_moe": Family(
        qk_norm=True, qkv_bias="attention_bias", output_bias="attention_bias", window="switched", required=("head_dim",),
        mixture="num_experts", dense="decoder_sparse_step",
    ),
    "deepseek_v2": Family(mla=True, mixture="n_routed_experts", dense="first_k_dense_replace"),
    "deepseek_v3": Family(
        mla=True, mixture="n_routed_experts", dense="first_k_dense_replace", router="sigmoid", router_bias=True,
        required=("n_group", "topk_group"),
    ),
    "gpt_oss": Family(
        qkv_bias=True, output_bias=True, ffn_bias=True, window="listed", required=("head_dim",), mixture="num_local_experts",
        expert_d_ff="intermediate_size", router_bias=True, sinks=True,
    ),
    "gemma2": Family(norms=4, tied=True, required=("head_dim",), window="even"),
    "gemma3_text": Family(norms=4, qk_norm=True, tied=True, required=("head_dim",), window="listed"),
    "phi3": Family(window="all"),
    "gpt2": Family(
        gated=False, norm="layer_norm", tied=True, qkv_bias=True, output_bias=True, ffn_bias=True, learned_positions=True
    ),
}  # fmt: skip

# The text part of models that also see: its own model_type may be missing there.
TEXT_PARTS: Mapping[str, str] = {"gemma3": "gemma3_text"}

# Keys that mean a mechanism that is not modelled, whatever the model_type: ignoring one would give a wrong answer.
NOT_MODELLED: Mapping[str, str] = {
    "index_topk": "sparse attention (an indexer that picks keys)",
    "attention_chunk_size": "chunked attention",
    "no_rope_layers": "layers without rotary embeddings",
    "num_kv_shared_layers": "layers that share one KV cache",
    "linear_num_value_heads": "linear attention",
    "mamba_d_state": "state-space layers",
}

# hidden_act → what it costs.
ACTIVATIONS: Mapping[str, str] = {
    "silu": "silu", "swish": "silu", "swiglu": "silu", "gelu": "gelu", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu", "relu": "relu",
}  # fmt: skip

DTYPES: Mapping[str, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32"}

# GPT-2 has names of its own.
GPT2_NAMES: Mapping[str, str] = {
    "num_hidden_layers": "n_layer",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "hidden_act": "activation_function",
}
