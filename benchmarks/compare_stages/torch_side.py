"""PyTorch, eager or compiled. Weights are constant, [outputs, inputs] as torch.nn.Linear holds them; a compiler packs them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]
from torch.nn import functional  # type: ignore[import-not-found,unused-ignore]

from .serving import Refused, Side, operands

Tensors = Mapping[str, Any]

# Operands by operator: what is given to each call, then the weights, of which matrices are transposed.
OPERANDS = {
    "attention": (("q", "k", "v"), ()),
    "matmul": (("a",), ("b",)),
    "ffn": (("x",), ("w_up", "w_down", "w_gate", "x_scale", "w_up_scale", "w_gate_scale", "hidden_scale", "w_down_scale")),
    "rms_norm": (("x",), ("weight",)),
    "layer_norm": (("x",), ("weight", "bias")),
    "softmax": (("x",), ()),
    "gelu": (("x",), ()),
    "silu_mul": (("gate", "up"), ()),
    "quantized_matmul": (("a",), ("b", "scale", "zero")),
}


def tensor(array: np.ndarray, dtype: str) -> Any:
    if dtype == "bf16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).clone()
    return torch.from_numpy(array).clone()


def stored(result: Any) -> tuple[np.ndarray, str]:
    if result.dtype == torch.bfloat16:
        return result.contiguous().view(torch.int16).numpy().view(np.uint16), "bf16"
    names = {torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.int32: "int32"}
    return result.contiguous().numpy(), names[result.dtype]


ZERO = 128  # as quint8


class Quantized(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """The feed-forward block in int8 by PyTorch's quantized linear, which is oneDNN's: what follows a product is part of it.

    But for a gate: then up and gate are fp32 between the products. x and what is hidden are quint8 with a zero point of 128, as its
    fast kernels take them: the same numbers.
    """

    def __init__(self, operator: str, problem: Mapping[str, Any], tensors: Tensors) -> None:
        super().__init__()
        del operator
        self.how, self.rows = problem["activation"], problem["batch"] * problem["seq_q"]
        self.x_scale, self.hidden_scale = (float(tensors[f"{name}_scale"]) for name in ("x", "hidden"))
        self.packed = {}
        for name in ("w_up", "w_gate", "w_down"):
            if name in tensors:
                weight, scale = tensors[name], tensors[f"{name}_scale"]
                rows = [self.rows, weight.shape[1]]
                zeros = torch.zeros(weight.shape[0], dtype=torch.int64)
                self.packed[name] = torch.ops.onednn.qlinear_prepack(weight.contiguous(), rows), scale, zeros

    def product(self, a: Any, scale: float, name: str, out_scale: float, dtype: Any, post: tuple[str, str] = ("none", "")) -> Any:
        weight, scales, zeros = self.packed[name]
        words = (None, out_scale, ZERO if dtype == torch.uint8 else 0, dtype, post[0], [], post[1])
        return torch.ops.onednn.qlinear_pointwise(a, scale, ZERO, weight, scales, zeros, *words)

    def forward(self, x: Any) -> Any:
        given = x.reshape(self.rows, -1)
        if self.how == "swiglu":
            up, gate = (self.product(given, self.x_scale, name, 1.0, torch.float32) for name in ("w_up", "w_gate"))
            hidden = (functional.silu(gate) * up / self.hidden_scale).round_().add_(ZERO).clamp_(0, 255).to(torch.uint8)
        else:
            post = {"relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh")}[self.how]
            hidden = self.product(given, self.x_scale, "w_up", self.hidden_scale, torch.uint8, post)
        return self.product(hidden, self.hidden_scale, "w_down", 1.0, torch.float32).reshape(x.shape)


class FourBits(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """The product with weights of 4 bits in groups, by the kernel that torchao's weight-only quantization runs on CPUs."""

    def __init__(self, operator: str, problem: Mapping[str, Any], tensors: Tensors) -> None:
        super().__init__()
        self.group = problem["group_size"]
        if problem["weight_bits"] != 4 or self.group not in (32, 64, 128, 256) or problem["columns"] % 64:
            raise Refused(f"its {operator} wants 4 bits, groups of 32, 64, 128 or 256, and columns in 64s")
        # Its codes are b + 8; it computes a weight as (code - 8) scale + offset.
        scale = tensors["scale"].float()
        offset = -tensors["zero"].float() * scale if "zero" in tensors else torch.zeros_like(scale)
        kind = torch.bfloat16 if problem["dtype"] == "bf16" else torch.float32
        self.scales = torch.stack([scale, offset], -1).transpose(0, 1).to(kind).contiguous()
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(tensors["b"].to(torch.int32) + 8, 1)

    def forward(self, a: Any) -> Any:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(a, self.packed, self.group, self.scales)


# The modules that replace `Net`, and their kernels.
KERNELS = {
    ("ffn", "int8"): (Quantized, "onednn.qlinear_pointwise"),
    **{("quantized_matmul", dtype): (FourBits, "aten._weight_int4pack_mm_for_cpu") for dtype in ("fp32", "bf16")},
}


class Net(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """One operator with its weights as constants, which a compiler may pack."""

    def __init__(self, operator: str, problem: Mapping[str, Any], weights: Tensors) -> None:
        super().__init__()
        self.operator, self.problem = operator, dict(problem)
        for name, value in weights.items():
            self.register_buffer(name, value)
        self.run: Callable[..., Any] = getattr(self, operator)

    def forward(self, *given: Any) -> Any:
        return self.run(*given)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        p = self.problem
        causal, grouped = p["causal"] and p["seq_q"] > 1, p["kv_heads"] != p["heads"]
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    def matmul(self, a: Any) -> Any:
        if self.problem["dtype"] == "int8":
            return torch._int_mm(a, self.b.t())
        return functional.linear(a, self.b)

    def ffn(self, x: Any) -> Any:
        up, how = functional.linear(x, self.w_up), self.problem["activation"]
        if how == "swiglu":
            hidden = functional.silu(functional.linear(x, self.w_gate)) * up
        elif how == "relu":
            hidden = functional.relu(up)
        else:
            hidden = functional.gelu(up, approximate="tanh" if how == "gelu_tanh" else "none")
        return functional.linear(hidden, self.w_down)

    def rms_norm(self, x: Any) -> Any:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.problem["eps"])

    def layer_norm(self, x: Any) -> Any:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.problem["eps"])

    def softmax(self, x: Any) -> Any:
        return functional.softmax(x, dim=-1)

    def gelu(self, x: Any) -> Any:
        return functional.gelu(x, approximate="tanh" if self.problem["form"] == "tanh" else "none")

    def silu_mul(self, gate: Any, up: Any) -> Any:
        return functional.silu(gate) * up


class Torch(Side):
    def __init__(self, threads: int, compiled: bool) -> None:
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        torch.set_grad_enabled(False)
        self.compiled = compiled
        self.net: Any = None
        self.swept: Any = None
        if compiled:
            from torch._inductor import config  # type: ignore[import-not-found,unused-ignore]

            config.freezing = True  # weights are constants, and packed

    def about(self) -> dict[str, Any]:
        return {
            "versions": {"torch": torch.__version__, **({"mkl": "in torch"} if torch.backends.mkl.is_available() else {})},
            "threads": torch.get_num_threads(),
            "settings": {
                "instruction set": torch.backends.cpu.get_cpu_capability(),
                "compiled": "torch.compile, frozen weights" if self.compiled else "eager",
            },
        }

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        operator, problem = request["operator"], request["problem"]
        self.net, self.given, self.out = None, (), None
        torch._dynamo.reset()
        if operator not in OPERANDS:
            raise Refused(f"no {operator}")
        dtype = problem["dtype"]
        given, weights = OPERANDS[operator]
        constant = [name for name in weights if name in request["dtypes"]]
        kept = {}
        for name, array in zip(constant, operands(request, *constant)):  # noqa: B905 (Python 3.9)
            kept[name] = tensor(np.ascontiguousarray(array.T) if array.ndim == 2 else array, request["dtypes"][name])
        made, kernel = KERNELS.get((operator, dtype), (Net, ""))
        net: Any = made(operator, problem, kept).eval()
        if self.compiled:
            net = torch.compile(net, dynamic=False)
        self.net, self.given = net, tuple(tensor(array, dtype) for array in operands(request, *given))
        if made is Quantized:
            self.given = tuple((x.to(torch.int16) + ZERO).to(torch.uint8) for x in self.given)
        if self.swept is None:
            self.swept = torch.ones(request["sweep_bytes"] // 4)
        return {"implementation": kernel} if kernel else {}

    def call(self) -> None:
        self.out = self.net(*self.given)

    def sweep(self) -> None:
        self.swept.add_(1.0)

    def result(self) -> tuple[np.ndarray, str]:
        return stored(self.out)
