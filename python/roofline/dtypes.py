"""Element types: their widths, and the bits that NumPy stores of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .counts import Array
from .errors import Error, Unsupported
from .words import hint, spelled


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """An element type: its width in bits and how NumPy stores its bits (None where kernels have no such tensors).

    Of 4 bits two are stored in a byte, the first in its low bits: an array of [..., n] elements is one of [..., n / 2] bytes.
    """

    name: str
    bits: int
    storage: str | None
    eps: float  # spacing of numbers just above 1 (0 for integers)

    @property
    def packed(self) -> int:
        """Elements of one stored number."""
        return 2 if self.bits == 4 else 1

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the array that holds so many elements. Raises Unsupported if the last dimension is no whole bytes."""
        if shape and shape[-1] % self.packed:
            raise Unsupported(f"{self.name} is stored two to a byte along the last dimension, which must be even, got {shape[-1]}")
        return (*shape[:-1], shape[-1] // self.packed) if shape else shape


DTYPES: Mapping[str, DType] = {
    name: DType(name=name, bits=bits, storage=storage, eps=eps)
    for name, bits, storage, eps in (
        ("fp64", 64, "float64", 2.0**-52),
        ("fp32", 32, "float32", 2.0**-23),
        ("tf32", 32, "float32", 2.0**-10),
        ("fp16", 16, "float16", 2.0**-10),
        ("bf16", 16, "uint16", 2.0**-7),
        ("fp8_e4m3", 8, "uint8", 2.0**-3),
        ("fp8_e5m2", 8, "uint8", 2.0**-2),
        ("int32", 32, "int32", 0.0),
        ("int16", 16, "int16", 0.0),
        ("int8", 8, "int8", 0.0),
        ("fp8_e8m0", 8, "uint8", 1.0),
        ("int4", 4, "uint8", 0.0),
        ("nvfp4", 4, "uint8", 0.5),
        ("mxfp4", 4, None, 0.5),
    )
}

# Formats that hold every number of another one, narrowest first: what a unit without it may compute in.
WIDER: Mapping[str, tuple[str, ...]] = {
    "nvfp4": ("fp8_e4m3", "fp8_e5m2", "fp16", "bf16", "tf32", "fp32"),
    "mxfp4": ("fp8_e4m3", "fp8_e5m2", "fp16", "bf16", "tf32", "fp32"),
    "fp8_e4m3": ("fp16", "bf16", "tf32", "fp32"),
    "fp8_e5m2": ("fp16", "bf16", "tf32", "fp32"),
    "fp16": ("tf32", "fp32"),
    "bf16": ("tf32", "fp32"),
    "tf32": ("fp32",),
    "int4": ("int8",),
}
# What products of a dtype are added up in; fp32 for all others.
ACCUMULATORS: Mapping[str, str] = {"fp64": "fp64", "int16": "int32", "int8": "int32", "int4": "int32"}
FLOATS = ("fp32", "fp16", "bf16")  # of models as they are trained
UNITS = ("core", "tensor")  # kinds of arithmetic units


# Names elsewhere (NumPy, PyTorch, JAX, ml_dtypes, serving engines), without case, "torch." and punctuation; ours by `spelled`.
ALIASES: Mapping[str, str] = {
    "double": "fp64", "float64": "fp64", "f64": "fp64", "float": "fp32", "float32": "fp32", "f32": "fp32", "single": "fp32",
    "half": "fp16", "float16": "fp16", "f16": "fp16", "bfloat16": "bf16", "tensorfloat32": "tf32",
    "fp8": "fp8_e4m3", "float8": "fp8_e4m3", "f8": "fp8_e4m3", "e4m3": "fp8_e4m3", "e4m3fn": "fp8_e4m3", "float8e4m3": "fp8_e4m3",
    "float8e4m3fn": "fp8_e4m3", "f8e4m3": "fp8_e4m3", "f8e4m3fn": "fp8_e4m3", "fp8e4m3fn": "fp8_e4m3",
    "e5m2": "fp8_e5m2", "float8e5m2": "fp8_e5m2", "f8e5m2": "fp8_e5m2", "e8m0": "fp8_e8m0", "float8e8m0fnu": "fp8_e8m0",
    "i32": "int32", "i16": "int16", "i8": "int8", "s8": "int8", "i4": "int4", "s4": "int4", "fp4": "nvfp4", "float4": "nvfp4",
    "e2m1": "nvfp4", "float4e2m1fn": "nvfp4",
}  # fmt: skip
_OURS = {spelled(name): name for name in DTYPES}


def dtype_name(given: Any) -> str:
    """Our name of a dtype: "half", "float16", np.float16, np.dtype("f2") and torch.float16 are "fp16"; "fp8" is E4M3, "fp4" NVFP4.

    Raises Error for an unknown one, with those that resemble it.
    """
    if isinstance(given, str):
        if given in DTYPES:
            return given
        word = given
    elif isinstance(given, (type, np.dtype)):
        try:
            word = np.dtype(given).name
        except TypeError:
            word = getattr(given, "__name__", "")
    else:
        word = str(given) if type(given).__module__.partition(".")[0] in ("torch", "jax", "numpy", "ml_dtypes") else ""
    short = spelled(word[:80].removeprefix("torch."))
    if name := _OURS.get(short) or ALIASES.get(short):
        return name
    known = (*DTYPES, *ALIASES)
    raise Error(f"unknown dtype {given!r:.80}{hint(word, known)}: use one of {', '.join(DTYPES)}")


def dtype(name: Any) -> DType:
    """The dtype of this name, see `dtype_name`. Raises Error for an unknown one."""
    return DTYPES[dtype_name(name)]


def _e4m3() -> Array:
    """Every fp8_e4m3 number by its bits (OCP 8-bit floating point: 4 bits of exponent biased by 7, 3 of fraction, no infinity)."""
    bits = np.arange(256)
    exponent, fraction = bits >> 3 & 15, bits & 7
    size = np.where(exponent == 0, np.ldexp(fraction, -9), np.ldexp(8.0 + fraction, exponent - 10))
    size[bits & 127 == 127] = np.nan
    signed: Array = np.where(bits & 128, -size, size)
    return signed


_E4M3 = _e4m3()
# OCP Microscaling specification 1.0: E8M0 is an exponent biased by 127, E2M1 a sign, two bits of exponent biased by 1 and one more.
_E8M0 = np.append(2.0 ** np.arange(-127.0, 128), np.nan)
_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
with np.errstate(invalid="ignore"):  # signalling NaNs
    _BF16 = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)
_NIBBLES = {"int4": np.array([*range(8), *range(-8, 0)], dtype=np.float64), "nvfp4": np.concatenate([_E2M1, -_E2M1])}


def _nearest(sizes: Array, values: Array) -> Array:
    """Indices of the nearest of `sizes`, which rise, to the sizes of `values`; a tie goes to the even index."""
    above = np.clip(np.searchsorted(sizes, np.abs(values)), 1, len(sizes) - 1)
    low, high = np.abs(values) - sizes[above - 1], sizes[above] - np.abs(values)
    return np.asarray(np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above))


def to_float64(raw: Array, dtype_name: str) -> Array:
    """Storage bits (see `DType.storage`) as float64 values."""
    if dtype_name == "bf16":
        return np.asarray(_BF16[raw])
    if dtype_name in ("fp64", "fp32", "tf32", "fp16", "int32", "int16", "int8"):
        return raw.astype(np.float64)
    if dtype_name == "fp8_e4m3":
        return np.asarray(_E4M3[raw])
    if dtype_name == "fp8_e5m2":
        return (raw.astype(np.uint16) << 8).view(np.float16).astype(np.float64)
    if dtype_name == "fp8_e8m0":
        return np.asarray(_E8M0[raw])
    if dtype_name in _NIBBLES:
        numbers = _NIBBLES[dtype_name]
        return np.stack([numbers[raw & 15], numbers[raw >> 4]], axis=-1).reshape(*raw.shape[:-1], 2 * raw.shape[-1])
    raise Error(f"{dtype_name} values cannot be decoded by NumPy here")


def from_float64(values: Array, dtype_name: str) -> Array:
    """The storage bits of the nearest numbers, ties to even: the inverse of `to_float64`. Small formats keep to their largest.

    fp8_e8m0: of powers of two. int4 and nvfp4: the last dimension is even.
    """
    if dtype_name in ("bf16", "tf32"):
        dropped = 16 if dtype_name == "bf16" else 13
        bits: Array = values.astype(np.float32).view(np.uint32).astype(np.int64)
        bits = (bits + ((1 << dropped - 1) - 1) + (bits >> dropped & 1)) >> dropped
        return bits.astype(np.uint16) if dtype_name == "bf16" else (bits << dropped).astype(np.uint32).view(np.float32)
    if dtype_name in ("fp64", "fp32", "fp16", "int32", "int16", "int8"):
        return values.astype(np.dtype(DTYPES[dtype_name].storage))
    if dtype_name in ("fp8_e4m3", "fp8_e5m2"):
        finite = to_float64(np.arange(127 if dtype_name == "fp8_e4m3" else 124, dtype=np.uint8), dtype_name)
        nearest = _nearest(finite, values)  # their bits rise with them; the even ones end in 0
        return np.asarray(nearest | np.where(np.signbit(values), 128, 0), dtype=np.uint8)
    if dtype_name == "fp8_e8m0":
        return np.asarray(np.log2(values) + 127, dtype=np.uint8)
    if dtype_name in _NIBBLES:
        if dtype_name == "int4":
            codes: Array = np.clip(np.rint(values), -8, 7).astype(np.int64) & 15
        else:
            codes = _nearest(_E2M1, values) | np.where(np.signbit(values), 8, 0)
        return np.asarray(codes[..., ::2] | codes[..., 1::2] << 4, dtype=np.uint8)
    raise Error(f"{dtype_name} values cannot be encoded by NumPy here")
