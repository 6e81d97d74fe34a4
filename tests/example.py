"""A CPU with round numbers, and samples of one mode, for tests to build on."""

from __future__ import annotations

from typing import Any

from roofline.machine import Ceiling, Machine


def around(value: float) -> tuple[float, ...]:
    return tuple(value * s for s in (0.995, 1.0, 1.0, 1.004, 1.002, 0.998, 1.001, 0.999, 1.003, 1.0))


def ceilings() -> dict[str, Ceiling]:
    memory: dict[str, Any] = {"probe": "stream", "level": "DRAM", "threads": 2}
    return {
        "read": Ceiling(access="read", samples=(40e9,), **memory),
        "copy": Ceiling(access="copy", variant="plain", samples=(30e9,), **memory),
        "copy NT": Ceiling(access="copy", variant="non_temporal", samples=(36e9,), **memory),
        "L2": Ceiling(probe="stream", level="L2", access="read", threads=2, samples=(400e9,)),
        "fp32": Ceiling(probe="fma", dtype="fp32", isa="avx2", threads=2, samples=(200e9,)),
        "fp64": Ceiling(probe="fma", dtype="fp64", isa="avx2", threads=2, samples=(100e9,)),
        "launch": Ceiling(probe="launch", threads=2, samples=(2e-6,), problem={"operator": "fork_join"}),
    }


def machine(*without: str, **more: Ceiling) -> Machine:
    kept = {name: ceiling for name, ceiling in {**ceilings(), **more}.items() if name not in without}
    return Machine(name="Example CPU", ceilings=tuple(kept.values()))
