"""The problems of a model's step, as kernels of a CPU take them."""

from roofline import LmHead, Matmul, QuantizedMatmul
from roofline.operators import Operator


def runnable(problem: Operator) -> Operator:
    """Products with weights that are not quantized are plain GEMMs, and logits are in fp32: CPUs have kernels for these."""
    if isinstance(problem, QuantizedMatmul) and problem.weight_bits == 16:
        return Matmul(rows=problem.rows, columns=problem.columns, inner=problem.inner, dtype=problem.dtype)
    return problem.replace(out_dtype="fp32") if isinstance(problem, LmHead) else problem
