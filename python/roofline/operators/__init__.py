"""All operators, one list. An operator is one file of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Error
from .adam import Adam
from .all_gather import AllGather
from .all_reduce import AllReduce
from .all_to_all import AllToAll
from .attention import Attention
from .attention_backward import AttentionBackward
from .base import MIXES, Case, Operator, Product, Variant
from .bias_relu import BiasRelu
from .bmm import Bmm
from .cached_attention import CachedAttention
from .convert import Convert
from .core_to_core import CoreToCore
from .counting import Counts, Growth, count, growth
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


def operator_named(name: str) -> type[Operator]:
    """The operator of this name. Raises Error for an unknown one."""
    found = OPERATORS.get(name) if isinstance(name, str) else None
    if found is None:
        raise Error(f"unknown operator {name!r:.80}: use one of {', '.join(OPERATORS)}")
    return found


def from_dict(name: str, values: Mapping[str, Any]) -> Operator:
    """The problem that `Operator.to_dict` described. Raises Error for unknown operators and fields."""
    return operator_named(name).make(**values)


__all__ = [
    "MIXES",
    "OPERATORS",
    "Adam",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Attention",
    "AttentionBackward",
    "BiasRelu",
    "Bmm",
    "CachedAttention",
    "Case",
    "Convert",
    "CoreToCore",
    "Counts",
    "Embedding",
    "Exp",
    "Ffn",
    "Fma",
    "ForkJoin",
    "Gelu",
    "GroupedMatmul",
    "Growth",
    "HostCopy",
    "LayerNorm",
    "LmHead",
    "Matmul",
    "MixedIntensity",
    "MlaDecode",
    "MlaPrefill",
    "Mma",
    "Operator",
    "PeerCopy",
    "PointerChase",
    "Product",
    "QuantizedMatmul",
    "ReduceScatter",
    "Relu",
    "ResidualRmsNorm",
    "RmsNorm",
    "Rope",
    "SiluMul",
    "Softmax",
    "Stream",
    "TopkSigmoid",
    "TopkSoftmax",
    "Variant",
    "count",
    "from_dict",
    "growth",
    "operator_named",
]
