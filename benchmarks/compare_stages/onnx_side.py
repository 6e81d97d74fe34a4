"""ONNX Runtime: models of one operator, made here; weights are initializers, which it packs. Needs the package onnx too.

One session runs at a time, and its threads are those of the process, shared with the one that sweeps the caches.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-not-found,import-untyped,unused-ignore]
from onnx import TensorProto, helper  # type: ignore[import-not-found,unused-ignore]

from .serving import Choosing, Refused, operands

OPSETS = (("", 23), ("com.microsoft", 1))
IR_VERSION = 11
TYPES = {
    "fp64": (TensorProto.DOUBLE, np.float64), "fp32": (TensorProto.FLOAT, np.float32), "fp16": (TensorProto.FLOAT16, np.float16),
    "bf16": (TensorProto.BFLOAT16, np.uint16),
    "int8": (TensorProto.INT8, np.int8), "uint8": (TensorProto.UINT8, np.uint8), "int32": (TensorProto.INT32, np.int32),
}  # fmt: skip

Array = np.ndarray


@dataclass
class Model:
    """dtypes and arrays by name. shared: outputs written over an input. heads: of a result [batch, rows, heads * head_dim]."""

    label: str
    nodes: Sequence[Any]
    inputs: Mapping[str, tuple[str, Array]]
    outputs: Mapping[str, tuple[str, tuple[int, ...]]]
    weights: Mapping[str, tuple[str, Array]] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    heads: int = 0


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, domain=domain, **attributes)


def rows_of(x: Array) -> Array:
    """[batch, heads, rows, dim] as [batch, rows, heads * dim]."""
    batch, heads, rows, dim = x.shape
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, rows, heads * dim)


def attentions(p: Mapping[str, Any], q: Array, k: Array, v: Array) -> Iterator[Model]:
    dtype, heads, kv_heads, keys = p["dtype"], p["heads"], p["kv_heads"], p["seq_kv"]
    out = {"out": (dtype, (p["batch"], p["seq_q"], heads * p["head_dim"]))}
    one, causal = p["seq_q"] == 1, p["causal"] and p["seq_q"] > 1
    if kv_heads == heads and not one:
        made = node("MultiHeadAttention", ["q", "k", "v"], ["out"], "com.microsoft", num_heads=heads, unidirectional=int(causal))
        given = {name: (dtype, rows_of(x)) for name, x in (("q", q), ("k", k), ("v", v))}
        yield Model("MultiHeadAttention", [made], given, out, heads=heads)
    if one or (causal and p["seq_q"] == keys):
        # The cache holds all keys; of a single query all but its own come from there, and its own are stored there again.
        made = node(
            "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "lengths", "total"], ["out", "all_k", "all_v"],
            "com.microsoft", num_heads=heads, kv_num_heads=kv_heads,
        )  # fmt: skip
        new = slice(keys - 1, keys) if one else slice(0, keys)
        given = {
            "q": (dtype, rows_of(q)), "k": (dtype, rows_of(k[:, :, new])), "v": (dtype, rows_of(v[:, :, new])),
            "past_k": (dtype, k.copy()), "past_v": (dtype, v.copy()),
            "lengths": ("int32", np.full(p["batch"], keys - 1, np.int32)), "total": ("int32", np.array(keys, np.int32)),
        }  # fmt: skip
        caches = {"all_k": (dtype, k.shape), "all_v": (dtype, v.shape)}
        shared = {"all_k": "past_k", "all_v": "past_v"}
        yield Model("GroupQueryAttention", [made], given, {**out, **caches}, shared=shared, heads=heads)


def activation(p: Mapping[str, Any]) -> list[Any]:
    how = p["activation"]
    if how == "relu":
        return [node("Relu", ["up"], ["hidden"])]
    if how == "swiglu":
        return [
            node("MatMul", ["x", "w_gate"], ["gate"]), node("Sigmoid", ["gate"], ["part"]), node("Mul", ["gate", "part"], ["silu"]),
            node("Mul", ["silu", "up"], ["hidden"]),
        ]  # fmt: skip
    return [node("Gelu", ["up"], ["hidden"], approximate="tanh" if how == "gelu_tanh" else "none")]


def int8_blocks(p: Mapping[str, Any], x: Mapping[str, Array]) -> Iterator[Model]:
    """The feed-forward block in int8: by MatMulInteger, or by MatMul of what DequantizeLinear gives; both are fused.

    x and what is hidden are in uint8 with a zero point of 128, as its fast kernels take them: the same numbers.
    """
    out = {"out": ("fp32", x["x"].shape)}
    widening = ("up", "gate") if p["activation"] == "swiglu" else ("up",)
    weights = {name: ("fp32" if name.endswith("_scale") else "int8", array) for name, array in x.items() if name != "x"}
    for name in ("x", "hidden"):
        weights[f"{name}_scale"] = ("fp32", x[f"{name}_scale"].reshape(()))
    quantize = [
        *(n for n in activation(p) if n.op_type != "MatMul"),
        node("QuantizeLinear", ["hidden", "hidden_scale", "zero"], ["whole"]),
    ]
    weights["zero"] = ("uint8", np.full((), 128, np.uint8))

    def products(each: Any) -> list[Any]:
        nodes = [n for name in widening for n in each("x", "x", name, name)]
        return [*nodes, *quantize, *each("whole", "hidden", "down", "out")]

    def integer(given: str, of: str, weight: str, result: str) -> list[Any]:
        return [
            node("MatMulInteger", [given, f"w_{weight}", "zero"], [f"{weight}_sums"]),
            node("Cast", [f"{weight}_sums"], [f"{weight}_fp32"], to=TensorProto.FLOAT),
            node("Mul", [f"{weight}_fp32", f"{of}_w_{weight}_scale"], [result]),
        ]

    def dequantized(given: str, of: str, weight: str, result: str) -> list[Any]:
        return [
            node("DequantizeLinear", [given, f"{of}_scale", "zero"], [f"{given}_for_{weight}"]),
            node("DequantizeLinear", [f"w_{weight}", f"w_{weight}_scale"], [f"{weight}_fp32"], axis=1),
            node("MatMul", [f"{given}_for_{weight}", f"{weight}_fp32"], [result]),
        ]

    both = {
        f"{of}_w_{weight}_scale": ("fp32", x[f"{of}_scale"] * x[f"w_{weight}_scale"])
        for of, weight in (*(("x", name) for name in widening), ("hidden", "down"))
    }
    given = {"x": ("uint8", (x["x"].astype(np.int16) + 128).astype(np.uint8))}
    yield Model("MatMulInteger", products(integer), given, out, {**weights, **both})
    yield Model("DequantizeLinear, MatMul", products(dequantized), given, out, weights)


def four_bits(p: Mapping[str, Any], a: Array, b: Array, scale: Array, zero: Array | None) -> Model:
    """b: whole numbers from -8 to 7, [inner, columns]; scale, zero: [groups, columns]."""
    inner, columns, block = p["inner"], p["columns"], p["group_size"]
    if p["weight_bits"] != 4 or block < 16 or block & (block - 1) or inner % block:
        raise Refused("MatMulNBits wants 4 bits and groups of a power of two that divide inner")
    codes = (b + 8).astype(np.uint8).T.reshape(columns, inner // block, block)
    weights = {
        "b": ("uint8", np.ascontiguousarray(codes[..., ::2] | codes[..., 1::2] << 4)),
        "scale": ("fp32", np.ascontiguousarray(scale.T.astype(np.float32)).reshape(-1)),
    }
    names = ["a", "b", "scale"]
    if zero is not None:
        points = np.zeros((columns, (inner // block + 1) // 2 * 2), np.uint8) + 8
        points[:, : inner // block] = (zero.T + 8).astype(np.uint8)
        weights["zero"] = ("uint8", points[:, ::2] | points[:, 1::2] << 4)
        names.append("zero")
    made = node("MatMulNBits", names, ["c"], "com.microsoft", K=inner, N=columns, bits=4, block_size=block)
    return Model("MatMulNBits", [made], {"a": (p["dtype"], a)}, {"c": (p["out_dtype"], (p["rows"], columns))}, weights)


def models(operator: str, p: Mapping[str, Any], x: Mapping[str, Array]) -> Iterator[Model]:
    """Ways to compute it."""
    dtype = p["dtype"]
    if operator == "attention":
        yield from attentions(p, x["q"], x["k"], x["v"])
    elif operator == "matmul":
        whole = dtype == "int8"
        name = "MatMulInteger" if whole else "MatMul"
        out = {"c": ("int32" if whole else dtype, (p["rows"], p["columns"]))}
        yield Model(name, [node(name, ["a", "b"], ["c"])], {"a": (dtype, x["a"])}, out, {"b": (dtype, x["b"])})
    elif operator == "quantized_matmul":
        yield four_bits(p, x["a"], x["b"], x["scale"], x.get("zero"))
    elif operator == "ffn" and dtype == "int8":
        yield from int8_blocks(p, x)
    elif operator == "ffn":
        nodes = [node("MatMul", ["x", "w_up"], ["up"]), *activation(p), node("MatMul", ["hidden", "w_down"], ["out"])]
        weights = {name: (dtype, array) for name, array in x.items() if name != "x"}
        yield Model("MatMul", nodes, {"x": (dtype, x["x"])}, {"out": (dtype, x["x"].shape)}, weights)
    elif operator == "silu_mul":
        nodes = [node("Sigmoid", ["gate"], ["s"]), node("Mul", ["gate", "s"], ["g"]), node("Mul", ["g", "up"], ["y"])]
        yield Model("Sigmoid, Mul", nodes, {n: (dtype, x[n]) for n in ("gate", "up")}, {"y": (dtype, x["up"].shape)})
    else:
        kinds: dict[str, tuple[str, list[str], dict[str, Any]]] = {
            "softmax": ("Softmax", [], {"axis": -1}),
            "gelu": ("Gelu", [], {"approximate": "tanh" if p.get("form") == "tanh" else "none"}),
            "rms_norm": ("SimplifiedLayerNormalization", ["weight"], {"axis": -1, "epsilon": p.get("eps")}),
            "layer_norm": ("LayerNormalization", ["weight", "bias"], {"axis": -1, "epsilon": p.get("eps")}),
        }
        if operator not in kinds:
            raise Refused(f"no {operator}")
        name, constant, attributes = kinds[operator]
        made = node(name, ["x", *constant], ["y"], **attributes)
        yield Model(name, [made], {"x": (dtype, x["x"])}, {"y": (dtype, x["x"].shape)}, {w: (dtype, x[w]) for w in constant})


class Session:
    """A model that is loaded, with its operands bound where they lie."""

    def __init__(self, model: Model) -> None:
        def info(name: str, dtype: str, shape: Sequence[int]) -> Any:
            return helper.make_tensor_value_info(name, TYPES[dtype][0], shape)

        constants = [
            helper.make_tensor(name, TYPES[dtype][0], array.shape, np.ascontiguousarray(array).tobytes(), raw=True)
            for name, (dtype, array) in model.weights.items()
        ]
        inputs = [info(name, dtype, array.shape) for name, (dtype, array) in model.inputs.items()]
        outputs = [info(name, dtype, shape) for name, (dtype, shape) in model.outputs.items()]
        graph = helper.make_graph(list(model.nodes), "one", inputs, outputs, constants)
        opsets = [helper.make_opsetid(*opset) for opset in OPSETS]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        options = onnxruntime.SessionOptions()
        options.use_per_session_threads = False
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.binding, self.values = self.session.io_binding(), {}
        self.model, self.arrays = model, {name: np.ascontiguousarray(array) for name, (_, array) in model.inputs.items()}
        for name, (dtype, _) in model.inputs.items():
            self.values[name] = self._value(self.arrays[name], dtype)
            self.binding.bind_ortvalue_input(name, self.values[name])
        for name, (dtype, shape) in model.outputs.items():
            source = model.shared.get(name)
            if source is None:
                self.arrays[name] = np.empty(shape, TYPES[dtype][1])
                self.values[name] = self._value(self.arrays[name], dtype)
            self.binding.bind_ortvalue_output(name, self.values[source or name])

    @staticmethod
    def _value(array: Array, dtype: str) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, TYPES[dtype][0])

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def result(self) -> tuple[Array, str]:
        name, (dtype, shape) = next(iter(self.model.outputs.items()))
        array = self.arrays[name]
        if self.model.heads:
            batch, rows, width = shape
            array = array.reshape(batch, rows, self.model.heads, width // self.model.heads).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(array), dtype


class Onnx(Choosing):
    def __init__(self, threads: int) -> None:
        onnxruntime.set_global_thread_pool_sizes(threads, 1)
        onnxruntime.set_default_logger_severity(4)
        self.threads = threads

    def about(self) -> dict[str, Any]:
        settings = {"session": "weights are initializers and packed, operands bound where they lie"}
        return {"versions": {"onnxruntime": onnxruntime.__version__}, "threads": self.threads, "settings": settings}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        self.held = None
        names = request["inputs"]
        if self.swept is None:
            size = request["sweep_bytes"] // 4
            x, one = ({name: ("fp32", np.ones(elements, np.float32))} for name, elements in (("x", size), ("one", 1)))
            self.swept = Session(Model("Add", [node("Add", ["x", "one"], ["y"])], x, {"y": ("fp32", (size,))}, one, {"y": "x"}))
        given = dict(zip(names, operands(request, *names)))  # noqa: B905
        made = models(request["operator"], request["problem"], given)
        return self.choose((model.label, functools.partial(Session, model)) for model in made)
