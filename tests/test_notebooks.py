"""Every notebook runs from top to bottom with quick settings, and uses the public API only."""

from __future__ import annotations

import ast
import os
import shutil
from pathlib import Path

import matplotlib
import pytest

import roofline

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LIMIT_S = 600  # a cell; seconds on an idle machine


def code_of(path: Path) -> str:
    nbformat = pytest.importorskip("nbformat", reason="reading notebooks needs nbformat")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_public_names_and_no_definitions(path: Path) -> None:
    for node in ast.walk(ast.parse(code_of(path))):
        assert not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)), ast.unparse(node)
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_"), ast.unparse(node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "roofline":
            assert node.module == "roofline", f"{ast.unparse(node)}: the public names are those of roofline itself"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="executing notebooks needs nbclient")
    nbformat = pytest.importorskip("nbformat", reason="reading notebooks needs nbformat")
    pytest.importorskip("ipykernel", reason="executing notebooks needs ipykernel")

    copy = tmp_path / path.name
    shutil.copy(path, copy)
    monkeypatch.setenv("ROOFLINE_QUICK", "1")
    # The package under test, whatever the working directory.
    paths = [str(Path(str(roofline.__file__)).parent.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths).rstrip(os.pathsep))
    (tmp_path / "matplotlib").mkdir()
    for fonts in Path(matplotlib.get_cachedir()).glob("fontlist*.json"):  # making this list anew takes seconds
        shutil.copy(fonts, tmp_path / "matplotlib")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(copy, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3", resources=where).execute()
    assert "image/png" in nbformat.writes(notebook), "nothing was drawn"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed_is_small(path: Path) -> None:
    """No embedded plotly, no warnings in the outputs, and little enough to be read in a diff."""
    text = path.read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    assert "plotly" not in text
    assert '"name": "stderr"' not in text
