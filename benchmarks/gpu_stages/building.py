"""Stages: what the machine is, and the package built for it."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import sys
from typing import Any

from .running import Failed, Run, Unavailable, Unfinished, capability, gpu_missing, require, smi, tool

QUERIES = (
    "name", "driver_version", "compute_cap", "memory.total", "ecc.mode.current", "mig.mode.current", "persistence_mode",
    "power.limit", "power.default_limit", "clocks.max.sm", "clocks.max.mem", "pcie.link.gen.max", "pcie.link.width.max",
)  # fmt: skip
PACKAGES = ("numpy", "torch", "triton", "pytest", "pybind11", "scikit_build_core")


def environment(run: Run) -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for name, words in (("nvcc", ("--version",)), ("cmake", ("--version",)), ("g++", ("--version",))):
        try:
            printed = run.command(tool(name), *words).stdout
            found = re.search(r"\d+\.\d+(\.\d+)+", printed) or re.search(r"\d+\.\d+", printed)
            versions[name] = found[0] if found else "unknown"
        except (Unavailable, OSError):
            versions[name] = "missing"
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "missing"
    return {
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "versions": versions,
        "gpu": smi(*QUERIES),
    }


def build(run: Run) -> dict[str, Any]:
    """Into a folder of its own, so that neither an installed roofline nor a virtual environment is touched.

    What is compiled stays: where few cores do not finish it in time, the next call goes on.
    """
    offline = [name for name in ("scikit_build_core", "pybind11") if importlib.util.find_spec(name) is None]
    isolation = [] if offline else ["--no-build-isolation"]
    shutil.rmtree(run.prefix, ignore_errors=True)
    own = capability()
    extra = {
        "ROOFLINE_CUDA": "ON" if own else os.environ.get("ROOFLINE_CUDA", "AUTO"),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()),
    }
    if own and "CUDAARCHS" not in os.environ:
        extra["CUDAARCHS"] = f"{own}-real"
    done = run.command(
        sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "-v", *isolation, "--no-deps",
        "--config-settings", f"build-dir={run.work / 'compiled'}", "--target", run.prefix, ".", extra=extra,
    )  # fmt: skip
    if done.timed_out:
        raise Unfinished("it takes longer than the stage's time limit here", done.log)
    require(done, f"pip (without {' and '.join(offline)} here, it needs the network)" if offline else "pip")
    program = "import json, roofline._core as c; print(json.dumps([c.build_info(), c.list_devices()]))"
    seen = require(run.command(sys.executable, "-c", program), "loading the built module")
    info, devices = json.loads(seen.stdout)
    if not gpu_missing() and all(d["missing"] for d in devices if d["name"].startswith("cuda")):
        raise Failed(f"there is a GPU, and the module cannot use it: {devices}")
    return {"build_info": info, "devices": devices}
