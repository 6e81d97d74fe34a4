"""One step of the optimiser Adam over all parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..counts import Array
from ..dtypes import FLOATS, dtype
from ..references import sqrt
from ..tensor_spec import TensorSpec
from .base import Case, Operator, Variant

# As Kingma and Ba propose, at the first step; what depends on the step alone is computed once for all parameters.
_BETA1, _BETA2, _RATE, _EPS, _DECAY = 0.9, 0.999, 1e-3, 1e-8, 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam(Operator):
    """m = β₁ m + (1 - β₁) g; v = β₂ v + (1 - β₂) g²; p = p (1 - rate · decay) - step m / (sqrt(v) / root + eps), in place.

    step = rate / (1 - β₁^t) and root = sqrt(1 - β₂^t) are numbers of the step. elements: parameters. dtype: of the parameters that
    the model reads; gradient_dtype, moment_dtype: of g, and of m and v. master: an fp32 copy is updated, and the parameters
    are written from it. decayed: with weight decay (AdamW). Sources: Kingma and Ba (arXiv:1412.6980), section 2, Loshchilov and
    Hutter (arXiv:1711.05101). Raises Error for bad fields.
    """

    elements: int = 1 << 24
    master: bool = True
    decayed: bool = True
    dtype: str = "bf16"
    gradient_dtype: str = "bf16"
    moment_dtype: str = "fp32"

    name = "adam"
    summary = "one step of the optimiser Adam, in place"
    mix = "update"
    allowed = dict.fromkeys(("dtype", "gradient_dtype", "moment_dtype"), FLOATS)
    variants = {
        "fused": Variant(
            summary="one pass: each byte of parameters, gradients and moments is read once and written once",
            dtypes={"cpu": ("fp32", "fp16", "bf16"), "cuda": ("fp32", "fp16", "bf16")},
        ),
    }

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="g", shape=(self.elements,), dtype=self.gradient_dtype),)

    def outputs(self) -> tuple[TensorSpec, ...]:
        shape = (self.elements,)
        updated = (
            TensorSpec(name="m", shape=shape, dtype=self.moment_dtype, role="in_out"),
            TensorSpec(name="v", shape=shape, dtype=self.moment_dtype, role="in_out"),
        )
        if not self.master:
            return (TensorSpec(name="p", shape=shape, dtype=self.dtype, role="in_out"), *updated)
        copy = TensorSpec(name="master", shape=shape, dtype="fp32", role="in_out")
        return (TensorSpec(name="p", shape=shape, dtype=self.dtype, role="out"), copy, *updated)

    def flops(self) -> dict[str, int]:
        n = self.elements
        decay = {"decay": n} if self.decayed else {}
        return {"first moment": 3 * n, "second moment": 4 * n, **decay, "root": 3 * n, "step": 3 * n}

    def compute(self) -> tuple[str, str]:
        return "fp32", "fp32"

    def tolerance(self) -> tuple[float, float]:
        """Two steps of the widest-stepped result; arithmetic is in fp32."""
        eps = max(dtype(name).eps for name in (self.dtype, self.moment_dtype))
        return 2 * eps, 2 * eps

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices of elements. v is taken by its magnitude, since it is a sum of squares."""
        kept = "master" if self.master else "p"
        g, m, v, p = (tensors[name] if rows is None else tensors[name][rows] for name in ("g", "m", "v", kept))
        m = _BETA1 * m + (1 - _BETA1) * g
        v = _BETA2 * abs(v) + (1 - _BETA2) * g * g
        if self.decayed:
            p = p * (1 - _RATE * _DECAY)
        p = p - _RATE / (1 - _BETA1) * (m / (sqrt(v) / (1 - _BETA2) ** 0.5 + _EPS))
        return {"p": p, "m": m, "v": v, **({"master": p} if self.master else {})}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        given = (
            {"elements": 1},
            {"elements": 17, "decayed": False},
            {"elements": 1000, "master": False, "dtype": "fp32", "gradient_dtype": "fp16"},
            {"elements": 4099, "dtype": "fp32", "decayed": False},  # a step of the master shows in the error that passes
            {"elements": 4099, "moment_dtype": "bf16", "gradient_dtype": "fp32"},
            {"elements": 4099, "dtype": "fp16", "moment_dtype": "fp16", "gradient_dtype": "fp16"},
            {"elements": 100003, "master": False, "dtype": "fp32", "gradient_dtype": "fp32"},
        )
        return (*cls.grid(given), Case(problem=cls(elements=2**31 + 17, moment_dtype="bf16"), slow=True))
