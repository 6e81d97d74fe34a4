"""Multiply-adds in registers: the probe of the compute roofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array
from ..tensor_spec import TensorSpec
from .base import Case, Operator, Variant

ACCUMULATORS = {"fp64": "fp64", "fp32": "fp32", "fp16": "fp16", "bf16": "fp32", "int16": "int32", "int8": "int32"}
TERMS = {"fp64": 1, "fp32": 1, "fp16": 1, "bf16": 2, "int16": 2, "int8": 4}  # products that one step of a chain adds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fma(Operator):
    """Independent chains acc <- acc + s w (3 * 5), s = +1 and -1 in turn; w is 1, 2 (bf16, int16) or 4 (int8) products.

    chains: held in registers, best a multiple of 3840 per thread, which every instruction set divides into whole blocks
    (amx: 1024). steps: of each chain. isa: instruction set to use, empty for the widest there is; on a GPU f32x2 are fp32
    ones in pairs (sm_100, sm_103), empty the ordinary ones. pattern: fma, or
    fma_add (fp64 and fp32): acc <- acc + s (3 * 3 - 3), a multiply-add and an addition a step, for cores whose pipes for
    additions issue beside those for multiply-adds. Raises Error for bad fields.
    """

    chains: int = 7680
    steps: int = 100_000
    isa: str = ""
    pattern: str = "fma"
    dtype: str = "fp32"

    name = "fma"
    summary = "multiply-adds in registers, the probe of the compute roofs"
    mix = "copy"
    allowed = {"dtype": tuple(TERMS), "pattern": ("fma", "fma_add")}
    variants = {
        "l2_operands": Variant(
            summary="tile instructions (amx), 2 x 2 tiles: rows streamed from half of L2, columns from L1",
            dtypes={"cpu": ("bf16", "int8")},
            asked=True,
        ),
        "l1_operands": Variant(
            summary="tile instructions (amx), 2 x 2 tiles: rows and columns streamed from L1, at most 16 KiB of each",
            dtypes={"cpu": ("bf16", "int8")},
            asked=True,
        ),
        "registers": Variant(
            summary="fixed registers, no memory",
            dtypes={"cpu": ("fp64", "fp32", "fp16", "bf16", "int16", "int8"), "cuda": ("fp64", "fp32", "fp16")},
        ),
    }

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="start", shape=(self.chains,), dtype=ACCUMULATORS[self.dtype]),)

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="result", shape=(self.chains,), dtype=ACCUMULATORS[self.dtype], role="out"),)

    def flops(self) -> dict[str, int]:
        terms = {"multiply-add": 2 * TERMS[self.dtype] * self.chains * self.steps}
        return terms | {"add": self.chains * self.steps} if self.pattern == "fma_add" else terms

    def operations(self) -> dict[str, int]:
        terms = self.flops()
        return {"other": terms["multiply-add"] // 2 + terms.get("add", 0)}  # one instruction for a multiplication and an addition

    def has_products(self) -> bool:
        return True  # the probe of both units

    def compute(self) -> tuple[str, str]:
        return self.dtype, ACCUMULATORS[self.dtype]

    def tolerance(self) -> tuple[float, float]:
        # A chain moves between x and x + 15 w: rounding happens once, at the larger magnitude.
        return {"fp64": 1e-14, "fp32": 1e-5, "fp16": 1e-2, "bf16": 1e-5, "int16": 0.0, "int8": 0.0}[self.dtype], 0.0

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices of chains."""
        acc = tensors["start"] if rows is None else tensors["start"][rows]
        # Two steps cancel: beyond 64 only the parity is left to compute.
        for step in range(self.steps if self.steps <= 64 else 2 - self.steps % 2):
            sign = 1.0 if step % 2 == 0 else -1.0
            for _ in range(TERMS[self.dtype]):
                acc = acc + np.full_like(acc, 3.0) * (sign * (5.0 if self.pattern == "fma" else 3.0))
            if self.pattern == "fma_add":
                acc = acc - sign * 3.0
        return {"result": acc}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1), (7, 2), (48, 9), (385, 16), (1536, 1001))
        added = cls.grid(shapes, "chains steps", pattern="fma_add", dtype=("fp64", "fp32"))
        return (*cls.grid(shapes, "chains steps", dtype=tuple(TERMS)), *added)
