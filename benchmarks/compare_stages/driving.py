"""One point after the other: checked, then in turns, ours before or after every turn of a rival."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from in_turns import IDLE_S, watched

from roofline.doctor.sessions import Broken, Worker

from .judging import quiet
from .points import Point

FAR = 2.0
MOST_FAILURES = 3  # of a rival's process: it is not begun again
FIRST_SHARE = 0.5  # of a turn: the first one of each rival, which chooses
LIMIT_S = 120.0  # of one answer
PREPARE_LIMIT_S = 300.0  # with a compiler in it


class Declined(Broken):
    """A side does not take the problem."""


@dataclass
class Rival:
    """A process that is begun when it is needed, and again where it ended. reason: why there is none."""

    name: str
    command: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    reason: str = ""
    worker: Worker | None = None
    failures: int = 0
    about: dict[str, Any] = field(default_factory=dict)

    def ask(self, limit_s: float, **request: Any) -> dict[str, Any]:
        """Raises Declined and Broken with one line."""
        if self.reason:
            raise Broken(self.reason)
        try:
            if self.worker is None:
                self.worker = Worker(self.name, self.command, self.env)
            reply = self.worker.ask(limit_s, **request)
        except (Broken, OSError) as error:
            self.close()
            self.failures += 1
            if self.failures >= MOST_FAILURES:
                self.reason = f"given up after {self.failures} failures: {error}"
            raise Broken(str(error)) from error
        if "refused" in reply:
            raise Declined(reply["refused"])
        if "failed" in reply:
            raise Broken(reply["failed"])
        return reply

    def introduce(self, limit_s: float) -> None:
        """Versions and settings into `about`; what is not there has its reason from now on."""
        try:
            self.about = self.ask(limit_s, do="about")
        except Broken as error:
            self.reason = self.reason or str(error)
            self.about = {"missing": self.reason}
            self.close()

    def cpu_s(self) -> float:
        return self.worker.cpu_s() if self.worker else 0.0

    def close(self) -> None:
        if self.worker:
            self.worker.close()
            self.worker = None


@dataclass
class Driver:
    """turns: of each rival, and as many of ours for each. limits: seconds for an answer, and for a preparation. far: how many times
    slower than the fastest rival one may be and still take turns.
    """

    ours: Rival
    rivals: Sequence[Rival]
    turns: int = 7
    turn_s: float = 0.2
    limit_s: float = LIMIT_S
    prepare_limit_s: float = PREPARE_LIMIT_S
    sweep_bytes: int = 1 << 26
    far: float = FAR
    idle: Callable[[float], None] = time.sleep

    def compare(self, point: Point, problem: Mapping[str, Any]) -> dict[str, Any]:
        """The row of a point. Whatever fails is its reason; the driver goes on."""
        row = point.row(problem)
        with tempfile.TemporaryDirectory(prefix="compare_cpu") as folder:
            request = {"operator": point.operator, "problem": dict(problem), "folder": folder, "cold": point.cold}
            try:
                facts = self.ours.ask(self.prepare_limit_s, do="prepare", **request)["facts"]
                row["ours"] = facts
                row["roofs"]["before"] = self.ours.ask(self.limit_s, do="roofs", level=facts["level"])
                row["alone"] = self.turn(self.ours, point.cold, self.turn_s * FIRST_SHARE)
                outputs = set(facts["outputs"])
                names = [name for name in facts["dtypes"] if name not in outputs]
                request |= {"dtypes": facts["dtypes"], "inputs": names, "sweep_bytes": self.sweep_bytes}
                able = [rival for rival in self.rivals if self.admit(rival, point, request, row["rivals"])]
                self.rounds(self.chosen(able, row["rivals"]), point, row)
                row["roofs"]["after"] = self.ours.ask(self.limit_s, do="roofs", level=facts["level"])
            except Declined as error:
                row["reason"] = f"no kernel of ours: {error}"
            except Broken as error:
                row["reason"] = f"ours failed: {error}"
        return row

    def admit(self, rival: Rival, point: Point, request: Mapping[str, Any], found: dict[str, Any]) -> bool:
        """Prepared, its result compared with ours, and timed once. What it is goes into `found`."""
        entry: dict[str, Any] = {"reason": "", "facts": {}}
        found[rival.name] = entry
        file = str(Path(request["folder"]) / "theirs.npy")
        try:
            entry["facts"] = rival.ask(self.prepare_limit_s, do="prepare", **request)["facts"]
            made = rival.ask(self.limit_s, do="result", file=file)
            entry["result"] = made["dtype"]
        except Broken as error:
            entry["reason"] = str(error)
            return False
        agreed = self.ours.ask(self.limit_s, do="compare", file=file, dtype=made["dtype"])
        entry["beyond"] = agreed["beyond"]
        if agreed["reason"]:
            entry["reason"] = f"its result is wrong: {agreed['reason']}"
            return False
        try:
            entry["first"] = self.turn(rival, point.cold, self.turn_s * FIRST_SHARE)
        except Broken as error:
            entry["reason"] = str(error)
            return False
        return True

    def chosen(self, able: Sequence[Rival], found: Mapping[str, Any]) -> list[Rival]:
        """Without those that are far behind the fastest."""
        first = {rival.name: min(found[rival.name]["first"]["samples_s"]) for rival in able}
        kept = []
        for rival in able:
            if first[rival.name] <= self.far * min(first.values()):
                kept.append(rival)
            else:
                found[rival.name]["reason"] = f"{first[rival.name] / min(first.values()):.3g} times as slow as the fastest rival"
        return kept

    def turn(self, side: Rival, cold: bool, turn_s: float) -> dict[str, Any]:
        """Raises Broken."""
        self.idle(IDLE_S)

        def work() -> list[float]:
            return list(side.ask(self.limit_s + 4 * turn_s, do="turn", turn_s=turn_s, cold=cold)["samples_s"])

        samples, load, calm = watched(work, lambda: side.cpu_s() + time.process_time())
        return {"samples_s": samples, "load": load, "quiet": calm}

    def rounds(self, rivals: Sequence[Rival], point: Point, row: dict[str, Any]) -> None:
        """Ours and a rival in turn, one rival after the other, first and second changing from round to round. A rival takes more
        turns for those that other load disturbed, twice as many at most.
        """
        able = list(rivals)

        def waits(rival: Rival) -> bool:
            return sum(quiet(pair) for pair in row["pairs"] if pair["rival"] == rival.name) < self.turns

        for number in range(2 * self.turns):
            for rival in list(filter(waits, able)):
                order = (self.ours, rival) if number % 2 == 0 else (rival, self.ours)
                took: dict[str, Any] = {}
                for side in order:
                    try:
                        took["ours" if side is self.ours else "theirs"] = self.turn(side, point.cold, self.turn_s)
                    except Broken as error:
                        if side is self.ours:
                            raise
                        row["rivals"][rival.name]["reason"] = str(error)
                        able.remove(rival)
                        break
                else:
                    row["pairs"].append({"rival": rival.name, **took})
