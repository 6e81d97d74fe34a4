"""The roofline model against numbers worked out by hand, and what must hold for any numbers."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from example import ceilings, machine
from hypothesis import given, strategies as st
from tables import refused

from roofline import model
from roofline.dtypes import WIDER
from roofline.errors import Error
from roofline.machine import Ceiling, Machine
from roofline.model import Roofs, attainable_flops_per_s, bound, gaps, time_s

ROOFS = Roofs(compute_flops_per_s=200e9, bandwidth_bytes_per_s=40e9, floor_s=2e-6)
POSITIVE = st.floats(min_value=1e-3, max_value=1e15)


# -- the formulas ---------------------------------------------------------------------------------------------------------


def test_attainable_by_hand() -> None:
    # 200 GFLOP/s over 40 GB/s: the ridge is at 5 FLOP/byte.
    assert ROOFS.ridge_flops_per_byte == 5.0
    assert float(model.ridge_flops_per_byte(200e9, 40e9)) == 5.0
    assert attainable_flops_per_s([0.25, 5.0, 50.0], 200e9, 40e9).tolist() == [10e9, 200e9, 200e9]
    # Williams, Waterman, Patterson (2009), Opteron X2: 17.6 GFLOP/s and 15 GB/s; at 0.5 FLOP/byte 7.5 GFLOP/s.
    assert float(attainable_flops_per_s(0.5, 17.6e9, 15e9)) == 7.5e9


def test_ridge_table() -> None:
    rows = model.ridge_table(machine())
    assert [(r["level"], r["dtype"], r["unit"], r["ridge_flops_per_byte"]) for r in rows] == [
        ("DRAM", "fp32", "core", 5.0), ("DRAM", "fp64", "core", 2.5), ("L2", "fp32", "core", 0.5), ("L2", "fp64", "core", 0.25),
    ]  # fmt: skip
    assert model.ridge_table(machine(), access="copy")[0]["bandwidth_bytes_per_s"] == 36e9
    with pytest.raises(Error, match="no bandwidth was measured"):
        model.ridge_table(machine("read", "copy", "copy NT", "L2"))
    b200 = model.ridge_table(Machine.from_datasheet("B200"))
    assert b200[0]["dtype"] in ("nvfp4", "mxfp4") and b200[0]["ridge_flops_per_byte"] == pytest.approx(9000 / 7.7)
    assert {("fp64", "core"), ("fp64", "tensor")} <= {(r["dtype"], r["unit"]) for r in b200}


# Exponent bits, mantissa bits, and the largest number where that is not IEEE's (OCP 8-bit and Microscaling specifications).
FORMATS = {
    "nvfp4": (2, 1, 6), "mxfp4": (2, 1, 6), "fp8_e4m3": (4, 3, 448), "fp8_e5m2": (5, 2, None), "fp16": (5, 10, None),
    "bf16": (8, 7, None), "tf32": (8, 10, None), "fp32": (8, 23, None),
}  # fmt: skip


def test_wider_formats_hold_all_numbers() -> None:
    def span(name: str) -> tuple[int, Fraction, Fraction]:
        exponent, mantissa, largest = FORMATS[name]
        bias = 2 ** (exponent - 1) - 1
        most = Fraction(largest) if largest else (2 - Fraction(1, 2**mantissa)) * 2**bias
        return mantissa, Fraction(2) ** (1 - bias - mantissa), most  # digits, smallest subnormal, largest

    for name, wider in WIDER.items():
        if name == "int4":
            assert wider == ("int8",)
            continue
        for other in wider:
            (digits, small, large), (more, smaller, larger) = span(name), span(other)
            assert digits <= more and small >= smaller and large <= larger, (name, other)


@pytest.mark.parametrize(
    ("flops", "moved", "seconds", "limit"),
    [
        (1e9, 40e6, 5e-3, "compute"),  # 25 FLOP/byte
        (4e6, 4e6, 1e-4, "DRAM"),
        (1e3, 4e3, 2e-6, "launch"),
        (200e6, 40e6, 1e-3, "compute"),  # 1 ms either way: the first of compute, memory, launch
        (0, 80e3, 2e-6, "DRAM"),  # memory and launch
        (0, 0, 2e-6, "launch"),
    ],
)
def test_time_and_bound_by_hand(flops: float, moved: float, seconds: float, limit: str) -> None:
    assert float(time_s(flops, moved, ROOFS)) == pytest.approx(seconds, rel=1e-15)
    assert str(bound(flops, moved, ROOFS)) == limit


def test_arrays_broadcast() -> None:
    flops, moved = np.array([[1e9], [1e3]]), np.array([4e3, 4e6, 400e6])
    assert time_s(flops, moved, ROOFS) == pytest.approx(np.array([[5e-3, 5e-3, 1e-2], [2e-6, 1e-4, 1e-2]]))
    assert bound(flops, moved, ROOFS).tolist() == [["compute", "compute", "DRAM"], ["launch", "DRAM", "DRAM"]]
    # FLOP/s of [2, 1] compute roofs at [3] intensities.
    assert attainable_flops_per_s([1.0, 2.0, 9.0], [[200e9], [50e9]], 40e9).tolist() == [[40e9, 80e9, 200e9], [40e9, 50e9, 50e9]]


@given(POSITIVE, POSITIVE, POSITIVE)
def test_never_above_either_roof(intensity: float, compute: float, bandwidth: float) -> None:
    found = float(attainable_flops_per_s(intensity, compute, bandwidth))
    assert found <= compute
    assert found <= intensity * bandwidth
    assert found in (compute, intensity * bandwidth)


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE)
def test_more_intensity_is_never_slower(one: float, other: float, compute: float, bandwidth: float) -> None:
    low, high = attainable_flops_per_s(sorted((one, other)), compute, bandwidth)
    assert low <= high


@given(POSITIVE, POSITIVE, st.floats(min_value=1.0, max_value=1e3))
def test_more_work_never_takes_less_time(flops: float, moved: float, factor: float) -> None:
    base = float(time_s(flops, moved, ROOFS))
    assert float(time_s(flops * factor, moved, ROOFS)) >= base
    assert float(time_s(flops, moved * factor, ROOFS)) >= base
    assert base >= ROOFS.floor_s


@given(POSITIVE, POSITIVE)
def test_time_and_attainable_agree_above_the_floor(flops: float, moved: float) -> None:
    roofs = dataclasses.replace(ROOFS, floor_s=0.0)
    rate = float(attainable_flops_per_s(flops / moved, 200e9, 40e9))
    assert flops / float(time_s(flops, moved, roofs)) == pytest.approx(rate, rel=1e-12)


test_roofs_are_positive = refused(
    lambda name, value: dataclasses.replace(ROOFS, **{name: value}),
    ("compute_flops_per_s", 0.0, "roofs must be positive"),
    ("compute_flops_per_s", float("nan"), "roofs must be positive"),
    ("bandwidth_bytes_per_s", -1.0, "roofs must be positive"),
    ("floor_s", -1e-9, "roofs must be positive"),
)


# -- gaps -----------------------------------------------------------------------------------------------------------------


def test_gaps_to_every_ceiling_by_hand() -> None:
    # 10⁸ FLOP and 2 · 10⁷ bytes in 1 ms: 100 GFLOP/s, 20 GB/s.
    load = Ceiling(probe="pointer_chase", level="DRAM", threads=1, samples=(90e-9,))
    wrong = dataclasses.replace(ceilings()["fp32"], isa="x", status="implausible", samples=(9e12,))
    found = gaps(machine(load=load, wrong=wrong), 10**8, 2 * 10**7, 1e-3, "fp32")
    shares = {gap.ceiling.name: gap.share for gap in found}
    assert shares == pytest.approx(
        {
            "DRAM read": 0.5, "DRAM copy": 2 / 3, "DRAM copy NT": 20 / 36, "L2 read": 0.05, "fp32 avx2": 0.5, "fp64 avx2": 1.0,
            "fork-join": 0.002,
        }
    )  # fmt: skip
    assert {gap.ceiling.name for gap in found if not gap.own} == {"fp64 avx2"}
    assert found[0].text == "50.0 % of DRAM read 40.0 GB/s"
    assert [gap.reached for gap in found if gap.ceiling.kind == "latency"] == [1e-3]


test_gaps_need_a_time = refused(
    lambda seconds: gaps(machine(), 1, 1, seconds, "fp32"),
    *((bad, "time_s must be positive and finite") for bad in (0.0, -1.0, float("nan"), float("inf"))),
)
