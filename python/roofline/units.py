"""The only place with powers of ten: SI base units in the program, prefixes for people.

GB/s and GFLOP/s are decimal; KiB, MiB, GiB are binary and say so. Nothing rounds before it is printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from .errors import Error, is_number, plain

KILO, MEGA, GIGA, TERA = 1e3, 1e6, 1e9, 1e12
MILLI, MICRO, NANO = 1e-3, 1e-6, 1e-9
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

# What may be stated of a run: outside, times overflow or mean nothing. A share of a roof or of memory, seconds of a launch or a
# pause, bytes/s of a link, bytes of a memory; and any measured rate or time.
SHARES, SECONDS, LINKS, MEMORIES, RATES = (1e-6, 1.0), (0.0, 1e6), (1.0, 1e30), (1.0, 1e18), (1e-30, 1e30)

MISSING = "–"  # printed where there is no value
PRINTED = 5e-5  # shares below this round to 0.00 %

_PREFIXES = {-15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_BYTE_FACTORS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_FLOPS = re.compile(r"(?:flop/s|flops/s|flops|op/s|ops)$", re.IGNORECASE)  # as people write FLOP/s
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*(\S*)\s*")


def within(name: str, what: str, value: object, allowed: tuple[float, float]) -> float:
    """`value` as a float. Raises Error unless it is a number (no bool) of the range `allowed`; what: "a share", "seconds"."""
    least, most = allowed
    value = plain(value)
    if not is_number(value) or not least <= value <= most:
        shown = "an integer beyond 2**64" if isinstance(value, int) and abs(value) > 2**64 else f"{value!r:.40}"
        raise Error(f"{name} must be {what} from {least:g} to {most:g}, got {shown}")
    return float(value)


def si_prefix(value: float, digits: int = 3) -> tuple[float, str]:
    """(factor, prefix) such that value, rounded to `digits`, / factor lies in [1, 1000): (1e9, "G") for 47.2e9.

    (1.0, "") for 0, NaN and infinities; the outermost prefix beyond femto and exa.
    """
    if not math.isfinite(value) or value == 0:
        return 1.0, ""
    exponent = int(f"{abs(value):.{max(digits, 1) - 1}e}".partition("e")[2])  # the exponent after rounding: 999.96 is 1.00e3
    three = min(max(exponent // 3 * 3, min(_PREFIXES)), max(_PREFIXES))
    return 10.0**three, _PREFIXES[three]


def fmt_number(value: float | None, digits: int = 3) -> str:
    """A plain number to `digits` significant digits: "5.79", "1230", "0". None gives "–"."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return str(float(value))
    if value == 0:
        return "0"
    exponent = int(f"{abs(value):.{digits - 1}e}".partition("e")[2])
    if exponent < -4 or exponent > 14:
        return f"{value:.{digits - 1}e}"
    rounded = round(value, digits - 1 - exponent)
    return f"{rounded:.{max(digits - 1 - exponent, 0)}f}"


def without_zeros(number: str) -> str:
    """A printed number without zeros behind its point: "5.7" of "5.700"."""
    return number.rstrip("0").rstrip(".") if "." in number and "e" not in number else number


def fmt_si(value: float | None, unit: str, digits: int = 3) -> str:
    """A value in base SI units with its prefix: fmt_si(47.2e9, "B/s") is "47.2 GB/s". None gives "–"."""
    if value is None:
        return MISSING
    factor, prefix = si_prefix(value, digits)
    rounded = float(f"{value:.{digits - 1}e}")  # before the division: 0.995 / 1e-3 is 995.0, which would round up to 1000
    return f"{fmt_number(rounded / factor, digits)} {prefix}{unit}"


def fmt_interval(low: float, high: float, unit: str) -> str:
    """Two values with their unit, once if it is the same: "25.8 … 27.7 GB/s", "950 ns … 1.02 µs"."""
    (number, first), second = fmt_si(low, unit).split(" "), fmt_si(high, unit)
    return f"{number} … {second}" if second.endswith(f" {first}") else f"{number} {first} … {second}"


def fmt_duration(seconds: float) -> str:
    """Rounded, as people say it: "8 s", "4 min", "3 h"."""
    for unit, each in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * each:
            return f"{fmt_number(seconds / each, 2)} {unit}"
    return f"{max(round(seconds), 1)} s"


def fmt_bytes(value: float | None) -> str:
    """A size with a binary prefix, without trailing zeros: "32 MiB", "1.5 GiB", "17 B". None gives "–"."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return f"{float(value)} B"
    size, index = float(value), 0
    # As it will be printed: whole numbers of four digits are not rounded.
    while index + 1 < len(_BINARY) and float(f"{abs(size):.4g}") >= 1024:
        size, index = size / 1024, index + 1
    text = fmt_number(size, max(3, len(str(int(abs(size))))))
    return f"{without_zeros(text)} {_BINARY[index]}"


def fmt_percent(share: float | None, digits: int = 3) -> str:
    """A fraction as a percentage: fmt_percent(0.943) is "94.3 %". None gives "–"."""
    return MISSING if share is None else f"{fmt_number(share * 100, digits)} %"


def fmt_share(share: float | None) -> str:
    """A part of a whole as a percentage, as `fmt_percent`; one that is there but below PRINTED is "< 0.01 %"."""
    return "< 0.01 %" if share is not None and 0 < share < PRINTED else fmt_percent(share)


def fmt_shares(parts: Mapping[str, float], total: float) -> str:
    """The parts of `total` that a print shows: "DRAM 94.6 %, link 5.4 %"."""
    return ", ".join(f"{name} {fmt_percent(part / total)}" for name, part in parts.items() if part / total >= PRINTED)


def _split(text: str, example: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text) if len(text) <= 100 else None  # the pattern takes the square of the length
    value = float(match[1]) if match else math.inf
    if match is None or not math.isfinite(value):
        raise Error(f"cannot read {text!r:.80}: write a number and a unit, such as {example}")
    return value, match[2]


def parse_bytes(text: str | int) -> int:
    """Bytes from "64KiB", "1.5 GiB", "64kB" (decimal), "4096". Raises Error for anything else, "64K" included: it is ambiguous."""
    if isinstance(text, int):
        text = str(text)
    value, unit = _split(text, "64KiB")
    factor = _BYTE_FACTORS.get(unit.lower())
    if factor is None:
        hint = (
            f"; write {unit}iB (binary) or {unit}B (decimal)"
            if unit.upper() in ("K", "M", "G", "T")
            else "; use KiB, MiB, GiB, kB, MB, GB"
        )
        raise Error(f"cannot read the size {text!r:.80}: unknown unit {unit!r:.80}{hint}")
    size = value * factor
    if not math.isfinite(size):
        raise Error(f"cannot read the size {text!r:.80}: it is beyond every memory")
    if size != int(size):
        raise Error(f"the size {text!r:.80} is not a whole number of bytes")
    return int(size)


def parse_si(text: str, unit: str) -> float:
    """A value in base units from text with an SI prefix: parse_si("47.2GB/s", "B/s") is 47.2e9. A bare number is in base units.
    "500 TFLOPS" and "500 TOP/s" are 500 TFLOP/s.

    Raises Error for another unit or an unknown prefix.
    """
    value, given = _split(text, "2us" if unit == "s" else f"1.5 G{unit}")
    given = _FLOPS.sub("FLOP/s", given) if unit == "FLOP/s" else given
    if not given:
        return value
    if given.endswith(unit):
        prefix = given[: len(given) - len(unit)].replace("u", "µ").replace("μ", "µ")
        for exponent, name in _PREFIXES.items():
            if name == prefix and math.isfinite(value * 10.0**exponent):
                return value * 10.0**exponent
    raise Error(f"cannot read {text!r:.80}: expected a number in {unit}, with an SI prefix or none")


def parse_rate(text: str, unit: str) -> float:
    """As `parse_si`, of a rate: "450" alone is more likely to lack its unit than to be 450 B/s. Raises Error for it."""
    if text.strip().replace(".", "", 1).isdigit():
        raise Error(f"{text.strip()!r:.80} has no unit: write one of {', '.join(prefix + unit for prefix in 'GTP')}")
    return parse_si(text, unit)


def parse_time_s(text: str) -> float:
    """Seconds from "3.4us", "20ms", "2 s", "0.5". Raises Error for anything else."""
    return parse_si(text, "s")
