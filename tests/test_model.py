"""The roofline model against numbers worked out by hand, and what must hold for any numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline import model
from roofline.cost import TensorSpec
from roofline.errors import Error
from roofline.machine import Ceiling, Machine
from roofline.model import Roofs, attainable_flops_per_s, bound, default_variant, gaps, machine_roofs, predict, time_s
from roofline.operators import Attention, LayerNorm, Matmul, Operator, Relu, Softmax, Stream

ROOFS = Roofs(compute_flops_per_s=200e9, bandwidth_bytes_per_s=40e9, floor_s=2e-6)
POSITIVE = st.floats(min_value=1e-3, max_value=1e15)


def ceilings() -> dict[str, Ceiling]:
    memory: dict[str, Any] = {"kind": "bandwidth", "level": "DRAM", "threads": 2}
    return {
        "read": Ceiling(access="read", samples=(40e9,), **memory),
        "copy": Ceiling(access="copy", variant="plain", samples=(30e9,), **memory),
        "copy NT": Ceiling(access="copy", variant="non_temporal", samples=(36e9,), **memory),
        "L2": Ceiling(kind="bandwidth", level="L2", access="read", threads=2, samples=(400e9,)),
        "fp32": Ceiling(kind="compute", dtype="fp32", isa="avx2", threads=2, samples=(200e9,)),
        "fp64": Ceiling(kind="compute", dtype="fp64", isa="avx2", threads=2, samples=(100e9,)),
        "launch": Ceiling(kind="latency", threads=2, samples=(2e-6,), problem={"operator": "fork_join"}),
    }


def machine(*without: str, **more: Ceiling) -> Machine:
    kept = {name: ceiling for name, ceiling in {**ceilings(), **more}.items() if name not in without}
    return Machine(name="Example CPU", ceilings=tuple(kept.values()))


# -- the formulas ---------------------------------------------------------------------------------------------------------


def test_attainable_by_hand() -> None:
    # 200 GFLOP/s over 40 GB/s: the ridge is at 5 FLOP/byte.
    assert ROOFS.ridge_flops_per_byte == 5.0
    assert float(model.ridge_flops_per_byte(200e9, 40e9)) == 5.0
    assert attainable_flops_per_s([0.25, 5.0, 50.0], 200e9, 40e9).tolist() == [10e9, 200e9, 200e9]
    # Williams, Waterman, Patterson (2009), Opteron X2: 17.6 GFLOP/s and 15 GB/s; at 0.5 FLOP/byte 7.5 GFLOP/s.
    assert float(attainable_flops_per_s(0.5, 17.6e9, 15e9)) == 7.5e9


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
    assert attainable_flops_per_s([1.0, 2.0, 9.0], [[200e9], [50e9]], 40e9).tolist() == [
        [40e9, 80e9, 200e9],
        [40e9, 50e9, 50e9],
    ]


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


@pytest.mark.parametrize(
    "changes",
    [{"compute_flops_per_s": 0.0}, {"bandwidth_bytes_per_s": -1.0}, {"floor_s": -1e-9}, {"compute_flops_per_s": float("nan")}],
)
def test_roofs_are_positive(changes: dict[str, float]) -> None:
    with pytest.raises(Error, match="roofs must be positive"):
        dataclasses.replace(ROOFS, **changes)


# -- predictions ----------------------------------------------------------------------------------------------------------


def test_matmul_by_hand() -> None:
    # 2 · 1024³ FLOP = 2 147 483 648; 3 · 1024² · 4 bytes = 12 582 912.
    found = predict(machine(), Matmul(rows=1024, columns=1024, inner=1024))
    assert (found.flops, found.bytes, found.bound) == (2147483648, 12582912, "compute")
    assert found.terms == pytest.approx({"compute": 2147483648 / 200e9, "DRAM": 12582912 / 40e9, "launch": 2e-6})
    assert found.time_s == pytest.approx(10.737e-3, rel=1e-4)
    assert found.flops_per_s == pytest.approx(200e9)
    assert found.flops_per_byte == pytest.approx(170.667, rel=1e-5)
    assert found.bytes_per_s == pytest.approx(12582912 / 10.737e-3, rel=1e-4)
    assert found.notes == ()
    assert found.to_dict() == {"time_s": found.time_s, "bound": "compute", "terms": dict(found.terms)}
    # One row: 2 · 1024² FLOP, 4 · (1024² + 2 · 1024) bytes = 4 202 496, at 40 GB/s 105.06 us.
    found = predict(machine(), Matmul(rows=1, columns=1024, inner=1024))
    assert found.bound == "DRAM" and found.time_s == pytest.approx(105.0624e-6)


def test_attention_by_hand() -> None:
    # Decode, 8 heads, 4096 keys of 64: pairs 32768; FLOP 4 · 64 · 32768 + 6 · 32768 = 8 585 216;
    # bytes 4 · (2 · 8 · 64 + 2 · 8 · 4096 · 64) = 16 781 312: 419.5 us at 40 GB/s.
    decode = Attention(seq_q=1, seq_kv=4096)
    found = predict(machine(), decode, variant="tiled")
    assert (found.flops, found.bytes, found.bound) == (8585216, 16781312, "DRAM")
    assert found.time_s == pytest.approx(419.5328e-6)
    # Prefill 2048: 33 554 432 pairs, 4 · 64 + 6 FLOP each; 4 tensors of 4 MiB.
    prefill = Attention()
    found = predict(machine(), prefill, variant="tiled")
    assert (found.flops, found.bytes, found.bound) == (8791261184, 16777216, "compute")
    assert found.time_s == pytest.approx(43.956e-3, rel=1e-4)
    # naive writes the fp32 scores once, reads and writes them, and reads them: 4 · 134 217 728 bytes more.
    naive = predict(machine(), prefill, variant="naive")
    assert naive.bytes == 16777216 + 4 * 134217728
    assert naive.terms["DRAM"] == pytest.approx(13.841e-3, rel=1e-4)
    # The plan's variant, and its facts, where it ran.
    told = predict(machine(), prefill, plan={"variant": "naive", "scores_elements": 1000})
    assert told.bytes == 16777216 + 16000


def test_the_access_decides_the_memory_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    # Out of place: the better of plain and non-temporal. 10⁶ fp32 read and written, 8 MB at 36 GB/s.
    found = predict(machine(), Relu(elements=10**6))
    assert found.roofs.labels["memory"] == "DRAM copy NT 36.0 GB/s"
    assert found.time_s == pytest.approx(222.22e-6, rel=1e-4)
    # An access that was not measured is replaced, and a note says so.
    found = predict(machine("copy", "copy NT"), Softmax(rows=1024, columns=1024))
    assert found.notes == ("no DRAM copy roof: DRAM read is used",)
    # In place: plain stores only, for the line is in the cache already.
    monkeypatch.setattr(Relu, "tensors", lambda self: (TensorSpec(name="x", shape=(10**6,), dtype="fp32", role="in_out"),))
    assert Relu(elements=10**6).compulsory_bytes() == 8 * 10**6
    assert predict(machine(), Relu(elements=10**6)).roofs.labels["memory"] == "DRAM copy 30.0 GB/s"


def test_levels() -> None:
    problem = Matmul(rows=1, columns=256, inner=256)
    assert machine_roofs(machine(), problem).level == "DRAM"
    near = machine_roofs(machine(), problem, level="L2")
    assert (near.level, near.bandwidth_bytes_per_s) == ("L2", 400e9)
    found = predict(machine(), Matmul(rows=64, columns=1024, inner=1024), level="L2")
    assert set(found.terms) == {"compute", "L2", "launch"}


def test_a_problem_without_flops() -> None:
    found = predict(machine("fp32"), Stream(access="copy", elements=10**6))
    assert found.terms["compute"] == 0 and found.bound == "DRAM"
    assert found.time_s == pytest.approx(8e6 / 36e9)
    assert found.flops_per_byte == 0


def test_a_machine_without_a_launch_latency() -> None:
    found = predict(machine("launch"), Relu(elements=1))
    assert found.roofs.floor_s == 0 and found.bound == "DRAM"
    assert predict(machine(), Relu(elements=1)).bound == "launch"


def test_a_bimodal_roof_counts_with_its_best_mode() -> None:
    moving = dataclasses.replace(ceilings()["read"], samples=(101e9, 50e9) * 5)
    found = predict(machine(read=moving), Matmul(rows=1))
    assert found.roofs.bandwidth_bytes_per_s == 101e9
    assert found.notes == ("DRAM read 101 or 50 GB/s has two modes: the better one is used",)


def test_another_accumulator_is_used_and_said() -> None:
    bf16 = Matmul(dtype="bf16")  # accumulates in fp32
    found = predict(machine(), bf16)
    assert found.roofs.compute_flops_per_s == 200e9
    assert found.notes == ("no bf16 roof: its arithmetic is bounded by fp32 avx2",)
    other = Ceiling(kind="compute", dtype="bf16", accumulator="bf16", isa="x", threads=2, samples=(300e9,))
    found = predict(machine(bf16=other), bf16)
    assert found.roofs.compute_flops_per_s == 300e9
    assert found.notes == ("no roof for bf16 accumulating in fp32: the bf16 x roof is used",)
    exact = dataclasses.replace(other, accumulator="fp32", samples=(250e9,))
    found = predict(machine(bf16=other, exact=exact), bf16)
    assert found.roofs.compute_flops_per_s == 250e9 and found.notes == ()


@pytest.mark.parametrize(
    ("without", "problem", "options", "words"),
    [
        (("read", "copy", "copy NT", "L2"), Relu(), {}, "Example CPU: no bandwidth was measured"),
        (("fp32", "fp64"), Relu(), {}, "no compute ceiling for fp32 accumulating in fp32 .measured: none"),
        ((), Relu(), {"level": "L1"}, "no bandwidth of L1 was measured, only of L2, DRAM"),
        ((), Relu(), {"threads": 7}, "with 2 threads, not with 7"),
        ((), Attention(), {"variant": "magic"}, "attention: unknown variant 'magic'; it has naive, tiled"),
    ],
)
def test_missing_ceilings_are_named(without: tuple[str, ...], problem: Operator, options: dict[str, Any], words: str) -> None:
    with pytest.raises(Error, match=words):
        predict(machine(*without), problem, **options)


def test_the_default_variant_has_a_kernel() -> None:
    assert default_variant(Attention(), "cpu") == "tiled"
    assert default_variant(Attention(dtype="fp16"), "cuda") == "naive"
    assert default_variant(Attention(dtype="fp64"), "cpu") == list(Attention.variants)[-1]  # none has: the last


@pytest.mark.parametrize("problem", [LayerNorm(), Softmax(), Relu(), Matmul(), Attention(causal=True)], ids=lambda p: p.name)
def test_predictions_are_never_above_the_roofs(problem: Operator) -> None:
    found = predict(machine(), problem)
    assert found.flops_per_s <= found.roofs.compute_flops_per_s * (1 + 1e-12)
    assert found.bytes_per_s <= found.roofs.bandwidth_bytes_per_s * (1 + 1e-12)
    assert found.time_s == max(found.terms.values()) and found.terms[found.bound] == found.time_s


# -- gaps -----------------------------------------------------------------------------------------------------------------


def test_gaps_to_every_ceiling_by_hand() -> None:
    # 10⁸ FLOP and 2 · 10⁷ bytes in 1 ms: 100 GFLOP/s, 20 GB/s.
    load = Ceiling(kind="latency", level="DRAM", threads=1, samples=(90e-9,))
    wrong = dataclasses.replace(ceilings()["fp32"], isa="x", status="implausible", samples=(9e12,))
    found = gaps(machine(load=load, wrong=wrong), 10**8, 2 * 10**7, 1e-3, "fp32")
    shares = {gap.ceiling.name: gap.share for gap in found}
    assert shares == pytest.approx(
        {
            "DRAM read": 0.5,
            "DRAM copy": 2 / 3,
            "DRAM copy NT": 20 / 36,
            "L2 read": 0.05,
            "fp32 avx2": 0.5,
            "fp64 avx2": 1.0,
            "fork-join": 0.002,
        }
    )
    assert {gap.ceiling.name for gap in found if not gap.own} == {"fp64 avx2"}
    assert found[0].text == "50.0 % of DRAM read 40.0 GB/s"
    assert [gap.reached for gap in found if gap.ceiling.kind == "latency"] == [1e-3]


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_gaps_need_a_time(seconds: float) -> None:
    with pytest.raises(Error, match="time_s must be positive and finite"):
        gaps(machine(), 1, 1, seconds, "fp32")
