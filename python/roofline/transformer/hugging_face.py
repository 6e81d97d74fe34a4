"""A Hugging Face config.json as a TransformerConfig: read by hand, nothing imported and nothing downloaded.

Missing keys are listed and never guessed. A key may be absent only where the architecture's own code gives it a value, and
`families` says which.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._repr import values_of
from ..errors import Error, is_whole, shown
from ..reading import CONFIG, from_json, read_bytes
from .config import TransformerConfig
from .families import ACTIVATIONS, DTYPES, FAMILIES, GPT2_NAMES, NO_MATTER, NOT_MODELLED, TEXT_PARTS, Family
from .quantization import MOST, QUANTIZATION_KEYS, kv_cache, quantization

_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", list: "a list", dict: "an object"}


class _Keys:
    """Typed access to a configuration's keys. Missing ones are collected, so that one error lists all of them."""

    def __init__(self, values: Mapping[str, Any], where: str, names: Mapping[str, str]) -> None:
        self.values, self.where, self.names = values, where, names
        self.missing: list[str] = []
        self.read: set[str] = set()

    def get(self, key: str, kind: type, default: Any) -> Any:
        """The value, or the default where it is absent or null. Raises Error for another type."""
        name = self.names.get(key, key)
        self.read.add(name)
        value = self.values.get(name)
        if value is None:
            return default
        if kind is float and is_whole(value):
            value = float(max(min(value, MOST), -MOST))
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise Error(f"{self.where}: {name} must be {_KINDS[kind]}, got {shown(value)}")
        return value

    def need(self, key: str, kind: type = int) -> Any:
        """The value; where it is absent the key is noted and a stand-in of 1 returned, which never leaves this module."""
        value = self.get(key, kind, None)
        if value is None:
            self.missing.append(self.names.get(key, key))
            return {int: 1, str: "", list: []}.get(kind, 1)
        return value

    def flag(self, setting: bool | str) -> bool:
        """A fact, or the key that states it (absent: False)."""
        return setting if isinstance(setting, bool) else bool(self.get(setting, bool, False))


def _load(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, Mapping):
        return source, "configuration"
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    where = f"configuration {path}"
    data = from_json(read_bytes(path, CONFIG), where=where)
    if not isinstance(data, dict):
        raise Error(f"{where} must hold one JSON object, got {shown(data)}")
    return data, where


def _text_part(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The keys of the language model: those of text_config over those around it."""
    inner = data.get("text_config")
    if inner is None:
        return dict(data)
    if not isinstance(inner, Mapping):
        raise Error(f"{where}: text_config must be an object, got {shown(inner)}")
    outer = data.get("model_type")
    merged = {key: value for key, value in data.items() if key not in ("text_config", "vision_config", "audio_config")}
    merged |= inner
    if "model_type" not in inner and isinstance(outer, str):
        merged["model_type"] = TEXT_PARTS.get(outer, outer)
    return merged


def _rope(keys: _Keys) -> dict[str, Any]:
    """Base, scaling and rotated share, from rope_parameters (also nested by kind of layer) or rope_theta and rope_scaling."""
    given = keys.get("rope_parameters", dict, {})
    if given and all(isinstance(value, dict) for value in given.values()):
        given = given.get("full_attention") or next(iter(given.values()))
    scaling = given or keys.get("rope_scaling", dict, {})
    inner = _Keys(scaling, f"{keys.where}: rope", {})
    kind = inner.get("rope_type", str, None) or inner.get("type", str, "")
    factor = inner.get("factor", float, 1.0)
    theta = _Keys(given, f"{keys.where}: rope_parameters", {}).get("rope_theta", float, None)
    fraction = inner.get("partial_rotary_factor", float, None)
    return {
        "rope_theta": theta if theta is not None else keys.get("rope_theta", float, 0.0),
        "rope_scaling": f"{kind} × {factor:g}" if kind not in ("", "default") else "",
        "rope_fraction": fraction if fraction is not None else keys.get("partial_rotary_factor", float, 1.0),
    }


def _windows(keys: _Keys, family: Family, layers: int) -> dict[str, Any]:
    """The window and the layers that have it. layer_types decides where it is there."""
    kinds = keys.get("layer_types", list, None)
    window = keys.get("sliding_window", int, 0)
    if kinds is not None:
        if foreign := sorted({str(kind) for kind in kinds} - {"full_attention", "sliding_attention"}):
            raise Error(f"{keys.where}: layers of {', '.join(foreign)[:80]} are not modelled, only full and sliding attention")
        if len(kinds) != layers:
            raise Error(f"{keys.where}: layer_types names {len(kinds)} layers, num_hidden_layers is {layers}")
        sliding = tuple(i for i, kind in enumerate(kinds) if kind == "sliding_attention")
        if sliding and not window:
            keys.missing.append("sliding_window")
        return {"window": window, "window_layers": sliding} if sliding and window else {}
    if family.window == "switched":
        if not keys.get("use_sliding_window", bool, False):
            return {}
        first = keys.need("max_window_layers")
        return {"window": keys.need("sliding_window"), "window_layers": tuple(range(first, layers))} if first < layers else {}
    if family.window == "listed":
        pattern = keys.get("sliding_window_pattern", int, None)
        if pattern is None or pattern < 1:
            keys.missing.append("layer_types")
            return {}
        return {"window": keys.need("sliding_window"), "window_layers": tuple(i for i in range(layers) if (i + 1) % pattern)}
    if family.window == "even":
        return {"window": keys.need("sliding_window"), "window_layers": tuple(range(0, layers, 2))}
    return {"window": window} if family.window == "all" and window else {}


def _latent(keys: _Keys) -> dict[str, Any]:
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {name.removeprefix("qk_"): keys.need(name) for name in names} | {"q_lora_rank": keys.get("q_lora_rank", int, 0)}


def _mixture(keys: _Keys, family: Family, layers: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "experts": keys.need(family.mixture),
        "experts_per_token": keys.need("num_experts_per_tok"),
        "expert_d_ff": keys.need(family.expert_d_ff),
        **values_of(family, "router router_bias"),
    }
    if scoring := keys.get("scoring_func", str, ""):
        found["router"] = scoring
    groups, drawn = keys.get("n_group", int, 1), keys.get("topk_group", int, 1)
    if groups > 1 and keys.get("topk_method", str, "") != "greedy":  # DeepSeek-V2-Lite's, which has no use for groups
        found |= {"expert_groups": groups, "groups_per_token": drawn}
    if shared := keys.get("n_shared_experts", int, 0):
        found |= {"shared_experts": shared, "shared_d_ff": shared * found["expert_d_ff"]}
    if width := keys.get("shared_expert_intermediate_size", int, 0):
        found |= {"shared_experts": 1, "shared_d_ff": width, "shared_gate": True}
    if family.dense == "first_k_dense_replace":
        found["dense_layers"] = tuple(range(min(keys.need(family.dense), layers)))
        if keys.get("moe_layer_freq", int, 1) != 1:
            raise Error(f"{keys.where}: moe_layer_freq other than 1 is not modelled")
    elif family.dense == "decoder_sparse_step":
        step, listed = keys.need(family.dense), keys.get("mlp_only_layers", list, [])
        if step < 1 or not all(is_whole(i) for i in listed):
            raise Error(f"{keys.where}: decoder_sparse_step must be 1 or more and mlp_only_layers a list of integers")
        found["dense_layers"] = tuple(i for i in range(layers) if i in set(listed) or (i + 1) % step)
    if found.get("dense_layers") and len(found["dense_layers"]) >= layers:
        raise Error(f"{keys.where}: no layer is a mixture of experts, though {family.mixture} is {found['experts']}")
    return found


def _unread(values: Mapping[str, Any], read: set[str]) -> tuple[str, ...]:
    """Keys that state something (no null, no false, no empty list), nobody reads, and are not of NO_MATTER."""
    inner = values.get("quantization_config")
    stated = [(key, key, value) for key, value in values.items() if key not in read and key not in NOT_MODELLED]
    if isinstance(inner, Mapping):
        stated += [(key, f"quantization_config.{key}", value) for key, value in inner.items() if key not in QUANTIZATION_KEYS]
    return tuple(name[:80] for key, name, value in stated if value not in (None, False, [], {}) and not NO_MATTER.fullmatch(key))


def _dtype(keys: _Keys, stated: str | None) -> str:
    if stated is not None:
        return stated
    name = keys.get("dtype", str, None) or keys.get("torch_dtype", str, None)
    if name is None:
        keys.missing.append("dtype (or torch_dtype; or give dtype=)")
        return "bf16"
    short = name.removeprefix("torch.")
    if short not in DTYPES:
        raise Error(f"{keys.where}: dtype {shown(name)} is not known; use one of {', '.join(DTYPES)}")
    return DTYPES[short]


def from_hugging_face(source: str | os.PathLike[str] | Mapping[str, Any], *, dtype: str | None = None) -> TransformerConfig:
    """The configuration that a config.json describes. Keys that nothing here reads are in `unread`, and in notes of predictions.

    Args:
        source: its path, the folder it lies in, or its content.
        dtype: of weights and activations, instead of the one it names.

    Raises:
        Error: for a file that cannot be read, a model_type that is not known, keys that are missing (all of them listed), and
            mechanisms that are not modelled.
    """
    data, where = _load(source)
    values = _text_part(data, where)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        wrong = "model_type is missing" if kind is None else f"model_type {shown(kind)} is not known"
        raise Error(f"{where}: {wrong}; known are {', '.join(FAMILIES)}; others can be given as a TransformerConfig")
    for key, what in NOT_MODELLED.items():
        if values.get(key):
            raise Error(f"{where}: {key} means {what}, which is not modelled")
    family = FAMILIES[kind]
    keys = _Keys(values, where, GPT2_NAMES if kind == "gpt2" else {})
    layers = keys.need("num_hidden_layers")
    if not 0 < layers <= 1 << 16:  # per-layer lists are made below
        name = keys.names.get("num_hidden_layers", "num_hidden_layers")
        raise Error(f"{where}: {name} must be from 1 to 65536, got {shown(layers)}")
    d_model = keys.need("hidden_size")
    activation = keys.get("hidden_activation", str, None) or keys.need("hidden_act", str)
    if activation and activation not in ACTIVATIONS:
        raise Error(f"{where}: activation {shown(activation)} is not known; use one of {', '.join(ACTIVATIONS)}")
    for key in family.required:
        keys.need(key)
    keys.missing += [key for key in family.stated if key not in values]
    made: dict[str, Any] = {
        "name": str(data.get("_name_or_path") or "") or (Path(where.removeprefix("configuration ")).parent.name or kind),
        "layers": layers,
        "d_model": d_model,
        "heads": keys.need("num_attention_heads"),
        "vocabulary": keys.need("vocab_size"),
        "activation": ACTIVATIONS.get(activation, "silu"),
        **values_of(family, "gated norm norms qk_norm sinks"),
        "tied_embeddings": keys.get("tie_word_embeddings", bool, family.tied),
        **{name: keys.flag(getattr(family, name)) for name in ("qkv_bias", "output_bias", "ffn_bias")},
        "max_seq": keys.get("max_position_embeddings", int, 0),
    }
    if family.mla:
        made |= _latent(keys)
    else:
        made |= {"kv_heads": keys.get("num_key_value_heads", int, 0), "head_dim": keys.get("head_dim", int, 0)}
    if family.learned_positions:
        made |= {"positions": keys.need("max_position_embeddings"), "rope_fraction": 0.0}
        made["d_ff"] = keys.get("intermediate_size", int, 4 * d_model)
    else:
        made |= _rope(keys)
    made |= _windows(keys, family, layers)
    if family.mixture:
        made |= _mixture(keys, family, layers)
    if "d_ff" not in made and (not family.mixture or made.get("dense_layers")):
        made["d_ff"] = keys.need("intermediate_size")
    made["weights"] = _dtype(keys, dtype)
    if keys.missing:
        raise Error(f"{where} ({kind}) lacks {', '.join(dict.fromkeys(keys.missing))}: nothing is guessed; add what is missing")
    stated = values.get("quantization_config")
    if cache := kv_cache(stated, where):
        made["kv"] = cache
    made["quantization"] = quantization(stated, where)
    try:
        return TransformerConfig(**made, unread=_unread(values, keys.read))
    except Error as error:
        raise Error(f"{where}: {error}") from error
