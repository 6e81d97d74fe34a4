"""The kernels themselves, on standard problems: how much longer each takes than the machine's other ceilings say."""

from __future__ import annotations

from collections.abc import Iterator

from ..operators import Attention, BiasRelu, Ffn, LayerNorm, Matmul, Operator, Relu, RmsNorm, Softmax
from .base import KERNELS, Identified, Identity, Probe, Target, Wanted, want, words

# (name, problem, whether its operands come from memory). None of the sizes is that of a report's point.
Case = tuple[str, Operator, bool]
SHAPE = ("seq_kv", "tokens", "rows", "columns", "inner", "d_model", "elements")  # what tells the cases of one name apart


def _rows(operator: type[Operator]) -> Iterator[Case]:
    shapes = (("large", 2048, 6144, True), ("medium", 1152, 1792, True), ("small", 48, 768, True), ("tiny", 8, 48, True))
    for name, rows, columns, cold in (*shapes, ("small", 48, 768, False), ("tiny", 8, 48, False)):
        yield name, operator.make(rows=rows, columns=columns), cold


def cases() -> Iterator[Case]:
    """Of each operator one problem that meets memory and others that caches or arithmetic limit."""
    yield "prefill", Attention(seq_q=768, seq_kv=768, head_dim=96), True
    yield "short", Attention(seq_q=160, seq_kv=160, head_dim=48), False
    yield "decode", Attention(seq_q=1, seq_kv=6144, head_dim=96), True
    yield "decode", Attention(seq_q=1, seq_kv=640, head_dim=96), True
    yield "decode", Attention(seq_q=1, seq_kv=640, head_dim=96), False
    yield "one row", Matmul(rows=1, columns=3072, inner=3072), True
    yield "small", Matmul(rows=96, columns=384, inner=384), True
    yield "small", Matmul(rows=96, columns=384, inner=384), False
    yield "one token", Ffn(batch=1, seq_q=1, d_model=896, d_ff=3584), True
    yield "one token", Ffn(batch=1, seq_q=1, d_model=160, d_ff=480), True
    yield "one token", Ffn(batch=1, seq_q=1, d_model=160, d_ff=480), False
    yield "tokens", Ffn(batch=1, seq_q=48, d_model=896, d_ff=3584), True
    for operator in (Softmax, RmsNorm, LayerNorm, BiasRelu):
        yield from _rows(operator)
    yield "large", Relu(elements=12 << 20), True
    yield "medium", Relu(elements=1152 * 1792), True
    yield "small", Relu(elements=48 * 768), True
    yield "small", Relu(elements=48 * 768), False


def _wanted(target: Target, depth: str) -> Iterator[Wanted]:
    for _, problem, cold in cases():
        for variant in problem.variants:
            if not target.missing(problem.name, variant, "fp32"):
                yield want(KERNEL, target, KERNELS, (problem, variant), level="DRAM" if cold else "L2")


def _identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
    case = next((name for name, known, _ in cases() if known == problem), "")
    shape = "×".join(str(value) for name, value in problem.to_dict().items() if name in SHAPE)
    params = {"operator": problem.name, "case": words(case, shape), "cold": level == "DRAM"}
    return Identity(level=level, access=problem.mix, variant=variant, params=params)


def _name(c: Identified) -> str:
    return words(c.params.get("operator"), c.variant, c.params.get("case"), "cold" if c.params.get("cold") else "warm")


KERNEL = Probe(
    id="kernel", kind="bandwidth", operator="", summary="a kernel on a standard problem, against what its parts should take",
    roof=False, work=Operator.compulsory_bytes, identity=_identity, name=_name, wanted={"cpu": _wanted},
)  # fmt: skip
