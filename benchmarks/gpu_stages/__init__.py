"""The stages of benchmarks/gpu_check, the most valuable first: what is cut off at the end is missed least."""

from __future__ import annotations

from .building import build, environment
from .measuring import ceilings, operators
from .proving import sanitizer, tests
from .running import Stage
from .sass import sass

# Limits add up to less than the nine minutes that the whole may take: every stage gets its own, whatever the others did.
STAGES = (
    Stage("environment", "versions, driver, GPU", 15, False, environment),
    Stage("build", "pip install into a private folder, for this GPU alone", 150, False, build),
    Stage("ceilings", "roofline measure: every ceiling", 110, True, ceilings),
    Stage("tests", "pytest --require-gpu -m gpu", 80, True, tests),
    Stage("operators", "operators at size, in turns with PyTorch's", 105, True, operators),
    Stage("sanitizer", "compute-sanitizer memcheck and racecheck, small shapes of every kernel", 55, True, sanitizer),
    Stage("sass", "machine code of every kernel against what it must be made of", 20, False, sass),
)

__all__ = ["STAGES"]
