"""Results files that several processes append to, and files that are not ours: nothing in them is lost."""

import errno
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from disks import full, half_written
from example import point

from roofline.errors import Error
from roofline.results import Results, append_to, begun

PATIENCE_S = 600
LINES = 60
WRITER = """
import sys
from roofline.results import Measurement, append_to
path, writer, lines, samples = sys.argv[1], *map(int, sys.argv[2:])
print("ready", flush=True)
sys.stdin.readline()
for number in range(lines):
    append_to(path, Measurement(
        operator="relu", problem={"elements": number + 1}, variant="fused", device="cpu", threads=writer, cache_state="warm",
        samples_s=tuple(1.0 + (number * samples + i) * 1e-9 for i in range(samples))))
"""


def begin(program: str, path: Path, writers: Iterable[int], lines: int, samples: int) -> list[subprocess.Popen[bytes]]:
    """Processes that append so many lines each, all from the same moment on."""
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(path), str(n), str(lines), str(samples)], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, bufsize=0)
        for n in writers
    ]  # fmt: skip
    assert all(process.stdout and process.stdout.readline() for process in started)
    for process in started:
        assert process.stdin
        process.stdin.write(b"\n")
    return started


def race(path: Path, samples: int) -> tuple[int, int]:
    """Three processes append LINES lines each, all at once. Lines that are whole, and bytes of one of them."""
    started = begin(WRITER, path, range(3), LINES, samples)
    for process in started:
        process.communicate(timeout=PATIENCE_S)
    assert not any(process.returncode for process in started)
    found = {(m.threads, m.problem["elements"]) for m in Results.load(path)}
    return len(found), path.stat().st_size // max(len(found), 1)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [250, 1250, 4400, 42000])
def test_three_processes_lose_no_line_in_twenty_rounds(samples: int, tmp_path: Path) -> None:
    """Lines of 4, 16, 53 and 500 KB. Without the lock of the file up to 17 of 180 lines were lost in a round."""
    found = [race(tmp_path / f"{n}.jsonl", samples) for n in range(int(os.environ.get("ROUNDS", 20)))]
    print(f"{found[0][1] / 1e3:.0f} KB a line: {[lines for lines, _ in found]} of {3 * LINES}")
    assert {lines for lines, _ in found} == {3 * LINES}


def test_three_processes_lose_no_line(tmp_path: Path) -> None:
    assert race(tmp_path / "r.jsonl", 4000)[0] == 3 * LINES


KILLED = WRITER.replace("    append_to(", "    print(number, flush=True)\n    append_to(")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_killed_processes_lose_no_line_that_was_there(tmp_path: Path) -> None:
    """Two writers are killed at random moments: all lines are there but the last that each of them had begun."""
    path, rng, finished = tmp_path / "r.jsonl", random.Random(7), set()
    for attempt in range(3):
        writers = 10 * attempt + 1, 10 * attempt + 2
        started = begin(KILLED, path, writers, 200, 400)
        for process in 2 * started:  # where the second line is begun, the first is there
            assert process.stdout and process.stdout.readline()
        time.sleep(rng.uniform(0.01, 0.2))
        for n, process in zip(writers, started, strict=True):
            process.kill()
            said = 2 + process.communicate(timeout=PATIENCE_S)[0].count(b"\n")
            finished |= {(n, number + 1) for number in range(said - 1)}
    append_to(path, point())
    found = Results.load(path)
    assert not found.notes and finished
    assert {(m.threads, m.problem["elements"]) for m in found} >= finished


# -- what is not ours ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("line") / "r.jsonl"
    append_to(path, point())
    return path.read_bytes()


FOREIGN = {
    "notes": b"my precious notes, one line, no newline at the end",
    "blank lines, then notes": b"\n\nnotes",
    "notes that end": b"notes\n",
    "a truncated config": b'{"a": 1',
    "a config": b'{"a": 1}',
    "a config with a newline": b'{"a": 1}\n',
    "binary": bytes(range(256)) * 5,
    "zeros": bytes(5000),
    "UTF-16": "notes".encode("utf-16"),
    "Latin-1": b"\xfcbung",
    "a number": b"1",
    "a machine file cut short": b'{\n "schema_version": 4,\n "kind": "machines",\n "mach',
    "another file of ours in one line": b'{"schema_version":4,"kind":"census"',
    "another version": b'{"schema_version":5,"key":"00',
    "a table": b"operator,variant\nrelu,fused\n",
    "one long line": b"x" * 200_000,
}


@pytest.mark.parametrize("before", [b"", b"line"], ids=["alone", "behind a line of ours"])
@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_nothing_is_appended_to_what_is_not_ours(before: bytes, foreign: bytes, line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    held = before.replace(b"line", line) + foreign
    path.write_bytes(held)
    if before and foreign.endswith(b"\n"):
        append_to(path, point(2))  # a whole line in the middle is for `Results.load` to judge, and stays
        assert path.read_bytes()[: len(held)] == held
        return
    with pytest.raises(Error, match=r"notes.txt is not a results file: its (first|last) line is not a measurement"):
        append_to(path, point(2))
    with pytest.raises(Error, match=r"notes.txt"):
        begun(path)
    assert path.read_bytes() == held


def test_what_no_reader_takes_is_not_appended(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(line)
    with pytest.raises(Error, match=r"samples_s\[0\] must be a number <= 1000000000"):
        append_to(path, replace(point(), samples_s=(1.2e9,)))
    assert path.read_bytes() == line


@pytest.mark.parametrize("kept", [b"", b"\n\n", b"line", b"line\n \nline"])
def test_only_the_beginning_of_a_line_of_ours_is_cut(kept: bytes, line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    whole = kept.replace(b"line", line)
    for cut in {1, 2, 10, 27, 28, 60, len(line) // 2, len(line) - 2}:
        path.write_bytes(whole + line[:cut])
        append_to(path, point(2))
        found = path.read_bytes()
        assert found.startswith(whole) and found.count(b"\n") == whole.count(b"\n") + 1
        assert [m.problem["elements"] for m in Results.load(path)] == [64] * kept.count(b"line") + [2]


def test_a_line_that_another_program_wrote_again_is_ours(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(json.loads(line), sort_keys=True))
    append_to(path, point(2))
    assert len(Results.load(path)) == len(begun(path)) == 2


def test_of_a_huge_file_the_first_and_the_last_line_are_read(line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holes of 1 TiB: neither memory nor minutes are spent on them."""
    read, total = os.read, 0

    def counted(handle: int, size: int) -> bytes:
        nonlocal total
        found = read(handle, size)
        total += len(found)
        return found

    monkeypatch.setattr(os, "read", counted)
    path = tmp_path / "huge"
    for begin, end, fine in (
        (b"", b"", False),
        (line, b"notes", False),
        (line, b"\n" + line, True),
        (line, b"\n" + line[:50], True),
    ):
        path.write_bytes(begin)
        try:
            os.truncate(path, 1 << 40)
        except OSError as error:
            pytest.skip(f"no sparse files of 1 TiB here: {error}")
        with open(path, "ab") as file:
            file.write(b"\n" * (not fine) + end)
        total = 0
        if fine:
            append_to(path, point(2))
        else:
            for ask in (lambda: append_to(path, point(2)), lambda: begun(path)):
                with pytest.raises(Error, match="huge is not a results file"):
                    ask()
        assert total < 1 << 26
        path.unlink()


# -- several at a time ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_an_append_waits_for_the_lock(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "r.jsonl"
    append_to(path, point())
    before = path.read_bytes()
    with open(path, "rb+") as other:
        for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            fcntl.flock(other, kind)
            thread = threading.Thread(target=append_to, args=(path, point(2)))
            thread.start()
            thread.join(0.2)
            assert thread.is_alive() and path.read_bytes() == before
            fcntl.flock(other, fcntl.LOCK_UN)
            thread.join(PATIENCE_S)
            before = path.read_bytes()
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=begun, args=(path,))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive(), "a line may be half written"
        fcntl.flock(other, fcntl.LOCK_UN)
        thread.join(PATIENCE_S)
    assert len(Results.load(path)) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(handle: int, kind: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = tmp_path / "r.jsonl"
    if code == errno.EIO:
        with pytest.raises(Error, match="cannot append to results file .*r.jsonl: Input/output error"):
            append_to(path, point())
        return
    append_to(path, point())
    append_to(path, point(2))
    assert len(begun(path)) == 2


def test_a_failed_write_cuts_no_line_of_others(line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program that takes no lock appends behind the half of a line, and then the disk is full."""
    path = tmp_path / "r.jsonl"
    append_to(path, point())

    def append_and_fail() -> None:
        with open(path, "ab") as other:
            other.write(b"\n" + line)
        full()

    monkeypatch.setattr(os, "write", half_written(300, append_and_fail))
    with pytest.raises(Error, match="No space left"):
        append_to(path, point(2))
    found = path.read_bytes()
    assert found.startswith(line) and found.endswith(b"\n" + line)


def test_a_write_that_ends_in_the_middle_of_a_line(line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk or Ctrl-C in the middle leaves no half line; behind the line, it is kept."""
    path = tmp_path / "r.jsonl"
    append_to(path, point())

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    said = "cannot append to results file .*No space left on device; what was in it before is kept"
    for end, error, words in ((full, Error, said), (stop, KeyboardInterrupt, None)):
        with monkeypatch.context() as during, pytest.raises(error, match=words):
            during.setattr(os, "write", half_written(300, end))
            append_to(path, point(2))
        assert path.read_bytes() == line
    with monkeypatch.context() as during, pytest.raises(KeyboardInterrupt):
        during.setattr(os, "fsync", stop)
        append_to(path, point(2))
    assert [m.problem["elements"] for m in Results.load(path)] == [64, 2]
