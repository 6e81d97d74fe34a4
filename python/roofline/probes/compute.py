"""Multiply-adds in registers, for each dtype and instruction set; with additions beside them; exponentials."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import Unsupported
from ..operators import Exp, Fma, Operator
from .base import FURTHER, PREDICTION, ROOFS, Identified, Identity, Probe, Target, Wanted, arithmetic, dtype_words, want, words
from .gpu_units import core_isas, launch_steps

# Whole blocks of every set: 12 and 15 registers of up to 32 and 16 lanes, 24 of up to 8; AMX: four tiles of 256.
CHAINS_PER_THREAD = 3840
AMX_CHAINS_PER_THREAD = 16384
# For each chain: launches of some milliseconds, and kernel calls so long that their ends do not count.
FMA_STEPS, AMX_STEPS = 1 << 15, 1 << 17
EXP_ELEMENTS = 2048  # per thread, with its result half of an L1 cache of 32 KiB
EXP_PASSES = 256  # about 0.2 ms
DTYPES = ("fp32", "fp64", "bf16", "int8", "fp16", "int16")  # the most useful first
CORE_DTYPES = ("fp32", "fp64", "fp16")  # of a GPU
MIXED = ("fp32", "fp64")  # with additions

_VECTORS = ("scalar", "avx2", "avx512", "neon")
_ISAS_OF = {
    "fp32": _VECTORS,
    "fp64": _VECTORS,
    "fp16": ("avx512_fp16", "neon_dotprod_fp16"),
    "bf16": ("avx512_bf16", "amx", "neon_bf16_i8mm"),
    "int16": ("avx2", "avx512", "avx512_vnni"),
    "int8": ("avx512_vnni", "amx", "neon_dotprod_fp16", "neon_bf16_i8mm"),
}
OPERANDS = {"l1_operands": "operands from L1", "l2_operands": "operands from L2"}  # variants that load what they multiply


def fma_isas(target: Target, dtype: str, pattern: str = "fma") -> list[str]:
    """Instruction sets of this CPU with a multiply-add of this dtype, widest first; none on other devices."""
    able = _ISAS_OF.get(dtype, ()) if pattern == "fma" else _VECTORS[1:]
    return [isa for isa in target.kernel_isas if isa in able]


def fma_problem(target: Target, dtype: str, isa: str = "", pattern: str = "fma") -> Fma:
    """The probe of a dtype on one instruction set (empty: the widest there is). Raises Unsupported where there is none."""
    if dtype not in _ISAS_OF or (pattern == "fma_add" and dtype not in MIXED):
        raise Unsupported(f"roofline has no multiply-add probe of {dtype}{' with additions' if pattern == 'fma_add' else ''}")
    if "sms" in target.facts:  # every thread a multiprocessor can hold, with eight independent chains each, or eight pairs
        chains = 8 * int(target.facts["sms"]) * int(target.facts["threads_per_sm"]) * (1 + (dtype == "fp16" or isa == "f32x2"))
        return Fma(chains=chains, steps=launch_steps(target, 2 * chains, dtype, "core"), isa=isa, pattern=pattern, dtype=dtype)
    isa = isa or next(iter(fma_isas(target, dtype, pattern)), "")  # by name, so that brackets pool with the ceiling
    chains, steps = (AMX_CHAINS_PER_THREAD, AMX_STEPS) if isa == "amx" else (CHAINS_PER_THREAD, FMA_STEPS)
    return Fma(chains=chains * target.threads, steps=steps, isa=isa, pattern=pattern, dtype=dtype)


def _cpu_fma(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype in DTYPES:
        for index, isa in enumerate(fma_isas(target, dtype)):
            yield want(FMA, target, FURTHER if index else ROOFS, (fma_problem(target, dtype, isa), "registers"))


def _gpu_fma(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype in CORE_DTYPES:
        for isa in core_isas(target, dtype):
            yield want(FMA, target, ROOFS, (fma_problem(target, dtype, isa), "registers"))


def _cpu_mixed(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype in MIXED:
        for isa in fma_isas(target, dtype, "fma_add")[:1]:
            yield want(FMA_ADD, target, FURTHER, (fma_problem(target, dtype, isa, "fma_add"), "registers"))


def _operands(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype in ("bf16", "int8"):
        for variant in OPERANDS if "amx" in fma_isas(target, dtype) else ():
            if not target.missing("fma", variant, dtype):
                yield want(FMA_OPERANDS, target, FURTHER, (fma_problem(target, dtype, "amx"), variant))


def _exponentials(target: Target, depth: str) -> Iterator[Wanted]:
    yield want(EXP, target, PREDICTION, (Exp(elements=EXP_ELEMENTS * target.threads, passes=EXP_PASSES), "vector"))


def _identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
    return Identity(**arithmetic(problem), variant=variant, isa=getattr(problem, "isa", ""))


def _name(c: Identified, what: str = "") -> str:
    return words(dtype_words(c), c.isa, what)


FMA = Probe(
    id="fma", kind="compute", operator="fma", summary=f"{Fma.summary}: arithmetic with nothing to wait for",
    work=Operator.total_flops, identity=_identity, name=_name, wanted={"cpu": _cpu_fma, "cuda": _gpu_fma},
)  # fmt: skip
FMA_ADD = Probe(
    id="fma.add", kind="compute", operator="fma", roof=False,
    summary="multiply-adds with an addition beside each: more where a core has pipes for both",
    work=Operator.total_flops, identity=_identity, name=lambda c: _name(c, "FMA+ADD"), wanted={"cpu": _cpu_mixed},
)  # fmt: skip
FMA_OPERANDS = Probe(
    id="fma.operands", kind="compute", operator="fma", roof=False,
    summary="tile multiply-adds that load what they multiply: what a matrix product can be at most",
    work=Operator.total_flops, identity=_identity, name=lambda c: _name(c, OPERANDS.get(c.variant, c.variant)),
    wanted={"cpu": _operands},
)  # fmt: skip
EXP = Probe(
    id="exp", kind="compute", operator="exp", summary=Exp.summary, roof=False,
    work=Operator.total_flops, identity=_identity, name=lambda c: _name(c, "exp"), wanted={"cpu": _exponentials},
)  # fmt: skip
