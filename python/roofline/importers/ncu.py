"""Output of `ncu --csv`: kernels as points, and what their units could do as ceilings.

Both pages are read: one metric a row (with the columns Metric Name, Metric Unit and Metric Value) and one kernel a row (`--page
raw`, units in the row below the names). FLOPs as in the roofline sections of Nsight Compute: instructions of threads that are not
predicated off, a multiply-add being two, half-precision ones working on pairs; sm__ops_path_tensor_* are operations already.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import Error
from ..machine import Ceiling
from ..results import Measurement
from ..units import GIGA, KILO, MEGA, MICRO, MILLI, NANO, TERA
from .imported import Imported, Source, machine_from

TOOL = "ncu"
TIMES = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
DRAM = (
    ("dram__bytes.sum",),
    ("dram__bytes_read.sum", "dram__bytes_write.sum"),
    ("dram__bytes_op_read.sum", "dram__bytes_op_write.sum"),
)  # the first of which all are there
# Bytes that each cache serves: L1 without shared memory. Sums and peaks of the same counters, and the cycles of their units.
CACHES: Mapping[str, tuple[str, str]] = {
    "L1": ("l1tex__t_bytes.sum", "l1tex__cycles_elapsed.avg.per_second"),
    "L2": ("lts__t_bytes.sum", "lts__cycles_elapsed.avg.per_second"),
}
PEAK = ".peak_sustained"
MEMORY_CYCLES = "dram__cycles_elapsed.avg.per_second"
UNITS: Mapping[str, tuple[str, str]] = {**CACHES, "DRAM": (DRAM[0][0], MEMORY_CYCLES)}
# FLOPs of one instruction of one thread; 16-bit ones, and those with a 2, work on pairs.
INSTRUCTIONS: Mapping[str, tuple[str, int]] = {
    "fadd": ("fp32", 1), "fmul": ("fp32", 1), "ffma": ("fp32", 2), "fadd2": ("fp32", 2), "fmul2": ("fp32", 2), "ffma2": ("fp32", 4),
    "dadd": ("fp64", 1), "dmul": ("fp64", 1), "dfma": ("fp64", 2), "hadd": ("fp16", 2), "hmul": ("fp16", 2), "hfma": ("fp16", 4),
}  # fmt: skip
SOURCES: Mapping[str, str] = {
    "bf16": "bf16", "fp16": "fp16", "tf32": "tf32", "fp64": "fp64", "fp8": "fp8_e4m3", "int8": "int8", "int4": "int4",
    "fp4": "nvfp4", "fp4_fp6": "nvfp4", "fp4_fp6_fp8": "fp8_e4m3",
}  # fmt: skip
# Operations of the matrix units by what they read and add up in. No GPU has all: Hopper sums fp16 and fp8 over what they are added
# up in, Blackwell has one counter for narrow numbers. ncu says n/a for those that a GPU lacks.
_TENSOR_PATHS = (
    "fp64", "tf32_dst_fp32", "bf16_dst_fp32", "fp16", "fp16_dst_fp16", "fp16_dst_fp32", "fp8", "fp8_dst_fp16", "fp8_dst_fp32",
    "fp4_dst_fp32", "fp4_fp6_dst_fp16", "fp4_fp6_dst_fp32", "fp4_fp6_fp8_dst_fp16", "fp4_fp6_fp8_dst_fp32", "int8", "int4",
)  # fmt: skip
NCU_METRICS = ",".join(
    [
        "gpu__time_duration.sum",
        *(counter for counter, _ in UNITS.values()),
        *(f"sm__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum" for kind in "fdh" for op in ("add", "mul", "fma")),
        "sm__inst_executed_pipe_tensor.sum",
        *(f"sm__ops_path_tensor_src_{path}.sum" for path in _TENSOR_PATHS),
        *(name for counter, cycles in UNITS.values() for name in (counter + PEAK, cycles)),
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
        "sm__cycles_elapsed.avg.per_second",
    ]
)  # what to ask ncu for
AGAIN = "profile again with the metrics that `roofline import --ncu-metrics` prints"

_INSTRUCTION = re.compile(r"sm(?:sp)?__sass_thread_inst_executed_op_(\w+?)_pred_on\.sum(\.peak_sustained)?")
_TENSOR = re.compile(
    r"sm__ops_path_tensor(?:_op_(?P<op>\w+?))?_src_(?P<src>\w+?)(?:_dst_(?P<dst>\w+?))?(?:_sparsity_(?P<sparse>on|off))?\.sum"
    r"(?P<peak>\.peak_sustained)?"
)
_TENSOR_PIPE = re.compile(r"sm__inst_executed_pipe_tensor\w*\.sum")
# Names of kernels on matrix units: their instructions, CUTLASS, cuBLAS (but for sgemm, dgemm and what says simt), attention.
_TENSOR_NAME = re.compile(
    r"(?<![a-z])(?:xmma|wgmma|hmma|imma|dmma|gmma|umma|wmma|mma)(?![a-z])|tensor_?op|tcgen05|nvjet|(?<![a-z])[hi]?gemm"
    r"|flash_?(?:attn|attention|fwd|bwd|decod)|fmha",
    re.IGNORECASE,
)
LONGEST_METRIC = 200  # the patterns above take the square of a name's length
_GROUPED = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_ABSENT = ("", "n/a", "nan", "-nan", "(not found)")
_PREFIXES = {"": 1.0, "K": KILO, "M": MEGA, "G": GIGA, "T": TERA}
_SECONDS = {
    "second": 1.0, "msecond": MILLI, "usecond": MICRO, "nsecond": NANO, "s": 1.0, "ms": MILLI, "us": MICRO, "µs": MICRO, "ns": NANO
}  # fmt: skip
_COUNTED = ("byte", "inst", "cycle", "hz", "sector", "request", "warp", "thread", "block", "register", "wavefront", "op", "flop")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """One kernel launch: metrics in base units, and the line where it begins."""

    line: int
    kernel: str
    block: str
    grid: str
    device: str
    capability: str
    metrics: Mapping[str, float]


def _columns(line: str) -> list[str] | None:
    if not line.lstrip('"').startswith(("ID,", 'ID",')):
        return None
    try:
        found = next(csv.reader([line]))
    except csv.Error:  # a name longer than any
        return None
    return found if "ID" in found else None


def is_ncu(source: Source) -> bool:
    return any(_columns(line) for line in source.lines)


def _scale(unit: str, where: str) -> float:
    """What a value in this unit is multiplied by: "Mbyte" is 1e6, "usecond" 1e-6, "cycle/nsecond" 1e9, "%" and "" are 1."""
    top, _, bottom = unit.strip().partition("/")
    if bottom in _SECONDS:
        return _scale(top, where) / _SECONDS[bottom]
    if top in ("", "%", "ratio", "pct") or (bottom and top.lower() in _COUNTED):
        return 1.0
    if top in _SECONDS:
        return _SECONDS[top]
    for prefix, factor in _PREFIXES.items():
        name = top.removeprefix(prefix) if prefix else top
        if top.startswith(prefix) and (name.lower() in _COUNTED or name.lower().removesuffix("s") in _COUNTED):
            return factor
    raise Error(f"{where}: unknown unit {unit!r:.40}; print base units with `ncu --print-units base`")


def _value(text: str, unit: str, metric: str, where: str) -> float | None:
    """In base units; None where ncu has none."""
    if text.strip().lower() in _ABSENT:
        return None
    plain = text.strip()
    if _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    try:
        value = float(plain)
    except ValueError as error:
        hint = ": with a decimal comma; run ncu under LC_ALL=C" if "," in plain else ""
        raise Error(f"{where}: {metric} is {text!r:.40}, which is not a number{hint}") from error
    value *= _scale(unit, where)
    if not abs(value) < 2**63 and math.isfinite(float(plain)):
        raise Error(f"{where}: {metric} is {text!r:.40}, more than any GPU counts")
    return value if math.isfinite(value) else None


def _wanted(metric: str) -> bool:
    """Metrics that are read; of others neither unit nor value matters."""
    if len(metric) > LONGEST_METRIC:
        return False
    if metric in TIMES or any(metric in names for names in DRAM) or _TENSOR_PIPE.fullmatch(metric):
        return True
    counters = (name for counter, cycles in UNITS.values() for name in (counter, counter + PEAK, cycles))
    known = {"sm__cycles_elapsed.avg.per_second", *counters}
    return metric in known or bool(_INSTRUCTION.fullmatch(metric) or _TENSOR.fullmatch(metric))


def _records(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, row by column name) of the CSV part. Names of columns that occur again are skipped, as after a child process."""
    columns: list[str] | None = None
    for number, line in enumerate(source.lines, start=1):
        found = _columns(line)
        if found is not None:
            if columns is not None and found != columns:
                raise Error(f"{source.where}, line {number}: other columns than before; give each output of ncu a file of its own")
            columns = found
        elif columns is not None and line.strip() and not line.startswith("=="):
            try:
                cells = next(csv.reader([line], strict=True))
            except csv.Error as error:
                raise Error(f"{source.where}, line {number}: no CSV ({error}); the output is cut short there") from error
            if len(cells) < len(columns):
                raise Error(f"{source.where}, line {number}: {len(cells)} columns of {len(columns)}; the output is cut short there")
            yield number, dict(zip(columns, cells, strict=False))
    if columns is None:
        said = next((line.removeprefix("==ERROR==").strip() for line in source.lines if line.startswith("==ERROR==")), "")
        raise Error(
            f"{source.where} has no line of column names: " + (f"ncu says {said!r:.80}" if said else "make it with `ncu --csv`")
        )


def _launches(source: Source) -> list[_Launch]:
    known = "ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device".split(",")
    heads: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}
    metrics: dict[tuple[str, str], dict[str, float]] = {}
    units: dict[str, str] | None = None
    for number, row in _records(source):
        where = f"{source.where}, line {number}"
        if "Kernel Name" not in row:
            raise Error(f"{where} has no column Kernel Name")
        long = "Metric Name" in row
        if long and not {"Metric Unit", "Metric Value"} <= set(row):
            raise Error(f"{where}: there is a column Metric Name, but no Metric Unit and Metric Value beside it")
        if not long and units is None:
            if row["ID"].strip():
                raise Error(f"{where}: the row of units below the names of columns is missing")
            units = row
            continue
        key = (row.get("Process ID", ""), row["ID"])
        heads.setdefault(key, (number, row))
        own = metrics.setdefault(key, {})
        named = (
            [(row["Metric Name"], row["Metric Unit"], row["Metric Value"])]
            if long
            else [(name, (units or {}).get(name, ""), text) for name, text in row.items() if name not in known]
        )
        for metric, unit, text in named:
            if _wanted(metric) and (value := _value(text, unit, metric, where)) is not None:
                own[metric] = value
    found = []
    for key, (number, row) in heads.items():
        size = {name: re.sub(r"\s", "", row.get(name, "")) for name in ("Block Size", "Grid Size")}
        device, capability = row.get("Device", "").strip() or "0", row.get("CC", "")
        found.append(
            _Launch(
                line=number, kernel=row["Kernel Name"].strip(), block=size["Block Size"], grid=size["Grid Size"], device=device,
                capability=capability, metrics=metrics[key],
            )
        )  # fmt: skip
    if not found:
        raise Error(f"{source.where} has names of columns and no kernel: nothing was profiled")
    return found


def _time_s(launch: _Launch) -> float | None:
    return next((launch.metrics[name] for name in TIMES if launch.metrics.get(name, 0) > 0), None)


def _bytes(launch: _Launch) -> dict[str, int] | None:
    for names in DRAM:
        if all(name in launch.metrics for name in names):
            return {name: round(launch.metrics[name]) for name in names}
    return None


def _cache_bytes(launches: list[_Launch]) -> dict[str, int]:
    """Bytes that each cache served, by the names that plans have: medians over launches that all counted them."""
    found = {}
    for level, (counter, _) in CACHES.items():
        if all(counter in launch.metrics for launch in launches):
            found[f"{level.lower()}_served_bytes"] = round(statistics.median(launch.metrics[counter] for launch in launches))
    return found


def _tensor_terms(metrics: Mapping[str, float]) -> tuple[list[tuple[str, str, float]], list[str]]:
    """(term, dtype, operations) of the matrix units, and counters of operations on what has no dtype here.

    A counter that is part of another one, of all accumulators or of dense and sparse, counts where that is not there; one of
    several sources where none of them has a counter of its own that is not 0.
    """
    found = {match[0]: match for match in map(_TENSOR.fullmatch, metrics) if match and not match["peak"]}

    def part(match: re.Match[str], whole: re.Match[str]) -> bool:
        same = all(whole[key] in (None, match[key]) for key in ("op", "dst", "sparse"))
        return match[0] != whole[0] and match["src"] == whole["src"] and same

    kept = {name: match for name, match in found.items() if not any(part(match, other) for other in found.values())}
    worked = {match["src"] for name, match in kept.items() if metrics[name] > 0}
    terms, unknown = [], []
    for name, match in kept.items():
        src = match["src"]
        if worked & set(src.split("_")) - {src}:
            continue
        if src in SOURCES:
            dtype = SOURCES[src]
            terms.append((f"{dtype} tensor{' sparse' if match['sparse'] == 'on' else ''}", dtype, metrics[name]))
        elif metrics[name] > 0:
            unknown.append(name)
    return terms, unknown


def _flops(launch: _Launch) -> tuple[dict[str, int], dict[str, float]] | str:
    """FLOPs by term and by dtype; or why they are not known: no counter of them is there, or matrix units worked uncounted."""
    terms: Counter[str] = Counter()
    dtypes: dict[str, float] = defaultdict(float)
    counted = False
    for metric, value in launch.metrics.items():
        match = _INSTRUCTION.fullmatch(metric)
        if match and not match[2] and match[1] in INSTRUCTIONS:
            counted = True
            dtype, each = INSTRUCTIONS[match[1]]
            terms[f"{dtype} {match[1]}"] = round(value * each)
            dtypes[dtype] += value * each
    tensor, unknown = _tensor_terms(launch.metrics)
    for term, dtype, operations in tensor:
        terms[term] += round(operations)
        dtypes[dtype] += operations
    pipe = [value for metric, value in launch.metrics.items() if _TENSOR_PIPE.fullmatch(metric)]
    if unknown:
        return f"matrix units worked on what has no dtype here ({', '.join(unknown):.100})"
    if any(pipe) and not any(operations for _, _, operations in tensor):
        return f"FLOPs of matrix units not counted; {AGAIN}"
    if not (counted or tensor):
        return f"FLOPs not counted; {AGAIN}"
    if not (tensor or pipe) and _TENSOR_NAME.search(launch.kernel) and "simt" not in launch.kernel.lower():
        return f"by its name {_short(launch.kernel)!r:.60} works on matrix units, and no counter of them is there; {AGAIN}"
    return {term: value for term, value in terms.items() if value}, dtypes


def _short(kernel: str) -> str:
    """void at::native::reduce<float, 4>(int) is reduce."""
    name = kernel.partition("(")[0]
    begin, end = name.find("<"), name.rfind(">")
    name = (name[:begin] + name[end + 1 :] if 0 <= begin < end else name).strip()
    return (re.split(r"\s|::", name)[-1] if name else "") or kernel


def _measurements(launches: list[_Launch], provenance: Mapping[str, Any]) -> tuple[tuple[Measurement, ...], list[str]]:
    groups: dict[tuple[Any, ...], list[tuple[_Launch, float, dict[str, int]]]] = {}
    worked: dict[tuple[Any, ...], tuple[dict[str, int], dict[str, float]]] = {}
    without: Counter[str] = Counter()
    for launch in launches:
        time_s, moved, flops = _time_s(launch), _bytes(launch), _flops(launch)
        if time_s is None or moved is None or isinstance(flops, str):
            what = "no time" if time_s is None else "no DRAM bytes" if moved is None else str(flops)
            without[what] += 1
            continue
        key = (launch.kernel, launch.block, launch.grid, launch.device, tuple(flops[0].items()))
        groups.setdefault(key, []).append((launch, time_s, moved))
        worked[key] = flops
    made = []
    for key, runs in groups.items():
        terms, dtypes = worked[key]
        first = runs[0][0]
        dtype = max(dtypes, key=lambda name: dtypes[name], default="fp32")
        moved = {name: round(statistics.median(each.get(name, 0) for _, _, each in runs)) for name in runs[0][2]}
        plan = {"tool": TOOL, **({"compute_capability": first.capability} if first.capability else {})}
        made.append(
            Measurement(
                operator=_short(first.kernel),
                problem={"kernel": first.kernel, "grid": first.grid, "block": first.block, "dtype": dtype},
                variant=TOOL, device=f"cuda:{first.device}", threads=0, cache_state="user",
                plan=plan | _cache_bytes([launch for launch, _, _ in runs]), samples_s=tuple(time_s for _, time_s, _ in runs),
                flops=terms, bytes=moved, level="DRAM", correctness={"checked": False}, provenance=dict(provenance),
            )
        )  # fmt: skip
    return tuple(made), [f"{count} launches left out: {what}" for what, count in without.items()]


def _ceilings(launches: list[_Launch]) -> tuple[Ceiling, ...]:
    """Peaks at the clocks of the run, one sample a launch: what a unit does each cycle times its cycles each second."""
    samples: dict[tuple[str, ...], list[float]] = {}
    for launch in launches:
        m = launch.metrics
        sm = m.get("sm__cycles_elapsed.avg.per_second")
        for level, (counter, cycles) in UNITS.items():
            if rate := m.get(counter + PEAK, 0.0) * m.get(cycles, 0.0):
                samples.setdefault(("stream", level, ""), []).append(rate)
        for metric, value in m.items():
            found = _INSTRUCTION.fullmatch(metric)
            if sm and value and found and found[2] and found[1] in ("ffma", "dfma", "hfma"):
                dtype, each = INSTRUCTIONS[found[1]]
                samples.setdefault(("fma", dtype, "core"), []).append(sm * value * each)
            tensor = _TENSOR.fullmatch(metric)
            if sm and value and tensor and tensor["peak"] and tensor["sparse"] != "on" and tensor["src"] in SOURCES:
                samples.setdefault(("mma", SOURCES[tensor["src"]], "tensor"), []).append(sm * value)
    reason = "ncu: what the unit could do at the clock of the run; nothing measured it"
    made = []
    for (probe, of, unit), rates in samples.items():
        more: dict[str, Any] = (
            {"level": of, "access": "read", "variant": "plain"} if probe == "stream" else {"dtype": of, "unit": unit}
        )
        made.append(Ceiling(probe=probe, samples=tuple(rates), plan={"tool": TOOL}, source="datasheet", reason=reason, **more))
    return tuple(made)


def from_ncu(source: Source) -> Imported:
    """Points (one a kernel, its launches as samples) and, where the metrics are there, ceilings from output of `ncu --csv`.

    A point has the kernel's DRAM bytes and FLOPs as counted, by term, and in its plan the bytes that L1 (without shared memory) and
    L2 served, for `plot.hierarchy`. Needed are NCU_METRICS or those of `--set roofline`; launches
    without them are left out with a note. Lines of ncu's own (==PROF==) are skipped. Raises Error with the line's number for what
    cannot be read, and naming the metrics where no kernel has them.
    """
    launches = _launches(source)
    capability = next((launch.capability for launch in launches if launch.capability), "")
    provenance = source.provenance(TOOL, compute_capability=capability)
    measurements, notes = _measurements(launches, provenance)
    if not measurements:
        raise Error(f"{source.where} has no kernel with time, DRAM bytes and FLOPs ({'; '.join(notes):.400}): {AGAIN}")
    notes.append("times are those under ncu, which locks the clocks to the base and empties the caches unless it is told otherwise")
    ceilings = _ceilings(launches)
    facts = {"compute_capability": capability} if capability else {}
    machine = (
        machine_from(f"GPU of compute capability {capability or 'unknown'}", ceilings, provenance, facts) if ceilings else None
    )
    return Imported(tool=TOOL, measurements=measurements, machine=machine, notes=tuple(notes))
