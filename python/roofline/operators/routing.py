"""What routers of a mixture of experts have in common: the largest few scores of each token, and which experts they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..counts import Array
from ..dtypes import FLOATS
from ..references import sum_
from ..tensor_spec import TensorSpec
from .base import Case, Facts, Operator, Variant


class Chosen(Variant):
    def work(self, problem: Operator, plan: Facts) -> dict[str, int]:
        work = problem.operations()
        return work | {"exp": int(plan.get("exponentials", 0)) or work["exp"]}  # of the chosen alone, where that is enough


class Router(Operator, abstract=True):
    """Selection is by successive maxima of the remaining values: k n - k (k - 1) / 2 comparisons for k of n."""

    tokens: int
    experts: int
    experts_per_token: int
    renormalise: bool
    dtype: str
    mix = "read"
    allowed = {"dtype": FLOATS}

    def check(self) -> None:
        self.require(
            self.experts_per_token <= self.experts, "experts_per_token must be at most experts {experts}, got {experts_per_token}"
        )

    def pieces(self, plan: Facts) -> Any:
        return self.tokens

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="logits", shape=(self.tokens, self.experts), dtype=self.dtype),)

    def outputs(self) -> tuple[TensorSpec, ...]:
        shape = (self.tokens, self.experts_per_token)
        return (
            TensorSpec(name="weights", shape=shape, dtype="fp32", role="out"),
            TensorSpec(name="chosen", shape=shape, dtype="int32", role="out"),
        )

    def selection(self) -> dict[str, int]:
        """Terms of `flops` after the scores."""
        most = self.experts_per_token
        select = {"select": self.tokens * (most * self.experts - most * (most - 1) // 2)}
        return {**select, **({"renormalise": 2 * self.tokens * most} if self.renormalise else {})}

    def operations(self) -> dict[str, int]:
        scores = self.tokens * self.experts
        return {"exp": scores, "other": self.total_flops() - scores}

    def loops(self) -> int:
        """Selections: each goes over the experts that are left."""
        return self.tokens * self.experts_per_token

    def tolerance(self) -> tuple[float, float]:
        """That of fp32, in which all is computed; it holds an expert's number exactly."""
        return 2.0**-22, 2.0**-18

    def chosen(self, weights: Array, chosen: Array) -> dict[str, Array]:
        """Outputs from the weights of the chosen."""
        if self.renormalise:
            weights = weights / sum_(weights, axis=-1, keepdims=True)
        return {"weights": weights, "chosen": np.asarray(chosen)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1, 1), (1, 7, 1), (3, 5, 5), (2, 64, 6), (5, 17, 4))
        names, biased = "tokens experts experts_per_token", "biased" in cls.field_names()
        small = (
            {**dict(zip(names.split(), shape, strict=True)), **({"biased": shape[2] != 4} if biased else {})} for shape in shapes
        )
        return (
            *cls.grid(small, renormalise=(False, True)),
            *cls.grid((64, 384), "experts", tokens=9, experts_per_token=8, dtype=("fp32", "fp16")),
            *cls.grid(({"tokens": 5, "experts": 64, "experts_per_token": 12}, {"tokens": 65536, "dtype": "bf16"})),
        )
