"""What works here, what does not, why, and the one command that cures it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from .._repr import json_form
from ..errors import Error
from ..measurement import build_info, libraries, list_devices, open_device
from ..measurement.devices import core
from ..measurement.disturbances import THROTTLING
from ..units import MIB, fmt_bytes, fmt_number, fmt_percent, fmt_si
from ..words import counted

OK, WARNING, MISSING = "ok", "warning", "missing"
BUSY = 0.03  # of all cores: above this timings are likely to come out contended

# What works only where a distribution is that the package does not need: name -> what for.
OPTIONAL = {
    "pandas": "Results.to_pandas",
    "polars": "Results.to_polars",
    "ml_dtypes": "bf16 arrays in roofline.run",
    "jsonschema": "checking files against their schemas",
}
_LIBRARY_CURE = {
    "onednn": "pip install onednn-cpu-gomp==2023.2.0",
    "openblas": "pip install scipy-openblas32",
    "cublaslt": "pip install 'cuda-toolkit[cublas]==13.*'",
    "nccl": "pip install nvidia-nccl-cu13",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. state: "ok", "warning" (works, with a caveat) or "missing". cure: what to run or change, if anything."""

    name: str
    state: str
    detail: str
    cure: str = ""

    def to_dict(self) -> dict[str, str]:
        return dict(json_form(self))


def _module() -> Check:
    core()
    info = build_info()
    built = f"version {info['version']}, {info['compiler']}, {info['build_type']}, for {info['processor']}"
    if info["build_type"] in ("Release", "RelWithDebInfo"):
        return Check("compiled module", OK, built)
    cure = "pip install . --config-settings=cmake.build-type=Release"
    return Check("compiled module", WARNING, f"{built}: without optimisation its timings mean little", cure)


def _instruction_sets() -> Check:
    built = str(build_info()["isas"]).split()
    usable = [isa for isa in str(open_device("cpu").facts["isas"]).split(",") if isa]
    limit = os.environ.get("ROOFLINE_ISA", "")
    detail = f"built {', '.join(built)}; usable here {', '.join(usable)}"
    if limit:
        return Check("instruction sets", WARNING, f"{detail}; limited by ROOFLINE_ISA={limit}", "unset ROOFLINE_ISA")
    return Check("instruction sets", OK, detail)


def _devices() -> Iterator[Check]:
    info = build_info()
    for device in list_devices():
        name, missing = device["name"], device["missing"]
        if not missing:
            yield Check(f"device {name}", OK, device["summary"])
            continue
        cure = "install an NVIDIA driver, and check that nvidia-smi lists the GPU"
        if not info["cuda"]:
            cure = "ROOFLINE_CUDA=ON pip install . (in the source folder, with a CUDA 13 toolkit)"
        yield Check(f"device {name}", MISSING, missing, cure)
    if info["cuda"]:
        yield Check("CUDA build", OK, f"CUDA {info['cuda_version']} for {info['cuda_archs']}")


def _flag(facts: Mapping[str, Any], name: str, shown: str) -> str:
    return f"{shown} {'on' if facts[name] else 'off'}" if name in facts else ""


def gpu_checks(name: str, facts: Mapping[str, Any]) -> list[Check]:
    """What a GPU's facts say for its timings. NVML's are there where the driver tells them."""

    def watts(key: str) -> str:
        return f"{fmt_number(facts[key])} W"

    link = f"PCIe {facts['pcie_generation']}.0 ×{facts['pcie_width']}" if {"pcie_generation", "pcie_width"} <= {*facts} else ""
    told = [
        f"driver {facts['driver_release']}" if "driver_release" in facts else "",
        _flag(facts, "ecc", "ECC"),
        _flag(facts, "mig_mode", "MIG"),
        f"compute mode {facts['compute_mode']}" if "compute_mode" in facts else "",
        link,
        f"power limit {watts('power_limit_w')}" if "power_limit_w" in facts else "",
        f"{fmt_si(facts['memory_bytes_per_s'], 'B/s')} by memory clock and bus" if facts.get("memory_bytes_per_s") else "",
    ]
    found: list[Check] = []

    def add(what: str, state: str, detail: str, cure: str = "") -> None:
        found.append(Check(f"{name} {what}", state, detail, cure))

    add("facts", OK, ", ".join(fact for fact in told if fact) or "none are told")
    smi = f"sudo nvidia-smi -i {facts['pci_bus_id']}" if facts.get("pci_bus_id") else "sudo nvidia-smi"
    if "nvml_missing" in facts:
        detail = f"{facts['nvml_missing']}; clocks, power, heat and other processes are not seen"
        add("NVML", WARNING, detail, "NVIDIA_DRIVER_CAPABILITIES=compute,utility (in a container), or reinstall the driver")
    elif not {"clock_reasons", "power_limit_w"} & {*facts}:
        add("NVML", WARNING, "it tells nothing of this GPU's clocks and power: not supported, or not permitted here")
    else:
        add("NVML", OK, "clocks, power, temperature and what holds them are recorded with every measurement")
    limit, default = facts.get("power_limit_w"), facts.get("power_limit_default_w")
    if limit and default and limit < default:
        detail = f"{watts('power_limit_w')}, its default is {watts('power_limit_default_w')}: sustained ceilings are lower"
        add("power limit", WARNING, detail, f"{smi} -pl {default:.0f}")
    if "clock_reasons" in facts:
        reasons = [reason for reason in str(facts["clock_reasons"]).split(",") if reason]
        words = ", ".join(reasons).replace("_", " ")
        if {*reasons} & {*THROTTLING}:
            add("throttling now", WARNING, f"its clocks are held by {words}", "improve its cooling or supply, or let it rest")
        elif "application_clocks" in reasons:
            add("throttling now", WARNING, "its clocks are set by hand: ceilings are those of these clocks", f"{smi} -rac -rgc")
        else:
            add("throttling now", OK, f"no ({words})" if words else "no")
    if facts.get("mig") or facts.get("mig_mode"):
        detail = "an instance (MIG): ceilings are its own, other instances share the memory's and the board's power"
        add("sharing", WARNING, detail, f"{smi} -mig 0 (for all of the GPU)")
    others = facts.get("other_processes")
    if others:
        size = f" with {fmt_bytes(facts['other_processes_bytes'])}" if "other_processes_bytes" in facts else ""
        detail = f"{counted(others, 'other process', 'es')}{size}: timings include their work"
        add("other processes", WARNING, detail, "stop them (nvidia-smi lists them)")
    elif others == 0:
        add("other processes", OK, "none")
    if facts.get("persistence_mode") == 0:
        add("persistence mode", WARNING, "off: the driver starts anew for every program, which takes seconds", f"{smi} -pm 1")
    width, widest = facts.get("pcie_width"), facts.get("pcie_width_max")
    if width and widest and width < widest:
        add("link", WARNING, f"×{width} of ×{widest}: copies from and to the host are slower", "look at the slot, riser and BIOS")
    return found


def _gpus() -> list[Check]:
    names = [device["name"] for device in list_devices() if device["name"].startswith("cuda") and not device["missing"]]
    return [check for name in names for check in gpu_checks(name, open_device(name).core.facts)]


def _libraries() -> Iterator[Check]:
    for library in libraries():
        name = library["name"]
        if library["missing"]:
            yield Check(name, MISSING, library["missing"], _LIBRARY_CURE.get(name, ""))
        else:
            yield Check(name, OK, f"version {library['version']}, {library['path']}")


def quota_cores() -> float | None:
    """Cores that the control groups allow; None where there is no limit, or no way to know."""
    return float(open_device("cpu").facts.get("quota_cores") or 0) or None


def _cores() -> Check:
    present = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    usable = open_device("cpu").threads
    quota = quota_cores()
    detail = f"{usable} used by default; {allowed} of {present} logical processors allowed to this process"
    if quota is not None and quota < allowed:
        detail += f"; the control group's quota is {quota:.3g} cores"
        if quota >= usable:
            return Check("cores", OK, detail)
        detail += ", so threads are stopped in mid-run"
        cure = "raise the quota of the control group to a whole core or more"
    elif allowed < present:
        detail += ": the affinity mask hides the rest"
        cure = f"taskset -c 0-{present - 1} roofline …"
    else:
        return Check("cores", OK, detail)
    return Check("cores", WARNING, detail, cure)


def _huge_pages() -> Check:
    state = str(open_device("cpu").facts.get("huge_pages", "unknown"))
    if state in ("always", "madvise"):
        return Check("huge pages", OK, f"transparent huge pages: {state}")
    cure = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled" if state == "never" else ""
    return Check("huge pages", WARNING, f"transparent huge pages: {state}; bandwidth may come out lower", cure)


def _governor() -> Check:
    name, facts = "frequency governor", open_device("cpu").facts
    governor, virtual = str(facts.get("governor", "unknown")), bool(facts.get("virtual_machine"))
    if governor == "unknown":
        detail = "unknown" + (": this is a virtual machine, and its host decides" if virtual else "")
        return Check(name, OK if virtual else WARNING, detail)
    if governor == "performance":
        return Check(name, OK, governor)
    cure = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    return Check(name, WARNING, f"{governor}: clocks may wander between samples", cure)


def _memory() -> Check:
    device = open_device("cpu")
    available = int(device.core.available_bytes())
    taken = f"probes take {fmt_bytes(device.arena_bytes)} at most and flushes of the caches {fmt_bytes(device.flush_bytes)}"
    detail = f"{fmt_bytes(available)} available, of which {taken}"
    if available < 1024 * MIB:
        return Check("memory", WARNING, f"{detail}: that is little", "close other programs")
    return Check("memory", OK, detail)


def cpu_ticks() -> tuple[int, int, int]:
    """(busy, stolen, total) ticks of all cores."""
    values = [int(v) for v in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    idle, stolen, total = values[3] + values[4], values[7], sum(values[:8])
    return total - idle - stolen, stolen, total


def _contention(wait_s: float) -> Check:
    name = "load right now"
    try:
        before = cpu_ticks()
        time.sleep(wait_s)
        after = cpu_ticks()
    except (OSError, ValueError, IndexError):
        return Check(name, WARNING, "unknown: /proc/stat cannot be read")
    total = max(after[2] - before[2], 1)
    busy, stolen = (after[0] - before[0]) / total, (after[1] - before[1]) / total
    taken = f", the host takes {fmt_percent(stolen, 2)}" if stolen else ""
    detail = f"other work keeps {fmt_percent(busy, 2)} of the cores busy{taken}"
    if busy + stolen > BUSY:
        return Check(name, WARNING, f"{detail}: timings will come out contended", "stop other programs, and repeat")
    return Check(name, OK, detail)


def required() -> list[Requirement]:
    """What the installed package's metadata says that it needs on this machine, without its extras; nothing where it has none."""
    try:
        stated = [Requirement(need) for need in importlib.metadata.requires("roofline") or ()]
    except importlib.metadata.PackageNotFoundError:  # run from its source folder
        stated = []
    return [need for need in stated if need.marker is None or need.marker.evaluate({"extra": ""})]


def _packages() -> Iterator[Check]:
    for need, purpose in [*((need, "") for need in required()), *((Requirement(name), use) for name, use in OPTIONAL.items())]:
        absent, cure = WARNING if purpose else MISSING, f"pip install '{need}'" if need.specifier else f"pip install {need.name}"
        note = f"optional, for {purpose}" if purpose else "needed"
        try:
            version = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            yield Check(need.name, absent, f"not installed; {note}", cure)
            continue
        fits = need.specifier.contains(version, prereleases=True)
        detail = f"version {version}{'' if fits else f', where {need.specifier} is wanted'}; {note}"
        yield Check(need.name, OK, detail) if fits else Check(need.name, absent, detail, cure)


def _guarded(name: str, look: Callable[[], Check | Iterable[Check]]) -> list[Check]:
    """A check that fails is a finding too, and never the end of the others."""
    try:
        found = look()
        return [found] if isinstance(found, Check) else list(found)
    except Error as error:
        cure = "pip install . (in the source folder)" if name == "compiled module" else ""
        cure = "unset ROOFLINE_ISA" if "ROOFLINE_ISA" in str(error) else cure
        return [Check(name, MISSING, str(error), cure)]
    except (OSError, KeyError, ValueError) as error:
        return [Check(name, WARNING, f"could not be looked at: {error!r:.80}")]


def doctor(wait_s: float = 1.0) -> list[Check]:
    """Build, instruction sets, devices, GPUs and their neighbours, libraries, cores, conditions and packages of this machine.

    wait_s: seconds to watch the load of the cores. Never raises for what is missing; details may hold paths, so they are for
    the screen and belong in no file that is published.
    """
    system = Check("Python", OK, f"{platform.python_version()} ({sys.platform}, {platform.machine()})")
    loads = _guarded("compiled module", _module)
    needs_module: dict[str, Callable[[], Check | Iterable[Check]]] = {
        "instruction sets": _instruction_sets, "devices": _devices, "GPUs": _gpus, "libraries": _libraries, "cores": _cores,
        "huge pages": _huge_pages, "frequency governor": _governor, "memory": _memory,
    }  # fmt: skip
    rest = [] if loads[0].state == MISSING else [check for name, look in needs_module.items() for check in _guarded(name, look)]
    rest = [check for i, check in enumerate(rest) if i == 0 or check.detail != rest[0].detail]  # no device opens: said once
    return [system, *loads, *rest, *_guarded("load right now", lambda: _contention(wait_s)), *_guarded("packages", _packages)]
