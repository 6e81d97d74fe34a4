"""Nothing at all: the floor below which no operator can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..counts import Array
from ..tensor_spec import TensorSpec
from .base import Case, Facts, Variant
from .mapped import Moved


class _Launches(Variant):
    def launches(self, problem: ForkJoin, plan: Facts) -> int:
        return problem.calls


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkJoin(Moved):
    """`calls` calls of every thread (CPU) or empty launches (GPU), one after the other: the time of one is the launch ceiling.

    Raises Error for bad fields.
    """

    calls: int = 1

    name = "fork_join"
    summary = "every thread is called and returns: the launch ceiling"
    mix = "read"
    # Not slowest first: the launch ceiling is that of operators that use every thread, so that `pool` is the default.
    variants = {
        "call": Variant(
            summary="an empty call of the launch alone, no thread woken; the host's cost of a launch",
            dtypes={"cpu": ("fp32",), "cuda": ("fp32",)},
            launched=0,
        ),
        "synchronised": _Launches(summary="an empty launch, waited for, by the host's clock", dtypes={"cuda": ("fp32",)}),
        "graph": _Launches(summary="empty launches as the nodes of one graph, replayed", dtypes={"cuda": ("fp32",)}),
        "pool": _Launches(
            summary="an empty call of every thread; an empty launch queued behind others",
            dtypes={"cpu": ("fp32",), "cuda": ("fp32",)},
        ),
    }

    def inputs(self) -> tuple[TensorSpec, ...]:
        return ()

    def outputs(self) -> tuple[TensorSpec, ...]:
        return ()

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        return {}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        return cls.grid((1, 7), "calls")
