"""Measurements and their files: derived values by hand, lines that survive kills and full disks, tables that are rectangles."""

import csv
import dataclasses
import hashlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from example import BRIEF, bandwidth, bracket
from tables import gives, refused

import roofline
from roofline.errors import Error
from roofline.machine import Machine
from roofline.operators import Attention
from roofline.results import Bracket, Measurement, Results, append_to, measurement_key, records_to_csv

READ = {"operator": "stream", "access": "read", "elements": 1 << 26}
MEMORY = bracket((39e9, 40e9, 44e9), problem=READ, variant="plain", after_samples=(50e9,))
COMPUTE = bracket(200e9, "fp32 avx2", kind="compute")
LAUNCH = bracket(2e-6, "fork-join", kind="latency", after_samples=(4e-6,))


def measurement(**more: Any) -> Measurement:
    """90 MB at the bracket's 45 GB/s are 2 ms; it took 2.5 ms: 80 %."""
    fields: dict[str, Any] = {
        "operator": "attention", "problem": {"batch": 2, "causal": False, "dtype": "fp32"}, "variant": "tiled", "device": "cpu",
        "threads": 2, "cache_state": "cold", "samples_s": (2.4e-3, 2.5e-3, 2.6e-3), "flops": {"a": 40 * 10**6, "b": 5 * 10**6},
        "bytes": {"compulsory": 80 * 10**6, "scores": 10 * 10**6}, "level": "DRAM", "brackets": (MEMORY, COMPUTE, LAUNCH),
        "prediction": {"time_s": 2.25e-3, "bound": "DRAM", "terms": {"DRAM": 2.25e-3}, "frozen_utc": "2026-11-21T10:00:00+00:00"},
        "plan": {"variant": "tiled", "tile": 64}, "steps": {"scores": (1e-3, 1.1e-3)},
        "correctness": {"checked": True, "max_error": 1e-6, "tolerance": 1e-4}, "load": {"cpu_share": 1.0, "run_delay_share": 0.0},
        "clock_hz_before": 3.1e9, "clock_hz_after": 3e9, "launches_per_sample": 4, "seed": 7, "utc": "2026-11-21T10:00:01+00:00",
        "provenance": {"versions": {"roofline": "0.1.0"}},
    }  # fmt: skip
    return Measurement(**{**fields, **more})


def unsupported() -> Measurement:
    empty: dict[str, Any] = {name: {} for name in ("prediction", "steps", "correctness", "load", "plan")}
    return measurement(
        status="unsupported", reason="no kernel for fp16", problem={"batch": 2, "dtype": "fp16", "heads": 5}, samples_s=(),
        brackets=(), level="", clock_hz_before=None, clock_hz_after=None, **empty,
    )  # fmt: skip


# -- brackets -------------------------------------------------------------------------------------------------------------


def test_bracket_by_hand() -> None:
    assert (MEMORY.median_before, MEMORY.median_after, MEMORY.value) == (40e9, 50e9, 45e9)
    assert MEMORY.moved == 0.25
    assert MEMORY.samples == (39e9, 40e9, 44e9, 50e9)
    assert MEMORY.time_s(0, 90 * 10**6) == 2e-3
    assert MEMORY.time_s(0, 90 * 10**6, rate=90e9) == 1e-3
    assert COMPUTE.time_s(200, 1) == 1e-9
    assert LAUNCH.time_s(1, 1) == 2e-6  # the shortest: what else happened only lengthens a launch


def test_the_link_to_other_ranks_is_a_roof() -> None:
    """150 MB at 100 GB/s are 1.5 ms, less than the 2 ms of DRAM; 300 MB are 3 ms, more than all others."""
    link = Bracket(label="link of 8 ranks", kind="link", before_samples=(100e9,))
    less, more = (measurement(brackets=(MEMORY, COMPUTE, LAUNCH, link), link_bytes=sent) for sent in (150 * 10**6, 300 * 10**6))
    assert (less.bound, less.attainable_s) == ("DRAM", 2e-3)
    assert (more.bound, more.attainable_s, more.share_of_bracket) == ("link", 3e-3, 3e-3 / 2.5e-3)
    assert Measurement.from_dict(more.to_dict()) == more


def test_a_bracket_without_an_after() -> None:
    open_ended = dataclasses.replace(MEMORY, after_samples=())
    assert (open_ended.median_after, open_ended.value, open_ended.moved) == (None, 40e9, 0.0)


test_bad_brackets = refused(
    lambda changes: dataclasses.replace(MEMORY, **changes),
    ({"kind": "speed"}, "bracket 'DRAM read': kind must be one of bandwidth, compute, latency, link, got 'speed'"),
    ({"before_samples": ()}, "before_samples is empty"),
    ({"before_samples": (0.0,)}, "before_samples must be positive finite"),
    ({"after_samples": (float("nan"),)}, "after_samples must be positive finite"),
)


# -- measurements ---------------------------------------------------------------------------------------------------------


def test_derived_values_by_hand() -> None:
    m = measurement()
    assert m.time_s == 2.5e-3 and m.interval == (2.4e-3, 2.6e-3)
    assert (m.total_flops, m.total_bytes) == (45 * 10**6, 90 * 10**6)
    assert m.flops_per_s == pytest.approx(18e9)
    assert m.bytes_per_s == pytest.approx(36e9)
    assert m.flops_per_byte == 0.5
    # 2 ms of memory, 0.225 ms of compute, 3 us of launch.
    assert m.limiting_bracket is m.brackets[0]
    assert (m.bound, m.attainable_s) == ("DRAM", 2e-3)
    assert m.share_of_bracket == pytest.approx(0.8)
    assert m.prediction_error == pytest.approx(-0.1)  # 2.25 / 2.5 - 1
    assert m.dtype == "fp32"
    assert m.derived() == {
        "time_s": m.time_s, "time_low_s": 2.4e-3, "time_high_s": 2.6e-3, "flops_per_s": m.flops_per_s, "bytes_per_s": m.bytes_per_s,
        "flops_per_byte": 0.5, "bound": "DRAM", "share_of_bracket": m.share_of_bracket, "prediction_error": m.prediction_error,
        "energy_per_launch_j": None,
    }  # fmt: skip


def test_what_one_thread_runs_alone_has_no_launch_roof() -> None:
    brackets = (bracket(36e9), bracket(4e-7, "fork-join", kind="latency"))
    small = {"flops": {"all": 2}, "bytes": {"compulsory": 12}, "samples_s": (3e-7,), "brackets": brackets}
    shared = measurement(**small, prediction={"time_s": 4e-7, "parts": {"launch": 4e-7}})
    alone = measurement(**small, prediction={"time_s": 1e-9, "parts": {"launch": 0.0}})
    assert (shared.bound, alone.bound) == ("launch", "DRAM")
    assert alone.attainable_s == pytest.approx(12 / 36e9)


WORKING = {
    "sm_clock_hz": 1.41e9, "memory_clock_hz": 3.2e9, "power_w": 690.0, "power_max_w": 702.0, "temperature_c": 62.0,
    "gpu_idle_share": 0.1, "sw_power_cap_share": 0.96, "power_limited": 1, "other_processes": 0, "energy_j": 19.2,
}  # fmt: skip


def test_energy_by_hand() -> None:
    """Three samples of four launches: 30 ms of work in the window."""
    m = measurement(conditions=WORKING, load={"wall_s": 0.032})
    assert m.energy_per_launch_j == pytest.approx(1.6)
    shown = dict(row[:2] for row in m._table()[2])
    assert shown["conditions"] == "1.41 GHz, 690 W, 62 °C, power limited, sw power cap 96 %"
    assert shown["energy"] == "1.60 J per launch, 35.6 nJ/FLOP, 17.8 nJ/B"
    decode = measurement(problem={"batch": 16, "seq_q": 2}, conditions=WORKING, load={"wall_s": 0.032})
    assert dict(row[:2] for row in decode._table()[2])["energy"].endswith("17.8 nJ/B, 50.0 mJ/token")  # 1.6 J over 32
    assert (measurement(problem={"tokens": 7}).tokens, m.tokens) == (7, 0)
    record = m.to_record()
    assert (record["energy_per_launch_j"], record["power_w"], record["power_limited"]) == (m.energy_per_launch_j, 690.0, 1)
    assert m.status == "ok", "the power cap is a property of the ceiling"
    assert measurement(conditions=WORKING, load={"wall_s": 0.04}).energy_per_launch_j is None, "a quarter of it were pauses"
    assert measurement(conditions={"power_w": 690.0}, load={"wall_s": 0.032}).energy_per_launch_j is None
    assert "energy" not in dict(row[:2] for row in measurement()._table()[2])
    assert Measurement.from_dict(json.loads(json.dumps(m.to_dict()))) == m


test_which_roof_decides = gives(
    lambda changes: measurement(**changes).bound,
    ({"flops": {"a": 10**9}}, "compute"),  # 5 ms
    ({"flops": {"a": 1}, "bytes": {"compulsory": 1}}, "launch"),
    ({"brackets": ()}, "DRAM"),  # the prediction's
    ({"brackets": (), "prediction": {}}, ""),
    ({"brackets": (dataclasses.replace(MEMORY, level=""),), "level": "L3"}, "L3"),
)


def test_nothing_is_derived_from_nothing() -> None:
    m = unsupported()
    assert m.time_s is m.interval is m.flops_per_s is m.bytes_per_s is m.share_of_bracket is m.prediction_error is m.summary is None
    assert m.attainable_s is None and m.limiting_bracket is None
    assert measurement(bytes={}).flops_per_byte is None
    assert measurement(prediction={}).prediction_error is None


def test_share_of_the_best_mode_by_hand() -> None:
    machine = Machine(name="Example CPU", ceilings=(bandwidth((100e9,) * 4 + (45e9,) * 2, problem=READ),))
    # With the bracket's 39, 40, 44, 50: modes of 44.5 (6 samples) and 100 (4). 90 MB at 100 GB/s are 0.9 ms, of 2.5.
    assert measurement().share_of_best_mode(machine) == pytest.approx(0.36)
    # Where only one mode was ever seen there is no such share.
    assert measurement().share_of_best_mode(Machine(name="bare")) is None
    assert unsupported().share_of_best_mode(machine) is None
    # The bracket alone may have seen both.
    alone = dataclasses.replace(MEMORY, before_samples=(50e9, 50e9), after_samples=(100e9, 100e9), problem={})
    assert measurement(brackets=(alone,)).share_of_best_mode(machine) == pytest.approx(0.36)
    # A latency's best mode is the lowest: 1 us, of 2.5 ms.
    launch = dataclasses.replace(LAUNCH, before_samples=(4e-3, 4e-3), after_samples=(1e-6, 1e-6))
    assert measurement(brackets=(launch,)).share_of_best_mode(machine) == pytest.approx(0.0004)


test_bad_measurements = refused(
    lambda changes: measurement(**changes),
    ({"status": "fine"}, "measurement of attention: status must be one of ok, contended"),
    ({"cache_state": "tepid"}, "cache_state must be one of cold, warm, user, got 'tepid'"),
    ({"samples_s": (1.0, -1.0)}, "samples_s must be positive finite"),
    ({"steps": {"scores": (float("inf"),)}}, r"steps\['scores'\] must be positive finite"),
)


# -- keys -----------------------------------------------------------------------------------------------------------------


def test_a_key_does_not_change_with_versions() -> None:
    """Files are resumed by these keys: another value here would measure everything again."""
    text = (
        '{"cache_state":"cold","device":"cpu","operator":"attention","problem":{"batch":1,"causal":false,"dtype":"fp32","head_dim":64,'
        '"heads":8,"kv_heads":8,"logsumexp":false,"seq_kv":2048,"seq_q":2048},"threads":2,"variant":"tiled"}'
    )
    key = measurement_key("attention", Attention().to_dict(), "tiled", "cpu", 2, "cold")
    assert key == hashlib.sha256(text.encode()).hexdigest()
    assert key == "f983a6df4a41fe3c323b63b77c875824f40e607db4e9298c88b6a36e90076ae1"


def test_what_makes_a_key() -> None:
    m = measurement()
    same = measurement(problem={"dtype": "fp32", "causal": False, "batch": 2}, samples_s=(1.0,), seed=8, status="contended", utc="")
    assert same.key == m.key
    changes: tuple[dict[str, Any], ...] = (
        {"operator": "x"}, {"problem": {"batch": 3, "causal": False, "dtype": "fp32"}}, {"variant": "naive"}, {"device": "cuda:0"},
        {"threads": 1}, {"cache_state": "warm"},
    )  # fmt: skip
    assert len({m.key, *(measurement(**change).key for change in changes)}) == 7
    results = Results((m, unsupported(), measurement(threads=1, status="contended")))
    assert results.keys() == {m.key, unsupported().key, measurement(threads=1).key}
    assert results.keys(("ok", "unsupported")) == {m.key, unsupported().key}


# -- files ----------------------------------------------------------------------------------------------------------------


def test_lines_are_appended_and_read(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    made = [measurement(), unsupported(), measurement(threads=1)]
    for count, m in enumerate(made, start=1):
        append_to(path, m)
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) == count and all(isinstance(json.loads(line), dict) for line in lines)
    found = Results.load(path)
    assert list(found) == made and found.notes == ()
    assert found[1] == made[1] and list(found[1:]) == made[1:] and len(found) == 3
    assert isinstance(found[:2], Results)


def test_empty_files_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.touch()
    assert len(Results.load(path)) == 0
    append_to(path, measurement())
    path.write_text("\n" + path.read_text(encoding="utf-8") + "\n\n", encoding="utf-8")
    assert list(Results.load(path)) == [measurement()]
    append_to(path, measurement())
    assert len(Results.load(path)) == 2


@pytest.mark.parametrize("cut", [1, 2, 10, 300])
def test_a_last_line_cut_short_is_left_out_and_repaired(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_to(path, measurement())
    append_to(path, unsupported())
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    found = Results.load(path)
    if cut == 1:  # only the newline is gone: the line is whole
        assert list(found) == [measurement(), unsupported()] and found.notes == ()
    else:
        assert list(found) == [measurement()]
        assert found.notes == ("line 2 was cut short (the run was killed or the disk was full) and is left out",)
    append_to(path, measurement(threads=1))
    repaired = Results.load(path)
    assert repaired.notes == ()
    assert [m.threads for m in repaired] == ([2, 2, 1] if cut == 1 else [2, 1])


@pytest.mark.parametrize("content", [b"\x00\x01\x02", b"notes of mine", b'{"a": 1', b'\n{"kind":'])
def test_a_last_line_that_is_not_ours_is_no_line_cut_short(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_bytes(content)
    with pytest.raises(Error, match="line [12] is not valid JSON"):
        Results.load(tmp_path / "results.jsonl")


def test_a_long_last_line_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_to(path, measurement())
    append_to(path, measurement(samples_s=tuple(1e-3 + i * 1e-9 for i in range(20000))))  # longer than one read
    path.write_bytes(path.read_bytes()[:-5])
    append_to(path, unsupported())
    assert list(Results.load(path)) == [measurement(), unsupported()]


def line(**changes: Any) -> bytes:
    return json.dumps({**measurement().to_dict(), **changes}).encode()


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        (line()[:300], "line 2 is not valid JSON .*truncated or was edited"),
        (b"{", "line 2 is not valid JSON .*only a results file holds one object a line"),  # the first line of a machine file
        (b"\xff\xfe", "line 2 is not valid JSON"),
        (b"[1]", "line 2 must be a JSON object"),
        (b"{}", "line 2 has no schema_version"),
        (line(schema_version=5), "line 2 has schema_version 5, this version reads 4: upgrade roofline"),
        (b'{"schema_version": 4, "kind": "machines", "machines": []}', "line 2: this is a machine file, not a results file"),
        (line(extra=1), "line 2 has the unknown key 'extra'"),
        (line().replace(b'"variant": "tiled", ', b"", 1), "line 2 lacks variant"),
        (line(samples_s="fast"), "line 2: samples_s must be a list, got 'fast'"),
        (line(samples_s=[1, None]), r"line 2: samples_s\[1\] must be a number, got None"),
        (line(flops={"a": 1.5}), r"line 2: flops\['a'\] must be an integer, got 1.5"),
        (line(flops={"all": -(10**400)}), r"flops\['all'\] must be an integer"),
        (line(samples_s=[1e-3, 1e300]), r"samples_s\[1\] must be a number <= 1000000000.0, got 1e\+300"),
        (line(prediction={"time_s": "soon"}), "line 2: prediction: time_s must be a number, got 'soon'"),
        (line(prediction={"time_s": 10**400}), "line 2: prediction: time_s must be a finite number"),
        (line(prediction={"terms": "none"}), "prediction: terms must be an object, got 'none'"),
        (line(prediction={"terms": {"DRAM": "x"}}), r"prediction: terms\['DRAM'\] must be a number, got 'x'"),
        (line(problem={"rows": [1]}), r"problem\['rows'\] must be"),
        (line(operator="softmax", problem={"rows": -1}), r"problem: softmax: rows must be between 1 and 2\*\*62, got -1"),
        (line(operator="softmax", problem={"widgets": 1}), "problem: softmax: unknown field 'widgets'"),
        (line(correctness={"tolerance": {}}), r"correctness: tolerance must be a number, got \{\}"),
        (line(load={"wall_s": "x"}), "load: wall_s must be a number, got 'x'"),
        (line(brackets=[{"label": "x"}]), r"line 2: brackets\[0\] lacks kind"),
        (line(status="fine"), "line 2: measurement of attention: status must be one of"),
        (line(warmup_s=float("nan")), "line 2 is not valid JSON .*contains NaN"),
        (line()[:-1] + b', "seed": 8}', "line 2 is not valid JSON .*has the key 'seed' twice"),
    ],
)
def test_damage_in_the_middle_is_named_with_its_line(damaged: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(line() + b"\n" + damaged + b"\n" + line() + b"\n")
    with pytest.raises(Error, match=words) as caught:
        Results.load(path)
    assert str(path) in str(caught.value)


def test_a_newer_last_line_is_not_taken_for_a_truncated_one(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(line() + b"\n" + line(schema_version=5))
    with pytest.raises(Error, match="line 2 has schema_version 5"):
        Results.load(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(Error, match="cannot read results file .*absent.jsonl: No such file"):
        Results.load(tmp_path / "absent.jsonl")
    with pytest.raises(Error, match="cannot append to results file .*No such file or directory"):
        append_to(tmp_path / "absent" / "results.jsonl", measurement())


def test_derived_values_are_ignored_when_read(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(line(derived={"time_s": 7}, key="0") + b"\n")
    assert list(Results.load(path)) == [measurement()]


def test_what_has_no_json_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_to(path, measurement())
    with pytest.raises(Error, match="the measurement of attention cannot be written as JSON"):
        append_to(path, measurement(plan={"x": float("nan")}))
    assert list(Results.load(path)) == [measurement()]


def test_lines_fit_their_schema(schema: Any, closed: Any) -> None:
    check = schema("results")
    for m in (measurement(), unsupported(), measurement(brackets=(dataclasses.replace(MEMORY, after_samples=()),), bytes={})):
        assert list(check.iter_errors(json.loads(json.dumps(m.to_dict())))) == []
    written = json.loads(json.dumps(measurement().to_dict()))
    closed(check, written, written, written["brackets"][0], written["derived"])
    for key, bad in (
        ("key", "0"),
        ("status", "fine"),
        ("samples_s", [0]),
        ("flops", {"a": 0.5}),
        ("steps", {"a": 1}),
        ("seed", None),
    ):
        assert not check.is_valid({**written, key: bad}), key


def test_what_is_really_measured_fits_its_schema(schema: Any) -> None:
    check = schema("results")
    m = roofline.measure(roofline.Relu(elements=4096), device="cpu", cache_state="warm", policy=BRIEF)
    assert list(check.iter_errors(json.loads(json.dumps(m.to_dict())))) == []
    assert Measurement.from_dict(json.loads(json.dumps(m.to_dict()))) == m


# -- tables ---------------------------------------------------------------------------------------------------------------


def test_steps_have_columns() -> None:
    timed = measurement(steps={"q·kᵀ": (3e-3, 1e-3, 2e-3), "p·v": (4e-3,), "softmax": ()})
    assert timed.steps_s() == {"q·kᵀ": 2e-3, "p·v": 4e-3}
    row = timed.to_record()
    assert (row["step_q·kᵀ_s"], row["step_p·v_s"]) == (2e-3, 4e-3)
    assert "step_softmax_s" not in row
    first, second = csv.DictReader(records_to_csv(Results((timed, measurement(steps={}))).to_records()).splitlines())
    assert (first["step_q·kᵀ_s"], first["step_p·v_s"]) == ("0.002", "0.004")
    assert (second["step_q·kᵀ_s"], second["step_p·v_s"]) == ("", "")


def test_records_are_flat() -> None:
    row, gone = Results((measurement(), unsupported())).to_records()
    assert all(value is None or isinstance(value, (bool, int, float, str)) for value in [*row.values(), *gone.values()])
    expected = {
        "operator": "attention", "variant": "tiled", "batch": 2, "causal": False, "dtype": "fp32", "flops": 45 * 10**6,
        "bytes": 90 * 10**6, "compulsory_bytes": 80 * 10**6, "time_s": 2.5e-3, "samples": 3, "predicted_time_s": 2.25e-3,
        "bracket": "DRAM read", "bracket_before": 40e9, "bracket_after": 50e9, "max_error": 1e-6, "key": measurement().key,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert gone["time_s"] is None and gone["samples"] == 0 and gone["reason"] == "no kernel for fp16"


def test_a_field_named_as_a_column_is_kept_apart() -> None:
    row = measurement(problem={"threads": 9, "dtype": "fp32", "key": "k"}).to_record()
    assert (row["threads"], row["problem_threads"], row["problem_key"]) == (2, 9, "k")
    assert row["key"] == measurement(problem={"threads": 9, "dtype": "fp32", "key": "k"}).key


def test_no_field_of_a_problem_is_overwritten() -> None:
    """Whatever a problem calls its fields, every one of them is in the row."""
    names = list(measurement().to_record())
    row = measurement(problem={name: f"own {name}" for name in names}).to_record()
    for name in names:
        assert f"own {name}" in (row.get(name), row.get(f"problem_{name}")), name


def test_csv_by_hand(tmp_path: Path) -> None:
    assert records_to_csv([{"a": 1, "b": None}, {"b": 2.5, "c": 'x, "y"'}]) == 'a,b,c\n1,,\n,2.5,"x, ""y"""\n'
    assert records_to_csv([]) == ""
    path = tmp_path / "results.csv"
    Results((measurement(), unsupported())).to_csv(path)
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert len(rows) == 2 and None not in rows[0] and None not in rows[1]
    assert float(rows[0]["time_s"]) == 2.5e-3 and rows[0]["heads"] == ""
    assert rows[1]["time_s"] == "" and rows[1]["heads"] == "5"


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_frames(name: str) -> None:
    pytest.importorskip(name, reason=f"makes tables of {name}")
    make: Callable[[Results], Any] = getattr(Results, f"to_{name}")
    frame = make(Results((measurement(), unsupported())))
    assert frame.shape == (2, len({**measurement().to_record(), **unsupported().to_record()}))
    assert frame["time_s"][0] == 2.5e-3
    assert list(frame["dtype"]) == ["fp32", "fp16"]
    assert make(Results()).shape == (0, 0)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_without_the_library_a_plain_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Error, match=f"{name} is not installed: `pip install {name}`, or use to_records"):
        getattr(Results(), f"to_{name}")()
