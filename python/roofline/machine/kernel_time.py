"""How long a kernel took on a standard problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._repr import json_form
from ..errors import Error
from ..reading import Duration, Scalars, Seconds, Text, Whole
from ..words import require_one_of

STATUSES = ("ok", "contended")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """A standard problem, timed, beside what the roofs around it said of its parts.

    problem: {"operator": name, **fields}; fields at their defaults may be left out. cold: whether its operands came from
    memory. samples_s: seconds of a launch, one per timed batch. launch_s: of its launches alone; memory_s: of its bytes from
    memory; rest_s: of all else together. unplanned: memory_s and rest_s as the problem alone says, without the plan of the kernel,
    where they differ. tile: rows and columns of the tiles of its products, 1 by 1 where it says nothing of them. sms: of a GPU.

    Raises:
        Error: for an unknown status, and without samples.
    """

    problem: Scalars
    variant: Text
    cold: bool
    samples_s: tuple[Seconds, ...]
    launch_s: Duration
    memory_s: Duration
    rest_s: Duration
    threads: Whole = 1
    tile: tuple[Whole, Whole] = (1, 1)
    sms: Whole = 0
    status: Text = "ok"
    unplanned: tuple[Duration, Duration] | None = None

    def __post_init__(self) -> None:
        if not self.samples_s:
            raise Error(f"a kernel time of {self.problem.get('operator')} {self.variant} has no samples")
        require_one_of("the status of a kernel time", self.status, STATUSES)

    @property
    def time_s(self) -> float:
        """The first quartile of the samples: their median leans on what other work adds to a few, and the least is a lucky one."""
        return sorted(self.samples_s)[len(self.samples_s) // 4]

    def to_dict(self) -> dict[str, Any]:
        """JSON form; `tile`, `sms`, `status` and `unplanned` are left out at their defaults."""
        defaults = {"tile": [1, 1], "sms": 0, "status": "ok", "unplanned": None}
        return {name: value for name, value in json_form(self).items() if name not in defaults or value != defaults[name]}
