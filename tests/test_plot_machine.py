"""Pictures of a machine alone: the measured roofline, size curves and latencies; their data, and that no two labels overlap."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the plots need matplotlib")

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline import plot
from roofline.errors import Error
from roofline.machine import MEMORIES, Ceiling, EmpiricalRoofline, IntensityPoint, Machine, SizeCurve, SizePoint, SustainedSample
from roofline.plot import style
from roofline.plot.labels import contains, overlap, text_corners

pytestmark = pytest.mark.usefixtures("nothing_is_shown")

CLOCK = 3.44e9
KIB, MIB = 1 << 10, 1 << 20
SPREAD = (0.995, 1.0, 1.0, 1.004, 1.002, 0.998, 1.001, 0.999, 1.003, 1.0)


def around(value: float) -> tuple[float, ...]:
    return tuple(value * s for s in SPREAD)


def sweep(
    level: str,
    beta: float,
    p: float = 4.0,
    *,
    peak: float = 218e9,
    dtype: str = "fp32",
    threads: int = 2,
    seed: int = 0,
    **more: Any,
) -> EmpiricalRoofline:
    random = np.random.default_rng(seed)
    clock = more.pop("clock", lambda x: 1.0)
    points = []
    for x in np.geomspace(1 / 32, 32, more.pop("n", 26)) * peak / beta:
        exact = ((beta * x) ** -p + (peak * clock(x)) ** -p) ** (-1 / p) * math.exp(0.006 * random.standard_normal())
        samples = tuple(float(v) for v in exact * np.exp(0.012 * random.standard_normal(10)))
        points.append(IntensityPoint(intensity_flops_per_byte=float(x), samples=samples, clock_hz=CLOCK * clock(x)))
    fields = {"access": "read", "isa": "avx2", **more}
    return EmpiricalRoofline(level=level, dtype=dtype, threads=threads, points=tuple(points), **fields)


def steps(access: str, share: float, threads: int, seed: int) -> SizeCurve:
    random = np.random.default_rng(seed)

    def value(size: float) -> float:
        private = size * 2 / threads
        return 880e9 if private <= 60 * KIB else 430e9 if private <= 1.9 * MIB else 200e9 if size <= 24 * MIB else 38e9

    points = tuple(
        SizePoint(size_bytes=int(s), samples=tuple(value(s) * share * np.exp(0.01 * random.standard_normal(9))))
        for s in np.geomspace(4 * KIB, 512 * MIB, 40)
    )
    return SizeCurve(access=access, threads=threads, isa="avx2", points=points)


def bandwidth(level: str, value: float, **more: Any) -> Ceiling:
    return Ceiling(probe="stream", level=level, access="read", threads=2, samples=around(value), **more)


def compute(dtype: str, value: float, **more: Any) -> Ceiling:
    probe = "fma.add" if "problem" in more else "fma"
    return Ceiling(probe=probe, dtype=dtype, isa="avx2", threads=2, samples=around(value), clock_hz=CLOCK, **more)


def latency(level: str, value: float, pages: str) -> Ceiling:
    problem = {"operator": "pointer_chase", "pages": pages}
    return Ceiling(probe="pointer_chase", level=level, samples=around(value), problem=problem, clock_hz=CLOCK, threads=1)


def zen() -> Machine:
    load = tuple(SustainedSample(time_s=i + 1.0, flops_per_s=220e9 * (1 - 0.12 * (1 - math.exp(-i / 4)))) for i in range(20))
    return Machine(
        name="AMD EPYC 9R14",
        device="cpu",
        created_utc="2026-11-20T10:15:00Z",
        facts={"threads": 2, "l1_bytes": 32 * KIB, "l2_bytes": MIB, "l3_bytes": 32 * MIB},
        ceilings=(
            bandwidth("L1", 880e9), bandwidth("L2", 430e9), bandwidth("L3", 200e9), bandwidth("DRAM", 38e9),
            compute("fp32", 220e9, ops_per_cycle=33.0), compute("fp64", 110e9),
            compute("fp32", 330e9, problem={"pattern": "fma_add"}),
            latency("L1", 1.2e-9, "huge"), latency("L3", 14e-9, "huge"), latency("L3", 21e-9, "small"),
            latency("DRAM", 98e-9, "huge"), latency("DRAM", 131e-9, "small"),
        ),
        empirical=(
            sweep("DRAM", 38e9, 3.1, burst=around(220e9), sustained=load), sweep("L3", 200e9, 4.0, seed=1),
            sweep("L2", 430e9, 6.0, seed=2), sweep("L1", 880e9, 2.0, seed=3), sweep("DRAM", 38e9, peak=109e9, dtype="fp64"),
        ),
        curves=(steps("read", 1.0, 2, 0), steps("copy", 0.7, 2, 1), steps("read", 0.5, 1, 2)),
    )  # fmt: skip


def throttled() -> Machine:
    """A GPU whose clock falls near the knee, with a datasheet above what was measured."""
    swept = sweep("DRAM", 852e9, 20.0, peak=56e12, threads=0, isa="", clock=lambda x: 1.0 if x <= 32 else max(0.53, 32 / x))
    sheet = Ceiling(probe="fma", dtype="fp32", samples=(90.5e12,), source="datasheet")
    measured = Ceiling(probe="stream", level="DRAM", access="read", samples=(850e9,))
    return Machine(name="Example GPU", device="cuda:0", ceilings=(sheet, measured), empirical=(swept,))


def partial() -> Machine:
    """Sweeps that cannot be fitted: one roof only, and too few points."""
    short = sweep("DRAM", 38e9)
    return dataclasses.replace(
        zen(), empirical=(dataclasses.replace(short, points=short.points[:10]), sweep("L2", 430e9, n=4, status="contended"))
    )


FUNCTIONS: dict[str, tuple[Callable[..., Axes], Callable[..., list[dict[str, Any]]]]] = {
    "empirical": (plot.empirical, plot.empirical_data),
    "size_curve": (plot.size_curve, plot.size_curve_data),
    "latency": (plot.latency, plot.latency_data),
}
EACH = pytest.mark.parametrize("name", list(FUNCTIONS))
PICTURES: dict[str, Callable[[], Axes]] = {
    "all levels": lambda: plot.empirical(zen()),
    "one level": lambda: plot.empirical(zen(), level="DRAM"),
    "fp64": lambda: plot.empirical(zen(), dtype="fp64"),
    "throttled": lambda: plot.empirical(throttled()),
    "partial": lambda: plot.empirical(partial()),
    "sizes": lambda: plot.size_curve(zen()),
    "one size curve": lambda: plot.size_curve(zen(), access="copy"),
    "latency": lambda: plot.latency(zen()),
}
EACH_PICTURE = pytest.mark.parametrize("make", list(PICTURES.values()), ids=list(PICTURES))


def lines(ax: Axes, start: str) -> list[Any]:
    return [line for line in ax.lines if str(line.get_gid() or "").startswith(start)]


def data(line: Any) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def words(ax: Axes, start: str) -> list[str]:
    return [text.get_text() for text in ax.texts if str(text.get_gid() or "").startswith(start)]


def footer(ax: Axes) -> str:
    return " ".join(words(ax, "footer")[0].split())


# -- the measured roofline ------------------------------------------------------------------------------------------------


def test_the_measured_roofline() -> None:
    ax = plot.empirical(zen())
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_xlabel() == "Arithmetic intensity [FLOP/byte]" and ax.get_ylabel() == "Performance [GFLOP/s]"
    assert ax.get_title(loc="left") == "Measured roofline of AMD EPYC 9R14, fp32"
    sweeps = zen().empirical[:4]
    for index, e in enumerate(sweeps, start=1):
        (drawn,) = lines(ax, f"points {index}")
        assert data(drawn) == [(p.intensity_flops_per_byte, p.summary.median) for p in e.points]
        (knee,) = lines(ax, f"knee {index}")
        ((x, y),) = data(knee)
        assert e.fit.knee is not None and e.fit.knee_efficiency is not None and e.fit.peak is not None
        assert x == e.fit.knee.value and y == pytest.approx(e.fit.knee_efficiency * e.fit.peak.value)
        (curve,) = lines(ax, f"fit {index}")
        assert (x, pytest.approx(y)) in data(curve)  # the curve goes through its knee
        assert {drawn.get_markeredgecolor(), curve.get_color()} == {style.SWEEP_COLOURS[e.level]}
    first = words(ax, "knee 1")[0]
    assert first.startswith("DRAM read knee 5.7") and "], p = 3.1 [" in first
    assert len({line.get_marker() for line in lines(ax, "points")}) == 4
    assert "not shown: 1 more, of fp64 with 2 threads" in footer(ax)
    assert "β 38.0 [37." in footer(ax) and "residual 0." in footer(ax)


def test_ceilings_theory_and_sustained() -> None:
    ax = plot.empirical(zen())
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
    assert sorted(words(ax, "label ")) == sorted(roofs)


def test_knee_labels_rise_to_the_right_and_no_leader_crosses_one() -> None:
    ax = plot.empirical(zen())
    ax.figure.draw_without_rendering()
    found = sorted(
        (next(data(line)[0][0] for line in lines(ax, f"knee {i}")), text.get_window_extent())
        for i in range(1, 5)
        for text in ax.texts
        if text.get_gid() == f"knee {i}"
    )
    assert [box.y0 for _, box in found] == sorted(box.y0 for _, box in found)
    for (x, own), (_, other) in itertools.permutations(found, 2):
        pixel = ax.transData.transform((x, 1.0))[0]
        assert not (other.x0 < pixel < other.x1 and other.y0 < own.y0), "a leader crosses a label"


def test_bars_are_the_intervals() -> None:
    ax = plot.empirical(zen(), dtype="fp64")
    (e,) = (e for e in zen().empirical if e.dtype == "fp64")
    bars, knee = ax.containers
    segments = bars.lines[2][0].get_segments()
    expected = [[(p.intensity_flops_per_byte, p.summary.low), (p.intensity_flops_per_byte, p.summary.high)] for p in e.points]
    assert np.array(segments) == pytest.approx(np.array(expected))
    assert e.fit.knee is not None
    assert knee.lines[2][0].get_segments()[0][:, 0].tolist() == pytest.approx([e.fit.knee.low, e.fit.knee.high])


def test_a_throttled_sweep_shows_both_curves() -> None:
    ax = plot.empirical(throttled())
    (slow,) = lines(ax, "fit at clock 1")
    (points,) = lines(ax, "points 1")
    assert [y for _, y in data(slow)] == pytest.approx([y for _, y in data(points)], rel=0.03)
    assert data(lines(ax, "fit 1")[0])[-1][1] == pytest.approx(56e12, rel=0.02)
    assert "dotted: the fit at the clock of each point" in footer(ax) and "the clock falls to 1.82 GHz" in footer(ax)
    assert words(ax, "label fp32 90.5 TFLOP/s (datasheet)") and words(ax, "knee 1")[0].partition(", ")[2].partition(", ")[2]
    assert ax.get_ylabel() == "Performance [TFLOP/s]"
    assert not lines(plot.empirical(zen()), "fit at clock")


def test_what_cannot_be_fitted_is_drawn_and_said() -> None:
    ax = plot.empirical(partial())
    assert len(lines(ax, "points")) == 2 and len(lines(ax, "knee")) == 0
    (only,) = lines(ax, "fit 1")  # the one roof that it shows
    assert [y / x for x, y in data(only)] == pytest.approx([38e9] * len(data(only)), rel=0.02)
    assert lines(ax, "fit 2") == []
    assert words(ax, "name 1") == ["DRAM read"] and words(ax, "name 2") == ["L2 read"]
    assert "compute peak not identified: 0 of 10 points" in footer(ax) and "a fit needs 5 intensities or more, got 4" in footer(ax)


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


def test_the_data_of_the_measured_roofline() -> None:
    ax, records = plot.empirical(zen()), plot.empirical_data(zen())

    def coordinates(element: str, label: str = "") -> list[tuple[float, float]]:
        return [(r["flops_per_byte"], r["flops_per_s"]) for r in records if r["element"] == element and label in r["label"]]

    assert coordinates("point") == [at for line in lines(ax, "points") for at in data(line)]
    assert coordinates("fit", "L2") == data(lines(ax, "fit 3")[0])
    assert coordinates("knee") == [data(line)[0] for line in lines(ax, "knee")]
    drawn = [at for line in lines(ax, "roof ") for at in data(line)]
    assert sorted(drawn) == sorted(coordinates("measured_roof") + coordinates("theoretical_roof") + coordinates("sustained_roof"))
    assert len(coordinates("sustained")) == 0 + sum(r["element"] == "sustained" for r in records) == 20
    parameters = {r["label"]: r for r in records if r["element"] == "parameter" and r["level"] == "L1"}
    fitted = zen().empirical[3].fit
    assert fitted.peak is not None and fitted.p is not None
    assert [parameters["peak"][key] for key in ("value", "low", "high")] == [fitted.peak.value, fitted.peak.low, fitted.peak.high]
    assert parameters["p"]["value"] == fitted.p.value
    notes = [r["label"] for r in records if r["element"] == "note"]
    assert all(note.split()[0] in footer(ax) for note in notes)
    sharp = [r for r in plot.empirical_data(throttled()) if r["label"] == "p"]
    assert sharp[0]["high"] is None and sharp[0]["low"] > 1


# -- size curves ----------------------------------------------------------------------------------------------------------


def test_size_curves() -> None:
    ax = plot.size_curve(zen())
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_xlabel() == "Working set of all threads" and ax.get_ylabel() == "Bandwidth [GB/s]"
    for index, c in enumerate(zen().curves, start=1):
        (drawn,) = lines(ax, f"curve {index}")
        assert data(drawn) == [(p.size_bytes, p.summary.median) for p in c.points]
        bars = lines(ax, f"plateau {index}")
        assert [data(bar) for bar in bars] == [[(p.from_bytes, p.value), (p.to_bytes, p.value)] for p in c.plateaus(zen().facts)]
        assert words(ax, f"name {index}") == [c.name]
    labels = words(ax, "plateau")
    assert len(labels) == 12 and sum(label.startswith("L2 4") for label in labels) == 1
    assert [data(line)[0][0] for line in lines(ax, "cache")] == [64 * KIB, 2 * MIB, 32 * MIB]
    assert words(ax, "cache") == ["L1 64 KiB", "L2 2 MiB", "L3 32 MiB"]
    # Access by colour and marker, threads by dashes.
    read, copy, one = (lines(ax, f"curve {index}")[0] for index in (1, 2, 3))
    assert read.get_color() == one.get_color() != copy.get_color() and read.get_marker() != copy.get_marker()
    assert one.is_dashed() and not read.is_dashed()


def test_sizes_are_powers_of_two_in_words() -> None:
    ax = plot.size_curve(zen())
    ax.figure.draw_without_rendering()
    low, high = ax.get_xlim()
    ticks = [label.get_text() for label in ax.xaxis.get_ticklabels() if low <= label.get_position()[0] <= high]
    assert ticks == ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB"]


def test_one_curve_and_none() -> None:
    ax = plot.size_curve(zen(), access="read", threads=1)
    assert len(lines(ax, "curve")) == 1
    assert [data(line)[0][0] for line in lines(ax, "cache")] == [32 * KIB, MIB, 32 * MIB]  # of one thread
    with pytest.raises(Error, match="no size curve to draw there .measured: read avx2, 2 threads; copy avx2"):
        plot.size_curve(zen(), access="triad")
    assert len(plt.get_fignums()) == 1


def test_equal_notes_are_said_once() -> None:
    small = dataclasses.replace(zen(), facts={**zen().facts, "l3_bytes": 128 * MIB})
    text = footer(plot.size_curve(small))
    assert text.count("reported L3 128 MiB, but its bandwidth holds only up to") == 1
    assert "read avx2, 2 threads; copy avx2, 2 threads; read avx2, 1 thread: reported L3" in text


def test_the_data_of_size_curves() -> None:
    ax, records = plot.size_curve(zen()), plot.size_curve_data(zen())
    points = [(r["size_bytes"], r["bytes_per_s"]) for r in records if r["element"] == "point"]
    assert points == [at for line in lines(ax, "curve") for at in data(line)]
    bars = [[(r["size_bytes"], r["bytes_per_s"]), (r["to_bytes"], r["bytes_per_s"])] for r in records if r["element"] == "plateau"]
    assert bars == [data(bar) for bar in lines(ax, "plateau")]
    assert [(r["level"], r["size_bytes"]) for r in records if r["element"] == "cache"] == [
        ("L1", 64 * KIB), ("L2", 2 * MIB), ("L3", 32 * MIB),
    ]  # fmt: skip
    assert all(r["low"] <= r["bytes_per_s"] <= r["high"] for r in records if r["element"] in ("point", "plateau"))


# -- latencies ------------------------------------------------------------------------------------------------------------


def test_latencies() -> None:
    ax = plot.latency(zen())
    assert ax.get_ylabel() == "Latency [ns]" and ax.get_yscale() == "log"
    ax.figure.draw_without_rendering()
    assert [label.get_text() for label in ax.xaxis.get_ticklabels()] == ["L1", "L3", "DRAM"]
    dots = [data(line)[0] for line in lines(ax, "latency")]
    assert dots == [(1, 1.2e-9), (2, 14e-9), (2, 21e-9), (3, 98e-9), (3, 131e-9)]
    assert words(ax, "name") == [
        "1.20 ns, 4.1 cycles", "14.0 ns, 48 cycles", "21.0 ns, 72 cycles, 4 KiB pages", "98.0 ns, 337 cycles",
        "131 ns, 451 cycles, 4 KiB pages",
    ]  # fmt: skip
    hollow = [line.get_markerfacecolor() == "white" for line in lines(ax, "latency")]
    assert hollow == [False, False, True, False, True]
    ticks = [t.get_text() for t in ax.yaxis.get_ticklabels() if ax.get_ylim()[0] <= t.get_position()[1] <= ax.get_ylim()[1]]
    assert ticks == ["1", "10", "100"]
    records = plot.latency_data(zen())
    assert [(r["level"], r["time_s"]) for r in records] == [(level, y) for level, (_, y) in zip(
        ("L1", "L3", "L3", "DRAM", "DRAM"), dots, strict=True)]  # fmt: skip
    assert records[0]["cycles"] == pytest.approx(1.2e-9 * CLOCK)
    with pytest.raises(Error, match="bare has no load latency to draw: measure pointer_chase"):
        plot.latency(Machine(name="bare"))


# -- readable, all of them ------------------------------------------------------------------------------------------------


def boxes(ax: Axes) -> list[tuple[str, Any]]:
    ax.figure.draw_without_rendering()
    texts = [*ax.texts, ax.xaxis.label, ax.yaxis.label, ax._left_title]
    return [(text.get_text(), text_corners(text)) for text in texts if text.get_text()]


@EACH_PICTURE
def test_labels_overlap_no_other_and_no_point_and_are_inside(make: Callable[[], Axes]) -> None:
    ax = make()
    found = boxes(ax)
    for (one, a), (other, b) in itertools.combinations(found, 2):
        assert not overlap(a, b), f"{one!r} and {other!r}"
    drawn = [at for start in ("points", "knee", "curve", "latency") for line in lines(ax, start) for at in data(line)]
    points = np.array([ax.transData.transform(at) for at in drawn])
    assert [text for text, corners in found if contains(corners, points).any()] == []
    for dpi in (60, 100, 200):
        ax.figure.set_dpi(dpi)
        ax.figure.draw_without_rendering()
        inside = ax.figure.bbox
        low, high = ax.get_xlim()
        ticks = [label for label in ax.xaxis.get_ticklabels() if low <= label.get_position()[0] <= high]
        for artist in (ax._left_title, ax.xaxis.label, ax.yaxis.label, *ticks, *ax.texts):
            box = artist.get_window_extent()
            assert box.x0 >= inside.x0 and box.x1 <= inside.x1 and box.y0 >= inside.y0 and box.y1 <= inside.y1, (dpi, artist)


def lightness(colour: str) -> float:
    """L* of CIE 1976 of an sRGB colour, 0 to 100."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mpl.colors.to_rgb(colour)]
    luminance = sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return float(116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance)


def test_colours_are_dark_enough_and_markers_differ() -> None:
    for colours, markers in ((style.SWEEP_COLOURS, style.SWEEP_MARKERS), (style.ACCESS_COLOURS, style.ACCESS_MARKERS)):
        assert colours.keys() == markers.keys()
        assert all(lightness(colour) <= 60 for colour in colours.values())  # text is written in them
        apart = {name for name in colours if name not in MEMORIES[1:]}  # a machine has one kind of memory
        assert len(set(colours.values())) == len(set(markers.values())) == len(apart)


# -- being a good guest, and files ----------------------------------------------------------------------------------------


@EACH
def test_given_axes_are_drawn_on(name: str) -> None:
    draw, _ = FUNCTIONS[name]
    figure, axes = plt.subplots(1, 2, figsize=(15, 6), layout="constrained")
    size = figure.get_size_inches().tolist()
    assert draw(zen(), ax=axes[1]) is axes[1]
    assert plt.get_fignums() == [figure.number] and figure.get_size_inches().tolist() == size
    assert axes[0].lines[:] == [] and len(axes[1].lines) > 4
    assert draw(zen(), ax=Figure().add_subplot()).lines  # and on a figure that pyplot does not know


@EACH
def test_records_are_a_table(name: str) -> None:
    records = FUNCTIONS[name][1](zen())
    assert len({tuple(record) for record in records}) == 1  # all with the same keys
    assert all(value is None or isinstance(value, (bool, int, float, str)) for record in records for value in record.values())


@EACH
def test_a_machine_without_them(name: str) -> None:
    for function in FUNCTIONS[name]:
        with pytest.raises(Error, match="bare has no"):
            function(Machine(name="bare"))
    assert plt.get_fignums() == []


@EACH
def test_without_matplotlib_there_are_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Error, match="plots need matplotlib"):
        FUNCTIONS[name][0](zen())
    assert FUNCTIONS[name][1](zen())


@EACH
def test_saved_files(name: str, tmp_path: Path) -> None:
    save, before = getattr(plot, f"save_{name}"), dict(mpl.rcParams)
    paths = save(zen(), tmp_path / "new")
    assert [path.name for path in paths] == [f"{name}.svg", f"{name}.png", f"{name}.csv"]
    assert ElementTree.parse(paths[0]).getroot().tag.endswith("svg")
    with open(paths[2], newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(FUNCTIONS[name][1](zen()))
    # From a saved machine the same picture, byte for byte.
    zen().save(tmp_path / "machine.json")
    again = save(Machine.load(tmp_path / "machine.json"), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]
    assert plt.get_fignums() == [] and dict(mpl.rcParams) == before
