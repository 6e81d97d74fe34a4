"""Models as callers give them: a configuration, a preset's name, a config.json or its content, and dtypes that replace its own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..dtypes import dtype_name
from ..errors import Error, shown
from ..reading import is_there
from .config import DTYPES, TransformerConfig
from .hugging_face import from_hugging_face
from .presets import preset
from .quantization import STORED, Quantization, quantization_of

Given = TransformerConfig | str | os.PathLike[str] | Mapping[str, Any]  # what `model_of` takes


def model_of(
    given: Given,
    *,
    dtype: Any = None,
    weights: Any = None,
    activations: Any = None,
    kv: Any = None,
    quantization: Quantization | str | None = None,
) -> TransformerConfig:
    """The configuration of a model: `model_of("Llama-3-70B", weights="fp8")`.

    given: a TransformerConfig, a preset's name, the path of a Hugging Face config.json or of its folder, or what such a file holds.
    dtype: of weights and activations, instead of the model's own. quantization: of weights (and of what products read) by its name,
    as `SCHEMES` has it, or a Quantization. weights: a narrow dtype for the matrices of layers alone, with the scales that are usual
    for it; or fp32, fp16 or bf16 for all weights, and without dtype= for activations too. activations: that products read. kv: of
    the cache. Raises Error for what cannot be read, and for dtypes that contradict.
    """
    config = _plain(given, dtype)
    if quantization is not None:
        if weights is not None:
            raise Error("give either quantization (of weights and products) or weights (a dtype), not both")
        config = config.replace(quantization=quantization_of(quantization))
    if weights is not None:
        name = dtype_name(weights)
        kept = {} if dtype is None else {"activations": config.activations}
        config = config.replace(quantization=None, weights=name, **kept) if name in DTYPES else config.replace(weights=name)
    if activations is not None:
        name = dtype_name(activations)
        if name in DTYPES:
            config = config.replace(activations=name)
        elif not isinstance(config.quantization, Quantization):
            raise Error(f"activations {name} belong to products with narrow weights: give weights (--weights) too")
        else:
            config = config.replace(quantization=dataclasses.replace(config.quantization, activations=name))
    return config if kv is None else config.replace(kv=dtype_name(kv))


def _plain(given: Given, dtype: Any) -> TransformerConfig:
    name = None if dtype is None else dtype_name(dtype)
    if name not in (None, *DTYPES):
        cure = f"for {name} give quantization or weights (--quantization, --weights)" if name in STORED else f"got {name}"
        raise Error(f"the dtype of a model is {', '.join(DTYPES)}; {cure}")
    if isinstance(given, TransformerConfig):
        config = given
    elif isinstance(given, Mapping):
        return from_hugging_face(given, dtype=name)
    elif isinstance(given, (str, os.PathLike)):
        path, text = Path(given), os.fspath(given)
        is_path = not isinstance(given, str) or text.endswith(".json") or text.startswith((".", os.sep, "~"))
        if is_path or is_there(text, "config.json"):
            return from_hugging_face(path.expanduser(), dtype=name)
        try:
            config = preset(text)
        except Error:
            if os.path.isdir(text):
                return from_hugging_face(path, dtype=name)
            raise
    else:
        raise Error(f"a model must be a TransformerConfig, a preset's name or a config.json, got {shown(given)}")
    return config if name is None else config.replace(weights=name, activations=name)
