"""Programs that tests start: Python with the package under test, whatever the working directory; and git."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import roofline

PYTHONPATH = os.pathsep.join(filter(None, (str(Path(str(roofline.__file__)).parent.parent), os.environ.get("PYTHONPATH"))))


def python(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=environment, timeout=300)


def printed(code: str, *arguments: str, cwd: Path | None = None, **environment: str) -> str:
    """What this code prints; it must end well."""
    done = python("-c", textwrap.dedent(code), *arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def git(*arguments: str) -> str:
    if shutil.which("git") is None:
        pytest.skip("git is not installed, so what belongs to the repository is not known")
    done = subprocess.run(["git", *arguments], cwd=Path(__file__).parent.parent, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"what belongs to the repository is not known: {done.stderr.strip()}")
    return done.stdout
