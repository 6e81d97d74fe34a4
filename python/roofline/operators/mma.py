"""Products of tiles in registers or shared memory: the probe of the tensor units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import dtypes, references
from ..counts import Array
from ..tensor_spec import TensorSpec
from .base import Case, Operator, Product, Variant

# What products of a dtype may be added up in, the usual one first.
ACCUMULATORS: Mapping[str, tuple[str, ...]] = {
    "fp64": ("fp64",), "tf32": ("fp32",), "fp16": ("fp32", "fp16"), "bf16": ("fp32",), "int8": ("int32",), "int4": ("int32",),
    "fp8_e4m3": ("fp32", "fp16"),
}  # fmt: skip

_LARGEST = {"int8": 127, "int4": 7}  # of random integers: the negative of each is one too
# Random numbers are multiples of these, so that every unit's sums are exact (in fp16, up to 32). Units truncate, and of fp8_e4m3
# keep 14 bits of a sum or fewer: a product loses more at the top, where it is taken away, than below, where it is added, and sums
# would drift, of fp8_e4m3 by a whole one in a few thousand steps.
_GRAINS = {"fp16": 2.0**-9, "bf16": 2.0**-7, "tf32": 2.0**-9, "fp8_e4m3": 2.0**-3}
_HALF_GRAIN = 2.0**-3

_WARP_BYTES, _WARPGROUP_BYTES = 32, 128  # of the inner dimension of a tile


class _Tiles(Variant):
    """Kernels with tiles of one size for each dtype."""

    def tile(self, dtype: str) -> dict[str, int]:
        """Its rows, columns and inner."""
        raise NotImplementedError

    def suits(self, problem: Mma, device: str) -> bool:
        return all(getattr(problem, field) == size for field, size in self.tile(problem.dtype).items())


class _MmaSync(_Tiles):
    def tile(self, dtype: str) -> dict[str, int]:
        if dtype == "fp64":
            return {"rows": 32, "columns": 32, "inner": 16}
        return {"rows": 32, "columns": 64, "inner": 8 * _WARP_BYTES // dtypes.dtype(dtype).bits}


class _Wgmma(_Tiles):
    def tile(self, dtype: str) -> dict[str, int]:
        return {"rows": 64, "columns": 256, "inner": 8 * _WARPGROUP_BYTES // dtypes.dtype(dtype).bits}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mma(Operator):
    """Independent sums, one a tile t: `c[t] = a[0, t] bᵀ[t] + a[1, t] bᵀ[t] + a[0, t] bᵀ[t] + …`, `steps` products each.

    `a[1]` is `-a[0]`, so that an odd number of steps gives one product and an even one zeros: no sum grows, and
    each is checked. a: [2, tiles, rows, inner]. b: [tiles, columns, inner], as the units read it. A variant's kernels have tiles of
    one size for a dtype (see `tile`). accumulator: of the sums, empty for the usual one; fp16 for fp16 and fp8_e4m3.
    data: random numbers of variance 1 whose sums are exact (integers from -127 to 127, of int4 from -7 to 7), constant (all ones),
    or zeros: what a unit draws, and so the clock of a limited one, depends on the bits that change. Raises Error for bad fields.
    """

    tiles: int = 24
    rows: int = 32
    columns: int = 64
    inner: int = 16
    steps: int = 1001
    accumulator: str = ""
    data: str = "random"
    dtype: str = "fp16"

    name = "mma"
    summary = "products of tiles held on chip, the probe of the tensor units"
    mix = "read"
    products_in_blocks = True
    allowed = {"dtype": tuple(ACCUMULATORS), "data": ("random", "constant", "zeros")}
    variants: ClassVar[Mapping[str, _Tiles]] = {
        "mma_sync": _MmaSync(
            summary="a tile per warp, all of it in registers; mma.sync, on every tensor unit",
            dtypes={"cuda": ("fp64", "tf32", "fp16", "bf16", "int8", "int4", "fp8_e4m3")},
        ),
        "wgmma": _Wgmma(
            summary="a tile per warpgroup, operands in shared memory; sm_90a",
            dtypes={"cuda": ("tf32", "fp16", "bf16", "int8", "fp8_e4m3")},
        ),
    }

    @classmethod
    def tile(cls, variant: str, dtype: str) -> dict[str, Any]:
        """rows, columns and inner of a variant's tiles."""
        return cls.variants[variant].tile(dtype)

    def check(self) -> None:
        self.one_of("accumulator", ("", *ACCUMULATORS[self.dtype]))

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="a", shape=(2, self.tiles, self.rows, self.inner), dtype=self.dtype),
            TensorSpec(name="b", shape=(self.tiles, self.columns, self.inner), dtype=self.dtype),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="c", shape=(self.tiles, self.rows, self.columns), dtype=self.compute()[1], role="out"),)

    def initial(self, tensor: str, generator: np.random.Generator) -> Array | None:
        shape = next(spec.shape for spec in self.tensors() if spec.name == tensor)
        if tensor == "a":
            shape = shape[1:]
        if tensor == "c":
            return None
        if self.data == "random":
            largest = _LARGEST.get(self.dtype)
            values = generator.integers(-largest, largest + 1, shape) if largest else generator.uniform(-(3**0.5), 3**0.5, shape)
            if grain := _HALF_GRAIN if self.accumulator == "fp16" else _GRAINS.get(self.dtype):
                values = np.round(values / grain) * grain
        else:
            values = np.full(shape, float(self.data == "constant"))
        return dtypes.from_float64(np.stack([values, -values]) if tensor == "a" else values, self.dtype)

    def flops(self) -> dict[str, int]:
        return {"a·b": 2 * self.tiles * self.steps * self.rows * self.columns * self.inner}

    def products(self) -> tuple[Product, ...]:
        return (Product(term="a·b", count=self.tiles * self.steps, rows=self.rows, columns=self.columns, inner=self.inner),)

    def compute(self) -> tuple[str, str]:
        return self.dtype, self.accumulator or ACCUMULATORS[self.dtype][0]

    def tolerance(self) -> tuple[float, float]:
        """Absolute, against products of about sqrt(inner), which a wrong place or a step too few is off by.

        Far above what rounding leaves: nothing but in fp64, where it adds up over the steps.
        """
        if self.dtype in _LARGEST:
            return 0.0, 0.0
        kept = {"fp64": 2.0**-30, "fp32": 2.0**-10, "fp16": 2.0**-5}[self.compute()[1]]
        return math.sqrt(self.inner) * (2.0**-4 if self.dtype == "fp8_e4m3" else kept), 0.0

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: of all tiles, one after the other."""
        if rows is None:
            a, b = tensors["a"], tensors["b"]
        else:
            tile, row = np.divmod(rows, self.rows)
            a, b = tensors["a"][:, tile, row][:, :, None], tensors["b"][tile]
        if self.steps <= 64:  # one sum of all steps' products
            along = np.concatenate([a[step % 2] for step in range(self.steps)], axis=-1)
            c = references.matmul(along, np.concatenate([b] * self.steps, axis=-1).swapaxes(-1, -2))
        else:
            first, second = (references.matmul(a[i], b.swapaxes(-1, -2)) * ((self.steps + 1 - i) // 2) for i in range(2))
            c = first + second
        return {"c": c if rows is None else c[:, 0]}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 3, 5, 2, 1), (2, 2, 3, 4, 2), (3, 5, 2, 7, 3))  # no unit's: tiles, rows, columns, inner, steps
        small = ((dtype, t, m, n, k + k % dtypes.dtype(dtype).packed, s) for dtype in ACCUMULATORS for t, m, n, k, s in shapes)
        tiles = (
            case
            for variant, declared in cls.variants.items()
            for dtype in declared.dtypes["cuda"]
            for case in cls.grid(
                ((1, 1), (5, 2), (131, 1001)),
                "tiles steps",
                dtype=dtype,
                accumulator=ACCUMULATORS[dtype],
                **cls.tile(variant, dtype),
            )
        )
        return (
            *cls.grid(small, "dtype tiles rows columns inner steps"), *tiles, *cls.grid(("constant", "zeros"), "data", steps=3),
        )  # fmt: skip
