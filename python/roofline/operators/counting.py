"""FLOPs and bytes of problems together, the intensity that follows, and how it grows with one field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from .._repr import Parts, Row, Shown
from ..errors import Error
from ..units import fmt_number, fmt_si
from ..words import arguments_checked
from .base import Facts, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Shown):
    """What problems compute and move. Counts of problems that run one after the other add up; a number times them repeats them.

    Raises Error for a number that is negative or not finite.
    """

    flops: float = 0
    bytes: float = 0

    def __post_init__(self) -> None:
        for name in ("flops", "bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, Real) and 0 <= float(value) < math.inf):
                raise Error(f"counts: {name} must be a number of at least 0, got {value!r:.40}")

    @property
    def flops_per_byte(self) -> float:
        """The arithmetic intensity; infinite where nothing moves."""
        return self.flops / self.bytes if self.bytes else float("inf")

    def _rows(self) -> list[Row]:
        return [
            ("FLOPs", fmt_si(self.flops, "FLOP")),
            ("bytes", fmt_si(self.bytes, "B")),
            ("intensity", f"{fmt_number(self.flops_per_byte)} FLOP/byte"),
        ]

    def __repr__(self) -> str:
        return f"Counts({', '.join(value for _, value in self._rows())})"

    def _table(self) -> Parts:
        return "Counts", ("", ""), self._rows(), ()

    def __add__(self, other: Counts) -> Counts:
        return Counts(flops=self.flops + other.flops, bytes=self.bytes + other.bytes)

    def __mul__(self, times: float) -> Counts:
        return Counts(flops=self.flops * times, bytes=self.bytes * times)

    __rmul__ = __mul__


@arguments_checked
def count(
    *problems: Operator | type[Operator] | str,
    variant: str = "",
    plan: Facts | None = None,
    products_only: bool = False,
    tensors: Sequence[str] | None = None,
    **fields: Any,
) -> Counts:
    """FLOPs and bytes of problems that run one after the other, by docs/conventions. An operator's name is its usual problem.

    `count("attention", seq_q=1, seq_kv="4k").flops_per_byte`, `count(Attention(seq_q=1), "softmax")`.

    Bytes are the compulsory ones, and what `variant` moves beyond them.

    Args:
        plan: facts of the variant's kernel, see `Operator.traffic`.
        products_only: FLOPs of matrix products alone, as papers count.
        tensors: names of those whose compulsory bytes count (None: all; empty: only what the variant moves beyond).
        fields: of each problem, by name.

    Raises:
        Error: for a variant, a tensor or a field that a problem lacks, and for fields without a problem.
    """
    from . import problem_of

    if fields and not problems:
        raise Error(f"count got {', '.join(fields)} of no problem: name one, as in count('attention', seq_q=1)")
    flops = bytes_ = 0
    for problem in (problem_of(each, fields) for each in problems):
        if variant:
            problem.require_variant(variant)
        own = {t.name: 0 if t.link else t.moved_bytes for t in problem.tensors()}
        if unknown := [name for name in tensors or () if name not in own]:
            raise Error(f"{problem.name}: has no tensor {unknown[0]!r:.80}; it has {', '.join(own)}")
        facts = {**(plan or {}), "variant": variant}
        flops += problem.work(facts).get("product", 0) if products_only else problem.total_flops()
        bytes_ += sum(size for name, size in own.items() if tensors is None or name in tensors)
        bytes_ += sum(problem.traffic(facts).values()) if variant else 0
    return Counts(flops=flops, bytes=bytes_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth(Shown):
    """Counts over a number x (a batch, tokens): flops_once + flops_each x FLOPs over bytes_once + bytes_each x bytes.

    Attributes:
        flops_once: what all share, such as the dequantization of weights; 0 or more, the others above 0.
        bytes_once: what all share, such as weights.
        bytes_each: what every one brings, such as activations or a KV cache.
    """

    flops_each: float
    bytes_each: float
    bytes_once: float
    flops_once: float = 0

    @property
    def slope(self) -> float:
        """FLOP/byte that each one adds while what they share dominates."""
        return self.flops_each / self.bytes_once

    @property
    def limit(self) -> float:
        """The intensity that an endless number approaches."""
        return self.flops_each / self.bytes_each

    def __repr__(self) -> str:
        each = f"{fmt_si(self.flops_each, 'FLOP')} and {fmt_si(self.bytes_each, 'B')} each, {fmt_si(self.bytes_once, 'B')} once"
        return f"Growth({each}: at most {fmt_number(self.limit)} FLOP/byte)"

    def _table(self) -> Parts:
        rows: list[Row] = [
            ("FLOPs of each", fmt_si(self.flops_each, "FLOP")),
            ("bytes of each", fmt_si(self.bytes_each, "B")),
            ("bytes that all share", fmt_si(self.bytes_once, "B")),
            ("intensity of one", f"{fmt_number(self.flops_per_byte(1))} FLOP/byte"),
            ("intensity without end", f"{fmt_number(self.limit)} FLOP/byte"),
        ]
        return "Growth", ("", ""), rows, ()

    def flops_per_byte(self, x: float) -> float:
        """The intensity of x of them, in FLOP/byte."""
        return (self.flops_once + self.flops_each * x) / (self.bytes_once + self.bytes_each * x)

    def reaches(self, ridge: float) -> float | None:
        """The x at which the intensity is `ridge` FLOP/byte; None where it stays below it for every x."""
        room = self.flops_each - ridge * self.bytes_each
        return max(ridge * self.bytes_once - self.flops_once, 0) / room if room > 0 else None


@arguments_checked
def growth(problem: Operator | type[Operator] | str, field: str, *, products_only: bool = False, **fields: Any) -> Growth:
    """How the counts of a problem grow with one of its fields: growth("gemm", "M", N="4k", K="4k").

    Args:
        fields: of an operator by name.

    Raises:
        Error: unless FLOPs and bytes grow linearly, some bytes are shared, and the intensity grows.
    """
    from . import problem_of

    problem = problem_of(problem, fields)
    one, two, three = (count(problem.replace(**{field: n}), products_only=products_only) for n in (1, 2, 3))
    flops, bytes_ = two.flops - one.flops, two.bytes - one.bytes
    linear = (three.flops - two.flops, three.bytes - two.bytes) == (flops, bytes_)
    if not (linear and one.flops >= flops and 0 < bytes_ < one.bytes and flops * one.bytes > one.flops * bytes_):
        wanted = "its FLOPs and bytes must be a constant (weights) and a part for each, which brings more FLOPs per byte"
        raise Error(f"{problem.name}: no growth over {field}: {wanted}")
    return Growth(flops_each=flops, bytes_each=bytes_, bytes_once=one.bytes - bytes_, flops_once=one.flops - flops)
