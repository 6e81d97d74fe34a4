"""Standard problems of a GPU, and what its kernels teach a prediction; no GPU is needed."""

import collections
import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

import pytest
from reported import gpu

from roofline import Machine, predict
from roofline.ceilings.standard import kept_fields
from roofline.kernel_costs import kernel_costs, problem_of
from roofline.machine import Ceiling, KernelTime
from roofline.nearby import features_of, vector_bytes
from roofline.operators import OPERATORS, Attention, Ffn, GroupedMatmul, Matmul, Operator, RmsNorm
from roofline.prediction import memory_and_rest_s
from roofline.probes.draws import DRAWN, Draw, drawn
from roofline.probes.standard import standard_problems

NVFP4 = "it needs sm_100"
H200 = gpu("sm_90", missing=lambda variant, dtype: NVFP4 if dtype == "nvfp4" else "", gpu_name="NVIDIA H200", max_clock_hz=1.98e9)


def test_every_kernel_of_a_gpu_has_problems_that_its_libraries_take() -> None:
    asked = list(standard_problems(H200, "standard"))
    assert len(asked) == len(set(asked)) and {standard.cold for standard in asked} == {True, False}
    per_kernel = collections.Counter((s.problem.name, s.variant, s.problem.to_dict()["dtype"]) for s in asked)
    assert set(per_kernel) == {
        (name, variant, dtype)
        for name in DRAWN
        for variant, declared in OPERATORS[name].variants.items()
        for dtype in declared.dtypes.get("cuda", ())
        if dtype != "nvfp4"
    }
    assert min(per_kernel.values()) >= 24
    for standard in asked:
        fields = standard.problem.to_dict()
        assert standard.problem.suits(standard.variant, "cuda")
        assert fields.get("kv_dtype", fields["dtype"]) == fields["dtype"], "split_kv takes a cache in the dtype of the queries"
        if fields["dtype"] in ("int8", "fp8_e4m3"):  # cuBLASLt takes multiples of 16
            assert fields["columns"] % 16 == fields["inner"] % 16 == 0
    rows = [s.problem.to_dict()["rows"] for s in asked if s.problem.name == "matmul"]
    assert max(rows) > 4 * 1024 and min(rows) == 1
    assert not list(standard_problems(H200, "report")), "a report of a GPU chooses its points by the size of the GPU"


def test_a_machine_file_keeps_each_standard_problem() -> None:
    """kv_heads that are as many as of Attention() are no default of 16 heads."""
    for standard in standard_problems(H200, "standard"):
        assert problem_of({"operator": standard.problem.name, **kept_fields(standard.problem)}) == standard.problem


@pytest.mark.parametrize(("operator", "variant", "dtype"), [("attention", "tiled", "bf16"), ("softmax", "fused", "fp32")])
def test_the_start_of_a_kernel_on_a_gpu_is_learned(operator: str, variant: str, dtype: str) -> None:
    """Beyond launch and roofs its kernels take 6 µs and 20 ns an element of the longest loops; they reach 0.7 of the arithmetic."""
    shared = {"samples": (4e12,), "level": "HBM", "variant": "plain"}
    plain = Machine(
        name="NVIDIA H200", device="cuda:0", facts=H200.facts,
        ceilings=(
            *(Ceiling(probe="stream", access=access, **shared) for access in ("read", "copy", "update")),
            Ceiling(probe="stream", access="read", level="L2", variant="plain", samples=(9e12,)),
            Ceiling(probe="fma", dtype="fp32", accumulator="fp32", samples=(60e12,)),
            Ceiling(probe="mma", dtype="bf16", accumulator="fp32", unit="tensor", samples=(800e12,)),
            Ceiling(probe="launch", samples=(1.3e-6,)),
        ),
    )  # fmt: skip

    def true_s(problem: Operator, parts: Mapping[str, float]) -> float:
        memory_s, rest_s = memory_and_rest_s(parts)
        start_s = 6e-6 + 20e-9 * problem.critical_path({"variant": variant}, 132)
        return float(parts["launch"] + start_s + (memory_s**2 + (rest_s / 0.7) ** 2) ** 0.5)

    kernels, errors, before = [], [], []
    for problem, name, cold in standard_problems(H200, "standard"):
        if (problem.name, name) == (operator, variant):
            parts = predict(plain, problem, variant=variant, level="HBM" if cold else "L2").parts
            memory_s, rest_s = memory_and_rest_s(parts)
            kernels.append(KernelTime(
                problem={"operator": operator, **problem.to_dict()}, variant=variant, cold=cold, launch_s=parts["launch"],
                memory_s=memory_s, rest_s=rest_s, samples_s=(true_s(problem, parts),), sms=132,
            ))  # fmt: skip
    knowing = dataclasses.replace(plain, kernels=tuple(kernels))
    draw = Draw(1)
    draw.backend = "cuda"
    while len(errors) < 60:
        held_out = drawn(operator, dtype, draw)
        if held_out is None or not held_out.suits(variant, "cuda"):
            continue
        roofs_say = predict(plain, held_out, variant=variant)
        wanted_s = true_s(held_out, roofs_say.parts)
        before.append(abs(roofs_say.time_s / wanted_s - 1))
        errors.append(abs(predict(knowing, held_out, variant=variant).time_s / wanted_s - 1))
    assert statistics.median(errors) < 0.02 and max(errors) < 0.25
    assert statistics.median(before) > 0.3, "what roofs alone say"


def test_the_busiest_multiprocessor_of_a_gpu_goes_through_so_many_elements() -> None:
    prefill = Attention(batch=2, heads=8, kv_heads=8, seq_q=1024, seq_kv=1024, head_dim=64, dtype="bf16")

    def path(variant: str, **changes: Any) -> float:
        return float(prefill.replace(**changes).critical_path({"variant": variant}, 132))

    assert path("tiled") == 1024, "128 blocks of 128 queries, one on each"
    assert path("tiled", batch=3) == 2 * 1024, "192 blocks"
    assert path("tiled", batch=3, causal=True) == 2 * 512.5, "a query sees 512.5 keys on average"
    assert path("tiled", causal=True) == 1024, "the last query of a head sees all"
    assert path("tiled", head_dim=96) == path("tiled", head_dim=128) == 2.5 / 1.5 * 1024, "the kernel is that for 128"
    assert path("tiled", kv_heads=1, seq_q=3, batch=132) == 1024, "24 rows, of all heads of a KV head"
    assert path("warp_specialized", batch=3) == 2 * 1024, "24 heads of six blocks of up to 192 queries"
    assert path("warp_specialized", seq_q=960, batch=3) == 1024, "of five"
    assert path("split_kv") == 0, "keys are shared too"
    assert path("tiled", dtype="fp32") == 8 * 1024, "on CUDA cores"
    # Scores: 16 x 8 x 16 blocks of 128 by 64, sixteen on one of 132, of 64 each; then 16 x 8 x 1 blocks of 1024 keys.
    assert path("naive") == 16 * 64 + 1024
    assert path("naive", causal=True) == 8 * 64 + 1024, "the blocks that see no key are passed over"
    assert Matmul(rows=129, columns=256, inner=512).critical_path({"variant": "library"}, 132) == 256 + 128, "two share each sum"
    assert Matmul(rows=1, columns=64, inner=12800).critical_path({"variant": "library"}, 132) == 1280 + 9 * 128, "ten"
    assert Matmul(rows=8320, columns=128, inner=12800).critical_path({"variant": "library"}, 130) == 6400 + 128, "65 blocks"
    assert Matmul(rows=128 * 133, columns=128, inner=512).critical_path({"variant": "library"}, 132) == 2 * 512
    assert Ffn(d_model=256, d_ff=512, activation="relu").critical_path({"variant": "fused"}, 132) == 256 + 512, "none is shared"
    assert RmsNorm(rows=100, columns=4096).critical_path({"variant": "fused"}, 132) == 4096


def test_rows_that_vectors_cross_are_far_from_others_on_a_gpu() -> None:
    def vectors(columns: int) -> int:
        return int(vector_bytes(RmsNorm(rows=8, columns=columns, dtype="bf16"), "fused", 132))

    def last(columns: int, *, gpu: bool) -> tuple[float, int]:
        found = features_of(
            RmsNorm(rows=8, columns=columns, dtype="bf16"), (1, 1), 1e-6, 1e-7, 1e-6, vectors(columns) if gpu else None
        )
        return float(found[-1]), len(found)

    assert [last(columns, gpu=True)[0] for columns in (1024, 1028, 1026, 1025)] == [0, 2, 4, 6]
    assert last(1024, gpu=True)[1] == last(1024, gpu=False)[1] + 1
    assert [vectors(columns) for columns in (1024, 1028, 1026, 1025)] == [16, 8, 4, 2]
    odd = Attention(seq_kv=1025, dtype="bf16")
    assert vector_bytes(odd, "tiled", 132) == 16 and vector_bytes(odd, "library", 132) == 2, "rows of probabilities"
    assert vector_bytes(odd, "library", 0) is None


def test_kernels_of_a_gpu_that_load_no_whole_vectors_have_costs_of_their_own() -> None:
    """bf16 rows of even numbers of columns that are no multiples of 8 start 3 µs later; what others take says nothing of them."""

    def timed(columns: int) -> KernelTime:
        problem = {"operator": "rms_norm", "rows": 64, "columns": columns, "dtype": "bf16"}
        late_s = 0.0 if columns % 8 == 0 else 3e-6
        return KernelTime(
            problem=problem, variant="fused", cold=False, launch_s=1e-6, memory_s=0.0, rest_s=1e-9 * columns, sms=132,
            samples_s=(2e-6 + late_s + 2e-9 * columns,),
        )  # fmt: skip

    columns = [round(64 * 1.37**n) // 2 * 2 for n in range(16)]
    machine = Machine(
        name="H200", device="cuda:0", kernels=tuple(timed(n) for each in columns for n in (each // 8 * 8, each // 8 * 8 + 2))
    )
    for each in (72, 400, 3000, 74, 402, 3002):
        costs = kernel_costs(machine, RmsNorm(rows=64, columns=each, dtype="bf16"), "fused")
        assert costs is not None
        costs = dataclasses.replace(costs, nearby=None)
        more = costs.more_s(RmsNorm(rows=64, columns=each, dtype="bf16"), 0.0, 1e-9 * each, 0.0, cold=False, launch_s=1e-6)
        assert sum(more.values()) == pytest.approx((1e-6 if each % 8 == 0 else 4e-6) + 2e-9 * each, rel=0.05)


def test_rows_of_experts_that_are_not_whole_16_bytes_go_to_the_library_on_a_gpu() -> None:
    odd = GroupedMatmul(tokens=4, experts=8, experts_per_token=2, d_model=1081, d_ff=3811)
    assert odd.default_variant("cuda") == "library" and odd.replace(d_model=1080, d_ff=3808).default_variant("cuda") == "tiled"
    assert odd.default_variant("cpu") == "tiled"
