"""The loop of a worker process: one side of the comparison, driven by lines of JSON. Needs Python 3.9 and NumPy only.

Requests: {"do": "about"}; {"do": "prepare", "operator", "problem", "folder", "threads", "sweep_bytes"} with the operands in
folder/NAME.npy; {"do": "result", "file"}; {"do": "turn", "turn_s", "cold"}. Answers hold "refused" where the side does not take a
problem, "failed" where it raised something. What libraries print goes nowhere.
"""

import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TRIES = 2  # timed calls of each of several ways to compute a problem
LEAST = 3  # calls of a turn, if they are short
WAKE_S = 0.1
BATCH_S = 2e-3  # of calls timed together, where operands may stay in the caches
PATHS = re.compile(r"(?<![\w.])(?:~|[A-Za-z]:)?(?:[/\\][\w.+@-]+){2,}[/\\]?")


class Refused(Exception):
    """This side does not take the problem; the message says why."""


class Side:
    """What the loop asks of a side. `call` runs the problem once, with its result where `result` finds it."""

    def about(self) -> dict[str, Any]:
        """Versions and settings."""
        return {}

    def other(self, request: dict[str, Any]) -> dict[str, Any]:
        """Any further request."""
        raise Refused(f"unknown request {request.get('do')}")

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Operands loaded, weights packed. Facts of what will run. Raises Refused."""
        raise NotImplementedError

    def call(self) -> None:
        raise NotImplementedError

    def sweep(self) -> None:
        """Write more than the last cache holds, with this side's own threads."""
        raise NotImplementedError

    def result(self) -> Any:
        """What the last call gave: an array in the dtype that NumPy stores, bf16 as its bits, and the dtype's name."""
        raise NotImplementedError


def brief(error: BaseException) -> str:
    """One line without paths."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {PATHS.sub('…', lines[0])[:200]}" if lines else type(error).__name__


def seconds(side: Side, calls: int = 1) -> float:
    """Seconds of one call; the clock is read around so many."""
    begin = time.perf_counter()
    for _ in range(calls):
        side.call()
    return (time.perf_counter() - begin) / calls


def tried(side: Side) -> float:
    """Seconds of the faster of a few calls, after one that warms up: to choose between ways to compute a problem."""
    side.call()
    return min(seconds(side) for _ in range(TRIES))


class Choosing(Side):
    """A side with several ways to compute a problem, which keeps the fastest. `call` runs `held`, and `sweep` runs `swept`."""

    held: Any = None
    swept: Any = None

    def choose(self, ways: Iterable[tuple[str, Callable[[], Any]]]) -> dict[str, Any]:
        """Sets `held` to what the fastest of the ways (name, maker) makes, and returns its name. Raises Refused if none runs."""
        best, facts, reasons = float("inf"), {}, []
        for name, make in ways:
            before, took = self.held, float("inf")
            try:
                self.held = make()
                took = tried(self)
            except Refused as error:
                reasons.append(str(error))
            except Exception as error:
                reasons.append(brief(error).rpartition(" : ")[2])  # without the numbers and names of onnxruntime's codes
            if took < best:
                best, facts = took, {"implementation": name}
            else:
                self.held = before
        if not facts:
            raise Refused("; ".join(reasons) or "no model of it")
        return facts

    def call(self) -> None:
        self.held.run()

    def sweep(self) -> None:
        self.swept.run()

    def result(self) -> Any:
        return self.held.result()


def wake(side: Side) -> None:
    """Sweeps until memory that was idle has reached its rate."""
    begun = time.perf_counter()
    while time.perf_counter() - begun < WAKE_S:
        side.sweep()


def sampled(side: Side, turn_s: float, cold: bool) -> list[float]:
    """Seconds per call over about turn_s. cold: the caches are swept before every call, and memory is woken before the first."""
    if cold:
        wake(side)
    begun = time.perf_counter()
    once = seconds(side)  # wakes the threads; a warm one brings the operands
    if once > turn_s and not cold:
        return [once]
    calls = 1 if cold else max(round(BATCH_S / max(once, 1e-9)), 1)
    found: list[float] = []
    while not found or time.perf_counter() - begun < turn_s or (len(found) < LEAST and once * calls < turn_s):
        if cold:
            side.sweep()
        found.append(seconds(side, calls))
    return found


def answer(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    asked = request["do"]
    if asked == "about":
        return side.about()
    if asked == "prepare":
        return {"facts": side.prepare(request)}
    if asked == "result":
        took = seconds(side)
        array, dtype = side.result()
        np.save(Path(request["file"]), array)
        return {"seconds": took, "dtype": dtype}
    if asked == "turn":
        return {"samples_s": sampled(side, request["turn_s"], request["cold"])}
    return side.other(request)


def serve(make: Callable[[], Side]) -> None:
    """Until the driver closes its end."""
    replies = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    missing = ""
    try:
        side = make()
    except Exception as error:  # its library is not there, or does not load
        missing = brief(error)
    gc.disable()  # no collection in a call
    for line in sys.stdin:
        try:
            reply = {"refused": missing} if missing else answer(side, json.loads(line))
        except Refused as reason:
            reply = {"refused": str(reason)}
        except Exception as error:
            reply = {"failed": brief(error)}
        gc.collect()
        print(json.dumps(reply), file=replies, flush=True)


def operands(request: dict[str, Any], *names: str) -> list[Any]:
    """Operands as they were written, in memory of their own."""
    import numpy as np

    return [np.load(Path(request["folder"]) / f"{name}.npy") for name in names]
