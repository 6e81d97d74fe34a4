"""The programs of benchmarks/ start: what each does has tests of its own, or is too long for one."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from example import machine, measurement

from roofline import Softmax
from roofline.results import Bracket

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
FILES = [file for pattern in ("*", "*_stages/*.py") for file in sorted(FOLDER.glob(pattern)) if file.is_file()]
PICTURE = re.compile(r"!\[[^]]*\]\(([^)]+)\)")
PROGRAMS = {str(file.relative_to(FOLDER)): file for file in FILES if file.read_text(encoding="utf-8").startswith("#!")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_help(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, since most of the time of a process of its own is that of imports."""
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(FOLDER))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(PROGRAMS[name]), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_the_pictures_of_recorded_pages_are_there() -> None:
    pages = list((FOLDER / "results").rglob("*.md"))
    named = [page.parent / name for page in pages for name in PICTURE.findall(page.read_text(encoding="utf-8"))]
    assert pages and not [picture for picture in named if not picture.exists()]


def test_a_prediction_is_kept_with_its_roofs(tmp_path: Path) -> None:
    save = runpy.run_path(str(PROGRAMS["prediction"]))["save"]
    problem = Softmax(rows=64, columns=64)
    roofs = (Bracket(label="DRAM copy", kind="bandwidth", level="DRAM", before_samples=(30e9, 31e9, 32e9), after_samples=(33e9,)),)
    measured = measurement(problem, 2e-6, variant="fused", brackets=roofs, prediction={"time_s": 1e-6, "parts": {"DRAM": 1e-6}})
    point = {"operator": "softmax", "variant": "fused", "cache_state": "cold", "problem": problem.to_dict()}
    save(tmp_path, machine(), [(0, point, measured)])
    (kept,) = json.loads((tmp_path / "prediction.json").read_text())["results"]
    assert kept["roofs"] == {"DRAM copy": [31e9, 33e9]}


def test_every_program_is_found() -> None:
    assert {"compare_cpu", "gpu_check", "peers_cpu", "prediction", "record", "whole_model"} <= set(PROGRAMS)
