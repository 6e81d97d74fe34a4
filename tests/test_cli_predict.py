"""`roofline predict`: what it prints, its JSON, and errors in one line. It needs no compiled module and no machine."""

import json
from pathlib import Path
from typing import Any

import pytest
from example import CONFIGS

from roofline.machine import Machine


def test_llama_on_h100(cli: Any) -> None:
    """The numbers that everyone works out by hand: 4.247 ms without and 4.561 ms with the head."""
    given = ["Llama-3-8B", "--machine", "H100", "--phase", "decode", "--batch", "1", "--seq-kv", "2048"]
    for head, tpot_ms in ((["--no-lm-head"], "4.247"), ([], "4.561")):
        rough = cli.json(["predict", *given, "--counting", "weights-and-kv", *head])
        assert f"{rough['tpot_s'] * 1e3:.3f}" == tpot_ms
    out = cli.out(["predict", *given])
    said = ("TPOT", "lm_head", "Counted:", "HBM read 3.35 TB/s", "the largest batch that fits is",
            "stays with more ranks", "bound by")
    assert all(words in out for words in said)
    assert "no lm_head" in cli.out(["predict", *given, "--no-lm-head"])


def test_json_fits_its_schema(cli: Any, schema: Any) -> None:
    check = schema("prediction")
    for arguments in (
        "Llama-3-8B --machine H100 --phase prefill --seq-len 300 --chunk 128 --advice --against H200",
        "Llama-3-8B --machine H100 --phase decode --seq-q 4 --accepted 2.5 --tp 2 --overhead 50us --launch 2us --link-latency 10us",
        "Llama-3-8B --machine H100 --phase mixed --batch 8 --kv fp8_e4m3 --weights int8 --activations int8",
        "Llama-3-8B --machine H100 --phase training --seq-q 64 --recompute full --ignore-memory --no-master",
        "Llama-3-8B --machine GB200 --quantization nvfp4",
        "Llama-3-8B,Llama-3-70B --machine H100",
        "gemm --M 1,512 --machine H100 --utilisation 0.8",
        "softmax --machine 2TB/s,bf16=500TFLOP/s,fp32=50TFLOP/s,memory=80GB,link=450GB/s,launch=2us",
        "embedding --machine H100",
        "DeepSeek-V3 --machine H200 --ep 16 --batch 256 --advice",
    ):
        found = cli.json(["predict", *arguments.split()])
        check.validate(found)
    assert (found["options"]["ep"], found["phase"]["batch"]) == (16, 256)


def test_config_and_machine_files(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Llama-3-8B"]))
    machine = Machine.from_datasheet("H100 SXM")
    machine.save(tmp_path / "machine.json")
    by_name = cli.json(["predict", "Llama-3-8B", "--machine", "H100"])
    for config in (tmp_path, tmp_path / "config.json"):
        for where in (tmp_path, tmp_path / "machine.json"):
            assert cli.json(["predict", str(config), "--machine", str(where)])["time_s"] == by_name["time_s"]


def test_dtypes_each(cli: Any) -> None:
    """Weights, activations and cache are chosen apart from each other."""
    given = ["Llama-3-8B", "--machine", "H100", "--batch", "4"]

    def moved(*more: str) -> tuple[int, int]:
        parts = cli.json(["predict", *given, *more])["parts"]
        return sum(p["weights_bytes"] for p in parts if p["name"] != "lm_head"), sum(p["cached_bytes"] for p in parts)

    weights, cache = moved()
    assert moved("--weights", "fp8_e4m3") == (weights // 2, cache)
    assert moved("--weights", "int4") == (weights * 4.125 / 16, cache)
    assert moved("--kv", "fp8_e4m3") == (weights, cache // 2)
    assert moved("--dtype", "fp32") == (2 * weights, 2 * cache)
    problems = cli.json(["predict", *given, "--weights", "int8", "--activations", "int8"])["parts"]
    assert {p["problem"]["dtype"] for p in problems if p["name"] in ("down", "q, k and v")} == {"int8"}


BAD = [
    (["Llama-3-8B", "--dtype", "fp8"], "for fp8_e4m3 give quantization or weights (--quantization, --weights)"),
    (["Llama-3-8B", "--machine", "2TB/s,bf16=500"], "'500' has no unit: write one of GFLOP/s"),
    (["Llama-3-8B", "--machine", "2TB,bf16=500TFLOP/s"], "'2TB' before 'bf16=500TFLOP/s' is no bandwidth; a machine on paper is"),
    (["Llama-3-8B", "--bacth", "4"], "unrecognized arguments: --bacth 4 (did you mean --batch?"),
    (["Llama-3-8B", "--phase", "decoed"], "unknown phase 'decoed' (did you mean decode"),
    (["Llama-3-8B", "--batch", "1,2", "--advice"], "--advice takes one prediction"),
    (["matmul", "--rowz", "4"], "did you mean --rows"),
    (["Llama-3-8B", "--batch", "0"], "batch must be between 1"),
    (["Llama-3-8B", "--batch", str(10**30)], "batch must be between 1"),
    (["Llama-3-8B", "--batch", "many"], "must be a whole number"),
    (["Llama-3-8B", "--chunk", "4"], "decode: unknown field 'chunk'"),
    (["Llama-3-8B", "--seq-len", "4", "--seq-kv", "4"], "not both"),
    (["Llama-3-8B", "--tp", "5000000000"], "tp must be a number of ranks"),
    (["Llama-3-8B", "--ep", "8"], "has no experts to spread"),
    (["Llama-3-8B", "--weights", "int3"], "unknown dtype"),
    (["Llama-3-8B", "--activations", "int8"], "give weights (--weights) too"),
    (["Llama-3-8B", "--against", "H2000"], "no datasheet of 'H2000'"),
    (["DeepSeek-V3", "--phase", "training", "--ignore-memory"], "give the dtype to train in, --weights bf16"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input_is_one_line(arguments: list[str], said: str, cli: Any) -> None:
    machine = [] if "--machine" in arguments else ["--machine", "H100"]
    err = cli.refused(["predict", *arguments, *machine])
    assert said in err and len(err) < 400, err
