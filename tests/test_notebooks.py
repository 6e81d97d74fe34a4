"""Every notebook runs from top to bottom with quick settings, draws what it should, and uses the public API only."""

import ast
import base64
import io
import re
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.image
import numpy as np
import pytest
from programs import PYTHONPATH
from shown import fonts_known

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TUTORIAL = ROOT / "notebooks" / "roofline.ipynb"
LIMIT_S = 600  # a cell; seconds on an idle machine
WHOLE_S = 90  # a notebook on two idle cores
MOST_BYTES = 3_000_000
QUICKLY = (ROOT / "tests" / "data" / "quickly.py").read_text(encoding="utf-8")
# A picture is drawn when its cell shows it, and not before that too, for a window that is not there.
DRAWN_ONCE = "import matplotlib.backend_bases as _bases\n_bases.FigureCanvasBase.draw_idle = lambda *given, **named: None\n"
HERE = ("measured", "this machine")  # how claims begin whose verdict may be another one on another machine


def code_of(path: Path) -> str:
    return "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")


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


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first notebook leaves its machine to the others."""
    return tmp_path_factory.mktemp("machine") / "measured.json"


def executed(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str = "") -> Any:
    """The notebook after it ran in a fresh kernel with quick settings, `before` first. Fails with the cell that raises."""
    nbclient = pytest.importorskip("nbclient", reason="executing notebooks needs nbclient")
    pytest.importorskip("ipykernel", reason="executing notebooks needs ipykernel")

    monkeypatch.setenv("ROOFLINE_QUICK", "1")
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    monkeypatch.setenv("MPLCONFIGDIR", fonts_known(tmp_path / "matplotlib"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "before.py").write_text(before, encoding="utf-8")
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3", resources=where).execute()
    return notebook


def read(path: Path) -> Any:
    """A valid notebook."""
    nbformat = pytest.importorskip("nbformat", reason="reading notebooks needs nbformat")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def pictures(cell: Any) -> list[np.ndarray[Any, np.dtype[Any]]]:
    """Pixels of each picture below a cell: red, green, blue and how opaque, from 0 to 1."""
    found = [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
    return [matplotlib.image.imread(io.BytesIO(base64.b64decode(each)), format="png") for each in found]


def check_outputs(notebook: Any) -> None:
    """Every code cell ran, said nothing on stderr, and each that draws shows a picture that is not blank, dark themes included."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", output.text
        drawn = pictures(cell)
        assert len(drawn) == len(re.findall(r"^ax = plot\.|^ax = roofline\.plot\.", cell.source, re.MULTILINE)), cell.source
        for pixels in drawn:
            assert min(pixels.shape[:2]) > 100
            assert np.all(pixels[..., 3:] == 1)  # a background of its own
            inked = np.any(np.abs(pixels[..., :3] - pixels[0, 0, :3]) > 0.1, axis=-1)
            assert inked.mean() > 0.01, cell.source
            assert inked.any(axis=0).mean() > 0.5 and inked.any(axis=1).mean() > 0.5, cell.source


def verdicts(cell: Any) -> dict[str, str]:
    """claim -> verdict, of a cell that ends with a table of checks."""
    found: dict[str, str] = {}
    for output in cell.outputs:
        html = output.get("data", {}).get("text/html", "")
        if '<thead><tr><th scope="col" style="text-align:left">verdict</th>' in html:  # first: other tables end with one
            rows = list(ElementTree.fromstring(html).iter("tr"))[1:]
            found |= {str(row[1].text): str(row[0].text) for row in rows}
    return found


def test_these_tests_can_fail() -> None:
    nbformat = pytest.importorskip("nbformat", reason="reading notebooks needs nbformat")
    blank, ink = io.BytesIO(), np.ones((200, 200, 4))
    matplotlib.image.imsave(blank, ink, format="png")
    data = {"image/png": base64.b64encode(blank.getvalue()).decode()}
    cell = nbformat.v4.new_code_cell("ax = plot.roofline(machine)", execution_count=1)
    with pytest.raises(AssertionError, match="ax = plot.roofline"):  # no picture
        check_outputs(nbformat.v4.new_notebook(cells=[cell]))
    cell.outputs = [nbformat.v4.new_output("display_data", data)]
    with pytest.raises(AssertionError, match="ax = plot.roofline"):  # a blank one
        check_outputs(nbformat.v4.new_notebook(cells=[cell]))
    cell.outputs = [nbformat.v4.new_output("stream", name="stderr", text="UserWarning: no")]
    with pytest.raises(AssertionError, match="UserWarning"):
        check_outputs(nbformat.v4.new_notebook(cells=[cell]))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed stands for what runs: the same pictures, and of each claim that is no measurement the same verdict."""
    monkeypatch.setenv("MEASURED", str(measured))
    before, after = read(path), executed(path, tmp_path, monkeypatch, QUICKLY + DRAWN_ONCE)
    check_outputs(after)
    assert any(pictures(cell) for cell in after.cells if cell.cell_type == "code"), "nothing was drawn"
    for old, new in zip(before.cells, after.cells, strict=True):
        if new.cell_type == "code" and not new.source.startswith("everything"):
            known, found = verdicts(old), verdicts(new)
            assert {c: v for c, v in found.items() if not c.startswith(HERE)} == {
                c: v for c, v in known.items() if not c.startswith(HERE)
            }
            assert known.keys() == found.keys()


@pytest.mark.timing
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_quick(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.perf_counter()
    executed(path, tmp_path, monkeypatch)
    assert time.perf_counter() - began < WHOLE_S


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed(path: Path) -> None:
    """It was executed; no embedded plotly, no warnings in the outputs, and little enough to be loaded at once."""
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < MOST_BYTES
    assert "plotly" not in text
    check_outputs(read(path))


def test_the_tutorial_has_ten_parts_that_end_with_checks() -> None:
    cells = read(TUTORIAL).cells
    titles = {
        int(match[1]): index
        for index, cell in enumerate(cells)
        if cell.cell_type == "markdown" and (match := re.match(r"## Part (\d+): ", cell.source))
    }
    assert list(titles) == list(range(1, 11))
    ends = [*list(titles.values())[1:], next(i for i, cell in enumerate(cells) if cell.source.startswith("## What failed"))]
    everything: dict[str, str] = {}
    for (part, begin), end in zip(titles.items(), ends, strict=True):
        code = [cell for cell in cells[begin:end] if cell.cell_type == "code"]
        assert any(pictures(cell) for cell in code) or part == 10, part
        found = verdicts(code[-1])
        assert len(found) >= 5, part
        assert any(claim.startswith(HERE) for claim in found), f"part {part} holds nothing against this machine"
        everything |= found
    texts = ("notebook: ", "article: ", "GPU page: ", "report: ", "note: ")
    wrong = [claim for claim, verdict in everything.items() if verdict == "FAIL" and claim.startswith(texts)]
    assert len(wrong) >= 15
    assert [claim for claim in everything if not claim.startswith((*texts, *HERE)) and everything[claim] == "FAIL"] == []
    assert {verdict for verdict in everything.values()} == {"pass", "FAIL"}


@pytest.mark.parametrize("stem, parts", [("your_machine", 5), ("whole_models", 6)])
def test_each_part_has_a_picture_and_ends_with_checks(stem: str, parts: int) -> None:
    cells = read(ROOT / "notebooks" / f"{stem}.ipynb").cells
    begins = [i for i, cell in enumerate(cells) if cell.cell_type == "markdown" and cell.source.startswith("## Part ")]
    ends = [*begins[1:], next(i for i in range(begins[-1] + 1, len(cells)) if cells[i].source.startswith("## "))]
    assert len(begins) == parts
    for begin, end in zip(begins, ends, strict=True):
        code = [cell for cell in cells[begin:end] if cell.cell_type == "code"]
        found = verdicts(code[-1])
        assert any(pictures(cell) for cell in code) and len(found) >= 4, cells[begin].source[:40]
        assert {verdict for claim, verdict in found.items() if not claim.startswith(HERE)} <= {"pass"}
