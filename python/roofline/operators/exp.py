"""The exponential, the probe of a roof of its own: softmax and its kin are held against it."""

from __future__ import annotations

from dataclasses import dataclass

from ..counts import Array, any_of
from ..references import exp
from .base import Case, Facts, Variant
from .mapped import Elementwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Exp(Elementwise):
    """y = e^x for x up to 88, as softmax and its kin take it: results below e^-87 are 0, and those of larger x are wrong.

    elements: of x and y. passes: over them in one launch (more than one to stay in a cache). Raises Error for bad fields.
    """

    elements: int = 4096
    passes: int = 1
    dtype: str = "fp32"

    name = "exp"
    summary = "e^x element by element, the probe of the exponential roof"
    allowed = {"dtype": ("fp32",)}
    variants = {"vector": Variant(summary="each element read once and written once, in every pass", dtypes={"cpu": ("fp32",)})}

    def flops(self) -> dict[str, int]:
        return {"exp": self.elements * self.passes}

    def traffic(self, plan: Facts) -> dict[str, int]:
        (x,) = self.inputs()
        return {"further passes": (self.passes - 1) * 2 * x.size_bytes} if any_of(self.passes > 1) else {}

    def operations(self) -> dict[str, int]:
        return {"exp": self.total_flops()}

    def mapped(self, x: Array) -> dict[str, Array]:
        for _ in range(self.passes):
            y = exp(x)
        return {"y": y}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        sizes = (1, 2, 15, 16, 17, 63, 64, 1000, 4099, 262147)
        more = (Case(problem=cls(elements=513, passes=3)), Case(problem=cls(elements=2**31 + 17), slow=True))
        return (*cls.grid(sizes, "elements"), *more)
