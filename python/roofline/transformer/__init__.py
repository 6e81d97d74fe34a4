"""Transformers as a whole: what they are made of, what a phase of them runs, how long that should take, and what would help.

from roofline import Machine
from roofline.transformer import Decode, estimate, preset

estimate(preset("Llama-3-8B"), Decode(batch=8, seq_kv=4096), Machine.from_datasheet("H100 SXM"))
"""

from __future__ import annotations

from ..model import Crossing, crossing
from ..prediction import Advice
from .advice import advise, ridge_batch
from .calls import calls_of
from .config import Quantization, TransformerConfig
from .estimates import Estimate
from .estimating import estimate
from .hugging_face import from_hugging_face
from .layers import Call
from .many import Estimates, estimate_many
from .memory import Memory, kv_bytes, largest_batch, memory_of
from .parameters import active_parameters, parameters, total_parameters, weights_bytes
from .phases import Decode, Mixed, Phase, Prefill, Training
from .presets import PRESETS, preset
from .pricing import Part

__all__ = [
    "PRESETS",
    "Advice",
    "Call",
    "Crossing",
    "Decode",
    "Estimate",
    "Estimates",
    "Memory",
    "Mixed",
    "Part",
    "Phase",
    "Prefill",
    "Quantization",
    "Training",
    "TransformerConfig",
    "active_parameters",
    "advise",
    "calls_of",
    "crossing",
    "estimate",
    "estimate_many",
    "from_hugging_face",
    "kv_bytes",
    "largest_batch",
    "memory_of",
    "parameters",
    "preset",
    "ridge_batch",
    "total_parameters",
    "weights_bytes",
]
