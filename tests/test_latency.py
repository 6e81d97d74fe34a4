"""Latency probes, huge pages, clocks of every core; and all of it where cores, huge pages or a home are missing."""

import os
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example import FAST, bracket, measurement
from programs import printed
from reported import Reported

import roofline
from roofline import CoreToCore, Error, ForkJoin, OutOfMemory, PointerChase, Policy, Relu, Stream, Unsupported
from roofline.measurement import open_device
from roofline.measurement.probing import Ready, ready
from roofline.measurement.tensors import allocate_all, check, huge_page_share
from roofline.measurement.timing import freeze, from_roofs, launches_moved
from roofline.probes.bandwidth import STREAM
from roofline.probes.latency import CHASE, CORE_TO_CORE, HOPS, HOST_CALL, LAUNCH, chase_problem
from roofline.results import roof_value

pytestmark = pytest.mark.all_cores

MIB = 2**20


def shortest(found: Ready, seconds: float = 0.1) -> float:
    device = open_device("cpu")
    policy = Policy(warmup_min_s=0.02, min_s=seconds, max_s=2 * seconds, batch_s=2e-3)
    return min(found.rates(found.sampled(device, policy)["samples_s"]))


# -- pointer_chase ------------------------------------------------------------------------------------------------------------


def test_the_chase_follows_the_order_it_is_given() -> None:
    order = np.array([4, 0, 3, 1, 2], dtype=np.int32)
    for hops, line in ((1, 0), (2, 3), (4, 2), (5, 4), (6, 0), (10**6 + 3, 1)):
        for _ in range(2):
            assert roofline.run(PointerChase(size_bytes=5 * 64, hops=hops), order=order)["reached"] == [line]


def test_launches_from_every_line_give_the_same() -> None:
    device = open_device("cpu")
    problem = PointerChase(size_bytes=64 * 1009, hops=7)
    found = ready(device, CHASE, problem, "dependent", "L1")
    for _ in range(1009):  # a whole lap and every remainder of it
        found.sets[0].run()
        assert found.tensors["reached"].raw()[0] == found.tensors["order"].raw()[7]


def test_launches_go_on_where_the_last_one_ended() -> None:
    """A thousand lines, always the same ones, would stay in L2, whose hops are three to five times as long as those of L1."""
    first = shortest(ready(open_device("cpu"), CHASE, chase_problem(open_device("cpu"), "L1"), "dependent", "L1"))
    problem = PointerChase(size_bytes=2 * (open_device("cpu").facts["l3_bytes"] or 32 * MIB), hops=1000)
    assert shortest(ready(open_device("cpu"), CHASE, problem, "dependent", "DRAM")) > 8 * first


@pytest.mark.parametrize("bad", [[0, 1, 1], [0, 1, 3], [0, -1, 2], [2, 2, 2], [0, 1, 2**31 - 1]])
def test_what_is_no_cycle_is_refused(bad: list[int]) -> None:
    """Bad data of a user must not become a load from anywhere."""
    with pytest.raises(Error, match="no permutation of 0 to 2"):
        roofline.run(PointerChase(size_bytes=192, hops=9), order=np.array(bad, dtype=np.int32))


def test_the_first_order_is_a_permutation_and_that_of_its_seed() -> None:
    device = open_device("cpu")
    problem = PointerChase(size_bytes=64 * 10_007)
    orders = [allocate_all(device, problem, seed)["order"].raw().copy() for seed in (1, 1, 2)]
    assert (np.sort(orders[0]) == np.arange(10_007)).all()
    assert (orders[0] == orders[1]).all()
    assert (orders[0] != orders[2]).any()
    # Neighbours in the order are no neighbours in memory: a line in 5000 would be by chance.
    assert (np.abs(np.diff(orders[0].astype(np.int64))) <= 2).mean() < 0.01


def test_other_operators_keep_their_random_data() -> None:
    x = allocate_all(open_device("cpu"), Relu(elements=4096), 5)["x"].raw()
    assert abs(float(x.mean())) < 0.1
    assert float(x.std()) == pytest.approx(1, abs=0.05)


def test_a_chase_is_measured_like_any_problem() -> None:
    m = roofline.measure(PointerChase(size_bytes=4 * MIB, hops=2000), device="cpu", policy=FAST, cache_state="warm")
    assert m.correctness["passed"]
    assert m.level in ("L2", "L3", "DRAM")
    assert -1 <= m.plan["huge_page_share"] <= 1
    assert m.total_bytes == 64 * 2000 + 4
    assert m.total_flops == 0


def test_memory_that_is_not_there() -> None:
    with pytest.raises(OutOfMemory):
        roofline.measure(PointerChase(size_bytes=2**37 - 64), device="cpu", policy=FAST)


def test_sets_fit_their_levels() -> None:
    device = open_device("cpu")
    one = open_device("cpu", 1)
    facts = device.facts
    for level in ("L1", "L2"):
        problem = chase_problem(device, level)
        assert problem.size_bytes == facts[f"{level.lower()}_bytes"] // 2
        assert problem == chase_problem(one, level), "one core runs, however many threads there are"
    if facts["l3_bytes"] >= 4 * facts["l2_bytes"] * device.threads:
        assert 1.5 * facts["l2_bytes"] * device.threads <= chase_problem(device, "L3").size_bytes <= facts["l3_bytes"] // 2
    last = facts["l3_bytes"] or facts["l2_bytes"]
    assert chase_problem(device, "DRAM").size_bytes >= (16 * MIB if facts.get("flush") else 2 * last)
    assert chase_problem(device, "L1", "small").pages == "small"


def test_sets_of_other_machines() -> None:
    """L3: eight times all L2, at most a quarter of it where that is twice L2. DRAM: flushed, or four caches if they fit."""
    large = Reported(l1_bytes=48 << 10, l2_bytes=2 * MIB, l3_bytes=504 * MIB, memory_bytes=2**40, flush="clflushopt")
    assert [chase_problem(large, level).size_bytes for level in HOPS] == [24 << 10, MIB, 16 * MIB, 256 * MIB]
    little = Reported(l1_bytes=32 << 10, l2_bytes=512 << 10, l3_bytes=4 * MIB, memory_bytes=2**30)
    assert [chase_problem(little, level).size_bytes for level in ("L3", "DRAM")] == [MIB, 83 * MIB]
    groups = Reported(l1_bytes=32 << 10, l2_bytes=MIB, l3_bytes=256 * MIB, l3_instances=8, threads=64, memory_bytes=2**40)
    assert chase_problem(groups, "L3").size_bytes == 16 * MIB, "one core sees one of eight"
    without = Reported(l1_bytes=64 << 10, l2_bytes=MIB, l3_bytes=0, memory_bytes=2**34)
    assert chase_problem(without, "DRAM").size_bytes == 256 * MIB
    unflushed = Reported(l1_bytes=48 << 10, l2_bytes=MIB, l3_bytes=128 * MIB, memory_bytes=2**40)
    assert chase_problem(unflushed, "DRAM").size_bytes == 512 * MIB
    with pytest.raises(Unsupported, match="no L3"):
        chase_problem(without, "L3")
    with pytest.raises(Unsupported, match="83 MiB of memory for an array is too little beside a cache of 256 MiB"):
        chase_problem(Reported(l1_bytes=1, l2_bytes=1, l3_bytes=256 * MIB, memory_bytes=2**30), "DRAM")
    with pytest.raises(Error, match="level must be one of"):
        chase_problem(without, "L4")


def test_a_hop_takes_the_cycles_of_a_load() -> None:
    """L1: 3 to 6 cycles on every core there is. A load that did not wait for the last one would take less than one."""
    device = open_device("cpu")
    shortest_s = {level: shortest(ready(device, CHASE, chase_problem(device, level), "dependent", level)) for level in ("L1", "L2")}
    clock_hz = max(device.core.clock_hz() for _ in range(5))
    assert 2.8 < shortest_s["L1"] * clock_hz < 7
    assert shortest_s["L2"] > 1.8 * shortest_s["L1"]


def test_launches_are_short() -> None:
    device = open_device("cpu")
    for level in ("L1", "L2"):
        found = ready(device, CHASE, chase_problem(device, level), "dependent", level)
        assert 20e-6 < min(found.sets[0].run() for _ in range(5)) < 20e-3
        assert found.label == f"{level} latency"
        assert (found.kind, found.level) == ("latency", level)


@pytest.mark.timing
def test_latency_grows_with_the_level() -> None:
    device = open_device("cpu", 1)
    levels = [level for level in HOPS if level != "L3" or device.facts["l3_bytes"]]
    times = [shortest(ready(device, CHASE, chase_problem(device, level), "dependent", level), 0.5) for level in levels]
    assert times == sorted(times)
    assert 40e-9 < times[-1] < 400e-9
    small = shortest(ready(device, CHASE, chase_problem(device, "DRAM", "small"), "dependent", "DRAM"), 0.5)
    assert small > times[-1], "misses of the TLB come on top"


# -- core_to_core and fork_join -----------------------------------------------------------------------------------------------


def test_core_to_core() -> None:
    device = open_device("cpu")
    if device.threads < 2:
        pytest.skip("one usable core")
    there, back = (ready(device, CORE_TO_CORE, CoreToCore(first=a, second=b), "ping_pong") for a, b in ((0, 1), (1, 0)))
    for found in (there, back):
        found.sets[0].run()
        assert check(found.problem, found.tensors)["passed"]
        assert 5e-9 < shortest(found) < 1e-3
        assert found.plan()["threads"] == 2
    with pytest.raises(Unsupported, match=f"thread {device.threads} is wanted, there are {device.threads}"):
        ready(device, CORE_TO_CORE, CoreToCore(first=0, second=device.threads), "ping_pong")
    with pytest.raises(Unsupported, match="two threads are needed"):
        ready(open_device("cpu", 1), CORE_TO_CORE, CoreToCore(), "ping_pong")


def test_two_threads_on_one_core_hand_over_too() -> None:
    """Both workers are moved to one CPU behind the pool's back: each then waits for the other to be put aside."""
    if open_device("cpu").threads < 2:
        pytest.skip("one usable core")
    printed("""
        import os
        import numpy as np
        from roofline import CoreToCore, run
        from roofline.measurement import open_device
        device = open_device("cpu", 2)
        cpu = min(os.sched_getaffinity(0))
        for task in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(task), {cpu})
        assert run(CoreToCore(rounds=300), device=device)["handovers"] == [600]
    """)


def test_a_call_is_less_than_a_fork_join() -> None:
    device = open_device("cpu")
    assert ForkJoin().default_variant("cpu") == ForkJoin().default_variant("cuda") == "pool"
    call, pool = (ready(device, probe, ForkJoin(), variant) for probe, variant in ((HOST_CALL, "call"), (LAUNCH, "pool")))
    assert (call.label, pool.label) == ("call", "fork-join")
    assert call.plan()["threads"] == 1
    if device.threads > 1:
        assert shortest(call) < shortest(pool)


def test_rates_of_a_latency_are_of_one_of_it() -> None:
    device = open_device("cpu")
    chase = ready(device, CHASE, PointerChase(size_bytes=640, hops=50), "dependent", "L1")
    assert chase.rates([1.0, 2.0]) == [0.02, 0.04]
    assert ready(device, LAUNCH, ForkJoin(), "pool").rates([1.0]) == [1.0]
    if device.threads > 1:
        assert ready(device, CORE_TO_CORE, CoreToCore(rounds=10), "ping_pong").rates([1.0]) == [0.1]


def test_idle_threads_are_no_contention() -> None:
    """One thread works, the others sleep: what these did not use was not taken from them."""
    device = open_device("cpu")
    found = ready(device, CHASE, chase_problem(device, "L1"), "dependent", "L1")
    policy = Policy(warmup_min_s=0.05, min_s=0.2, max_s=0.2).to_dict()
    shares = [device.core.sample(found.sets, policy=policy)["load"]["cpu_share"] for _ in range(3)]
    assert max(shares) > 0.3, "the CPU time of a sleeping thread was held against it"


# -- a disturbed launch roof --------------------------------------------------------------------------------------------------


def test_a_disturbed_bracket_of_the_launch_binds_nothing() -> None:
    """4 of 5 samples of the launch were taken while the host did something else."""
    launch, memory = [0.2e-6, 3e-6, 4e-6, 5e-6, 9e-6], [1e9, 1e9, 1e9]
    assert roof_value("latency", launch) == 0.2e-6
    assert roof_value("bandwidth", [1.0, 2.0, 9.0]) == 2.0

    class Fixed:
        def __init__(self, kind: str, samples: list[float]) -> None:
            self.kind, self.samples = kind, samples

        def rates(self, seconds: Any) -> list[float]:
            return self.samples

    frozen: dict[str, Any] = {}
    probes: list[Any] = [Fixed("bandwidth", memory), Fixed("latency", launch)]
    assert freeze(probes, frozen, from_roofs(0, 1000), "DRAM", [[], []]) == 0
    assert (frozen["bound"], frozen["time_s"]) == ("DRAM", 1e-6)
    start = bracket(tuple(launch[1:]), "fork-join", kind="latency", after_samples=tuple(launch))
    m = measurement(Relu(), (2e-6,) * 3, bytes={"compulsory": 1000}, brackets=(bracket(tuple(memory)), start))
    assert m.bound == "DRAM"
    assert m.share_of_bracket == pytest.approx(0.5)


def test_a_point_is_disturbed_where_launches_change_by_more_than_a_twentieth_of_its_time() -> None:
    def why(before_s: float, after_s: float, launch_s: float, time_s: float) -> str:
        launch = bracket((before_s,) * 3, "fork-join", kind="latency", after_samples=(after_s,) * 3)
        return launches_moved((bracket((30e9,) * 3), launch), {"parts": {"DRAM": 1e-6, "launch": launch_s}, "time_s": time_s})

    assert why(0.12e-6, 0.6e-6, 0.12e-6, 1.5e-6) == "a launch took 120 ns and 600 ns before and after the measurement"
    assert why(0.6e-6, 0.12e-6, 0.6e-6, 2e-6)
    assert not why(0.12e-6, 0.6e-6, 0.12e-6, 10e-6), "4.8 %"
    assert not why(0.6e-6, 0.63e-6, 0.6e-6, 1.5e-6)
    assert not launches_moved((bracket((30e9,) * 3),), {"parts": {"DRAM": 1e-6}, "time_s": 1e-6})


# -- huge pages ---------------------------------------------------------------------------------------------------------------

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
GIVEN = HUGE.exists() and "[never]" not in HUGE.read_text() and open_device("cpu").core.memory(1).huge_page_share() >= 0
needs_huge = pytest.mark.skipif(not GIVEN, reason="this system gives no huge pages, or does not tell")


@needs_huge
def test_huge_pages_are_had_and_refused() -> None:
    device = open_device("cpu")
    for size in (64 * 100, 16 * MIB):
        shares = {pages: ready(device, CHASE, PointerChase(size_bytes=size, pages=pages), "dependent").plan()["huge_page_share"]
                  for pages in ("huge", "small")}  # fmt: skip
        assert shares["small"] == 0
        assert shares["huge"] > 0.5, "less where memory is in pieces"


def test_memory_begins_with_a_page() -> None:
    """A huge one where it has the size of one."""
    device = open_device("cpu")
    for size in (1, 5000, 2 * MIB - 1, 2 * MIB, 6 * MIB + 77):
        memory = device.core.memory(size)
        assert memory.address % (2 * MIB if size >= 2 * MIB else 4096) == 0
        memory.fill("int8", size, "zeros")
        assert memory.huge_page_share() == -1 or 0 <= memory.huge_page_share() <= 1


@needs_huge
def test_the_share_of_tensors() -> None:
    device = open_device("cpu")
    memory = device.core.memory(8 * MIB)
    assert memory.huge_page_share() == 0, "not touched yet"
    memory.fill("int8", 4 * MIB, "zeros")
    assert memory.huge_page_share() == pytest.approx(0.5)
    memory.fill("int8", 8 * MIB, "zeros")
    assert memory.huge_page_share() == 1
    found = ready(device, STREAM, Stream(access="copy", elements=MIB), "plain", "DRAM")
    assert found.plan()["huge_page_share"] > 0.5
    assert huge_page_share(found.tensors.values()) == pytest.approx(found.plan()["huge_page_share"])
    assert "huge_page_share" not in ready(device, STREAM, Stream(access="copy", elements=1000), "plain", "L1").plan()


WITHOUT = """
    import ctypes
    assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0  # PR_SET_THP_DISABLE
    import numpy as np
    import roofline
    from roofline.measurement import open_device
    from roofline.measurement.probing import ready
    from roofline.probes.bandwidth import STREAM
    from roofline.probes.latency import CHASE
    device = open_device("cpu")
    for pages in ("huge", "small"):
        for size in (6400, 2**24):
            found = ready(device, CHASE, roofline.PointerChase(size_bytes=size, hops=1000, pages=pages), "dependent", "L3")
            assert found.sets[0].run() > 0
            print(found.plan()["huge_page_share"])
    print(ready(device, STREAM, roofline.Stream(access="copy", elements=2**20), "plain", "DRAM").plan().get("huge_page_share"))
"""


@needs_huge
def test_without_huge_pages_all_runs_and_says_so() -> None:
    assert [float(line) for line in printed(WITHOUT).split()] == [0.0] * 5


# -- few cores, no home, clocks -----------------------------------------------------------------------------------------------

EVERYTHING = """
    import roofline
    from roofline.measurement import open_device
    from roofline.measurement.probing import ready
    from roofline.probes.latency import CHASE, CORE_TO_CORE, HOST_CALL, LAUNCH, chase_problem
    device = open_device()
    if device.backend != "cpu":
        device = open_device("cpu")
    print(device.threads)
    for level in ("L1", "L2"):
        assert ready(device, CHASE, chase_problem(device, level), "dependent", level).sets[0].run() > 0
    for probe, variant in ((HOST_CALL, "call"), (LAUNCH, "pool")):
        assert ready(device, probe, roofline.ForkJoin(), variant).sets[0].run() > 0
    try:
        ready(device, CORE_TO_CORE, roofline.CoreToCore(), "ping_pong").sets[0].run()
    except roofline.Unsupported as reason:
        print(reason)
"""


def test_one_core() -> None:
    cpu = min(os.sched_getaffinity(0))
    first, *rest = printed(f"import os\nos.sched_setaffinity(0, [{cpu}])\n" + textwrap.dedent(EVERYTHING)).splitlines()
    assert first == "1"
    assert "two threads are needed" in rest[0]


@pytest.mark.parametrize("home", ["/proc", "/nowhere"], ids=["read_only", "missing"])
def test_no_home(home: str) -> None:
    assert printed(EVERYTHING, HOME=home, XDG_CACHE_HOME=home, TMPDIR=home)
