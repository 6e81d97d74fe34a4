"""Measured rooflines: what a sweep says beside the ceilings it should approach, burst and sustained, and bad content."""

import dataclasses
import math

import pytest
from example import bandwidth, fma
from series import CLOCK, swept
from tables import refused

from roofline.errors import Error
from roofline.machine import Ceiling, EmpiricalRoofline, IntensityPoint, SustainedSample


def ceilings(beta: float = 38e9, peak: float = 220e9, clock: float | None = CLOCK) -> tuple[Ceiling, ...]:
    return (
        bandwidth(beta), bandwidth(beta * 9, "copy"), bandwidth(beta * 20, level="L1"), fma(peak, isa="avx2", clock_hz=clock),
        fma(peak / 2, isa="avx2", threads=1, clock_hz=clock), fma(peak * 2, isa="avx512", clock_hz=clock),
        fma(peak * 1.5, probe="fma.add", isa="avx2", problem={"pattern": "fma_add"}),
    )  # fmt: skip


def load(*rates: float, every: float = 1.0) -> tuple[SustainedSample, ...]:
    return tuple(SustainedSample(time_s=every * (i + 1), flops_per_s=rate) for i, rate in enumerate(rates))


def test_a_sweep_that_reaches_its_ceilings() -> None:
    found = swept()
    assert found.notes(ceilings()) == []
    assert found.notes() == []
    assert found.name == "DRAM read, fp32 avx2"
    assert found.label.startswith("DRAM read, fp32 avx2: knee 5.78 FLOP/byte [5.7") and "p = 4" in found.label
    memory, compute = found.peers(ceilings())
    assert memory is not None and memory.value == 38e9
    assert compute is not None and compute.value == 220e9 and compute.isa == "avx2"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (ceilings(beta=42e9), "the sweep reaches 90.5 % of DRAM read 42.0 GB/s: its kernel limits it, or the machine moved"),
        (ceilings(peak=350e9), "the sweep reaches 62.9 % of fp32 avx2 350 GFLOP/s: its kernel limits it, or the machine moved"),
        (ceilings(peak=232e9, clock=CLOCK), "the sweep reaches 94.8 % of fp32 avx2 232 GFLOP/s"),
        # The ceiling was measured at a higher clock: per cycle the sweep reaches all of it.
        (ceilings(peak=275e9, clock=CLOCK * 1.25), None),
        # And at a lower one, so that equal rates are not equal work per cycle.
        (ceilings(peak=220e9, clock=CLOCK * 0.8), "the sweep reaches 80.0 % of fp32 avx2 220 GFLOP/s a cycle"),
        (ceilings(peak=275e9, clock=None), "the sweep reaches 80.0 % of fp32 avx2 275 GFLOP/s:"),
        ((), None),
    ],
)
def test_the_kernel_or_the_machine(given: tuple[Ceiling, ...], words: str | None) -> None:
    notes = swept().notes(given)
    assert len(notes) == (0 if words is None else 1), notes
    if words is not None:
        number = words.partition(" % ")[0].rpartition(" ")[2]
        told = notes[0].partition(" % ")[0].rpartition(" ")[2]
        assert float(told) == pytest.approx(float(number), abs=0.4)
        assert notes[0].replace(told, number).startswith(f"DRAM read, fp32 avx2: {words}")


def test_burst_and_sustained() -> None:
    found = swept(burst=(221e9, 219e9, 220e9), sustained=load(220e9, 215e9, 200e9, *[180e9] * 5, *[181e9] * 2, 179e9, 180e9))
    assert found.burst_flops_per_s == 220e9
    # 12 s: the last half are samples 7 to 12.
    assert found.settled == found.sustained[6:]
    assert found.sustained_flops_per_s == 180e9
    assert found.notes(ceilings()) == []


def test_a_short_load_is_not_sustained() -> None:
    found = swept(sustained=load(220e9, 200e9, 180e9))
    assert found.sustained_flops_per_s is None and found.burst_flops_per_s is None
    (note,) = found.notes(ceilings())
    assert "the load lasted 3.00 s: too short for a sustained level (10 s)" in note


def test_few_points_say_so() -> None:
    found = swept(points=4)
    assert found.label == "DRAM read, fp32 avx2: a fit needs 5 intensities or more, got 4: measure more of them"
    assert found.notes(ceilings()) == [found.label]
    assert found.to_dict()["fit"] is None
    with pytest.raises(Error, match="a fit needs 5 intensities"):
        _ = found.fit


def test_contention_is_said() -> None:
    (note,) = swept(status="contended", reason="other work ran").notes(ceilings())
    assert note == "DRAM read, fp32 avx2: contended: other work ran"


def test_the_order_of_points_does_not_matter() -> None:
    found = swept()
    assert dataclasses.replace(found, points=found.points[::-1]).fit == found.fit


def test_the_numbers_in_files() -> None:
    written = swept(burst=(220e9,)).to_dict()
    fitted = written["fit"]
    assert fitted["bandwidth"]["value"] == pytest.approx(38e9, rel=0.01)
    assert fitted["bandwidth"]["low"] <= fitted["bandwidth"]["value"] <= fitted["bandwidth"]["high"]
    assert fitted["p"]["value"] == pytest.approx(1 / fitted["softness"]["value"]) == pytest.approx(4.0, rel=0.1)
    assert fitted["knee_efficiency"] == pytest.approx(2**-0.25, rel=0.01)
    assert (written["burst_flops_per_s"], written["sustained_flops_per_s"]) == (220e9, None)
    assert fitted["clock_hz"] == CLOCK
    assert swept(p=200.0, peak=2.0, beta=1.0).to_dict()["fit"]["p"]["value"] is None  # infinity has no place in JSON


POINT = IntensityPoint(intensity_flops_per_byte=1.0, samples=(1.0,))


test_bad_rooflines = refused(
    lambda fields: EmpiricalRoofline(**{"level": "DRAM", "access": "read", "dtype": "fp32", "points": (POINT,), **fields}),
    ({"level": "L4"}, "empirical roofline: level must be one of L1, L2"),
    ({"access": "peek"}, "empirical roofline: access must be one of"),
    ({"dtype": "fp31"}, "unknown dtype 'fp31'"),
    ({"status": "fine"}, "empirical roofline: status must be one of"),
    ({"points": ()}, "empirical roofline DRAM read, fp32: it has no points"),
    ({"points": (POINT, POINT)}, "the intensity 1 FLOP/byte is there twice"),
    ({"burst": (1.0, -1.0)}, "burst must be positive"),
    ({"sustained": load(1.0, 1.0)[::-1]}, "the times of sustained must rise"),
)


test_bad_points = refused(
    lambda fields: IntensityPoint(**{"intensity_flops_per_byte": 1.0, "samples": (1.0,), **fields}),
    ({"intensity_flops_per_byte": 0.0}, "the intensity must be positive and finite"),
    ({"samples": ()}, "samples must be positive finite numbers .FLOP/s., and at least one"),
    ({"samples": (1.0, math.nan)}, "samples must be positive"),
    ({"clock_hz": 0.0}, "clock_hz must be positive and finite, or None"),
)
test_bad_sustained_samples = refused(
    lambda flops_per_s: SustainedSample(time_s=1.0, flops_per_s=flops_per_s),
    (0.0, "sustained sample: flops_per_s must be positive and finite, got 0.0"),
)
