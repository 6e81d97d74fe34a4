"""One meaning of a quantized weight dtype: its scales count, in a configuration, on the command line, in a census and in memory."""

import json
from pathlib import Path
from typing import Any

import pytest
from example import CONFIGS

from roofline.census import census_of
from roofline.errors import Error
from roofline.machine import Machine
from roofline.questions import predict
from roofline.transformer import PRESETS, Decode, Quantization, TransformerConfig, advise, preset, weights_bytes

# One E4M3 per 16 numbers; one E8M0 per 32 (OCP Microscaling 1.0); one 16-bit number per 128. One number per tensor is no byte each.
BITS = {"nvfp4": 4 + 8 / 16, "mxfp4": 4 + 8 / 32, "int4": 4 + 16 / 128, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8}
FOUR = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}


@pytest.mark.parametrize("dtype", BITS)
def test_bits_of_a_weight(dtype: str) -> None:
    assert Quantization(weights=dtype).bits == BITS[dtype]
    assert preset("Llama-3-8B").replace(weights=dtype).quantization == Quantization(weights=dtype)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("dtype", BITS)
def test_the_same_bytes_everywhere(name: str, dtype: str) -> None:
    """By hand: all matrices of a layer at those bits, all else as it was."""
    plain = preset(name).replace(quantization=None)
    narrow = plain.replace(weights=dtype)
    assert (narrow.weights, narrow.activations) == (plain.weights, plain.activations)
    matrices = weights_bytes(plain) - weights_bytes(plain.replace(quantization=Quantization(weights="int8", group=0)))  # of 8 bits
    expected = weights_bytes(plain) - 2 * matrices + matrices * BITS[dtype] / 8
    assert weights_bytes(narrow) == pytest.approx(expected, rel=1e-9)
    made = census_of(narrow, Decode(batch=2))
    kept = {"lm_head", "router", "shared gate", "q into latent", "latent into v"}
    bits = {e.name: e.weight_bits for e in made.entries if e.weight_bits and e.name not in kept}
    assert bits == pytest.approx(dict.fromkeys(bits, BITS[dtype]), rel=2e-3)


def test_the_flag_is_the_checkpoint(tmp_path: Path, cli: Any) -> None:
    """Llama-3-70B in NVFP4 on a GB200: 16.00 ms and 42.7 GB, from the flag and from a config.json of modelopt."""
    (tmp_path / "config.json").write_text(json.dumps({**CONFIGS["Llama-3-70B"], "quantization_config": FOUR}))
    found: list[dict[str, Any]] = []
    flag = ["Llama-3-70B", "--weights", "nvfp4"]
    for given in ([str(tmp_path)], flag, [*flag, "--activations", "nvfp4"]):
        found.append(cli.json(["predict", *given, "--machine", "GB200", "--batch", "32", "--seq-kv", "8192"]))
    assert len({each["memory"]["parts"]["weights"] for each in found}) == 1
    head = 2 * 2 * 128256 * 8192  # embedding and head stay in bf16
    numbers = 80 * (8192 * (64 + 16) * 128 + 64 * 128 * 8192 + 3 * 8192 * 28672)
    assert found[0]["memory"]["parts"]["weights"] == pytest.approx(head + numbers * 4.5 / 8, rel=1e-4)
    assert found[0]["memory"]["parts"]["weights"] == pytest.approx(42.7e9, rel=2e-3)
    assert found[0]["time_s"] == found[2]["time_s"]
    assert found[1]["time_s"] == pytest.approx(found[0]["time_s"], rel=0.01)  # 16-bit activations


def test_what_is_counted_is_said(cli: Any) -> None:
    said = {
        "nvfp4": "weights (nvfp4 of layers, 4.5 bits each with their scales)",
        "int4": "weights (int4 of layers, 4.125 bits each with their scales)",
        "fp8_e4m3": "weights (fp8_e4m3 of layers, 8 bits each)",
    }
    for dtype, words in said.items():
        for more in ([], ["--counting", "weights-and-kv"]):
            assert words in " ".join(cli.out(["predict", "Llama-3-8B", "--machine", "B200", "--weights", dtype, *more]).split())
    for command in ("predict", "census"):
        text = " ".join(cli.out([command, "--help"]).split())
        assert "scales are not counted" not in text
        assert "nvfp4 (one 8-bit scale per 16)" in text and "int4 (16 bits per 128)" in text and "mxfp4 (8 bits per 32)" in text


def test_advice_means_the_same() -> None:
    machine = Machine.from_datasheet("H100 SXM")
    found = predict(machine, preset("Llama-3-8B"), Decode(batch=1))
    (four,) = (a for a in advise(found, machine) if a.change.startswith("weights in int4"))
    by_flag = predict(machine, preset("Llama-3-8B").replace(weights="int4"), Decode(batch=1))
    assert four.time_s == by_flag.time_s


def test_scales_that_are_given_stay() -> None:
    assert Quantization(weights="nvfp4", group=0).bits == 4
    assert Quantization(weights="int4", group=64).bits == 4.25
    assert Quantization(weights="int4", group=64, scale_bits=32, zero_bits=4).bits == 4 + 36 / 64
    assert Quantization(weights="int8", group=128, scale_bits=16).bits == 8.125
    with pytest.raises(Error, match="scale_bits"):
        Quantization(weights="int8", group=128)
    with pytest.raises(Error, match="quantization=Quantization"):
        TransformerConfig(layers=1, d_model=64, heads=4, d_ff=64, vocabulary=100, weights="nvfp4")
    with pytest.raises(Error, match="unknown dtype"):
        preset("7B").replace(weights="int3")
