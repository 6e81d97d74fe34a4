"""Results of other tools as our points and ceilings, each with where it came from."""

from __future__ import annotations

import os

from ..errors import Error
from ..words import require_one_of
from .imported import Imported, Source, source_of
from .nccl import COLLECTIVES, from_nccl_tests, is_nccl_tests
from .ncu import NCU_METRICS, from_ncu, is_ncu

__all__ = ["COLLECTIVES", "NCU_METRICS", "TOOLS", "Imported", "read"]

TOOLS = ("ncu", "nccl-tests")


def _tool(source: Source) -> str:
    for tool, fits in (("ncu", is_ncu), ("nccl-tests", is_nccl_tests)):
        if fits(source):
            return tool
    raise Error(
        f"{source.where} is neither output of `ncu --csv` (no line of column names that begins with ID) nor a log of nccl-tests "
        "(no line with size, count, type and busbw)"
    )


def read(path: str | os.PathLike[str], *, tool: str | None = None, collective: str | None = None) -> Imported:
    """Points and ceilings of a file of `ncu --csv` or nccl-tests.

    Args:
        tool: one of TOOLS (None: told by the content).
        collective: of a log of nccl-tests that does not name its own.

    Raises:
        Error: for any other file, and for a fault in it, with the line's number.
    """
    if tool is not None:
        require_one_of("tool", tool, TOOLS)
    source = source_of(path)
    found = tool or _tool(source)
    if found == "ncu" and collective is not None:
        raise Error(f"{source.where} comes from ncu: only logs of nccl-tests have a collective")
    return from_ncu(source) if found == "ncu" else from_nccl_tests(source, collective)
