"""What a phase runs: worked out on paper, against published figures, and against PyTorch's own counter."""

import math
from typing import Any

import pytest
from figures import BY_ID, DECODE_7B
from hypothesis import given, settings, strategies as st
from tables import refused

from roofline.errors import Error
from roofline.machine import Machine
from roofline.operators import GroupedMatmul
from roofline.questions import predict
from roofline.transformer import (
    Call,
    Decode,
    Mixed,
    Phase,
    Prefill,
    Quantization,
    Serving,
    Training,
    TransformerConfig,
    calls_of,
    from_hugging_face,
    kv_bytes,
    largest_batch,
    memory_of,
    parameters,
    preset,
    total_parameters,
    weights_bytes,
)
from roofline.transformer.memory import parts_of
from roofline.transformer.phases import PHASES
from roofline.transformer.ranks import ranks_of

SMALL = TransformerConfig(layers=2, d_model=8, heads=4, kv_heads=2, d_ff=12, vocabulary=10)


def by_name(calls: tuple[Call, ...]) -> dict[str, Call]:
    assert len({call.name for call in calls}) == len(calls)
    return {call.name: call for call in calls}


def product_flops(call: Call) -> int:
    return call.count * call.problem.work({"variant": call.variant}).get("product", 0)


# -- on paper -----------------------------------------------------------------------------------------------------------------

# Decode of 3 sequences, 5 keys each, in bf16: (runs, FLOPs of one run, bytes of one run).
BY_HAND = {
    "embedding": (1, 0, 3 * 4 + math.ceil(10 * (1 - 0.9**3) * 2 * 8) + 2 * (3 * 8)),  # ids, rows that three of ten name, out
    "q, k and v": (2, 2 * 3 * 8 * 16, 2 * (3 * 8 + 8 * 16 + 3 * 16)),  # 4 + 2 + 2 heads of 2
    "rope": (2, 3 * 3 * 2 * (4 + 2), 4 * 2 * 3 * 1 + 2 * 2 * 3 * 2 * (4 + 2)),  # cos and sin in fp32; q and k read and written
    "cache write": (2, 0, 2 * 2 * 3 * 8),
    "attention": (2, 3 * 4 * 5 * (2 * 2 + 1 + 5 + 2 * 2), 2 * (2 * 3 * 4 * 2 + 2 * 3 * 2 * 5 * 2)),
    "output projection": (2, 2 * 3 * 8 * 8, 2 * (3 * 8 + 64 + 3 * 8)),
    "gate and up": (2, 2 * 3 * 8 * 24, 2 * (3 * 8 + 8 * 24 + 3 * 24)),
    "activation": (2, 4 * 36, 2 * 3 * 36),
    "down": (2, 2 * 3 * 12 * 8, 2 * (3 * 12 + 96 + 3 * 8)),
    "norm": (1, 4 * 24 + 3 * 3, 2 * (24 + 8 + 24)),
    "residual and norm": (4, 5 * 24 + 3 * 3, 2 * (24 + 8 + 2 * 24 + 24)),
    "lm_head": (1, 2 * 3 * 8 * 10, 2 * (24 + 80 + 30)),
}


def test_a_small_decode_by_hand() -> None:
    calls = by_name(calls_of(SMALL, Decode(batch=3, seq_kv=5)))
    found = {name: (c.count, c.problem.total_flops(), c.problem.compulsory_bytes()) for name, c in calls.items()}
    assert found == BY_HAND


def test_groups_and_what_is_divided() -> None:
    calls = by_name(calls_of(SMALL, Decode(batch=3, seq_kv=5), tp=2))
    assert {name for name, call in calls.items() if not call.sharded} == {
        "embedding", "norm", "residual and norm", "all-reduce", "all-gather of logits"
    }  # fmt: skip
    assert {call.group for call in calls.values()} == {"embedding", "attention", "ffn", "norm", "head", "communication"}
    assert calls["q, k and v"].problem.total_flops() == 2 * 3 * 8 * 8
    assert calls["all-reduce"].count == 5  # two a layer, and one after the embedding
    assert calls["all-reduce"].problem.link_bytes() == 2 * 2 * 12  # two halves of 24 numbers
    assert "lm_head" not in by_name(calls_of(SMALL, Decode(batch=3, seq_kv=5), lm_head=False))


def test_a_small_mixture_by_hand() -> None:
    routed = {"experts": 4, "experts_per_token": 2, "expert_d_ff": 6, "router": "sigmoid"}
    c = SMALL.replace(**routed, shared_experts=1, shared_d_ff=5, dense_layers=(0,))
    calls = by_name(calls_of(c, Decode(batch=3, seq_kv=5)))
    assert (calls["gate and up"].count, calls["experts"].count, calls["router"].count) == (1, 1, 1)
    experts = calls["experts"].problem
    assert isinstance(experts, GroupedMatmul)
    # Three tokens with two of four experts each: an expert is missed by all with probability 1/8.
    assert experts.touched() == pytest.approx(3.5)
    assert product_flops(calls["experts"]) == 3 * 2 * 3 * 2 * 8 * 6
    assert calls["experts"].weights_bytes == pytest.approx(3.5 * 3 * 48 * 2, abs=3)
    assert calls["router"].problem.total_flops() == 2 * 3 * 8 * 4
    assert product_flops(calls["shared gate and up"]) == 2 * 3 * 8 * 10


def test_a_small_latent_attention_by_hand() -> None:
    """2 heads of 3 + 2 for q and k and 4 for v, latents of 6 and 5: the shapes of DeepSeek-V2 (arXiv:2405.04434), section 2.1."""
    c = TransformerConfig(
        layers=1, d_model=8, heads=2, d_ff=12, vocabulary=10, q_lora_rank=6, kv_lora_rank=5, nope_head_dim=3, rope_head_dim=2,
        v_head_dim=4,
    )  # fmt: skip
    decode = by_name(calls_of(c, Decode(batch=3, seq_kv=7)))
    assert product_flops(decode["q and kv down"]) == 2 * 3 * 8 * (6 + 5 + 2)
    assert product_flops(decode["q up"]) == 2 * 3 * 6 * 2 * 5
    assert product_flops(decode["q into latent"]) == 2 * 2 * 3 * 3 * 5
    assert product_flops(decode["attention"]) == 2 * 3 * 2 * 7 * (5 + 2 + 5)
    assert decode["attention"].cached_bytes == 2 * 3 * 7 * (5 + 2)
    assert product_flops(decode["latent into v"]) == 2 * 2 * 3 * 5 * 4
    assert product_flops(decode["output projection"]) == 2 * 3 * 2 * 4 * 8
    prefill = by_name(calls_of(c, Prefill(batch=2, seq_q=4)))
    assert product_flops(prefill["k and v up"]) == 2 * 2 * 4 * 5 * 2 * (3 + 4)
    assert product_flops(prefill["attention"]) == 2 * 2 * 2 * 10 * (5 + 4)  # 10 pairs a head
    # With a prefix of 6 cached tokens, keys and values of all 15 are made from the latents; few new tokens work on the latents.
    assert product_flops(by_name(calls_of(c, Prefill(batch=2, seq_q=9, seq_kv=15)))["k and v up"]) == 2 * 2 * 15 * 5 * 2 * 7
    assert "q into latent" in by_name(calls_of(c, Prefill(batch=2, seq_q=8, seq_kv=15)))


def test_experts_over_ranks_by_hand() -> None:
    """Two ranks of 3 sequences, 4 experts, 2 a token: of 6 tokens 1/6 choose both experts of the other rank, so 5 reach each."""
    c = SMALL.replace(experts=4, experts_per_token=2, expert_d_ff=6, weights="fp32", activations="bf16")
    calls = by_name(calls_of(c, Decode(batch=6, seq_kv=5), ep=2))
    assert (calls["dispatch"].count, calls["combine"].count) == (2, 2)
    for name in ("dispatch", "combine"):
        assert calls[name].problem.link_bytes() == 2 * (5 * 8 // 2)  # half of 5 rows stays
        assert calls[name].problem.compulsory_bytes() == 2 * 2 * 5 * 8
    experts = calls["experts"].problem
    assert isinstance(experts, GroupedMatmul)
    assert experts.touched() == pytest.approx(2 * (1 - 1 / 64))
    assert product_flops(calls["experts"]) == 2 * 3 * 2 * (3 * 2) * 8 * 6  # 2 layers, 3 matrices, an even share of 12 pairs
    alone = by_name(calls_of(c, Decode(batch=3, seq_kv=5)))
    assert {n: call for n, call in calls.items() if n not in ("dispatch", "combine", "experts")} == {
        n: call for n, call in alone.items() if n != "experts"
    }
    assert parameters(c, ep=2)["experts"] == parameters(c)["experts"] // 2
    assert parts_of(c, Decode(batch=6, seq_kv=5), ep=2)["KV cache"] == kv_bytes(c, 5, batch=3)
    half = parts_of(c, Decode(batch=6, seq_kv=5), ep=2)["weights"]
    assert weights_bytes(c) - half == 4 * parameters(c)["experts"] // 2


def test_the_dtype_in_which_tokens_are_sent() -> None:
    calls = by_name(calls_of(preset("DeepSeek-V3"), Decode(batch=64), ep=8))
    dtypes = [calls[name].problem.to_dict()["dtype"] for name in ("dispatch", "combine")]
    assert dtypes == ["fp8_e4m3", "bf16"]


def test_groups_lessen_what_goes_over_the_link() -> None:
    """DeepSeek-V3 on 8 ranks: 64 tokens of each, 3.629 ranks a token, rounded up to 233 rows, of which an eighth stays."""
    c = preset("DeepSeek-V3")
    dispatch = by_name(calls_of(c, Decode(batch=512), ep=8))["dispatch"].problem
    rows = math.ceil(64 * 3.629)
    assert dispatch.link_bytes() == rows * 7168 * 7 // 8
    plain = c.replace(expert_groups=0, groups_per_token=0)
    found = predict(Machine.from_datasheet("H200 SXM"), c, Decode(batch=512), ep=8, must_fit=False)
    (said,) = (note for note in found.notes if "a token goes to" in note)
    assert said == "a token goes to 3.63 of 8 ranks on average, chosen within 4 of 8 groups of experts"
    more = by_name(calls_of(plain, Decode(batch=512), ep=8))["dispatch"].problem
    assert more.link_bytes() / dispatch.link_bytes() == pytest.approx(5.295 / 3.629, rel=0.01)


test_bad_expert_parallelism = refused(
    lambda name, phase, ranks: calls_of(preset(name) if isinstance(name, str) else name, phase, **ranks),
    ("Llama-3-8B", Decode(batch=8), {"ep": 8}, "has no experts to spread; use tp"),
    ("Mixtral-8x7B", Decode(batch=8), {"ep": 3}, "ep 3 does not divide the 8 experts"),
    ("Mixtral-8x7B", Decode(batch=6), {"ep": 4}, "ep 4 does not divide batch 6"),
    ("Mixtral-8x7B", Decode(batch=8), {"ep": 4, "tp": 2}, "together are not modelled"),
    ("Mixtral-8x7B", Mixed(batch=8), {"ep": 4}, "only prefill and decode"),
    ("Mixtral-8x7B", Decode(), {"ep": 0}, "ep must be a number of ranks"),
    ("Mixtral-8x7B", Decode(), {"ep": True}, "ep must be a number of ranks"),
    (
        preset("Mixtral-8x7B").replace(experts=24, expert_groups=8, groups_per_token=4),
        Decode(batch=6),
        {"ep": 6},
        "ep 6 neither divides the 8 groups .* of Mixtral-8x7B are routed by nor is a multiple",
    ),
)


def test_the_largest_batch_of_all_ranks() -> None:
    config, phase = preset("Mixtral-8x7B"), Decode(batch=8, seq_kv=4096)
    most = largest_batch(config, phase, 80e9, ep=8)
    assert most % 8 == 0

    def needed(batch: int) -> int:
        return sum(parts_of(config, phase.replace(batch=batch), ep=8).values())

    assert needed(most) <= 80e9 < needed(most + 8)


@pytest.mark.parametrize(("norms", "plain", "joint"), [(0, 1, 0), (1, 1, 2), (2, 1, 4), (4, 5, 4)])
def test_norms_of_a_layer(norms: int, plain: int, joint: int) -> None:
    """GPT-J has one a layer and adds attention and FFN at once, Gemma 2 four; one more stands before the head."""
    calls = by_name(calls_of(SMALL.replace(norms=norms), Decode(seq_kv=4)))
    assert calls["norm"].count == plain
    assert (calls["residual and norm"].count if joint else 0) == joint
    assert plain + joint == 2 * norms + 1


def test_windows_by_hand() -> None:
    c = SMALL.replace(window=3, window_layers=(1,), sinks=True)
    calls = by_name(calls_of(c, Prefill(seq_q=5)))
    assert product_flops(calls["attention"]) == 4 * 4 * 15 * 2
    assert product_flops(calls["attention, window 3"]) == 4 * 4 * (1 + 2 + 3 + 3 + 3) * 2
    decode = by_name(calls_of(c, Decode(seq_kv=5)))
    assert decode["attention, window 3"].cached_bytes == 2 * 2 * 3 * 2 * 2
    assert decode["attention"].cached_bytes == 2 * 2 * 5 * 2 * 2
    assert kv_bytes(c, 5) == 2 * 2 * 2 * 2 * (5 + 3)


def test_chunks_and_mixtures_of_phases_add_up() -> None:
    whole = calls_of(SMALL, Prefill(seq_q=12))
    chunks = calls_of(SMALL, Prefill(seq_q=12, chunk=5))
    assert sum(map(product_flops, whole)) == sum(map(product_flops, chunks))
    names = [call.name for call in chunks]
    assert names.count("attention") == 3
    assert [call.count for call in chunks if call.name == "gate and up"] == [4, 2]  # chunks of 5, 5 and 2 tokens
    assert [call.count for call in chunks if call.name == "lm_head"] == [1]
    mixed = by_name_and_problem(calls_of(SMALL, Mixed(batch=3, seq_kv=5, prefill_seq_q=4, prefill_seq_kv=9)))
    assert mixed["gate and up"] == [2 * 7 * 8 * 24]
    assert mixed["attention"] == [3 * 4 * 5 * 14, 4 * (6 + 7 + 8 + 9) * 14]
    assert mixed["lm_head"] == [2 * 4 * 8 * 10]


def by_name_and_problem(calls: tuple[Call, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for call in calls:
        found.setdefault(call.name, []).append(call.problem.total_flops())
    return found


# -- published ----------------------------------------------------------------------------------------------------------------


def test_llama_3_8b_reads_what_everyone_counts() -> None:
    """Weights of products without the head, KV of 2048 cached tokens, and the head: bytes of one decode step."""
    calls = calls_of(preset("Llama-3-8B"), Decode(seq_kv=2048))
    head = sum(call.weights_bytes for call in calls if call.group == "head")
    assert sum(call.count * call.weights_bytes for call in calls) - head == 13_958_643_712
    assert sum(call.count * call.cached_bytes for call in calls) == 268_435_456
    assert head == 1_050_673_152


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (preset("DeepSeek-V3"), 70_272),
        (preset("Llama-3-70B").replace(name="Qwen-2.5 72B", d_ff=29568, vocabulary=152064), 327_680),
        (preset("Llama-3-70B").replace(name="Llama-3.1 405B", layers=126, d_model=16384, heads=128, d_ff=53248), 516_096),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_cache_bytes_per_token(config: TransformerConfig, expected: int) -> None:
    """Insights into DeepSeek-V3 (arXiv:2505.09343), table 1, in bf16."""
    assert kv_bytes(config, 1000) == 1000 * expected
    (attention,) = (call for call in calls_of(config, Decode(seq_kv=1000)) if call.name == "attention")
    assert attention.count * attention.cached_bytes == 1000 * expected


def test_weights_in_memory() -> None:
    """gpt-oss model card, table 1: a checkpoint of 60.8 GiB. Llama-3-8B in bf16: 16.06 GB. DeepSeek-V3: 671 GB of FP8."""
    assert weights_bytes(preset("GPT-OSS-120B")) / 2**30 == pytest.approx(60.8, abs=0.05)
    assert weights_bytes(preset("Llama-3-8B")) == 2 * 8_030_261_248
    assert weights_bytes(preset("DeepSeek-V3")) == pytest.approx(671e9, rel=0.005)


@pytest.mark.parametrize("name", ["7B", "Llama-3-70B", "Qwen3-8B", "Qwen3-30B-A3B", "Mixtral-8x7B", "DeepSeek-V3"])
@pytest.mark.parametrize("tp", [1, 4])
def test_calls_read_every_matrix_once(name: str, tp: int) -> None:
    """A prefill long enough to touch all experts: what its products read is what the model's matrices weigh."""
    config = preset(name).replace(quantization=None)
    counts = parameters(config, tp=tp)
    calls = calls_of(config, Prefill(seq_q=8192), tp=tp)
    read = sum(call.count * call.weights_bytes for call in calls)
    matrices = sum(counts[group] for group in ("attention", "ffn", "experts", "shared experts", "router", "head"))
    # Norms of q and k, biases of routers: counted with their groups, no product reads them.
    assert read == pytest.approx(2 * matrices, rel=1e-5)


@pytest.mark.parametrize("name", ["7B", "Llama-2-7B", "Llama-3-8B", "Llama-3-70B"])
def test_two_flops_a_parameter_and_token(name: str) -> None:
    """Kaplan et al. (arXiv:2001.08361), section 2.1: 2 N for all parameters but embeddings, and the head's rows."""
    config, tokens = preset(name), 512
    counts = parameters(config)
    calls = calls_of(config, Prefill(seq_q=tokens))
    products = sum(product_flops(call) for call in calls if call.name != "attention")
    assert products == 2 * tokens * (counts["attention"] + counts["ffn"]) + 2 * counts["head"]


# -- the documents ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", DECODE_7B)
def test_the_7b_of_tutorials(batch: int) -> None:
    """d_model 4096, 32 layers, 32 heads, d_ff 16384, 2-byte elements."""
    flops, stated = DECODE_7B[batch]["flops"], DECODE_7B[batch]["bytes"]
    calls = calls_of(preset("7B"), Decode(batch=batch, seq_kv=2048), lm_head=False)
    assert sum(map(product_flops, calls)) == flops
    moved = sum(call.count * (call.weights_bytes + call.cached_bytes) for call in calls)
    # Their activations: x and result of each of q, k, v and out, three of attention, three of the FFN, whose inside is left out.
    assert moved + 32 * batch * 4096 * 2 * (6 + 3 + 2 + 3) == stated
    # The full count has more than those, and less than 1 % more for one sequence.
    full = sum(call.count * call.problem.compulsory_bytes() for call in calls)
    assert moved < full < stated * (1.01 if batch == 1 else 1.1)


def test_figures_of_single_parts() -> None:
    llama = preset("Llama-2-7B")
    decode = {call.name: call for call in calls_of(llama, Decode(seq_kv=4096))}
    assert decode["attention"].cached_bytes == 67_108_864  # a layer
    assert decode["attention"].problem.work({"variant": "tiled"})["product"] == 67_108_864
    prefill = {call.name: call for call in calls_of(preset("7B"), Prefill(seq_q=2048))}
    # 4 P² d is both products over all pairs; causal attention needs a little more than half of them.
    all_pairs = 4 * 2048**2 * 4096
    assert prefill["attention"].problem.work({"variant": "tiled"})["product"] == all_pairs * 2049 // 4096
    up = prefill["up"].problem
    assert up.flops()["a·b"] / up.compulsory_bytes() == pytest.approx(1260.3076923076924)


@pytest.mark.parametrize("tokens", [1, 128, 4096])
def test_projections_of_deepseek_in_fp4(tokens: int) -> None:
    """FP4 weights without scales, 16-bit activations: FLOP/byte of 2MNK / (2MK + KN/2 + 2MN)."""
    config = preset("DeepSeek-V3").replace(quantization=Quantization(weights="nvfp4", group=0))
    calls = {call.name: call for call in calls_of(config, Decode(batch=tokens, seq_kv=2))}
    stated = BY_ID["fp4-projections"]["expected"]
    for name, module in (("q and kv down", "fused_qkv_a_proj"), ("q up", "q_b_proj"), ("output projection", "o_proj")):
        problem = calls[name].problem
        assert problem.flops()["a·b"] / problem.compulsory_bytes() == pytest.approx(stated[module][str(tokens)])


# -- tensor parallelism -------------------------------------------------------------------------------------------------------


test_ranks_must_divide = refused(
    lambda config, tp: calls_of(config, Decode(), tp=tp),
    (preset("Llama-3-8B"), 3, "does not divide heads 32"),
    (preset("Llama-3-8B"), 64, "does not divide heads 32"),
    (preset("GPT-OSS-120B"), 128, "does not divide heads 64"),
    (preset("Qwen3-30B-A3B"), 0, "from 1"),
    (preset("Qwen3-30B-A3B"), 2.0, "from 1"),
    (preset("Qwen3-30B-A3B"), True, "from 1"),
    (SMALL.replace(heads=8, head_dim=2, kv_heads=8), 8, "d_ff 12 of transformer"),
    (SMALL.replace(heads=6, head_dim=2), 3, "neither divides kv_heads 2"),
)


def test_ranks_may_be_more_than_kv_heads() -> None:
    assert ranks_of(preset("GPT-OSS-120B"), 16).kv_heads == 1


PHASE = st.one_of(
    st.builds(Prefill, batch=st.integers(1, 4), seq_q=st.integers(1, 600), chunk=st.integers(0, 200)),
    st.builds(Decode, batch=st.integers(1, 64), seq_kv=st.integers(8, 4000), seq_q=st.integers(1, 8)),
    st.builds(Mixed, batch=st.integers(1, 8), seq_kv=st.integers(1, 500), prefill_seq_q=st.integers(1, 300)),
    st.builds(Training, batch=st.integers(1, 2), seq_q=st.integers(1, 300), recompute=st.sampled_from(["none", "full"])),
)


@settings(max_examples=50)
@given(phase=PHASE, name=st.sampled_from(["7B", "Llama-3-8B", "Qwen3-30B-A3B", "DeepSeek-V3", "GPT-OSS-120B"]))
def test_one_rank_of_many_never_does_more(phase: Phase, name: str) -> None:
    config = preset(name)
    if isinstance(phase, Training):
        config = preset("Llama-3-8B")
    whole, part = (
        {(c.name, i): c for i, c in enumerate(calls_of(config, phase, tp=tp)) if c.group != "communication"} for tp in (1, 8)
    )
    assert [key[0] for key in whole] == [key[0] for key in part]
    for one, other in zip(whole.values(), part.values(), strict=True):
        assert other.count == one.count
        assert other.problem.total_flops() <= one.problem.total_flops()
        assert other.problem.compulsory_bytes() <= one.problem.compulsory_bytes()


# -- training -----------------------------------------------------------------------------------------------------------------


def test_training_is_three_times_the_forward_products() -> None:
    phase = Training(batch=2, seq_q=16)
    calls = calls_of(SMALL, phase)
    forward = sum(map(product_flops, calls_of(SMALL, Prefill(batch=2, seq_q=16), lm_head=False)))
    attention = sum(product_flops(call) for call in calls if call.name == "attention")
    head = 2 * 2 * 16 * 8 * 10
    # Twice the forward pass again, and of attention two and a half times: its scores are computed anew.
    assert sum(map(product_flops, calls)) == 3 * (forward + head) + attention // 2
    again = calls_of(SMALL, phase.replace(recompute="full"))
    assert sum(map(product_flops, again)) == 4 * forward + 3 * head + attention // 2


def test_memory_of_training() -> None:
    """16 bytes a parameter (ZeRO, arXiv:1910.02054, section 3.1), and 32 s b h a layer (Korthikanti et al., arXiv:2205.05198,
    equation 1: 34 with its two dropout masks, and none of its scores, which a fused attention does not keep)."""
    plain = {"gated": False, "activation": "gelu", "norm": "layer_norm"}
    c = TransformerConfig(layers=3, d_model=64, heads=4, d_ff=256, vocabulary=1000, **plain)
    parts = parts_of(c, Training(batch=2, seq_q=8, gradients="bf16"))
    assert parts["weights"] + parts["gradients"] + parts["optimizer"] == 16 * total_parameters(c)
    tokens = 16
    logsumexps, ends, logits = 3 * 4 * 4 * tokens, 2 * 2 * tokens * 64, 2 * 2 * tokens * 1000
    assert parts["activations"] == 3 * 32 * tokens * 64 + logsumexps + ends + logits
    full = parts_of(c, Training(batch=2, seq_q=8, recompute="full"))["activations"]
    assert full == 3 * 2 * tokens * 64 + 32 * tokens * 64 + 4 * 4 * tokens + logits


@pytest.mark.parametrize(("name", "message"), [("DeepSeek-V3", "quantized"), ("GPT-OSS-120B", "quantized")])
def test_training_that_is_not_modelled(name: str, message: str) -> None:
    with pytest.raises(Error, match=message):
        calls_of(preset(name), Training(seq_q=64))
    with pytest.raises(Error, match="not modelled"):
        calls_of(preset(name).replace(quantization=None), Training(seq_q=64))


# -- memory -------------------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    phase=PHASE, name=st.sampled_from(["Llama-3-8B", "GPT-OSS-120B"]), capacity=st.floats(1e10, 4e11), tp=st.sampled_from([1, 8])
)
def test_the_largest_batch_fits_and_one_more_does_not(phase: Phase, name: str, capacity: float, tp: int) -> None:
    config = preset("Llama-3-8B" if isinstance(phase, Training) else name)
    most = largest_batch(config, phase, capacity, tp=tp)

    def held(batch: int) -> int:
        return sum(parts_of(config, phase.replace(batch=batch), tp=tp).values())

    assert most == 0 or held(most) <= capacity
    assert held(most + 1) > capacity


def test_fit_is_reported() -> None:
    config = preset("Llama-3-70B")
    assert memory_of(config, Decode()).text.endswith("the device's memory is not known")
    small = memory_of(config, Decode(), capacity_bytes=80e9)
    assert (small.fits, small.largest_batch) == (False, 0)
    assert "does not fit; not even one sequence fits" in small.text
    large = memory_of(config, Decode(), capacity_bytes=160e9, share=0.9)
    assert large.fits
    assert large.capacity_bytes == 144_000_000_000
    with pytest.raises(Error, match="must be a number of bytes"):
        memory_of(config, Decode(), capacity_bytes=0)


# -- bad input ----------------------------------------------------------------------------------------------------------------


test_bad_phases = refused(
    lambda cls, fields: cls(**fields),
    (Decode, {"batch": 0}, "batch must be between 1"),
    (Decode, {"batch": True}, "batch must be an integer"),
    (Decode, {"seq_kv": 2**41}, "seq_kv must be between"),
    (Decode, {"seq_kv": 4, "seq_q": 8}, "at least seq_q 8"),
    (Decode, {"seq_q": 4, "accepted": 5}, "between 1 and seq_q 4"),
    (Decode, {"seq_q": 4, "accepted": 0.5}, "between 1 and seq_q 4"),
    (Decode, {"accepted": "1"}, "accepted must lie"),
    (Prefill, {"seq_q": 8, "seq_kv": 4}, "at least seq_q 8"),
    (Prefill, {"seq_q": 10**6, "chunk": 1}, "1000000 chunks are more than 4096"),
    (Mixed, {"prefill_seq_q": 8, "prefill_seq_kv": 4}, "at least prefill_seq_q 8"),
    (Training, {"recompute": "some"}, "recompute must be one of"),
    (Training, {"gradients": "int8"}, "gradients must be one of"),
    (Training, {"master": 1}, "master must be True or False"),
)


def test_absurd_sizes_get_one_error() -> None:
    with pytest.raises(Error, match=r"2\*\*62"):
        calls_of(preset("Llama-3-70B"), Decode(batch=2**40, seq_kv=2**40))
    config = TransformerConfig(layers=1, d_model=2**40, heads=1, d_ff=2**40, vocabulary=2**31)
    with pytest.raises(Error, match=r"2\*\*62"):
        calls_of(config, Decode())


def test_phases_say_what_they_are() -> None:
    assert set(PHASES) == {"prefill", "decode", "mixed", "training", "serving"}
    assert str(Serving(batch=4, output=9)) == "serving: 4 requests at a time, 1024 tokens in, 9 out"
    assert str(Decode(batch=8)) == "decode: batch 8, context 2048"
    assert str(Prefill(seq_q=64, chunk=16)) == "prefill: batch 1, tokens 64, chunk 16"
    assert Prefill(seq_q=64).replace(seq_q=32).seq_kv == 32
    assert Prefill(seq_q=64, seq_kv=100).replace(seq_q=32).seq_kv == 100
    assert Decode(seq_q=4, accepted=2.5).tokens_per_sequence == 2.5
    assert Decode(seq_q=4).tokens_per_sequence == 4


# -- PyTorch ------------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_products_are_those_pytorch_counts(kv_heads: int) -> None:
    """One layer and a head in PyTorch under FlopCounterMode, which counts products alone and 2 per multiply-add, as we do.

    Its known holes: scaled_dot_product_attention on CPUs counts nothing (pytorch issue 195460), so attention is written with two
    products here; masks do not reduce its count, so the layer is not causal and ours is taken over all pairs; norms, softmax,
    rotation and activation are not counted at all.
    """
    torch = pytest.importorskip("torch", reason="compares with PyTorch's FlopCounterMode")
    from torch.utils.flop_counter import FlopCounterMode

    d, heads, head_dim, d_ff, vocabulary, batch, tokens = 32, 4, 8, 48, 100, 2, 6
    c = TransformerConfig(layers=1, d_model=d, heads=heads, kv_heads=kv_heads, d_ff=d_ff, vocabulary=vocabulary)

    def linear(inner: int, columns: int) -> Any:
        return torch.nn.Linear(inner, columns, bias=False)

    wide = (heads + 2 * kv_heads) * head_dim
    qkv, out, up, down = linear(d, wide), linear(heads * head_dim, d), linear(d, 2 * d_ff), linear(d_ff, d)
    head = linear(d, vocabulary)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        x = torch.randn(batch, tokens, d)
        q, k, v = qkv(x).split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], dim=-1)

        def split(tensor: Any, count: int) -> Any:
            per_head = tensor.view(batch, tokens, count, head_dim).transpose(1, 2)
            return per_head.repeat_interleave(heads // count, dim=1)

        scores = split(q, heads) @ split(k, kv_heads).transpose(-1, -2)
        attended = torch.softmax(scores, dim=-1) @ split(v, kv_heads)
        x = x + out(attended.transpose(1, 2).reshape(batch, tokens, -1))
        gate, value = up(x).chunk(2, dim=-1)
        x = x + down(torch.nn.functional.silu(gate) * value)
        head(x[:, -1])
    calls = calls_of(c, Prefill(batch=batch, seq_q=tokens))
    ours = sum(product_flops(call) for call in calls if call.name != "attention")
    all_pairs = 4 * batch * heads * tokens * tokens * head_dim
    assert counter.get_total_flops() == ours + all_pairs


def test_config_json_reaches_the_calls() -> None:
    values = {
        "model_type": "qwen2_moe", "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
        "num_key_value_heads": 2, "num_hidden_layers": 4, "vocab_size": 100, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "decoder_sparse_step": 2, "mlp_only_layers": [3],
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    calls = by_name(calls_of(from_hugging_face(values), Decode(batch=2, seq_kv=8)))
    # Layers 1 and 3 are on the step of 2, and 3 is listed as dense: one mixture, three dense layers.
    assert (calls["experts"].count, calls["gate and up"].count, calls["shared gate"].count) == (1, 3, 1)
    assert product_flops(calls["shared down"]) == 2 * 2 * 48 * 64
