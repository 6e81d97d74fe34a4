"""A matrix product with weights of few bits, taken apart into whole numbers as they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counts import Array, all_of, any_of, ceil_div, larger, pick, ratio
from ..dtypes import dtype
from ..references import matmul
from ..tensor_spec import TensorSpec
from .base import Case, Operator, Product, Variant

_DTYPES = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "nvfp4", "mxfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedMatmul(Operator):
    """c = a (scale (b - zero)), with b of few bits and one scale, and perhaps a zero point, for each group along inner.

    a: [rows, inner] in dtype, the arithmetic's too; c: [rows, columns] in out_dtype. b: [inner, columns] in weight_bits each, any
    decimal up to 64 (4, 3, 1.58, 4.25), packed without gaps: its bytes are rounded up once. scale_bits, zero_bits: of one scale and
    zero point; 0: none. group_size: weights that share them; 0: a whole column. What kernels read: b in int8 or int4 (two's
    complement, two to a byte along columns); scales of 32 bits in fp32, of 16 in dtype where that has 16 bits, else in fp16; zero
    points of 32 and 16 bits likewise, of 8 and 4 in int8 and int4. Other widths are counted and not stored. Raises Error for bad
    fields.
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
    allowed = {"dtype": _DTYPES, "out_dtype": (*_DTYPES, "int32")}
    variants = {
        "tiled": Variant(
            summary="our own kernels on packed strips of b, taken apart in registers, sums in fp32; few rows read b in eight "
            "address streams",
            dtypes={"cpu": ("fp32", "fp16", "bf16")},
            own_products=True,
        ),
    }

    def check(self) -> None:
        self.require(
            (self.weight_bits > 0) & (self.weight_bits <= 64), "weight_bits must be above 0 and at most 64, got {weight_bits}"
        )
        for field in ("scale_bits", "zero_bits"):
            self.require(getattr(self, field) <= 64, f"{field} must be at most 64, got {{{field}}}")

    def groups(self) -> int:
        """Groups in each column."""
        return pick(self.group_size > 0, ceil_div(self.inner, larger(self.group_size, 1)), 1)  # type: ignore[no-any-return]

    def inputs(self) -> tuple[TensorSpec, ...]:
        each = (self.groups(), self.columns)
        sixteen = self.dtype if self.dtype in ("bf16", "fp16") else "fp16"

        def constant(name: str, shape: tuple[int, ...], bits: Any, stored: Mapping[int, str], other: str) -> TensorSpec:
            for width, of in stored.items():
                if all_of(bits == width):
                    return TensorSpec(name=name, shape=shape, dtype=of, role="constant")
            return TensorSpec(name=name, shape=shape, dtype=other, role="constant", bits=ratio(bits))

        scale = constant("scale", each, self.scale_bits, {32: "fp32", 16: sixteen}, "fp32")
        zero = constant("zero", each, self.zero_bits, {32: "fp32", 16: sixteen, 8: "int8", 4: "int4"}, "fp32")
        return (
            TensorSpec(name="a", shape=(self.rows, self.inner), dtype=self.dtype),
            constant("b", (self.inner, self.columns), self.weight_bits, {8: "int8", 4: "int4"}, "int8"),
            *((scale,) if any_of(self.scale_bits > 0) else ()),
            *((zero,) if any_of(self.zero_bits > 0) else ()),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="c", shape=(self.rows, self.columns), dtype=self.out_dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        each = self.inner * self.columns
        operations = (self.scale_bits > 0) * 1 + (self.zero_bits > 0) * 1  # a multiplication, a subtraction
        return {"a·b": 2 * self.rows * each, "dequantise": each * operations}

    def products(self) -> tuple[Product, ...]:
        return (Product(term="a·b", rows=self.rows, columns=self.columns, inner=self.inner),)

    def tolerance(self) -> tuple[float, float]:
        """As `Matmul.tolerance`, of weights and zero points as large as whole numbers of their bits, times scales of variance 1.

        Kernels may add 8 to weights of 4 bits, and take 8 times the sum of a away at the end: terms are then up to 15, not 8.
        Kernels may round a that has 16 bits to 16-bit fixed point: 2**-16 of the largest number in every term, and fp32 likewise to
        2**-23.9; and b to bf16 where a is: up to 2**-8 of every term, 0.4 of that as the root of the mean square, of many outputs
        up to 7 times that.
        """
        eps = dtype("fp32").eps
        bits = 4 if self.weight_bits == 4 else int(self.weight_bits) - 1
        size = 2.0 ** max(bits, int(self.zero_bits) - 1 if self.zero_bits < 16 else 0)
        rounded = {"bf16": 2.8 * 2.0**-8, "fp16": 2.0**-14}.get(self.dtype, 0.0) * math.sqrt(self.inner)
        return size * ((2 * self.inner + 16) * eps + rounded), 4 * eps + dtype(self.out_dtype).eps

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
        given = (
            {"rows": 1, "columns": 1, "inner": 1, "weight_bits": 1.58, "group_size": 0},
            {"rows": 3, "columns": 5, "inner": 7, "weight_bits": 3.0, "group_size": 4, "zero_bits": 3},
            {"rows": 3, "columns": 5, "inner": 20, "weight_bits": 1.58, "scale_bits": 0, "dtype": "int8"},  # 158 bits, 20 bytes
            {"rows": 2, "columns": 8, "inner": 32, "weight_bits": 4.25, "scale_bits": 0, "dtype": "fp16"},
            {"rows": 3, "columns": 5, "inner": 16, "weight_bits": 4.5, "group_size": 0, "scale_bits": 0, "dtype": "nvfp4"},
            {"rows": 128, "columns": 2456, "inner": 1536, "zero_bits": 4},
        )
        names = "rows columns inner group_size scale_bits zero_bits dtype out_dtype"
        measured = (
            (1, 2, 1, 0, 16, 0, "fp32", "fp32"),
            (1, 4098, 300, 128, 16, 4, "bf16", "bf16"),
            (3, 70, 257, 32, 32, 8, "fp32", "bf16"),
            (5, 64, 130, 6, 16, 16, "fp16", "fp16"),  # groups that four does not divide
            (16, 300, 500, 0, 32, 32, "bf16", "fp32"),
            (17, 34, 65, 5, 0, 8, "fp32", "fp32"),
            (20, 66, 200, 96, 16, 8, "fp16", "bf16"),
            (40, 70, 330, 128, 16, 4, "fp32", "fp32"),
            (70, 130, 390, 128, 16, 4, "bf16", "bf16"),
            (300, 600, 777, 7, 32, 16, "fp32", "fp32"),
        )
        return (*cls.grid(given), *cls.grid(measured, names, weight_bits=(8.0, 4.0)))
