#!/usr/bin/env python3
"""Compiles every CUDA kernel for every architecture and fails on a register spill or a serialisation warning of ptxas (C75xx).

Usage: python3 cmake/spill_check.py [--archs "80 90"] [--nvcc PATH] [FILE.cu ...]
No GPU is needed. Architectures this nvcc does not know are named and left out. Exit codes: 0 clean, 1 not, 2 no compiler.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHS = "80 86 89 90 100 120"  # what releases are built for

# (kernel's name, architecture) -> why its spill is accepted.
ACCEPTED: dict[tuple[str, str], str] = {}


@dataclass
class Kernel:
    file: str
    name: str
    arch: str
    registers: int = 0
    shared_bytes: int = 0
    spill_bytes: int = 0


def find_nvcc(given: str | None) -> str | None:
    prefixes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [given, os.environ.get("CUDACXX"), *(f"{p}/bin/nvcc" for p in prefixes if p), "nvcc"]
    return next((found for place in places if place and (found := shutil.which(place))), None)


def demangle(names: list[str]) -> list[str]:
    """Readable names without namespaces and parameters, where c++filt exists."""
    tool = shutil.which("c++filt")
    if not tool or not names:
        return names
    plain = subprocess.run([tool], input="\n".join(names), text=True, capture_output=True, check=True).stdout.splitlines()
    short = []
    for name in plain:
        name = re.sub(r"^void ", "", name)
        name = name.replace("(anonymous namespace)::", "").replace("roofline::cuda::", "").replace("roofline::ops::", "")
        short.append(re.sub(r"\((?=[^)]*(\*|&|,|long|int|Work|Shape|$))[^<>]*\)$", "", name))
    return short


def compile_file(nvcc: str, file: Path, archs: list[str]) -> tuple[list[Kernel], list[str], str]:
    """(kernels, C75xx lines, the log where it did not compile)"""
    # ccache keeps what the assembler said too. It knows objects, and no bare GPU code.
    cache, kind = (["ccache"], "-c") if shutil.which("ccache") else ([], "-fatbin")
    codes = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
    with tempfile.TemporaryDirectory() as scratch:
        options = ["-std=c++17", "-I", str(ROOT / "csrc"), kind, "-Xptxas", "-v", *codes, "-o", f"{scratch}/out"]
        command = [*cache, nvcc, *options, str(file)]
        run = subprocess.run(command, text=True, capture_output=True)
    log = run.stdout + run.stderr
    if run.returncode != 0:
        return [], [], log
    kernels: list[Kernel] = []
    for line in log.splitlines():
        if entry := re.search(r"Compiling entry function '(\S+)' for 'sm_(\w+)'", line):
            kernels.append(Kernel(file.name, entry[1], entry[2]))
        elif spill := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if kernels:
                kernels[-1].spill_bytes += int(spill[1]) + int(spill[2])
        elif used := re.search(r"Used (\d+) registers", line):
            kernels[-1].registers = int(used[1])
            if shared := re.search(r"(\d+) bytes smem", line):
                kernels[-1].shared_bytes = int(shared[1])
    for kernel, name in zip(kernels, demangle([k.name for k in kernels]), strict=True):
        kernel.name = name
    return kernels, [line.strip() for line in log.splitlines() if re.search(r"\bC75\d\d\b", line)], ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archs", default=ARCHS, help=f"architectures, default '{ARCHS}'")
    parser.add_argument("--nvcc", help="the compiler; default: CUDACXX, CUDA_HOME, CUDA_PATH, /usr/local/cuda, PATH")
    parser.add_argument("files", nargs="*", type=Path, help="default: every .cu under csrc/cuda")
    options = parser.parse_args()
    nvcc = find_nvcc(options.nvcc)
    if not nvcc:
        print("spill_check: no nvcc found", file=sys.stderr)
        return 2
    known = set(
        re.findall(r"sm_(\w+)", subprocess.run([nvcc, "--list-gpu-code"], text=True, capture_output=True, check=True).stdout)
    )
    wanted = re.split(r"[\s;,]+", options.archs.strip())
    archs = [arch for arch in wanted if arch in known]
    if left_out := [arch for arch in wanted if arch not in known]:
        print(f"not known to this nvcc, left out: {' '.join(left_out)}")
    files = options.files or sorted((ROOT / "csrc/cuda").rglob("*.cu"))
    # A folder named after an architecture ("sm90a") holds code for that one alone.
    own = {file: re.match(r"sm(\d+a)$", file.resolve().parent.name) for file in files}

    failed = False
    rows: dict[tuple[str, str], dict[str, Kernel]] = {}
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        runs = pool.map(lambda file: compile_file(nvcc, file, [m[1]] if (m := own[file]) else archs), files)
        for file, (kernels, serialised, log) in zip(files, runs, strict=True):
            if log:
                failed = True
                print(f"{file.name} does not compile:\n{log}")
            for line in serialised:
                failed = True
                print(f"{file.name}: {line}")
            for kernel in kernels:
                rows.setdefault((kernel.file, kernel.name), {})[kernel.arch] = kernel

    columns = sorted({arch for row in rows.values() for arch in row}, key=lambda arch: (len(arch), arch))
    width = max((len(name) for _, name in rows), default=0)
    print(f"{'kernel':{width}}  shared  registers and spilled bytes on {', '.join('sm_' + arch for arch in columns)}")
    for (_, name), row in rows.items():
        cells = " ".join(f"{row[a].registers:>4}/{row[a].spill_bytes}" if a in row else "     -" for a in columns)
        print(f"{name:{width}}  {max(k.shared_bytes for k in row.values()):>6}  {cells}")
        for kernel in row.values():
            if kernel.spill_bytes and (kernel.name, kernel.arch) not in ACCEPTED:
                failed = True
                print(f"SPILL {kernel.file} {kernel.name} sm_{kernel.arch}: {kernel.spill_bytes} bytes")
    most = max((k.registers for row in rows.values() for k in row.values()), default=0)
    print(
        f"{len(rows)} kernels, {sum(map(len, rows.values()))} builds, at most {most} registers: "
        f"{'FAILED' if failed else 'no spill, no C75xx'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
