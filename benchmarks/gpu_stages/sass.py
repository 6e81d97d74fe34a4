#!/usr/bin/env python3
"""Stage: the machine code of every kernel against what it must be made of.

Alone: sass.py MODULE_OR_CUBIN [--cuobjdump PATH]. Exit code: 0 as expected, 1 not.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __package__:
    from .running import Failed, Run, Unavailable, require, tool

# Wide loads and stores, arithmetic on CUDA and tensor cores, copies without registers, and traffic to local memory (spills).
CLASSES = {
    "global load 128": r"LDG\.E\S*\.128",
    "global load": r"LDG\b",
    "global store 128": r"STG\.E\S*\.128",
    "global store": r"STG\b",
    "shared load 128": r"LDS\S*\.128",
    "shared load": r"LDS\b",
    "shared store": r"STS\b",
    "matrix load": r"LDSM\b",
    "local": r"(?:LDL|STL)\b",
    "FFMA": r"FFMA2?\b",
    "DFMA": r"DFMA\b",
    "HFMA2": r"HFMA2\b",
    "MUFU": r"MUFU\b",
    "HMMA": r"HMMA\b",
    "DMMA": r"DMMA\b",
    "IMMA": r"IMMA\b",
    "IMMA of int4": r"IMMA\.16864\.S4\.S4\b",
    "QMMA": r"QMMA\b",
    "HGMMA": r"HGMMA\b",
    "IGMMA": r"IGMMA\b",
    "QGMMA": r"QGMMA\b",
    "bulk copy": r"UBLKCP\b|UTMALDG\b|UTMASTG\b",
    "async copy": r"LDGSTS\b",
    "barrier": r"BAR\.",
    "mbarrier": r"SYNCS\b",
}
_PATTERNS = {name: re.compile(rf"(?:@!?U?P\w+\s+)?(?:{pattern})") for name, pattern in CLASSES.items()}


@dataclass(frozen=True)
class Expected:
    """kernels, archs: patterns of mangled names and of architectures. has, lacks: classes. loop: least shares of classes in the
    longest innermost loop.
    """

    kernels: str
    has: Sequence[str] = ()
    lacks: Sequence[str] = ()
    loop: Mapping[str, float] = field(default_factory=dict)
    archs: str = r"sm_\d+$"  # portable code


# An SM's partition issues one instruction a cycle: what is not a multiply-add in a peak's loop is a cycle lost.
EXPECTED = (
    Expected("", lacks=("local",), archs=""),
    Expected(r"fma_kernelI\w*(LaneIf|FloatLanes)", loop={"FFMA": 0.95}),
    Expected(r"fma_kernelI\w*HalfLanes", loop={"HFMA2": 0.97}),
    Expected(r"fma_kernelI\w*LaneId", has=("DFMA",)),  # issues every second cycle and later: others fit between
    # They issue every eighth cycle and later; on sm_120 the compiler puts a NOP behind each.
    Expected(r"10mma_kernelI\w*(Fp16|Bf16|Tf32)E", loop={"HMMA": 0.80}, archs=r"sm_(8|9|10|11)\d$"),
    Expected(r"10mma_kernelI\w*(Fp16|Bf16|Tf32)E", loop={"HMMA": 0.45}, archs=r"sm_12\d$"),
    Expected(r"10mma_kernelI\w*Int8E", loop={"IMMA": 0.80}, archs=r"sm_(8|9|10|11)\d$"),
    Expected(r"10mma_kernelI\w*Int8E", loop={"IMMA": 0.45}, archs=r"sm_12\d$"),
    Expected(r"10mma_kernelI\w*Int4E", loop={"IMMA of int4": 0.80}, archs=r"sm_8\d$"),  # later ones have none
    Expected(r"17mma_double_kernelILb0E", has=("DMMA",)),
    Expected(r"13stream_kernelILN\w*Access\w*E0E", has=("global load 128",), lacks=("global store 128",)),  # read
    Expected(r"13stream_kernelILN\w*Access\w*E[2-5]E", has=("global load 128", "global store 128")),
    Expected(r"11tile_kernelI", has=("global store 128",)),
    Expected(r"11tile_kernelILN\w*Access\w*E[2-5]E", has=("global load 128",)),
    Expected(r"11bulk_kernelI", has=("bulk copy", "mbarrier"), archs=r"sm_(9|1\d)\d$"),
    Expected(r"11bulk_kernelI\w*AccessE[0345]E", has=("shared load 128",), archs=r"sm_(9|1\d)\d$"),
    Expected(r"13cached_kernelI", has=("global load 128",)),
    Expected(r"13shared_kernel", has=("shared load 128",)),
    Expected(r"12tiled_kernelI", has=("HMMA", "matrix load", "async copy", "MUFU")),
    Expected(r"split\w*_kernelI", has=("HMMA",)),
    Expected(r"14grouped_kernelI", has=("HMMA", "matrix load", "async copy")),
    Expected(r"23warp_specialized_kernelI", has=("HGMMA", "bulk copy", "mbarrier", "MUFU"), lacks=("HMMA",), archs="sm_90a"),
    Expected(r"13latent_kernelI", has=("HGMMA", "bulk copy", "mbarrier", "MUFU"), lacks=("HMMA",), archs="sm_90a"),
    Expected(r"16mma_wgmma_kernelI\w*(Fp16|Bf16|Tf32)E", has=("HGMMA",), archs="sm_90a"),
    Expected(r"16mma_wgmma_kernelI\w*Int8E", has=("IGMMA",), archs="sm_90a"),
    Expected(r"16mma_wgmma_kernelI\w*Fp8E4m3E", has=("QGMMA",), archs="sm_90a"),
)


@dataclass
class Code:
    """One kernel on one architecture: its instructions by address."""

    arch: str
    kernel: str
    instructions: list[tuple[int, str]] = field(default_factory=list)

    def counts(self, first: int = 0, last: int = sys.maxsize) -> dict[str, int]:
        found: collections.Counter[str] = collections.Counter()
        for address, text in self.instructions:
            if first <= address <= last:
                found.update(name for name, pattern in _PATTERNS.items() if pattern.match(text))
        return dict(found)

    def longest_loop(self) -> tuple[int, int] | None:
        """First and last address of the longest loop without another in it."""
        loops = [
            (int(found[1], 16), address)
            for address, text in self.instructions
            if (found := re.search(r"\bBRA\b.*?\b0x([0-9a-f]+)", text)) and int(found[1], 16) < address
        ]
        inner = [(a, b) for a, b in loops if not any((a, b) != (c, d) and a <= c and d <= b for c, d in loops)]
        return max(inner, key=lambda loop: loop[1] - loop[0], default=None)

    def share(self, name: str) -> float | None:
        """The share of a class in the longest innermost loop; None without a loop."""
        loop = self.longest_loop()
        if loop is None:
            return None
        every = sum(loop[0] <= address <= loop[1] for address, _ in self.instructions)
        return self.counts(*loop).get(name, 0) / every


def parsed(dump: str) -> Iterator[Code]:
    """Kernels of what cuobjdump --dump-sass prints."""
    arch, code = "", None
    for line in dump.splitlines():
        if found := re.search(r"\barch = (sm_\w+)", line):
            arch = found[1]
        elif found := re.search(r"Function : (\S+)", line):
            if code is not None:
                yield code
            code = Code(arch, found[1])
        elif code is not None and (found := re.match(r"\s*/\*([0-9a-f]{4,6})\*/\s+(.*?)\s*;", line)):
            code.instructions.append((int(found[1], 16), found[2]))
    if code is not None:
        yield code


def short(kernel: str) -> str:
    """The mangled name without the project's namespaces and the file's."""
    return re.sub(r"^_ZN8roofline4cuda(?:\d+_GLOBAL__N_\w*?_cu_[0-9a-f]{8})?", "", kernel)


def unexpected(codes: Sequence[Code], expected: Sequence[Expected] = EXPECTED) -> list[str]:
    """What is not as expected, one line each; an expectation that no kernel meets by name is one too."""
    wrong = []
    for want in expected:
        able = [code for code in codes if re.search(want.archs, code.arch)]
        named = [code for code in able if re.search(want.kernels, code.kernel)]
        if able and not named:
            wrong.append(f"there is no kernel named like {want.kernels}")
        for code in named:
            counts = code.counts()
            where = f"{code.arch} {short(code.kernel)}"
            wrong += [f"{where} has no {name}" for name in want.has if not counts.get(name)]
            wrong += [f"{where} has {counts[name]} x {name}" for name in want.lacks if counts.get(name)]
            for name, least in want.loop.items():
                share = code.share(name)
                if share is None:
                    wrong.append(f"{where}: it has no loop, and {name} is to be at least {least:.0%} of one")
                elif share < least:
                    wrong.append(f"{where}: {name} is {share:.1%} of its longest loop, at least {least:.0%} is asked for")
    return wrong


def sass(run: Run) -> dict[str, Any]:
    run.installed()
    dump = tool("cuobjdump")
    module = next((run.prefix / "roofline").glob("_core*.so"))
    listed = run.command(dump, "--list-elf", module)
    images = sorted(set(re.findall(r"\.(sm_\w+)\.cubin", listed.stdout)))
    if listed.code != 0 or not images:
        raise Unavailable(f"cuobjdump lists no machine code in the module: {run.scrub(listed.log.strip())[-200:]}")
    codes = list(parsed(require(run.command(dump, "--dump-sass", module), "cuobjdump --dump-sass").stdout))
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for code in codes:
        counts.setdefault(code.arch, {})[short(code.kernel)] = code.counts()
    (run.out / "sass.json").write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
    found = {"architectures": images, "kernels": len(codes)}
    if wrong := unexpected(codes):
        raise Failed(f"{len(wrong)} expectations are not met", "\n".join(wrong), found | {"unexpected": wrong})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    options = parser.parse_args()
    ran = subprocess.run([options.cuobjdump, "--dump-sass", options.module], text=True, capture_output=True, check=True)
    codes = list(parsed(ran.stdout))
    wrong = unexpected(codes)
    print(*wrong, f"{len(codes)} kernels, {len(wrong)} expectations not met", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
