"""Worker processes: started in a given environment, asked, waited for, and ended with all that they started."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .checks import cpu_ticks
from .rules import VARIABLES

ENDING_S = 5.0  # for a process that has closed its output
WORKER = (sys.executable, "-P", str(Path(__file__).with_name("worker.py")))


class Broken(Exception):
    """A process gave no answer (ended, is too late, or says that it cannot); the message says why, on one line, without paths."""


def without_paths(text: str) -> str:
    return re.sub(r"(?<![\w.])/(?:[\w.+@-]+/)+", "", " ".join(text.split()))


class Worker:
    """A process that answers requests, both lines of JSON, and stays. name: of it, in messages. env: None is that of this one."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # ended as a group, with what it started
        )
        self._pending = b""

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def ask(self, limit_s: float | None = None, /, **request: Any) -> dict[str, Any]:
        """The reply. Raises Broken, and ends the process, where there is none within `limit_s` seconds (None: whenever)."""
        try:
            reply: dict[str, Any] = json.loads(self._exchange(json.dumps(request).encode() + b"\n", limit_s))
        except ValueError as error:
            self.close()
            raise Broken(f"{self.name} answered in something else than JSON") from error
        except BaseException:
            self.close()
            raise
        return reply

    def _exchange(self, request: bytes, limit_s: float | None) -> bytes:
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        deadline = None if limit_s is None else time.monotonic() + limit_s
        with contextlib.suppress(BrokenPipeError):
            to.write(request)
            to.flush()
        while b"\n" not in self._pending:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not select.select([answers], [], [], left)[0]:
                raise Broken(f"{self.name} gave no answer within {limit_s:.3g} s")
            received = os.read(answers.fileno(), 1 << 16)
            if not received:
                raise Broken(self._end())
            self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _end(self) -> str:
        try:
            code = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            return f"{self.name} closed its output"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return without_paths(f"{self.name} ended with {how}" + (f": {said[-1]}" if said else ""))

    def cpu_s(self) -> float:
        """CPU seconds of the process so far; 0 where the system does not say."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


class Session(Worker):
    """The worker of one library. changes: to the environment, None unsets a variable."""

    def __init__(self, library: str, changes: Mapping[str, str | None], command: Sequence[str] = WORKER) -> None:
        environment = {**os.environ, **{name: value for name, value in changes.items() if value is not None}}
        for name in (name for name, value in changes.items() if value is None):
            environment.pop(name, None)
        if library == "roofline":  # the one that runs here, wherever it was imported from
            here = str(Path(__file__).parents[2])
            environment["PYTHONPATH"] = os.pathsep.join(p for p in (here, environment.get("PYTHONPATH", "")) if p)
        self.library, self.environment = library, {name: environment[name] for name in VARIABLES if environment.get(name)}
        super().__init__("its process", [*command, library], environment)

    def ask(self, limit_s: float | None = None, /, **request: Any) -> dict[str, Any]:
        """The reply. Raises Broken where there is none, or it says that it cannot."""
        reply = super().ask(limit_s, **request)
        if "error" in reply:
            raise Broken(without_paths(str(reply["error"])))
        return reply


class Watch:
    """Cores that others kept busy, and that the host took, while it is open. own_s: CPU seconds of the watched process."""

    def __init__(self, own_s: Callable[[], float]) -> None:
        self._own_s = own_s
        self.load: dict[str, float] = {}

    def _now(self) -> tuple[float, float, float, float]:
        own = self._own_s()
        tick = float(os.sysconf("SC_CLK_TCK"))
        try:
            busy, stolen, _ = cpu_ticks()
        except (OSError, ValueError, IndexError):
            return time.monotonic(), own, 0.0, own
        return time.monotonic(), busy / tick, stolen / tick, own

    def __enter__(self) -> Self:
        self._begin = self._now()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        wall, busy, stolen, own = (after - before for before, after in zip(self._begin, self._now(), strict=True))
        self.load = {
            "wall_s": wall,
            "foreign_cores": max(busy - own, 0.0) / max(wall, 1e-9),
            "stolen_cores": stolen / max(wall, 1e-9),
        }
