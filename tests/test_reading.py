"""Files that are read: all but regular files are refused, limits hold, and no text of a file acts on what shows it."""

import contextlib
import io
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from example import bandwidth, fma, measurement
from programs import python

from roofline import plot, reading
from roofline._repr import github_table, html_table, markdown, printable, records_to_csv, text_table
from roofline.cli import main
from roofline.errors import Error
from roofline.importers import read as read_log
from roofline.machine import Ceiling, Machine, load_machines
from roofline.operators import Softmax
from roofline.report.markdown import markdown as report_text
from roofline.results import Measurement, Results, append_to
from roofline.transformer import from_hugging_face

ROOT = Path(__file__).resolve().parent.parent
BAD = "\x1b]0;title\x07\x1b[2J \x9b3m \u202egnp"
HTML = "<script>alert(1)</script> <img src=x onerror=y> [l](javascript:z) a|b\n# heading $\\frac{1}$"


def ceiling(**more: Any) -> Ceiling:
    return bandwidth((47e9, 48e9), **more)


def point(**more: Any) -> Measurement:
    return measurement(Softmax(rows=64, columns=64), (1e-3, 2e-3), **more)


# -- what is no regular file ----------------------------------------------------------------------------------------------

READERS: dict[str, Callable[[Path], object]] = {
    "machine": load_machines, "results": Results.load, "configuration": from_hugging_face, "log": read_log,
}  # fmt: skip


def special(folder: Path, what: str) -> Path:
    path = folder / what
    if what == "FIFO":
        os.mkfifo(path)
    elif what == "socket":
        with contextlib.chdir(folder), socket.socket(socket.AF_UNIX) as made:  # a longer path does not fit its address
            made.bind(what)
    elif what == "folder":
        (path / "config.json").mkdir(parents=True)
        path = path / "config.json"
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs on this system")
@pytest.mark.parametrize("what", ["FIFO", "socket", "folder", "character device"])
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_and_not_waited_for(reader: str, what: str, tmp_path: Path) -> None:
    path = special(tmp_path, what)
    if reader in ("configuration", "results") and what == "folder":  # these may be named by their folder
        path.rmdir()
        (path / ("config.json" if reader == "configuration" else "results.jsonl")).mkdir(parents=True)
    with pytest.raises(Error, match=f"it is a {what}; name a regular file"):
        READERS[reader](path)


COMMANDS = (
    ["predict", "PATH", "--machine", "H100 SXM"],
    ["predict", "Llama-3-8B", "--machine", "PATH"],
    ["census", "PATH"],
    ["plot", "roofline", "PATH"],
    ["plot", "PATH"],
    ["explain", "PATH"],
    ["compare", "PATH", "PATH"],
    ["import", "PATH"],
    ["report", "--from", "PATH"],
    ["report", "--describe", "--machine", "PATH", "--device", "cpu"],
    ["run", "softmax", "--describe", "--machine", "PATH"],
    ["sweep", "softmax", "--describe", "--machine", "PATH"],
    ["explain", "softmax", "--describe", "--machine", "PATH"],
)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs on this system")
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_every_command_refuses_fifos_and_devices_with_one_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: a command that waits would hang the tests."""
    if "report" in arguments:
        pytest.importorskip("roofline._core", reason="the compiled module is not built")
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), "/dev/zero"):
        assert main([path if word == "PATH" else word for word in arguments]) in (1, 2)
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and re.search("FIFO|character device|is no folder|Not a directory|not a folder", said), said


def test_symbolic_links_to_regular_files_are_read(tmp_path: Path) -> None:
    Machine(name="x", ceilings=(ceiling(),)).save(tmp_path / "real.json")
    (tmp_path / "link.json").symlink_to("real.json")
    assert Machine.load(tmp_path / "link.json").name == "x"


# -- limits ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", reading.LIMITS)
def test_limits_hold_by_size_and_the_error_states_them(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(reading.LIMITS[kind] + 1)  # a hole: it takes no room on the disk
    begun = time.process_time()
    with pytest.raises(Error, match=rf"{kind} .*large has more than (64 MiB|1 GiB|4 MiB|1 MiB), the most that is read of a {kind}"):
        reading.read_bytes(path, kind)
    assert time.process_time() - begun < 5


def test_a_file_that_states_no_size_is_read_and_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("/proc/self/status")
    if not path.exists():
        pytest.skip("there is no /proc on this system")
    assert path.stat().st_size == 0
    assert b"VmRSS" in reading.read_bytes(path, reading.LOG)
    monkeypatch.setattr(reading, "LIMITS", {reading.LOG: 100})
    with pytest.raises(Error, match="more than 100 B"):
        reading.read_bytes(path, reading.LOG)


def test_a_file_that_grows_is_read_to_the_limit_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "growing"
    path.write_bytes(b"x" * 100)
    monkeypatch.setattr(reading, "LIMITS", {reading.LOG: 1000})
    monkeypatch.setattr(reading, "CHUNK_BYTES", 50)
    opened = os.fdopen

    def growing(handle: int, *more: Any, **named: Any) -> Any:
        file = opened(handle, *more, **named)

        class Growing(io.RawIOBase):
            def read(self, size: int = -1) -> bytes:
                with open(path, "ab") as end:
                    end.write(b"y" * 100)
                return file.read(size)

            def close(self) -> None:
                file.close()

        return Growing()

    monkeypatch.setattr(reading.os, "fdopen", growing)
    with pytest.raises(Error, match="more than 1000 B"):
        reading.read_bytes(path, reading.LOG)
    assert path.stat().st_size < 5000


def test_limits_are_those_of_the_docs() -> None:
    text = (ROOT / "docs" / "conventions" / "files.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"^\| ([a-z ]+?) \| ([\d.]+ [MG]iB) \|", text, re.MULTILINE))
    assert stated == {kind: reading.fmt_bytes(most) for kind, most in reading.LIMITS.items()}


# -- values ----------------------------------------------------------------------------------------------------------------


def test_what_a_machine_and_a_measurement_state_of_this_computer_is_read_back(tmp_path: Path) -> None:
    """The types hold every key that the backends give."""
    pytest.importorskip("roofline._core", reason="the compiled module is not built")
    from roofline.measurement import open_device
    from roofline.measurement.devices import provenance

    device = open_device("cpu")
    made = Machine(name="here", facts=dict(device.facts), ceilings=(ceiling(),), provenance=provenance(device, 1))
    made.save(tmp_path / "m.json")
    assert Machine.load(tmp_path / "m.json") == made


def test_a_callable_may_bear_the_name_of_an_operator(tmp_path: Path) -> None:
    append_to(tmp_path / "r.jsonl", point(operator="matmul", variant="callable", problem={"dtype": "fp32", "mine": 1}))
    assert Results.load(tmp_path / "r.jsonl")[0].problem["mine"] == 1


# -- errors quote little ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "softmax", "--rows", "9" * 5000],
        ["run", "softmax", "--rows", "9" * 4000],
        ["run", "softmax", "--rows", "x y " * 2000],
        ["run", "x" * 5000],
        ["run", "softmax", "--dtype", "x" * 5000],
        ["x" * 5000],
        ["predict", "x" * 5000, "--machine", "H100 SXM"],
        ["predict", "Llama-3-8B", "--machine", "H100 SXM", "--batch", "9" * 5000],
        ["predict", "Llama-3-8B", "--machine", "H100 SXM", "--memory", "9" * 5000 + "TB"],
        ["predict", "Llama-3-8B", "--machine", "H100 SXM", "--memory", "1e300TB"],
        ["predict", "Llama-3-8B", "--machine", "y" * 5000],
        ["hardware", "y" * 5000],
        ["run", "softmax", *["--unheard-of", "z" * 500] * 20],
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_errors_of_the_command_are_short(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) in (1, 2, 3)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and len(said) < 1500, said


def test_rooflines_isa_is_quoted_in_part() -> None:
    pytest.importorskip("roofline._core", reason="the compiled module is not built")
    run = ["run", "softmax", "--rows", "4", "--columns", "4", "--device", "cpu"]
    done = python("-m", "roofline", *run, ROOFLINE_ISA="q" * 5000)
    assert done.returncode and done.stderr.count("\n") == 1 and len(done.stderr) < 1500, done.stderr[:300]


# -- texts that act --------------------------------------------------------------------------------------------------------


def test_printable_keeps_what_is_text_and_shows_the_rest() -> None:
    kept = "µ ᵀ … 日本 é\u0301 \U0001f600 \t\n"
    assert printable(kept) == kept
    assert printable("\x1b[2J\x07\x9b\x7f\r\u202e\u2028\ud800") == r"\x1b[2J\x07\x9b\x7f\r\u202e\u2028\ud800"


@pytest.mark.parametrize("text", [BAD, HTML, "\r\nx", "\u2066a\u2069", "\ufeff"])
def test_tables_hold_no_character_that_acts(text: str) -> None:
    for shown in (text_table((text,), [(text,)], title=text, notes=[text]), github_table((text,), [(text,)]), markdown(text)):
        assert printable(shown) == shown
    page = html_table((text,), [(text,)], title=text, notes=[text])
    assert printable(page) == page and "<script" not in page and "<img" not in page
    assert len(github_table((text,), [(text,)]).splitlines()) == 3 and "\n" not in markdown(text)


def test_markdown_shows_html_and_links_as_text() -> None:
    """As CommonMark has it: a backslash before punctuation takes its meaning away."""
    text = markdown(HTML)
    for active in ("<", "[", "]"):
        assert all(text[m.start() - 1] == "\\" for m in re.finditer(re.escape(active), text))
    assert markdown("\\[x](y)") == r"\\\[x\](y)"
    row = github_table(("a",), [(HTML,)]).splitlines()[2]
    assert len(re.findall(r"(?<!\\)\|", row)) == 2


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_csv_has_no_formulas_and_numbers_stay_numbers(text: str) -> None:
    cells = records_to_csv([{text: text, "n": -1, "x": -2.5}]).splitlines()
    assert not any(cell.lstrip('"').startswith(("=", "+", "@", "\t", "\r")) for line in cells for cell in line.split(","))
    assert cells[-1].endswith(",-1,-2.5") and cells[-1].lstrip('"').startswith("'")


def named(text: str) -> tuple[Machine, Results]:
    machine = Machine(
        name=text, facts={"governor": text, "isas": text},
        provenance={"os": text, "versions": {text: text}, "left_out": {text: text}},
        ceilings=(ceiling(reason=text, status="contended"), fma(200e9, isa=text)),
    )  # fmt: skip
    points = (
        point(operator=text, variant=text, problem={text: text}, status="failed", reason=text),
        point(reason=text, status="contended", level="DRAM"),
    )
    return machine, Results(points)


@pytest.mark.parametrize("text", [BAD, HTML])
def test_names_and_reasons_do_not_act_where_they_are_shown(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine, results = named(text)
    machine.save(tmp_path / "machine.json")
    for each in results:
        append_to(tmp_path / "results.jsonl", each)
    loaded, again = Machine.load(tmp_path / "machine.json"), Results.load(tmp_path / "results.jsonl")
    assert Results.load(tmp_path) == again
    report = report_text(loaded, again)
    texts = [repr(loaded), repr(again), *map(repr, again), report, loaded._repr_html_(), again._repr_html_()]
    again.to_csv(tmp_path / "r.csv")
    texts.append((tmp_path / "r.csv").read_text())
    for picture in plot.roofline.save(tmp_path / "p", loaded, again):
        if picture.suffix == ".svg":
            ElementTree.parse(picture)  # a control character is no XML
            texts.append(picture.read_text())
    for command in (["explain", str(tmp_path), "1"], ["explain", str(tmp_path)], ["compare", str(tmp_path), str(tmp_path)]):
        main(command)
        said = capsys.readouterr()
        texts += [said.out, said.err]
    for shown in texts:
        assert printable(shown) == shown
    assert "\n# heading" not in report and not re.search(r"(?<!\\)<(script|img)", report)


def test_control_characters_in_arguments_do_not_reach_the_terminal(cli: Any) -> None:
    said = cli.refused(["run", "softmax", "--dtype", BAD])
    assert printable(said) == said and "x1b" in said


# -- time grows with the length --------------------------------------------------------------------------------------------

LOG_LINE = "#  Rank  0 Group  0 Pid 1 on host device  0 [0000:00:00] NVIDIA"
LOG_LINES: dict[str, Callable[[int], str]] = {
    "spaces in a rank": lambda n: f"{LOG_LINE}{' ' * (n // 2)}x{' ' * (n // 2)}y",
    "ranks without an end": lambda n: LOG_LINE.partition("]")[0] * (n // 40),
    "spaces in front": lambda n: " " * n + "x",
    "hashes": lambda n: "# " * (n // 2),
    "digits": lambda n: "1" * n,
    "words": lambda n: "a_perf" * (n // 6),
}
NAMES: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: "<" * n,
    "types": lambda n: "sm__ops_path_tensor" + "_src__dst_" * (n // 10),
    "operations": lambda n: "sm__sass_thread_inst_executed_op_" * (n // 33),
    "groups": lambda n: "1,234" * (n // 5) + "x",
    "spaces": lambda n: " " * n + "x",
}


def texts(kind: str, length: int) -> list[str]:
    """Logs in which a line is that one, and output of ncu with it as a kernel, a metric and a value."""
    log = (ROOT / "tests" / "data" / "importers" / "all_reduce_perf.log").read_text()
    csv = (ROOT / "tests" / "data" / "importers" / "ncu_metrics.csv").read_text()
    if kind in LOG_LINES:
        return [log.replace("\n", f"\n{LOG_LINES[kind](length)}\n", 1)]
    name = NAMES[kind](length)
    return [csv.replace("gemm", name, 1), csv.replace("dram__bytes_read.sum", name, 1), csv.replace("1,024", name, 1)]


def _took(given: list[str], folder: Path) -> float:
    """Processor time of reading them."""
    begun = time.process_time()
    for text in given:
        (folder / "log").write_text(text)
        with contextlib.suppress(Error):
            read_log(folder / "log")
    return time.process_time() - begun


@pytest.mark.parametrize("kind", [*LOG_LINES, *NAMES])
def test_time_grows_with_the_length_of_a_line(kind: str, tmp_path: Path) -> None:
    short = min(_took(texts(kind, 100_000), tmp_path) for _ in range(2))
    assert short < 3, "a line of 100 kB"
    long = _took(texts(kind, 1_000_000), tmp_path)
    assert long < max(30 * short, 1.0), "ten times the length takes thirty times as long"


@pytest.mark.parametrize("text", ["1" * 100_000 + " x y", " " * 100_000, "1" + " " * 100_000 + "x y", "." * 100_000])
def test_sizes_of_any_length_are_refused_at_once(text: str) -> None:
    from roofline.units import parse_bytes, parse_si

    begun = time.process_time()
    for parse in (parse_bytes, lambda given: parse_si(given, "s")):
        with pytest.raises(Error):
            parse(text)
    assert time.process_time() - begun < 1
