"""What the stages share: commands with a time limit, tools, nvidia-smi, and what may be kept of a log."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import Done, run_command

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT_CHARACTERS = 40_000  # of a file of a stage's log: its end
TAIL_CHARACTERS = 12_000  # of a log in the summary


class Unavailable(Exception):
    """The stage cannot run here; the message says why."""


class Failed(Exception):
    """The stage ran and did not pass; the message says in what. log: the end of what it printed."""

    def __init__(self, message: str, log: str = "", found: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.log = log
        self.found = found or {}


class Unfinished(Failed):
    """The stage's time was up; what it has is kept, and the next call goes on with it."""


def require(done: Done, what: str) -> Done:
    """`done`; raises Failed unless it ended well in time."""
    if done.timed_out or done.code:
        how = "ran past the stage's time limit" if done.timed_out else f"ended with {done.code}"
        raise Failed(f"{what} {how}", done.log)
    return done


@dataclass(frozen=True)
class Stage:
    name: str
    what: str
    limit_s: float
    needs_gpu: bool
    run: Callable[[Run], dict[str, Any]]
    files: tuple[str, ...] = ()  # of the results, that it goes on with


@dataclass
class Run:
    """out: where results go. work: where things are built. deadline: of the stage, on time.monotonic's clock."""

    out: Path
    work: Path
    deadline: float = 0.0

    @property
    def prefix(self) -> Path:
        return self.work / "prefix"

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(p for p in (str(self.prefix), os.environ.get("PYTHONPATH", "")) if p)
        return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}

    def left_s(self) -> float:
        return max(self.deadline - time.monotonic(), 1.0)

    def command(self, *words: str | Path, extra: dict[str, str] | None = None, limit_s: float | None = None) -> Done:
        """Runs within the stage's limit (and `limit_s`)."""
        return run_command(words, min(self.left_s(), limit_s or float("inf")), self.environment() | (extra or {}), ROOT)

    def scrub(self, text: str) -> str:
        """Without paths, host name and colours: what is kept may be published."""
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
        for place, name in (
            (self.prefix, "<prefix>"),
            (self.work, "<work>"),
            (ROOT, "."),
            (Path.home(), "~"),
            (Path(sys.prefix), "<python>"),
        ):
            if len(place.parts) > 1:
                text = text.replace(str(place), name)
        text = re.sub(r"(?<![\w.<>~)])/(?:[\w.+@-]+/)+([\w.+@-]*)", r"\1", text)
        host = platform.node()
        return re.sub(rf"\b{re.escape(host)}\b", "<host>", text) if len(host) > 3 else text

    def keep(self, name: str, text: str) -> None:
        (self.out / name).write_text(self.scrub(text)[-KEPT_CHARACTERS:])

    def installed(self) -> None:
        if not (self.prefix / "roofline").is_dir():
            raise Unavailable("roofline is not built: the stage build has not passed")


def gpu_missing() -> str:
    """Why there is no GPU; empty if there is one. Asks the driver itself: nvidia-smi may be missing."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1 does not load)"
    if code := driver.cuInit(0):
        return f"the NVIDIA driver finds no usable GPU (cuInit returned {code})"
    count = ctypes.c_int(0)
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    return "" if code == 0 and count.value > 0 else "the NVIDIA driver lists no GPU"


def capability() -> int:
    """Compute capability of the first GPU as one number (90); 0 where there is none."""
    if gpu_missing():
        return 0
    driver, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
    found = []
    for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
        value = ctypes.c_int(0)
        if driver.cuDeviceGet(ctypes.byref(device), 0) or driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return 0
        found.append(value.value)
    return 10 * found[0] + found[1]


def tool(name: str) -> str:
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    path = os.pathsep.join([os.environ.get("PATH", ""), *(f"{p}/bin" for p in places if p)])
    if found := shutil.which(name, path=path):
        return found
    raise Unavailable(f"there is no {name} here")


MOVING = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "clocks_event_reasons.active")


def smi(*fields: str) -> dict[str, str]:
    """nvidia-smi's answers for the first GPU, one question at a time: a driver refuses a whole query for one unknown field."""
    answers = {}
    for field in fields if shutil.which("nvidia-smi") else ():
        asked = subprocess.run(
            ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader", "-i", "0"], text=True, capture_output=True
        )
        if asked.returncode == 0:
            answers[field] = asked.stdout.strip()
    return answers
