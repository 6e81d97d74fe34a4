"""Pictures of a machine alone: the measured roofline, size curves and latencies, and their data."""

import dataclasses
from typing import Any

import pytest
from matplotlib import pyplot as plt
from series import CLOCK, NOISY, swept, zen
from shown import data, lines, notes

from roofline import plot
from roofline.errors import Error
from roofline.machine import Ceiling, Machine
from roofline.plot import style
from roofline.units import KIB, MIB

pytestmark = pytest.mark.usefixtures("nothing_is_shown")


def throttled() -> Machine:
    """A GPU whose clock falls near the knee, with a datasheet above the measurement."""

    def falling(x: float) -> float:
        return 1.0 if x <= 32 else max(0.53, 32 / x)

    slowed = swept(20.0, beta=852e9, peak=56e12, threads=0, isa="", clock=falling, points=26, **NOISY)
    sheet = Ceiling(probe="fma", dtype="fp32", samples=(90.5e12,), source="datasheet")
    measured = Ceiling(probe="stream", level="DRAM", access="read", samples=(850e9,))
    return Machine(name="Example GPU", device="cuda:0", ceilings=(sheet, measured), empirical=(slowed,))


def partial() -> Machine:
    """Sweeps that cannot be fitted: one roof only, and too few points."""
    short, four = swept(**NOISY), swept(level="L2", beta=430e9, points=4, status="contended")
    return dataclasses.replace(zen(), empirical=(dataclasses.replace(short, points=short.points[:10]), four))


Records = list[dict[str, Any]]


def of(records: Records, element: str, label: str = "") -> Records:
    return [r for r in records if r["element"] == element and label in r["label"]]


def at(records: Records, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(r[key] for key in keys) for r in records]


WHERE = ("flops_per_byte", "flops_per_s")


# -- the measured roofline ------------------------------------------------------------------------------------------------


def test_the_measured_roofline() -> None:
    ax, records = plot.empirical(zen()), plot.empirical.data(zen())
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_xlabel() == "Arithmetic intensity [FLOP/byte]" and ax.get_ylabel() == "Performance [GFLOP/s]"
    assert ax.get_title(loc="left") == "Measured roofline of AMD EPYC 9R14, fp32"
    drawn, curves = lines(ax, "points "), lines(ax, "fit ")
    for line, curve, e in zip(drawn, curves, zen().empirical[:4], strict=True):
        assert (
            data(line)
            == [(p.intensity_flops_per_byte, p.summary.median) for p in e.points]
            == at(of(records, "point", e.level), *WHERE)
        )
        (knee,) = of(records, "knee", e.level)
        assert e.fit.knee is not None and e.fit.knee_efficiency is not None and e.fit.peak is not None
        assert (knee["flops_per_byte"], knee["low"], knee["high"]) == (e.fit.knee.value, e.fit.knee.low, e.fit.knee.high)
        assert knee["flops_per_s"] == pytest.approx(e.fit.knee_efficiency * e.fit.peak.value)
        assert data(curve) == at(of(records, "fit", e.level), *WHERE)
        assert (knee["flops_per_byte"], pytest.approx(knee["flops_per_s"])) in data(curve)  # the curve goes through its knee
        assert line.get_markeredgecolor() == curve.get_color() == style.LIGHT(style.LEVELS[e.level][0])
    names = [t.get_text() for t in ax.texts if "knee" in t.get_text()]
    assert len(names) == 4 and names[0].startswith("DRAM read knee 5.7") and "], p = 3.1 [" in names[0]
    assert len({line.get_marker() for line in drawn}) == 4
    assert "not shown: 1 more, of fp64 with 2 threads" in notes(records)
    assert "β 38.0 [37." in notes(records) and "residual 0." in notes(records)


def test_ceilings_theory_and_sustained() -> None:
    ax, records = plot.empirical(zen()), plot.empirical.data(zen())
    roofs = {str(line.get_gid()).removeprefix("roof "): line for line in lines(ax, "roof ")}
    theory = "33 FLOP/cycle × 2 × 3.44 GHz = 227 GFLOP/s"
    sustained = next(name for name in roofs if "sustained" in name)
    assert set(roofs) == {
        "L1 read 880 GB/s", "L2 read 430 GB/s", "L3 read 200 GB/s", "DRAM read 38.0 GB/s", "fp32 avx2 220 GFLOP/s", theory,
        sustained,
    }  # fmt: skip  # each once, and no FMA+ADD
    assert sustained.endswith(" GFLOP/s, 88 % of burst")
    measured = roofs["fp32 avx2 220 GFLOP/s"]
    assert not measured.is_dashed() and roofs[theory].is_dashed() and roofs[sustained].is_dashed()
    assert roofs[theory].get_linewidth() < measured.get_linewidth()
    assert data(roofs[theory])[1][1] == pytest.approx(33 * 2 * CLOCK)
    ((x0, y0), (_, y1)) = data(roofs["DRAM read 38.0 GB/s"])
    assert y0 / x0 == pytest.approx(38e9) and y1 == pytest.approx(33 * 2 * CLOCK)  # it stops at the highest roof
    # The sustained level is that of the last half of the load.
    assert data(roofs[sustained])[0][1] == zen().empirical[0].sustained_flops_per_s
    drawn = sorted(place for line in roofs.values() for place in data(line))
    assert drawn == sorted(at([r for r in records if r["element"].endswith("_roof")], *WHERE))
    assert len(of(records, "sustained")) == 20
    parameters = {r["label"]: r for r in of(records, "parameter") if r["level"] == "L1"}
    fitted = zen().empirical[3].fit
    assert fitted.peak is not None and fitted.p is not None and parameters["p"]["value"] == fitted.p.value
    assert [parameters["peak"][key] for key in ("value", "low", "high")] == [fitted.peak.value, fitted.peak.low, fitted.peak.high]


def test_a_throttled_sweep_shows_both_curves() -> None:
    ax, records = plot.empirical(throttled()), plot.empirical.data(throttled())
    slow, points = of(records, "fit_at_clock"), of(records, "point")
    assert [r["flops_per_s"] for r in slow] == pytest.approx([r["flops_per_s"] for r in points], rel=0.03)
    assert of(records, "fit")[-1]["flops_per_s"] == pytest.approx(56e12, rel=0.02)
    assert "dotted: the fit at the clock of each point" in notes(records) and "the clock falls to 1.82 GHz" in notes(records)
    assert lines(ax, "roof fp32 90.5 TFLOP/s (datasheet)")[0].is_dashed() and len(lines(ax, "fit at clock")) == 1
    assert ax.get_ylabel() == "Performance [TFLOP/s]"
    assert not of(plot.empirical.data(zen()), "fit_at_clock")
    (sharp,) = of(records, "parameter", "p")[-1:]
    assert sharp["label"] != "p" or (sharp["high"] is None and sharp["low"] > 1)


def test_what_cannot_be_fitted_is_drawn_and_said() -> None:
    ax, records = plot.empirical(partial()), plot.empirical.data(partial())
    assert len(lines(ax, "points")) == 2 and not of(records, "knee")
    only = of(records, "fit")  # the one roof that it shows
    assert {r["level"] for r in only} == {"DRAM"} and all(y / x == pytest.approx(38e9, rel=0.02) for x, y in at(only, *WHERE))
    assert {"DRAM read", "L2 read"} <= {t.get_text() for t in ax.texts}
    assert "compute peak not identified: 0 of 10 points" in notes(records)
    assert "a fit needs 5 intensities or more, got 4" in notes(records)


@pytest.mark.parametrize(
    ("options", "words_"),
    [
        ({"dtype": "bf16"}, "no mixed-intensity sweep to draw there"),
        ({"level": "L3", "dtype": "fp64"}, "measured: DRAM read, fp32 avx2"),
        ({"threads": 7}, "with 2 threads"),
    ],
)
def test_a_sweep_that_is_not_there(options: dict[str, Any], words_: str) -> None:
    with pytest.raises(Error, match=words_):
        plot.empirical(zen(), **options)
    assert plt.get_fignums() == []


# -- size curves and latencies --------------------------------------------------------------------------------------------


def test_size_curves() -> None:
    ax, records = plot.size_curve(zen()), plot.size_curve.data(zen())
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_xlabel() == "Working set of all threads" and ax.get_ylabel() == "Bandwidth [GB/s]"
    read, copy, one = (c for c in zen().curves)
    drawn = [line for line in lines(ax, "curve ") if len(line.get_xdata()) == len(read.points)]
    assert [data(line) for line in drawn] == [[(p.size_bytes, p.summary.median) for p in c.points] for c in (read, copy, one)]
    bars = [data(line) for line in lines(ax, "plateau")]
    assert bars == [[(p.from_bytes, p.value), (p.to_bytes, p.value)] for c in zen().curves for p in c.plateaus(zen().facts)]
    assert len(bars) == 12 and at(of(records, "plateau"), "size_bytes", "bytes_per_s") == [bar[0] for bar in bars]
    assert at(of(records, "cache"), "level", "size_bytes") == [("L1", 64 * KIB), ("L2", 2 * MIB), ("L3", 32 * MIB)]
    assert {"L1 64 KiB", "L2 2 MiB", "L3 32 MiB"} <= {t.get_text() for t in ax.texts}
    # Access by colour and marker, threads by dashes.
    assert (
        drawn[0].get_color() == drawn[2].get_color() != drawn[1].get_color() and drawn[2].is_dashed() and not drawn[0].is_dashed()
    )
    assert all(r["low"] <= r["bytes_per_s"] <= r["high"] for r in records if r["element"] in ("point", "plateau"))


def test_one_curve_and_none() -> None:
    records = plot.size_curve.data(zen(), access="read", threads=1)
    assert len({r["label"] for r in of(records, "point")}) == 1
    assert [r["size_bytes"] for r in of(records, "cache")] == [32 * KIB, MIB, 32 * MIB]  # of one thread
    with pytest.raises(Error, match="no size curve to draw there .measured: read avx2, 2 threads; copy avx2"):
        plot.size_curve(zen(), access="triad")
    small = dataclasses.replace(zen(), facts={**zen().facts, "l3_bytes": 128 * MIB})
    said = notes(plot.size_curve.data(small))
    assert said.count("reported L3 128 MiB, but its bandwidth holds only up to") == 1
    assert "read avx2, 2 threads; copy avx2, 2 threads; read avx2, 1 thread: reported L3" in said


def test_latencies() -> None:
    ax, records = plot.latency(zen()), of(plot.latency.data(zen()), "latency")
    assert ax.get_ylabel() == "Latency [ns]" and ax.get_yscale() == "log"
    ax.figure.draw_without_rendering()
    assert [label.get_text() for label in ax.xaxis.get_ticklabels()] == ["L1", "L3", "DRAM"]
    dots = [data(line)[0] for line in lines(ax, "dot")]
    assert dots == [(1, 1.2e-9), (2, 14e-9), (2, 21e-9), (3, 98e-9), (3, 131e-9)]
    assert [t.get_text() for t in ax.texts if str(t.get_gid()).startswith("name")] == [
        "1.20 ns, 4.1 cycles", "14.0 ns, 48 cycles", "21.0 ns, 72 cycles, 4 KiB pages", "98.0 ns, 337 cycles",
        "131 ns, 451 cycles, 4 KiB pages",
    ]  # fmt: skip
    hollow = [line.get_markerfacecolor() == style.LIGHT("paper") for line in lines(ax, "dot")]
    assert hollow == [False, False, True, False, True]
    assert [r["time_s"] for r in records] == [y for _, y in dots] and records[0]["cycles"] == pytest.approx(1.2e-9 * CLOCK)
    for picture, words_ in (
        (plot.latency, "measure pointer_chase"),
        (plot.empirical, "bare has no"),
        (plot.size_curve, "bare has no"),
    ):
        with pytest.raises(Error, match=words_):
            picture(Machine(name="bare"))
