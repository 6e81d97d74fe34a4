"""A matrix product with weights of few bits, taken apart into whole numbers as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array, ceil_div, larger, pick, ratio
from ..references import matmul
from ..tensor_spec import TensorSpec
from .base import Case, Operator, Product

_DTYPES = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "nvfp4", "mxfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedMatmul(Operator):
    """c = a (scale (b - zero)), with b of few bits and one scale, and perhaps a zero point, for each group along inner.

    a: [rows, inner] in dtype, the arithmetic's too; c: [rows, columns] in out_dtype. b: [inner, columns] in weight_bits each, any
    decimal up to 64 (4, 3, 1.58, 4.25), packed without gaps: its bytes are rounded up once. scale_bits, zero_bits: of one scale and
    zero point; 0: none. group_size: weights that share them; 0: a whole column. Raises Error for bad fields.
    """

    rows: int = 1
    columns: int = 4096
    inner: int = 4096
    weight_bits: float = 4.0
    group_size: int = 128
    scale_bits: int = 16
    zero_bits: int = 0
    dtype: str = "bf16"
    out_dtype: str = "bf16"

    name = "quantized_matmul"
    summary = "a matrix product with weights of few bits, in groups with scales and zero points"
    mix = "read"
    small = frozenset({"group_size", "scale_bits", "zero_bits"})
    variants = {}

    def check(self) -> None:
        self.one_of("dtype", _DTYPES)
        self.one_of("out_dtype", (*_DTYPES, "int32"))
        self.require(
            (self.weight_bits > 0) & (self.weight_bits <= 64), "weight_bits must be above 0 and at most 64, got {weight_bits}"
        )
        for field in ("scale_bits", "zero_bits"):
            self.require(getattr(self, field) <= 64, f"{field} must be at most 64, got {{{field}}}")

    def groups(self) -> int:
        """Of each column."""
        return pick(self.group_size > 0, ceil_div(self.inner, larger(self.group_size, 1)), 1)  # type: ignore[no-any-return]

    def inputs(self) -> tuple[TensorSpec, ...]:
        each = (self.groups(), self.columns)
        scale = TensorSpec(name="scale", shape=each, dtype="fp32", role="constant", bits=self.scale_bits)
        zero = TensorSpec(name="zero", shape=each, dtype="fp32", role="constant", bits=self.zero_bits)
        shape = (self.inner, self.columns)
        return (
            TensorSpec(name="a", shape=(self.rows, self.inner), dtype=self.dtype),
            TensorSpec(name="b", shape=shape, dtype="int8", role="constant", bits=ratio(self.weight_bits)),
            *((scale,) if np.any(self.scale_bits > 0) else ()),
            *((zero,) if np.any(self.zero_bits > 0) else ()),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="c", shape=(self.rows, self.columns), dtype=self.out_dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        each = self.inner * self.columns
        operations = (self.scale_bits > 0) * 1 + (self.zero_bits > 0) * 1  # a multiplication, a subtraction
        return {"a·b": 2 * self.rows * each, "dequantise": each * operations}

    def products(self) -> tuple[Product, ...]:
        return (Product(term="a·b", rows=self.rows, columns=self.columns, inner=self.inner),)

    def operations(self) -> dict[str, int]:
        flops = self.flops()
        return {"product": flops["a·b"], "other": flops["dequantise"]}

    def compute(self) -> tuple[str, str]:
        return self.dtype, "int32" if self.dtype == "int8" else "fp32"

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: rows of a and c."""
        a, b = tensors["a"] if rows is None else tensors["a"][rows], tensors["b"]

        def each(name: str) -> Array:
            return np.repeat(tensors[name], self.group_size or self.inner, axis=0)[: self.inner]

        if self.zero_bits:
            b = b - each("zero")
        if self.scale_bits:
            b = b * each("scale")
        return {"c": matmul(a, b)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        given: tuple[Mapping[str, int | float | str], ...] = (
            {"rows": 1, "columns": 1, "inner": 1, "weight_bits": 1.58, "group_size": 0},
            {"rows": 3, "columns": 5, "inner": 7, "weight_bits": 3.0, "group_size": 4, "zero_bits": 3},
            {"rows": 3, "columns": 5, "inner": 20, "weight_bits": 1.58, "scale_bits": 0, "dtype": "int8"},  # 158 bits, 20 bytes
            {"rows": 2, "columns": 8, "inner": 32, "weight_bits": 4.25, "scale_bits": 0, "dtype": "fp16"},
            {"rows": 3, "columns": 5, "inner": 16, "weight_bits": 4.5, "group_size": 0, "scale_bits": 0, "dtype": "nvfp4"},
            {"rows": 128, "columns": 24576, "inner": 1536, "zero_bits": 4},
        )
        return tuple(Case(problem=cls.make(**fields)) for fields in given)
