"""Size curves: plateaus that were put in are found, nothing is found in slopes and noise, and wrong cache sizes are said."""

import math

import numpy as np
import pytest
from example import CACHES
from series import curve, steps
from tables import refused

from roofline.machine import SizeCurve, SizePoint
from roofline.units import KIB, MIB


def shared(size: float) -> float:
    """An L3 that others use too: from 12 MiB on bandwidth falls with size, to DRAM's at 128 MiB."""
    if size <= 12 * MIB:
        return steps(size)
    return max(200e9 * (size / (12 * MIB)) ** (math.log(38 / 200) / math.log(128 / 12)), 38e9)


# -- what is found --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_octave", [2, 3, 5])
def test_clear_steps(per_octave: int) -> None:
    swept = curve(steps, per_octave=per_octave)
    found = swept.plateaus(CACHES)
    assert [p.level for p in found] == ["L1", "L2", "L3", "DRAM"]
    for p, value in zip(found, (880e9, 430e9, 200e9, 38e9), strict=True):
        assert p.value == pytest.approx(value, rel=0.005) and p.low <= p.value <= p.high
        assert p.low == pytest.approx(value, rel=0.02)
    # Each ends at the last size on its step, and the next begins with the first beyond it.
    sizes = [point.size_bytes for point in swept.points]
    for p, edge in zip(found, (60 * KIB, 1.9 * MIB, 28 * MIB), strict=False):
        assert p.to_bytes == max(size for size in sizes if size <= edge)
    assert [p.from_bytes for p in found] == [sizes[0], *(sizes[sizes.index(p.to_bytes) + 1] for p in found[:-1])]
    assert sum(p.n for p in found) == len(sizes)
    assert found[0].label == f"L1 {found[0].value / 1e9:.0f} GB/s"
    assert swept.notes(CACHES) == []


@pytest.mark.parametrize("seed", range(6))
def test_noisy_steps(seed: int) -> None:
    found = curve(steps, scatter=0.015, seed=seed).plateaus(CACHES)
    assert [p.level for p in found] == ["L1", "L2", "L3", "DRAM"]
    for p, value in zip(found, (880e9, 430e9, 200e9, 38e9), strict=True):
        assert p.value == pytest.approx(value, rel=0.03)
        assert p.low <= value * 1.01 and p.high >= value * 0.99


@pytest.mark.parametrize("per_octave", [2, 4])
def test_a_gradual_decline_is_a_transition(per_octave: int) -> None:
    swept = curve(shared, per_octave=per_octave)
    found = swept.plateaus(CACHES)
    values = [(plateau.level, round(plateau.value / 1e9)) for plateau in found]
    assert values == [("L1", pytest.approx(880, abs=3)), ("L2", pytest.approx(430, abs=2)), ("L3", 200), ("DRAM", 38)]
    assert found[2].to_bytes <= 12 * MIB
    assert found[3].from_bytes > 100 * MIB
    (note,) = swept.notes(CACHES)
    assert note.startswith("read avx2, 2 threads: reported L3 32 MiB, but its bandwidth holds only up to ")
    assert "shared with others" in note


def test_a_missing_l3() -> None:
    swept = curve(lambda size: steps(size) if size <= 1.9 * MIB else 38e9)
    assert [p.level for p in swept.plateaus(CACHES)] == ["L1", "L2", "DRAM"]
    (note,) = swept.notes(CACHES)
    assert "reported L3 32 MiB, but no plateau in it: shared with others, or not there for this process" in note
    # Where no L3 is reported, none is missing.
    facts = {key: value for key, value in CACHES.items() if key != "l3_bytes"}
    assert [p.level for p in swept.plateaus(facts)] == ["L1", "L2", "DRAM"]
    assert swept.notes(facts) == []


def test_only_dram() -> None:
    swept = curve(lambda size: 38e9, low=64 * MIB)
    (only,) = swept.plateaus(CACHES)
    assert (only.level, only.from_bytes, only.to_bytes, only.n) == ("DRAM", 64 * MIB, 1 << 30, len(swept.points))
    assert swept.notes(CACHES) == []


def test_a_cache_that_nobody_reports() -> None:
    facts = {"threads": 2, "l1_bytes": 32 * KIB, "l2_bytes": MIB}
    swept = curve(steps)
    assert [p.level for p in swept.plateaus(facts)] == ["L1", "L2", "?", "DRAM"]
    (note,) = swept.notes(facts)
    assert "200 GB/s from" in note and "belongs to no reported level" in note
    assert [p.level for p in swept.plateaus()] == ["?"] * 4  # nothing is known, so nothing is claimed
    assert swept.notes({}) == []


def test_a_cache_larger_than_reported() -> None:
    (note,) = curve(steps).notes({**CACHES, "l2_bytes": MIB // 2, "l3_bytes": 32 * MIB})
    assert "reported L2 1 MiB over 2 threads, but its bandwidth holds up to 1." in note and "larger than reported" in note


def test_an_l3_of_which_little_is_ours() -> None:
    """Reported with 256 MiB, of which a guest gets 28: the last plateau is DRAM all the same."""
    swept = curve(steps)
    assert [p.level for p in swept.plateaus({**CACHES, "l3_bytes": 256 * MIB})] == ["L1", "L2", "L3", "DRAM"]
    (note,) = swept.notes({**CACHES, "l3_bytes": 256 * MIB})
    assert "reported L3 256 MiB, but its bandwidth holds only up to 2" in note


def test_private_caches_count_once_per_thread_and_core() -> None:
    """The same curve with one thread, or two on one core, has plateaus twice as long as that L1 allows."""
    one = SizeCurve(access="read", threads=1, points=curve(steps).points)
    assert any("reported L1 32 KiB, but" in note for note in one.notes(CACHES))
    assert any("reported L1 32 KiB over 2 threads, but" in note for note in curve(steps).notes({**CACHES, "cores": 1}))


def test_small_sets_that_are_slow_to_start_are_no_plateau() -> None:
    """Loop overhead: at 600 bytes half of the bandwidth is left."""
    found = curve(lambda size: steps(size) * size / (size + 600), low=256).plateaus(CACHES)
    assert [p.level for p in found] == ["L1", "L2", "L3", "DRAM"]
    assert 4 * KIB <= found[0].from_bytes <= 16 * KIB


def test_one_disturbed_size_does_not_split_a_plateau() -> None:
    swept = curve(steps)
    points = list(swept.points)
    points[6] = SizePoint(size_bytes=points[6].size_bytes, samples=(400e9,))
    found = SizeCurve(access="read", threads=2, points=tuple(points)).plateaus(CACHES)
    assert [p.level for p in found] == ["L1", "L2", "L3", "DRAM"]
    assert found[0].value == pytest.approx(880e9, rel=0.01) and found[0].n == swept.plateaus(CACHES)[0].n - 1


# -- what is not invented -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [-0.3, -0.1, 0.2])
def test_a_slope_has_no_plateau(slope: float) -> None:
    for scatter in (0.0, 0.02):
        assert curve(lambda size: 1e12 * size**slope, scatter=scatter).plateaus(CACHES) == ()


@pytest.mark.parametrize("scatter", [0.15, 0.4, 1.0])
def test_noise_has_no_plateau(scatter: float) -> None:
    for seed in range(40):
        swept = curve(lambda size: 1e11, scatter=scatter, seed=seed)
        assert swept.plateaus(CACHES) == ()
        (note,) = swept.notes(CACHES)
        assert "too noisy to find plateaus" in note


def test_a_random_walk_has_no_plateau() -> None:
    for seed in range(40):
        walk = np.cumsum(np.random.default_rng(seed).standard_normal(200) * 0.2)
        swept = curve(lambda size, walk=walk: 1e11 * math.exp(walk[round(math.log2(size) * 3)]))  # type: ignore[misc]
        assert swept.plateaus(CACHES) == ()


@pytest.mark.parametrize("n", [1, 2])
def test_few_sizes_are_no_plateau(n: int) -> None:
    points = tuple(SizePoint(size_bytes=KIB << i, samples=(1e11,)) for i in range(n))
    assert SizeCurve(access="read", points=points).plateaus(CACHES) == ()
    three = (*points, *(SizePoint(size_bytes=MIB << i, samples=(1e11,)) for i in range(3 - n)))
    assert len(SizeCurve(access="read", points=three).plateaus(CACHES)) == 1


# -- what it is -----------------------------------------------------------------------------------------------------------


def test_points_are_ordered_and_names_are_words() -> None:
    swept = curve(steps, variant="non_temporal")
    backwards = SizeCurve(access="read", points=swept.points[::-1], threads=2, isa="avx2", variant="non_temporal")
    assert backwards == swept
    assert swept.name == "read NT avx2, 2 threads"
    assert SizeCurve(access="copy", points=swept.points, threads=1).name == "copy, 1 thread"
    assert SizeCurve(access="copy", points=swept.points).name == "copy"


test_bad_curves = refused(
    lambda fields: SizeCurve(**{"access": "read", "points": (SizePoint(size_bytes=1, samples=(1.0,)),), **fields}),
    ({"access": "peek"}, "size curve: access must be one of"),
    ({"status": "fine"}, "size curve: status must be one of"),
    ({"points": ()}, "size curve read: it has no points"),
    ({"points": (SizePoint(size_bytes=KIB, samples=(1.0,)),) * 2}, "size curve read: the size 1 KiB is there twice"),
)


test_bad_points = refused(
    lambda size, samples: SizePoint(size_bytes=size, samples=samples),
    (0, (1.0,), "size_bytes must be positive, got 0"),
    (1, (), "at least one"),
    (1, (0.0,), "positive"),
    (1, (math.nan,), "positive"),
)
