"""benchmarks/gpu_check where there is no GPU: it says so, claims nothing, and resumes."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "gpu_check"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPT))
    spec = importlib.util.spec_from_loader("gpu_check", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # dataclasses look their module up
    keep, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = keep
    return module


def run(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--work", str(out / "work"), *words]
    return subprocess.run(command, text=True, capture_output=True, timeout=120)


def test_list_names_every_stage(script: ModuleType) -> None:
    listed = subprocess.run([sys.executable, str(SCRIPT), "--list"], text=True, capture_output=True)
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [stage.name for stage in script.STAGES]


def test_without_a_gpu_nothing_is_passed_that_needs_one(script: ModuleType, tmp_path: Path) -> None:
    if not script.gpu_missing():
        pytest.skip("there is a GPU here")
    gpu = [stage.name for stage in script.STAGES if stage.needs_gpu]
    done = run(tmp_path, *(word for name in gpu for word in ("--only", name)))
    assert done.returncode == 3, done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["gpu_missing"]
    assert {name: stage["status"] for name, stage in summary["stages"].items()} == dict.fromkeys(gpu, "unavailable")
    assert all(stage["reason"] for stage in summary["stages"].values())


def test_what_has_passed_is_not_run_again(tmp_path: Path) -> None:
    assert "(from before)" not in run(tmp_path, "--only", "environment").stdout
    first = (tmp_path / "summary.json").read_text()
    assert "(from before)" in run(tmp_path, "--only", "environment").stdout
    assert json.loads(first)["stages"] == json.loads((tmp_path / "summary.json").read_text())["stages"]
    assert "(from before)" not in run(tmp_path, "--only", "environment", "--force").stdout


def test_nothing_kept_names_a_place(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.platform, "node", lambda: "secret-host")
    job = script.Run(tmp_path, tmp_path / "work")
    kept = job.scrub(
        f"{script.ROOT}/tests/a.py and /home/someone/.cache/x.log on secret-host at 3 GB/s, naive/sm_90, {tmp_path}/work/r.so"
    )
    assert "someone" not in kept and "secret" not in kept and str(tmp_path) not in kept
    assert "3 GB/s" in kept and "naive/sm_90" in kept and "tests/a.py" in kept


def test_a_stage_past_its_limit_is_ended_with_what_it_started(script: ModuleType, tmp_path: Path) -> None:
    job = script.Run(tmp_path, tmp_path / "work", deadline=time.monotonic() + 1)
    began = time.monotonic()
    with pytest.raises(script.Failed, match="time limit"):
        job.command("sh", "-c", "echo begun; sleep 60 & sleep 60")
    assert time.monotonic() - began < 20
    assert "begun" in (tmp_path / "timed_out.txt").read_text()
