"""The doctor: what it looks at, and that a broken installation is a finding and not a crash."""

import importlib.metadata
import json
import platform
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from programs import python

from roofline.doctor import Check, checks as module, doctor
from roofline.errors import Error

ROOT = Path(__file__).parent.parent


def named(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_every_missing_thing_has_a_reason_and_a_cure() -> None:
    pytest.importorskip("roofline._core")
    found = named(doctor(wait_s=0.05))
    assert {"Python", "compiled module", "instruction sets", "cores", "memory", "load right now", "numpy", "device cpu"} <= set(
        found
    )
    for check in found.values():
        assert check.state in ("ok", "warning", "missing")
        assert check.detail
        if check.state == "missing":
            assert check.cure, check
    json.dumps([check.to_dict() for check in found.values()])


def test_a_module_that_does_not_load_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise Error("the compiled part of roofline does not load (no such file)")

    monkeypatch.setattr(module, "core", broken)
    found = named(doctor(wait_s=0.0))
    assert found["compiled module"].state == "missing"
    assert "pip install" in found["compiled module"].cure
    assert "instruction sets" not in found, "nothing else can be asked of it"
    assert found["numpy"].state == "ok"


def test_every_library_of_a_built_backend_is_listed() -> None:
    core = pytest.importorskip("roofline._core")
    found = named(module._libraries())
    assert set(found) == {"onednn", "openblas"} | ({"cublaslt", "nccl"} if core.build_info()["cuda"] else set())
    for check in found.values():
        assert check.state == "ok" or (check.state == "missing" and "install" in check.cure)


def test_one_failing_look_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("roofline._core")

    def failing() -> list[Check]:
        raise OSError("unreadable")

    monkeypatch.setattr(module, "_libraries", failing)
    found = named(doctor(wait_s=0.0))
    assert found["libraries"].state == "warning"
    assert "unreadable" in found["libraries"].detail
    assert "memory" in found


def test_missing_packages_name_their_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPTIONAL", {"no-such-package-of-ours": "nothing"})
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["another-missing-package", "numpy>=999", "pip; extra == 'x'"])
    found = named(module._packages())
    assert found["no-such-package-of-ours"].state == "warning"
    assert found["another-missing-package"].state == "missing"
    assert found["another-missing-package"].cure == "pip install another-missing-package"
    assert found["numpy"].state == "missing" and found["numpy"].cure == "pip install 'numpy>=999'"
    assert "pip" not in found


def test_every_hard_dependency_is_looked_at() -> None:
    installed = {need.name for need in module.required()}
    if not installed:
        pytest.skip("the package runs from its source folder: it has no metadata")
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    here = {re.match(r"[\w-]+", need)[0] for need in stated if ";" not in need or platform.machine() == "x86_64"}  # type: ignore[index]
    assert installed == here
    assert {"threadpoolctl", "numpy"} <= installed


@pytest.mark.parametrize(
    ("quota", "cores", "state", "words"), [(0.0, None, "ok", ""), (0.5, 0.5, "warning", "raise the quota"), (1.5, 1.5, "ok", "1.5")]
)
def test_a_quota_of_the_control_group_is_named(
    monkeypatch: pytest.MonkeyPatch, quota: float, cores: float | None, state: str, words: str
) -> None:
    """How it is read, nested groups of both versions included, is tested with the compiled code (system_test).

    The pool has one thread by default where the quota is 1.5 cores: nothing stops it.
    """

    class Cpu:
        threads, facts = 1, {"quota_cores": quota}

    monkeypatch.setattr(module, "open_device", lambda name: Cpu())
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    assert module.quota_cores() == cores
    check = module._cores()
    assert check.state == state
    assert words in check.detail + check.cure


def test_load_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([(0, 0, 0), (50, 0, 100), (0, 0, 0), (0, 0, 100), (0, 0, 0), (0, 40, 100)])
    monkeypatch.setattr(module, "cpu_ticks", lambda: next(ticks))
    states = [module._contention(0.0) for _ in range(3)]
    assert [check.state for check in states] == ["warning", "ok", "warning"]
    assert "50 %" in states[0].detail
    assert "the host takes 40 %" in states[2].detail


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="control groups and /proc are Linux's")
def test_a_limit_on_instruction_sets_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("roofline._core")
    monkeypatch.setenv("ROOFLINE_ISA", "scalar")
    check = module._instruction_sets()
    assert check.state == "warning"
    assert check.cure == "unset ROOFLINE_ISA"


def test_an_unknown_instruction_set_is_one_finding_with_its_cure() -> None:
    pytest.importorskip("roofline._core")
    out = python("-m", "roofline", "doctor", "--wide", ROOFLINE_ISA="foo").stdout
    assert out.count("unknown instruction set 'foo'") == 1 and "instruction sets: unset ROOFLINE_ISA" in out


H200 = {
    "pci_bus_id": "0000:01:00.0", "ecc": 1, "mig": 0, "mig_mode": 0, "driver_release": "580.65.06", "compute_mode": "default",
    "pcie_generation": 5, "pcie_width": 16, "pcie_width_max": 16, "power_limit_w": 700.0, "power_limit_default_w": 700.0,
    "persistence_mode": 1, "other_processes": 0, "clock_reasons": "gpu_idle", "memory_bytes_per_s": 4.917e12,
}  # fmt: skip


def test_a_healthy_gpu() -> None:
    found = named(module.gpu_checks("cuda:0", H200))
    assert {check.state for check in found.values()} == {"ok"}
    facts = found["cuda:0 facts"].detail
    for words in ("driver 580.65.06", "ECC on", "MIG off", "PCIe 5.0 ×16", "power limit 700 W", "4.92 TB/s"):
        assert words in facts
    assert found["cuda:0 throttling now"].detail == "no (gpu idle)"
    assert found["cuda:0 other processes"].detail == "none"


@pytest.mark.parametrize(
    ("changes", "name", "detail", "cure"),
    [
        ({"nvml_missing": "libnvidia-ml.so.1: cannot open"}, "NVML", "libnvidia-ml.so.1: cannot open", "utility"),
        ({"power_limit_w": 450.0}, "power limit", "450 W, its default is 700 W", "-i 0000:01:00.0 -pl 700"),
        ({"clock_reasons": "hw_thermal_slowdown,hw_slowdown"}, "throttling now", "hw thermal slowdown", "cooling"),
        ({"clock_reasons": "application_clocks"}, "throttling now", "set by hand", "-rgc"),
        ({"mig": 1}, "sharing", "an instance", "-mig 0"),
        ({"other_processes": 2, "other_processes_bytes": 3 << 30}, "other processes", "2 other processes with 3 GiB", "stop them"),
        ({"other_processes": 1}, "other processes", "1 other process: timings", "stop them"),
        ({"persistence_mode": 0}, "persistence mode", "off", "-pm 1"),
        ({"pcie_width": 8}, "link", "×8 of ×16", "slot"),
    ],
)
def test_what_is_wrong_with_a_gpu(changes: dict[str, object], name: str, detail: str, cure: str) -> None:
    found = named(module.gpu_checks("cuda:0", {**H200, **changes}))
    check = found[f"cuda:0 {name}"]
    assert check.state == "warning"
    assert detail in check.detail
    assert cure in check.cure
    assert [c for c in found.values() if c.state != "ok"] == [check]


def test_a_gpu_of_which_nothing_is_told() -> None:
    facts, nvml = module.gpu_checks("cuda:0", {})
    assert (facts.detail, nvml.state) == ("none are told", "warning")
    assert "nothing" in nvml.detail


def test_the_doctor_looks_at_every_usable_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [{"name": "cpu", "missing": ""}, {"name": "cuda:0", "missing": ""}, {"name": "cuda:1", "missing": "wrong"}]
    monkeypatch.setattr(module, "list_devices", lambda: listed)
    monkeypatch.setattr(module, "open_device", lambda name: SimpleNamespace(core=SimpleNamespace(facts=H200)))
    assert {check.name.split()[0] for check in module._gpus()} == {"cuda:0"}
