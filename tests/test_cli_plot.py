"""`roofline plot` and `roofline census --plot`: pictures by name, with the flags of their functions."""

import csv
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from example import bandwidth, fma, measurement

pytest.importorskip("matplotlib", reason="the plots need matplotlib")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from roofline import Matmul, plot
from roofline.cli import main
from roofline.cli.plotting import flag_of
from roofline.machine import Ceiling, Machine, SizeCurve, SizePoint
from roofline.plot import PICTURES
from roofline.plot.figure import joined
from roofline.results import append_to

pytestmark = pytest.mark.usefixtures("nothing_is_shown", "few_pixels")

H100 = ["--machine", "H100 SXM"]
PAGE = Path(__file__).parent.parent / "docs" / "plots.md"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A report's folder: a machine with a size curve and a load latency, and a sweep over rows."""
    chase = {"operator": "pointer_chase", "pages": "huge"}
    curve = SizeCurve(access="read", threads=2, isa="avx2", points=tuple(
        SizePoint(size_bytes=1 << k, samples=(200e9 if k < 20 else 38e9,) * 5) for k in range(12, 30)))  # fmt: skip
    machine = Machine(name="Example CPU", curves=(curve,), ceilings=(
        bandwidth(38e9), bandwidth(30e9, "copy"), fma(220e9, isa="avx2"),
        Ceiling(probe="pointer_chase", level="DRAM", samples=(98e-9,), problem=chase, threads=1),
    ))  # fmt: skip
    folder = tmp_path / "report"
    folder.mkdir()
    machine.save(folder / "machine.json")
    for rows in (1, 8, 64):
        problem = Matmul(rows=rows, columns=512, inner=512)
        timed = measurement(problem, (1e-4 * rows,) * 6, variant="library", prediction={"time_s": 1e-4})
        append_to(folder / "results.jsonl", timed)
    return folder


def test_help_lists_every_picture_and_its_flags(cli: Any) -> None:
    shown = cli.out(["plot", "--help"])
    for name, picture in PICTURES.items():
        assert any(line.split() == [name.replace("_", "-"), *picture.about.split()] for line in shown.splitlines()), name
    for name in ("decode_heatmap", "roofline", "sweep_map"):
        shown = cli.out(["plot", name.replace("_", "-"), "--help"])
        for parameter in inspect.signature(PICTURES[name]).parameters.values():
            flag = flag_of(parameter.name) if parameter.annotation != "bool" else f"--no-{parameter.name.replace('_', '-')}"
            assert parameter.name == "ax" or flag in shown, (name, flag)


@pytest.mark.parametrize("arguments", [
    ["decode-heatmap", "Llama-3-8B", *H100, "--utilisation", "compute=0.7,bandwidth=0.8", "--counting", "weights_and_kv"],
    ["decode-latency", "Llama-3-70B", "--machine", "8xH100,GB200", "--link", "450GB/s", "--link-latency", "10us", "--tp", "8"],
    ["workloads", "Llama-3-8B", *H100, "--phase", "decode", "--batch", "1,32", "--seq-kv", "4k", "--weights", "fp8",
     "--no-lm-head"],
    ["hierarchy", "gemm", *H100], ["comparison", "H100 SXM", "GB200"], ["attention-steps", "--work", "attention", *H100],
    ["collectives", "--machine", "8xH100"], ["sweep-lines", "--work", "matmul", "--axes", "rows=1:64", *H100],
    ["batch-path", "Llama-3-8B", *H100, "--batch", "1:64", "--theme", "dark"],
])  # fmt: skip
def test_the_command_draws_what_the_function_does(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], cli: Any
) -> None:
    assert main(["plot", *arguments, "-o", str(tmp_path / "out")]) == 0
    stem = arguments[0].replace("-", "_")
    assert sorted(f.name for f in (tmp_path / "out").iterdir()) == [f"{stem}.csv", f"{stem}.png", f"{stem}.svg"]
    assert capsys.readouterr().out.count("wrote ") == 3
    records = cli.json(["plot", *arguments])
    with open(tmp_path / "out" / f"{stem}.csv", newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(records) > 2


def test_flags_are_keywords(cli: Any) -> None:
    flags = ["--utilisation", "0.8", "--counting", "weights_and_kv", "--launch", "2us", "--weights", "fp8"]
    sizes = ["--batch", "1:8", "--seq-kv", "1k,8k"]
    wanted = plot.decode_heatmap.panels("H100 SXM", "Llama-3-8B", utilisation="0.8", counting="weights_and_kv", launch_s=2e-6,
                                        weights="fp8_e4m3", batch=[1, 2, 4, 8], seq_kv=[1024, 8192])  # fmt: skip
    for quantity, panels in (([], wanted), (["--quantity", "flops_per_byte"], wanted[:1])):
        found = cli.json(["plot", "decode-heatmap", "Llama-3-8B", *H100, *flags, *sizes, *quantity])
        assert found == json.loads(json.dumps(joined(panels)))


def test_a_report_draws_all_that_it_holds(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], cli: Any) -> None:
    assert main(["plot", str(saved)]) == 0
    assert {f.stem for f in saved.iterdir() if f.suffix == ".svg"} == {"roofline", "size_curve", "latency"}
    assert "matmul library" in (saved / "roofline.csv").read_text(), "results lie beside the machine"
    for name in ("roofline", "size-curve", "latency", "ridge-points"):
        assert main(["plot", name, str(saved / "machine.json"), "-o", str(tmp_path / name), "--quiet"]) == 0
        assert {f.stem for f in (tmp_path / name).iterdir()} == {name.replace("-", "_")}
    assert main(["plot", "predicted-measured", str(saved), "-o", str(tmp_path / "p.png"), "--quiet"]) == 0
    assert main(["plot", "sweep-lines", str(saved), "--machine", str(saved), "--x", "rows", "-o", str(tmp_path / "s.svg")]) == 0
    capsys.readouterr()
    assert cli.json(["plot", "latency", str(saved)]) == json.loads(json.dumps(plot.latency.data(saved)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["heatmap", "Llama-3-8B"], "no picture 'heatmap' (did you mean decode-heatmap?)"),
        (["ridge_point"], "did you mean ridge-points?"),
        (["decode-heatmap", *H100], "needs MODEL: a model"),
        (["decode-heatmap", "Llama-3-8B"], "needs --machine"),
        (["decode-heatmap", "Llama-3-8B", *H100, "--machine", "GB200"], "takes one --machine, got 2"),
        (["decode-heatmap", "Llama-3-8B", "--machine", "H100,GB200"], "takes one --machine, got 2"),
        (["decode-heatmap", "Llama-9-8B", *H100], "no preset 'Llama-9-8B'"),
        (["decode-heatmap", "Llama-3-8B", "--machine", "H1000"], "H1000"),
        (["decode-heatmap", "Llama-3-8B", *H100, "--batch", "8:1"], "a range of sizes is written 1:1024"),
        (["decode-heatmap", "Llama-3-8B", *H100, "--batch", "many"], "must be a whole number"),
        (["decode-heatmap", "Llama-3-8B", *H100, "--phase", "decode"], "unrecognized arguments: --phase"),
        (["compute-ceilings", "7B", *H100, "--launch", "2us"], "unrecognized arguments: --launch"),  # it predicts nothing
        (["decode-heatmap", "Llama-3-8B", *H100, "--quantity", "speed"], "one of flops_per_byte, bound, tokens_per_s, time_s"),
        (["decode-heatmap", "Llama-3-8B", *H100, "-o", "x.pdf"], "cannot write a .pdf file"),
        (["operations", "Llama-3-8B", "--phase", "decoding now"], "decoding now"),
        (["ridge-points", "Llama-3-8B", *H100], "give one machine"),
        (["compute-ceilings", "Llama-3-8B", *H100, "--batch", "1,2"], "batch is one number here, got 2"),
        (["roofline"], "needs --machine"),
        (["roofline", "x.json", *H100], "cannot read results file x.json"),
        (["empirical", *H100], "no mixed-intensity sweep"),
        (["sweep-map", "nowhere.jsonl"], "nowhere.jsonl"),
        (["comparison", "H100"], "comparison needs B"),
        (["x.json", "y.json"], "a path takes no second argument"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str], words: str, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in cli.refused(["plot", *arguments])
    assert list(tmp_path.iterdir()) == []


def test_census_draws_its_kernels(tmp_path: Path, cli: Any) -> None:
    picture = tmp_path / "kernels.svg"
    command = ["census", "Llama-3-8B", "--batch", "1,64", "--quiet"]
    assert main([*command, *H100, "--plot", str(picture)]) == 0
    assert sorted(f.name for f in tmp_path.iterdir()) == ["kernels.csv", "kernels.svg"]
    with open(tmp_path / "kernels.csv", newline="", encoding="utf-8") as file:
        dots = [row for row in csv.DictReader(file) if row["element"] == "dot"]
    assert len({row["phase"] for row in dots}) == 4 and {"gate and up", "lm_head"} <= {row["label"] for row in dots}
    assert "--plot needs --machine" in cli.refused([*command, "--plot", str(picture)])
    assert "cannot write a .pdf file; use .svg, .png" in cli.refused([*command, *H100, "--plot", str(tmp_path / "kernels.pdf")])


def test_the_page_names_every_picture_with_a_call_that_runs(saved: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    gallery = (PAGE.parent / "gallery.md").read_text(encoding="utf-8")
    rows = re.findall(r"^### ([\w-]+)\n\n.*\n\n`(plot\..*)`$", gallery, re.MULTILINE)
    assert {name.replace("-", "_") for name, _ in rows} == set(PICTURES)
    (first, *_) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"machine": Machine.load(saved), "results": []}
    exec(first.partition("\n\nplot.")[0], names)
    for name, call in rows:
        assert call.startswith(f"plot.{name.replace('-', '_')}("), call
        if PICTURES[name.replace("-", "_")].group == "model":
            assert isinstance(eval(call, names), Axes), call
            plt.close("all")


def test_pictures_of_the_docs_are_small_and_used() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (*PAGE.parent.glob("*.md"), PAGE.parent.parent / "README.md"))
    for picture in (PAGE.parent / "images").glob("*.png"):
        assert picture.stat().st_size <= 120 << 10, picture.name
        assert picture.name in pages, picture.name
