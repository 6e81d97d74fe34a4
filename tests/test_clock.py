"""The clock of a compute probe: read in its own loop."""

import pytest

from roofline.measurement import Policy, open_device
from roofline.measurement.preparing import prepare
from roofline.operators import Fma

POLICY = Policy(warmup_min_s=0.02, warmup_max_s=0.05, min_s=0.05, max_s=0.1, bracket_s=0.004, tries=1)


@pytest.mark.parametrize("dtype", ["fp64", "fp32"])
@pytest.mark.parametrize("pattern", ["fma", "fma_add"])
def test_it_is_a_clock(dtype: str, pattern: str) -> None:
    device = open_device("cpu")
    ready = prepare(device, Fma(dtype=dtype, pattern=pattern, chains=7680 * int(device.facts["threads"])), None, "warm", 0)
    seen = device.core.sample(ready.sets, policy=POLICY.to_dict())
    for name in ("clock_before_hz", "clock_after_hz"):
        assert 1e8 < seen[name] < 1.2e10


@pytest.mark.timing
@pytest.mark.parametrize("dtype", ["fp64", "fp32"])
@pytest.mark.parametrize("isa", ["scalar", ""])
def test_multiply_adds_take_a_whole_number_of_instructions_a_cycle(dtype: str, isa: str) -> None:
    """Every known core starts one, two or four of these a cycle; so does the loop by its own clock."""
    device = open_device("cpu")
    problem = Fma(dtype=dtype, isa=isa, chains=7680 * int(device.facts["threads"]), steps=32768)
    ready = prepare(device, problem, None, "warm", 0)
    policy = Policy(warmup_min_s=0.3, warmup_max_s=0.4, min_s=0.3, max_s=1.0).to_dict()
    seen = device.core.sample(ready.sets, policy=policy)
    rate = problem.chains * problem.steps / min(seen["samples_s"]) / int(device.facts["threads"])
    lanes = {"scalar": 1, "avx2": 32, "avx512": 64, "neon": 16}[str(ready.plan["isa"])]
    lanes = max(1, lanes // (8 if dtype == "fp64" else 4))
    per_cycle = rate / lanes / max(seen["clock_before_hz"], seen["clock_after_hz"])
    assert min(abs(per_cycle / whole - 1) for whole in (1, 2, 4)) < 0.03
