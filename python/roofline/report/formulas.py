"""Formulas as text, from the very functions that count: an operator is run on numbers that remember where they came from."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from ..errors import is_whole
from ..operators import Operator

Number = int | float | Fraction


def _whole(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator} / {value.denominator}"


@functools.total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A value and the product it came from: factor · factors. A sum is one factor in parentheses. Compared by value."""

    value: Fraction
    factor: Fraction
    factors: tuple[str, ...]

    @classmethod
    def named(cls, name: str, value: int) -> Self:
        return cls(Fraction(value), Fraction(1), (name,))

    @classmethod
    def of(cls, value: Any) -> Self:
        if isinstance(value, cls):
            return value
        return cls(Fraction(value), Fraction(value), ())

    def __str__(self) -> str:
        above = [] if self.factor.numerator == 1 and self.factors else [str(self.factor.numerator)]
        text = " · ".join([*above, *self.factors])
        if self.factor.denominator != 1:
            return f"{text} / {self.factor.denominator}"
        lone = len(self.factors) == 1 and not above and text.startswith("(") and text.endswith(")")
        return text[1:-1] if lone else text

    def _added(self, other: Any, sign: int) -> Term:
        right = Term.of(other)
        if right.value == 0:
            return self
        if self.value == 0 and sign > 0:
            return right
        total = self.value + sign * right.value
        if not self.factors and not right.factors:
            return Term(total, total, ())
        second = str(right) if sign > 0 or len(right.factors) != 1 or not right.factors[0].startswith("(") else right.factors[0]
        return Term(total, Fraction(1), (f"({self} {'+' if sign > 0 else '−'} {second})",))

    def __add__(self, other: Any) -> Term:
        return self._added(other, 1)

    def __radd__(self, other: Any) -> Term:
        return Term.of(other)._added(self, 1)

    def __sub__(self, other: Any) -> Term:
        return self._added(other, -1)

    def __rsub__(self, other: Any) -> Term:
        return Term.of(other)._added(self, -1)

    def __mul__(self, other: Any) -> Term:
        right = Term.of(other)
        return Term(self.value * right.value, self.factor * right.factor, self.factors + right.factors)

    def __rmul__(self, other: Any) -> Term:
        left = Term.of(other)
        return Term(left.value * self.value, left.factor * self.factor, left.factors + self.factors)

    def __truediv__(self, other: Any) -> Term:
        right = Term.of(other)
        if right.factors:
            above = self.factors[0] if len(self.factors) == 1 and self.factor == 1 else str(self)  # a sum keeps its parentheses
            return Term(self.value / right.value, Fraction(1), (f"({above} / ({right}))",))
        return Term(self.value / right.value, self.factor / right.factor, self.factors)

    def __floordiv__(self, other: Any) -> Term:
        exact: Term = self / other
        if exact.value.denominator == 1:
            return exact
        return Term(Fraction(math.floor(exact.value)), Fraction(1), (f"⌊{exact}⌋",))

    def __mod__(self, other: Any) -> Term:
        right = Term.of(other)
        by = f"({right})" if right.factors and str(right) != "".join(right.factors) else str(right)
        return Term(self.value % right.value, Fraction(1), (f"({self} mod {by})",))

    def __ceil__(self) -> Term:
        if self.value.denominator == 1:
            return self
        return Term(Fraction(math.ceil(self.value)), Fraction(1), (f"⌈{self}⌉",))

    def __index__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, Term) else other)

    def __lt__(self, other: Any) -> bool:
        return self.value < Term.of(other).value


def _symbolic(problem: Operator) -> Operator:
    """The problem with every integer field remembering its name; checks are not repeated."""
    made = object.__new__(type(problem))
    for field in dataclasses.fields(problem):  # type: ignore[arg-type]
        value = getattr(problem, field.name)
        whole = is_whole(value)
        object.__setattr__(made, field.name, Term.named(field.name, value) if whole else value)
    return made


def _formulas(count: Callable[[Operator], Mapping[str, Any]], problem: Operator) -> dict[str, str]:
    """The formula of each term that `count` gives, "= 2 · rows · columns"; {} where it computes what `Term` cannot follow."""
    try:
        return {name: f"= {Term.of(value)}" for name, value in count(_symbolic(problem)).items()}
    except (TypeError, ValueError, AttributeError, ArithmeticError):
        return {}


def flops_formulas(problem: Operator) -> dict[str, str]:
    """Per term, how its FLOPs come from the problem's fields."""
    return _formulas(lambda p: p.flops(), problem)


def traffic_formulas(problem: Operator, plan: Mapping[str, Any]) -> dict[str, str]:
    """Per term beyond the compulsory bytes, how its bytes come from the problem's fields and the plan."""
    return _formulas(lambda p: p.traffic(plan), problem)


def tensor_formulas(problem: Operator) -> dict[str, str]:
    """Per tensor, how its compulsory bytes come from the problem's fields."""
    return _formulas(lambda p: {t.name: t.moved_bytes for t in p.tensors()}, problem)


def tensor_bytes(problem: Operator) -> dict[str, int]:
    """Per tensor, its compulsory bytes: each operand once, in-place ones read and written; over the link for what comes by it."""
    return {t.name: int(t.moved_bytes) for t in problem.tensors()}
