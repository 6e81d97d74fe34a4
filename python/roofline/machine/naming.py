"""Machines in words: "8xH100" is eight of them, "2TB/s,bf16=500TFLOP/s" one on paper."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..dtypes import dtype_name
from ..errors import Error, is_number, plain
from ..hardware import datasheet
from ..units import parse_bytes, parse_rate, parse_time_s
from ..words import hint

MOST_DEVICES = 1 << 16
_COUNT = re.compile(r"([0-9]{1,9})\s*[xX×*]\s*(\S.*)")
_RATE = re.compile(r"[0-9.eE+]+\s*[a-zA-Z]*B/s")
# Keys of a machine on paper beside its dtypes: the argument of `Machine.from_peaks`, and how it is written.
KEYS: Mapping[str, str] = {
    "bandwidth": "bytes_per_s", "link": "link_bytes_per_s", "memory": "memory_bytes", "launch": "launch_s", "name": "name",
}  # fmt: skip
FORM = "2TB/s,bf16=500TFLOP/s,memory=80GB,link=450GB/s,launch=2us"


def counted(text: str) -> tuple[int, str]:
    """How many devices, and of which name: (8, "H100") of "8xH100". Raises Error for none of them and for too many."""
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        return 1, text
    count = int(match[1])
    if not 1 <= count <= MOST_DEVICES:
        raise Error(f"{text!r:.80}: a machine has from 1 to {MOST_DEVICES} devices, got {count}")
    return count, match[2]


def on_paper(text: str) -> bool:
    """Whether the words are a machine's rates."""
    first = text.partition(",")[0]
    return _RATE.fullmatch(first.strip()) is not None or "=" in text


def machine_list(text: str) -> list[str]:
    """A comma list of machines: "H100,GB200". What stands with "=" behind a rate belongs to it: it is a machine on paper.

    The name of a datasheet may have a comma: "NVIDIA GB200, one GPU" alone is one machine.
    """
    if ", " in text:
        with suppress(Error):
            datasheet(counted(text)[1])
            return [text]
    found: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if not part:
            raise Error(f"must be machines separated by commas, got {text!r:.80}")
        if "=" in part and found:
            if not on_paper(counted(found[-1])[1]):
                raise Error(f"{found[-1]!r:.80} before {part!r:.80} is no bandwidth; a machine on paper is written {FORM}")
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def number_of(name: str, given: Any) -> float:
    """A number of a machine on paper, or words for it: "500 TFLOPS", "80GB", "2us", "2TB/s". Raises Error for anything else."""
    if isinstance(given, str):
        if name == "memory_bytes":
            return parse_bytes(given)
        if name == "launch_s":
            return parse_time_s(given)
        given = parse_rate(given, "FLOP/s" if name == "flops_per_s" else "B/s")
        if given == 0:
            raise Error("a rate must be positive, got 0")
    given = plain(given)
    if not is_number(given):
        raise Error(f"{name} must be a number or words such as '2TB/s', got {given!r:.60}")
    return given


def peaks_of(text: str) -> dict[str, Any]:
    """The arguments of `Machine.from_peaks` from words such as FORM. Raises Error naming the part that cannot be read."""
    found: dict[str, Any] = {"name": text}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            key, value = "bandwidth", key
        try:
            known = KEYS.get(key)
            if known is None:
                known = dtype_name(key)
                number: Any = number_of("flops_per_s", value)
            else:
                number = value if key == "name" else number_of(known, value)
        except Error as error:
            near = "" if key in KEYS else hint(key, KEYS)
            said = f"machine {text!r:.80}: {part.strip()!r:.80}: {error}{near}"
            raise Error(f"{said}; a machine on paper is written {FORM}") from None
        if key != "name" and known in found:
            raise Error(f"machine {text!r:.80}: {key} is given twice")
        found[known] = number
    if "bytes_per_s" not in found:
        raise Error(f"machine {text!r:.80} has no bandwidth: write it first, {FORM}")
    return found
