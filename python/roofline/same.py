"""A cache key for objects without a hash, or with a slow one: their identity."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Same(Generic[T]):
    """Compared by the identity of what it holds, which it keeps alive."""

    def __init__(self, held: T) -> None:
        self.held = held

    def __hash__(self) -> int:
        return id(self.held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.held is other.held
