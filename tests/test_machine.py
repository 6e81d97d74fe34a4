"""Machines: statistics by hand-worked ranks, modes, which ceiling answers a question, self-distrust, and files."""

import dataclasses
import functools
import json
import os
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import full
from example import gemm
from hypothesis import given, strategies as st
from programs import printed
from tables import gives, refused

from roofline.errors import Error
from roofline.machine import (
    Ceiling,
    EmpiricalRoofline,
    IntensityPoint,
    Machine,
    SizeCurve,
    SizePoint,
    SustainedSample,
    cache_capacity,
    cache_level,
    load_machines,
    modes,
    save_machines,
    summary,
    to_json,
    write_atomically,
)
from roofline.machine.statistics import autocorrelation
from roofline.operators import MIXES
from roofline.probes import PROBES
from roofline.probes.levels import stated_caches


def bandwidth(
    access: str, value: float, level: str = "DRAM", variant: str = "plain", threads: int = 2, probe: str = "stream", **more: Any
) -> Ceiling:
    problem = {"operator": "stream", "access": access, "elements": len(level) << 20}
    more = {"problem": problem, "samples": (value,), **more}
    return Ceiling(probe=probe, level=level, access=access, variant=variant, threads=threads, **more)


def strided(value: float, level: str = "DRAM", threads: int = 2) -> Ceiling:
    return bandwidth("read", value, level, threads=threads, probe="stream.strided", params={"stride": 16})


def scalar(value: float, level: str = "DRAM") -> Ceiling:
    return bandwidth("read", value, level, probe="stream.scalar", isa="scalar")


def compute(dtype: str, value: float, isa: str = "avx2", threads: int = 2, **more: Any) -> Ceiling:
    return Ceiling(dtype=dtype, isa=isa, threads=threads, **{"probe": "fma", "samples": (value,), **more})


def latency(value: float, level: str = "", threads: int = 2, operator: str = "", **problem: Any) -> Ceiling:
    probe = "pointer_chase" if level else "core_to_core" if operator == "core_to_core" else "launch"
    return Ceiling(probe=probe, level=level, threads=threads, samples=(value,), params=problem)


def mixed(value: float) -> Ceiling:
    return compute("fp32", value, probe="fma.add")


def machine(*ceilings: Ceiling, **facts: int) -> Machine:
    return Machine(name="Example CPU", ceilings=ceilings, facts=facts)


def whole() -> Machine:
    """A machine that uses every key of its file."""
    ceilings = (
        bandwidth("read", 40e9, samples=(101e9, 50e9, 101e9, 50e9), status="contended", reason="other work ran"),
        bandwidth("copy", 45e9, variant="non_temporal"),
        compute("bf16", 800e9, isa="amx", accumulator="fp32", unit="tensor", clock_hz=3.1e9, ops_per_cycle=1024.0),
        compute("fp32", 900e9, isa="", source="datasheet"),
        compute("fp32", 700e9, sustained=True, plan={"implementation": "fma/avx2", "huge_page_share": 0.5}),
        latency(3.4e-6),
    )
    points = [SizePoint(size_bytes=1 << i, samples=(1e11, 1.01e11), problem={"operator": "stream"}) for i in range(12, 17)]
    sweep = [
        IntensityPoint(intensity_flops_per_byte=2.0**i, samples=(1 / (2.0**-i + 1 / 8), 1.01 / (2.0**-i + 1 / 8)), clock_hz=3e9)
        for i in range(-2, 9)
    ]
    load = (SustainedSample(time_s=5.5, flops_per_s=7.9), SustainedSample(time_s=11.0, flops_per_s=7.5, clock_hz=2.9e9))
    return Machine(
        name="Example CPU – 2 × ½",
        facts={"threads": 2, "l1_bytes": 32768, "isas": "scalar,avx2"},
        ceilings=ceilings,
        curves=(
            SizeCurve(access="read", points=tuple(points), threads=2, isa="avx2", variant="plain"),
            SizeCurve(access="copy", points=tuple(points[:1]), status="contended", reason="other work ran"),
        ),
        empirical=(
            EmpiricalRoofline(
                level="DRAM", access="read", dtype="fp32", isa="avx2", threads=2, points=tuple(sweep), burst=(8.0, 8.1),
                sustained=load,
            ),
            EmpiricalRoofline(level="L2", access="copy", dtype="fp64", points=tuple(sweep[:2])),
        ),
        created_utc="2026-11-21T10:00:00+00:00",
        provenance={"versions": {"roofline": "0.1.0"}, "left_out": {}},
    )  # fmt: skip


# -- statistics -----------------------------------------------------------------------------------------------------------


def zigzag(n: int) -> list[int]:
    """1 … n, the smallest and the largest in turn: neighbours do not resemble each other."""
    return [value for low in range(1, n // 2 + 1) for value in (low, n + 1 - low)] + ([n // 2 + 1] if n % 2 else [])


def test_summary_by_hand() -> None:
    # n = 16: 1.96 √16 = 7.84; ranks ⌊(16 − 7.84) / 2⌋ = 4 and ⌈1 + (16 + 7.84) / 2⌉ = 13.
    found = summary(float(value) for value in zigzag(16))
    assert (found.median, found.low, found.high, found.n) == (8.5, 4.0, 13.0, 16)
    assert (found.minimum, found.maximum) == (1.0, 16.0)
    # Linear between order statistics: 1 + 0.05 · 15 and 1 + 0.95 · 15.
    assert found.p5 == pytest.approx(1.75) and found.p95 == pytest.approx(15.25)


test_ranks_of_the_interval = gives(
    lambda n: attrgetter("low", "high")(summary(zigzag(n))),
    (1, (1, 1)),
    (2, (1, 2)),
    (5, (1, 5)),  # (5 ∓ 4.38) / 2: ranks 0 → 1 and ⌈5.69⌉ = 6 → 5
    (9, (1, 9)),  # (9 ∓ 5.88) / 2: ranks ⌊1.56⌋ and ⌈8.44⌉
    (25, (7, 19)),  # (25 ∓ 9.8) / 2: ⌊7.6⌋ and ⌈18.4⌉
    (100, (40, 61)),  # (100 ∓ 19.6) / 2: ⌊40.2⌋ and ⌈60.8⌉
)


def test_the_interval_covers_the_median() -> None:
    """Of a skewed distribution with a known median (that of exp(1) is ln 2), in at least 95 % of 2000 experiments."""
    generator = np.random.default_rng(7)
    inside = 0
    for _ in range(2000):
        found = summary(generator.exponential(size=30))
        inside += found.low <= np.log(2) <= found.high
    assert inside / 2000 >= 0.945


def test_the_interval_grows_where_samples_resemble_the_one_before() -> None:
    """AR(1), coefficient 0.7: the plain interval covers the median in two of three experiments, this one in nine of ten."""
    generator = np.random.default_rng(8)
    inside = plain = 0
    for _ in range(500):
        noise, series = generator.normal(size=200), np.empty(200)
        series[0] = noise[0]
        for i in range(1, 200):
            series[i] = 0.7 * series[i - 1] + noise[i]
        found, shuffled = summary(1 + 0.01 * series), summary(generator.permutation(1 + 0.01 * series))
        inside += found.low <= 1 <= found.high
        plain += shuffled.low <= 1 <= shuffled.high
    assert plain / 500 < 0.75 and inside / 500 >= 0.9
    # By hand: 1 … 12 has deviations −5.5 … 5.5, squares 143, products of neighbours 107.25; r = 0.75, √7 times 1.96 √12 covers all.
    assert autocorrelation(range(1, 13)) == pytest.approx(107.25 / 143)
    assert (summary(range(1, 13)).low, summary(range(1, 13)).high) == (1, 12)
    assert autocorrelation([2.0] * 20) == autocorrelation(range(9)) == 0.0


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [float("inf")]])
def test_no_statistics_of_nothing(samples: list[float]) -> None:
    for function in (summary, modes):
        with pytest.raises(Error, match="samples"):
            function(samples)


def test_two_modes() -> None:
    found = modes([101e9, 50e9, 100e9, 49e9, 102e9, 101e9, 51e9, 50e9, 101e9, 101e9])
    assert [(mode.value, mode.share, mode.n) for mode in found] == [(50e9, 0.4, 4), (101e9, 0.6, 6)]


test_gaps_and_shares = gives(
    lambda samples: [mode.value for mode in modes(samples)],
    ([100.0] * 5 + [119.0] * 5, [109.5]),  # a gap below 20 %
    ([100.0] * 5 + [120.0] * 5, [100.0, 120.0]),  # of exactly 20 %
    ([100.0] * 17 + [50.0] * 3, [50.0, 100.0]),  # 15 % of the samples
    ([100.0] * 18 + [50.0] * 3, [100.0]),  # 14.3 %: outliers
    ([100.0] * 3 + [50.0], [100.0]),  # a single sample is no mode, whatever its share
    ([100.0, 110.0, 120.0, 130.0, 143.0, 157.0], [125.0]),  # a slope, no gap
    ([10.0] * 3 + [20.0] * 3 + [40.0] * 4, [10.0, 20.0, 40.0]),
    ([7.0], [7.0]),
)


@given(st.lists(st.floats(min_value=1e-9, max_value=1e15), min_size=1, max_size=60), st.randoms())
def test_modes_do_not_depend_on_order_and_lie_in_the_samples(samples: list[float], random: Any) -> None:
    found = modes(samples)
    assert [mode.value for mode in found] == sorted(mode.value for mode in found)
    assert sum(mode.n for mode in found) <= len(samples)
    assert min(samples) <= found[0].value and found[-1].value <= max(samples)
    random.shuffle(samples)
    assert modes(samples) == found


# -- ceilings -------------------------------------------------------------------------------------------------------------


test_labels = gives(
    lambda ceiling: ceiling.label,
    (bandwidth("read", 47.2e9), "DRAM read 47.2 GB/s"),
    (bandwidth("copy", 45e9, variant="non_temporal"), "DRAM copy NT 45.0 GB/s"),
    (bandwidth("read", 1, samples=(101e9, 50e9) * 3), "DRAM read 101 or 50 GB/s"),
    (bandwidth("read", 1, "L1", samples=(1.2e12, 900e9) * 3), "L1 read 1.2 TB/s or 900 GB/s"),
    (compute("fp32", 220e9), "fp32 avx2 220 GFLOP/s"),
    (compute("bf16", 691e12, "", accumulator="fp32", unit="tensor"), "bf16→fp32 tensor 691 TFLOP/s"),
    (compute("fp64", 1e11, "", probe="gemm.square"), "fp64 GEMM 100 GFLOP/s"),
    (compute("fp32", 1e11, accumulator="fp32"), "fp32 avx2 100 GFLOP/s"),
    (latency(3.4e-6), "fork-join 3.40 µs"),
    (latency(90e-9, "DRAM"), "DRAM latency 90.0 ns"),
    (latency(90e-9, "DRAM", pages="huge"), "DRAM latency 90.0 ns"),
    (latency(120e-9, "DRAM", pages="small"), "DRAM latency 4 KiB pages 120 ns"),
    (latency(90e-9, operator="core_to_core", first=0, second=1), "core-to-core 0–1 90.0 ns"),
    (Ceiling(probe="launch.host", variant="call", samples=(9e-9,)), "call 9.00 ns"),
    (mixed(330e9), "fp32 avx2 FMA+ADD 330 GFLOP/s"),
    (compute("fp32", 9e9, "", probe="exp"), "fp32 exp 9.00 GFLOP/s"),
    (gemm(2048, 200e9), "fp32 GEMM 200 GFLOP/s"),
    (gemm(2047, 180e9), "fp32 GEMM 2047 180 GFLOP/s"),
    (gemm(1, 180e9, columns=4096, inner=8192), "fp32 GEMM 1×4096×8192 180 GFLOP/s"),
    (strided(9e9), "DRAM read stride 16 9.00 GB/s"),
    (scalar(90e9, "L1"), "L1 read scalar 90.0 GB/s"),
    (compute("fp32", 180e9, sustained=True), "fp32 avx2 sustained 180 GFLOP/s"),
)


def test_the_best_mode_counts() -> None:
    fast = bandwidth("read", 1, samples=(101e9, 50e9) * 3)
    assert fast.bimodal and fast.value == 101e9
    slow = dataclasses.replace(latency(1.0), samples=(2e-6, 1e-6) * 3)
    assert slow.value == 1e-6  # of a time, the lowest
    assert slow.label == "fork-join 1 or 2 µs"
    assert not bandwidth("read", 40e9).bimodal


def test_pooling_finds_the_second_mode() -> None:
    one = bandwidth("read", 1, samples=(50e9,) * 4)
    both = one.pooled((101e9, 101e9))
    assert both.samples == (50e9,) * 4 + (101e9,) * 2
    assert [mode.value for mode in both.modes] == [101e9, 50e9]
    m = machine(one, bandwidth("copy", 30e9))
    pooled = m.pooled(one.problem, (101e9, 101e9))
    assert pooled.ceilings[0] == both and pooled.ceilings[1] is m.ceilings[1]
    assert m.pooled({"operator": "unknown"}, (1.0,)) is m


test_bad_ceilings = refused(
    lambda fields: Ceiling(**{"samples": (1.0,), **fields}),
    ({"probe": "speed"}, "a ceiling's probe must be one of launch, stream, fma, .* stream.scalar, .*, got 'speed'"),
    ({"probe": "stream", "level": "L4", "access": "read"}, "level must be one of"),
    ({"probe": "pointer_chase", "level": "L4"}, "level must be one of"),
    ({"probe": "stream", "level": "L1", "access": "peek"}, "access must be one of"),
    ({"probe": "fma", "dtype": "fp31"}, "unknown dtype 'fp31'"),
    ({"probe": "fma", "dtype": "fp32", "unit": "sparse"}, "unit must be one of"),
    ({"probe": "launch", "status": "fine"}, "status must be one of"),
    ({"probe": "launch", "source": "hearsay"}, "source must be one of"),
    ({"probe": "launch", "samples": ()}, "has no samples"),
    ({"probe": "launch", "samples": (1.0, 0.0)}, "positive finite"),
    ({"probe": "launch", "samples": (float("nan"),)}, "positive finite"),
)


# -- asking a machine -----------------------------------------------------------------------------------------------------


def test_bandwidth_is_the_better_of_plain_and_non_temporal() -> None:
    m = machine(bandwidth("copy", 30e9), bandwidth("copy", 45e9, variant="non_temporal"), bandwidth("read", 40e9))
    assert m.bandwidth("DRAM", "copy").value == 45e9
    assert m.bandwidth("DRAM", "copy", variant="plain").value == 30e9
    assert m.bandwidth().value == 40e9
    m = machine(bandwidth("copy", 50e9), bandwidth("copy", 45e9, variant="non_temporal"))
    assert m.bandwidth("DRAM", "copy").variant == "plain"


test_an_access_that_was_not_measured = gives(
    lambda access, measured: machine(*(bandwidth(name, 40e9) for name in measured)).bandwidth("DRAM", access).access,
    ("scale", ("read", "copy", "write"), "copy"),
    ("triad", ("read", "copy", "add"), "add"),
    ("read", ("write", "copy"), "copy"),
    ("write", ("read",), "read"),
    ("add", ("triad", "copy"), "triad"),
)


def test_which_ceilings_are_used() -> None:
    good, contended = bandwidth("read", 40e9), bandwidth("read", 60e9, variant="x", status="contended")
    assert machine(good, contended).bandwidth() == contended  # other load only lowers a rate
    slower = bandwidth("read", 30e9, variant="x", status="contended")
    assert machine(good, slower).bandwidth() == good
    impossible = bandwidth("read", 900e9, variant="x", status="implausible")
    assert machine(good, impossible).bandwidth() == good
    stated = bandwidth("read", 80e9, variant="", source="datasheet")
    assert machine(stated, good).bandwidth() == good  # measured before datasheet
    assert machine(stated).bandwidth() == stated
    one = bandwidth("read", 50e9, threads=1)
    assert machine(one, good).bandwidth() == good  # the most threads
    assert machine(one, good).bandwidth(threads=1) == one


def test_compute_and_latency() -> None:
    m = machine(
        compute("fp32", 100e9, "avx2"),
        compute("fp32", 180e9, "avx512"),
        compute("bf16", 900e9, "amx", accumulator="fp32", unit="tensor"),
        compute("bf16", 300e9, "avx512", accumulator="fp32"),
        latency(4e-6),
        dataclasses.replace(latency(3e-6), variant="better"),
        latency(90e-9, "DRAM"),
    )
    assert m.compute("fp32").isa == "avx512"
    assert m.compute("fp32", "fp32").value == 180e9  # no accumulator stated is the dtype itself
    assert m.compute("bf16", unit="core").value == 300e9
    assert m.compute("bf16", "fp32").value == 900e9
    assert m.latency().value == 3e-6
    assert m.latency("DRAM").value == 90e-9


test_what_is_missing_is_named = refused(
    lambda ask: ask(machine(bandwidth("read", 40e9), bandwidth("read", 400e9, "L1"), compute("fp32", 1e11))),
    (lambda m: m.bandwidth("L2"), "Example CPU: no bandwidth of L2 is known, only of L1, DRAM; measure stream in L2"),
    (lambda m: m.bandwidth("DRAM", "peek"), "^access must be one of read, write"),
    (lambda m: m.bandwidth(threads=5), "Example CPU: DRAM read was measured with 2 threads, not with 5; measure that too"),
    (lambda m: m.bandwidth(variant="x"), "CPU: no usable bandwidth of DRAM with variant 'x'.*measure stream .access='read'."),
    (lambda m: m.compute("fp16"), "Example CPU: no compute ceiling for fp16, only fp32 avx2; measure fma in fp16"),
    (lambda m: m.compute("fp32", "fp64"), "Example CPU: no compute ceiling for fp32 accumulating in fp64"),
    (lambda m: m.latency(), "Example CPU: no launch latency was measured; measure fork_join or launch"),
    (lambda m: m.latency("L1"), "Example CPU: no load latency of L1 was measured; measure pointer_chase"),
)


DIAGNOSTIC = (
    compute("fp32", 900e9, "", probe="exp"),
    compute("fp32", 900e9, "amx", probe="fma.operands", variant="l1_operands"),
    mixed(900e9),
    gemm(2047, 900e9),
    gemm(1, 900e9, columns=512, inner=512),
    strided(900e9),
    scalar(900e9),
    scalar(900e9, "L2"),
    latency(1e-9, operator="core_to_core"),
    Ceiling(probe="launch.host", variant="call", threads=2, samples=(1e-9,)),
)


@pytest.mark.parametrize("ceiling", DIAGNOSTIC, ids=lambda c: c.name)
def test_diagnostic_ceilings_are_no_roofs(ceiling: Ceiling) -> None:
    assert ceiling.diagnostic and not ceiling.is_roof
    m = machine(ceiling, bandwidth("read", 40e9), compute("fp32", 200e9), latency(3e-6), gemm(4096, 150e9))
    assert (m.bandwidth().value, m.compute("fp32").value, m.latency().value) == (40e9, 200e9, 3e-6)
    assert m.levels() == ("DRAM",)
    alone = machine(ceiling)
    for ask in (alone.bandwidth, alone.latency, lambda: alone.compute("fp32")):
        with pytest.raises(Error, match="measure"):
            ask()


@pytest.mark.parametrize(
    "ceiling",
    [
        bandwidth("read", 1e9),
        compute("fp32", 1e9, "scalar"),  # of arithmetic it is a roof: of code without vectors
        gemm(2048, 1e9),
        Ceiling(probe="gemm.wide", dtype="bf16", samples=(1e9,), params={"rows": 4096, "columns": 4096, "inner": 16}),
        latency(1e-6),
        latency(1e-9, "L1", pages="small"),
        Ceiling(probe="launch", samples=(1e-6,), source="datasheet"),
    ],
    ids=lambda c: c.name,
)
def test_ordinary_ceilings_are_roofs(ceiling: Ceiling) -> None:
    assert ceiling.is_roof and not ceiling.diagnostic


def test_sustained_ceilings_are_asked_for() -> None:
    burst, long = (
        compute("fp32", 200e9, problem={"operator": "fma"}),
        compute("fp32", 230e9, sustained=True, problem={"operator": "fma"}),
    )
    m = machine(long, burst)
    assert m.compute("fp32") == burst
    assert m.compute("fp32", sustained=True) == long
    assert m.matching({"operator": "fma"}) == burst  # brackets are bursts
    assert m.roofs("compute") == [burst]
    with pytest.raises(Error, match="no compute ceiling for fp32 sustained, only fp32 avx2"):
        machine(burst).compute("fp32", sustained=True)
    assert "fp32 avx2 200 GFLOP/s" in repr(m)


def test_a_bare_machine_says_what_to_do() -> None:
    with pytest.raises(Error, match="no bandwidth was measured; measure the machine"):
        machine().bandwidth()
    assert machine().levels() == ()
    with pytest.raises(Error, match="no compute ceiling for fp32; measure fma in fp32$"):
        machine(bandwidth("read", 40e9)).compute("fp32")
    with pytest.raises(Error, match="no compute ceiling for bf16; give its rate, bf16=500TFLOP/s$"):
        Machine.from_peaks("Paper", "2TB/s").compute("bf16")


def test_caches_from_facts_alone() -> None:
    facts = {"threads": 4, "l1_bytes": 1000, "l2_bytes": 10000, "l3_bytes": 50000}
    assert [cache_capacity(facts, level) for level in ("L1", "L2", "L3")] == [4000, 40000, 50000]
    # A set of more than nine tenths does not stay.
    assert [cache_level(facts, size) for size in (3600, 3601, 36000, 36001, 45000, 45001)] == ["L1", "L2", "L2", "L3", "L3", "DRAM"]
    assert cache_level({}, 100) == "DRAM"
    # Groups of 8 cores, each with an L3: few threads fill one, more of them further ones.
    groups = {"threads": 64, "l3_bytes": 256 << 20, "l3_instances": 8}
    assert [cache_capacity(groups, "L3", threads) >> 20 for threads in (1, 8, 9, 64, None)] == [32, 32, 64, 256, 256]
    assert stated_caches(groups) == ["L3 8 x 32 MiB"]
    assert stated_caches({"l3_bytes": 32 << 20, "l3_share_bytes": 45 << 20}) == ["L3 32 MiB (45 MiB to be had)"]


# -- self-distrust --------------------------------------------------------------------------------------------------------

SANE = (
    bandwidth("read", 400e9, "L1"),
    bandwidth("read", 40e9),
    bandwidth("read", 25e9, threads=1),
    compute("fp64", 100e9, clock_hz=3e9, ops_per_cycle=16.0 + 2 / 3),
    compute("fp32", 200e9, clock_hz=3e9, ops_per_cycle=33.4),
    compute("fp32", 100e9, threads=1),
    latency(1e-6),
)


PAGES = {"huge_page_share": 0.4}


@pytest.mark.parametrize(
    ("ceilings", "words"),
    [
        (SANE, None),
        *(((*SANE, ceiling), words) for ceiling, words in (
            (bandwidth("read", 38e9, "L2"),
             "L2 read 38.0 GB/s is slower than DRAM read 40.0 GB/s (2 threads), though L2 is nearer"),
            (compute("fp16", 150e9),
             "fp16 avx2 150 GFLOP/s is slower than fp32 avx2 200 GFLOP/s, though its elements are narrower"),
            (compute("fp32", 10e9, "sse", threads=1), None),
            (compute("int8", 900e9, "vnni", clock_hz=3e9, ops_per_cycle=128.0),
             "int8 vnni 900 GFLOP/s is 117 % of what its instructions allow at 3.00 GHz (768 GFLOP/s)"),
            (bandwidth("read", 39.5e9, threads=4, status="contended", reason="other work ran"), ": contended: other work ran"),
            (bandwidth("write", 1e9, status="implausible"), "DRAM write 1.00 GB/s: implausible"),
            (bandwidth("write", 1, samples=(20e9, 10e9) * 3),
             "DRAM write 20 or 10 GB/s has 2 modes, seen in 50 % and 50 % of 6 samples"),
            (bandwidth("read", 35e9, threads=3), "DRAM read 35.0 GB/s with 3 threads is slower than with 2 (DRAM read 40.0 GB/s)"),
            (bandwidth("read", 90e9, threads=4), "with 4 threads is more than 2 times DRAM read 40.0 GB/s with 2"),
            (bandwidth("read", 1e9, "L1", source="datasheet"), None),  # is not compared with measured ones
        )),
        ((bandwidth("read", 39e9, "L2"), bandwidth("read", 40e9)), None),  # 2.5 % less
        ((bandwidth("read", 25e9, threads=1), bandwidth("read", 51e9, threads=2)), None),  # 2.04 times
        ((latency(20e-9, "L3"), latency(5e-9, "L2"), latency(1e-9, "L1")), None),
        ((latency(6e-9, "L2"), latency(5e-9, "L3")), "L2 latency 6.00 ns is longer than L3 latency 5.00 ns, though L2 is nearer"),
        ((latency(5.1e-9, "L2"), latency(5e-9, "L3")), None),
        # Small pages are slower, and compared among themselves.
        ((latency(80e-9, "L3", pages="small"), latency(70e-9, "DRAM", pages="huge")), None),
        ((latency(80e-9, "L3", pages="small"), latency(70e-9, "DRAM", pages="small")), "L3 latency 4 KiB pages 80.0 ns is longer"),
        ((mixed(200e9), compute("fp32", 300e9)), "fp32 avx2 FMA+ADD 200 GFLOP/s is slower than fp32 avx2 300 GFLOP/s"),
        ((mixed(295e9), compute("fp32", 300e9)), None),
        ((mixed(450e9), compute("fp32", 300e9)), None),  # 150 %: on a core with adders of its own
        ((gemm(2048, 310e9), compute("fp32", 300e9)), "fp32 GEMM 310 GFLOP/s is 103 % of fp32 avx2 300 GFLOP/s"),
        ((gemm(2048, 305e9), compute("fp32", 300e9)), None),
        ((gemm(2048, 310e9), compute("fp32", 300e9), compute("fp32", 600e9, "avx512")), None),
        ((gemm(2048, 310e9), mixed(400e9)), None),
        ((compute("fp32", 210e9, sustained=True), compute("fp32", 200e9)), "sustained 210 GFLOP/s is faster than its burst"),
        ((compute("fp32", 150e9, sustained=True), compute("fp32", 200e9)), None),
        ((bandwidth("read", 40e9, plan=PAGES),), "DRAM read 40.0 GB/s had huge pages for only 40 % of its memory: it includes TLB"),
        ((dataclasses.replace(latency(9e-8, "DRAM", pages="huge"), plan=PAGES),), "DRAM latency 90.0 ns had huge pages"),
        ((dataclasses.replace(latency(9e-8, "DRAM", pages="small"), plan=PAGES),), None),
        ((bandwidth("read", 40e9, "L1", plan=PAGES), bandwidth("copy", 40e9, plan={"huge_page_share": 0.95})), None),
        # Diagnostic ceilings are compared only with their own kind.
        ((scalar(9e9, "L1"), bandwidth("read", 40e9)), None),
        ((strided(9e9, "L2"), bandwidth("read", 40e9)), None),
        ((gemm(2047, 100e9), gemm(2048, 150e9, dtype="fp64")), None),
        ((strided(9e9, threads=1), bandwidth("read", 40e9, threads=2)), None),
        ((latency(9e-8, operator="core_to_core", first=0, second=1),), None),
    ],
)  # fmt: skip
def test_rules_between_ceilings(ceilings: tuple[Ceiling, ...], words: str | None) -> None:
    found = machine(*ceilings).sanity()
    assert len(found) == (0 if words is None else 1), found
    if words is not None:
        assert words in found[0]


def test_curves_and_sweeps_are_looked_at() -> None:
    m = whole()
    found = dataclasses.replace(m, ceilings=()).sanity()
    # 2 × 32 KiB: the flat curve up to 64 KiB agrees. The sweep of two intensities cannot be fitted.
    assert found == ["L2 copy, fp64: a fit needs 5 intensities or more, got 2: measure more of them"]
    small = dataclasses.replace(m, ceilings=(), empirical=(), facts={**m.facts, "l1_bytes": 8192})
    (note,) = small.sanity()
    assert (
        note
        == "read avx2, 2 threads: reported L1 16 KiB over 2 threads, but bandwidth is flat from 4 KiB to 64 KiB, across its end"
    )


# -- files ----------------------------------------------------------------------------------------------------------------


def test_a_machine_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    whole().save(path)
    assert Machine.load(path) == whole()
    assert Machine.from_dict(json.loads(json.dumps(whole().to_dict()))) == whole()
    assert path.read_bytes().endswith(b"}\n")
    assert [name.name for name in tmp_path.iterdir()] == ["machine.json"]
    first = path.read_bytes()
    Machine.load(path).save(path)
    assert path.read_bytes() == first


def test_a_device_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    gpu = dataclasses.replace(whole(), name="Example GPU", device="cuda:0")
    save_machines([whole(), gpu], path)
    assert load_machines(path) == (whole(), gpu)
    assert Machine.load(path) == whole()
    assert Machine.load(path, "cuda:0") == gpu == Machine.load(path, "Example GPU")
    with pytest.raises(Error, match=r"has no device 'cuda:1', only cpu \(Example CPU.*\), cuda:0 \(Example GPU\)"):
        Machine.load(path, "cuda:1")


def test_the_file_fits_its_schema(tmp_path: Path, schema: Any, closed: Any) -> None:
    check = schema("machine")
    path = tmp_path / "machine.json"
    save_machines([whole(), Machine(name="bare")], path)
    written = json.loads(path.read_text(encoding="utf-8"))
    first = written["machines"][0]
    sweep = first["empirical"][0]
    parts = (first["curves"][0], first["curves"][0]["points"][0], first["curves"][0]["plateaus"][0], sweep, sweep["points"][0])
    fitted = (sweep["sustained"][0], sweep["fit"], sweep["fit"]["knee"], sweep["fit"]["p"])
    assert first["empirical"][1]["fit"] is None
    closed(check, written, written, first, first["ceilings"][0], *parts, *fitted)
    for key, bad in (("kind", "speed"), ("samples", [0.0]), ("access", ""), ("clock_hz", "3 GHz"), ("status", "fine")):
        broken = json.loads(json.dumps(written))
        broken["machines"][0]["ceilings"][0][key] = bad
        assert not check.is_valid(broken), key


def test_the_schema_knows_every_probe_and_access(schema: Any) -> None:
    fields = schema("machine").schema["$defs"]["ceiling"]["properties"]
    assert set(fields["probe"]["enum"]) == {probe.id for probe in PROBES}
    assert set(MIXES) <= set(fields["access"]["enum"])


def edited(edit: Callable[[dict[str, Any]], object]) -> str:
    content = {"schema_version": 4, "kind": "machines", "machines": [json.loads(json.dumps(whole().to_dict()))]}
    edit(content)
    return json.dumps(content)


def machine_key(part: str, key: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["machines"][0][part].update({key: value})


def part_key(part: str, key: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["machines"][0][part][0].update({key: value})


ceiling_key = functools.partial(part_key, "ceilings")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not valid JSON"),
        (edited(lambda c: None)[:700], "is not valid JSON .*truncated or was edited"),
        ('{"schema_version":4}\n{"schema_version":4}\n', "only a results file holds one object a line"),
        ("\x00\xff", "is not valid JSON"),
        ("[]", "must hold one JSON object"),
        ("{}", "has no schema_version: it is not a file of this package"),
        (edited(lambda c: c.update(schema_version=1)), "has schema_version 1, this version reads only 4: measure again"),
        (edited(lambda c: c.update(schema_version=2)), "has schema_version 2, this version reads only 4"),
        (edited(lambda c: c.update(schema_version="4")), "has the schema_version '4', which must be the integer 4"),
        (edited(lambda c: c.update(schema_version=4.0)), "has the schema_version 4.0, which must be the integer 4"),
        (edited(lambda c: c.update(schema_version=True)), "has the schema_version True, which must be the integer 4"),
        (edited(lambda c: c.update(schema_version=0)), "has schema_version 0, which never existed"),
        (edited(lambda c: c.update(schema_version=5)), "has schema_version 5, this version reads 4: upgrade roofline"),
        (edited(lambda c: c.update(schema_version=10**100)), "this version reads 4: upgrade"),
        (edited(lambda c: c.update(kind="results")), "has kind 'results', not 'machines': is it a results file"),
        (edited(lambda c: c.update(machines=[])), "holds no machine: measure one into it"),
        (edited(lambda c: c.update(machines=[3])), r"machines\[0\] must be an object, got 3"),
        (edited(lambda c: c["machines"][0].pop("name")), r"machines\[0\] lacks name: the file is damaged"),
        (edited(lambda c: c["machines"][0].update(nmae="x")), r"machines\[0\] has the unknown key 'nmae'; known are name, device"),
        (edited(lambda c: c["machines"][0].update({"k" * 9000: 1})), "has the unknown key 'kkk"),
        (edited(lambda c: c["machines"][0].update(name="\ud800")), "half of a surrogate pair"),
        (edited(lambda c: c["machines"][0].update(facts=[])), r"machines\[0\]: facts must be an object"),
        (edited(machine_key("facts", "l1_bytes", "32K")), r"machines\[0\]: facts: l1_bytes must be an integer, got '32K'"),
        (edited(machine_key("facts", "l2_bytes", 10**400)), "facts: l2_bytes must be an integer <= 9223372036854775807, got 1000"),
        (edited(machine_key("facts", "threads", [2])), r"facts: threads must be an integer, got \[2\]"),
        (edited(machine_key("facts", "unheard_of", {"a": 1})), r"facts\['unheard_of'\] must be"),
        (edited(machine_key("provenance", "left_out", "all")), "provenance: left_out must be an object, got 'all'"),
        (edited(machine_key("provenance", "report", {"took_s": "long"})), "report: took_s must be a number, got 'long'"),
        (edited(machine_key("provenance", "report", {"left_out": [{"operator": "x"}]})), r"report: left_out\[0\] lacks"),
        (edited(machine_key("provenance", "done", [3])), r"provenance: done\[0\] must be text, got 3"),
        (edited(lambda c: c["machines"][0].update(ceilings={})), r"machines\[0\]: ceilings must be a list"),
        (edited(ceiling_key("samples", [1.0, float("nan")])), "contains NaN, which is not a number"),
        (edited(ceiling_key("samples", [1.0, "2"])), r"ceilings\[0\]: samples\[1\] must be a number, got '2'"),
        (edited(ceiling_key("samples", [-1.0])), r"ceilings\[0\]: samples\[0\] must be a number >= 1e-15, got -1.0"),
        (edited(ceiling_key("samples", [5e-324])), r"ceilings\[0\]: samples\[0\] must be a number >= 1e-15, got 5e-324"),
        (edited(ceiling_key("samples", [1e9, 1e308])), r"samples\[1\] must be a number <= 1e\+24, got 1e\+308"),
        (edited(ceiling_key("problem", {"rows": [1]})), r"ceilings\[0\]: problem\['rows'\] must be"),
        (edited(ceiling_key("conditions", {"power_w": "low"})), "conditions: power_w must be a number, got 'low'"),
        (edited(ceiling_key("threads", 2.5)), r"ceilings\[0\]: threads must be an integer, got 2.5"),
        (edited(ceiling_key("threads", True)), r"ceilings\[0\]: threads must be an integer"),
        (edited(ceiling_key("probe", "speed")), r"ceilings\[0\]: .*probe must be one of"),
        (edited(ceiling_key("probe", "x" * 9000)), "a ceiling's probe must be one of"),
        (edited(ceiling_key("clock_hz", 10**400)), r"ceilings\[0\]: clock_hz must be a finite number"),
        (edited(ceiling_key("plan", [])), r"ceilings\[0\]: plan must be an object"),
        (edited(ceiling_key("sustained", 1)), r"ceilings\[0\]: sustained must be true or false, got 1"),
        (edited(part_key("curves", "access", "peek")), r"curves\[0\]: size curve: access must be one of"),
        (edited(part_key("curves", "points", [])), r"curves\[0\]: size curve read avx2, 2 threads: it has no points"),
        (edited(part_key("curves", "points", [{"size_bytes": 1.5, "samples": [1.0]}])),
         r"curves\[0\]: points\[0\]: size_bytes must be an integer, got 1.5"),
        (edited(part_key("curves", "points", [{"size_bytes": 4096, "samples": []}])), r"points\[0\]: size point at 4 KiB"),
        (edited(part_key("curves", "colour", "red")), r"curves\[0\] has the unknown key 'colour'"),
        (edited(part_key("empirical", "level", "L9")), r"empirical\[0\]: empirical roofline: level must be one of"),
        (edited(part_key("empirical", "points", [{"samples": [1.0]}])), r"empirical\[0\]: points\[0\] lacks intensity"),
        (edited(part_key("empirical", "sustained", [{"time_s": 0, "flops_per_s": 1}])),
         r"empirical\[0\]: sustained\[0\]: time_s must be a number >= 1e-15"),
        (edited(lambda c: None).replace('"created_utc"', '"name"', 1), "it has the key 'name' twice"),
        ("[" * 100000, "is not valid JSON"),
    ],
)  # fmt: skip
def test_damaged_files_name_the_file_and_the_place(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Error, match=words) as caught:
        Machine.load(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 600


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(Error, match="cannot read machine file .*absent.json: No such file"):
        Machine.load(tmp_path / "absent.json")
    with pytest.raises(Error, match="cannot read machine file .*machine.json: No such file"):
        Machine.load(tmp_path)
    with pytest.raises(Error, match="cannot write .*No such file or directory; nothing was written"):
        whole().save(tmp_path / "absent" / "machine.json")
    (tmp_path / "file").touch()
    with pytest.raises(Error, match="cannot write .*Not a directory; nothing was written"):
        whole().save(tmp_path / "file" / "machine.json")


def test_derived_values_are_ignored_when_read(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(edited(ceiling_key("value", 7.0)), encoding="utf-8")
    assert Machine.load(path) == whole()


def test_what_has_no_json_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    whole().save(path)
    before = path.read_bytes()
    for bad in (float("nan"), object()):
        with pytest.raises(Error, match="machine file .*machine.json cannot be written as JSON"):
            dataclasses.replace(whole(), provenance={"seed": bad}).save(path)
    assert path.read_bytes() == before
    plain = to_json({"a": np.float64(1.5), "b": np.array([1, 2]), "c": np.int64(3)}, where="x", canonical=True)
    assert plain == '{"a":1.5,"b":[1,2],"c":3}'


def test_numbers_of_a_list_share_a_line() -> None:
    lists = {"a": [1, -2.5, 1e-09], "b": [], "c": ["1", "2"], "d": [[1, 2], [3]], "e": "[\n 1,\n 2\n]"}
    text = to_json(lists, where="x", indent=1)
    assert json.loads(text) == lists
    assert '"a": [1, -2.5, 1e-09]' in text and "[1, 2],\n" in text and '"1",\n' in text


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "machine.json"
    whole().save(path)
    before = path.read_bytes()

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Error, match="cannot write .*machine.json: No space left on device; the file that was there is unchanged"):
        Machine(name="other").save(path)
    with pytest.raises(Error, match="No space left on device; nothing was written"):
        Machine(name="other").save(tmp_path / "new.json")
    assert path.read_bytes() == before
    assert [name.name for name in tmp_path.iterdir()] == ["machine.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
def test_a_write_cut_off_by_the_system_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text("old")
    program = """
        import resource, signal, sys
        from roofline.machine import write_atomically
        from roofline.errors import Error
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            write_atomically(sys.argv[1], 'x' * 100000)
        except Error as error:
            print(error)
    """
    assert "File too large; the file that was there is unchanged" in printed(program, str(path))
    assert path.read_text() == "old"
    assert [name.name for name in tmp_path.iterdir()] == ["machine.json"]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    try:
        with pytest.raises(Error, match="cannot write .*Permission denied; nothing was written"):
            whole().save(folder / "machine.json")
    finally:
        folder.chmod(0o700)


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
def test_the_mode_of_a_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text("old")
    path.chmod(0o640)
    write_atomically(path, "new")
    assert path.stat().st_mode & 0o777 == 0o640
