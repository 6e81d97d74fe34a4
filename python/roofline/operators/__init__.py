"""All operators, one list. An operator is one file of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Error
from ..words import hint, spelled
from .adam import Adam
from .all_gather import AllGather
from .all_reduce import AllReduce
from .all_to_all import AllToAll
from .attention import Attention
from .attention_backward import AttentionBackward
from .base import MIXES as MIXES, Case as Case, Operator as Operator, Product as Product, Variant as Variant
from .bias_relu import BiasRelu
from .bmm import Bmm
from .cached_attention import CachedAttention
from .convert import Convert
from .core_to_core import CoreToCore
from .counting import Counts, Growth as Growth, count, growth
from .embedding import Embedding
from .exp import Exp
from .ffn import Ffn
from .fma import Fma
from .fork_join import ForkJoin
from .gelu import Gelu
from .grouped_matmul import GroupedMatmul
from .host_copy import HostCopy
from .layer_norm import LayerNorm
from .lm_head import LmHead
from .matmul import Matmul
from .mixed_intensity import MixedIntensity
from .mla_decode import MlaDecode
from .mla_prefill import MlaPrefill
from .mma import Mma
from .peer_copy import PeerCopy
from .pointer_chase import PointerChase
from .quantized_matmul import QuantizedMatmul
from .reduce_scatter import ReduceScatter
from .relu import Relu
from .residual_rms_norm import ResidualRmsNorm
from .rms_norm import RmsNorm
from .rope import Rope
from .silu_mul import SiluMul
from .softmax import Softmax
from .stream import Stream
from .topk_sigmoid import TopkSigmoid
from .topk_softmax import TopkSoftmax

OPERATORS: Mapping[str, type[Operator]] = {
    operator.name: operator
    for operator in (
        Stream, Fma, Mma, ForkJoin, PointerChase, CoreToCore, MixedIntensity, HostCopy, PeerCopy,
        Matmul, Attention, Ffn, Softmax, RmsNorm, LayerNorm, Relu, BiasRelu, Exp,
        MlaDecode, MlaPrefill, Bmm, QuantizedMatmul, GroupedMatmul, LmHead, Embedding, Rope, TopkSoftmax, TopkSigmoid, Gelu,
        SiluMul, ResidualRmsNorm, CachedAttention, AttentionBackward, Convert, Adam, AllReduce, AllGather, ReduceScatter,
        AllToAll,
    )
}  # fmt: skip


# What operators are called elsewhere.
ALIASES: Mapping[str, str] = {
    "gemm": "matmul", "mm": "matmul", "linear": "matmul", "dense": "matmul", "gemv": "matmul", "addmm": "matmul",
    "batched_gemm": "bmm", "batched_matmul": "bmm", "flash_attention": "attention", "flash_attn": "attention", "sdpa": "attention",
    "mha": "attention", "gqa": "attention", "scaled_dot_product_attention": "attention", "self_attention": "attention",
    "paged_attention": "cached_attention", "decode_attention": "cached_attention", "flash_decoding": "cached_attention",
    "flash_mla": "mla_decode", "mla": "mla_decode", "mlp": "ffn", "feed_forward": "ffn", "moe": "grouped_matmul",
    "grouped_gemm": "grouped_matmul", "fused_moe": "grouped_matmul", "rmsnorm": "rms_norm", "layernorm": "layer_norm",
    "fused_add_rms_norm": "residual_rms_norm", "rotary_embedding": "rope", "swiglu": "silu_mul", "silu_and_mul": "silu_mul",
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "cast": "convert", "adamw": "adam", "logits": "lm_head", "unembedding": "lm_head", "w4a16_gemm": "quantized_matmul",
}  # fmt: skip
_SPELLED: Mapping[str, str] = {spelled(word): name for word, name in (*((n, n) for n in OPERATORS), *ALIASES.items())}


def named_operator(word: str) -> str:
    """Our name of an operator or an alias; "" for any other word."""
    return _SPELLED.get(spelled(word[:80]), "")


def operator_named(name: str) -> type[Operator]:
    """The operator of this name, of a class's name, or of an alias: "matmul", "Matmul", "gemm". Raises Error for an unknown one."""
    found = named_operator(name) if isinstance(name, str) else ""
    if not found:
        raise Error(f"unknown operator {name!r:.80}{hint(name, (*OPERATORS, *ALIASES))}: use one of {', '.join(OPERATORS)}")
    return OPERATORS[found]


def problem_of(given: Operator | type[Operator] | str, fields: Mapping[str, Any] | None = None) -> Operator:
    """A problem from an operator, its class or its name, with these fields changed: problem_of("gemm", {"M": 512}).

    Raises Error for an unknown operator or field.
    """
    if isinstance(given, Operator):
        return given.replace(**fields) if fields else given
    if isinstance(given, type) and issubclass(given, Operator):
        return given.make(**(fields or {}))
    if not isinstance(given, str):
        raise Error(f"a problem must be an operator or its name, such as Matmul(…) or 'matmul', got {given!r:.60}")
    return operator_named(given).make(**(fields or {}))


def from_dict(name: str, values: Mapping[str, Any]) -> Operator:
    """The problem that `Operator.to_dict` described. Raises Error for unknown operators and fields."""
    return operator_named(name).make(**values)


# What `roofline` offers as its own.
__all__ = [
    "Adam", "AllGather", "AllReduce", "AllToAll", "Attention", "AttentionBackward", "BiasRelu", "Bmm", "CachedAttention",
    "Convert", "CoreToCore", "Counts", "Embedding", "Exp", "Ffn", "Fma", "ForkJoin", "Gelu", "GroupedMatmul", "HostCopy",
    "LayerNorm", "LmHead", "Matmul", "MixedIntensity", "MlaDecode", "MlaPrefill", "Mma", "PeerCopy", "PointerChase",
    "QuantizedMatmul", "ReduceScatter", "Relu", "ResidualRmsNorm", "RmsNorm", "Rope", "SiluMul", "Softmax", "Stream",
    "TopkSigmoid", "TopkSoftmax", "count", "growth",
]  # fmt: skip
