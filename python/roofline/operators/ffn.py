"""The feed-forward block of a transformer layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .. import dtypes, references
from ..counts import Array
from ..tensor_spec import TensorSpec, size_bytes
from .activations import ACTIVATIONS, activated, exponentials
from .base import Case, Facts, Operator, Product, Variant
from .matmul import MOST_INNER_INT8

# FLOPs of an element; swiglu multiplies the silu of its gate by up.
_ACTIVATIONS = {**{name: ACTIVATIONS[name] for name in ("relu", "gelu", "gelu_tanh")}, "swiglu": ACTIVATIONS["silu"] + 1}
_RMS_INT8 = math.sqrt((2**16 - 1) / 12 + 1 / 4)  # of random numbers in int8, all as likely
_LARGEST_HIDDEN = 4.0  # that `initial` leaves room for in int8


class _Library(Variant):
    """A product for each weight matrix, and a pass for the activation."""

    def wide(self, problem: Ffn) -> str:
        """The dtype of up and gate, and of the activation's result except in int8."""
        return "int32" if problem.quantized else problem.dtype

    def traffic(self, problem: Ffn, plan: Facts) -> dict[str, int]:
        wide = problem.hidden_bytes(self.wide(problem))
        activated = problem.hidden_bytes("int8") if problem.quantized else wide
        terms = {"activated written, read": 2 * activated, "up written, read": 2 * wide}
        if problem.gated:
            terms["gate written, read"] = 2 * wide
            terms["x again for gate"] = size_bytes((problem.rows, problem.d_model), problem.dtype)
        if problem.quantized:
            terms["out read, written again"] = 2 * problem.outputs()[0].size_bytes
        return terms

    def launches(self, problem: Ffn, plan: Facts) -> int:
        return 4 if problem.gated else 3


class _Tiled(_Library):
    """The activation is part of the GEMM for up, and scales of every GEMM; hidden activations are in fp32, for int8 in int8."""

    def wide(self, problem: Ffn) -> str:
        return "int32" if problem.quantized else "fp32"

    def traffic(self, problem: Ffn, plan: Facts) -> dict[str, int]:
        terms = _Library.traffic(self, problem, plan)
        return {term: size for term, size in terms.items() if term not in ("up written, read", "out read, written again")}

    def launches(self, problem: Ffn, plan: Facts) -> int:
        return _Library.launches(self, problem, plan) - 1


class _Fused(Variant):
    def traffic(self, problem: Ffn, plan: Facts) -> dict[str, int]:
        hidden = problem.hidden_bytes(problem.dtype)
        wide = {"up and gate written, read": 4 * hidden} if problem.gated else {}
        return {**wide, "activated written, read": 2 * hidden}

    def launches(self, problem: Ffn, plan: Facts) -> int:
        return 3 if problem.gated else 2  # the activation of relu and gelu_tanh, or the product for the gate, is none of its own

    def suits(self, problem: Ffn, device: str) -> bool:
        # The epilogue of a library knows gelu by tanh only, and how exactly it computes it is not stated: near enough in 16 bits.
        return problem.activation != "gelu" and (problem.activation != "gelu_tanh" or problem.dtype != "fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ffn(Operator):
    """out = activation(x w_up) w_down; swiglu: out = (silu(x w_gate) * (x w_up)) w_down, with silu(g) = g / (1 + e^-g).

    x, out: [batch, seq_q, d_model]. w_up, w_gate (swiglu only): [d_model, d_ff] and w_down: [d_ff, d_model], constant: they may be
    packed before the clock starts. gelu is the exact one, with erf; gelu_tanh its approximation, which libraries can fuse (`Gelu`
    states both). Hidden activations are in dtype (in variant tiled in fp32), sums in fp32. Sources: Vaswani et al. (2017),
    Hendrycks and Gimpel (2016), Shazeer, GLU variants improve Transformer (2020).

    dtype int8 is W8A8 with static scales (SmoothQuant's O3, Xiao et al., 2023; static quantization in torch.ao and ONNX Runtime):
    calibration has fixed one scale for x and one for the hidden activations, and each column of a weight has its own, all fp32 and
    symmetric. Sums are in int32; up = (x w_up) x_scale w_up_scale, and gate alike, are activated in fp32 (to 2^-16); the hidden
    activations are rounded from activation(up) / hidden_scale to nearest even, within -128 and 127, as ONNX's QuantizeLinear does;
    out = (hidden w_down) hidden_scale w_down_scale is fp32. x_scale, hidden_scale: [1]; w_up_scale, w_gate_scale: [d_ff];
    w_down_scale: [d_model]. d_model and d_ff are below 2**17, so that no sum leaves an int32. Raises Error for bad fields.
    """

    batch: int = 1
    seq_q: int = 512
    d_model: int = 1024
    d_ff: int = 4096
    activation: str = "gelu"
    dtype: str = "fp32"

    name = "ffn"
    summary = "the feed-forward block of a transformer layer"
    mix = "read"
    allowed = {"activation": tuple(_ACTIVATIONS), "dtype": ("fp32", "fp16", "bf16", "int8")}
    variants = {
        "library": _Library(
            summary="one library product per weight matrix and a pass for the activation; hidden activations go to memory and back",
            dtypes={"cpu": ("fp32", "fp16", "bf16", "int8"), "cuda": ("fp32", "fp16", "bf16")},
        ),
        "tiled": _Tiled(
            summary="our own products on packed weights; each part of the first is activated while a cache holds it, in fp32, and "
            "in int8 quantized again",
            dtypes={"cpu": ("fp32", "fp16", "bf16", "int8")},
            own_products=True,
        ),
        "fused": _Fused(
            summary="relu and gelu_tanh inside the first product; swiglu: up and gate as one product, one pass over both halves",
            dtypes={"cuda": ("fp32", "fp16", "bf16")},
        ),
    }

    def check(self) -> None:
        self.require(
            not self.quantized or (self.d_model <= MOST_INNER_INT8) & (self.d_ff <= MOST_INNER_INT8),
            "d_model and d_ff must be below 2**17 for int8, so that sums fit in int32, got {d_model} and {d_ff}",
        )

    @property
    def rows(self) -> int:
        return self.batch * self.seq_q

    @property
    def gated(self) -> bool:
        return self.activation == "swiglu"

    @property
    def quantized(self) -> bool:
        """Whether products are of int8, with scales."""
        return self.dtype == "int8"

    def hidden_bytes(self, dtype: str) -> int:
        return size_bytes((self.rows, self.d_ff), dtype)  # type: ignore[no-any-return]

    def inputs(self) -> tuple[TensorSpec, ...]:
        widening = ("w_up", "w_gate") if self.gated else ("w_up",)
        scales = {"x": 1, **dict.fromkeys(widening, self.d_ff), "hidden": 1, "w_down": self.d_model} if self.quantized else {}
        return (
            TensorSpec(name="x", shape=(self.batch, self.seq_q, self.d_model), dtype=self.dtype),
            *(TensorSpec(name=name, shape=(self.d_model, self.d_ff), dtype=self.dtype, role="constant") for name in widening),
            TensorSpec(name="w_down", shape=(self.d_ff, self.d_model), dtype=self.dtype, role="constant"),
            *(TensorSpec(name=f"{name}_scale", shape=(n,), dtype="fp32", role="constant") for name, n in scales.items()),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        dtype = "fp32" if self.quantized else self.dtype
        return (TensorSpec(name="out", shape=(self.batch, self.seq_q, self.d_model), dtype=dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        hidden = self.rows * self.d_ff
        product = 2 * hidden * self.d_model
        gate = {"gate": product} if self.gated else {}
        # Two scales multiply every sum, and one divides every activated value.
        scaled = 2 * (hidden * (2 if self.gated else 1) + self.rows * self.d_model) + hidden
        scale = {"scale": scaled} if self.quantized else {}
        return {"up": product, **gate, "activation": _ACTIVATIONS[self.activation] * hidden, "down": product, **scale}

    def products(self) -> tuple[Product, ...]:
        widening = ("up", "gate") if self.gated else ("up",)
        return (
            *(Product(term=term, rows=self.rows, columns=self.d_ff, inner=self.d_model) for term in widening),
            Product(term="down", rows=self.rows, columns=self.d_model, inner=self.d_ff),
        )

    def operations(self) -> dict[str, int]:
        flops = self.flops()
        exps = exponentials(self.activation) * self.rows * self.d_ff
        product = sum(flops[one.term] for one in self.products())
        return {"product": product, "exp": exps, "other": sum(flops.values()) - product - exps}

    def tolerance(self) -> tuple[float, float]:
        """Absolute, for x of variance 1 and weights as `initial` states.

        Products lose (2 n + 16) eps of a unit as in `Matmul.tolerance`. up is about sqrt(d_model), and swiglu multiplies two such;
        down adds d_ff of them, with the errors of up in each. In 16 bits up, gate and what becomes of them are rounded too, each
        by a quarter of an eps of itself on average; the largest of many sums of such errors is a few times that.

        In int8 sums are exact. An activation of about 1, wrong by 2^-16 of itself, is rounded to the other whole number where it
        lies so near to a half: as often as a Poisson distribution has it, with five deviations to spare. Each time one number of
        w_down too much, or too little, is added up.
        """
        if self.quantized:
            often = 2 * 2.0**-16 * 127 / _LARGEST_HIDDEN * self.d_ff
            most = min(often + 5 * math.sqrt(often) + 3, self.d_ff)
            largest = 128 * 1.5 / (_RMS_INT8 * math.sqrt(self.d_ff))  # of w_down with its scale
            return most * _LARGEST_HIDDEN / 127 * largest, 4 * dtypes.dtype("fp32").eps
        eps, rounding = dtypes.dtype("fp32").eps, dtypes.dtype(self.dtype).eps
        hidden = math.sqrt(self.d_model)
        hidden_error = (2 * self.d_model + 32) * eps + (2 * rounding * hidden if rounding > eps else 0.0)
        if self.gated:
            hidden_error *= 2 * hidden
            hidden *= hidden
        absolute = hidden_error * math.sqrt(self.d_ff) * 2 + hidden * (2 * self.d_ff + 16) * eps
        return absolute * self._weights("w_up") ** (2 if self.gated else 1) * self._weights("w_down"), 4 * rounding

    def _weights(self, tensor: str) -> float:
        """The size of a weight. In fp16 sums of numbers about 1 would pass 65504, the largest there is."""
        inner = self.d_ff if tensor == "w_down" else self.d_model
        return 1 / math.sqrt(inner) if self.dtype == "fp16" else 1.0

    def initial(self, tensor: str, generator: np.random.Generator) -> Array | None:
        """In fp16 weights are 1 / sqrt(inner) the size of other random numbers, so that no result leaves it.

        In int8 scales are such that x, up, gate and w_down times sqrt(d_ff) are about 1, with columns of different size.
        """
        if tensor.endswith("_scale"):
            if tensor in ("x_scale", "hidden_scale"):
                return np.array([1 / _RMS_INT8 if tensor == "x_scale" else _LARGEST_HIDDEN / 127], dtype=np.float32)
            inner, columns = (self.d_ff, self.d_model) if tensor == "w_down_scale" else (self.d_model, self.d_ff)
            return (generator.uniform(0.5, 1.5, columns) / (_RMS_INT8 * math.sqrt(inner))).astype(np.float32)
        if self.dtype != "fp16" or not tensor.startswith("w_"):
            return None
        shape = next(spec.shape for spec in self.inputs() if spec.name == tensor)
        return references.uniform_fp16(generator, shape, self._weights(tensor))

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices along batch and seq_q flattened; out is then [len(rows), d_model]."""
        x = tensors["x"].reshape(self.rows, self.d_model)
        if rows is not None:
            x = x[rows]

        def product(a: Array, of_a: str, weight: str) -> Array:
            sums = references.matmul(a, tensors[weight])
            return sums * tensors[f"{of_a}_scale"] * tensors[f"{weight}_scale"] if self.quantized else sums

        up = product(x, "x", "w_up")
        hidden = activated("silu", product(x, "x", "w_gate")) * up if self.gated else activated(self.activation, up)
        if self.quantized:
            hidden = references.to_int8(hidden / tensors["hidden_scale"])
        out = product(hidden, "hidden", "w_down")
        return {"out": out if rows is not None else out.reshape(self.batch, self.seq_q, self.d_model)}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = (
            (1, 1, 1, 1),
            (1, 1, 64, 256),  # one token
            (1, 7, 13, 29),
            (3, 5, 17, 131),
            (2, 33, 64, 100),
            (1, 130, 257, 64),  # narrower inside than outside
            (4, 1, 96, 1031),
        )
        halves = ((1, 1, 64, 256), (3, 5, 17, 131), (2, 33, 64, 104), (1, 130, 256, 1024))
        whole = ((1, 1, 1, 1), (1, 1, 64, 256), (3, 5, 17, 131), (2, 33, 64, 104), (1, 130, 257, 1030))
        sizes, all_ = "batch seq_q d_model d_ff", tuple(_ACTIVATIONS)
        return (
            *cls.grid(shapes, sizes, activation=all_),
            *cls.grid(halves, sizes, activation=all_, dtype=("fp16", "bf16")),
            *cls.grid(whole, sizes, activation=all_, dtype="int8"),
            # The hidden activations pass 2**31 elements; only x and out are tensors of the problem, and they are small.
            Case(problem=cls(seq_q=2**31 // 512 + 33, d_model=1, d_ff=512, activation="relu"), slow=True),
        )
