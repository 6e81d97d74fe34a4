"""Every picture of the list: its flags, data and files, and that it can be read: at any size, light and dark, and in grey."""

import csv
import dataclasses
import inspect
import itertools
import math
import re
import sys
import types
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import shown
from example import CACHES, around, bandwidth, bracket, measurement
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Affine2D
from series import compute, zen
from shown import contrast
from tables import refused

from roofline import AllReduce, Attention, Machine, Matmul, plot
from roofline.cli import main
from roofline.cli.plotting import documented
from roofline.errors import Error
from roofline.machine import MEMORIES, Ceiling
from roofline.operators import Operator, count
from roofline.plot import PICTURES, style
from roofline.plot.figure import LOOK, StepsAssumptions, contents_of, joined, show
from roofline.plot.panels import Panel
from roofline.results import Measurement, append_to
from roofline.transformer import Decode, calls_of, preset

pytestmark = pytest.mark.usefixtures("nothing_is_shown", "few_pixels")

SIZES = ((4.0, 3.0), (6.0, 4.5), (10.0, 6.0))
THEMES = ("light", "dark")
LLAMA = preset("Llama-3-8B")


# -- a machine and measurements -----------------------------------------------------------------------------------------------


@cache
def cpu() -> Machine:
    """A measured machine with all that pictures draw: levels, modes, dtypes, sweeps, curves, latencies, launches, a link."""
    modes = tuple(value * s for value in (38e9, 30e9) for s in (0.999, 1.0, 1.001, 1.0, 1.0))
    kept = (c for c in zen().ceilings if (c.level, c.kind) != ("DRAM", "bandwidth"))
    more = (
        bandwidth(modes), bandwidth(around(30e9), "copy"), bandwidth(around(26e9), "triad"), compute("bf16", "avx2", 440e9),
        compute("fp32", "", 200e9, probe="gemm.square"),
    )  # fmt: skip
    facts = {**CACHES, "memory_bytes": 32 << 30}
    return dataclasses.replace(zen(), name="Example CPU", facts=facts, ceilings=(*kept, *more))


def measured(
    problem: Operator, share: float, variant: str = "tiled", steps: dict[str, float] | None = None, **more: Any
) -> Measurement:
    """That reaches this share of the machine's fp32 and DRAM roofs."""
    flops, moved = count(problem).flops, count(problem).bytes
    compute = flops / 220e9 > moved / 38e9
    roof = bracket(220e9, "roof", kind="compute") if compute else bracket(38e9, "roof")
    time_s = more.pop("time_s", max(flops / 220e9, moved / 38e9, 3e-6) / share)
    return measurement(
        problem, around(time_s), variant=variant, brackets=(roof,), link_bytes=int(problem.link_bytes()),
        steps={name: (each,) for name, each in (steps or {}).items()},
        prediction={"time_s": time_s * 0.8, "bound": "DRAM", "terms": {}}, **more,
    )  # fmt: skip


@cache
def results() -> list[Measurement]:
    """A sweep of attention over batch and keys, one of a product over rows, attention in steps, collectives, odd ones."""
    found = [
        measured(Attention(batch=b, heads=8, kv_heads=8, seq_q=1, seq_kv=k, head_dim=64, dtype="fp32"), 0.5 + 0.04 * b, "split_kv")
        for b in (1, 4, 8) for k in (1024, 4096, 16384)
    ]  # fmt: skip
    found += [measured(Matmul(rows=n, columns=4096, inner=4096, dtype="fp32"), 0.6 + 0.04 * i, "library") for i, n in
              enumerate((1, 4, 16, 64, 256, 1024))]  # fmt: skip
    found += [measured(whole(), 0.3, "naive", {"q·kᵀ": 0.02, "softmax": 0.03, "p·v": 0.025}), measured(whole(), 0.8)]
    found += [measured(AllReduce(elements=1 << k, ranks=4), 0.5, "library") for k in (12, 16, 20, 24)]
    return [*found, measured(Matmul(rows=8, columns=64, inner=64, dtype="fp32"), 1.4, status="implausible"),
            measured(Matmul(rows=12, columns=4096, inner=4096, dtype="fp32"), 0.5, status="contended")]  # fmt: skip


def whole() -> Attention:
    return Attention(batch=1, heads=8, kv_heads=8, seq_q=1024, seq_kv=1024, head_dim=64, dtype="fp32")


def kernels() -> list[Measurement]:
    """The kernels of decode steps of Llama, timed."""
    problems = {str(call.problem): call.problem for n in (1, 8, 64) for call in calls_of(LLAMA, Decode(batch=n, seq_kv=2048))}
    return [measured(problem, 0.7, next(iter(problem.variants), "")) for problem in problems.values() if problem.total_flops()]


def linked() -> Machine:
    link = Ceiling(probe="link", samples=around(45e9))
    return dataclasses.replace(cpu(), name="Linked", ceilings=(*cpu().ceilings, link))


H100, GPUS = "H100 SXM", ["A100 SXM 80GB", "H100 SXM", "GB200"]
Call = tuple[tuple[Any, ...], dict[str, Any]]


@cache
def calls() -> dict[str, list[Call]]:
    """What each picture is drawn of: the first call is the fullest."""
    r1 = "DeepSeek-R1-NVFP4"
    points = [("mine", 12, "60 GFLOP/s", "fp32"), ("another", 2, 3e10)]
    return {
        "attention_steps": [((whole(),), {"machine": cpu(), "results": results()}), (("Llama-3-8B",), {"machine": H100})],
        "batch_path": [((cpu(), Matmul(columns=4096, inner=4096, dtype="fp32")), {"results": results(), "batch": "1:1k"}),
                       ((H100, "Llama-3-8B"), {}), ((cpu(), LLAMA), {"results": kernels(), "batch": [1, 8, 64]})],
        "block_profile": [((cpu(), "Llama-3-8B"), {"phase": Decode(batch=8), "results": kernels()}), (("GB200", r1), {})],
        "collectives": [((results(), linked()), {}), ((), {"machine": linked(), "work": "all_gather"})],
        "comparison": [((cpu(), dataclasses.replace(cpu(), ceilings=tuple(dataclasses.replace(
            c, samples=tuple(1.2 * s for s in c.samples)) for c in cpu().ceilings))), {})],
        "compute_ceilings": [((H100, "Llama-3-8B"), {"measured": cpu()}), ((cpu(), "7B"), {})],
        "decode_heatmap": [((cpu(), "Llama-3-8B"), {"results": kernels(), "of": "ratio", "batch": [1, 8, 64], "seq_kv": [2048,
                                                                                                                         4096]}),
                           ((H100, "Llama-3-8B"), {})],
        "decode_latency": [(([cpu(), H100], "Llama-3-8B"), {"results": kernels(), "batch": [1, 8, 64]}), ((GPUS, r1),
                                                                                                          {"per": "request"})],
        "decode_over_batch": [(([cpu(), H100], "Llama-3-8B"), {"results": kernels(), "batch": [1, 8, 64]}), ((GPUS, r1), {})],
        "empirical": [((cpu(),), {}), ((cpu(),), {"level": "DRAM"})],
        "hierarchy": [((cpu(), whole()), {"results": results()}), ((cpu(), Matmul(rows=4096, columns=4096, inner=4096,
                                                                                  dtype="fp32")), {})],
        "intensity_over_batch": [((r1,), {"machines": GPUS}), (("gemm",), {"machines": H100})],
        "intensity_over_seq": [(("Llama-3-8B",), {"machines": GPUS}), (("attention",), {"machines": H100})],
        "kernel_placement": [(("GB200", r1), {}), ((cpu(), LLAMA), {"phase": Decode(batch=8), "results": kernels()})],
        "latency": [((cpu(),), {})],
        "machines": [((GPUS, "Llama-3-8B"), {}), (([cpu(), H100],), {"dtype": "fp32"})],
        "operations": [((r1,), {"machine": "GB200"}), (("Llama-3-8B",), {"phase": "decode"})],
        "predicted_measured": [((results(),), {}), ((results(), cpu()), {})],
        "ridge_points": [((GPUS,), {}), ((cpu(),), {})],
        "roofline": [((cpu(), results()), {"points": points, "datasheet": None, "floor_bytes": "64KiB"}), ((H100,), {}),
                     ((cpu(), results()[:4]), {"dtype": "fp32"}), ((cpu(),), {"ceilings": "all"})],
        "size_curve": [((cpu(),), {}), ((cpu(),), {"access": "copy"})],
        "sweep_lines": [((results(), cpu()), {"work": "attention", "x": "seq_kv"}),
                        ((None, H100), {"work": "matmul", "axes": "rows=1:4k", "y": "flops_per_s"})],
        "sweep_map": [((results(), cpu()), {"work": "attention", "quantity": "bytes_per_s"}),
                      ((None, H100), {"work": "matmul", "axes": {"rows": [1, 64, 4096], "inner": [64, 4096]},
                                      "quantity": "flops_per_s"})],
        "workloads": [((H100, "Llama-3-8B"), {}), ((cpu(), {"a product": Matmul(dtype="fp32"), "attention": whole()}), {})],
    }  # fmt: skip


EACH = pytest.mark.parametrize("name", list(PICTURES))


def drawn(name: str, index: int = 0, **look: Any) -> Axes:
    args, keywords = calls()[name][index]
    return PICTURES[name](*args, **keywords, **look)


@cache
def panels(name: str) -> list[Panel]:
    """Those of the fullest call, which are data and stay as they are."""
    args, keywords = calls()[name][0]
    return PICTURES[name].panels(*args, **keywords)


def texts(figure: Any) -> list[Text]:
    """Every word that is seen: labels, titles, legends, notes, and ticks in view."""
    hidden = {id(t) for ax in figure.axes for t in ax.texts if not t.get_visible()}
    found = []
    for ax in figure.axes:
        found += [t for t in (*ax.texts, ax.xaxis.label, ax.yaxis.label, ax.title, ax._left_title) if id(t) not in hidden]
        found += ax.get_legend().get_texts() if ax.get_legend() is not None else []
        for axis, index, limits in ((ax.xaxis, 0, ax.get_xlim()), (ax.yaxis, 1, ax.get_ylim())):
            low, high = sorted(limits)
            found += [t for t in axis.get_ticklabels() if low * 0.999 <= t.get_position()[index] <= high * 1.001]
    found += [figure._supxlabel] if getattr(figure, "_supxlabel", None) is not None else []
    return [t for t in found if t.get_text().strip() and t.get_visible()]


def corners(text: Text) -> Any:
    """[4, 2] in pixels, as drawn: a box about its anchor, turned."""
    angle = text.get_rotation()
    if angle % 90:
        text.set_rotation(0)
    box = text.get_window_extent()
    found = np.array([(box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1)])
    if angle % 90:
        text.set_rotation(angle)
        x, y = text.get_transform().transform(text.get_position())
        found = Affine2D().rotate_deg_around(x, y, angle).transform(found)
    return found


def overlap(a: Any, b: Any) -> bool:
    """Whether two convex quadrangles [4, 2] share area, by the separating axis theorem."""
    for one in (a, b):
        for edge in (np.roll(one, -1, axis=0) - one)[:2]:
            normal = np.array((-edge[1], edge[0]))
            pa, pb = a @ normal, b @ normal
            if pa.max() <= pb.min() + 0.5 or pb.max() <= pa.min() + 0.5:
                return False
    return True


def unreadable(figure: Any) -> Iterator[str]:
    """What overlaps, and what leaves the page."""
    figure.draw_without_rendering()
    found = [(t.get_text(), corners(t)) for t in texts(figure)]
    page = figure.bbox
    for words, box in found:
        if box[:, 0].min() < -1 or box[:, 1].min() < -1 or box[:, 0].max() > page.width + 1 or box[:, 1].max() > page.height + 1:
            yield f"{words!r} leaves the page"
    for (one, a), (other, b) in itertools.combinations(found, 2):
        if overlap(a, b):
            yield f"{one!r} over {other!r}"


# -- to be read ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]:g}x{size[1]:g}")
@EACH
def test_no_text_overlaps_another_or_leaves_the_page(name: str, size: tuple[float, float]) -> None:
    turn = SIZES.index(size)  # the fullest call in every size, each other one in one of them
    for index in (0, *range(1 + (turn - 1) % len(SIZES), len(calls()[name]), len(SIZES))):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.add_subplot()
        assert (drawn(name, index, ax=ax) if index else show(panels(name)[0], ax=ax)) is ax
        assert list(unreadable(figure)) == [], index


def test_the_test_of_overlaps_can_fail() -> None:
    figure = Figure(figsize=(4, 3))
    FigureCanvasAgg(figure)
    ax = figure.add_subplot()
    ax.text(0.5, 0.5, "one")
    ax.text(0.52, 0.5, "other", rotation=30, rotation_mode="anchor")
    ax.text(0.9, 0.9, "a long text that leaves the page")
    assert len(list(unreadable(figure))) == 2


@EACH
def test_a_figure_of_its_own_is_read_light_and_dark_and_in_grey(name: str) -> None:
    placed: list[Any] = []
    for theme in THEMES:
        ax = drawn(name, theme=theme)
        figure: Any = ax.figure
        placed.append([(t.get_text(), t.get_position(), t.get_fontproperties()) for t in figure.findobj(Text)])
        if theme == THEMES[0]:
            assert list(unreadable(figure)) == []
        assert placed[-1] == placed[0], "no theme moves or resizes words, so that one layout tells of all"
        paper = luminance(figure.get_facecolor())
        assert (paper > 0.9) == (theme == "light")
        # In grey every word stands out from the paper, but those in cells, which stand on their own ground.
        for text in texts(figure):
            if not str(text.get_gid()).startswith("value ") or name not in ("decode_heatmap", "sweep_map"):
                assert contrast(luminance(text.get_color()), paper) >= 3.4, (theme, text.get_text())
        # Lines that a legend or names tell apart differ by marker, dashes or lightness.
        looks = [(line.get_marker(), str(line._dash_pattern), round(luminance(line.get_color()), 1))
                 for line in ax.lines if str(line.get_gid()).startswith("line ")]  # fmt: skip
        assert len(set(looks)) >= min(len(looks), 2), (theme, looks)
        plt.close(figure)


def luminance(colour: Any) -> float:
    return shown.luminance(to_rgb(colour))


def test_the_picture_in_grey_is_not_blank() -> None:
    figure = drawn("decode_heatmap", 1).figure
    figure.canvas.draw()
    grey = np.asarray(figure.canvas.buffer_rgba())[..., :3] @ (0.2126, 0.7152, 0.0722)
    assert grey.std() > 20 and len(np.unique(grey.round(-1))) > 10


@pytest.mark.parametrize("theme", [style.LIGHT, style.DARK], ids=lambda theme: theme.name)
def test_colours_tell_things_apart(theme: style.Theme) -> None:
    paper = luminance(theme("paper"))
    for names in (
        style.SERIES,
        style.DTYPES.values(),
        [c for level, (c, _) in style.LEVELS.items() if level not in MEMORIES[1:]],  # a machine has one memory
        [c for c, _ in style.ACCESS.values()],
    ):
        assert len(set(names)) == len(list(names)) and all(contrast(luminance(theme(c)), paper) >= 4 for c in names)
    levels = [luminance(theme(level)) for level in ("L1", "L2", "L3", "DRAM")]
    assert levels == sorted(levels, reverse=theme.name == "light") and all(
        contrast(a, b) > 1.2 for a, b in itertools.pairwise(levels)
    )
    beside = [(name, fill) for name, fill in theme.fills.items() if name not in MEMORIES[1:]]
    for (one, a), (other, b) in itertools.combinations(beside, 2):
        same = style.HATCHES.get(one, "") == style.HATCHES.get(other, "")
        assert not same or contrast(luminance(a), luminance(b)) > 1.15 or "unfit" in (one, other), (one, other)
    looks = [style.series(index) for index in range(60)]
    assert len({(marker, str(dashes)) for _, marker, dashes in looks}) == 60


def test_datasheets_are_dashed_and_measurements_solid() -> None:
    for name, args in (
        ("roofline", ()),
        ("machines", ("Llama-3-8B",)),
        ("workloads", ("Llama-3-8B",)),
        ("compute_ceilings", ("7B",)),
    ):
        for machine, dashed in ((cpu(), False), (H100, True)):
            ax = PICTURES[name](machine, *args)
            roofs = [line for line in ax.lines if str(line.get_gid()).startswith("roof ") and "library GEMM" not in line.get_gid()]
            assert roofs and {line.is_dashed() for line in roofs if line.get_linewidth() > 0.95} == {dashed}, (name, dashed)


# -- the list -----------------------------------------------------------------------------------------------------------------


def test_the_calls_are_of_the_list() -> None:
    assert list(calls()) == list(PICTURES)
    folder = Path(inspect.getfile(plot.pictures)).parent
    assert sorted(path.stem for path in folder.glob("*.py")) == sorted(["__init__", *PICTURES])


@EACH
def test_keywords_are_explicit_and_documented(name: str) -> None:
    found = PICTURES[name]
    signature = inspect.signature(found)
    assert not [p for p in signature.parameters.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    assert set(LOOK) <= set(signature.parameters)
    shared, said = set(StepsAssumptions.__annotations__), documented(found)
    for parameter in signature.parameters.values():
        assert parameter.annotation not in (parameter.empty, "Any") or parameter.name in shared
        assert len(said.get(parameter.name, "")) > 3, parameter.name
    with pytest.raises(Error, match="wrong"):
        found(*calls()[name][0][0], wrong=1)


@EACH
def test_data_are_a_table_and_files_hold_them(name: str, tmp_path: Path) -> None:
    args, keywords = calls()[name][0]
    before, records = dict(mpl.rcParams), joined(panels(name))
    first = PICTURES[name].data(*args, **keywords)
    assert first == getattr(plot, f"{name}_data")(*args, **keywords) and len(first) <= len(records)
    assert len({tuple(record) for record in records}) == 1, "all with the same keys"
    values = [value for record in records for value in record.values()]
    assert all(value is None or isinstance(value, (bool, int, float, str)) for value in values)
    assert all(math.isfinite(value) for value in values if isinstance(value, float))
    paths = PICTURES[name].save(tmp_path / "new", *args, **keywords)
    assert [path.name for path in paths] == [f"{name}.svg", f"{name}.png", f"{name}.csv"]
    assert ElementTree.parse(paths[0]).getroot().tag.endswith("svg") and "<text" in paths[0].read_text(encoding="utf-8")
    with open(paths[2], newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(records)
    assert plt.get_fignums() == [] and dict(mpl.rcParams) == before
    if name in ("roofline", "attention_steps", "decode_heatmap"):
        again = PICTURES[name].save(tmp_path / "again", *args, **keywords)
        assert all(again[i].read_bytes() == paths[i].read_bytes() for i in (0, 2)), "saved again it is the same"


@EACH
def test_given_axes_are_drawn_on(name: str) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(18, 7), layout="constrained")
    size = figure.get_size_inches().tolist()
    assert drawn(name, ax=axes[1], title="Mine") is axes[1]
    assert plt.get_fignums() == [figure.number] and figure.get_size_inches().tolist() == size
    assert axes[1].get_title(loc="left") == "Mine"
    assert axes[0].lines[:] == [] and len(axes[1].lines) + len(axes[1].patches) + len(axes[1].images) > 0
    notes = [t for t in axes[1].texts if t.get_gid() == "notes"]
    assert len(notes) == 1 and 1 <= len(notes[0].get_text().splitlines()) <= 4
    figure.draw_without_rendering()


def test_measurements_take_a_field_and_no_axes() -> None:
    with pytest.raises(Error, match="of measurements, choose a field with x"):
        plot.sweep_lines.data(results(), axes="rows=1:4")
    assert not [r for r in plot.sweep_lines.data(results(), work="attention", x="seq_kv") if "dashed" in str(r.get("label"))]


def test_notes_are_four_lines_at_most_and_the_rest_is_data() -> None:
    ax = plot.roofline(cpu(), results())
    lines = ax.figure._supxlabel.get_text().splitlines()
    notes = [r["label"] for r in plot.roofline.data(cpu(), results()) if r["element"] == "note"]
    assert len(lines) == 4 and re.fullmatch(r"\d more notes in the table", lines[-1]) and len(notes) > 4


def test_several_panels_have_all_of_their_notes_once_each() -> None:
    panels = plot.kernel_placement.panels("H100", "Llama-3-8B")
    notes = list(dict.fromkeys(note for panel in panels for note in panel.notes))
    written = contents_of(panels, (".svg",))[".svg"].decode()
    assert len(panels) == 2 and set(panels[1].notes) - set(panels[0].notes)
    assert [written.count(f">{note}<") for note in notes] == [1] * len(notes)


def test_hatches_keep_away_from_the_text_of_a_cell() -> None:
    ax = plot.decode_heatmap("H100", "Llama-3-8B", quantity="tokens_per_s", batch=[1, 1024], seq_kv=[2048])
    fits, unfit = sorted((t for t in ax.texts if (t.get_gid() or "").startswith("value")), key=lambda t: t.get_position()[1])
    assert fits.get_bbox_patch() is None and unfit.get_bbox_patch().get_boxstyle().pad >= 0.3


def test_labels_find_their_places_anew_in_another_size() -> None:
    ax = plot.roofline(cpu(), results()[:4])
    for size in ((12, 4), (5, 9), (7, 5)):
        ax.figure.set_size_inches(*size)
        assert list(unreadable(ax.figure)) == []
        (line,) = [each for each in ax.lines if each.get_gid() == "roof L1 read 880 GB/s"]
        (x0, y0), (x1, y1) = ax.transData.transform(list(zip(line.get_xdata(), line.get_ydata(), strict=True)))
        for text in (t for t in ax.texts if t.get_gid() == "label L1 read 880 GB/s" and t.get_visible()):
            assert text.get_rotation() == pytest.approx(math.degrees(math.atan2(y1 - y0, x1 - x0)), abs=1e-6)


def test_axes_of_other_figures() -> None:
    left, _ = plt.figure(figsize=(14, 6), layout="constrained").subfigures(1, 2)
    ax = left.add_subplot()
    assert plot.roofline(cpu(), ax=ax) is ax
    plain = Figure().add_subplot()
    assert plot.ridge_points(cpu(), ax=plain) is plain and plain.patches
    with mpl.rc_context({"font.size": 20.0, "axes.facecolor": "black"}):
        assert luminance(plot.roofline(cpu()).get_facecolor()) == 1, "the style of the caller does not matter"


def test_a_backend_stays_interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend of notebooks switches interactive mode on when its first figure is made, and shows figures only then."""
    figure = plt.figure

    def first(*given: Any, **named: Any) -> Any:
        mpl.interactive(True)
        return figure(*given, **named)

    assert not mpl.is_interactive()
    monkeypatch.setattr(plt, "figure", first)
    try:
        plt.close(plot.roofline(cpu()).get_figure())
        assert mpl.is_interactive()
    finally:
        mpl.interactive(False)


def test_without_matplotlib_there_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name, ((args, keywords), *_) in calls().items():
        with pytest.raises(Error, match="plots need matplotlib: `pip install matplotlib`"):
            PICTURES[name](*args, **keywords)
    assert plot.roofline.data(cpu())


NEW = '''"""Bars of powers."""

from __future__ import annotations

from typing import Unpack

from roofline.plot.figure import Look, Panels, picture
from roofline.plot.bars import Bar, Row, Rows


@picture("how fast powers grow", group="model", example="plot.powers(base=3)")
def powers(*, base: int = 2, most: int = 4, **look: Unpack[Look]) -> Panels:
    """Powers of a number.

    base: of the powers.
    most: the highest exponent.
    """
    rows = [Row(label=str(n), bars=[Bar(end=base**n)], text=str(base**n), record={"power": base**n}) for n in range(1, most + 1)]
    yield Rows(title="Powers", x_label="Power", rows=rows, notes=["by hand"])
'''


def test_a_picture_is_one_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any) -> None:
    """The file; the line is the import, which puts it into the list. The API, flags, help, data and files follow."""
    module = types.ModuleType("powers")
    exec(compile(NEW, "powers.py", "exec"), module.__dict__)
    monkeypatch.setitem(PICTURES, "powers", module.powers)  # type: ignore[arg-type]
    records = cli.json(["plot", "powers", "--base", "3"])
    assert [r["power"] for r in records if r["element"] == "row"] == [3, 9, 27, 81]
    assert main(["plot", "powers", "--most", "2", "-o", str(tmp_path)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["powers.csv", "powers.png", "powers.svg"]
    text = cli.out(["plot", "powers", "--help"])
    assert "--base" in text and "the highest exponent" in text and "--batch" not in text


def test_saved_machines_and_results_give_the_same_picture(tmp_path: Path) -> None:
    cpu().save(tmp_path / "machine.json")
    for m in results():
        append_to(tmp_path / "results.jsonl", m)
    again = plot.roofline.save(tmp_path / "again", tmp_path, tmp_path)
    first = plot.roofline.save(tmp_path / "first", cpu(), results())
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in first]
    (tmp_path / "file").touch()
    with pytest.raises(Error, match="cannot make the folder"):
        plot.latency.save(tmp_path / "file", cpu())


test_wrong_arguments_are_named = refused(
    lambda keywords: plot.roofline("H100", **keywords), ({"titel": "x"}, "did you mean title"), ({"points": 5}, "must be a list of")
)
