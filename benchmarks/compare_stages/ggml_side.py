"""llama.cpp's ggml, through the libraries that the package llama-cpp-python compiles for this CPU.

Its activations and results are fp32. Weights lie as [outputs, inputs], in fp32, bf16 or Q4_0; those in Q4_0 also in the order in
which its own kernels for this CPU take them ("repack"), and the faster of both stays.
"""

import ctypes
import functools
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .serving import Choosing, Refused, operands

F32, F16, Q4_0, BF16 = 0, 1, 2, 30  # enum ggml_type
BLOCK = 32  # weights of Q4_0 that share a scale
NODES = 64  # tensors that a context has room for

Array = np.ndarray
Tensor = ctypes.c_void_p


class _Parameters(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


class _Library:
    """Its functions by name. A signature is the letter of the result's type, then those of the arguments' types."""

    LETTERS: Mapping[str, Any] = {
        "p": ctypes.c_void_p, "i": ctypes.c_int, "l": ctypes.c_int64, "z": ctypes.c_size_t, "f": ctypes.c_float,
        "s": ctypes.c_char_p, "b": ctypes.c_bool, "v": None, "I": _Parameters,
    }  # fmt: skip
    SIGNATURES: Mapping[str, str] = {
        "version": "s", "init": "pI", "free": "vp", "tensor_overhead": "z", "graph_overhead": "z", "new_graph": "pp",
        "build_forward_expand": "vpp", "new_tensor_4d": "ppillll", "mul_mat": "pppp", "mul": "pppp",
        "add": "pppp", "gelu": "ppp", "gelu_erf": "ppp", "relu": "ppp", "swiglu_split": "pppp", "norm": "pppf", "rms_norm": "pppf",
        "soft_max": "ppp", "scale_inplace": "pppf", "flash_attn_ext": "ppppppfff", "backend_cpu_init": "p", "backend_cpu_reg": "p",
        "backend_cpu_set_n_threads": "vpi", "backend_cpu_buffer_type": "p", "backend_alloc_ctx_tensors_from_buft": "ppp",
        "backend_buffer_free": "vp", "backend_tensor_set": "vppzz", "backend_tensor_get": "vppzz", "backend_graph_compute": "ipp",
        "backend_supports_op": "bpp", "backend_reg_dev_get": "ppz", "backend_reg_get_proc_address": "pps",
    }  # fmt: skip

    def __init__(self) -> None:
        found = importlib.util.find_spec("llama_cpp")
        assert found is not None and found.origin is not None
        loaded = [ctypes.CDLL(str(Path(found.origin).parent / "lib" / f"libggml{name}.so"), ctypes.RTLD_GLOBAL) for name in
                  ("-base", "-cpu")]  # fmt: skip
        for name, letters in self.SIGNATURES.items():
            function = next(getattr(library, f"ggml_{name}") for library in loaded if hasattr(library, f"ggml_{name}"))
            function.restype, *function.argtypes = (self.LETTERS[letter] for letter in letters)
            setattr(self, name, function)
        self.has = {
            name: bool(getattr(loaded[1], f"ggml_cpu_has_{name}")())
            for name in ("avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx_int8", "llamafile")
        }

    def repacked(self) -> list[Any]:
        """Buffer types in which weights lie as the kernels of this CPU take them."""
        registry = self.backend_cpu_reg()
        address = self.backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
        if not address:
            return []
        listed = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)(self.backend_reg_dev_get(registry, 0))
        kinds: list[Any] = []
        while listed[len(kinds)]:
            kinds.append(listed[len(kinds)])
        return kinds


def floats(array: Array) -> Array:
    """Numbers stored as bf16's bits, or in another dtype, as fp32."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def four_bits(b: Array, scale: Array, group: int) -> Array:
    """Q4_0, a scale in fp16 for 32 weights: of b, whole numbers from -8 to 7 [inner, columns], and scale [groups, columns]."""
    inner, columns = b.shape
    codes = (b.T + 8).astype(np.uint8).reshape(columns, inner // BLOCK, BLOCK)
    scales = np.repeat(floats(scale).T, group // BLOCK, axis=1).astype(np.float16)[..., None]
    packed = codes[..., : BLOCK // 2] | codes[..., BLOCK // 2 :] << 4
    return np.concatenate([scales.view(np.uint8), packed], axis=2)


class Graph:
    """A computation, with its operands in memory of ggml's. kind: the buffer type of the weights."""

    def __init__(self, side: "Ggml", kind: Any = None) -> None:
        self.side, self.library, self.kind = side, side.library, kind or side.library.backend_cpu_buffer_type()
        size = NODES * self.library.tensor_overhead() + self.library.graph_overhead()
        self.contexts = [self.library.init(_Parameters(size, None, True)) for _ in range(2)]
        self.buffers: list[Any] = []
        self.data: list[tuple[Tensor, Array]] = []
        self.graph = self.library.new_graph(self.contexts[0])
        self.out: Tensor | None = None
        self.shape: tuple[int, ...] = ()

    def operand(self, array: Array, of: int = F32, shape: tuple[int, ...] = (), weight: bool = False) -> Tensor:
        """shape: of the elements, in NumPy's order, where one element of the array is not one of the tensor."""
        sizes = [*(shape or array.shape)[::-1], 1, 1, 1][:4]
        made = self.library.new_tensor_4d(self.contexts[weight], of, *sizes)
        self.data.append((made, np.ascontiguousarray(array)))
        return made

    def op(self, name: str, *arguments: Any) -> Tensor:
        return getattr(self.library, name)(self.contexts[0], *arguments)  # type: ignore[no-any-return]

    def ready(self, out: Tensor, shape: tuple[int, ...]) -> None:
        """Allocate memory and write the operands. Raises Refused where ggml has no kernel for these weights."""
        self.out, self.shape = out, shape
        self.library.build_forward_expand(self.graph, out)
        for context, kind in zip(self.contexts, (self.library.backend_cpu_buffer_type(), self.kind)):  # noqa: B905
            if buffer := self.library.backend_alloc_ctx_tensors_from_buft(context, kind):
                self.buffers.append(buffer)
        if not self.library.backend_supports_op(self.side.backend, out):
            raise Refused("ggml has no kernel for it")
        for made, array in self.data:
            self.library.backend_tensor_set(made, array.ctypes.data, 0, array.nbytes)
        self.data = []

    def run(self) -> None:
        if self.library.backend_graph_compute(self.side.backend, self.graph):
            raise RuntimeError("ggml could not compute it")

    def result(self) -> Array:
        array = np.empty(self.shape, np.float32)
        self.library.backend_tensor_get(self.out, array.ctypes.data, 0, array.nbytes)
        return array

    def __del__(self) -> None:
        for buffer in self.buffers:
            self.library.backend_buffer_free(buffer)
        for context in self.contexts:
            self.library.free(context)


def stored(array: Array, dtype: str) -> tuple[Array, int]:
    """As ggml takes it: bf16 as it is, all else in fp32."""
    return (array, BF16) if dtype == "bf16" else (floats(array), F32)


def attention(graph: Graph, p: Mapping[str, Any], x: Mapping[str, Array], of: int) -> None:
    """of: the type of keys and values."""
    q, k, v = (x[name] for name in "qkv")
    if of != BF16:
        k, v = (floats(each).astype(np.float16 if of == F16 else np.float32) for each in (k, v))
    mask = None
    if p["causal"] and p["seq_q"] > 1:
        seen = np.tri(p["seq_q"], p["seq_kv"], p["seq_kv"] - p["seq_q"], dtype=bool)
        mask = graph.operand(np.where(seen, 0, -np.inf).astype(np.float16), F16)
    made = graph.op(
        "flash_attn_ext", graph.operand(floats(q)), graph.operand(k, of), graph.operand(v, of), mask, 1 / math.sqrt(p["head_dim"]),
        0.0, 0.0,
    )  # fmt: skip
    graph.ready(made, (p["batch"], p["seq_q"], p["heads"], p["head_dim"]))


def product(graph: Graph, weight: Array, dtype: str, rows: Tensor) -> Tensor:
    array, of = stored(weight.T, dtype)
    return graph.op("mul_mat", graph.operand(array, of, weight=True), rows)


def ffn(graph: Graph, p: Mapping[str, Any], x: Mapping[str, Array]) -> None:
    rows, dtype, how = graph.operand(floats(x["x"])), p["dtype"], p["activation"]
    hidden = product(graph, x["w_up"], dtype, rows)
    if how == "swiglu":
        hidden = graph.op("swiglu_split", product(graph, x["w_gate"], dtype, rows), hidden)
    else:
        hidden = graph.op({"gelu": "gelu_erf", "gelu_tanh": "gelu", "relu": "relu"}[how], hidden)
    graph.ready(product(graph, x["w_down"], dtype, hidden), x["x"].shape)


def rowwise(graph: Graph, operator: str, p: Mapping[str, Any], x: Mapping[str, Array]) -> None:
    given = {name: graph.operand(array) for name, array in x.items()}
    shape = next(iter(x.values())).shape
    if operator == "silu_mul":
        made = graph.op("swiglu_split", given["gate"], given["up"])
    elif operator == "softmax":
        made = graph.op("soft_max", given["x"])
    elif operator == "gelu":
        made = graph.op("gelu" if p["form"] == "tanh" else "gelu_erf", given["x"])
    else:
        made = graph.op("mul", graph.op("rms_norm" if operator == "rms_norm" else "norm", given["x"], p["eps"]), given["weight"])
        if operator == "layer_norm":
            made = graph.op("add", made, given["bias"])
    graph.ready(made, shape)


ROWS = ("silu_mul", "softmax", "gelu", "rms_norm", "layer_norm")
Way = tuple[str, Any, Callable[[Graph], None]]  # its name, the buffer type of the weights, what builds the graph


class Ggml(Choosing):
    def __init__(self, threads: int) -> None:
        self.library, self.threads = _Library(), threads
        self.backend = self.library.backend_cpu_init()
        self.library.backend_cpu_set_n_threads(self.backend, threads)

    def about(self) -> dict[str, Any]:
        used = ", ".join(name for name, there in self.library.has.items() if there)
        versions = {"ggml": self.library.version().decode()}
        return {"versions": versions, "threads": self.threads, "settings": {"compiled for": used}}

    def ways(self, operator: str, p: Mapping[str, Any], x: Mapping[str, Array]) -> Iterator[Way]:
        """Raises Refused."""
        dtype = p["dtype"]
        if operator == "attention" and dtype in ("fp32", "bf16"):
            ways = {"fp32": F32} if dtype == "fp32" else {"bf16": BF16}
            if dtype == "bf16" and p["seq_q"] > 1:  # for one query ggml accumulates fp16 values in fp16
                ways["fp16"] = F16
            for name, of in ways.items():
                yield f"flash_attn_ext, keys in {name}", None, lambda graph, of=of: attention(graph, p, x, of)
        elif operator == "matmul" and dtype in ("fp32", "bf16"):

            def build(graph: Graph) -> None:
                graph.ready(product(graph, x["b"], dtype, graph.operand(floats(x["a"]))), (p["rows"], p["columns"]))

            yield "mul_mat", None, build
        elif operator == "ffn" and dtype in ("fp32", "bf16"):
            yield "mul_mat", None, lambda graph: ffn(graph, p, x)
        elif operator == "quantized_matmul" and dtype == "bf16" and p["weight_bits"] == 4 and not p["zero_bits"]:
            if p["group_size"] % BLOCK or p["inner"] % BLOCK:
                raise Refused(f"Q4_0 wants groups of a multiple of {BLOCK}")
            weights = four_bits(x["b"], x["scale"], p["group_size"])

            def quantized(graph: Graph) -> None:
                held = graph.operand(weights, Q4_0, (p["columns"], p["inner"]), weight=True)
                graph.ready(graph.op("mul_mat", held, graph.operand(floats(x["a"]))), (p["rows"], p["columns"]))

            for kind in (None, *self.library.repacked()):
                yield f"Q4_0, activations in 8 bits{', repack' if kind else ''}", kind, quantized
        elif operator in ROWS and dtype == "fp32":
            yield operator, None, lambda graph: rowwise(graph, operator, p, x)
        elif operator == "quantized_matmul":
            raise Refused("ggml rounds the activations to 8 bits; it is compared in bf16 without zero points")
        else:
            raise Refused(f"ggml has no {operator} of {dtype}")

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        self.held = None
        operator, names = request["operator"], request["inputs"]
        given = dict(zip(names, operands(request, *names)))  # noqa: B905
        if self.swept is None:
            self.swept = Graph(self)
            ones = self.swept.operand(np.ones((self.threads * 64, request["sweep_bytes"] // (self.threads * 256)), np.float32))
            self.swept.ready(self.swept.op("scale_inplace", ones, 1.0), (1,))

        def built(kind: Any, build: Callable[[Graph], None]) -> Graph:
            graph = Graph(self, kind)
            build(graph)
            return graph

        self.heads = operator == "attention"
        ways = self.ways(operator, request["problem"], given)
        return self.choose((name, functools.partial(built, kind, build)) for name, kind, build in ways)

    def result(self) -> tuple[Array, str]:
        array = self.held.result()
        return (np.ascontiguousarray(array.transpose(0, 2, 1, 3)) if self.heads else array), "fp32"
