"""The dependency picture of docs/architecture.md, executable: an arrow that points up fails here and names both files."""

import ast
import re
import sys
from pathlib import Path

import pytest
from programs import printed

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "python" / "roofline"
CSRC = ROOT / "csrc"

# Each may import what stands to its left.
ORDER = (
    "errors _repr units words reading counts same dtypes tensor_spec references operators hardware probes machine least_squares "
    "nearby kernel_costs model crossovers tiling prediction transformer questions cheat_sheets claims results census comparison "
    "importers measurement ceilings sweeps plot interactive report doctor schemas cli"
).split()
TOUCH_CORE = {"measurement", "doctor"}
DRAWS = {"plot", "interactive"}


def imports(path: Path) -> list[tuple[str, int]]:
    """(dotted name inside or outside the package, line) of every import of a file."""
    found = []
    inside = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                found.append((node.module or "", node.lineno))
                continue
            base = list(inside[: len(inside) - node.level + 1])
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found += [(".".join(["roofline", *base, name]), node.lineno) for name in names if name]
    return found


def violations(files: list[Path]) -> list[str]:
    found = []
    for path in files:
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own not in ORDER:
            found.append(
                f"{path.relative_to(ROOT)}: the module {own} is not in the order; add it to docs/architecture.md and this test"
            )
            continue
        for name, line in imports(path):
            parts = name.split(".")
            where = f"{path.relative_to(ROOT)}:{line}"
            if parts[0] == "matplotlib" and own not in DRAWS:
                found.append(f"{where}: only {', '.join(DRAWS)} may import matplotlib")
            if parts[0] == "rich" and own != "cli":
                found.append(f"{where}: only cli may import rich")
            if parts[0] != "roofline" or len(parts) < 2 or parts[1] == own:
                continue
            if parts[1] == "_core":
                if own not in TOUCH_CORE:
                    found.append(f"{where}: only {', '.join(sorted(TOUCH_CORE))} may import roofline._core")
            elif parts[1] in ORDER and ORDER.index(parts[1]) > ORDER.index(own):
                found.append(f"{where}: {own} may not import {parts[1]}, which stands to its right")
    return found


def test_python_arrows_point_left() -> None:
    files = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.name not in ("__init__.py", "__main__.py"))
    assert violations(files) == []


def test_this_test_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "units.py").write_text("from .model import time_s\nimport matplotlib\nfrom . import _core\n")
    (tmp_path / "helpers.py").write_text("")
    text = "\n".join(violations([tmp_path / "units.py", tmp_path / "helpers.py"]))
    for expected in (
        "units may not import model",
        "may import matplotlib",
        "may import roofline._core",
        "helpers is not in the order",
    ):
        assert expected in text


ALLOWED = {
    "core": {"core"},
    "ops": {"core", "ops"},
    "cpu": {"core", "ops", "cpu"},
    "cuda": {"core", "ops", "cuda"},
    "bindings": {"core", "bindings"},
}
# The one file that names the backends.
EXCEPTIONS = {("core/backends.cpp", "cpu"), ("core/backends.cpp", "cuda")}


def test_cpp_arrows() -> None:
    found = []
    for path in sorted(CSRC.rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        here = path.relative_to(CSRC).as_posix()
        layer = here.split("/")[0]
        for line, text in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"(\w+)/', text)
            if match and match[1] in ALLOWED and match[1] not in ALLOWED[layer] and (here, match[1]) not in EXCEPTIONS:
                found.append(f"csrc/{here}:{line}: {layer} may not include {match[1]}/")
    assert found == []


def test_only_the_bindings_know_python() -> None:
    for path in CSRC.rglob("*"):
        if path.is_file() and path.parent.name != "bindings":
            text = path.read_text()
            assert "pybind11" not in text, path
            assert "Python.h" not in text, path


def test_the_analytic_half_works_without_the_compiled_module() -> None:
    """Everything left of `measurement` imports and computes where roofline._core cannot load."""
    left = [name for name in ORDER[: ORDER.index("measurement")] if any((PACKAGE / f).exists() for f in (name, f"{name}.py"))]
    code = f"""
import sys, importlib
sys.modules["roofline._core"] = None
for name in {left!r}:
    importlib.import_module("roofline." + name)
import roofline
from roofline import Attention, Machine, Ceiling, predict
dram = Ceiling(probe="stream", level="DRAM", access="read", samples=(4e10,))
machine = Machine(name="paper", ceilings=(dram, Ceiling(probe="fma", dtype="fp32", samples=(2e11,))))
assert predict(machine, Attention(seq_q=1, seq_kv=4096)).bound == "DRAM"
try:
    roofline.measure(Attention())
except roofline.Error as error:
    assert "pip install" in str(error), error
else:
    raise SystemExit("measure must say that the compiled module is missing")
"""
    printed(code, MPLBACKEND="Agg")


def test_import_help_and_version_are_light() -> None:
    code = """
import sys
from roofline.cli import main
for flag in ("--help", "--version"):
    assert main([flag]) == 0
heavy = {"numpy", "matplotlib", "rich", "tqdm", "roofline._core", "roofline.hardware", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""
    printed(code, MPLBACKEND="Agg")


@pytest.mark.timing
def test_import_takes_less_than_a_tenth_of_a_second() -> None:
    code = "import time; began = time.perf_counter(); import roofline; print(time.perf_counter() - began)"
    assert min(float(printed(code)) for _ in range(5)) < 0.1


def test_commands_that_measure_nothing_need_no_compiled_module() -> None:
    code = """
import contextlib, io, shlex, sys
sys.modules["roofline._core"] = None
from roofline.cli import main
for line in (
    "predict Llama-3-8B --machine 'H100 SXM'", "census DeepSeek-R1-NVFP4 --machine GB200",
    "cheat-sheet Llama-3-8B --machine 'H100 SXM' --batch 1", "hardware H100 SXM", "claims", "--help",
):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = main(shlex.split(line))
    drawn = [name for name in ("matplotlib", "pandas", "torch") if name in sys.modules]
    if code or drawn or not printed.getvalue():
        raise SystemExit(f"{line}: {code}, {drawn}")
"""
    printed(code, MPLBACKEND="Agg")


def test_public_names_resolve() -> None:
    import roofline

    for name in roofline.__all__:
        assert getattr(roofline, name) is not None
    modules = {p.stem if p.is_file() else p.name for p in PACKAGE.iterdir()}
    assert not modules & set(roofline.__all__), "a module and a function share a name"


def test_no_file_is_a_drawer() -> None:
    for path in [*PACKAGE.rglob("*"), *CSRC.rglob("*")]:
        assert path.stem not in ("utils", "common", "helpers", "misc"), path
