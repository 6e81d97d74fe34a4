"""Formats that NumPy has no arrays of: their bits, their rounding and how they lie in memory, against ml_dtypes and by hand."""

import numpy as np
import pytest

from roofline import Matmul, Unsupported
from roofline.dtypes import dtype, from_float64, to_float64
from roofline.measurement import open_device
from roofline.measurement.tensors import allocate, allocate_all, bind
from roofline.tensor_spec import TensorSpec, size_bytes

ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs ml_dtypes")

EIGHT = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "fp8_e8m0": "float8_e8m0fnu"}
FOUR = {"nvfp4": "float4_e2m1fn", "int4": "int4"}


def packed(codes: np.ndarray) -> np.ndarray:
    return (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)


@pytest.mark.parametrize("name", EIGHT)
def test_every_code_of_eight_bits(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    expected = codes.view(getattr(ml_dtypes, EIGHT[name])).astype(np.float64)
    found = to_float64(codes, name)
    np.testing.assert_array_equal(found, expected)
    finite = np.isfinite(found)
    np.testing.assert_array_equal(from_float64(found[finite], name), codes[finite])


@pytest.mark.parametrize("name", FOUR)
def test_every_code_of_four_bits(name: str) -> None:
    codes = np.arange(16, dtype=np.uint8)
    expected = (codes if name == "nvfp4" else codes | (codes & 8) * 30).view(getattr(ml_dtypes, FOUR[name])).astype(np.float64)
    np.testing.assert_array_equal(to_float64(packed(codes), name), expected)
    np.testing.assert_array_equal(from_float64(expected, name), packed(codes))
    assert to_float64(np.array([[0x21, 0x43]], dtype=np.uint8), "int4").tolist() == [[1, 2, 3, 4]]


def test_nvfp4_rounds_to_nearest_even_and_saturates() -> None:
    x = np.random.default_rng(3).normal(size=(7, 1000)) * 3
    x[0, :8] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 100]
    expected = x.astype(ml_dtypes.float4_e2m1fn).astype(np.float64)
    np.testing.assert_array_equal(to_float64(from_float64(x, "nvfp4"), "nvfp4"), expected)
    assert to_float64(from_float64(np.array([-9.0, 9.0, 2.5, 3.5]), "int4"), "int4").tolist() == [-8, 7, 2, 4]


def test_sizes_and_shapes_of_what_is_packed() -> None:
    assert size_bytes((3, 5), "nvfp4") == 8
    assert dtype("int4").stored_shape((2, 3, 8)) == (2, 3, 4)
    assert dtype("fp8_e8m0").stored_shape((2, 3)) == (2, 3)
    with pytest.raises(Unsupported, match="stored two to a byte along the last dimension, which must be even, got 5"):
        dtype("nvfp4").stored_shape((4, 5))


@pytest.mark.all_cores
@pytest.mark.parametrize("threads", [1, 2])
def test_random_numbers_of_few_bits(threads: int) -> None:
    device = open_device("cpu", threads)
    for name in ("int4", "nvfp4"):
        held = allocate(device, TensorSpec(name="x", shape=(31, 642), dtype=name), 5, 1)
        raw = held.raw()
        assert raw.shape == (31, 321)
        assert held.guards_intact()
        counts = np.bincount(np.concatenate([raw.ravel() & 15, raw.ravel() >> 4]), minlength=16)
        assert (abs(counts - raw.size / 8) < 6 * np.sqrt(raw.size / 8)).all(), "every bit pattern equally often"
        again = allocate(open_device("cpu"), TensorSpec(name="x", shape=(31, 642), dtype=name), 5, 1)
        np.testing.assert_array_equal(again.raw(), raw)
    scales = allocate(device, TensorSpec(name="s", shape=(999,), dtype="fp8_e8m0"), 5, 1)
    assert set(to_float64(scales.raw(), "fp8_e8m0")) == {0.5, 1, 2}


def test_scales_are_made_as_the_formats_have_them() -> None:
    device = open_device("cpu")
    common = {"rows": 8, "columns": 16, "inner": 64, "scale_bits": 8}
    nv = allocate_all(device, Matmul(**common, dtype="nvfp4", scales="two_level", scale_block=16), 1)  # type: ignore[arg-type]
    assert (nv["a"].raw().shape, nv["b"].raw().shape) == ((8, 32), (64, 8))
    assert (nv["a_scale"].spec.dtype, nv["a_scale"].raw().shape) == ("fp8_e4m3", (8, 4))
    assert (nv["b_scale"].raw().shape, nv["b_whole"].spec.dtype) == ((4, 16), "fp32")
    found = to_float64(nv["b_scale"].raw(), "fp8_e4m3")
    assert found.min() >= 0.5
    assert found.max() <= 1.75
    mx = allocate_all(device, Matmul(**common, dtype="fp8_e4m3", scales="block", scale_block=32), 1)  # type: ignore[arg-type]
    assert (mx["a_scale"].spec.dtype, mx["b_scale"].raw().shape) == ("fp8_e8m0", (2, 16))


def test_a_product_with_scales_by_hand() -> None:
    """Row 0 of a: 1 2 with a scale of 2, then 3 4 with one of 4; b: ones, scaled by 8 and 1/2 in both columns together."""
    problem = Matmul(rows=1, columns=2, inner=4, dtype="nvfp4", scales="two_level", scale_block=2, scale_columns=2, scale_bits=8)
    tensors = {
        "a": np.array([[1.0, 2, 3, 4]]), "b": np.ones((4, 2)), "a_scale": np.array([[2.0, 4]]), "b_scale": np.array([[8.0], [0.5]]),
        "a_whole": np.array([10.0]), "b_whole": np.array([-1.0]),
    }  # fmt: skip
    want = -10 * (3 * 2 * 8 + 7 * 4 * 0.5)
    assert problem.reference(tensors)["c"].tolist() == [[want, want]]
    rows = problem.replace(rows=2, scales="row", dtype="fp8_e4m3", scale_bits=32)
    of_rows = {**tensors, "a": np.ones((2, 4)), "a_scale": np.array([2.0, 3]), "b_scale": np.array([5.0, 7])}
    assert rows.reference(of_rows)["c"].tolist() == [[40, 56], [60, 84]]
    assert rows.reference(of_rows, np.array([1]))["c"].tolist() == [[60, 84]]


def test_scales_that_no_kernel_takes_are_refused() -> None:
    with pytest.raises(Unsupported, match="its kernels on a CPU take no scales; use scales none"):
        device, problem = open_device("cpu"), Matmul(rows=2, columns=2, inner=2, scales="tensor")
        bind(device, problem, "library", allocate_all(device, problem, 1))
