"""The kernels themselves, on standard problems: what each takes beyond what the machine's other ceilings say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .. import operators as ops
from ..operators import Operator
from .base import FURTHER, KERNELS, Identified, Identity, Probe, Target, Wanted, want, words

SHAPE = ("seq_q", "seq_kv", "tokens", "rows", "columns", "inner", "d_model", "elements")  # what tells the cases of one name apart
HALVES = ("bf16", "fp16")


class Case(NamedTuple):
    """A problem, none of whose sizes is that of a report's point; whether its operands come from memory; and whether it is timed in
    16 bits too.
    """

    name: str
    problem: Operator
    cold: bool
    halves: bool = False


def _rows(operator: type[Operator]) -> Iterator[Case]:
    for name, rows, columns, cold in (
        ("large", 2048, 6144, True), ("small", 48, 768, True), ("tiny", 8, 48, True),
        ("wide", 288, 1792, False), ("narrow", 3072, 64, False), ("tiny", 8, 48, False),
    ):  # fmt: skip
        yield Case(name, operator.make(rows=rows, columns=columns, dtype="fp32"), cold, halves=name in ("large", "wide"))


def _elements(operator: type[Operator]) -> Iterator[Case]:
    small = 48 * 768
    for name, elements, cold in (
        ("large", 12 << 20, True), ("small", small, True), ("small", small, False), ("tiny", 400, True), ("tiny", 400, False),
    ):  # fmt: skip
        yield Case(name, operator.make(elements=elements, dtype="fp32"), cold, halves=(elements > small) == cold)


def _cases() -> Iterator[Case]:
    """Problems limited by memory, by caches or arithmetic, by short inner loops, and by the start of a run, for each operator."""
    yield Case("prefill", ops.Attention(seq_q=768, seq_kv=768, heads=4, head_dim=96), True, halves=True)
    yield Case("short", ops.Attention(seq_q=160, seq_kv=160, head_dim=112), False, halves=True)
    yield Case("shallow", ops.Attention(seq_q=288, seq_kv=288, head_dim=24), False)
    yield Case("tiny", ops.Attention(seq_q=24, seq_kv=24, heads=2, head_dim=40), False)
    yield Case("decode", ops.Attention(seq_q=1, seq_kv=6144, head_dim=96), True, halves=True)
    yield Case("decode", ops.Attention(seq_q=1, seq_kv=640, head_dim=112), False, halves=True)
    yield Case("tiny", ops.Attention(seq_q=1, seq_kv=40, heads=2, head_dim=40), True)
    yield Case("one row", ops.Matmul(rows=1, columns=3072, inner=3072), True, halves=True)
    yield Case("few rows", ops.Matmul(rows=6, columns=768, inner=704), False, halves=True)
    yield Case("small", ops.Matmul(rows=96, columns=384, inner=384), False, halves=True)
    yield Case("shallow", ops.Matmul(rows=352, columns=896, inner=96), True)
    yield Case("narrow", ops.Matmul(rows=192, columns=40, inner=224), False)
    yield Case("tiny", ops.Matmul(rows=4, columns=48, inner=48), True)
    yield Case("one token", ops.Ffn(batch=1, seq_q=1, d_model=896, d_ff=3584), True, halves=True)
    yield Case("few tokens", ops.Ffn(batch=1, seq_q=5, d_model=288, d_ff=960), False, halves=True)
    yield Case("tokens", ops.Ffn(batch=1, seq_q=48, d_model=576, d_ff=2304), True, halves=True)
    yield Case("narrow", ops.Ffn(batch=1, seq_q=24, d_model=144, d_ff=288), False)
    yield Case("tiny", ops.Ffn(batch=1, seq_q=1, d_model=48, d_ff=96), True)
    for of_rows in (ops.Softmax, ops.RmsNorm, ops.LayerNorm, ops.BiasRelu, ops.SiluMul, ops.ResidualRmsNorm):
        yield from _rows(of_rows)
    for of_elements in (ops.Relu, ops.Gelu, ops.Convert, ops.Adam):
        yield from _elements(of_elements)
    for name, batch, rows, columns, inner, cold in (
        ("one row", 12, 1, 896, 768, True), ("small", 24, 48, 96, 112, False), ("shallow", 8, 160, 224, 24, False),
        ("tiny", 4, 24, 32, 40, False),
    ):  # fmt: skip
        batched = ops.Bmm(batch=batch, rows=rows, columns=columns, inner=inner, dtype="fp32", out_dtype="fp32")
        yield Case(name, batched, cold, halves=name == "small")
    for name, rows, columns, inner, cold in (
        ("one row", 1, 3072, 3072, True), ("few rows", 6, 768, 704, False), ("small", 96, 384, 384, False),
        ("tiny", 2, 96, 128, False),
    ):  # fmt: skip
        quantized = ops.QuantizedMatmul(rows=rows, columns=columns, inner=inner, group_size=64, dtype="fp32")
        yield Case(name, quantized, cold, halves=name != "tiny")
    for tokens, vocabulary in ((1, 9216), (40, 3072)):
        head = ops.LmHead(tokens=tokens, d_model=896, vocabulary=vocabulary, dtype="fp32", weight_dtype="fp32")
        yield Case("few" if tokens == 1 else "small", head, True)
    for tokens in (2, 320):
        experts = ops.GroupedMatmul(tokens=tokens, experts=12, experts_per_token=2, d_model=320, d_ff=704, dtype="fp32")
        yield Case("few" if tokens == 2 else "small", experts, True, halves=True)
    for seq_kv, cold in ((6144, True), (640, False), (48, False)):
        yield Case("decode", ops.CachedAttention(heads=16, kv_heads=4, seq_kv=seq_kv, head_dim=96), cold)
        yield Case("decode", ops.MlaDecode(heads=24, seq_kv=seq_kv // 2, kv_lora_rank=320, qk_rope_head_dim=48), cold)
    for queries, keys, cold in ((288, 1344, True), (96, 176, False)):
        yield Case("prefill", ops.CachedAttention(heads=6, kv_heads=2, seq_q=queries, seq_kv=keys, head_dim=96), cold)
        mla = ops.MlaPrefill(
            heads=3, seq_q=queries, seq_kv=keys // 2, qk_nope_head_dim=96, qk_rope_head_dim=48, v_head_dim=112, causal=False
        )
        yield Case("prefill", mla, cold)
    for tokens, cold in ((1536, True), (48, False), (2, False)):
        yield Case("tokens", ops.Rope(seq_q=tokens, heads=12, kv_heads=4, head_dim=96, dtype="fp32"), cold, halves=True)
        yield Case("tokens", ops.Embedding(tokens=tokens, vocabulary=6144, d_model=896, dtype="fp32"), cold, halves=True)
        yield Case("tokens", ops.TopkSoftmax(tokens=tokens, experts=96), cold)
        yield Case("tokens", ops.TopkSigmoid(tokens=tokens, experts=96), cold)


CASES = tuple(_cases())
NAMES = {case.problem: case.name for case in CASES}
# What a report times at several sizes.
FIRST = (ops.Attention, ops.Matmul, ops.Ffn, ops.Softmax, ops.RmsNorm, ops.LayerNorm, ops.BiasRelu, ops.Relu)


def _wanted(target: Target, depth: str) -> Iterator[Wanted]:
    for _, given, cold, halves in CASES:
        for problem in (given, *(given.replace(dtype=dtype) for dtype in HALVES if halves)):
            default, dtype = problem.default_variant("cpu"), problem.to_dict()["dtype"]
            for variant in problem.variants:
                if problem.suits(variant, "cpu") and not target.missing(problem.name, variant, dtype):
                    first = variant == default and problem is given and type(given) in FIRST
                    yield want(KERNEL, target, KERNELS if first else FURTHER, (problem, variant), level="DRAM" if cold else "L2")


def _identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
    shape = "×".join(str(value) for name, value in problem.to_dict().items() if name in SHAPE)
    dtype = problem.to_dict()["dtype"]
    name = NAMES.get(problem) or NAMES.get(problem.replace(dtype="fp32"), "")
    params = {"operator": problem.name, "case": words(name, shape, "" if dtype == "fp32" else dtype), "cold": level == "DRAM"}
    return Identity(level=level, access=problem.mix, variant=variant, params=params)


def _name(c: Identified) -> str:
    return words(c.params.get("operator"), c.variant, c.params.get("case"), "cold" if c.params.get("cold") else "warm")


KERNEL = Probe(
    id="kernel", kind="bandwidth", operator="", summary="a kernel on a standard problem, against what its parts should take",
    roof=False, work=Operator.compulsory_bytes, identity=_identity, name=_name, wanted={"cpu": _wanted},
)  # fmt: skip
