"""ModelPredictions of many decode steps at once: arrays instead of numbers, from the same formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._repr import values_of
from ..counts import summed
from ..machine import Machine
from ..operators.base import WORK
from .config import TransformerConfig
from .memory import parts_of
from .phases import Decode
from .predicting import memory_on, notes_on, options_of, priced
from .pricing import Options, Part
from .records import Note

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelPredictions:
    """The expected times of many decode steps, as arrays of the steps' shape; each as in `ModelPrediction`.

    profile: seconds by roof, in no order. fits: whether a rank holds what it must, or nobody knows how much it can.
    """

    config: TransformerConfig
    phase: Decode
    machine: str
    options: Options
    time_s: Floats
    flops: Floats
    bytes: Floats
    profile: Mapping[str, Floats]
    fits: NDArray[np.bool_]
    counted: tuple[str, ...]
    assumed: tuple[Note, ...]

    @property
    def flops_per_byte(self) -> Floats:
        return np.asarray(self.flops / self.bytes)

    @property
    def bound(self) -> NDArray[np.str_]:
        """The roof with most of the time, see `bound` of a single one."""
        joined = summed(("compute" if roof in WORK else roof, seconds) for roof, seconds in self.profile.items())
        return np.asarray(np.array(list(joined))[np.argmax(np.stack(list(joined.values())), axis=0)])

    @property
    def tpot_s(self) -> Floats:
        return np.asarray(self.time_s / self.phase.tokens_per_sequence)

    @property
    def tokens_per_s(self) -> Floats:
        """Tokens/s of all sequences."""
        return np.asarray(np.asarray(self.phase.batch) * self.phase.tokens_per_sequence / self.time_s)

    def __repr__(self) -> str:
        return f"ModelPredictions({self.config.name!r}, {list(self.time_s.shape)} decode steps, {self.machine})"


def uniform(config: TransformerConfig, phase: Decode) -> Iterator[tuple[Any, Decode]]:
    """The steps of `phase` by the kernels they run, which the length decides: (where they are, those steps)."""
    batch, keys = np.asarray(phase.batch), np.asarray(phase.seq_kv)
    kinds = (keys > phase.seq_q) * 2 + (keys > config.window)
    for kind in np.unique(kinds):
        there = kinds == kind
        yield there, Decode.many(batch=batch[there], seq_kv=keys[there], seq_q=phase.seq_q, accepted=phase.accepted)


def predict_steps(machine: Machine, config: TransformerConfig, phase: Decode, **how: Any) -> ModelPredictions:
    """`roofline.predict` for every step of a `Decode.many`, e.g. of `Decode.many(batch=batches[:, None], seq_kv=lengths)`.

    Args:
        how: options of `roofline.predict`, but for must_fit: what does not fit is predicted nevertheless.

    Raises:
        Error: as `roofline.predict` does.
    """
    options = options_of(machine, how)
    largest = Decode(batch=int(np.max(phase.batch)), seq_kv=int(np.max(phase.seq_kv)), seq_q=phase.seq_q, accepted=phase.accepted)
    # The largest step is refused where any other is, and its arrays are the longest: no product of 64 bits overflows after it.
    _, counted = priced(config, largest, machine, options)
    shape = np.shape(phase.batch)
    capacity_bytes = memory_on(config, largest, machine, options, None).capacity_bytes
    found = {name: np.empty(shape) for name in ("time_s", "flops", "bytes", "memory")}
    profile: dict[str, Floats] = {}
    every: list[Part] = []
    for there, steps in uniform(config, phase):
        parts, _ = priced(config, steps, machine, options)
        every += parts
        overhead = options.overhead_s * sum(1 for _ in steps.steps())
        found["time_s"][there] = sum(part.time_s for part in parts) + overhead
        found["flops"][there] = sum(part.flops for part in parts)
        found["bytes"][there] = sum(part.bytes for part in parts)
        found["memory"][there] = sum(parts_of(config, steps, **values_of(options, "tp ep lm_head")).values())
        for part in parts:
            for roof, seconds in part.profile.items():
                profile.setdefault(roof, np.zeros(shape))[there] += seconds
        if overhead:
            profile.setdefault("overhead", np.zeros(shape))[there] += overhead
    fits = np.ones(shape, dtype=bool) if capacity_bytes is None else found["memory"] <= capacity_bytes
    return ModelPredictions(
        config=config, phase=phase, machine=machine.name, options=options, time_s=found["time_s"], flops=found["flops"],
        bytes=found["bytes"], profile=profile, fits=fits, counted=counted,
        assumed=tuple(notes_on(config, largest, machine, options, every)),
    )  # fmt: skip
