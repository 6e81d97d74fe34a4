"""Files that are there when a command writes: what the command did not write stays as it is, byte for byte."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disks import full
from example import bandwidth, fma, point

from roofline.cli import main
from roofline.errors import Error
from roofline.machine import Ceiling, Machine, load_machines, save_machines
from roofline.reading import from_json
from roofline.report import render, report
from roofline.report.files import begin
from roofline.results import Results, append_to

pytestmark = pytest.mark.usefixtures("few_pixels")

DATA = Path(__file__).parent / "data" / "importers"
CONFIG = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2,
"num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024, "vocab_size": 1000, "hidden_act": "silu",
"torch_dtype": "bfloat16"}"""
NOTES = "my own notes"
PATIENCE_S = 120


def cpu(name: str = "Example CPU", rate: float = 5e10) -> Machine:
    return Machine(name=name, ceilings=(bandwidth((rate, rate * 1.01)), fma((2e11, 2.1e11), accumulator="fp32")))


def content(folder: Path) -> dict[str, object]:
    """Everything under a folder: bytes of files, targets of links."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one file of each kind that commands read, and some of the user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(CONFIG)
    cpu().save(tmp_path / "m.json")
    cpu(rate=6e10).save(tmp_path / "n.json")
    append_to(tmp_path / "r.jsonl", point())
    for name in ("notes.json", "notes.csv", "notes.md", "notes.svg", "notes.png"):
        (tmp_path / name).write_text(NOTES)
    (tmp_path / "table.csv").write_text("name,cost\nrouter,10\n")
    (tmp_path / "r.csv").write_text(NOTES)
    (tmp_path / "picture.csv").write_text(NOTES)
    (tmp_path / "report.md").write_text("# Roofline report of mine\n")
    (tmp_path / "old").mkdir()
    cpu().save(tmp_path / "old" / "machine.json")
    os.link(tmp_path / "m.json", tmp_path / "hard.json")
    (tmp_path / "soft.json").symlink_to("m.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    return tmp_path


REASONS = (
    "does not write such files", "same command reads or writes", "Too many levels of symbolic links", "Is a directory",
    "it is not replaced: choose another file, move it away, or replace it with --force", "was not written by a report",
    "not a measurement", "is not valid JSON", "this is a machine file", "has no schema_version",
)  # fmt: skip
CENSUS, COMPARE, PLOT = ["census", "config.json"], ["compare", "m.json", "n.json"], ["plot", "roofline", "m.json"]
ROOFED = ["census", "config.json", "--machine", "H100 SXM", "--phase", "decode"]
REFUSED = [
    [*CENSUS, "-o", "config.json"],
    [*CENSUS, "-o", "./config.json"],
    ["census", ".", "-o", "config.json"],
    [*CENSUS, "-o", "m.json"],
    [*CENSUS, "-o", "r.csv"],
    [*CENSUS, "-o", "table.csv"],
    [*CENSUS, "-o", "report.md"],
    [*CENSUS, "-o", "notes.json"],
    [*CENSUS, "-o", "loop.json"],
    [*ROOFED, "--plot", "picture.svg"],  # whose data beside it would be picture.csv
    [*ROOFED, "--plot", "new.svg", "-o", "new.csv"],
    [*ROOFED, "-o", "new.md", "--plot", "notes.png"],
    [*COMPARE, "-o", "m.json"],
    [*COMPARE, "-o", "n.json"],
    [*COMPARE, "-o", "hard.json"],
    [*COMPARE, "-o", "soft.json"],
    [*COMPARE, "-o", "config.json"],
    [*COMPARE, "-o", "notes.md"],
    [*COMPARE, "-o", "table.csv"],
    ["compare", "m.json", "epyc-9654", "-o", "n.json"],
    [*PLOT, "-o", "notes.svg"],
    [*PLOT, "-o", "notes.png"],
    [*PLOT, "-o", "notes.csv"],
    ["plot", "ridge-points", "--machine", "H100 SXM", "-o", "table.csv"],
    ["measure", "--device", "cpu", "--quick", "-o", "config.json"],
    ["measure", "--device", "cpu", "--quick", "-o", "r.jsonl"],
    ["measure", "--device", "cpu", "--quick", "-o", "loop.json"],
    ["report", "--device", "cpu", "--quick", "-o", "."],
    ["report", "--device", "cpu", "--quick", "-o", "old", "--machine", "old/machine.json"],
    *(["import", str(DATA / "ncu_metrics.csv"), "-o", name] for name in ("notes.json", "m.json", "config.json", "table.csv", ".")),
    ["import", str(DATA / "all_reduce_perf.log"), "-o", "new.x", "--machine", "new.x"],
    ["import", str(DATA / "all_reduce_perf.log"), "--machine", "config.json"],
    *(["run", "relu", "--device", "cpu", "-o", name] for name in ("notes.json", "m.json", "config.json", "table.csv", "hard.json")),
    ["run", "relu", "--device", "cpu", "--machine", "new.json", "-o", "new.json"],
    ["sweep", "relu", "--device", "cpu", "-o", "notes.csv"],
]


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_no_command_writes_over_what_it_did_not_write(arguments: list[str], folder: Path, cli: Any) -> None:
    before = content(folder)
    said = cli.refused(arguments)
    assert any(reason in said for reason in REASONS), said
    assert content(folder) == before


@pytest.mark.parametrize(
    "arguments",
    [
        *([*CENSUS, "-o", f"new.{suffix}"] for suffix in ("json", "csv", "md")),
        *([*COMPARE, "-o", f"new.{suffix}"] for suffix in ("json", "csv", "md")),
        *([*PLOT, "-o", f"new.{suffix}"] for suffix in ("svg", "png", "csv")),
        [*PLOT, "-o", "pictures"],
        ["plot", "ridge-points", "--machine", "H100 SXM", "-o", "pictures"],
        [*ROOFED, "--plot", "new.png", "-o", "new.md"],
    ],
    ids=" ".join,
)
def test_a_command_writes_over_what_it_wrote_before(arguments: list[str], folder: Path, cli: Any) -> None:
    before = content(folder)
    if arguments[-1] == "pictures":
        (folder / "pictures").mkdir()
    assert main(arguments) == 0
    first = content(folder)
    new = {name for name in first if name not in before and first[name] is not None}
    assert new
    assert main(arguments) == 0, "the same again"
    assert content(folder) == first
    for name in new:  # notes of the user's in its place are not touched, unless that is forced
        (folder / name).write_text(NOTES)
        left = content(folder)
        said = cli.refused(arguments)
        assert name in said and "--force" in said
        assert content(folder) == left
        (folder / name).write_bytes(first[name])  # type: ignore[arg-type]
    for name in new:
        (folder / name).write_text(NOTES)
    assert main([*arguments, "--force"]) == 0
    assert content(folder) == first


def test_an_input_is_not_replaced_by_force(folder: Path, cli: Any) -> None:
    before = content(folder)
    for arguments in ([*CENSUS, "-o", "config.json"], *([*COMPARE, "-o", name] for name in ("m.json", "hard.json", "soft.json"))):
        assert "reads or writes" in cli.refused([*arguments, "--force"])
    assert content(folder) == before


def test_notes_below_a_text_of_ours_are_kept(folder: Path, cli: Any) -> None:
    assert main([*COMPARE, "-o", "new.md"]) == 0
    with open("new.md", "a") as file:
        file.write("\nBut see the ticket.\n")
    left = content(folder)
    cli.refused([*COMPARE, "-o", "new.md"])
    cli.refused([*CENSUS, "-o", "new.md"])
    assert content(folder) == left


def test_python_writes_over_its_own_kind_only(folder: Path) -> None:
    table = Results((point(),))
    calls: list[tuple[str, Callable[..., object]]] = [
        ("config.json", cpu().save), ("r.jsonl", cpu().save), ("table.csv", table.to_csv), ("m.json", table.to_csv)
    ]  # fmt: skip
    before = content(folder)
    for name, save in calls:
        with pytest.raises(Error, match=f"{name} exists"):
            save(folder / name)
    assert content(folder) == before
    cpu("other").save("m.json")
    assert Machine.load("m.json").name == "other"
    cpu("third").save("config.json", force=True)
    Results((point(),)).to_csv("table.csv", force=True)
    Results((point(),)).to_csv("table.csv")
    assert (folder / "table.csv").read_text().startswith("operator,variant,")


# -- links, devices ---------------------------------------------------------------------------------------------------------------


def test_links_are_written_through(folder: Path) -> None:
    real = folder / "deep" / "real.csv"
    real.parent.mkdir()
    (folder / "deep" / "next.csv").symlink_to("real.csv")  # relative to its own folder
    (folder / "link.csv").symlink_to("deep/next.csv")  # dangles until it is written
    for _ in range(2):
        assert main([*CENSUS, "-o", "link.csv", "--quiet"]) == 0
        assert (folder / "link.csv").is_symlink() and (folder / "deep" / "next.csv").is_symlink()
        assert real.read_text().startswith("config,")
    real.write_text("")
    assert main([*CENSUS, "-o", "link.csv", "--quiet"]) == 0
    assert real.stat().st_size
    (folder / "results.jsonl").symlink_to("deep/points.jsonl")
    append_to("results.jsonl", point())
    assert (folder / "results.jsonl").is_symlink() and len(Results.load(folder / "deep" / "points.jsonl")) == 1


def test_looking_whether_a_file_can_be_written_changes_nothing(folder: Path) -> None:
    """A file made and removed again could be the one that another process has just begun."""
    from roofline.machine import require_file

    (folder / "dangling.json").symlink_to("absent.json")
    before = content(folder)
    for name in ("new.json", "m.json", "dangling.json", "soft.json", "/dev/null"):
        assert require_file(name) == Path(name)
    for name in ("loop.json", ".", "absent/new.json", "m.json/new.json"):
        with pytest.raises(Error, match="cannot write"):
            require_file(name)
    assert content(folder) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_fifo_is_refused_at_once(folder: Path, cli: Any) -> None:
    for name in ("f.json", "f.svg", "f.jsonl"):
        os.mkfifo(folder / name)
    for arguments in (
        [*CENSUS, "-o", "f.json"], [*COMPARE, "-o", "f.json"], [*PLOT, "-o", "f.svg"],
        ["run", "relu", "--device", "cpu", "-o", "f.jsonl"],
        ["measure", "--device", "cpu", "--quick", "-o", "f.json"], ["import", str(DATA / "ncu_metrics.csv"), "-o", "f.jsonl"],
    ):  # fmt: skip
        assert "no regular file" in cli.refused(arguments)


WRITES = """
import sys
from typing import Any
from roofline.machine import Machine, write_atomically
from roofline.results import Measurement, append_to
path = sys.argv[1]
print("first")
relu = Measurement(operator="relu", problem={}, variant="", device="cpu", threads=1, cache_state="warm", status="unsupported")
write_atomically(path, "second\\n")
append_to(path, relu)
write_atomically(path, "fourth\\n")
print("fifth")
"""


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="needs /dev/stdout")
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "link"])
@pytest.mark.parametrize("into", ["pipe", "file"])
def test_stdout_is_written_to_in_order(name: str, into: str, folder: Path) -> None:
    """In a file, too, that a shell opened: it is neither replaced nor written from its beginning again."""
    (folder / "link").symlink_to("/dev/stdout")
    with open(folder / "printed", "w+") as file:
        stdout = file if into == "file" else subprocess.PIPE
        done = subprocess.run([sys.executable, "-c", WRITES, name], stdout=stdout, text=True, timeout=PATIENCE_S, check=True)
        file.seek(0)
        lines = (done.stdout or file.read()).splitlines()
    assert [lines[0], lines[1], from_json(lines[2], where="")["operator"], *lines[3:]] == [
        "first", "second", "relu", "fourth", "fifth",
    ]  # fmt: skip


def test_the_null_device_takes_everything(cli: Any) -> None:
    assert "2 points appended" in cli.out(["import", str(DATA / "ncu_metrics.csv"), "-o", os.devnull])
    save_machines([cpu()], os.devnull)
    assert os.path.exists(os.devnull) and not os.path.isfile(os.devnull)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_file_that_is_read_only_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "m.json").chmod(0o400)
    with pytest.raises(Error, match="Permission denied"):
        cpu("other").save("m.json")
    assert Machine.load("m.json").name == "Example CPU"


# -- reports -------------------------------------------------------------------------------------------------------------------


RENDERED = ("report.md", "results.csv", "roofline.svg", "roofline.csv")
OWN = (*RENDERED, "machine.json", "results.jsonl", "latency.png", "unfinished/report.md")


@pytest.mark.parametrize("name", OWN)
def test_a_report_deletes_no_file_of_the_users(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("# Roofline report of mine\n")
    before = content(tmp_path)
    with pytest.raises(Error, match=f"{name} was not written by a report.*choose another folder.*--force"):
        begin(tmp_path)
    assert content(tmp_path) == before
    if name in RENDERED:
        with pytest.raises(Error, match=f"{name} was not written by a report"):
            render(cpu(), (point(),), tmp_path)
        assert content(tmp_path) == before
    begin(tmp_path, force=True)
    assert content(tmp_path).get(name) == (None if "/" in name else before[name]), "nothing of it goes before the end"


def test_from_another_folder_deletes_nothing_there(folder: Path, cli: Any) -> None:
    (folder / "r").mkdir()
    cpu().save("r/machine.json")
    append_to("r/results.jsonl", point())
    (folder / "report.md").unlink()
    (folder / "results.csv").write_text(NOTES)
    before = content(folder)
    assert "results.csv was not written by a report" in cli.refused(["report", "--from", "r", "-o", ".", "--no-plot"])
    assert content(folder) == before
    for _ in range(2):
        assert main(["report", "--from", "r", "-o", "new"]) == 0
    assert {*os.listdir("new")} >= {"report.md", "results.csv", "roofline.svg"}
    assert main(["plot", "roofline", "m.json", "-o", "new", "--quiet"]) == 0, "our own pictures may be drawn again"
    assert main(["report", "--from", "r", "-o", "new"]) == 0
    with open("new/report.md", "a") as file:
        file.write(NOTES)
    assert "changed since" in cli.refused(["report", "--from", "r", "-o", "new"])
    assert (folder / "new" / "report.md").read_text().endswith(NOTES)
    assert main(["report", "--from", "r", "-o", "new", "--force"]) == 0
    assert NOTES not in (folder / "new" / "report.md").read_text()
    assert main(["report", "--from", "r", "--force", "-o", "./roofline-report"]) == 0
    assert (folder / "roofline-report" / "report.md").exists() and "report.md" not in os.listdir("r")


def test_an_interrupted_report_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from roofline.report import measuring

    pytest.importorskip("roofline._core", reason="the compiled module is not built")
    monkeypatch.setattr(measuring, "attempt", lambda problem, **more: point())
    monkeypatch.setattr(measuring, "end_check", lambda *given: [])
    (tmp_path / "mine.txt").write_text(NOTES)
    made = report(tmp_path, device="cpu", machine=cpu(), quick=True)
    assert {file.parent for file in made.files} == {tmp_path} and all(file.is_file() for file in made.files)
    first = content(tmp_path)
    assert "unfinished" not in first and first["mine.txt"] == NOTES.encode()

    def stop(*given: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "end_check", stop)
    with pytest.raises(KeyboardInterrupt):
        report(tmp_path, device="cpu", machine=cpu("second"), quick=True)
    left = content(tmp_path)
    assert {name: left[name] for name in first} == first
    assert len(Results.load(tmp_path / "unfinished" / "results.jsonl")) > 1
    assert Machine.load(tmp_path / "unfinished" / "machine.json").name == "second"

    def meanwhile(*given: object) -> list[object]:
        (tmp_path / "report.md").write_text(NOTES)  # by the user, while it measures
        return []

    monkeypatch.setattr(measuring, "end_check", meanwhile)
    with pytest.raises(
        Error, match=r"report.md was not written by a report, or was changed since.*The finished report is in .*unfinished"
    ):
        report(tmp_path, device="cpu", machine=cpu("third"), quick=True, plot=False)
    (tmp_path / "report.md").unlink()
    with pytest.raises(Error, match="holds a finished report that could not be put into"):
        report(tmp_path, device="cpu", machine=cpu("fourth"), quick=True, plot=False)
    monkeypatch.setattr(measuring, "end_check", lambda *given: [])
    report(tmp_path, device="cpu", machine=cpu("fifth"), quick=True, force=True)
    assert Machine.load(tmp_path / "machine.json").name == "fifth"
    assert {*content(tmp_path)} == {*first}


def test_unfinished_thorough_ceilings_are_not_replaced_by_a_short_report(tmp_path: Path) -> None:
    begin(tmp_path, thorough=True)
    pending = Machine(name="Example CPU", provenance={"pending": []})
    pending.save(tmp_path / "unfinished" / "machine.json")
    with pytest.raises(Error, match=r"holds an unfinished thorough report; go on with it \(--thorough\)"):
        begin(tmp_path)
    begin(tmp_path, thorough=True)
    assert Machine.load(tmp_path / "unfinished" / "machine.json") == pending
    begin(tmp_path, force=True)
    assert not (tmp_path / "unfinished" / "machine.json").exists()


# -- machine files ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """A machine file of two machines, one of them this; what stops a measurement of it after so many ceilings."""
    pytest.importorskip("roofline._core", reason="the compiled module is not built")
    from roofline.ceilings import measuring
    from roofline.measurement import open_device

    save_machines([cpu("another"), cpu(open_device("cpu").title), cpu("a third")], folder / "machine.json")
    real, every = measuring.ceiling, measuring.wanted
    monkeypatch.setattr(measuring, "wanted", lambda device, depth: every(device, depth)[:6])
    made: list[str] = []

    def stop_after(most: int) -> list[str]:
        made.clear()

        def ceiling(device: object, what: object, policy: object) -> Ceiling:
            if len(made) == most:
                raise KeyboardInterrupt
            made.append(what.label)  # type: ignore[attr-defined]
            return dataclasses.replace(real(device, what, policy), status="ok", reason="")  # type: ignore[arg-type]

        monkeypatch.setattr(measuring, "ceiling", ceiling)
        return made

    return stop_after


MEASURE = ["measure", "--device", "cpu", "--quick", "--timeout", "0.02", "--quiet"]


@pytest.mark.parametrize("stops", [0, 3])
@pytest.mark.usefixtures("small_probes")
def test_an_interrupted_measurement_leaves_the_machine_file(
    stops: int, folder: Path, two: Callable[[int], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "machine.json").read_bytes()
    two(stops)
    assert main(MEASURE) == 130, "machine.json of the working folder is the default"
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    if stops:
        assert f"{stops} ceilings are in machine.json.partial; the same command goes on with them" in err
    assert "and machine.json is as it was" in err
    two(1)
    assert main([*MEASURE, "-o", "new.json"]) == 130
    assert "as it was" not in capsys.readouterr().err, "there was none"
    assert (folder / "machine.json").read_bytes() == before
    done = two(1000)
    assert main(MEASURE) == 0
    first, ours, last = load_machines("machine.json")
    assert [first, last] == [cpu("another"), cpu("a third")]
    assert len(ours.ceilings) + len(ours.provenance["left_out"]) == stops + len(done) and "pending" not in ours.provenance
    assert not (folder / "machine.json.partial").exists()
    every = stops + len(done)
    again = two(1000)
    assert main(MEASURE) == 0
    assert len(again) == every, "a finished measurement is begun again"
    assert len(load_machines("machine.json")) == 3


@pytest.mark.usefixtures("small_probes")
def test_a_side_file_that_is_no_unfinished_measurement_stays(folder: Path, two: Callable[[int], list[str]], cli: Any) -> None:
    two(1)
    for text in (NOTES, (folder / "m.json").read_text()):
        (folder / "machine.json.partial").write_text(text)
        before = content(folder)
        assert "machine.json.partial" in cli.refused(MEASURE, code=1)
        assert content(folder) == before
    assert main([*MEASURE, "--force"]) == 130
    assert len(Machine.load("machine.json.partial").ceilings) == 1
    assert "--force" in cli.refused([word for word in MEASURE if word != "--quick"], code=1), "other options"
    assert len(Machine.load("machine.json.partial").ceilings) == 1
    assert (folder / "machine.json").read_bytes() == before["machine.json"]


@pytest.mark.usefixtures("small_probes")
def test_a_full_disk_loses_no_ceiling(
    folder: Path, two: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    before = (folder / "machine.json").read_bytes()
    two(2)
    assert main(MEASURE) == 130
    half = (folder / "machine.json.partial").read_bytes()
    with monkeypatch.context() as during:
        during.setattr(os, "fsync", full)
        two(1000)
        assert "No space left" in cli.refused(MEASURE, code=1)
    assert (folder / "machine.json").read_bytes() == before
    assert (folder / "machine.json.partial").read_bytes() == half
