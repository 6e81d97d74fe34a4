"""Tensor and expert parallelism: what part of each dimension, and of a phase, one rank has."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import Error, is_whole, shown
from .config import TransformerConfig
from .phases import Decode, Phase, Prefill


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One of tp ranks, or of ep. Fewer KV heads than ranks are replicated; a vocabulary that tp does not divide is padded.

    Of ep ranks each has experts / ep of the experts, whole, everything else of the model, and its own sequences.
    """

    tp: int
    ep: int
    heads: int
    kv_heads: int
    d_ff: int
    expert_d_ff: int
    shared_d_ff: int
    vocabulary: int


def ranks_of(config: TransformerConfig, tp: int, ep: int = 1) -> Ranks:
    """How `tp` or `ep` ranks share a model. Raises Error naming a dimension that they do not divide, and for both at once."""
    for name, ranks in (("tp", tp), ("ep", ep)):
        if not is_whole(ranks) or not 1 <= ranks <= 2**20:
            raise Error(f"{name} must be a number of ranks from 1 to 2**20, got {shown(ranks)}")
    c = config
    if ep > 1 and tp > 1:
        raise Error(
            f"tp {tp} and ep {ep} together are not modelled: with ep every rank runs attention for its own sequences; use one"
        )
    if ep > 1 and not c.experts:
        raise Error(f"ep {ep}: {c.name} has no experts to spread; use tp")
    if ep > 1 and c.experts % ep:
        raise Error(f"ep {ep} does not divide the {c.experts} experts of {c.name}; use a divisor of it")
    if ep > 1 and c.expert_groups and ep % c.expert_groups and c.expert_groups % ep:
        raise Error(
            f"ep {ep} neither divides the {c.expert_groups} groups that experts of {c.name} are routed by nor is a multiple of "
            "them: a rank with parts of several groups is not modelled"
        )
    for name in ("heads", "d_ff", "expert_d_ff", "shared_d_ff"):
        if getattr(c, name) % tp:
            raise Error(f"tp {tp} does not divide {name} {getattr(c, name)} of {c.name}; use a divisor of it")
    if not c.mla and c.kv_heads % tp and tp % c.kv_heads:
        raise Error(f"tp {tp} neither divides kv_heads {c.kv_heads} of {c.name} nor is a multiple of it")
    return Ranks(
        tp=tp, ep=ep, heads=c.heads // tp, kv_heads=max(c.kv_heads // tp, 1), d_ff=c.d_ff // tp, expert_d_ff=c.expert_d_ff // tp,
        shared_d_ff=c.shared_d_ff // tp, vocabulary=math.ceil(c.vocabulary / tp),
    )  # fmt: skip


def own_part(phase: Phase, ep: int) -> Phase:
    """What one of ep ranks does of a phase: an equal part of its sequences. Raises Error where there is none."""
    if ep == 1:
        return phase
    if not isinstance(phase, (Prefill, Decode)):
        raise Error(f"ep {ep}: only prefill and decode are modelled with experts spread over ranks, not {phase.name}")
    batches = np.atleast_1d(phase.batch)
    if (left := batches % ep).any():
        batch = batches[left > 0][0]
        raise Error(f"ep {ep} does not divide batch {batch}: each rank has sequences of its own; use a multiple of it")
    return phase.replace(batch=phase.batch // ep)
