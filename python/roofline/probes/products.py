"""Matrix products by tuned code: squares by size, narrow and misaligned ones, and every way of scaling operands of few bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..operators import Matmul, Operator
from ..operators.scales import USUAL_SCALES, scales_name
from .base import FURTHER, PREDICTION, THOROUGH, Identified, Identity, Probe, Target, Wanted, arithmetic, dtype_words, want, words
from .compute import fma_isas
from .gpu_units import peak_flops_per_s, unit_of

ALIGNED = 16  # elements: a matrix product of other sizes leaves vectors and tiles partly empty
GEMM = 2048  # rows, columns and inner of a product that is at the plateau
DTYPES = ("fp32", "bf16", "int8", "fp64")
SQUARES = (GEMM, 1024, 512, 256, 64)  # small ones run below the plateau
NARROW = (1, 8, 32)  # rows of products with 512 columns for two threads: b stays in L2, and is read once for few rows
NARROW_COLUMNS, NARROW_INNER = 256, 512  # columns per thread
MISALIGNED = (GEMM - 1, 1023, 255)
GPU_SQUARES = (8192, 4096)
GPU_WIDE = (16384, 8192, 8192)  # rows, columns, inner
GPU_MISALIGNED = 8191
GPU_MAIN = "bf16"  # the dtype of the misaligned product
# How else operands of few bits are scaled: cuBLASLt takes fp32 scales of rows and blocks on sm_90 only, blocks of 32 and 16 from
# sm_100 on.
GPU_SCALES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "fp8_e4m3": (
        {"scales": "tensor"},
        {"scales": "row"},
        {"scales": "block", "scale_block": 128},
        {"scales": "block", "scale_block": 128, "scale_columns": 128},
        {"scales": "block", "scale_block": 32, "scale_bits": 8},
    ),
    "nvfp4": ({"scales": "block", "scale_block": 16, "scale_bits": 8},),
}
LONGEST_S = 0.2  # of a launch on a GPU


def product(rows: int, columns: int, inner: int, dtype: str, **scales: Any) -> Matmul:
    made: Matmul = Matmul.make(rows=rows, columns=columns, inner=inner, dtype=dtype, **scales)
    return made


def _tuned(probe: Probe, target: Target, rank: int, problem: Matmul) -> Wanted:
    """A product by the library; by our own kernel on a CPU without instructions for the dtype, where oneDNN takes several times as
    long as in fp32. On a GPU not one that takes LONGEST_S and more. Its memory goes with it.
    """
    variant = "library" if "sms" in target.facts or fma_isas(target, problem.dtype) else "tiled"
    missing = target.missing("matmul", variant, problem.dtype)
    if not missing and "sms" in target.facts:
        seconds = problem.total_flops() / peak_flops_per_s(target, problem.dtype, unit_of(target, problem))
        if seconds > LONGEST_S:
            missing = f"one launch would take {seconds:.2g} s or more: {problem.dtype} is too slow here for this size"
    return want(probe, target, rank, (problem, variant), missing=missing, kept=False)


def _rank(dtype: str) -> int:
    return FURTHER if dtype == "fp64" else PREDICTION  # no transformer multiplies fp64


def _cpu_squares(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype in DTYPES:
        for size in SQUARES:
            rank = THOROUGH if size != GEMM and dtype != "fp32" else _rank(dtype)
            yield _tuned(SQUARE, target, rank, product(size, size, size, dtype))


def _gpu_squares(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype in Matmul.variants["library"].dtypes["cuda"]:
        usual = USUAL_SCALES.get(dtype, {})
        for size in GPU_SQUARES:
            rank = PREDICTION if size == GPU_SQUARES[0] else FURTHER
            yield _tuned(SQUARE, target, rank, product(size, size, size, dtype, **usual))
        for how in GPU_SCALES.get(dtype, ()):
            yield _tuned(SQUARE, target, FURTHER, product(*(GPU_SQUARES[0],) * 3, dtype, **how))


def _gpu_wide(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype in Matmul.variants["library"].dtypes["cuda"]:
        yield _tuned(WIDE, target, FURTHER, product(*GPU_WIDE, dtype, **USUAL_SCALES.get(dtype, {})))


def _cpu_narrow(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype in DTYPES:
        for rows in NARROW:
            one = product(rows, NARROW_COLUMNS * target.threads, NARROW_INNER, dtype)
            yield _tuned(NARROWS, target, _rank(dtype), one)


def _cpu_misaligned(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype in DTYPES:
        for size in MISALIGNED:
            rank = FURTHER if (dtype, size) == ("fp32", MISALIGNED[0]) else THOROUGH
            yield _tuned(ODD, target, rank, product(size, size, size, dtype))


def _gpu_misaligned(target: Target, depth: str) -> Iterator[Wanted]:
    for dtype in Matmul.variants["library"].dtypes["cuda"]:
        one = product(*(GPU_MISALIGNED,) * 3, dtype, **USUAL_SCALES.get(dtype, {}))
        yield _tuned(ODD, target, FURTHER if dtype == GPU_MAIN else THOROUGH, one)


def _identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
    """params: size (of a square), or rows, columns and inner; scales, where operands have some."""
    assert isinstance(problem, Matmul)
    sizes = {"rows": problem.rows, "columns": problem.columns, "inner": problem.inner}
    params: dict[str, Any] = {"size": problem.rows} if len({*sizes.values()}) == 1 else sizes
    if scales := scales_name(problem.to_dict()):
        params["scales"] = scales
    return Identity(**arithmetic(problem), variant=variant, unit=unit_of(target, problem), params=params)


def _name(c: Identified) -> str:
    listed = [c.params[name] for name in ("rows", "columns", "inner") if name in c.params] or [c.params.get("size", GEMM)]
    size = "" if listed == [GEMM] else "×".join(map(str, listed))
    return words(dtype_words(c), "GEMM", size, c.params.get("scales", ""))


def _made(id: str, summary: str, wanted: Mapping[str, Any], roof: bool) -> Probe:
    return Probe(
        id=id, kind="compute", operator="matmul", summary=f"{Matmul.summary}: {summary}", roof=roof,
        work=Operator.total_flops, identity=_identity, name=_name, wanted=wanted,
    )  # fmt: skip


SQUARE = _made("gemm.square", "what tuned code reaches", {"cpu": _cpu_squares, "cuda": _gpu_squares}, True)
WIDE = _made("gemm.wide", "more rows than columns", {"cuda": _gpu_wide}, True)
NARROWS = _made("gemm.narrow", "few rows, which use a part of every vector or tile", {"cpu": _cpu_narrow}, False)
ODD = _made("gemm.misaligned", "sizes that leave vectors or tiles partly empty",
            {"cpu": _cpu_misaligned, "cuda": _gpu_misaligned}, False)  # fmt: skip
