"""benchmarks/gpu_check where there is no GPU: it says so, claims nothing, and resumes; parsers and tables on made-up results."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from example import fma
from programs import python

from roofline.machine import Ceiling, Machine
from roofline.operators import OPERATORS

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "gpu_check"


@pytest.fixture(scope="module")
def stages(benchmarks: Callable[[str], ModuleType]) -> dict[str, ModuleType]:
    """The modules of gpu_stages by name."""
    names = ("running", "building", "measuring", "proving", "sass", "tables", "side_by_side")
    return {name: benchmarks(f"gpu_stages.{name}") for name in names} | {"all": benchmarks("gpu_stages")}


def run(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python("-B", str(SCRIPT), "--out", str(out), "--work", str(out / "work"), *words)


def test_list_names_every_stage(stages: dict[str, ModuleType]) -> None:
    listed = python("-B", str(SCRIPT), "--list")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [stage.name for stage in stages["all"].STAGES]


def test_all_stages_together_end_within_nine_minutes(stages: dict[str, ModuleType]) -> None:
    *timed, last = stages["all"].STAGES
    assert sum(stage.limit_s for stage in timed) <= 520  # the last gets what is left
    assert last.name == "thorough"


def test_without_a_gpu_nothing_is_passed_that_needs_one(stages: dict[str, ModuleType], tmp_path: Path) -> None:
    if not stages["running"].gpu_missing():
        pytest.skip("there is a GPU here")
    gpu = [stage.name for stage in stages["all"].STAGES if stage.needs_gpu]
    done = run(tmp_path, *(word for name in gpu for word in ("--only", name)))
    assert done.returncode == 3, done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["gpu_missing"]
    assert {name: stage["status"] for name, stage in summary["stages"].items()} == dict.fromkeys(gpu, "unavailable")
    assert all(stage["reason"] for stage in summary["stages"].values())
    assert "| ceilings | unavailable |" in (tmp_path / "tables.md").read_text()


def test_what_has_passed_is_not_run_again(tmp_path: Path) -> None:
    assert "(from before)" not in run(tmp_path, "--only", "environment").stdout
    first = (tmp_path / "summary.json").read_text()
    assert "(from before)" in run(tmp_path, "--only", "environment").stdout
    assert json.loads(first)["stages"] == json.loads((tmp_path / "summary.json").read_text())["stages"]
    assert "(from before)" not in run(tmp_path, "--only", "environment", "--force").stdout


def test_nothing_kept_names_a_place(stages: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = stages["running"]
    monkeypatch.setattr(running.platform, "node", lambda: "secret-host")
    job = running.Run(tmp_path, tmp_path / "work")
    kept = job.scrub(
        f"{running.ROOT}/tests/a.py and /home/someone/.cache/x.log on secret-host at 3 GB/s, naive/sm_90, {tmp_path}/work/r.so"
    )
    assert "someone" not in kept and "secret" not in kept and str(tmp_path) not in kept
    assert "3 GB/s" in kept and "naive/sm_90" in kept and "tests/a.py" in kept


def test_a_command_past_its_limit_is_ended_with_what_it_started(stages: dict[str, ModuleType], tmp_path: Path) -> None:
    job = stages["running"].Run(tmp_path, tmp_path / "work", deadline=time.monotonic() + 1)
    began = time.monotonic()
    done = job.command("sh", "-c", "echo begun; sleep 60 & sleep 60")
    assert time.monotonic() - began < 20
    assert done.timed_out and "begun" in done.stdout
    with pytest.raises(stages["running"].Failed, match="past the stage's time limit") as failed:
        stages["running"].require(done, "it")
    assert "begun" in failed.value.log


DUMP = """
Fatbin elf code:
arch = sm_90
        Function : _ZN8roofline4cuda52_GLOBAL__N__0_9_stream_cu_1234567813stream_kernelE
        /*0010*/                   LDG.E.128.STRONG.GPU R4, desc[UR4][R2.64] ;
        /*0020*/              @!P0 LDG.E R4, desc[UR4][R2.64] ;
        /*0030*/                   STL [R1], R4 ;
        /*0040*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24 ;
        Function : _ZN8roofline4cuda52_GLOBAL__N__0_6_fma_cu_1234567810fma_kernelIfE
        /*0010*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0020*/                   FFMA R12, R10.reuse, UR20, R12 ;
        /*0030*/                   FFMA R13, R10.reuse, UR20, R13 ;
        /*0040*/                   IADD3 R3, R3, 0x1, RZ ;
        /*0050*/              @!P0 BRA 0x20 ;
        /*0060*/                   EXIT ;
        /*0070*/                   BRA 0x70;
"""


def test_instructions_are_counted_by_kernel(stages: dict[str, ModuleType]) -> None:
    stream, fma = stages["sass"].parsed(DUMP)
    assert stream.counts() == {"global load 128": 1, "global load": 2, "local": 1, "HGMMA": 1}
    assert stages["sass"].short(stream.kernel) == "13stream_kernelE"
    assert stages["sass"].short("_ZN8roofline4cuda11bulk_kernelILNS_3AccessE0EfEEvNS0_8BulkWorkE").startswith("11bulk_kernelI")
    assert fma.longest_loop() == (0x20, 0x50)
    assert fma.share("FFMA") == 0.5


def test_what_a_kernel_must_be_made_of_is_missed(stages: dict[str, ModuleType]) -> None:
    sass = stages["sass"]
    codes = list(sass.parsed(DUMP))
    assert not sass.unexpected(codes, [sass.Expected("stream", has=("HGMMA",)), sass.Expected("fma", loop={"FFMA": 0.5})])
    wanted = [
        sass.Expected("", lacks=("local",)),
        sass.Expected("stream", has=("MUFU",), loop={"FFMA": 0.1}),
        sass.Expected("fma", loop={"FFMA": 0.51}),
        sass.Expected("absent"),
        sass.Expected("absent", archs="sm_80"),  # there is no such code
    ]
    assert sass.unexpected(codes, wanted) == [
        "sm_90 13stream_kernelE has 1 x local",
        "sm_90 13stream_kernelE has no MUFU",
        "sm_90 13stream_kernelE: it has no loop, and FFMA is to be at least 10% of one",
        "sm_90 10fma_kernelIfE: FFMA is 50.0% of its longest loop, at least 51% is asked for",
        "there is no kernel named like absent",
    ]


def test_failures_are_known_of_a_run_that_was_ended(stages: dict[str, ModuleType]) -> None:
    progress = "[gw0] [  1%] PASSED tests/a.py::one\n[gw3] [ 12%] FAILED tests/a.py::two[x-1]\n"
    assert stages["proving"].failures(progress) == ["tests/a.py::two[x-1]"]
    alone = "tests/a.py::one PASSED   [  1%]\ntests/a.py::two[x 1] FAILED [  2%]\n"
    assert stages["proving"].failures(alone) == ["tests/a.py::two[x 1]"]
    whole = progress + "=== short test summary info ===\nFAILED tests/a.py::two[x-1] - assert 1 == 2\n"
    assert stages["proving"].failures(whole) == ["FAILED tests/a.py::two[x-1] - assert 1 == 2"]


def test_the_words_for_what_is_left_agree(stages: dict[str, ModuleType]) -> None:
    assert f'"{stages["measuring"].NOT_BEGUN} ' in Path(str(stages["side_by_side"].__file__)).read_text()


def test_what_is_run_beside_pytorch_has_kernels(stages: dict[str, ModuleType]) -> None:
    """Every row is a problem that a CUDA kernel of that variant and dtype is declared for, and no two have one name."""
    found = list(stages["side_by_side"].rows(OPERATORS["stream"].make(access="copy"), "plain"))
    assert len({row.name for row in found}) == len(found) > 20
    for row in found:
        declared = row.problem.variants[row.variant].dtypes.get("cuda", ())
        assert row.problem.to_dict()["dtype"] in declared, row.name
        kinds = {"fused", "two_pass"}
        if row.roof and row.variant in kinds:  # memory-bound ones, of a size at which a launch is nothing
            assert row.problem.compulsory_bytes() >= 256e6, row.name


class OurDevice:
    """Batches of a fixed time, in place of a GPU's."""

    class core:
        @staticmethod
        def sample(sets: Any, step: int, flush_each: bool, *, policy: Any) -> dict[str, Any]:
            return {"samples_s": [2e-3, 2e-3, 4e-3]}


def test_a_ratio_is_theirs_over_ours(stages: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    worker = stages["side_by_side"]
    monkeypatch.setattr(worker, "their_turn", lambda torch, launch, launches: 3e-3)
    seen = worker.turns(None, OurDevice(), [], False, lambda: None)
    assert (seen["ratio"], seen["low"], seen["high"]) == pytest.approx((1.5, 1.5, 1.5))
    assert len(seen["ours_s"]) == len(seen["theirs_s"]) == worker.ROUNDS


def test_what_is_asked_is_what_the_page_says(stages: dict[str, ModuleType]) -> None:
    page = (SCRIPT.parent.parent / "docs" / "probes.md").read_text(encoding="utf-8").split("## Targets on an H200 and an H100")[1]
    cells_of = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.count("|") == 6]
    told = {cells[1]: cells[2:6] for cells in cells_of}
    for access in stages["tables"].BANDWIDTHS["H200"]:
        row = next(cells for what, cells in told.items() if what.startswith(f"DRAM {access}"))
        assert row == [f"{value / 1e12:.2f} TB/s" for gpu in ("H200", "H100") for value in stages["tables"].BANDWIDTHS[gpu][access]]
    for what, asked in (("multiply-adds of the cores", stages["tables"].CORES), ("products by wgmma", stages["tables"].TENSOR)):
        row = next(cells for name, cells in told.items() if name.startswith(what))
        assert row == 2 * [f"{value:.0%}".replace("%", " %") for value in asked]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        *((name, "") for name in ("NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA GH200 480GB", "NVIDIA H100 80GB HBM3 MIG 1g")),
    ],
)
def test_memory_is_judged_where_it_is_known(stages: dict[str, ModuleType], name: str, known: str) -> None:
    assert stages["tables"].bandwidths_asked(name) == stages["tables"].BANDWIDTHS.get(known, {})


def test_tables_hold_ceilings_and_rivals_against_what_is_asked(stages: dict[str, ModuleType], tmp_path: Path) -> None:
    read = Ceiling(probe="stream", level="DRAM", access="read", variant="bulk", samples=(4.65e12, 4.66e12, 4.67e12))
    slow = Ceiling(probe="stream", level="DRAM", access="copy", variant="plain", samples=(3.1e12,))
    # 60e12 / (132 x 256 x 1.9e9) = 93.45 %
    cores = fma(60e12, threads=0, clock_hz=1.9e9, ops_per_cycle=256, problem={"operator": "fma"})
    machine = Machine(name="NVIDIA H200", device="cuda:0", facts={"sms": 132}, ceilings=(read, slow, cores))
    machine.save(tmp_path / "ceilings.json")
    row = {"name": "decode", "variant": "split_kv", "status": "ok", "time_s": 1e-3, "bound": "DRAM", "share_of_bracket": 0.93}
    rival = {"ratio": 0.97, "low": 0.95, "high": 0.99, "theirs_s": [0.97e-3]}
    rivals = {"SDPA": rival, "other": {"missing": "no such backend"}}
    row |= {"roof_asked": [0.88, 0.92], "ratio_asked": [1.0, 1.0], "rivals": rivals}
    (tmp_path / "rivals.json").write_text(json.dumps({"about": {"torch": "2.11", "rounds": 5}, "rows": [row]}))
    lines = stages["tables"].tables(tmp_path, {"stages": {}}).splitlines()
    by_first = {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}
    assert by_first[read.label].endswith("| floor met |")
    assert by_first[slow.label].endswith("| **below the floor** |")
    assert "| 93.5 % | ok | **below the floor** |" in by_first[cores.label]
    assert by_first["decode"].endswith("| 93.0 % | aim met | SDPA | 0.97 ms | 0.970 [0.950, 0.990] | **below the floor** |")
    assert any("no such backend" in line for line in lines)
