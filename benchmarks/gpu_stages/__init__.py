"""The stages of benchmarks/gpu_check, the most valuable first: what is cut off at the end is missed least."""

from .building import build, environment
from .measuring import CEILINGS, RESULTS, RIVALS, THOROUGH, ceilings, operators, thorough
from .proving import sanitizer, tests
from .running import Stage
from .sass import sass

# Limits of all but the last add up to less than the nine minutes that one call may take: each gets its own, whatever the others
# did, and the last what is left.
STAGES = (
    Stage("environment", "versions, driver, GPU", 10, False, environment),
    Stage("build", "pip install into a private folder, for this GPU alone", 100, False, build),
    Stage("ceilings", "roofline measure, standard problems of every kernel among it", 215, True, ceilings, (CEILINGS,)),
    Stage("tests", "pytest --require-gpu -m gpu", 50, True, tests),
    Stage("operators", "operators at size, in turns with PyTorch's", 90, True, operators, (RESULTS, RIVALS)),
    Stage("sanitizer", "compute-sanitizer memcheck and racecheck, small shapes of every kernel", 40, True, sanitizer),
    Stage("sass", "machine code of every kernel against what it must be made of", 15, False, sass),
    Stage("thorough", "roofline measure --thorough: strides, data, curves, knees, long loads", 400, True, thorough, (THOROUGH,)),
)

__all__ = ["STAGES"]
