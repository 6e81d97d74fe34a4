"""Configurations of well-known models, from their published config.json; `parameters` reproduces their published totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import Error
from ..words import hint, spelled
from .config import Quantization, TransformerConfig, shown

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
    TransformerConfig(
        name="GPT-OSS-120B", layers=36, d_model=2880, heads=64, kv_heads=8, head_dim=64, vocabulary=201088, rope_theta=1.5e5,
        rope_scaling="yarn × 32", max_seq=131072, qkv_bias=True, output_bias=True, ffn_bias=True, sinks=True, window=128,
        window_layers=tuple(range(0, 36, 2)), experts=128, experts_per_token=4, expert_d_ff=2880, router_bias=True,
        quantization=Quantization(method="mxfp4", weights="mxfp4", covers="experts"),
    ),
)  # fmt: skip

PRESETS: Mapping[str, TransformerConfig] = {config.name: config for config in _ALL}
ALIASES: Mapping[str, str] = {"DeepSeek-R1": "DeepSeek-V3"}  # of the same architecture
_ENDINGS = ("instruct", "chat", "base", "hf", "it", "thinking", "instruct2507", "thinking2507", "v01", "v03", "pt", "bf16")


def _shortened(name: str) -> Iterator[str]:
    """A name of the Hugging Face hub as it is spelled here: without its owner, "Meta-", and endings such as "-Instruct"."""
    word = spelled(name.rpartition("/")[2]).removeprefix("meta")
    yield word
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
    raise Error(f"no preset {shown(name)}{near}: use one of {', '.join(PRESETS)}, or the path of a Hugging Face config.json")
