"""The expected time of a problem: what it moves at every memory level and computes by every kind of instruction, at measured rates.

The roofline (`model`) is a lower bound: one memory level, perfect overlap, one kind of arithmetic. What a kernel is expected to
take needs more of what the machine was measured for:

    time = launches x launch + ( sum over levels (bytes / bandwidth)^p + (sum over kinds work / rate)^p )^(1/p)

Kinds of work: "product" (matrix products, at the rate of the library's GEMM of about that size), "exp", and "other" (one operation
per lane and instruction, half of the multiply-add peak). p is the sharpness of the machine's measured knee, or KNEE. The kinds add
up because they share the issue ports; levels and arithmetic overlap as far as p says (hierarchical form of the p-norm knee).
"""

from __future__ import annotations

from .expected import (
    ROOF_WORDS,
    UTILISED,
    Advice,
    AdviceTable,
    Expected,
    Utilisation,
    bound_of,
    fmt_roofs,
    longest,
    utilisation_of,
)
from .many import Predictions, predict_many
from .problems import Prediction, default_variant, expect, predict_problem
from .rates import KNEE, Rates, machine_rates, memory_and_rest_s, moved_bytes, reused_bytes

__all__ = [
    "KNEE", "ROOF_WORDS", "UTILISED", "Advice", "AdviceTable", "Expected", "Prediction", "Predictions", "Rates", "Utilisation",
    "bound_of", "default_variant", "expect", "fmt_roofs", "longest", "machine_rates", "memory_and_rest_s", "moved_bytes",
    "predict_many", "predict_problem", "reused_bytes", "utilisation_of",
]  # fmt: skip
