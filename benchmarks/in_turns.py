"""What comparisons in turns have in common: worker processes behind pipes, and turns with the other load around them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

IDLE_S = 0.06  # between turns: threads that wait for more work have gone to sleep by then
QUIET = 0.03  # of all cores: more, kept by others or the host, and a turn does not count
ENDING_S = 5.0  # for a process that has closed its output
FEWEST = 3  # quiet rounds for a verdict


class Failed(Exception):
    """The other side gave no result; the message says why, in one line."""


def ticks() -> tuple[float, float]:
    """CPU seconds that all cores were busy, and that the host took, since boot."""
    values = [int(v) for v in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    tick = os.sysconf("SC_CLK_TCK")
    return (sum(values[:8]) - values[3] - values[4] - values[7]) / tick, values[7] / tick


def watched(work: Callable[[], T], own_s: Callable[[], float]) -> tuple[T, dict[str, float], bool]:
    """What `work` gave, the load around it, and whether it was quiet: busy beyond `own_s`, within the resolution of two ticks."""
    began, own, (busy, stolen) = time.monotonic(), own_s(), ticks()
    found = work()
    after, wall = ticks(), max(time.monotonic() - began, 1e-9)
    foreign = max(after[0] - busy - (own_s() - own), 0.0) / wall
    taken = (after[1] - stolen) / wall
    limit = max(QUIET * (os.cpu_count() or 1), 2 / os.sysconf("SC_CLK_TCK") / wall)
    return found, {"wall_s": wall, "foreign_cores": foreign, "stolen_cores": taken}, foreign + taken <= limit


class Worker:
    """A process that answers requests, both lines of JSON, and stays. Raises Failed where it ends or is too late."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None, quiet: bool = False) -> None:
        self.name = name
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            env=None if env is None else dict(env),
            start_new_session=True,  # a compiler that it started ends with it
        )
        self._read = b""

    def ask(self, limit_s: float | None = None, /, **request: Any) -> dict[str, Any]:
        """The answer to a request. After a failure the process is gone."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        try:
            reply: dict[str, Any] = json.loads(self._line(limit_s))
        except ValueError as error:
            self.close()
            raise Failed(f"{self.name} answered with something that is no JSON") from error
        except BaseException:
            self.close()
            raise
        return reply

    def _line(self, limit_s: float | None) -> bytes:
        assert self.process.stdout is not None
        ends = None if limit_s is None else time.monotonic() + limit_s
        while b"\n" not in self._read:
            left = None if ends is None else max(ends - time.monotonic(), 0.0)
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise Failed(f"{self.name} gave no answer within {limit_s:.3g} s and was ended")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise Failed(f"{self.name} {self._ending()}")
            self._read += part
        line, self._read = self._read.split(b"\n", 1)
        return line

    def _ending(self) -> str:
        try:
            code = self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return f"ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"

    def cpu_s(self) -> float:
        """Of all its threads, so far; 0 where it has ended."""
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
