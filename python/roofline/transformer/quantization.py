"""How weights are stored: a quantization, its usual names, and the quantization_config of a Hugging Face config.json."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..dtypes import FLOATS, dtype, dtype_name
from ..errors import Error, is_whole, shown
from ..words import ByName, annotated, dimension, hint, require_one_of, spelled

POWER = 40  # of two, that no one dimension passes: beyond what can be built, and products of several stay exact and quick
MOST = 2**POWER
STORED = (*FLOATS, "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4", "mxfp4")  # dtypes that weights are kept in
# Matrices that a quantization narrows, by the name of its coverage.
COVERS: Mapping[str, tuple[str, ...]] = {
    "layers": ("attention", "output", "ffn", "experts"),
    "ffn_and_output": ("output", "ffn", "experts"),
    "ffn": ("ffn", "experts"),
    "experts": ("experts",),
}
# How many weights usually share a scale of so many bits: NVFP4's E4M3, the E8M0 of OCP Microscaling Formats 1.0, and 16 bits as
# GPTQ and AWQ have them. All others have one scale for a whole tensor or column, whose bytes do not count.
SHARED_SCALES: Mapping[str, tuple[int, int]] = {"nvfp4": (16, 8), "mxfp4": (32, 8), "int4": (128, 16)}


def check_fields(made: Any, what: str, least: Mapping[str, int]) -> None:
    """Types and ranges of a dataclass's fields by their annotations. least: of integers; 1 where it is not there."""
    for field in fields(made):
        value, where, kind = getattr(made, field.name), f"{what}: {field.name}", annotated(field)
        if kind in ("int", "int | None"):  # of which None was replaced
            object.__setattr__(made, field.name, dimension(where, value, least.get(field.name, 1), POWER))
        elif kind == "bool" and not isinstance(value, bool):
            raise Error(f"{where} must be True or False, got {shown(value)}")
        elif kind == "str" and not isinstance(value, str):
            raise Error(f"{where} must be text, got {shown(value)}")
        elif kind == "float" and (type(value) not in (int, float) or not 0 <= value < float("inf")):
            raise Error(f"{where} must be a finite number from 0, got {shown(value)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization(ByName):
    """How weights are stored where that is not the model's own dtype.

    Attributes:
        weights: their dtype, one of STORED.
        group: how many share one scale of scale_bits and one zero point of zero_bits; 0: a whole tensor. None of either: as
            SHARED_SCALES says for the dtype (nvfp4 8 bits per 16, mxfp4 8 per 32, int4 16 per 128, all others a whole tensor).
        activations: the dtype products read activations in ("": the model's, and weights are widened first).
        covers: "layers", every matrix of attention and FFN; "ffn", those of dense FFNs and all experts; "ffn_and_output",
            attention's output projection too; "experts", those of the routed experts. Embeddings, head, norms, biases and
            router keep the model's dtype.
        method: its name in config.json, for readers.

    Raises:
        Error: for bad fields.
    """

    method: str = ""
    weights: str = "int4"
    group: int | None = None
    scale_bits: int | None = None
    zero_bits: int = 0
    activations: str = ""
    covers: str = "layers"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", dtype_name(self.weights))
        require_one_of("quantization: weights", self.weights, STORED)
        group, scale_bits = SHARED_SCALES.get(self.weights, (0, 0))
        if self.group is None:
            object.__setattr__(self, "group", group)
        if self.scale_bits is None:
            if self.group and not scale_bits:
                raise Error(f"quantization: {self.weights} has no usual scales of groups; give scale_bits with group {self.group}")
            object.__setattr__(self, "scale_bits", scale_bits if self.group else 0)
        check_fields(self, "quantization", {"group": 0, "scale_bits": 0, "zero_bits": 0})
        if self.activations:
            object.__setattr__(self, "activations", dtype_name(self.activations))
        require_one_of("quantization: covers", self.covers, COVERS)

    def narrows(self, part: str) -> bool:
        """Whether it covers "attention" (but for "output", its last projection), "ffn" (shared experts too) or "experts"."""
        return part in COVERS[self.covers]

    @property
    def bits(self) -> float:
        """Bits of one weight, with its share of scale and zero point: 4.25 for mxfp4."""
        shared = ((self.scale_bits or 0) + self.zero_bits) / self.group if self.group else 0.0
        return float(dtype(self.weights).bits) + shared


# Quantizations by the names people use: weights alone (w…a16, AWQ, GPTQ, MXFP4), or weights and the products' activations.
SCHEMES: Mapping[str, Quantization | None] = {
    "none": None, "bf16": None, "fp16": None, "w16a16": None,
    "fp8": Quantization(weights="fp8_e4m3", activations="fp8_e4m3"),
    "w8a8": Quantization(weights="int8", activations="int8"),
    "int8": Quantization(weights="int8", activations="int8"),
    "w8a16": Quantization(weights="int8"),
    "int4": Quantization(weights="int4"),
    "w4a16": Quantization(weights="int4"),
    "awq": Quantization(method="awq", weights="int4"),
    "gptq": Quantization(method="gptq", weights="int4"),
    "nvfp4": Quantization(weights="nvfp4", activations="nvfp4"),
    "fp4": Quantization(weights="nvfp4", activations="nvfp4"),
    "mxfp4": Quantization(weights="mxfp4"),
}  # fmt: skip


def quantization_of(given: Quantization | str | None) -> Quantization | None:
    """A quantization or its name in SCHEMES. Raises Error for an unknown one."""
    if given is None or isinstance(given, Quantization):
        return given
    if not isinstance(given, str):
        raise Error(f"quantization must be a name such as 'fp8', a Quantization or None, got {shown(given)}")
    known = {spelled(name): found for name, found in SCHEMES.items()}
    if spelled(given) not in known:
        near = hint(given, SCHEMES)
        raise Error(f"unknown quantization {shown(given)}{near}: use one of {', '.join(SCHEMES)}, or a Quantization")
    return known[spelled(given)]


# -- Hugging Face ----------------------------------------------------------------------------------------------------------

# Where methods list modules that stay as they were, and what names in those lists are attention's.
LEFT_OUT = ("ignore", "exclude_modules", "modules_to_not_convert")
INTO = re.compile(r"\b(?:q|k|v|qkv|q_a|q_b|kv_a|kv_b)_proj|c_attn|fused_qkv")  # projections in front of attention
OUT = re.compile(r"\bo_proj")
WHOLE = re.compile(r"attn\W*$")  # model.layers.3.self_attn, and with wildcards


def _integer(given: Mapping[str, Any], where: str, *names: str, default: int | None = None) -> int:
    for name in names:
        value = given.get(name)
        if value is None:
            continue
        if not is_whole(value) or not -1 <= value <= 2**31:
            raise Error(f"{where}: {name} must be an integer from -1, got {shown(value)}")
        return value
    if default is None:
        raise Error(f"{where} lacks {' (or '.join(names)}{')' * (len(names) - 1)}: nothing is guessed; add it")
    return default


def _group(size: int) -> int:
    return max(size, 0)  # -1: one per column, whose bytes do not count


def _whole_number(bits: int, where: str) -> str:
    if bits not in (4, 8):
        raise Error(f"{where}: {bits}-bit integer weights are not modelled, only 4 and 8 bits")
    return f"int{bits}"


def _gptq_awq(given: Mapping[str, Any], where: str) -> Quantization:
    bits = _integer(given, where, "bits", "w_bit")
    group = _group(_integer(given, where, "group_size", "q_group_size"))
    stored, method = _whole_number(bits, where), given["quant_method"]
    return Quantization(method=method, weights=stored, group=group, scale_bits=16 if group else 0, zero_bits=bits if group else 0)


def _fp8(given: Mapping[str, Any], where: str) -> Quantization:
    block = given.get("weight_block_size")
    group = 0
    if block is not None:
        if not isinstance(block, list) or len(block) != 2 or not all(isinstance(b, int) and 0 < b <= 2**20 for b in block):
            raise Error(f"{where}: weight_block_size must be two positive integers, got {shown(block)}")
        group = block[0] * block[1]
    element = "fp8_e5m2" if given.get("fmt") == "e5m2" else "fp8_e4m3"
    return Quantization(method="fp8", weights=element, group=group, scale_bits=32 if group else 0, activations=element)


def _mxfp4(given: Mapping[str, Any], where: str) -> Quantization:
    """gpt-oss: experts only, blocks of 32 with one 8-bit exponent (OCP Microscaling Formats 1.0)."""
    return Quantization(method="mxfp4", weights="mxfp4", covers="experts")


def _compressed(given: Mapping[str, Any], where: str) -> Quantization:
    groups = given.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise Error(f"{where}: config_groups must be one group (several kinds of weights are not modelled), got {shown(groups)}")
    (group,) = groups.values()
    if not isinstance(group, Mapping) or not isinstance(group.get("weights"), Mapping):
        raise Error(f"{where}: config_groups has no weights, got {shown(group)}")
    weights, inputs = group["weights"], group.get("input_activations")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise Error(f"{where}: input_activations must be an object, got {shown(inputs)}")

    def element(part: Mapping[str, Any]) -> str:
        bits, kind = _integer(part, where, "num_bits"), part.get("type")
        if kind == "int":
            return _whole_number(bits, where)
        if kind == "float" and bits == 4:
            return "mxfp4" if part.get("group_size") == 32 else "nvfp4"  # their blocks tell them apart
        if kind == "float" and bits == 8:
            return "fp8_e4m3"
        raise Error(f"{where}: elements of type {shown(kind)} with {bits} bits are not modelled")

    stored = element(weights)
    four_bit_float = stored in ("nvfp4", "mxfp4")  # always in blocks; integers and fp8 only where a size is stated
    size = None if four_bit_float else _group(_integer(weights, where, "group_size", default=0))
    scale = None if four_bit_float or not size else 16
    return Quantization(
        method="compressed-tensors", weights=stored, group=size, scale_bits=scale, activations=element(inputs) if inputs else ""
    )


def _modelopt(given: Mapping[str, Any], where: str) -> Quantization:
    algorithm = given.get("quant_algo")
    if algorithm == "FP8":
        return Quantization(method="modelopt", weights="fp8_e4m3", activations="fp8_e4m3")
    if algorithm == "NVFP4":
        group = _group(_integer(given, where, "group_size", default=16))
        return Quantization(method="modelopt", weights="nvfp4", group=group, activations="nvfp4")
    raise Error(f"{where}: quant_algo {shown(algorithm)} is not known; known are FP8 and NVFP4")


METHODS: Mapping[str, Callable[[Mapping[str, Any], str], Quantization]] = {
    "gptq": _gptq_awq, "awq": _gptq_awq, "fp8": _fp8, "mxfp4": _mxfp4, "compressed-tensors": _compressed, "modelopt": _modelopt,
}  # fmt: skip


def _covers(given: Mapping[str, Any], where: str) -> str:
    """The weights left when attention's projections are in the list of modules that stay as they were, of any layer.

    Others in it (heads, routers, layers beyond the model's own) are never covered.
    """
    listed: list[str] = []
    for key in LEFT_OUT:
        names = given.get(key) or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Error(f"{where}: {key} must be a list of names of modules, got {shown(names)}")
        listed += names
    whole = any(map(WHOLE.search, listed))
    into, out = whole or any(map(INTO.search, listed)), whole or any(map(OUT.search, listed))
    if out and not into:
        raise Error(f"{where}: attention quantized but for its output projection is not modelled")
    return "ffn" if out else "ffn_and_output" if into else "layers"


# Keys of a quantization_config that are read, or change neither time nor memory.
QUANTIZATION_KEYS = frozenset({
    "quant_method", "bits", "group_size", "zero_point", "sym", "desc_act", "static_groups", "true_sequential", "damp_percent",
    "version", "ignored_layers", "activation_scheme", "fmt", "weight_block_size", "config_groups", "format", "quantization_status",
    "global_compression_ratio", "quant_algo", "producer", "kv_cache_quant_algo", "kv_cache_scheme", "scale_fmt", "backend",
    "do_fuse", "checkpoint_format", "quantizer", "meta", "lm_head", "sparsity_config", "transform_config", "weights_to_not_convert",
    *LEFT_OUT,
})  # fmt: skip


def kv_cache(given: Any, where: str) -> str:
    """The dtype of the KV cache that a quantization_config states: kv_cache_quant_algo or kv_cache_scheme; "" where it states none.

    Raises Error for one that is not known.
    """
    if not isinstance(given, Mapping):
        return ""
    algorithm, scheme = given.get("kv_cache_quant_algo"), given.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        algorithm = f"{'FP' if scheme.get('type') == 'float' else 'INT'}{scheme.get('num_bits')}"
    if algorithm is None:
        return ""
    known = {"FP8": "fp8_e4m3", "INT8": "int8", "INT4": "int4"}
    if algorithm not in known:
        raise Error(f"{where}: quantization_config: a KV cache in {shown(algorithm)} is not known; known are {', '.join(known)}")
    return known[algorithm]


def quantization(given: Any, where: str) -> Quantization | None:
    """The Quantization that a quantization_config states; None where there is none. Raises Error for a method that is not known."""
    if given is None:
        return None
    where = f"{where}: quantization_config"
    if not isinstance(given, Mapping):
        raise Error(f"{where} must be an object, got {shown(given)}")
    method = given.get("quant_method")
    if not isinstance(method, str) or method not in METHODS:
        raise Error(f"{where}: quant_method {shown(method)} is not known; known are {', '.join(METHODS)}")
    found = METHODS[method](given, where)
    return dataclasses.replace(found, covers=_covers(given, where)) if found.covers == "layers" else found
