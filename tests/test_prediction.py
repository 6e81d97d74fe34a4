"""Predicted times: the roofs by hand, the bytes moved at each level, and the sum of the parts."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from example import CACHES, bandwidth, ceilings, fma, gemm, machine
from hypothesis import given, strategies as st
from tables import refused

from roofline.ceilings import measuring
from roofline.ceilings.standard import Surroundings, averaged
from roofline.kernel_costs import KernelCosts, cold_bytes, kernel_costs, leave_one_out, problem_of, unevenness
from roofline.least_squares import not_negative
from roofline.machine import Ceiling, EmpiricalRoofline, IntensityPoint, KernelTime, Machine, load_machines
from roofline.measurement.progress import Progress
from roofline.measurement.timing import from_rates
from roofline.model import Roofs, machine_roofs
from roofline.nearby import Nearby
from roofline.operators import (
    OPERATORS,
    Attention,
    Bmm,
    Embedding,
    Ffn,
    LayerNorm,
    LmHead,
    Matmul,
    MlaDecode,
    Operator,
    QuantizedMatmul,
    Relu,
    RmsNorm,
    Rope,
    SiluMul,
    Softmax,
    Stream,
)
from roofline.operators.base import WORK
from roofline.prediction import KNEE, Rates, default_variant, memory_and_rest_s, moved_bytes, predict_many, reused_bytes
from roofline.probes.draws import DRAWN, Even, in_dtype
from roofline.probes.standard import OF_REPORTS, Standard, drawn_for
from roofline.questions import predict
from roofline.report.points import default_points
from roofline.report.tables import kernel_table

# -- the roofs ------------------------------------------------------------------------------------------------------------


def test_matmul_by_hand() -> None:
    # 2 · 1024³ FLOP = 2 147 483 648; 3 · 1024² · 4 bytes = 12 582 912.
    found = predict(machine(), Matmul(rows=1024, columns=1024, inner=1024))
    assert (found.flops, found.bytes, found.bound) == (2147483648, 12582912, "compute")
    assert found.terms == pytest.approx({"compute": 2147483648 / 200e9, "DRAM": 12582912 / 40e9, "launch": 2e-6})
    assert found.roof_s == pytest.approx(10.737e-3, rel=1e-4)
    assert found.flops_per_byte == pytest.approx(170.667, rel=1e-5)
    assert found.notes == ()
    assert found.to_dict() == {
        "time_s": found.time_s, "roof_s": found.roof_s, "bound": "compute", "terms": dict(found.terms), "parts": dict(found.parts)
    }  # fmt: skip
    # One row: 2 · 1024² FLOP, 4 · (1024² + 2 · 1024) bytes = 4 202 496, at 40 GB/s 105.06 us.
    found = predict(machine(), Matmul(rows=1, columns=1024, inner=1024))
    assert found.bound == "DRAM" and found.roof_s == pytest.approx(105.0624e-6)


def test_attention_by_hand() -> None:
    # Decode, 8 heads, 4096 keys of 64: pairs 32768; FLOP 4 · 64 · 32768 + 6 · 32768 = 8 585 216;
    # bytes 4 · (2 · 8 · 64 + 2 · 8 · 4096 · 64) = 16 781 312: 419.5 us at 40 GB/s.
    decode = Attention(seq_q=1, seq_kv=4096)
    found = predict(machine(), decode, variant="tiled")
    assert (found.flops, found.bytes, found.bound) == (8585216, 16781312, "DRAM")
    assert found.roof_s == pytest.approx(419.5328e-6)
    # Prefill 2048: 33 554 432 pairs, 4 · 64 + 6 FLOP each; 4 tensors of 4 MiB.
    prefill = Attention()
    found = predict(machine(), prefill, variant="tiled")
    assert (found.flops, found.bytes, found.bound) == (8791261184, 16777216, "compute")
    assert found.roof_s == pytest.approx(43.956e-3, rel=1e-4)
    # naive writes the fp32 scores once, reads and writes them, and reads them: 4 · 134 217 728 bytes more.
    naive = predict(machine(), prefill, variant="naive")
    assert naive.bytes == 16777216 + 4 * 134217728
    assert naive.terms["DRAM"] == pytest.approx(13.841e-3, rel=1e-4)
    # The plan's variant, and its facts, where it ran.
    told = predict(machine(), prefill, plan={"variant": "naive", "scores_elements": 1000})
    assert told.bytes == 16777216 + 16000


def test_the_plan_may_name_the_arithmetic_of_the_compute_roof() -> None:
    # 2 · 16 · 4096 · 4096 + 4096 · 4096 (scales) = 553 648 128 FLOP.
    few, plan = QuantizedMatmul(rows=16, dtype="fp16"), {"arithmetic": "int16"}
    with_pairs = machine(pairs=fma(400e9, "int16", accumulator="int32"))
    assert predict(with_pairs, few, plan=plan).terms["compute"] == pytest.approx(553648128 / 400e9)
    assert predict(with_pairs, few).terms["compute"] == predict(machine(), few, plan=plan).terms["compute"] == 553648128 / 200e9


def test_the_access_decides_the_memory_roof() -> None:
    # Out of place: the better of plain and non-temporal. 10⁶ fp32 read and written, 8 MB at 36 GB/s.
    found = predict(machine(), Relu(elements=10**6))
    assert found.roofs.labels["memory"] == "DRAM copy NT 36.0 GB/s"
    assert found.roof_s == pytest.approx(222.22e-6, rel=1e-4)
    # An access that was not measured is replaced, and a note says so.
    found = predict(machine("copy", "copy NT"), Softmax(rows=1024, columns=1024))
    assert found.notes == ("no DRAM copy roof: DRAM read is used",)
    # In place: 10⁶ numbers of q and k together, read and written, and 2 tables of 12500 read: 8.1 MB at 50 GB/s.
    update = Ceiling(probe="stream", level="DRAM", access="update", variant="plain", threads=2, samples=(50e9,))
    rope = Rope(seq_q=12500, heads=8, kv_heads=2, head_dim=8, dtype="fp32")
    found = predict(machine(update=update), rope)
    assert found.roofs.labels["memory"] == "DRAM update 50.0 GB/s"
    assert found.roof_s == pytest.approx((8e6 + 2 * 4 * 12500 * 4) / 50e9)
    assert found.notes == ()
    assert predict(machine(), rope).notes == ("no DRAM update roof: DRAM copy NT is used",)


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
    assert found.roof_s == pytest.approx(8e6 / 36e9)
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
    assert found.notes == ("no bf16 peak is known: fp32 avx2 is used",)
    other = Ceiling(probe="fma", dtype="bf16", accumulator="bf16", isa="x", threads=2, samples=(300e9,))
    found = predict(machine(bf16=other), bf16)
    assert found.roofs.compute_flops_per_s == 300e9
    assert found.notes == ("no bf16→fp32 peak is known: bf16 x is used",)
    exact = dataclasses.replace(other, accumulator="fp32", samples=(250e9,))
    found = predict(machine(bf16=other, exact=exact), bf16)
    assert found.roofs.compute_flops_per_s == 250e9 and found.notes == ()


test_missing_ceilings_are_named = refused(
    lambda without, problem, options: predict(machine(*without), problem, **options),
    (("read", "copy", "copy NT", "L2"), Relu(), {}, "Example CPU: no bandwidth was measured"),
    (("fp32", "fp64"), Relu(), {}, "no compute ceiling for fp32 accumulating in fp32"),
    ((), Relu(), {"level": "L1"}, "no bandwidth of L1 is known, only of L2, DRAM"),
    ((), Relu(), {"threads": 7}, "with 2 threads, not with 7"),
    ((), Attention(), {"variant": "magic"}, "attention: unknown variant 'magic'; it has naive, library, tiled"),
)


def test_the_default_variant_suits_the_problem() -> None:
    decode = OPERATORS["attention"].make(seq_q=1, seq_kv=1000, dtype="bf16")
    assert decode.default_variant("cuda") == "split_kv"
    assert decode.replace(seq_q=9).default_variant("cuda") == "warp_specialized"
    assert decode.replace(seq_q=9, head_dim=256).default_variant("cuda") == "warp_specialized"
    assert decode.replace(seq_q=9, head_dim=264).default_variant("cuda") == "tiled"
    assert decode.replace(seq_q=9, head_dim=36).default_variant("cuda") == "tiled"
    assert decode.replace(dtype="fp32").default_variant("cuda") == "split_kv"
    few = Attention(heads=8, kv_heads=2, seq_q=8, seq_kv=8192)
    assert few.default_variant("cpu") == "split_kv"
    assert few.replace(seq_q=9).default_variant("cpu") == "tiled"
    assert Attention(dtype="fp64").default_variant("cuda") == "tiled"  # none has a kernel: the last that suits it


def test_every_operator_with_kernels_has_a_default_that_can_run() -> None:
    """Whatever runs without a variant has a kernel for the device and dtype, wherever any variant has one."""
    for operator in OPERATORS.values():
        for device in ("cpu", "cuda"):
            for name in {dtype for variant in operator.variants.values() for dtype in variant.dtypes.get(device, ())}:
                problem = in_dtype(operator(), name) if "dtype" in operator.field_names() else operator()
                chosen = problem.default_variant(device)
                assert name in operator.variants[chosen].dtypes[device], (operator.name, device, name)


@pytest.mark.parametrize("problem", [LayerNorm(), Softmax(), Relu(), Matmul(), Attention(causal=True)], ids=lambda p: p.name)
def test_predictions_are_never_above_the_roofs(problem: Operator) -> None:
    found = predict(machine(), problem)
    assert found.flops_per_s <= found.roofs.compute_flops_per_s * (1 + 1e-12)
    assert found.time_s >= found.roof_s
    assert found.bytes_per_s <= found.roofs.bandwidth_bytes_per_s * (1 + 1e-12)
    assert found.roof_s == max(found.terms.values()) and found.terms[found.bound] == found.roof_s


# -- what the user assumes ------------------------------------------------------------------------------------------------


def test_utilisation_by_hand() -> None:
    # 0.7 of 200 GFLOP/s and 0.8 of 40 GB/s, as the sum of the measured parts and as the roof.
    hard = {"utilisation": {"compute": 0.7, "bandwidth": 0.8}, "knee": math.inf, "launch_s": 0.0}
    large = predict(machine(), Matmul(rows=1024, columns=1024, inner=1024), **hard)
    assert large.time_s == large.roof_s == pytest.approx(2 * 1024**3 / (0.7 * 200e9))
    assert large.roofs.labels["compute"] == "fp32 avx2 200 GFLOP/s × 0.7"
    assert large.roofs.labels["launch"] == "as given"
    flat = predict(machine(), Matmul(rows=1, columns=1024, inner=1024), **hard)
    assert flat.bound == "DRAM" and flat.time_s == flat.roof_s == pytest.approx(4 * (1024**2 + 2048) / (0.8 * 40e9))
    # Every part is slower by its share: levels near the cores, and a library's product too.
    measured = machine(gemm=gemm(2048, 100e9))
    whole, part = predict(measured, Matmul()), predict(measured, Matmul(), utilisation={"compute": 0.5, "bandwidth": 0.25})
    assert part.parts == pytest.approx({"DRAM": 4 * whole.parts["DRAM"], "product": 2 * whole.parts["product"], "launch": 2e-6})
    assert part.rates.bandwidths["L2"] == 100e9


def test_a_link_used_in_part() -> None:
    linked = machine(link=Ceiling(probe="link", samples=(10e9,)))
    problem = OPERATORS["all_gather"](ranks=2, elements=1 << 20)  # type: ignore[call-arg]
    found = predict(linked, problem, utilisation={"link": 0.5}, knee=math.inf)
    assert found.bound == "link" and found.roof_s == pytest.approx(problem.link_bytes() / 5e9)
    assert found.time_s == pytest.approx(found.roof_s + 2e-6)


def test_the_knee_and_the_launch_are_the_users() -> None:
    problem = Matmul(rows=128, columns=1024, inner=1024)
    times = [predict(machine(), problem, knee=knee, launch_s=1e-3).time_s for knee in (1.0, KNEE, 50.0, math.inf)]
    parts = predict(machine(), problem).parts
    assert times[0] == pytest.approx(1e-3 + parts["DRAM"] + parts["product"])
    assert times[-1] == pytest.approx(1e-3 + max(parts["DRAM"], parts["product"]))
    assert sorted(times, reverse=True) == times
    assert predict(machine(), problem).time_s == pytest.approx(times[1] - 1e-3 + 2e-6)
    assert predict(machine(), Attention(), variant="naive", launch_s=1e-3).parts["launch"] == pytest.approx(3e-3)
    assert predict(machine("launch"), Relu(elements=1), launch_s=1e-3).bound == "launch"


test_bad_assumptions = refused(
    lambda options: predict(machine(), Relu(), **options),
    ({"utilisation": {"DRAM": 0.5}}, "utilisation is given for compute, bandwidth, link, not for 'DRAM'"),
    ({"knee": 0.5}, "knee must be at least 1"),
    ({"knee": math.nan}, "knee must be at least 1"),
    ({"unit": "tensor"}, "no compute ceiling for fp32 tensor accumulating in fp32"),
)


# -- datasheets -----------------------------------------------------------------------------------------------------------


def test_tensor_units_are_for_products() -> None:
    h100 = Machine.from_datasheet("H100 SXM")
    # 989.4 TFLOP/s of bf16 on tensor units, 133.8 on cores. A B200's datasheet has none for its cores: their bf16 is taken as fp32.
    assert predict(h100, Bmm(dtype="bf16")).roofs.compute_flops_per_s == 989.4e12
    norm = predict(h100, RmsNorm(dtype="bf16"))
    assert norm.roofs.compute_flops_per_s == 133.8e12
    b200 = predict(Machine.from_datasheet("B200"), RmsNorm(dtype="bf16"))
    assert b200.roofs.compute_flops_per_s == 75e12
    # Another peak is said where it makes the time, which of a norm is the memory's.
    assert norm.notes == b200.notes == ()
    square = Matmul(dtype="bf16")
    assert predict(h100, square, unit="core").notes == ("no bf16→fp32 peak of the cores is known: bf16 is used",)
    on_b200 = predict(Machine.from_datasheet("B200"), square, unit="core")
    assert on_b200.notes == ("no bf16 peak of the cores is known: fp32 is used",)
    assert predict(h100, RmsNorm(dtype="bf16"), unit="tensor").roofs.compute_flops_per_s == 989.4e12
    assert predict(h100, Bmm(dtype="bf16"), unit="core").roofs.compute_flops_per_s == 133.8e12
    # Attention: products on tensor units, its softmax on the cores, one operation where a multiply-add counts two.
    attention = predict(h100, Attention(dtype="bf16"))
    assert attention.rates.work == {"product": 989.4e12, "exp": 133.8e12 / 2, "other": 133.8e12 / 2}
    assert attention.rates.labels["exp"] == "half of bf16 134 TFLOP/s"
    assert attention.rates.knee == math.inf
    # A device of which only tensor units are known.
    tpu = Machine.from_datasheet("TPU v5e")
    assert {c.unit for c in tpu.roofs("compute")} == {"tensor"}
    assert predict(tpu, RmsNorm(dtype="bf16")).roofs.labels["compute"].startswith("bf16→fp32 tensor")


@pytest.mark.parametrize(
    ("device", "dtype", "roof", "note"),
    [
        ("B200", "nvfp4", 9000e12, ""),
        ("B200", "mxfp4", 9000e12, ""),
        ("MI355X", "mxfp4", 10066e12, ""),
        ("H100 SXM", "nvfp4", 1978.9e12, "no nvfp4 peak is known: fp8_e4m3→fp32 tensor is used"),
        ("A100 SXM 80GB", "int4", 1248e12, ""),
        ("H100 SXM", "int4", 1978.9e12, "no int4 peak is known: int8→int32 tensor is used"),
        ("A100 SXM 80GB", "fp8_e4m3", 312e12, "no fp8_e4m3 peak is known: fp16→fp32 tensor is used"),
        ("V100", "fp16", 125e12, ""),
    ],
)
def test_few_bits_on_datasheets(device: str, dtype: str, roof: float, note: str) -> None:
    found = predict(Machine.from_datasheet(device), Bmm(rows=4096, columns=4096, inner=4096, dtype=dtype))
    assert found.roofs.compute_flops_per_s == pytest.approx(roof, rel=1e-3)
    assert [n for n in found.notes if "is used" in n] == ([note] if note else [])


# -- parts ----------------------------------------------------------------------------------------------------------------

RATES = Rates(bandwidths={"L1": 400e9, "DRAM": 40e9}, work={"product": 100e9, "exp": 4e9, "other": 50e9}, launch_s=1e-6, knee=2.0)


def test_parts_by_hand() -> None:
    # 4 GB at 40 GB/s; 3 · 10⁹ products at 100 GFLOP/s and 10⁸ exponentials at 4 G/s; three launches.
    parts = RATES.parts_s({"product": 3 * 10**9, "exp": 10**8}, {"DRAM": 4 * 10**9, "L1": 0}, launches=3)
    assert parts == pytest.approx({"DRAM": 0.1, "product": 0.03, "exp": 0.025, "launch": 3e-6})
    # Arithmetic adds up to 55 ms; with p = 2 the sum is that of a right-angled triangle.
    assert RATES.time_s(parts) == pytest.approx(3e-6 + math.hypot(0.1, 0.055))
    assert dataclasses.replace(RATES, knee=math.inf).time_s(parts) == pytest.approx(3e-6 + 0.1)
    assert dataclasses.replace(RATES, knee=1.0).time_s(parts) == pytest.approx(3e-6 + 0.155)
    assert RATES.time_s(RATES.parts_s({}, {})) == pytest.approx(1e-6)


@given(st.lists(st.floats(1e-9, 1e3), min_size=3, max_size=3), st.floats(1.0, 50.0))
def test_the_knee_lies_between_the_longest_and_the_sum(seconds: list[float], knee: float) -> None:
    parts = dict(zip(("DRAM", "L1", "product"), seconds, strict=True))
    found = dataclasses.replace(RATES, knee=knee).time_s(parts)
    assert max(seconds) * (1 - 1e-12) <= found <= sum(seconds) * (1 + 1e-12)


def test_what_moves_where_by_hand() -> None:
    # 4096 rows of 4 KiB: x and y once in DRAM; a row is read again from L1, and its exponentials are written and read there.
    softmax, fused = Softmax(rows=4096, columns=1024), {"variant": "fused"}
    assert moved_bytes(softmax, fused, CACHES, "DRAM") == {"DRAM": {"compulsory": 2 * 4096 * 4096}}
    assert reused_bytes(softmax, fused, CACHES) == {"L1": 3 * 4096 * 4096}
    # Rows of 40 KiB do not stay in L1; two of 20 KiB neither, one does.
    assert reused_bytes(Softmax(rows=16, columns=10240), fused, CACHES) == {"L2": 3 * 16 * 40960}
    assert reused_bytes(Softmax(rows=16, columns=5120), fused, CACHES) == {"L1": 16 * 20480, "L2": 2 * 16 * 20480}
    # Nothing is known without cache sizes; rows that a kernel could not keep are traffic.
    assert reused_bytes(softmax, fused, {}) == reused_bytes(softmax, {**fused, "row_cached": 0}, CACHES) == {}
    assert sum(moved_bytes(softmax, {**fused, "row_cached": 0}, CACHES, "DRAM")["DRAM"].values()) == 5 * 4096 * 4096


def test_a_workspace_meets_the_level_that_holds_it() -> None:
    # Scores of 8 heads x 256² x 4 bytes = 2 MiB; of 2048² 128 MiB.
    for length, level in ((256, "L3"), (2048, "DRAM")):
        moved = moved_bytes(Attention(seq_q=length, seq_kv=length), {"variant": "naive"}, CACHES, "DRAM")
        assert moved[level]["scores written"] == 8 * length * length * 4
    told = moved_bytes(Attention(seq_q=256, seq_kv=256), {"variant": "naive", "workspace_bytes": 1 << 30}, CACHES, "DRAM")
    assert "scores written" in told["DRAM"]
    # A thread packs a bmm's products one after the other in one place: 128 x 512 x 4 bytes are 256 KiB, 20000 x 512 x 4 39 MiB.
    for inner, level in ((128, "L2"), (20000, "DRAM")):
        moved = moved_bytes(Bmm(batch=8, inner=inner), {"variant": "tiled"}, CACHES, "DRAM")
        assert moved[level]["b packed in fp32: written, read"] == 2 * 8 * inner * 512 * 4


def test_the_default_of_a_bmm_packs_its_own_operands() -> None:
    """On this CPU `tiled` took 1.26 ms of the operator's default problem and `library` 1.93 ms, from memory."""
    folder = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "amd-epyc-family26-model2-avx512-bf16"
    (known,) = load_machines(folder / "machine.json")
    assert default_variant(known, Bmm(), "cpu", lambda _: True) == "tiled"


@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in ("fma", "mixed_intensity")])
def test_work_is_at_least_the_flops(name: str) -> None:
    for case in OPERATORS[name].cases():
        for variant in case.problem.variants or {"": None}:
            work = case.problem.work({"variant": variant})
            assert set(work) <= set(WORK)
            assert sum(work.values()) == case.problem.total_flops()


def test_work_by_hand() -> None:
    # Decode of one query in vectors of 8: eight times the work, whatever the block holds.
    decode = Attention(seq_q=1, seq_kv=1000, head_dim=64)
    tiled = {"variant": "tiled", "query_lanes": 8, "query_block": 64}
    assert decode.work(tiled) == {"product": 8 * 2048000, "exp": 64000, "other": 5 * 64000}
    # Four query heads of a KV head fill half of it.
    grouped = Attention(seq_q=1, seq_kv=1000, head_dim=64, kv_heads=2)
    assert grouped.work(tiled)["product"] == 2 * 2048000
    # 100 queries in blocks of 48: three blocks transpose 1000 keys of 64 elements, for each of 8 heads.
    naive = Attention(seq_q=100, seq_kv=1000, head_dim=64).work({"variant": "naive", "query_block": 48})
    assert naive["other"] == 5 * 800000 + 7 * 3 * 8 * 1000 * 64
    # Products of all pairs, 6 x 7 of 2 heads, masked or not; exponentials of those that are seen, 42 - 15 of each head, twice.
    library = Attention(heads=2, seq_q=6, seq_kv=7, head_dim=8, causal=True).work({"variant": "library", "scores_elements": 84})
    assert library == {"product": 4 * 84 * 8, "exp": 2 * 54, "other": 5 * 54}
    assert Ffn(batch=2, seq_q=3, d_model=4, d_ff=5, activation="swiglu").work({}) == {"product": 720, "exp": 30, "other": 90}


def test_products_run_at_the_rate_of_their_size() -> None:
    measured = machine(small=gemm(128, 100e9), large=gemm(2048, 180e9), odd=gemm(2047, 50e9))

    def product_rate(rows: int, columns: int, inner: int) -> float:
        return predict(measured, Matmul(rows=rows, columns=columns, inner=inner)).rates.work["product"]

    assert product_rate(64, 64, 64) == 100e9
    assert product_rate(4096, 4096, 4096) == 180e9
    assert product_rate(512, 512, 512) == pytest.approx(140e9)  # half way in log(size)
    assert product_rate(32, 2048, 2048) == pytest.approx(140e9)  # 2⁵ · 2¹¹ · 2¹¹ = 512³
    assert predict(machine(), Matmul()).rates.work["product"] == 200e9  # nothing measured: the multiply-add peak


def scaled_gemm(size: int, rate: float, **scales: Any) -> Ceiling:
    return gemm(size, rate, dtype="fp8_e4m3", unit="tensor", threads=0, **scales)


TENSOR, ROW = {"scales": "tensor"}, {"scales": "row"}
BLOCK, TINY = {"scales": "block", "scale_block": 128}, {"scales": "block", "scale_block": 32, "scale_bits": 8}


@pytest.mark.parametrize("turned", [False, True])
def test_products_run_at_the_rate_of_their_scales(turned: bool) -> None:
    """A GPU has 8192³ in fp8 with five kinds of scales: each problem meets its own, whatever their order in the file."""
    kinds: tuple[tuple[float, dict[str, Any]], ...] = ((1500, {}), (1400, TENSOR), (1000, ROW), (700, BLOCK), (1200, TINY))
    rates = [(scaled_gemm(8192, rate * 1e12, **scales), scales) for rate, scales in kinds]
    others = [scaled_gemm(4096, 1300e12), scaled_gemm(16384, 1510e12)]
    peak = Ceiling(probe="mma", dtype="fp8_e4m3", accumulator="fp32", unit="tensor", samples=(1900e12,))
    memory = Ceiling(probe="stream", level="DRAM", access="read", samples=(3e12,))
    products = [*others, *(c for c, _ in rates)]
    gpu = Machine(name="gpu", device="cuda", ceilings=(memory, peak, *(products[::-1] if turned else products)))
    for ceiling, scales in rates:
        for size in (1024, 8192, 20000):
            problem = Matmul(rows=size, columns=size, inner=size, dtype="fp8_e4m3", **scales)  # type: ignore[arg-type]
            found = predict(gpu, problem).rates
            if scales:
                assert found.work["product"] == ceiling.value
                assert found.labels["product"] == ceiling.label
            else:
                assert found.work["product"] == {1024: 1300e12, 8192: 1500e12, 20000: 1510e12}[size]
    # A kind that was not measured meets the format without scales; operators without the field too.
    other = predict(gpu, Matmul(rows=8192, columns=8192, inner=8192, dtype="fp8_e4m3", scales="block", scale_block=64)).rates
    assert other.work["product"] == 1500e12
    assert predict(gpu, LmHead(tokens=8192, d_model=8192, vocabulary=8192, dtype="fp8_e4m3")).rates.work["product"] == 1500e12


def test_a_size_that_was_measured_twice_counts_with_its_best() -> None:
    """Two libraries, or two runs, of one size: log(size) must grow from point to point."""
    twice = machine(one=gemm(128, 90e9), two=gemm(128, 100e9), large=gemm(2048, 180e9), again=gemm(2048, 150e9))
    rate = predict(twice, Matmul(rows=512, columns=512, inner=512)).rates
    assert rate.work["product"] == pytest.approx(140e9)
    wide = {"columns": 512, "inner": 512}
    two, as_wide = gemm(1, 12e9, columns=1024, inner=512), gemm(64, 1e9, columns=128)
    narrow = machine(square=gemm(64, 160e9), one=gemm(1, 10e9, **wide), two=two, as_wide=as_wide)
    assert predict(narrow, Matmul(rows=1, columns=4096, inner=4096)).rates.work["product"] == pytest.approx(12e9)
    assert predict(narrow, Matmul(rows=64, columns=64, inner=64)).rates.work["product"] == pytest.approx(160e9)


def test_narrow_products_run_at_the_rate_of_their_rows() -> None:
    wide = {"columns": 512, "inner": 512}
    measured = machine(square=gemm(64, 160e9), large=gemm(2048, 180e9), one=gemm(1, 10e9, **wide), four=gemm(4, 40e9, **wide))

    def product_rate(problem: Operator) -> float:
        return predict(measured, problem).rates.work["product"]

    assert product_rate(Matmul(rows=1, columns=4096, inner=4096)) == pytest.approx(10e9)
    assert product_rate(Matmul(rows=4096, columns=1, inner=4096)) == pytest.approx(10e9)
    assert product_rate(Matmul(rows=2, columns=4096, inner=4096)) == pytest.approx(20e9)  # half way in the logarithms
    assert product_rate(Matmul(rows=16, columns=4096, inner=4096)) == pytest.approx(80e9)  # half way from 4 rows to the square
    assert product_rate(Matmul(rows=2048, columns=2048, inner=2048)) == 180e9
    assert product_rate(Ffn(batch=1, seq_q=1)) == pytest.approx(10e9)
    assert product_rate(Attention(seq_q=1, seq_kv=64)) == 180e9, "its own kernel"
    for rows, rate in ((1, 10e9), (2, 20e9), (16, 80e9)):  # what models are made of too
        large = {"columns": 4096, "inner": 4096, "dtype": "fp32"}
        assert product_rate(Bmm.make(rows=rows, **large)) == pytest.approx(rate)
        assert product_rate(LmHead(tokens=rows, dtype="fp32")) == pytest.approx(rate)
        assert product_rate(QuantizedMatmul.make(rows=rows, **large)) == pytest.approx(rate)
    many = predict_many(measured, Matmul, rows=np.array([1, 2, 2048]), columns=4096, inner=4096)
    one_by_one = [predict(measured, Matmul(rows=r, columns=4096, inner=4096)).time_s for r in (1, 2, 2048)]
    assert many.time_s == pytest.approx(one_by_one)


def test_the_knee_is_that_of_the_measured_sweep() -> None:
    """Points of R = ((30 GB/s I)^-2 + (200 GFLOP/s)^-2)^(-1/2) without noise: p is 2, and so is the knee of the prediction."""
    intensities = [2.0**k for k in range(-4, 9)]
    rates = [((30e9 * i) ** -2 + 200e9**-2) ** -0.5 for i in intensities]
    points = tuple(IntensityPoint(intensity_flops_per_byte=i, samples=(r, r, r)) for i, r in zip(intensities, rates, strict=True))
    swept = EmpiricalRoofline(level="DRAM", access="read", dtype="fp32", threads=2, points=points)
    measured = dataclasses.replace(machine(), empirical=(swept,))
    assert predict(measured, Relu(elements=1 << 20)).rates.knee == pytest.approx(2, rel=0.05)
    assert predict(machine(), Relu(elements=1 << 20)).rates.knee == KNEE
    doubtful = dataclasses.replace(measured, empirical=(dataclasses.replace(swept, status="contended"),))
    assert predict(doubtful, Relu(elements=1 << 20)).rates.knee == KNEE


def test_exponentials_have_a_roof_of_their_own() -> None:
    exp = Ceiling(probe="exp", dtype="fp32", threads=2, samples=(4e9,), problem={"operator": "exp"})
    found = predict(machine(exp=exp), Softmax(rows=1024, columns=1024))
    assert found.parts["exp"] == pytest.approx(2**20 / 4e9)
    assert found.parts["other"] == pytest.approx(4 * 2**20 / 100e9)
    assert found.roofs.compute_flops_per_s == 200e9
    assert predict(machine(), Softmax(rows=1024, columns=1024)).parts["exp"] == pytest.approx(2**20 / 100e9)
    # The fastest of several, and its label with it; one under long load is none of them.
    fast = dataclasses.replace(exp, samples=(5e9,), isa="avx512")
    hot = dataclasses.replace(exp, samples=(6e9,), sustained=True)
    best = predict(machine(exp=exp, fast=fast, hot=hot), Softmax(rows=1024, columns=1024))
    assert best.rates.work["exp"] == 5e9
    assert best.rates.labels["exp"] == fast.label


def test_a_datasheet_knows_no_knee() -> None:
    claimed = Machine(name="x", ceilings=tuple(dataclasses.replace(c, source="datasheet") for c in ceilings().values()))
    assert predict(claimed, RmsNorm()).rates.knee == math.inf
    assert predict(machine(), RmsNorm()).rates.knee == KNEE


# -- what kernels take beyond their parts ---------------------------------------------------------------------------------

TRUE = KernelCosts(memory=1.0, caches=1.15, byte_s=25e-12, loop_s=9e-9, start_s=0.3e-6, cold_s=0.2e-6, joins=1.5, cold_joins=0.8)


def true_s(problem: Operator, memory_s: float, rest_s: float, cold: bool, launch_s: float) -> float:
    """What TRUE says, written out."""
    own_s = 25e-12 * problem.compulsory_bytes() * cold
    overlapped_s = float((memory_s**2 + own_s**2 + (1.15 * rest_s) ** 2) ** (1 / 2))
    return overlapped_s + problem.loops() * 9e-9 + 0.3e-6 + cold * 0.2e-6 + (1.5 + 0.8 * cold) * launch_s


def kernel_times(operator: str, variant: str, noise: float = 0.0, launches_s: Sequence[float] = (0.1e-6, 0.7e-6, 2e-6)) -> Machine:
    """Standard problems whose times follow TRUE exactly, but for alternating `noise`; launches take one of launches_s."""
    plain, found = machine(), []
    cases = [(case.cold, case.problem) for case in OF_REPORTS if case.problem.name == operator]
    for index, (cold, problem) in enumerate((*cases, *drawn_for(operator, variant, "fp32", "cpu", 2))):
        p = predict(plain, problem, variant=variant, level="DRAM" if cold else "L2")
        memory_s, rest_s = memory_and_rest_s(p.parts)
        launch_s = launches_s[index % len(launches_s)]
        time_s = launch_s + true_s(problem, memory_s, rest_s, cold, launch_s)
        found.append(KernelTime(
            problem={"operator": operator, **problem.to_dict()}, variant=variant, cold=cold, threads=2, launch_s=launch_s,
            samples_s=(time_s * (1 - noise * (-1) ** index),), memory_s=memory_s, rest_s=rest_s,
        ))  # fmt: skip
    return dataclasses.replace(plain, kernels=tuple(found))


def timed(
    problem: Operator, variant: str, time_s: float, *, memory_s: float, rest_s: float = 0, cold: bool = True, launch_s: float = 0
) -> KernelTime:
    """A standard problem that took `time_s`, its parts as stated."""
    return KernelTime(
        problem={"operator": problem.name, **problem.to_dict()}, variant=variant, cold=cold, threads=2, samples_s=(time_s,),
        launch_s=launch_s, memory_s=memory_s, rest_s=rest_s,
    )  # fmt: skip


def knowing(*kernels: KernelTime, **ceilings: Ceiling) -> Machine:
    return dataclasses.replace(machine(**ceilings), kernels=kernels)


def test_even_draws_fill_every_size_and_are_no_points_of_a_report() -> None:
    draw = Even()
    halves = [0] * 3
    for point in range(1, 1001):
        draw.begin(point)
        for coordinate in range(3):
            halves[coordinate] += draw.random() < 0.5
    assert halves == pytest.approx([500] * 3, abs=3), "a fair coin strays by 16"
    for options in (2, 3, 4, 6):  # among some that a power of two counts, too
        chosen = []
        for point in range(1, 1201):
            draw.begin(point)
            chosen.append(draw.choice(range(options)))
        assert [chosen.count(each) for each in range(options)] == pytest.approx([1200 / options] * options, abs=3)
    points = {point.problem for point in default_points(CACHES, "cpu", machine(), thorough=True)}
    for name in DRAWN:
        variant = list(OPERATORS[name].variants)[-1]
        cases = drawn_for(name, variant, "fp32", "cpu", 2)
        assert len(cases) == len({problem for _, problem in cases}) >= 12
        assert cases == drawn_for(name, variant, "fp32", "cpu", 2)
        assert {cold for cold, _ in cases} == {True, False}
        assert not {problem for _, problem in cases} & points


@pytest.mark.parametrize(("operator", "variant"), [("rms_norm", "fused"), ("softmax", "fused")])
def test_costs_of_a_kernel_are_found(operator: str, variant: str) -> None:
    known = kernel_costs(kernel_times(operator, variant), OPERATORS[operator](dtype="fp32"), variant)
    assert known is not None
    for rows, columns, cold in ((1000, 4000, True), (30, 1000, True), (300, 1500, False), (2000, 80, False), (20, 60, False)):
        problem = OPERATORS[operator].make(rows=rows, columns=columns, dtype="fp32")
        memory_s = problem.compulsory_bytes() / 36e9 if cold else 0.0
        rest_s = problem.total_flops() / 100e9
        for launch_s in (0.1e-6, 1.5e-6):
            found_s = sum(known.more_s(problem, memory_s, rest_s, 0.0, cold=cold, launch_s=launch_s).values())
            assert found_s == pytest.approx(true_s(problem, memory_s, rest_s, cold, launch_s), rel=0.15)
            stated_s = sum(TRUE.more_s(problem, memory_s, rest_s, 0.0, cold=cold, launch_s=launch_s).values())
            assert stated_s == pytest.approx(true_s(problem, memory_s, rest_s, cold, launch_s))
    assert kernel_costs(machine(), OPERATORS[operator](), variant) is None


def test_a_start_is_no_joins_where_all_launches_took_alike() -> None:
    """A launch of cores that are farther apart than those of all standard problems adds itself and about one more."""
    known = kernel_costs(kernel_times("rms_norm", "fused", launches_s=[0.07e-6]), RmsNorm(), "fused")
    assert known is not None
    problem = RmsNorm(rows=14, columns=690)
    near, far = (sum(known.more_s(problem, 0.0, 1e-7, 0.0, cold=True, launch_s=s).values()) for s in (0.07e-6, 0.5e-6))
    assert near == pytest.approx(true_s(problem, 0.0, 1e-7, True, 0.07e-6), rel=0.15)
    assert far - near == pytest.approx((0.5 - 0.07) * 1e-6, rel=0.5)


def test_a_standard_problem_with_a_large_residual_is_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    true = kernel_times("rms_norm", "fused").kernels
    wrong = {10: 1.5, 30: 0.6, 50: 1.02}
    seen = [dataclasses.replace(k, samples_s=(k.time_s * wrong.get(i, 1.0),)) for i, k in enumerate(true)]
    beyond = leave_one_out(seen)
    assert sorted(range(len(seen)), key=lambda i: -abs(beyond[i]))[:2] == [30, 10]
    for index in (10, 30):
        time_s, launch_s = true[index].time_s, true[index].launch_s
        assert beyond[index] == pytest.approx(math.log((wrong[index] * time_s - launch_s) / (time_s - launch_s)), abs=0.08)
    assert leave_one_out(seen[:12]) == [0.0] * 12, "too few to say"
    keys = [Standard(problem_of(k.problem), k.variant, k.cold) for k in true]  # type: ignore[arg-type]
    again = dict(zip(keys, true, strict=True)) | {keys[30]: dataclasses.replace(true[30], samples_s=(5 * true[30].time_s,))}
    monkeypatch.setattr(measuring, "kernel_time", lambda device, standard, around, **_: again[standard])
    run: Any = SimpleNamespace(device=None, kernels=dict(zip(keys, seen, strict=True)))
    measuring._Run._time_again(run, Progress(False, 0), lambda: False, None)  # type: ignore[arg-type]
    assert run.kernels[keys[10]] is true[10], "what the others bear out"
    assert run.kernels[keys[30]] is seen[30] and run.kernels[keys[50]] is seen[50]


def test_two_timings_of_a_standard_problem_are_averaged() -> None:
    """Unless a roof moved: 5.6 ms and 10 ms beside 5 ms and 9 ms of memory, not the lower quartile beside 7 ms."""
    problem = RmsNorm(rows=64, columns=1024)
    one = dataclasses.replace(timed(problem, "fused", 4e-6, memory_s=2e-6, rest_s=1e-6, launch_s=1e-7), unplanned=(1e-6, 1e-6))
    other = dataclasses.replace(timed(problem, "fused", 6e-6, memory_s=2e-6, rest_s=1e-6, launch_s=2e-7), unplanned=(2e-6, 4e-6))
    both = averaged(one, other)
    assert both.samples_s == (4e-6, 6e-6) and both.unplanned == pytest.approx((1.5e-6, 2.5e-6))
    assert (both.memory_s, both.rest_s, both.launch_s) == pytest.approx((2e-6, 1e-6, 1.5e-7))
    disturbed = dataclasses.replace(other, status="contended")
    assert averaged(one, disturbed) is one and averaged(disturbed, one) is one
    large = RmsNorm(rows=4096, columns=8192)
    slow, fast = (timed(large, "fused", s, memory_s=memory_s, rest_s=1e-4) for s, memory_s in ((10e-3, 9e-3), (5.6e-3, 5e-3)))
    assert averaged(slow, fast) is fast and averaged(fast, slow) is slow


def test_one_piece_of_work_wakes_no_thread_of_a_cpu() -> None:
    known = dataclasses.replace(machine(), facts={"l2_bytes": 1 << 20})
    many, one = (predict(known, Softmax(rows=rows, columns=4096)).parts["launch"] for rows in (2, 1))
    assert many > one == 0
    assert predict(dataclasses.replace(known, device="cuda"), Softmax(rows=1, columns=4096)).parts["launch"] == many
    assert predict(known, SiluMul(rows=1, columns=4096)).parts["launch"] == many, "threads share its elements, not its rows"
    # Nor does the launch bound it: 16 numbers in and out at 36 GB/s take 3.6 ns, a launch 2 us.
    small = predict(known, Softmax(rows=1, columns=16))
    assert (small.bound, small.roof_s, small.terms["launch"]) == ("DRAM", pytest.approx(128 / 36e9), 0)
    assert small.time_s >= small.roof_s
    both = predict_many(known, "softmax", rows=np.array([1, 2]), columns=16)
    assert list(both.bound) == ["DRAM", "launch"] and both.roof_s == pytest.approx([128 / 36e9, 2e-6])


def test_a_report_says_how_long_threads_wait_for_each_other() -> None:
    table = kernel_table(kernel_times("rms_norm", "fused"))
    ((*_, joins, more),) = table.rows
    assert table.headers[-2:] == ("joins", "cold joins more") and joins.startswith("× ")
    assert float(joins.removeprefix("× ")) == pytest.approx(1.5, rel=0.2)
    assert float(more.removeprefix("× ")) == pytest.approx(0.8, rel=0.2)


def test_a_variant_is_charged_for_its_kernel() -> None:
    # 4000 rows of 40: 1.28 MB at 36 GB/s (copied past the caches), and 4000 times 9 ns.
    problem, known = RmsNorm(rows=4000, columns=40), kernel_times("rms_norm", "fused")
    bare, charged = predict(machine(), problem, variant="fused"), predict(known, problem, variant="fused")
    assert charged.parts["loops"] == pytest.approx(4000 * 9e-9, rel=0.15)
    assert charged.parts["start"] == pytest.approx(0.5e-6 + (1.5 + 0.8) * 2e-6, rel=0.15), "the machine's launch takes 2 µs"
    assert charged.time_s == pytest.approx(bare.time_s + sum(charged.parts[name] for name in ("kernel", "loops", "start")))
    assert predict(known, problem).time_s == predict(machine(), problem).time_s, "a model's operator has no kernel"


def test_large_problems_alone_say_nothing_of_a_start() -> None:
    """A third more than 10 ms, seen once and cold, is no start of 3 ms."""
    once = timed(Attention(seq_q=768, seq_kv=768, heads=4, head_dim=96), "tiled", 13e-3, memory_s=0.0, rest_s=10e-3, launch_s=2e-6)
    known = kernel_costs(knowing(once), Attention(), "tiled")
    assert known is not None
    assert known.start_s + known.cold_s < 1e-6
    assert known.caches < 1.34


def test_without_a_plan_costs_stand_beside_parts_without_one() -> None:
    """A kernel pads one query to sixteen lanes. A prediction without its plan does not know that, and the costs make up for it."""

    def parts_s(problem: Operator, lanes: int) -> tuple[float, float]:
        plan = {"variant": "tiled", "query_lanes": lanes} if lanes > 1 else None
        return memory_and_rest_s(predict(machine(), problem, variant="tiled", plan=plan).parts)

    problems = [Attention(seq_q=1, seq_kv=keys, kv_heads=heads, heads=heads) for heads in (2, 8) for keys in range(500, 9000, 700)]
    shown = []
    for problem in problems:
        memory_s, rest_s = parts_s(problem, 16)
        time_s = math.hypot(memory_s, rest_s)
        shown.append(dataclasses.replace(
            timed(problem, "tiled", time_s, memory_s=memory_s, rest_s=rest_s), unplanned=parts_s(problem, 1)
        ))  # fmt: skip
    held_out = Attention(seq_q=1, seq_kv=3333, kv_heads=4, heads=4)
    measured_s = math.hypot(*parts_s(held_out, 16))
    known, plan = knowing(*shown), {"variant": "tiled", "query_lanes": 16}
    assert predict(known, held_out, plan=plan).time_s == pytest.approx(measured_s, rel=0.05)
    assert predict(known, held_out, variant="tiled").time_s == pytest.approx(measured_s, rel=0.05)
    unaware = knowing(*(dataclasses.replace(each, unplanned=None) for each in shown))
    assert predict(unaware, held_out, variant="tiled").time_s < 0.8 * measured_s
    again = Machine.from_dict(known.to_dict()).kernels[0]
    assert again == shown[0] and again.unplanned != (again.memory_s, again.rest_s)


def test_disturbed_standard_problems_leave_predictions_near() -> None:
    exact, noisy = (kernel_times("rms_norm", "fused", noise) for noise in (0.0, 0.1))
    for rows, columns in ((4096, 4096), (4000, 40), (16, 1024)):
        problem = RmsNorm(rows=rows, columns=columns)
        times = [predict(each, problem, variant="fused").time_s for each in (exact, noisy)]
        assert times[1] == pytest.approx(times[0], rel=0.2)


def test_a_kernel_slower_than_memory_stays_so_when_memory_becomes_faster() -> None:
    """3 ms where memory takes 2: 3 = (2² + x²)^(1/2), x = 5^(1/2); with memory twice as fast (1 + 5)^(1/2) = 2.45 ms."""
    problem = Matmul(rows=1, columns=4096, inner=4096)
    sizes = [problem.replace(columns=columns) for columns in (2048, 4096, 6144)]
    shown = [timed(each, "tiled", 3e-3 * each.columns / 4096, memory_s=2e-3 * each.columns / 4096) for each in sizes]
    known = kernel_costs(knowing(*shown), problem, "tiled")
    assert known is not None
    times = [sum(known.more_s(problem, memory_s, 0.0, 0.0, cold=True).values()) for memory_s in (2e-3, 1e-3)]
    assert times == pytest.approx([3e-3, 2.45e-3], rel=0.06)


def test_what_a_standard_problem_shows_holds_near_it() -> None:
    """One of three problems takes twice what the others would have it: so does its neighbour, and nothing far off."""
    sizes = {rows: RmsNorm(rows=rows, columns=1024) for rows in (64, 4096, 2**18)}
    shown = [timed(p, "fused", 1e-9 * rows * (2 if rows == 4096 else 1), memory_s=0.0, rest_s=1e-9 * rows, cold=False)
             for rows, p in sizes.items()]  # fmt: skip
    known = kernel_costs(knowing(*shown), sizes[64], "fused")
    assert known is not None

    def time_s(problem: RmsNorm) -> float:
        return float(sum(known.more_s(problem, 0.0, 1e-9 * problem.rows, 0.0, cold=False).values()))

    at, near, far = (time_s(RmsNorm(rows=rows, columns=1024)) / (1e-9 * rows) for rows in (4096, 4500, 2**40))
    assert 1.5 < at < 2.1
    assert near == pytest.approx(at, rel=0.05)
    assert far < at
    doubts = [known.doubt(RmsNorm(rows=rows, columns=1024), 0.0, 1e-9 * rows, cold=False) for rows in (4096, 2**40)]
    assert doubts[0] < 0.2 < doubts[1]


def test_a_product_of_one_row_is_apart() -> None:
    """Rows of 1 take 1 ms, of 2 to 16 four: what several of each show is no compromise between them. The same in a batch."""
    sizes = [Matmul(rows=rows, columns=4096, inner=inner) for rows in (1, 2, 8, 16) for inner in (2048, 3072, 4096)]
    known = knowing(*(
        timed(p, "tiled", (1 if p.rows == 1 else 4) * 1e-3 * p.inner / 4096, memory_s=0, rest_s=1e-3 * p.inner / 4096, cold=False)
        for p in sizes
    ))  # fmt: skip

    def time_s(problem: Operator) -> Any:
        found = kernel_costs(known, problem, "tiled")
        assert found is not None
        return sum(found.more_s(problem, 0.0, 1e-3 * problem.inner / 4096, 0.0, cold=False).values())

    times = [time_s(Matmul(rows=rows, columns=4096, inner=2560)) for rows in (1, 4, 512)]
    assert times[:2] == pytest.approx([0.625e-3, 2.5e-3], rel=0.1)
    assert time_s(Matmul.many(rows=np.array([1, 4, 512]), columns=4096, inner=2560)) == pytest.approx(times)


def test_rows_of_a_table_are_no_run_of_pages() -> None:
    table = Embedding(tokens=64, vocabulary=1000, d_model=512, dtype="fp32")
    named = math.ceil(1000 * (1 - 0.999**64) * 2048)  # bytes of the rows that 64 of 1000 name
    assert cold_bytes(table, True, gpu=False) == (64 * 4 + named + 64 * 2048, 64 * 2048, (64 * 4 + 64 * 2048) / 4096)
    assert cold_bytes(table, True, gpu=True)[2] == 0, "a GPU fetches nothing ahead along pages"
    assert cold_bytes(table, False, gpu=False) == (0, 0, 0)


def test_threads_without_a_piece_of_work_make_it_longer() -> None:
    one, three = (Attention(heads=heads, seq_q=1, seq_kv=300) for heads in (1, 3))
    assert [unevenness(one, "tiled", threads) for threads in (1, 2, 64)] == [1, 2, 64]
    assert unevenness(three, "tiled", 2) == pytest.approx(4 / 3), "two of three heads on one thread"
    assert unevenness(one, "split_kv", 2) == 2, "300 keys are one range of 192 and more"
    assert unevenness(one.replace(seq_kv=384), "split_kv", 2) == 1
    assert unevenness(Matmul(), "tiled", 64) == 1, "shares by strips and rows, as many as there are threads"
    strips = Matmul(rows=8, columns=96)
    assert unevenness(strips, "tiled", 2) == pytest.approx(4 / 3), "two of three strips on one thread"
    assert unevenness(strips.replace(rows=224), "tiled", 2) == 1, "four parts of the rows of each"
    latent = MlaDecode(heads=64, seq_kv=300)
    assert unevenness(latent, "split_kv", 2) == 2 and unevenness(latent.replace(heads=128), "split_kv", 2) == 1
    alone = KernelCosts(variant="tiled", threads=2)
    assert sum(alone.more_s(one, 0.0, 3e-6, 0.0, cold=False).values()) == pytest.approx(6e-6)
    assert sum(alone.more_s(one, 3e-6, 0.0, 0.0, cold=True).values()) == pytest.approx(3e-6 * 2**0.5), "memory is shared by few"


def test_what_stands_for_a_kernel_is_named_and_widens() -> None:
    problem = RmsNorm(rows=4096, columns=4096)
    only = knowing(timed(problem, "fused", 4e-3, memory_s=3.7e-3), peak=ceilings()["fp32"])
    exact, other = predict(only, problem, variant="fused"), predict(only, problem.replace(dtype="bf16"), variant="fused")
    assert exact.most_s is None
    assert "no bf16 rms_norm fused was timed: kernels in fp32 stand for it" in other.notes
    assert other.most_s is not None and other.most_s > 1.2 * other.time_s
    assert any("no softmax fused was timed" in note for note in predict(only, Softmax(), variant="fused").notes)
    assert predict(machine(), Softmax(), variant="fused").notes == ()


@pytest.mark.parametrize(
    ("tiled_s", "library_s", "chosen"), [(1.0e-3, 2e-3, "tiled"), (2e-3, 1e-3, "library"), (1.0e-3, 0.99e-3, "tiled")]
)
def test_the_default_is_the_fastest_that_was_measured(tiled_s: float, library_s: float, chosen: str) -> None:
    """The rule is tiled; 1 % more is no reason to leave it."""
    problem = Matmul(rows=1, columns=3072, inner=3072)
    both = knowing(timed(problem, "tiled", tiled_s, memory_s=0.9e-3), timed(problem, "library", library_s, memory_s=0.9e-3))
    assert default_variant(both, problem, "cpu", lambda _: True) == chosen
    assert default_variant(None, problem, "cpu", lambda _: True) == "tiled"
    assert default_variant(both, problem, "cpu", lambda name: name != chosen) != chosen
    one = knowing(timed(problem, "library", library_s, memory_s=0.9e-3))
    assert default_variant(one, problem, "cpu", lambda _: True) == "tiled", "one alone says nothing of the other"


def test_a_kernel_timed_on_many_rows_alone_is_no_rival_for_one() -> None:
    many, one = Attention(seq_q=1024, seq_kv=1024), Attention(seq_q=1, seq_kv=4096)
    parts = {"memory_s": 0.9e-3, "rest_s": 1e-5}
    known = knowing(timed(many, "tiled", 1e-3, memory_s=1e-5, rest_s=1e-2), timed(one, "split_kv", 2e-3, **parts))
    assert default_variant(known, one, "cpu", lambda _: True) == "split_kv"
    rivals = knowing(timed(one, "tiled", 1e-3, **parts), timed(one, "split_kv", 2e-3, **parts))
    assert default_variant(rivals, one, "cpu", lambda _: True) == "tiled"


def test_least_squares_without_negative_numbers() -> None:
    # By itself the best x is (2, -1); with x₂ = 0 it is (1, 0), and more of x₂ only adds to the error.
    assert not_negative(np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([1.0, -1.0])) == pytest.approx([1, 0])
    draw = np.random.default_rng(0)
    for _ in range(20):
        a = draw.normal(size=(9, 4)) * 10.0 ** draw.integers(-6, 6, size=4)
        b = draw.normal(size=9)
        x = not_negative(a, b)
        slope = a.T @ (b - a @ x) / np.linalg.norm(a, axis=0)
        assert (x >= 0).all() and (slope < 1e-9).all() and np.abs(slope[x > 0]).max(initial=0.0) < 1e-9


def test_a_kernel_faster_than_its_parts_shortens_them() -> None:
    one = Relu(elements=12 << 20)
    quick = timed(one, "fused", one.compulsory_bytes() / 60e9, memory_s=3.2e-3, launch_s=2e-6)
    problem = Relu(elements=1 << 24)
    bare, charged = predict(machine(), problem, variant="fused"), predict(knowing(quick), problem, variant="fused")
    assert charged.time_s < 0.7 * bare.time_s
    assert sum(charged.parts.values()) >= charged.time_s > charged.parts["launch"]
    assert "kernel" not in {name for name, seconds in charged.parts.items() if seconds}


def test_no_part_is_negative_where_a_kernel_is_far_faster_than_its_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nearby, "share", lambda *_: -0.9)
    charged = predict(kernel_times("rms_norm", "fused"), RmsNorm(rows=2, columns=64), variant="fused")
    assert all(seconds >= 0 for seconds in charged.parts.values())
    assert charged.parts["start"] > 0
    assert sum(charged.parts.values()) >= charged.time_s > charged.parts["launch"]


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_parts_of_a_standard_problem_are_those_beside_known_costs(dtype: str) -> None:
    # The plan names int8, whose roof is at half of its ceiling just now: the problem's own arithmetic counts, at half of its rate.
    problem = QuantizedMatmul(rows=16, columns=1024, inner=1024, dtype=dtype, out_dtype=dtype)
    own = {"int8": fma(800e9, "int8", accumulator="int32"), "fp16": fma(250e9, "fp16")}
    plain, peak = machine(**own), {"fp32": 200e9, "fp16": 250e9}[dtype]
    known = dataclasses.replace(plain, kernels=(timed(problem, "tiled", 1e-3, memory_s=1e-4, rest_s=1e-4),))
    prepared: Any = SimpleNamespace(
        problem=problem, variant="tiled", plan={"variant": "tiled", "arithmetic": "int8"}, caches={},
        device=SimpleNamespace(facts={}),
        moved=lambda level: moved_bytes(problem, {"variant": "tiled"}, {}, level),
    )  # fmt: skip
    roofs = Roofs(compute_flops_per_s=400e9, bandwidth_bytes_per_s=40e9, floor_s=2e-6, level="DRAM")
    alone = from_rates(prepared, plain, "DRAM", "int8", own=True)(roofs)["parts"]
    assert alone["product"] == pytest.approx(2 * 16 * 1024 * 1024 / (peak / 2))
    beside = from_rates(prepared, known, "DRAM", "int8")(roofs)["parts"]
    assert beside["product"] / beside["DRAM"] == pytest.approx(alone["product"] / alone["DRAM"])
    untimed = from_rates(prepared, plain, "DRAM", "int8")(roofs)["parts"]
    assert untimed["product"] == pytest.approx(2 * 16 * 1024 * 1024 / 400e9), "without costs, what the kernel computes in"


def test_a_standard_problem_is_timed_again_where_launches_change_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[float] = []
    launch: Any = SimpleNamespace(
        kind="latency", sampled=lambda device, policy: {"samples_s": [launches.pop(0)]}, rates=lambda seconds: seconds
    )
    read: Any = SimpleNamespace(kind="bandwidth", sampled=lambda device, policy: {"samples_s": [1.0]}, rates=lambda _: [1e9])
    monkeypatch.setattr("roofline.ceilings.standard.roofs_of", lambda *_, **__: [launch, read])
    around = Surroundings(SimpleNamespace(facts={}), Machine(name="x", device="cpu"))  # type: ignore[arg-type]
    for seen, runs, floor_s, contended in (
        ([0.6e-6, 0.1e-6, 0.1e-6, 0.12e-6], 2, 0.1e-6, False), ([0.1e-6, 0.6e-6] * 3, 3, 0.1e-6, True),
    ):  # fmt: skip
        launches[:], ran = seen, []
        roofs, sampled = around.around(Relu(), "DRAM", lambda ran=ran: ran.append(1) or {"contended": False})
        assert (len(ran), sampled["contended"]) == (runs, contended) and roofs.floor_s == pytest.approx(floor_s)


def test_flushed_roofs_around_standard_problems_are_short() -> None:
    long, in_cache = ({"operator": "stream", "access": "read", "elements": 1 << 26} for _ in range(2))
    measured = machine(read=bandwidth(40e9, problem=long), L2=bandwidth(400e9, level="L2", problem=in_cache))
    for facts, elements in (({"flush": "clflushopt"}, 4 << 20), ({}, 1 << 26)):
        around = Surroundings(SimpleNamespace(facts=facts), measured)  # type: ignore[arg-type]
        assert around.machine.bandwidth("DRAM").problem == {**long, "elements": elements}
        assert around.machine.bandwidth("L2").problem == in_cache


def test_roofs_around_standard_problems_are_measured_again_when_old_or_launches_change(monkeypatch: pytest.MonkeyPatch) -> None:
    now, rate, measured = [0.0], [1.0], []
    monkeypatch.setattr("roofline.ceilings.standard.time.monotonic", lambda: now[0])
    probe: Any = SimpleNamespace(sampled=lambda device, policy: measured.append(now[0]) or {"samples_s": [rate[0]]}, rates=list)
    device: Any = SimpleNamespace(facts={})
    around = Surroundings(device, Machine(name="x", device="cpu"))

    def ask(at_s: float, launch_s: float = 0.4e-6, few: bool = False, expected: float = 0.0) -> None:
        now[0] = at_s
        assert around._rates(probe, launch_s, few) == [expected or rate[0]]

    apart, together = 0.4e-6, 0.1e-6  # cores that the host moves: each has its roofs
    for at_s, launch_s in ((0, apart), (3.9, 0.5e-6), (5, apart), (12.9, apart), (13, together), (14, apart), (14.05, together)):
        ask(at_s, launch_s)
    assert measured == [0, 5, 13, 14]
    ask(14.4, few=True)
    ask(14.7, few=True)  # around a problem of reports it holds 0.5 s
    rate[0] = 0.5
    ask(31)  # is another now, as a second look says too: holds 4 s
    ask(34.9)
    ask(35.1)
    assert measured == [0, 5, 13, 14, 14.7, 31, 31, 35.1]
    dips = iter((0.1, 0.5))
    probe.sampled = lambda device, policy: {"samples_s": [next(dips)]}
    ask(60, expected=0.5)
    around.device.facts["sms"] = 132
    rate[0], probe.sampled = 0.5, lambda device, policy: measured.append(now[0]) or {"samples_s": [rate[0]]}
    around._seen.clear()
    for at_s in (100, 159, 161, 280, 282):
        ask(at_s)
    assert measured[-3:] == [100, 161, 282], "a GPU's hold a minute, and two then"
