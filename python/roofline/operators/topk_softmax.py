"""The router of a mixture of experts: softmax over the experts, the largest few, renormalised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..counts import Array
from ..dtypes import FLOATS
from ..references import exp, max_, sum_, top
from .routing import Chosen, Router


@dataclass(frozen=True, slots=True, kw_only=True)
class TopkSoftmax(Router):
    """The experts_per_token largest of softmax(logits) of each token, largest first, and which experts they are.

    logits: [tokens, experts] in dtype. weights: [tokens, experts_per_token] in fp32, divided by their sum where renormalise;
    chosen: as many int32. Selection is by successive maxima of the rest: k n - k (k - 1) / 2 comparisons for k of n. Raises
    Error for bad fields.
    """

    tokens: int = 4096
    experts: int = 128
    experts_per_token: int = 8
    renormalise: bool = True
    dtype: str = "fp32"

    name = "topk_softmax"
    summary = "router of a mixture of experts: the largest few of a softmax"
    variants = {
        "fused": Chosen(
            summary="a token's logits are read once and stay on the chip for their sum and the selection",
            dtypes={"cpu": FLOATS, "cuda": FLOATS},
        ),
    }

    def flops(self) -> dict[str, int]:
        return {"softmax": 5 * self.tokens * self.experts, **self.selection()}  # compare, subtract, exp, add, divide

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: tokens."""
        logits = tensors["logits"] if rows is None else tensors["logits"][rows]
        powers = exp(logits - max_(logits, axis=-1, keepdims=True))
        return self.chosen(*top(powers / sum_(powers, axis=-1, keepdims=True), self.experts_per_token))
