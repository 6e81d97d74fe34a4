"""Problems of the usual sizes of every operator, drawn at random or along a sequence that fills them evenly."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..counts import ceil_div
from ..dtypes import dtype as dtype_named
from ..errors import Error
from ..operators import OPERATORS, Operator

Fields = dict[str, Any]
POINTS = 2000  # of a part of the even sequence
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
# The fields of each operator that must equal its dtype: kernels take nothing else.
_FOLLOWING = {
    "bmm": ("out_dtype",), "quantized_matmul": ("out_dtype",), "grouped_matmul": ("out_dtype",), "lm_head": ("weight_dtype",),
}  # fmt: skip
_FOLLOWING_ON_GPUS = {**_FOLLOWING, "cached_attention": ("kv_dtype",), "mla_decode": ("cache_dtype", "rope_dtype")}
_SUMS_ON_GPUS = {"int8": "int32", "fp8_e4m3": "bf16"}  # results of products that a GPU's library has
_ALIGNED = 32  # elements of at most 8 bits, in which a GPU's library takes columns and inner


class Backend(NamedTuple):
    """larger: sizes go up to so many times those of a CPU. flops_per_s (of a CPU's thread), bytes_per_s: of a slow device."""

    larger: int
    flops_per_s: float
    bytes_per_s: float


BACKENDS = {"cpu": Backend(1, 20e9, 5e9), "cuda": Backend(4, 5e12, 500e9)}


class Draw(random.Random):
    """Random numbers for the problems of one backend."""

    backend = "cpu"

    @property
    def larger(self) -> int:
        return BACKENDS[self.backend].larger


class Even(Draw):
    """Points that fill a cube evenly: coordinate d of point n is the fraction of n √(prime d). Source: Kronecker's sequence."""

    def begin(self, point: int) -> None:
        self._point, self._coordinate = point, 0

    def random(self) -> float:
        prime = PRIMES[self._coordinate % len(PRIMES)]
        self._coordinate += 1
        return math.modf(self._point * math.sqrt(prime))[0]

    def choice(self, seq: Any) -> Any:
        """By the coordinate's first digits: `Random` would take its last bits, which of these fractions are zeros."""
        return seq[int(self.random() * len(seq))]


def in_dtype(problem: Operator, dtype: str, backend: str = "cpu") -> Operator:
    """The problem with kernels of this dtype."""
    following = _FOLLOWING if backend == "cpu" else _FOLLOWING_ON_GPUS
    follows: Fields = dict.fromkeys(following.get(problem.name, ()), dtype)
    if backend != "cpu" and dtype_named(dtype).bits <= 8:
        names = {"columns", "inner"} & set(problem.field_names())
        follows |= {name: ceil_div(getattr(problem, name), _ALIGNED) * _ALIGNED for name in names}
        if "out_dtype" in follows:
            follows["out_dtype"] = _SUMS_ON_GPUS.get(dtype, dtype)
    if problem.name == "cached_attention" and dtype == "fp64":
        follows["kv_dtype"] = dtype
    return problem.replace(dtype=dtype, **follows)


def drawn(name: str, dtype: str, draw: Draw) -> Operator | None:
    """A problem of the operator `name` with kernels of this dtype; None where the operator refuses what was drawn."""
    try:
        return in_dtype(OPERATORS[name].make(**DRAWN[name](draw)), dtype, draw.backend)
    except Error:
        return None


def evenly(name: str, dtype: str, part: int, backend: str = "cpu") -> Iterator[tuple[bool, Operator]]:
    """The POINTS points of one part of the even sequence: whether operands come from memory, and the problem."""
    draw = Even()
    draw.backend = backend
    for point in range(1 + POINTS * part, 1 + POINTS * (part + 1)):
        draw.begin(point)
        cold = draw.random() < 0.6
        if (problem := drawn(name, dtype, draw)) is not None:
            yield cold, problem


def runs_within(problem: Operator, backend: str, threads: int, *, most_s: float, most_bytes: int) -> bool:
    """Whether a slow device of this backend takes at most so long, and so much memory (of a GPU `larger`² times as much)."""
    larger, flops_per_s, bytes_per_s = BACKENDS[backend]
    slow_s = problem.total_flops() / (flops_per_s * max(threads, 1)) + problem.compulsory_bytes() / bytes_per_s
    return problem.footprint_bytes() <= most_bytes * larger**2 and slow_s <= most_s


ROWS = ("softmax", "rms_norm", "layer_norm", "bias_relu", "silu_mul", "residual_rms_norm")


def log_uniform(draw: Draw, least: int, most: int, multiple: int = 1) -> int:
    """Uniform in the logarithm, up to `most` times `draw.larger`; half of the time a multiple, else any number."""
    value = round(math.exp(draw.uniform(math.log(least), math.log(most * draw.larger))))
    return max(value // multiple, 1) * multiple if draw.random() < 0.5 else value


def _attention(draw: Draw) -> Fields:
    kv_heads, group = draw.choice((1, 2, 4, 8)), draw.choice((1, 1, 2, 4))
    decode = draw.random() < 0.4
    seq_kv = log_uniform(draw, 64, 32768 if decode else 4096, 64)
    return {
        "batch": draw.choice((1, 1, 2)), "heads": kv_heads * group, "kv_heads": kv_heads, "seq_kv": seq_kv,
        "seq_q": 1 if decode else seq_kv if draw.random() < 0.6 else min(log_uniform(draw, 2, seq_kv, 16), seq_kv),
        "head_dim": draw.choice((32, 64, 64, 96, 128, 128)), "causal": not decode and draw.random() < 0.5,
    }  # fmt: skip


def _matmul(draw: Draw) -> Fields:
    rows = draw.choice((1, 2, 8, 32, 128)) if draw.random() < 0.5 else log_uniform(draw, 1, 2048, 16)
    return {"rows": rows, "columns": log_uniform(draw, 32, 4096, 64), "inner": log_uniform(draw, 32, 4096, 64)}


def _ffn(draw: Draw) -> Fields:
    d_model = log_uniform(draw, 128, 2048, 64)
    return {
        "batch": draw.choice((1, 2, 4)), "seq_q": draw.choice((1, 1, log_uniform(draw, 2, 256, 16))), "d_model": d_model,
        "d_ff": draw.choice((2, 3, 4)) * d_model, "activation": draw.choice(("relu", "gelu", "swiglu")),
    }  # fmt: skip


def _rows(draw: Draw) -> Fields:
    columns = log_uniform(draw, 32, 16384, 64)
    return {"rows": log_uniform(draw, 1, max(2**25 // columns, 2), 8), "columns": columns}


def _elements(draw: Draw) -> Fields:
    return {"elements": log_uniform(draw, 1000, 2**25, 1024)}


def _bmm(draw: Draw) -> Fields:
    return {"batch": draw.choice((4, 8, 32)), **{name: log_uniform(draw, 16, 512, 16) for name in ("rows", "columns", "inner")}}


def _cached_attention(draw: Draw) -> Fields:
    decode = {**_attention(draw), "seq_q": draw.choice((1, 1, 4))}
    return {name: value for name, value in decode.items() if name != "causal"}


def _rope(draw: Draw) -> Fields:
    heads = {"heads": 8, "kv_heads": draw.choice((2, 8)), "head_dim": draw.choice((64, 128))}
    return {"seq_q": log_uniform(draw, 1, 4096, 16), **heads}


def _embedding(draw: Draw) -> Fields:
    return {"tokens": log_uniform(draw, 1, 4096, 16), "vocabulary": 8000, "d_model": log_uniform(draw, 64, 4096, 64)}


def _router(draw: Draw) -> Fields:
    return {"tokens": log_uniform(draw, 1, 8192, 16), "experts": draw.choice((16, 64, 128, 256))}


def _lm_head(draw: Draw) -> Fields:
    tokens = draw.choice((1, 1, log_uniform(draw, 2, 128, 16)))
    return {"tokens": tokens, "d_model": log_uniform(draw, 128, 4096, 64), "vocabulary": log_uniform(draw, 500, 32000, 64)}


def _grouped_matmul(draw: Draw) -> Fields:
    return {
        "tokens": draw.choice((1, log_uniform(draw, 2, 512, 16))), "experts": draw.choice((8, 16, 64)),
        "experts_per_token": draw.choice((2, 4)), "d_model": log_uniform(draw, 128, 1024, 64),
        "d_ff": log_uniform(draw, 128, 1024, 64), "activation": draw.choice(("gelu", "swiglu")),
    }  # fmt: skip


def _mla_decode(draw: Draw) -> Fields:
    rank, heads = draw.choice((256, 512)), draw.choice((8, 16, 64, 128))
    return {"heads": heads, "seq_q": draw.choice((1, 1, 2)), "seq_kv": log_uniform(draw, 32, 4096, 64), "kv_lora_rank": rank}


def _mla_prefill(draw: Draw) -> Fields:
    seq = log_uniform(draw, 32, 1024, 64)
    return {"heads": draw.choice((2, 4, 16)), "seq_len": seq, "causal": draw.random() < 0.7}


def _backward(draw: Draw) -> Fields:
    kv_heads, group = draw.choice((1, 2, 4)), draw.choice((1, 1, 2))
    return {
        "heads": kv_heads * group, "kv_heads": kv_heads, "seq_len": log_uniform(draw, 32, 512, 32),
        "head_dim": draw.choice((64, 96, 128)), "causal": draw.random() < 0.7,
    }  # fmt: skip


def _quantized_matmul(draw: Draw) -> Fields:
    sizes = _matmul(draw)
    # Weights of 4 bits lie two to a byte along their columns.
    return {**sizes, "columns": sizes["columns"] // 2 * 2, "weight_bits": draw.choice((4, 8))}


DRAWN: dict[str, Callable[[Draw], Fields]] = {
    "attention": _attention, "matmul": _matmul, "ffn": _ffn, "cached_attention": _cached_attention, "bmm": _bmm,
    "quantized_matmul": _quantized_matmul, "rope": _rope, "embedding": _embedding, "topk_softmax": _router, "topk_sigmoid": _router,
    "lm_head": _lm_head, "grouped_matmul": _grouped_matmul, "mla_decode": _mla_decode, "mla_prefill": _mla_prefill,
    "attention_backward": _backward,
    **dict.fromkeys(ROWS, _rows), **dict.fromkeys(("relu", "gelu", "convert", "adam"), _elements),
}  # fmt: skip
