"""Serving: latency, throughput and cost of requests, against sums of single phases and hand-worked prices."""

import dataclasses
from typing import Any

import pytest
from tables import refused

import roofline
from roofline.errors import Error
from roofline.machine import KernelTime
from roofline.prediction import memory_and_rest_s
from roofline.transformer import Decode, Prefill, Serving, ServingPrediction, TransformerConfig, predict_model, preset

MACHINE = roofline.Machine.from_datasheet("H100 SXM")
MODEL = preset("Llama-3-8B")


def serve(**given: Any) -> ServingPrediction:
    found = roofline.predict(MACHINE, MODEL, "serving", **given)
    assert isinstance(found, ServingPrediction)
    return found


def test_a_request_alone_is_its_prefill_and_its_decode_steps() -> None:
    found = serve(input_len=300, output_len=40)
    prefill = predict_model(MACHINE, MODEL, Prefill(seq_q=300))
    steps = [predict_model(MACHINE, MODEL, Decode(seq_kv=300 + i)) for i in range(1, 40)]
    decode_s = sum(step.time_s for step in steps)
    assert found.ttft_s == pytest.approx(prefill.time_s)
    assert found.time_s == pytest.approx(prefill.time_s + decode_s, rel=1e-9)
    assert found.tpot_s == pytest.approx(decode_s / 39)
    assert found.flops == pytest.approx(prefill.flops + sum(step.flops for step in steps), rel=1e-9)
    assert found.bytes == pytest.approx(prefill.bytes + sum(step.bytes for step in steps), rel=1e-9)
    assert sum(found.profile.values()) == pytest.approx(found.time_s)
    for name in ("mfu", "mbu"):
        at_peak_s = sum(getattr(each, name) * each.time_s for each in (prefill, *steps))
        assert getattr(found, name) == pytest.approx(at_peak_s / found.time_s, rel=1e-3)
        assert f"{100 * getattr(found, name):.3g} %" == found.quantities()[name.upper()]
    assert found.requests_per_s == pytest.approx(1 / found.time_s)


def test_requests_together_share_decode_steps_and_wait_for_prefills() -> None:
    found = serve(input_len=300, output_len=20, concurrency=16)
    prefill = predict_model(MACHINE, MODEL, Prefill(seq_q=300)).time_s
    decode = sum(predict_model(MACHINE, MODEL, Decode(batch=16, seq_kv=300 + i)).time_s for i in range(1, 20))
    assert found.time_s == pytest.approx(16 * prefill + decode, rel=1e-9)
    assert found.tpot_s == pytest.approx((15 * prefill + decode) / 19)
    # Little's law, and tokens counted by hand.
    assert found.requests_per_s * found.time_s == pytest.approx(16)
    assert found.output_tokens_per_s == pytest.approx(16 * 20 / found.time_s)
    assert found.input_tokens_per_s == pytest.approx(16 * 300 / found.time_s)


def test_long_answers_are_sampled_closely() -> None:
    found = serve(seq_q=100, output=3000)
    exact = sum(predict_model(MACHINE, MODEL, Decode(seq_kv=100 + i)).time_s for i in range(1, 3000, 50)) * 50
    assert found.decode_s == pytest.approx(exact, rel=2e-2)


def test_one_token_is_the_prefill() -> None:
    found = serve(input_len=128, output_len=1)
    assert found.time_s == found.ttft_s and found.tpot_s is None and found.decode_s == 0


def test_cost_is_price_over_throughput() -> None:
    found = roofline.predict("8xH100", "Llama-3-70B", "serving", concurrency=32, price_per_hour=2.5)
    # Eight devices at 2.5 an hour, over the tokens of an hour.
    assert found.cost_per_million_output_tokens == pytest.approx(8 * 2.5 / (found.output_tokens_per_s * 3600) * 1e6)
    assert found.cost_per_million_tokens == pytest.approx(found.cost_per_million_output_tokens * 256 / (256 + 1024))
    assert serve().cost_per_million_tokens is None


def test_memory_holds_every_request_at_its_longest() -> None:
    found = serve(input_len=1000, output_len=24, concurrency=4)
    cache = 2 * 32 * 8 * 128 * 2 * 4 * 1024  # K and V, layers, KV heads, head_dim, bytes, requests, tokens
    assert found.memory.parts["KV cache"] == cache
    with pytest.raises(Error, match="largest batch"):
        serve(concurrency=4096, seq_q=8192)
    assert serve(concurrency=4096, seq_q=8192, must_fit=False).memory.fits is False


test_bad_requests = refused(
    lambda given: serve(**given),
    ({"output": 0}, "output must be between 1"),
    ({"price_per_hour": -1}, "price_per_hour"),
    ({"seq_kv": 4}, "unknown field 'seq_kv'"),
    ({"ep": 2, "concurrency": 3}, "multiple of it"),
)


def test_a_price_belongs_to_serving() -> None:
    with pytest.raises(Error, match="belongs to the phase serving"):
        roofline.predict(MACHINE, MODEL, "decode", price_per_hour=2)
    with pytest.raises(Error, match="predict takes it"):
        list(Serving().steps())


def test_the_command_line(cli: Any, schema: Any) -> None:
    check = schema("prediction")
    command = ["predict", "Llama-3-8B", "--machine", "H100", "--phase", "serving", "--input-len", "1k", "--output-len", "128"]
    told = cli.json([*command, "--concurrency", "8", "--price-per-hour", "2"])
    check.validate(told)
    assert told["cost_per_million_output_tokens"] == pytest.approx(2 / 3600 / told["output_tokens_per_s"] * 1e6)
    check.validate(cli.json([*command, "--concurrency", "1,8"]))
    shown = cli.out(command)
    assert "serving: 1 requests at a time, 1024 tokens in, 128 out" in shown and "TTFT" in shown and "Assumed:" in shown


def test_realistic_is_the_prediction_with_its_defaults_stated() -> None:
    # The defaults, given by hand.
    how: dict[str, Any] = {"utilisation": {"compute": 0.7, "bandwidth": 0.85, "link": 0.8}, "launch_s": 2e-6}
    given = roofline.predict("H100", "Llama-3-8B", "decode", batch=4, **how)
    found = roofline.predict("H100", "Llama-3-8B", "decode", batch=4)
    assert given.realistic_s is None  # nothing is left to assume
    assert found.realistic_s == pytest.approx(given.time_s) and found.time_s < given.time_s
    assert any("70 % of compute" in note and "2.00 µs a launch" in note for note in found.notes)
    assert found.summary()[0] == ("TPOT", f"{found.time_s * 1e3:.3f} ms at best, {given.time_s * 1e3:.2f} ms realistic")
    served = roofline.predict("8xH100", "Llama-3-8B", "serving", concurrency=4)
    slow = roofline.predict("8xH100", "Llama-3-8B", "serving", concurrency=4, link_latency_s=10e-6, **how)
    assert slow.realistic is None and served.realistic.time_s == pytest.approx(slow.time_s)
    assert served.table()[0] == ("", "at best", "realistic")


def test_measured_ceilings_need_no_assumption() -> None:
    measured = roofline.Machine.from_peaks("mine", 2e12, bf16=500e12)
    assert roofline.predict(measured, "Llama-3-8B", "decode").realistic_s is not None
    own = dataclasses.replace(measured, ceilings=tuple(dataclasses.replace(c, source="measured") for c in measured.ceilings))
    assert roofline.predict(own, "Llama-3-8B", "decode").realistic_s is None


def test_realistic_on_a_measured_machine_is_what_its_kernels_take() -> None:
    """Norms that take 50 µs more than their bytes: 9 of a model with 4 layers (two each, and one before the head)."""
    peaks = roofline.Machine.from_peaks("mine", 2e12, bf16=500e12, fp32=50e12)
    machine = dataclasses.replace(peaks, ceilings=tuple(dataclasses.replace(c, source="measured") for c in peaks.ceilings))
    kernels = []
    for norm in (roofline.RmsNorm, roofline.ResidualRmsNorm):
        for rows in range(1, 60):
            problem = norm(rows=rows, columns=256, dtype="bf16")
            memory_s, rest_s = memory_and_rest_s(roofline.predict(machine, problem, variant="fused").parts)
            kernels.append(KernelTime(
                problem={"operator": norm.name, **problem.to_dict()}, variant="fused", cold=True, launch_s=0.0, memory_s=memory_s,
                rest_s=rest_s, samples_s=(50e-6 + memory_s,),
            ))  # fmt: skip
    known = dataclasses.replace(machine, kernels=tuple(kernels))
    config = TransformerConfig(name="small", layers=4, d_model=256, heads=4, kv_heads=4, head_dim=64, d_ff=512, vocabulary=1000)
    for question in ({"phase": "decode", "batch": 4, "seq_kv": 100}, {"phase": "prefill", "seq_q": 40}):
        found = roofline.predict(known, config, **question)
        assert roofline.predict(machine, config, **question).realistic_s is None
        assert found.time_s == roofline.predict(machine, config, **question).time_s
        assert found.realistic_s - found.time_s == pytest.approx(9 * 50e-6, rel=0.05)
        assert "realistic: this package's kernels, as timed on this machine" in found.notes
        assert not any("faster than at best" in note for note in found.notes)
    # Slower memory than the kernels were timed with: 2 GB/s, at which a step's 2 MB of weights take 1 ms.
    ceilings = tuple(dataclasses.replace(c, samples=(2e9,)) if c.kind == "bandwidth" else c for c in machine.ceilings)
    slow = dataclasses.replace(known, ceilings=ceilings, kernels=tuple(dataclasses.replace(k, samples_s=(1e-9,)) for k in kernels))
    for question in ({"phase": "decode", "batch": 4, "seq_kv": 100}, {"phase": "serving", "seq_q": 16, "output": 8}):
        found = roofline.predict(slow, config, **question)
        usual_s = found.realistic.time_s if question["phase"] == "serving" else found.realistic_s
        assert usual_s < found.time_s and any("realistic is faster than at best" in note for note in found.notes)
    served = roofline.predict(known, config, "serving", concurrency=2, seq_q=16, output=8)
    assert served.realistic.decode_s - served.decode_s == pytest.approx(7 * 9 * 50e-6, rel=0.05)  # 7 steps after the prompt's token
