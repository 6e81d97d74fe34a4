"""Memory under a limit of the process: the available memory follows it, and too large a problem is an error and no crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import roofline

CHILD = """
import resource
from roofline.errors import OutOfMemory
from roofline.measurement import open_device
from roofline.measurement.preparing import prepare
from roofline.operators import Relu

device = open_device("cpu", 1)
free = device.core.available_bytes()
limit = 2 << 30
resource.setrlimit(resource.{name}, (limit, limit))
have = device.core.available_bytes()
assert have < limit, (have, free)
prepare(device, Relu(elements=1 << 20), None, "warm", 0).sets[0].run()
try:
    prepare(device, Relu(elements=limit // 4), None, "warm", 0)  # two arrays of the limit's size
except OutOfMemory as error:
    print("OutOfMemory:", error)
held = device.core.memory(have // 2)
left = device.core.available_bytes()
assert left <= have - have // 2 + (16 << 20), (left, have)  # the interpreter gives some memory back
"""


@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_of_the_process_is_respected(name: str) -> None:
    path = str(Path(str(roofline.__file__)).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(name=name)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "OutOfMemory:" in done.stdout
