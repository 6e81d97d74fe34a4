"""Operators that map a tensor to one of its shape, and those that only move numbers: what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ..counts import Array
from ..dtypes import FLOATS
from ..tensor_spec import TensorSpec
from .base import Case, Facts, Operator, Variant

BOTH = {"cpu": ("fp32", "bf16", "fp16"), "cuda": FLOATS}  # dtypes of kernels on both backends


class Mapped(Operator, abstract=True):
    """y = f(x, …): x and y of one shape, in dtype, with arithmetic in fp32. mapped: f in float64, of tensors by their names."""

    dtype: str
    mapped: Callable[..., dict[str, Array]]
    mix = "copy"
    allowed = {"dtype": FLOATS}

    _stated = (*Operator._stated, "mapped")

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="x", shape=self.shape, dtype=self.dtype),)

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="y", shape=self.shape, dtype=getattr(self, "out_dtype", self.dtype), role="out"),)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices of elements, or of the rows of a matrix."""
        whole = {t.name: rows is None or t.role == "constant" for t in self.tensors() if t.role != "out"}
        return self.mapped(**{name: tensors[name] if all_ else tensors[name][rows] for name, all_ in whole.items()})


class Elementwise(Mapped, abstract=True):
    elements: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.elements,)


class Rowwise(Mapped, abstract=True):
    """Over the rows of a matrix. constants: tensors of one number for each column."""

    rows: int
    columns: int
    constants: ClassVar[tuple[str, ...]] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, self.columns)

    def check(self) -> None:
        if "eps" in self.field_names():
            self.require(self.eps > 0, "eps must be above 0, got {eps}")  # type: ignore[attr-defined]

    def pieces(self, plan: Facts) -> Any:
        return self.rows

    def inputs(self) -> tuple[TensorSpec, ...]:
        each = (TensorSpec(name=name, shape=(self.columns,), dtype=self.dtype, role="constant") for name in self.constants)
        return (*Mapped.inputs(self), *each)

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = ((1, 1), (1, 7), (5, 1), (3, 16), (7, 31), (13, 64), (2, 127), (17, 1000), (3, 4097), (1, 100003), (997, 129))
        long = ((3, 10000), (2, 20004))  # more than a GPU's warp or block keeps
        beyond = ((4099, 4099),)  # a cache, with rows that end inside a line: non-temporal stores
        narrow = ((70, 64), (7, 31), (5, 4096), (3, 4097), (3, 20000), (2, 50000))
        sizes = "rows columns"
        return (
            *cls.grid((*shapes, *long, *beyond), sizes),
            *cls.grid(narrow, sizes, dtype=("fp16", "bf16")),
            *(cls.grid(((11, 130),), sizes, eps=0.5) if "eps" in cls.field_names() else ()),
            *cls.grid(((2**19 + 3, 4099),), sizes, slow=True),
        )


class RowCached(Variant):
    """Numbers met again while a row is worked on are found in a cache (the plan's row_cached); else it comes from memory again."""

    def again(self, problem: Any, plan: Facts) -> dict[str, tuple[int, int]]:
        """Bytes by named term, each with the bytes a thread touched since."""
        raise NotImplementedError

    def traffic(self, problem: Any, plan: Facts) -> dict[str, int]:
        return {} if plan.get("row_cached", True) else {term: moved for term, (moved, _) in self.again(problem, plan).items()}

    def reuse(self, problem: Any, plan: Facts) -> dict[str, tuple[int, int]]:
        return self.again(problem, plan) if plan.get("row_cached", True) else {}


class Moved(Operator, abstract=True):
    """Nothing is computed, and so nothing is lost."""

    def flops(self) -> dict[str, int]:
        return {}

    def compute(self) -> tuple[str, str]:
        dtype = getattr(self, "dtype", "fp32")
        return dtype, dtype

    def tolerance(self) -> tuple[float, float]:
        return 0.0, 0.0
