"""Devices: opening them, their facts, and the recorded conditions of a run."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.metadata
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..counts import by_key
from ..errors import Error, is_whole
from ..machine import Machine
from ..operators import Operator
from ..prediction import default_variant
from ..words import backend_of
from .arena import Arena, arena_bytes

P = ParamSpec("P")
T = TypeVar("T")

# Library -> (distribution on PyPI, how its file is named there).
_WHEELS = {
    "onednn": ("onednn-cpu-gomp", "libdnnl.so.3"),
    "openblas": ("scipy-openblas32", "libscipy_openblas.so"),
    "cublaslt": ("nvidia-cublas", "libcublasLt.so.13"),
    "nccl": ("nvidia-nccl-cu13", "libnccl.so.2"),
}


_opening = threading.RLock()  # a library is told its path before anybody opens it, a device opened once


def _renew_lock() -> None:
    """In a forked child, where the thread that held the lock may not exist."""
    global _opening
    _opening = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def core() -> ModuleType:
    """The compiled module, told where pip has put the libraries it opens. Raises Error where it does not load."""
    with _opening:
        return _loaded()


@functools.cache
def _loaded() -> ModuleType:
    try:
        from .. import _core
    except ImportError as error:
        raise Error(
            f"the compiled part of roofline does not load ({error}); install it with `pip install .` in the source folder "
            "(the analytic half works without it)"
        ) from error
    for name, (distribution, file_name) in _WHEELS.items():
        try:
            files = importlib.metadata.distribution(distribution).files or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == file_name:
                _core.set_library_path(name, os.path.realpath(str(file.locate())))
                break
    return _core


class Device:
    """One opened device: "cpu" (with a number of threads) or "cuda:0"."""

    def __init__(self, name: str, threads: int = 0) -> None:
        self.core = core().open_device(name, threads)
        self.name: str = self.core.name
        self.facts: Mapping[str, Any] = self.core.facts
        self.threads: int = int(self.facts.get("threads", 0))
        self.kernels: list[dict[str, Any]] = self.core.kernels()
        self.roofs: dict[Any, Any] = {}  # see probing.py
        self.arena_limit: int | None = None

    @functools.cached_property
    def arena(self) -> Arena:
        """The memory of all probes, taken when the first of them is bound."""
        return Arena(self.core, self.arena_bytes)

    @functools.cached_property
    def arena_bytes(self) -> int:
        return arena_bytes(self.core.available_bytes(), self.arena_limit)

    @functools.cached_property
    def flush_bytes(self) -> int:
        """What the first launch on cold memory takes for good, to flush the caches with."""
        return int(self.core.flush_bytes())

    def limit_arena(self, size_bytes: int) -> None:
        """Set the memory of all probes. Raises Error where a probe has been bound already, or where there is not so much."""
        wanted = arena_bytes(self.core.available_bytes(), size_bytes)
        if "arena_bytes" in vars(self) and wanted != self.arena_bytes:
            raise Error(f"{self.name}: the memory of its probes is in use; set its limit before anything is measured")
        self.arena_limit = size_bytes

    @functools.cached_property
    def peers(self) -> tuple[int, ...]:
        """Indices of the other usable GPUs, where this is one."""
        same = [d["name"].partition(":") for d in list_devices() if not d["missing"] and d["name"] != self.name]
        return tuple(int(index) for backend, _, index in same if backend == self.backend and index)

    @property
    def kernel_isas(self) -> tuple[str, ...]:
        """A CPU's instruction sets that this build has kernels for, widest first."""
        built = str(build_info()["isas"]).split()
        return tuple(isa for isa in self.isas.split(",")[::-1] if isa in built)

    def learn(self, facts: Mapping[str, Any]) -> None:
        """Go by the share of the last cache that was found, where `facts` have one."""
        share = int(facts.get("l3_share_bytes") or 0)
        if share and share != self.facts.get("l3_share_bytes"):
            self.facts = {**self.facts, "l3_share_bytes": share}
            self.core.share_last_cache(share)

    @property
    def backend(self) -> str:
        return backend_of(self.name)

    @property
    def isas(self) -> str:
        """A CPU's usable instruction sets, separated by commas."""
        return str(self.facts.get("isas", ""))

    @property
    def title(self) -> str:
        return str(self.facts.get("cpu_name") or self.facts.get("gpu_name") or self.name)

    def missing(self, operator: str, variant: str, dtype: str) -> str:
        """Why this kernel cannot run here; empty if it can."""
        for kernel in self.kernels:
            if (kernel["operator"], kernel["variant"], kernel["dtype"]) == (operator, variant, dtype):
                return str(kernel["missing"])
        here = by_key((k["variant"], k["dtype"]) for k in self.kernels if k["operator"] == operator and not k["missing"])
        have = "; ".join(f"{name} for {', '.join(dict.fromkeys(dtypes))}" for name, dtypes in here.items())
        return f"{self.name} has no {variant} kernel of {operator} for {dtype}" + (f", but {have}" if have else "")

    def default_variant(self, problem: Operator, machine: Machine | None = None) -> str:
        """What runs where no variant is asked for: `prediction.default_variant` for what this device can run."""
        wanted = getattr(problem, "dtype", "fp32")
        return default_variant(machine, problem, self.backend, lambda name: not self.missing(problem.name, name, wanted))


@functools.lru_cache(maxsize=8)
def _opened(name: str, threads: int) -> Device:
    return Device(name, threads)


@contextlib.contextmanager
def measuring(device: Device | None) -> Iterator[None]:
    """While it lasts no other thread of this process measures, and none runs a kernel on `device` (None: kernels may run).

    Threads measure in the order of asking. Raises Error where waiting would never end: in a callable that is being measured.
    """
    with core().measuring, contextlib.nullcontext() if device is None else device.core.turn:
        yield


def exclusive(function: Callable[Concatenate[Device, P], T]) -> Callable[Concatenate[Device, P], T]:
    """`function(device, …)` under `measuring(device)`."""

    @functools.wraps(function)
    def alone(device: Device, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with measuring(device):
            return function(device, *args, **kwargs)

    return alone


def default_device() -> str:
    """The first usable GPU, else the CPU."""
    usable = [d["name"] for d in list_devices() if not d["missing"]]
    return next((name for name in usable if name.startswith("cuda")), "cpu")


def open_device(name: str | Device | None = None, threads: int = 0) -> Device:
    """The device of this name (None: `default_device()`), opened once. threads: of a CPU, 0 for all usable cores.

    Raises Error for an unknown name or too many threads, Unsupported with the reason where there is no such device.
    """
    if isinstance(name, Device):
        return name
    if not is_whole(threads) or not 0 <= threads < 2**16:
        raise Error(f"threads must be a whole number from 0 (all usable cores) to 65535, got {threads!r}")
    if name is not None and (not isinstance(name, str) or not name):
        raise Error(f"device must be a name such as 'cpu' or 'cuda:0', got {name!r:.60}")
    chosen = default_device() if name is None else "cuda:0" if name == "cuda" else name
    with _opening:
        if chosen != "cpu" or not threads or threads == _opened(chosen, 0).threads:
            return _opened(chosen, 0)
        return _opened(chosen, threads)


def list_devices() -> list[dict[str, str]]:
    """Every device, and for a backend without one the reason: dicts of name, summary, missing.

    `[d["name"] for d in list_devices()]` is ["cpu"] without a GPU.
    """
    found: list[dict[str, str]] = core().list_devices()
    return found


def build_info() -> dict[str, Any]:
    """The parts that were built and their tools, and the parts left out and why.

    `build_info()["compiler"]` is "GNU 12.2.0".
    """
    info: dict[str, Any] = core().build_info()
    return info


def libraries() -> list[dict[str, str]]:
    """The libraries the variant `library` uses: dicts of name, version, path, missing."""
    found: list[dict[str, str]] = core().libraries()
    return found


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@functools.cache
def _versions() -> Mapping[str, str]:
    found = {"python": platform.python_version()}
    for distribution in ("roofline", "numpy"):
        try:
            found[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            found[distribution] = "not installed"
    return found


# Facts of a device that say under what conditions it worked.
_SHOWN = (
    "cpu_name", "gpu_name", "isas", "governor", "huge_pages", "virtual_machine", "driver_version", "runtime_version",
    "driver_release", "power_limit_w", "power_limit_default_w", "persistence_mode", "ecc", "mig", "mig_mode", "compute_mode",
    "pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max", "other_processes", "other_processes_bytes",
    "gate", "gate_timeouts",
)  # fmt: skip


def provenance(device: Device, seed: int) -> dict[str, Any]:
    """The conditions of a run. No paths, command lines or host names, so that it can be published."""
    info = build_info()
    kept = ("version", "compiler", "build_type", "isas", "cuda", "cuda_version", "cuda_archs")
    facts = device.facts if device.backend == "cpu" else device.core.facts  # who else is on a GPU changes
    return {
        "versions": {**_versions(), **{lib["name"]: lib["version"] for lib in libraries() if lib["version"]}},
        "build": {key: info[key] for key in kept},
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "device": {key: facts[key] for key in _SHOWN if key in facts},
        "roofline_isa": os.environ.get("ROOFLINE_ISA", ""),
        "seed": seed,
        "utc": utc_now(),
    }
