"""Words as people write them: numbers, dtypes, dimensions, operators, machines, models, phases, and near misses of these."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tables import gives, refused

import roofline
from roofline.dtypes import ALIASES as DTYPE_ALIASES, DTYPES, dtype_name
from roofline.errors import Error
from roofline.machine import Machine, machine_of, machines_of
from roofline.operators import ALIASES, OPERATORS, Attention, Ffn, Matmul, operator_named, problem_of
from roofline.transformer import Decode, Prefill, Quantization, TransformerConfig, model_of, phase_of, preset
from roofline.transformer.quantization import SCHEMES
from roofline.words import hint, split, whole

test_whole_numbers = gives(
    whole, ("4096", 4096), ("8k", 8192), ("8K", 8192), ("1M", 1 << 20), ("1.5k", 1536), ("1_000", 1000), (" 7 ", 7), ("-2", -2)
)


@pytest.mark.parametrize("text", ["", "k", "8kk", "--1", "1.3k", "0.5", "1e3", "eight", "8 GB", "9" * 50])
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(Error, match="must be a whole number such as 4096 or 8k"):
        whole(text)


def test_lists() -> None:
    assert split("32, 64") == ["32", "64"]
    with pytest.raises(Error, match="separated by commas"):
        split("32,,64")


def test_a_folder_that_holds_nothing_hides_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("attention", "H100", "Llama-3-8B", "empty"):
        (tmp_path / name).mkdir()
    assert machine_of("H100").name == "NVIDIA H100 SXM" and machines_of("H100,A100")[0].name == "NVIDIA H100 SXM"
    assert model_of("Llama-3-8B") == preset("Llama-3-8B")
    assert roofline.predict("H100", "attention", seq_len="1k").time_s > 0
    assert roofline.compare("H100", "A100").rows
    with pytest.raises(Error, match=r"cannot read machine file empty/machine\.json"):
        machine_of("empty")
    with pytest.raises(Error, match=r"cannot read configuration empty/config\.json"):
        roofline.predict("H100", "empty")


def test_numpy_numbers_are_numbers() -> None:
    given = {"tp": np.int64(8), "utilisation": np.float32(0.5), "launch_s": np.float32(0), "memory_bytes": np.int64(80 * 10**9)}
    plain = {name: value.item() for name, value in given.items()}
    found, wanted = (roofline.predict("8xH100", "Llama-3-8B", "decode", batch=8, **each) for each in (given, plain))
    assert found.time_s == wanted.time_s
    assert Attention(causal=np.bool_(True)).causal is True
    assert type(roofline.CachedAttention(softcap=np.float32(30)).softcap) is float
    assert roofline.Policy(min_samples=np.int64(5)).to_dict()["min_samples"] == 5
    assert Machine.from_peaks("A", np.float32(1e12), bf16=np.float64(1e15)) == Machine.from_peaks("A", 999999995904.0, bf16=1e15)


class _Torch:
    """As torch.float16 shows itself; torch is not installed for the tests."""

    def __repr__(self) -> str:
        return "torch.float16"


_Torch.__module__ = "torch"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("half", "fp16"), ("float16", "fp16"), ("FP16", "fp16"), (np.float16, "fp16"), (np.dtype("f2"), "fp16"),
        ("torch.float16", "fp16"), (_Torch(), "fp16"), ("bfloat16", "bf16"), (ml_dtypes.bfloat16, "bf16"), (np.float32, "fp32"),
        (float, "fp64"), ("float", "fp32"), ("double", "fp64"), ("fp8", "fp8_e4m3"), ("float8_e4m3fn", "fp8_e4m3"),
        (ml_dtypes.float8_e5m2, "fp8_e5m2"), ("fp4", "nvfp4"), ("fp8-e4m3", "fp8_e4m3"), (np.int8, "int8"), ("i8", "int8"),
    ],
)  # fmt: skip
def test_dtypes_by_the_names_of_others(given: Any, name: str) -> None:
    assert dtype_name(given) == name
    if name in ("fp16", "fp32", "fp64", "bf16"):
        assert Matmul(dtype=given).dtype == name


test_unknown_dtypes = refused(
    dtype_name,
    ("flaot16", "did you mean float16"), ("bf61", "did you mean bf16"), ("int3", "did you mean int32"), (3, "unknown dtype 3"),
    (np.complex128, "unknown dtype"), (None, "unknown dtype None"),
)  # fmt: skip


def test_aliases_lead_somewhere() -> None:
    assert operator_named("soft_max_") is OPERATORS["softmax"]
    assert set(DTYPE_ALIASES.values()) <= set(DTYPES)
    assert set(ALIASES.values()) <= set(OPERATORS) and not set(ALIASES) & set(OPERATORS)


def test_dimensions_by_the_names_of_others() -> None:
    """A GEMM of 512 x 8192 x 4096 is the same by every spelling, and has 2 M N K FLOPs."""
    own = Matmul(rows=512, columns=8192, inner=4096, dtype="bf16")
    assert own == Matmul(M=512, N="8k", K="4k", dtype="bfloat16")
    assert own == problem_of("gemm", {"m": 512, "n": 8192, "k": 4096, "dtype": "bf16"})
    assert sum(own.flops().values()) == 2 * 512 * 8192 * 4096
    assert Attention(seq_len="8k", num_heads=32, num_kv_heads=8, head_size=128) == Attention(
        seq_q=8192, seq_kv=8192, heads=32, kv_heads=8, head_dim=128
    )
    assert Ffn(hidden_size=4096, intermediate_size=14336, bs=2) == Ffn(d_model=4096, d_ff=14336, batch=2)
    assert own.replace(M="1k").rows == 1024  # type: ignore[attr-defined]


test_errors_say_what_was_meant = refused(
    lambda made: made(),
    (lambda: Matmul(M=1, rows=2), "give either M or rows, not both"),
    (lambda: Matmul(rowz=1), "matmul: unknown field 'rowz' .did you mean rows"),
    (lambda: Attention(m=1), "attention: unknown field 'm'"),
    (lambda: Attention(seq_kw=4), "did you mean seq_kv"),
    (lambda: Matmul(1, 2, 3), "fields are given by name, Matmul"),
    (lambda: roofline.Softmax(seq_len=4), "softmax: has no sequence, so seq_len means nothing"),
    (lambda: Decode(bacth=4), "decode: unknown field 'bacth' .did you mean batch"),
    (lambda: TransformerConfig(layers=2), "TransformerConfig lacks d_model, heads, vocabulary"),
    (lambda: preset("7B").replace(wieghts="fp8"), "did you mean weights"),
    (lambda: model_of("7B", dtype="fp8"), "for fp8_e4m3 give quantization or weights"),
    (lambda: model_of("7B", dtype="fp64"), "the dtype of a model is fp32, fp16, bf16; got fp64$"),
    (lambda: Quantization(wights="int4"), "Quantization: unknown field 'wights' .did you mean weights"),
    (lambda: operator_named("atention"), "unknown operator 'atention' .did you mean attention"),
    (lambda: problem_of(3), "a problem must be an operator or its name"),  # type: ignore[arg-type]
    (lambda: phase_of("prefil"), "unknown phase 'prefil' .did you mean prefill"),
    (lambda: model_of("Lama-3-8B"), "no preset 'Lama-3-8B' .did you mean Llama-3-8B"),
    (lambda: model_of(3), "a model must be a TransformerConfig"),  # type: ignore[arg-type]
    (lambda: model_of("Llama-3-8B", quantization="awk"), "unknown quantization 'awk' .did you mean awq"),
    (lambda: model_of("Llama-3-8B", quantization="fp8", weights="fp8"), "give either quantization"),
    (lambda: machine_of("H1000"), "no datasheet of 'H1000' .did you mean h100"),
    (lambda: machine_of(8), "a machine must be a Machine"),  # type: ignore[arg-type]
    (lambda: machine_of("0xH100"), "from 1 to 65536 devices"),
    (lambda: machine_of("2TB/s,bf61=500TFLOP/s"), "unknown dtype 'bf61' .did you mean bf16"),
    (lambda: machine_of("2TB/s,memroy=80GB"), "did you mean memory"),
    (lambda: machine_of("bf16=500TFLOP/s"), "has no bandwidth: write it first"),
    (lambda: machine_of("2TB/s,bf16=many"), "cannot read 'many'"),
    (lambda: machine_of("2TB/s,bf16=1TFLOP/s,bfloat16=2TFLOP/s"), "is given twice"),
)


def test_hints() -> None:
    assert hint("bacth", ["batch", "seq_kv"]) == " (did you mean batch?)"
    assert hint("zzz", ["batch"]) == hint(3, ["batch"]) == ""


def test_phases_in_words() -> None:
    assert phase_of("generation", {"context": "8k", "batch_size": 4}) == Decode(batch=4, seq_kv=8192)
    assert phase_of("prompt", {"seq_len": "2k"}) == Prefill(seq_q=2048)
    assert phase_of(Decode(batch=4), {"batch": 8}) == Decode(batch=8)


def test_quantization_by_one_argument() -> None:
    """A scheme by name is the Quantization it stands for; its scales count: 4.5 bits of nvfp4, 4.125 of int4 in groups of 128."""
    fp8 = model_of("Llama-3-8B", quantization="fp8").quantization
    assert fp8 == Quantization(weights="fp8_e4m3", activations="fp8_e4m3")
    assert fp8 == preset("Llama-3-8B").replace(quantization="fp8").quantization
    bits = {name: found.bits for name, found in SCHEMES.items() if found is not None}
    assert bits == {
        "fp8": 8, "w8a8": 8, "int8": 8, "w8a16": 8, "int4": 4.125, "w4a16": 4.125, "awq": 4.125, "gptq": 4.125, "nvfp4": 4.5,
        "fp4": 4.5, "mxfp4": 4.25,
    }  # fmt: skip
    assert model_of("DeepSeek-V3", quantization="none").quantization is None
    assert model_of("Llama-3-8B", weights="fp8").quantization == Quantization(weights="fp8_e4m3")
    assert model_of("Llama-3-8B", dtype=np.float32, kv="half").kv == "fp16"
    stored = model_of("Llama-3-8B", dtype="fp32", weights="bf16")
    assert (stored.weights, stored.activations, stored.kv) == ("bf16", "fp32", "fp32")
    assert model_of("Llama-3-8B", weights="fp16").activations == "fp16"


def test_machines_in_words(tmp_path: Path) -> None:
    """By name, file, folder, count, and rates: the ridge of 500 TFLOP/s over 2 TB/s is 250 FLOP/byte."""
    h100 = Machine.from_datasheet("H100 SXM")
    h100.save(tmp_path / "machine.json")
    for given in ("H100", "h100-sxm5", tmp_path, str(tmp_path), tmp_path / "machine.json", h100):
        assert machine_of(given).bandwidth().value == 3.35e12
    eight = Machine.load("8xH100")
    assert (eight.devices, eight.name, eight.bandwidth().value) == (8, f"8x{h100.name}", 3.35e12)
    assert Machine.load("1xH100") == h100 and h100.devices == 1
    assert Machine.from_dict(eight.to_dict()) == eight
    paper = Machine.load("2TB/s,bf16=500TFLOP/s,fp8=1PFLOPS,memory=80GB,link=450GB/s,launch=2us,name=Acme")
    assert paper.name == "Acme" and paper.ridge("bf16") == 250 and paper.compute("fp8_e4m3").value == 1e15
    assert (paper.link().value, paper.latency().value, paper.facts["memory_bytes"]) == (450e9, 2e-6, 80 * 10**9)
    names = [m.name for m in machines_of("H100, 4x2TB/s,bf16=500TFLOP/s ,GB200")]
    assert names == [h100.name, "4x2TB/s,bf16=500TFLOP/s", Machine.from_datasheet("GB200").name]
    assert [m.devices for m in machines_of(["2xH100", h100])] == [2, 1]
