"""The expected time of a whole model's phase on a machine: what it is made of, under which roofs, and what fits in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .._repr import Parts, Row, printable, values_of
from ..counts import by_key, summed
from ..prediction import Expected, bound_of, fmt_roofs
from ..reading import SCHEMA_VERSION
from ..units import MISSING, fmt_bytes, fmt_interval, fmt_number, fmt_share, fmt_shares, fmt_si
from .config import TransformerConfig
from .memory import Memory
from .phases import Decode, Phase, Prefill, Training
from .pricing import Options, Part

DEFINITIONS = {
    "TTFT": "time to first token: the whole prefill of the batch, with nothing before it in a queue",
    "TPOT": "time per output token: one decode step over the tokens it adds to a sequence; TTFT is not in it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An assumption. kind: its subject ("launch", "length", "speculation", "experts", "ranks", "link", "roof"). machine: whose
    assumption it is, where others need none.
    """

    kind: str
    text: str
    machine: str = ""

    def __str__(self) -> str:
        return f"{self.machine}: {self.text}" if self.machine else self.text


class OfModel(Expected):
    """What every expected time of a model says of itself."""

    __slots__ = ()

    config: TransformerConfig
    phase: Phase
    machine: str

    @property
    def what(self) -> str:
        return self.config.name

    @property
    def title(self) -> str:
        """What and on what, in a line."""
        return f"{self.config.name}, {self.phase}, on {self.machine}"

    @property
    def bound(self) -> str:  # type: ignore[override]
        """The roof with most of the time: "compute", a memory level, "launch", "link", or "overhead"."""
        return bound_of(self.profile)

    def to_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def as_answer(self) -> dict[str, Any]:
        return self.to_dict()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelPrediction(OfModel):
    """The expected time of one phase on one rank, which with several is that of all.

    Attributes:
        parts: in the order they run.
        realistic_s: the time where software reaches the usual shares, see `predicting.realistic`; None where that is not asked or
            time_s is it.
        ceilings: labels of those that were used, unverified ones marked.
        counted: its contents, in plain English.
        assumed: the assumptions.
    """

    config: TransformerConfig
    phase: Phase
    machine: str
    options: Options
    parts: tuple[Part, ...]
    memory: Memory
    ceilings: tuple[str, ...]
    counted: tuple[str, ...]
    assumed: tuple[Note, ...] = ()
    realistic_s: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The assumptions, as text."""
        return tuple(map(str, self.assumed))

    # -- totals -----------------------------------------------------------------------------------------------------------

    @property
    def overhead_s(self) -> float:
        """What was given for each pass through the layers, times their number."""
        return self.options.overhead_s * sum(1 for _ in self.phase.steps())

    @property
    def time_s(self) -> float:  # type: ignore[override]
        return math.fsum(part.time_s for part in self.parts) + self.overhead_s

    @property
    def flops(self) -> int:  # type: ignore[override]
        return sum(part.flops for part in self.parts)

    @property
    def bytes(self) -> int:  # type: ignore[override]
        return sum(part.bytes for part in self.parts)

    @property
    def profile(self) -> dict[str, float]:
        """Seconds by roof, longest first: memory levels, "product", "exp", "other", "launch", "link"; "overlap" is what levels and
        arithmetic do not hide of each other, "overhead" what was given for neither.
        """
        beside = [("overhead", self.overhead_s)] if self.overhead_s else []
        found = summed([*beside, *(item for part in self.parts for item in part.profile.items())])
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def groups(self) -> dict[str, float]:
        """Seconds by group of parts, longest first."""
        found = summed((part.call.group, part.time_s) for part in self.parts)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    # -- rates ------------------------------------------------------------------------------------------------------------

    @property
    def ttft_s(self) -> float | None:
        return self.time_s if isinstance(self.phase, Prefill) else None

    @property
    def tokens_per_sequence(self) -> float:
        """That the phase adds to each sequence: new ones in decode, of the prompt or sample elsewhere."""
        phase = self.phase
        if isinstance(phase, Decode):
            return phase.tokens_per_sequence
        return float(phase.seq_q) if isinstance(phase, (Prefill, Training)) else 1.0

    @property
    def tpot_s(self) -> float | None:
        return None if isinstance(self.phase, (Prefill, Training)) else self.time_s / self.tokens_per_sequence

    @property
    def tokens_per_s(self) -> float:
        """Tokens/s of all sequences: generated in decode (and beside a prefill), of the prompt or sample elsewhere."""
        return self.phase.batch * self.tokens_per_sequence / self.time_s

    @property
    def tokens_per_s_per_user(self) -> float:
        return self.tokens_per_s / self.phase.batch

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation: FLOPs of products, in training those computed again left out, over time times their peak."""
        useful = [part for part in self.parts if part.product_flops and not part.call.name.endswith(", again")]
        return sum(part.product_flops for part in useful) / (self.time_s * max(part.peak_flops_per_s for part in useful))

    @property
    def mbu(self) -> float:
        """Model bandwidth utilisation: bytes of weights, cache and activations over time times the memory's bandwidth."""
        return self.bytes / (self.time_s * max(part.peak_bytes_per_s for part in self.parts))

    @property
    def unsharded_s(self) -> float:
        """Time that further ranks do not shorten: see `_kept_s`. Overhead is apart."""
        return math.fsum(map(self._kept_s, self.parts))

    def _kept_s(self, part: Part) -> float:
        """What tensor parallelism does not divide, collectives, and in decode the reading of one KV head, or of MLA's latents.

        With more ranks than KV heads several read the same one.
        """
        if not part.call.sharded:
            return part.time_s
        if not part.call.name.startswith("attention") or not isinstance(self.phase, Decode) or part.bound == "compute":
            return 0.0
        return part.time_s / getattr(part.call.problem, "kv_heads", 1)

    @property
    def amdahl(self) -> float:
        """The speed-up that no number of further ranks exceeds: what they divide takes no time then.

        Infinite with ep, whose ranks divide the sequences too.
        """
        if self.options.ep > 1:
            return math.inf
        kept = self.unsharded_s + self.overhead_s
        return self.time_s / kept if kept else math.inf

    # -- showing ----------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        pace = f"{fmt_si(self.tokens_per_s, 'tok/s')}"
        said = f"{self.config.name!r}, {self.phase}, {self.machine}: {fmt_si(self.time_s, 's', 4)}, {pace}"
        return printable(f"ModelPrediction({said})")

    def table(self) -> tuple[Row, list[Row]]:
        """One row per part, several of one name joined (chunks of a prefill), and the total."""
        headers = ("part", "group", "runs", "time", "share", "bound", "FLOPs", "bytes", "FLOP/byte")
        rows: list[Row] = []
        for (name, group), parts in by_key(((part.call.name, part.call.group), part) for part in self.parts).items():
            flops, moved = sum(p.flops for p in parts), sum(p.bytes for p in parts)
            seconds = math.fsum(p.time_s for p in parts)
            longest = max(parts, key=lambda p: p.time_s)
            count = sum(p.call.count for p in parts)
            rows.append(_row(name, group, str(count), seconds, self.time_s, longest.bound, flops, moved))
        if self.overhead_s:
            rows.append(("overhead", "", "", fmt_si(self.overhead_s, "s"), fmt_share(self.overhead_s / self.time_s), *[""] * 4))
        return headers, [*rows, _row("total", "", "", self.time_s, self.time_s, "", self.flops, self.bytes)]

    def summary(self) -> list[tuple[str, str]]:
        """What a reader wants first: (name, value)."""
        limit = "" if math.isinf(self.amdahl) else f": a larger TP degree gains at most {fmt_number(self.amdahl)}×"
        amdahl = [("Amdahl", f"{fmt_share(self.unsharded_s / self.time_s)} stays with more ranks{limit}")]
        parts = ", ".join(f"{name} {fmt_bytes(size)}" for name, size in self.memory.parts.items())
        return [
            *self._spans(short=False).items(),
            ("bound by", fmt_roofs(self.profile, self.time_s)),
            ("groups", fmt_shares(self.groups, self.time_s)),
            *([] if self.options.ep > 1 else amdahl),
            ("memory", self.memory.text),
            ("of which", parts),
            ("ceilings", "; ".join(self.ceilings)),
        ]

    def _figures(self) -> dict[str, tuple[float, float | None, str]]:
        """Times by what users call them, rates and utilisations: at best, realistic (None where not known), and the unit."""
        slower = self.realistic_s and self.realistic_s / self.time_s
        times = {"TTFT": self.ttft_s, "TPOT": self.tpot_s, "time": self.time_s}
        if self.time_s in (self.ttft_s, self.tpot_s):
            del times["time"]
        rates = [("tokens", self.tokens_per_s, "tok/s"), ("per sequence", self.tokens_per_s_per_user, "tok/s")]
        rates = [*rates[: 1 + (self.phase.batch > 1)], ("MFU", 100 * self.mfu, "%"), ("MBU", 100 * self.mbu, "%")]
        return {
            **{name: (each, each * slower if slower else None, "s") for name, each in times.items() if each is not None},
            **{name: (rate, rate / slower if slower else None, unit) for name, rate, unit in rates},
        }

    def _spans(self, *, short: bool) -> dict[str, str]:
        """Times and rates as text, at best and realistic: "5.79 ms at best, 7.46 ms realistic", or short "5.79 … 7.46 ms"."""
        found = {}
        for name, (best, usual, unit) in self._figures().items():

            def shown(x: float, unit: str = unit, digits: int = 4 if unit == "s" else 3) -> str:
                return f"{fmt_number(x)} %" if unit == "%" else fmt_si(x, unit, digits)

            if usual is None:
                found[name] = shown(best)
            elif not short:
                found[name] = f"{shown(best)} at best, {shown(usual, digits=3)} realistic"
            else:
                found[name] = fmt_interval(best, usual, unit) if unit != "%" else f"{fmt_number(best)} … {shown(usual)}"
        return found

    def quantities(self) -> dict[str, str]:
        said = Expected.quantities(self)
        del said["time"]
        holds = "" if self.memory.capacity_bytes is None else f" of {fmt_bytes(self.memory.capacity_bytes)}"
        return {
            **self._spans(short=True),
            **said,
            "weights": fmt_bytes(self.memory.parts["weights"]),
            "memory": f"{fmt_bytes(self.memory.total_bytes)}{holds}",
            "largest batch": "" if self.memory.largest_batch is None else str(self.memory.largest_batch),
        }  # fmt: skip

    def record(self) -> dict[str, Any]:
        shown = Expected.record(self)
        return {
            "machine": self.machine, "what": shown.pop("what"), **self.phase.to_dict(), **values_of(self.options, "tp ep"), **shown,
            **values_of(self, "realistic_s ttft_s tpot_s tokens_per_s mfu mbu"), **self.memory.record(),
        }  # fmt: skip

    def remarks(self) -> list[str]:
        """The definitions of its rates, the contents counted, and the assumptions."""
        defined = [f"{name}: {text}." for name, text in DEFINITIONS.items() if name in self._figures()]
        return [*defined, *self.counted, *(f"note: {note}" for note in self.notes)]

    def _notes(self) -> list[str]:
        return [*(f"{name}: {value}" for name, value in self.summary()), *self.remarks()]

    def _table(self) -> Parts:
        return repr(self), *self.table(), self._notes()

    def to_dict(self) -> dict[str, Any]:
        """JSON form, see `prediction.schema.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "model prediction",
            **values_of(self, "config phase machine options time_s realistic_s ttft_s tpot_s tokens_per_s tokens_per_s_per_user"),
            **values_of(self, "mfu mbu flops bytes bound overhead_s unsharded_s memory parts ceilings counted notes"),
            "profile_s": self.profile,
            "groups_s": self.groups,
            "amdahl": None if math.isinf(self.amdahl) else self.amdahl,
            "definitions": dict(DEFINITIONS),
        }


def _row(name: str, group: str, count: str, seconds: float, total: float, bound: str, flops: int, moved: int) -> Row:
    intensity = fmt_number(flops / moved) if moved else MISSING
    share = fmt_share(seconds / total) if total else MISSING
    return (name, group, count, fmt_si(seconds, "s"), share, bound, fmt_si(flops, "FLOP"), fmt_si(moved, "B"), intensity)
