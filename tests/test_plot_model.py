"""Pictures of the roofline as a model: their data against numbers worked out elsewhere, and that no two labels overlap."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the plots need matplotlib")

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from roofline import Attention, Bmm, Machine, Matmul, Relu, Stream, census_of, plot
from roofline.cli import main
from roofline.errors import Error
from roofline.machine import MEMORIES, Ceiling
from roofline.plot import style
from roofline.plot.labels import contains, overlap, text_corners
from roofline.plot.models import panels
from roofline.questions import predict
from roofline.results import Results
from roofline.transformer import Decode, Prefill, TransformerConfig, preset

pytestmark = pytest.mark.usefixtures("nothing_is_shown")

FIGURES = {
    figure["id"]: figure
    for figure in json.loads((Path(__file__).parent / "data" / "document_figures.json").read_text(encoding="utf-8"))["figures"]
}
LLAMA, R1, GPT = preset("Llama-3-8B"), preset("DeepSeek-R1-NVFP4"), preset("GPT-OSS-120B")
GEMM = {"operator": "matmul", "rows": 2048, "columns": 2048, "inner": 2048, "dtype": "fp32"}


def cpu() -> Machine:
    """A small measured machine: caches, two dtypes, a launch, and a library's product below its roof."""

    def bandwidth(level: str, access: str, value: float) -> Ceiling:
        return Ceiling(probe="stream", level=level, access=access, variant="plain", threads=2, samples=(value,))

    def compute(dtype: str, value: float, **more: Any) -> Ceiling:
        probe = "gemm.square" if "problem" in more else "fma"
        return Ceiling(probe=probe, dtype=dtype, isa="avx2", threads=2, samples=(value,), clock_hz=3.4e9, **more)

    return Machine(
        name="Example CPU",
        facts={"threads": 2, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20, "memory_bytes": 32 << 30},
        ceilings=(
            bandwidth("DRAM", "read", 38e9), bandwidth("DRAM", "copy", 30e9), bandwidth("L3", "read", 200e9),
            compute("fp32", 220e9), compute("fp64", 110e9), compute("fp32", 188e9, problem=GEMM),
            Ceiling(probe="launch", samples=(4e-6,), threads=2, problem={"operator": "fork_join"}),
        ),
    )  # fmt: skip


@cache
def sheet(name: str) -> Machine:
    return Machine.from_datasheet(name)


def several() -> list[Machine]:
    return [sheet("A100 SXM 80GB"), sheet("H100 SXM"), sheet("GB200")]


PHASES = [Prefill(seq_q=1024), Decode(batch=1), Decode(batch=128)]


def arguments(config: TransformerConfig, machine: Machine, others: list[Machine]) -> dict[str, tuple[Any, ...]]:
    """For every plot what it is called with."""
    return {
        "ridge_points": (others,),
        "operations": (config, machine),
        "intensity_over_batch": (config, others),
        "intensity_over_seq": (config, others),
        "attention_steps": (config, machine),
        "workloads": (machine, config),
        "compute_ceilings": (machine, config),
        "machines": (others, config),
        "kernel_placement": (census_of(config, PHASES, machine),),
        "decode_over_batch": (config, others),
        "decode_latency": (config, others),
        "decode_heatmap": (config, machine),
        "block_profile": (predict(machine, config, Decode(batch=8), must_fit=False),),
    }


SETTINGS: dict[str, Callable[[], tuple[TransformerConfig, Machine, list[Machine]]]] = {
    "Llama on GPUs": lambda: (LLAMA, sheet("H100 SXM"), several()),
    "R1 on GPUs": lambda: (R1, sheet("GB200"), several()),
    "Llama on a CPU": lambda: (LLAMA, cpu(), [cpu(), sheet("H100 SXM")]),
    "R1 on a CPU": lambda: (R1, cpu(), [cpu()]),
    "GPT-OSS on another GPU": lambda: (GPT, sheet("MI300X"), [sheet("MI300X"), sheet("GB200")]),
}
NAMES = list(arguments(LLAMA, cpu(), [cpu()]))
EACH = pytest.mark.parametrize("name", NAMES)
# Every picture in every setting; without --slow in one, so that every setting has its turn.
EACH_IN_SETTINGS = pytest.mark.parametrize(
    ("name", "setting"),
    [
        pytest.param(name, setting, marks=[] if (i - j) % len(SETTINGS) == 0 else [pytest.mark.slow])
        for i, name in enumerate(NAMES) for j, setting in enumerate(SETTINGS)
    ],
)  # fmt: skip


@cache
def given(setting: str) -> dict[str, tuple[Any, ...]]:
    return arguments(*SETTINGS[setting]())


def lines(ax: Axes, start: str) -> list[Any]:
    return [line for line in ax.lines if str(line.get_gid() or "").startswith(start)]


def words(ax: Axes, start: str) -> list[str]:
    return [text.get_text() for text in ax.texts if str(text.get_gid() or "").startswith(start)]


def rows(records: list[dict[str, Any]], element: str = "row") -> dict[str, dict[str, Any]]:
    return {r["label"]: r for r in records if r["element"] == element}


def points(records: list[dict[str, Any]], label: str, x: str, y: str) -> dict[float, float]:
    return {r[x]: r[y] for r in records if r["element"] == "point" and r["label"] == label}


def footer(ax: Axes) -> str:
    return " ".join(words(ax, "footer")[0].split())


# -- numbers that others worked out -------------------------------------------------------------------------------------------


def test_ridge_points_are_the_documents() -> None:
    figure = next(f for f in FIGURES.values() if f["id"] == "a100-ridges")
    bandwidth = figure["inputs"]["bytes_per_s"]
    a100 = dataclasses.replace(
        sheet("A100 SXM 80GB"),
        ceilings=tuple(dataclasses.replace(c, samples=(bandwidth,)) if c.kind == "bandwidth" else c
                       for c in sheet("A100 SXM 80GB").ceilings),
    )  # fmt: skip
    found = {(r["dtype"], r["unit"]): r["ridge_flops_per_byte"] for r in plot.ridge_points_data(a100) if r["element"] == "row"}
    for kind, value in figure["expected"].items():
        dtype, unit = kind.split()
        same = {"fp16": "bf16"}.get(dtype, dtype) if unit == "tensor" else dtype  # joined with fp16, which has the same rate
        assert found[same, unit] == pytest.approx(value, rel=1e-9)


def test_intensity_over_batch_is_the_products() -> None:
    """Of a linear layer of 4096: 1.0 at one row, 120.5 at 128, 409.6 at 512; the H100's ridge point is met at 345 rows."""
    linear = Bmm(batch=1, rows=1, columns=4096, inner=4096, dtype="fp16", out_dtype="fp16")
    records = plot.intensity_over_batch_data(linear, sheet("H100 SXM"))
    found = points(records, "bmm", "batch", "flops_per_byte")
    for n in (1, 128, 512):
        assert found[n] == pytest.approx(2 * n * 4096 * 4096 / (2 * (2 * n * 4096 + 4096 * 4096)), rel=1e-12)
    assert found[512] == pytest.approx(409.6)
    (crossing,) = rows(records, "crossing").values()
    ridge = 989.4e12 / 3.35e12
    assert crossing["flops_per_byte"] == pytest.approx(ridge)
    assert crossing["batch"] == pytest.approx(4096 * 4096 * ridge / (4096 * 4096 - 2 * 4096 * ridge))
    ax = plot.intensity_over_batch(linear, sheet("H100 SXM"))
    (line,) = lines(ax, "line 1")
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == found


def test_attention_steps_are_the_documents() -> None:
    figure = FIGURES["unfused-attention-4096"]
    head_dim, seq = figure["inputs"]["head_dim"], figure["inputs"]["seq_len"]
    head = Attention(heads=1, seq_q=seq, seq_kv=seq, head_dim=head_dim, dtype="fp16")
    found = rows(plot.attention_steps_data(head, sheet("H100 SXM")))
    exact = figure["expected"]
    steps = ["q·kᵀ", "softmax", "p·v"]
    assert [found[step]["flops"] for step in steps] == pytest.approx(exact["flops"], rel=1e-9)
    assert [found[step]["bytes"] for step in steps] == pytest.approx(exact["bytes"], rel=1e-9)
    assert found["unfused, all"]["flops_per_byte"] == pytest.approx(exact["flops_per_byte"], rel=1e-9)
    assert found["fused"]["bytes"] == 4 * seq * head_dim * 2
    for quantity in ("flops", "bytes", "flops_per_byte"):
        ax = plot.attention_steps(head, quantity=quantity)
        drawn = [patch.get_x() + patch.get_width() for patch in ax.patches]
        assert drawn == pytest.approx([row[quantity] for row in found.values()])


def test_intensity_over_lengths_is_the_documents() -> None:
    figure = FIGURES["unfused-attention-lengths"]
    lengths = figure["inputs"]["seq_len"]
    head = Attention(heads=1, seq_q=1, seq_kv=1, head_dim=figure["inputs"]["head_dim"], dtype="fp16")
    found = points(plot.intensity_over_seq_data(head, seq_q=lengths), "attention, unfused", "seq", "flops_per_byte")
    assert [found[n] for n in lengths] == pytest.approx(figure["expected"], rel=1e-9)


def test_decode_of_llama_on_an_h100_takes_what_others_computed() -> None:
    """4.561 ms with the head and 4.247 ms without at 3350 GB/s, batch 1, 2048 cached tokens, by weights and cache."""
    for head, value in ((True, 4.561e-3), (False, 4.247e-3)):
        records = plot.decode_latency_data(LLAMA, sheet("H100 SXM"), batch=[1, 2], counting="weights_and_kv", lm_head=head)
        assert points(records, "NVIDIA H100 SXM", "batch", "time_s")[1] == pytest.approx(value, rel=2e-4)
        cells = plot.decode_heatmap_data(
            LLAMA, sheet("H100 SXM"), batch=[1], seq_kv=[2048], counting="weights_and_kv", lm_head=head
        )
        assert cells[0]["element"] == "cell" and cells[0]["time_s"] == pytest.approx(value, rel=2e-4)
        assert cells[0]["tokens_per_s"] == pytest.approx(1 / value, rel=2e-4)


def test_the_four_dots() -> None:
    """Of the "7B" on an A100: one FLOP a byte in decode, about 16 at batch 16, and the prompt's FFN above the ridge point."""
    records = plot.compute_ceilings_data(sheet("A100 SXM 80GB"), preset("7B"))
    dots = rows(records, "dot")
    assert list(dots) == ["attention, decode", "FFN, decode", "FFN, decode, batch 16", "FFN, prefill of 2048"]
    assert [dots[name]["flops_per_byte"] for name in list(dots)[:2]] == pytest.approx([1, 1], rel=0.05)
    assert dots["FFN, decode, batch 16"]["flops_per_byte"] == pytest.approx(16, rel=0.02)
    assert dots["FFN, decode"]["flops_per_s"] == pytest.approx(2.039e12, rel=0.05)
    # 2 · 2048 · 4096 · 16384 · 2 FLOPs over weights, inputs, results, and the activation's reads and writes, 2 bytes each.
    numbers = 2 * 4096 * 16384 + 2 * 2048 * (4096 + 16384) + 2 * 2048 * 16384
    products = 4 * 2048 * 4096 * 16384
    assert dots["FFN, prefill of 2048"]["flops_per_byte"] == pytest.approx(products / (2 * numbers), rel=2e-3)
    assert dots["FFN, prefill of 2048"]["flops_per_s"] == 312e12 and dots["FFN, prefill of 2048"]["bound"] == "compute"
    ceilings = {r["label"] for r in records if r["element"] == "compute_roof"}
    assert ceilings == {
        "int8 tensor 624 TFLOP/s", "bf16/fp16 tensor 312 TFLOP/s", "tf32 tensor 156 TFLOP/s", "fp32 19.5 TFLOP/s",
        "fp64 9.70 TFLOP/s",
    }  # fmt: skip
    assert sum(r["element"] == "memory_roof" for r in records) == 2


def test_the_library_is_drawn_where_it_was_measured() -> None:
    ax = plot.compute_ceilings(cpu(), LLAMA)
    (gemm,) = lines(ax, "roof library GEMM")
    assert set(gemm.get_ydata()) == {188e9} and "fp32 188 GFLOP/s, 85 %" in str(gemm.get_gid())
    assert "no product of a library was measured on NVIDIA H100 SXM" in footer(plot.compute_ceilings(sheet("H100 SXM"), LLAMA))
    assert len(lines(plot.compute_ceilings(sheet("H100 SXM"), LLAMA, measured=cpu()), "roof library GEMM")) == 1


def test_the_ceilings_that_the_dots_meet_are_among_the_five() -> None:
    labels = {r["label"] for r in plot.compute_ceilings_data(sheet("GB200"), R1) if r["element"] == "compute_roof"}
    assert len(labels) == 5 and any("nvfp4" in label for label in labels)
    chosen = plot.compute_ceilings_data(sheet("H100 SXM"), LLAMA, kinds=[("fp32", "core"), ("bf16", "tensor")])
    assert {r["label"] for r in chosen if r["element"] == "compute_roof"} == {"bf16 tensor 989 TFLOP/s", "fp32 66.9 TFLOP/s"}
    with pytest.raises(Error, match="no compute ceiling for nvfp4"):
        plot.compute_ceilings(sheet("H100 SXM"), LLAMA, kinds=[("nvfp4", "tensor")])


def test_one_roof_a_machine() -> None:
    records = plot.machines_data(several(), {"vector": Relu(dtype="bf16")})
    assert {r["flops_per_byte"] for r in records if r["element"] == "guide"} == {0.25}
    dots = {r["machine"]: r["flops_per_s"] for r in records if r["element"] == "dot"}
    assert dots == {m.name: pytest.approx(0.25 * m.bandwidth().value) for m in several()}
    assert "bf16" in plot.machines(several()).get_title(loc="left")
    assert plot.machines([cpu(), sheet("H100 SXM")]).get_title(loc="left").endswith("fp32")
    with pytest.raises(Error, match="two machines are called 'Example CPU'"):
        plot.machines([cpu(), cpu()])
    with pytest.raises(Error, match="no compute ceiling for nvfp4"):
        plot.machines(several(), dtype="nvfp4")


def test_a_workload_lies_where_its_time_puts_it() -> None:
    machine = sheet("H100 SXM")
    found = predict(machine, LLAMA, Decode(batch=32))
    dots = rows(plot.workloads_data(machine, LLAMA), "dot")
    assert dots["decode, batch 32"]["flops_per_s"] == pytest.approx(found.flops / found.time_s)
    assert dots["decode, batch 32"]["flops_per_byte"] == pytest.approx(found.flops / found.bytes)
    for dot in dots.values():  # and never above its roof
        assert dot["flops_per_s"] <= min(989.4e12, 3.35e12 * dot["flops_per_byte"]) * (1 + 1e-9)
    product = plot.workloads_data(machine, {"big": Bmm(batch=1, rows=1024, columns=4096, inner=4096)})
    assert rows(product, "dot")["big"]["flops_per_byte"] == pytest.approx(682.666, rel=1e-5)  # 4096 / 6
    with pytest.raises(Error, match="copy: computes nothing"):
        plot.workloads(machine, {"copy": Stream(access="copy")})


def test_what_does_not_fit_is_hollow() -> None:
    records = plot.decode_over_batch_data(LLAMA, sheet("H100 SXM"), quantity="tokens_per_s", batch=[1, 1024])
    assert [r["fits"] for r in records if r["element"] == "point"] == [True, False]
    ax = plot.decode_over_batch(LLAMA, sheet("H100 SXM"), quantity="tokens_per_s", batch=[1, 1024])
    assert len(lines(ax, "hollow")) == 1 and "hollow: does not fit in memory" in footer(ax)
    cells = [r for r in plot.decode_heatmap_data(LLAMA, sheet("H100 SXM")) if r["element"] == "cell"]
    limit = 80e9 - 2 * 8.03e9
    for cell in cells:  # 131072 bytes of cache a token, and weights
        need = cell["batch"] * cell["seq_kv"] * 131072
        if abs(need / limit - 1) > 0.1:
            assert cell["fits"] == (need < limit), cell


def test_the_border_is_where_the_intensity_crosses_the_ridge_point() -> None:
    ax = plot.decode_heatmap(LLAMA, cpu(), batch=[1, 2, 4, 8, 16], seq_kv=[256, 4096, 32768])
    records = plot.decode_heatmap_data(LLAMA, cpu(), batch=[1, 2, 4, 8, 16], seq_kv=[256, 4096, 32768])
    ridges = [r["batch"] for r in records if r["element"] == "ridge"]
    assert ridges[0] < ridges[2] and records[-1]["element"] == "note"
    horizontal = {tuple(line.get_xdata()): line.get_ydata()[0] for line in lines(ax, "border") if len(set(line.get_ydata())) == 1}
    for column, ridge in enumerate(ridges):
        below = sum(batch < ridge for batch in (1, 2, 4, 8, 16))
        assert horizontal[column - 0.5, column + 0.5] == below - 0.5
    # Cells well below it move at the memory's rate.
    low = next(r for r in records if r["element"] == "cell" and r["batch"] == 1)
    assert low["bound"] == "DRAM"


def test_kernels_lie_on_their_roofs() -> None:
    machine = sheet("GB200")
    census = census_of(R1, PHASES, machine)
    for phase in PHASES:
        dots = rows(plot.kernel_placement_data(census, phase), "dot")
        for entry in census.of(phase):
            if entry.flops:
                dot = dots[entry.name]
                assert dot["flops_per_byte"] == entry.flops_per_byte and dot["flops_per_s"] == entry.attainable_flops_per_s
                slope = 8e12 * entry.flops_per_byte
                assert dot["flops_per_s"] == pytest.approx(min(slope, entry.placed.roofs.compute_flops_per_s))
    assert "no place, since they compute or move nothing: embedding" in footer(plot.kernel_placement(census))
    with pytest.raises(Error, match="taken without a machine"):
        plot.kernel_placement(census_of(R1, PHASES))
    with pytest.raises(Error, match="has no phase"):
        plot.kernel_placement(census, Decode(batch=7))


def test_every_kernel_has_its_number() -> None:
    census = census_of(R1, PHASES, sheet("GB200"))
    ax = plot.kernel_placement(census, PHASES[1])
    numbers: list[int] = []
    for text in words(ax, "name"):
        for part in text.split(", "):
            first, _, last = part.partition("–")
            numbers += range(int(first), int(last or first) + 1)
    listed = [text.get_text().split()[0] for text in ax.get_legend().get_texts()]
    assert sorted(numbers) == [int(number) for number in listed] == list(range(1, len(lines(ax, "dot")) + 1))


def test_a_profile_adds_up() -> None:
    found = predict(cpu(), LLAMA, Decode(batch=8), overhead_s=0.05)
    every = rows(plot.block_profile_data(found))
    total = every.pop("all")
    assert total["time_s"] == pytest.approx(found.time_s) and sum(r["share"] for r in every.values()) == pytest.approx(1)
    by_roof = [value for key, value in total.items() if key.endswith("_s") and key != "time_s" and value]
    assert sum(by_roof) == pytest.approx(found.time_s)
    assert "overhead" in every
    ax = plot.block_profile(found)
    ends = [patch.get_x() + patch.get_width() for patch in ax.patches if str(patch.get_gid()).startswith("bar 0 ")]
    assert max(ends) == pytest.approx(100)


def test_operations_by_phase() -> None:
    found = rows(plot.operations_data(LLAMA, sheet("H100 SXM")))
    gate = found["gate and up"]
    n, k = 2 * 14336, 4096
    for phase, m in (("decode, batch 1", 1), ("prefill of 1024", 1024)):
        assert gate[f"flops_per_byte, {phase}"] == pytest.approx(2 * m * n * k / (2 * (m * k + k * n + m * n)))
    assert gate["ridge_flops_per_byte"] == pytest.approx(989.4 / 3.35)
    assert "computes nothing: embedding, cache write" in footer(plot.operations(LLAMA))
    with pytest.raises(Error, match="none of these computes anything"):
        plot.operations({"copy": Stream(access="copy")})


def test_measured_kernels_lie_where_they_were_measured() -> None:
    class Seen:
        operator, variant, device, threads, cache_state, status = "matmul", "library", "cpu", 2, "cold", "ok"
        problem = {"rows": 1, "columns": 4096, "inner": 4096, "dtype": "fp32"}
        time_s, provenance = 5e-3, {}

    config = LLAMA.replace(weights="fp32", activations="fp32", kv="fp32")
    census = census_of(config, Decode(), cpu(), results=[Seen()])
    dot = rows(plot.kernel_placement_data(census), "dot")["output projection"]
    assert dot["measured_s"] == 5e-3 and dot["flops_per_s"] == pytest.approx(2 * 4096 * 4096 / 5e-3)
    assert "measured kernels lie where they were measured" in footer(plot.kernel_placement(census))
    assert Results() is not None


def test_unverified_numbers_say_so() -> None:
    assert any("(unverified)" in r for r in words(plot.ridge_points(sheet("MI300X")), "value"))
    assert all(r["unverified"] for r in plot.ridge_points_data(sheet("MI300X")) if r["element"] == "row" and r["dtype"] == "fp64")


# -- bad input ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: plot.decode_over_batch(LLAMA, []), "give at least one machine"),
        (lambda: plot.decode_over_batch(LLAMA, cpu(), quantity="speed"), "quantity must be one of flops_per_byte, tokens_per_s"),
        (lambda: plot.decode_heatmap(LLAMA, cpu(), batch=[]), "batch must be whole numbers from 1, got none"),
        (lambda: plot.decode_heatmap(LLAMA, cpu(), seq_kv=[0]), "seq_kv must be whole numbers from 1, got 0"),
        (lambda: plot.decode_latency(LLAMA, cpu(), over="heads"), "over must be one of batch, seq_kv"),
        (lambda: plot.intensity_over_batch(LLAMA, batch=[1.5]), "batch must be whole numbers"),
        (lambda: plot.intensity_over_batch(Relu()), "has none of rows, tokens, batch"),
        (lambda: plot.intensity_over_batch({}), "give at least one problem"),
        (lambda: plot.attention_steps(Relu()), "is no attention"),
        (lambda: plot.workloads(cpu(), LLAMA, phase=[]), "give at least one phase"),
        (lambda: plot.workloads(cpu(), LLAMA, phase=[Decode(), Decode()]), "each once"),
        (lambda: plot.ridge_points(Machine(name="bare")), "no bandwidth was measured"),
        (lambda: plot.workloads(Machine(name="bare"), LLAMA), "no bandwidth was measured"),
        (lambda: plot.save_picture(".", "pie"), "there is no plot 'pie'; there are ridge_points"),
    ],
)
def test_bad_input(call: Callable[[], object], said: str) -> None:
    with pytest.raises(Error, match=said):
        call()
    assert plt.get_fignums() == []


# -- readable, all of them ----------------------------------------------------------------------------------------------------


def pictures(setting: str, name: str) -> Iterator[Axes]:
    """Each panel on a figure of its own."""
    from roofline.plot.show import show

    for shown in panels(name, *given(setting)[name]):
        yield show(shown, None)


def texts(ax: Axes) -> list[Any]:
    """Every word on a picture: labels, title, legend and ticks in view."""
    found = [*ax.texts, ax.xaxis.label, ax.yaxis.label, ax._left_title]
    if ax.get_legend() is not None:
        found += ax.get_legend().get_texts()
    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, sorted(ax.get_ylim()))):
        index = 0 if axis is ax.xaxis else 1
        found += [label for label in axis.get_ticklabels() if low <= label.get_position()[index] <= high]
    return [text for text in found if text.get_text()]


@EACH_IN_SETTINGS
def test_labels_overlap_no_other_and_no_point_and_are_inside(name: str, setting: str) -> None:
    for ax in pictures(setting, name):
        ax.figure.draw_without_rendering()
        found = [(text.get_text(), text_corners(text)) for text in texts(ax)]
        for (one, a), (other, b) in itertools.combinations(found, 2):
            assert not overlap(a, b), f"{one!r} and {other!r}"
        drawn = [
            (float(x), float(y)) for start in ("points", "hollow", "dot", "mark") for line in lines(ax, start)
            for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
        ]  # fmt: skip
        if drawn:
            places = np.array([ax.transData.transform(at) for at in drawn])
            hidden = [text.get_text() for text in ax.texts if contains(text_corners(text), places).any()]
            assert hidden == []
        ax.figure.set_dpi(60)  # where rounding to whole pixels shows most
        ax.figure.draw_without_rendering()
        inside = ax.figure.bbox
        for text in texts(ax):
            box = text.get_window_extent()
            within = box.x0 >= inside.x0 and box.x1 <= inside.x1 and box.y0 >= inside.y0 and box.y1 <= inside.y1
            assert within, text.get_text()
        plt.close(ax.figure)


@pytest.mark.parametrize("name", ["attention_steps", "kernel_placement", "decode_over_batch", "decode_latency", "decode_heatmap"])
def test_panels_beside_each_other_do_not_overlap(name: str, tmp_path: Path) -> None:
    """In one file: no panel's words in another's."""
    from roofline.plot.show import draw_panels

    shown = panels(name, *given("R1 on GPUs")[name])
    assert len(shown) > 1
    figure = Figure()
    FigureCanvasAgg(figure)
    axes = [figure.add_axes((0, 0, 1, 1)) for _ in shown]
    draw_panels(shown, axes)
    figure.draw_without_rendering()
    found = [(number, text.get_text(), text_corners(text)) for number, ax in enumerate(axes) for text in texts(ax)]
    for (i, one, a), (j, other, b) in itertools.combinations(found, 2):
        if i != j:
            assert not overlap(a, b), f"{one!r} and {other!r}"


def lightness(colour: Any) -> float:
    """L* of CIE 1976 of an sRGB colour, 0 to 100."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mpl.colors.to_rgb(colour)]
    luminance = sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return float(116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance)


def test_series_are_told_apart_without_colour() -> None:
    looks = [style.series(index) for index in range(60)]
    assert len({(marker, str(dashes)) for _, marker, dashes in looks}) == 60
    assert len({(marker, str(dashes)) for _, marker, dashes in looks[:15]}) == len({marker for _, marker, _ in looks[:15]}) == 15
    assert all(lightness(colour) <= 60 for colour, _, _ in looks)  # names are written in them
    assert all(lightness(colour) <= 60 for colour in style.INKS.values())


def test_fills_are_told_apart_without_colour() -> None:
    """No two roofs have one hatch and nearly one lightness."""
    for (one, a), (other, b) in itertools.combinations(style.ROOF_FILLS.items(), 2):
        if {one, other} <= set(MEMORIES):  # of which a machine has one
            continue
        assert a[1] != b[1] or abs(lightness(a[0]) - lightness(b[0])) > 8, (one, other)


def test_lines_of_a_picture_differ_without_colour() -> None:
    for name in ("intensity_over_batch", "intensity_over_seq", "decode_over_batch", "decode_latency"):
        for ax in pictures("R1 on GPUs", name):
            looks = [
                (str(line._dash_pattern), points.get_marker())
                for line, points in zip(lines(ax, "line"), lines(ax, "points") or lines(ax, "hollow"), strict=False)
            ]
            assert len(set(looks)) == len(looks)


def test_heat_is_read_in_grey() -> None:
    """Larger values are darker, and words stand out."""
    ax = plot.decode_heatmap(LLAMA, cpu(), batch=[1, 8, 64], seq_kv=[256, 1024])
    values = {text.get_gid().removeprefix("value "): text for text in ax.texts if str(text.get_gid()).startswith("value")}
    cells = {p.get_gid().removeprefix("cell "): p for p in ax.patches if not p.get_hatch()}
    found = sorted((float(values[at].get_text()), lightness(cell.get_facecolor())) for at, cell in cells.items())
    shades = [shade for _, shade in found]
    assert len(found) > 3 and shades == sorted(shades, reverse=True) and shades[0] - shades[-1] > 40
    for at, cell in cells.items():
        assert abs(lightness(values[at].get_color()) - lightness(cell.get_facecolor())) > 40


# -- being a good guest, and files --------------------------------------------------------------------------------------------


@EACH
def test_given_axes_are_drawn_on(name: str) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(16, 8), layout="constrained")
    size = figure.get_size_inches().tolist()
    function = getattr(plot, name)
    assert function(*given("Llama on GPUs")[name], ax=axes[1]) is axes[1]
    assert plt.get_fignums() == [figure.number] and figure.get_size_inches().tolist() == size
    assert axes[0].lines[:] == [] and (len(axes[1].lines) + len(axes[1].patches)) > 2
    if name in ("operations", "decode_heatmap"):  # bars, and panels
        function(*given("Llama on GPUs")[name], ax=Figure().add_subplot())  # and on a figure that pyplot does not know
    # The data are a table, whose notes are drawn.
    records = getattr(plot, f"{name}_data")(*given("Llama on GPUs")[name])
    assert len({tuple(record) for record in records}) == 1  # all with the same keys
    assert all(value is None or isinstance(value, (bool, int, float, str)) for record in records for value in record.values())
    assert all(math.isfinite(v) for record in records for v in record.values() if isinstance(v, float))
    notes = [r["label"] for r in records if r["element"] == "note"]
    assert notes and all(note.split()[0] in footer(axes[1]) for note in notes)


@pytest.mark.parametrize("name", ["attention_steps", "decode_over_batch", "operations"])  # others are saved from the command line
def test_saved_files(name: str, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    paths = plot.save_picture(tmp_path / "new", name, *given("Llama on a CPU")[name])
    assert [path.name for path in paths] == [f"{name}.svg", f"{name}.png", f"{name}.csv"]
    assert ElementTree.parse(paths[0]).getroot().tag.endswith("svg")
    with open(paths[2], newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(plot.picture_data(name, *given("Llama on a CPU")[name]))
    assert plt.get_fignums() == [] and dict(mpl.rcParams) == before
    if name != "operations":  # saved again it is the same
        again = plot.save_picture(tmp_path / "again", name, *given("Llama on a CPU")[name])
        assert all(again[i].read_bytes() == paths[i].read_bytes() for i in (0, 2))


@EACH
def test_without_matplotlib_there_are_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = given("Llama on GPUs")[name]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Error, match="plots need matplotlib"):
        getattr(plot, name)(*called)
    assert getattr(plot, f"{name}_data")(*called)


# -- words ----------------------------------------------------------------------------------------------------------------------


def test_pictures_take_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Names, lists in words and the flags of the command line give the records that objects give."""
    h100 = sheet("H100 SXM")
    wanted = plot.decode_heatmap_data(LLAMA.replace(weights="fp8_e4m3"), h100, batch=[1, 2, 4, 8], seq_kv=[1024, 8192])
    assert plot.decode_heatmap_data("Llama-3-8B", "H100", batch="1:8", seq_kv="1k,8k", weights="fp8") == wanted
    arguments = ["plot", "decode-heatmap", "Llama-3-8B", "--machine", "H100", "--batch", "1:8", "--seq-kv", "1k,8k"]
    assert main([*arguments, "--quantity", "flops_per_byte", "--weights", "fp8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(wanted))
    pair = [h100, sheet("A100 SXM 80GB")]
    for words, objects in (
        (lambda: plot.decode_latency_data("Llama-3-8B", "H100,A100 SXM 80GB", batch="1,8"),
         lambda: plot.decode_latency_data(LLAMA, pair, batch=[1, 8])),
        (lambda: plot.decode_latency_data("Llama-3-8B", "H100", over="seq_kv", seq_kv="1k:4k", batch=8),
         lambda: plot.decode_latency_data(LLAMA, h100, over="seq_kv", seq_kv=[1024, 2048, 4096], batch=8)),
        (lambda: plot.workloads_data("H100", "Llama-3-8B", phase="prefill,decode"),
         lambda: plot.workloads_data(h100, LLAMA, phase=[Prefill(), Decode()])),
        (lambda: plot.ridge_points_data("H100,A100 SXM 80GB"), lambda: plot.ridge_points_data(pair)),
        (lambda: plot.intensity_over_batch_data("gemm", "H100", batch="1:64"),
         lambda: plot.intensity_over_batch_data(Matmul(), [h100], batch=[1, 2, 4, 8, 16, 32, 64])),
        (lambda: plot.roofline_data("H100"), lambda: plot.roofline_data(h100)),
    ):  # fmt: skip
        assert words() == objects()


def test_titles_are_the_callers() -> None:
    assert plot.decode_heatmap("Llama-3-8B", "H100", batch="1,2", seq_kv="1k", title="ours").get_title(loc="left") == "ours"
    assert plot.roofline("H100", title="mine").get_title(loc="left") == "mine"
    assert panels("decode_latency", LLAMA, sheet("H100 SXM"), over="batch", title="each")[0].title == "each"


def test_a_size_that_is_no_axis_is_refused() -> None:
    with pytest.raises(Error, match="a range of sizes is written 1:1024"):
        plot.decode_heatmap_data(LLAMA, "H100", batch="8:1")
    with pytest.raises(Error, match="no plot 'decode_heatmpa' .did you mean decode_heatmap"):
        panels("decode_heatmpa", LLAMA, "H100")
