"""Looking up the vectors of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..counts import Array, whole
from ..tensor_spec import TensorSpec, size_bytes
from .base import Case, Facts, Variant
from .grouped_matmul import expected_touched
from .mapped import Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding(Moved):
    """out[i] = table[ids[i]]: nothing is computed.

    ids: [tokens] in int32, below vocabulary. table: [vocabulary, d_model]; the rows are read that tokens drawn at random are
    expected to name (`expected_touched`). out: [tokens, d_model]. Raises Error for bad fields.
    """

    tokens: int = 4096
    vocabulary: int = 128256
    d_model: int = 4096
    dtype: str = "bf16"

    name = "embedding"
    summary = "the vectors of tokens, looked up in a table"
    mix = "copy"
    allowed = {"dtype": ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")}
    variants = {
        "fused": Variant(
            summary="a row of the table is read and written for each token",
            dtypes={"cpu": ("fp32", "fp16", "bf16"), "cuda": ("fp32", "fp16", "bf16")},
        ),
    }

    def check(self) -> None:
        self.require(self.vocabulary <= 2**31, "vocabulary must be at most 2**31, for ids in int32, got {vocabulary}")

    def pieces(self, plan: Facts) -> Any:
        return self.tokens

    def inputs(self) -> tuple[TensorSpec, ...]:
        rows = expected_touched(self.tokens, self.vocabulary, 1)
        touched = whole(rows * size_bytes((self.d_model,), self.dtype))
        table = (self.vocabulary, self.d_model)
        return (
            TensorSpec(name="ids", shape=(self.tokens,), dtype="int32", below=self.vocabulary),
            TensorSpec(name="table", shape=table, dtype=self.dtype, role="constant", touched_bytes=touched),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="out", shape=(self.tokens, self.d_model), dtype=self.dtype, role="out"),)

    def loops(self) -> int:
        return self.tokens

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: tokens."""
        ids = tensors["ids"] if rows is None else tensors["ids"][rows]
        return {"out": tensors["table"][ids]}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1, 1), (3, 7, 5), (9, 4, 3), (1, 1283, 8192), (1000, 97, 1024))
        return (
            *cls.grid(shapes, "tokens vocabulary d_model"),
            *cls.grid((5, 64), "d_model", tokens=50, vocabulary=97, dtype=("fp32", "fp16")),
            *cls.grid((1, 2**18 + 1), "tokens", d_model=8192, slow=True),
        )
