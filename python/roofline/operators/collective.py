"""What collectives have in common: who computes them, and the problems that tests run."""

from __future__ import annotations

from .base import Case, Operator, Variant


def by_nccl(*dtypes: str) -> dict[str, Variant]:
    """The variants of a collective that NCCL has for these dtypes."""
    return {
        "library": Variant(
            summary="NCCL between the GPUs of one machine; what other ranks hold is laid out before the clock starts",
            dtypes={"cuda": dtypes},
        ),
    }


def cases_of(cls: type[Operator]) -> tuple[Case, ...]:
    """Problems of a collective with the fields `elements` and `ranks`."""
    shapes = ((1, 1), (12, 4), (17, 4), (5, 8), (100, 2), (100_000, 1))
    small = tuple(Case(problem=cls.make(elements=elements, ranks=ranks)) for elements, ranks in shapes)
    return (*small, Case(problem=cls.make(elements=2**34, ranks=72), slow=True))
