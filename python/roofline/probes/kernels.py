"""The kernels themselves, on standard problems: what each takes beyond what the machine's other ceilings say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .. import operators as ops
from ..dtypes import dtype as dtype_named
from ..operators import Operator
from .base import FURTHER, KERNELS, Identified, Identity, Probe, Target, Wanted, want, words

SHAPE = ("seq_q", "seq_kv", "tokens", "rows", "columns", "inner", "d_model", "elements")  # what tells the cases of one name apart
ONE, HALF, MAIN, THREE = ("fp32",), ("bf16",), ("fp32", "bf16"), ("fp32", "bf16", "fp16")
FOUR, FIVE = (*THREE, "fp64"), (*THREE, "fp64", "int8")


class Case(NamedTuple):
    """A problem, none of whose sizes is that of a report's point, and whether its operands come from memory. dtypes: that it is
    timed in. report: those that a report times it in too.
    """

    name: str
    problem: Operator
    cold: bool
    dtypes: tuple[str, ...] = THREE
    report: tuple[str, ...] = ()


# What is stored in the dtype of the arithmetic, where kernels take nothing else.
_FOLLOWING = {"bmm": "out_dtype", "quantized_matmul": "out_dtype", "grouped_matmul": "out_dtype", "lm_head": "weight_dtype"}


def in_dtype(problem: Operator, dtype: str) -> Operator:
    """The problem with kernels of this dtype."""
    follows = {_FOLLOWING[problem.name]: dtype} if problem.name in _FOLLOWING else {}
    bits = {"weight_bits": dtype_named(dtype).bits} if problem.name == "grouped_matmul" else {}
    return problem.replace(dtype=dtype, **follows, **bits)



def _rows(operator: type[Operator], report: tuple[str, ...]) -> Iterator[Case]:
    for name, rows, columns, cold, dtypes in (
        ("large", 2048, 6144, True, ()), ("long", 160, 24576, True, ONE), ("small", 48, 768, True, ONE), ("tiny", 8, 48, True, ONE),
        ("narrow", 40960, 80, True, ()), ("wide", 288, 1792, False, ()), ("narrow", 3072, 64, False, ()),
        ("tiny", 8, 48, False, ONE),
    ):  # fmt: skip
        problem = operator.make(rows=rows, columns=columns)
        yield Case(name, problem, cold, dtypes or THREE, report if name == "large" else ())


def _elements(operator: type[Operator], report: tuple[str, ...]) -> Iterator[Case]:
    small = 48 * 768
    for name, elements, cold, dtypes in (
        ("large", 12 << 20, True, ()), ("middle", 1 << 19, True, ()), ("small", small, True, ONE), ("middle", 1 << 18, False, ()),
        ("small", small, False, ()), ("tiny", 400, True, ONE), ("tiny", 400, False, ONE),
    ):  # fmt: skip
        yield Case(name, operator.make(elements=elements), cold, dtypes or THREE, report if name == "large" else ())


def _attention() -> Iterator[Case]:
    yield Case("prefill", ops.Attention(seq_q=768, seq_kv=768, heads=4, head_dim=96), True, FOUR, MAIN)
    yield Case("causal", ops.Attention(seq_q=1280, seq_kv=1280, heads=3, head_dim=80, causal=True), True, report=MAIN)
    yield Case("grouped", ops.Attention(seq_q=240, seq_kv=720, heads=6, kv_heads=2, head_dim=48), False)
    yield Case("short", ops.Attention(seq_q=160, seq_kv=160, head_dim=112), False, FOUR)
    yield Case("shallow", ops.Attention(seq_q=288, seq_kv=288, head_dim=24), False, ONE)
    yield Case("few queries", ops.Attention(seq_q=12, seq_kv=1472, heads=6, head_dim=96), False)
    yield Case("tiny", ops.Attention(seq_q=24, seq_kv=24, heads=2, head_dim=40), False, ONE)
    yield Case("decode", ops.Attention(seq_q=1, seq_kv=6144, head_dim=96), True, FOUR, MAIN)
    yield Case("decode", ops.Attention(seq_q=1, seq_kv=1280, heads=6, kv_heads=2, head_dim=48), True)
    yield Case("decode", ops.Attention(seq_q=1, seq_kv=640, head_dim=112), False, FOUR)
    yield Case("decode", ops.Attention(seq_q=1, seq_kv=1472, heads=4, kv_heads=1, head_dim=112), True)
    yield Case("decode", ops.Attention(seq_q=1, seq_kv=96, heads=12, kv_heads=4, head_dim=80), True)
    yield Case("decode", ops.Attention(seq_q=1, seq_kv=224, heads=12, kv_heads=4, head_dim=80), False)
    yield Case("few queries", ops.Attention(seq_q=5, seq_kv=208, heads=24, kv_heads=8, head_dim=112), True)
    yield Case("short", ops.Attention(seq_q=72, seq_kv=72, heads=4, head_dim=112, causal=True), False)
    yield Case("tiny", ops.Attention(seq_q=1, seq_kv=40, heads=2, head_dim=40), True, ONE)
    for queries, cold in ((384, True), (144, False)):
        backward = ops.AttentionBackward(heads=2, seq_q=queries, seq_kv=queries, head_dim=96 if cold else 80)
        yield Case("backward", backward, cold, report=HALF if cold else ())
    for seq_kv, cold in ((6144, True), (640, False), (48, False)):
        dtypes = THREE if seq_kv > 48 else HALF
        report = HALF if cold else ()
        yield Case("decode", ops.CachedAttention(heads=16, kv_heads=4, seq_kv=seq_kv, head_dim=96), cold, dtypes, report)
        mla = ops.MlaDecode(heads=24, seq_kv=seq_kv // 2, kv_lora_rank=320, qk_rope_head_dim=48)
        yield Case("decode", mla, cold, dtypes)
    for queries, keys, heads, kv_heads, cold in (
        (1, 320, 8, 2, True), (4, 960, 4, 4, True), (4, 480, 12, 4, False), (3, 112, 4, 4, True)
    ):  # fmt: skip
        small = ops.CachedAttention(seq_q=queries, seq_kv=keys, heads=heads, kv_heads=kv_heads, head_dim=112 if cold else 80)
        yield Case("small", small, cold)
    for heads, keys, rank, cold in ((12, 480, 448, True), (96, 112, 320, False), (96, 720, 320, False)):
        yield Case("small", ops.MlaDecode(heads=heads, seq_kv=keys, kv_lora_rank=rank), cold)
    yield Case("short", ops.MlaPrefill(heads=6, seq_q=56, seq_kv=56), False)
    yield Case("backward", ops.AttentionBackward(heads=1, seq_q=104, seq_kv=104, head_dim=112, causal=False), False)
    yield Case("many heads", ops.MlaDecode(heads=96, seq_kv=1280, kv_lora_rank=448), True, report=HALF)
    for queries, keys, cold in ((288, 1344, True), (96, 176, False)):
        yield Case("prefill", ops.CachedAttention(heads=6, kv_heads=2, seq_q=queries, seq_kv=keys, head_dim=96), cold)
        prefill = ops.MlaPrefill(
            heads=3, seq_q=queries, seq_kv=keys // 2 if cold else keys, qk_nope_head_dim=96, qk_rope_head_dim=48, v_head_dim=112,
            causal=cold,
        )
        yield Case("prefill", prefill, cold, report=HALF if cold else ())


def _products() -> Iterator[Case]:
    for name, rows, columns, inner, cold, report in (
        ("large", 640, 1152, 896, True, MAIN), ("one row", 1, 3072, 3072, True, MAIN), ("one row", 1, 640, 448, False, ()),
        ("few rows", 6, 768, 704, False, ()), ("few rows", 14, 1792, 1280, True, ()), ("small", 96, 384, 384, False, ()),
        ("rows", 40, 896, 640, True, ()), ("shallow", 352, 896, 96, True, ()), ("narrow", 192, 40, 224, False, ()),
        ("long", 48, 80, 2304, False, ()), ("thin", 2, 80, 1536, False, ()), ("flat", 1536, 112, 48, True, ()),
        ("little", 24, 208, 176, True, ()), ("row", 1, 448, 96, False, ()), ("tiny", 4, 48, 48, True, ()),
    ):  # fmt: skip
        dtypes = THREE if name != "tiny" else ONE
        more = FIVE if name in ("large", "few rows", "small", "shallow") else dtypes
        yield Case(name, ops.Matmul(rows=rows, columns=columns, inner=inner), cold, more, report)
        if name not in ("large", "narrow", "flat"):
            quantized = ops.QuantizedMatmul(rows=rows, columns=columns, inner=inner // 64 * 64 or 128, group_size=64)
            yield Case(name, quantized, cold, dtypes, HALF if name == "one row" and cold else ())
    for name, tokens, d_model, d_ff, cold, report in (
        ("one token", 1, 896, 3584, True, MAIN), ("one token", 1, 320, 960, False, ()), ("few tokens", 5, 288, 960, False, ()),
        ("tokens", 48, 576, 2304, True, ()), ("many tokens", 176, 768, 3072, True, MAIN), ("narrow", 24, 144, 288, False, ()),
        ("little", 8, 224, 448, True, ()), ("row", 1, 208, 416, True, ()), ("row", 1, 208, 832, False, ()),
        ("tiny", 1, 48, 96, True, ()),
    ):  # fmt: skip
        block = ops.Ffn(batch=1, seq_q=tokens, d_model=d_model, d_ff=d_ff)
        yield Case(name, block, cold, THREE if name != "tiny" else ONE, report)
    yield Case("gated", ops.Ffn(batch=1, seq_q=20, d_model=448, d_ff=1152, activation="swiglu"), False)
    for name, batch, rows, columns, inner, cold in (
        ("one row", 12, 1, 896, 768, True), ("large", 72, 48, 448, 160, True), ("small", 24, 48, 96, 112, False),
        ("shallow", 8, 160, 224, 24, False), ("little", 6, 40, 320, 96, True), ("square", 8, 192, 224, 208, False),
        ("tiny", 4, 24, 32, 40, False),
    ):  # fmt: skip
        batched = ops.Bmm(batch=batch, rows=rows, columns=columns, inner=inner)
        yield Case(name, batched, cold, FOUR if name != "tiny" else ONE, HALF if name == "large" else ())
    for name, tokens, vocabulary in (("one", 1, 9216), ("few", 6, 5120), ("small", 40, 3072)):
        yield Case(name, ops.LmHead(tokens=tokens, d_model=896, vocabulary=vocabulary), True, report=HALF if tokens == 1 else ())
    for name, tokens, experts, cold in (
        ("one", 1, 12, True), ("few", 6, 12, False), ("small", 320, 12, True), ("many", 96, 40, False)
    ):  # fmt: skip
        moe = ops.GroupedMatmul(tokens=tokens, experts=experts, experts_per_token=2, d_model=320, d_ff=704)
        yield Case(name, moe, cold, report=HALF if tokens == 1 else ())


def _cases() -> Iterator[Case]:
    """Problems limited by memory, by caches or arithmetic, by short inner loops, and by the start of a run, for each operator."""
    yield from _attention()
    yield from _products()
    for of_rows in (ops.Softmax, ops.RmsNorm, ops.LayerNorm, ops.BiasRelu, ops.SiluMul, ops.ResidualRmsNorm):
        yield from _rows(of_rows, HALF if of_rows in (ops.SiluMul, ops.ResidualRmsNorm) else ONE)
    for of_elements in (ops.Relu, ops.Gelu, ops.Convert, ops.Adam):
        yield from _elements(of_elements, HALF if of_elements in (ops.Convert, ops.Adam) else ONE)
    for tokens, cold in ((1536, True), (48, False), (2, False)):
        report = HALF[: int(cold)]
        yield Case("tokens", ops.Rope(seq_q=tokens, heads=12, kv_heads=4, head_dim=96), cold, report=report)
        yield Case("tokens", ops.Embedding(tokens=tokens, vocabulary=6144, d_model=896), cold, report=report)
    for router in (ops.TopkSoftmax, ops.TopkSigmoid):
        for tokens, experts, cold in ((1536, 96, True), (1536, 192, False), (48, 96, False), (320, 24, False), (2, 96, False)):
            dtypes = THREE if tokens > 320 else ONE
            yield Case("tokens", router(tokens=tokens, experts=experts), cold, dtypes, ONE if cold else ())


CASES = tuple(_cases())


def _wanted(target: Target, depth: str) -> Iterator[Wanted]:
    """Those of the usual variants first, so that a deadline leaves out no operator of which it takes two variants."""
    found = list(_all(target))
    usual = [what.candidates[0][0].default_variant("cpu") == what.candidates[0][1] for what in found]
    yield from (what for first in (True, False) for what, own in zip(found, usual, strict=True) if own is first)


def _all(target: Target) -> Iterator[Wanted]:
    for case in CASES:
        for dtype in case.dtypes:
            problem = in_dtype(case.problem, dtype)
            rank = KERNELS if dtype in case.report else FURTHER
            for variant in problem.variants:
                if problem.suits(variant, "cpu") and not target.missing(problem.name, variant, dtype):
                    yield want(KERNEL, target, rank, (problem, variant), level="DRAM" if case.cold else "L2", kept=False)


NAMES = {(in_dtype(case.problem, dtype), case.cold): case.name for case in CASES for dtype in case.dtypes}


def _identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
    shape = "×".join(str(value) for name, value in problem.to_dict().items() if name in SHAPE)
    dtype = problem.to_dict()["dtype"]
    name = NAMES.get((problem, level == "DRAM"), "")
    params = {"operator": problem.name, "case": words(name, shape, "" if dtype == "fp32" else dtype), "cold": level == "DRAM"}
    return Identity(level=level, access=problem.mix, variant=variant, params=params)


def _name(c: Identified) -> str:
    return words(c.params.get("operator"), c.variant, c.params.get("case"), "cold" if c.params.get("cold") else "warm")


KERNEL = Probe(
    id="kernel", kind="bandwidth", operator="", summary="a kernel on a standard problem, against what its parts should take",
    roof=False, work=Operator.compulsory_bytes, identity=_identity, name=_name, wanted={"cpu": _wanted},
)  # fmt: skip
