"""One question, one answer: forty questions asked by every route there is, and what tables of several answers show.

Routes: objects, words, fields, a config.json, command-line flags, a census (in Python and on the command line), many steps at once,
the roofline by `place`, the growth of an operator, and its crossover. A floor by hand stands beside each whose bytes are plain.
"""

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example import CONFIGS
from tables import refused

import roofline
from roofline import PredictionTable, census_of, crossover, growth, place, predict, predict_many
from roofline.errors import Error
from roofline.machine import Machine
from roofline.operators import operator_named
from roofline.prediction import Prediction
from roofline.transformer import (
    Decode,
    ModelPrediction,
    TransformerConfig,
    advise,
    from_hugging_face,
    model_of,
    phase_of,
    predict_steps,
    preset,
)

PAPER = "2TB/s,bf16=500TFLOP/s,fp32=50TFLOP/s,memory=80GB,link=450GB/s,launch=2us"

# (machine, model, phase, fields, options)
MODELS: list[tuple[str, str, str, dict[str, Any], dict[str, Any]]] = [
    ("H100", "Llama-3-8B", "decode", {}, {}),
    ("H100", "Llama-3-8B", "decode", {"batch": 8, "seq_kv": 4096}, {}),
    ("8xH100", "Llama-3-70B", "decode", {"batch": 32, "seq_kv": 8192}, {"weights": "fp8"}),
    ("8xH100", "Llama-3-70B", "decode", {"batch": 64, "seq_kv": 8192}, {"quantization": "fp8"}),
    ("GB200", "Llama-3-70B", "decode", {"batch": 16}, {"quantization": "nvfp4"}),
    ("GB200", "Llama-3-70B", "decode", {"batch": 16}, {"weights": "nvfp4"}),
    ("H100", "Llama-3-8B", "decode", {"batch": 1}, {"quantization": "awq"}),
    ("A100-SXM4-80GB", "Llama-3-8B", "decode", {"batch": 4}, {"weights": "int8", "activations": "int8", "kv": "fp8"}),
    ("H100", "Qwen3-8B", "decode", {"batch": 128, "seq_kv": 1024}, {"kv": "fp8"}),
    ("H200", "Qwen3-8B", "prefill", {"seq_q": 8192}, {}),
    ("H100", "Llama-3-8B", "prefill", {"seq_q": 2048}, {}),
    ("H100", "Llama-3-8B", "prefill", {"seq_q": 4096, "chunk": 512}, {}),
    ("H100", "Llama-3-8B", "prefill", {"seq_q": 512, "seq_kv": 4096, "batch": 2}, {}),
    ("H100", "Llama-3-8B", "mixed", {"batch": 8, "prefill_seq_q": 256}, {}),
    ("H100", "Llama-3-8B", "decode", {"seq_q": 4, "accepted": 2.5}, {}),
    ("4xA100-SXM4-80GB", "Llama-3-70B", "prefill", {"seq_q": 1024}, {}),
    ("2xH100", "Llama-3-8B", "decode", {"batch": 8}, {"link_bytes_per_s": 50e9}),
    ("H100", "Llama-3-8B", "decode", {"batch": 8}, {"launch_s": 2e-6}),
    ("H100", "Llama-3-8B", "decode", {"batch": 8}, {"fused": False, "lm_head": False}),
    ("MI300X", "Qwen3-8B", "decode", {"batch": 32}, {}),
    (PAPER, "Llama-3-8B", "decode", {"batch": 8}, {}),
    (f"4x{PAPER}", "Llama-3-8B", "decode", {"batch": 8}, {}),
    ("H200", "DeepSeek-V3", "decode", {"batch": 8}, {"tp": 8}),
    ("8xGB200", "GPT-OSS-120B", "decode", {"batch": 8, "seq_kv": 4096}, {}),
]
# (machine, operator, fields by our names, the same in other words)
PROBLEMS: list[tuple[str, str, dict[str, Any], str, dict[str, Any]]] = [
    ("H100", "matmul", {"rows": 512, "columns": 8192, "inner": 8192, "dtype": "bf16"},
     "gemm", {"M": 512, "N": "8k", "K": "8k", "dtype": "bfloat16"}),
    ("A100-SXM4-80GB", "matmul", {"rows": 1, "columns": 4096, "inner": 4096, "dtype": "fp16"},
     "linear", {"m": 1, "n": "4k", "k": "4k", "dtype": np.float16}),
    ("H100", "matmul", {"rows": 4096, "columns": 4096, "inner": 4096, "dtype": "fp8_e4m3"},
     "GEMM", {"M": "4k", "N": "4k", "K": "4k", "dtype": "fp8"}),
    ("H100", "attention",
     {"heads": 32, "kv_heads": 8, "seq_q": 4096, "seq_kv": 4096, "head_dim": 128, "causal": True, "dtype": "bf16"},
     "flash_attention", {"n_heads": 32, "num_kv_heads": 8, "seq_len": "4k", "head_size": 128, "is_causal": True, "dtype": "bf16"}),
    ("GB200", "attention", {"batch": 8, "seq_q": 1, "seq_kv": 8192, "dtype": "fp16"},
     "sdpa", {"bs": 8, "q_len": 1, "context": "8k", "dtype": "half"}),
    ("H100", "ffn", {"seq_q": 1, "batch": 64, "d_model": 4096, "d_ff": 14336, "dtype": "bf16"},
     "mlp", {"seq_q": 1, "batch_size": 64, "hidden_size": 4096, "intermediate_size": 14336, "dtype": "bf16"}),
    (PAPER, "softmax", {"rows": 4096, "columns": 32768, "dtype": "fp32"},
     "Softmax", {"rows": "4k", "columns": "32k", "dtype": "float"}),
    ("H100", "rms_norm", {"rows": 8192, "columns": 8192, "dtype": "bf16"},
     "rmsnorm", {"rows": "8k", "columns": "8k", "dtype": "bf16"}),
    ("8xH100", "all_reduce", {"elements": 1 << 20, "ranks": 8}, "allreduce", {"numel": "1M"}),
    ("H100", "lm_head", {"tokens": 4, "d_model": 4096, "vocabulary": 128256}, "logits", {"M": 4, "K": "4k", "N": 128256}),
]  # fmt: skip
# (machine, operator, fields)
CROSSINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("A100-SXM4-80GB", "ffn", {"d_model": 4096, "d_ff": 16384, "dtype": "bf16"}),
    ("H100", "ffn", {"d_model": 4096, "d_ff": 16384, "dtype": "bf16"}),
    ("H100", "matmul", {"columns": 4096, "inner": 4096, "dtype": "bf16"}),
    ("GB200", "matmul", {"columns": 8192, "inner": 8192, "dtype": "bf16"}),
    (PAPER, "matmul", {"columns": 4096, "inner": 4096, "dtype": "bf16"}),
    ("H100", "lm_head", {"d_model": 4096, "vocabulary": 128256}),
]
FLAGS = {"link_bytes_per_s": "--link", "launch_s": "--launch", "seq_kv": "--context", "batch": "--batch-size"}


def test_there_are_forty() -> None:
    assert len(MODELS) + len(PROBLEMS) + len(CROSSINGS) == 40


def flags_of(given: dict[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        if value is True or value is False:
            yield flag if value else f"--no-{name.replace('_', '-')}"
        else:
            unit = {"link_bytes_per_s": "B/s", "launch_s": "s"}.get(name, "")
            text = value.__name__ if isinstance(value, type) else f"{value:.10g}" if isinstance(value, float) else str(value)
            yield from (flag, f"{text}{unit}")


def same(found: dict[str, tuple[Any, ...]]) -> None:
    """All routes give the numbers of the first to rounding, and its words to the letter."""
    (_, wanted), *others = found.items()
    for route, got in others:
        for a, b in zip(wanted, got, strict=True):
            assert a == (b if isinstance(b, str) else pytest.approx(b, rel=1e-12)), (route, wanted, got)


def numbers(found: Any) -> tuple[Any, ...]:
    return found.time_s, found.flops, found.bytes, found.bound


@pytest.mark.parametrize(("machine", "model", "phase", "fields", "options"), MODELS)
def test_models(
    machine: str, model: str, phase: str, fields: dict[str, Any], options: dict[str, Any], tmp_path: Path, cli: Any
) -> None:
    options = {"must_fit": False, **options}
    dtypes = {name: options[name] for name in ("weights", "activations", "kv", "quantization") if name in options}
    how = {name: value for name, value in options.items() if name not in dtypes}
    on, config, step = Machine.load(machine), model_of(model, **dtypes), phase_of(phase, fields)
    in_words = {name: str(value) if isinstance(value, int) else value for name, value in fields.items()}
    found: dict[str, tuple[Any, ...]] = {
        "objects": numbers(predict(on, config, step, **how)),
        "words": numbers(predict(machine, model.lower(), phase, **in_words, **options)),
    }
    if model in CONFIGS:
        (tmp_path / "config.json").write_text(json.dumps(CONFIGS[model]))
        for route, given in {"config.json": tmp_path / "config.json", "folder": str(tmp_path), "mapping": CONFIGS[model]}.items():
            found[route] = numbers(predict(machine, given, phase, **fields, **options))
        assert dataclasses.replace(from_hugging_face(CONFIGS[model]), name=model) == preset(model)
    shared = [*flags_of(dtypes), "--machine", machine, "--phase", phase, *flags_of(fields)]
    flags = [*shared, *flags_of({name: value for name, value in how.items() if name != "must_fit"})]
    answer = cli.json(["predict", model, *flags, "--ignore-memory"])
    found["command line"] = tuple(answer[name] for name in ("time_s", "flops", "bytes", "bound"))
    counted = {name: how[name] for name in ("tp", "lm_head", "fused", "launch_s", "link_bytes_per_s") if name in how}
    census = census_of(config, step, on, **counted)
    kernels = [(e.count * e.flops, e.count * e.bytes) for e in census.of(step)]
    found["census"] = (census.time_s(step), sum(f for f, _ in kernels), sum(b for _, b in kernels), answer["bound"])
    (listed,) = cli.json(["census", model, *flags])["phases"]
    found["census on the command line"] = (listed["time_s"], listed["flops"], listed["bytes"], answer["bound"])
    if phase == "decode":
        one = {name: value for name, value in step.to_dict().items() if name != "phase"}
        steps = Decode.many(**{**one, "batch": [one["batch"]], "seq_kv": [one["seq_kv"]]})
        many = predict_steps(on, config, steps, **{name: value for name, value in how.items() if name != "must_fit"})
        found["many steps"] = (many.time_s[0], many.flops[0], many.bytes[0], str(many.bound[0]))
    same(found)


@pytest.mark.parametrize(("machine", "operator", "fields", "alias", "others"), PROBLEMS)
def test_problems(machine: str, operator: str, fields: dict[str, Any], alias: str, others: dict[str, Any], cli: Any) -> None:
    cls, on = operator_named(operator), Machine.load(machine)
    problem = cls.make(**fields)
    shared = {name: value for name, value in fields.items() if not isinstance(value, int) or isinstance(value, bool)}
    arrays = {name: np.array([value]) for name, value in fields.items() if name not in shared}
    many = predict_many(machine, operator, **shared, **arrays)
    found = {
        "object": numbers(predict(on, problem)),
        "class": numbers(predict(machine, cls, **fields)),
        "words": numbers(predict(machine, alias, **others)),
        "many": (many.time_s[0], many.flops[0], many.bytes[0], str(many.bound[0])),
    }
    for route, name, given in (("flags", operator, fields), ("flags in other words", alias, others)):
        answer = cli.json(["predict", name, "--machine", machine, *flags_of(given)])
        found[route] = tuple(answer[key] for key in ("time_s", "flops", "bytes", "bound"))
    same(found)
    placed = place(problem, on) if not problem.link_bytes() else None
    if placed is not None:
        assert placed.time_s == pytest.approx(predict(on, problem).roof_s, rel=1e-12)
        assert placed.bound == found["object"][-1]


@pytest.mark.parametrize(("machine", "operator", "fields"), CROSSINGS)
def test_crossings(machine: str, operator: str, fields: dict[str, Any], cli: Any) -> None:
    """On both sides of the crossing lies the bound that it says."""
    on = Machine.load(machine)
    decode = {"seq_q": 1} if "seq_q" in operator_named(operator).field_names() else {}
    problem = operator_named(operator).make(**decode, **fields)
    met = crossover(on, problem)
    ridge = roofline.model.machine_roofs(on, problem).ridge_flops_per_byte
    given = flags_of({"dtype": problem.to_dict()["dtype"], **fields})
    (told,) = cli.json(["crossover", operator, "--machine", machine, *given])["crossings"]
    same({
        "objects": (met.batch, met.ridge, met.over),
        "words": (lambda c: (c.batch, c.ridge, c.over))(crossover(machine, operator, **fields)),
        "growth": (growth(problem, met.over).reaches(ridge), ridge, met.over),
        "command line": (told["batch"], told["ridge"], told["over"]),
    })  # fmt: skip
    assert met.batch is not None
    (memory,) = on.levels()
    for batch, bound in ((math.floor(met.batch), memory), (math.ceil(met.batch), "compute")):
        terms = predict(on, problem.replace(**{met.over: batch})).terms
        assert max((memory, "compute"), key=lambda roof: terms[roof]) == bound


# -- tables -------------------------------------------------------------------------------------------------------------------


def test_a_column_of_a_data_frame_is_a_list() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"batch": [1, 32]})
    listed, found = (predict("H100", "Llama-3-8B", batch=each).to_records() for each in ([1, 32], frame["batch"]))
    assert [record["time_s"] for record in found] == [record["time_s"] for record in listed] and len(found) == 2


def test_lists_make_a_table_with_a_column_each(cli: Any) -> None:
    """70B in fp8 with 32 and 64 sequences of 8k on eight of two GPUs: each column is the single prediction."""
    given: dict[str, Any] = {"phase": "decode", "seq_kv": "8k", "weights": "fp8"}
    table = predict("8xH100,8xGB200", "Llama-3-70B", batch="32,64", **given)
    assert isinstance(table, PredictionTable) and len(table) == 4
    singles = [predict(m, "Llama-3-70B", batch=b, **given) for m in ("8xH100", "8xGB200") for b in (32, 64)]
    assert [found.time_s for found in table] == [single.time_s for single in singles]
    headers, rows = table.table()
    assert headers[1] == "8xNVIDIA H100 SXM, batch 32" and all(len(row) == 5 for row in rows)
    assert dict((row[0], row[1]) for row in rows)["TPOT"] == "6.38 … 11.1 ms"
    machines = [Machine.load("8xH100"), "8xGB200"]
    same_table = predict(machines, [preset("Llama-3-70B")], ["decode"], batch=[32, 64], seq_kv=8192, weights="fp8")
    assert same_table.table() == (headers, rows)
    told = cli.json(["predict", "Llama-3-70B", "--machine", "8xH100,8xGB200", *flags_of({"batch": "32,64", **given})])
    assert [each["prediction"]["time_s"] for each in told["predictions"]] == [found.time_s for found in singles]
    assert [record["time_s"] for record in table.to_records()] == [found.time_s for found in singles]
    assert "8xNVIDIA GB200" in table._repr_html_() and "batch 64" in repr(table)


def test_what_is_refused_leaves_its_column_empty() -> None:
    """70B in bf16 does not fit one H100, and fits a GB200: one column says why it is empty."""
    table = predict("H100,GB200", "Llama-3-70B")
    assert table[0] is None and table[1].time_s > 0
    assert "does not fit" in table.refusals[0] and not table.refusals[1] and "does not fit" in table.notes[0]
    assert [record.get("refused", "")[:11] for record in table.to_records()] == ["Llama-3-70B", ""]
    with pytest.raises(Error, match="does not fit"):
        predict("H100,A100-SXM4-80GB", "Llama-3-70B")
    one, many = predict("H100", "Llama-3-8B", "decode", batch=[1, 1000], seq_kv="8k").to_records()
    known = {"machine", "what", "phase", "batch", "seq_kv", "tp", "ep", "fits", "memory_bytes", "largest_batch", "refused"}
    assert known <= set(many) <= set(one) and not {"time_s", "tokens_per_s", "bound"} & set(many)
    assert (many["batch"], many["fits"], many["largest_batch"]) == (1000, False, one["largest_batch"])
    assert predict("H100", "gemm", M=[64, 2**61]).to_records()[1]["M"] == 2**61
    with pytest.raises(Error, match="unknown field 'bacth' .did you mean batch"):
        predict("H100,GB200", "Llama-3-8B", bacth=3)


def test_seconds_rates_and_sizes_may_be_words() -> None:
    words = {"tp": "2", "launch_s": "2us", "overhead_s": "50us", "link_bytes_per_s": "100GB/s", "memory_bytes": "200GB"}
    given = {"tp": 2, "launch_s": 2e-6, "overhead_s": 50e-6, "link_bytes_per_s": 100e9, "memory_bytes": 200 * 10**9}
    found = predict("H100", "Llama-3-70B", "decode", **words)
    assert found.time_s == predict("H100", "Llama-3-70B", "decode", **given).time_s
    ranks = predict("H100", "Llama-3-70B", tp="2,4,8", must_fit=False)
    assert [each.options.tp for each in ranks] == [2, 4, 8] and ranks.columns == ("tp 2", "tp 4", "tp 8")
    assert roofline.count("gemm") == roofline.count(roofline.Matmul())
    assert growth("gemm", "M", N="4k", K="4k") == growth(roofline.Matmul(columns=4096, inner=4096), "rows")


def test_models_and_problems_stand_in_one_table() -> None:
    table = predict("H100", ["Llama-3-8B", "Qwen3-8B"], "prefill,decode")
    assert table.columns == ("Llama-3-8B, prefill", "Llama-3-8B, decode", "Qwen3-8B, prefill", "Qwen3-8B, decode")
    names = [row[0] for row in table.table()[1]]
    assert {"TTFT", "TPOT", "MFU", "MBU", "FLOP/byte"} <= set(names)
    problems = predict("H100", "gemm", M=np.array([1, 512]), N=4096, K=4096, dtype=["bf16", "fp8"])
    asked = {(found.problem.rows, found.problem.dtype) for found in problems}
    assert len(problems) == 4 and asked == {(1, "bf16"), (1, "fp8_e4m3"), (512, "bf16"), (512, "fp8_e4m3")}
    mixed = predict("H100", ["Llama-3-8B", "gemm"])
    assert isinstance(mixed[0], ModelPrediction) and isinstance(mixed[1], Prediction)


test_bad_questions = refused(
    lambda arguments, options: predict(*arguments, **options),
    (("H100", ""), {}, "an empty name"),
    (("H100", "Llama-3-8B"), {"launch_s": "soon"}, "cannot read 'soon'"),
    (("H100", "Lama-3-8B"), {}, "is neither a model nor an operator .did you mean Llama-3-8B"),
    (("H100", "gemmm"), {}, "did you mean gemm"),
    (("H100", "gemm", "decode"), {}, "a phase belongs to a model, and matmul is an operator"),
    (("H100", "gemm"), {"tp": 4}, "tp belongs to models"),
    (("H100", "Llama-3-8B"), {"level": "L2"}, "level belongs to single problems"),
    (("8xH100", "gemm"), {}, "runs on one device"),
    (("8xH100", "Llama-3-8B"), {"tp": 4}, "has 8 devices, not tp 4"),
    (("8xL4", "Llama-3-8B"), {}, "no link to other GPUs is known"),
    (("H100", "Llama-3-8B", "decode"), {"batch": []}, "batch: the list is empty"),
    (("H100", "Llama-3-8B"), {"batch": list(range(1, 300))}, "more than 256 predictions"),
    (("H100", "Llama-3-8B"), {"batch": range(1, 10**12)}, "batch: more than 256 predictions"),
    ((3, "Llama-3-8B"), {}, "a machine must be"),
    (("H100", 3), {}, "a model must be"),
    (("H100", "Llama-3-8B"), {"qantization": "fp8"}, "unknown argument 'qantization' .did you mean quantization"),
    (("H100", "gemm"), {"utilization": 0.5}, "unknown argument 'utilization' .did you mean utilisation"),
    (("H100", "Llama-3-8B", "prefill"), {"nonsense": 1}, "prefill: unknown field 'nonsense'; its fields are"),
    (("H100", "ffn"), {"activation": "gleu"}, "must be one of .*did you mean gelu"),
    (("H100", "gemm"), {"variant": "tield"}, "unknown variant 'tield' .did you mean tiled"),
)


def test_utilisation_is_one_thing_everywhere(cli: Any) -> None:
    """At 0.8 of every ceiling of a paper machine all takes 1/0.8 of the time; half the bandwidth doubles what DRAM bounds."""
    for what, fields in (("Llama-3-8B", {}), ("gemm", {"M": 4096, "dtype": "bf16"})):
        best = predict("H100", what, **fields).time_s
        for share in (0.8, "0.8", {"compute": 0.8, "bandwidth": 0.8}, "compute=0.8,bandwidth=0.8"):
            assert predict("H100", what, utilisation=share, **fields).time_s == pytest.approx(best / 0.8, rel=1e-9)
        told = cli.json(["predict", what, "--machine", "H100", "--utilisation", "0.8", *flags_of(fields)])
        assert told["time_s"] == pytest.approx(best / 0.8, rel=1e-9)
    config: TransformerConfig = preset("Llama-3-8B")
    halved = predict("H100", config, "decode", counting="weights_and_kv", utilisation="bandwidth=0.5")
    assert halved.time_s == pytest.approx(2 * predict("H100", config, "decode", counting="weights_and_kv").time_s, rel=1e-12)


def test_advice_takes_words_for_machines() -> None:
    found, h100 = predict("H100", "Llama-3-8B", "decode", batch=8), Machine.load("H100")
    others = [Machine.load("H200"), Machine.load("GB200")]
    assert advise(found, "H100", "H200,GB200") == advise(found, h100, others)
    assert {m.name for m in others} < {change.change for change in advise(found, h100, others)}


@pytest.mark.parametrize("on", ["H100", Machine.load("H100")], ids=["word", "object"])
def test_a_machine_in_another_place_is_told_its_own(on: Any) -> None:
    llama = preset("Llama-3-8B")
    for call, said in (
        (lambda: predict(llama, on), "predict takes the machine first"),
        (lambda: predict("gemm", on, M=8), "predict takes the machine first"),
        (lambda: predict_many("matmul", on, rows=[1, 2]), "predict_many takes the machine first"),
        (lambda: crossover("ffn", on), "crossover takes the machine first"),
        (lambda: roofline.cheat_sheet("Llama-3-8B", on), "cheat_sheet takes the machine first"),
        (lambda: place(on, "gemm"), "place takes the machine second"),
        (lambda: census_of(on, llama), "census_of takes the machine third"),
        (lambda: census_of(llama, on), "census_of takes the machine third"),
    ):
        with pytest.raises(Error, match=f"^{said}, and .*H100.* is one$"):
            call()
    with pytest.raises(Error, match="^there is no datasheet of 'H1'"):
        predict("H1", "gemm")


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_whatever_has_records_is_a_frame(name: str) -> None:
    pytest.importorskip(name, reason=f"makes tables of {name}")
    acme = Machine.from_peaks("Acme", "2TB/s", bf16="500TFLOP/s")
    predicted = predict(acme, "Llama-3.2-1B", "decode", batch=[1, 8, 64], seq_kv="1k")
    census = census_of(preset("Llama-3.2-1B"), [Decode(batch=8, seq_kv=1024)], acme)
    sheet, one = roofline.cheat_sheet(acme, "Llama-3.2-1B"), predict(acme, "Llama-3.2-1B")
    changes, ridges = advise(one, acme), roofline.ridge_table(acme)
    assert "twice the batch" in changes._repr_html_() and "500 TFLOP/s" in ridges._repr_html_()
    for made, rows in (
        (predicted, 3), (census, len(census.entries)), (roofline.compare(acme, acme), 2), (one, 1), (predict("H100", "gemm"), 1),
        (predict(acme, "Llama-3.2-1B", "serving"), 1), (sheet, len(sheet.lines)), (sheet.decode, 1), (changes, len(changes)),
        (ridges, 1),
    ):  # fmt: skip
        frame = getattr(made, f"to_{name}")()
        assert frame.shape == (rows, len({column for record in made.to_records() for column in record}))
    assert list(getattr(predicted, f"to_{name}")()["batch"]) == [1, 8, 64]
