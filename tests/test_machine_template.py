"""A user's datasheet: the template is valid, holds the given numbers, and is used by its path."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import roofline
from roofline.cli import main
from roofline.errors import Error
from roofline.hardware import read, template


def test_the_example_is_valid_and_says_that_it_is_one() -> None:
    sheet = read(template("Acme X1"), id="acme", where="here")
    assert (sheet.name, sheet.vendor, sheet.device) == ("Acme X1", "Acme", "cuda")
    assert all(not number.verified and number.note == "replace this example" for number in sheet.counted())


def test_every_key_that_is_left_out_is_a_comment_that_becomes_valid() -> None:
    text = template("Acme X1", {"bytes_per_s": 1e12, "fp32": 1e13})
    assert "# memory_bytes = " in text and "# link_bytes_per_s = " in text
    whole = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    sheet = read(whole, id="acme", where="here")
    assert {"memory_bytes", "link_bytes_per_s", "l2_bytes", "tdp_w"} <= set(sheet.numbers)


def test_rates_arrive(tmp_path: Path, cli: Any) -> None:
    out = tmp_path / "x1.toml"
    rates = "2TB/s,bf16=500TFLOP/s,fp64=30TFLOP/s,memory=80GB,link=450GB/s"
    assert f"--machine {out}" in cli.out(["machine", "new", "Acme", 'X"1', "--rates", rates, "-o", str(out)])
    tomllib.loads(out.read_text())
    made, paper = roofline.Machine.load(out), roofline.Machine.load(rates)
    assert made.name == 'Acme X"1'
    for dtype in ("bf16", "fp64"):
        assert made.compute(dtype).value == paper.compute(dtype).value
    assert made.bandwidth().value == 2e12 and made.facts["memory_bytes"] == 80e9
    # A link is stated in both directions together, and counts one way.
    found = [roofline.predict(machine, "Llama-3-8B", "decode", tp=2).time_s for machine in (made, paper)]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert "exists; choose another file" in cli.refused(["machine", "new", "Acme", "-o", str(out)])
    assert main(["machine", "new", "Acme", "-o", str(out), "--force", "--quiet"]) == 0


@pytest.mark.parametrize("rates", ["bf16=1TFLOP/s", "2TB/s,launch=2us", "2TB/s,bf99=1TFLOP/s"])
def test_bad_rates_are_refused(rates: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "new", "X", "--rates", rates, "-o", str(tmp_path / "x.toml")]) == 2
    assert not (tmp_path / "x.toml").exists()


def test_a_bad_file_names_its_key(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(template("X").replace("memory_bytes_per_s = {", "memory_rate = {"))
    with pytest.raises(Error, match=r"bad\.toml.*unknown key 'memory_rate'"):
        roofline.Machine.load(tmp_path / "bad.toml")
