"""Transformers as a whole: what they are made of, and how many parameters that is."""

from __future__ import annotations

from .config import Quantization, TransformerConfig
from .hugging_face import from_hugging_face
from .parameters import active_parameters, parameters, total_parameters
from .presets import PRESETS, preset

__all__ = [
    "PRESETS",
    "Quantization",
    "TransformerConfig",
    "active_parameters",
    "from_hugging_face",
    "parameters",
    "preset",
    "total_parameters",
]
