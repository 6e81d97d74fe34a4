"""Sweeps: every point on disk at once, resumed, and what cannot run a result with its reason."""

import dataclasses
import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from example import BRIEF
from reported import Reported
from tables import refused

import roofline
from roofline import Attention, Error, Ffn, GroupedMatmul, Matmul, Relu, Results, Softmax, Stream, sweeps
from roofline.measurement import attempt, open_device
from roofline.results import append_to
from roofline.sweeps import points

QUICKLY: dict[str, Any] = {"device": "cpu", "cache_state": "warm", "policy": BRIEF}


def test_points_are_the_product_last_axis_fastest() -> None:
    found = points(Attention(), ["naive", "tiled"], open_device("cpu"), {"batch": [1, 2], "seq_len": [64, 128]})
    assert [(p.batch, p.seq_q, p.seq_kv, v) for p, v in found][:5] == [  # type: ignore[attr-defined]
        (1, 64, 64, "naive"), (1, 64, 64, "tiled"), (1, 128, 128, "naive"), (1, 128, 128, "tiled"), (2, 64, 64, "naive"),
    ]  # fmt: skip
    assert len(found) == 8


def test_each_point_of_a_sweep_has_its_own_default() -> None:
    """Decode and prefill have different kernels; so have few and many queries on a GPU, and the tiles of tensor units."""
    here = points(Attention(), None, open_device("cpu"), {"seq_q": [1, 2, 512], "dtype": ["fp32"]})
    assert [name for _, name in here] == ["split_kv", "split_kv", "tiled"]
    turned = points(Attention(seq_q=512), None, open_device("cpu"), {"seq_q": [512, 1]})
    assert [name for _, name in turned] == ["tiled", "split_kv"]
    gpu = Reported("cuda:0")
    listed = points(Attention(dtype="bf16"), None, gpu, {"seq_q": [1, 8, 9], "dtype": ["bf16", "fp32"]})
    assert [name for _, name in listed] == [*["split_kv"] * 4, "warp_specialized", "tiled"]
    ffn = points(Ffn(dtype="bf16"), None, gpu, {"activation": ["relu", "gelu", "swiglu"]})
    assert [name for _, name in ffn] == ["fused", "library", "fused"]
    stream = points(Stream(), None, open_device("cpu"), {"access": ["read", "copy"]})
    assert [name for _, name in stream] == ["plain", "non_temporal"]
    grouped = points(GroupedMatmul(), None, gpu, {"dtype": ["fp32", "bf16"]})
    assert [name for _, name in grouped] == ["library", "tiled"]


def test_a_sweep_is_on_disk_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "results.jsonl"
    first = roofline.sweep(Relu(), elements=[1024, 2048], **QUICKLY, out=out)
    assert [m.problem["elements"] for m in first] == [1024, 2048]
    assert len(Results.load(out)) == 2
    settled = {m.key for m in first if m.status in ("ok", "implausible")}

    measured: list[int] = []
    original = sweeps.attempt
    monkeypatch.setattr(sweeps, "attempt", lambda p, **o: measured.append(p.elements) or original(p, **o))  # type: ignore[attr-defined,func-returns-value]
    again = roofline.sweep(Relu(), elements=[1024, 2048, 4096], **QUICKLY, out=out)
    assert [m.problem["elements"] for m in again] == [1024, 2048, 4096]
    assert 4096 in measured
    assert all(m.key not in settled or m.problem["elements"] not in measured for m in first)


@pytest.mark.parametrize(
    ("elsewhere", "measured"), [({"cpu_name": "Another CPU"}, 2), ({"isas": "scalar"}, 2), ({"gpu_name": "H200"}, 2), ({}, 0)]
)
def test_points_of_another_processor_are_not_taken_for_this_one(
    elsewhere: dict[str, str], measured: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that comes from another computer, or from a run with ROOFLINE_ISA, stays, and this device's points are added."""
    sweep, out = {"elements": [1024, 2048], **QUICKLY}, tmp_path / "points.jsonl"
    for m in roofline.sweep(Relu(), **sweep):
        facts = {**m.provenance["device"], **elsewhere}
        append_to(out, dataclasses.replace(m, status="ok", reason="", provenance={**m.provenance, "device": facts}))
    attempts = []
    monkeypatch.setattr(sweeps, "attempt", lambda problem, **how: attempts.append(problem) or attempt(problem, **how))
    found = roofline.sweep(Relu(), **sweep, out=out)
    assert len(attempts) == measured
    assert len(found) == 2
    assert len(Results.load(out)) == 2 + measured
    assert all(m.provenance["device"]["cpu_name"] == open_device("cpu").facts["cpu_name"] for m in found)


def test_words_of_an_axis_are_values() -> None:
    found = points(Attention(), None, open_device("cpu"), {"seq_len": "1k,2k", "dtype": "fp32, bf16", "causal": True})
    assert [(p.seq_q, p.dtype) for p, _ in found] == [(1024, "fp32"), (1024, "bf16"), (2048, "fp32"), (2048, "bf16")]  # type: ignore[attr-defined]
    with pytest.raises(Error, match="must be values separated by commas"):
        points(Relu(), None, open_device("cpu"), {"elements": "1k,"})


def test_a_contended_point_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "results.jsonl"
    original = sweeps.attempt
    measured = []
    for status in ("contended", "contended", "ok", "contended"):
        state = lambda p, status=status, **o: dataclasses.replace(original(p, **o), status=status)  # noqa: E731
        monkeypatch.setattr(sweeps, "attempt", state)
        (found,) = roofline.sweep(Relu(elements=512), **QUICKLY, out=out)
        measured.append((found.status, len(out.read_text().splitlines())))
    # Disturbed again is no new line; the undisturbed one is, and it is not measured again.
    assert measured == [("contended", 1), ("contended", 1), ("ok", 2), ("ok", 2)]
    assert [m.status for m in Results.load(out)] == ["ok"]


def test_what_cannot_run_is_a_result() -> None:
    found = roofline.sweep(Matmul(rows=8, columns=8, inner=8), variant="tiled", dtype=["fp32", "tf32"], **QUICKLY)
    assert found[1].status == "unsupported"
    assert "tf32" in found[1].reason
    found = roofline.sweep(Relu(), elements=[64, 2**50], **QUICKLY)
    assert found[1].status == "out_of_memory"
    assert found[1].time_s is None


def test_what_found_no_memory_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "results.jsonl"
    (found,) = roofline.sweep(Relu(elements=2**50), **QUICKLY, out=out)
    assert found.status == "out_of_memory"
    monkeypatch.setattr(sweeps, "attempt", lambda problem, **how: dataclasses.replace(found, status="failed", reason="tried"))
    (again,) = roofline.sweep(Relu(elements=2**50), **QUICKLY, out=out)
    assert again.reason == "tried"


def test_progress_is_told() -> None:
    seen: list[tuple[int, int, str]] = []
    roofline.sweep(Relu(), elements=[64, 128], **QUICKLY, progress=lambda *step: seen.append(step))
    assert [(done, total) for done, total, _ in seen] == [(0, 2), (1, 2), (2, 2)]
    assert "elements=128" in seen[1][2]


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    roofline.sweep(Relu(elements=64), **QUICKLY)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rows": []}, "rows is empty"),
        ({"rows": [1, 0]}, "rows must be between 1"),
        ({"rows": [1, float("nan")]}, "rows must be an integer"),
        ({"depth": [1]}, "unknown field 'depth'"),
        ({"seq_len": [1]}, "seq_len means nothing"),
        ({"rows": [1], "variant": ["fused", "fancy"]}, "unknown variant 'fancy'"),
        ({"rows": range(2_000_000)}, "more than 1000000"),
        ({"rows": [1], "progress": "yes"}, "progress must be"),
        ({"rows": [1], "out": 5}, "the path of a file must be text or a Path, got 5"),
    ],
)
def test_bad_sweeps_say_so_before_measuring(arguments: dict[str, Any], words: str, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    with pytest.raises(Error, match=words):
        roofline.sweep(Softmax(), device="cpu", policy=BRIEF, **{"out": out, **arguments})
    assert not out.exists()


@pytest.mark.parametrize(
    "axes",
    [
        {"rows": range(1, 10**9)},
        {"rows": range(1, 10**18), "columns": range(1, 10**18)},
        {"rows": range(1, 10**40)},
        {name: range(1, 10**6) for name in ("batch", "heads", "seq_q", "seq_kv", "head_dim")},
        {"rows": itertools.count(1)},
        {"rows": (n for n in range(1, 10**9))},
        {"rows": range(1, 1002), "columns": range(1, 1001)},
    ],
)
def test_too_many_points_are_counted_and_not_made(axes: dict[str, Any]) -> None:
    begun = time.process_time()
    with pytest.raises(Error, match="more than 1000000 points"):
        points(Softmax() if "rows" in axes else Attention(), None, open_device("cpu"), axes)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    "axes",
    [
        {"rows": range(1, 101), "columns": range(1, 101), "dtype": ["fp32"] * 100},
        {"rows": range(1, 1_000_001)},
        {"rows": list(range(1, 1_000_001))},
    ],
)
def test_a_million_points_begin_at_once(axes: dict[str, Any]) -> None:
    begun = time.process_time()
    found = points(Softmax(), None, open_device("cpu"), axes)
    first = next(iter(found))
    assert time.process_time() - begun < 2
    assert len(found) == 1_000_000 and first[0].to_dict()["rows"] == 1


test_every_point_is_checked_before_the_first = refused(
    lambda problem, axes: points(problem, None, open_device("cpu"), axes),
    (Softmax(), {"rows": range(999_999, -1, -1)}, "rows must be between 1"),
    (Softmax(), {"rows": [1, 2**63]}, "rows must be between 1 and 2..62, got 9223372036854775808"),
    (Softmax(), {"rows": [1, True]}, "rows must be an integer, got True"),
    (Softmax(), {"rows": [1, 2.0]}, "rows must be an integer, got 2.0"),
    (Softmax(), {"rows": ["eight"]}, "rows must be a whole number such as 4096 or 8k, got 'eight'"),
    (Softmax(), {"rows": [8], "dtype": ["fp32", "fp3"]}, "unknown dtype 'fp3'"),
    (Softmax(), {"rows": [2**31, 2**61], "columns": [4, 8]}, "more than 2..62 bytes"),
    (Attention(heads=8), {"kv_heads": [1, 2, 3]}, "kv_heads"),
    (Attention(), {"causal": [True, 1]}, "causal must be True or False"),
)
