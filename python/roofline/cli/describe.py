"""Plain English: what a ceiling is, what an operator does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ..operators import OPERATORS, Fma, ForkJoin, Matmul, Operator, Stream
from ..report.formulas import flops_formulas, tensor_formulas
from .fields import description

_LEVELS = {
    "DRAM": "arrays far larger than any cache, so that every pass comes from memory",
    "L3": "arrays that stay in the last cache",
    "L2": "arrays that stay in each core's second cache",
    "L1": "arrays that stay in each core's first cache",
}
_KINDS = {
    "latency": f"{ForkJoin.summary}: no operator can be shorter",
    "compute": f"{Fma.summary}: arithmetic with nothing to wait for",
}


def _ceiling(label: str, kind: str) -> str:
    level = label.split()[0]
    if kind == "bandwidth":
        access = label.split()[1]
        stores = ", with stores that bypass the caches" if label.endswith("NT") else ""
        return f"{access} bandwidth over {_LEVELS.get(level, level)}{stores}"
    if label.endswith("GEMM"):
        return f"{Matmul.summary}, by the library: what tuned code reaches"
    return _KINDS[kind]


def describe_ceilings(device: Any, quick: bool) -> Iterator[str]:
    """Each ceiling that would be measured, with what it means."""
    from ..ceilings import wanted

    accesses = inspect.cleandoc(Stream.__doc__ or "").splitlines()[0]
    yield f"Ceilings of {device.title} ({device.name}, {device.threads} threads). Accesses: {accesses}"
    for where, what in wanted(device, quick):
        threads = "" if where is device else f" ({where.threads} thread)"
        yield f"  {what.label}{threads}: {_ceiling(what.label, what.kind)}"


def describe_operators() -> Iterator[str]:
    """Every operator, with its variants."""
    yield "Operators"
    for cls in OPERATORS.values():
        yield from (f"  {line}".rstrip() for line in description(cls).splitlines())
        yield ""


def describe_problem(problem: Operator) -> Iterator[str]:
    """One operator, and how FLOPs and bytes of this problem are counted."""
    yield from description(type(problem)).splitlines()
    yield ""
    yield "this problem: " + " ".join(f"{name}={value}" for name, value in problem.to_dict().items())
    counts = problem.flops()
    for term, formula in flops_formulas(problem).items():
        yield f"  FLOPs, {term}: {formula[2:]} = {counts[term]}"
    sizes = {t.name: t.moved_bytes for t in problem.tensors()}
    for name, formula in tensor_formulas(problem).items():
        yield f"  bytes, {name}: {formula[2:]} = {sizes[name]}"
    yield f"  its memory roof is the {problem.mix} bandwidth, its compute roof that of {problem.compute()[0]}"
