"""Mutated files of every kind that is read, each loaded and then used: tables, reprs, CSV, reports, predictions, data of plots.

A file passes where it is read and used, or refused with one roofline.Error of at most 1000 characters. It fails where anything else
is raised (a RuntimeWarning of NumPy counts), where a text to be shown holds a control character or foreign HTML, and where one file
takes more than 1 s of processor time or more than 500 MB. `--mutations N` tries N files of each kind; the same number gives the
same file.
"""

import contextlib
import copy
import dataclasses
import json
import os
import random
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from example import CONFIGS

from roofline.errors import Error
from roofline.machine import Ceiling, Machine
from roofline.operators import Attention, Matmul, Softmax
from roofline.results import Measurement, Results

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
RECORDED = RESULTS / (RESULTS / "readme").read_text().strip()
DATA = Path(__file__).resolve().parent / "data" / "importers"
LOGS = ("all_reduce_perf.log", "all_gather_mpi.log")  # the second does not name its collective
LIMIT_S, LIMIT_KIB, LONGEST = 1.0, 500 * 1024, 1000
FEW = 7  # samples
DEEP: Any = 0
for _ in range(300):
    DEEP = [DEEP]
EXTREMES: tuple[Any, ...] = (
    10**400, -(10**400), 2**63, -(2**63), 10**18, -1, 0, 1, 1e308, -1e308, 5e-324, 1e-300, 1e300, 0.5, -0.0, float("nan"),
    float("inf"), True, False, None, "", "1", "NaN", "x" * 100_000, "\ud800", "\udfff\ud800", "\x1b]0;title\x07\x1b[2J",
    "\u202egnp.\x9b", "=1+1", "<script>alert(1)</script>", "![x](javascript:x)|\n# y", "$\\frac{1}$ $", [], {}, [1, "a"],
    {"a": [1]}, DEEP,
)  # fmt: skip
TOKENS = (
    b"0", b"-1", b"1e308", b"1e400", b"5e-324", b"nan", b"inf", b"9" * 400, b"9" * 5000, b"", b"true", b"[", b"{", b'"', b"\x00",
    b"\xff\xfe", b"\x1b[2J", b"a" * 20_000, b" " * 20_000, b"\r\n", b",", b"\t", b"=1+1", b"<script>", "½²①".encode(), b"N/A", b"#",
)  # fmt: skip


# -- the files as they are before ------------------------------------------------------------------------------------------


def machine() -> Machine:
    """What was recorded, with one ceiling of each kind and few samples, so that mutations meet every key."""
    found, curves = (Machine.load(RECORDED / name) for name in ("machine.json", "curves.json"))
    kinds = {(c.probe, c.level): dataclasses.replace(c, samples=c.samples[:FEW]) for c in found.ceilings}
    fma = next(c for c in kinds.values() if c.probe == "fma")
    stated = Ceiling(probe="link", samples=(10e9,), source="datasheet", reason="unverified: a page")
    disturbed = dataclasses.replace(fma, dtype="fp64", samples=(200e9, 140e9) * 3, status="contended", reason="other work")
    left_out = {
        "operator": "matmul", "variant": "library", "problem": {"rows": 8, "dtype": "fp32"}, "cache_state": "cold",
        "reason": "late",
    }  # fmt: skip
    report = {**found.provenance["report"], "left_out": [left_out]}
    return dataclasses.replace(
        found, ceilings=(*kinds.values(), disturbed, stated), curves=curves.curves[:1], empirical=curves.empirical[:1],
        provenance={**found.provenance, "report": report},
    )  # fmt: skip


def measured() -> list[Measurement]:
    """Recorded points of a few operators; one that is unsupported, one that is contended, and one with its steps."""
    recorded = Results.load(RECORDED / "results.jsonl")
    chosen = [next(m for m in recorded if m.operator == name) for name in ("attention", "matmul", "softmax")]
    first, second, third = (dataclasses.replace(m, samples_s=m.samples_s[:FEW], steps={"scores": (1e-3,)}) for m in chosen)
    nothing = {"samples_s": (), "brackets": (), "prediction": {}, "steps": {}}
    refused = dataclasses.replace(second, **nothing, status="unsupported", reason="no avx512_bf16")
    return [first, second, refused, dataclasses.replace(third, status="contended", reason="other work ran: much")]


CONFIG = {**CONFIGS["Mixtral-8x7B"], "architectures": ["MixtralForCausalLM"], "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
          "rope_scaling": {"rope_type": "linear", "factor": 2.0}}  # fmt: skip
SHEET = """name = "Example GPU"
vendor = "Example"
device = "cuda"
compute_capability = "9.0"
aliases = ["EX1"]
notes = ["a note"]
memory_bytes_per_s = { value = 3350e9, verified = true, source = "https://example.org" }
driver_memory_bytes_per_s = { value = 3352e9, verified = false, source = "unsourced" }
memory_bytes = { value = 80e9, verified = true, source = "https://example.org" }
l2_bytes = { value = 52_428_800, verified = true, source = "https://example.org", note = "some say 60 MB" }
multiprocessors = { value = 132, verified = true, source = "https://example.org" }
boost_clock_hz = { value = 1980e6, verified = true, source = "https://example.org" }
link_bytes_per_s = { value = 900e9, verified = true, source = "https://example.org" }
tdp_w = { value = 700, verified = true, source = "https://example.org" }
dense_flops_per_s = [
  { dtype = "fp32", unit = "core", accumulator = "fp32", value = 66.9e12, verified = true, source = "https://example.org" },
  { dtype = "fp8", unit = "tensor", accumulator = "fp32", value = 1979e12, verified = false, source = "unsourced", note = "half" },
]
sparse_flops_per_s = [
  { dtype = "fp8", unit = "tensor", accumulator = "fp32", value = 3958e12, verified = true, source = "https://example.org" },
]
"""


# -- what is done with each -----------------------------------------------------------------------------------------------

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


class Printer:
    def text(self, text: str) -> None:
        shown(text)


def shown(text: str) -> None:
    """Raises AssertionError where a terminal would obey a part of `text`."""
    found = OBEYED.search(text)
    assert found is None, f"a text to be shown holds {found[0]!r}"


def shows(thing: Any) -> None:
    shown(repr(thing))
    page = thing._repr_html_()
    shown(page)
    assert "<script" not in page
    thing._repr_pretty_(Printer(), False)


def written(text: str) -> None:
    """As `shown`, for Markdown."""
    shown(text)
    assert not re.search(r"(?<!\\)<script|(?<!\\)\]\(javascript", text), "Markdown holds foreign HTML or a link"


def expected(m: Machine) -> None:
    from roofline import predict

    for problem in (Softmax(rows=64, columns=1024), Matmul(rows=256, columns=256, inner=256), Attention(seq_q=1, seq_kv=8192)):
        try:
            shows(predict(m, problem))
        except Error:
            continue


def use_machines(machines: Any) -> None:
    from roofline import compare
    from roofline.plot import PICTURES
    from roofline.report.tables import ceiling_table, sanity_lines

    for m in machines:
        shows(m)
        m.to_dict()
        m.sanity(), sanity_lines(m), ceiling_table(m)
        expected(m)
        for picture in (picture for picture in PICTURES.values() if picture.group == "machine"):
            try:
                picture.data(m)
            except Error:  # it has nothing of this
                continue
        try:
            shows(compare(m, MACHINE))
        except Error:
            continue


def use_results(results: Any, m: Machine) -> None:
    from roofline import plot
    from roofline._repr import records_to_csv
    from roofline.report import explain
    from roofline.report.markdown import markdown

    shows(results)
    table = records_to_csv(results.to_records())
    shown(table)
    assert not re.search(r"(?m)(^|,)\"?[=@]", table), "a cell is a formula"
    written(markdown(m, results))
    with contextlib.suppress(Error):  # a machine without roofs has no such picture
        plot.roofline.data(m, results)
    for measurement in results:
        shows(measurement)
        explain(measurement, m, results).to_dict()


def use_machine_file(path: Path) -> None:
    from roofline.machine import load_machines

    use_machines(load_machines(path))


def use_results_file(path: Path) -> None:
    use_results(Results.load(path), MACHINE)


def use_report(folder: Path) -> None:
    from roofline.report import load

    m, results = load(folder)
    use_machines([m])
    use_results(results, m)


def use_config(path: Path) -> None:
    from roofline.census.taking import census_of
    from roofline.transformer import Decode, Prefill, from_hugging_face, kv_bytes, predict_model, total_parameters

    config = from_hugging_face(path)
    shown(repr(config))
    total_parameters(config), kv_bytes(config, batch=1, seq_kv=128)
    for phase in (Prefill(batch=2, seq_q=64), Decode(batch=2, seq_kv=512)):
        try:
            shows(predict_model(MACHINE, config, phase))
            shows(census_of(config, phase, MACHINE))
        except Error:
            continue


def use_log(path: Path) -> None:
    from roofline import importers

    found = importers.read(path, collective="all_gather" if path.name == LOGS[1] else None)
    found.to_dict()
    use_results(Results(found.measurements), found.machine or MACHINE)
    if found.machine:
        use_machines([found.machine])


def use_sheet(path: Path) -> None:
    from roofline.hardware.search import datasheet

    os.environ["ROOFLINE_HARDWARE_PATH"] = str(path.parent)
    try:
        sheet = datasheet(path.stem)
        sheet.to_dict(), sheet.peaks(), sheet.counted()
        use_machines([Machine.from_datasheet(path.stem)])
    finally:
        del os.environ["ROOFLINE_HARDWARE_PATH"]


MACHINE = machine()


def machine_text() -> bytes:
    from roofline.machine import save_machines

    with tempfile.TemporaryDirectory() as folder:
        save_machines([MACHINE], Path(folder) / "m.json")
        return (Path(folder) / "m.json").read_bytes()


def results_text() -> bytes:
    return "".join(json.dumps(m.to_dict(), ensure_ascii=False) + "\n" for m in measured()).encode()


def log(*names: str) -> list[bytes]:
    return [(DATA / name).read_bytes() for name in names]


# Every kind has a function that makes its files, by name, and one that uses them.
KINDS: dict[str, tuple[Callable[[], list[dict[str, bytes]]], Callable[[Path], None]]] = {
    "machine": (lambda: [{"machine.json": machine_text()}], use_machine_file),
    "results": (lambda: [{"results.jsonl": results_text()}], use_results_file),
    "config": (lambda: [{"config.json": json.dumps(CONFIG).encode()}], use_config),
    "ncu": (lambda: [{"ncu.csv": text} for text in log("ncu_metrics.csv", "ncu_raw.csv")], use_log),
    "nccl": (lambda: [{name: text} for name, text in zip(LOGS, log(*LOGS), strict=True)], use_log),
    "datasheet": (lambda: [{"example.toml": SHEET.encode()}], use_sheet),
    "report": (lambda: [{"machine.json": machine_text(), "results.jsonl": results_text()}], use_report),
}


# -- mutations -------------------------------------------------------------------------------------------------------------


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key or index) of everything in a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield tree, key
        yield from places(value)


def mutate_tree(rng: random.Random, tree: Any) -> None:
    found = list(places(tree))
    if not found:
        return
    # A sample stands beside many others: half of the time something with a name is taken.
    named = [place for place in found if isinstance(place[1], str)]
    at, key = rng.choice(named if named and rng.random() < 0.7 else found)
    value = at[key]
    how = rng.choice(("extreme", "extreme", "extreme", "remove", "rename", "twice", "wrap", "text", "negate", "all", "move"))
    if how == "extreme":
        at[key] = copy.deepcopy(rng.choice(EXTREMES))
    elif how == "remove":
        del at[key]
    elif how == "rename" and isinstance(at, dict):
        at[rng.choice((f"{key}_", "schema_version", "\x1b[2J", "=x", "<script>", "", "k" * 5000))] = at.pop(key)
    elif how == "twice" and isinstance(at, list):
        at.insert(key, copy.deepcopy(value))
    elif how == "wrap":
        at[key] = rng.choice(([value], {"value": value}))
    elif how == "text":
        at[key] = str(value)
    elif how == "negate" and isinstance(value, (int, float)):
        at[key] = rng.choice((-value, value * 10**30, value * 1e-30, value + 0.5, int(value)))
    elif how == "all" and isinstance(value, list) and value:
        at[key] = [copy.deepcopy(rng.choice(EXTREMES))] * len(value)
    elif how == "move":
        other, name = rng.choice(found)
        at[key] = copy.deepcopy(other.get(name) if isinstance(other, dict) else other[name] if name < len(other) else None)


def mutate_text(rng: random.Random, text: bytes) -> bytes:
    if not text:
        return text
    at = rng.randrange(len(text))
    how = rng.choice(("flip", "cut", "drop", "repeat", "token", "token", "token", "insert", "line"))
    if how == "flip":
        return text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1 :]
    if how == "cut":
        return text[:at]
    end = min(len(text), at + rng.choice((1, 8, 64, 512)))
    if how == "drop":
        return text[:at] + text[end:]
    if how == "repeat":
        return text[:end] + text[at:end] * rng.choice((1, 2, 50)) + text[end:]
    if how == "insert":
        return text[:at] + rng.choice(TOKENS) + text[at:]
    if how == "line":
        lines = text.split(b"\n")
        one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[one] = rng.choice((b"", lines[other], lines[one] + lines[other]))
        return b"\n".join(lines)
    words = list(re.finditer(rb'[^\s,"{}\[\]:=]+', text))
    word = rng.choice(words) if words else None
    return text[: word.start()] + rng.choice(TOKENS) + text[word.end() :] if word else text


def mutated(rng: random.Random, name: str, text: bytes) -> bytes:
    as_tree = name.endswith((".json", ".jsonl")) and rng.random() < 0.85
    if as_tree:
        lines = text.splitlines() if name.endswith(".jsonl") else [text]
        at = rng.randrange(len(lines))
        tree = json.loads(lines[at])
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            mutate_tree(rng, tree)
        lines[at] = json.dumps(tree).encode()
        return b"\n".join(lines) + b"\n"
    for _ in range(rng.choice((1, 1, 2, 4))):
        text = mutate_text(rng, text)
    return text


def made(kind: str, number: int, originals: list[dict[str, bytes]]) -> dict[str, bytes]:
    """The files of one number, always the same."""
    rng = random.Random(f"{kind} {number}")
    files = dict(rng.choice(originals))
    name = rng.choice(list(files))
    files[name] = mutated(rng, name, files[name])
    return files


# -- the tests -------------------------------------------------------------------------------------------------------------


def put(folder: Path, files: dict[str, bytes], kind: str) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder if kind == "report" else folder / next(iter(files))


def most_kib(reset: bool = False) -> int:
    """The most memory since the last reset, 0 where the system does not tell."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def attempt(path: Path, use: Callable[[Path], None]) -> bool:
    """Whether the file is used, and not refused."""
    before, begun = most_kib(reset=True), time.process_time()
    try:
        use(path)
        used = True
    except Error as error:
        used = False
        assert len(str(error)) <= LONGEST, "a long error"
    assert time.process_time() - begun < LIMIT_S, "it takes long"
    assert most_kib() - before < LIMIT_KIB, "it takes much memory"
    return used


def attempts(kind: str, count: int, folder: Path) -> int:
    """How many of the first `count` files are used. Raises AssertionError with the number of the first that fails."""
    originals, use = KINDS[kind]
    given = originals()
    used = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for files in given:  # the files as they are must pass, and modules are loaded
            use(put(folder, files, kind))
        for number in range(count):
            files = made(kind, number, given)
            try:
                used += attempt(put(folder, files, kind), use)
            except Exception as error:
                raise AssertionError(f"{kind} {number}: {error!r:.300} for {files!r:.3000}") from error
    return used


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files_are_used_or_refused(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    usual = {**dict.fromkeys(("ncu", "nccl", "report", "machine"), 40), "datasheet": 80}
    count = request.config.getoption("--mutations") or usual.get(kind, 15)
    assert 5 < attempts(kind, count, tmp_path) < count - 5  # neither everything passes nor nothing


def test_the_mutation_test_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def use(path: Path) -> None:
        json.loads(path.read_text())["hidden_size"] // 1

    monkeypatch.setitem(KINDS, "config", (KINDS["config"][0], use))
    with pytest.raises(AssertionError, match="config [0-9]+: "):
        attempts("config", 50, tmp_path)
