"""A user's own points on a roofline: accepted forms, refused ones, and where they lie."""

import json
from pathlib import Path
from typing import Any

import pytest
from tables import gives, refused

from roofline import plot
from roofline.cli import main
from roofline.machine import Machine
from roofline.plot.given import OwnPoint, own_points

MINE = OwnPoint(name="mine", flops_per_byte=8.0, flops_per_s=4e12)


def machine() -> Machine:
    return Machine.from_peaks("Acme", 2e12, bf16=500e12, fp32=50e12)


test_every_form_is_one_point = gives(
    own_points,
    ([("mine", 8, 4e12)], [MINE]),
    ([("mine", "8", "4 TFLOP/s")], [MINE]),
    ({"mine": (8, 4e12)}, [MINE]),
    ([{"name": "mine", "flops_per_byte": 8, "flops_per_s": 4e12}], [MINE]),
    ([{"Kernel": "mine", "AI": "8", "rate": "4000 GFLOP/s"}], [MINE]),
    ([MINE], [MINE]),
)


def test_files_and_data_frames(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("name,intensity,rate,dtype\nmine,8,4e12,bf16\nother,100,2 TFLOP/s,\nthird,1,1,bfloat16\n")
    read = own_points(tmp_path / "points.csv")
    assert [(p.name, p.flops_per_byte, p.flops_per_s, p.dtype) for p in read] == [
        ("mine", 8, 4e12, "bf16"), ("other", 100, 2e12, ""), ("third", 1, 1, "bf16"),
    ]  # fmt: skip
    for content in ([["mine", 8, 4e12]], {"mine": [8, 4e12]}, {"points": [{"name": "mine", "ai": 8, "rate": 4e12}]}):
        (tmp_path / "points.json").write_text(json.dumps(content))
        assert own_points(str(tmp_path / "points.json")) == [MINE]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"name": ["mine", "other"], "ai": [8, 9], "rate": [4e12, 1], "dtype": [None, "fp32"]})
    assert [p.dtype for p in own_points(frame)] == ["", "fp32"]


test_bad_points_are_named = refused(
    own_points,
    ([("mine", 8)], "point 1: got"),
    ([("mine", 8, -1)], "'mine': FLOP/s must be positive"),
    ([("mine", float("nan"), 1)], "FLOP/byte must be positive"),
    ([("mine", 8, "fast")], "FLOP/s: cannot read 'fast'"),
    ([("mine", 8, 1, "bf17")], "point 1, 'mine': unknown dtype 'bf17' .did you mean bf16"),
    ([{"name": "mine", "rate": 1}], "lacks flops_per_byte"),
    ({"mine": 8}, "must be FLOP/byte and FLOP/s"),
    ("nowhere.csv", "cannot read file of points nowhere.csv: No such file"),
)


def test_shares_are_of_what_the_machine_allows() -> None:
    # 8 FLOP/byte · 2 TB/s = 16 TFLOP/s; at 1000 FLOP/byte the compute roofs: 500 of bf16, 50 of fp32.
    points = [("memory", 8, 4e12), ("tensor", 1000, 250e12, "bf16"), ("core", 1000, 25e12, "fp32"), ("wrong", 8, 17e12)]
    records = {r["label"]: r for r in plot.roofline_data(machine(), points=points) if r["element"] == "point"}
    shares = {name: r["share_of_ceiling"] for name, r in records.items()}
    assert shares == pytest.approx({"memory": 0.25, "tensor": 0.5, "core": 0.5, "wrong": 17 / 16})
    assert [r["implausible"] for r in records.values()] == [False, False, False, True]
    notes = [r["label"] for r in plot.roofline_data(machine(), points=points, dtype="fp32") if r["element"] == "note"]
    assert "1 given points of other dtypes than fp32 are not shown" in notes


def test_axes_take_them_in() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    ax = plot.roofline(machine(), points=[("far left", 0.01, 1e9), ("far right", 1e6, 4e14)], title="Mine")
    assert ax.get_title(loc="left") == "Mine" or ax.get_title() == "Mine"
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    assert left < 0.01 and right > 1e6 and low < 1e9 and high > 4e14
    assert {"far left", "far right"} <= {text.get_text().split("  ")[0] for text in ax.texts}
    pyplot.close(ax.figure)


def test_the_command_line_takes_a_file(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "mine.csv").write_text("name,flops_per_byte,flops_per_s\nmine,8,4e12\n")
    command = ["plot", "roofline", "--machine", "H100 SXM", "--points", str(tmp_path / "mine.csv")]
    record = next(r for r in cli.json(command) if r["element"] == "point")
    assert record["label"] == "mine" and record["share_of_ceiling"] == pytest.approx(4e12 / (8 * 3.35e12))
    assert main([*command, "-o", str(tmp_path / "out"), "--title", "Mine"]) == 0
    assert (tmp_path / "out" / "roofline.svg").exists()
    assert "unrecognized arguments: --points" in cli.refused(["plot", "latency", "--machine", "H100 SXM", "--points", "x.csv"])
