"""What would be measured of a GPU's arithmetic, by architecture, and what a measured rate is held against; no GPU is needed."""

from typing import Any

import numpy as np
import pytest
from reported import GPUS, Reported, gpu

from roofline import Attention, Fma, Machine, Matmul, Mma, Unsupported
from roofline.ceilings import wanted
from roofline.ceilings.measuring import _with_unit_rate
from roofline.counts import Array
from roofline.dtypes import dtype, from_float64, to_float64
from roofline.machine import Ceiling
from roofline.measurement import probing
from roofline.measurement.devices import Device
from roofline.measurement.disturbances import clock_hz
from roofline.model import compute_ceiling
from roofline.probes import Probe
from roofline.probes.compute import fma_problem
from roofline.probes.gpu_units import core_flops_per_s, peak_flops_per_s, tensor_problem, unit_of


def reported(architecture: str, gpu_name: str = "Example GPU", **missing: str) -> Reported:
    return gpu(
        architecture, (Mma, Matmul, Fma), missing=lambda variant, name: missing.get(f"{variant}_{name}", ""), gpu_name=gpu_name
    )


def labels(architecture: str, depth: str = "standard", **missing: str) -> list[str]:
    device = reported(architecture, **missing)
    return [what.label for _, what in wanted(device, depth) if what.kind == "compute"]


@pytest.mark.parametrize("architecture", GPUS)
def test_cores_and_tensor_units_are_asked_for(architecture: str) -> None:
    found = labels(architecture)
    assert len(found) == len(set(found))
    assert {"fp32", "fp64", "fp16", "fp64 tensor mma_sync", "fp16 tensor mma_sync", "fp8_e4m3→fp16 tensor mma_sync"} <= set(found)
    for name in ("tf32→fp32", "fp16→fp32", "bf16→fp32", "int8→int32", "fp8_e4m3→fp32"):
        assert f"{name} tensor mma_sync" in found
        assert (f"{name} tensor wgmma" in found) == (architecture == "sm_90")
    assert "int4→int32 tensor mma_sync" in found
    assert ("fp32 f32x2" in found) == (architecture in ("sm_100", "sm_103"))
    fp64 = "fp64 tensor" if architecture in ("sm_80", "sm_90", "sm_100") else "fp64"  # others have no such units
    products = {"fp32": "fp32", "fp64": fp64, "int8": "int8→int32 tensor"}
    for name in Matmul.variants["library"].dtypes["cuda"]:
        scales = " 1×16 scales in two levels" if name == "nvfp4" else ""
        words = products.get(name, f"{name}→fp32 tensor")
        assert {f"{words} GEMM {size}{scales}" for size in ("8192", "4096", "16384×8192×8192")} <= set(found)
    assert "bf16→fp32 tensor GEMM 8191" in found
    for scales in ("tensor", "row", "1×128", "128×128", "1×32"):
        assert f"fp8_e4m3→fp32 tensor GEMM 8192 {scales} scales" in found
    assert not any(word in label for label in found for word in ("zeros", "constant", "sustained"))


def test_quick_asks_for_the_fastest_and_thorough_for_all_data_and_a_long_load() -> None:
    quick, thorough = labels("sm_90", "quick"), labels("sm_90", "thorough")
    assert set(quick) <= set(labels("sm_90")) <= set(thorough)
    assert "bf16→fp32 tensor wgmma" in quick
    assert "bf16→fp32 tensor mma_sync" not in quick
    for data in ("zeros", "constant"):
        assert f"bf16→fp32 tensor wgmma {data}" in thorough
    assert [what.label for _, what in wanted(reported("sm_90"), "thorough") if what.sustained] == [
        "bf16→fp32 tensor wgmma sustained"
    ]


def test_what_cannot_run_is_left_out_with_the_reason() -> None:
    device = reported("sm_80", mma_sync_fp8_e4m3="it needs sm_89, and this GPU is sm_80")
    found = {what.label: what for _, what in wanted(device)}
    with pytest.raises(Unsupported, match="it needs sm_89, and this GPU is sm_80"):
        found["fp8_e4m3→fp32 tensor mma_sync"].require()
    refusal = "mma.sync of int4 is made of int8 products"
    found = {what.label: what for _, what in wanted(reported("sm_90", mma_sync_int4=refusal))}
    with pytest.raises(Unsupported, match=refusal):
        found["int4→int32 tensor mma_sync"].require()
    slow = {what.label: what for _, what in wanted(reported("sm_89"))}
    with pytest.raises(Unsupported, match=r"one launch would take 1\.1 s or more: fp64 is too slow here"):
        slow["fp64 GEMM 8192"].require()


@pytest.mark.parametrize("architecture", GPUS)
def test_probes_fill_the_gpu_and_last_about_two_milliseconds(architecture: str) -> None:
    device = reported(architecture)
    sms = device.facts["sms"]
    for variant, declared in Mma.variants.items():
        for name in declared.dtypes["cuda"]:
            problem = tensor_problem(device, variant, name)
            resident = 2 if variant == "wgmma" else 8 if name == "fp64" else 12
            assert problem.tiles % (sms * resident) == 0
            assert problem.steps % 2 == 1, "an even number of steps would give zeros"
            assert problem.suits(variant, "cuda")
            seconds = problem.total_flops() / peak_flops_per_s(device, name, unit_of(device, problem))
            assert 1e-3 < seconds < 30e-3 if name == "fp64" else 1.5e-3 < seconds < 2.1e-3
    for name in ("fp32", "fp16"):
        fma = fma_problem(device, name)
        assert fma.chains == sms * 2048 * 8 * (2 if name == "fp16" else 1)
        assert fma.steps % 2 == 1


def test_units() -> None:
    hopper, ada, cpu = reported("sm_90"), reported("sm_89"), reported("sm_90")
    cpu.name, cpu.facts = "cpu", {"cpu_name": "Example CPU"}
    assert unit_of(hopper, Matmul(dtype="bf16")) == "tensor"
    assert unit_of(hopper, Matmul(dtype="fp32")) == "core"
    assert (unit_of(hopper, Matmul(dtype="fp64")), unit_of(ada, Matmul(dtype="fp64"))) == ("tensor", "core")
    assert unit_of(hopper, Mma()) == "tensor"
    assert unit_of(hopper, Fma(dtype="fp16")) == "core"
    assert unit_of(cpu, Matmul(dtype="bf16")) == "core"


@pytest.mark.parametrize(
    ("architecture", "name", "refused", "expected"),
    [
        ("sm_80", "bf16", (), ("mma", "mma_sync", "bf16")),
        ("sm_80", "fp64", (), ("mma", "mma_sync", "fp64")),
        ("sm_80", "fp8_e4m3", ("mma_sync fp8_e4m3",), ("mma", "mma_sync", "fp16")),
        ("sm_86", "int4", (), ("mma", "mma_sync", "int4")),
        ("sm_90", "int4", ("mma_sync int4",), ("mma", "wgmma", "int8")),
        ("sm_89", "fp64", (), None),  # no such units: the cores
        ("sm_90", "bf16", (), ("mma", "wgmma", "bf16")),
        ("sm_90", "bf16", ("wgmma",), ("mma", "mma_sync", "bf16")),
        ("sm_90", "fp32", (), None),
        ("sm_100", "bf16", (), ("matmul", "library", "bf16")),
        ("sm_100", "bf16", ("library",), ("mma", "mma_sync", "bf16")),
        ("sm_120", "int8", (), ("mma", "mma_sync", "int8")),
    ],
)
def test_the_roof_of_products_is_the_fastest_way_to_the_units(
    monkeypatch: pytest.MonkeyPatch, architecture: str, name: str, refused: tuple[str, ...], expected: Any
) -> None:
    def ready(device: Device, probe: Probe, problem: Any, variant: str) -> Any:
        if variant in refused or f"{variant} {problem.dtype}" in refused:
            raise Unsupported("refused")
        assert probe.operator == problem.name
        return problem.name, variant, problem.dtype

    monkeypatch.setattr(probing, "ready", ready)
    assert probing.tensor_probe(reported(architecture), name) == expected


def made(value: float, **fields: Any) -> Ceiling:
    given: dict[str, Any] = {
        "probe": "mma", "samples": (value,), "dtype": "bf16", "accumulator": "fp32", "unit": "tensor", "clock_hz": 1.5e9,
        "variant": "wgmma", "problem": {"operator": "mma", "data": "random"},
    }  # fmt: skip
    return Ceiling(**given | fields)


def test_a_rate_above_what_the_units_do_is_implausible() -> None:
    device = reported("sm_90")
    peak = 132 * 4096 * 1.5e9
    good = _with_unit_rate(made(0.97 * peak), device)
    assert (good.ops_per_cycle, good.status) == (4096, "ok")
    high = _with_unit_rate(made(1.05 * peak), device)
    assert high.status == "implausible"
    assert high.reason.startswith("105 % of what its units do at the measured clock")
    estimated = made(1.05 * peak, dtype="fp16", accumulator="fp16")
    assert _with_unit_rate(estimated, device).status == "ok", "no source states the limit"
    assert _with_unit_rate(made(2 * peak, clock_hz=None), device).status == "ok"
    machine = Machine(name="m", device="cuda:0", facts=device.facts, ceilings=(good,))
    assert machine.sanity() == []


def test_the_clock_is_that_of_the_batches_where_they_tell() -> None:
    around = {"clock_before_hz": 1.9e9, "clock_after_hz": 1.8e9}
    assert clock_hz({**around, "conditions": {"sm_clock_in_batches_hz": 1.4e9}}) == 1.4e9
    assert clock_hz({**around, "conditions": {}}) == clock_hz(around) == 1.9e9


def test_a_library_is_held_against_the_fastest_sums() -> None:
    """A GeForce adds up fp16 products in fp16 at twice the rate."""
    device = reported("sm_89", "NVIDIA GeForce Example")
    peak = 142 * 512 * 1.5e9
    product = made(1.9 * peak, probe="gemm.square", dtype="fp16", variant="library", params={"size": 8192})
    assert (_with_unit_rate(product, device).status, _with_unit_rate(product, device).ops_per_cycle) == ("ok", 1024)
    assert _with_unit_rate(made(1.9 * peak, dtype="fp16"), device).status == "implausible"


def test_products_meet_the_tensor_roof_of_random_data() -> None:
    ceilings = (
        made(60e12, probe="fma", dtype="fp32", accumulator="fp32", unit="core", variant="registers"),
        made(700e12),
        made(800e12, probe="mma.flat", params={"data": "zeros"}),
        made(600e12, variant="mma_sync"),
    )
    machine = Machine(name="m", device="cuda:0", ceilings=ceilings)
    assert compute_ceiling(machine, Matmul(dtype="bf16"), None, None)[0].value == 700e12
    assert compute_ceiling(machine, Attention(dtype="bf16"), None, None)[0].value == 700e12
    assert [c.name for c in ceilings[1:]] == [
        "bf16→fp32 tensor wgmma", "bf16→fp32 tensor wgmma zeros", "bf16→fp32 tensor mma_sync"
    ]  # fmt: skip
    assert ceilings[2].diagnostic


# -- operands -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8", "int32"])
def test_numbers_are_stored_as_the_nearest(name: str) -> None:
    x = np.random.default_rng(1).uniform(-100, 100, 4000)
    x = np.round(x) if name.startswith("int") else x
    kept = to_float64(from_float64(x, name), name)
    assert (np.abs(kept - x) <= np.abs(x) * dtype(name).eps / 2).all()
    assert (to_float64(from_float64(kept, name), name) == kept).all()
    assert (to_float64(from_float64(-x, name), name) == -kept).all()
    assert len(np.unique(kept)) > 100


def test_ties_go_to_the_even_number() -> None:
    assert list(to_float64(from_float64(np.array([17.0, 19.0, 0.0009765625, -17.0, 1e9]), "fp8_e4m3"), "fp8_e4m3")) == [
        16, 20, 0, -16, 448
    ]  # fmt: skip
    assert list(to_float64(from_float64(np.array([257.0, 259.0]), "bf16"), "bf16")) == [256, 260]
    assert list(from_float64(np.array([2049.0, 2051.0]), "tf32")) == [2048, 2052]


def test_what_is_no_product_is_held_against_the_cores() -> None:
    """256 operations per cycle of 132 multiprocessors at 1.8 GHz, whatever the tensor units do."""
    assert core_flops_per_s(reported("sm_90")) == 256 * 132 * 1.8e9


def test_operands_are_what_the_data_field_says() -> None:
    generator = np.random.default_rng(0)
    for name in ("fp64", "tf32", "fp16", "bf16", "int8", "int4", "fp8_e4m3"):
        for data in ("random", "constant", "zeros"):
            problem = Mma(dtype=name, data=data, tiles=3)
            a, b = (to_float64(problem.initial(each, generator), name) for each in "ab")  # type: ignore[arg-type]
            assert (a.shape, b.shape) == (problem.inputs()[0].shape, problem.inputs()[1].shape)
            assert (a[1] == -a[0]).all()
            distinct = len(np.unique(b))
            assert distinct > {"int4": 14, "fp8_e4m3": 28}.get(name, 50) if data == "random" else distinct == 1
            assert (b == {"constant": 1.0, "zeros": 0.0}.get(data, b)).all()


def truncated_sum(c: Array, products: Array, kept: int) -> Array:
    """c and the products of one instruction, each cut `kept` bits below the largest of them, and their sum."""
    largest = np.maximum(np.abs(products).max(axis=0), np.abs(c))
    unit = 2.0 ** (np.floor(np.log2(np.maximum(largest, 2.0**-60))) - kept)
    total: Array = (np.trunc(products / unit).sum(axis=0) + np.trunc(c / unit)) * unit
    return total


@pytest.mark.parametrize(
    ("dtype", "accumulator", "kept"),
    [("fp16", "", 23), ("bf16", "", 23), ("tf32", "", 23), ("fp8_e4m3", "", 12), ("fp16", "fp16", 10), ("fp8_e4m3", "fp16", 10)],
)
def test_sums_of_random_products_do_not_drift(dtype: str, accumulator: str, kept: int) -> None:
    """A unit that truncates every instruction's sum ends where exact arithmetic does, after any number of steps."""
    generator = np.random.default_rng(2)
    for variant, at_once in (("mma_sync", 8), ("wgmma", 32)):
        if variant == "wgmma" and accumulator:
            continue
        problem = Mma.make(tiles=1, steps=401, dtype=dtype, accumulator=accumulator, **Mma.tile(variant, dtype))
        tensors = {name: to_float64(problem.initial(name, generator), dtype) for name in "ab"}  # type: ignore[arg-type]
        assert 0.9 < tensors["b"].var() < 1.1
        products = np.einsum("sik,jk->skij", tensors["a"][:, 0, :16], tensors["b"][0, :64])
        c = np.zeros(products.shape[2:])
        for step in range(problem.steps):
            for first in range(0, problem.inner, at_once):
                c = truncated_sum(c, products[step % 2, first : first + at_once], kept)
        assert np.abs(c).max() < 60
        assert (c == problem.reference(tensors)["c"][0, :16, :64]).all()


def test_any_steps_of_any_operands_are_summed() -> None:
    """Beyond 64 steps the reference multiplies by their number; a[1] need not be -a[0]."""
    generator = np.random.default_rng(3)
    tensors = {"a": generator.standard_normal((2, 2, 3, 4)), "b": generator.standard_normal((2, 5, 4))}
    for steps in (1, 2, 63, 64, 65, 1001):
        whole = Mma(tiles=2, rows=3, columns=5, inner=4, steps=steps).reference(tensors)["c"]
        expected = sum(np.einsum("tik,tjk->tij", tensors["a"][step % 2], tensors["b"]) for step in range(steps))
        assert np.allclose(whole, expected)
        rows = np.array([0, 4, 5])
        some = Mma(tiles=2, rows=3, columns=5, inner=4, steps=steps).reference(tensors, rows)["c"]
        assert np.allclose(some, whole.reshape(-1, 5)[rows])
