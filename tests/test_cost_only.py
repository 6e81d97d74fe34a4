"""Operators without kernels: figures published elsewhere, identities between them, and bad input."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tables import refused

from roofline.errors import Error, Unsupported
from roofline.machine import Machine
from roofline.operators import (
    Adam,
    AllGather,
    AllReduce,
    AllToAll,
    Attention,
    Bmm,
    CachedAttention,
    Embedding,
    Ffn,
    GroupedMatmul,
    LmHead,
    MlaDecode,
    MlaPrefill,
    QuantizedMatmul,
    ReduceScatter,
    Rope,
    TopkSigmoid,
    TopkSoftmax,
)
from roofline.operators.grouped_matmul import expected_touched
from roofline.questions import predict
from roofline.references import top


def test_experts_over_ranks_against_drawn_routings() -> None:
    """Tokens of all ranks choose at random: what reaches one rank, and how many of its experts, on average over draws."""
    problem = GroupedMatmul(tokens=5, experts=16, experts_per_token=3, ranks=4)
    generator = np.random.default_rng(3)
    drawn = generator.permuted(np.tile(np.arange(16), (40_000, 20, 1)), axis=-1)[..., :3]  # 20 tokens of 3 different experts
    here = drawn < 4
    touched = np.mean([len(set(chosen[mine])) for chosen, mine in zip(drawn[:4000], here[:4000], strict=True)])
    assert problem.touched() == pytest.approx(touched, rel=0.01)
    assert problem.arriving() == math.ceil(here.any(axis=-1).sum(axis=-1).mean())
    assert problem.flops()["up"] == pytest.approx(2 * here.sum(axis=(1, 2)).mean() * 7168 * 2048, rel=0.01)
    everyone = GroupedMatmul(tokens=5, experts=16, experts_per_token=16, ranks=4)
    assert (everyone.arriving(), everyone.touched()) == (20, 4)
    with pytest.raises(Error, match="no reference"):
        problem.reference({})


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 64])
def test_ranks_that_a_token_goes_to_against_drawn_routings(ranks: int) -> None:
    """64 experts in 8 groups; a token draws 3 groups and then 6 of their 24 experts."""
    problem = GroupedMatmul(tokens=10_000, experts=64, experts_per_token=6, ranks=ranks, groups=8, groups_per_token=3)
    generator = np.random.default_rng(11)
    groups = generator.permuted(np.tile(np.arange(8), (60_000, 1)), axis=-1)[:, :3]
    open_to_it = (groups[:, :, None] * 8 + np.arange(8)).reshape(-1, 24)
    chosen = generator.permuted(open_to_it, axis=-1)[:, :6]
    reached = np.array([np.unique(row).size for row in chosen // (64 // ranks)])
    spread = reached.std() / math.sqrt(len(reached))
    assert problem.reached() == pytest.approx(reached.mean(), abs=4 * spread)
    assert problem.arriving() == math.ceil(10_000 * problem.reached())
    ungrouped = GroupedMatmul(tokens=10_000, experts=64, experts_per_token=6, ranks=ranks)
    assert problem.arriving() <= ungrouped.arriving() + 1
    assert problem.touched() == ungrouped.touched()  # every expert is as likely as before


def test_ranks_that_a_token_goes_to_by_hand() -> None:
    """DeepSeek-V3: C(96, 8) / C(128, 8) = 0.0927 miss a drawn group, so 4 (1 - 0.0927) = 3.63 of 8 ranks are reached."""
    deepseek = {"tokens": 1000, "experts": 256, "experts_per_token": 8}
    missed = Fraction(math.comb(96, 8), math.comb(128, 8))
    one = GroupedMatmul(**deepseek, ranks=8, groups=8, groups_per_token=4)
    assert one.reached() == pytest.approx(float(4 * (1 - missed)), rel=1e-12)
    assert one.arriving() == math.ceil(1000 * 4 * (1 - missed)) == 3630
    assert GroupedMatmul(**deepseek, ranks=8).arriving() == 5295
    # Over two ranks: 4 groups each, of which 4 (or 0) are drawn in 1 of 70 cases, 3 (or 1) in 16, 2 in 36.
    two = GroupedMatmul(**deepseek, ranks=2, groups=8, groups_per_token=4)
    alone = [Fraction(math.comb(128 - 32 * j, 8), math.comb(128, 8)) for j in range(5)]
    reached = sum(Fraction(ways, 70) * (1 - alone[j]) for j, ways in enumerate((1, 16, 36, 16, 1)))
    assert two.arriving() == math.ceil(1000 * 2 * reached)
    # Two experts of four, one group of two drawn: both are on one rank.
    assert GroupedMatmul(tokens=50, experts=4, experts_per_token=2, ranks=2, groups=2, groups_per_token=1).arriving() == 50


def test_groups_picked_by_scores_spread_a_little_more() -> None:
    """What docs/conventions/models.md says of DeepSeek-V3: groups by their two best scores, experts by score within these."""
    scores = np.random.default_rng(7).random((20_000, 8, 32))
    best = np.sort(scores, axis=-1)[..., -2:].sum(axis=-1)
    left_out = np.argsort(best, axis=-1)[:, :4]
    np.put_along_axis(scores, left_out[:, :, None], -1.0, axis=1)
    chosen = np.argpartition(scores.reshape(-1, 256), -8, axis=-1)[:, -8:] // 32
    assert np.mean([np.unique(row).size for row in chosen]) == pytest.approx(3.96, abs=0.02)


test_groups_that_cannot_be = refused(
    lambda fields: GroupedMatmul(**{"experts": 256, **fields}),
    ({"groups": 8, "groups_per_token": 4, "ranks": 1}, "groups 8 matter to ranks alone"),
    ({"groups": 6, "groups_per_token": 4, "ranks": 2}, "groups must divide experts 256, got 6"),
    ({"groups": 8, "groups_per_token": 9, "ranks": 2}, "groups_per_token must be at most groups 8 .* got 9"),
    ({"groups": 64, "groups_per_token": 1, "ranks": 2}, "leave experts_per_token 8 to choose from, got 1"),
    ({"groups": 2, "ranks": 3, "experts": 6, "experts_per_token": 2}, "ranks 3 must divide groups 2 or be"),
    ({"groups": 4096, "groups_per_token": 4096, "ranks": 2, "experts": 4096}, "groups must be at most 1024, got 4096"),
)


# -- figures published elsewhere ----------------------------------------------------------------------------------------------


def test_microscaling_formats_in_bits() -> None:
    # 4 bits and an 8-bit scale for 16 or 32 of them: 4.5 and 4.25.
    for dtype, scales, block, bits in (("nvfp4", "two_level", 16, 4.5), ("mxfp4", "block", 32, 4.25)):
        problem = Bmm(batch=1, rows=64, columns=64, inner=256, dtype=dtype, scales=scales, scale_block=block, scale_bits=8)
        a, b, *scale, _ = problem.tensors()
        assert sum(t.size_bytes for t in (a, b, *scale) if t.shape != (1,)) * 8 == bits * 2 * 64 * 256


# -- identities ---------------------------------------------------------------------------------------------------------------


def test_mla_of_one_head_is_attention() -> None:
    """Keys c and rotated keys side by side, values c: grouped-query attention with one KV head, wider keys than values."""
    mla = MlaDecode(batch=3, heads=16, seq_q=2, seq_kv=100, kv_lora_rank=60, qk_rope_head_dim=4)
    keys = Attention(batch=3, heads=16, kv_heads=1, seq_q=2, seq_kv=100, head_dim=64, causal=True, dtype="bf16").flops()
    values = Attention(batch=3, heads=16, kv_heads=1, seq_q=2, seq_kv=100, head_dim=60, causal=True, dtype="bf16").flops()
    found = mla.flops()
    assert found["q·cᵀ"] + found["q_rope·kᵀ"] == keys["q·kᵀ"]
    assert (found["p·c"], found["softmax"], found["scale"]) == (values["p·v"], values["softmax"], values["scale"])


def test_the_cache_is_read_once_for_all_heads() -> None:
    one, many = (MlaDecode(heads=heads).compulsory_bytes() for heads in (1, 128))
    assert many - one == 127 * (2 * 512 + 64) * 2
    assert MlaDecode(batch=4).compulsory_bytes() == 4 * MlaDecode().compulsory_bytes()
    assert MlaDecode().compulsory_bytes() == 4096 * 576 * 2 + 128 * 1088 * 2


def test_both_forms_of_mla_give_the_same() -> None:
    generator = np.random.default_rng(3)
    heads, rank, nope, rope, value = 2, 7, 3, 2, 4
    up_keys, up_values = generator.normal(size=(heads, nope, rank)), generator.normal(size=(heads, rank, value))
    q_nope, q_rope = generator.normal(size=(1, heads, 3, nope)), generator.normal(size=(1, heads, 3, rope))
    c, k_rope = generator.normal(size=(1, 5, rank)), generator.normal(size=(1, 5, rope))
    sizes: dict[str, Any] = {"heads": heads, "seq_q": 3, "seq_kv": 5, "qk_nope_head_dim": nope, "qk_rope_head_dim": rope}
    absorbed = MlaDecode(**sizes, kv_lora_rank=rank).reference(
        {"q_latent": q_nope @ up_keys, "q_rope": q_rope, "c": c, "k_rope": k_rope}
    )["out"]
    plain = MlaPrefill(**sizes, v_head_dim=value).reference(
        {
            "q": np.concatenate([q_nope, q_rope], axis=-1),
            "k_nope": c[:, None] @ up_keys.transpose(0, 2, 1),
            "k_rope": k_rope,
            "v": c[:, None] @ up_values,
        }
    )["out"]
    np.testing.assert_allclose(absorbed @ up_values, plain, rtol=1e-12)


def test_quantised_weights_are_the_weights() -> None:
    generator = np.random.default_rng(3)
    problem = QuantizedMatmul(rows=3, columns=5, inner=7, group_size=4, zero_bits=4)
    b, scale, zero = generator.integers(0, 16, (7, 5)), generator.normal(size=(2, 5)), generator.integers(0, 16, (2, 5))
    weights = np.array([[(b[i, j] - zero[i // 4, j]) * scale[i // 4, j] for j in range(5)] for i in range(7)])
    a = generator.normal(size=(3, 7))
    np.testing.assert_allclose(problem.reference({"a": a, "b": b, "scale": scale, "zero": zero})["c"], a @ weights)


def test_experts_that_are_touched() -> None:
    # Every way in which two tokens choose two of four experts.
    choices = list(itertools.combinations(range(4), 2))
    counted = np.mean([len({*first, *second}) for first in choices for second in choices])
    assert expected_touched(2, 4, 2) == pytest.approx(counted)
    assert expected_touched(1, 256, 8) == pytest.approx(8, rel=1e-12)
    assert expected_touched(10**9, 256, 8) == 256
    assert expected_touched(3, 5, 5) == 5
    assert expected_touched(1, 2**62, 1) == pytest.approx(1)


def test_one_expert_is_a_feed_forward_block() -> None:
    for activation in ("relu", "gelu", "swiglu"):
        moe = GroupedMatmul(tokens=6, experts=1, experts_per_token=1, d_model=4, d_ff=5, activation=activation)
        ffn = Ffn(batch=2, seq_q=3, d_model=4, d_ff=5, activation=activation)
        assert {term: count for term, count in moe.flops().items() if term != "combine"} == ffn.flops()
        generator = np.random.default_rng(3)
        weights = {t.name: generator.normal(size=t.shape) for t in moe.inputs() if t.name.startswith("w_")}
        x = generator.normal(size=(6, 4))
        found = moe.reference({"x": x, "chosen": np.zeros((6, 1), dtype=int), "gates": np.ones((6, 1)), **weights})["out"]
        plain = ffn.reference({"x": x.reshape(2, 3, 4), **{name: w[0] for name, w in weights.items()}})["out"]
        np.testing.assert_allclose(found, plain.reshape(6, 4), rtol=1e-12)


def test_only_touched_experts_are_read() -> None:
    problem = GroupedMatmul(tokens=4, touched_experts=20)
    one = 3 * 7168 * 2048 * 2
    assert problem.replace(touched_experts=21).compulsory_bytes() - problem.compulsory_bytes() == one
    assert problem.footprint_bytes() > 256 * one  # they all lie in memory


def test_the_largest_of_a_row() -> None:
    x = np.array([[1.0, 5.0, 3.0, 5.0], [-4.0, -1.0, -2.0, -3.0]])
    values, where = top(x, 3)
    assert where.tolist() == [[1, 3, 2], [1, 2, 3]]
    assert values.tolist() == [[5, 5, 3], [-1, -2, -3]]
    logits = np.random.default_rng(3).normal(size=(4, 9))
    found = TopkSoftmax(tokens=4, experts=9, experts_per_token=2).reference({"logits": logits})
    np.testing.assert_allclose(found["weights"].sum(axis=-1), 1)
    np.testing.assert_array_equal(found["chosen"], np.argsort(-logits, axis=-1)[:, :2])
    # A bias decides who is chosen, and not with which weight.
    bias = np.zeros(9)
    bias[7] = 10
    biased = TopkSigmoid(tokens=4, experts=9, experts_per_token=1, renormalise=False).reference({"logits": logits, "bias": bias})
    np.testing.assert_array_equal(biased["chosen"][:, 0], 7)
    np.testing.assert_allclose(biased["weights"][:, 0], 1 / (1 + np.exp(-logits[:, 7])))


def test_rotations_keep_lengths() -> None:
    problem = Rope(batch=2, seq_q=3, heads=4, kv_heads=2, head_dim=6)
    generator = np.random.default_rng(3)
    angle = generator.uniform(0, 2 * math.pi, (2, 3, 3))
    q, k = generator.normal(size=(2, 3, 4, 6)), generator.normal(size=(2, 3, 2, 6))
    found = problem.reference({"cos": np.cos(angle), "sin": np.sin(angle), "q": q, "k": k})
    np.testing.assert_allclose(np.linalg.norm(found["q"], axis=-1), np.linalg.norm(q, axis=-1))
    turned = (q[..., :3] + 1j * q[..., 3:]) * np.exp(1j * angle)[:, :, None]
    np.testing.assert_allclose(found["q"], np.concatenate([turned.real, turned.imag], axis=-1))
    np.testing.assert_allclose(np.linalg.norm(found["k"], axis=-1), np.linalg.norm(k, axis=-1))


def test_adam_against_its_paper() -> None:
    # The first step from nothing moves every parameter by the learning rate, against the sign of its gradient.
    problem = Adam(elements=5, master=False, decayed=False)
    g = np.array([3.0, -2.0, 1e-3, 40.0, -7.0])
    found = problem.reference({"g": g, "m": np.zeros(5), "v": np.zeros(5), "p": np.ones(5)})
    np.testing.assert_allclose(found["p"], 1 - 1e-3 * np.sign(g), rtol=1e-6)
    np.testing.assert_allclose(found["m"], 0.1 * g)
    np.testing.assert_allclose(found["v"], 0.001 * g * g)


# -- links --------------------------------------------------------------------------------------------------------------------


ALONE = Machine.from_peaks("Example GPU", 3e12, bf16=1e15)
LINKED = Machine.from_peaks("Example GPU", 3e12, bf16=1e15, link_bytes_per_s=450e9)


def test_collectives_over_links() -> None:
    # A ring moves 2 (n - 1) / n of the tensor over a link for a sum on every rank, half of that for its two halves.
    size = 2 * (1 << 24)
    for ranks in (1, 2, 4, 8):
        whole = AllReduce(ranks=ranks).link_bytes()
        assert whole == 2 * (ranks - 1) * size // ranks
        assert AllGather(ranks=ranks).link_bytes() + ReduceScatter(ranks=ranks).link_bytes() == whole
    assert all(problem.link_bytes() == 0 for problem in (Attention(), Rope(), Ffn()))
    found = predict(LINKED, AllReduce(ranks=8))
    assert found.bound == "link" and found.roof_s == pytest.approx(2 * 7 / 8 * size / 450e9)
    assert found.terms["DRAM"] == pytest.approx(2 * size / 3e12)
    assert found.parts["link"] == found.terms["link"] == found.time_s  # a datasheet's roofs overlap perfectly
    assert found.roofs.labels["link"] == "link 450 GB/s"
    assert "link" not in predict(LINKED, Rope()).terms
    with pytest.raises(Error, match="Example GPU: no link to other GPUs is known; give its rate"):
        predict(ALONE, AllReduce())
    assert predict(ALONE, AllReduce(ranks=1)).bound == "DRAM"


def test_a_datasheet_states_both_directions_of_a_link() -> None:
    assert Machine.from_datasheet("h100-sxm").link().value == 450e9
    with pytest.raises(Error, match="no link to other GPUs is known"):
        Machine.from_datasheet("rtx-4090").link()


def test_a_link_is_no_memory_level() -> None:
    assert LINKED.levels() == ("DRAM",)
    assert LINKED.sanity() == []
    assert Machine.from_dict(LINKED.to_dict()) == LINKED
    assert "link" in LINKED._repr_html_()


# -- bad input and no kernels -------------------------------------------------------------------------------------------------


test_bad_fields = refused(
    lambda operator, fields: operator(**fields),
    (GroupedMatmul, {"experts": 4, "experts_per_token": 5}, "grouped_matmul: experts_per_token must be at most experts 4"),
    (TopkSoftmax, {"experts": 4, "experts_per_token": 5}, "topk_softmax: experts_per_token must be at most experts 4, got 5"),
    (TopkSigmoid, {"experts": 4, "experts_per_token": 5}, "topk_sigmoid: experts_per_token must be at most experts 4, got 5"),
    (GroupedMatmul, {"touched_experts": 7}, "touched_experts must be 0, or from experts_per_token 8 to the 256 experts"),
    (GroupedMatmul, {"touched_experts": 9}, "tokens 1 times that, got 9"),
    (GroupedMatmul, {"tokens": 1000, "touched_experts": 257}, "the 256 experts .* got 257"),
    (GroupedMatmul, {"weight_bits": -1.0}, "weight_bits must be above 0 and at most 64, got -1.0"),
    (QuantizedMatmul, {"weight_bits": -4.0}, "quantized_matmul: weight_bits must be above 0 and at most 64, got -4.0"),
    (QuantizedMatmul, {"weight_bits": math.nan}, "weight_bits must be a finite number, got nan"),
    (QuantizedMatmul, {"weight_bits": 10**400}, "weight_bits must be a finite number, got 1000"),
    (CachedAttention, {"softcap": -1.0}, "cached_attention: softcap must be 0 or from 1e-30 to 1e30, got -1.0"),
    (CachedAttention, {"softcap": 1e-40}, "softcap must be 0 or from 1e-30 to 1e30, got 1e-40"),
    (CachedAttention, {"softcap": 1e300}, r"softcap must be 0 or from 1e-30 to 1e30, got 1e\+300"),
    (QuantizedMatmul, {"zero_bits": 65}, "zero_bits must be at most 64, got 65"),
    (QuantizedMatmul, {"columns": 2**61, "inner": 2**61}, "quantized_matmul: tensor 'b' .* more than 2..62 bytes"),
    (MlaDecode, {"seq_q": 3, "seq_kv": 2}, "mla_decode: causal with seq_q 3 > seq_kv 2"),
    (MlaPrefill, {"seq_q": 3, "seq_kv": 2}, "mla_prefill: causal with seq_q 3 > seq_kv 2"),
    (Rope, {"head_dim": 3}, "rope: head_dim must be even, since numbers are rotated in pairs, got 3"),
    (Rope, {"kv_heads": 0}, "rope: kv_heads must be between 1 and 2..62, got 0"),
    (Bmm, {"scale_bits": 65}, "bmm: scale_bits must be at most 64, got 65"),
    (Bmm, {"scales": "column"}, "bmm: scales must be one of none, tensor, row, block, two_level, got 'column'"),
    (Embedding, {"vocabulary": 2**31 + 1}, "embedding: vocabulary must be at most 2..31, for ids in int32"),
    (AllReduce, {"ranks": 0}, "all_reduce: ranks must be between 1 and"),
    (AllToAll, {"dtype": "int4"}, "all_to_all: dtype must be one of"),
    (GroupedMatmul, {"ranks": 3}, "grouped_matmul: ranks must divide experts 256, got 3"),
    (GroupedMatmul, {"ranks": 8, "shared_experts": 1}, "with ranks 8 state them apart"),
    (GroupedMatmul, {"ranks": 8, "tokens": 64, "touched_experts": 33}, "those of one of 8 ranks"),
    (LmHead, {"tokens": 10**30}, "lm_head: tokens must be between 1 and 2..62, got 1000000000000000000000000000000"),
)


def test_large_problems_do_not_overflow() -> None:
    assert LmHead(tokens=2**30, d_model=2**30, vocabulary=2**30).total_flops() == 2**91
    assert MlaDecode(batch=2**20, seq_kv=2**30).flops()["p·c"] == 2 * 2**20 * 128 * 2**30 * 512
    assert GroupedMatmul(tokens=2**40, d_model=2**10, d_ff=2**10).flops()["up"] == 2 * 2**40 * 8 * 2**20


def test_nothing_runs_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("roofline._core")
    from roofline import measure, run

    monkeypatch.setattr(LmHead, "variants", {})
    for attempted in (lambda: measure(LmHead(), device="cpu"), lambda: run(LmHead())):
        with pytest.raises(Unsupported, match="lm_head is cost only: it has no kernels"):
            attempted()


@pytest.mark.parametrize("touched", [0, 5])
def test_routing_that_is_measured(touched: int) -> None:
    """Different experts for a token, as many in all as are said to be touched, and the same again from the same seed."""
    problem = GroupedMatmul(tokens=7, experts=8, experts_per_token=2, touched_experts=touched, d_model=4, d_ff=4)
    chosen = problem.initial("chosen", np.random.default_rng(3))
    assert chosen is not None
    assert chosen.shape == (7, 2)
    assert all(len(set(row)) == 2 for row in chosen.tolist())
    assert chosen.min() >= 0
    assert chosen.max() < 8
    assert not touched or len(np.unique(chosen)) == touched
    assert np.array_equal(chosen, problem.initial("chosen", np.random.default_rng(3)))
    # Three products of each touched expert, a gather, an activation and a sum.
    assert problem.launches({"variant": "library", "experts_with_tokens": 5}) == 3 + 3 * 5
