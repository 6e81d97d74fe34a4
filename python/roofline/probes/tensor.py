"""Tensor units of a GPU: products of tiles held on chip."""

from __future__ import annotations

from collections.abc import Iterator

from ..operators import Mma, Operator
from ..operators.mma import ACCUMULATORS
from .base import FURTHER, ROOFS, THOROUGH, Identified, Identity, Probe, Target, Wanted, arithmetic, dtype_words, want, words
from .gpu_units import tensor_problem, tensor_variants, unit_of

FLAT_DATA = ("constant", "zeros")  # draw less power than random data
SUSTAINED = "bf16"  # the dtype of a GPU's long load


def _tiles(
    target: Target, rank: int, variant: str, dtype: str, accumulator: str, data: str = "random", *, sustained: bool = False
) -> Wanted:
    one = tensor_problem(target, variant, dtype, accumulator, data)
    missing = target.missing("mma", variant, dtype)
    return want(MMA if data == "random" else FLAT, target, rank, (one, variant), missing=missing, sustained=sustained)


def _ways(target: Target) -> Iterator[tuple[str, str, str, bool]]:
    """dtype, variant and accumulator of every way to the units, and whether it is a dtype's main one."""
    for dtype, accumulators in ACCUMULATORS.items():
        for index, variant in enumerate(tensor_variants(target, dtype)):
            for which, accumulator in enumerate(accumulators[:1] if variant == "wgmma" else accumulators):
                yield dtype, variant, accumulator, not index and not which


def _random(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype, variant, accumulator, main in _ways(target):
        yield _tiles(target, ROOFS if main else FURTHER, variant, dtype, accumulator)
    if depth == "thorough":
        yield _tiles(target, THOROUGH, tensor_variants(target, SUSTAINED)[0], SUSTAINED, ACCUMULATORS[SUSTAINED][0], sustained=True)


def _flat(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype, variant, accumulator, _ in _ways(target):
        for data in FLAT_DATA:
            yield _tiles(target, THOROUGH, variant, dtype, accumulator, data)


def _identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
    assert isinstance(problem, Mma)
    flat = {"data": problem.data} if problem.data != "random" else {}
    return Identity(**arithmetic(problem), variant=variant, unit=unit_of(target, problem), params=flat)


def _name(c: Identified) -> str:
    return words(dtype_words(c), c.isa or c.variant, c.params.get("data", ""))


MMA = Probe(
    id="mma", kind="compute", operator="mma", summary=Mma.summary,
    work=Operator.total_flops, identity=_identity, name=_name, wanted={"cuda": _random},
)  # fmt: skip
FLAT = Probe(
    id="mma.flat", kind="compute", operator="mma", summary=f"{Mma.summary}, on data that draw less power", roof=False,
    work=Operator.total_flops, identity=_identity, name=_name, wanted={"cuda": _flat},
)  # fmt: skip
