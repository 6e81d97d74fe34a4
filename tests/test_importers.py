"""Files of other tools: recorded formats as points and ceilings against numbers worked out by hand; one error for a bad file."""

import json
from pathlib import Path
from typing import Any

import pytest
from example import bandwidth

from roofline import AllReduce, Error, Machine, Matmul, plot, predict
from roofline.cli import main
from roofline.importers import NCU_METRICS, Imported, read
from roofline.importers.ncu import AGAIN
from roofline.machine import load_machines, save_machines
from roofline.report import explain
from roofline.results import Results

DATA = Path(__file__).parent / "data" / "importers"
METRICS, RAW, REDUCE, GATHER = (DATA / f for f in ("ncu_metrics.csv", "ncu_raw.csv", "all_reduce_perf.log", "all_gather_mpi.log"))


# -- ncu ----------------------------------------------------------------------------------------------------------------------


def test_kernels_are_points() -> None:
    saxpy, gemm = read(METRICS).measurements
    assert (saxpy.operator, gemm.operator) == ("saxpy", "gemm")
    assert saxpy.samples_s == pytest.approx((72.5e-6, 73.1e-6))  # two launches of one kernel
    assert saxpy.flops == {"fp32 ffma": 2 * 16_777_216}
    assert saxpy.bytes == {"dram__bytes.sum": 201_340_000}
    assert saxpy.flops_per_byte == pytest.approx(1 / 6, rel=1e-3)
    assert gemm.flops == {"fp32 fmul": 16_777_216, "bf16 tensor": 137_438_953_472}
    assert (saxpy.dtype, gemm.dtype) == ("fp32", "bf16")
    assert gemm.flops_per_s == pytest.approx((137_438_953_472 + 16_777_216) / 250e-6)
    assert gemm.problem["kernel"] == "void lib::gemm<__nv_bfloat16, 128>(Params)"
    assert (gemm.device, gemm.problem["block"], gemm.problem["grid"]) == ("cuda:0", "(384,1,1)", "(132,1,1)")


def test_one_kernel_a_row() -> None:
    found = read(RAW)
    stencil, half = found.measurements
    assert stencil.flops == {"fp64 dadd": 1000, "fp64 dfma": 4000, "fp64 dmul": 500}
    assert stencil.bytes == {"dram__bytes_read.sum": 2_000_000, "dram__bytes_write.sum": 1_000_000}
    assert (stencil.dtype, stencil.device, stencil.time_s) == ("fp64", "cuda:1", pytest.approx(2e-6))
    assert (half.dtype, half.flops) == ("fp16", {"fp16 hfma": 4 * 2048})  # pairs
    assert found.machine is None
    assert found.notes[:2] == (
        f"1 launches left out: FLOPs of matrix units not counted; {AGAIN}",
        "1 launches left out: no DRAM bytes",
    )


def test_peaks_of_counters_are_ceilings() -> None:
    machine = read(METRICS).machine
    assert machine is not None
    assert machine.bandwidth().value == pytest.approx(1280 * 2.62e9)
    assert machine.compute("fp32").value == pytest.approx(2 * 16896 * 1.5e9)
    assert {c.source for c in machine.ceilings} == {"datasheet"}
    assert all("nothing measured it" in c.reason for c in machine.ceilings)


def test_every_level_has_its_bytes_and_its_peak() -> None:
    found = read(DATA / "ncu_hierarchy.csv")
    naive = found.measurements[0]
    assert (naive.plan["l1_served_bytes"], naive.plan["l2_served_bytes"], naive.total_bytes) == (5e9, 500e6, 16e6)
    assert found.machine is not None
    peaks = {"L1": 13824 * 1.4e9, "L2": 5120 * 1.3e9, "DRAM": 1280 * 1.215e9}  # bytes a cycle and cycles a second
    assert {level: found.machine.bandwidth(level).value for level in found.machine.levels()} == pytest.approx(peaks)
    drawn = plot.hierarchy.data(found.machine, results=found.measurements)
    dots = {(r["variant"], r["level"]): r for r in drawn if r["element"] == "dot"}
    flops = 2 * 1024**3
    assert {key: r["flops_per_byte"] for key, r in dots.items()} == pytest.approx({
        ("sgemm_naive", "L1"): flops / 5e9, ("sgemm_naive", "L2"): flops / 500e6, ("sgemm_naive", "DRAM"): flops / 16e6,
        ("sgemm_tiled", "L1"): flops / 500e6, ("sgemm_tiled", "L2"): flops / 140e6, ("sgemm_tiled", "DRAM"): flops / 12.6e6,
    })  # fmt: skip
    assert sorted({r["flops_per_s"] for r in dots.values()}) == pytest.approx([flops / 1e-3, flops / 250e-6])
    for (_, level), r in dots.items():
        assert r["flops_per_s"] <= 1.001 * r["flops_per_byte"] * peaks[level]
    both = plot.hierarchy.data(found.machine, Matmul(rows=1024, columns=1024, inner=1024), results=found.measurements)
    assert {r["variant"] for r in both if r["element"] == "dot"} == {"naive", "tiled", "sgemm_naive", "sgemm_tiled"}
    with pytest.raises(Error, match="needs a problem.*or results with kernels that ncu profiled"):
        plot.hierarchy("H100")


def test_a_profile_of_memory_alone_has_one_level() -> None:
    found = read(METRICS)
    assert not [key for m in found.measurements for key in m.plan if key.endswith("served_bytes")]
    dots = [r for r in plot.hierarchy.data(found.machine, results=found.measurements[:1]) if r["element"] == "dot"]
    assert [r["level"] for r in dots] == ["DRAM"]


def test_provenance_holds_no_host_and_no_path() -> None:
    for path, collective in ((METRICS, None), (REDUCE, None), (GATHER, "all_gather")):
        found = read(path, collective=collective)
        text = json.dumps(found.to_dict())
        for private in ("127.0.0.1", "a.out", "4711", "node01", "worker-0", str(DATA), "12897"):
            assert private not in text, private
        for m in found.measurements:
            assert m.provenance["tool"] == found.tool
            assert len(m.provenance["file_sha256"]) == 64


@pytest.mark.parametrize(
    ("unit", "value", "seconds"),
    [
        ("ns", "72,500", 72.5e-6),
        ("us", "72.5", 72.5e-6),
        ("msecond", "0.0725", 72.5e-6),
        ("second", "7.25e-05", 72.5e-6),
        ("s", "2", 2.0),
    ],
)
def test_units_of_time(tmp_path: Path, unit: str, value: str, seconds: float) -> None:
    path = tmp_path / "units.csv"
    path.write_text(METRICS.read_text().replace('"usecond","72.50"', f'"{unit}","{value}"'))
    assert read(path).measurements[0].samples_s[0] == pytest.approx(seconds)


def test_sparse_and_dense_matrix_operations(tmp_path: Path) -> None:
    lines = METRICS.read_text().splitlines()
    line = next(text for text in lines if "bf16_dst_fp32" in text)
    parts = [
        line.replace(".sum", f"_sparsity_{which}.sum").replace("137,438,953,472", count)
        for which, count in (("off", "100"), ("on", "50"))
    ]
    path = tmp_path / "sparse.csv"
    path.write_text("\n".join([*lines, *parts]))  # beside their sum they count nothing
    assert read(path).measurements[1].flops["bf16 tensor"] == 137_438_953_472
    path.write_text("\n".join([*(text for text in lines if text != line), *parts]))
    assert {name: n for name, n in read(path).measurements[1].flops.items() if "tensor" in name} == {
        "bf16 tensor": 100,
        "bf16 tensor sparse": 50,
    }


def asked(path: Path, kernel: str, values: dict[str, str], names: list[str] | None = None) -> Path:
    """What ncu prints of one kernel that is asked for the metrics that we print (or `names`); those without a value are n/a."""
    names = NCU_METRICS.split(",") if names is None else names
    usual = {"gpu__time_duration.sum": "1000000", "dram__bytes.sum": "105000000"}
    rows = [
        ",".join(f'"{text}"' for text in ("ID", "Kernel Name", *names)),
        ",".join(f'"{text}"' for text in ("", "", *("nsecond" if "time" in name else "" for name in names))),
        ",".join(f'"{text}"' for text in ("0", kernel, *({**usual, **values}.get(name, "n/a") for name in names))),
    ]
    path.write_text("\n".join(rows))
    return path


def core(**counts: str) -> dict[str, str]:
    every = {"ffma": "0", "fmul": "0", **counts}
    return {f"sm__sass_thread_inst_executed_op_{op}_pred_on.sum": count for op, count in every.items()}


def paths(**counts: int) -> dict[str, str]:
    return {f"sm__ops_path_tensor_src_{path}.sum": str(count) for path, count in counts.items()}


PIPE = "sm__inst_executed_pipe_tensor.sum"


def test_the_metrics_that_are_printed_are_enough(tmp_path: Path, cli: Any) -> None:
    names = cli.out(["import", "--ncu-metrics"]).strip().split(",")
    assert len(set(names)) == len(names) and PIPE in names
    peaks = {
        "dram__bytes.sum.peak_sustained": "1", "dram__cycles_elapsed.avg.per_second": "1", "sm__cycles_elapsed.avg.per_second": "1",
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": "1",
    }  # fmt: skip
    ones = {f"{kind}{op}": "1" for kind in "fdh" for op in ("add", "mul", "fma")}
    found = read(asked(tmp_path / "cores.csv", "k", {**core(**ones), **peaks, PIPE: "0"}, names))
    assert sum(found.measurements[0].flops.values()) == (1 + 1 + 2) * 2 + (2 + 2 + 4)
    assert len(found.ceilings) == 2


# Counters as GPUs have them (public lists of metrics): of a product of 4096 x 4096 x 4096, by what it reads.
WHOLE = 2 * 4096**3


@pytest.mark.parametrize(
    ("dtype", "counted"),
    [
        ("bf16", paths(bf16_dst_fp32=WHOLE, fp16=0, fp8=0, int8=0)),  # Hopper
        ("fp16", paths(fp16=WHOLE, bf16_dst_fp32=0, fp8=0)),
        ("fp8_e4m3", paths(fp8=WHOLE, fp16=0)),
        ("fp16", paths(fp16=WHOLE, fp16_dst_fp16=0, fp16_dst_fp32=WHOLE)),  # a sum beside its parts counts once
        ("fp16", paths(fp16_dst_fp16=WHOLE // 2, fp16_dst_fp32=WHOLE // 2)),  # Ampere has the parts alone
        ("tf32", paths(tf32_dst_fp32=WHOLE)),
        ("fp64", paths(fp64=WHOLE)),
        ("int8", paths(int8=WHOLE)),
        ("int4", paths(int4=WHOLE)),
        ("fp8_e4m3", paths(fp8_dst_fp32=WHOLE, fp8_dst_fp16=0)),  # Blackwell
        ("fp8_e4m3", paths(fp4_fp6_fp8_dst_fp32=WHOLE, fp4_dst_fp32=0)),
        ("nvfp4", paths(fp4_fp6_fp8_dst_fp32=WHOLE, fp4_dst_fp32=WHOLE)),
    ],
)
def test_products_on_matrix_units(tmp_path: Path, dtype: str, counted: dict[str, str]) -> None:
    """With exactly the printed metrics: the product, and an epilogue of one multiplication an element."""
    name = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
    found = read(asked(tmp_path / "gemm.csv", name, {**core(fmul=str(4096**2)), **counted, PIPE: "1048576"}))
    (point,) = found.measurements
    assert (point.dtype, point.status) == (dtype, "ok")
    assert point.flops == {"fp32 fmul": 4096**2, f"{dtype} tensor": WHOLE}


@pytest.mark.parametrize(
    "name",
    [
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
        "turing_h1688gemm_128x128_nn",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x3_nn_align8>(Params)",
        "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwd>>(Params)",
        "flash_fwd_kernel",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80",
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN",
        "wgmma_kernel",
        "hmma_kernel",
        "tcgen05_matmul",
    ],
)
def test_a_name_of_matrix_units_without_their_counters(tmp_path: Path, name: str) -> None:
    names = [metric for metric in NCU_METRICS.split(",") if "tensor" not in metric]
    path = asked(tmp_path / "gemm.csv", name, core(fmul="16777216"), names)
    with pytest.raises(Error, match="no kernel with.*matrix units.*profile again.*--ncu-metrics") as caught:
        read(path, tool="ncu")
    assert len(str(caught.value)) < 1500
    # Their counters say that it does not use them: the name does not matter.
    (point,) = read(asked(path, name, {**core(fmul="16777216"), PIPE: "0"})).measurements
    assert point.flops == {"fp32 fmul": 16777216}


@pytest.mark.parametrize("name", ["ampere_sgemm_128x64_nn", "volta_dgemm_64x64", "cutlass_80_simt_gemm_256x128", "gamma_summary"])
def test_other_names_need_no_counters_of_matrix_units(tmp_path: Path, name: str) -> None:
    names = [metric for metric in NCU_METRICS.split(",") if "tensor" not in metric]
    (point,) = read(asked(tmp_path / "k.csv", name, core(ffma="5"), names)).measurements
    assert point.flops == {"fp32 ffma": 10}


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        ({PIPE: "7"}, "FLOPs of matrix units not counted"),
        ({PIPE: "7", **paths(bf16_dst_fp32=0)}, "FLOPs of matrix units not counted"),
        ({"sm__inst_executed_pipe_tensor_op_hmma.sum": "7"}, "FLOPs of matrix units not counted"),
        (paths(int1=64), "what has no dtype here .sm__ops_path_tensor_src_int1.sum"),
        (paths(fp3_dst_fp32=64, bf16_dst_fp32=64), "what has no dtype here .sm__ops_path_tensor_src_fp3"),
    ],
)
def test_matrix_units_that_worked_uncounted(tmp_path: Path, counted: dict[str, str], words: str) -> None:
    names = [*dict.fromkeys([*NCU_METRICS.split(","), *counted])]
    with pytest.raises(Error, match=words):
        read(asked(tmp_path / "k.csv", "k", {**core(ffma="16"), **counted}, names), tool="ncu")


# -- nccl-tests ---------------------------------------------------------------------------------------------------------------


def test_lines_are_points_of_the_collective() -> None:
    found = read(REDUCE)
    first = found.measurements[0]
    assert first.problem == AllReduce(elements=262144, ranks=8, dtype="fp32").to_dict()
    assert first.samples_s == pytest.approx((41.94e-6, 40.96e-6))
    assert first.correctness == {"checked": True, "passed": True}
    assert (first.provenance["version"], first.provenance["nccl"]) == ("2.17.1", "22705")
    assert (first.provenance["ranks"], first.provenance["gpu_name"]) == (8, "NVIDIA A100-SXM4-80GB")


def test_the_link_is_a_measured_ceiling() -> None:
    """2 (n - 1) / n of the largest message over its time: what the log calls busbw."""
    (link,) = read(REDUCE).ceilings
    assert (link.kind, link.source) == ("link", "measured")
    assert link.samples == pytest.approx([2 * 7 / 8 * 2**30 / t for t in (8053.1e-6, 8045e-6)])
    assert link.value == pytest.approx(233.4e9, rel=1e-3)
    assert link.problem["operator"] == "all_reduce"
    assert "1 GiB" in link.reason


def test_all_gather_under_mpi() -> None:
    found = read(GATHER, collective="all_gather")
    assert [m.status for m in found.measurements] == ["ok", "ok", "failed"]
    assert found.measurements[0].problem == {"elements": 4194304, "ranks": 4, "dtype": "bf16"}
    (link,) = found.ceilings
    assert link.value == pytest.approx(3 / 4 * 33554432 / 134.2e-6)  # the largest has wrong results
    assert found.notes[0] == "1 lines left out: empty"
    assert found.notes[1].startswith("1 lines with wrong results")
    assert "the smallest message, 8 MiB, takes 52.4 µs" in found.notes[2]
    assert len(found.notes) == 3  # busbw agrees


def test_busbw_that_was_counted_otherwise_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "nvls.log"
    path.write_text(REDUCE.read_text().replace("233.33", "103.70").replace("233.57", "103.81"))
    found = read(path)
    assert any("busbw of the log is 0.44 ×" in note for note in found.notes)
    assert found.ceilings == read(REDUCE).ceilings


def test_older_logs_without_root_and_wrong(tmp_path: Path) -> None:
    text = """# nThread 1 nGpus 2 minBytes 1310720000 maxBytes 1310720000 step: 1048576(bytes) warmup iters: 5 iters: 20
#   Rank  0 Pid   1320 on      one device  0 [0x00] Tesla V100-SXM2-16GB
#   Rank  1 Pid   1320 on      one device  1 [0x00] Tesla V100-SXM2-16GB
#                                                       out-of-place                       in-place
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1310720000     327680000     float     sum   100000   13.11   13.11  2e-07   100000   13.11   13.11  1e-07
"""
    path = tmp_path / "old.log"
    path.write_text(text)
    found = read(path, tool="nccl-tests", collective="all_reduce")
    assert found.measurements[0].correctness == {"checked": False}
    assert found.ceilings[0].value == pytest.approx(1310720000 / 0.1)


def test_a_measured_link_is_used_before_the_stated_one() -> None:
    stated = Machine.from_datasheet("A100 SXM 80GB")
    measured = read(REDUCE).added_to(stated)
    assert stated.link().value == 300e9
    assert measured.link().value == pytest.approx(233.4e9, rel=1e-3)
    assert read(REDUCE).added_to(measured).ceilings == measured.ceilings  # again: replaced, and not doubled
    problem = AllReduce(elements=1 << 28, ranks=8, dtype="fp32")
    assert predict(measured, problem).terms["link"] == pytest.approx(8.05e-3, rel=1e-3)
    assert [item["tool"] for item in measured.provenance["imported"]] == ["nccl-tests"]


# -- what is made of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [METRICS, RAW, REDUCE])
def test_points_can_be_written_explained_and_drawn(tmp_path: Path, path: Path) -> None:
    found = read(path)
    out = tmp_path / "points.jsonl"
    assert main(["import", str(path), "-o", str(out), "--quiet"]) == 0
    again = Results.load(out)
    assert [m.to_dict() for m in again] == [m.to_dict() for m in found.measurements]
    machine = Machine.from_datasheet("A100 SXM 80GB")
    for m in again:
        explained = explain(m, machine)
        assert explained.sections and "0 threads" not in explained.title
    assert plot.roofline.data(machine, again)


def test_points_without_flops_are_drawn_without_complaint() -> None:
    """A gather computes nothing: it has no place on a roofline, and that is said."""
    points = read(GATHER, collective="all_gather").measurements
    assert points[0].flops == {}
    assert plot.roofline.data(Machine.from_datasheet("H100 SXM"), points)


def test_results_and_json_fit_their_schemas(cli: Any, schema: Any, closed: Any) -> None:
    check, line, whole = map(schema, ("import", "results", "machine"))
    for path in (METRICS, RAW, REDUCE):
        written = cli.json(["import", str(path)])
        closed(check, written, written)
        for measurement in written["measurements"]:
            line.validate(measurement)
        if written["machine"]:
            whole.validate({"schema_version": written["schema_version"], "kind": "machines", "machines": [written["machine"]]})


def test_the_command_adds_to_a_machine_file(tmp_path: Path, cli: Any) -> None:
    machine = tmp_path / "machine.json"
    cpu = Machine(name="Example CPU", ceilings=(bandwidth(1e10),))
    save_machines([cpu, Machine.from_datasheet("A100 SXM 80GB")], machine)
    out = cli.out(["import", str(REDUCE), "--machine", str(machine)])
    assert "link" in out
    assert "233 GB/s" in out
    assert "as those of NVIDIA A100 SXM 80GB" in out
    kept, gpu = load_machines(machine)
    assert kept == cpu
    assert gpu.link().value == pytest.approx(233.4e9, rel=1e-3)
    fresh = tmp_path / "fresh.json"
    assert main(["import", str(REDUCE), "--machine", str(fresh), "--quiet"]) == 0
    assert Machine.load(fresh).name == "NVIDIA A100-SXM4-80GB"
    assert NCU_METRICS in cli.out(["import", "--ncu-metrics"])
    assert cli.json(["import", "--ncu-metrics"]) == {"metrics": NCU_METRICS.split(",")}


def test_the_same_file_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "points.jsonl")
    for _ in range(2):
        assert main(["import", str(METRICS), "-o", out]) == 0
    assert "0 points appended" in capsys.readouterr().out
    assert len(Results.load(out)) == 2
    kept = Path(out).read_text().splitlines(keepends=True)
    Path(out).write_text(kept[0])
    assert main(["import", str(METRICS), "-o", out]) == 0
    assert "1 point appended" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([str(REDUCE), "--device", "cuda:0"], "give --machine FILE too"),
        ([str(RAW), "--machine", "machine.json"], "holds no ceiling"),
        ([str(REDUCE), "--machine", "missing.json", "--device", "cuda:1"], "is not there, so it has no device"),
        (["missing.csv"], "cannot read log missing.csv: No such file"),
        ([str(REDUCE), "--tool", "ncu"], "has no line of column names"),
        ([str(METRICS), "--tool", "nccl-tests"], "no line with a size and a time"),
        ([str(METRICS), "--collective", "all_reduce"], "only logs of nccl-tests have a collective"),
        ([str(REDUCE), "--collective", "all_gather"], "is a log of all_reduce, not of all_gather"),
        ([str(GATHER)], "does not name its collective"),
        ([str(GATHER), "--collective", "broadcast"], "is a log of broadcast; only all_reduce"),
    ],
)
def test_errors_of_the_command(arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in cli.refused(["import", *arguments])


def test_a_cpu_takes_no_link(tmp_path: Path, cli: Any) -> None:
    machine = tmp_path / "machine.json"
    Machine(name="Example CPU", ceilings=(bandwidth(1e10),)).save(machine)
    before = machine.read_bytes()
    assert "has no GPU, only cpu (Example CPU)" in cli.refused(["import", str(REDUCE), "--machine", str(machine)])
    assert "is a CPU" in cli.refused(["import", str(REDUCE), "--machine", str(machine), "--device", "cpu"])
    assert machine.read_bytes() == before
    with pytest.raises(Error, match="holds no ceiling"):
        Imported(tool="ncu").added_to(Machine.from_datasheet("H200 SXM"))


METRICS_TEXT, RAW_TEXT, REDUCE_TEXT = METRICS.read_text(), RAW.read_text(), REDUCE.read_text()
BAD = [
    ("", "is empty"),
    ("\n \n", "is empty"),
    ("hello, world\n", "is neither output of `ncu --csv`"),
    ('{"schema_version": 2}\n', "is neither output"),
    (METRICS_TEXT.split('"ID"')[0], "is neither output"),
    (METRICS_TEXT.split('"0","4711"')[0], "has names of columns and no kernel"),
    (METRICS_TEXT[:-60], r"line 25: \d+ columns of 15; the output is cut short|line 25: no CSV"),
    (METRICS_TEXT.replace('"72.50"', '"72,50"'), "line 10: gpu__time_duration.sum is '72,50', .* LC_ALL=C"),
    (METRICS_TEXT.replace('"72.50"', '"fast"'), "line 10: gpu__time_duration.sum is 'fast', which is not a number"),
    (METRICS_TEXT.replace('"usecond"', '"fortnight"'), "line 10: unknown unit 'fortnight'"),
    (METRICS_TEXT.replace('"Metric Unit",', '"Unit",'), "no Metric Unit and Metric Value beside it"),
    (METRICS_TEXT.replace('"Kernel Name",', '"Function",'), "line 7 has no column Kernel Name"),
    (
        METRICS_TEXT.replace("gpu__time_duration", "gpu__other"),
        "no kernel with time.*3 launches left out: no time.*profile again with the metrics",
    ),
    (METRICS_TEXT.replace("dram__bytes.sum", "lts__t_bytes.sum"), "3 launches left out: no DRAM bytes"),
    (METRICS_TEXT.replace("pred_on", "all").replace("ops_path", "other"), "3 launches left out: FLOPs"),
    (RAW_TEXT.replace(RAW_TEXT.splitlines()[1] + "\n", ""), "line 2: the row of units below the names of columns is missing"),
    (METRICS_TEXT + RAW_TEXT, "line 26: other columns than before"),
    (REDUCE_TEXT.split("     1048576        262144")[0], "the run ended before its first result"),
    (REDUCE_TEXT.replace("   41.94   25.00", "   25.00"), "line 18: 12 columns where the heading has 13"),
    (REDUCE_TEXT.replace("41.94", "soon"), "line 18: time must be a number from 0, got 'soon'"),
    (REDUCE_TEXT.replace("41.94", "nan"), "line 18: time must be a number"),
    (REDUCE_TEXT.replace("     1048576   ", "   1048576.5   "), "line 18: size must be a number from 0, got '1048576.5'"),
    (REDUCE_TEXT.replace("#  Rank", "#  Task"), "lists no ranks"),
    ("\n".join(x for x in REDUCE_TEXT.splitlines() if "Rank" not in x or "Rank  0" in x), "is a log of one rank"),
    (REDUCE_TEXT.replace("all_reduce_perf", "alltoall_perf"), "is a log of alltoall; only all_reduce, all_gather, reduce_scatter"),
    (REDUCE_TEXT + REDUCE_TEXT.replace("all_reduce", "all_gather"), "holds logs of all_gather, all_reduce"),
    (REDUCE_TEXT.replace("      0", "      7"), "every line has wrong results"),
    (REDUCE_TEXT.replace("float", "int32"), "no line that all_reduce can stand for, only int32 sum"),
    (REDUCE_TEXT.replace("    time", " cputime"), "times of the CPU"),
    (REDUCE_TEXT.replace("(us)", "(ms)"), "times are not in µs"),
    (b"NVR\xff\xfe\x00", "is not text .byte 3.: export a report with `ncu --import REPORT"),
    (b"\xff\xfe", "is not text .byte 0.: it is binary"),
    (b"ID\0", "holds null bytes"),
]


@pytest.mark.parametrize(("content", "said"), BAD, ids=range(len(BAD)))
def test_bad_files(content: str | bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / ("report.ncu-rep" if "export a report" in said else "bad.txt")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(Error, match=said):
        read(path)


def test_a_failed_ncu_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "failed.csv"
    path.write_text("==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - no permission to access GPU counters\n")
    with pytest.raises(Error, match="ncu says 'ERR_NVGPUCTRPERM"):
        read(path, tool="ncu")


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(Error, match="tool must be one of ncu, nccl-tests"):
        read(METRICS, tool="nsys")


def test_what_a_reader_gives_is_what_the_file_says(tmp_path: Path) -> None:
    """Carriage returns and a byte-order mark, as from another system, change nothing."""

    def bare(found: Imported) -> Any:
        return [(m.operator, m.samples_s, m.flops, m.bytes) for m in found.measurements]

    for path in (METRICS, RAW, REDUCE):
        other = tmp_path / path.name
        other.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
        assert bare(read(other)) == bare(read(path))
