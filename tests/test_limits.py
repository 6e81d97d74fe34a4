"""Memory under a limit of the process: the available memory follows it, and too large a problem is an error and no crash."""

import pytest
from programs import printed

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
    assert "OutOfMemory:" in printed(CHILD.format(name=name), OPENBLAS_NUM_THREADS="1")
