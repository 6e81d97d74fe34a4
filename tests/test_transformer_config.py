"""Configurations: published parameter totals, config.json files as they are in the wild, and hostile ones."""

import json
import math
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from example import CONFIGS
from hypothesis import given, strategies as st
from tables import gives, refused

from roofline.census import census_of
from roofline.errors import Error
from roofline.questions import predict
from roofline.transformer import (
    PRESETS,
    Quantization,
    TransformerConfig,
    active_parameters,
    from_hugging_face,
    parameters,
    preset,
    total_parameters,
    weights_bytes,
)
from roofline.transformer.parameters import GROUPS
from roofline.transformer.presets import SOURCES

# (total, active or None, relative tolerance): exact where the safetensors index of the repository states a count; the others
# as far as they were published.
PUBLISHED: dict[str, tuple[float, float | None, float]] = {
    "Llama-2-7B": (6_738_415_616, None, 0),  # meta-llama/Llama-2-7b-hf, model page: 6.74B
    "Llama-3-8B": (8_030_261_248, None, 0),  # meta-llama/Meta-Llama-3-8B, model page: 8.03B
    "Llama-3-70B": (70_553_706_496, None, 0),  # meta-llama/Meta-Llama-3-70B, model page: 70.6B
    "Mixtral-8x7B": (46_702_792_704, 12.9e9, 0.005),  # mistralai/Mixtral-8x7B-v0.1: 46.7B; Jiang et al. 2024: 13B active
    "Qwen3-8B": (8_190_735_360, None, 0),  # Qwen/Qwen3-8B: 8.2B, of which 6.95B not in embeddings
    "Qwen3-30B-A3B": (30.5e9, 3.3e9, 0.02),  # Qwen/Qwen3-30B-A3B, model card: 30.5B and 3.3B activated
    "DeepSeek-V3": (671e9, 37e9, 0.02),  # DeepSeek-V3 README: 671B main model weights, 37B activated
    "GPT-OSS-120B": (116.83e9, 5.13e9, 0.001),  # gpt-oss model card, table 1; active without the embedding, which it says
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_totals(name: str) -> None:
    config = preset(name)
    total, active, tolerance = PUBLISHED[name]
    assert total_parameters(config) == pytest.approx(total, rel=tolerance or 1e-15)
    if active:
        assert active_parameters(config, embedding=name != "GPT-OSS-120B") == pytest.approx(active, rel=tolerance)


def test_published_parts() -> None:
    """gpt-oss model card, table 1: MLP 114.71B, attention 0.96B, embedding and unembedding 1.16B. Qwen3-8B: 6.95B without both."""
    oss = parameters(preset("GPT-OSS-120B"))
    assert oss["experts"] + oss["router"] == pytest.approx(114.71e9, rel=1e-3)
    assert oss["attention"] == pytest.approx(0.96e9, rel=5e-3)
    assert oss["embedding"] + oss["head"] == pytest.approx(1.16e9, rel=5e-3)
    qwen = parameters(preset("Qwen3-8B"))
    assert sum(qwen.values()) - qwen["embedding"] - qwen["head"] == pytest.approx(6.95e9, rel=2e-3)
    # DeepSeek-V3 README_WEIGHTS.md: 0.9B for the embedding and as much for the head.
    assert parameters(preset("DeepSeek-V3"))["head"] == pytest.approx(0.9e9, rel=0.05)


def test_one_layer_by_hand() -> None:
    """d_model 8, 4 heads of 2 on 2 KV heads, d_ff 12, vocabulary 10, two layers: worked out on paper."""
    c = TransformerConfig(layers=2, d_model=8, heads=4, kv_heads=2, d_ff=12, vocabulary=10)
    attention = 2 * (8 * 8 + 2 * 8 * 4 + 8 * 8)  # q, k and v, out
    assert parameters(c) == {
        "embedding": 80, "attention": attention, "ffn": 2 * 3 * 96, "experts": 0, "shared experts": 0, "router": 0,
        "norm": 5 * 8, "head": 80,
    }  # fmt: skip
    assert tuple(parameters(c)) == GROUPS
    tied = c.replace(tied_embeddings=True, qkv_bias=True, output_bias=True, ffn_bias=True, norm="layer_norm")
    assert total_parameters(tied) == 80 + attention + 2 * (16 + 8) + 2 * (3 * 96 + 24 + 8) + 5 * 16
    mixture = c.replace(d_ff=12, experts=4, experts_per_token=2, expert_d_ff=6, shared_experts=1, shared_d_ff=5, dense_layers=(0,))
    p = parameters(mixture)
    assert (p["ffn"], p["experts"], p["shared experts"], p["router"]) == (3 * 96, 4 * 3 * 48, 3 * 40, 32)
    assert active_parameters(mixture) == total_parameters(mixture) - 2 * 3 * 48


def test_gpt2_total() -> None:
    """openai-community/gpt2: 124,439,808 parameters, tied."""
    config = from_hugging_face(
        {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
         "activation_function": "gelu_new", "torch_dtype": "float32"}
    )  # fmt: skip
    assert total_parameters(config) == 124_439_808
    assert (config.d_ff, config.gated, config.norm, config.rotated) == (3072, False, "layer_norm", 0)


@pytest.mark.parametrize("name", CONFIGS)
def test_config_json_gives_the_preset(name: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS[name]))
    expected = preset(name)
    for source in (CONFIGS[name], file, str(tmp_path)):
        found = from_hugging_face(source)
        # d_ff of a model without dense layers is named in some files and never used.
        assert found.replace(name=expected.name) == expected and not found.unread


# Parameters of the files on Hugging Face: the counts that their safetensors headers give, as public pages and programs quote them.
COUNTS = {
    "Llama-3.1-8B": 8_030_261_248, "Llama-3.1-70B": 70_553_706_496, "Llama-3.1-405B": 405_853_388_800,
    "Llama-3.2-1B": 1_235_814_400, "Llama-3.2-3B": 3_212_749_824, "Llama-3.3-70B": 70_553_706_496, "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664, "Qwen2.5-32B": 32_763_876_352, "Qwen2.5-72B": 72_706_203_648, "Qwen3-14B": 14_768_307_200,
    "Qwen3-32B": 32_762_123_264, "Qwen3-30B-A3B": 30_532_122_624, "Qwen3-235B-A22B": 235_093_634_560,
    "Qwen3-Coder-480B-A35B": 480_154_875_392, "Mistral-7B-v0.3": 7_248_023_552, "Mistral-Large-2411": 122_610_069_504,
    "Mixtral-8x22B": 140_620_634_112, "Phi-3.5-mini": 3_821_079_552, "Phi-4": 14_659_507_200, "Gemma-2-2B": 2_614_341_888,
    "Gemma-2-9B": 9_241_705_984, "Gemma-2-27B": 27_227_128_320, "DeepSeek-V2-Lite": 15_706_484_224, "GPT-OSS-20B": 20_914_757_184,
    "GPT-OSS-120B": 116_829_156_672,
}  # fmt: skip
# Sizes of the files in bf16, in GB of three digits each, on the pages of tiiuae/Falcon3-7B-Base and of a 10B that was trained on.
FILES_GB = {"Falcon3-7B": (4.94, 4.94, 4.22, 0.805), "Falcon3-10B": (4.94, 4.94, 4.89, 4.89, 0.947)}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_are_those_of_the_files(name: str) -> None:
    assert total_parameters(preset(name)) == COUNTS[name]


@pytest.mark.parametrize("name", FILES_GB)
def test_parameters_fill_the_files(name: str) -> None:
    assert 2 * total_parameters(preset(name)) == pytest.approx(sum(FILES_GB[name]) * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        # From config.json: layers, width, heads, KV heads, head, FFN, vocabulary.
        ("Falcon3-7B", (28, 3072, 12, 4, 256, 23040, 131072)),
        ("Falcon3-10B", (40, 3072, 12, 4, 256, 23040, 131072)),
    ],
)
def test_totals_by_hand_where_no_count_is_published(name: str, sizes: tuple[int, ...]) -> None:
    layers, d, heads, kv, head, ffn, vocabulary = sizes
    attention = 2 * d * heads * head + 2 * d * kv * head
    assert total_parameters(preset(name)) == 2 * vocabulary * d + layers * (attention + 3 * d * ffn + 2 * d) + d


def test_the_source_of_each_preset_is_stated() -> None:
    """LitGPT's table, or a page of the hub, stands for those whose config.json is not at hand here."""
    assert set(SOURCES) == set(PRESETS) - {"7B", "DeepSeek-R1-NVFP4"} and {*COUNTS, *FILES_GB} < set(SOURCES)
    assert all(source.startswith(("https://github.com/", "https://huggingface.co/")) for source in SOURCES.values())
    copied = {name for name in (*COUNTS, *FILES_GB) if "litgpt" not in SOURCES[name] and "huggingface" not in SOURCES[name]}
    assert copied - set(PUBLISHED) == set(CONFIGS) - set(PUBLISHED)


def test_mistral_large_is_made_for_131072_keys() -> None:
    """As its config.json has it; the 32768 of LitGPT's table is that of the release before, which was corrected too."""
    assert preset("Mistral-Large-2411").max_seq == 131072


def test_active_parameters_are_those_of_the_name() -> None:
    assert active_parameters(preset("Qwen3-235B-A22B")) == pytest.approx(22.2e9, rel=0.005)
    assert active_parameters(preset("Qwen3-Coder-480B-A35B")) == pytest.approx(35.5e9, rel=0.005)


@pytest.mark.parametrize(
    ("hub", "name"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama-3.3-70B"), ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"), ("Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen3-235B-A22B"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "Qwen3-Coder-480B-A35B"), ("openai/gpt-oss-20b", "GPT-OSS-20B"),
        ("google/gemma-2-9b-it", "Gemma-2-9B"), ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("mistralai/Mixtral-8x22B-Instruct-v0.1", "Mixtral-8x22B"), ("microsoft/phi-4", "Phi-4"),
        ("microsoft/Phi-3.5-mini-instruct", "Phi-3.5-mini"), ("deepseek-ai/DeepSeek-R1", "DeepSeek-V3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "Llama-3.3-70B"), ("tiiuae/Falcon3-7B-Base", "Falcon3-7B"),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", "DeepSeek-V2-Lite"), ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7B"),
        ("mistralai/Mistral-Large-Instruct-2411", "Mistral-Large-2411"), ("llama3 8b", "Llama-3-8B"),
        ("meta-llama/Meta-Llama-3-8B", "Llama-3-8B"), ("meta-llama/Meta-Llama-3-8B-Instruct", "Llama-3-8B"),
    ],
)  # fmt: skip
def test_names_of_the_hub(hub: str, name: str) -> None:
    assert preset(hub) is preset(name)


def test_unknown_keys_are_listed() -> None:
    """What nothing here reads stands in the configuration and in the notes of predictions and censuses."""
    given = {**CONFIGS["Llama-3-8B"], "my_odd_field": 3, "bos_token_id": 1, "attention_dropout": 0.0, "sliding_window": None,
             "quantization_config": {"quant_method": "fp8", "odd_bits": 3}}  # fmt: skip
    config = from_hugging_face(given)
    assert config.unread == ("my_odd_field", "quantization_config.odd_bits")
    said = "nothing here reads these keys of its config.json, and none of them counts: my_odd_field, quantization_config.odd_bits"
    assert any(said in note for note in predict("H100", given, "decode").notes)
    assert any(said in note for note in census_of(config, "decode", "H100").notes)
    assert from_hugging_face(CONFIGS["Llama-3-8B"]).unread == ()


@pytest.mark.parametrize(
    ("stated", "kv"),
    [
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8_e4m3"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None}, "bf16"),
    ],
)
def test_the_cache_of_a_quantized_model(stated: dict[str, Any], kv: str) -> None:
    assert from_hugging_face({**CONFIGS["Llama-3-8B"], "quantization_config": stated}).kv == kv
    odd = {**stated, "kv_cache_quant_algo": "FP3", "kv_cache_scheme": None}
    with pytest.raises(Error, match="a KV cache in 'FP3' is not known"):
        from_hugging_face({**CONFIGS["Llama-3-8B"], "quantization_config": odd})


def test_every_preset_has_its_config_json() -> None:
    assert {*CONFIGS, "7B", "DeepSeek-R1-NVFP4"} | set(SOURCES) == set(PRESETS)
    assert preset("deepseek-r1") is preset("DEEPSEEK-V3")
    with pytest.raises(Error, match="did you mean"):
        preset("llama-9")
    with pytest.raises(Error, match="use one of .*Llama-3-8B"):
        preset("xyz")


def test_keys_of_newer_files() -> None:
    """Transformers 5: text_config, dtype, rope_parameters by kind of layer."""
    inner = {
        "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2560, "intermediate_size": 10240,
        "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 34, "vocab_size": 262208,
        "sliding_window": 1024, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5 + ["sliding_attention"] * 4,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }  # fmt: skip
    config = from_hugging_face({"model_type": "gemma3", "dtype": "bfloat16", "text_config": inner, "vision_config": {"x": 1}})
    assert (config.norms, config.qk_norm, config.activation, config.windowed) == (4, True, "gelu", 29)
    assert (config.rope_theta, config.rope_scaling, config.weights) == (1e6, "linear × 8", "bf16")
    # The language model of google/gemma-3-4b-pt: 3.88B.
    assert total_parameters(config) == 3_880_263_168
    by_pattern = {key: value for key, value in inner.items() if key != "layer_types"} | {"sliding_window_pattern": 6}
    assert from_hugging_face({"dtype": "bfloat16", **by_pattern}).window_layers == config.window_layers


def llama(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in (CONFIGS["Llama-3-8B"] | changes).items() if value is not ...}


def compressed(weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights, **more}}}


@pytest.mark.parametrize(
    ("given", "weights", "bits", "activations"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4", 4 + 20 / 128, ""),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "int4", 4 + 20 / 64, ""),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", 8, ""),
        ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, "fp8_e4m3", 8 + 32 / 16384, "fp8_e4m3"),
        ({"quant_method": "fp8"}, "fp8_e4m3", 8, "fp8_e4m3"),
        ({"quant_method": "mxfp4"}, "mxfp4", 4.25, ""),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4", 4.5, "nvfp4"),
        (compressed({"num_bits": 8, "type": "int", "strategy": "channel"}, input_activations={"num_bits": 8, "type": "int"}),
         "int8", 8, "int8"),
        (compressed({"num_bits": 4, "type": "float", "strategy": "tensor_group"}), "nvfp4", 4.5, ""),
        (compressed({"num_bits": 4, "type": "float", "group_size": 16}), "nvfp4", 4.5, ""),
        (compressed({"num_bits": 4, "type": "float", "group_size": 32}), "mxfp4", 4.25, ""),
        (compressed({"num_bits": 8, "type": "float"}), "fp8_e4m3", 8, ""),
        (compressed({"num_bits": 4, "type": "int", "group_size": 128}), "int4", 4.125, ""),
        (compressed({"num_bits": 4, "type": "int", "strategy": "channel"}), "int4", 4, ""),  # one per column
    ],
)  # fmt: skip
def test_quantization(given: dict[str, Any], weights: str, bits: float, activations: str) -> None:
    found = from_hugging_face(llama(quantization_config=given)).quantization
    assert found is not None
    assert (found.weights, found.bits, found.activations) == (weights, bits, activations)


NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}


@pytest.mark.parametrize(
    ("given", "covers"),
    [
        ({"exclude_modules": ["lm_head", "model.layers.61*", "model.layers.3.mlp.gate"]}, "layers"),
        ({"ignore": ["lm_head", "model.layers.0.self_attn*", "model.layers.1.self_attn*"]}, "ffn"),
        ({"ignore": ["re:.*self_attn.*"]}, "ffn"),
        ({"exclude_modules": ["*.0.self_attn.q_a_proj", "*.kv_a_proj_with_mqa", "*.q_b_proj", "*.kv_b_proj"]}, "ffn_and_output"),
        ({"ignore": ["model.layers.0.self_attn.q_a_layernorm"]}, "layers"),
        ({"ignore": None}, "layers"),
    ],
)
def test_modules_that_are_left_out(given: dict[str, Any], covers: str) -> None:
    found = from_hugging_face(CONFIGS["DeepSeek-V3"] | {"quantization_config": {**NVFP4, **given}})
    assert found.quantization is not None
    assert found.quantization.covers == covers
    if covers == "ffn_and_output":
        assert found.replace(name="DeepSeek-R1-NVFP4") == preset("DeepSeek-R1-NVFP4")


test_groups_of_experts = gives(
    lambda keys: attrgetter("expert_groups", "groups_per_token")(from_hugging_face(CONFIGS["DeepSeek-V3"] | keys)),
    ({}, (8, 4)),
    ({"n_group": 1, "topk_group": 1}, (0, 0)),  # Kimi K2's
    ({"topk_method": "group_limited_greedy", "topk_group": 3}, (8, 3)),
    ({"topk_method": "greedy"}, (0, 0)),
)


test_groups_that_cannot_be = refused(
    lambda fields: preset("DeepSeek-V3").replace(**fields),
    ({"groups_per_token": 0}, "give both expert_groups and groups_per_token, or neither"),
    ({"expert_groups": 7}, "expert_groups 7 do not divide experts 256"),
    ({"groups_per_token": 9}, "groups_per_token 9 must be at most expert_groups 8"),
    ({"expert_groups": 64, "groups_per_token": 1}, "groups_per_token 1 .* hold experts_per_token 8"),
    ({"experts": 0, "dense_layers": ()}, "expert_groups, groups_per_token.* without experts"),
)


def test_weights_of_the_nvfp4_checkpoint() -> None:
    """By hand: bf16 in embedding, head, norms, router and attention but for o_proj, 4.5 bits in the rest."""
    config = preset("DeepSeek-R1-NVFP4")
    counts, output = parameters(config), 61 * 128 * 128 * 7168
    narrow = counts["ffn"] + counts["experts"] + counts["shared experts"] + output
    assert weights_bytes(config) == math.ceil((4.5 * narrow + 16 * (total_parameters(config) - narrow)) / 8)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "mamba2"}, "'mamba2' is not known"),
    ({"model_type": None}, "model_type is missing"),
    ({"model_type": ["llama"]}, "not known"),
    ({"hidden_size": ..., "vocab_size": ..., "torch_dtype": ...}, r"lacks hidden_size, vocab_size, dtype \(or torch_dtype"),
    ({"num_hidden_layers": 0}, "from 1 to 65536, got 0"),
    ({"num_hidden_layers": 10**30}, "from 1 to 65536"),
    ({"num_hidden_layers": "32"}, "must be an integer, got '32'"),
    ({"num_hidden_layers": True}, "must be an integer, got True"),
    ({"hidden_size": 4096.0}, "must be an integer"),
    ({"hidden_size": float("nan")}, "must be an integer"),
    ({"hidden_size": 10**400}, "between 1 and"),
    ({"hidden_size": 10**5000}, "too large to print"),
    ({"hidden_size": -4096}, "between 1 and"),
    ({"num_attention_heads": 24}, "not a multiple of heads 24"),
    ({"num_key_value_heads": 5}, "heads must be a multiple of kv_heads"),
    ({"hidden_act": "xielu"}, "activation 'xielu' is not known"),
    ({"torch_dtype": "float8"}, "dtype 'float8' is not known"),
    ({"layer_types": ["full_attention"]}, "names 1 layers, num_hidden_layers is 32"),
    ({"layer_types": ["linear_attention"] * 32}, "linear_attention are not modelled"),
    ({"layer_types": ["sliding_attention"] * 32}, "lacks sliding_window"),
    ({"attention_chunk_size": 8192}, "chunked attention"),
    ({"text_config": [1]}, "text_config must be an object"),
    ({"rope_scaling": {"type": "yarn", "factor": "x"}}, "factor must be a number"),
    ({"quantization_config": {"quant_method": "exl2"}}, "quant_method 'exl2' is not known"),
    ({"quantization_config": {"quant_method": "gptq", "bits": 3, "group_size": 128}}, "3-bit"),
    ({"quantization_config": {"quant_method": "awq"}}, r"lacks bits \(or w_bit"),
    ({"quantization_config": []}, "must be an object"),
    ({"quantization_config": {**NVFP4, "ignore": 3}}, "ignore must be a list of names of modules, got 3"),
    ({"quantization_config": {**NVFP4, "ignore": ["model.layers.0.self_attn.o_proj"]}}, "but for its output projection"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_configurations_get_one_clear_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Error, match=message) as caught:
        from_hugging_face(llama(**changes))
    assert len(str(caught.value)) < 600 and str(caught.value).count("configuration:") <= 1


test_missing_keys_of_mixtures_and_mla = refused(
    lambda missing: from_hugging_face({key: value for key, value in CONFIGS["DeepSeek-V3"].items() if key != missing}),
    *((key, f"lacks {key}") for key in ("qk_nope_head_dim", "n_routed_experts", "first_k_dense_replace", "moe_intermediate_size")),
)


# Defaults of num_key_value_heads in the signatures of transformers; those of llama and phi3 are None, as many as heads.
GROUPED = {"Mistral-7B-v0.3": 8, "Mixtral-8x7B": 8, "Qwen3-8B": 32, "Qwen3-30B-A3B": 4, "GPT-OSS-120B": 8, "Gemma-2-2B": 4}
# sliding_window is 4096 in mistral's.
test_keys_with_a_default_of_their_own = refused(
    lambda name, key: from_hugging_face({k: v for k, v in CONFIGS[name].items() if k != key}),
    *((name, "num_key_value_heads", "lacks num_key_value_heads") for name in GROUPED),
    ("Mistral-7B-v0.3", "sliding_window", "lacks sliding_window"),
)


def test_null_means_as_many_as_heads_and_no_window() -> None:
    found = from_hugging_face({**CONFIGS["Mistral-7B-v0.3"], "num_key_value_heads": None, "sliding_window": None})
    assert (found.kv_heads, found.window) == (32, 0)
    for name in ("Llama-3-8B", "Phi-3.5-mini"):
        found = from_hugging_face({key: value for key, value in CONFIGS[name].items() if key != "num_key_value_heads"})
        assert found.kv_heads == found.heads == 32


HOSTILE = [
    ("{", "not valid JSON"),
    ("", "not valid JSON"),
    ("\ufeff{}", "model_type is missing"),
    ("[" * 200_000, "not valid JSON"),
    ('{"a":' * 100_000 + "1" + "}" * 100_000, "not valid JSON"),
    ('{"model_type": "llama", "model_type": "gpt2"}', "twice"),
    ("{" + "".join(f'"k{i}": 0, ' for i in range(200_000)) + '"k199999": 1}', "twice"),
    ('{"model_type": "llama", "hidden_size": NaN}', "NaN"),
    ('{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}", "not valid JSON"),
    ("[1, 2]", "one JSON object"),
    ("null", "one JSON object"),
    (" " * (5 << 20), "MiB"),
]


@pytest.mark.parametrize(("text", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_files(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Error, match=message) as caught:
        from_hugging_face(file)
    assert len(str(caught.value)) < 600


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.json", tmp_path, "a\0b"):
        with pytest.raises(Error, match="cannot read"):
            from_hugging_face(path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Error, match="not valid JSON"):
        from_hugging_face(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = sorted({key for values in CONFIGS.values() for key in values} - {"model_type"})


@given(name=st.sampled_from(sorted(CONFIGS)), changes=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3))
def test_any_value_of_any_key_is_taken_or_refused(name: str, changes: dict[str, Any]) -> None:
    try:
        config = from_hugging_face(CONFIGS[name] | changes)
    except Error as error:
        assert len(str(error)) < 2000
    else:
        assert total_parameters(config) > 0


BASE: dict[str, Any] = {"layers": 2, "d_model": 64, "heads": 4, "d_ff": 128, "vocabulary": 100}
test_contradictory_fields = refused(
    lambda changes: TransformerConfig(**{**BASE, **changes}),
    ({"layers": 0}, "layers must be between 1"),
    ({"vocabulary": 2**41}, "vocabulary must be between"),
    ({"d_model": 64.0}, "d_model must be an integer"),
    ({"d_model": "wide"}, "d_model must be a whole number such as 4096 or 8k, got 'wide'"),
    ({"gated": 1}, "gated must be True or False"),
    ({"rope_fraction": 1.5}, "share of head_dim"),
    ({"rope_fraction": 0.2}, "rotated in pairs, and rope_fraction of head_dim 16 are 3"),
    ({"rope_theta": float("inf")}, "finite number"),
    ({"name": 3}, "name must be text"),
    ({"heads": 5}, "not a multiple of heads"),
    ({"kv_heads": 3}, "multiple of kv_heads"),
    ({"d_ff": 0}, "dense layers need d_ff"),
    ({"activation": "tanh"}, "activation must be one of"),
    ({"weights": "bf17"}, "unknown dtype 'bf17' .did you mean bf16"),
    ({"activations": "int8"}, "activations must be one of fp32, fp16, bf16"),
    ({"kv": "nvfp4"}, "kv must be one of"),
    ({"quantization": {"bits": 4}}, "must be a name such as 'fp8', a Quantization or None"),
    ({"window_layers": (0,)}, "without window"),
    ({"window": 8, "window_layers": (2,)}, "between 0 and layers - 1 = 1, got 2"),
    ({"window": 8, "window_layers": "all"}, "indices of layers"),
    ({"experts": 4}, "lacks experts_per_token, expert_d_ff"),
    ({"experts": 4, "experts_per_token": 5, "expert_d_ff": 8}, "exceeds experts 4"),
    ({"experts_per_token": 2}, "without experts"),
    ({"experts": 4, "experts_per_token": 2, "expert_d_ff": 8, "shared_experts": 1}, "both shared_experts and shared_d_ff"),
    ({"dense_layers": (0,)}, "without experts"),
    ({"kv_lora_rank": 16}, "lacks nope_head_dim, rope_head_dim, v_head_dim"),
    ({"v_head_dim": 16}, "without kv_lora_rank"),
    ({"kv_lora_rank": 16, "nope_head_dim": 8, "rope_head_dim": 4, "v_head_dim": 8, "head_dim": 16}, "leave both at 0"),
    ({"kv_lora_rank": 16, "nope_head_dim": 8, "rope_head_dim": 4, "v_head_dim": 8, "window": 16}, "not modelled"),
)
test_bad_quantizations = refused(
    lambda changes: Quantization(**changes),
    ({"weights": "int3"}, "unknown dtype"),
    ({"weights": "fp8_e8m0"}, "weights must be one of"),  # powers of two, which only scales are
    ({"weights": "int32"}, "weights must be one of .* got 'int32'"),
    ({"covers": "all"}, "covers"),
    ({"group": -1}, "between 0"),
)


def test_fields_that_must_be_given() -> None:
    with pytest.raises(Error, match="TransformerConfig lacks layers"):
        TransformerConfig(d_model=64, heads=4, vocabulary=100)  # type: ignore[call-arg]


def test_what_follows_follows_again() -> None:
    c = TransformerConfig(**BASE)
    assert (c.head_dim, c.kv_heads, c.activations, c.kv, c.kv_width) == (16, 4, "bf16", "bf16", 128)
    assert c.replace(heads=8, head_dim=8).kv_heads == 8
    assert c.replace(weights="fp16").kv == "fp16"
    assert c.replace(kv="fp8_e4m3").replace(weights="fp16").kv == "fp8_e4m3"
    latent = preset("DeepSeek-V3")
    assert (latent.head_dim, latent.kv_width, latent.rotated, latent.mixtures) == (192, 576, 64, 58)
    assert latent.replace(heads=64).kv_heads == 64
    assert TransformerConfig(**{**latent.to_dict(), "quantization": latent.quantization}) == latent
