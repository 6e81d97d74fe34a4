"""The last product of a language model: one logit for every token of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..counts import Array
from ..dtypes import dtype
from ..references import matmul
from ..tensor_spec import TensorSpec
from .base import Case, Operator, Product, Variant

_DTYPES = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")


@dataclass(frozen=True, slots=True, kw_only=True)
class LmHead(Operator):
    """logits = x w: as many rows as tokens whose successor is wanted (in decode one per sequence, in prefill the last).

    x: [tokens, d_model] in dtype; w: [d_model, vocabulary] in weight_dtype ("": dtype, and the field then holds that); logits:
    [tokens, vocabulary] in out_dtype. Raises Error for bad fields.
    """

    tokens: int = 1
    d_model: int = 4096
    vocabulary: int = 128256
    dtype: str = "bf16"
    weight_dtype: str = ""
    out_dtype: str = "fp32"

    name = "lm_head"
    summary = "the last product of a language model, one logit per token of the vocabulary"
    mix = "read"
    allowed = dict.fromkeys(("dtype", "weight_dtype", "out_dtype"), _DTYPES)
    variants = {
        "library": Variant(
            summary="oneDNN on one block of the logits per thread, w packed before the clock starts",
            dtypes={"cpu": ("fp32", "bf16", "fp16")},
        ),
        "tiled": Variant(
            summary="our own kernels on packed strips of w, sums in fp32; few tokens read w in one stream or several",
            dtypes={"cpu": ("fp32", "bf16", "fp16")},
            own_products=True,
        ),
    }

    def __post_init__(self) -> None:
        if self.weight_dtype == "":
            object.__setattr__(self, "weight_dtype", self.dtype)
        Operator.__post_init__(self)

    def replace(self, **changes: Any) -> Self:
        """As for every operator; where weight_dtype was dtype, it stays so unless it is given."""
        if "dtype" in changes and self.weight_dtype == self.dtype:
            changes.setdefault("weight_dtype", "")
        return Operator.replace(self, **changes)

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="x", shape=(self.tokens, self.d_model), dtype=self.dtype),
            TensorSpec(name="w", shape=(self.d_model, self.vocabulary), dtype=self.weight_dtype, role="constant"),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="logits", shape=(self.tokens, self.vocabulary), dtype=self.out_dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        return {"x·w": 2 * self.tokens * self.d_model * self.vocabulary}

    def products(self) -> tuple[Product, ...]:
        return (Product(term="x·w", rows=self.tokens, columns=self.vocabulary, inner=self.d_model),)

    def tolerance(self) -> tuple[float, float]:
        """As of `Matmul`, for terms of variance 1, and a step of the logits."""
        return (2 * self.d_model + 16) * dtype("fp32").eps, 2 * dtype(self.out_dtype).eps

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: tokens."""
        return {"logits": matmul(tensors["x"] if rows is None else tensors["x"][rows], tensors["w"])}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1, 1), (3, 5, 7), (2, 64, 101), (37, 130, 1030))
        small = (case for d in ("bf16", "fp32") for case in cls.grid(shapes, "tokens d_model vocabulary", dtype=d, weight_dtype=d))
        return (*small, Case(problem=cls(tokens=128, d_model=7168, vocabulary=129280), slow=True))
