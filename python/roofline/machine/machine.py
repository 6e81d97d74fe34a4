"""The ceilings of one device, asked for by what a problem needs of them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .._repr import Parts, Row, Shown, json_form, printable
from ..dtypes import ACCUMULATORS, DTYPES, dtype_name
from ..errors import Error, require_type
from ..operators.base import MIXES
from ..probes import LEVELS, MEMORIES, RATE_UNITS, roofs_of
from ..probes.levels import stated_caches
from ..reading import MACHINE, SCHEMA_VERSION, Text, build, check_version, from_json, read_bytes
from ..units import fmt_si
from ..words import arguments_checked, require_one_of
from .ceiling import UNVERIFIED, Ceiling
from .curve import SizeCurve
from .datasheet import SOURCE, parts_of
from .empirical import EmpiricalRoofline
from .facts import StatedFacts, StatedProvenance
from .files import to_json
from .kernel_time import KernelTime
from .naming import KEYS, counted, number_of, on_paper, peaks_of
from .output import require_replaceable, write_atomically
from .sanity import flags

# Where an access was not measured: the accesses nearest to it by their share of reads, best first.
ACCESS_FALLBACK: Mapping[str, tuple[str, ...]] = {
    "read": ("read", "add", "triad", "copy", "scale", "write"),
    "write": ("write", "copy", "scale", "triad", "add", "read"),
    "copy": ("copy", "scale", "triad", "add", "read", "write"),
    "scale": ("scale", "copy", "triad", "add", "read", "write"),
    "add": ("add", "triad", "copy", "scale", "read", "write"),
    "triad": ("triad", "add", "copy", "scale", "read", "write"),
    # No line is fetched for nothing, as none is by a copy that bypasses the caches.
    "update": ("update", "copy", "scale", "triad", "add", "read", "write"),
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Machine(Shown):
    """One device and its ceilings, what they were over the size of a working set, and over arithmetic intensity.

    Attributes:
        kernels: how long each kernel took on standard problems, from which predictions know what it takes beyond its parts.
        facts: what the backend knows (cpu name, l1_bytes and l2_bytes per core, l3_bytes, isas, threads, ...).
        provenance: versions and conditions of the run.
    """

    name: Text
    device: Text = "cpu"
    facts: StatedFacts = field(default_factory=dict)
    ceilings: tuple[Ceiling, ...] = ()
    curves: tuple[SizeCurve, ...] = ()
    empirical: tuple[EmpiricalRoofline, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    created_utc: Text = ""
    provenance: StatedProvenance = field(default_factory=dict)

    # -- asking for a ceiling ---------------------------------------------------------------------------------------------

    @arguments_checked
    def roofs(self, kind: str, *, sustained: bool = False) -> list[Ceiling]:
        """The ceilings of a kind that problems are held against, or with `sustained` the same under long load; not diagnostic."""
        probes = roofs_of(kind)
        return [c for c in self.ceilings if c.probe in probes and c.sustained == sustained and c.status != "implausible"]

    @arguments_checked
    def of(self, probe: str, *, dtype: str | None = None, threads: int | None = None) -> list[Ceiling]:
        """The plausible bursts of one probe, by its id; of a dtype and with so many threads (None: any)."""
        found = [c for c in self.ceilings if c.probe == probe and c.status != "implausible" and not c.sustained]
        return [c for c in found if dtype in (None, c.dtype) and threads in (None, c.threads)]

    def _select(
        self, kind: str, wanted: Callable[[Ceiling], bool], threads: int | None, what: str, *, sustained: bool = False
    ) -> list[Ceiling]:
        """Roofs of this kind at `threads` (None: the most); measured before datasheet.

        A contended one counts: other load only lowers a rate, so the best of several is still nearest to the roof.
        """
        found = [c for c in self.roofs(kind, sustained=sustained) if wanted(c)]
        found = [c for c in found if c.source == "measured"] or found
        if found and threads is not None:
            counts = sorted({c.threads for c in found})
            found = [c for c in found if c.threads == threads]
            if not found:
                raise Error(
                    f"{self.name}: {what} was measured with {', '.join(map(str, counts))} threads, "
                    f"not with {threads}; measure that too"
                )
        most = max((c.threads for c in found), default=0)
        return [c for c in found if c.threads == most]

    @property
    def on_paper(self) -> bool:
        """Whether nothing of it was measured."""
        return all(c.source != "measured" for c in self.ceilings)

    def levels(self) -> tuple[str, ...]:
        """Memory levels with a bandwidth ceiling, fastest first."""
        probes = roofs_of("bandwidth")
        present = {c.level for c in self.ceilings if c.probe in probes}
        return tuple(level for level in LEVELS if level in present)

    @arguments_checked
    def bandwidth(
        self, level: str | None = None, access: str = "read", threads: int | None = None, *, variant: str | None = None
    ) -> Ceiling:
        """The bandwidth ceiling (bytes/s) of a level: the better of plain (of a GPU: plain, bulk, the driver's) and non-temporal.

        level: None is the slowest one, and so is "DRAM" on a GPU with HBM. access: read, write, copy, scale, add or triad; where it
        was not measured, the nearest that was, in the order of ACCESS_FALLBACK (the ceiling returned says which). threads: None
        is the most threads measured. variant: only this one; "plain" stands for ordinary stores by any kernel. Raises Error
        naming the missing ceiling and how to measure it.
        """
        require_one_of("access", access, MIXES)
        levels = self.levels()
        if not levels:
            raise Error(f"{self.name}: no bandwidth was measured; measure the machine, e.g. with `roofline measure`")
        if level is None or (level in MEMORIES and levels[-1] in MEMORIES):  # of which a machine has one
            level = levels[-1]
        if level not in levels:
            cure = "" if self.on_paper else f"measure stream in {level}, or "
            raise Error(f"{self.name}: no bandwidth of {level} is known, only of {', '.join(levels)}; {cure}ask for one of these")
        for candidate in ACCESS_FALLBACK[access]:

            def wanted(c: Ceiling, access: str = candidate) -> bool:
                own = "plain" if c.variant in ("bulk", "driver") else c.variant
                return c.level == level and c.access == access and variant in (None, c.variant, own)

            found = self._select("bandwidth", wanted, threads, f"{level} {candidate}")
            if found:
                return max(found, key=lambda c: c.value)
        which = f" with variant {variant!r:.80}" if variant else ""
        raise Error(
            f"{self.name}: no usable bandwidth of {level}{which} was measured; "
            f"measure stream (access={access!r:.80}) again on an idle machine"
        )

    @arguments_checked
    def compute(
        self,
        dtype: str,
        accumulator: str | None = None,
        unit: str | None = None,
        threads: int | None = None,
        *,
        sustained: bool = False,
    ) -> Ceiling:
        """The compute ceiling (FLOP/s) of a dtype: the best over instruction sets and whatever else is left open (None).

        sustained: after 10 s and more of load, not a burst. Raises Error naming the missing ceiling and the measured ones.
        """
        dtype = dtype_name(dtype)
        words = (dtype, unit or "", f"accumulating in {accumulator}" if accumulator else "", "sustained" if sustained else "")
        what = " ".join(word for word in words if word)

        def wanted(c: Ceiling) -> bool:
            return c.dtype == dtype and accumulator in (None, c.accumulator or c.dtype) and unit in (None, c.unit)

        found = self._select("compute", wanted, threads, f"{what} compute", sustained=sustained)
        if not found:
            present = ", ".join(sorted({c.name for c in self.ceilings if c.kind == "compute"}))
            only = f", only {present}" if present else ""
            cures = ["" if self.on_paper else f"measure fma in {dtype}", "ask for one of these" if present else ""]
            cure = " or ".join(filter(None, cures)) or f"give its rate, {dtype}=500TFLOP/s"
            raise Error(f"{self.name}: no compute ceiling for {what}{only}; {cure}")
        return max(found, key=lambda c: c.value)

    @arguments_checked
    def ridge(
        self, dtype: str, accumulator: str | None = None, unit: str | None = None, *, level: str | None = None, access: str = "read"
    ) -> float:
        """The ridge point in FLOP/byte: `compute` over `bandwidth`, each the best there is. Raises Error as these do."""
        return self.compute(dtype, accumulator, unit).value / self.bandwidth(level, access).value

    @arguments_checked
    def latency(self, level: str | None = None, threads: int | None = None) -> Ceiling:
        """The floor of one launch in seconds (fork-join on CPUs), or with `level` the load latency of that level.

        Raises Error where it was not measured.
        """
        what = f"load latency of {level}" if level else "launch latency"
        found = self._select("latency", lambda c: c.level == level if level else c.is_floor, threads, what)
        if not found:
            raise Error(f"{self.name}: no {what} was measured; measure {'pointer_chase' if level else 'fork_join or launch'}")
        return min(found, key=lambda c: c.value)

    def link(self) -> Ceiling:
        """The rate (bytes/s) at which a rank receives from the others while it sends as much. Raises Error where none is known."""
        found = self._select("link", lambda c: True, None, "link")
        if not found:
            raise Error(f"{self.name}: no link to other GPUs is known; give its rate in one direction: link_bytes_per_s=450e9")
        return max(found, key=lambda c: c.value)

    def sanity(self) -> list[str]:
        """What does not add up, in plain English; empty where everything does. See `machine.sanity.flags` for the rules."""
        return flags(self.ceilings, self.curves, self.empirical, self.facts)

    def pooled(
        self, problem: Mapping[str, Any], samples: Iterable[float], *, variant: str = "", threads: int | None = None
    ) -> Machine:
        """This machine with more samples of the ceiling that measured `problem` (see `matching`); itself where there is none."""
        match = self.matching(problem, variant=variant, threads=threads)
        if match is None:
            return self
        more = match.pooled(samples)
        return dataclasses.replace(self, ceilings=tuple(more if c is match else c for c in self.ceilings))

    @arguments_checked
    def matching(self, problem: Mapping[str, Any], *, variant: str = "", threads: int | None = None) -> Ceiling | None:
        """The measured ceiling of exactly this problem, variant ("" is any) and threads (None is any), or None."""
        for c in self.ceilings:
            same = c.source == "measured" and not c.sustained and dict(c.problem) == dict(problem)
            if same and variant in ("", c.variant) and threads in (None, c.threads):
                return c
        return None

    # -- files ------------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        return {**json_form(self), "curves": [curve.to_dict(self.facts) for curve in self.curves]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "machine") -> Machine:
        """The inverse of `to_dict`. Raises Error naming `where` and the key."""
        return build(cls, data, where=where)

    @arguments_checked
    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a machine file holding this machine alone; see `save_machines`."""
        save_machines([self], path, force=force)

    @classmethod
    @arguments_checked
    def load(cls, given: str | os.PathLike[str], device: str | None = None) -> Machine:
        """The machine of a file, of a report's folder, of a datasheet's name, or on paper: everything that `--machine` takes.

        given: "machine.json", "roofline-report", "mine.toml" (a datasheet), "H100 SXM", "8xH100" (eight of them: `devices`),
        "2TB/s,bf16=500TFLOP/s" (see `from_peaks`; also link=, memory=, launch=, name=). device: of a file's machines the first of
        this device or name; None is the first. Raises Error for what cannot be read, and for a name that is unknown or ambiguous.
        """
        require_type("a machine", given, (str, os.PathLike), "a name such as 'H100', or a path")
        path, text = Path(given), os.fspath(given)
        if not text.strip():
            raise Error("a machine must be a name such as 'H100', rates, or a path, got an empty word")
        if path.suffix == ".toml" and path.is_file():
            return cls(**parts_of(path))
        file = path / "machine.json" if os.path.isdir(path) else path
        if os.path.exists(file):
            return cls._from_file(file, device)
        count, name = counted(text)
        if count > 1 or name != text:
            one = cls.load(name, device)
            return dataclasses.replace(one, name=f"{count}x{one.name}", facts={**one.facts, "devices": count}) if count > 1 else one
        if on_paper(text):
            return cls.from_peaks(**peaks_of(text))
        if path.suffix == ".json" or os.sep in text:
            return cls._from_file(file, device)
        try:
            return cls.from_datasheet(text)
        except Error:
            if file != path:
                return cls._from_file(file, device)
            if len(several := text.split(",")) == 1:
                raise
            said = f"{text!r:.80} names {len(several)} machines, where one is wanted"
            raise Error(f"{said}: give one of them, such as {several[0].strip()!r:.80}") from None

    @classmethod
    def _from_file(cls, path: Path, device: str | None) -> Machine:
        machines = load_machines(path)
        for machine in machines:
            if device in (None, machine.device, machine.name):
                return machine
        raise Error(f"{os.fspath(path)} has no device {device!r:.80}, only {', '.join(f'{m.device} ({m.name})' for m in machines)}")

    @property
    def devices(self) -> int:
        """How many equal ones it stands for: 8 of "8xH100". Ceilings are of one."""
        return int(self.facts.get("devices", 1))

    @classmethod
    @arguments_checked
    def from_datasheet(cls, name: str) -> Machine:
        """What a vendor states about a device: `Machine.from_datasheet("H100 SXM")`.

        name: of a file in `roofline/hardware` or of the user's (see `hardware.datasheets`), an alias included. Peaks are dense.
        Ceilings have the source "datasheet" and one sample; one that is not verified has a reason, and its label says so. The
        datasheet's bandwidth is the roof; a driver's is in the facts. Raises Error for an ambiguous or unknown name.
        """
        require_type("a datasheet", name, str, "a name such as 'H100 SXM'")
        return cls(**parts_of(name))

    @classmethod
    @arguments_checked
    def from_peaks(
        cls,
        name: str,
        bytes_per_s: float | str,
        *,
        link_bytes_per_s: float | str | None = None,
        memory_bytes: int | str | None = None,
        launch_s: float | str | None = None,
        **flops_per_s: float | str,
    ) -> Machine:
        """A machine on paper: `Machine.from_peaks("A100", 2e12, fp16=312e12, fp32=19.5e12)`, one bandwidth, peaks by dtype.

        Numbers may be words: "2TB/s", "312TFLOP/s". link_bytes_per_s: to other ranks, one way. memory_bytes: of the device.
        launch_s: of one launch. Ceilings have the source "datasheet". Raises Error for an unknown dtype and for rates that are not
        positive.
        """

        def ceiling(**what: Any) -> Ceiling:
            return Ceiling(source=SOURCE, reason="as given", **what)

        require_type("name", name, str, "words such as 'Acme'")
        rate = number_of("bytes_per_s", bytes_per_s)
        found = [ceiling(probe="stream", level="DRAM", access="read", variant="plain", samples=(rate,))]
        for given, peak in flops_per_s.items():
            if given in KEYS:
                raise Error(f"from_peaks: {given} is called {KEYS[given]} here")
            dtype = dtype_name(given)
            samples = (number_of("flops_per_s", peak),)
            found.append(ceiling(probe="fma", dtype=dtype, accumulator=ACCUMULATORS.get(dtype, "fp32"), samples=samples))
        if link_bytes_per_s is not None:
            found.append(ceiling(probe="link", samples=(number_of("link_bytes_per_s", link_bytes_per_s),)))
        if launch_s:
            found.append(ceiling(probe="launch", samples=(number_of("launch_s", launch_s),)))
        facts = {} if memory_bytes is None else {"memory_bytes": number_of("memory_bytes", memory_bytes)}
        return cls(name=name, device="paper", facts=facts, ceilings=tuple(found))

    # -- reprs ------------------------------------------------------------------------------------------------------------

    def _best(self) -> list[Ceiling]:
        """The two ceilings of a one-liner: the slowest level's read, and fp32 (or else the widest dtype there is)."""
        best: list[Ceiling] = []
        if self.levels():
            best.append(self.bandwidth())
        dtypes = [name for name in ("fp32", *DTYPES) if any(c.dtype == name for c in self.roofs("compute"))]
        return [*best, *([self.compute(dtypes[0])] if dtypes else [])]

    def __repr__(self) -> str:
        try:
            best = self._best()
        except Error:
            best = []
        ceilings = ", ".join(c.label for c in best) or f"{len(self.ceilings)} ceilings"
        return printable(f"Machine({self.name!r}, {self.device}, {ceilings})")

    def _table(self) -> Parts:
        headers = ("ceiling", "value", "95 % interval", "p5 … p95", "n", "threads", "clock", "status")
        rows: list[Row] = []
        for c in self.ceilings:
            s, unit = c.summary, RATE_UNITS[c.kind]
            rows.append(
                (
                    c.name,
                    c.stated,
                    c.spread,
                    f"{fmt_si(s.p5, unit)} … {fmt_si(s.p95, unit)}" if s.n > 1 else "",
                    str(s.n),
                    str(c.threads or ""),
                    fmt_si(c.clock_hz, "Hz") if c.clock_hz else "",
                    c.state + (f": {c.reason.removeprefix(f'{UNVERIFIED}: ')}" if c.reason else ""),
                )
            )
        title = ", ".join(part for part in (self.name, self.device, *stated_caches(self.facts), self.created_utc) if part)
        return title, headers, rows, [f"note: {flag}" for flag in self.sanity()]


def save_machines(machines: Sequence[Machine], path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a machine file atomically: the old one stays whole if anything fails, and Error names the path and the cause.

    A file there that is no machine file is refused, unless `force`.
    """
    kind: Literal["machines"] = "machines"
    content = {"schema_version": SCHEMA_VERSION, "kind": kind, "machines": [machine.to_dict() for machine in machines]}
    text = to_json(content, where=f"machine file {os.fspath(path)}", indent=1) + "\n"
    require_replaceable(path, text, force=force)
    write_atomically(path, text)


def load_machines(path: str | os.PathLike[str]) -> tuple[Machine, ...]:
    """All machines of a machine file. Raises Error naming path, place and remedy for a missing, damaged, foreign or newer file."""
    where = f"machine file {os.fspath(path)}"
    data = from_json(read_bytes(path, MACHINE), where=where)
    if not isinstance(data, dict):
        raise Error(f"{where} must hold one JSON object, got {data!r:.60}")
    check_version(data, where=where)
    machines = data.get("machines")
    if data.get("kind") != "machines" or not isinstance(machines, list):
        raise Error(f"{where} has kind {data.get('kind')!r:.60}, not 'machines': is it a results file?")
    if not machines:
        raise Error(f"{where} holds no machine: measure one into it")
    return tuple(Machine.from_dict(item, where=f"{where}, machines[{index}]") for index, item in enumerate(machines))
