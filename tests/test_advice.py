"""What a measurement advises: every gain worked out on paper from the numbers that are made up here."""

import dataclasses
from typing import Any

import pytest
from example import bandwidth, bracket, fma, gemm, measurement

from roofline.dtypes import dtype as known_dtype
from roofline.machine import Ceiling, Machine
from roofline.operators import OPERATORS, Attention, Matmul, Operator, RmsNorm
from roofline.prediction import Advice
from roofline.report import explain
from roofline.results import Measurement, advise


def machine(*more: Ceiling) -> Machine:
    """100 GB/s, and on two threads 400 GFLOP/s in fp32 by AVX2, 100 GFLOP/s without, 1 TFLOP/s in bf16."""

    def of(dtype: str, isa: str, rate: float) -> Ceiling:
        problem = {"operator": "fma", "dtype": dtype, "isa": isa}
        return fma(rate, dtype, accumulator="fp32", isa=isa, problem=problem)

    peaks = of("fp32", "avx2", 400e9), of("fp32", "scalar", 100e9), of("bf16", "avx512_bf16", 1e12)
    return Machine(name="Example CPU", ceilings=(bandwidth(100e9), *peaks, *more))


def measured(
    problem: Operator, time_s: float, *, variant: str = "library", launch_s: float = 0.0, compute: float = 400e9, **more: Any
) -> Measurement:
    latency = (bracket(launch_s, "launch", kind="latency"),) if launch_s else ()
    brackets = (bracket(100e9), bracket(compute, "fp32 roof", kind="compute"), *latency)
    return measurement(problem, (time_s,) * 5, variant=variant, brackets=brackets, **more)


def by_change(found: tuple[Advice, ...]) -> dict[str, Advice]:
    assert [item.gain for item in found] == sorted((item.gain for item in found), reverse=True)
    return {item.change: item for item in found}


def test_too_little_work() -> None:
    """2.4 MB at 100 GB/s are 24 us. A launch of 2 us is a part of 30 us; 3 us are more than a tenth of what the roof allows."""
    norm = RmsNorm(rows=1, columns=200_000)
    assert norm.compulsory_bytes() == 2_400_000
    found = by_change(advise(measured(norm, 30e-6, variant="fused", launch_s=2e-6), machine()))
    more = found["more work in one launch"]
    assert more.gain == pytest.approx(30 / 28)
    assert more.at_most
    assert "its roofs allow 24.0 µs, a launch takes 2.00 µs" in more.detail
    low = by_change(advise(measured(norm, 48e-6, variant="fused", launch_s=2e-6), machine()))
    assert low["more work in one launch"].gain == pytest.approx(48 / 46)
    assert low["a kernel at the DRAM roof"].gain == pytest.approx(2)
    short = by_change(advise(measured(norm, 48e-6, variant="fused", launch_s=3e-6), machine()))
    assert short["more work in one launch"].gain == pytest.approx(2)
    assert "a kernel at the DRAM roof" not in short
    # No gain beyond the roof: 24.5 us less the launch would be.
    near = measured(norm, 24.6e-6, variant="fused", launch_s=2e-6)
    assert by_change(advise(near, machine()))["more work in one launch"].gain == pytest.approx(24.6 / 24)


def odd_product() -> Measurement:
    """1000 x 1000 x 1001 in 10 ms: 200 GFLOP/s, half the roof."""
    product = Matmul(rows=1000, columns=1000, inner=1001)
    return measured(product, product.total_flops() / 200e9)


MORE = 1008**3 / (1000 * 1000 * 1001)  # 2.3 %
PAD = "pad to rows 1008, columns 1008, inner 1008"


def test_sizes_that_are_no_multiples() -> None:
    pad = by_change(advise(odd_product(), machine()))[PAD]
    assert pad.gain == pytest.approx(2 / MORE)
    assert pad.at_most
    assert "50 % of its compute roof with sizes that are no multiples of 16" in pad.detail.replace("50.0", "50")
    # What was measured of aligned and other sizes is better than the roof.
    pair = machine(gemm(2048, 360e9), gemm(2047, 240e9))
    pad = by_change(advise(odd_product(), pair))[PAD]
    assert pad.gain == pytest.approx(1.5 / MORE)
    assert not pad.at_most


def test_padding_is_judged_by_products_of_one_size() -> None:
    """Ceilings as a CPU's file has them: sizes from 64 on, one odd size of each of few, and narrow ones, which are no pair."""
    narrow = [gemm(rows, rate, columns=512, inner=512) for rows, rate in ((1, 8e9), (8, 60e9), (32, 150e9))]
    sizes = [gemm(64, 90e9), gemm(256, 200e9), gemm(2048, 360e9)]
    for listed in ([*sizes, gemm(2047, 240e9), *narrow], [*narrow, gemm(2047, 240e9), *sizes]):
        pad = by_change(advise(odd_product(), machine(*listed)))[PAD]
        assert pad.gain == pytest.approx(1.5 / MORE)
        assert "aligned products are 1.50 times as fast here" in pad.detail
    # bf16 at standard depth: one square, and narrow ones beside it. Nothing is known of alignment.
    alone = by_change(advise(odd_product(), machine(gemm(2048, 360e9), *narrow)))[PAD]
    assert alone.at_most and "what the roof allows" in alone.detail
    # The pair of the nearest size speaks: 1000 is nearer to 1023 than to 255 and 8191.
    pairs = [gemm(size, rate) for size, rate in ((8191, 1e9), (8192, 9e9), (255, 1e9), (256, 8e9), (1023, 10e9), (1024, 12e9))]
    near = by_change(advise(odd_product(), machine(*pairs)))[PAD]
    assert near.gain == pytest.approx(1.2 / MORE)
    # A pair whose odd size is the faster one advises nothing: what it costs is more than what it gains.
    equal = by_change(advise(odd_product(), machine(gemm(2048, 2e11), gemm(2047, 2e11))))
    assert not any(change.startswith("pad") for change in equal)


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "implausible"},
        {"status": "contended"},
        {"sustained": True},
        {"threads": 1},
        {"dtype": "bf16"},
        {"scales": "tensor"},
        {"scales": "block", "scale_block": 32},
        {"isa": "avx2"},
    ],
)
@pytest.mark.parametrize("which", [2047, 2048])
def test_a_pair_is_of_one_kind(wrong: dict[str, Any], which: int) -> None:
    """A product in another state, dtype, on other threads, or with other scales is no neighbour; that of another unit neither."""
    listed = [gemm(size, rate, **(wrong if size == which else {})) for size, rate in ((2048, 360e9), (2047, 240e9))]
    pad = by_change(advise(odd_product(), machine(*listed)))[PAD]
    assert pad.at_most and "what the roof allows" in pad.detail


def test_a_library_below_the_roof_with_aligned_sizes() -> None:
    product = Matmul(rows=1024, columns=1024, inner=1024)
    m = measured(product, product.total_flops() / 200e9)
    found = by_change(advise(m, machine()))
    assert not any(change.startswith("pad") for change in found)
    kernel = found["a kernel at the compute roof"]
    assert kernel.gain == pytest.approx(2)
    assert kernel.time_s == pytest.approx(m.attainable_s)
    for said in ("the library reaches 50", "multiples of 16", "doctor --libraries"):
        assert said in kernel.detail
    near = measured(product, product.total_flops() / 390e9)
    assert "a kernel at the compute roof" not in by_change(advise(near, machine()))


def test_the_wrong_path() -> None:
    """97 GFLOP/s of 400 is what code without vectors reaches; 200 GFLOP/s is like no other path."""
    product = Matmul(rows=1024, columns=1024, inner=1024)
    path = by_change(advise(measured(product, product.total_flops() / 97e9), machine()))["the path of fp32 (fp32 roof)"]
    assert path.gain == pytest.approx(400 / 97)
    assert "97.0 % of" in path.detail and "100 GFLOP/s" in path.detail
    assert not any("path" in change for change in by_change(advise(measured(product, product.total_flops() / 200e9), machine())))


def test_variants_and_dtypes() -> None:
    attention = Attention(seq_q=512, seq_kv=512, heads=8, kv_heads=8, head_dim=16)
    slow, fast = (measured(attention, time_s, variant=v) for v, time_s in (("naive", 8e-3), ("tiled", 2e-3)))
    alone = by_change(advise(slow, machine()))["variant tiled"]
    assert "fewer" in alone.detail
    beside = by_change(advise(slow, machine(), peers=[slow, fast]))["variant tiled"]
    assert beside.gain == pytest.approx(4)
    assert beside.time_s == pytest.approx(2e-3)
    other = measured(attention.replace(head_dim=128), 1e-3, variant="tiled")
    assert by_change(advise(slow, machine(), peers=[other]))["variant tiled"].detail != "as measured beside it"
    # A product that is bound by memory moves half the bytes in bf16.
    thin = Matmul(rows=1, columns=4096, inner=4096)
    bytes_s = thin.compulsory_bytes() / 100e9
    narrow = by_change(advise(measured(thin, bytes_s), machine()))["in bf16"]
    assert narrow.gain == pytest.approx(2, rel=0.05)
    assert narrow.bound == "DRAM"


def test_nothing_to_say() -> None:
    norm = RmsNorm(rows=4096, columns=4096)
    unsupported = measurement(norm, (), status="unsupported")
    assert advise(unsupported, machine()) == ()
    own = Measurement(
        operator="mine", problem={}, variant="", device="cpu", threads=2, cache_state="user", samples_s=(1e-3,) * 5,
        flops={"all": 10**6}, bytes={"all": 10**7}, level="DRAM",
        brackets=(bracket(100e9),),
    )  # fmt: skip
    (item,) = advise(own, machine())
    assert (item.change, item.gain) == ("a kernel at the DRAM roof", pytest.approx(10))


def test_explain_shows_it() -> None:
    product = Matmul(rows=1024, columns=1024, inner=1024)
    m = measured(product, product.total_flops() / 200e9)
    text = str(explain(m, machine()))
    assert "What would it take" in text and "≤ 2.00×" in text
    assert "What would it take" not in str(explain(m))


@pytest.mark.parametrize("operator", [name for name, operator in OPERATORS.items() if operator.variants])
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_no_dtype_or_variant_without_a_kernel(operator: str, device: str) -> None:
    """Every operator, on a machine with a roof in every dtype."""
    dtypes = ("fp64", "fp32", "tf32", "fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2", "int4", "nvfp4", "mxfp4")
    rich = Machine.from_peaks("paper", 100e9, **{dtype: 1e15 / known_dtype(dtype).bits for dtype in dtypes})
    problem, backend = OPERATORS[operator](), device.partition(":")[0]
    for variant, stated in problem.variants.items():
        run = dataclasses.replace(measured(problem, 1.0, variant=variant), device=device, threads=0)
        for change in by_change(advise(run, rich)):
            if change.startswith("in "):
                assert change.removeprefix("in ") in stated.dtypes.get(backend, ())
            if change.startswith("variant "):
                assert run.dtype in problem.variants[change.removeprefix("variant ")].dtypes[backend]


def test_both_sides_of_a_comparison_are_expected_alike() -> None:
    """Lanes that a plan says stay empty are no reason for another variant, whose plan nobody knows."""
    decode = Attention(seq_q=1, seq_kv=8192, heads=8, kv_heads=1)
    plain = measured(decode, 3e-3, variant="tiled")
    padded = dataclasses.replace(plain, plan={"variant": "tiled", "query_lanes": 64, "query_block": 64})
    assert advise(padded, machine()) == advise(plain, machine())
    # What does not suit a problem is advised only where it was measured.
    prefill = Attention(seq_q=2048, seq_kv=2048, heads=1)
    naive = measured(prefill, 60e-3, variant="naive")
    assert "variant split_kv" not in by_change(advise(naive, machine()))
    assert "variant split_kv" in by_change(advise(naive, machine(), peers=[measured(prefill, 20e-3, variant="split_kv")]))
