"""`roofline plot` and `roofline census --plot`: pictures by name, of saved machines and of models."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich", reason="the command line needs rich")
pytest.importorskip("matplotlib", reason="the plots need matplotlib")

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from roofline import plot
from roofline.cli import main
from roofline.cli.plotting import MODEL, SAVED
from roofline.machine import Ceiling, EmpiricalRoofline, IntensityPoint, Machine, SizeCurve, SizePoint

H100 = ["--machine", "H100 SXM"]


def cpu() -> Machine:
    def bandwidth(access: str, value: float) -> Ceiling:
        return Ceiling(probe="stream", level="DRAM", access=access, variant="plain", threads=2, samples=(value,))

    flat = Ceiling(probe="fma", dtype="fp32", isa="avx2", threads=2, samples=(220e9,))
    return Machine(name="Example CPU", ceilings=(bandwidth("read", 38e9), bandwidth("copy", 30e9), flat))


def whole() -> Machine:
    """With a sweep over intensities, one over sizes, and a load latency."""
    around = (0.99, 1.0, 1.0, 1.01, 1.0)
    intensities = [2.0**k for k in range(-6, 10)]
    sweep = EmpiricalRoofline(
        level="DRAM", access="read", dtype="fp32", isa="avx2", threads=2,
        points=tuple(
            IntensityPoint(
                intensity_flops_per_byte=x, samples=tuple(((38e9 * x) ** -4 + 220e9**-4) ** -0.25 * a for a in around)
            )
            for x in intensities
        ),
    )  # fmt: skip
    sizes = [1 << k for k in range(12, 30)]
    curve = SizeCurve(
        access="read", threads=2, isa="avx2",
        points=tuple(SizePoint(size_bytes=n, samples=tuple((200e9 if n < 1 << 20 else 38e9) * a for a in around)) for n in sizes),
    )  # fmt: skip
    chase = {"operator": "pointer_chase", "pages": "huge"}
    latency = Ceiling(probe="pointer_chase", level="DRAM", samples=(98e-9,), problem=chase, threads=1)
    return dataclasses.replace(cpu(), ceilings=(*cpu().ceilings, latency), empirical=(sweep,), curves=(curve,))


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "machine.json"
    cpu().save(path)
    return str(path)


@pytest.fixture
def swept(tmp_path: Path) -> str:
    path = tmp_path / "swept" / "machine.json"
    path.parent.mkdir()
    whole().save(path)
    return str(path)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1
    return captured.err


def test_help_lists_every_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "--help"]) == 0
    shown = capsys.readouterr().out
    for name, summary in {**SAVED, **{name: drawn.summary for name, drawn in MODEL.items()}}.items():
        assert any(line.split() == [name, *summary.split()] for line in shown.splitlines()), name
    assert len(SAVED) + len(MODEL) == 17
    assert all(name.replace("-", "_") in plot.__all__ for name in (*SAVED, *MODEL))


@pytest.mark.parametrize("name", list(MODEL))
def test_every_picture_of_a_model(name: str, saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = MODEL[name]
    arguments = ["plot", name, *([] if drawn.config is False else ["Llama-3-8B"]), "--machine", saved]
    assert main([*arguments, "-o", str(tmp_path / "out")]) == 0
    stem = name.replace("-", "_")
    assert sorted(f.name for f in (tmp_path / "out").iterdir()) == [f"{stem}.csv", f"{stem}.png", f"{stem}.svg"]
    assert capsys.readouterr().out.count("wrote ") == 3
    assert main([*arguments, "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    with open(tmp_path / "out" / f"{stem}.csv", newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(records) > 2


def test_a_machine_file_draws_all_that_it_holds(swept: str, saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", swept]) == 0
    found = {f.stem for f in Path(swept).parent.iterdir()}
    assert found == {"machine", "roofline", "empirical", "size_curve", "latency"}
    assert main(["plot", saved, "-o", str(tmp_path / "few")]) == 0
    assert {f.stem for f in (tmp_path / "few").iterdir()} == {"roofline"}
    capsys.readouterr()
    for name in SAVED:
        assert main(["plot", name, swept, "-o", str(tmp_path / name), "--quiet"]) == 0
        assert {f.stem for f in (tmp_path / name).iterdir()} == {name.replace("-", "_")}
    assert main(["plot", "latency", swept, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(plot.latency_data(whole())))
    assert main(["plot", "roofline", *H100, "-o", str(tmp_path / "sheet.png")]) == 0
    assert (tmp_path / "sheet.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["heatmap", "Llama-3-8B"], "no picture 'heatmap' (did you mean decode-heatmap?)"),
        (["ridge_point"], "did you mean ridge-points?"),
        (["decode-heatmap", *H100], "needs CONFIG"),
        (["decode-heatmap", "Llama-3-8B"], "needs at least 1 --machine"),
        (["decode-heatmap", "Llama-3-8B", *H100, "--machine", "GB200"], "needs at most 1 --machine"),
        (["decode-heatmap", "Llama-3-8B", "--machine", "H100,GB200"], "needs at most 1 --machine"),
        (["decode-heatmap", "Llama-9-8B", *H100], "no preset 'Llama-9-8B'"),
        (["decode-heatmap", "Llama-3-8B", "--machine", "H1000"], "H1000"),
        (["decode-heatmap", "Llama-3-8B", *H100, "--batch", "0"], "batch must be whole numbers from 1"),
        (["decode-heatmap", "Llama-3-8B", *H100, "--batch", "8:1"], "a range of sizes is written 1:1024"),
        (["decode-heatmap", "Llama-3-8B", *H100, "--batch", "many"], "must be a whole number"),
        (["decode-heatmap", "Llama-3-8B", *H100, "--phase", "decode"], "takes no --phase"),
        (["decode-heatmap", "Llama-3-8B", *H100, "--quantity", "speed"], "must be one of flops_per_byte, bound, tokens_per_s"),
        (["decode-heatmap", "Llama-3-8B", *H100, "-o", "x.pdf"], "cannot write a .pdf file"),
        (["operations", "Llama-3-8B", "--no-lm-head"], "takes no --no-lm-head"),
        (["operations", "Llama-3-8B", "--phase", "decoding"], "unknown phase 'decoding'"),
        (["ridge-points", "Llama-3-8B", *H100], "takes no CONFIG"),
        (["compute-ceilings", "Llama-3-8B", *H100, "--batch", "1,2"], "--batch is one number here, got 2"),
        (["roofline"], "needs a machine"),
        (["roofline", "x.json", *H100], "give one machine"),
        (["empirical", *H100], "no mixed-intensity sweep"),
        (["x.json", "y.json"], "a path takes no second argument"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plot", *arguments]) in ((1, 2) if arguments[0] == "empirical" else (2,))
    assert words in said(capsys)
    assert list(tmp_path.iterdir()) == []


def test_lists_of_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--batch", "1:8,12", "--seq-kv", "512", "--quantity", "bound"]
    assert main(["plot", "decode-heatmap", "Llama-3-8B", *H100, *sizes, "--json"]) == 0
    cells = [r for r in json.loads(capsys.readouterr().out) if r["element"] == "cell"]
    assert [(c["batch"], c["seq_kv"]) for c in cells] == [(n, 512) for n in (1, 2, 4, 8, 12)]


def test_census_draws_its_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "kernels.svg"
    command = ["census", "Llama-3-8B", "--batch", "1,64", "--quiet"]
    assert main([*command, *H100, "--plot", str(picture)]) == 0
    assert sorted(f.name for f in tmp_path.iterdir()) == ["kernels.csv", "kernels.svg"]
    with open(tmp_path / "kernels.csv", newline="", encoding="utf-8") as file:
        dots = [row for row in csv.DictReader(file) if row["element"] == "dot"]
    assert len({row["phase"] for row in dots}) == 4 and {"gate and up", "lm_head"} <= {row["label"] for row in dots}
    capsys.readouterr()
    assert main([*command, "--plot", str(picture)]) == 2
    assert "--plot needs --machine" in said(capsys)
    assert main([*command, *H100, "--plot", str(tmp_path / "kernels.pdf")]) == 2
    assert "cannot write a .pdf file; use .svg, .png" in said(capsys)


PAGE = Path(__file__).parent.parent / "docs" / "plots.md"


def test_the_page_names_every_picture_with_a_call_that_runs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| .* \| `(plot\..*)` \|$", text, re.MULTILINE)
    assert {name for name, _ in rows} == {*SAVED, *MODEL}
    (first, *_) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"machine": whole(), "results": []}
    exec(first.partition("\n\nplot.")[0], names)
    for name, call in rows:
        assert call.startswith(f"plot.{name.replace('-', '_')}("), call
        assert isinstance(eval(call, names), Axes), call
        plt.close("all")


def test_pictures_of_the_docs_are_small_and_used() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (*PAGE.parent.glob("*.md"), PAGE.parent.parent / "README.md"))
    for picture in (PAGE.parent / "images").glob("*.png"):
        assert picture.stat().st_size <= 120 << 10, picture.name
        assert picture.name in pages, picture.name
