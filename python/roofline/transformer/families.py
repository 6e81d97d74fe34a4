"""What a model_type of Hugging Face means beyond its config.json: facts of each architecture's code, one table.

A configuration states numbers; that Qwen2 adds a bias to q, k and v, or that Gemma 2 has four norms a layer, stands in the
model's code only. Sources: `configuration_*.py` and `modeling_*.py` of transformers, by model_type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What one model_type implies.

    required: keys without a default that may be left out elsewhere. stated: keys that may be null but not left out: without them
    the code takes a number of its own. qkv_bias, output_bias, ffn_bias: True, False, or the key that says so (absent: False).
    tied: tie_word_embeddings where it is absent. window: how layers get one, see `hugging_face`. mixture: key of the number of
    experts; dense layers by "first_k_dense_replace", "decoder_sparse_step" or none ("").
    """

    gated: bool = True
    norm: str = "rms_norm"
    norms: int = 2
    qk_norm: bool = False
    tied: bool = False
    required: tuple[str, ...] = ()
    stated: tuple[str, ...] = ("num_key_value_heads",)
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


_LLAMA = Family(qkv_bias="attention_bias", output_bias="attention_bias", ffn_bias="mlp_bias", stated=())
_QWEN3 = Family(qk_norm=True, qkv_bias="attention_bias", output_bias="attention_bias", window="switched", required=("head_dim",))

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": Family(window="all", stated=("num_key_value_heads", "sliding_window")),
    "mixtral": Family(window="all", mixture="num_local_experts", expert_d_ff="intermediate_size"),
    "qwen2": Family(qkv_bias=True, window="switched"),
    "qwen2_moe": Family(qkv_bias=True, window="switched", mixture="num_experts", dense="decoder_sparse_step"),
    "qwen3": _QWEN3,
    "qwen3_moe": Family(
        qk_norm=True, qkv_bias="attention_bias", output_bias="attention_bias", window="switched", required=("head_dim",),
        mixture="num_experts", dense="decoder_sparse_step",
    ),
    "deepseek_v2": Family(mla=True, mixture="n_routed_experts", dense="first_k_dense_replace", stated=()),
    "deepseek_v3": Family(
        mla=True, mixture="n_routed_experts", dense="first_k_dense_replace", router="sigmoid", router_bias=True,
        required=("n_group", "topk_group"), stated=(),
    ),
    "gpt_oss": Family(
        qkv_bias=True, output_bias=True, ffn_bias=True, window="listed", required=("head_dim",), mixture="num_local_experts",
        expert_d_ff="intermediate_size", router_bias=True, sinks=True,
    ),
    "gemma2": Family(norms=4, tied=True, required=("head_dim",), window="even"),
    "gemma3_text": Family(norms=4, qk_norm=True, tied=True, required=("head_dim",), window="listed"),
    "phi3": Family(window="all", stated=()),
    "gpt2": Family(
        gated=False, norm="layer_norm", tied=True, qkv_bias=True, output_bias=True, ffn_bias=True, learned_positions=True,
        stated=(),
    ),
}  # fmt: skip

FAMILIES = {**FAMILIES, "kimi_k2": FAMILIES["deepseek_v3"]}  # DeepSeek-V3's code with other numbers

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

# Keys that change neither time nor memory: tokens, training, generation, provenance, numbers of one element, and defaults that are
# stated once more. All else that is not read is listed.
NO_MATTER = re.compile(
    r".*_token_id|.*_dropout|dropout|.*_pdrop|initializer_.*|.*_eps|.*norm_epsilon|architectures|auto_map|transformers_version|_.*|"
    r"use_cache|model_type|torch_dtype|dtype|quantization_config|text_config|vision_config|audio_config|pretraining_tp|"
    r"router_aux_loss_coef|aux_loss_alpha|seq_aux|output_router_logits|norm_topk_prob|routed_scaling_factor|router_jitter_noise|"
    r"ep_size|num_nextn_predict_layers|swiglu_limit|initial_context_length|experts_per_token|original_max_position_embeddings|"
    r"attn_logit_softcapping|final_logit_softcapping|query_pre_attn_scalar|rope_local_base_freq|cache_implementation|"
    r"hidden_activation|hidden_act|embd_layer_norm_epsilon|activation_function|scale_attn_weights|reorder_and_upcast_attn|"
    r"scale_attn_by_inverse_layer_idx|summary_.*|task_specific_params|problem_type|id2label|label2id|rope_scaling|rope_theta|"
    r"max_window_layers|sliding_window|use_sliding_window|num_key_value_heads|head_dim|intermediate_size|moe_layer_freq|"
    r"use_qk_norm|.*_penalty|max_length|num_beam.*|top_k|top_p|typical_p|temperature|return_dict|num_return_sequences|ignore_index|"
    r".*_placeholder|use_unified_vision_chunk|n_ctx|is_encoder_decoder|tie_word_embeddings|attention_bias|mlp_bias|n_group|topk_group|topk_method|scoring_func"
)

# hidden_act → what it costs.
ACTIVATIONS: Mapping[str, str] = {
    "silu": "silu", "swish": "silu", "swiglu": "silu", "gelu": "gelu", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu", "relu": "relu",
}  # fmt: skip

DTYPES: Mapping[str, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32"}

# GPT-2 has names of its own.
GPT2_NAMES: Mapping[str, str] = {
    "num_hidden_layers": "n_layer", "hidden_size": "n_embd", "num_attention_heads": "n_head", "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions", "hidden_act": "activation_function",
}  # fmt: skip
