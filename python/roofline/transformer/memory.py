"""What a phase keeps in memory, whether that fits, and how large a batch would."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._repr import Parts, Shown, values_of
from ..counts import larger, smaller
from ..errors import Error
from ..machine import Machine
from ..tensor_spec import size_bytes
from ..units import MEMORIES, fmt_bytes, within
from .config import TransformerConfig
from .layers import step_calls
from .parameters import weights_bytes
from .phases import Phase, Training
from .quantization import MOST
from .ranks import own_part, ranks_of
from .training import kept_bytes, states_bytes

# Whose number a device's memory is, and how a line says it.
SOURCES: Mapping[str, str] = {
    "given": "as given", "driver": "by the driver", "datasheet": "by the datasheet", "machine": "as reported",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Shown):
    """Bytes on one rank, by what they are: "weights", "KV cache", "activations", in training also "gradients" and "optimizer".

    Activations: in inference the residual stream, and the inputs and outputs of the call that has most of them. capacity_bytes: of
    one device, as far as it may be used; None where that is not known. capacity_source: whose number that is, of `SOURCES`; ""
    where it is not known. largest_batch: that fits, 0 where not even one sequence does; None without a capacity. Fragments,
    contexts and other programs are not in it.
    """

    parts: Mapping[str, int]
    capacity_bytes: int | None = None
    capacity_source: str = ""
    largest_batch: int | None = None

    @property
    def total_bytes(self) -> int:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool | None:
        return None if self.capacity_bytes is None else self.total_bytes <= self.capacity_bytes

    @property
    def text(self) -> str:
        """One line: "132 GiB of 140 GiB (by the driver): fits; the largest batch that fits is 12"."""
        if self.capacity_bytes is None:
            return f"{fmt_bytes(self.total_bytes)}; the device's memory is not known"
        of = f"{fmt_bytes(self.total_bytes)} of {fmt_bytes(self.capacity_bytes)} ({SOURCES[self.capacity_source]})"
        batch = f"the largest batch that fits is {self.largest_batch}" if self.largest_batch else "not even one sequence fits"
        return f"{of}: {'fits' if self.fits else 'does not fit'}; {batch}"

    def _table(self) -> Parts:
        rows = [(name, fmt_bytes(size)) for name, size in (*self.parts.items(), ("total", self.total_bytes))]
        return "Memory of one rank", ("", "size"), rows, (self.text,)

    def to_dict(self) -> dict[str, Any]:
        return values_of(self, "parts total_bytes capacity_bytes capacity_source fits largest_batch")

    def record(self) -> dict[str, Any]:
        """What a flat row has of it."""
        return {"fits": self.fits, "memory_bytes": self.total_bytes, "largest_batch": self.largest_batch}


def kv_bytes(config: TransformerConfig, seq_kv: int, *, batch: int = 1, tp: int = 1) -> int:
    """Bytes of a rank's cache for `batch` sequences of seq_kv keys. Layers with a window keep no more; every rank holds MLA's."""
    c, r = config, ranks_of(config, tp)
    seq_kv = seq_kv * 1.0 if isinstance(seq_kv, np.ndarray) else seq_kv  # 64 bits overflow
    width = c.kv_width if c.mla else 2 * r.kv_heads * c.head_dim
    keys = (c.layers - c.windowed) * seq_kv + c.windowed * smaller(c.window or seq_kv, seq_kv)
    return size_bytes((batch, keys, width), c.kv)  # type: ignore[no-any-return]


def _activations(config: TransformerConfig, phase: Phase, tp: int, ep: int, lm_head: bool) -> int:
    """The residual stream beside the largest call's own inputs and outputs."""
    steps, largest = list(phase.steps()), 0
    ends = [steps[0], steps[-1]] if len(steps) > 1 else steps
    # Chunks are of one size but for the last, which sees the most keys and has the head: it and the first have the largest calls.
    for step in ends:
        for call in step_calls(config, step, ranks_of(config, tp, ep), lm_head=lm_head):
            own = (*call.weights, *call.cached)
            held = sum(t.size_bytes for t in call.problem.tensors() if t.name not in own and t.role != "constant" and not t.link)
            largest = larger(largest, held)
    return largest + size_bytes((steps[0].tokens, config.d_model), config.activations)  # type: ignore[no-any-return]


def parts_of(config: TransformerConfig, phase: Phase, *, tp: int = 1, ep: int = 1, lm_head: bool = True) -> dict[str, int]:
    """The parts of `Memory`. The weights of the head count with lm_head=False too: they are loaded."""
    found, phase = {"weights": weights_bytes(config, tp=tp, ep=ep)}, own_part(phase, ep)
    if isinstance(phase, Training):
        r = ranks_of(config, tp)
        return {**found, **states_bytes(config, phase, r), "activations": kept_bytes(config, phase, r)}
    found["KV cache"] = sum(kv_bytes(config, s.seq_kv, batch=s.batch, tp=tp) for s in phase.cached)
    return {**found, "activations": _activations(config, phase, tp, ep, lm_head)}


def largest_batch(
    config: TransformerConfig, phase: Phase, capacity_bytes: float, *, tp: int = 1, ep: int = 1, lm_head: bool = True
) -> int:
    """Sequences that fit at once, on all ranks of ep together; 0 where not even one (a rank) does. Memory grows with the batch."""
    return _largest_batch(config, phase.replace(batch=ep), capacity_bytes, tp, ep, lm_head)


@functools.lru_cache(maxsize=256)  # estimates of several batches ask for the same
def _largest_batch(config: TransformerConfig, phase: Phase, capacity_bytes: float, tp: int, ep: int, lm_head: bool) -> int:
    def needed(batch: int) -> int:
        """Bytes on one rank with `batch` sequences."""
        return sum(parts_of(config, phase.replace(batch=batch * ep), tp=tp, ep=ep, lm_head=lm_head).values())

    def fits(batch: int) -> bool:
        try:
            return needed(batch) <= capacity_bytes
        except Error:  # a tensor of more than 2**62 bytes
            return False

    if not fits(1):
        return 0
    # Memory is nearly linear in the batch: two batches say where to look, and doubling steps from there find both sides.
    one, two = needed(1), needed(2)
    guess = min(max(int((capacity_bytes - one) / max(two - one, 1)) + 1, 1), MOST)
    low, high, step = 1, MOST + 1, 1
    while low < guess < high:
        if fits(guess):
            low, guess = guess, guess + step
        else:
            high, guess = guess, guess - step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * ep


def _capacity(machine: Machine | None) -> tuple[Any, str]:
    """The memory of a machine by its facts, and whose number it is."""
    facts = machine.facts if machine else {}
    if "driver_memory_bytes" in facts:
        return facts["driver_memory_bytes"], "driver"
    stated = facts.get("memory_bytes")
    return stated, "" if stated is None else "datasheet" if "datasheet" in facts else "machine"


def memory_of(
    config: TransformerConfig,
    phase: Phase,
    machine: Machine | None = None,
    *,
    tp: int = 1,
    ep: int = 1,
    lm_head: bool = True,
    share: float = 1.0,
    capacity_bytes: float | None = None,
) -> Memory:
    """What one rank of tp or ep keeps, against `share` of a device's memory: capacity_bytes, else what the machine's facts say.

    A datasheet has two numbers: the driver's counts, where it is known, since the reserved part holds no model.
    """
    stated, source = (capacity_bytes, "given") if capacity_bytes is not None else _capacity(machine)
    parts = parts_of(config, phase, tp=tp, ep=ep, lm_head=lm_head)
    if stated is None:
        return Memory(parts=parts)
    usable = int(within("memory_bytes", "a number of bytes", stated, MEMORIES) * share)
    most = largest_batch(config, phase, usable, tp=tp, ep=ep, lm_head=lm_head)
    return Memory(parts=parts, capacity_bytes=usable, capacity_source=source, largest_batch=most)
