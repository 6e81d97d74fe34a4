"""benchmarks/peers_cpu: what it reads of other tools, what it concludes, and one run with tools of our own making."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from programs import PYTHONPATH, python

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "peers_cpu"

# likwid-bench 5.2.2 of Debian 12, `-i 100000 -t load_avx -W N:32kB:2`, on two cores of a Zen 3.
LIKWID = """\
Allocate: Process running on hwthread 0 (Domain N) - Vector length 4000/32000 Offset 0 Alignment 512
--------------------------------------------------------------------------------
LIKWID MICRO BENCHMARK
Test: load_avx
--------------------------------------------------------------------------------
Using 1 work groups
Using 2 threads
--------------------------------------------------------------------------------
Group: 0 Thread 0 Global Thread 0 running on hwthread 0 - Vector length 2000 Offset 0
Group: 0 Thread 1 Global Thread 1 running on hwthread 1 - Vector length 2000 Offset 2000
--------------------------------------------------------------------------------
Cycles:			95782176
CPU Clock:		2445374064
Cycle Clock:		2445374064
Time:			3.916870e-02 sec
Iterations:		200000
Iterations per thread:	100000
Inner loop executions:	125
Size (Byte):		32000
Size per thread:	16000
Number of Flops:	0
MFlops/s:		0.00
Data volume (Byte):	3200000000
MByte/s:		81697.89
Cycles per update:	0.239455
Load bytes per element:	8
Store bytes per elem.:	0
--------------------------------------------------------------------------------
"""
# mbw 1.2.2, `-q -n 3 -t0 64`.
MBW = """\
0	Method: MEMCPY	Elapsed: 0.01084	MiB: 64.00000	Copy: 5904.604 MiB/s
1	Method: MEMCPY	Elapsed: 0.02230	MiB: 64.00000	Copy: 2870.341 MiB/s
2	Method: MEMCPY	Elapsed: 0.01362	MiB: 64.00000	Copy: 4700.698 MiB/s
AVG	Method: MEMCPY	Elapsed: 0.01559	MiB: 64.00000	Copy: 4106.071 MiB/s
"""


@pytest.fixture(scope="module")
def script(benchmarks: Callable[[str], ModuleType]) -> ModuleType:
    return benchmarks("peers_cpu")


# -- what other tools print ---------------------------------------------------------------------------------------------------


def test_likwid_is_read(script: ModuleType) -> None:
    found = script.likwid_result(LIKWID)
    assert found == {"time_s": 3.916870e-02, "iterations": 100000, "size_bytes": 32000, "flops_per_s": 0, "bytes_per_s": 81697.89e6}
    # Its own arithmetic: the volume over the time.
    assert found["bytes_per_s"] == pytest.approx(3_200_000_000 / found["time_s"], rel=1e-6)


def test_output_without_a_rate_is_refused(script: ModuleType) -> None:
    with pytest.raises(script.Broken, match="MByte/s"):
        script.likwid_result(LIKWID.replace("MByte/s", "MB/s"))
    with pytest.raises(script.Broken, match="memcpy"):
        script.mbw_rate("mbw: out of memory\n")


def test_mbw_counts_a_copied_byte_once(script: ModuleType) -> None:
    average = 4106.071 * 2**20  # its own, over the three runs
    assert script.mbw_rate(MBW) == pytest.approx(2 * average, rel=1e-3)


def test_a_kernel_for_each_instruction_set(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.platform, "machine", lambda: "x86_64")
    assert script.kernels("load", ["scalar", "avx2", "avx512"]) == ("load_avx512", "load_avx")
    assert script.kernels("peakflops_sp", ["scalar", "avx2"], fma=True) == ("peakflops_sp_avx_fma",)
    assert script.kernels("peakflops", ["scalar"], fma=True) == ("peakflops_sse",)
    monkeypatch.setattr(script.platform, "machine", lambda: "aarch64")
    assert script.kernels("load", ["scalar", "neon"]) == ("load",)


def test_every_row_has_a_pair(script: ModuleType) -> None:
    rows = script.rows(2, ["scalar", "avx2", "avx512"])
    assert {row.stage for row in rows} == set(script.STAGES)
    assert len({(row.what, row.threads, row.tool) for row in rows}) == len(rows)
    assert {row.floor for row in rows if row.stage == "peak"} == {0.99}
    assert {row.what: row.floor for row in rows if row.stage == "load"} == {
        "L1 read": 0.99, "L2 read": 0.97, "L3 read": 0.97, "DRAM read": 0.97
    }  # fmt: skip
    assert {row.threads for row in rows} == {1, 2}
    assert {row.threads for row in script.rows(1, ["scalar"])} == {1}


# -- what is concluded --------------------------------------------------------------------------------------------------------


def outcome(script: ModuleType, ours: list[float], theirs: list[float], floor: float = 0.97, busy: int = 0, **more: Any) -> Any:
    """Rates in GB/s; the first `busy` rounds are disturbed."""
    row = script.Row("load", "DRAM read", 2, "likwid", {"kind": "stream", "level": "DRAM"}, ("load_avx",), floor)

    def turns(rates: list[float]) -> list[Any]:
        idle, disturbed = ({"wall_s": 0.3, "foreign_cores": cores, "stolen_cores": 0.0} for cores in (0.0, 0.7))
        return [script.Turn(r * 1e9, disturbed if i < busy else idle, i >= busy) for i, r in enumerate(rates)]

    return script.Outcome(row, size_bytes=1 << 28, kernel="load_avx", ours=turns(ours), theirs=turns(theirs), **more)


def test_verdicts(script: ModuleType) -> None:
    level = [40.0, 40.1, 39.9, 40.0, 40.2, 40.0, 39.8]

    def verdict(factor: float, **more: Any) -> str:
        return str(script.judged(outcome(script, [factor * rate for rate in level], [40.0] * 7, **more)).verdict)

    assert verdict(1.0) == "met"
    assert verdict(0.9) == "missed"
    assert verdict(0.97) == "not decided: the interval spans the floor"
    assert verdict(0.5, floor=0.0) == "no floor"
    assert verdict(1.0, busy=2) == "met", "five quiet rounds are enough"
    assert verdict(1.0, busy=5) == "not decided: other load in 5 of 7 rounds"
    assert script.judged(outcome(script, [100, 50, 101, 49, 100, 50, 101], [50.0] * 7)).verdict == "not decided: two modes"
    assert script.judged(outcome(script, [], [], missing="not installed (x)")).verdict == "not installed (x)"


def test_disturbed_rounds_do_not_count(script: ModuleType) -> None:
    found = script.judged(outcome(script, [10, 10, 40, 40, 40, 40], [40, 40, 40, 40, 40, 40], busy=2))
    assert (found.ratio, found.low, found.high, found.rounds) == (1.0, 1.0, 1.0, 4)
    assert found.best == 1.0


def test_a_peak_is_held_against_the_clock(script: ModuleType) -> None:
    made = outcome(script, [195.0] * 7, [207.0] * 7, clock_hz=[3.25e9, 3.24e9])
    object.__setattr__(made.row, "ours", {"kind": "fma", "dtype": "fp32"})
    shown = script.share_of_clock(made)
    assert "3.25 GHz × 2 × 32 FLOP/cycle = 208 GFLOP/s: ours 93.8 %, theirs 99.5 %" in shown


ABOUT = {
    "cpu": "AMD EPYC", "usable_cores": 2, "isas": "scalar,avx2", "l1_bytes": 32768, "l2_bytes": 524288, "l3_bytes": 0,
    "os": "Linux", "tools": ["likwid 5.2.2"], "rounds": 7, "turn_s": 0.25, "utc": "2026-01-01", "huge_pages": "madvise",
    "pages": "4 KiB",
}  # fmt: skip


def test_the_table_is_whole(script: ModuleType) -> None:
    outcomes = [
        outcome(script, [41.0] * 7, [40.0] * 7, huge=[44e9] * 7),
        outcome(script, [], [], missing="not installed (apt-get install likwid)"),
    ]
    table = [line for line in script.markdown(outcomes, ABOUT).splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert "1.025 [1.025 … 1.025]" in table[2] and "| met | 44.0 |" in table[2]
    assert "not installed (apt-get install likwid)" in table[3]


# -- one run ------------------------------------------------------------------------------------------------------------------

STUB = """#!/bin/sh
case "$*" in
  -a) for i in _avx512_fma _avx_fma _sse ''; do echo "peakflops$i - x"; echo "peakflops_sp$i - x"; done;;
  -v) echo 'likwid-bench -- Version 5.2.2';;
  *) printf 'Time: 1.0e-02 sec\\nIterations per thread:\\t100\\nSize (Byte):\\t16000\\nMFlops/s:\\t1.00\\nMByte/s:\\t1.00\\n';;
esac
"""


def run(out: Path, tools: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(str(SCRIPT), "--out", str(out), *words, PATH=f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")


def test_a_run_with_a_slow_likwid(tmp_path: Path) -> None:
    pytest.importorskip("roofline._core")
    tool = tmp_path / "likwid-bench"
    tool.write_text(STUB)
    tool.chmod(0o755)
    done = run(tmp_path / "out", tmp_path, "--only", "peak", "--rounds", "2", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "out" / "peers_cpu.json").read_text()
    found = json.loads(text)
    assert (found["schema_version"], found["kind"]) == (1, "peers_cpu")
    assert found["about"]["tools"][0] == "likwid 5.2.2"
    for row in found["rows"]:
        assert len(row["ours"]) == len(row["theirs"]) == 2
        assert row["theirs"][0]["rate"] == 1e6
        assert row["judged"]["ratio"] > 100, "a real multiply-add against 1 MFLOP/s"
    assert str(tmp_path) not in text
    assert "fp32 multiply-add" in (tmp_path / "out" / "peers_cpu.md").read_text()


def test_without_tools_rows_name_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: ModuleType) -> None:
    pytest.importorskip("roofline._core")
    monkeypatch.setattr(script.shutil, "which", lambda name: None)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    monkeypatch.setattr(sys, "argv", ["peers_cpu", "--out", str(tmp_path), "--only", "peak", "--quick"])
    assert script.main() == 3
    rows = json.loads((tmp_path / "peers_cpu.json").read_text())["rows"]
    assert {row["missing"] for row in rows} == {"not installed (apt-get install likwid)"}


def test_a_tool_that_fails_or_hangs_loses_its_row_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: ModuleType) -> None:
    monkeypatch.setattr(script, "TOOL_LIMIT_S", 1.0)
    with pytest.raises(script.Broken, match="sh ended with 3"):
        script.output_of(["/bin/sh", "-c", "exit 3"])
    with pytest.raises(script.Broken, match="sh ran past 1 s"):
        script.output_of(["/bin/sh", "-c", "sleep 60 & sleep 60"])


def test_list_and_usage(tmp_path: Path, script: ModuleType) -> None:
    listed = run(tmp_path, tmp_path, "--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(script.STAGES)
    assert run(tmp_path, tmp_path, "--rounds", "0").returncode == 2
