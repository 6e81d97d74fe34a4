"""A CPU with round numbers, and ceilings, roofs and measurements for tests to build on. Any field can be given."""

import json
from pathlib import Path
from typing import Any

from roofline.machine import Ceiling, Machine
from roofline.measurement import Policy
from roofline.operators import Matmul, Operator, Relu
from roofline.operators.scales import scales_name
from roofline.results import Bracket, Measurement

CACHES = {"threads": 2, "l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20}
# Measurements of tenths of a second, and of hundredths: for what they are, and not how long they take.
FAST = Policy(warmup_min_s=0.0, warmup_max_s=0.005, min_s=0.02, max_s=0.1, bracket_s=0.004, tries=1)
BRIEF = Policy(warmup_min_s=0.0, warmup_max_s=0.005, min_s=0.01, max_s=0.02, bracket_s=0.002, tries=1)
Values = float | tuple[float, ...]
# config.json files by preset: what the fields say of those with a published total, copies of the files (transformer.presets.SOURCES
# says where) of the others, without names of classes, tokens and factors of rotation.
CONFIGS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "configs.json").read_text(encoding="utf-8"))


def around(value: float) -> tuple[float, ...]:
    return tuple(value * s for s in (0.995, 1.0, 1.0, 1.004, 1.002, 0.998, 1.001, 0.999, 1.003, 1.0))


def _samples(values: Values) -> tuple[float, ...]:
    return values if isinstance(values, tuple) else (values,)


def bandwidth(values: Values, access: str = "read", level: str = "DRAM", **more: Any) -> Ceiling:
    stated = {"probe": "stream", "level": level, "access": access, "variant": "plain", "threads": 2}
    return Ceiling(**{**stated, "samples": _samples(values), **more})


def fma(values: Values, dtype: str = "fp32", **more: Any) -> Ceiling:
    return Ceiling(**{"probe": "fma", "dtype": dtype, "threads": 2, "samples": _samples(values), **more})


def launch(values: Values = 2e-6, **more: Any) -> Ceiling:
    stated = {"probe": "launch", "threads": 2, "problem": {"operator": "fork_join"}}
    return Ceiling(**{**stated, "samples": _samples(values), **more})


def gemm(size: int, values: Values, **changes: Any) -> Ceiling:
    """A product of the library, square but for the fields of the problem in `changes`; the others are the ceiling's."""
    of_problem = {name: value for name, value in changes.items() if name in Matmul.field_names() and name != "dtype"}
    dtype = changes.get("dtype", "fp32")
    problem = {"operator": "matmul", "rows": size, "columns": size, "inner": size, "dtype": dtype, **of_problem}
    probe, params = "gemm.misaligned" if size % 16 else "gemm.square", {"size": size}
    if of_problem.keys() & {"rows", "columns", "inner"}:
        probe, params = "gemm.narrow", {name: problem[name] for name in ("rows", "columns", "inner")}
    if scales := scales_name(of_problem):
        params["scales"] = scales
    stated = {"probe": probe, "accumulator": "fp32", "variant": "library", "params": params, "problem": problem}
    return fma(values, **stated, **{name: value for name, value in changes.items() if name not in of_problem})


def bracket(values: Values, label: str = "DRAM read", **more: Any) -> Bracket:
    """A roof of memory, or of arithmetic by its `kind`, with these samples before and after."""
    stated = {"kind": "bandwidth", "level": "" if "kind" in more else "DRAM", "after_samples": _samples(values)}
    return Bracket(label=label, **{**stated, "before_samples": _samples(values), **more})


def measurement(problem: Operator, seconds: Values, /, **more: Any) -> Measurement:
    """As if `problem` had been timed on two threads of a CPU, its operands in memory."""
    stated = {
        "operator": problem.name, "problem": problem.to_dict(), "variant": next(iter(problem.variants), ""), "device": "cpu",
        "threads": 2, "cache_state": "cold", "level": "DRAM", "flops": problem.flops(),
        "bytes": {"compulsory": problem.compulsory_bytes()},
    }  # fmt: skip
    return Measurement(**{**stated, "samples_s": _samples(seconds), **more})


def point(elements: int = 64) -> Measurement:
    """Three equal samples of a relu on warm caches: for what files do with points."""
    return measurement(Relu(elements=elements), (1e-6,) * 3, cache_state="warm")


def ceilings() -> dict[str, Ceiling]:
    return {
        "read": bandwidth(40e9, variant=""),
        "copy": bandwidth(30e9, "copy"),
        "copy NT": bandwidth(36e9, "copy", variant="non_temporal"),
        "L2": bandwidth(400e9, level="L2", variant=""),
        "fp32": fma(200e9, isa="avx2"),
        "fp64": fma(100e9, "fp64", isa="avx2"),
        "launch": launch(),
    }


def machine(*without: str, **more: Ceiling) -> Machine:
    kept = {name: ceiling for name, ceiling in {**ceilings(), **more}.items() if name not in without}
    return Machine(name="Example CPU", ceilings=tuple(kept.values()))
