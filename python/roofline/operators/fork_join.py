"""Nothing at all: the floor below which no operator can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..cost import Array, TensorSpec
from .base import Case, Facts, Operator, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkJoin(Operator):
    """One call of every thread (CPU) or one empty launch (GPU): its time is the launch ceiling."""

    name = "fork_join"
    summary = "every thread is called and returns: the launch ceiling"
    mix = "read"
    # Not slowest first: the launch ceiling is that of operators that use every thread, so that `pool` is the default.
    variants = {
        "call": Variant(summary="an empty call of the launch alone; no thread is woken", dtypes={"cpu": ("fp32",)}),
        "pool": Variant(summary="an empty call of every thread", dtypes={"cpu": ("fp32",), "cuda": ("fp32",)}),
    }

    def inputs(self) -> tuple[TensorSpec, ...]:
        return ()

    def outputs(self) -> tuple[TensorSpec, ...]:
        return ()

    def flops(self) -> dict[str, int]:
        return {}

    def traffic(self, plan: Facts) -> dict[str, int]:
        return {}

    def launches(self, plan: Facts) -> int:
        return 0 if plan.get("variant") == "call" else 1

    def compute(self) -> tuple[str, str]:
        return "fp32", "fp32"

    def tolerance(self) -> tuple[float, float]:
        return 0.0, 0.0

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        return {}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        return (Case(problem=cls()),)
