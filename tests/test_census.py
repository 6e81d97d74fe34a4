"""The census of a model: kernels worked out on paper, sums that must be the estimate's, measured times, files and the command."""

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from example import measurement

from roofline.census import Census, Entry, census_of
from roofline.cli import main
from roofline.errors import Error
from roofline.machine import Machine
from roofline.operators import OPERATORS, Operator
from roofline.questions import predict
from roofline.results import Measurement, append_to
from roofline.transformer import PRESETS, Decode, Mixed, Prefill, Training, TransformerConfig, preset

SMALL = TransformerConfig(layers=2, d_model=8, heads=4, kv_heads=2, d_ff=12, vocabulary=10)


def entry(census: Census, name: str) -> Entry:
    (found,) = (e for e in census.entries if e.name == name)
    return found


def on_paper(**peaks: float) -> Machine:
    return Machine.from_peaks("on paper", 1e12, **(peaks or {"bf16": 100e12}))


# -- products -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_products_are_the_flops_of_their_terms(operator: type[Operator]) -> None:
    """2 M N K is what a term counts, or more where a mask hides pairs; every product that work counts is there."""
    for case in operator.cases():
        problem, flops = case.problem, case.problem.flops()
        products = problem.products()
        hides = any(getattr(problem, field, False) for field in ("causal", "window")) or problem.name == "cached_attention"
        for term in {p.term for p in products}:
            whole = sum(p.flops for p in products if p.term == term)
            assert whole == pytest.approx(flops[term], rel=1e-12) or (hides and whole > flops[term]), (problem, term)
        if problem.name == "matmul":
            assert products[0].flops == problem.total_flops() - sum(flops.get(name, 0) for name in ("scale", "bias", "activation"))
        counted = problem.work({"variant": ""}).get("product", 0)
        if problem.variants == {}:  # others may count what a kernel pads
            assert sum(flops[term] for term in {p.term for p in products}) == counted, problem


# M, N, K and how many, for 3 sequences of 5 keys: 4 heads of 2, 2 KV heads, so that two heads are rows of one product.
PRODUCTS = {
    "q, k and v": [("a·b", 1, 3, 16, 8)],
    "attention": [("q·kᵀ", 6, 2, 5, 2), ("p·v", 6, 2, 2, 5)],
    "output projection": [("a·b", 1, 3, 8, 8)],
    "gate and up": [("a·b", 1, 3, 24, 8)],
    "down": [("a·b", 1, 3, 8, 12)],
    "lm_head": [("x·w", 1, 3, 10, 8)],
}


def test_products_of_a_small_decode_by_hand() -> None:
    made = census_of(SMALL, Decode(batch=3, seq_kv=5))
    sizes = {e.name: [(p.term, p.count, p.rows, p.columns, p.inner) for p in e.products] for e in made.entries if e.products}
    assert sizes == PRODUCTS
    assert {e.name for e in made.entries if not e.products} == {
        "embedding", "rope", "cache write", "activation", "norm", "residual and norm"
    }  # fmt: skip


def test_experts_are_averages() -> None:
    """3 tokens to 2 of 4 experts each: 3.5 have any, with 6 / 3.5 tokens."""
    c = SMALL.replace(experts=4, experts_per_token=2, expert_d_ff=6)
    up, gate, down = entry(census_of(c, Decode(batch=3, seq_kv=5)), "experts").products
    assert (up.count, up.rows, up.columns, up.inner) == pytest.approx((3.5, 6 / 3.5, 6, 8))
    assert (down.term, down.columns, down.inner, gate.term) == ("down", 8, 6, "gate")
    assert up.flops == pytest.approx(2 * 6 * 6 * 8)


def test_deepseek_by_its_module_shapes() -> None:
    """[in, out] of the published modules: kv_a_proj and q_a_proj in one, q_b_proj, kv_b_proj, o_proj, and the absorbed products."""
    decode = census_of(preset("DeepSeek-R1-NVFP4"), Decode(batch=64))
    shapes = {e.name: (p.count, p.inner, p.columns) for e in decode.entries if len(e.products) == 1 for p in e.products}
    assert shapes["q and kv down"] == (1, 7168, 2112)
    assert shapes["q up"] == (1, 1536, 24576)
    assert shapes["output projection"] == (1, 16384, 7168)
    assert shapes["q into latent"] == (128, 128, 512)
    assert shapes["latent into v"] == (128, 512, 128)
    assert shapes["router"] == (1, 7168, 256)
    assert shapes["lm_head"] == (1, 7168, 129280)
    prefill = census_of(preset("DeepSeek-R1-NVFP4"), Prefill(seq_q=1024))
    (up,) = entry(prefill, "k and v up").products
    assert (up.rows, up.inner, up.columns) == (1024, 512, 32768)


def test_one_token_has_the_intensity_of_its_weights() -> None:
    """2 FLOPs a weight over its bytes: 2 / 2 in bf16, 2 / (4.5 / 8) in NVFP4 with its scales."""
    made = census_of(preset("DeepSeek-R1-NVFP4"), Decode(batch=1))
    for found in made.entries:
        if found.weight_bits and len(found.products) == 1 and found.problem.name != "bmm":
            assert found.flops_per_byte == pytest.approx(2 / (found.weight_bits / 8), rel=5e-3), found.name
            assert found.flops == 2 * found.products[0].columns * found.products[0].inner


def test_dtypes_of_the_nvfp4_checkpoint() -> None:
    """Its model card: attention stays in bf16 but for the output projection."""
    made = census_of(preset("DeepSeek-R1-NVFP4"), Decode(batch=64))
    stored = {e.name: e.stored for e in made.entries if e.weight_bits}
    four = {"output projection", "gate and up", "down", "experts", "shared gate and up", "shared down"}
    assert {name for name, text in stored.items() if text.startswith("nvfp4, weights 4.5")} == four
    assert {text for name, text in stored.items() if name not in four} == {"bf16"}
    # All four projections in FP4, as placement tables assume: the absorbed products then run in fp8.
    every = preset("DeepSeek-R1-NVFP4")
    assert every.quantization is not None
    every = every.replace(quantization=dataclasses.replace(every.quantization, covers="layers"), kv="fp8_e4m3")
    made = census_of(every, Decode(batch=64))
    assert {entry(made, name).dtype for name in ("q and kv down", "q up", "output projection")} == {"nvfp4"}
    assert {entry(made, name).dtype for name in ("q into latent", "latent into v")} == {"fp8_e4m3"}
    assert entry(made, "attention").stored == "bf16, cache fp8_e4m3"


# -- on a machine -------------------------------------------------------------------------------------------------------------


def test_one_kernel_by_hand() -> None:
    """8 tokens through 4096 x 4096 in bf16 on 1 TB/s and 100 TFLOP/s: far below the ridge of 100."""
    c = TransformerConfig(layers=1, d_model=4096, heads=32, d_ff=4096, vocabulary=32000)
    found = entry(census_of(c, Decode(batch=8, seq_kv=16), on_paper()), "output projection")
    flops, moved = 2 * 8 * 4096 * 4096, 2 * (2 * 8 * 4096 + 4096 * 4096)
    assert (found.flops, found.bytes, found.bound) == (flops, moved, "DRAM")
    assert found.flops_per_byte == flops / moved
    assert found.ridge_flops_per_byte == 100
    assert found.roof_s == pytest.approx(moved / 1e12)
    assert found.attainable_flops_per_s == pytest.approx(flops / (moved / 1e12))
    many = entry(census_of(c, Prefill(seq_q=4096), on_paper()), "output projection")
    assert (many.bound, many.attainable_flops_per_s) == ("compute", pytest.approx(100e12))
    assert entry(census_of(c, Decode(), on_paper()), "embedding").attainable_flops_per_s is None


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("phase", [Decode(batch=7, seq_kv=300), Prefill(seq_q=100, chunk=40), Mixed(batch=2)])
def test_sums_are_those_of_the_estimate(name: str, phase: Any) -> None:
    config, machine = preset(name), Machine.from_datasheet("B200")
    made = census_of(config, [phase], machine)
    whole = predict(machine, config, phase, must_fit=False)
    assert sum(e.count * e.flops for e in made.entries) == whole.flops
    assert sum(e.count * e.bytes for e in made.entries) == whole.bytes
    assert made.time_s(phase) == pytest.approx(whole.time_s, rel=1e-12)
    assert sum(made.share(e) or 0 for e in made.entries) == pytest.approx(1)
    without = census_of(config, [phase])
    assert [(e.name, e.flops, e.bytes) for e in without.entries] == [(e.name, e.flops, e.bytes) for e in made.entries]
    assert {e.bound for e in without.entries} == {None}


def test_ranks_and_links() -> None:
    machine = Machine.from_datasheet("H100 SXM")
    made = census_of(preset("Llama-3-70B"), Decode(batch=8), machine, tp=8)
    reduced = entry(made, "all-reduce")
    assert (reduced.bound, reduced.link_bytes) == ("link", 2 * 7 * 2 * 8 * 8192 // 8)
    assert made.time_s(Decode(batch=8)) == pytest.approx(predict(machine, made.config, Decode(batch=8), tp=8).time_s)
    assert "one of 8 ranks" in made.title(Decode(batch=8))


def test_training_and_unfused_kernels() -> None:
    names = [e.name for e in census_of(SMALL, Training(batch=2, seq_q=16)).entries]
    assert {"attention, backward", "down, dx", "down, dw", "Adam"} <= set(names)
    naive = entry(census_of(SMALL, Prefill(seq_q=64), fused=False), "attention")
    assert naive.bytes > naive.problem.compulsory_bytes()


# -- measured -----------------------------------------------------------------------------------------------------------------


def measured(problem: Operator, time_s: float, **more: Any) -> Measurement:
    fields = problem.to_dict() | more.pop("fields", {})
    return measurement(problem, time_s, **{"variant": "library", "problem": fields, **more})


FP32 = SMALL.replace(weights="fp32")


def cpu() -> Machine:
    return dataclasses.replace(on_paper(fp32=1e12), device="cpu")


def of(name: str, **fields: Any) -> Operator:
    return OPERATORS[name].make(**fields)


def test_measured_where_shapes_match() -> None:
    product = of("matmul", rows=3, columns=8, inner=12, dtype="fp32")
    attention = of("attention", batch=3, heads=4, kv_heads=2, seq_q=1, seq_kv=5, head_dim=2, dtype="fp32")  # not causal: one query
    norm = of("rms_norm", rows=3, columns=8)
    results = [
        measured(product, 4e-6),
        measured(product, 2e-6, threads=1),  # the fastest
        measured(product, 1e-6, status="contended"),
        measured(product, 1e-7, cache_state="warm"),
        measured(attention, 3e-6, variant="naive"),
        measured(norm, 5e-6),
        measured(of("matmul", rows=3, columns=12, inner=8, dtype="fp32"), 1e-9),  # N and K the other way round
        measured(product, 1e-9, device="cuda:0"),
        measured(product, 1e-9, fields={"rows": "three"}),  # no problem of ours
    ]
    made = census_of(FP32, Decode(batch=3, seq_kv=5), cpu(), results=results)
    times = {e.name: e.measured_s for e in made.entries if e.measured}
    assert times == {"down": 2e-6, "attention": 3e-6, "norm": 5e-6}
    down = entry(made, "down")
    assert down.share_of_roof == pytest.approx(4 * (3 * 12 + 12 * 8 + 3 * 8) / 1e12 / 2e-6)
    assert any("3 kernels" in note for note in made.notes)
    assert any("3 of 9 results are left out" in note for note in made.notes)
    headers, rows = made.table(Decode(batch=3, seq_kv=5))
    assert headers[-2:] == ("measured", "of attainable")
    assert all(len(row) == len(headers) for row in rows)


def test_a_result_in_another_dtype_is_told() -> None:
    """The CPU's bf16 products have fp32 results."""
    results = [measured(of("matmul", rows=3, columns=8, inner=12, dtype="bf16"), 1e-6)]
    made = census_of(SMALL, Decode(batch=3, seq_kv=5), dataclasses.replace(on_paper(), device="cpu"), results=results)
    assert entry(made, "down").measured_s == 1e-6
    assert "down: measured with results in fp32, not bf16" in made.notes


def test_results_of_another_kind_of_device() -> None:
    results = [measured(of("matmul", rows=3, columns=8, inner=12, dtype="fp32"), 1e-6)]
    with pytest.raises(Error, match="measured on a cpu device, and NVIDIA H100 .* is a cuda device"):
        census_of(FP32, Decode(), Machine.from_datasheet("H100 SXM"), results=results)
    with pytest.raises(Error, match="no measurement"):
        census_of(FP32, Decode(), cpu(), results=[])
    both = [*results, dataclasses.replace(results[0], device="cuda:0")]
    with pytest.raises(Error, match="name the machine"):
        census_of(FP32, Decode(), results=both)
    without = census_of(FP32, Decode(batch=3, seq_kv=5), results=results)
    assert entry(without, "down").measured_s == 1e-6
    assert entry(without, "down").share_of_roof is None


# -- files and the command ----------------------------------------------------------------------------------------------------


def test_json_fits_its_schema(cli: Any, tmp_path: Path, schema: Any) -> None:
    check = schema("census")
    append_to(tmp_path / "results.jsonl", measured(of("rms_norm", rows=1, columns=4096), 1e-6))
    cpu().save(tmp_path / "machine.json")
    here = ["--dtype", "fp32", "--machine", str(tmp_path), "--results", str(tmp_path / "results.jsonl")]
    for more in (
        ["DeepSeek-R1-NVFP4", "--machine", "GB200"],
        ["Mixtral-8x7B", "--phase", "decode,mixed", "--batch", "1,32"],
        ["Llama-3-70B", "--machine", "H100 SXM", "--tp", "8", "--no-fused", "--launch", "2us", "--link", "450GB/s"],
        ["DeepSeek-R1-NVFP4", "--machine", "GB200", "--phase", "decode", "--ep", "8", "--batch", "64"],
        ["Llama-3-8B", "--phase", "training", "--seq-q", "64"],
        ["Llama-3-8B", *here],
    ):
        found = cli.json(["census", *more])
        check.validate(found)
    norms = [k for p in found["phases"] for k in p["kernels"] if k["measured"]]
    assert {k["name"] for k in norms} == {"norm"}


def test_csv_and_markdown(cli: Any, tmp_path: Path) -> None:
    given = ["Llama-3-8B", "--machine", "H100 SXM", "--batch", "1,8", "--seq-len", "512"]
    rows = list(csv.DictReader(io.StringIO(cli.out(["census", *given, "--format", "csv"]))))
    assert {(row["phase"], row["phase_batch"]) for row in rows} == {(p, b) for p in ("prefill", "decode") for b in ("1", "8")}
    made = census_of(preset("Llama-3-8B"), Decode(batch=8, seq_kv=512), Machine.from_datasheet("H100 SXM"))
    own = [row for row in rows if (row["phase"], row["phase_batch"]) == ("decode", "8")]
    assert sum(int(row["count"]) * int(row["flops"]) for row in own) == sum(e.count * e.flops for e in made.entries)
    (head,) = (row for row in own if row["kernel"] == "lm_head")
    assert (head["rows"], head["columns"], head["inner"], head["bound"]) == ("8", "128256", "4096", "HBM")
    text = cli.out(["census", *given, "--format", "markdown", "-o", str(tmp_path / "census.md")])
    assert text.count("| kernel | runs | batch | M | N | K |") == 4
    assert (tmp_path / "census.md").read_text(encoding="utf-8") == f"{text}\n<!-- written by roofline census -->\n"
    assert not cli.out(["census", *given, "--quiet", "-o", str(tmp_path / "census.csv")])
    assert (tmp_path / "census.csv").read_text(encoding="utf-8").startswith("config,machine,phase,")
    assert main(["census", *given, "--quiet", "-o", str(tmp_path / "census.json")]) == 0
    assert json.loads((tmp_path / "census.json").read_text(encoding="utf-8"))["kind"] == "census"


def test_table(cli: Any) -> None:
    out = cli.out(["census", "DeepSeek-R1-NVFP4", "--machine", "GB200", "--phase", "decode", "--batch", "128"])
    for said in ("attention: q·cᵀ", "experts: gate", "ridge", "attainable", "note: experts:", "NVFP4, decode: batch 128"):
        assert said in out
    plain = cli.out(["census", "7B"])
    assert "ridge" not in plain
    assert "prefill" in plain


def test_fields_of_several_phases(cli: Any) -> None:
    found = cli.json(["census", "7B", "--seq-q", "100", "--seq-kv", "300"])
    prefill, decode = (each["phase"] for each in found["phases"])
    assert (prefill["seq_q"], prefill["seq_kv"], decode["seq_q"], decode["seq_kv"]) == (100, 100, 1, 300)
    (alone,) = cli.json(["census", "7B", "--phase", "prefill", "--seq-q", "100", "--seq-kv", "300"])["phases"]
    assert (alone["phase"]["seq_q"], alone["phase"]["seq_kv"]) == (100, 300)


BAD = [
    (["Lama-3-8B"], "no preset 'Lama-3-8B' (did you mean Llama-3-8B or"),
    (["nothing.json"], "nothing.json"),
    (["7B", "--phase", "decoding"], "unknown phase 'decoding'; use prefill, decode, mixed, training"),
    (["7B", "--phase", ""], "unknown phase ''"),
    (["7B", "--batch", "0"], "batch must be between 1"),
    (["7B", "--batch", "1,x"], "must be a whole number"),
    (["7B", "--batch", ",".join(map(str, range(1, 100)))], "give fewer batches"),
    (["7B", "--recompute", "full"], "--recompute is a field of no --phase prefill,decode"),
    (["7B", "--phase", "decode", "--chunk", "4"], "decode: unknown field 'chunk'"),
    (["7B", "--machine", "H1000"], "H1000"),
    (["7B", "--ep", "4"], "7B has no experts to spread"),
    (["7B", "--tp", "2", "--machine", "PAPER.json"], "link"),
    (["7B", "--machine", "INT8.json", "--dtype", "fp16"], "fp16"),
    (["7B", "--results", "nothing.jsonl"], "cannot read results file"),
    (["7B", "--machine", "H100 SXM", "--results", "RESULTS.jsonl"], "measured on a cpu device"),
    (["7B", "-o", "census.txt"], "cannot write a .txt file"),
    (["7B", "-o", "missing/census.md"], "missing"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(a)[:40] for a, _ in BAD])
def test_bad_input_is_one_line(arguments: list[str], said: str, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    on_paper().save("PAPER.json")
    on_paper(int8=1e12).save("INT8.json")
    append_to("RESULTS.jsonl", measured(of("rms_norm"), 1e-6))
    err = cli.refused(["census", *arguments])
    assert said in err and len(err) < 400, err


def test_reprs() -> None:
    made = census_of(preset("Mixtral-8x7B"), [Decode(batch=4), Prefill(seq_q=64)], Machine.from_datasheet("H200"))
    assert repr(made).startswith("Census('Mixtral-8x7B' on NVIDIA H200")
    assert made._repr_html_().count("<table") == 2
    with pytest.raises(Error, match="at least one phase"):
        census_of(made.config, [])
