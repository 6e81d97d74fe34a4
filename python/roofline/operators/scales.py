"""Scales of the operands of a matrix product: of whole tensors, of rows, of blocks along the inner dimension, or of both levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..counts import Array, all_of, any_of, ceil_div, pick
from ..dtypes import from_float64
from ..tensor_spec import TensorSpec
from .base import Operator, Product

GEMM: Mapping[str, str] = {"rows": "M", "columns": "N", "inner": "K"}
SCALES = ("none", "tensor", "row", "block", "two_level")
# What cuBLASLt reads the scales of blocks of 8 bits in: tiles of so many rows (columns of b) by so many blocks along inner.
TILE_ROWS, TILE_BLOCKS = 128, 4

# How a format that is no other without them is scaled: NVFP4.
USUAL_SCALES: Mapping[str, Mapping[str, Any]] = {"nvfp4": {"scales": "two_level", "scale_block": 16, "scale_bits": 8}}


def scales_name(problem: Mapping[str, Any]) -> str:
    """How the operands of a problem are scaled, as a name says it: "row scales", "1×32 scales"; empty for none."""
    scales = str(problem.get("scales", "none"))
    if scales in ("tensor", "row"):
        return f"{scales} scales"
    size = f"{problem.get('scale_columns', 1)}×{problem.get('scale_block')} scales"
    return {"block": size, "two_level": f"{size} in two levels"}.get(scales, "")


def shown_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A problem's fields as prints name them: a GEMM has M, N and K; how a product is scaled and finished only where it is."""
    unused = {"scales", "scale_block", "scale_columns", "scale_bits"} if fields.get("scales") == "none" else set()
    if "scales" in fields and not fields.get("bias") and fields.get("activation", "none") == "none":
        unused |= {"bias", "activation"}
    letters = GEMM if fields.keys() >= GEMM.keys() else {}
    return {letters.get(name, name): value for name, value in fields.items() if name not in unused}


def heading_fields(problem: Operator, *without: str) -> dict[str, Any]:
    """As `shown_fields`, with the dtype that a GEMM writes where that is another one than it reads and no field says it."""
    own = problem.to_dict()
    fields, written = shown_fields({n: x for n, x in own.items() if n not in without}), problem.outputs()[0].dtype
    told = "out_dtype" in own or not own.keys() >= GEMM.keys() or written == own["dtype"]
    return fields if told else {**fields, "out_dtype": written}


def one_length(fields: Mapping[str, Any]) -> dict[str, Any]:
    """These fields, with seq_q and seq_kv as one seq_len where they are equal."""
    if not fields.keys() >= {"seq_q", "seq_kv"} or fields["seq_q"] != fields["seq_kv"]:
        return dict(fields)
    return {"seq_len" if name == "seq_q" else name: value for name, value in fields.items() if name != "seq_kv"}


class Scaled(Operator, abstract=True):
    """What operators with these fields have in common.

    scales: none; tensor: one number each for a and b; row: one for each row of a and column of b; block: one for every scale_block
    numbers along inner, of b for scale_columns columns together; two_level: block, and one more for each whole tensor. A scale has
    scale_bits (that of a whole tensor 32): 32 is fp32; 8 is fp8_e4m3, never negative, of nvfp4 and fp8_e8m0 of all others.
    """

    scales: str
    scale_block: int
    scale_columns: int
    scale_bits: int
    dtype: str
    rows: int
    columns: int
    inner: int

    allowed = {"scales": SCALES}

    def check(self) -> None:
        self.require(self.scale_bits <= 64, "scale_bits must be at most 64, got {scale_bits}")

    def initial(self, tensor: str, generator: np.random.Generator) -> Array | None:
        """Scales that must not be negative, where numbers of both signs would be made."""
        spec = next(spec for spec in self.tensors() if spec.name == tensor)
        if spec.dtype != "fp8_e4m3" or not spec.name.endswith("_scale"):
            return None
        return from_float64(generator.uniform(0.5, 1.75, spec.shape), spec.dtype)

    def products(self) -> tuple[Product, ...]:
        return (Product(term="a·b", count=getattr(self, "batch", 1), rows=self.rows, columns=self.columns, inner=self.inner),)

    def scale_tensors(self, *batch: int, role: Any = "in") -> tuple[TensorSpec, ...]:
        """a_scale and b_scale, and of two levels a_whole and b_whole. batch: the leading dimension, if there is one."""

        def scale(name: str, *shape: int) -> TensorSpec:
            small = "fp8_e4m3" if self.dtype == "nvfp4" else "fp8_e8m0"
            named = all_of(self.scale_bits == 8)
            bits = None if named else self.scale_bits
            return TensorSpec(name=name, shape=shape, dtype=small if named else "fp32", role=role, bits=bits)

        if self.scales == "none":
            return ()
        if self.scales == "tensor":
            return scale("a_scale", 1), scale("b_scale", 1)
        if self.scales == "row":
            return scale("a_scale", *batch, self.rows), scale("b_scale", *batch, self.columns)
        blocks = ceil_div(self.inner, self.scale_block)
        found = scale("a_scale", *batch, self.rows, blocks), scale("b_scale", *batch, blocks, self._column_blocks())
        if self.scales == "block":
            return found
        return *found, *(TensorSpec(name=name, shape=(1,), dtype="fp32", role=role) for name in ("a_whole", "b_whole"))

    def _column_blocks(self) -> Any:
        return ceil_div(self.columns, self.scale_columns)

    def scale_flops(self, results: int, elements: int) -> int:
        """Scales of blocks meet the operands, the others the results: once each for a and b."""
        scaled = {"none": 0, "tensor": 2 * results, "row": 2 * results, "block": elements, "two_level": elements + 2 * results}
        return scaled[self.scales]

    def scale_traffic(self) -> dict[str, int]:
        """Bytes of scales that are laid out again for the library's kernels, written and read, in a product without a batch."""
        if self.scales not in ("block", "two_level"):
            return {}
        blocks, small = ceil_div(self.inner, self.scale_block), self.scale_bits == 8

        def tiled(outer: Any) -> Any:
            return ceil_div(outer, TILE_ROWS) * TILE_ROWS * ceil_div(blocks, TILE_BLOCKS) * TILE_BLOCKS

        squares = 4 * self._column_blocks() * ceil_div(blocks, TILE_BLOCKS) * TILE_BLOCKS
        sizes = {
            "a_scale": pick(small, tiled(self.rows), 4 * self.rows * blocks),
            "b_scale": pick(small, tiled(self.columns), pick(self.scale_columns > 1, squares, 0)),
        }
        return {f"{name} laid out again: written, read": 2 * size for name, size in sizes.items() if any_of(size)}

    def largest_scale(self) -> float:
        """The largest product of an element's random scales: below sqrt(3) in fp32, 2 in fp8_e8m0, 1.75 in fp8_e4m3."""
        return {"none": 1.0, "two_level": 12.0}.get(self.scales, 4.0)

    def scaled_operands(self, a: Array, b: Array, tensors: Any) -> tuple[Array, Array]:
        """a and b with the scales of their blocks. a: [..., rows, inner]; b: [..., inner, columns]."""
        if self.scales not in ("block", "two_level"):
            return a, b
        of_b = np.repeat(np.asarray(tensors["b_scale"]), self.scale_columns, axis=-1)[..., : self.columns]
        a = a * np.repeat(np.asarray(tensors["a_scale"]), self.scale_block, axis=-1)[..., : self.inner]
        return a, b * np.repeat(of_b, self.scale_block, axis=-2)[..., : self.inner, :]

    def scaled_results(self, c: Array, tensors: Any) -> Array:
        """c with the scales of rows or whole tensors."""
        if self.scales == "row":
            return c * np.asarray(tensors["a_scale"])[..., :, None] * np.asarray(tensors["b_scale"])[..., None, :]  # type: ignore[no-any-return]
        level = {"tensor": "scale", "two_level": "whole"}.get(self.scales)
        return c if level is None else c * tensors[f"a_{level}"][0] * tensors[f"b_{level}"][0]
