"""Results of other tools as our points and ceilings, each with where it came from."""

from __future__ import annotations

from .imported import Imported
from .nccl import COLLECTIVES, read_nccl_tests
from .ncu import NCU_METRICS, read_ncu
from .reading import TOOLS, read

__all__ = ["COLLECTIVES", "NCU_METRICS", "TOOLS", "Imported", "read", "read_nccl_tests", "read_ncu"]
