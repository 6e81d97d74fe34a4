"""Standard problems: on them every kernel is timed, and shows what it takes beyond what the machine's ceilings say."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from .. import operators as ops
from ..errors import is_whole
from ..operators import OPERATORS, Operator
from ..units import MIB
from .base import DEEPEST, FURTHER, PREDICTION, Target, words
from .draws import DRAWN, evenly, in_dtype, runs_within

FULL, HALF, MAIN = ("fp32",), ("bf16",), ("fp32", "bf16")
# Problems drawn for each kernel (a variant in a dtype): most where times of near sizes differ most, and one more tells most. Each
# dtype draws its own, so that the kernels of a variant cover more sizes together.
MANY = {
    "attention": 144, "matmul": 156, "cached_attention": 112, "quantized_matmul": 144, "bmm": 112, "attention_backward": 72,
    "ffn": 90, "convert": 64, "layer_norm": 64, "topk_softmax": 64, "topk_sigmoid": 64,
    **dict.fromkeys(("softmax", "rms_norm", "residual_rms_norm", "bias_relu", "mla_decode"), 84),
    **dict.fromkeys(("rope", "silu_mul", "gelu", "mla_prefill"), 48),
}  # fmt: skip
FEW = 60
TIMED = {"cpu": 1.0, "cuda": 0.5}  # share of these: a GPU's sets of buffers take longer to fill
MOST_S, MOST_BYTES = 0.12, 96 * MIB  # longest time and largest tensors of one


class Case(NamedTuple):
    """A problem that a report times too, in these dtypes. No point of a report has its lengths and numbers of rows."""

    name: str
    problem: Operator
    dtypes: tuple[str, ...]
    cold: bool = True  # whether its operands come from memory


def _of_reports() -> Iterator[Case]:
    """Problems limited by memory and by arithmetic, of every operator."""
    yield Case("prefill", ops.Attention(seq_q=640, seq_kv=640, heads=4, head_dim=128), MAIN)
    yield Case("prefill", ops.Attention(seq_q=896, seq_kv=896, heads=3, head_dim=64), MAIN)
    yield Case("causal", ops.Attention(seq_q=1280, seq_kv=1280, heads=3, head_dim=64, causal=True), MAIN)
    yield Case("decode", ops.Attention(seq_q=1, seq_kv=6144, head_dim=128), MAIN)
    yield Case("backward", ops.AttentionBackward(heads=3, seq_q=640, seq_kv=640, head_dim=128), HALF)
    yield Case("decode", ops.CachedAttention(heads=16, kv_heads=4, seq_kv=6144, head_dim=128), HALF)
    for heads, seq_kv in ((64, 3072), (192, 1536)):
        yield Case("many heads", ops.MlaDecode(heads=heads, seq_kv=seq_kv, kv_lora_rank=512), HALF)
    mla = ops.MlaPrefill(heads=3, seq_q=288, seq_kv=672, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, causal=True)
    yield Case("prefill", mla, HALF)
    yield Case("large", ops.Matmul(rows=640, columns=1152, inner=896), (*MAIN, "fp64"))
    yield Case("one row", ops.Matmul(rows=1, columns=3072, inner=3072), MAIN)
    yield Case("one row", ops.QuantizedMatmul(rows=1, columns=3072, inner=3072, group_size=64), HALF)
    yield Case("one token", ops.Ffn(batch=1, seq_q=1, d_model=896, d_ff=3584), MAIN)
    yield Case("many tokens", ops.Ffn(batch=1, seq_q=176, d_model=768, d_ff=3072), MAIN)
    yield Case("large", ops.Bmm(batch=48, rows=64, columns=768, inner=192), HALF)
    yield Case("one", ops.LmHead(tokens=1, d_model=896, vocabulary=9216), HALF)
    yield Case("one", ops.GroupedMatmul(tokens=1, experts=12, experts_per_token=2, d_model=320, d_ff=704), HALF)
    of_rows: tuple[type[Operator], ...] = (ops.Softmax, ops.RmsNorm, ops.LayerNorm, ops.BiasRelu, ops.SiluMul, ops.ResidualRmsNorm)
    of_elements: tuple[type[Operator], ...] = (ops.Relu, ops.Gelu, ops.Convert, ops.Adam)
    dtypes = {of: HALF if of in (ops.SiluMul, ops.ResidualRmsNorm, ops.Convert, ops.Adam) else FULL for of in of_rows + of_elements}
    for of in of_rows:
        yield Case("large", of.make(rows=2048, columns=6144), dtypes[of])
    for of in of_elements:
        yield Case("large", of.make(elements=12 << 20), dtypes[of])
    yield Case("tokens", ops.Rope(seq_q=6144, heads=12, kv_heads=4, head_dim=64), HALF)
    yield Case("tokens", ops.Embedding(tokens=3072, vocabulary=6144, d_model=3072), HALF)
    for router in (ops.TopkSoftmax, ops.TopkSigmoid):
        yield Case("tokens", router(tokens=3072, experts=192), FULL)
        yield Case("tokens", router(tokens=1536, experts=96), HALF)
    # Memory that is slow just now hides arithmetic, which these show.
    yield Case("in cache", ops.Attention(seq_q=192, seq_kv=192, heads=6, head_dim=64), FULL, cold=False)
    for of in of_rows:
        yield Case("in cache", of.make(rows=96, columns=1024), dtypes[of], cold=False)
    for of in of_elements:
        yield Case("in cache", of.make(elements=96 << 10), dtypes[of], cold=False)


OF_REPORTS = tuple(_of_reports())
NAMES = {in_dtype(case.problem, dtype): case.name for case in OF_REPORTS for dtype in case.dtypes}


@functools.cache
def drawn_for(name: str, variant: str, dtype: str, backend: str, threads: int) -> tuple[tuple[bool, Operator], ...]:
    """The problems that are drawn for one kernel, and whether their operands come from memory."""
    dtypes = sorted({d for v in OPERATORS[name].variants.values() for d in v.dtypes.get(backend, ())})
    found: dict[Operator, bool] = {}
    for cold, problem in evenly(name, dtype, dtypes.index(dtype), backend):
        if problem.suits(variant, backend) and runs_within(problem, backend, threads, most_s=MOST_S, most_bytes=MOST_BYTES):
            found.setdefault(problem, cold)
        if len(found) >= TIMED[backend] * MANY.get(name, FEW):
            break
    return tuple((cold, problem) for problem, cold in found.items())


class Standard(NamedTuple):
    """A problem to time a kernel on. cold: whether its operands come from memory."""

    problem: Operator
    variant: str
    cold: bool

    @property
    def label(self) -> str:
        fields = self.problem.to_dict()
        sizes = "×".join(str(value) for value in fields.values() if is_whole(value))
        dtype = "" if fields["dtype"] == "fp32" else fields["dtype"]
        return words(self.problem.name, self.variant, NAMES.get(self.problem), sizes, dtype, "cold" if self.cold else "warm")


def standard_problems(target: Target, depth: str) -> Iterator[Standard]:
    """Those of reports first, of them the usual variants; then the drawn ones in turn, so that a deadline leaves out no kernel.

    Of a GPU only the drawn ones: reports choose their points by its size.
    """
    backend = target.backend
    if DEEPEST[depth] < PREDICTION:
        return
    of_reports = [(in_dtype(c.problem, dtype), c.cold) for c in OF_REPORTS for dtype in c.dtypes] if backend == "cpu" else []
    for usual in (True, False):
        for problem, cold in of_reports:
            for variant in problem.variants:
                able = problem.suits(variant, backend) and not target.missing(problem.name, variant, problem.to_dict()["dtype"])
                if able and usual == (variant == problem.default_variant(backend)):
                    yield Standard(problem, variant, cold)
    if DEEPEST[depth] < FURTHER:
        return
    kernels = [
        (name, variant, dtype)
        for name in DRAWN
        for variant, declared in OPERATORS[name].variants.items()
        for dtype in declared.dtypes.get(backend, ())
        if not target.missing(name, variant, dtype)
    ]
    for turn in range(max(FEW, *MANY.values())):
        for name, variant, dtype in kernels:
            for cold, problem in drawn_for(name, variant, dtype, backend, target.threads)[turn : turn + 1]:
                yield Standard(problem, variant, cold)
