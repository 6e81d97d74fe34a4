"""Products of many small matrices, in any dtype, with the scales of low-precision operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..cost import Array, TensorSpec, ceil_div, dtype, matmul
from .base import Case, Facts, Operator, Product, Variant
from .matmul import lost

_DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4", "mxfp4")
_ACCUMULATORS = {"fp64": "fp64", "int8": "int32", "int4": "int32"}  # fp32 for the rest
_SCALES = ("none", "tensor", "row", "block", "two_level")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bmm(Operator):
    """c[i] = a[i] b[i] for every i of the batch.

    a: [batch, rows, inner], b: [batch, inner, columns] in dtype; c: [batch, rows, columns] in out_dtype. scales: none; tensor: one
    number each for a and b; row: one for each row of a and column of b; block: one for every scale_block numbers along inner;
    two_level: block and tensor. A scale has scale_bits, that of the whole tensor 32 in two_level. NVFP4 is dtype nvfp4, two_level,
    blocks of 16, 8 bits; MXFP4 is dtype mxfp4, block, 32, 8 bits (OCP Microscaling specification 1.0). Raises Error for bad fields.
    """

    batch: int = 128
    rows: int = 64
    columns: int = 512
    inner: int = 128
    scales: str = "none"
    scale_block: int = 32
    scale_bits: int = 32
    dtype: str = "bf16"
    out_dtype: str = "bf16"

    name = "bmm"
    summary = "a batch of matrix products, with the scales of low-precision operands"
    mix = "read"
    variants = {
        "library": Variant(
            summary="cuBLASLt, the fastest of its heuristic's proposals; fp8 with scales of tensors, rows or blocks of 128; b of "
            "fp8 and int8 is transposed first",
            dtypes={"cuda": ("fp64", "fp32", "tf32", "fp16", "bf16", "int8", "fp8_e4m3")},
        ),
    }

    def check(self) -> None:
        self.one_of("dtype", _DTYPES)
        self.one_of("out_dtype", (*_DTYPES, "int32"))
        self.one_of("scales", _SCALES)
        self.require(self.scale_bits <= 64, "scale_bits must be at most 64, got {scale_bits}")

    def _scale(self, name: str, *shape: int, bits: int | None = None) -> TensorSpec:
        return TensorSpec(name=name, shape=shape, dtype="fp32", bits=self.scale_bits if bits is None else bits)

    def _scales(self) -> tuple[TensorSpec, ...]:
        if self.scales == "none":
            return ()
        if self.scales == "tensor":
            return self._scale("a_scale", 1), self._scale("b_scale", 1)
        if self.scales == "row":
            return self._scale("a_scale", self.batch, self.rows), self._scale("b_scale", self.batch, self.columns)
        along = ceil_div(self.inner, self.scale_block)
        block = (
            self._scale("a_scale", self.batch, self.rows, along),
            self._scale("b_scale", self.batch, along, self.columns),
        )
        whole = (self._scale("a_whole", 1, bits=32), self._scale("b_whole", 1, bits=32))
        return block + (whole if self.scales == "two_level" else ())

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="a", shape=(self.batch, self.rows, self.inner), dtype=self.dtype),
            TensorSpec(name="b", shape=(self.batch, self.inner, self.columns), dtype=self.dtype),
            *self._scales(),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="c", shape=(self.batch, self.rows, self.columns), dtype=self.out_dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        results = self.batch * self.rows * self.columns
        elements = self.batch * self.inner * (self.rows + self.columns)
        # Scales of blocks meet the operands, the others the result, once each for a and b.
        scaled = {"none": 0, "tensor": 2 * results, "row": 2 * results, "block": elements, "two_level": elements + 2 * results}
        return {"a·b": 2 * results * self.inner, "scale": scaled[self.scales]}

    def products(self) -> tuple[Product, ...]:
        return (Product(term="a·b", count=self.batch, rows=self.rows, columns=self.columns, inner=self.inner),)

    def traffic(self, plan: Facts) -> dict[str, int]:
        # Their kernels read both operands along inner, and the scales of a's blocks along rows.
        if self.dtype not in ("int8", "fp8_e4m3") or plan["variant"] != "library":
            return {}
        turned = {"b": "b transposed written, read"}
        if self.scales == "block":
            turned["a_scale"] = "a_scale transposed written, read"
        return {turned[spec.name]: 2 * spec.size_bytes for spec in self.inputs() if spec.name in turned}

    def launches(self, plan: Facts) -> int:
        return 1 + len(self.traffic(plan))

    def work(self, plan: Facts) -> dict[str, int]:
        flops = self.flops()
        return {"product": flops["a·b"], "other": flops["scale"]}

    def product_size(self) -> int:
        return self.rows * self.columns * self.inner

    def compute(self) -> tuple[str, str]:
        return self.dtype, _ACCUMULATORS.get(self.dtype, "fp32")

    def tolerance(self) -> tuple[float, float]:
        """Absolute, for terms of variance 1: as `Matmul.tolerance`, and half a step of a result in out_dtype."""
        eps = dtype(_ACCUMULATORS.get(self.dtype, "fp32")).eps
        largest = 1 if self.scales == "none" else 3  # product of two scales below sqrt(3)
        return largest * ((2 * self.inner + 16) * eps + lost(self.dtype, self.inner)), 4 * eps + dtype(self.out_dtype).eps

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices along [batch * rows]; c is then [len(rows), columns]."""
        a, b = tensors["a"], tensors["b"]
        if self.scales in ("block", "two_level"):
            a = a * np.repeat(tensors["a_scale"], self.scale_block, axis=2)[:, :, : self.inner]
            b = b * np.repeat(tensors["b_scale"], self.scale_block, axis=1)[:, : self.inner]
        c = matmul(a, b)
        if self.scales == "tensor":
            c = c * tensors["a_scale"][0] * tensors["b_scale"][0]
        elif self.scales == "row":
            c = c * tensors["a_scale"][:, :, None] * tensors["b_scale"][:, None, :]
        elif self.scales == "two_level":
            c = c * tensors["a_whole"][0] * tensors["b_whole"][0]
        return {"c": c if rows is None else c.reshape(-1, self.columns)[rows]}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = tuple(
            Case(problem=cls(batch=2, rows=3, columns=5, inner=7, scales=scales, scale_block=4, scale_bits=bits, dtype=dtype))
            for scales, bits, dtype in zip(_SCALES, (32, 32, 16, 8, 8), ("fp64", "fp8_e4m3", "int8", "mxfp4", "nvfp4"), strict=True)
        )
        one = Case(problem=cls(batch=1, rows=1, columns=1, inner=1, dtype="fp32", out_dtype="fp32"))
        odd = Case(problem=cls(batch=1, rows=3, columns=1, inner=1, dtype="mxfp4"))  # a: 12 bits, two bytes
        kept = (("fp64", "fp64"), ("fp32", "fp32"), ("tf32", "fp32"), ("fp16", "fp16"), ("bf16", "bf16"), ("bf16", "fp32"))
        products = tuple(
            Case(problem=cls(batch=batch, rows=m, columns=n, inner=k, dtype=of, out_dtype=to))
            for of, to in kept
            for batch, m, n, k in ((3, 5, 7, 9), (2, 64, 128, 256), (5, 1, 300, 33))
        )
        bytes_ = tuple(
            Case(problem=cls(batch=batch, rows=m, columns=n, inner=k, scales=scales, scale_block=128, dtype=of, out_dtype=to))
            for of, to, scales in (
                ("int8", "int32", "none"),
                *(("fp8_e4m3", to, "tensor") for to in ("bf16", "fp16", "fp32")),
                ("fp8_e4m3", "bf16", "none"),
                ("fp8_e4m3", "bf16", "row"),
                ("fp8_e4m3", "fp32", "block"),
            )
            for batch, m, n, k in ((3, 5, 16, 32), (1, 70, 144, 272), (1, 128, 256, 1024))
        )
        return (*shapes, one, *products, *bytes_, odd, Case(problem=cls(dtype="fp8_e4m3", scales="tensor")))
