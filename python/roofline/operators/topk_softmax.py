"""The router of a mixture of experts: softmax over the experts, the largest few, renormalised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array
from ..references import exp, max_, sum_, top
from ..tensor_spec import TensorSpec
from .base import Case, Facts, Operator, Variant


class Router(Variant):
    def work(self, problem: Operator, plan: Facts) -> dict[str, int]:
        work = problem.operations()
        return work | {"exp": int(plan.get("exponentials", 0)) or work["exp"]}  # of the chosen alone, where that is enough


@dataclass(frozen=True, slots=True, kw_only=True)
class TopkSoftmax(Operator):
    """The experts_per_token largest of softmax(logits) of each token, largest first, and which experts they are.

    logits: [tokens, experts] in dtype. weights: [tokens, experts_per_token] in fp32, divided by their sum where renormalise;
    chosen: as many int32. Selection is by successive maxima of what is left: k n - k (k - 1) / 2 comparisons for k of n. Raises
    Error for bad fields.
    """

    tokens: int = 4096
    experts: int = 128
    experts_per_token: int = 8
    renormalise: bool = True
    dtype: str = "fp32"

    name = "topk_softmax"
    summary = "router of a mixture of experts: the largest few of a softmax"
    mix = "read"
    variants = {
        "fused": Router(
            summary="a token's logits are read once and stay on the chip for their sum and the selection",
            dtypes={"cpu": ("fp32", "fp16", "bf16"), "cuda": ("fp32", "fp16", "bf16")},
        ),
    }

    def check(self) -> None:
        self.one_of("dtype", ("fp32", "fp16", "bf16"))
        self.require(
            self.experts_per_token <= self.experts, "experts_per_token must be at most experts {experts}, got {experts_per_token}"
        )

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="logits", shape=(self.tokens, self.experts), dtype=self.dtype),)

    def outputs(self) -> tuple[TensorSpec, ...]:
        shape = (self.tokens, self.experts_per_token)
        return (
            TensorSpec(name="weights", shape=shape, dtype="fp32", role="out"),
            TensorSpec(name="chosen", shape=shape, dtype="int32", role="out"),
        )

    def flops(self) -> dict[str, int]:
        most = self.experts_per_token
        renormalised = {"renormalise": 2 * self.tokens * most} if self.renormalise else {}
        return {
            "softmax": 5 * self.tokens * self.experts,  # compare, subtract, exp, add, divide
            "select": self.tokens * (most * self.experts - most * (most - 1) // 2),
            **renormalised,
        }

    def operations(self) -> dict[str, int]:
        scores = self.tokens * self.experts
        return {"exp": scores, "other": self.total_flops() - scores}

    def loops(self) -> int:
        """Selections: each goes over the experts that are left."""
        return self.tokens * self.experts_per_token

    def compute(self) -> tuple[str, str]:
        return self.dtype, "fp32"

    def tolerance(self) -> tuple[float, float]:
        """Of fp32, in which all is computed; a number of an expert is exact within it."""
        return 2.0**-22, 2.0**-18

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: tokens."""
        logits = tensors["logits"] if rows is None else tensors["logits"][rows]
        powers = exp(logits - max_(logits, axis=-1, keepdims=True))
        weights, chosen = top(powers / sum_(powers, axis=-1, keepdims=True), self.experts_per_token)
        if self.renormalise:
            weights = weights / sum_(weights, axis=-1, keepdims=True)
        return {"weights": weights, "chosen": np.asarray(chosen)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1, 1), (1, 7, 1), (3, 5, 5), (2, 64, 6), (5, 17, 4))
        small = tuple(
            Case(problem=cls(tokens=t, experts=n, experts_per_token=k, renormalise=again))
            for t, n, k in shapes
            for again in (False, True)
        )
        others = tuple(
            Case(problem=cls(tokens=9, experts=n, experts_per_token=8, dtype=dtype))
            for dtype in ("fp32", "fp16")
            for n in (64, 384)
        )
        return (*small, *others, Case(problem=cls(tokens=65536, dtype="bf16")))
