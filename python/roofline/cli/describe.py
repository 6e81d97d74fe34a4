"""Plain English: what a ceiling is, what an operator does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ..operators import OPERATORS, CoreToCore, Exp, Fma, ForkJoin, HostCopy, Matmul, Operator, PeerCopy, PointerChase, Stream
from ..report.formulas import flops_formulas, tensor_formulas
from .fields import description

_LEVELS = {
    "DRAM": "arrays far larger than any cache, so that every pass comes from memory",
    "L3": "arrays that stay in the last cache",
    "L2": "arrays that stay in each core's second cache",
    "L1": "arrays that stay in each core's first cache",
}


_TRANSFERS = {"peer": PeerCopy.summary, "host": HostCopy.summary}
_HOST_CALLS = {
    "call": "one empty call, without waking any thread; on a GPU what a launch costs the host",
    "launch and wait": "an empty launch, and the wait until it is done: what a synchronous call costs",
    "graph node": "an empty kernel within a replayed CUDA graph",
}


def _ceiling(label: str, kind: str) -> str:
    words = label.split()
    if kind == "transfer":
        between = _TRANSFERS["peer" if {"peer", "engine", "kernel"} & {*words} else "host"]
        return between + (", both ways at once" if words[0] == "both" else "")
    if kind == "bandwidth":
        how = ", with stores that bypass the caches" if "NT" in words else ""
        if "stride" in words:
            how = f", one fp32 element of every {words[-1]} a walk: what an uncoalesced access costs"
        if "shared" in words:
            how = ", from shared memory, each SM its own part"
        if "scalar" in words:
            how = ", one element at a time: what code without vectors gets"
        return f"{words[1]} bandwidth over {_LEVELS.get(words[0], words[0])}{how}"
    if kind == "latency":
        return _latency(label)
    if "GEMM" in words:
        return f"{Matmul.summary}, by the library: what tuned code reaches"
    if "exp" in words:
        return Exp.summary
    mixed = ", with an addition beside each: more where a core has pipes for both" if "FMA+ADD" in words else ""
    return f"{Fma.summary}: arithmetic with nothing to wait for{mixed}"


def _latency(label: str) -> str:
    if label == "fork-join":
        return f"{ForkJoin.summary}: no operator can be shorter"
    if label in _HOST_CALLS:
        return _HOST_CALLS[label]
    if label.startswith("core-to-core"):
        return CoreToCore.summary
    return PointerChase.summary + (", with pages of 4 KiB" if label.endswith("pages") else "")


def describe_ceilings(device: Any, depth: str) -> Iterator[str]:
    """Each ceiling and series that would be measured, with what it means. depth: see `ceilings.DEPTHS`."""
    from ..ceilings import wanted, wanted_series

    accesses = inspect.cleandoc(Stream.__doc__ or "").splitlines()[0]
    yield f"Ceilings of {device.title} ({device.name}, {device.threads} threads). Accesses: {accesses}"
    for where, what in wanted(device, depth):
        threads = "" if where is device else f" ({where.threads} thread)"
        yield f"  {what.label}{threads}: {_ceiling(what.label, what.kind)}"
    for series in wanted_series(device, depth):
        yield f"  {series.label}"


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
