"""Logs of nccl-tests: points of collectives, and the measured link between ranks as a ceiling.

A line has the bytes of a collective, its time out of place and in place, and two bandwidths: algbw = size / time, and busbw, which
counts what a ring would send. Ours comes from size and time by the operators' own counts, and busbw is only compared with it.
Format: https://github.com/NVIDIA/nccl-tests, src/common.cu; meaning: doc/PERFORMANCE.md there.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..counts import by_key
from ..dtypes import dtype as dtype_named
from ..errors import Error
from ..machine import Ceiling, memory_level
from ..operators import AllGather, AllReduce, Operator, ReduceScatter
from ..results import Measurement
from ..units import GIGA, MICRO, fmt_bytes, fmt_si
from .imported import Imported, Source, machine_from

TOOL = "nccl-tests"
COLLECTIVES: Mapping[str, type[Operator]] = {cls.name: cls for cls in (AllReduce, AllGather, ReduceScatter)}
_DTYPES = {
    "float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64", "int8": "int8", "f8e4m3": "fp8_e4m3",
    "fp8e4m3": "fp8_e4m3", "f8e5m2": "fp8_e5m2", "fp8e5m2": "fp8_e5m2",
}  # fmt: skip
_LAUNCHER = re.compile(r"^\[[\d,]+\]<std(?:out|err)>:\s?|^\s*\d+:\s(?=[# ]\s)")  # what mpirun and srun put in front of a line
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+\S+\s+device\s+\d+\s+\[[^\]]*\]\s+(\S.*)")
_NAMED = re.compile(r"\b(\w+)_perf\b")
_VERSION = re.compile(r"nccl-tests version (\S+)")
_LIBRARY = re.compile(r"nccl-library=(\d+)")
_COLUMNS = ("size", "count", "type", "redop", "time", "algbw", "busbw")
LEAST = 1e-6  # a shorter time in µs is none, and its rate has no end
BUSBW_AGREES = 0.03  # the log rounds to two decimals


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One line: bytes, type and operation as the log has them, times of both ways in seconds, their busbw, wrong elements."""

    line: int
    size_bytes: int
    type: str
    redop: str
    times_s: tuple[float, ...]
    busbw: tuple[float, ...]
    wrong: float | None


def _plain(source: Source) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(source.lines, start=1):
        yield number, _LAUNCHER.sub("", line)


def _header(line: str) -> list[str] | None:
    words = line.lstrip("# ").split()
    return words if line.lstrip().startswith("#") and set(_COLUMNS) - {"time"} <= set(words) else None


def is_nccl_tests(source: Source) -> bool:
    return any(_header(line) for _, line in _plain(source))


def _number(text: str, what: str, where: str, kind: type[Any] = float) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**63:
        raise Error(f"{where}: {what} must be a number from 0, got {text!r:.40}")
    return value


def _time_s(text: str, where: str) -> float:
    value: float = _number(text, "time", where)
    if 0 < value < LEAST:
        raise Error(f"{where}: time must be 0 or at least {LEAST:g} µs, got {text!r:.40}")
    return value * MICRO


def _row(words: list[str], header: list[str], line: int, where: str) -> _Row:
    if len(words) < len(header):
        raise Error(f"{where}: {len(words)} columns where the heading has {len(header)}; the log is cut short there")
    at = by_key(zip(header, words, strict=False))
    wrong = at.get("#wrong", at.get("error", []))
    # `error` is the largest deviation of older versions, and not a count: only zero is known to be right.
    counts = [_number(word, "#wrong", where) for word in wrong if word.upper() != "N/A"]
    return _Row(
        line=line, size_bytes=_number(at["size"][0], "size", where, int), type=at["type"][0], redop=at["redop"][0],
        times_s=tuple(_time_s(word, where) for word in at["time"]),
        busbw=tuple(_number(word, "busbw", where) for word in at["busbw"]),
        wrong=max(counts) if counts and "#wrong" in at else None,
    )  # fmt: skip


def _rows(source: Source) -> list[_Row]:
    header: list[str] | None = None
    found = []
    for number, line in _plain(source):
        where = f"{source.where}, line {number}"
        if (words := _header(line)) is not None:
            if "cputime" in words or "time" not in words:
                raise Error(f"{where}: times of the CPU (-C 1) are not times of the link; run it without")
            header = words
        elif header and "(us)" not in line and line.lstrip().startswith("#") and "(B)" in line:
            raise Error(f"{where}: times are not in µs; this format is not known")
        elif header and (words := line.split()) and words[0].replace(".", "").isdigit():
            found.append(_row(words, header, number, where))
    if not found:
        raise Error(f"{source.where} has no line with a size and a time: the run ended before its first result")
    return found


def _ranks(source: Source) -> tuple[int, str]:
    """Ranks of one collective (the first group's), and the devices' name."""
    groups: dict[str, set[int]] = {}
    names: Counter[str] = Counter()
    for _, line in _plain(source):
        if match := _RANK.match(line.lstrip()):
            groups.setdefault(match[2] or "0", set()).add(int(match[1]))
            names[match[3].rstrip()] += 1
    if not groups:
        raise Error(f"{source.where} lists no ranks (`# Rank 0 … device 0 …`), so what went over a link is not known")
    return len(next(iter(groups.values()))), names.most_common(1)[0][0]


def _collective(source: Source, given: str | None) -> type[Operator]:
    named = {match[1] for _, line in _plain(source) for match in [_NAMED.search(line)] if match}
    if len(named) > 1:
        raise Error(f"{source.where} holds logs of {', '.join(sorted(named))}: give each a file of its own")
    name = given or next(iter(named), "")
    if given and named and given not in named:
        raise Error(f"{source.where} is a log of {next(iter(named))}, not of {given}")
    if not name:
        raise Error(f"{source.where} does not name its collective: give one of {', '.join(COLLECTIVES)}")
    if name not in COLLECTIVES:
        raise Error(f"{source.where} is a log of {name}; only {', '.join(COLLECTIVES)} are known here")
    return COLLECTIVES[name]


def _problem(cls: type[Operator], row: _Row, ranks: int) -> Operator | None:
    """None for a dtype or an operation that the operator lacks."""
    name = _DTYPES.get(row.type)
    if name is None or not row.size_bytes or row.redop not in ("sum", "prod", "max", "min", "none"):
        return None
    elements = row.size_bytes * 8 // dtype_named(name).bits
    try:
        return cls.make(elements=elements, ranks=ranks, dtype=name)
    except Error:
        return None


def _measurement(problem: Operator, row: _Row, provenance: Mapping[str, Any]) -> Measurement:
    times = tuple(t for t in row.times_s if t > 0)
    failed = bool(row.wrong)
    return Measurement(
        operator=problem.name,
        problem=problem.to_dict(),
        variant="nccl",
        device="cuda:0",
        threads=0,
        cache_state="user",
        status="failed" if failed else "ok",
        reason=f"{row.wrong:.0f} wrong elements" if failed else "",
        plan={"implementation": "NCCL", "tool": TOOL, "link_bytes": problem.link_bytes()},
        samples_s=() if failed else times,
        flops=problem.flops(),
        bytes={"compulsory": problem.compulsory_bytes()},
        level=memory_level(provenance),
        correctness={"checked": row.wrong is not None, **({"passed": not failed} if row.wrong is not None else {})},
        provenance=dict(provenance),
    )


def from_nccl_tests(source: Source, collective: str | None = None) -> Imported:
    """Points (one a line) and the link as a ceiling from a log of all_reduce_perf, all_gather_perf or reduce_scatter_perf.

    collective: all_reduce, all_gather or reduce_scatter, for logs that do not name theirs. The ceiling is what one rank receives a
    second, and sends as much, at the message size where that is most, both ways (out of place and in place) as samples. Lines with
    wrong results become failed points. Raises Error with the line's number for what cannot be read, and for logs of one rank.
    """
    rows = _rows(source)
    ranks, name = _ranks(source)
    cls = _collective(source, collective)
    if ranks < 2:
        raise Error(
            f"{source.where} is a log of one rank: nothing went over a link (nccl-tests built without MPI runs as many times alone)"
        )
    text = "\n".join(source.lines)
    version, library = (match[1] if (match := pattern.search(text)) else "" for pattern in (_VERSION, _LIBRARY))
    provenance = source.provenance(TOOL, version=version, nccl=library, collective=cls.name, ranks=ranks, gpu_name=name)
    points: list[tuple[_Row, Operator, Measurement]] = []
    left_out: Counter[str] = Counter()
    for row in rows:
        problem = _problem(cls, row, ranks)
        if problem is None or not any(row.times_s):
            left_out[f"{row.type} {row.redop}" if row.size_bytes and any(row.times_s) else "empty"] += 1
        else:
            points.append((row, problem, _measurement(problem, row, provenance)))
    if not points:
        raise Error(f"{source.where} has no line that {cls.name} can stand for, only {', '.join(left_out)}")
    notes = [f"{count} lines left out: {what}" for what, count in left_out.items()]
    good = [(row, problem, m) for row, problem, m in points if m.status == "ok"]
    if len(good) < len(points):
        notes.append(f"{len(points) - len(good)} lines with wrong results: no ceiling is made of them")
    if not good:
        raise Error(f"{source.where}: every line has wrong results, so none is a measurement of the link")
    machine = machine_from(name, (_link(good, ranks),), provenance, {"ranks": ranks})
    row, _, least = min(good, key=lambda point: point[0].size_bytes)
    notes.append(
        f"the smallest message, {fmt_bytes(row.size_bytes)}, takes {fmt_si(least.time_s, 's')}: "
        "a collective's latency is no more (--link-latency of `roofline predict`)"
    )
    notes += _busbw_notes(good)
    return Imported(tool=TOOL, measurements=tuple(m for _, _, m in points), machine=machine, notes=tuple(notes))


def _rates(problem: Operator, m: Measurement) -> tuple[float, ...]:
    return tuple(problem.link_bytes() / sample for sample in m.samples_s)


def _link(good: list[tuple[_Row, Operator, Measurement]], ranks: int) -> Ceiling:
    """What a rank receives per second, and sends as much, at the size where that is most."""
    problems = {row.size_bytes: problem for row, problem, _ in good}
    by_size = by_key((row.size_bytes, rate) for row, problem, m in good for rate in _rates(problem, m))
    size = max(by_size, key=lambda each: statistics.median(by_size[each]))
    problem = problems[size]
    return Ceiling(
        probe="link",
        samples=tuple(by_size[size]),
        problem={"operator": problem.name, **problem.to_dict()},
        plan={"tool": TOOL, "ranks": ranks, "size_bytes": size},
        reason=f"nccl-tests, {problem.name} over {ranks} ranks, {fmt_bytes(size)}",
    )


def _busbw_notes(good: list[tuple[_Row, Operator, Measurement]]) -> Iterator[str]:
    row, problem, m = max(good, key=lambda point: point[0].size_bytes)
    pairs = [(stated, ours / GIGA) for stated, ours in zip(row.busbw, _rates(problem, m), strict=False) if stated > 0]
    off = [stated / ours for stated, ours in pairs if abs(stated / ours - 1) > BUSBW_AGREES]
    if off:
        yield (
            f"busbw of the log is {off[0]:.2f} × what a ring sends in that time: it was counted otherwise (in-network reduction?), "
            "and this ceiling is that of a ring which takes as long"
        )
