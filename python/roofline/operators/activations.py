"""Activations: what they compute, and how many FLOPs an element of each counts."""

from __future__ import annotations

import math

from .. import references
from ..counts import Array

# relu: compare; gelu: 0.5 x (1 + erf(x / sqrt(2))); gelu_tanh: its approximation by tanh, see `Gelu`; silu: x / (1 + e^-x).
ACTIVATIONS = {"relu": 1, "gelu": 5, "gelu_tanh": 9, "silu": 3}


def activated(activation: str, x: Array) -> Array:
    if activation == "relu":
        return references.maximum(x, 0.0)
    if activation == "gelu":
        return 0.5 * x * (1.0 + references.erf(x * math.sqrt(0.5)))
    if activation == "gelu_tanh":
        return 0.5 * x * (1.0 + references.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    return x / (1.0 + references.exp(-x))


def exponentials(activation: str) -> int:
    """Exponentials per element; erf and tanh count as one each, and a few other operations."""
    return 0 if activation in ("none", "relu") else 1
