"""Stages: every ceiling of the GPU, and operators at size beside PyTorch's. What was measured before a time limit is kept."""

import json
import sys
from pathlib import Path
from typing import Any

from .running import MOVING, Failed, Run, Unfinished, smi

CEILINGS, THOROUGH, RESULTS, RIVALS = "ceilings.json", "thorough.json", "results.jsonl", "rivals.json"
NOT_BEGUN = "not begun:"  # what side_by_side.py prints of rows that are left
SAMPLES_S = "0.4"  # of one ceiling, at most


def _measured(run: Run, name: str, *depth: str) -> dict[str, Any]:
    """`roofline measure` into a file of the results, which the next call goes on with where this one is ended."""
    run.installed()
    before = smi(*MOVING)
    kept = run.out / name
    command = (sys.executable, "-m", "roofline", "measure", "--device", "cuda:0", "--quiet", "--timeout", SAMPLES_S)
    done = run.command(*command, "--out", kept, *depth)
    found: dict[str, Any] = {"before": before, "after": smi(*MOVING)}
    unfinished = kept.with_name(f"{name}.partial")
    for file in (each for each in (kept, unfinished) if each.is_file()):
        file.write_text(run.scrub(file.read_text()))
        machine = json.loads(file.read_text())["machines"][0]
        found |= {
            "ceilings": len(machine["ceilings"]),
            "pending": machine["provenance"].get("pending", []),
            "left_out": machine["provenance"].get("left_out", {}),
        }
    if done.timed_out:
        raise Unfinished(f"{len(found.get('pending', []))} ceilings and series are left", done.log, found)
    if done.code != 0:
        raise Failed(f"`roofline measure` ended with {done.code}", done.log, found)
    return found


def ceilings(run: Run) -> dict[str, Any]:
    return _measured(run, CEILINGS)


def thorough(run: Run) -> dict[str, Any]:
    return _measured(run, THOROUGH, "--thorough")


def operators(run: Run) -> dict[str, Any]:
    """Its worker writes after every row, so that a limit loses only what is not begun."""
    run.installed()
    kept = run.out / RIVALS
    done = run.command(
        sys.executable, Path(__file__).with_name("side_by_side.py"), "--out", run.out, "--seconds", str(0.92 * run.left_s())
    )
    rows = json.loads(kept.read_text())["rows"] if kept.is_file() else []
    if (run.out / RESULTS).is_file():
        (run.out / RESULTS).write_text(run.scrub((run.out / RESULTS).read_text()))
    disturbed = [row["name"] for row in rows if row["status"] != "ok"]
    found = {"rows": len(rows), "not ok": disturbed, "left": done.stdout.strip()[-400:]}
    if rows and (done.timed_out or NOT_BEGUN in done.stdout):
        raise Unfinished(f"its time was up after {len(rows)} rows", done.log, found)
    if done.code != 0 or not rows:
        raise Failed(f"it ended with {done.code} after {len(rows)} rows", done.log, found)
    return found
