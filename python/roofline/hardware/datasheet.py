"""One datasheet: its numbers with their sources, checked key by key as the file is read."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from ..dtypes import DTYPES, UNITS
from ..errors import Error
from ..reading import MOST, Text, build
from ..units import fmt_si
from ..words import require_one_of

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One stated number, in the unit of its key. source: an address, or "unsourced". verified: it was seen there."""

    value: Annotated[float, Meta(ge=0, le=MOST)]
    source: Text
    verified: bool
    note: Text = ""
    disputed: bool = False

    def __post_init__(self) -> None:
        if not self.source.strip() or (self.verified and self.source == UNSOURCED):
            raise Error(f"source must be an address (or {UNSOURCED!r}, and then verified must be false)")

    def to_dict(self) -> dict[str, Any]:
        """As the file has it: without empty fields."""
        return {name: what for name, what in dataclasses.asdict(self).items() if what or name in ("value", "verified")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak(Number):
    """One stated rate. dtype: of the package, or a family (fp8, fp6, fp4) quoted as one. mix: "" is multiply-adds alone."""

    dtype: Text
    unit: Text
    accumulator: Text
    isa: Text = ""
    mix: Text = ""

    def __post_init__(self) -> None:
        Number.__post_init__(self)
        for name, allowed in (("dtype", (*DTYPES, *FAMILIES)), ("unit", UNITS), ("accumulator", DTYPES)):
            require_one_of(name, getattr(self, name), allowed)
        if not self.value:
            raise Error("a peak cannot be 0; leave it out")

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The package's dtypes it is a peak of; none where the package has no such dtype."""
        return FAMILIES.get(self.dtype, (self.dtype,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """The stated figures of one device.

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
        """Dense FLOP/s; a CPU's are cores x FLOP per cycle x boost clock, which all cores together need not hold.

        A product is verified where all its factors are. Empty where a factor is not stated.
        """
        cores, clock = self.numbers.get("cores"), self.numbers.get("boost_clock_hz")
        if self.dense or cores is None or clock is None:
            return self.dense
        made = []
        for peak in self.per_cycle:
            factors = (cores, peak, clock)
            verified = all(factor.verified for factor in factors)
            sources = "; ".join(dict.fromkeys(factor.source for factor in factors)) if verified else UNSOURCED
            note = f"{cores.value:.0f} cores × {peak.value:.0f} FLOP/cycle × {fmt_si(clock.value, 'Hz')} boost"
            value = math.prod(factor.value for factor in factors)
            made.append(dataclasses.replace(peak, value=value, source=sources, verified=verified, note=note, disputed=False))
        return tuple(made)

    def counted(self) -> tuple[Number, ...]:
        """Every number of the file."""
        return (*self.numbers.values(), *self.dense, *self.sparse, *self.per_cycle)

    def to_dict(self) -> dict[str, Any]:
        """JSON form, with the keys of the file."""
        texts = {key: getattr(self, key) for key in ("id", *TEXTS)}
        lists = {key: list(getattr(self, key)) for key in LISTS}
        peaks = dict(zip(PEAKS, (self.dense, self.sparse, self.per_cycle), strict=True))
        stated = {key: [peak.to_dict() for peak in group] for key, group in peaks.items()}
        return {**texts, **lists, **{key: number.to_dict() for key, number in self.numbers.items()}, **stated}


# A file: the keys of TEXTS and LISTS, numbers and peaks.
_File: Any = dataclasses.make_dataclass(
    "_File",
    [
        *((name, Text) for name in ("name", "vendor", "device")), ("memory_bytes_per_s", Number),
        *((name, Text, "") for name in TEXTS[3:]), *((name, tuple[Text, ...], ()) for name in LISTS),
        *((name, Number | None, None) for name in NUMBERS if name != "memory_bytes_per_s"),
        *((name, tuple[Peak, ...], ()) for name in PEAKS),
    ],
    frozen=True, kw_only=True,
)  # fmt: skip


def read(text: str, *, id: str, where: str, origin: str = "") -> Datasheet:
    """The datasheet of TOML `text`. Raises Error naming `where`, the key, and its error."""
    where = f"hardware file {where}"
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own error, and that of an integer of thousands of digits
        raise Error(f"{where}: not valid TOML: {error!s:.200}") from error
    file = build(_File, data, where=where, cure="")
    require_one_of(f"{where}: device", file.device, DEVICES)
    if not file.memory_bytes_per_s.value:
        raise Error(f"{where}: memory_bytes_per_s: value must be positive")
    for key in PEAKS:
        names = [" ".join(filter(None, (p.dtype, p.unit, p.accumulator, p.isa, p.mix))) for p in getattr(file, key)]
        if twice := next((index for index, name in enumerate(names) if name in names[:index]), 0):
            raise Error(f"{where}: {key}[{twice}] repeats {names[twice]}")
    dense, sparse, per_cycle = (getattr(file, key) for key in PEAKS)
    return Datasheet(
        id=id, **{key: getattr(file, key) for key in (*TEXTS, *LISTS)}, dense=dense, sparse=sparse, per_cycle=per_cycle,
        numbers={key: number for key in NUMBERS if (number := getattr(file, key))}, origin=origin,
    )  # fmt: skip
