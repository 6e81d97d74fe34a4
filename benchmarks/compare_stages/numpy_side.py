"""NumPy with its BLAS."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .serving import Refused, Side, operands

MOST_SCORES = 1 << 28  # elements of a matrix of scores: beyond, several copies of it do not fit beside the other sides


def attention(q: Any, k: Any, v: Any, p: dict[str, Any]) -> Any:
    batch, heads, kv_heads, dim = p["batch"], p["heads"], p["kv_heads"], p["head_dim"]
    grouped = q.reshape(batch, kv_heads, heads // kv_heads * p["seq_q"], dim)
    scores = np.matmul(grouped, k.transpose(0, 1, 3, 2))
    scores *= np.float32(1 / math.sqrt(dim))
    if p["causal"] and p["seq_q"] > 1:
        seen = np.tri(p["seq_q"], p["seq_kv"], p["seq_kv"] - p["seq_q"], dtype=bool)
        scores.reshape(batch, heads, p["seq_q"], p["seq_kv"])[:, :, ~seen] = -np.inf
    return np.matmul(softmax(scores, out=scores), v).reshape(q.shape)


def softmax(x: Any, out: Any = None) -> Any:
    y = np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(y, out=y)
    y /= y.sum(axis=-1, keepdims=True)
    return y


def layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    y = x - x.mean(axis=-1, keepdims=True)
    y /= np.sqrt(np.mean(y * y, axis=-1, keepdims=True) + np.float32(eps))
    y *= weight
    y += bias
    return y


def rms_norm(x: Any, weight: Any, eps: float) -> Any:
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps))
    y *= weight
    return y


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)))


# Operands by operator, and what is computed of them.
ROWS: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "silu_mul": (("gate", "up"), lambda gate, up: gate / (1 + np.exp(-gate)) * up),
    "gelu": (("x",), gelu_tanh),
    "softmax": (("x",), softmax),
    "rms_norm": (("x", "weight"), rms_norm),
    "layer_norm": (("x", "weight", "bias"), layer_norm),
}


class NumPy(Side):
    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads)
        self.swept: Any = None

    def about(self) -> dict[str, Any]:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        found: dict[str, Any] = {"BLAS": f"{blas.get('name')} {blas.get('version')}"}
        try:
            from threadpoolctl import threadpool_info  # type: ignore[import-untyped,import-not-found,unused-ignore]

            np.ones((8, 8)) @ np.ones((8, 8))
            for library in threadpool_info():
                if library.get("user_api") == "blas":
                    found |= {"core type": library.get("architecture"), "BLAS threads": library.get("num_threads")}
        except ImportError:
            pass
        return {"versions": {"numpy": np.__version__}, "threads": self.threads, "settings": found}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        operator, p = request["operator"], request["problem"]
        self.out: Any = None
        self.run: Any = None
        if p["dtype"] != "fp32" and (operator, p["dtype"]) != ("matmul", "fp64"):
            raise Refused(f"NumPy has no BLAS for {p['dtype']}" if operator in ("matmul", "ffn") else f"NumPy has no {p['dtype']}")
        if operator == "attention":
            if p["batch"] * p["heads"] * p["seq_q"] * p["seq_kv"] > MOST_SCORES:
                raise Refused("its matrix of scores would take too much memory")
            q, k, v = operands(request, "q", "k", "v")
            self.run = lambda: attention(q, k, v, p)
        elif operator == "matmul":
            a, b = operands(request, "a", "b")
            c = np.empty((p["rows"], p["columns"]), a.dtype)
            self.run = lambda: np.matmul(a, b, out=c)
        elif operator == "ffn":
            self.run = self._ffn(request, p)
        elif operator not in ROWS:
            raise Refused(f"no {operator}")
        elif operator == "gelu" and p["form"] != "tanh":
            raise Refused("NumPy has no erf")
        else:
            names, compute = ROWS[operator]
            given = [*operands(request, *names), *([p["eps"]] if "eps" in p else [])]
            self.run = lambda: compute(*given)
        if self.swept is None:
            self.swept = np.array_split(np.ones(request["sweep_bytes"] // 4, np.float32), self.threads)
        return {}

    def _ffn(self, request: dict[str, Any], p: dict[str, Any]) -> Any:
        how = p["activation"]
        if how == "gelu":
            raise Refused("NumPy has no erf")
        x, up, down = operands(request, "x", "w_up", "w_down")
        gate = operands(request, "w_gate")[0] if how == "swiglu" else None

        def run() -> Any:
            hidden = x @ up
            if how == "relu":
                np.maximum(hidden, 0, out=hidden)
            elif how == "swiglu":
                gated = x @ gate
                hidden *= gated / (1 + np.exp(-gated))
            else:
                hidden = gelu_tanh(hidden)
            return hidden @ down

        return run

    def call(self) -> None:
        self.out = self.run()

    def sweep(self) -> None:
        list(self.pool.map(lambda part: np.add(part, 1, out=part), self.swept))

    def result(self) -> tuple[np.ndarray, str]:
        return self.out, {"float32": "fp32", "float64": "fp64"}[self.out.dtype.name]
