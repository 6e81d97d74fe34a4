"""What comparisons in turns have in common: how long a turn waits, and the other load around it."""

import os
import platform
from collections.abc import Callable
from typing import TypeVar

from roofline.doctor.sessions import Watch
from roofline.measurement.devices import utc_now

T = TypeVar("T")

IDLE_S = 0.06  # between turns: threads that wait for more work have gone to sleep by then
QUIET = 0.03  # of all cores: more, kept by others or the host, and a turn does not count
FEWEST = 3  # quiet rounds for a verdict


def when_and_where() -> dict[str, str]:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return {"os": system, "utc": utc_now()}


def watched(work: Callable[[], T], own_s: Callable[[], float]) -> tuple[T, dict[str, float], bool]:
    """What `work` gave, the load around it, and whether it was quiet: busy beyond `own_s`, within the resolution of two ticks."""
    with Watch(own_s) as watch:
        found = work()
    load = watch.load
    limit = max(QUIET * (os.cpu_count() or 1), 2 / os.sysconf("SC_CLK_TCK") / max(load["wall_s"], 1e-9))
    return found, load, load["foreign_cores"] + load["stolen_cores"] <= limit
