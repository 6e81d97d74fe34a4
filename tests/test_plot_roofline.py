"""The roofline of a machine with measurements: what is on the Axes and in the data, against numbers worked out by hand."""

import dataclasses
from typing import Any

import pytest
import shown
from example import around, bracket
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from series import ELEMENTS, compute, memory, zen
from shown import data, lines, words
from tables import gives

from roofline import plot
from roofline.errors import Error
from roofline.machine import Machine
from roofline.results import Measurement

pytestmark = pytest.mark.usefixtures("nothing_is_shown")


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
    bytes_per_s = {"read": 38e9, "copy": 50e9}[access]
    if flops / peak > moved / bytes_per_s:
        rate = roof or peak
        limit, time_s = bracket(rate, f"{dtype} avx2", kind="compute"), flops / rate / share
    else:
        rate = roof or bytes_per_s
        source = {"operator": "stream", "access": access, "elements": ELEMENTS["DRAM"], "dtype": "fp32"}
        stores = "non_temporal" if access == "copy" else "plain"
        limit, time_s = bracket(rate, f"DRAM {access}", problem=source, variant=stores), moved / rate / share
    return Measurement(
        operator=operator, problem={**problem, "dtype": dtype}, variant=variant, device="cpu", threads=2, cache_state="cold",
        status=status, samples_s=around(time_s), flops={"all": flops}, bytes={"compulsory": moved}, level="DRAM", brackets=(limit,),
    )  # fmt: skip


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


def named(ax: Axes, gid: str) -> Line2D:
    """The one line of this gid."""
    (found,) = [line for line in ax.lines if line.get_gid() == gid]
    return found


def notes(*arguments: Any, **options: Any) -> str:
    """All of the picture's, in one line."""
    return shown.notes(plot.roofline.data(*arguments, **options))


# -- axes and lines -------------------------------------------------------------------------------------------------------


def test_axes() -> None:
    ax = plot.roofline(zen(), few())
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_xlabel() == "Arithmetic intensity [FLOP/byte]"
    assert ax.get_ylabel() == "Performance [GFLOP/s]"
    assert ax.get_title(loc="left") == "Roofline of AMD EPYC 9R14"
    assert notes(zen(), few()).startswith(
        "AMD EPYC 9R14 (cpu) · 2 threads · 2026-11-20 10:15 UTC · clock 3.44 GHz · points measured cold"
    )
    own = [dataclasses.replace(few()[0], cache_state="user")]
    assert "points measured in a state of the caller's" in notes(zen(), own)
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    # Everything drawn lies inside: intensities from 0.25 (the L1 ridge) to 512 (the largest attention), the roof of 220 GFLOP/s.
    assert left < 0.25 and right > 512 and high > 220e9
    points = [data(line)[0] for line in lines(ax, "dot ")]
    assert all(left < x < right and low < y < high for x, y in points)
    ax.figure.draw_without_rendering()
    ticks = [label.get_text() for label in ax.yaxis.get_ticklabels() if low <= label.get_position()[1] <= high]
    assert {"10", "100"} <= set(ticks)  # GFLOP/s, as the axis says


def test_the_unit_follows_the_machine() -> None:
    gpu = Machine(name="GPU", ceilings=(memory("DRAM", "read", 3.3e12), compute("bf16", "", 691e12)))
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
    ax = plot.roofline(zen(), few(), ceilings="all")
    (x0, y0), (x1, y1) = data(named(ax, f"roof {label}"))
    left = ax.get_xlim()[0]
    assert (x0, y0, y1) == pytest.approx((max(rate / 880e9, left), rate, rate))  # on the fastest slope, if that is in view
    assert x1 == ax.get_xlim()[1]
    assert words(ax, f"label {label}") == [label]


def test_ridge_points() -> None:
    ax = plot.roofline(zen(), few())
    expected = {(220 / 38, 220e9), (110 / 38, 110e9), (0.25, 220e9), (220 / 430, 220e9), (1.1, 220e9)}
    found = data(named(ax, "ridges"))
    assert sorted(found) == [pytest.approx(ridge) for ridge in sorted(expected)]
    assert sorted(words(ax, "ridge")) == ["0.250", "0.512", "1.10", "2.89", "5.79"]


def test_regions_split_at_the_ridge() -> None:
    ax = plot.roofline(zen(), few())
    assert set(words(ax, "region")) == {"memory-bound in fp32", "compute-bound in fp32"}
    ax.figure.draw_without_rendering()
    boxes = {t.get_text().partition("-")[0]: t.get_window_extent() for t in ax.texts if str(t.get_gid()).startswith("region")}
    ridge = ax.transData.transform((220 / 38, 1e9))[0]
    assert boxes["memory"].x1 < ridge < boxes["compute"].x0
    shades = [path for collection in ax.collections for path in collection.get_paths()]
    left, right = sorted(shades, key=lambda path: float(path.vertices[:, 0].min()))
    assert left.vertices[:, 0].max() == right.vertices[:, 0].min() == pytest.approx(220 / 38)
    # The ridge of fp64 splits them where all points are fp64.
    ax = plot.roofline(zen(), [matmul(512, 0.9, dtype="fp64")])
    edges = [path.vertices[:, 0].min() for collection in ax.collections for path in collection.get_paths()]
    assert max(edges) == pytest.approx(110 / 38)
    # And of the dtype that is asked for, whose ridge points are the only ones.
    ax = plot.roofline(zen(), few(), dtype="fp64")
    assert {y for _, y in data(named(ax, "ridges"))} == {110e9}


def test_a_bimodal_ceiling_is_drawn_twice() -> None:
    moving = dataclasses.replace(memory("DRAM", "read", 1.0), samples=(101e9, 50e9) * 5)
    ax = plot.roofline(Machine(name="m", ceilings=(moving, compute("fp32", "avx2", 200e9))))
    fast, slow = lines(ax, "roof DRAM read 101 or 50")  # one label names both
    assert [y / x for x, y in data(fast)] == pytest.approx([101e9] * 2)
    assert [y / x for x, y in data(slow)] == pytest.approx([50e9] * 2)
    assert words(ax, "label DRAM read") == ["DRAM read 101 or 50 GB/s"]
    assert not fast.is_dashed() and slow.is_dashed()
    assert fast.get_linewidth() > slow.get_linewidth()


def test_datasheet_numbers_are_dashed_and_thin() -> None:
    stated = dataclasses.replace(memory("DRAM", "read", 60e9), source="datasheet", samples=(60e9,))
    peak = dataclasses.replace(compute("fp32", "", 300e9), source="datasheet", samples=(300e9,))
    machine = zen()
    ax = plot.roofline(dataclasses.replace(machine, ceilings=(*machine.ceilings, stated, peak)))
    for theory, measured in (
        ("roof DRAM read 60.0 GB/s (datasheet)", "roof DRAM read 38.0 GB/s"),
        ("roof fp32 300 GFLOP/s (datasheet)", "roof fp32 avx2 220 GFLOP/s"),
    ):
        assert named(ax, theory).is_dashed() and not named(ax, measured).is_dashed()
        assert named(ax, theory).get_linewidth() < named(ax, measured).get_linewidth()
    # Ridge points are those of the measured ceilings.
    assert "5.79" in words(ax, "ridge")


def test_ceilings_that_cannot_be_are_not_drawn() -> None:
    machine = zen()
    wrong = dataclasses.replace(compute("fp32", "x", 9e12), status="implausible")
    ax = plot.roofline(dataclasses.replace(machine, ceilings=(*machine.ceilings, wrong)))
    assert not [line for line in lines(ax, "roof ") if " x " in line.get_gid()]


# -- points ---------------------------------------------------------------------------------------------------------------


def test_points_by_hand() -> None:
    ax = plot.roofline(zen(), few())
    # Prefill 2048: 4·8·2048²·64 FLOP over 4·8·2048·64·4 bytes are 512 FLOP/byte; 61 % of 220 GFLOP/s (medians of `around` are 1).
    assert data(named(ax, "dot 2"))[0] == pytest.approx((512.0, 0.61 * 220e9), rel=2e-3)
    # Softmax: 4 FLOP per element of 8 bytes moved; 81 % of 50 GB/s.
    assert data(named(ax, "dot 5"))[0] == pytest.approx((0.5, 0.81 * 0.5 * 50e9), rel=2e-3)
    # The gap runs from the point up to the tick at its bracket.
    assert data(named(ax, "gap 5")) == [data(named(ax, "dot 5"))[0], data(named(ax, "tick 5"))[0]]
    assert data(named(ax, "tick 5"))[0] == pytest.approx((0.5, 25e9))
    assert data(named(ax, "tick 2"))[0] == pytest.approx((512.0, 220e9))


def test_marker_is_the_operator_and_colour_the_dtype() -> None:
    ax = plot.roofline(zen(), [*few(), matmul(64, 0.5, dtype="fp64")])
    attention, softmax_, single, double = (named(ax, f"dot {index}") for index in (1, 5, 4, 6))
    assert len({attention.get_marker(), softmax_.get_marker(), single.get_marker()}) == 3
    assert named(ax, "dot 2").get_marker() == attention.get_marker()
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
        ["attention tiled batch=1 seq_len=2048  61 %"],
        ["attention naive batch=1 seq_len=2048  38 %"],
        ["matmul library  88 %"],
        ["softmax tiled  81 %"],
    ]


test_both_shares_where_bracket_and_ceiling_differ = gives(
    lambda roof: words(plot.roofline(zen(), [decode(8, 4096, 0.8, roof=roof)]), "name 1"),
    (19e9, ["attention split_kv  80 % (40 %)"]),  # the bracket stood at half the machine's 38 GB/s
    (76e9, ["attention split_kv  80 % (160 %)"]),
    (37e9, ["attention split_kv  80 %"]),  # 2.6 % apart
    (40e9, ["attention split_kv  80 % (84 %)"]),  # 5.3 %
)


def test_a_point_without_a_bracket_is_held_against_the_ceiling() -> None:
    bare = dataclasses.replace(softmax(8192, 0.5), brackets=())
    ax = plot.roofline(zen(), [bare])
    # 0.5 FLOP/byte at half of 50 GB/s; the machine's DRAM read is 38 GB/s: 25 of 38.
    assert words(ax, "name 1") == ["softmax tiled  66 % of ceiling"]
    assert data(named(ax, "tick 1"))[0] == pytest.approx((0.5, 19e9))


@pytest.mark.parametrize(("share", "status", "hollow"), [(1.31, "implausible", True), (1.31, "ok", True), (1.02, "ok", False)])
def test_implausible_points_are_hollow_and_listed(share: float, status: str, hollow: bool) -> None:
    point = decode(2, 1024, share, status=status)
    drawn, said = named(plot.roofline(zen(), [point]), "dot 1"), notes(zen(), [point])
    assert (to_hex(drawn.get_markerfacecolor()) == "#ffffff") == hollow
    assert ("implausible (hollow" in said) == hollow
    if hollow:
        assert "131 %" in said
        assert to_hex(drawn.get_markeredgecolor()) != "#ffffff"


def test_no_point_leaves_the_picture() -> None:
    """Whatever it claims: 50 times its roof, or a bracket of 40 times the ceiling."""
    ax = plot.roofline(zen(), [matmul(512, 50.0), matmul(256, 0.5, roof=40 * 220e9)])
    low, high = ax.get_ylim()
    for gid in ("dot 1", "dot 2", "tick 2"):
        assert low < data(named(ax, gid))[0][1] < high


def test_other_states_are_listed() -> None:
    moved = [decode(2, 1024, 0.9, status="roof_moved"), softmax(64, 0.5, status="contended")]
    said = notes(zen(), moved)
    assert "roof moved" in said and "contended" in said
    assert len(lines(plot.roofline(zen(), moved), "dot ")) == 2


def test_what_was_not_timed_is_listed() -> None:
    gone = dataclasses.replace(softmax(64, 0.5), status="unsupported", reason="no kernel for fp16", samples_s=(), brackets=())
    assert "softmax tiled: unsupported (no kernel for fp16)" in notes(zen(), [gone, matmul(64, 0.5)])
    assert len(lines(plot.roofline(zen(), [gone, matmul(64, 0.5)]), "dot ")) == 1


def test_what_has_no_flops_is_listed() -> None:
    copy = dataclasses.replace(softmax(64, 0.9), operator="stream", variant="plain", flops={"copy": 0})
    said = notes(zen(), [copy])
    assert "stream plain: no FLOPs, so no place on logarithmic axes" in said and "90 % of its bracket" in said
    assert lines(plot.roofline(zen(), [copy]), "dot ") == []


def test_a_dtype_without_a_roof_gets_a_note_and_stays() -> None:
    half = [softmax(64, 0.5, dtype="bf16")]
    assert "bf16 has no compute roof here; its points are drawn" in notes(zen(), half)
    assert len(lines(plot.roofline(zen(), half), "dot ")) == 1


def test_one_dtype() -> None:
    ax = plot.roofline(zen(), twenty(), dtype="fp64")
    assert [line.get_gid() for line in lines(ax, "roof ") if "FLOP" in line.get_gid()] == ["roof fp64 avx2 110 GFLOP/s"]
    assert len(lines(ax, "dot ")) == 1
    assert "19 measurements of other dtypes than fp64 are not shown" in notes(zen(), twenty(), dtype="fp64")
    ax = plot.roofline(zen(), dtype="int8")
    assert "no int8 compute roof was measured" in notes(zen(), dtype="int8")
    assert all("GB/s" in line.get_gid() for line in lines(ax, "roof "))


def test_wide_spreads_get_error_bars() -> None:
    calm, wild = matmul(64, 0.5), matmul(512, 0.5)
    wild = dataclasses.replace(wild, samples_s=tuple(wild.time_s * s for s in (0.8, 0.9, 1.0, 1.1, 1.25)))  # type: ignore[operator]
    ax = plot.roofline(zen(), [calm, wild])
    (bars,) = ax.containers
    (segment,) = bars.lines[2][0].get_segments()
    # From the 95th to the 5th percentile of the times: 1.22 and 0.82 of the median.
    y = data(named(ax, "dot 2"))[0][1]
    assert segment[:, 1].tolist() == pytest.approx([y / 1.22, y / 0.82])


def test_sweeps_are_joined_in_order() -> None:
    swept = [decode(batch, 8192, share) for batch, share in ((4, 0.72), (1, 0.9), (16, 0.96))]
    ax = plot.roofline(zen(), [*swept, softmax(64, 0.5), softmax(128, 0.5)])
    (joined,) = lines(ax, "sweep ")
    assert data(joined) == [data(named(ax, f"dot {index}"))[0] for index in (1, 2, 3)]
    two = [prefill(256, 0.4), prefill(512, 0.5), dataclasses.replace(prefill(1024, 0.6), threads=1)]
    assert not lines(plot.roofline(zen(), two), "sweep ")


def test_the_data_match_the_picture() -> None:
    ax = plot.roofline(zen(), twenty())
    records = plot.roofline_data(zen(), twenty())

    def coordinates(*elements: str) -> list[tuple[float, float]]:
        return [(r["flops_per_byte"], r["flops_per_s"]) for r in records if r["element"] in elements]

    assert coordinates("memory_roof", "compute_roof") == [end for line in lines(ax, "roof ") for end in data(line)]
    assert coordinates("ridge") == data(named(ax, "ridges"))
    assert coordinates("measurement") == [data(line)[0] for line in lines(ax, "dot ")]
    ticks = [record["attainable_flops_per_s"] for record in records if record["element"] == "measurement"]
    assert ticks == [data(named(ax, f"tick {index}"))[0][1] for index in range(1, 21)]
    assert "attention split_kv" not in notes(zen(), twenty()), "by number, as in the picture"
    last = next(record for record in records if record["element"] == "measurement" and record["share_of_bracket"] < 0.34)
    assert last["share_of_ceiling"] == pytest.approx(0.33 * 29 / 220, rel=1e-3)
    roof = [records[0][key] for key in ("element", "level", "access", "bandwidth_bytes_per_s")]
    assert roof == ["memory_roof", "L1", "read", pytest.approx(880e9)]


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


# -- more on the picture ------------------------------------------------------------------------------------------------------


def test_the_launch_is_a_third_roof() -> None:
    """Kernels that move 64 KiB and take 3.4 µs at least reach 19.3 GB/s, whatever the memory's."""
    records = plot.roofline.data(zen(), few(), floor_bytes="64KiB")
    ends = [(r["flops_per_byte"], r["flops_per_s"]) for r in records if r["element"] == "launch_roof"]
    assert len(ends) == 2 and all(y / x == pytest.approx(65536 / 3.4e-6, rel=1e-3) for x, y in ends)
    assert not [r for r in plot.roofline.data(zen(), few()) if r["element"] == "launch_roof"], "no point is bound by it"
    assert named(plot.roofline(zen(), few(), floor_bytes=65536), "roof fork-join 3.40 µs: 64 KiB a launch")
    with pytest.raises(Error, match="no launch latency"):
        plot.roofline("H100", floor_bytes=65536)


def test_a_datasheet_over_what_was_measured() -> None:
    ax = plot.roofline(zen(), datasheet="H100")
    sheet = [line for line in lines(ax, "roof ") if "(datasheet)" in str(line.get_gid())]
    assert len(sheet) > 4 and all(line.is_dashed() for line in sheet) and all(line.get_linewidth() < 1 for line in sheet)
    assert not named(ax, "roof fp32 avx2 220 GFLOP/s").is_dashed()


def test_other_ceilings_are_said_and_drawn_when_asked_for() -> None:
    assert not lines(plot.roofline(zen()), "roof fp32 scalar") and lines(plot.roofline(zen(), ceilings="all"), "roof fp32 scalar")
    assert "fp32 scalar: 14.0 GFLOP/s, a ceiling that is not drawn" in notes(zen())
    assert "not drawn" not in notes(zen(), ceilings="all")


def test_what_is_no_measurement_is_refused() -> None:
    for wrong, name in (([1, 2], "int"), ([None], "NoneType"), (5, "int")):
        with pytest.raises(Error, match=f"results must be measurements, .* got {name}; points of your own are points="):
            plot.roofline("H100", wrong)  # type: ignore[arg-type]
