"""A model on a machine in one table: where each phase and each kind of its kernels lies, what bounds it, and what would help."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._repr import Parts, Records, Row, Shown, json_form, printable, values_of
from .crossovers import Crossing, crossing
from .errors import Error
from .machine import Given, Machine, in_order, machine_of
from .model import Roofs, machine_roofs
from .operators.base import WORK
from .prediction import utilisation_of
from .reading import SCHEMA_VERSION
from .transformer import (
    Decode,
    Given as Model,
    ModelPrediction,
    Part,
    Phase,
    Prefill,
    Quantization,
    TransformerConfig,
    model_of,
    predict_model,
)
from .transformer.advice import many_sequences, narrower
from .transformer.predicting import options_of
from .units import MISSING, fmt_number, fmt_percent, fmt_si
from .words import arguments_checked, split, whole

ALL, PRODUCTS, ATTENTION, REST, LINK = "all", "linear layers", "attention", "element-wise", "collectives"
KINDS = (PRODUCTS, ATTENTION, REST, LINK)
WORTH = 1.05  # smaller gains are not called a help
SHOWN = 2  # changes in a row, the best first


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """A change and its gain: tokens/s after it over those before, of this row's kernels alone."""

    change: str
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of a cheat sheet: a whole phase (kind "all"), or one kind of its kernels.

    context: keys that the last token of a sequence sees. ridge_flops_per_byte: of the largest product (where there is none, of
    the longest kernel); None without arithmetic. ridge_batch: the batch at which FLOPs of products over all bytes reach that ridge;
    None where no batch does. bound: "memory", "compute", "launch", "link", "overhead" or "overlap", what takes most of
    time_s; bound_share: how much of it. tokens_per_s: of all sequences, None for a kind of kernels. fits: in memory, None where
    nobody knows. helps: what gains WORTH times and more, best first.
    """

    phase: str
    kind: str
    batch: int
    context: int
    flops_per_byte: float | None
    ridge_flops_per_byte: float | None
    ridge_batch: float | None
    bound: str
    bound_share: float
    time_s: float
    share: float
    tokens_per_s: float | None = None
    fits: bool | None = None
    helps: tuple[Help, ...] = ()

    @property
    def helping(self) -> str:
        """The helps in words."""
        return "; ".join(f"{each.gain:.2f}× {each.change}" for each in self.helps)

    def to_dict(self) -> dict[str, Any]:
        return dict(json_form(self))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheatSheet(Shown, Records):
    """What `cheat_sheet` makes. roofs: those of the model's largest product. decode: the whole decode step's crossing of the ridge,
    linear: that of its linear layers alone. largest_batch: of the decode step, None where the machine's memory is not known.
    """

    model: str
    machine: str
    roofs: Roofs
    decode: Crossing
    linear: Crossing
    largest_batch: int | None
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def ridge_flops_per_byte(self) -> float:
        """The balance point of the machine for this model."""
        return self.roofs.ridge_flops_per_byte

    def line(self, phase: str, kind: str = ALL, *, batch: int | None = None) -> Line:
        """The row of a phase and a kind of kernels at a batch (None: the first). Raises Error if there is none."""
        for each in self.lines:
            if (each.phase, each.kind) == (phase, kind) and batch in (None, each.batch):
                return each
        raise Error(
            f"no row of {phase!r:.40}, {kind!r:.40}, batch {batch!r:.40}; there are "
            + "; ".join(f"{each.phase}, {each.kind}, batch {each.batch}" for each in self.lines)
        )

    def summary(self) -> list[tuple[str, str]]:
        """What a reader wants first: (name, value)."""
        labels = " over ".join(self.roofs.labels[name] for name in ("compute", "memory") if name in self.roofs.labels)
        first = next(each for each in self.lines if (each.phase, each.kind) == (Decode.name, ALL))
        pace = f"{fmt_si(first.tokens_per_s, 'tok/s')} at batch {first.batch}, context {first.context}"
        fits = [] if self.largest_batch is None else [("largest decode batch that fits", str(self.largest_batch))]
        return [
            ("balance point", f"{fmt_number(self.ridge_flops_per_byte)} FLOP/byte: {labels}"),
            ("linear layers of decode", self.linear.text),
            ("a whole decode step", self.decode.text),
            ("decode", pace),
            *fits,
        ]

    def table(self) -> tuple[Row, list[Row]]:
        headers = ("work", "context", "bound", "time", "share", "tok/s", "FLOP/byte", "ridge", "above ridge from", "what helps")
        return headers, [_row(each) for each in self.lines]

    def to_records(self) -> list[dict[str, Any]]:
        """A record of each row: the fields of `Line`, with what helps in words."""
        return [{**each.to_dict(), "helps": each.helping} for each in self.lines]

    def _table(self) -> Parts:
        return f"Cheat sheet: {self.model} on {self.machine}", *self.table(), [*map(": ".join, self.summary()), *self.notes]

    def __repr__(self) -> str:
        return printable(f"CheatSheet({self.model!r}, {self.machine}, {len(self.lines)} rows)")

    def to_dict(self) -> dict[str, Any]:
        """JSON form, see `cheat_sheet.schema.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "cheat_sheet",
            **values_of(self.roofs, "compute_flops_per_s bandwidth_bytes_per_s"),
            **values_of(self, "model machine ridge_flops_per_byte decode linear largest_batch lines notes"),
        }


def _row(line: Line) -> Row:
    whole = line.kind == ALL
    crossed = "never" if line.ridge_batch is None else f"batch {max(math.ceil(line.ridge_batch), 1)}"
    fits = " (does not fit)" if line.fits is False else ""
    return (
        f"{line.phase}, batch {line.batch}{fits}" if whole else f"· {line.kind}", str(line.context) if whole else "",
        f"{line.bound} {fmt_percent(line.bound_share, 2)}", fmt_si(line.time_s, "s"), fmt_percent(line.share, 2),
        fmt_number(line.tokens_per_s) if whole else "", fmt_number(line.flops_per_byte), fmt_number(line.ridge_flops_per_byte),
        crossed, line.helping or MISSING,
    )  # fmt: skip


# -- kernels by kind --------------------------------------------------------------------------------------------------------------


def _kind(part: Part) -> str:
    problem = part.call.problem
    if problem.link_bytes() > 0:
        return LINK
    if part.call.weights:
        return PRODUCTS
    return ATTENTION if problem.has_products() else REST


def _by_kind(found: ModelPrediction) -> dict[str, list[Part]]:
    """The parts by kind; `ALL` holds every part."""
    kinds = {kind: [part for part in found.parts if _kind(part) == kind] for kind in KINDS}
    return {ALL: list(found.parts), **{kind: parts for kind, parts in kinds.items() if parts}}


def _seconds(parts: Iterable[Part]) -> float:
    return math.fsum(part.time_s for part in parts)


def _profile(found: ModelPrediction, parts: Iterable[Part], whole: bool) -> dict[str, float]:
    """Seconds of some parts by what bounds them."""
    spent: dict[str, float] = {"overhead": found.overhead_s} if whole and found.overhead_s else {}
    for part in parts:
        for roof, seconds in part.profile.items():
            name = "compute" if roof in WORK else "link" if roof.startswith("link") else roof
            name = name if name in ("compute", "link", "launch", "overlap") else "memory"
            spent[name] = spent.get(name, 0.0) + seconds
    return spent


def _roofs(parts: Sequence[Part], machine: Machine, how: Mapping[str, Any]) -> Roofs:
    """Those of the largest product, else of the longest part."""
    largest = max(parts, key=lambda part: (part.product_flops, part.time_s))
    return machine_roofs(machine, largest.call.problem).derated(**utilisation_of(how.get("utilisation")))


def _crossing(few: Sequence[Part], many: Sequence[Part], batch: int, roofs: Roofs) -> Crossing | None:
    """From parts at a batch and at twice of it; None without products."""
    flops, bytes_ = (
        [sum(part.product_flops for part in parts) for parts in (few, many)],
        [sum(part.bytes for part in parts) for parts in (few, many)],
    )
    if not flops[0]:
        return None
    each = (bytes_[1] - bytes_[0]) / batch
    return crossing(
        flops_each=(flops[1] - flops[0]) / batch, bytes_each=each, bytes_once=bytes_[0] - batch * each,
        ridge=roofs.ridge_flops_per_byte,
    )  # fmt: skip


def _crossings(config: TransformerConfig, phase: Phase, machine: Machine, how: Mapping[str, Any]) -> dict[str, Crossing | None]:
    """By kind: where its intensity meets the ridge. FLOPs and bytes are linear in the batch, so two batches give both."""
    batch = many_sequences(config, phase, how.get("ep", 1))
    few, many = (
        _by_kind(predict_model(machine, config, phase.replace(batch=each), must_fit=False, **how)) for each in (batch, 2 * batch)
    )
    return {kind: _crossing(parts, many[kind], batch, _roofs(parts, machine, how)) for kind, parts in few.items()}


# -- what helps -------------------------------------------------------------------------------------------------------------------


def _changes(config: TransformerConfig, phase: Phase, machine: Machine, how: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(the change, the arguments of the prediction with it)."""
    if not how.get("fused", True):
        yield "fuse attention and products", (config, phase, {**how, "fused": True})
    yield "twice the batch", (config, phase.replace(batch=2 * phase.batch), how)
    for change, other in narrower(config, machine):
        yield change, (other, phase, how)


def _helps(found: ModelPrediction, machine: Machine, how: Mapping[str, Any]) -> dict[str, tuple[Help, ...]]:
    """By kind: the changes that gain most in tokens/s, the best first. What would then no longer fit in memory is left out."""
    now = {kind: _seconds(parts) for kind, parts in _by_kind(found).items()}
    gains: dict[str, list[Help]] = {kind: [] for kind in now}
    for change, (config, phase, options) in _changes(found.config, found.phase, machine, how):
        new = predict_model(machine, config, phase, must_fit=False, **options)
        if new.memory.fits is False and found.memory.fits:
            continue
        for kind, parts in _by_kind(new).items():
            if kind in now and (seconds := _seconds(parts)):
                gain = now[kind] / seconds * phase.batch / found.phase.batch
                gains[kind].append(Help(change=change, gain=gain))
    best = {kind: sorted(each, key=lambda item: -item.gain)[:SHOWN] for kind, each in gains.items()}
    return {kind: tuple(item for item in each if item.gain >= WORTH) for kind, each in best.items()}


# -- the table --------------------------------------------------------------------------------------------------------------------


def _lines(
    found: ModelPrediction, machine: Machine, how: Mapping[str, Any], crossed: Mapping[str, Crossing | None]
) -> Iterator[Line]:
    helps = _helps(found, machine, how)
    for kind, parts in _by_kind(found).items():
        whole = kind == ALL
        time_s = found.time_s if whole else _seconds(parts)
        flops, moved = sum(part.flops for part in parts), sum(part.bytes for part in parts)
        spent = _profile(found, parts, whole)
        bound = max(spent, key=lambda name: spent[name])
        ridge = _roofs(parts, machine, how).ridge_flops_per_byte
        met = crossed.get(kind)
        yield Line(
            phase=found.phase.name, kind=kind, batch=found.phase.batch, context=found.phase.longest,
            flops_per_byte=flops / moved if moved else None, ridge_flops_per_byte=ridge if math.isfinite(ridge) else None,
            ridge_batch=met.batch if met else None, bound=bound, bound_share=spent[bound] / time_s, time_s=time_s,
            share=time_s / found.time_s, tokens_per_s=found.tokens_per_s if whole else None,
            fits=found.memory.fits if whole else None, helps=helps[kind],
        )  # fmt: skip


@arguments_checked
def cheat_sheet(
    machine: Given,
    model: Model,
    *,
    batch: int | str | Sequence[int | str] = (1, 32, 128),
    seq_kv: int | str = 2048,
    seq_q: int | str = 1024,
    dtype: Any = None,
    weights: Any = None,
    activations: Any = None,
    kv: Any = None,
    quantization: Quantization | str | None = None,
    **how: Any,
) -> CheatSheet:
    """Where a model lies on a machine, as one table: cheat_sheet("H100 SXM", "Llama-3-8B", weights="fp8").

    A decode step for each `batch`, with seq_kv keys a sequence, and a prefill of one prompt of seq_q tokens (with ep of one a
    rank); under each the kinds of its kernels. Nothing is measured; what does not fit in memory is predicted nevertheless and
    says so.

    Args:
        machine: as for `roofline.predict`, and so are model and dtypes.
        how: options of `roofline.predict` for models (tp, ep, fused, launch_s, …).

    Raises:
        Error: for bad fields, an unknown option, and ceilings that are missing.
    """
    with in_order("cheat_sheet takes the machine first", model):
        on = machine_of(machine)
    config = model_of(model, dtype=dtype, weights=weights, activations=activations, kv=kv, quantization=quantization)
    ranks = options_of(on, how).ep
    given = split(batch) if isinstance(batch, str) else [batch] if isinstance(batch, int) else list(batch)
    if not given:
        raise Error("cheat_sheet: batch is empty; give at least one, e.g. batch=[1, 32]")
    # Each rank of ep has sequences of its own.
    decode, prefill = Decode(batch=ranks, seq_kv=_number(seq_kv)), Prefill(batch=ranks, seq_q=_number(seq_q))
    step, prompt = (_crossings(config, phase, on, how) for phase in (decode, prefill))
    wanted: list[tuple[Phase, Mapping[str, Crossing | None]]] = [(decode.replace(batch=_number(each)), step) for each in given]
    found = [(predict_model(on, config, phase, must_fit=False, **how), crossed) for phase, crossed in (*wanted, (prefill, prompt))]
    entire, linear = step[ALL], step[PRODUCTS]
    assert entire is not None and linear is not None  # every model has products
    first = found[0][0]
    return CheatSheet(
        model=config.name, machine=on.name, roofs=_roofs(first.parts, on, how), decode=entire, linear=linear,
        largest_batch=first.memory.largest_batch,
        lines=tuple(line for each, crossed in found for line in _lines(each, on, how, crossed)),
        notes=tuple(dict.fromkeys(note for each, _ in found for note in (*each.counted, *(f"note: {n}" for n in each.notes)))),
    )  # fmt: skip


def _number(given: int | str) -> int:
    return whole(given) if isinstance(given, str) else given
