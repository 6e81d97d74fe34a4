"""Command lines that nobody would type: always an exit code and at most a line of error, whatever is given."""

import argparse
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from roofline.cli import main
from roofline.cli.parser import COMMANDS, build
from roofline.machine import Machine
from roofline.results import Measurement, append_to

COUNT = 400
FILES = (".json", ".jsonl", ".txt")
LONGEST = 1500  # characters of a line of error
OPERATORS = ("attention", "matmul", "softmax", "stream", "grouped_matmul", "all_reduce", "nothing")
WORDS = (
    "", "-", "--", "---", "=", "0", "1", "-1", "2", "007", "1e3", "1e308", "1e-320", "nan", "inf", "-inf", "²", "①", "٣",
    "1.5", "1,8", "1:64", "4:1", "1,,2", ",", "true", "fp32", "bf16,fp32", "naive", "Llama-3-8B", "DeepSeek-V3", "H100",
    "H100 SXM", "GB200", "cpu", "cuda:7", "decode", "prefill", "10us", "1e400s", "450GB/s", "80GB", "1e300TB", "%", "50%",
    "a\nb", "\x1b[2J", "\ud800", "é" * 40, "x" * 5000, "9" * 5000, "/dev/null", "/", ".", "..", "no-such-file.json",
    "machine.json", "results.jsonl", "config.json", "text.txt", "{}", "@", "*",
)  # fmt: skip
# What each command begins with: words that are right, so that single wrong ones get far.
BEGIN: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "predict": (("Llama-3-8B", "--machine", "H100"), ("DeepSeek-V3", "--machine", "GB200", "--ignore-memory")),
    "census": (("Llama-3-8B", "--machine", "H100"), ("GPT-OSS-120B",)),
    "plot": (
        ("decode-heatmap", "Llama-3-8B", "--machine", "H100", "--json"),
        ("decode-latency", "Llama-3-8B", "--machine", "A100-SXM4-80GB"),
        ("roofline", "--machine", "H100", "--json"), ("machines", "--machine", "H100", "--machine", "GB200", "--json"),
        ("intensity-over-batch", "Llama-3-8B", "--json"), ("block-profile", "Llama-3-8B", "--machine", "H100", "--json"),
    ),
    "explain": (("results.jsonl",), ("results.jsonl", "1"), ("attention", "--describe")),
    "compare": (("machine.json", "machine.json"), ("results.jsonl", "results.jsonl"), ("machine.json", "H100")),
    "import": (("text.txt",), ("text.txt", "--tool", "ncu")),
    "hardware": (("H100 SXM",), ()),
    "run": tuple((name, "--describe") for name in OPERATORS),
    "sweep": tuple((name, "--describe") for name in OPERATORS),
}  # fmt: skip


def flags_of(arguments: list[str]) -> list[str]:
    """Every flag that these commands take."""
    parser: argparse.ArgumentParser = build(arguments)
    found: list[str] = []
    todo = [parser]
    while todo:
        for action in todo.pop()._actions:
            found += action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                todo += [action.choices[word] for word in arguments if word in action.choices]
    return found


def command_lines(seed: int, files: Path) -> Iterator[list[str]]:
    choose = random.Random(seed)
    known: dict[tuple[str, ...], list[str]] = {}
    for _ in range(COUNT):
        command = choose.choice([*COMMANDS])
        begin = [command, *choose.choice(BEGIN.get(command, ((),)))] if choose.random() < 0.8 else [command]
        flags = known.setdefault(tuple(begin), flags_of(begin))
        line = [str(files / word) if word.endswith(FILES) else word for word in begin]
        for _ in range(choose.randrange(4)):
            flag, word = choose.choice(flags), choose.choice(WORDS)
            named = str(files / word) if word.endswith(FILES) else word
            line += choose.choice(([named], [flag], [flag, named], [f"{flag}={named}"], [flag, named, flag, named]))
        out = [word for word in line if word in ("-o", "--out") or word.startswith(("--out", "-o"))]
        if out or (command == "plot" and "--json" not in line):
            line = [word for word in line if word not in out] + ["--json"]  # what is written is not tried here
        yield line + (["--describe"] if command in ("report", "measure", "run", "sweep") else [])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Machine.from_datasheet("A100-SXM4-80GB").save(tmp_path / "machine.json")
    for elements in (1, 2):
        problem = {"elements": elements, "dtype": "fp32"}
        append_to(tmp_path / "results.jsonl", Measurement(
            operator="relu", variant="plain", problem=problem, device="cpu", threads=1, cache_state="cold", samples_s=(1.0,) * 6
        ))  # fmt: skip
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "text.txt").write_text("hello\n")
    return tmp_path


def measures(line: list[str]) -> bool:
    """Whether the command would measure something or look at the whole machine, which takes long, or write into the folder."""
    return line[0] == "doctor" or (line[0] == "explain" and not {"--describe", str(Path.cwd() / "results.jsonl")} & {*line})


def test_no_command_line_gives_a_traceback(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun, tried = time.process_time(), 0
    for line in command_lines(2026, files):
        if measures(line):
            continue
        tried += 1
        said = repr(line)[:300]
        try:
            code = main([word for word in line if word not in ("-v", "--verbose")])
        except BaseException as error:
            raise AssertionError(f"{said}: {error!r}") from error
        out, err = capsys.readouterr()
        assert code in (0, 1, 2, 3), (code, said)
        assert "Traceback" not in err and "Traceback" not in out, said
        assert all(len(row) <= LONGEST for row in err.splitlines()), (said, err[:300])
        assert code == 0 or err.count("\n") <= 3, (said, err[:300])
        assert not re.search("[\x00-\x08\x0b-\x1f]", err), (said, err[:300])
    assert tried > COUNT * 0.8
    assert time.process_time() - begun < 60


@pytest.mark.parametrize("digit", ["²", "①", "٣", "१", "Ⅷ"])
def test_digits_that_are_no_numbers(digit: str, files: Path, cli: Any) -> None:
    assert "has no point" in cli.refused(["explain", str(files / "results.jsonl"), digit])


@pytest.mark.parametrize("flag", ["--seq-len=--", "--batch=--", "--variant=--", "--device=--", "--cache-state=--"])
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_two_dashes_are_no_value(command: str, flag: str, cli: Any) -> None:
    assert f"argument {flag.removesuffix('=--')}: '--' is not a value" in cli.refused([command, "attention", "--describe", flag])


@pytest.mark.parametrize(
    "line",
    [
        ["predict", "Llama-3-8B", "--machine", "H100", "--machine", "GB200"],
        ["census", "Llama-3-8B", "--batch", "2", "--batch", "2"],
        ["run", "attention", "--describe", "--heads", "2", "--heads", "4"],
        ["sweep", "attention", "--describe", "--variant", "naive", "--variant", "tiled"],
        ["compare", "a", "b", "-o", "x.csv", "--out", "y.csv"],
        ["plot", "decode-heatmap", "Llama-3-8B", "--machine", "H100", "--batch", "1", "--batch", "2"],
        ["report", "--describe", "--time-limit", "3", "--time-limit", "4"],
    ],
)
def test_one_value_given_twice_is_refused(line: list[str], cli: Any) -> None:
    assert "is given more than once" in cli.refused(line)


@pytest.mark.parametrize("closed", ["1", "2"])
def test_closed_streams(closed: str) -> None:
    """`>&-`: what would be printed is an error where it is stdout, and the work is done where it is stderr."""
    command = f"exec {sys.executable} -m roofline predict Llama-3-8B --machine H100 {closed}>&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr + done.stdout
    assert done.returncode == (1 if closed == "1" else 0)
    assert done.stderr == ("roofline: error: cannot write the output: Bad file descriptor\n" if closed == "1" else "")
    assert ("TPOT" in done.stdout) == (closed == "2")
