"""Products of many small matrices, in any dtype, with the scales of low-precision operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counts import Array, smaller
from ..dtypes import dtype
from ..references import matmul
from ..tensor_spec import TensorSpec, size_bytes
from .base import FEW_ROWS, Case, Facts, Variant
from .matmul import ALONG_INNER, lost, spread
from .scales import SCALES, Scaled

_DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4", "mxfp4")


class _Library(Variant):
    def traffic(self, problem: Bmm, plan: Facts) -> dict[str, int]:
        if problem.dtype not in ALONG_INNER:
            return {}
        b = next(spec for spec in problem.inputs() if spec.name == "b")
        return {
            "b transposed: written, read": 2 * b.size_bytes,
            **{term: problem.batch * size for term, size in problem.scale_traffic().items()},
        }

    def launches(self, problem: Bmm, plan: Facts) -> int:
        passes = sum(smaller(size, 1) for size in self.traffic(problem, plan).values())
        return 1 + passes + (problem.scales == "two_level")  # type: ignore[no-any-return]


class _Tiled(Variant):
    """More than few rows meet b as each thread has packed its columns in the launch."""

    def traffic(self, problem: Bmm, plan: Facts) -> dict[str, int]:
        packed = "fp64" if problem.dtype == "fp64" else "fp32"
        wide = size_bytes((problem.batch, problem.inner, problem.columns), packed) * (problem.rows > FEW_ROWS)
        return {f"b packed in {packed}: written, read": 2 * plan.get("packed_in_launch_bytes", wide)}

    def workspace_bytes(self, problem: Bmm, plan: Facts) -> Any:
        """A thread packs one product after the other in the same place."""
        return plan.get("workspace_bytes", 0) or sum(self.traffic(problem, plan).values()) // 2 // problem.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Bmm(Scaled):
    """c[i] = a[i] b[i] for every i of the batch.

    a: [batch, rows, inner], b: [batch, inner, columns] in dtype; c: [batch, rows, columns] in out_dtype. scales, scale_block,
    scale_columns, scale_bits: see `scales.Scaled`. NVFP4 is dtype nvfp4, two_level, blocks of 16, 8 bits; MXFP8 is dtype fp8_e4m3,
    block, 32, 8 bits, and MXFP4 the same of mxfp4 (OCP Microscaling specification 1.0). Raises Error for bad fields.
    """

    batch: int = 128
    rows: int = 64
    columns: int = 512
    inner: int = 128
    scales: str = "none"
    scale_block: int = 32
    scale_columns: int = 1
    scale_bits: int = 32
    dtype: str = "bf16"
    out_dtype: str = "bf16"

    name = "bmm"
    summary = "a batch of matrix products, with the scales of low-precision operands"
    mix = "read"
    allowed = {"dtype": _DTYPES, "out_dtype": (*_DTYPES, "int32"), **Scaled.allowed}
    variants = {
        "library": _Library(
            summary="OpenBLAS, in 16 bits oneDNN; on a GPU cuBLASLt, the fastest of its heuristic's proposals; fp8 with scales of "
            "tensors, rows, blocks of 128; fp8 and nvfp4 with those of blocks of 32 and 16 (sm_100); b of 8 and 4 bits "
            "is transposed first",
            dtypes={
                "cpu": ("fp32", "fp64", "bf16", "fp16"),
                "cuda": ("fp64", "fp32", "tf32", "fp16", "bf16", "int8", "fp8_e4m3", "nvfp4"),
            },
            shared_sums=True,
        ),
        "tiled": _Tiled(
            summary="our own kernels, sums in fp32 or fp64: few rows read b as it lies, for more a thread packs its columns in the "
            "launch",
            dtypes={"cpu": ("fp32", "fp64", "fp16", "bf16")},
            own_products=True,
        ),
    }

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="a", shape=(self.batch, self.rows, self.inner), dtype=self.dtype),
            TensorSpec(name="b", shape=(self.batch, self.inner, self.columns), dtype=self.dtype),
            *self.scale_tensors(self.batch),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="c", shape=(self.batch, self.rows, self.columns), dtype=self.out_dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        results = self.batch * self.rows * self.columns
        elements = self.batch * self.inner * (self.rows + self.columns)
        return {"a·b": 2 * results * self.inner, "scale": self.scale_flops(results, elements)}

    def tolerance(self) -> tuple[float, float]:
        """As `Matmul.tolerance`, and half a step of a result in out_dtype."""
        eps = dtype(self.compute()[1]).eps
        largest = self.largest_scale() * spread(self.dtype)
        return largest * ((2 * self.inner + 16) * eps + lost(self.dtype, self.inner)), 4 * eps + dtype(self.out_dtype).eps

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices along [batch * rows]; c is then [len(rows), columns]."""
        if rows is None:
            a, b = self.scaled_operands(tensors["a"], tensors["b"], tensors)
            return {"c": self.scaled_results(matmul(a, b), tensors)}
        of_products, of_rows = np.divmod(rows, self.rows)
        c = np.empty((len(rows), self.columns))
        for product in np.unique(of_products):
            here = of_products == product
            part = dict(tensors)
            if self.scales not in ("none", "tensor"):
                part |= {"a_scale": tensors["a_scale"][product, of_rows[here]], "b_scale": tensors["b_scale"][product]}
            a, b = self.scaled_operands(tensors["a"][product, of_rows[here]], tensors["b"][product], part)
            c[here] = self.scaled_results(matmul(a, b), part)
        return {"c": c}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        sizes = "batch rows columns inner"
        small: Any = {"batch": 2, "rows": 3, "columns": 5, "inner": 7, "scale_block": 4}
        scaled = zip(SCALES, (32, 32, 16, 8, 8), ("fp64", "fp8_e4m3", "int8", "mxfp4", "nvfp4"), strict=True)
        shapes = (
            (3, 5, 7, 9), (2, 64, 128, 256), (5, 1, 300, 33), (1, 67, 1100, 40), (1, 500, 7, 50), (1, 40, 16, 20000),
            (1, 40, 32, 20000), (2, 11, 2048, 37),
        )  # fmt: skip
        kept = (("fp64", "fp64"), ("fp32", "fp32"), ("tf32", "fp32"), ("fp16", "fp16"), ("bf16", "bf16"), ("bf16", "fp32"))
        bytes_ = (
            ("int8", "int32", "none"), *(("fp8_e4m3", to, "tensor") for to in ("bf16", "fp16", "fp32")),
            ("fp8_e4m3", "bf16", "none"), ("fp8_e4m3", "bf16", "row"), ("fp8_e4m3", "fp32", "block"),
        )  # fmt: skip
        wide = ((3, 5, 16, 32), (1, 70, 144, 272), (1, 128, 256, 1024))
        return (
            *cls.grid(scaled, "scales scale_bits dtype", **small),
            *(case for of, to in kept for case in cls.grid(shapes, sizes, dtype=of, out_dtype=to)),
            *(
                case
                for of, to, how in bytes_
                for case in cls.grid(wide, sizes, scales=how, scale_block=128, dtype=of, out_dtype=to)
            ),
            Case(problem=cls(batch=1, rows=1, columns=1, inner=1, dtype="fp32", out_dtype="fp32")),
            Case(problem=cls(batch=1, rows=3, columns=1, inner=1, dtype="mxfp4")),  # a: 12 bits, two bytes
            Case(problem=cls(dtype="fp8_e4m3", scales="tensor")),
        )
