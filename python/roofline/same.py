"""A key for caches of what has no hash, or a slow one: the object itself."""

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
