"""What a reader looks at: the stages, the ceilings against what is asked of the GPU, operators against their roofs and rivals."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roofline._repr import github_table
from roofline.machine import MEMORIES

from .measuring import CEILINGS, RIVALS, THOROUGH

# Bytes/s of memory, by GPU (SXM) and access: least asked for, and aimed at. An H200 gave these kernels 4.72 (read), 4.71, 4.46 and
# 4.27 TB/s; public measurements reach 4.48, 4.28, 4.15 and 4.0 on one, and 3.18, -, 2.97 and 2.90 on an H100.
BANDWIDTHS = {
    "H200": {"read": (4.60e12, 4.70e12), "write": (4.60e12, 4.70e12), "triad": (4.35e12, 4.45e12), "copy": (4.20e12, 4.25e12)},
    "H100": {"read": (3.10e12, 3.20e12), "write": (3.10e12, 3.20e12), "triad": (2.92e12, 3.00e12), "copy": (2.88e12, 3.00e12)},
}
OTHERS = ("PCIe", "NVL", "MIG")  # of the same name, with other memory or a part of it
# Share of operations per clock and SM that the architecture allows, at the clock measured.
CORES, TENSOR = (0.96, 0.98), (0.95, 0.97)


def judged(value: float | None, asked: Sequence[float] | None) -> str:
    """How a value stands to (floor, aim)."""
    if value is None or not asked:
        return ""
    return "aim met" if value >= asked[1] else "floor met" if value >= asked[0] else "**below the floor**"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _median(ceiling: Mapping[str, Any]) -> float:
    return float(statistics.median(ceiling["samples"]))


def bandwidths_asked(gpu: str) -> Mapping[str, tuple[float, float]]:
    """What is asked of the memory of a GPU of this name, by access; nothing where it is no H200 SXM and no H100 SXM."""
    words = gpu.split()
    known = [asked for name, asked in BANDWIDTHS.items() if name in words and not set(OTHERS) & set(words)]
    return known[0] if known else {}


def ceiling_table(machine: Mapping[str, Any]) -> str:
    """Every ceiling with its spread; those of memory and of the arithmetic units against what is asked of them."""
    bandwidths = bandwidths_asked(machine["name"])
    sms = machine["facts"].get("sms") or 0
    best = {
        access: max((_median(c) for c in machine["ceilings"] if c["level"] in MEMORIES and c["access"] == access), default=0.0)
        for access in bandwidths
    }
    rows = []
    for c in machine["ceilings"]:
        value, share, asked = _median(c), None, None
        if c["kind"] == "compute" and c.get("ops_per_cycle") and c.get("clock_hz") and sms:
            share = value / (c["ops_per_cycle"] * c["clock_hz"] * sms)
            operator = c["problem"].get("operator")
            asked = CORES if operator == "fma" else TENSOR if c["variant"] == "wgmma" else None
        stands = judged(share, asked)
        if c["kind"] == "bandwidth" and c["level"] in MEMORIES and value == best.get(c["access"]):
            stands = judged(value, bandwidths[c["access"]])
        rows.append(
            [
                c["label"],
                c["variant"],
                f"{_percent(min(c['samples']) / value - 1)} … +{_percent(max(c['samples']) / value - 1)}",
                str(len(c["samples"])),
                f"{c['clock_hz'] / 1e9:.3f} GHz" if c.get("clock_hz") else "",
                _percent(share),
                c["status"],
                stands,
            ]
        )
    headers = ("ceiling", "variant", "least … most", "n", "SM clock", "of clock × SMs × operations", "state", "asked")
    return github_table(headers, rows)


def rival_table(found: Mapping[str, Any]) -> str:
    rows = []
    for row in found["rows"]:
        share = row.get("share_of_bracket")
        first = [
            row["name"],
            row["variant"],
            f"{1e3 * row['time_s']:.4g} ms" if row.get("time_s") else row["status"],
            row.get("bound", ""),
            _percent(share),
            judged(share, row["roof_asked"]),
        ]
        for name, seen in row["rivals"].items() or [("", {})]:
            ratio = seen.get("ratio")
            shown = f"{ratio:.3f} [{seen['low']:.3f}, {seen['high']:.3f}]" if ratio else seen.get("missing", row.get("reason", ""))
            theirs = f"{1e3 * statistics.median(seen['theirs_s']):.4g} ms" if ratio else ""
            rows.append([*first, name, theirs, shown, judged(ratio, row["ratio_asked"])])
            first = ["", "", "", "", "", ""]
    headers = (
        "problem", "variant", "ours", "bound", "of its bracket", "asked", "rival", "theirs", "theirs / ours [least, most]", "asked",
    )  # fmt: skip
    return github_table(headers, rows)


def tables(out: Path, summary: Mapping[str, Any]) -> str:
    """tables.md from what is in the folder."""
    environment = summary["stages"].get("environment", {}).get("found", {})
    gpu = environment.get("gpu", {})
    lines = [f"# {gpu.get('name') or 'no GPU'}", ""]
    if environment:
        versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
        lines += [f"{environment['os']}, {environment['cpus']} cores; {versions}.", ""]
        lines += [", ".join(f"{name} {value}" for name, value in gpu.items()) + ".", ""] if gpu else []
    rows = [[name, seen["status"], f"{seen['seconds']:.0f} s", seen["reason"]] for name, seen in summary["stages"].items()]
    lines.append(github_table(("stage", "state", "time", "why"), rows))
    for name, title in ((CEILINGS, "Ceilings"), (THOROUGH, "Ceilings, thorough")):
        if (out / name).is_file():
            lines += ["", f"## {title}", "", ceiling_table(json.loads((out / name).read_text())["machines"][0])]
    if (out / RIVALS).is_file():
        found = json.loads((out / RIVALS).read_text())
        about = f"PyTorch {found['about']['torch']}, {found['about']['rounds']} rounds in turns."
        lines += ["", "## Operators", "", about, "", rival_table(found)]
    return "\n".join(lines) + "\n"
