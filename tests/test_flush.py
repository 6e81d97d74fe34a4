"""Launches on cold lines: the same results, and times of memory instead of a cache."""

import dataclasses
import os
import statistics
import sys
from typing import Any

import pytest
from example import FAST
from programs import printed

from roofline.measurement import Policy, open_device
from roofline.measurement.preparing import prepare
from roofline.measurement.tensors import check
from roofline.operators import Attention, Operator, Softmax, Stream
from roofline.units import KIB, MIB


def test_the_device_says_by_which_instruction() -> None:
    assert open_device("cpu").facts["flush"] in ("clflushopt", "clflush", "dc civac")


@pytest.mark.parametrize(
    ("problem", "variant"),
    [
        (Stream(access="triad", elements=1003), "plain"),
        (Stream(access="triad", elements=1003), "non_temporal"),
        (Softmax(rows=7, columns=33), "fused"),
        (Attention(seq_q=33, seq_kv=33, heads=1, kv_heads=1, head_dim=16), "naive"),
        (Attention(seq_q=33, seq_kv=33, heads=1, kv_heads=1, head_dim=16), "tiled"),
    ],
)
def test_results_and_guard_zones_are_those_of_warm_launches(problem: Operator, variant: str) -> None:
    ready = prepare(open_device("cpu"), problem, variant, "cold", 3)
    assert ready.device.core.sample(ready.sets, -1, True, policy=FAST.to_dict())["samples_s"].size
    for tensors in ready.tensors:
        report = check(problem, tensors, 3)
        assert report["passed"], report["reason"]


RESIDENT = """
from example import FAST
from roofline import Relu
from roofline.measurement import open_device
from roofline.measurement.preparing import prepare

def resident():
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))

device = open_device("cpu", 1)
facts, stated, available = device.facts, device.flush_bytes, device.core.available_bytes()
problem, before = Relu(elements=1 << 16), resident()
ready = prepare(device, problem, "fused", "cold", 0)  # where its kernel is chosen by trials, they flush too
device.core.sample(ready.sets, -1, ready.flush_each, policy=FAST.to_dict())
print(facts["l2_bytes"], facts["l3_bytes"], available, stated, device.core.flush_bytes(), resident() - before)
"""
BESIDE = 8 * MIB  # that operands and the interpreter take


def test_what_flushing_takes_is_known_before() -> None:
    """Twice the caches, at most 256 MiB and an eighth of what is available; and so much more of the process is in memory then."""
    found = printed(RESIDENT, PYTHONPATH=os.pathsep.join(sys.path))
    l2_bytes, l3_bytes, available, stated, after, taken = map(int, found.split())
    assert stated == pytest.approx(min(2 * (l2_bytes + l3_bytes), 256 * MIB, available // 8), rel=0.05)
    assert after == pytest.approx(stated, rel=0.05) and stated <= taken <= stated + BESIDE


@pytest.mark.timing
def test_roofs_are_flushed_one_by_one() -> None:
    ready = prepare(open_device("cpu"), Stream(access="read", elements=64 * KIB // 4), "plain", "warm", 3)
    policy = dataclasses.replace(FAST, bracket_s=0.05).to_dict()
    seen = ready.device.core.measure(ready.sets, False, [(ready.sets, True), (ready.sets, False)], lambda before: 1, policy)
    for brackets in (seen["before_s"], seen["after_s"]):
        cold, warm = map(statistics.median, brackets)
        assert cold > 1.5 * warm


@pytest.mark.timing
@pytest.mark.parametrize("threads", [1, 0])
def test_a_small_array_is_read_from_memory(threads: int) -> None:
    """An array of 256 KiB lies in the caches of any CPU, yet flushed it is read at most at twice the rate of one of 1 GiB."""
    device = open_device("cpu", threads)

    def rate(size_bytes: int, flush_each: bool) -> float:
        ready = prepare(device, Stream(access="read", elements=size_bytes // 4, streams=8), "plain", "warm", 3)
        policy = Policy(warmup_min_s=0.05, min_s=0.3, max_s=1.0).to_dict()
        return size_bytes / statistics.median(device.core.sample(ready.sets, -1, flush_each, policy=policy)["samples_s"])

    memory = rate(1024 * MIB, False)
    assert rate(256 * KIB, True) < 2 * memory < rate(256 * KIB, False)


def times_as_long(device: Any, rounds: int, policy: Policy, one: tuple[Any, bool], other: tuple[Any, bool]) -> float:
    """How many times as long as a launch on the sets of `other` one on those of `one` takes, flushed before each or not."""
    ratios = []
    for _ in range(rounds):  # in turn: memory drifts
        samples = (device.core.sample(sets, -1, flushed, policy=policy.to_dict())["samples_s"] for sets, flushed in (one, other))
        first, second = map(statistics.median, samples)
        ratios.append(first / second)
    return statistics.median(ratios)


@pytest.mark.timing
@pytest.mark.parametrize("threads", [1, 0])
def test_a_flushed_array_is_read_at_the_rate_of_a_large_one(threads: int) -> None:
    device, policy = open_device("cpu", threads), Policy(warmup_min_s=0.02, warmup_max_s=0.05, min_s=0.2, max_s=0.5)
    large, small = (prepare(device, Stream(access="read", elements=mib * MIB // 4), "plain", "warm", 3) for mib in (1024, 256))
    assert times_as_long(device, 5, policy, (large.sets, False), (small.sets, True)) == pytest.approx(1024 / 256, rel=0.03)


@pytest.mark.timing
@pytest.mark.parametrize("threads", [1, 0])
@pytest.mark.parametrize("mib", [16, 64])
def test_a_flushed_array_is_read_at_the_rate_of_one_of_many_in_turn(threads: int, mib: int) -> None:
    """A flush leaves room in the caches, and lines come faster into it, unless other lines take that room first."""
    device, policy = open_device("cpu", threads), Policy(warmup_min_s=0.005, warmup_max_s=0.01, min_s=0.03, max_s=0.05)
    problem = Stream(access="read", elements=mib * MIB // 4)
    several = [prepare(device, problem, "plain", "warm", 3).sets[0] for _ in range(512 // mib)]
    assert times_as_long(device, 15, policy, (several, False), (several[:1], True)) == pytest.approx(1, abs=0.1)
