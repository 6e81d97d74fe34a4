"""The fitted roofline: bandwidth, compute peak and the sharpness of the knee between them, from a mixed-intensity sweep.

R(I) = [(beta I)^-p + (pi f/f0)^-p]^(-1/p): p = 1 is no overlap (times add), p -> infinity perfect overlap (the classic
roofline). In terms of s = 1/p, log R = min(a, b) - s log(1 + exp(-|a - b| / s)) with a = log(beta I), b = log(pi f/f0).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import Error
from ..units import fmt_number, fmt_percent, fmt_si
from .statistics import summary

Floats = NDArray[np.float64]

HUBER = 0.02  # log units: residuals beyond it count by their size and no longer by their square
WIDTH_FLOOR = 0.005  # no point's interval counts as narrower, so that none decides alone
MIN_POINTS = 5  # three parameters, and something to judge them by
SHARP = 0.05  # s below it (p > 20) cannot be told from a perfect knee
SOFTNESS = (0.005, 1.0)  # bounds of s
DRAWS = 500
ARTEFACT = 0.05  # a residual beyond it is the kernel's, not the model's
STEP = 0.04  # of the residual from one intensity to the next
THROTTLED = 0.9  # of the reference clock
MISFIT = 0.10  # a median residual beyond it: the points are not those of a roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A fitted value and its 95 % bootstrap interval, in the value's unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a mixed-intensity sweep says of one memory level and one kind of arithmetic; None is "not identified".

    bandwidth: beta, bytes/s. peak: pi, FLOP/s at clock_hz. softness: s = 1/p. knee: peak / bandwidth, FLOP/byte.
    clock_hz: f0, the 90th percentile of the points' clocks; None where none is known. Residuals are measured / fitted - 1.
    draws: bootstrap draws behind the intervals. notes: what limits the result, in plain English.
    """

    bandwidth: Estimate | None = None
    peak: Estimate | None = None
    softness: Estimate | None = None
    knee: Estimate | None = None
    clock_hz: float | None
    median_residual: float
    max_residual: float
    draws: int
    notes: tuple[str, ...] = ()

    @property
    def p(self) -> Estimate | None:
        """The exponent; infinite where s is below 0.05: "sharp"."""
        if self.softness is None:
            return None
        value, low, high = (1 / s if s >= SHARP else math.inf for s in (self.softness.value, self.softness.high, self.softness.low))
        return Estimate(value=value, low=low, high=high)

    @property
    def knee_efficiency(self) -> float | None:
        """The share of either roof that is reached at the knee: 2^-s."""
        return None if self.softness is None else 2.0**-self.softness.value

    @property
    def text(self) -> str:
        """ "knee 5.79 FLOP/byte [5.61, 5.98], p = 3.1 [2.5, 4.3]", or what was not identified."""
        if self.knee is None or self.p is None:
            missing = [name for name, found in (("bandwidth", self.bandwidth), ("compute peak", self.peak)) if found is None]
            return f"no knee: the sweep does not show the {' or the '.join(missing)}"
        low, high = fmt_number(self.knee.low), fmt_number(self.knee.high)
        return f"knee {fmt_number(self.knee.value)} FLOP/byte [{low}, {high}], {fmt_p(self.p)}"

    def at(self, intensity: ArrayLike, clock_hz: float | None = None) -> Floats:
        """Fitted FLOP/s at intensities in FLOP/byte, at a clock (None: the reference clock)."""
        x = np.asarray(intensity, dtype=np.float64)
        slope = np.full_like(x, np.inf) if self.bandwidth is None else self.bandwidth.value * x
        ratio = clock_hz / self.clock_hz if clock_hz and self.clock_hz else 1.0
        flat = np.full_like(x, np.inf if self.peak is None else self.peak.value * ratio)
        low = np.minimum(slope, flat)
        if self.softness is None:
            return low
        s = self.softness.value
        return np.asarray(low * (1 + (low / np.maximum(slope, flat)) ** (1 / s)) ** -s)

    def to_dict(self) -> dict[str, Any]:
        """JSON form. p is null where it is infinite."""
        stated = dataclasses.asdict(self)
        p = self.p
        stated["p"] = None if p is None else {k: v if math.isfinite(v) else None for k, v in dataclasses.asdict(p).items()}
        return {**stated, "knee_efficiency": self.knee_efficiency, "notes": list(self.notes)}


def fmt_p(p: Estimate) -> str:
    """ "p = 3.1 [2.5, 4.3]"; beyond 20 "sharp (p > 20)", as the value and as an end of the interval."""
    ends = [fmt_number(end, 2) if math.isfinite(end) else "> 20" for end in (p.low, p.high)]
    if math.isinf(p.value):
        return "sharp (p > 20)" if math.isinf(p.low) else f"sharp (p > 20) [{', '.join(ends)}]"
    return f"p = {fmt_number(p.value, 2)} [{', '.join(ends)}]"


# -- the optimisation: every row of the arrays is one data set (the data, or a bootstrap draw) ---------------------------------


def _curve(theta: Floats, x: Floats, clock: Floats) -> tuple[Floats, Floats]:
    """log R [rows, n] and its derivatives [rows, n, 3] by (log beta, log pi, s)."""
    a, b, s = theta[:, :1] + x, theta[:, 1:2] + clock, theta[:, 2:]
    apart = np.abs(a - b) / s
    tail = np.exp(-apart)
    soft = np.log1p(tail)
    far = tail / (1 + tail)  # the weight of the higher roof
    by_a = np.where(a < b, 1 - far, far)
    return np.minimum(a, b) - s * soft, np.stack([by_a, 1 - by_a, -soft - far * apart], axis=-1)


def _loss(residual: Floats, weight: Floats) -> Floats:
    size = np.abs(residual)
    return np.asarray(np.sum(weight * np.where(size < HUBER, 0.5 * size**2, HUBER * (size - 0.5 * HUBER)), axis=1))


def _minimise(
    theta: Floats, x: Floats, clock: Floats, y: Floats, weight: Floats, *, bounds: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Levenberg-Marquardt on the Huber loss within bounds [3], all rows at once: (theta [rows, 3], loss [rows]).

    A step is taken only where it lowers the loss, so it cannot diverge. A parameter at its bound, pushed outwards, is held.
    """
    low, high = bounds
    theta = np.clip(theta, low, high)
    fitted, slopes = _curve(theta, x, clock)
    loss, damping = _loss(y - fitted, weight), np.full(len(theta), 1e-3)
    active = np.arange(len(theta))
    for _ in range(80):
        residual = y[active] - fitted[active]
        pull = weight[active] * np.minimum(1.0, HUBER / np.maximum(np.abs(residual), 1e-300))
        j = slopes[active]
        gradient = np.einsum("bn,bnk->bk", pull * residual, j)
        at = theta[active]
        held = ((at <= low) & (gradient < 0)) | ((at >= high) & (gradient > 0))
        normal = np.einsum("bn,bnk,bnl->bkl", pull, j, j)
        normal = np.where(held[:, :, None] | held[:, None, :], 0.0, normal)
        diagonal = np.einsum("bkk->bk", normal)
        scale = np.where(held, 1.0, diagonal * (1 + damping[active, None]) + 1e-12 * (1 + diagonal.max(axis=1, keepdims=True)))
        normal[:, range(3), range(3)] = scale
        step = np.linalg.solve(normal, np.where(held, 0.0, gradient)[:, :, None])[:, :, 0]
        tried = np.clip(at + step, low, high)
        new_fitted, new_slopes = _curve(tried, x[active], clock[active])
        new_loss = _loss(y[active] - new_fitted, weight[active])
        better = new_loss < loss[active]
        gained = loss[active] - new_loss
        taken = active[better]
        theta[taken], fitted[taken], slopes[taken] = tried[better], new_fitted[better], new_slopes[better]
        small = (better & (gained <= 1e-7 * loss[active])) | (np.abs(tried - at).max(axis=1) < 1e-7)
        loss[taken] = new_loss[better]
        damping[active] = np.where(better, np.maximum(damping[active] / 5, 1e-9), damping[active] * 5)
        active = active[~small & (damping[active] < 1e9)]
        if not len(active):
            break
    return theta, loss


def _sides(theta: Floats, x: Floats, clock: Floats) -> tuple[Any, Any]:
    """Distinct intensities [rows] on the memory and the compute side of the knee."""
    memory = theta[:, :1] + x < theta[:, 1:2] + clock
    order = np.argsort(x, axis=1)
    ordered = np.take_along_axis(x, order, axis=1)
    first = np.concatenate([np.ones((len(x), 1), bool), np.diff(ordered, axis=1) > 0], axis=1)
    left = np.take_along_axis(memory, order, axis=1)
    return (left & first).sum(axis=1), (~left & first).sum(axis=1)


# -- from samples to a Fit ----------------------------------------------------------------------------------------------------


def _checked(
    intensities: Sequence[float], samples: Sequence[Sequence[float]], clocks: Sequence[float | None]
) -> tuple[Floats, Floats, float | None]:
    """(log I [n], log f/f0 [n], f0), everything checked."""
    if not len(intensities) == len(samples) == len(clocks):
        raise Error("a fit needs one list of samples and one clock (or None) per intensity")
    for intensity, values in zip(intensities, samples, strict=True):
        if not 0 < intensity < math.inf:
            raise Error(f"arithmetic intensity must be positive and finite, got {intensity!r:.80}")
        if not len(values) or not all(0 < value < math.inf for value in values):
            raise Error(f"the samples at {fmt_number(intensity)} FLOP/byte must be positive finite FLOP/s, and at least one")
    if len(set(intensities)) < MIN_POINTS:
        raise Error(f"a fit needs {MIN_POINTS} intensities or more, got {len(set(intensities))}: measure more of them")
    known = [clock for clock in clocks if clock is not None]
    if not all(0 < clock < math.inf for clock in known):
        raise Error("clocks must be positive and finite, or None where unknown")
    reference = float(np.percentile(known, 90)) if known else None
    ratios = [clock / reference if clock and reference else 1.0 for clock in clocks]
    return np.log(np.asarray(intensities, dtype=np.float64)), np.log(np.asarray(ratios)), reference


def _widths(samples: Sequence[Sequence[float]]) -> Floats:
    """Half the 95 % interval of each median over it [n]; of a single sample nothing is known but that it is one."""
    found = [summary(values) for values in samples]
    return np.array([max((s.high - s.low) / (2 * s.median), WIDTH_FLOOR) if s.n > 1 else HUBER for s in found])


def _interval(value: float, draws: Floats) -> Estimate:
    low, high = np.percentile(draws, (2.5, 97.5)) if len(draws) else (value, value)
    return Estimate(value=value, low=min(float(low), value), high=max(float(high), value))


def _throttling(x: Floats, clock: Floats, reference: float | None) -> list[str]:
    low = np.flatnonzero(clock < math.log(THROTTLED))
    if reference is None or not len(low):
        return []
    left, start = math.exp(clock.min()), math.exp(x[low].min())
    return [
        f"the clock falls to {fmt_si(reference * left, 'Hz')} ({fmt_percent(left, 2)}), from AI about {fmt_number(start)} on: "
        f"the fit divides it out, its peak is that of {fmt_si(reference, 'Hz')}"
    ]


def _artefacts(x: Floats, residual: Floats, widths: Floats, clocked: bool) -> list[str]:
    """Notes on residuals that neither the model nor the points' own noise explains."""
    order = np.argsort(x)
    x, residual, widths = x[order], residual[order], widths[order]
    worst = int(np.argmax(np.abs(residual)))
    found = []
    if abs(residual[worst]) > max(ARTEFACT, widths[worst]):
        found.append((x[worst], f"residual {residual[worst] * 100:+.1f} %"))
    for i in range(1, len(x)):
        # A step is another level on either side: a lone outlier comes back, and the medians of three do not see it.
        step = float(np.median(residual[i : i + 3]) - np.median(residual[max(i - 3, 0) : i]))
        if abs(residual[i] - residual[i - 1]) > max(STEP, widths[i] + widths[i - 1]) and abs(step) > STEP:
            found.append((x[i], f"the residual steps by {step * 100:+.1f} %"))
    what = "codegen artefact" if clocked else "codegen artefact (or throttling: no clock is known)"
    return [f"{what} suspected at AI about {fmt_number(math.exp(at))}: {why}" for at, why in found[:2]]


def _both(best: Floats, drawn: Floats) -> dict[str, Estimate]:
    """Everything of a fit with points on both sides, from the optimum [3] and that of each draw [draws, 3]."""
    return {
        "bandwidth": _interval(math.exp(best[0]), np.exp(drawn[:, 0])),
        "peak": _interval(math.exp(best[1]), np.exp(drawn[:, 1])),
        "softness": _interval(float(best[2]), drawn[:, 2]),
        "knee": _interval(math.exp(best[1] - best[0]), np.exp(drawn[:, 1] - drawn[:, 0])),
    }


def fit_roofline(
    intensities: Sequence[float],
    samples: Sequence[Sequence[float]],
    clocks: Sequence[float | None],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Fit:
    """The roofline fitted to FLOP/s `samples` (one list per intensity in FLOP/byte) at `clocks` in Hz (None: unknown).

    Huber loss on log R, points weighted by 1 / interval^2. Intervals: percentiles of `draws` bootstrap draws over points and
    over the samples of each. A roof with fewer than two intensities on its side of the knee is None, with a note. Raises
    Error for fewer than five intensities, and for numbers that are not positive and finite.
    """
    x, clock, reference = _checked(intensities, samples, clocks)
    widths = _widths(samples)
    weight = (widths.min() / widths) ** 2
    y = np.log([float(np.median(values)) for values in samples])
    slope, flat = float(np.quantile(y - x, 0.9)), float(np.quantile(y - clock, 0.9))
    bounds = np.array([slope - 3, flat - 3, SOFTNESS[0]]), np.array([slope + 2, flat + 2, SOFTNESS[1]])
    starts = np.array([[slope, flat, s] for s in (0.03, 0.15, 0.5)])
    rows = (x, clock, y, weight)
    thetas, losses = _minimise(starts, *(np.broadcast_to(row, (3, len(x))) for row in rows), bounds=bounds)
    best = thetas[int(np.argmin(losses))]
    (memory,), (compute,) = _sides(best[None], x[None], clock[None])

    generator = np.random.default_rng(seed)
    logs = [np.log(values) for values in samples]
    again = [np.median(v[generator.integers(len(v), size=(draws, len(v)))], axis=1) for v in logs]
    picked = generator.integers(len(x), size=(draws, len(x)))
    drawn_x, drawn_clock, drawn_y = x[picked], clock[picked], np.take_along_axis(np.stack(again, axis=1), picked, axis=1)
    found: dict[str, Estimate] = {}
    notes: list[str] = []
    kept = draws
    if memory >= 2 and compute >= 2:
        start = np.tile([best[0], best[1], min(best[2], 0.3)], (draws, 1))
        drawn, _ = _minimise(start, drawn_x, drawn_clock, drawn_y, weight[picked], bounds=bounds)
        left, right = _sides(drawn, drawn_x, drawn_clock)
        drawn = drawn[(left >= 2) & (right >= 2)]  # one that lost a side of the knee says nothing of it
        found, kept = _both(best, drawn), len(drawn)
        residual = np.expm1(y - _curve(best[None], x[None], clock[None])[0][0])
    else:
        # One roof only: its level is a median, of the half of the points that is farther from the other roof.
        by_memory = compute < 2
        far = x <= np.median(x) if by_memory else x >= np.median(x)
        levels, drawn_levels = (y - x, drawn_y - drawn_x) if by_memory else (y - clock, drawn_y - drawn_clock)
        level = float(np.median(levels[far]))
        used = far[picked].any(axis=1)
        drawn_level = np.nanmedian(np.where(far[picked], drawn_levels, np.nan)[used], axis=1)
        found["bandwidth" if by_memory else "peak"] = _interval(math.exp(level), np.exp(drawn_level))
        residual = np.expm1(levels - level)
        missing, cure, seen = ("compute peak", "higher", compute) if by_memory else ("bandwidth", "lower", memory)
        notes.append(f"{missing} not identified: {seen} of {len(x)} points lie beyond the knee; measure {cure} intensities")
    middle, largest = float(np.median(np.abs(residual))), float(np.abs(residual).max())
    if middle > MISFIT:
        found = {}
        notes = [f"no roofline fits these points (median residual {fmt_percent(middle, 2)}): measure again on an idle machine"]
    elif "knee" in found:
        if kept < draws / 2:
            notes.append(f"only {kept} of {draws} draws kept both roofs: measure more intensities on both sides of the knee")
        notes += _artefacts(x, residual, widths, reference is not None)
    return Fit(
        **found, clock_hz=reference, median_residual=middle, max_residual=largest, draws=kept,
        notes=(*notes, *_throttling(x, clock, reference)),
    )  # fmt: skip
