"""Estimates of whole models: golden numbers, what they are made of, properties, advice, and bad input."""

import dataclasses
import json
import math
from typing import Any

import pytest
from figures import DECODE_7B
from hypothesis import given, settings, strategies as st
from tables import refused

from roofline.errors import Error
from roofline.machine import Machine
from roofline.questions import predict
from roofline.transformer import (
    Decode,
    Mixed,
    Prefill,
    Training,
    TransformerConfig,
    advise,
    calls_of,
    crossing,
    preset,
    ridge_batch,
)

LLAMA = preset("Llama-3-8B")


def on_paper(*, bandwidth: float = 1e12, compute: float = 100e12, **more: Any) -> Machine:
    """A machine of round numbers, in bf16."""
    return Machine.from_peaks("paper", bandwidth, bf16=compute, fp32=compute / 10, **more)


WITH_FP8 = on_paper(fp8_e4m3=200e12)


def h100() -> Machine:
    return Machine.from_datasheet("H100 SXM")


# -- golden -------------------------------------------------------------------------------------------------------------------


def test_llama_3_8b_on_h100() -> None:
    """One decode step against 2048 cached tokens in bf16 at 3350 GB/s: 4.247 ms of weights and KV, 4.561 ms with the head."""
    given = {"what": LLAMA, "phase": Decode(seq_kv=2048), "machine": h100()}
    without = predict(**given, lm_head=False, counting="weights_and_kv")
    assert without.bytes == 13_958_643_712 + 268_435_456
    assert without.time_s == pytest.approx(14_227_079_168 / 3350e9, rel=1e-12)
    assert f"{without.time_s * 1e3:.3f}" == "4.247"
    assert f"{predict(**given, counting='weights_and_kv').time_s * 1e3:.3f}" == "4.561"
    # Activations, norms, rotation, cache writes and the embedding row add less than 0.1 %.
    full = predict(**given, lm_head=False)
    assert 1 < full.time_s / without.time_s < 1.001
    assert full.tpot_s == full.time_s
    assert full.tokens_per_s == full.tokens_per_s_per_user == 1 / full.time_s


def test_prefill_is_bound_by_products() -> None:
    """Products at 989.4 TFLOP/s, softmax on the cores, and what passes over activations: other tools give 34.3 and 35.5 ms."""
    found = predict(h100(), LLAMA, Prefill(seq_q=2048))
    assert found.ttft_s == pytest.approx(34.1e-3, rel=0.005)
    assert found.profile["product"] / found.time_s > 0.85
    assert found.tpot_s is None


# From the published shapes: numbers in the matrices of layers that a token meets (of Mixtral two experts), those of the head,
# bytes of the cache per token; layers times heads times head_dim.
MODELS = {
    # 32 (4 4096^2 + 3 4096 11008)
    "Llama-2-7B": (6_476_005_376, 32000 * 4096, 32 * 2 * 32 * 128 * 2, 32 * 32 * 128),
    # 32 (4096 (4096 + 2 1024) + 4096^2 + 8 4096 + 2 3 4096 14336)
    "Mixtral-8x7B": (12_617_515_008, 32000 * 4096, 32 * 2 * 8 * 128 * 2, 32 * 32 * 128),
    # 36 (4096 (4096 + 2 1024) + 4096^2 + 3 4096 12288)
    "Qwen3-8B": (6_945_767_424, 151936 * 4096, 36 * 2 * 8 * 128 * 2, 36 * 32 * 128),
}
MACHINES = {"H100 SXM": (3.35e12, 989.4e12), "MI300X": (5.3e12, 1307.4e12), "HGX B200": (7.7e12, 2250e12)}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("model", MODELS)
def test_three_models_on_three_machines(model: str, machine: str) -> None:
    """Decode takes weights and cache over bandwidth and hardly more; a prefill its products over their peak, or a fifth more."""
    matrices, head, cached, width = MODELS[model]
    bandwidth, peak = MACHINES[machine]
    config, on = preset(model), Machine.from_datasheet(machine)
    floor_s = (2 * (matrices + head) + 4096 * cached) / bandwidth
    step: dict[str, Any] = {"what": config, "phase": Decode(seq_kv=4096), "machine": on, "must_fit": False}
    assert predict(**step, counting="weights_and_kv").time_s == pytest.approx(floor_s, rel=1e-12)
    assert 1 < predict(**step).time_s / floor_s < 1.001
    flops = 2 * (2048 * matrices + head) + 4 * width * 2048 * 2049 // 2
    prefill = predict(on, config, Prefill(seq_q=2048), must_fit=False)
    assert sum(part.product_flops for part in prefill.parts) == flops
    assert 1 < prefill.time_s / (flops / peak) < 1.2


@pytest.mark.parametrize("batch", DECODE_7B)
def test_utilisation_factors_of_tutorials(batch: int) -> None:
    """A "7B" at 70 % of 989.5 TFLOP/s and 80 % of 3.35 TB/s: with 256 times the batch a step takes 21 times as long."""
    machine = on_paper(bandwidth=3.35e12, compute=989.5e12)
    found = predict(
        machine, preset("7B"), Decode(batch=batch, seq_kv=2048), lm_head=False, counting="weights_and_kv",
        utilisation={"compute": 0.7, "bandwidth": 0.8},
    )  # fmt: skip
    # In bytes x and result of q, k, v and out, three of attention, three of the FFN, whose inside is left out.
    activations = 32 * (6 + 2 + 3 + 3) * batch * 4096 * 2
    assert found.time_s + activations / (0.8 * 3.35e12) == pytest.approx(DECODE_7B[batch]["time_s"], rel=1e-12)
    assert found.ceilings == ("DRAM read 3.35 TB/s × 0.8", "bf16→fp32 990 TFLOP/s × 0.7")


# -- what it is made of -------------------------------------------------------------------------------------------------------

SMALL = TransformerConfig(layers=2, d_model=64, heads=4, kv_heads=2, d_ff=128, vocabulary=100)


def test_parts_add_up() -> None:
    machine = on_paper(launch_s=1e-6)
    for phase in (Prefill(seq_q=64, chunk=24), Decode(batch=3, seq_kv=50), Mixed(batch=2, seq_kv=9), Training(seq_q=16)):
        found = predict(machine, SMALL, phase, overhead_s=1e-3)
        steps = sum(1 for _ in phase.steps())
        assert found.overhead_s == pytest.approx(1e-3 * steps)
        for shares in (found.profile, {**found.groups, "overhead": found.overhead_s}):
            assert sum(shares.values()) == pytest.approx(found.time_s, rel=1e-12)
        runs = sum(part.call.count for part in found.parts)
        assert found.profile["launch"] == pytest.approx(1e-6 * runs)
        assert found.flops == sum(c.count * c.problem.total_flops() for c in calls_of(SMALL, phase))
        assert list(found.profile.values()) == sorted(found.profile.values(), reverse=True)


def test_one_part_by_hand() -> None:
    """lm_head of 3 rows: 2 x 3 x 64 x 100 FLOPs at 100 MFLOP/s, against 2 (192 + 6400 + 300) bytes at 1 GB/s."""
    found = predict(on_paper(bandwidth=1e9, compute=100e6), SMALL, Decode(batch=3, seq_kv=5))
    (head,) = (part for part in found.parts if part.call.group == "head")
    assert (head.time_s, head.bound) == (pytest.approx(384e-6), "compute")
    found = predict(on_paper(bandwidth=1e9, compute=100e9), SMALL, Decode(batch=3, seq_kv=5))
    (head,) = (part for part in found.parts if part.call.group == "head")
    assert (head.time_s, head.bound) == (pytest.approx(13784e-9), "DRAM")


def test_launches_as_given() -> None:
    """23 calls of 2 us each, whatever the machine says: with none the note goes too."""
    runs = sum(call.count for call in calls_of(SMALL, Decode(seq_kv=64)))
    assert runs == 1 + 2 * 8 + 1 + 4 + 1 == 23
    for machine in (on_paper(), on_paper(launch_s=1e-3)):
        found = predict(machine, SMALL, Decode(seq_kv=64), launch_s=2e-6)
        assert found.profile["launch"] == pytest.approx(runs * 2e-6)
        assert "launch 2.00 µs, as given" in found.ceilings
        assert not any("launch latency" in note for note in found.notes)
        assert "launch" not in predict(machine, SMALL, Decode(seq_kv=64), launch_s=0).profile


def test_measured_machines_overlap_imperfectly() -> None:
    machine = on_paper(bandwidth=1e9, compute=2e9)
    measured = dataclasses.replace(machine, ceilings=tuple(dataclasses.replace(c, source="measured") for c in machine.ceilings))
    perfect, real = (predict(m, SMALL, Decode(seq_kv=64)) for m in (machine, measured))
    assert "overlap" not in perfect.profile
    assert real.profile["overlap"] > 0
    assert real.time_s > perfect.time_s


def test_collectives() -> None:
    machine = on_paper()
    with pytest.raises(Error, match="no link to other GPUs is known"):
        predict(machine, SMALL, Decode(seq_kv=8), tp=2)
    found = predict(machine, SMALL, Decode(seq_kv=8), tp=2, link_bytes_per_s=1e6, link_latency_s=1e-3)
    # Five all-reduces of 64 numbers: two halves of 64 bytes each go over the link. Then half of 100 logits of two bytes.
    assert found.profile["link"] == pytest.approx((5 * 2 * 64 + 100) / 1e6)
    assert found.profile["link latency"] == pytest.approx(6e-3)
    assert "link 1.00 MB/s" in found.ceilings
    assert predict(h100(), LLAMA, Decode(), tp=8).ceilings[-1] == "link 450 GB/s"


def test_more_devices_than_a_board_has_are_said_to_share_its_link() -> None:
    said = "all 16 devices are taken to be joined by one link of 450 GB/s; a board joins 8"
    for how, is_said in (({"tp": 16}, True), ({"ep": 16}, True), ({"tp": 8}, False), ({"tp": 16, "link_bytes_per_s": 5e10}, False)):
        found = predict(h100(), preset("GPT-OSS-120B"), Decode(batch=16), **how)
        assert any(said in note for note in found.notes) == is_said


def test_expert_parallelism_by_hand() -> None:
    """Mixtral on 8 ranks of 8 sequences: each reads its one expert (a token in 64 misses it rarely), and all of attention."""
    config, phase = preset("Mixtral-8x7B"), Decode(batch=64, seq_kv=2048)
    on = h100()
    found = predict(on, config, phase, ep=8, lm_head=False, counting="weights_and_kv")
    attention = 32 * 2 * (4096 * 6144 + 4096 * 4096 + 8 * 4096)
    expert = 32 * 3 * math.ceil((1 - 0.75**64) * 2 * 4096 * 14336)
    assert found.bytes == attention + expert + 8 * 2048 * 131072
    full = predict(on, config, phase, ep=8)
    # 8 ranks of 8 tokens with 2 of 8 experts: a rank has one, which a quarter of the 64 tokens choose: 16 rows, of which 2 stay.
    sent = 2 * 32 * 2 * 14 * 4096
    assert full.profile["link"] == pytest.approx(sent / 450e9)
    assert full.tokens_per_s == pytest.approx(64 / full.time_s)
    assert full.tokens_per_s_per_user == pytest.approx(1 / full.time_s)
    assert math.isinf(full.amdahl)
    assert any("every rank has 1 experts" in note for note in full.notes)
    more = {item.change: item for item in advise(full, on)}
    assert "twice the TP degree" not in more  # 16 do not divide 8 experts
    assert "twice the link" in more
    # Fewer expert bytes than tensor parallelism has at this batch: none; but no all-reduce.
    other = predict(on, config, phase, tp=8)
    assert sum(p.bytes for p in full.parts if p.call.name == "experts") == pytest.approx(
        sum(p.bytes for p in other.parts if p.call.name == "experts"), rel=0.01
    )
    batch = ridge_batch(predict(on, config, phase, ep=4), on).batch
    assert batch is None or batch > 64


def test_amdahl() -> None:
    """A third of the time that no rank shares leaves at most three times the speed, as in any profile of decode and recompute.

    Ranks that outnumber the KV heads share what they read of the cache.
    """
    found = predict(on_paper(), SMALL, Decode(seq_kv=64))
    kept = sum(part.time_s for part in found.parts if part.call.name in ("embedding", "norm", "residual and norm"))
    (attention,) = (part for part in found.parts if part.call.name == "attention")
    kept += attention.time_s / SMALL.kv_heads
    assert found.unsharded_s == pytest.approx(kept)
    assert found.amdahl == pytest.approx(found.time_s / kept)
    third = predict(on_paper(), SMALL, Decode(seq_kv=64), overhead_s=(found.time_s - 3 * kept) / 2)
    assert third.amdahl == pytest.approx(3)
    many = predict(on_paper(), SMALL, Decode(seq_kv=64), tp=2, link_bytes_per_s=1e30)
    assert found.time_s / found.amdahl < many.time_s < found.time_s
    of_eight = predict(Machine.load("8xH100"), preset("Llama-3-70B"), Decode(batch=32, seq_kv=8192), tp=8)
    of_64 = predict(Machine.load("64xH100"), preset("Llama-3-70B"), Decode(batch=32, seq_kv=8192), tp=64)
    assert 1 < of_eight.time_s / of_64.time_s < of_eight.amdahl < 3


def test_speculative_decoding() -> None:
    plain = predict(h100(), LLAMA, Decode(seq_kv=2048))
    four = predict(h100(), LLAMA, Decode(seq_kv=2048, seq_q=4, accepted=2.5))
    assert four.tpot_s == pytest.approx(four.time_s / 2.5)
    assert 1 < four.time_s / plain.time_s < 1.01  # the same weights and cache
    assert any("the draft's own cost is not in it" in note for note in four.notes)
    best = predict(h100(), LLAMA, Decode(seq_kv=2048, seq_q=4))
    assert best.tpot_s == pytest.approx(best.time_s / 4)
    assert any("the best case" in note for note in best.notes)


def test_training_counts_useful_flops() -> None:
    kept, again = (predict(on_paper(compute=1e9), SMALL, Training(batch=4, seq_q=64, recompute=r)) for r in ("none", "full"))
    assert kept.mfu is not None and again.mfu is not None
    assert kept.mfu * kept.time_s == pytest.approx(again.mfu * again.time_s)
    assert again.mfu < kept.mfu < 1
    assert kept.tokens_per_s == pytest.approx(256 / kept.time_s)


def test_fusing_gains() -> None:
    fused, apart = (predict(h100(), LLAMA, Prefill(seq_q=2048), fused=fused) for fused in (True, False))
    # Scores of 32 heads and layers in fp32, four passes: 34 GB more than a fused attention moves.
    pairs = 32 * 32 * 2048 * 2049 // 2
    moved = {e.options.fused: sum(p.bytes for p in e.parts if p.call.name == "attention") for e in (fused, apart)}
    assert moved[False] - moved[True] == 4 * 4 * pairs
    assert apart.time_s > fused.time_s


# -- properties ---------------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["7B", "Llama-3-8B", "Qwen3-30B-A3B", "DeepSeek-V3", "GPT-OSS-120B"])


@settings(max_examples=40)
@given(name=NAMES, batch=st.integers(1, 300), seq_kv=st.integers(1, 30000), more=st.integers(1, 100))
def test_time_grows_with_batch_and_length(name: str, batch: int, seq_kv: int, more: int) -> None:
    def time_s(batch: int, seq_kv: int) -> float:
        return predict(WITH_FP8, preset(name), Decode(batch=batch, seq_kv=seq_kv)).time_s

    first = time_s(batch, seq_kv)
    assert time_s(batch + more, seq_kv) > first
    # A window bounds what a longer cache adds, and other layers see it.
    assert time_s(batch, seq_kv + more) > first


@settings(max_examples=25)
@given(name=NAMES, seq_q=st.integers(1, 3000), more=st.integers(1, 500), tp=st.sampled_from([2, 4, 8]))
def test_ranks_never_slow_a_part(name: str, seq_q: int, more: int, tp: int) -> None:
    whole = predict(WITH_FP8, preset(name), Prefill(seq_q=seq_q))
    part = predict(WITH_FP8, preset(name), Prefill(seq_q=seq_q), tp=tp, link_bytes_per_s=1e11)
    own = [p for p in part.parts if p.call.group != "communication"]
    assert [p.call.name for p in own] == [p.call.name for p in whole.parts]
    for one, other in zip(whole.parts, own, strict=True):
        assert other.time_s <= one.time_s * (1 + 1e-9)
    longer = predict(WITH_FP8, preset(name), Prefill(seq_q=seq_q + more))
    assert longer.time_s > whole.time_s


@settings(max_examples=25)
@given(name=NAMES, compute=st.floats(0.05, 1), bandwidth=st.floats(0.05, 1), batch=st.integers(1, 500))
def test_lower_utilisation_is_slower(name: str, compute: float, bandwidth: float, batch: int) -> None:
    machine, phase = WITH_FP8, Decode(batch=batch)
    best = predict(machine, preset(name), phase).time_s
    given = predict(machine, preset(name), phase, utilisation={"compute": compute, "bandwidth": bandwidth}).time_s
    assert best <= given * (1 + 1e-9)
    assert given <= best / min(compute, bandwidth) * (1 + 1e-9)


# -- advice -------------------------------------------------------------------------------------------------------------------


def test_crossings_of_a_linear_layer() -> None:
    """b d / (2 b + d) reaches 295.4 at b = 345.15, and 156 at 168.9; 2-byte elements, d = 4096."""
    each, once = {"flops_each": 2 * 4096**2, "bytes_each": 2 * 2 * 4096}, 2 * 4096**2
    assert crossing(**each, bytes_once=once, ridge=989.5e12 / 3.35e12).batch == pytest.approx(345.15286222812665)
    assert crossing(**each, bytes_once=once, ridge=156).batch == pytest.approx(168.87, abs=0.01)
    never = crossing(**each, bytes_once=once, ridge=5000)
    assert never.batch is None
    assert never.limit == 2048
    assert never.text == "no batch reaches it: the intensity saturates at 2050 FLOP/byte, below the ridge of 5000 FLOP/byte"


def test_decode_of_a_7b_never_reaches_the_ridge() -> None:
    """Every sequence brings its own cache: 24 d² + 4 S d FLOPs a layer against 4 S d bytes, 13 FLOP/byte for S = 2048."""
    found = ridge_batch(predict(h100(), preset("7B"), Decode(seq_kv=2048), lm_head=False), h100())
    assert found.batch is None
    assert found.ridge == pytest.approx(989.4 / 3.35)
    # Less what activations move: 12.9 as tutorials count them, a little less in full.
    assert 12 < found.limit < (24 * 4096**2 + 4 * 2048 * 4096) / (4 * 2048 * 4096)
    short = ridge_batch(predict(h100(), preset("7B"), Decode(seq_kv=2)), h100())
    assert short.batch is not None and 345 < short.batch < 500
    assert short.text.startswith(f"from batch {math.ceil(short.batch)} on")


def test_batch_at_the_ridge_is_where_the_intensity_passes() -> None:
    machine, phase = on_paper(compute=20e12), Decode(seq_kv=128)
    found = ridge_batch(predict(machine, LLAMA, phase), machine)
    assert found.batch is not None

    def intensity(batch: int) -> float:
        calls = calls_of(LLAMA, phase.replace(batch=batch))
        flops = sum(call.count * call.problem.work({"variant": call.variant}).get("product", 0) for call in calls)
        return flops / sum(call.count * call.problem.compulsory_bytes() for call in calls)

    assert intensity(int(found.batch)) <= 20 <= intensity(int(found.batch) + 1)


def test_advice_is_what_the_changed_estimate_says() -> None:
    machine = h100()
    found = predict(machine, LLAMA, Decode(batch=8), fused=False)
    advice = {item.change: item for item in advise(found, machine, [Machine.from_datasheet("H200 SXM")])}
    assert list(advice) == sorted(advice, key=lambda change: -advice[change].gain)
    options = {"fused": False}
    fp8 = predict(machine, LLAMA.replace(kv="fp8_e4m3"), Decode(batch=8), **options)
    assert advice["KV cache in fp8"].gain == pytest.approx(found.time_s / fp8.time_s)
    doubled = predict(machine, LLAMA, Decode(batch=16), **options)
    assert advice["twice the batch"].gain == pytest.approx(doubled.tokens_per_s / found.tokens_per_s)
    assert advice["twice the bandwidth"].gain == pytest.approx(2, rel=1e-3)
    assert advice["twice the arithmetic"].gain == pytest.approx(1, rel=1e-3)
    assert advice["NVIDIA H200 SXM"].gain == pytest.approx(4.8 / 3.35, rel=1e-3)
    assert advice["twice the TP degree"].gain < 2
    assert advice["fuse attention and products"].gain > 1
    assert 2 < advice["weights in int4, groups of 128"].gain < 4


def test_advice_by_what_takes_the_time() -> None:
    """Launches, links and overhead are worth what they take; what does not bound is worth nothing."""
    machine = on_paper(launch_s=1e-6)
    given: dict[str, Any] = {"tp": 2, "link_bytes_per_s": 1e9, "link_latency_s": 1e-5, "overhead_s": 1e-3}
    found = predict(machine, SMALL, Decode(seq_kv=64), **given)
    assert found.bound == "overhead" == next(iter(found.profile))
    advice = {item.change: item for item in advise(found, machine)}
    for change, roof, left in (
        ("no overhead", "overhead", 0.0),
        ("no launches between kernels (a graph, one kernel)", "launch", 0.0),
        ("no latency of collectives", "link latency", 0.0),
        ("twice the link", "link", 0.5),
    ):
        gone = (1 - left) * found.profile[roof]
        assert advice[change].time_s == pytest.approx(found.time_s - gone), change
        assert advice[change].gain == pytest.approx(found.time_s / (found.time_s - gone)), change
    assert advice["no overhead"].bound == "link latency"
    assert not {"no overhead", "twice the link"} & {a.change for a in advise(predict(machine, SMALL, Decode(seq_kv=64)), machine)}


def test_advice_on_speculation() -> None:
    """Weights and cache are read once for four tokens: while memory bounds, the step is hardly longer."""
    found = predict(h100(), LLAMA, Decode(seq_kv=2048))
    (four,) = (item for item in advise(found, h100()) if item.change.startswith("speculative"))
    assert 3.9 < four.gain < 4
    assert four.at_most
    assert four.detail.startswith("pays from 1.00 accepted")


def test_advice_leaves_out_what_cannot_be() -> None:
    machine = on_paper(memory_bytes=10**8)
    found = predict(machine, SMALL, Decode(seq_kv=8))
    changes = {item.change for item in advise(found, machine)}
    assert "twice the TP degree" not in changes  # no link is known
    assert "fuse attention and products" not in changes  # it is
    assert "weights in fp8" in changes  # without fp8 arithmetic they are widened
    training = {item.change for item in advise(predict(machine, SMALL, Training(seq_q=8)), machine)}
    assert not any("weights" in change for change in training)


# -- what is shown ------------------------------------------------------------------------------------------------------------


def test_what_is_counted_is_said() -> None:
    machine = on_paper(memory_bytes=80 * 10**9)
    full = predict(machine, LLAMA, Decode(), lm_head=False)
    assert any("no lm_head" in line for line in full.counted)
    assert any("no launch latency is known" in note for note in full.notes)
    rough = predict(machine, LLAMA, Decode(), counting="weights_and_kv")
    assert any("Not counted: activations" in line for line in rough.counted)
    assert not any("launch" in note for note in rough.notes)
    ranks = predict(machine, preset("GPT-OSS-120B"), Decode(seq_kv=200000), tp=16, link_bytes_per_s=1e11)
    said = " ".join(ranks.notes)
    assert "8 KV heads are replicated, 2 times each" in said
    assert "200000 keys are more than the 131072" in said
    assert "of 128 are read per layer" in said
    assert "no latency" in said
    assert {"TTFT", "TPOT"} <= {line.split(":")[0] for e in (full, predict(machine, LLAMA, Prefill())) for line in e.remarks()}


def test_unverified_ceilings_are_marked() -> None:
    machine = on_paper()
    doubtful = tuple(dataclasses.replace(c, reason="unverified: hearsay") for c in machine.ceilings)
    found = predict(dataclasses.replace(machine, ceilings=doubtful), SMALL, Decode(), utilisation={"bandwidth": 0.8})
    assert "DRAM read 1.00 TB/s (unverified) × 0.8" in found.ceilings


def test_reprs() -> None:
    found = predict(h100(), LLAMA, Decode(batch=8))
    said = "'Llama-3-8B', decode: batch 8, context 2048, NVIDIA H100 SXM: 5.148 ms, 1.55 ktok/s"
    assert repr(found) == f"ModelPrediction({said})"
    html = found._repr_html_()
    assert "lm_head" in html and "TPOT" in html
    headers, rows = found.table()
    assert all(len(row) == len(headers) for row in rows)
    assert rows[-1][0] == "total"
    chunked = predict(h100(), LLAMA, Prefill(seq_q=4096, chunk=512))
    names = [row[0] for row in chunked.table()[1]]
    assert len(names) == len(set(names))  # eight attentions of growing length are one row
    assert dict(chunked.summary())["TTFT"]


@pytest.mark.parametrize(
    ("config", "phase", "options"),
    [
        (LLAMA, Decode(batch=4), {}),
        (preset("DeepSeek-V3"), Prefill(seq_q=100, chunk=30), {"tp": 16, "overhead_s": 1e-4}),
        (preset("GPT-OSS-120B"), Mixed(batch=4), {"counting": "weights_and_kv", "memory_share": 0.9}),
        (LLAMA, Training(seq_q=128), {"fused": False, "must_fit": False}),
    ],
)
def test_the_json_form_fits_its_schema(config: TransformerConfig, phase: Any, options: dict[str, Any], schema: Any) -> None:
    check = schema("prediction")
    found = predict(h100(), config, phase, **options)
    more = {"advice": [item.to_dict() for item in advise(found, h100())], "ridge": ridge_batch(found, h100()).to_dict()}
    text = json.dumps(found.to_dict() | more, allow_nan=False)
    check.validate(json.loads(text))


# -- bad input ----------------------------------------------------------------------------------------------------------------


test_bad_options = refused(
    lambda options: predict(on_paper(), LLAMA, Decode(), **options),
    ({"counting": "some"}, "counting must be one of full, weights_and_kv"),
    ({"utilisation": {"bandwidth": 1.2}}, "utilisation of bandwidth must be a share from 1e-06 to 1, got 1.2"),
    ({"utilisation": "bandwidth=nan"}, "utilisation of bandwidth must be a share"),
    ({"utilisation": "memory=0.5"}, "not for 'memory'"),
    ({"utilisation": "most"}, "a share such as 0.8, or compute=0.7"),
    ({"memory_bytes": "80 barrels"}, "cannot read the size '80 barrels'"),
    ({"lm_head": "no"}, "lm_head must be True or False"),
    ({"fused": 1}, "fused must be True or False"),
    ({"tp": 3, "link_bytes_per_s": 1e9}, "tp 3 does not divide heads"),
    ({"memory_bytes": 1e6}, "does not fit; not even one sequence fits .must_fit=False"),
)


@pytest.mark.parametrize(
    ("machine", "options", "said"),
    [
        # 70.55e9 weights of two bytes are 131.4 GiB; the driver of an H200 has 143771 MiB, that of an H100 79.6 GiB.
        ("H200 SXM", {}, "132 GiB of 140 GiB (by the driver): fits; the largest batch that fits is 14"),
        ("H100 SXM", {}, "132 GiB of 79.6 GiB (by the driver): does not fit; not even one sequence fits"),
        ("MI300X", {}, "132 GiB of 192 GiB (by the driver): fits"),
        ("MI325X", {}, "132 GiB of 256 GiB (by the datasheet): fits"),
        ("TPU v5p", {}, "132 GiB of 95 GiB (by the datasheet): does not fit"),
        ("H100 SXM", {"memory_bytes": 2**38}, "132 GiB of 256 GiB (as given): fits"),
        ("H200 SXM", {"memory_share": 0.9}, "132 GiB of 126 GiB (by the driver): does not fit"),
    ],
)
def test_what_fits_where(machine: str, options: dict[str, float], said: str) -> None:
    """Llama-3-70B in bf16, with one sequence of 2048 keys."""
    found = predict(Machine.from_datasheet(machine), preset("Llama-3-70B"), Decode(seq_kv=2048), must_fit=False, **options)
    assert found.memory.text.startswith(said)
    (line,) = (value for name, value in found.summary() if name == "memory")
    assert "GB" not in line.replace("GiB", ""), "one unit within a line"


def test_a_machines_own_memory_counts() -> None:
    assert "(as reported)" in predict(on_paper(memory_bytes=2**34), SMALL, Decode()).memory.text
    assert predict(on_paper(), SMALL, Decode()).memory.to_dict()["capacity_source"] == ""


def test_what_does_not_fit_is_refused() -> None:
    """81559 MiB are 85.52e9 bytes; less 16.06e9 of weights, at 268.4e6 of cache a sequence: 258, activations being small."""
    with pytest.raises(Error, match=r"of 79.6 GiB \(by the driver\): does not fit; the largest batch that fits is 258 "):
        predict(h100(), LLAMA, Decode(batch=300, seq_kv=2048))
    beyond = predict(h100(), LLAMA, Decode(batch=300, seq_kv=2048), must_fit=False)
    assert beyond.memory.fits is False
    assert beyond.memory.largest_batch is not None
    most = predict(h100(), LLAMA, Decode(batch=beyond.memory.largest_batch, seq_kv=2048))
    assert most.memory.fits
    with pytest.raises(Error, match="does not fit"):
        predict(h100(), LLAMA, Decode(batch=beyond.memory.largest_batch + 1, seq_kv=2048))


def test_a_machine_without_what_it_takes() -> None:
    with pytest.raises(Error, match="no bandwidth was measured"):
        predict(Machine(name="empty"), SMALL, Decode())
    bandwidth = tuple(c for c in on_paper().ceilings if c.kind == "bandwidth")
    with pytest.raises(Error, match="no compute ceiling for bf16"):
        predict(Machine(name="no arithmetic", ceilings=bandwidth), SMALL, Decode())
    # Other dtypes fall back to the arithmetic they accumulate in, and it is said.
    many = Prefill(batch=64, seq_q=64)
    assert any("no fp16 peak is known" in note for note in predict(on_paper(), SMALL.replace(weights="fp16"), many).notes)
