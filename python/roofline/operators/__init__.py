"""All operators, one list. An operator is one file of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Error
from .attention import Attention
from .base import MIXES, Case, Operator, Variant
from .bias_relu import BiasRelu
from .exp import Exp
from .ffn import Ffn
from .fma import Fma
from .fork_join import ForkJoin
from .layer_norm import LayerNorm
from .matmul import Matmul
from .relu import Relu
from .rms_norm import RmsNorm
from .softmax import Softmax
from .stream import Stream

OPERATORS: Mapping[str, type[Operator]] = {
    operator.name: operator
    for operator in (Stream, Fma, ForkJoin, Matmul, Attention, Ffn, Softmax, RmsNorm, LayerNorm, Relu, BiasRelu, Exp)
}


def operator_named(name: str) -> type[Operator]:
    """The operator of this name. Raises Error for an unknown one."""
    found = OPERATORS.get(name) if isinstance(name, str) else None
    if found is None:
        raise Error(f"unknown operator {name!r}: use one of {', '.join(OPERATORS)}")
    return found


def from_dict(name: str, values: Mapping[str, Any]) -> Operator:
    """The problem that `Operator.to_dict` described. Raises Error for unknown operators and fields."""
    return operator_named(name).make(**values)


__all__ = [
    "MIXES",
    "OPERATORS",
    "Attention",
    "BiasRelu",
    "Case",
    "Exp",
    "Ffn",
    "Fma",
    "ForkJoin",
    "LayerNorm",
    "Matmul",
    "Operator",
    "Relu",
    "RmsNorm",
    "Softmax",
    "Stream",
    "Variant",
    "from_dict",
    "operator_named",
]
