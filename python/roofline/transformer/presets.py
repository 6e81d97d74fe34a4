"""Configurations of well-known models, from their published config.json; `parameters` reproduces their published totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import Error, shown
from ..words import hint, spelled
from .config import TransformerConfig
from .quantization import Quantization

_LLAMA: dict[str, Any] = {"vocabulary": 32000, "rope_theta": 1e4, "max_seq": 4096}
_LLAMA3: dict[str, Any] = {"kv_heads": 8, "vocabulary": 128256, "rope_theta": 5e5, "max_seq": 8192}

# Without the layer that predicts a second token (MTP, 14B more in the published file of 685B): decoding does without it.
_DEEPSEEK: dict[str, Any] = {
    "layers": 61, "d_model": 7168, "heads": 128, "d_ff": 18432, "vocabulary": 129280, "rope_theta": 1e4,
    "rope_scaling": "yarn × 40", "max_seq": 163840, "q_lora_rank": 1536, "kv_lora_rank": 512, "nope_head_dim": 128,
    "rope_head_dim": 64, "v_head_dim": 128, "experts": 256, "experts_per_token": 8, "expert_groups": 8, "groups_per_token": 4,
    "expert_d_ff": 2048, "shared_experts": 1, "shared_d_ff": 2048, "dense_layers": (0, 1, 2), "router": "sigmoid",
    "router_bias": True,
}  # fmt: skip

_GPT_OSS: dict[str, Any] = {
    "d_model": 2880, "heads": 64, "kv_heads": 8, "head_dim": 64, "vocabulary": 201088, "rope_theta": 1.5e5,
    "rope_scaling": "yarn × 32", "max_seq": 131072, "qkv_bias": True, "output_bias": True, "ffn_bias": True, "sinks": True,
    "window": 128, "experts_per_token": 4, "expert_d_ff": 2880, "router_bias": True,
    "quantization": Quantization(method="mxfp4", weights="mxfp4", covers="experts"),
}  # fmt: skip

_ALL = (
    # The model that tutorials count with: four square projections, a plain FFN of 4 d_model. No embeddings are counted in
    # them; the vocabulary is Llama's.
    TransformerConfig(
        name="7B", layers=32, d_model=4096, heads=32, d_ff=16384, activation="gelu", gated=False, **_LLAMA,
    ),
    TransformerConfig(name="Llama-2-7B", layers=32, d_model=4096, heads=32, d_ff=11008, **_LLAMA),
    TransformerConfig(name="Llama-3-8B", layers=32, d_model=4096, heads=32, d_ff=14336, **_LLAMA3),
    TransformerConfig(name="Llama-3-70B", layers=80, d_model=8192, heads=64, d_ff=28672, **_LLAMA3),
    TransformerConfig(
        name="Mixtral-8x7B", layers=32, d_model=4096, heads=32, kv_heads=8, vocabulary=32000, rope_theta=1e6, max_seq=32768,
        experts=8, experts_per_token=2, expert_d_ff=14336,
    ),
    TransformerConfig(
        name="Qwen3-8B", layers=36, d_model=4096, heads=32, kv_heads=8, head_dim=128, d_ff=12288, vocabulary=151936, qk_norm=True,
        rope_theta=1e6, max_seq=40960,
    ),
    TransformerConfig(
        name="Qwen3-30B-A3B", layers=48, d_model=2048, heads=32, kv_heads=4, head_dim=128, vocabulary=151936, qk_norm=True,
        rope_theta=1e6, max_seq=40960, experts=128, experts_per_token=8, expert_d_ff=768,
    ),
    TransformerConfig(
        name="DeepSeek-V3", **_DEEPSEEK,
        quantization=Quantization(method="fp8", weights="fp8_e4m3", group=128 * 128, scale_bits=32, activations="fp8_e4m3"),
    ),
    # nvidia/DeepSeek-R1-NVFP4-v2 by its model card: as its first version, which leaves attention in bf16, and the output
    # projections in NVFP4 too.
    TransformerConfig(
        name="DeepSeek-R1-NVFP4", **_DEEPSEEK,
        quantization=Quantization(
            method="modelopt", weights="nvfp4", activations="nvfp4", covers="ffn_and_output"
        ),
    ),
    TransformerConfig(name="GPT-OSS-120B", layers=36, experts=128, window_layers=tuple(range(0, 36, 2)), **_GPT_OSS),
)  # fmt: skip

_LLAMA31: dict[str, Any] = {**_LLAMA3, "rope_scaling": "llama3 × 8", "max_seq": 131072}
_LLAMA32: dict[str, Any] = {**_LLAMA31, "rope_scaling": "llama3 × 32", "tied_embeddings": True}
_QWEN25: dict[str, Any] = {"vocabulary": 152064, "rope_theta": 1e6, "max_seq": 131072, "qkv_bias": True}
_QWEN3: dict[str, Any] = {"head_dim": 128, "vocabulary": 151936, "qk_norm": True, "rope_theta": 1e6, "max_seq": 40960}
_GEMMA2: dict[str, Any] = {
    "vocabulary": 256000, "activation": "gelu", "norms": 4, "tied_embeddings": True, "rope_theta": 1e4, "max_seq": 8192,
    "window": 4096,
}  # fmt: skip

# Where the numbers of the models below were read: copies of their config.json, and LitGPT's table of them.
_AICONFIGURATOR = (
    "https://github.com/ai-dynamo/aiconfigurator/blob/095f58a51c4ca8e61b66ec108d86f223f8d559ce/aic-core/src/aiconfigurator_core/"
    "model_configs/"
)
_MLC = "https://github.com/mlc-ai/mlc-llm/blob/79d603f085f50500e9509fa01785ffa7ecfaaa93/python/mlc_llm/model/model_preset.py#"
_LITGPT = "https://github.com/Lightning-AI/litgpt/blob/26857050fe3ff627cd714fe92f5838f51a3d5efa/litgpt/config.py#"

_READ: tuple[tuple[str, TransformerConfig], ...] = (
    (_AICONFIGURATOR + "meta-llama--Meta-Llama-3.1-8B_config.json",
     TransformerConfig(name="Llama-3.1-8B", layers=32, d_model=4096, heads=32, d_ff=14336, **_LLAMA31)),
    (_AICONFIGURATOR + "meta-llama--Meta-Llama-3.1-70B_config.json",
     TransformerConfig(name="Llama-3.1-70B", layers=80, d_model=8192, heads=64, d_ff=28672, **_LLAMA31)),
    (_AICONFIGURATOR + "meta-llama--Meta-Llama-3.1-405B_config.json",
     TransformerConfig(name="Llama-3.1-405B", layers=126, d_model=16384, heads=128, d_ff=53248, **_LLAMA31)),
    (_MLC + "llama3_2_1b", TransformerConfig(name="Llama-3.2-1B", layers=16, d_model=2048, heads=32, d_ff=8192, **_LLAMA32)),
    (_MLC + "llama3_2_3b", TransformerConfig(name="Llama-3.2-3B", layers=28, d_model=3072, heads=24, d_ff=8192, **_LLAMA32)),
    (_LITGPT + "Llama-3.3-70B-Instruct",
     TransformerConfig(name="Llama-3.3-70B", layers=80, d_model=8192, heads=64, d_ff=28672, **_LLAMA31)),
    (_LITGPT + "Qwen2.5-7B",
     TransformerConfig(name="Qwen2.5-7B", layers=28, d_model=3584, heads=28, kv_heads=4, d_ff=18944, **_QWEN25)),
    (_LITGPT + "Qwen2.5-14B",
     TransformerConfig(name="Qwen2.5-14B", layers=48, d_model=5120, heads=40, kv_heads=8, d_ff=13824, **_QWEN25)),
    (_LITGPT + "Qwen2.5-32B",
     TransformerConfig(name="Qwen2.5-32B", layers=64, d_model=5120, heads=40, kv_heads=8, d_ff=27648, **_QWEN25)),
    (_LITGPT + "Qwen2.5-72B",
     TransformerConfig(name="Qwen2.5-72B", layers=80, d_model=8192, heads=64, kv_heads=8, d_ff=29568, **_QWEN25)),
    (_LITGPT + "Qwen3-14B",
     TransformerConfig(name="Qwen3-14B", layers=40, d_model=5120, heads=40, kv_heads=8, d_ff=17408, **_QWEN3)),
    (_AICONFIGURATOR + "Qwen--Qwen3-32B_config.json",
     TransformerConfig(name="Qwen3-32B", layers=64, d_model=5120, heads=64, kv_heads=8, d_ff=25600, **_QWEN3)),
    (_AICONFIGURATOR + "Qwen--Qwen3-235B-A22B_config.json",
     TransformerConfig(name="Qwen3-235B-A22B", layers=94, d_model=4096, heads=64, kv_heads=4, experts=128, experts_per_token=8,
                       expert_d_ff=1536, **_QWEN3)),
    (_AICONFIGURATOR + "Qwen--Qwen3-Coder-480B-A35B-Instruct_config.json",
     TransformerConfig(name="Qwen3-Coder-480B-A35B", layers=62, d_model=6144, heads=96, kv_heads=8, experts=160,
                       experts_per_token=8, expert_d_ff=2560, **{**_QWEN3, "rope_theta": 1e7, "max_seq": 262144})),
    (_MLC + "mistral_7b_v03",
     TransformerConfig(name="Mistral-7B-v0.3", layers=32, d_model=4096, heads=32, kv_heads=8, d_ff=14336, vocabulary=32768,
                       rope_theta=1e6, max_seq=32768)),
    ("https://huggingface.co/TechxGenus/Mistral-Large-Instruct-2411-AWQ/blob/main/config.json",
     TransformerConfig(name="Mistral-Large-2411", layers=88, d_model=12288, heads=96, kv_heads=8, d_ff=28672, vocabulary=32768,
                       rope_theta=1e6, max_seq=131072)),
    (_AICONFIGURATOR + "mistralai--Mixtral-8x22B-v0.1_config.json",
     TransformerConfig(name="Mixtral-8x22B", layers=56, d_model=6144, heads=48, kv_heads=8, vocabulary=32000, rope_theta=1e6,
                       max_seq=65536, experts=8, experts_per_token=2, expert_d_ff=16384)),
    (_MLC + "phi-3_5",
     TransformerConfig(name="Phi-3.5-mini", layers=32, d_model=3072, heads=32, d_ff=8192, vocabulary=32064, rope_theta=1e4,
                       rope_scaling="longrope × 1", max_seq=131072, window=262144)),
    (_LITGPT + "phi-4",
     TransformerConfig(name="Phi-4", layers=40, d_model=5120, heads=40, kv_heads=10, d_ff=17920, vocabulary=100352,
                       rope_theta=2.5e5, max_seq=16384)),
    (_MLC + "gemma2_2b",
     TransformerConfig(name="Gemma-2-2B", layers=26, d_model=2304, heads=8, kv_heads=4, head_dim=256, d_ff=9216,
                       window_layers=tuple(range(0, 26, 2)), **_GEMMA2)),
    (_MLC + "gemma2_9b",
     TransformerConfig(name="Gemma-2-9B", layers=42, d_model=3584, heads=16, kv_heads=8, head_dim=256, d_ff=14336,
                       window_layers=tuple(range(0, 42, 2)), **_GEMMA2)),
    (_MLC + "gemma2_27b",
     TransformerConfig(name="Gemma-2-27B", layers=46, d_model=4608, heads=32, kv_heads=16, head_dim=128, d_ff=36864,
                       window_layers=tuple(range(0, 46, 2)), **_GEMMA2)),
    (_MLC + "deepseek_v2_lite",
     TransformerConfig(name="DeepSeek-V2-Lite", layers=27, d_model=2048, heads=16, d_ff=10944, vocabulary=102400, rope_theta=1e4,
                       rope_scaling="yarn × 40", max_seq=163840, kv_lora_rank=512, nope_head_dim=128, rope_head_dim=64,
                       v_head_dim=128, experts=64, experts_per_token=6, expert_d_ff=1408, shared_experts=2, shared_d_ff=2816,
                       dense_layers=(0,))),
    (_AICONFIGURATOR + "openai--gpt-oss-20b_config.json",
     TransformerConfig(name="GPT-OSS-20B", layers=24, experts=32, window_layers=tuple(range(0, 24, 2)), **_GPT_OSS)),
    (_LITGPT + "Falcon3-7B-Base",
     TransformerConfig(name="Falcon3-7B", layers=28, d_model=3072, heads=12, kv_heads=4, d_ff=23040, vocabulary=131072,
                       rope_theta=1000042.0, max_seq=32768)),
    (_LITGPT + "Falcon3-10B-Base",
     TransformerConfig(name="Falcon3-10B", layers=40, d_model=3072, heads=12, kv_heads=4, d_ff=23040, vocabulary=131072,
                       rope_theta=1000042.0, max_seq=32768)),
)  # fmt: skip

PRESETS: Mapping[str, TransformerConfig] = {config.name: config for config in (*_ALL, *(config for _, config in _READ))}
# Where the numbers of a preset were read; those without are the tutorials' 7B, and NVIDIA's model card over DeepSeek-V3.
SOURCES: Mapping[str, str] = {
    "Llama-2-7B": _LITGPT + "Llama-2-7b-hf",
    "Llama-3-8B": _LITGPT + "Llama-3-8B",
    "Llama-3-70B": _LITGPT + "Llama-3-70B",
    "Mixtral-8x7B": _AICONFIGURATOR + "mistralai--Mixtral-8x7B-v0.1_config.json",
    "Qwen3-8B": _AICONFIGURATOR + "Qwen--Qwen3-8B_config.json",
    "Qwen3-30B-A3B": _AICONFIGURATOR + "Qwen--Qwen3-30B-A3B_config.json",
    "DeepSeek-V3": _AICONFIGURATOR + "deepseek-ai--DeepSeek-V3_config.json",
    "GPT-OSS-120B": _AICONFIGURATOR + "openai--gpt-oss-120b_config.json",
    **{config.name: source for source, config in _READ},
}
ALIASES: Mapping[str, str] = {  # of the same architecture and sizes
    "DeepSeek-R1": "DeepSeek-V3", "Mixtral-8x7B-v0.1": "Mixtral-8x7B", "Llama-2-7B-hf": "Llama-2-7B",
    "DeepSeek-R1-Distill-Llama-8B": "Llama-3.1-8B", "DeepSeek-R1-Distill-Llama-70B": "Llama-3.3-70B",
    "Llama-3.1-Nemotron-70B": "Llama-3.1-70B", "Qwen2.5-Coder-7B": "Qwen2.5-7B", "Qwen2.5-Coder-32B": "Qwen2.5-32B",
    "Mistral-7B": "Mistral-7B-v0.3", "Mistral-Large": "Mistral-Large-2411",
}  # fmt: skip
_ENDINGS = ("instruct", "chat", "base", "hf", "it", "thinking", "instruct2507", "thinking2507", "v01", "pt", "bf16")


def _shortened(name: str) -> Iterator[str]:
    """A name of the Hugging Face hub as it is spelled here: without its owner, "Meta-", and endings such as "-Instruct"."""
    word = spelled(name.rpartition("/")[2]).removeprefix("meta")
    yield word
    yield word.replace("instruct", "")
    while ending := next((e for e in _ENDINGS if word.endswith(e) and word != e), None):
        word = word.removesuffix(ending)
        yield word


def preset(name: str) -> TransformerConfig:
    """The preset of this name, whatever its case and dashes: also "meta-llama/Meta-Llama-3-8B-Instruct". Raises Error."""
    known = {spelled(word): own for word, own in (*((n, n) for n in PRESETS), *ALIASES.items())}
    if isinstance(name, str):
        for word in _shortened(name[:200]):
            if word in known:
                return PRESETS[known[word]]
    near = hint(name.rpartition("/")[2], (*PRESETS, *ALIASES)) if isinstance(name, str) else ""
    listed = "" if near else f": use one of {', '.join(PRESETS)},"
    raise Error(f"no preset {shown(name)}{near}{listed} or give the path of a Hugging Face config.json")
