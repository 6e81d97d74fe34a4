"""One datasheet: its numbers with their sources, checked key by key as the file is read."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..dtypes import DTYPES, UNITS
from ..errors import Error
from ..reading import MOST
from ..units import fmt_si

UNSOURCED = "unsourced"
# Families that vendors quote as one number.
FAMILIES: Mapping[str, tuple[str, ...]] = {"fp8": ("fp8_e4m3", "fp8_e5m2"), "fp6": (), "fp4": ("nvfp4", "mxfp4")}
DEVICES = ("cuda", "rocm", "cpu", "tpu", "hpu")
TEXTS = ("name", "vendor", "device", "form_factor", "compute_capability", "memory_type")
LISTS = ("aliases", "notes")
# Each with the unit it is printed in.
NUMBERS: Mapping[str, str] = {
    "memory_bytes_per_s": "B/s", "driver_memory_bytes_per_s": "B/s", "memory_bytes": "B", "driver_memory_bytes": "B",
    "memory_bus_bits": "", "memory_clock_hz": "Hz", "memory_channels": "", "memory_transfers_per_s": "T/s",
    "l1_bytes_per_cycle": "B", "l2_bytes": "B", "l2_bytes_per_s": "B/s", "l3_bytes": "B", "multiprocessors": "", "cores": "",
    "base_clock_hz": "Hz", "boost_clock_hz": "Hz", "tensor_clock_hz": "Hz", "link_bytes_per_s": "B/s",
    "chip_link_bytes_per_s": "B/s", "tdp_w": "W",
}  # fmt: skip
PEAKS = ("dense_flops_per_s", "sparse_flops_per_s", "flops_per_cycle")
REQUIRED = ("name", "vendor", "device", "memory_bytes_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One stated number, in the unit of its key. source: an address, or "unsourced". verified: it was seen there."""

    value: float
    source: str
    verified: bool
    note: str = ""
    disputed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """One stated rate. dtype: of the package, or a family (fp8, fp6, fp4) quoted as one. mix: "" is multiply-adds alone."""

    dtype: str
    unit: str
    accumulator: str
    number: Number
    isa: str = ""
    mix: str = ""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The package's dtypes it is a peak of; none where the package has no such dtype."""
        return FAMILIES.get(self.dtype, (self.dtype,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """What is stated about one device.

    device: "cuda", "cpu", ... as machines name theirs. numbers: see NUMBERS. dense and sparse: FLOP/s; sparse is what the
    vendor quotes for 2:4-sparse operands. per_cycle: FLOP per cycle and core (CPUs). origin: "" for those of the package,
    else the user's file.
    """

    id: str
    name: str
    vendor: str
    device: str
    form_factor: str = ""
    compute_capability: str = ""
    memory_type: str = ""
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, Number] = field(default_factory=dict)
    dense: tuple[Peak, ...] = ()
    sparse: tuple[Peak, ...] = ()
    per_cycle: tuple[Peak, ...] = ()
    origin: str = ""

    def value(self, key: str) -> float | None:
        """The number under one key of NUMBERS, or None where it is not stated. Raises Error for any other key."""
        if key not in NUMBERS:
            raise Error(f"a datasheet has no key {key!r:.80}; it has {', '.join(NUMBERS)}")
        number = self.numbers.get(key)
        return None if number is None else number.value

    def cache_bytes_per_s(self, level: str) -> float | None:
        """Bytes/s of L1 (of all multiprocessors at the boost clock) or L2 of the whole device; None where a factor is not stated.

        Raises Error for another level.
        """
        factors = {"L1": ("multiprocessors", "l1_bytes_per_cycle", "boost_clock_hz"), "L2": ("l2_bytes_per_s",)}.get(level)
        if factors is None:
            raise Error(f"a datasheet has bandwidths of the caches L1 and L2, not of {level!r:.80}")
        values = [value for key in factors if (value := self.value(key)) is not None]
        return math.prod(values) if len(values) == len(factors) else None

    def peaks(self) -> tuple[Peak, ...]:
        """Dense FLOP/s. Of CPUs: cores x FLOP per cycle x boost clock, which all cores together need not hold.

        A product is verified where all its factors are. Empty where a factor is not stated.
        """
        cores, clock = self.numbers.get("cores"), self.numbers.get("boost_clock_hz")
        if self.dense or cores is None or clock is None:
            return self.dense
        made = []
        for peak in self.per_cycle:
            factors = (cores, peak.number, clock)
            verified = all(factor.verified for factor in factors)
            number = Number(
                value=cores.value * peak.number.value * clock.value,
                source="; ".join(dict.fromkeys(factor.source for factor in factors)) if verified else UNSOURCED,
                verified=verified,
                note=f"{cores.value:.0f} cores × {peak.number.value:.0f} FLOP/cycle × {fmt_si(clock.value, 'Hz')} boost",
            )
            made.append(dataclasses.replace(peak, number=number))
        return tuple(made)

    def counted(self) -> tuple[Number, ...]:
        """Every number of the file."""
        peaks = (*self.dense, *self.sparse, *self.per_cycle)
        return (*self.numbers.values(), *(peak.number for peak in peaks))

    def to_dict(self) -> dict[str, Any]:
        """JSON form, with the keys of the file."""

        def number(n: Number) -> dict[str, Any]:
            more = {"note": n.note, "disputed": n.disputed}
            return {
                "value": n.value,
                "verified": n.verified,
                "source": n.source,
                **{key: what for key, what in more.items() if what},
            }

        def peak(p: Peak) -> dict[str, Any]:
            what = {"dtype": p.dtype, "unit": p.unit, "accumulator": p.accumulator, "isa": p.isa, "mix": p.mix}
            return {key: text for key, text in what.items() if text} | number(p.number)

        texts = {key: getattr(self, key) for key in ("id", *TEXTS)}
        lists = {key: list(getattr(self, key)) for key in LISTS}
        numbers = {key: number(n) for key, n in self.numbers.items()}
        groups = dict(zip(PEAKS, (self.dense, self.sparse, self.per_cycle), strict=True))
        return {**texts, **lists, **numbers, **{key: [peak(p) for p in group] for key, group in groups.items()}}


def _fail(where: str, what: str) -> Error:
    return Error(f"hardware file {where}: {what}")


def _text(data: Mapping[str, Any], key: str, where: str) -> str:
    value = data.get(key, "")
    if not isinstance(value, str):
        raise _fail(where, f"{key} must be text, got {value!r:.60}")
    return value


def _number(data: Any, key: str, where: str, more: tuple[str, ...] = ()) -> Number:
    if not isinstance(data, dict):
        raise _fail(where, f"{key} must be a table with value, source and verified, got {data!r:.60}")
    known = ("value", "source", "verified", "note", "disputed", *more)
    if unknown := [name for name in data if name not in known]:
        raise _fail(where, f"{key} has the unknown key {unknown[0]!r:.80}; known are {', '.join(known)}")
    if missing := [name for name in ("value", "source", "verified") if name not in data]:
        raise _fail(where, f"{key} lacks {', '.join(missing)}")
    value, source = data["value"], _text(data, "source", f"{where}: {key}")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MOST:
        raise _fail(where, f"{key}: value must be a number from 0 to 2**63, in the unit of the key, got {value!r:.60}")
    if more and not value:
        raise _fail(where, f"{key}: a peak cannot be 0; leave it out")
    for name in ("verified", "disputed"):
        if not isinstance(data.get(name, False), bool):
            raise _fail(where, f"{key}: {name} must be true or false, got {data[name]!r:.60}")
    if not source.strip() or (data["verified"] and source == UNSOURCED):
        raise _fail(where, f"{key}: source must be an address (or {UNSOURCED!r:.80}, and then verified must be false)")
    return Number(
        value=float(value),
        source=source,
        verified=data["verified"],
        note=_text(data, "note", f"{where}: {key}"),
        disputed=data.get("disputed", False),
    )


def _peaks(data: Any, key: str, where: str) -> tuple[Peak, ...]:
    if not isinstance(data, list):
        raise _fail(where, f"{key} must be an array of tables, got {data!r:.60}")
    found: list[Peak] = []
    for index, item in enumerate(data):
        place = f"{key}[{index}]"
        number = _number(item, place, where, ("dtype", "unit", "accumulator", "isa", "mix"))
        texts = {name: _text(item, name, f"{where}: {place}") for name in ("dtype", "unit", "accumulator", "isa", "mix")}
        for name, allowed in (("dtype", (*DTYPES, *FAMILIES)), ("unit", UNITS), ("accumulator", tuple(DTYPES))):
            if texts[name] not in allowed:
                raise _fail(where, f"{place}: {name} must be one of {', '.join(allowed)}, got {texts[name]!r:.80}")
        peak = Peak(number=number, **texts)
        if any((p.dtype, p.unit, p.accumulator, p.isa, p.mix) == tuple(texts.values()) for p in found):
            raise _fail(where, f"{place} repeats {' '.join(filter(None, texts.values()))}")
        found.append(peak)
    return tuple(found)


def read(text: str, *, id: str, where: str, origin: str = "") -> Datasheet:
    """The datasheet of TOML `text`. Raises Error naming `where`, the key, and its error."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own error, and that of an integer of thousands of digits
        raise _fail(where, f"not valid TOML: {error!s:.200}") from error
    known = (*TEXTS, *LISTS, *NUMBERS, *PEAKS)
    if unknown := [key for key in data if key not in known]:
        raise _fail(where, f"unknown key {unknown[0]!r:.80}; known are {', '.join(known)}")
    if missing := [key for key in REQUIRED if key not in data]:
        raise _fail(where, f"it lacks {', '.join(missing)}")
    texts = {key: _text(data, key, where) for key in TEXTS}
    if texts["device"] not in DEVICES:
        raise _fail(where, f"device must be one of {', '.join(DEVICES)}, got {texts['device']!r:.80}")
    lists = {}
    for key in LISTS:
        items = data.get(key, [])
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise _fail(where, f"{key} must be a list of texts, got {items!r:.60}")
        lists[key] = tuple(items)
    numbers = {key: _number(data[key], key, where) for key in NUMBERS if key in data}
    if not numbers["memory_bytes_per_s"].value:
        raise _fail(where, "memory_bytes_per_s: value must be positive")
    dense, sparse, per_cycle = (_peaks(data.get(key, []), key, where) for key in PEAKS)
    return Datasheet(
        id=id, **texts, aliases=lists["aliases"], notes=lists["notes"], numbers=numbers, dense=dense, sparse=sparse,
        per_cycle=per_cycle, origin=origin,
    )  # fmt: skip
