"""The command line: output, exit codes, errors in one line, files that survive interruptions."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from example import bandwidth, fma, measurement
from programs import printed

from roofline import Softmax
from roofline.ceilings.measuring import POLICIES
from roofline.ceilings.wanted import single
from roofline.cli import main
from roofline.cli.measuring import _kept
from roofline.cli.terminal import Terminal
from roofline.machine import Machine
from roofline.measurement import open_device
from roofline.measurement.policy import QUICK, REPORT, THOROUGH
from roofline.probes import standard_problems
from roofline.report.tables import reasons
from roofline.results import Results, append_to
from roofline.units import MIB, fmt_bytes

pytest.importorskip("roofline._core", reason="the compiled module is not built")

READ = {"operator": "stream", "access": "read", "elements": 1 << 12, "passes": 1, "streams": 1, "factor": 3.0, "dtype": "fp32"}
BRIEF = ["--quick", "--timeout", "0.01", "--min-samples", "3", "--device", "cpu"]
FAST = [*BRIEF, "--cache-state", "warm"]  # a small cold problem waits for its caches to be emptied
PATIENCE_S = 120  # other tests may share these cores


@pytest.fixture(scope="module")
def ceilings(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A machine file whose probes are small, so that every bracket is quick."""
    made = Machine(
        name="Example CPU",
        facts={"threads": 2, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20},
        ceilings=(
            bandwidth((50e9, 51e9, 52e9), problem=READ),
            bandwidth((40e9, 41e9, 42e9), "copy", problem={**READ, "access": "copy"}),
            fma(200e9, accumulator="fp32", problem={"operator": "fma", "dtype": "fp32"}),
        ),
    )
    path = tmp_path_factory.mktemp("machine") / "machine.json"
    made.save(path)
    return str(path)


def command(*arguments: str, **environment: str) -> dict:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # a user's stdout has a buffer
    return {"args": [sys.executable, "-m", "roofline", *arguments], "env": {**kept, **environment}}


def ran(*arguments: str, preexec_fn: Any = None, **environment: str) -> subprocess.CompletedProcess[str]:
    shown = {"capture_output": True, "text": True, "encoding": "utf-8", "errors": "replace"}
    return subprocess.run(**command(*arguments, **environment), **shown, timeout=PATIENCE_S, preexec_fn=preexec_fn)


def one_line(err: str) -> str:
    """The error, which must be one line without a traceback."""
    assert err.count("\n") == 1, err
    assert err.startswith("roofline: "), err
    return err


# -- usage ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["report", "--help"], ["run", "--help"], ["run", "attention", "--help"], ["explain", "--help"]]
)
def test_help(arguments: list[str], cli: Any) -> None:
    assert "usage: roofline" in cli.out(arguments)


def test_help_of_an_operator_comes_from_its_fields(cli: Any) -> None:
    from roofline.operators import OPERATORS

    for name, cls in OPERATORS.items():
        out = cli.out(["run", name, "--help"])
        for field in cls.field_names():
            assert f"--{field.replace('_', '-')} " in out, (name, field)
        assert cls.summary in out


@pytest.mark.timing
def test_help_is_quick() -> None:
    begun = time.perf_counter()
    assert ran("--help").returncode == 0
    assert time.perf_counter() - begun < 0.3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "there is no 'nothing'"),
        (["run"], "the following arguments are required: OPERATOR"),
        (["run", "convolution"], "there is no 'convolution'"),
        (["run", "relu", "--rows", "3"], "unrecognized arguments: --rows 3 (`roofline run relu --help` lists"),
        (["run", "relu", "--seq-len", "3"], "unrecognized arguments: --seq-len 3"),
        (["run", "relu", "--elements", "0"], "elements must be between 1"),
        (["run", "relu", "--elements", "1" * 5000], "must be a whole number"),
        (["run", "relu", "--elements", "nan"], "must be a whole number"),
        (["run", "relu", "--elements", ""], "must be a whole number"),
        (["run", "rms_norm", "--eps", "nan"], "eps must be a finite number"),
        (["run", "rms_norm", "--eps", "inf"], "eps must be a finite number"),
        (["run", "relu", "--dtype", "fp12"], "unknown dtype 'fp12'"),
        (["run", "relu", "--dtype", "int8"], "dtype must be one of"),
        (["run", "relu", "--variant", "tiled"], "unknown variant 'tiled'"),
        (["run", "relu", "--device", "tpu"], "tpu"),
        (["run", "relu", "--threads", "60000"], "threads"),
        (["run", "relu", "--threads", "-1"], "must be a whole number from 0"),
        (["run", "relu", "--timeout", "0"], "must be a positive number of seconds"),
        (["run", "relu", "--timeout", "nan"], "must be a positive number of seconds"),
        (["run", "relu", "--max-noise", "200%"], "must be a share"),
        (["run", "relu", "--min-samples", "1"], "must be a whole number from 3"),
        (["run", "relu", "--quick", "--thorough"], "not allowed with"),
        (["run", "relu", "--machine", "H100"], "NVIDIA H100 SXM is cuda, and cpu is measured"),
        (["sweep", "relu", "--machine", "2TB/s,bf16=1PFLOP/s"], "is paper, and cpu is measured"),
        (["run", "relu", "--once", "--json"], "--once measures nothing that -o or --json could hold"),
        (["run", "relu", "--describe", "--json"], "--describe answers in words"),
        (["measure", "--describe", "--json"], "--describe answers in words"),
        (["sweep", "relu", "-o", "x.csv"], "x.csv: results are JSON Lines: name the file results.jsonl"),
        (["sweep", "relu", "--arena", "1000TB"], "are asked for the arrays of probes"),
        (["predict", "Llama-3-8B", "--machine", "H100", "--utilisation", "link=1,link=1"], "a share is given twice"),
        (["predict", "x" * 300, "--machine", "H100"], "is neither a model nor an operator"),
        (["predict", "Llama-3-8B", "--machine", "x" * 300], "there is no datasheet of"),
        (["plot", "x" * 300], "there is no picture"),
        (["compare", "x" * 300, "H100"], "there is no file or folder"),
        (["explain", "x" * 300], "is neither a file nor an operator"),
        (["sweep", "relu", "--elements", "1,,2"], "must be values separated by commas"),
        (["sweep", "relu", "--elements", "1,two"], "must be a whole number"),
        (["sweep", "relu", "--elements", "5,-2"], "elements must be between 1"),
        (["sweep", "attention", "--causal", "maybe"], "must be true or false"),
        (["sweep", "relu", "--variant", "fused,tiled"], "unknown variant 'tiled'"),
        (["explain", "/no/such/file.jsonl"], "neither a file nor an operator: name a results.jsonl, its folder, or an operator"),
        (["explain", "atention"], "neither a file nor an operator (did you mean attention"),
        (["plot", "/no/such/machine.json"], "No such file"),
        (["compare", "machines.json", "A100"], "machines.json"),
        (["compare", "H100", "A1000"], "B: there is no file or folder 'A1000', and there is no datasheet of 'A1000' (did you mean"),
        (["report", "--from", "/no/such/folder"], "No such file"),
        (["report", "-o", "/dev/null/report"], "cannot write into"),
        (["measure", "-o", "/no/such/folder/machine.json"], "cannot write"),
        (["run", "relu", "-o", "/no/such/folder/r.jsonl"], "cannot write"),
        (["sweep", "relu", "-o", "/"], "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments: list[str], said: str, cli: Any) -> None:
    assert said in cli.refused(arguments)


def test_a_report_of_saved_results_into_no_folder(cli: Any, ceilings: str) -> None:
    saved = str(Path(ceilings).parent)
    assert "cannot write into /dev/null/report" in cli.refused(["report", "--from", saved, "-o", "/dev/null/report", "--no-plot"])


def test_verbose_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "relu", "--elements", "0", "-v"]) == 2
    assert "Traceback" in capsys.readouterr().err


# -- backends -------------------------------------------------------------------------------------------------------------


def test_an_absent_device_is_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "relu", "--elements", "8", "--device", "cuda:99"]) in (2, 3)
    assert "cuda" in one_line(capsys.readouterr().err)


def test_a_module_that_does_not_load_is_code_3(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['roofline._core'] = None\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = ran("run", "relu", "--elements", "8", PYTHONPATH=path)
    assert done.returncode == 3
    assert "the compiled part of roofline does not load" in one_line(done.stderr)
    doctor = ran("doctor", "--json", PYTHONPATH=path)
    assert doctor.returncode == 3
    module = next(c for c in json.loads(doctor.stdout) if c["name"] == "compiled module")
    assert (module["state"], "pip install" in module["cure"]) == ("missing", True)


def test_a_kernel_that_is_not_there_is_code_3_and_a_result(cli: Any, ceilings: str) -> None:
    record = cli.json(["run", "convert", "--elements", "8", "--dtype", "int8", "--machine", ceilings, *FAST], code=3)
    assert record["status"] == "unsupported"
    assert record["reason"]


def test_devices_version_and_doctor(cli: Any) -> None:
    for flags in (["--list-devices"], ["run", "--list-devices"], ["run", "relu", "--list-devices"]):
        assert "cpu" in cli.out(flags)
        assert cli.json(flags)[0]["name"] == "cpu"
    assert cli.out(["--version"]).startswith("roofline ")
    out = cli.out(["doctor"])
    assert "compiled module" in out
    assert "\x1b" not in out, "no colours where stdout is no terminal"


# -- one problem ----------------------------------------------------------------------------------------------------------


def test_run_prints_a_table_or_json(capsys: pytest.CaptureFixture[str], cli: Any, ceilings: str, tmp_path: Path) -> None:
    out = str(tmp_path / "r.jsonl")
    problem = ["run", "softmax", "--rows", "16", "--columns", "64", "--machine", ceilings, *FAST]
    assert main([*problem, "-o", out]) == 0
    captured = capsys.readouterr()
    assert "rows=16 columns=64 fp32" in captured.out
    assert captured.err == ""
    record = cli.json(problem)
    assert record["problem"]["rows"] == 16
    assert record["samples_s"]
    assert len(Results.load(out)) == 1
    assert cli.out([*problem, "-o", out, "--quiet"]) == ""
    assert len(Path(out).read_text().splitlines()) == 2


@pytest.mark.parametrize(("operator", "fields"), [("attention", "seq_q = seq_kv"), ("ffn", "seq_q"), ("rope", "seq_q")])
def test_a_length_says_what_it_stands_for(operator: str, fields: str, cli: Any) -> None:
    assert f"shorthand for {fields}\n" in cli.out(["run", operator, "--help"])


def test_once_launches_without_a_clock(cli: Any) -> None:
    assert "launched once" in cli.out(["run", "attention", "--seq-len", "32", "--causal", "--once", "--device", "cpu"])


@pytest.mark.parametrize(
    "arguments", [["run", "attention", "--seq-len", "32"], ["sweep", "attention", "--seq-len", "32,64"], ["explain", "attention"]]
)
def test_describe_says_it_in_english(arguments: list[str], cli: Any) -> None:
    out = cli.out([*arguments, "--describe"])
    assert "three passes" in out
    first = "the first problem: batch=1 heads=8 kv_heads=8 seq_q=32 seq_kv=32 "
    assert (first in out) == (arguments[0] == "sweep")
    assert "2 · batch · heads · seq_q · seq_kv · head_dim" in out
    assert f"{fmt_bytes(open_device('cpu').flush_bytes)} to flush the caches" in out


def test_describe_ceilings(cli: Any) -> None:
    out = cli.out(["measure", "--describe", "--quick", "--device", "cpu", "-o", "/no/such/folder/m.json"])
    assert "DRAM read: read bandwidth over arrays that no cache holds" in out
    device = open_device("cpu")
    memory = f"see --arena), {fmt_bytes(device.flush_bytes)} to flush the caches\n"
    assert "Memory: " in out and memory in out
    reported = cli.out(["report", "--describe", "--device", "cpu"])
    assert memory in reported and "layer_norm" in reported and "points of operators" in reported
    assert re.search(r"^memory: [\d.]+ [MG]iB for tensors, ", reported, re.MULTILINE)
    standard = cli.out(["measure", "--describe", "--device", "cpu"])
    (line,) = (each for each in standard.splitlines() if each.startswith("Memory: "))
    alone = single(device)  # its arrays and its flushes are its own
    assert line.endswith(f"{fmt_bytes(device.flush_bytes + (alone.flush_bytes if alone else 0))} to flush the caches")
    largest = max(each.problem.footprint_bytes() for each in standard_problems(device, "standard"))
    assert f"{fmt_bytes(largest)} for one problem beside them" in line


def test_a_limit_of_the_arrays_holds_with_one_thread_too() -> None:
    out = printed("""
        from roofline.ceilings.wanted import single
        from roofline.cli import main
        from roofline.measurement import open_device
        main(["measure", "--describe", "--device", "cpu", "--arena", "60MiB"])
        alone = single(open_device("cpu"))
        print("limit", alone and alone.arena_bytes)
    """)
    assert out.split()[-1] in ("None", str(60 * MIB))


# -- sweeps ---------------------------------------------------------------------------------------------------------------


def test_sweep_takes_lists_and_explain_reads_its_file(cli: Any, ceilings: str, tmp_path: Path) -> None:
    out = str(tmp_path / "s.jsonl")
    sweep = [
        "sweep", "attention", "--seq-len", "8,16", "--causal", "true,false", "--variant", "naive,tiled", "--heads", "1",
        "--machine", ceilings,
    ]  # fmt: skip
    lines = cli.out([*sweep, *FAST, "-o", out]).splitlines()
    assert lines[0].startswith("operator")
    assert len([line for line in lines if line.startswith("attention ")]) == 8
    found = Results.load(out)
    first = [(m.problem["seq_q"], m.problem["causal"], m.variant) for m in found[:3]]
    assert first == [(8, True, "naive"), (8, True, "tiled"), (8, False, "naive")]
    assert found[3].key[:12] in cli.out(["explain", out])
    for chosen in ("4", found[3].key[:16]):
        text = cli.out(["explain", out, chosen, "--machine", ceilings])
        assert "attention tiled: heads=1 seq_len=8" in text
        assert "Ceilings of Example CPU" in text
    assert cli.json(["explain", out, "4"])["measurement"]["key"] == found[3].key
    for absent in ("0", "9", "zzz"):
        assert "has no point" in cli.refused(["explain", out, absent])


def test_a_default_is_named_where_other_points_differ_from_it(cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "s.jsonl"
    for columns in (1024, Softmax().columns):
        problem = Softmax(rows=64, columns=columns)
        append_to(out, measurement(problem, 1e-3, variant="fused", status="contended", reason="other work"))
    listed = cli.out(["explain", str(out)])
    assert all(f"columns={columns}" in listed for columns in (1024, Softmax().columns))
    (reason,) = reasons(Results.load(out))
    assert all(f"columns={columns}" in reason for columns in (1024, Softmax().columns))


def test_sweep_writes_json_lines(cli: Any, ceilings: str) -> None:
    out = cli.out(["sweep", "convert", "--elements", "8,16", "--dtype", "int8", "--json", "--machine", ceilings, *FAST], code=3)
    records = [json.loads(line) for line in out.splitlines()]
    assert [(r["problem"]["elements"], r["status"]) for r in records] == [(8, "unsupported"), (16, "unsupported")]


def with_two_points(arguments: list[str], results: Path) -> subprocess.Popen[str]:
    """A command that has written so many, and goes on."""
    process = subprocess.Popen(**command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        if results.exists() and results.read_bytes().count(b"\n") >= 2:
            return process
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"no two points in {PATIENCE_S} s: {process.communicate()}")


def sweep(out: Path, ceilings: str) -> subprocess.Popen[str]:
    """A sweep of many points, stopped in the middle by the tests: two are settled at once, the others take time."""
    sizes = ",".join(str(1 << 20 | n) for n in range(400))
    arguments = ["sweep", "convert", "--elements", sizes, "--dtype", "int8,fp32", "--machine", ceilings, "-o", str(out), *FAST]
    return with_two_points(arguments, out)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, ceilings: str) -> None:
    out = tmp_path / "s.jsonl"
    process = sweep(out, ceilings)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    printed, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, (printed, err)
    assert time.monotonic() - begun < 20, "a second on an idle machine"
    kept = Results.load(out)
    assert f"{len(kept)} finished points of 800 in {out}" in one_line(err)
    assert not kept.notes


def test_an_interruption_before_the_first_point_names_no_file(tmp_path: Path) -> None:
    assert _kept(tmp_path / "s.jsonl", 10) == "no point is finished"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path, ceilings: str) -> None:
    out = tmp_path / "s.jsonl"
    process = sweep(out, ceilings)
    process.kill()
    process.communicate()
    before = out.read_bytes().rpartition(b"\n")[0]
    settled = [m.key for m in Results.load(out) if m.status in ("ok", "unsupported")]
    assert settled
    with open(out, "ab") as file:
        file.write(before[:200])  # what a kill in the middle of a write leaves
    sizes = f"{1 << 20},{(1 << 20) + 1},77"  # the last is new
    again = ["sweep", "convert", "--elements", sizes, "--dtype", "int8", "--machine", ceilings, "-o", str(out), *FAST]
    assert main([*again, "--quiet"]) == 3, "every point of this sweep is unsupported"
    after = Results.load(out)
    assert not after.notes
    assert out.read_bytes().startswith(before)
    assert all([m.key for m in after].count(key) == 1 for key in settled), "finished points are not repeated"


# -- damaged and full files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("machine.json", b"not json", "is not valid JSON"),
        ("machine.json", b'{"schema_version": 4, "kind": "machines", "machines": []}', "holds no machine"),
        ("r.jsonl", b'{"schema_version": 99}\n', "upgrade roofline"),
        ("r.jsonl", b'not json\n{"schema_version": 4}\n', "line 1"),
        ("r.jsonl", b'{"schema_version": 4}\n', "line 1 lacks"),
        ("r.jsonl", b"# my notes\n\n", "is not valid JSON"),
    ],
)
def test_damaged_files_are_refused_and_stay(name: str, content: bytes, said: str, tmp_path: Path, cli: Any) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    machine = (["plot", str(path)], ["run", "relu", "--machine", str(path)], ["report", "--from", str(tmp_path)])
    results = (["sweep", "relu", "-o", str(path)], ["run", "relu", "-o", str(path)], ["explain", str(path)])
    for arguments in machine if name == "machine.json" else results:
        assert said in cli.refused(arguments)
    assert path.read_bytes() == content


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_fails_in_one_line(cli: Any, ceilings: str) -> None:
    run = ["run", "convert", "--elements", "8", "--dtype", "int8", "-o", "/dev/full", "--machine", ceilings, *FAST]
    assert "No space left" in cli.refused(run, code=1)
    with open("/dev/full", "w") as full:
        done = subprocess.run(**command("--help"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "No space left" in one_line(done.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits are POSIX")
def test_a_disk_that_fills_up_keeps_the_lines_before(tmp_path: Path, ceilings: str) -> None:
    import resource

    out = tmp_path / "s.jsonl"
    sizes = ",".join(map(str, range(1, 40)))
    arguments = ["sweep", "convert", "--elements", sizes, "--dtype", "int8", "-o", str(out), "--machine", ceilings, *FAST]
    limit = 8 << 10
    done = ran(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 1, done
    assert "cannot append" in one_line(done.stderr)
    kept = Results.load(out)
    assert 0 < len(kept) < 39
    assert not kept.notes


# -- terminals ------------------------------------------------------------------------------------------------------------


def test_ascii_terminals(tmp_path: Path, ceilings: str) -> None:
    done = ran("run", "attention", "--describe", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "2 * batch * heads" in done.stdout
    assert ran("run", "attention", "--help", PYTHONIOENCODING="ascii").returncode == 0
    record = ran(
        "run", "attention", "--seq-len", "16", "--dtype", "fp64", "--json", "--machine", ceilings, *FAST, PYTHONIOENCODING="ascii"
    )
    assert "q·kᵀ" in json.loads(record.stdout)["flops"]


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    with subprocess.Popen(
        **command("run", "attention", "--help"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
        process.wait(PATIENCE_S)
    assert (process.returncode, err) == (1, "")


HEADERS = ("operator", "problem", "time", "GFLOP/s", "status")
ROWS = [
    ("attention naive", "batch=1 heads=8 seq_q=1 seq_kv=8192 head_dim=128 causal=True fp32", "1.23 ms", "120", "ok"),
    ("softmax fused", "rows=4096 columns=1024 fp32", "950 µs", "9.5", "contended"),
]


@pytest.mark.parametrize("columns", [40, 72, 100, 200])
def test_tables_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    Terminal(stream, is_terminal=True, columns=columns).table(HEADERS, ROWS, wide=("problem",))
    text = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    lines = text.splitlines()
    if columns >= 72:
        assert max(map(len, lines)) <= columns
        times = [line.index(cell) + len(cell) for line in lines for cell in ("1.23 ms", "950 µs") if cell in line]
        assert len(times) == 2
        assert len(set(times)) == 1, "numbers end in one column"
    assert "seq_kv=8192" in text.replace("\n", "")
    if columns == 200:
        assert len(lines) == 4


def test_a_terminal_too_narrow_for_two_columns_loses_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    rows = [("fork-join, 2 threads", "132 ns ±33 % or 163 GFLOP/s"), ("read", "37.6 GB/s ±2.9 %")]
    Terminal(stream, is_terminal=True, columns=20).table(("what", "value"), rows, wide=("what",))
    assert all(text in stream.getvalue() for text in ("value", "±33 % or 163 GFLOP/s", "±2.9 %", "fork-join"))


@pytest.mark.parametrize("no_color", [True, False])
def test_colour_only_where_it_is_wanted(no_color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1") if no_color else monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    Terminal(stream, is_terminal=True, columns=100).table(HEADERS, ROWS, wide=("problem",))
    assert ("\x1b[32m" in stream.getvalue()) is not no_color


# -- pictures and reports -------------------------------------------------------------------------------------------------


def test_plot_draws_from_saved_files(ceilings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], cli: Any) -> None:
    assert main(["plot", ceilings, "-o", str(tmp_path / "folder")]) == 0
    assert sorted(f.name for f in (tmp_path / "folder").iterdir()) == ["roofline.csv", "roofline.png", "roofline.svg"]
    assert main(["plot", ceilings, "-o", str(tmp_path / "one.svg")]) == 0
    assert (tmp_path / "one.svg").read_text().startswith("<?xml")
    capsys.readouterr()
    assert any(record["element"] == "memory_roof" for record in cli.json(["plot", ceilings]))
    assert "cannot write a .pdf file" in cli.refused(["plot", ceilings, "-o", str(tmp_path / "one.pdf")])


def test_report_measures_shows_and_renders_again(ceilings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rep"
    assert main(["report", "-o", str(out), "--machine", ceilings, "--no-plot", "--time-limit", "0.3", *BRIEF]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "left out (report.md names each):" in captured.out
    assert "the time limit was reached" in captured.out
    text = (out / "report.md").read_text()
    (out / "report.md").unlink()
    assert main(["report", "--from", str(out), "--no-plot"]) == 0
    assert (out / "report.md").read_text() == text


def test_flags_change_the_rules_of_operators_and_of_ceilings_apart(
    ceilings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ceilings by the rules of points took twice as long, and left no time for kernels on standard problems."""
    rules: list[Any] = []

    def measured(*_: Any, policy: Any, ceilings_policy: Any, **__: Any) -> None:
        rules.append((policy, ceilings_policy))
        raise KeyboardInterrupt

    monkeypatch.setattr("roofline.report.report", measured)
    for flags in ([], ["--min-samples", "7"], ["--quick"], ["--thorough"]):
        assert main(["report", "-o", str(tmp_path / "rep"), "--machine", ceilings, "--device", "cpu", *flags]) != 0
    assert rules[0] == (REPORT, POLICIES["report"])
    assert rules[1] == (replace(REPORT, min_samples=7), replace(POLICIES["report"], min_samples=7))
    assert rules[2:] == [(QUICK, QUICK), (THOROUGH, THOROUGH)]


def test_a_machine_of_another_device_is_refused(ceilings: str, tmp_path: Path, cli: Any) -> None:
    other = tmp_path / "machine.json"
    other.write_text(Path(ceilings).read_text().replace('"device": "cpu"', '"device": "cuda:0"'))
    for arguments in (["run", "relu"], ["sweep", "relu"], ["explain", "relu"], ["report", "-o", str(tmp_path / "r")]):
        assert "has no device 'cpu'" in cli.refused([*arguments, "--machine", str(other), "--device", "cpu"])


def test_a_device_of_one_machine_is_refused(cli: Any) -> None:
    for arguments in (["predict", "Llama-3-8B"], ["cheat-sheet", "Llama-3-8B"], ["census", "Llama-3-8B"], ["plot", "roofline"]):
        said = cli.refused([*arguments, "--machine", "H100", "--device", "cuda:0"])
        assert "'cuda:0' would choose among the machines of a file, but 'H100' is one machine" in said


@pytest.mark.filterwarnings("always:.*was measured elsewhere:UserWarning")
def test_a_machine_file_from_another_processor_is_named(ceilings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "machine.json"
    for facts, said in ({"cpu_family": 1}, True), ({}, False), ({"cpu_family": open_device("cpu").facts.get("cpu_family")}, False):
        made = Machine.load(ceilings)
        replace(made, facts={**made.facts, **facts}).save(other)
        assert main(["sweep", "relu", "--describe", "--machine", str(other), "--device", "cpu"]) == 0
        assert ("was measured elsewhere (cpu_family 1; here " in capsys.readouterr().err) is said


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interrupted_report_says_what_it_kept(ceilings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r"
    arguments = ["report", "-o", str(out), "--machine", ceilings, "--device", "cpu", "--time-limit", "100"]
    process = with_two_points(arguments, kept := out / "unfinished" / "results.jsonl")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert f"in {kept}" in one_line(err)
    assert main(["report", "--from", str(out / "unfinished"), "-o", str(out), "--no-plot"]) == 0
    assert "## Operators" in (out / "report.md").read_text()
    capsys.readouterr()
