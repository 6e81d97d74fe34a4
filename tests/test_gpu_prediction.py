"""Standard problems of a GPU, and what its kernels teach a prediction; no GPU is needed."""

import collections
import dataclasses
import statistics
from collections.abc import Mapping

import pytest
from reported import Reported

from roofline import Machine, predict
from roofline.machine import Ceiling, KernelTime
from roofline.operators import OPERATORS
from roofline.prediction import memory_and_rest_s
from roofline.probes.draws import DRAWN, Draw, drawn
from roofline.probes.standard import standard_problems

NVFP4 = "it needs sm_100"
H200 = Reported(
    "cuda:0", OPERATORS.values(), lambda variant, dtype: NVFP4 if dtype == "nvfp4" else "", gpu_name="NVIDIA H200",
    architecture="sm_90", sms=132, threads_per_sm=2048, max_clock_hz=1.98e9, l2_bytes=50 << 20, memory_bytes=141 << 30,
)  # fmt: skip


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


@pytest.mark.parametrize(("operator", "variant", "dtype"), [("attention", "tiled", "bf16"), ("softmax", "fused", "fp32")])
def test_the_start_of_a_kernel_on_a_gpu_is_learned(operator: str, variant: str, dtype: str) -> None:
    """Its kernels take 6 µs more than launch and roofs, and reach 0.7 of the arithmetic: of no ceiling's making."""
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

    def true_s(parts: Mapping[str, float]) -> float:
        memory_s, rest_s = memory_and_rest_s(parts)
        return parts["launch"] + 6e-6 + float((memory_s**2 + (rest_s / 0.7) ** 2) ** 0.5)

    kernels, errors, before = [], [], []
    for problem, name, cold in standard_problems(H200, "standard"):
        if (problem.name, name) == (operator, variant):
            parts = predict(plain, problem, variant=variant, level="HBM" if cold else "L2").parts
            memory_s, rest_s = memory_and_rest_s(parts)
            kernels.append(KernelTime(
                problem={"operator": operator, **problem.to_dict()}, variant=variant, cold=cold, launch_s=parts["launch"],
                memory_s=memory_s, rest_s=rest_s, samples_s=(true_s(parts),),
            ))  # fmt: skip
    knowing = dataclasses.replace(plain, kernels=tuple(kernels))
    draw = Draw(1)
    draw.backend = "cuda"
    while len(errors) < 60:
        held_out = drawn(operator, dtype, draw)
        if held_out is None or not held_out.suits(variant, "cuda"):
            continue
        roofs_say = predict(plain, held_out, variant=variant)
        wanted_s = true_s(roofs_say.parts)
        before.append(abs(roofs_say.time_s / wanted_s - 1))
        errors.append(abs(predict(knowing, held_out, variant=variant).time_s / wanted_s - 1))
    assert statistics.median(errors) < 0.02 and max(errors) < 0.25
    assert statistics.median(before) > 0.3, "what roofs alone say"
