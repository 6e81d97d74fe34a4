"""Results files that several processes append to, and files that are not ours: nothing in them is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roofline.results import Results

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
        operator="relu", problem={"elements": number}, variant="fused", device="cpu", threads=writer, cache_state="warm",
        samples_s=tuple(1.0 + (number * samples + i) * 1e-9 for i in range(samples))))
"""


def race(path: Path, samples: int, writers: int = 3) -> tuple[int, int]:
    """`writers` processes append LINES lines each, all at once. Lines that are whole, and bytes of one of them."""
    program = [sys.executable, "-c", WRITER, str(path)]
    started = [
        subprocess.Popen([*program, str(n), str(LINES), str(samples)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in range(writers)
    ]
    assert all(process.stdout and process.stdout.readline() for process in started)
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in started:
        process.communicate(timeout=PATIENCE_S)
    assert not any(process.returncode for process in started)
    found = {(m.threads, m.problem["elements"]) for m in Results.load(path)}
    return len(found), path.stat().st_size // max(len(found), 1)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [170, 1000, 4000, 25000])
def test_three_processes_lose_no_line_in_twenty_rounds(samples: int, tmp_path: Path) -> None:
    """Lines of 4, 16, 53 and 500 KB. Without the lock of the file 2 to 8 of 180 lines were lost in a round."""
    found = [race(tmp_path / f"{n}.jsonl", samples) for n in range(int(os.environ.get("ROUNDS", 20)))]
    print(f"{found[0][1] / 1e3:.0f} KB a line: {[lines for lines, _ in found]} of {3 * LINES}")
    assert {lines for lines, _ in found} == {3 * LINES}


def test_three_processes_lose_no_line(tmp_path: Path) -> None:
    assert race(tmp_path / "r.jsonl", 4000)[0] == 3 * LINES
