"""Counts of problems, their growth, and where they lie under given roofs: against numbers worked out by hand."""

import math

import numpy as np
import pytest
from tables import refused

import roofline
from roofline import AllReduce, Attention, Bmm, Counts, Error, Machine, Matmul, QuantizedMatmul, Relu, Roofs, count, growth, place
from roofline.hardware import datasheet

LINEAR = Bmm(batch=1, rows=1, columns=100, inner=50, dtype="fp16", out_dtype="fp16")  # 10000 FLOPs; 10000 + 100 + 200 bytes
PAPER = Machine.from_peaks("paper", 1e12, fp16=100e12, fp64=1e12)


def test_counts_add_up_and_repeat() -> None:
    assert count(LINEAR) == Counts(flops=10000, bytes=10300)
    assert count(LINEAR, LINEAR) == 2 * count(LINEAR) == count(LINEAR) + count(LINEAR)
    assert count(LINEAR, tensors=("b",)) == Counts(flops=10000, bytes=10000)
    assert Counts(flops=1).flops_per_byte == math.inf
    assert count() == Counts()


def test_counts_of_words_and_of_numpy_numbers() -> None:
    assert count("gemm", M=100, N=10, K=5) == Counts(flops=10000, bytes=4 * (500 + 50 + 1000))
    assert Counts(flops=np.int64(6), bytes=np.float32(2)).flops_per_byte == 3


def test_counts_of_a_variant() -> None:
    """4 keys and 4 queries of 8 numbers in fp16: 16 pairs, 4 tensors of 64 bytes, scores of 2 bytes."""
    problem = Attention(heads=1, seq_q=4, seq_kv=4, head_dim=8, dtype="fp16")
    assert count(problem) == Counts(flops=2 * 2 * 16 * 8 + 6 * 16, bytes=256)
    assert count(problem, products_only=True).flops == 512
    assert count(problem, variant="naive").bytes == 256 + 4 * 16 * 4
    assert count(problem, variant="naive", plan={"scores_dtype": "fp16"}).bytes == 256 + 4 * 16 * 2
    three = {"scores_dtype": "fp16", "probabilities_written": False}
    assert count(problem, variant="naive", plan=three).bytes == 256 + 3 * 16 * 2
    assert count(problem, variant="naive", plan=three, tensors=()).bytes == 96
    assert count(problem, variant="tiled").bytes == 256


def test_what_comes_over_a_link_is_not_in_memory() -> None:
    assert count(AllReduce(elements=16, ranks=4, dtype="fp32")).bytes == 2 * 16 * 4


def test_growth_over_rows() -> None:
    found = growth(LINEAR, "rows")
    assert (found.flops_each, found.bytes_each, found.bytes_once) == (10000, 300, 10000)
    assert found.flops_per_byte(1) == pytest.approx(10000 / 10300)
    assert (found.slope, found.limit) == (1.0, pytest.approx(100 / 3))
    assert found.reaches(10) == pytest.approx(10 * 10000 / (10000 - 3000))
    assert found.flops_per_byte(found.reaches(10) or 0) == pytest.approx(10)
    assert found.reaches(34) is None


def test_dequantization_is_shared() -> None:
    # 100 x 50 weights of 4 bits, a product each with one of 50 scales of 16 bits; a row is 2 · 5000 FLOPs and 150 numbers in bf16.
    found = growth(QuantizedMatmul(inner=100, columns=50, group_size=100, dtype="bf16"), "rows")
    assert (found.flops_once, found.flops_each, found.bytes_once, found.bytes_each) == (5000, 10000, 2600, 300)
    assert found.reaches(10) == pytest.approx((10 * 2600 - 5000) / (10000 - 3000))
    assert found.flops_per_byte(found.reaches(10) or 0) == pytest.approx(10)
    assert found.reaches(1) == 0  # the intensity begins above it


def test_growth_is_linear_or_an_error() -> None:
    assert growth(Attention(heads=1, seq_q=1, seq_kv=10), "seq_kv").limit == pytest.approx((4 * 64 + 6) / (2 * 64 * 4))
    for problem, field in ((Relu(), "elements"), (LINEAR, "batch")):  # nothing is shared
        with pytest.raises(Error, match="no growth over"):
            growth(problem, field)
    with pytest.raises(Error, match="no growth over"):
        growth(Bmm(rows=1), "scale_block")


def test_placement() -> None:
    below = place(LINEAR, PAPER)
    assert (below.bound, below.ridge_flops_per_byte) == ("DRAM", 100)
    assert below.time_s == pytest.approx(10300 / 1e12)
    assert below.attainable_flops_per_s == pytest.approx(10000 / 10300 * 1e12)
    assert below.share_of_peak == pytest.approx(10000 / 10300 / 100)
    assert below.below_ridge == pytest.approx(103)
    above = place(Counts(flops=300, bytes=1), PAPER, "fp16")
    assert (above.bound, above.share_of_peak, above.time_s) == ("compute", 1, 3e-12)
    assert place(Counts(flops=300, bytes=1), PAPER, "fp64").time_s == 3e-10
    half = Roofs(compute_flops_per_s=100e12, bandwidth_bytes_per_s=1e12).derated(compute=0.5, bandwidth=0.25)
    assert place(Counts(flops=0, bytes=10), half).time_s == pytest.approx(4e-11)


def test_ridges() -> None:
    assert (PAPER.ridge("fp16"), PAPER.ridge("fp64")) == (100, 1)
    assert Machine.from_datasheet("H100 SXM").ridge("fp16", unit="core") == pytest.approx(133.8 / 3.35)
    assert all(c.source == "datasheet" for c in PAPER.ceilings)


def test_caches_of_a_datasheet() -> None:
    assert datasheet("A100 SXM 80GB").cache_bytes_per_s("L1") == 108 * 128 * 1.41e9
    assert datasheet("A100 SXM 40GB").cache_bytes_per_s("L2") is None
    with pytest.raises(Error, match="L1 and L2, not of 'DRAM'"):
        datasheet("H100 SXM").cache_bytes_per_s("DRAM")


test_bad_input = refused(
    lambda ask: ask(),
    (lambda: count(seq_q=1), "count got seq_q of no problem: name one"),
    (lambda: count(LINEAR, tensors=("w",)), "has no tensor 'w'; it has a, b, c"),
    (lambda: count(LINEAR, variant="naive"), "unknown variant 'naive'; it has library"),
    (lambda: count(Matmul(), variant="naive"), "unknown variant 'naive'; it has library"),
    (lambda: growth(LINEAR, "tokens"), "unknown field 'tokens'"),
    (lambda: growth("all_gather", "ranks"), "no growth over ranks"),
    (lambda: Counts(flops=-1), "flops must be a number of at least 0, got -1"),
    (lambda: Counts(bytes=math.nan), "bytes must be a number of at least 0, got nan"),
    (lambda: place(Counts(), PAPER, "fp16"), "counts of nothing have no place"),
    (lambda: count("softmax", seq_q=1), "unknown field 'seq_q'"),
    (lambda: roofline.predict_many("H100", [Attention()]), "an operator must be a class or a name"),
    (lambda: roofline.plot.roofline("H100", ax=3), "ax must be matplotlib Axes, got 3"),
    (lambda: place(Counts(flops=1, bytes=1), PAPER), "name that of their arithmetic"),
    (lambda: place(Counts(flops=1, bytes=1), PAPER, "int8"), "no compute ceiling for int8"),
    (lambda: Machine.from_peaks("x", 1e12, fp15=1e12), "unknown dtype 'fp15'"),
    (lambda: Machine.from_peaks("x", 1e12, link="450GB/s"), "link is called link_bytes_per_s here"),
    (lambda: Machine.from_peaks("x", 0, fp16=1e12), "must be positive"),
    (lambda: PAPER.ridge("fp16", level="L2"), "no bandwidth of L2"),
    (lambda: Roofs(compute_flops_per_s=1, bandwidth_bytes_per_s=1).derated(compute=0), "must be positive"),
)
