"""How near the matrix products of the numeric libraries here come to the roof, why not nearer, and what the cure gains.

Every library runs in a process of its own (worker.py), in the environment that the user gave. In turn with it, in this process,
runs the multiply-add roof of the same dtype and number of threads; a cure is an environment for a second process, which takes
turns with the first.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Error
from ..machine import IMPLAUSIBLE, MOVED
from ..measurement import Device, Policy, open_device
from ..measurement.devices import exclusive, provenance
from ..measurement.probing import Ready, compute_probe
from ..measurement.progress import Progress, ProgressOption
from ..units import fmt_percent
from .checks import BUSY, quota_cores
from .findings import Cure, Library, Report, Run
from .rules import VARIABLES, Cpu, Facts, Reason, reasons
from .sessions import WORKER, Broken, Session, Watch

LIBRARIES = ("numpy", "scipy", "torch", "onnxruntime", "roofline")

SIZES = (4096, 2048, 1024, 512)
SMALLEST = SIZES[-1]
# 4096 only where 2048 is over so soon that starting its threads would count.
LARGE_BELOW_S = 0.01
IDLE_S = 0.06  # libgomp and OpenBLAS spin for up to some 30 ms after a call
OPEN_LIMIT_S, TIME_LIMIT_S = 120.0, 90.0
ROOF = Policy(warmup_min_s=0.0, warmup_max_s=0.01, batch_s=3e-3, min_samples=5, min_s=0.0, max_s=0.02, noise=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """rounds: turns of every process; block_s: of one turn; call_s: the longest product, which decides its size."""

    rounds: int
    block_s: float
    call_s: float
    threads: tuple[int, ...]


USUAL = Pace(rounds=4, block_s=0.2, call_s=0.25, threads=(0, 1))
QUICK = Pace(rounds=3, block_s=0.05, call_s=0.05, threads=(0,))


@dataclass(slots=True)
class Turns:
    """What one process did in its turns, with the roof around each."""

    samples_s: list[float] = field(default_factory=list)
    flops_per_s: list[float] = field(default_factory=list)  # one median a turn
    shares: list[float] = field(default_factory=list)
    roof_flops_per_s: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)


def this_cpu() -> Cpu:
    device = open_device("cpu")
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    vendor = re.search(r"^vendor_id\s*: (\S+)", text, re.MULTILINE)
    return Cpu(
        name=device.title,
        vendor=vendor[1] if vendor else "",
        isas=tuple(isa for isa in str(device.facts["isas"]).split(",") if isa),
        cores=device.threads,
        logical=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        quota=quota_cores(),
    )


@exclusive
def _roof(device: Device, probe: Ready) -> float:
    return float(np.median(probe.rates(device.core.sample(probe.sets, policy=ROOF.to_dict())["samples_s"])))


def _interleaved(sessions: Sequence[Session], pace: Pace, request: Mapping[str, Any], device: Any, probe: Ready) -> list[Turns]:
    """Turns of every session between brackets of the roof, in alternating order. Raises Broken."""
    turns = [Turns() for _ in sessions]
    flops = 2 * int(request["size"]) ** 3
    before = _roof(device, probe)
    for round_ in range(pace.rounds):
        for index in range(len(sessions))[:: 1 if round_ % 2 == 0 else -1]:
            reply = sessions[index].ask(TIME_LIMIT_S, do="time", seconds=pace.block_s, **request)
            time.sleep(IDLE_S)
            after = _roof(device, probe)
            rate, seen = flops / float(np.median(reply["samples_s"])), turns[index]
            seen.samples_s += reply["samples_s"]
            seen.flops_per_s.append(rate)
            seen.shares.append(rate / (0.5 * (before + after)))
            seen.roof_flops_per_s += [before, after]
            seen.moved.append(max(before, after) / min(before, after) - 1)
            seen.last = reply
            before = after
    return turns


def _size(session: Session, dtype: str, threads: int, pace: Pace) -> int:
    """The largest product that is over within the pace's time, from the rate of the smallest."""
    reply = session.ask(TIME_LIMIT_S, do="time", dtype=dtype, size=SMALLEST, threads=threads, seconds=0.02)
    smallest_s = min(reply["samples_s"])

    def predicted_s(size: int) -> float:
        return float(smallest_s * (size / SMALLEST) ** 3)

    fitting = (n for n in SIZES if predicted_s(n) <= pace.call_s and (n <= 2048 or predicted_s(2048) < LARGE_BELOW_S))
    return next(fitting, SMALLEST)


class Examination:
    """One library: its process, a process for each cure, and its runs."""

    def __init__(self, library: str, cpu: Cpu, pace: Pace, curing: bool, command: Sequence[str]) -> None:
        self.library, self.cpu, self.pace, self.curing, self.command = library, cpu, pace, curing, command
        self._open: dict[tuple[tuple[str, str | None], ...], Session] = {}

    def session(self, changes: Mapping[str, str | None]) -> Session:
        """Opened when first asked for, and again after it broke. Raises Broken."""
        key = tuple(sorted(changes.items(), key=lambda item: item[0]))
        if key not in self._open:
            made = Session(self.library, changes, self.command)
            self._open[key] = made
            self.opened = made.ask(OPEN_LIMIT_S, do="open")
        return self._open[key]

    def close(self) -> None:
        for session in self._open.values():
            session.close()
        self._open.clear()

    def run(self, dtype: str, asked: int) -> Run:
        device = open_device("cpu", asked)
        probe = compute_probe(device, dtype)
        if probe is None:
            raise Error(f"this CPU has no multiply-add probe for {dtype}")
        empty = Run(library=self.library, dtype=dtype, asked=asked, roof=probe.label)
        environment = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
        try:
            session = self.session({})
            size = _size(session, dtype, asked, self.pace)
            request = {"dtype": dtype, "size": size, "threads": asked}
            with Watch(lambda: time.process_time() + session.cpu_s()) as watch:
                (turns,) = _interleaved([session], self.pace, request, device, probe)
        except Broken as broken:
            self.close()
            if str(broken).startswith("Unsupported:"):
                return dataclasses.replace(empty, status="unsupported", reason=str(broken).partition(": ")[2])
            failed = dataclasses.replace(empty, status="failed", reason=str(broken), environment=environment, size=SMALLEST)
            facts = Facts(library=self.library, dtype=dtype, asked=asked, died=str(broken), environment=environment)
            return self._cured(failed, reasons(self.cpu, facts), device, probe)
        last = turns.last
        kept = {key: last[key] for key in ("blas", "blas_version", "layer", "kernels", "build")}
        made = dataclasses.replace(
            empty, threads=int(last["threads"]), size=size, samples_s=tuple(turns.samples_s), shares=tuple(turns.shares),
            roof_samples=tuple(turns.roof_flops_per_s), busy_cores=last["cpu_s"] / max(last["wall_s"], 1e-9), load=watch.load,
            environment=session.environment, **kept,
        )  # fmt: skip
        moved, status, reason = float(np.median(turns.moved)), "ok", ""
        if watch.load["foreign_cores"] + watch.load["stolen_cores"] > BUSY * (os.cpu_count() or 1):
            status, reason = "contended", f"others kept {watch.load['foreign_cores']:.2f} cores busy"
            reason += f", the host took {watch.load['stolen_cores']:.2f}" if watch.load["stolen_cores"] >= 0.005 else ""
        elif moved > MOVED:
            status, reason = "roof_moved", f"the roof moved by {fmt_percent(moved, 2)} around its turns"
        elif made.share is not None and made.share > IMPLAUSIBLE:
            status = "implausible"
            reason = f"{fmt_percent(made.share)} of the roof: its work did not happen as counted, or on units beside the probe's"
        made = dataclasses.replace(made, status=status, reason=reason)
        if status == "ok" and not made.below:
            return made
        facts = Facts(library=self.library, dtype=dtype, asked=asked, threads=made.threads, environment=session.environment, **kept)
        return self._cured(made, reasons(self.cpu, facts), device, probe)

    def _cured(self, run: Run, found: Sequence[Reason], device: Any, probe: Ready) -> Run:
        """`run` with its reasons, and with the cure tried where one is known."""
        run = dataclasses.replace(run, why=tuple(reason.why for reason in found))
        changes: dict[str, str | None] = {}
        for reason in found:
            changes |= reason.cure
        if not changes or not self.curing:
            return run if not changes else dataclasses.replace(run, cure=Cure(environment=changes, reason="not tried"))
        request = {"dtype": run.dtype, "size": run.size, "threads": run.asked}
        try:
            cured = self.session(changes)
            if run.status == "failed":
                (turns,) = _interleaved([cured], self.pace, request, device, probe)
                cure = Cure(environment=changes, after_samples_s=tuple(turns.samples_s), share=float(np.median(turns.shares)))
                return dataclasses.replace(run, cure=cure)
            given, turns = _interleaved([self.session({}), cured], self.pace, request, device, probe)
        except Broken as broken:
            self.close()
            return dataclasses.replace(run, cure=Cure(environment=changes, reason=str(broken)))
        gains = tuple(after / before for before, after in zip(given.flops_per_s, turns.flops_per_s, strict=True))
        cure = Cure(
            environment=changes, before_samples_s=tuple(given.samples_s), after_samples_s=tuple(turns.samples_s), gains=gains,
            share=float(np.median(turns.shares)),
        )  # fmt: skip
        return dataclasses.replace(run, cure=cure)


def _examined(library: str, cpu: Cpu, pace: Pace, curing: bool, command: Sequence[str]) -> Iterator[Library | Run]:
    """The library, and then its runs."""
    if importlib.util.find_spec(library) is None:
        yield Library(name=library, state="absent", reason="not installed")
        return
    looked = Examination(library, cpu, pace, curing, command)
    try:
        try:
            looked.session({})
        except Broken as broken:
            yield Library(name=library, state="broken", reason=str(broken))
            return
        opened = looked.opened
        yield Library(name=library, state="ok", version=str(opened["version"]))
        unsupported = set()
        for asked in pace.threads if cpu.cores > 1 else pace.threads[:1]:
            for dtype in (name for name in opened["dtypes"] if name not in unsupported):
                run = looked.run(dtype, asked)
                if run.status == "unsupported":
                    unsupported.add(dtype)  # whatever the threads
                yield run
    finally:
        looked.close()


def time_libraries(
    names: Sequence[str] = LIBRARIES,
    *,
    quick: bool = False,
    cure: bool = True,
    progress: ProgressOption = None,
    command: Sequence[str] = WORKER,
) -> Report:
    """Times the GEMM of every library against the multiply-add roof, says why one is below `BELOW`, and tries its cure.

    names: of `LIBRARIES`. quick: smaller products, all cores only. cure: False names a cure without trying it. command: of the
    worker process. A library that is absent, does not import, crashes or hangs is a finding; raises Error where the compiled
    module does not load, and for an unknown name.
    """
    unknown = [name for name in names if name not in LIBRARIES]
    if unknown:
        raise Error(f"unknown library {', '.join(unknown)}; there are {', '.join(LIBRARIES)}")
    cpu, pace = this_cpu(), QUICK if quick else USUAL
    libraries: list[Library] = []
    runs: list[Run] = []
    with Progress(progress, len(names)) as shown_progress:
        for name in names:
            shown_progress.step(name)
            for found in _examined(name, cpu, pace, cure, command):
                libraries.append(found) if isinstance(found, Library) else runs.append(found)
    return Report(cpu=cpu, libraries=tuple(libraries), runs=tuple(runs), provenance=provenance(open_device("cpu"), 1))
