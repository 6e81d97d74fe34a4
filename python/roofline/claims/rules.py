"""Counting rules of the documents where they are not ours, so that their figures can be had too."""

from __future__ import annotations

from ..operators import Attention, Bmm, Counts, count
from ..operators.base import Operator


def _product(rows: int, inner: int, columns: int) -> Operator:
    return Bmm(batch=1, rows=rows, columns=columns, inner=inner, dtype="fp16", out_dtype="fp16")


def notebook_decode(*, batch: int, seq_kv: int, d_model: int = 4096, layers: int = 32, heads: int = 32) -> Counts:
    """A decode step of all layers in 2-byte elements, as "Arithmetic Intensity & The Roofline Model" counts it.

    Each layer: four square projections with their inputs and results; the two products of attention with the KV cache and three
    vectors a head; an FFN of 4 d_model with its weights and three vectors, the activations between its products left out.
    `roofline.predict` counts in full. Raises Error for bad fields.
    """
    projection = _product(batch, d_model, d_model)
    cached = Attention(batch=batch, heads=heads, seq_q=1, seq_kv=seq_kv, head_dim=d_model // heads, dtype="fp16")
    ffn = count(_product(batch, d_model, 4 * d_model), _product(batch, 4 * d_model, d_model), tensors=("b",))
    # Two of attention's three vectors are its own query and result.
    vectors = 4 * count(projection, tensors=("a",)).bytes
    layer = 4 * count(projection) + count(cached, products_only=True) + ffn + Counts(bytes=vectors)
    return layers * layer
