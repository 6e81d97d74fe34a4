"""benchmarks/compare_cpu with rivals of our own making: the protocol, the turns, what is judged and what is not, and one run."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from programs import PYTHONPATH

import roofline

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "compare_cpu"

RIVAL = Path(__file__).resolve().parent / "data" / "rival.py"


@pytest.fixture(scope="module")
def parts(benchmarks: Callable[[str], ModuleType]) -> dict[str, ModuleType]:
    """The modules of compare_stages that need no rival, and in_turns, by name."""
    names = ("driving", "environment", "judging", "ours", "picture", "points", "serving", "tables")
    return {name: benchmarks(f"compare_stages.{name}") for name in names} | {"in_turns": benchmarks("in_turns")}


Make = Callable[..., Any]


@pytest.fixture
def fake(parts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a rival that behaves in one way; they write what they do to tmp_path / "log". All their turns are quiet."""
    made = []
    monkeypatch.setattr(parts["driving"], "watched", lambda work, own_s: (work(), {}, True))

    def make(how: str, name: str = "") -> Any:
        command = [sys.executable, "-B", str(RIVAL), how, str(tmp_path / "log")]
        made.append(parts["driving"].Rival(name or how, command, {**os.environ, "PYTHONPATH": str(SCRIPT.parent)}))
        return made[-1]

    yield make
    for rival in made:
        rival.close()


def driver(parts: dict[str, ModuleType], ours: Any, *rivals: Any, **more: Any) -> Any:
    given = {"turns": 3, "turn_s": 0.004, "limit_s": 20.0, "far": 8.0, "idle": lambda seconds: None, **more}
    return parts["driving"].Driver(ours, rivals, **given)


def point(parts: dict[str, ModuleType], cold: bool = False) -> Any:
    return parts["points"].Point("gelu", "double", "gelu", {"elements": 4}, cold)


# -- the protocol and the turns -----------------------------------------------------------------------------------------------


def test_turns_alternate(parts: dict[str, ModuleType], fake: Make, tmp_path: Path) -> None:
    ours, one, two = fake("ours"), fake("one"), fake("prints")
    row = driver(parts, ours, one, two).compare(point(parts), {"elements": 4})
    assert row["reason"] == ""
    assert [pair["rival"] for pair in row["pairs"]] == ["one", "prints"] * 3
    assert row["rivals"]["one"]["facts"]["implementation"] == "fake kernel"
    assert all(pair[side]["samples_s"] for pair in row["pairs"] for side in ("ours", "theirs"))
    # Who ran, without repetitions: after the first turn of each, ours and a rival, first and second changing with the round.
    seen = [line for line in (tmp_path / "log").read_text().splitlines() if "sweeps" not in line]
    blocks = [who for i, who in enumerate(seen) if i == 0 or seen[i - 1] != who]
    first = ["ours", "one", "prints"]
    assert blocks == [*first, "ours", "one", "ours", "prints", "one", "ours", "prints", "ours", "one", "ours", "prints"]


@pytest.mark.parametrize(("loud", "turns"), [(1, 4), (9, 6)])
def test_turns_that_other_load_disturbs_are_repeated_up_to_twice(
    parts: dict[str, ModuleType], fake: Make, monkeypatch: pytest.MonkeyPatch, loud: int, turns: int
) -> None:
    drive, began = driver(parts, fake("ours"), fake("one")), iter(range(100))
    first = 2  # a turn of each side that chooses, before the rounds
    monkeypatch.setattr(
        parts["driving"], "watched", lambda work, own_s: (work(), {}, not first <= next(began) < first + 2 * loud)
    )
    pairs = drive.compare(point(parts), {})["pairs"]
    assert [parts["judging"].quiet(pair) for pair in pairs] == ([False] * loud + [True] * 3)[:turns]


def test_cold_calls_are_swept_on_both_sides(parts: dict[str, ModuleType], fake: Make, tmp_path: Path) -> None:
    row = driver(parts, fake("ours"), fake("one")).compare(point(parts, cold=True), {})
    assert row["cache"] == "cold" and row["pairs"]
    seen = (tmp_path / "log").read_text().splitlines()
    for who in ("ours", "one"):
        assert seen.count(f"{who} sweeps") >= 6
        after = [line for before, line in pairwise(seen) if before == f"{who} sweeps" and line != before]
        assert len(after) >= 6 and set(after) == {who}, "a call follows the sweeps"


def test_a_turn_lasts_as_long_as_it_should(parts: dict[str, ModuleType]) -> None:
    class Slow(parts["serving"].Side):  # type: ignore[misc,name-defined]
        done = ""

        def call(self) -> None:
            self.done += "c"
            time.sleep(0.002)

        def sweep(self) -> None:
            self.done += "s"
            time.sleep(0.002)

    side, begun = Slow(), time.perf_counter()
    samples = parts["serving"].sampled(side, 0.02, True)
    assert time.perf_counter() - begun >= parts["serving"].WAKE_S + 0.02
    assert side.done.lstrip("s") == "c" + "sc" * len(samples) and len(samples) >= 3, (
        "memory is woken, then threads, then calls swept"
    )
    assert side.done.index("c") >= 10 and min(samples) >= 0.002
    assert len(parts["serving"].sampled(side, 0.001, False)) == 1, "a long call is a turn of its own"
    assert len(parts["serving"].sampled(side, 0.001, True)) == 1, "and a cold one too"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("refuses", "no such dtype"),
        ("raises", "RuntimeError: bad"),
        ("wrong", "its result is wrong: 1.0 off"),
        ("crashes", "crashes ended with exit code 7"),
        ("absent", "not installed"),
        ("slow", "times as slow as the fastest rival"),
    ],
)
def test_a_rival_that_fails_loses_itself_only(parts: dict[str, ModuleType], fake: Make, how: str, reason: str) -> None:
    bad, good = fake(how), fake("good")
    bad.introduce(20)
    row = driver(parts, fake("ours"), bad, good).compare(point(parts), {})
    assert reason in row["rivals"][how]["reason"] and "\n" not in row["rivals"][how]["reason"]
    assert [pair["rival"] for pair in row["pairs"]] == ["good"] * 3
    assert parts["judging"].judged(row).rival == "good"


def test_a_rival_that_hangs_is_ended_and_begun_again(
    parts: dict[str, ModuleType], fake: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, good = fake("hangs"), fake("good")
    monkeypatch.setattr(parts["driving"], "MOST_FAILURES", 2)
    drive = driver(parts, fake("ours"), hangs, good, limit_s=1.0)
    for _ in range(2):
        row = drive.compare(point(parts), {})
        assert row["rivals"]["hangs"]["reason"].startswith("hangs gave no answer within 1.") and len(row["pairs"]) == 3
    assert hangs.reason.startswith("given up after 2 failures"), "and not begun for ever"
    assert hangs.worker is None


def test_ours_that_fails_is_a_row_with_its_reason(parts: dict[str, ModuleType], fake: Make) -> None:
    row = driver(parts, fake("refuses"), fake("good")).compare(point(parts), {})
    assert row["reason"] == "no kernel of ours: no such dtype" and row["pairs"] == []
    row = driver(parts, fake("raises"), fake("good")).compare(point(parts), {})
    assert row["reason"] == "ours failed: RuntimeError: bad"
    ours = fake("ours")
    drive = driver(parts, ours, fake("good"), idle=lambda seconds: ours.close())  # before its first turn
    assert drive.compare(point(parts), {})["reason"].startswith("ours failed: ")
    drive.idle = lambda seconds: None
    assert drive.compare(point(parts), {})["reason"] == "", "the next point has a process again"


def test_reasons_hold_no_paths(parts: dict[str, ModuleType]) -> None:
    brief = parts["serving"].brief
    assert brief(OSError("cannot open /home/me/x.so: no\nmore")) == "OSError: cannot open …: no"
    assert brief(ValueError("3 / 4 and n/a")) == "ValueError: 3 / 4 and n/a"
    assert brief(ValueError()) == "ValueError"


# -- what is concluded --------------------------------------------------------------------------------------------------------


def made_row(ours: list[float], theirs: dict[str, list[float]], busy: int = 0, after: float = 0.9, **more: Any) -> dict[str, Any]:
    """Seconds of turns; the first `busy` are disturbed. The roof allows 0.9 s."""

    def turn(seconds: float, quiet: bool) -> dict[str, Any]:
        return {"samples_s": [2 * seconds, seconds, seconds / 2], "load": {}, "quiet": quiet}

    pairs = [
        {"rival": name, "ours": turn(own, i >= busy), "theirs": turn(other, True)}
        for name, seconds in theirs.items()
        for i, (own, other) in enumerate(zip(ours, seconds, strict=True))
    ]
    roofs = {"before": {"time_s": 0.9}, "after": {"time_s": after}}
    rivals = {name: {"reason": "", "facts": {"implementation": "kernel"}, "beyond": 0.1} for name in theirs}
    return {
        "name": "ffn fp32 batch 4", "stage": "ffn", "operator": "ffn", "cache": "cold", "reason": "", "pairs": pairs,
        "roofs": roofs, "problem": {"batch": 4, "dtype": "fp32", "d_model": 8, "d_ff": 16, "activation": "gelu"},
        "ours": {"implementation": "tiled/avx2", "flops": 10**9}, "rivals": rivals, **more,
    }  # fmt: skip


def test_ratios_by_hand(parts: dict[str, ModuleType]) -> None:
    # Turn by turn 2, 3, 2.5, 4, 2.5: the median is 2.5, while that of the times alone would be 3 / 1.
    row = made_row([1.0, 1.0, 2.0, 1.0, 1.0], {"a": [2.0, 3.0, 5.0, 4.0, 2.5], "b": [9.0] * 5})
    found = parts["judging"].judged(row)
    assert (found.rival, found.ratio, found.ours_s, found.theirs_s, found.rounds) == ("a", 2.5, 1.0, 3.0, 5)
    assert found.share == pytest.approx(0.9)
    # Of five draws the median is the least (2) in 5.8 % of all samples, the largest (4) in as many: P(3 of 5 below 1/5) = 0.0579.
    assert (found.low, found.high) == (2.0, 4.0)
    assert found.verdict == "faster"
    assert parts["judging"].interval([3.0] * 4) == (3.0, 3.0, 3.0)


def test_verdicts(parts: dict[str, ModuleType]) -> None:
    judged = parts["judging"].judged
    assert judged(made_row([1.0] * 5, {"a": [0.5] * 5})).verdict == "slower"
    assert judged(made_row([1.0] * 5, {"a": [0.9, 1.1, 0.95, 1.05, 1.0]})).verdict == "undecided: the interval spans 1"
    # Turns that other load disturbed do not count where enough are left, and leave the rest unjudged where not.
    found = judged(made_row([9.0, 9.0, 1.0, 1.0, 1.0], {"a": [2.0] * 5}, busy=2))
    assert (found.verdict, found.ratio, found.rounds) == ("faster", 2.0, 3)
    found = judged(made_row([1.0] * 5, {"a": [2.0] * 5}, busy=3))
    assert found.verdict == "not judged: other load in 3 of 5 turns" and found.ratio == 2.0
    # Where the ceilings moved, neighbouring turns still met one machine: the ratio stands, and the share of the roof is not known.
    found = judged(made_row([1.0] * 5, {"a": [2.0] * 5}, after=1.2))
    assert (found.verdict, found.ratio, found.share) == ("faster", 2.0, None)
    assert judged(made_row([0.5] * 5, {"a": [2.0] * 5})).verdict == "not judged: ours is at 180 % of its roof"
    assert judged(made_row([1.0] * 5, {}, rivals={"a": {"reason": "not installed"}})).verdict == "no rival: a: not installed"
    assert judged(made_row([1.0] * 5, {"a": [2.0] * 5}, reason="no kernel of ours: x")).verdict == "no kernel of ours: x"


def test_a_rival_that_ended_midway_is_not_the_best(parts: dict[str, ModuleType]) -> None:
    row = made_row([1.0] * 3, {"a": [0.5] * 3, "b": [2.0] * 3})
    row["rivals"]["a"]["reason"] = "a ended with SIGSEGV"
    assert parts["judging"].judged(row).rival == "b"


def test_wrong_results_are_beyond_the_tolerance(parts: dict[str, ModuleType]) -> None:
    beyond = parts["ours"].beyond
    ours = np.array([1.0, -4.0])
    assert beyond(ours, np.array([1.1, -4.2]), (0.1, 0.05)) == pytest.approx(0.2 / (0.1 + 0.05 * 4))
    assert beyond(ours, ours, (0.0, 0.0)) == 0.0
    assert beyond(ours, np.array([1.0, np.nan]), (9.0, 9.0)) == np.inf


def test_foreign_load_is_seen(parts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    watched = parts["in_turns"].watched
    tick = os.sysconf("SC_CLK_TCK")
    clocks = iter([(10 * tick, 0, 0), (13 * tick, 0, 0)] * 2)
    monkeypatch.setattr("roofline.doctor.sessions.cpu_ticks", lambda: next(clocks))

    def work() -> str:
        time.sleep(0.05)
        return "done"

    own = iter([1.0, 4.0])
    assert watched(work, lambda: next(own))[::2] == ("done", True), "all that was busy was our own"
    found, load, quiet = watched(work, lambda: 1.0)
    assert (found, quiet) == ("done", False) and load["foreign_cores"] > 3


# -- what is written ----------------------------------------------------------------------------------------------------------

ABOUT = {
    "ours": {"cpu_name": "AMD EPYC", "usable_cores": 2, "isas": "scalar,avx2", "l1_bytes": 32768, "threads": 2},
    "rivals": {"a": {"versions": {"a": "1.2"}, "threads": 2, "settings": {"core type": "Zen"}}, "c": {"missing": "not installed"}},
    "variables": {"OMP_NUM_THREADS": "2"}, "os": "Linux", "threads": 2, "turns": 5, "turn_s": 0.2,
    "sweep_bytes": 1 << 26, "utc": "2026-01-01",
}  # fmt: skip


def test_the_table(parts: dict[str, ModuleType]) -> None:
    absent = {**made_row([1.0] * 3, {}), "reason": "no kernel of ours: no | bf16", "ours": {}, "roofs": {}}
    rows = [made_row([1.0] * 3, {"a": [2.0] * 3}), absent]
    text = parts["tables"].markdown(rows, ABOUT)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert table[2:] == [
        "| ffn fp32 batch 4 | tiled/avx2 | 1.00 s | 90.0 % | a (kernel) | 2.00 s | 2.000 [2.000 … 2.000] | faster |  |",
        "| ffn fp32 batch 4 |  |  |  |  |  |  | no kernel of ours | no \\| bf16 |",
    ]
    assert "1 faster, 0 slower, 0 undecided, 0 not judged, 1 without a comparison." in text
    assert "- c: not installed" in text


def test_a_picture_of_the_ffn(parts: dict[str, ModuleType], tmp_path: Path) -> None:
    rows = [made_row([1.0 + i] * 3, {"a": [2.0 + i] * 3}) for i in range(2)]
    rows[1]["problem"] = {**rows[1]["problem"], "batch": 16}
    rows[1]["rivals"]["b"] = {"reason": "far behind", "facts": {}, "first": {"samples_s": [7.0]}}
    (chart,) = parts["picture"].charts(rows, ABOUT)
    seen = {line.label: (line.points, line.fits) for line in chart.lines}
    assert seen["ours"] == ([(4.0, 1e9), (16.0, 0.5e9)], [True, True])
    assert seen["b"] == ([(16.0, 1e9 / 7)], [False])
    assert seen["roofline"][0][0] == (4.0, pytest.approx(1e9 / 0.9))
    assert not parts["picture"].save(tmp_path, rows[:1], ABOUT), "one batch is no line"
    assert parts["picture"].save(tmp_path, rows, ABOUT) and (tmp_path / "compare.png").stat().st_size > 10_000


def test_points_are_known_and_evenly_chosen(parts: dict[str, ModuleType]) -> None:
    points = parts["points"].points()
    assert {point.stage for point in points} == set(parts["points"].STAGES)
    assert len({point.name for point in points}) == len(points)
    few = parts["points"].points(most=10)
    assert len(few) == 10 and few[0] == points[0] and few[-1] == points[-1]
    assert {point.stage for point in parts["points"].points(["ffn"])} == {"ffn"}
    costs = {point.name: point.cost_s() for point in points}
    assert costs["attention fp32 L 8192 D 64, cold"] > 10 * costs["attention fp32 L 1024 D 64, cold"]


def test_missing_packages_are_reasons(parts: dict[str, ModuleType]) -> None:
    kinds = ["torch", "onnxruntime", "library", "numpy", "ggml"]
    torch, onnx, library, numpy, ggml = parts["environment"].rivals([], kinds, 2, "scratch")
    assert torch.reason == "torch not installed (give --venv or --python)" and onnx.reason.startswith("onnxruntime and onnx not")
    assert ggml.reason.startswith("llama_cpp not installed")
    assert not library.reason and not numpy.reason
    assert numpy.env["OMP_NUM_THREADS"] == "2" and "OPENBLAS_CORETYPE" not in numpy.env


def test_an_environment_is_completed(parts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose installation was interrupted lacks the packages; one that has them is left alone."""
    environment = parts["environment"]
    asked: list[list[str]] = []
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(environment.subprocess, "run", lambda words, **how: asked.append([str(word) for word in words]))
    monkeypatch.setattr(environment, "has", lambda python, packages: False)
    assert environment.make_venv(tmp_path) == tmp_path / "bin" / "python"
    assert asked[0][1:4] == ["-m", "pip", "install"] and asked[0][-3:] == ["torch", "onnxruntime", "onnx"]
    monkeypatch.setattr(environment, "has", lambda python, packages: True)
    environment.make_venv(tmp_path)
    assert len(asked) == 1


# -- one run ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def script(benchmarks: Callable[[str], ModuleType]) -> ModuleType:
    return benchmarks("compare_cpu")


def test_a_run_against_numpy(
    tmp_path: Path, script: ModuleType, parts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("roofline._core")
    made = parts["points"].Point
    chosen = [
        made("softmax", "softmax fp32", "softmax", {"rows": 32, "columns": 100}, False),
        made("ffn", "ffn fp64", "ffn", {"dtype": "fp64"}),
    ]
    monkeypatch.setattr(script, "points", lambda *given: chosen)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    words = ["--out", str(tmp_path / "out"), "--rival", "numpy", "--turns", "3", "--turn-s", "0.004"]
    assert script.main(words) in (0, 1)
    text = (tmp_path / "out" / "compare.json").read_text()
    found = json.loads(text)
    assert (found["schema_version"], found["kind"]) == (1, "compare_cpu")
    rows = {row["name"]: row for row in found["rows"]}
    warm = rows["softmax fp32, warm"]
    assert warm["ours"]["variant"] == roofline.Softmax(rows=32, columns=100).default_variant("cpu")
    assert warm["rivals"]["NumPy"]["beyond"] <= 1 and 3 <= len(warm["pairs"]) <= 6 and warm["judged"]["ratio"] > 0
    assert rows["ffn fp64, cold"]["judged"]["verdict"].startswith("no kernel of ours: ffn: dtype must be one of")
    assert str(tmp_path) not in text and str(SCRIPT.parent) not in text and sys.executable not in text
    assert "softmax fp32, warm" in (tmp_path / "out" / "compare.md").read_text()


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, script: ModuleType, parts: dict[str, ModuleType]) -> None:
    class Driver:
        asked: list[str] = []

        def compare(self, point: Any, problem: Any) -> dict[str, Any]:
            self.asked.append(point.what)
            if point.what == "breaks":
                raise KeyboardInterrupt
            return {**made_row([1.0] * 3, {"a": [2.0] * 3}, busy=3 if point.what == "loud" else 0), "name": point.name}

    names = ("calm", "loud", "breaks")  # shortest first
    chosen = [parts["points"].Point("ffn", what, "ffn", {"d_ff": 2**i}) for i, what in enumerate(names)]
    driver = Driver()
    with pytest.raises(KeyboardInterrupt):
        script.compare_all(chosen, driver, ABOUT, tmp_path, 60)
    rows = json.loads((tmp_path / "compare.json").read_text())["rows"]
    assert [row["reason"] for row in rows] == ["", "", "not begun: the time limit"], "what was done is saved"
    driver.asked.clear()
    script.compare_all(chosen[:2], driver, ABOUT, tmp_path, 60)
    assert driver.asked == ["loud"] * script.PASSES, "only what was disturbed is measured again, in every pass"
    with pytest.raises(roofline.Error, match="other turn_s"):
        script.compare_all(chosen, driver, {**ABOUT, "turn_s": 9.0}, tmp_path, 60)
    driver.asked.clear()
    (tmp_path / "none").mkdir()
    script.compare_all(chosen, driver, ABOUT, tmp_path / "none", 0)
    assert driver.asked == [], "no point is begun after the time limit"


def test_list_and_usage(tmp_path: Path, script: ModuleType, parts: dict[str, ModuleType], capsys: Any) -> None:
    assert script.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(parts["points"].STAGES)
    with pytest.raises(SystemExit, match="2"):
        script.main(["--out", str(tmp_path), "--turns", "2"])
