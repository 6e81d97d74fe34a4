"""Where the rivals are: interpreters that have their packages, and the settings their processes get."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from .driving import Rival

PACKAGES = ("torch", "onnxruntime", "onnx")
BENCHMARKS = Path(__file__).resolve().parent.parent
COMPILERS = ("g++", "c++", "clang++")
# Memory that is freed stays with the process and lies in huge pages: allocating a result anew each call costs them least so.
TUNABLES = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776"
# What NumPy's BLAS would be told by our variables, and where the user's other packages lie.
DROPPED = (
    "PYTHONPATH", "PYTHONHOME", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY",
)  # fmt: skip
NEEDS = {"torch": ("torch",), "compiled": ("torch",), "onnxruntime": ("onnxruntime", "onnx"), "ggml": ("llama_cpp",)}
NAMES = {
    "torch": "PyTorch", "compiled": "PyTorch compiled", "onnxruntime": "ONNX Runtime", "library": "our library variant",
    "numpy": "NumPy", "ggml": "ggml (llama.cpp)",
}  # fmt: skip


def make_venv(folder: Path) -> Path:
    """Its interpreter; made, and the rivals installed into it, where they are not. Raises OSError or CalledProcessError."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if not has(python, PACKAGES):
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True)
    return python


def has(python: Path, packages: Sequence[str]) -> bool:
    asked = f"import importlib.util as u, sys; sys.exit(any(u.find_spec(n) is None for n in {tuple(packages)!r}))"
    return subprocess.run([python, "-c", asked], env=clean({}), capture_output=True).returncode == 0


def clean(more: Mapping[str, str]) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name not in DROPPED}, **more}


def settings(threads: int) -> dict[str, str]:
    """Variables of every rival's process, as they are stored."""
    counts = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS")}
    return {**counts, "GLIBC_TUNABLES": TUNABLES, "THP_MEM_ALLOC_ENABLE": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def command(python: Path | str, kind: str, threads: int) -> list[str]:
    return [str(python), "-B", "-m", "compare_stages.worker", kind, str(threads)]


def ours(threads: int) -> Rival:
    paths = os.pathsep.join([str(BENCHMARKS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return Rival("ours", command(sys.executable, "ours", threads), {**os.environ, "PYTHONPATH": paths})


def rivals(pythons: Sequence[Path], kinds: Sequence[str], threads: int, scratch: str) -> list[Rival]:
    """In the order of `kinds`. One that is not installed has that as its reason."""
    found = []
    given = {**settings(threads), "PYTHONPATH": str(BENCHMARKS), "TORCHINDUCTOR_CACHE_DIR": scratch}
    for kind in kinds:
        name = NAMES[kind]
        if kind == "library":
            mine = ours(threads)
            found.append(Rival(name, command(sys.executable, kind, threads), mine.env))
            continue
        if kind == "numpy":
            found.append(Rival(name, command(sys.executable, kind, threads), clean(given)))
            continue
        python = next((python for python in pythons if has(python, NEEDS[kind])), None)
        if python is None:
            found.append(Rival(name, reason=f"{' and '.join(NEEDS[kind])} not installed (give --venv or --python)"))
        elif kind == "compiled" and not any(map(shutil.which, COMPILERS)):
            found.append(Rival(name, reason="no C++ compiler"))
        else:
            found.append(Rival(name, command(python, kind, threads), clean(given)))
    return found
