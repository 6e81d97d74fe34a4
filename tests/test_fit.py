"""The fitted roofline: known curves are recovered, intervals cover, throttling is told from a soft knee, and bad sweeps say so."""

import math
import time
from typing import Any

import numpy as np
import pytest
from series import BETA, PI, knee_curve, sweep
from tables import refused

from roofline.machine import Fit, fit_roofline, fmt_p
from roofline.machine.fit import _curve


def known(found: Fit) -> tuple[float, float, float, float]:
    """bandwidth, peak, softness, knee of a fit that has them all."""
    parts = (found.bandwidth, found.peak, found.softness, found.knee)
    assert all(parts)
    return tuple(part.value for part in parts if part)  # type: ignore[return-value]


# -- what is recovered ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1.0, 1.5, 3.0, 8.0])
def test_known_curves_are_recovered(p: float) -> None:
    found = fit_roofline(*sweep(p))
    bandwidth, peak, softness, knee = known(found)
    assert bandwidth == pytest.approx(BETA, rel=5e-3)
    assert peak == pytest.approx(PI, rel=5e-3)
    assert softness == pytest.approx(1 / p, abs=0.015)
    assert knee == pytest.approx(PI / BETA, rel=5e-3)
    assert found.knee_efficiency == pytest.approx(2 ** (-1 / p), rel=0.01)
    assert found.median_residual < 0.005 and found.max_residual < 0.02
    assert found.notes == () and found.clock_hz is None and found.draws == 500


def test_without_noise_it_is_exact() -> None:
    found = fit_roofline(*sweep(4.0, noise=0.0))
    assert known(found) == pytest.approx((BETA, PI, 0.25, PI / BETA), rel=1e-6)
    assert found.max_residual < 1e-6
    at = [0.1, 5.8, 300.0]
    assert found.at(at) == pytest.approx([knee_curve(x, 4.0) for x in at], rel=1e-6)


def test_a_perfect_knee_is_sharp() -> None:
    found = fit_roofline(*sweep(math.inf))
    assert found.p is not None and math.isinf(found.p.value) and math.isinf(found.p.high)
    assert found.text.startswith("knee 5.78 FLOP/byte [5.7") and "sharp (p > 20)" in found.text
    assert known(found)[:2] == pytest.approx((BETA, PI), rel=5e-3)
    assert found.at(PI / BETA) > 0.95 * PI


def test_published_shapes() -> None:
    """Curves with the parameters that published sweeps of GPUs have (bandwidth, peak, p), noisy by their median residuals."""
    for seed, (beta, peak, p, scatter) in enumerate(
        [(1374e9, 18.86e12, 3.1, 0.008), (683e9, 22.9e12, 4.6, 0.013), (845e9, 49.7e12, 8.1, 0.007), (3814e9, 42.2e12, 1.9, 0.008)]
    ):
        found = fit_roofline(*sweep(p, seed=seed, beta=beta, peak=peak, scatter=scatter))
        bandwidth, top, softness, _ = known(found)
        assert (bandwidth, top) == pytest.approx((beta, peak), rel=0.02)
        assert 1 / softness == pytest.approx(p, rel=0.25)


@pytest.mark.parametrize(
    ("p", "options"), [(1.5, {}), (3.0, {"points": 24, "samples": 5}), (8.0, {"noise": 0.005, "scatter": 0.02})]
)
def test_intervals_cover(p: float, options: dict[str, Any]) -> None:
    """At least 85 % of the 95 % intervals of 60 repeated sweeps hold the truth, for each of the four results."""
    inside = np.zeros(4)
    truth = (BETA, PI, 1 / p, PI / BETA)
    for seed in range(60):
        found = fit_roofline(*sweep(p, seed=1000 + seed, **options), seed=seed)
        parts = (found.bandwidth, found.peak, found.softness, found.knee)
        inside += [part is not None and part.low <= value <= part.high for part, value in zip(parts, truth, strict=True)]
    assert (inside / 60 >= 0.85).all(), inside / 60


def test_intervals_are_as_narrow_as_the_noise_allows() -> None:
    few = fit_roofline(*sweep(3.0, scatter=0.02, noise=0.002))
    many = fit_roofline(*sweep(3.0, scatter=0.02, noise=0.002, points=120))
    assert few.knee and many.knee
    assert 0.3 < (many.knee.high - many.knee.low) / (few.knee.high - few.knee.low) < 0.8  # √(30 / 120) is 0.5
    assert (few.knee.high - few.knee.low) / few.knee.value < 0.06


def test_500_draws_are_quick() -> None:
    data = sweep(3.0, points=40, samples=20)
    fit_roofline(*data)
    begun = time.process_time()
    fit_roofline(*data)
    assert time.process_time() - begun < 2.0


def test_the_same_data_give_the_same_fit() -> None:
    assert fit_roofline(*sweep(3.0)) == fit_roofline(*sweep(3.0))
    assert fit_roofline(*sweep(3.0)) != fit_roofline(*sweep(3.0), seed=1)


def test_derivatives() -> None:
    """Derivatives of log R, against central differences."""
    random = np.random.default_rng(5)
    x, clock = np.linspace(-2, 6, 12)[None], np.log(random.uniform(0.5, 1, 12))[None]
    for theta in ([24.0, 26.0, 0.3], [24.0, 26.0, 0.01], [24.0, 26.0, 1.0]):
        exact = _curve(np.array([theta]), x, clock)[1][0]
        for k in range(3):
            h = 1e-6
            up, down = (np.array([[*theta]]) + s * h * np.eye(3)[k] for s in (1, -1))
            numeric = (_curve(up, x, clock)[0] - _curve(down, x, clock)[0])[0] / (2 * h)
            assert exact[:, k] == pytest.approx(numeric, abs=1e-5)


@pytest.mark.parametrize(("p", "scatter"), [(1.5, 0.0), (3.0, 0.005), (8.0, 0.005)])
def test_scipy_finds_the_same_optimum(p: float, scatter: float) -> None:
    optimize = pytest.importorskip("scipy.optimize", reason="compares the optimum with SciPy's")
    x, values, clocks = sweep(p, scatter=scatter, samples=2001, noise=0.003)  # equal weights: all intervals are below the floor
    y = np.log([float(np.median(v)) for v in values])

    def residual(theta: Any) -> Any:
        a, b, s = theta[0] + np.log(x), theta[1], theta[2]
        return (s * np.logaddexp(-a / s, -b / s) + y) / 0.02

    # SciPy's Huber loss of r / 0.02 is ours; both start elsewhere.
    start, bounds = [math.log(20e9), math.log(400e9), 0.5], ([0, 0, 0.005], [99, 99, 1])
    theirs = optimize.least_squares(residual, start, bounds=bounds, loss="huber", xtol=1e-14, ftol=1e-14, gtol=1e-14).x
    bandwidth, peak, softness, _ = known(fit_roofline(x, values, clocks))
    assert (bandwidth, peak) == pytest.approx((math.exp(theirs[0]), math.exp(theirs[1])), rel=1e-4)
    assert softness == pytest.approx(theirs[2], abs=1e-4)


# -- what must not move it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.3, 0.8, 1.25, 4.0])
@pytest.mark.parametrize("index", [4, 16, 27])
def test_one_outlier_does_not_move_it(index: int, factor: float) -> None:
    x, values, clocks = sweep(3.0)
    clean = known(fit_roofline(x, values, clocks))
    values[index] = [v * factor for v in values[index]]
    spoiled = fit_roofline(x, values, clocks)
    moved = known(spoiled)
    assert moved[:2] == pytest.approx(clean[:2], rel=5e-3) and moved[2] == pytest.approx(clean[2], abs=0.02)
    (note,) = spoiled.notes
    assert "codegen artefact (or throttling: no clock is known) suspected at AI about" in note and f"{x[index]:.3g}"[:3] in note


def test_a_step_between_neighbours_is_an_artefact() -> None:
    """As where a compiler stops keeping a loop in registers: all points beyond lie 8 % higher."""
    x, values, _ = sweep(3.0)
    values = [[v * 1.08 for v in row] if i >= 20 else row for i, row in enumerate(values)]
    notes = fit_roofline(x, values, [3e9] * len(x)).notes
    assert any(f"codegen artefact suspected at AI about {x[20]:.3g}: the residual steps by +" in note for note in notes), notes


def test_a_falling_clock_is_no_soft_knee() -> None:
    """A card that falls to 53 % of its clock from near the knee on: clock-normalised it is sharp, with its full peak."""
    x, values, clocks = sweep(math.inf, beta=852e9, peak=56e12, clock=lambda i: 1.0 if i <= 32 else max(0.53, 32 / i))
    found = fit_roofline(x, values, clocks)
    assert found.p is not None and math.isinf(found.p.value)
    assert known(found)[:2] == pytest.approx((852e9, 56e12), rel=0.01)
    assert found.clock_hz == pytest.approx(3e9)
    (note,) = found.notes
    assert "the clock falls to 1.59 GHz (53 %), from AI about" in note and "its peak is that of 3.00 GHz" in note
    assert found.at(1e4, clock_hz=1.59e9) == pytest.approx(0.53 * 56e12, rel=0.01)
    raw = fit_roofline(x, values, [None] * len(x))
    assert raw.peak and raw.peak.value < 0.6 * 56e12
    assert raw.max_residual > 0.1 and "throttling: no clock is known" in raw.notes[0]


def test_noisy_points_count_less() -> None:
    """Points whose intervals are ten times as wide, and 5 % low, move the peak by little."""
    x, values, clocks = sweep(8.0, samples=20)
    for i in range(20, 30, 2):
        values[i] = [v * f for v, f in zip(values[i], np.linspace(0.7, 1.2, 20), strict=True)]
    assert known(fit_roofline(x, values, clocks))[1] == pytest.approx(PI, rel=5e-3)


# -- what cannot be fitted ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "missing", "level"),
    [
        (slice(0, 12), "compute peak not identified: 0 of 12 points lie beyond the knee; measure higher intensities", BETA),
        (slice(0, 16), "compute peak not identified: 1 of 16 points lie beyond the knee; measure higher intensities", BETA),
        (slice(18, 30), "bandwidth not identified: 0 of 12 points lie beyond the knee; measure lower intensities", PI),
    ],
)
def test_one_roof_only(part: slice, missing: str, level: float) -> None:
    x, values, clocks = (column[part] for column in sweep(8.0))
    found = fit_roofline(x, values, clocks)
    assert missing in found.notes
    seen, other = (found.bandwidth, found.peak) if level == BETA else (found.peak, found.bandwidth)
    assert other is None and found.knee is None and found.p is None and found.knee_efficiency is None
    assert seen is not None and seen.value == pytest.approx(level, rel=0.01)
    assert found.text.startswith("no knee: the sweep does not show the")
    # What is drawn is that roof alone.
    assert found.at(2.0) == pytest.approx(seen.value * (2.0 if level == BETA else 1.0))


def test_noise_is_no_roofline() -> None:
    random = np.random.default_rng(3)
    x = [float(v) for v in np.geomspace(0.1, 100, 30)]
    for _ in range(5):
        found = fit_roofline(x, [[float(np.exp(random.standard_normal()))] for _ in x], [None] * 30)
        assert found.knee is None and found.bandwidth is None and found.peak is None
        assert found.notes[0].startswith("no roofline fits these points (median residual")


def test_few_points_on_a_side_are_said() -> None:
    x, values, clocks = (column[:18] for column in sweep(math.inf, points=30))
    found = fit_roofline(x, values, clocks)
    assert found.knee is not None and found.draws < 500
    if found.draws < 250:
        assert "draws kept both roofs: measure more intensities on both sides of the knee" in found.notes[0]


test_bad_input = refused(
    lambda change: fit_roofline(*change(*sweep(3.0))),
    (lambda x, v, c: (x[:4], v[:4], c[:4]), "a fit needs 5 intensities or more, got 4: measure more of them"),
    (lambda x, v, c: ([1.0] * 30, v, c), "a fit needs 5 intensities or more, got 1"),
    (lambda x, v, c: ([0.0, *x[1:]], v, c), "arithmetic intensity must be positive and finite, got 0.0"),
    (lambda x, v, c: ([math.nan, *x[1:]], v, c), "arithmetic intensity must be positive and finite, got nan"),
    (lambda x, v, c: (x, [[0.0], *v[1:]], c), "the samples at 0.181 FLOP/byte must be positive finite FLOP/s"),
    (lambda x, v, c: (x, [[math.nan], *v[1:]], c), "the samples at 0.181 FLOP/byte must be positive"),
    (lambda x, v, c: (x, [[], *v[1:]], c), "and at least one"),
    (lambda x, v, c: (x, v, [-1.0, *c[1:]]), "clocks must be positive and finite, or None"),
    (lambda x, v, c: (x, v[1:], c), "one list of samples and one clock"),
)


def test_five_points_are_enough() -> None:
    x, values, clocks = (column[::7] for column in sweep(3.0, noise=0.002))
    assert len(x) == 5
    assert known(fit_roofline(x, values, clocks))[:2] == pytest.approx((BETA, PI), rel=0.01)


def test_one_sample_a_point() -> None:
    x, values, clocks = sweep(3.0, samples=1)
    assert known(fit_roofline(x, values, clocks))[:2] == pytest.approx((BETA, PI), rel=0.02)


# -- how it is said -------------------------------------------------------------------------------------------------------


def test_exponents_in_print() -> None:
    found = fit_roofline(*sweep(3.0))
    assert found.p is not None and found.p.low <= found.p.value <= found.p.high
    assert fmt_p(found.p).startswith("p = ") and fmt_p(found.p) in found.text
    from roofline.machine import Estimate

    assert fmt_p(Estimate(value=6.3, low=5.1, high=8.0)) == "p = 6.3 [5.1, 8.0]"
    assert fmt_p(Estimate(value=12.0, low=5.1, high=math.inf)) == "p = 12 [5.1, > 20]"
    assert fmt_p(Estimate(value=math.inf, low=9.0, high=math.inf)) == "sharp (p > 20) [9.0, > 20]"
    assert fmt_p(Estimate(value=math.inf, low=math.inf, high=math.inf)) == "sharp (p > 20)"
