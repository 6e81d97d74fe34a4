"""The attainable performance over intensity, as data for another plotting library."""

from __future__ import annotations

import numpy as np

from ..errors import Error
from ..machine import Given, machine_of
from ..model import attainable_flops_per_s, ridge_flops_per_byte


def roofline_curve(
    machine: Given, *, dtype: str = "fp32", level: str | None = None, access: str = "read", points: int = 200
) -> list[dict[str, float]]:
    """The attainable performance of one dtype and memory level over arithmetic intensity.

    Records {"flops_per_byte", "flops_per_s"}: `points` of them log-spaced from 1/64 to 64 times the ridge point, and the
    ridge point itself. Raises Error where a ceiling was not measured or points < 2.
    """
    machine = machine_of(machine)
    if points < 2:
        raise Error(f"points must be at least 2, got {points}")
    compute, bandwidth = machine.compute(dtype).value, machine.bandwidth(level, access).value
    ridge = float(ridge_flops_per_byte(compute, bandwidth))
    spread = np.geomspace(ridge / 64, ridge * 64, points)
    x = np.union1d(spread[~np.isclose(spread, ridge, rtol=1e-9)], [ridge])
    y = attainable_flops_per_s(x, compute, bandwidth)
    return [{"flops_per_byte": float(a), "flops_per_s": float(b)} for a, b in zip(x, y, strict=True)]
