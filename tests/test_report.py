"""Reports: the contents of the files, that every figure can be computed again from them, and that no foreign file is lost."""

import dataclasses
import itertools
import json
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from example import CACHES, around, bandwidth, bracket, fma, launch, measurement

from roofline.errors import Error
from roofline.machine import Machine
from roofline.operators import OPERATORS, Attention, CachedAttention, Matmul, Operator, Softmax
from roofline.report import default_points, explain, load, render, report, tables
from roofline.report.files import begin, finish
from roofline.report.formulas import Term, flops_formulas, tensor_formulas, traffic_formulas
from roofline.report.markdown import left_out_counts, markdown, prediction_lines
from roofline.report.measuring import pooled
from roofline.report.tables import compact_table, slower_defaults, steps_table
from roofline.results import Measurement, Results, append_to
from roofline.units import MISSING, fmt_number, fmt_percent, fmt_si

READ = {"operator": "stream", "access": "read", "elements": 1 << 12, "passes": 1, "streams": 1, "factor": 3.0, "dtype": "fp32"}
FMA = {"operator": "fma", "chains": 768, "steps": 100, "isa": "", "dtype": "fp32"}


def machine(**more: object) -> Machine:
    """A machine whose DRAM read was seen in two modes; its probes are small, so that brackets on them are quick."""
    copy = {"problem": {**READ, "access": "copy"}, "status": "contended", "reason": "other work ran"}
    ceilings = (
        bandwidth(around(100e9) + around(48e9), problem=READ), bandwidth(around(41e9), "copy", **copy),
        fma(around(200e9), accumulator="fp32", problem=FMA, variant="registers", clock_hz=3.1e9),
        launch(around(1e-6), variant="pool"),
    )  # fmt: skip
    facts = {**CACHES, "memory_bytes": 16 << 30, "isas": "scalar,avx2"}
    return Machine(
        name="Example CPU", device="cpu", facts=facts, ceilings=ceilings, created_utc="2026-11-21T10:00:00+00:00", **more
    )


def point(
    problem: Operator, variant: str, slowness: float, *, status: str = "ok", reason: str = "", state: str = "cold"
) -> Measurement:
    moved = {"compulsory": problem.compulsory_bytes(), **problem.traffic({"variant": variant})}
    compute = {"kind": "compute", "problem": FMA, "variant": "registers"}
    brackets = (
        bracket(around(47e9), problem=READ, variant="plain", after_samples=around(49e9)),
        bracket(around(199e9), "fp32 avx2", after_samples=around(201e9), **compute),
    )
    terms = {"compute": problem.total_flops() / 199e9, "DRAM": sum(moved.values()) / 47e9, "launch": 1e-6}
    limit = max(terms, key=lambda name: terms[name])
    timed = status not in ("unsupported", "failed")
    return measurement(
        problem, around(terms[limit] * slowness) if timed else (), variant=variant, cache_state=state, status=status, reason=reason,
        bytes=moved, brackets=brackets if timed else (),
        prediction={"time_s": terms[limit], "bound": limit, "terms": terms} if timed else {}, plan={"variant": variant},
        utc="2026-11-21T10:01:00+00:00",
    )  # fmt: skip


def measured() -> Results:
    return Results(
        (
            point(Attention(seq_q=1, seq_kv=8192, head_dim=128), "tiled", 1.06),
            point(Attention(seq_q=256, seq_kv=256), "naive", 3.1),
            point(Matmul(rows=512, columns=512, inner=512), "library", 1.3),
            point(Matmul(rows=512, columns=512, inner=512, dtype="bf16"), "library", 1, status="unsupported",
                  reason="this CPU has no avx512_bf16"),
            point(Softmax(rows=64, columns=1024), "fused", 1.7, status="contended", reason="other work ran on these cores: much",
                  state="warm"),
        )
    )  # fmt: skip


def tables_of(text: str) -> dict[str, list[dict[str, str]]]:
    """The rows of the first table under each heading of report.md."""
    found: dict[str, list[dict[str, str]]] = {}
    for block in text.split("\n## ")[1:]:
        heading, _, body = block.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("| ")]
        if lines:
            header, _, *rows = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines)
            found[heading] = [dict(zip(header, row, strict=True)) for row in rows]
    return found


def by_hand(record: dict) -> dict[str, str]:
    """A row of the operators' table from one line of results.jsonl, and nothing of the package but number formats."""
    if not record["samples_s"]:
        return {"time": "–", "GFLOP/s": "–", "GB/s": "–", "of attainable": "–", "predicted": "–", "error": "–"}
    time_s, flops, moved = statistics.median(record["samples_s"]), sum(record["flops"].values()), sum(record["bytes"].values())
    allowed = {}
    for roof in record["brackets"]:
        rate = (statistics.median(roof["before_samples"]) + statistics.median(roof["after_samples"])) / 2
        allowed["compute" if roof["kind"] == "compute" else roof["level"]] = (flops if roof["kind"] == "compute" else moved) / rate
    bound = max(allowed, key=lambda name: allowed[name])
    error = record["prediction"]["time_s"] / time_s - 1
    settled = record["status"] != "contended"  # else the brackets were disturbed too
    return {
        "time": fmt_si(time_s, "s"),
        "GFLOP/s": fmt_number(flops / time_s / 1e9),
        "GB/s": fmt_number(moved / time_s / 1e9),
        "FLOP/byte": fmt_number(flops / moved),
        "bound": bound,
        "of attainable": fmt_percent(allowed[bound] / time_s) if settled else "–",
        "predicted": fmt_si(record["prediction"]["time_s"], "s"),
        "error": ("+" if error > 0 else "") + fmt_percent(error) if settled else "–",
        "status": record["status"],
        "cache": record["cache_state"],
    }


def test_every_figure_of_the_report_can_be_computed_again(tmp_path: Path) -> None:
    results = measured()
    for m in results:
        append_to(tmp_path / "results.jsonl", m)
    machine().save(tmp_path / "machine.json")
    render(*load(tmp_path), tmp_path, plot=False)
    tables = tables_of((tmp_path / "report.md").read_text())
    records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    unmatched = list(records)
    assert len(tables["Operators"]) == len(records)
    for row in tables["Operators"]:
        fitting = [
            r
            for r in unmatched
            if (r["operator"], r["variant"]) == (row["operator"], row["variant"]) and row["problem"].endswith(r["problem"]["dtype"])
        ]
        record = next(r for r in fitting if all(row[name] == text for name, text in by_hand(r).items()))
        unmatched.remove(record)
        for name, value in (field.split("=") for field in row["problem"].split() if "=" in field):
            field = {"seq_len": "seq_kv", "M": "rows", "N": "columns", "K": "inner"}.get(name, name)
            assert str(record["problem"][field]) == value
    assert not unmatched

    saved = json.loads((tmp_path / "machine.json").read_text())["machines"][0]["ceilings"]
    for row in tables["Ceilings"]:
        name = row["ceiling"].split()
        unit = "FLOP/s" if name[0] == "fp32" else "s" if name[0] == "fork-join" else "B/s"
        (c,) = [c for c in saved if c["label"].startswith(row["ceiling"] + " ")]
        samples = sorted(c["samples"])
        assert row["n"] == str(len(samples))
        if row["modes"] == "one":
            assert row["median"] == fmt_si(statistics.median(samples), unit)
            n = len(samples)
            low, high = (
                samples[max(int((n - 1.96 * n**0.5) // 2), 1) - 1],
                samples[min(int(np.ceil(1 + (n + 1.96 * n**0.5) / 2)), n) - 1],
            )
            ends = [fmt_si(low, unit), fmt_si(high, unit)]
            if ends[0].split()[1] == ends[1].split()[1]:
                ends[0] = ends[0].split()[0]
            assert row["95 % interval"] == " … ".join(ends)
        else:
            upper, lower = [s for s in samples if s > 70e9], [s for s in samples if s <= 70e9]
            assert row["median"] == "–"
            assert row["modes"] == (
                f"{fmt_si(statistics.median(upper), unit)} ({fmt_percent(len(upper) / len(samples), 2)}) or "
                f"{fmt_si(statistics.median(lower), unit)} ({fmt_percent(len(lower) / len(samples), 2)})"
            )


def test_prediction_errors_are_of_undisturbed_points_only() -> None:
    errors = sorted(abs(1 / s - 1) for s in (1.06, 3.1, 1.3))
    middle, high = fmt_percent(errors[1]), fmt_percent(np.percentile(errors, 95))
    said, worst, *_ = prediction_lines(measured())
    assert said == f"|error| over 3 points: median {middle}, 95th percentile {high}; left out: 1 disturbed point"
    assert worst.startswith("attention naive") and "reaches" in worst
    assert f"{said}\n" in markdown(machine(), measured())
    assert prediction_lines(()) == ["no undisturbed point to average"]


def test_share_of_best_mode_is_stated_where_two_were_seen() -> None:
    rows = tables_of(markdown(machine(), measured()))["Operators"]
    decode = next(r for r in rows if r["variant"] == "tiled")
    assert decode["of best mode"] not in ("–", decode["of attainable"])
    assert next(r for r in rows if r["operator"] == "softmax")["of best mode"] == "–", "contended brackets have no modes"
    steady = dataclasses.replace(machine(), ceilings=machine().ceilings[1:])
    (row, *_) = tables_of(markdown(steady, measured()))["Operators"]
    assert "of best mode" not in row, "an empty column is left out"


def test_the_report_names_conditions_rules_and_what_was_left_out() -> None:
    relu = {"operator": "relu", "variant": "fused", "problem": {"elements": 77, "dtype": "fp32"}}
    left = [{**relu, "cache_state": "cold", "reason": "the time limit was reached"}]
    ends = bracket(around(100e9), after_samples=around(50e9)).to_dict()
    provenance = {
        "left_out": {"int8": "this CPU has no avx512_vnni"},
        "versions": {"numpy": "2.0"},
        "os": "Linux 6 x86_64",
        "report": {
            "began_utc": "2026-11-21T10:00:00+00:00", "took_s": 41.5, "time_limit_s": 55.0, "seed": 0, "left_out": left,
            "end_check": [ends],
        },
    }  # fmt: skip
    text = markdown(machine(provenance=provenance), measured())
    for part in (
        "# Roofline report: Example CPU",
        "took 41.5 s of at most 55.0 s",
        "L3 32 MiB",
        "relu fused (elements=77 fp32, cold): the time limit was reached",
        "int8: this CPU has no avx512_vnni",
        "DRAM read: moved by 100 % (100 GB/s at the start, 50.0 GB/s at the end)",
        "has 2 modes",
        "A multiply-add is two",
        "unsupported: matmul library",
        "Linux 6 x86_64",
    ):
        assert part in text, part
    assert left_out_counts(machine(provenance=provenance)) == [
        "1 ceiling (roofs and rates 1): this CPU has no avx512_vnni; `roofline measure` measures them",
        "1 point (relu 1): the time limit was reached; `roofline report --thorough`, or a longer --time-limit, measures them",
    ]
    assert markdown(machine(provenance=provenance), measured()) == text, "the same data give the same text"


def test_a_default_that_another_variant_beats_is_said() -> None:
    def took(variant: str, seconds: float, status: str = "ok") -> Measurement:
        return measurement(Matmul(rows=1), around(seconds), variant=variant, status=status)

    said = ["matmul (M=1 fp32, cold): tiled runs by default, and takes 2.00 times as long as library"]
    assert slower_defaults(machine(), [took("tiled", 2e-3), took("library", 1e-3)]) == said
    assert slower_defaults(machine(), [took("tiled", 1e-3), took("library", 1e-3)]) == []
    assert slower_defaults(machine(), [took("tiled", 2e-3), took("library", 1e-3, "contended")]) == []


def test_a_busy_machine_is_one_line_and_not_one_for_each_ceiling() -> None:
    """Each contended ceiling has its own shares of time in its reason; its modes are those of the disturbance."""
    busy = [
        dataclasses.replace(c, status="contended", reason=f"other work ran on these cores: threads waited {i} % of the time")
        for i, c in enumerate(machine().ceilings)
    ]
    assert len(busy) == 4
    assert any(c.bimodal for c in busy)
    (line,) = tables.sanity_lines(dataclasses.replace(machine(), ceilings=tuple(busy)))
    assert line == "contended: all 4 ceilings: other work ran on these cores"
    (line,) = tables.sanity_lines(dataclasses.replace(machine(), ceilings=(busy[1], *machine().ceilings[2:])))
    assert line == f"contended: {busy[1].name} (2 threads): {busy[1].reason}", "one alone keeps its shares"


def test_render_writes_every_file_and_the_pictures(tmp_path: Path) -> None:
    files = render(machine(), measured(), tmp_path / "new" / "folder")
    assert sorted(f.name for f in files) == ["report.md", "results.csv", "roofline.csv", "roofline.png", "roofline.svg"]
    assert all(f.stat().st_size for f in files)
    assert "![roofline](roofline.png)" in files[0].read_text()


def test_pooling_takes_brackets_of_undisturbed_points() -> None:
    before = machine()
    after = pooled(before, measured())
    n = {c.name: c.summary.n for c in before.ceilings}
    grown = {c.name: c.summary.n - n[c.name] for c in after.ceilings}
    assert grown == {"DRAM read": 3 * 20, "DRAM copy": 0, "fp32": 3 * 20, "fork-join": 0}


def test_a_foreign_folder_is_never_destroyed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert begin(tmp_path) == tmp_path
    assert sorted(f.name for f in tmp_path.iterdir()) == ["notes.txt", "unfinished"]

    def unfinished_one(**more: bool) -> None:
        begin(tmp_path)
        machine().save(tmp_path / "unfinished" / "machine.json")
        append_to(tmp_path / "unfinished" / "results.jsonl", measured()[0])
        render(machine(), measured(), tmp_path / "unfinished", **more)

    unfinished_one()
    first = {file.name: file.read_bytes() for file in finish(tmp_path)}
    assert set(first) >= {"machine.json", "results.jsonl", "report.md", "results.csv", "roofline.svg"}
    unfinished_one(plot=False)
    assert all((tmp_path / name).read_bytes() == content for name, content in first.items()), "until the next one is finished"
    finish(tmp_path)
    kept = ["machine.json", "notes.txt", "report.md", "results.csv", "results.jsonl"]
    assert sorted(f.name for f in tmp_path.iterdir() if f.name[0] != ".") == kept, "no picture of the other report"

    append_to(tmp_path / "results.jsonl", measured()[1])  # the user's own point
    with pytest.raises(Error, match=r"results\.jsonl was not written by a report, or was changed since"):
        begin(tmp_path)


def test_thorough_points_reach_from_l1_to_a_gigabyte() -> None:
    facts = {**machine().facts, "l1_bytes": 32 * 1024, "l2_bytes": 2**20, "l3_bytes": 2**25, "memory_bytes": 2**34, "threads": 2}
    found = default_points(facts, "cpu", machine(), thorough=True)
    assert len(found) >= 60
    assert len(set(found)) == len(found)
    sizes = [point.problem.footprint_bytes() for point in found]
    assert min(sizes) <= 64 * 1024, "two first caches"
    assert 2**30 <= max(sizes) < 1.01 * 2**30
    assert set(default_points(facts, "cpu", machine())) <= set(found)
    on_gpu = default_points({**facts, "l2_bytes": 50 << 20}, "cuda", machine())
    experts = next(point.problem for point in on_gpu if point.problem.name == "grouped_matmul")
    assert experts.footprint_bytes() < 4 << 30, "and not 21 GiB"
    for name in ("matmul", "attention", "ffn", "softmax"):
        own = {(point.variant, str(point.problem.to_dict()["dtype"])) for point in found if point.problem.name == name}
        assert own == {(v, d) for v, declared in OPERATORS[name].variants.items() for d in declared.dtypes.get("cpu", ())}


def test_steps_have_a_table() -> None:
    steps = {"q·kᵀ": (1e-3, 9e-4, 1.1e-3), "softmax": (5e-4,), "p·v": (4e-4,)}
    whole = dataclasses.replace(point(Attention(), "naive", 1), samples_s=(2e-3,) * 11, steps=steps)
    made = steps_table([whole, point(Attention(), "tiled", 1)])
    assert [row[3:] for row in made.rows] == [
        ("q·kᵀ", "1.00 ms", "50.0 %"), ("softmax", "500 µs", "25.0 %"), ("p·v", "400 µs", "20.0 %"), ("sum", "1.90 ms", "95.0 %"),
    ]  # fmt: skip
    assert [row[0] for row in made.rows] == ["attention", "", "", ""]
    assert "| q·kᵀ |" in markdown(machine(), [whole])
    assert "## Steps" not in markdown(machine(), [point(Attention(), "tiled", 1)])


def _prefill(problem: object) -> bool:
    return isinstance(problem, Attention) and problem.seq_q > 1


def test_default_points_cover_operators_variants_and_states() -> None:
    facts = machine().facts
    found = default_points(facts, "cpu", machine())
    probes = "stream fma mma exp mixed_intensity pointer_chase core_to_core fork_join host_copy peer_copy".split()
    for backend in ("cpu", "cuda"):
        timed = found if backend == "cpu" else default_points(facts, "cuda", machine())
        for name, cls in OPERATORS.items():
            if name not in probes:
                declared = {v for v, d in cls.variants.items() if backend in d.dtypes}
                assert {p.variant for p in timed if p.problem.name == name} == declared, name
        main = [(p.problem.name, getattr(p.problem, "seq_q", 0) == 1) for p in timed[:5]]
        assert main == [("attention", False), ("attention", True), ("ffn", False), ("matmul", False), ("rms_norm", False)]
    headline = [*found[:4], *itertools.takewhile(lambda p: p.problem.name in ("attention", "ffn", "matmul"), found[5:])]
    assert len(headline) >= 12, "then the headline"
    others = {name for name, cls in OPERATORS.items() if any("cpu" in v.dtypes for v in cls.variants.values())}
    others -= {*probes, "attention", "ffn", "matmul", "rms_norm"}
    after = found[len(headline) + 1 : len(headline) + 1 + len(others)]
    assert {p.problem.name for p in after} == others, "then one of each other operator"
    prefills = {(p.variant, p.problem.head_dim, p.problem.causal) for p in headline[:9] if _prefill(p.problem)}
    assert {(v, d, True) for v in ("naive", "tiled") for d in (64, 128)} | {("tiled", d, False) for d in (64, 128)} == prefills
    rows = {(p.problem.rows, p.problem.dtype) for p in headline if isinstance(p.problem, Matmul)}
    assert {(1, "fp32"), (1, "bf16")} < rows
    assert len(rows) == 4
    far = [p for p in found if p.problem.name in ("relu", "softmax") and p.cache_state == "cold"]
    assert all(p.problem.footprint_bytes() >= 4 * facts["l3_bytes"] for p in far)
    rotated = [sum(t.size_bytes for t in p.problem.tensors() if t.role == "in_out") for p in found if p.problem.name == "rope"]
    assert min(rotated) > 2 * facts["l3_bytes"], "or what it updates in place is written back when nobody times it"
    near = [p for p in found if p.problem.name in ("relu", "softmax") and p.cache_state == "warm"]
    assert all(p.problem.footprint_bytes() <= facts["threads"] * facts["l2_bytes"] for p in near)
    attention = [p for p in found if isinstance(p.problem, Attention)]
    both = {v: set(Attention.variants[v].dtypes["cpu"]) for v in ("naive", "tiled")}
    assert both["naive"] == both["tiled"] | {"fp64"}
    attention = [p for p in attention if p.problem.dtype != "fp64"]
    shapes = {v: {(p.problem, p.cache_state) for p in attention if p.variant == v} for v in ("naive", "tiled", "split_kv")}
    few = {(problem, state) for problem, state in shapes["split_kv"] if problem.dtype == "fp32"}
    assert shapes["naive"] == shapes["tiled"] > few, "variants run the same problems"
    assert {p.seq_q for p, _ in shapes["split_kv"]} == {1}, "but what suits few queries"
    assert len(default_points(facts, "cpu", machine(), quick=True)) < len(found)
    slow = dataclasses.replace(
        machine(),
        ceilings=tuple(
            dataclasses.replace(c, samples=(1e9,), status="ok") if c.kind == "compute" else c for c in machine().ceilings
        ),
    )
    assert max(p.problem.total_flops() for p in default_points(facts, "cpu", slow) if p.problem.to_dict()["dtype"] == "fp32") <= 1e8
    assert default_points(facts, "cpu", Machine(name="without ceilings"))
    on_gpu = {
        p.problem.to_dict()["dtype"] for p in default_points({"l2_bytes": 50 << 20}, "cuda", machine()) if p.variant == "naive"
    }
    assert on_gpu == set(Attention.variants["naive"].dtypes["cuda"]), "every dtype that a backend has"


def test_brief_problem_names_what_is_not_default() -> None:
    decode, square = (
        point(Attention(seq_q=1, seq_kv=8192), "tiled", 1),
        point(Attention(seq_q=256, seq_kv=256, kv_heads=2), "tiled", 1),
    )
    assert decode.brief_problem() == "seq_q=1 seq_kv=8192 fp32"
    assert square.brief_problem() == "kv_heads=2 seq_len=256 fp32"
    assert point(Attention(), "tiled", 1).brief_problem() == "fp32"
    assert point(Attention(heads=32, kv_heads=8), "tiled", 1).brief_problem() == "heads=32 kv_heads=8 fp32"
    assert point(Attention(heads=32), "tiled", 1).brief_problem() == "heads=32 fp32"
    assert point(CachedAttention(kv_heads=32), "tiled", 1).brief_problem() == "kv_heads=32 bf16"
    rows = compact_table([point(Attention(seq_q=n, seq_kv=n), "tiled", 1) for n in (1024, 2048)]).rows
    assert [r[1] for r in rows] == ["seq_len=1024 fp32", "seq_len=2048 fp32"], "a field that varies is shown, default or not"


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_formulas_give_the_counts_they_explain(operator: type[Operator]) -> None:
    """Each formula, computed as it is printed, is what the operator counts."""

    def computed(formula: str, values: dict[str, object]) -> object:
        text = formula.removeprefix("= ")
        marks = {"·": "*", "−": "-", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")", " mod ": " % "}
        for mark, python in marks.items():
            text = text.replace(mark, python)
        return eval(text, {"ceil": np.ceil, "floor": np.floor}, dict(values))

    for case in operator.cases():
        problem, variants = case.problem, list(operator.variants)
        values = problem.to_dict()
        counts, formulas = problem.flops(), flops_formulas(problem)
        assert formulas.keys() == counts.keys()
        assert {name: computed(text, values) for name, text in formulas.items()} == counts
        assert {n: computed(t, values) for n, t in tensor_formulas(problem).items()} == {
            t.name: t.moved_bytes for t in problem.tensors()
        }
        for variant in variants:
            plan = {"variant": variant, "row_cached": False}
            traffic = problem.traffic(plan)
            assert {n: computed(t, values) for n, t in traffic_formulas(problem, plan).items()} == traffic


def test_terms_keep_their_arithmetic() -> None:
    a, b = Term.named("a", 7), Term.named("b", 3)
    assert str(2 * a * (b - 1)) == "2 · a · (b − 1)"
    assert str(a - (b - 1)) == "a − (b − 1)"
    assert str((a + b) / 2) == "(a + b) / 2"
    assert str(a // 2) == "⌊a / 2⌋"
    assert (str(3 + 2 * a % 4), 2 * a % 4) == ("3 + 2 · a mod 4", 2)
    assert (str(3 + a % (2 * b)), a % (2 * b)) == ("3 + a mod (2 · b)", 1)
    assert (a // 2, a - 7, int(a * b)) == (3, 0, 21)
    assert str(a * 0 + b) == "b"


def test_explain_shows_terms_roofs_and_outcome() -> None:
    text = str(explain(measured()[1], machine()))
    for part in (
        "2 · batch · heads · seq_q · seq_kv · head_dim",
        "beyond: scores written",
        "DRAM read",
        "the roof",
        "fixed before the operator ran",
        "fork-join",
        "of its compute roof",
        "status: ok",
    ):
        assert part in text, part
    assert "nothing was timed" in str(explain(measured()[3]))
    own = Measurement(
        operator="my_function", problem={"dtype": "fp32"}, variant="callable", device="cpu", threads=2, cache_state="user",
        samples_s=around(1e-3), flops={"stated": 10}, bytes={"stated": 20},
    )  # fmt: skip
    assert "my_function" in str(explain(own, machine()))
    json.dumps(explain(measured()[0], machine()).to_dict())


def test_bad_input_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(Error, match="exclude each other"):
        report(tmp_path, quick=True, thorough=True)
    for bad in (0, -1, float("nan"), "3"):
        with pytest.raises(Error, match="time_limit_s must be a positive number"):
            report(tmp_path, time_limit_s=bad)  # type: ignore[arg-type]
    with pytest.raises(Error, match="cannot write into"):
        report("/dev/null/here")


def test_a_short_report_leaves_out_what_it_has_no_time_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("roofline._core")
    made = report(tmp_path / "r", quick=True, time_limit_s=0.4, machine=machine(), plot=False, device="cpu")
    names = sorted(f.name for f in (tmp_path / "r").iterdir())
    assert {"machine.json", "report.md", "results.csv"} <= set(names)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", ""), "a library call prints nothing"
    again, results = load(tmp_path / "r")
    facts = again.provenance["report"]
    planned = default_points(again.facts, "cpu", machine(), quick=True, limit_s=0.4)
    assert len(results) + len(facts["left_out"]) == len(planned)
    assert all(item["reason"] == "the time limit was reached" for item in facts["left_out"])
    assert made.left_out
    ends = facts["end_check"]
    assert [e["label"] for e in ends] == ["DRAM read", "fp32"]
    assert all(e["before_samples"] and e["after_samples"] for e in ends)
    text = (tmp_path / "r" / "report.md").read_text()
    assert re.search(r"DRAM read: (moved by|did not move)", text)


def test_power_and_energy_have_columns_where_a_device_tells_them() -> None:
    silent = tables.ceiling_table(machine())
    assert "power" not in silent.headers
    first, *others = machine().ceilings
    told = dataclasses.replace(first, conditions={"power_w": 612.4, "power_limited": 1})
    shown = tables.ceiling_table(dataclasses.replace(machine(), ceilings=(told, *others)))
    at = shown.headers.index("power")
    assert {row[0]: row[at] for row in shown.rows}[told.name] == "612 W"
    assert [row[at] for row in shown.rows].count(MISSING) == len(others)
    assert {row[0]: row[-1] for row in shown.rows}[told.name].endswith("power limited")
    quiet = point(Matmul(rows=512, columns=512, inner=512), "library", 1.3)
    ran_s = sum(quiet.samples_s) * quiet.launches_per_sample
    energy_j = 6.0 * len(quiet.samples_s) * quiet.launches_per_sample  # six joules a launch
    m = dataclasses.replace(quiet, conditions={"power_w": 600.0, "energy_j": energy_j}, load={"wall_s": ran_s / 0.9})
    table = tables.operator_table([m], None)
    row = dict(zip(table.headers, table.rows[0], strict=True))
    assert row["power"] == "600 W"
    assert (row["per FLOP"], row["per byte"]) == ("22.4 nJ", fmt_si(6.0 / m.total_bytes, "J"))  # 2 x 512^3 FLOPs
    assert row["per token"] == MISSING
    assert "power" not in tables.operator_table([quiet], None).headers
