"""The Gaussian error linear unit (Hendrycks and Gimpel, 2016), exact or by its tanh approximation."""

from __future__ import annotations

from dataclasses import dataclass

from ..counts import Array
from .activations import ACTIVATIONS, activated
from .base import Case, Variant
from .mapped import BOTH, Elementwise

_FORMS = {"erf": "gelu", "tanh": "gelu_tanh"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gelu(Elementwise):
    """form erf: y = 0.5 x (1 + erf(x / sqrt(2))); tanh: y = 0.5 x (1 + tanh(sqrt(2 / π) (x + 0.044715 x³))).

    elements: of x and y. Raises Error for bad fields.
    """

    elements: int = 1 << 24
    form: str = "erf"
    dtype: str = "fp32"

    name = "gelu"
    summary = "the Gaussian error linear unit, exact or by tanh"
    allowed = {**Elementwise.allowed, "form": tuple(_FORMS)}
    variants = {"fused": Variant(summary="each element is read once and written once", dtypes=BOTH)}

    def flops(self) -> dict[str, int]:
        return {"gelu": ACTIVATIONS[_FORMS[self.form]] * self.elements}

    def operations(self) -> dict[str, int]:
        # erf and tanh are an exponential and a few operations, as in Ffn.
        return {"exp": self.elements, "other": self.total_flops() - self.elements}

    def mapped(self, x: Array) -> dict[str, Array]:
        return {"y": activated(_FORMS[self.form], x)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        forms = tuple(_FORMS)
        small = cls.grid((1, 17, 1000, 262147), "elements", form=forms, dtype=("fp32", "fp16", "bf16"))
        return (*small, *cls.grid((2**31 + 17,), "elements", form=forms, slow=True))
