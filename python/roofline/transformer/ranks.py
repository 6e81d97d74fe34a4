"""Tensor parallelism: what part of each dimension one rank has."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import Error
from .config import TransformerConfig, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One of tp ranks. Fewer KV heads than ranks are replicated; a vocabulary that tp does not divide is padded."""

    tp: int
    heads: int
    kv_heads: int
    d_ff: int
    expert_d_ff: int
    shared_d_ff: int
    vocabulary: int


def ranks_of(config: TransformerConfig, tp: int) -> Ranks:
    """How `tp` ranks share a model. Raises Error naming a dimension that they do not divide."""
    if isinstance(tp, bool) or not isinstance(tp, int) or not 1 <= tp <= 2**20:
        raise Error(f"tp must be a number of ranks from 1 to 2**20, got {shown(tp)}")
    c = config
    for name in ("heads", "d_ff", "expert_d_ff", "shared_d_ff"):
        if getattr(c, name) % tp:
            raise Error(f"tp {tp} does not divide {name} {getattr(c, name)} of {c.name}; use a divisor of it")
    if not c.mla and c.kv_heads % tp and tp % c.kv_heads:
        raise Error(f"tp {tp} neither divides kv_heads {c.kv_heads} of {c.name} nor is a multiple of it")
    return Ranks(
        tp=tp, heads=c.heads // tp, kv_heads=max(c.kv_heads // tp, 1), d_ff=c.d_ff // tp, expert_d_ff=c.expert_d_ff // tp,
        shared_d_ff=c.shared_d_ff // tp, vocabulary=math.ceil(c.vocabulary / tp),
    )  # fmt: skip
