"""What a transformer is asked to do in one go: prefill, decode, both at once, or a step of training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from ..counts import Sizes, sizes
from ..dtypes import FLOATS, dtype_name
from ..errors import Error, shown
from ..words import ByName, annotated, dimension, hint, require_one_of, spelled
from .quantization import POWER

MOST_CHUNKS = 4096  # each is a problem of its own
RECOMPUTE = ("none", "full")
SHOWN: Mapping[str, str] = {"seq_kv": "context", "seq_q": "tokens"}  # of a sequence, as prints name them


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Sequences of equal shape in one step: seq_q new tokens each, whose last one sees seq_kv keys, its own included."""

    batch: int
    seq_q: int
    seq_kv: int

    @property
    def tokens(self) -> int:
        return self.batch * self.seq_q

    def longer_than(self, keys: int) -> bool:
        """Whether the cache holds more than `keys`; several steps at once (`Decode.many`) must agree."""
        return bool(np.all(np.asarray(self.seq_kv) > keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One pass through all layers. Its tokens go through every product together; attention goes segment by segment.

    logits: rows that the head computes.
    """

    segments: tuple[Segment, ...]
    logits: int

    @property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase(ByName):
    """Base of the phases. `batch` sequences at a time. Raises Error for bad fields."""

    batch: int = 1

    name: ClassVar[str] = ""
    zero: ClassVar[frozenset[str]] = frozenset()  # integer fields that may be 0
    follows: ClassVar[tuple[tuple[str, str], ...]] = ()  # (field, the one it equals where it is 0)

    def __post_init__(self) -> None:
        for field in fields(self):
            value, where = getattr(self, field.name), f"{self.name}: {field.name}"
            if annotated(field) == "int":
                least = 0 if field.name in self.zero else 1
                if not isinstance(value, Sizes):
                    value = dimension(where, value, least, POWER)
                elif value.dtype.kind not in "iu" or not value.size:
                    raise Error(f"{where} must be whole numbers, at least one, got {shown(value)}")
                else:
                    for end in (int(np.min(value)), int(np.max(value))):
                        dimension(where, end, least, POWER)
                    value = value.astype(np.int64)
                object.__setattr__(self, field.name, value)
        for follower, leader in self.follows:
            if not getattr(self, follower):
                object.__setattr__(self, follower, getattr(self, leader))
        self.check()

    @classmethod
    def length_fields(cls) -> tuple[str, ...]:
        return ("seq_kv",) if cls.name in ("decode", "mixed") else ("seq_q",)

    def check(self) -> None:
        """Checks of single phases; raises Error."""

    def steps(self) -> Iterator[Step]:
        """The passes through the layers, in order."""
        raise NotImplementedError

    @property
    def several(self) -> bool:
        """Whether it stands for several phases at once, see `Decode.many`."""
        return any(isinstance(getattr(self, field.name), Sizes) for field in fields(self))

    @property
    def longest(self) -> int:
        """Keys that the cache holds of the longest sequence at the end."""
        return max(segment.seq_kv for step in self.steps() for segment in step.segments)

    @property
    def cached(self) -> tuple[Segment, ...]:
        """What the cache holds at the end: of each segment batch sequences of seq_kv keys."""
        *_, last = self.steps()
        return last.segments

    def replace(self, **changes: Any) -> Self:
        """A changed phase. What followed from another field follows again unless it is given."""
        changes = self.expand(changes)
        for follower, leader in self.follows:
            if leader in changes and getattr(self, follower) == getattr(self, leader):
                changes = {follower: 0, **changes}
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        """ "decode: batch 8, context 2048": lengths, and what else is not as usual."""
        led = {follower for follower, leader in self.follows if getattr(self, follower) == getattr(self, leader)}
        always = ("batch", "seq", "prefill")
        told = [f for f in fields(self) if f.name.startswith(always) or getattr(self, f.name) != f.default]
        shown = {f.name: getattr(self, f.name) for f in told if f.name not in led}
        if self.name == Decode.name and shown.get("seq_q") == 1:
            del shown["seq_q"]
        return f"{self.name}: " + ", ".join(f"{SHOWN.get(name, name)} {value}" for name, value in shown.items())

    def to_dict(self) -> dict[str, Any]:
        return {"phase": self.name, **{f.name: getattr(self, f.name) for f in fields(self)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill(Phase):
    """seq_q prompt tokens of every sequence, up to the first token of the answer.

    Attributes:
        seq_kv: keys the last token sees (0: seq_q; more: a prefix was cached before).
        chunk: tokens of a sequence per step (0: all at once); every step reads the weights again and sees what earlier ones
            cached.
    """

    seq_q: int = 2048
    seq_kv: int = 0
    chunk: int = 0

    name: ClassVar[str] = "prefill"
    zero: ClassVar[frozenset[str]] = frozenset({"seq_kv", "chunk"})
    follows: ClassVar[tuple[tuple[str, str], ...]] = (("seq_kv", "seq_q"),)

    def check(self) -> None:
        if self.seq_kv < self.seq_q:
            raise Error(f"prefill: seq_kv counts the new tokens too, so at least seq_q {self.seq_q}, got {self.seq_kv}")
        if self.chunk and (chunks := math.ceil(self.seq_q / self.chunk)) > MOST_CHUNKS:
            raise Error(f"prefill: {chunks} chunks are more than {MOST_CHUNKS}; use a larger chunk")

    def steps(self) -> Iterator[Step]:
        done, cached = 0, self.seq_kv - self.seq_q
        while done < self.seq_q:
            size = min(self.chunk or self.seq_q, self.seq_q - done)
            done += size
            last = done == self.seq_q
            segment = Segment(batch=self.batch, seq_q=size, seq_kv=cached + done)
            yield Step(segments=(segment,), logits=self.batch if last else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode(Phase):
    """One step of decoding: the next token of every sequence.

    Attributes:
        batch: sequences.
        seq_kv: keys it sees, its own included.
        seq_q: above 1 is speculative decoding: that many tokens of a draft are checked at once. The draft's own cost is not in it.
        accepted: tokens of a draft that are kept on average (0: all of them, the best case).
    """

    seq_kv: int = 2048
    seq_q: int = 1
    accepted: float = 0.0

    name: ClassVar[str] = "decode"

    @classmethod
    def many(cls, *, batch: Any, seq_kv: Any, seq_q: int = 1, accepted: float = 0.0) -> Self:
        """Several steps at once, for `predict_steps`: arrays of whole numbers that broadcast. Raises Error as one step does."""
        try:
            batches, lengths = np.broadcast_arrays(batch, seq_kv)
        except ValueError:
            raise Error(f"decode: batch {list(np.shape(batch))} and seq_kv {list(np.shape(seq_kv))} do not broadcast") from None
        return cls(batch=sizes(batches), seq_kv=sizes(lengths), seq_q=seq_q, accepted=accepted)

    def check(self) -> None:
        if np.any(self.seq_kv < self.seq_q):
            least = int(np.min(self.seq_kv))
            raise Error(f"decode: seq_kv counts the new tokens too, so at least seq_q {self.seq_q}, got {least}")
        accepted = self.accepted
        if type(accepted) not in (int, float) or not (accepted == 0 or 1 <= accepted <= self.seq_q):
            raise Error(f"decode: accepted must lie between 1 and seq_q {self.seq_q} (or be 0: all), got {shown(accepted)}")
        object.__setattr__(self, "accepted", float(accepted))

    @property
    def tokens_per_sequence(self) -> float:
        """That a step adds to the answer."""
        return self.accepted or float(self.seq_q)

    def steps(self) -> Iterator[Step]:
        segment = Segment(batch=self.batch, seq_q=self.seq_q, seq_kv=self.seq_kv)
        yield Step(segments=(segment,), logits=segment.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed(Phase):
    """One step that decodes `batch` sequences of seq_kv keys and prefills a piece of another prompt beside them.

    Attributes:
        prefill_seq_q: tokens of that piece.
        prefill_seq_kv: keys its last token sees (0: prefill_seq_q).
    """

    seq_kv: int = 2048
    prefill_seq_q: int = 512
    prefill_seq_kv: int = 0

    name: ClassVar[str] = "mixed"
    zero: ClassVar[frozenset[str]] = frozenset({"prefill_seq_kv"})
    follows: ClassVar[tuple[tuple[str, str], ...]] = (("prefill_seq_kv", "prefill_seq_q"),)

    def check(self) -> None:
        if self.prefill_seq_kv < self.prefill_seq_q:
            raise Error(
                f"mixed: prefill_seq_kv counts the new tokens too, so at least prefill_seq_q {self.prefill_seq_q}, "
                f"got {self.prefill_seq_kv}"
            )

    def steps(self) -> Iterator[Step]:
        decode = Segment(batch=self.batch, seq_q=1, seq_kv=self.seq_kv)
        prefill = Segment(batch=1, seq_q=self.prefill_seq_q, seq_kv=self.prefill_seq_kv)
        yield Step(segments=(decode, prefill), logits=self.batch + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(Phase):
    """One step of training on `batch` sequences of seq_q tokens: forward, backward, and Adam.

    Attributes:
        recompute: "none" keeps every activation the backward pass reads; "full" keeps the input of each layer and computes the
            layer again.
        gradients: their dtype.
        moments: dtype of the optimizer's two moments.
        master: it keeps an fp32 copy of weights that are narrower.
    """

    seq_q: int = 2048
    recompute: str = "none"
    gradients: str = "fp32"
    moments: str = "fp32"
    master: bool = True

    name: ClassVar[str] = "training"

    def check(self) -> None:
        require_one_of("training: recompute", self.recompute, RECOMPUTE)
        for field in ("gradients", "moments"):
            object.__setattr__(self, field, dtype_name(getattr(self, field)))
            require_one_of(f"training: {field}", getattr(self, field), FLOATS)
        if not isinstance(self.master, bool):
            raise Error(f"training: master must be True or False, got {shown(self.master)}")

    def steps(self) -> Iterator[Step]:
        segment = Segment(batch=self.batch, seq_q=self.seq_q, seq_kv=self.seq_q)
        yield Step(segments=(segment,), logits=segment.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving(Phase):
    """Requests of seq_q prompt tokens and `output` generated ones each; `batch` of them are in flight at any time.

    It is many steps, whose times `roofline.predict` adds up; it has no kernels of its own.
    """

    seq_q: int = 1024
    output: int = 256

    name: ClassVar[str] = "serving"

    def steps(self) -> Iterator[Step]:
        raise Error("serving is many prefills and decode steps: predict takes it; give prefill or decode here")

    def __str__(self) -> str:
        return f"serving: {self.batch} requests at a time, {self.seq_q} tokens in, {self.output} out"


PHASES: dict[str, type[Phase]] = {phase.name: phase for phase in (Prefill, Decode, Mixed, Training, Serving)}

# What phases are called elsewhere.
ALIASES: Mapping[str, str] = {
    "generation": "decode", "generate": "decode", "decoding": "decode", "gen": "decode", "tg": "decode", "tpot": "decode",
    "prompt": "prefill", "pp": "prefill", "prompt processing": "prefill", "ttft": "prefill", "train": "training",
    "chunked prefill": "mixed", "request": "serving", "requests": "serving", "serve": "serving",
}  # fmt: skip


def phase_named(name: str) -> type[Phase]:
    """The phase of this name or alias. Raises Error for an unknown one."""
    known = {spelled(word): PHASES[own] for word, own in (*((n, n) for n in PHASES), *ALIASES.items())}
    found = known.get(spelled(name)) if isinstance(name, str) else None
    if found is None:
        raise Error(f"unknown phase {shown(name)}{hint(name, (*PHASES, *ALIASES))}: use one of {', '.join(PHASES)}")
    return found


def phase_of(given: Phase | type[Phase] | str, fields: Mapping[str, Any] | None = None) -> Phase:
    """A phase from an object, its class or its name, with these fields changed: phase_of("decode", {"batch": 8}).

    Raises Error for an unknown phase or field.
    """
    if isinstance(given, Phase):
        return given.replace(**fields) if fields else given
    if isinstance(given, type) and issubclass(given, Phase):
        return given(**(fields or {}))
    return phase_named(given)(**(fields or {}))
