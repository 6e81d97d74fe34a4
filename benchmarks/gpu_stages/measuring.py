"""Stages: every ceiling of the GPU, and operators at size beside PyTorch's. What was measured before a time limit is kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .running import MOVING, Failed, Run, smi

CEILINGS, RESULTS, RIVALS = "ceilings.json", "results.jsonl", "rivals.json"


def ceilings(run: Run) -> dict[str, Any]:
    """Killed at the limit, it leaves a file that the next call goes on with."""
    run.installed()
    before = smi(*MOVING)
    kept = run.out / CEILINGS
    done = run.command(sys.executable, "-m", "roofline.cli", "measure", "--device", "cuda:0", "--quiet", "--out", kept)
    found: dict[str, Any] = {"before": before, "after": smi(*MOVING)}
    if kept.is_file() and kept.stat().st_size:
        kept.write_text(run.scrub(kept.read_text()))
        machine = json.loads(kept.read_text())["machines"][0]
        found |= {
            "ceilings": len(machine["ceilings"]),
            "pending": machine["provenance"].get("pending", []),
            "left_out": machine["provenance"].get("left_out", {}),
        }
    if done.timed_out:
        raise Failed("it ran past the stage's time limit; what was measured is kept, and the next call goes on", done.log, found)
    if done.code != 0:
        raise Failed(f"`roofline measure` ended with {done.code}", done.log, found)
    return found


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
    if done.timed_out or done.code != 0 or not rows:
        why = "ran past the stage's time limit" if done.timed_out else f"ended with {done.code}"
        raise Failed(f"it {why} after {len(rows)} rows", done.log, found)
    return found
