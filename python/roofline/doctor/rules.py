"""Why a library's matrix product stays below the roof, by rules on facts, and the environment that cures it where one is known.

A rule claims a cure only where the variable is documented and still works in that version; the doctor then tries it and prints
what it gained.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..words import counted

# Variables that change how fast a library multiplies. Their values are kept with a run: none holds a path.
VARIABLES = (
    "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_PROC_BIND", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS", "OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA", "ROOFLINE_ISA",
)  # fmt: skip
# By BLAS, the one that wins first.
THREADS = {
    "openblas": ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT"),
    "mkl": ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT"),
    "blis": ("BLIS_NUM_THREADS", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT"),
    "onednn": ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT"),
}
LIMITS = {"mkl": ("MKL_ENABLE_INSTRUCTIONS",), "onednn": ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")}
WIDTHS = ("scalar", "avx2", "avx512")  # of x86 vectors; AVX without FMA counts as scalar
# OpenBLAS core types (its dynamic.c) that use AVX2 and FMA, and AVX-512; the others of x86 use neither.
_CORES = {"avx2": ("haswell", "zen"), "avx512": ("skylakex", "cooperlake", "sapphirerapids")}
_NARROW = (
    "generic prescott core2 penryn dunnington nehalem athlon opteron opteron_sse3 barcelona bobcat atom katmai coppermine "
    "northwood banias nano sandybridge bulldozer piledriver steamroller excavator"
).split()
_BEST_CORE = {"avx512": "SkylakeX", "avx2": "Haswell"}
_SMT = "more than one thread shares a core"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """What the rules know of the machine. cores: usable ones, one thread each; logical: processors allowed to the process."""

    name: str = ""
    vendor: str = ""
    isas: tuple[str, ...] = ()
    cores: int = 1
    logical: int = 1
    quota: float | None = None

    def widest(self) -> str:
        """The widest of `WIDTHS` that the CPU has; empty where it is no x86."""
        return next((width for width in reversed(WIDTHS) if width in self.isas), "") if "neon" not in self.isas else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The known facts of one run. asked: threads, 0 for the library's own choice; died: how its process ended, if it did."""

    library: str
    dtype: str
    asked: int = 0
    blas: str = "unknown"
    blas_version: str = ""
    layer: str = ""
    kernels: str = ""
    threads: int = 0
    build: str = ""
    died: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a run is where it is. cure: variables to set (None: to unset); empty where none is known."""

    why: str
    cure: Mapping[str, str | None] = field(default_factory=dict)


def core_width(core: str) -> str:
    """The vectors that kernels of this OpenBLAS core type use; empty for a name that is not in the list."""
    name = core.lower()
    return next((width for width, cores in _CORES.items() if name in cores), "scalar" if name in _NARROW else "")


def shown(cure: Mapping[str, str | None]) -> str:
    """As one would type it: "OPENBLAS_CORETYPE=Haswell, unset MKL_ENABLE_INSTRUCTIONS"."""
    return ", ".join(f"unset {name}" if value is None else f"{name}={value}" for name, value in cure.items())


def _kernels(cpu: Cpu, facts: Facts) -> Reason | None:
    """OpenBLAS with kernels for another CPU. It takes one that it does not know for a Haswell."""
    widest, chosen = cpu.widest(), facts.environment.get("OPENBLAS_CORETYPE", "")
    if not widest or widest == "scalar":
        return None
    cure = {"OPENBLAS_CORETYPE": _BEST_CORE[widest]}
    if facts.died:
        wide = core_width(chosen)
        if wide and WIDTHS.index(wide) > WIDTHS.index(widest):
            return Reason(why=f"OPENBLAS_CORETYPE={chosen} asks for {wide} kernels, and this CPU has {widest}", cure=cure)
        return None
    width = core_width(facts.kernels)
    if facts.blas != "openblas" or not width or WIDTHS.index(width) >= WIDTHS.index(widest):
        return None
    because = f"OPENBLAS_CORETYPE={chosen} is set" if chosen else "it does not know this CPU"
    narrow = {"scalar": "no AVX2", "avx2": "AVX2"}[width]
    wide = widest.upper().replace("AVX512", "AVX-512")
    return Reason(why=f"OpenBLAS runs {facts.kernels} kernels ({narrow}) on a CPU with {wide}: {because}", cure=cure)


def _mkl(cpu: Cpu, facts: Facts) -> Reason | None:
    """MKL asks who made the CPU."""
    if facts.blas != "mkl" or cpu.vendor in ("", "GenuineIntel") or facts.died:
        return None
    version = re.match(r"(\d{4})(?:\.(\d+))?", facts.blas_version)
    if version and (int(version[1]), int(version[2] or 0)) < (2020, 1) and "avx2" in cpu.isas:
        # The variable is gone from 2020.1 on.
        why = f"MKL {facts.blas_version} takes its slowest path on CPUs that are not Intel's"
        return Reason(why=why, cure={"MKL_DEBUG_CPU_TYPE": "5"})
    return Reason(why="MKL leaves AVX-512 unused on CPUs that are not Intel's") if "avx512" in cpu.isas else None


def _limited(cpu: Cpu, facts: Facts) -> Reason | None:
    for name in LIMITS.get(facts.blas, ()):
        value = facts.environment.get(name, "")
        if value and value.upper() not in ("ALL", "DEFAULT"):
            return Reason(why=f"{name}={value} limits its instruction sets", cure={name: None})
    return None


def _number(text: str) -> int:
    """The number of threads in a variable; OMP_NUM_THREADS may be a list, and its first number counts."""
    first = text.split(",")[0].strip()
    return int(first) if first.isdigit() else 0


def _threads(cpu: Cpu, facts: Facts) -> Reason | None:
    if facts.asked or not facts.threads or facts.threads == cpu.cores or facts.died or facts.library == "roofline":
        return None
    variables = THREADS.get(facts.blas, ())
    fewer = facts.threads < cpu.cores
    guilty = [
        name
        for name in variables
        if (n := _number(facts.environment.get(name, ""))) and (n < cpu.cores if fewer else n > cpu.cores)
    ]
    cure = {name: str(cpu.cores) for name in guilty or variables[:1]}
    on = f"{counted(facts.threads, 'thread')} on {counted(cpu.cores, 'usable core')}"
    if guilty:
        named = ", ".join(f"{name}={facts.environment[name]}" for name in guilty)
        return Reason(why=f"{on}: {named} {'is' if len(guilty) == 1 else 'are'} set", cure=cure)
    if fewer and facts.layer == "disabled":
        return Reason(why=f"{on}: its BLAS is built without threads")
    if fewer:
        return Reason(why=f"{on}", cure=cure)
    if cpu.quota is not None and cpu.quota < cpu.logical:
        return Reason(why=f"{on}: the control group allows {cpu.quota:.3g} and stops threads in mid-run", cure=cure)
    return Reason(why=f"{on}: {_SMT}", cure=cure)


def _reference(cpu: Cpu, facts: Facts) -> Reason | None:
    if facts.library not in ("numpy", "scipy") or facts.blas != "unknown" or facts.died:
        return None
    if any(name in facts.build.lower() for name in ("openblas", "mkl", "blis", "accelerate")):
        return None
    built = f" (built with {facts.build})" if facts.build else ""
    return Reason(why=f"no optimised BLAS is loaded{built}: its products run on reference code; a wheel from PyPI brings OpenBLAS")


def _bf16(cpu: Cpu, facts: Facts) -> Reason | None:
    if facts.dtype != "bf16" or facts.died:
        return None
    if {"avx512_bf16", "amx", "neon_bf16_i8mm"} & set(cpu.isas):
        return None
    return Reason(why="this CPU has no bf16 arithmetic: operands are converted, and the roof is that of fp32")


RULES = (_kernels, _limited, _threads, _mkl, _reference, _bf16)


def reasons(cpu: Cpu, facts: Facts) -> list[Reason]:
    """Every rule that applies to a run that is below its roof, or disturbed, in order of what it costs."""
    return [reason for rule in RULES if (reason := rule(cpu, facts)) is not None]
