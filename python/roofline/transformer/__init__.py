"""Transformers as a whole: what they are made of, what a phase of them runs, how long that should take, and what would help.

from roofline import predict
from roofline.transformer import Decode, preset

predict("H100 SXM", preset("Llama-3-8B"), Decode(batch=8, seq_kv=4096))
"""

from __future__ import annotations

from ..crossovers import Crossing, crossing
from ..prediction import Advice
from .advice import advise, ridge_batch
from .calls import calls_of
from .config import TransformerConfig
from .given import Given, model_of
from .hugging_face import from_hugging_face
from .layers import Call
from .many import ModelPredictions, predict_steps
from .memory import Memory, kv_bytes, largest_batch, memory_of
from .parameters import active_parameters, parameters, total_parameters, weights_bytes
from .phases import Decode, Mixed, Phase, Prefill, Serving, Training, phase_of
from .predicting import predict_model, ranks_on
from .presets import PRESETS, preset
from .pricing import Part
from .quantization import Quantization
from .records import ModelPrediction
from .serving import ServingPrediction, predict_serving

__all__ = [
    "PRESETS", "Advice", "Call", "Crossing", "Decode", "Given", "Memory", "Mixed", "ModelPrediction", "ModelPredictions", "Part",
    "Phase", "Prefill", "Quantization", "Serving", "ServingPrediction", "Training", "TransformerConfig", "active_parameters",
    "advise", "calls_of", "crossing", "from_hugging_face", "kv_bytes", "largest_batch", "memory_of", "model_of", "parameters",
    "phase_of", "predict_model", "predict_serving", "predict_steps", "preset", "ranks_on", "ridge_batch", "total_parameters",
    "weights_bytes",
]  # fmt: skip
