"""The roofline plot: what is on the Axes, and that no two labels overlap."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the plot needs matplotlib")

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.image
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline import plot
from roofline.errors import Error
from roofline.machine import Ceiling, Machine
from roofline.plot import style
from roofline.plot.labels import contains, overlap, rectangle, rotated, text_corners
from roofline.results import Bracket, Measurement, Results, append_to

pytestmark = pytest.mark.usefixtures("nothing_is_shown")

SPREAD = (0.995, 1.0, 1.0, 1.004, 1.002, 0.998, 1.001, 0.999, 1.003, 1.0)

ELEMENTS = {"L1": 1 << 12, "L2": 1 << 17, "L3": 1 << 22, "DRAM": 1 << 26}  # of the probes


def around(value: float) -> tuple[float, ...]:
    return tuple(value * s for s in SPREAD)


def bandwidth(level: str, access: str, value: float, variant: str = "plain", **more: object) -> Ceiling:
    problem = {"operator": "stream", "access": access, "elements": ELEMENTS[level], "dtype": "fp32"}
    return Ceiling(
        probe="stream", level=level, access=access, variant=variant, threads=2, samples=around(value), problem=problem, **more
    )


def compute(dtype: str, isa: str, value: float, **more: object) -> Ceiling:
    return Ceiling(
        probe="fma", dtype=dtype, accumulator=dtype, isa=isa, threads=2, samples=around(value), clock_hz=3.44e9,
        problem={"operator": "fma", "dtype": dtype}, **more,
    )  # fmt: skip


def zen() -> Machine:
    return Machine(
        name="AMD EPYC 9R14",
        device="cpu",
        created_utc="2026-11-20T10:15:00Z",
        facts={"threads": 2, "l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20},
        ceilings=(
            bandwidth("L1", "read", 880e9),
            bandwidth("L2", "read", 430e9),
            bandwidth("L3", "read", 200e9),
            bandwidth("DRAM", "read", 38e9),
            bandwidth("DRAM", "copy", 36e9),
            bandwidth("DRAM", "copy", 50e9, "non_temporal"),
            compute("fp32", "avx2", 220e9),
            compute("fp64", "avx2", 110e9),
            compute("fp32", "scalar", 14e9),
            Ceiling(probe="launch", threads=2, samples=around(3.4e-6), problem={"operator": "fork_join"}),
        ),
    )


def point(
    operator: str,
    variant: str,
    flops: int,
    moved: int,
    share: float,
    *,
    roof: float = 0.0,
    access: str = "read",
    dtype: str = "fp32",
    status: str = "ok",
    **problem: object,
) -> Measurement:
    """A measurement that reaches `share` of its limiting roof (of the machine's own value unless `roof` is given)."""
    peak = {"fp32": 220e9, "fp64": 110e9}.get(dtype, 220e9)
    memory = {"read": 38e9, "copy": 50e9}[access]
    if flops / peak > moved / memory:
        rate = roof or peak
        bracket = Bracket(label=f"{dtype} avx2", kind="compute", before_samples=(rate,), after_samples=(rate,))
        time_s = flops / rate / share
    else:
        rate = roof or memory
        source = {"operator": "stream", "access": access, "elements": ELEMENTS["DRAM"], "dtype": "fp32"}
        label = f"DRAM {access}"
        variant_ = "non_temporal" if access == "copy" else "plain"
        bracket = Bracket(
            label=label,
            kind="bandwidth",
            level="DRAM",
            problem=source,
            variant=variant_,
            before_samples=(rate,),
            after_samples=(rate,),
        )
        time_s = moved / rate / share
    return Measurement(
        operator=operator,
        problem={**problem, "dtype": dtype},
        variant=variant,
        device="cpu",
        threads=2,
        cache_state="cold",
        status=status,
        samples_s=around(time_s),
        flops={"all": flops},
        bytes={"compulsory": moved},
        level="DRAM",
        brackets=(bracket,),
    )


def decode(batch: int, seq: int, share: float, **more: object) -> Measurement:
    heads, dim = 8, 64
    flops, moved = 4 * batch * heads * seq * dim + 5 * batch * heads * seq, 2 * batch * heads * seq * dim * 4
    return point("attention", "split_kv", flops, moved, share, batch=batch, seq_q=1, seq_kv=seq, **more)


def prefill(seq: int, share: float, variant: str = "tiled", extra: int = 0, **more: object) -> Measurement:
    heads, dim = 8, 64
    moved = 4 * heads * seq * dim * 4 + extra * heads * seq * seq * 4
    return point("attention", variant, 4 * heads * seq * seq * dim, moved, share, batch=1, seq_q=seq, seq_kv=seq, **more)


def matmul(rows: int, share: float, **more: object) -> Measurement:
    size = 4 if more.get("dtype", "fp32") == "fp32" else 8
    return point("matmul", "library", 2 * rows * 4096 * 4096, size * (2 * rows * 4096 + 4096 * 4096), share, rows=rows, **more)


def softmax(rows: int, share: float, **more: object) -> Measurement:
    return point("softmax", "tiled", 4 * rows * 4096, 2 * rows * 4096 * 4, share, access="copy", rows=rows, columns=4096, **more)


def few() -> list[Measurement]:
    return [decode(8, 4096, 0.94), prefill(2048, 0.61), prefill(2048, 0.38, "naive", 4), matmul(512, 0.88), softmax(8192, 0.81)]


def twenty() -> list[Measurement]:
    return [
        *few(),
        *(decode(batch, 8192, share) for batch, share in ((1, 0.72), (4, 0.9), (16, 0.96), (64, 0.97))),
        *(prefill(seq, share) for seq, share in ((256, 0.41), (512, 0.5), (1024, 0.57), (4096, 0.63))),
        matmul(1, 0.95),
        matmul(8, 0.9),
        matmul(64, 0.74),
        matmul(512, 0.9, dtype="fp64"),
        decode(2, 1024, 1.31, status="implausible"),
        softmax(64, 0.47),
        prefill(1024, 0.33, "naive", 4, roof=29e9),
    ]


def thirty() -> list[Measurement]:
    layer = [
        point("rms_norm", "tiled", 4 * n * 2048, 2 * n * 2048 * 4, 0.7 + n / 2**16, access="copy", rows=n, columns=2048)
        for n in (256, 1024, 4096, 8192)
    ]
    mlp = [
        point("ffn", "library", 6 * n * 2048 * 8192, 4 * 3 * 2048 * 8192 + 8 * n * 2048, 0.8, rows=n, d_model=2048)
        for n in (1, 4, 16, 64, 128, 256)
    ]
    return [*twenty(), *layer, *mlp]


def named(ax: Axes, gid: str) -> Line2D:
    """The one line of this gid."""
    (found,) = [line for line in ax.lines if line.get_gid() == gid]
    return found


def all_named(ax: Axes, start: str) -> list[Line2D]:
    return [line for line in ax.lines if str(line.get_gid() or "").startswith(start)]


def words(ax: Axes, gid: str) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_gid() == gid]


def data(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def footer(ax: Axes) -> str:
    return " ".join(words(ax, "footer")[0].split())


def lightness(colour: str) -> float:
    """L* of CIE 1976 of an sRGB colour, 0 to 100: what is left of it in grey."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    luminance = sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return float(116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance)


# -- axes and lines -------------------------------------------------------------------------------------------------------


def test_axes() -> None:
    ax = plot.roofline(zen(), few())
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_xlabel() == "Arithmetic intensity [FLOP/byte]"
    assert ax.get_ylabel() == "Performance [GFLOP/s]"
    assert ax.get_title(loc="left") == "Roofline of AMD EPYC 9R14"
    assert footer(ax).startswith("AMD EPYC 9R14 (cpu) · 2 threads · 2026-11-20 10:15 UTC · clock 3.44 GHz · points measured cold")
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    # Everything drawn lies inside: intensities from 0.25 (the L1 ridge) to 512 (the largest attention), the roof of 220 GFLOP/s.
    assert left < 0.25 and right > 512 and high > 220e9
    points = [data(line)[0] for line in all_named(ax, "point ")]
    assert all(left < x < right and low < y < high for x, y in points)
    ax.figure.draw_without_rendering()
    ticks = [label.get_text() for label in ax.yaxis.get_ticklabels() if low <= label.get_position()[1] <= high]
    assert ticks == ["10", "100"]  # GFLOP/s, as the axis says


def test_the_unit_follows_the_machine() -> None:
    gpu = Machine(name="GPU", ceilings=(bandwidth("DRAM", "read", 3.3e12), compute("bf16", "", 691e12)))
    assert plot.roofline(gpu).get_ylabel() == "Performance [TFLOP/s]"


@pytest.mark.parametrize(
    ("label", "rate", "end"),
    [
        ("L1 read 880 GB/s", 880e9, 0.25),
        ("L2 read 430 GB/s", 430e9, 220 / 430),
        ("L3 read 200 GB/s", 200e9, 1.1),
        ("DRAM read 38.0 GB/s", 38e9, 220 / 38),
        ("DRAM copy NT 50.0 GB/s", 50e9, 4.4),
    ],
)
def test_sloped_lines_stop_at_the_highest_roof(label: str, rate: float, end: float) -> None:
    ax = plot.roofline(zen(), few())
    (x0, y0), (x1, y1) = data(named(ax, f"roof {label}"))
    assert (x1, y1) == pytest.approx((end, 220e9))
    assert y0 / x0 == pytest.approx(rate) and x0 < 0.2
    assert words(ax, f"label {label}") == [label]


@pytest.mark.parametrize(
    ("label", "rate"), [("fp32 avx2 220 GFLOP/s", 220e9), ("fp64 avx2 110 GFLOP/s", 110e9), ("fp32 scalar 14.0 GFLOP/s", 14e9)]
)
def test_flat_lines_start_at_their_elbow(label: str, rate: float) -> None:
    ax = plot.roofline(zen(), few())
    (x0, y0), (x1, y1) = data(named(ax, f"roof {label}"))
    assert (x0, y0, y1) == pytest.approx((rate / 880e9, rate, rate))  # on the fastest slope
    assert x1 == ax.get_xlim()[1]
    assert words(ax, f"label {label}") == [label]


def test_ridge_points() -> None:
    ax = plot.roofline(zen(), few())
    expected = {(220 / 38, 220e9), (110 / 38, 110e9), (0.25, 220e9), (220 / 430, 220e9), (1.1, 220e9)}
    found = data(named(ax, "ridge points"))
    assert sorted(found) == [pytest.approx(ridge) for ridge in sorted(expected)]
    assert sorted(words(ax, "ridge")) == ["0.250", "0.512", "1.10", "2.89", "5.79"]


def test_regions_split_at_the_ridge() -> None:
    ax = plot.roofline(zen(), few())
    texts = {text.get_text(): text.get_position()[0] for text in ax.texts if str(text.get_gid()).startswith("region")}
    assert texts["memory-bound"] < 220 / 38 < texts["compute-bound"]
    shades = [path for collection in ax.collections for path in collection.get_paths()]
    left, right = sorted(shades, key=lambda path: float(path.vertices[:, 0].min()))
    assert left.vertices[:, 0].max() == right.vertices[:, 0].min() == pytest.approx(220 / 38)
    # Of fp64 points, at theirs.
    ax = plot.roofline(zen(), [matmul(512, 0.9, dtype="fp64")])
    edges = [path.vertices[:, 0].min() for collection in ax.collections for path in collection.get_paths()]
    assert max(edges) == pytest.approx(110 / 38)


def test_labels_run_along_their_lines() -> None:
    ax = plot.roofline(zen(), few())
    figure = ax.figure
    for size in (figure.get_size_inches(), (12.0, 4.0)):
        figure.set_size_inches(*size)
        (x0, y0), (x1, y1) = ax.transData.transform(data(named(ax, "roof L1 read 880 GB/s")))
        (text,) = [text for text in ax.texts if text.get_gid() == "label L1 read 880 GB/s"]
        assert text.get_rotation() == pytest.approx(math.degrees(math.atan2(y1 - y0, x1 - x0)), abs=1e-6)


def test_a_bimodal_ceiling_is_drawn_twice() -> None:
    moving = dataclasses.replace(bandwidth("DRAM", "read", 1.0), samples=(101e9, 50e9) * 5)
    ax = plot.roofline(Machine(name="m", ceilings=(moving, compute("fp32", "avx2", 200e9))))
    fast, slow = named(ax, "roof DRAM read 101 GB/s (50 % of samples)"), named(ax, "roof DRAM read 50.0 GB/s (50 % of samples)")
    assert [y / x for x, y in data(fast)] == pytest.approx([101e9] * 2)
    assert [y / x for x, y in data(slow)] == pytest.approx([50e9] * 2)
    assert not fast.is_dashed() and slow.is_dashed()
    assert fast.get_linewidth() > slow.get_linewidth()


def test_datasheet_numbers_are_dashed_and_thin() -> None:
    stated = dataclasses.replace(bandwidth("DRAM", "read", 60e9), source="datasheet", samples=(60e9,))
    peak = dataclasses.replace(compute("fp32", "", 300e9), source="datasheet", samples=(300e9,))
    machine = zen()
    ax = plot.roofline(dataclasses.replace(machine, ceilings=(*machine.ceilings, stated, peak)))
    for theory, measured in (
        ("roof DRAM read 60.0 GB/s (datasheet)", "roof DRAM read 38.0 GB/s"),
        ("roof fp32 300 GFLOP/s (datasheet)", "roof fp32 avx2 220 GFLOP/s"),
    ):
        assert named(ax, theory).is_dashed() and not named(ax, measured).is_dashed()
        assert named(ax, theory).get_linewidth() < named(ax, measured).get_linewidth()
    # Ridge points are those of what was measured.
    assert "5.79" in words(ax, "ridge")


def test_ceilings_that_cannot_be_are_not_drawn() -> None:
    machine = zen()
    wrong = dataclasses.replace(compute("fp32", "x", 9e12), status="implausible")
    ax = plot.roofline(dataclasses.replace(machine, ceilings=(*machine.ceilings, wrong)))
    assert not [line for line in all_named(ax, "roof ") if " x " in line.get_gid()]


# -- points ---------------------------------------------------------------------------------------------------------------


def test_points_by_hand() -> None:
    ax = plot.roofline(zen(), few())
    # Prefill 2048: 4·8·2048²·64 FLOP over 4·8·2048·64·4 bytes are 512 FLOP/byte; 61 % of 220 GFLOP/s (medians of `around` are 1).
    assert data(named(ax, "point 2"))[0] == pytest.approx((512.0, 0.61 * 220e9), rel=2e-3)
    # Softmax: 4 FLOP per element of 8 bytes moved; 81 % of 50 GB/s.
    assert data(named(ax, "point 5"))[0] == pytest.approx((0.5, 0.81 * 0.5 * 50e9), rel=2e-3)
    # The gap runs from the point up to the tick at its bracket.
    assert data(named(ax, "gap 5")) == [data(named(ax, "point 5"))[0], data(named(ax, "tick 5"))[0]]
    assert data(named(ax, "tick 5"))[0] == pytest.approx((0.5, 25e9))
    assert data(named(ax, "tick 2"))[0] == pytest.approx((512.0, 220e9))


def test_marker_is_the_operator_and_colour_the_dtype() -> None:
    ax = plot.roofline(zen(), [*few(), matmul(64, 0.5, dtype="fp64")])
    attention, softmax_, single, double = (named(ax, f"point {index}") for index in (1, 5, 4, 6))
    assert len({attention.get_marker(), softmax_.get_marker(), single.get_marker()}) == 3
    assert named(ax, "point 2").get_marker() == attention.get_marker()
    assert single.get_marker() == double.get_marker()
    assert attention.get_markerfacecolor() == single.get_markerfacecolor() != double.get_markerfacecolor()
    # And the colour is that of the dtype's roof.
    assert to_hex(named(ax, "roof fp64 avx2 110 GFLOP/s").get_color()) == to_hex(double.get_markerfacecolor())
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["attention fp32", "matmul fp32", "softmax fp32", "matmul fp64"]
    handles = legend.legend_handles
    assert [h.get_marker() for h in handles] == [line.get_marker() for line in (attention, single, softmax_, double)]


def test_names_and_percentages() -> None:
    ax = plot.roofline(zen(), few())
    assert [words(ax, f"name {index}") for index in range(1, 6)] == [
        ["attention split_kv batch=8 seq_q=1 seq_kv=4096  94 %"],
        ["attention tiled batch=1 seq_q=2048 seq_kv=2048  61 %"],
        ["attention naive batch=1 seq_q=2048 seq_kv=2048  38 %"],
        ["matmul library  88 %"],
        ["softmax tiled  81 %"],
    ]


@pytest.mark.parametrize(
    ("roof", "shares"),
    [
        (19e9, "80 % (40 % of ceiling)"),  # the bracket stood at half the machine's 38 GB/s
        (76e9, "80 % (160 % of ceiling)"),
        (37e9, "80 %"),  # 2.6 % apart
        (40e9, "80 % (84 % of ceiling)"),  # 5.3 %
    ],
)
def test_both_shares_where_bracket_and_ceiling_differ(roof: float, shares: str) -> None:
    (found,) = words(plot.roofline(zen(), [decode(8, 4096, 0.8, roof=roof)]), "name 1")
    assert found == f"attention split_kv  {shares}"


def test_a_point_without_a_bracket_is_held_against_the_ceiling() -> None:
    bare = dataclasses.replace(softmax(8192, 0.5), brackets=())
    ax = plot.roofline(zen(), [bare])
    # 0.5 FLOP/byte at half of 50 GB/s; the machine's DRAM read is 38 GB/s: 25 of 38.
    assert words(ax, "name 1") == ["softmax tiled  66 % of ceiling"]
    assert data(named(ax, "tick 1"))[0] == pytest.approx((0.5, 19e9))


@pytest.mark.parametrize(("share", "status", "hollow"), [(1.31, "implausible", True), (1.31, "ok", True), (1.02, "ok", False)])
def test_implausible_points_are_hollow_and_listed(share: float, status: str, hollow: bool) -> None:
    ax = plot.roofline(zen(), [decode(2, 1024, share, status=status)])
    drawn = named(ax, "point 1")
    assert (to_hex(drawn.get_markerfacecolor()) == "#ffffff") == hollow
    assert ("implausible (hollow" in footer(ax)) == hollow
    if hollow:
        assert "131 %" in footer(ax)
        assert to_hex(drawn.get_markeredgecolor()) != "#ffffff"


def test_no_point_leaves_the_picture() -> None:
    """Whatever it claims: 50 times its roof, or a bracket of 40 times the ceiling."""
    ax = plot.roofline(zen(), [matmul(512, 50.0), matmul(256, 0.5, roof=40 * 220e9)])
    low, high = ax.get_ylim()
    for gid in ("point 1", "point 2", "tick 2"):
        assert low < data(named(ax, gid))[0][1] < high


def test_other_states_are_listed() -> None:
    ax = plot.roofline(zen(), [decode(2, 1024, 0.9, status="roof_moved"), softmax(64, 0.5, status="contended")])
    assert "roof moved" in footer(ax) and "contended" in footer(ax)
    assert len(all_named(ax, "point ")) == 2


def test_what_was_not_timed_is_listed() -> None:
    gone = dataclasses.replace(softmax(64, 0.5), status="unsupported", reason="no kernel for fp16", samples_s=(), brackets=())
    ax = plot.roofline(zen(), [gone, matmul(64, 0.5)])
    assert "softmax tiled: unsupported (no kernel for fp16)" in footer(ax)
    assert len(all_named(ax, "point ")) == 1


def test_what_has_no_flops_is_listed() -> None:
    copy = dataclasses.replace(softmax(64, 0.9), operator="stream", variant="plain", flops={"copy": 0})
    ax = plot.roofline(zen(), [copy])
    assert "stream plain: no FLOPs, so no place on logarithmic axes" in footer(ax) and "90 % of its bracket" in footer(ax)
    assert all_named(ax, "point ") == []


def test_a_dtype_without_a_roof_gets_a_note_and_stays() -> None:
    ax = plot.roofline(zen(), [softmax(64, 0.5, dtype="bf16")])
    assert "bf16 has no compute roof here; its points are drawn" in footer(ax)
    assert len(all_named(ax, "point ")) == 1


def test_one_dtype() -> None:
    ax = plot.roofline(zen(), twenty(), dtype="fp64")
    assert [line.get_gid() for line in all_named(ax, "roof ") if "FLOP" in line.get_gid()] == ["roof fp64 avx2 110 GFLOP/s"]
    assert len(all_named(ax, "point ")) == 1
    assert "19 measurements of other dtypes than fp64 are not shown" in footer(ax)
    ax = plot.roofline(zen(), dtype="int8")
    assert "no int8 compute roof was measured" in footer(ax)
    assert all("GB/s" in line.get_gid() for line in all_named(ax, "roof "))


def test_wide_spreads_get_error_bars() -> None:
    calm, wild = matmul(64, 0.5), matmul(512, 0.5)
    wild = dataclasses.replace(wild, samples_s=tuple(wild.time_s * s for s in (0.8, 0.9, 1.0, 1.1, 1.25)))  # type: ignore[operator]
    ax = plot.roofline(zen(), [calm, wild])
    (bars,) = ax.containers
    (segment,) = bars.lines[2][0].get_segments()
    # From the 95th to the 5th percentile of the times: 1.22 and 0.82 of the median.
    y = data(named(ax, "point 2"))[0][1]
    assert segment[:, 1].tolist() == pytest.approx([y / 1.22, y / 0.82])


def test_sweeps_are_joined_in_order() -> None:
    swept = [decode(batch, 8192, share) for batch, share in ((4, 0.72), (1, 0.9), (16, 0.96))]
    ax = plot.roofline(zen(), [*swept, softmax(64, 0.5), softmax(128, 0.5)])
    (joined,) = [line for line in ax.lines if line.get_label() == "_sweep"]
    assert data(joined) == [data(named(ax, f"point {index}"))[0] for index in (1, 2, 3)]
    two = [prefill(256, 0.4), prefill(512, 0.5), dataclasses.replace(prefill(1024, 0.6), threads=1)]
    assert not [line for line in plot.roofline(zen(), two).lines if line.get_label() == "_sweep"]


# -- legend and labels ----------------------------------------------------------------------------------------------------


def test_the_legend_of_many_points_is_outside() -> None:
    ax = plot.roofline(zen(), twenty())
    legend = ax.get_legend()
    texts = [text.get_text() for text in legend.get_texts()]
    assert len(texts) == 20
    assert texts[0] == "1  attention split_kv batch=8 seq_q=1 seq_kv=4096  94 %"
    assert texts[17] == "18  attention split_kv batch=2 seq_q=1 seq_kv=1024  131 %"
    assert words(ax, "name 18") == ["18"]
    ax.figure.draw_without_rendering()
    assert legend.get_window_extent().x0 > ax.bbox.x1
    few_ = plot.roofline(zen(), few())
    few_.figure.draw_without_rendering()
    assert few_.get_legend().get_window_extent().x1 < few_.bbox.x1
    assert plot.roofline(zen()).get_legend() is None


@pytest.mark.parametrize("make", [few, twenty])
def test_everything_is_inside_the_figure_at_any_resolution(make: Callable[[], list[Measurement]]) -> None:
    ax = plot.roofline(zen(), make())
    figure = ax.figure
    for dpi in (60, 80, 100, 200):
        figure.set_dpi(dpi)
        figure.draw_without_rendering()
        inside = figure.bbox
        for artist in (ax.get_legend(), ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.texts):
            box = artist.get_window_extent()
            assert box.x0 >= inside.x0 and box.x1 <= inside.x1 and box.y0 >= inside.y0 and box.y1 <= inside.y1, (dpi, artist)


def boxes(ax: Axes) -> list[tuple[str, Any]]:
    ax.figure.draw_without_rendering()
    texts = [*ax.texts, ax.xaxis.label, ax.yaxis.label, ax._left_title]
    found = [(text.get_text(), text_corners(text)) for text in texts if text.get_text()]
    legend = ax.get_legend()
    if legend is not None:
        box = legend.get_window_extent()
        found.append(("legend", rectangle(box.x0, box.y0, box.x1, box.y1)))
    return found


@pytest.mark.parametrize("make", [list, few, twenty, thirty])
def test_no_two_labels_overlap(make: Callable[[], list[Measurement]]) -> None:
    ax = plot.roofline(zen(), make())
    for (one, a), (other, b) in itertools.combinations(boxes(ax), 2):
        assert not overlap(a, b), f"{one!r} and {other!r}"


@pytest.mark.parametrize("make", [few, twenty])
def test_no_label_hides_a_point(make: Callable[[], list[Measurement]]) -> None:
    ax = plot.roofline(zen(), make())
    points = np.array([ax.transData.transform(data(line)[0]) for line in all_named(ax, "point ")])
    for text, corners in boxes(ax):
        assert not contains(corners, points).any(), text


def test_overlap_by_hand() -> None:
    square = rectangle(0, 0, 2, 2)
    assert overlap(square, rectangle(1, 1, 3, 3))
    assert overlap(square, rectangle(0.5, 0.5, 1, 1))  # inside
    assert not overlap(square, rectangle(2, 0, 4, 2))  # they touch
    assert not overlap(square, rectangle(3, 3, 4, 4))
    # A square turned by 45°, its left corner at 2 - √2 + 1.5: upright boxes would overlap, it does not.
    turned = rotated(rectangle(2.1, 2.1, 4.1, 4.1), (3.1, 3.1), 45)
    assert turned[:, 0].min() == pytest.approx(3.1 - math.sqrt(2))
    assert not overlap(square, turned)
    assert overlap(square, turned - 0.5)
    assert contains(square, np.array([(1.0, 1.0), (2.5, 1.0), (-0.1, 0.0)])).tolist() == [True, False, False]


# -- being a good guest ---------------------------------------------------------------------------------------------------


def test_given_axes_are_drawn_on() -> None:
    figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    before = figure.get_size_inches().tolist()
    assert plot.roofline(zen(), few(), ax=axes[1]) is axes[1]
    assert plt.get_fignums() == [figure.number]
    assert figure.get_size_inches().tolist() == before
    assert axes[0].lines[:] == [] and len(all_named(axes[1], "point ")) == 5


def test_axes_of_a_subfigure() -> None:
    left, _ = plt.figure(figsize=(14, 6), layout="constrained").subfigures(1, 2)
    ax = left.add_subplot()
    assert plot.roofline(zen(), few(), ax=ax) is ax
    assert len(all_named(ax, "point ")) == 5


def test_axes_of_a_figure_without_pyplot() -> None:
    ax = Figure().add_subplot()
    assert plot.roofline(zen(), few(), ax=ax) is ax
    assert plt.get_fignums() == []


def test_a_backend_stays_interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend of notebooks switches interactive mode on when its first figure is made, and shows figures only then."""
    figure = plt.figure

    def first(*given: Any, **named: Any) -> Any:
        mpl.interactive(True)
        return figure(*given, **named)

    assert not mpl.is_interactive()
    monkeypatch.setattr(plt, "figure", first)
    try:
        plt.close(plot.roofline(zen()).get_figure())
        assert mpl.is_interactive()
    finally:
        mpl.interactive(False)


def test_global_settings_are_untouched(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    plot.roofline(zen(), few())
    plot.save(zen(), None, tmp_path)
    assert dict(mpl.rcParams) == before


def test_the_style_of_the_caller_does_not_matter(tmp_path: Path) -> None:
    with mpl.rc_context({"font.size": 20.0, "axes.facecolor": "black"}):
        ax = plot.roofline(zen())
        assert to_hex(ax.get_facecolor()) == "#ffffff"


def test_a_machine_without_ceilings() -> None:
    with pytest.raises(Error, match="bare has no ceilings to draw: measure the machine first"):
        plot.roofline(Machine(name="bare"), few())
    assert plt.get_fignums() == []


def test_only_bandwidths_or_only_compute() -> None:
    memory = Machine(name="m", ceilings=(bandwidth("DRAM", "read", 38e9),))
    arithmetic = Machine(name="c", ceilings=(compute("fp32", "avx2", 220e9),))
    for machine in (memory, arithmetic):
        for given in ([], few()):
            ax = plot.roofline(machine, given)
            assert len(all_named(ax, "roof ")) == 1 and len(all_named(ax, "point ")) == len(given)
            assert words(ax, "ridge") == []


def test_without_matplotlib_a_plain_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Error, match="plots need matplotlib: `pip install matplotlib`, or use roofline_data"):
        plot.roofline(zen())
    assert plot.roofline_data(zen(), few())


def test_importing_the_module_does_not_import_matplotlib() -> None:
    program = "import sys, roofline.plot; assert not any(name.startswith('matplotlib') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


# -- files and data -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return plot.save(zen(), twenty(), tmp_path_factory.mktemp("saved") / "new" / "folder")


def test_saved_files_can_be_read(saved: tuple[Path, Path, Path]) -> None:
    svg, png, table = saved
    assert [path.name for path in (svg, png, table)] == ["roofline.svg", "roofline.png", "roofline.csv"]
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    image = mpl.image.imread(png)
    assert image.shape[0] > 900 and image.shape[1] > 1300 and image[..., :3].std() > 0.05
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    records = plot.roofline_data(zen(), twenty())
    assert [row["element"] for row in rows] == [record["element"] for record in records]
    for row, record in zip(rows, records, strict=True):
        for key in ("flops_per_byte", "flops_per_s", "share_of_bracket"):
            assert row[key] == ("" if record[key] is None else repr(record[key]))
    assert plt.get_fignums() == []


def test_the_same_data_from_files_give_the_same_picture(saved: tuple[Path, Path, Path], tmp_path: Path) -> None:
    zen().save(tmp_path / "machine.json")
    for m in twenty():
        append_to(tmp_path / "results.jsonl", m)
    again = plot.save(Machine.load(tmp_path / "machine.json"), Results.load(tmp_path / "results.jsonl"), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in saved]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Error, match="cannot make the folder"):
        plot.save(zen(), None, tmp_path / "file")


def test_the_data_match_the_picture() -> None:
    ax = plot.roofline(zen(), twenty())
    records = plot.roofline_data(zen(), twenty())
    assert len({tuple(record) for record in records}) == 1  # all with the same keys
    assert all(value is None or isinstance(value, (bool, int, float, str)) for record in records for value in record.values())

    def coordinates(*elements: str) -> list[tuple[float, float]]:
        return [(r["flops_per_byte"], r["flops_per_s"]) for r in records if r["element"] in elements]

    assert coordinates("memory_roof", "compute_roof") == [end for line in all_named(ax, "roof ") for end in data(line)]
    assert coordinates("ridge") == data(named(ax, "ridge points"))
    assert coordinates("measurement") == [data(line)[0] for line in all_named(ax, "point ")]
    ticks = [record["attainable_flops_per_s"] for record in records if record["element"] == "measurement"]
    assert ticks == [data(named(ax, f"tick {index}"))[0][1] for index in range(1, 21)]
    notes = [record["label"] for record in records if record["element"] == "note"]
    assert len(notes) == 1 and "attention split_kv" in notes[0]  # by name: a table has no numbers at points
    last = next(record for record in records if record["element"] == "measurement" and record["share_of_bracket"] < 0.34)
    assert last["share_of_ceiling"] == pytest.approx(0.33 * 29 / 220, rel=1e-3)
    roof = records[0]
    assert (roof["element"], roof["level"], roof["access"], roof["bandwidth_bytes_per_s"]) == (
        "memory_roof", "L1", "read", pytest.approx(880e9),
    )  # fmt: skip


def test_the_curve_by_hand() -> None:
    records = plot.roofline_curve(zen(), points=3)
    ridge = 220 / 38
    assert [r["flops_per_byte"] for r in records] == pytest.approx([ridge / 64, ridge, ridge * 64])
    assert [r["flops_per_s"] for r in records] == pytest.approx([220e9 / 64, 220e9, 220e9])
    assert len(plot.roofline_curve(zen())) in (200, 201)
    near = plot.roofline_curve(zen(), dtype="fp64", level="L2", points=2)
    assert near[1]["flops_per_byte"] == pytest.approx(110 / 430)
    with pytest.raises(Error, match="points must be at least 2, got 1"):
        plot.roofline_curve(zen(), points=1)
    with pytest.raises(Error, match="no compute ceiling for int8"):
        plot.roofline_curve(zen(), dtype="int8")


# -- readable by everybody ------------------------------------------------------------------------------------------------


def test_colours_are_dark_enough_and_levels_differ_in_grey() -> None:
    levels = [lightness(colour) for colour in dict.fromkeys(style.LEVEL_COLOURS.values())]
    assert all(lighter - darker >= 8 for darker, lighter in itertools.pairwise(levels))
    assert all(lightness(colour) <= 75 for colour in style.DTYPE_COLOURS.values())
    assert len(set(style.DTYPE_COLOURS.values())) == len(style.DTYPE_COLOURS)


def test_nothing_is_told_by_colour_alone() -> None:
    """Roofs carry their names; operators have their own markers; where dtypes differ, the names of the points say which."""
    ax = plot.roofline(zen(), twenty())
    assert [line.get_gid().removeprefix("roof ") for line in all_named(ax, "roof ")] == list(
        dict.fromkeys(text.get_text() for text in sorted(
            (t for t in ax.texts if str(t.get_gid()).startswith("label ")),
            key=lambda t: [line.get_gid() for line in all_named(ax, "roof ")].index("roof " + t.get_text()),
        ))
    )  # fmt: skip
    by_operator = style.markers(f"operator {index}" for index in range(len(style.MARKERS)))
    assert len(set(by_operator.values())) == len(style.MARKERS)
    both = [text.get_text() for text in ax.get_legend().get_texts() if " matmul " in text.get_text()]
    assert both and all("fp32" in text or "fp64" in text for text in both)
