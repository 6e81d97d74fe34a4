"""The kernels themselves, on standard problems: what each takes beyond what the machine's other ceilings say."""

from __future__ import annotations

from collections.abc import Iterator

from ..operators import Attention, BiasRelu, Ffn, LayerNorm, Matmul, Operator, Relu, RmsNorm, Softmax
from .base import FURTHER, KERNELS, Identified, Identity, Probe, Target, Wanted, want, words

# (name, problem, whether its operands come from memory). None of the sizes is that of a report's point.
Case = tuple[str, Operator, bool]
SHAPE = ("seq_kv", "tokens", "rows", "columns", "inner", "d_model", "elements")  # what tells the cases of one name apart


def _rows(operator: type[Operator]) -> Iterator[Case]:
    for name, rows, columns, cold in (
        ("large", 2048, 6144, True), ("small", 48, 768, True), ("tiny", 8, 48, True),
        ("wide", 288, 1792, False), ("narrow", 3072, 52, False), ("tiny", 8, 48, False),
    ):  # fmt: skip
        yield name, operator.make(rows=rows, columns=columns), cold


def _cases() -> Iterator[Case]:
    """Problems limited by memory, by caches or arithmetic, by short inner loops, and by the start of a run, for each operator."""
    yield "prefill", Attention(seq_q=768, seq_kv=768, heads=4, head_dim=96), True
    yield "short", Attention(seq_q=160, seq_kv=160, head_dim=112), False
    yield "shallow", Attention(seq_q=288, seq_kv=288, head_dim=24), False
    yield "tiny", Attention(seq_q=24, seq_kv=24, heads=2, head_dim=40), False
    yield "decode", Attention(seq_q=1, seq_kv=6144, head_dim=96), True
    yield "decode", Attention(seq_q=1, seq_kv=640, head_dim=112), False
    yield "tiny", Attention(seq_q=1, seq_kv=40, heads=2, head_dim=40), True
    yield "one row", Matmul(rows=1, columns=3072, inner=3072), True
    yield "few rows", Matmul(rows=6, columns=768, inner=704), False
    yield "small", Matmul(rows=96, columns=384, inner=384), False
    yield "narrow", Matmul(rows=192, columns=40, inner=224), False
    yield "tiny", Matmul(rows=4, columns=48, inner=48), True
    yield "one token", Ffn(batch=1, seq_q=1, d_model=896, d_ff=3584), True
    yield "few tokens", Ffn(batch=1, seq_q=5, d_model=288, d_ff=960), False
    yield "tokens", Ffn(batch=1, seq_q=48, d_model=576, d_ff=2304), True
    yield "tiny", Ffn(batch=1, seq_q=1, d_model=48, d_ff=96), True
    for operator in (Softmax, RmsNorm, LayerNorm, BiasRelu):
        yield from _rows(operator)
    small = 48 * 768
    for name, elements, cold in (("large", 12 << 20, True), ("small", small, True), ("small", small, False), ("tiny", 400, True)):
        yield name, Relu(elements=elements), cold


CASES = tuple(_cases())
NAMES = {problem: name for name, problem, _ in CASES}


def _wanted(target: Target, depth: str) -> Iterator[Wanted]:
    for _, problem, cold in CASES:
        default = problem.default_variant("cpu")
        for variant in problem.variants:
            if problem.suits(variant, "cpu") and not target.missing(problem.name, variant, "fp32"):
                rank = KERNELS if variant == default else FURTHER
                yield want(KERNEL, target, rank, (problem, variant), level="DRAM" if cold else "L2")


def _identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
    shape = "×".join(str(value) for name, value in problem.to_dict().items() if name in SHAPE)
    params = {"operator": problem.name, "case": words(NAMES.get(problem, ""), shape), "cold": level == "DRAM"}
    return Identity(level=level, access=problem.mix, variant=variant, params=params)


def _name(c: Identified) -> str:
    return words(c.params.get("operator"), c.variant, c.params.get("case"), "cold" if c.params.get("cold") else "warm")


KERNEL = Probe(
    id="kernel", kind="bandwidth", operator="", summary="a kernel on a standard problem, against what its parts should take",
    roof=False, work=Operator.compulsory_bytes, identity=_identity, name=_name, wanted={"cpu": _wanted},
)  # fmt: skip
