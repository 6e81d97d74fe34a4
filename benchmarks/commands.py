"""Commands with a time limit, which end with everything that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Done:
    """A command that ended, or was ended at its limit."""

    code: int
    stdout: str
    stderr: str
    timed_out: bool = False

    @property
    def log(self) -> str:
        return self.stdout + self.stderr


def run_command(words: Sequence[str | Path], limit_s: float, env: Mapping[str, str], cwd: Path | None = None) -> Done:
    process = subprocess.Popen(
        list(map(str, words)), cwd=cwd, env=env, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    timed_out = False
    try:
        stdout, stderr = process.communicate(timeout=limit_s)
    except BaseException as stopped:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        timed_out = isinstance(stopped, subprocess.TimeoutExpired)
        if not timed_out:
            raise
    return Done(process.returncode, stdout, stderr, timed_out)
