"""Every problem that a phase runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ..counts import summed
from .config import TransformerConfig
from .layers import Call, step_calls
from .phases import Phase, Training
from .ranks import own_part, ranks_of
from .training import training_calls


def merged(calls: Iterable[Call]) -> tuple[Call, ...]:
    """The same calls with equal ones added up, in the order of their first appearance."""
    found = summed((dataclasses.replace(call, count=1), call.count) for call in calls)
    return tuple(dataclasses.replace(call, count=count) for call, count in found.items() if count)


def calls_of(
    config: TransformerConfig, phase: Phase, *, tp: int = 1, ep: int = 1, lm_head: bool = True, fused: bool = True
) -> tuple[Call, ...]:
    """Everything that one rank of `tp` or `ep` runs in a phase. Raises Error where the ranks do not divide model or phase."""
    r, own = ranks_of(config, tp, ep), own_part(phase, ep)
    if isinstance(own, Training):
        return merged(training_calls(config, own, r, lm_head=lm_head, fused=fused))
    calls = (call for step in own.steps() for call in step_calls(config, step, r, lm_head=lm_head, fused=fused))
    if own.several:  # several steps at once have no equal calls to add up: each is one step
        return tuple(call for call in calls if call.count)
    return merged(calls)
