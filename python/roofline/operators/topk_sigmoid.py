"""The router of DeepSeek-V3 and its kin: sigmoids, a bias that balances the experts, the largest few, renormalised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..counts import Array
from ..dtypes import FLOATS
from ..references import exp, top
from ..tensor_spec import TensorSpec
from .routing import Chosen, Router


@dataclass(frozen=True, slots=True, kw_only=True)
class TopkSigmoid(Router):
    """The experts_per_token largest of 1 / (1 + e^-logits) + bias of each token, without the bias, and which experts they are.

    logits: [tokens, experts] in dtype. bias: [experts] in fp32, where biased: it decides the choice and does not enter the weights.
    weights: [tokens, experts_per_token] in fp32, divided by their sum where renormalise; chosen: as many int32. Selection is by
    successive maxima of the rest: k n - k (k - 1) / 2 comparisons for k of n; limits on groups of experts are not counted.
    Source: DeepSeek-V3 (arXiv:2412.19437), section 2.1.2. Raises Error for bad fields.
    """

    tokens: int = 4096
    experts: int = 256
    experts_per_token: int = 8
    biased: bool = True
    renormalise: bool = True
    dtype: str = "fp32"

    name = "topk_sigmoid"
    summary = "router of a mixture of experts: the largest few of biased sigmoids"
    variants = {
        "fused": Chosen(
            summary="a token's logits are read once and stay on the chip for the selection", dtypes={"cpu": FLOATS, "cuda": FLOATS}
        ),
    }

    def inputs(self) -> tuple[TensorSpec, ...]:
        bias = TensorSpec(name="bias", shape=(self.experts,), dtype="fp32", role="constant")
        return (*Router.inputs(self), *((bias,) if self.biased else ()))

    def flops(self) -> dict[str, int]:
        scores = self.tokens * self.experts
        bias = {"bias": scores} if self.biased else {}
        return {"sigmoid": 3 * scores, **bias, **self.selection()}  # exp, addition, division

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: tokens."""
        logits = tensors["logits"] if rows is None else tensors["logits"][rows]
        scores = 1.0 / (1.0 + exp(-logits))
        _, chosen = top(scores + tensors["bias"] if self.biased else scores, self.experts_per_token)
        return self.chosen(np.take_along_axis(scores, chosen, axis=-1), chosen)
