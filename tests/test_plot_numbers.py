"""What pictures show against numbers worked out elsewhere: documents, hand calculations, predictions and measurements."""

import dataclasses
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from example import bandwidth, fma, launch, measurement
from figures import BY_ID
from matplotlib import pyplot as plt
from shown import lines, notes, words

from roofline import AllReduce, Attention, Bmm, Machine, Matmul, Relu, Stream, census_of, plot
from roofline.errors import Error
from roofline.machine import Ceiling
from roofline.operators import count
from roofline.questions import predict
from roofline.results import Measurement
from roofline.transformer import Decode, Prefill, calls_of, preset

pytestmark = pytest.mark.usefixtures("nothing_is_shown")

LLAMA, R1 = preset("Llama-3-8B"), preset("DeepSeek-R1-NVFP4")
GEMM = {"operator": "matmul", "rows": 2048, "columns": 2048, "inner": 2048, "dtype": "fp32"}


def cpu() -> Machine:
    """A small measured machine: caches, two dtypes, a launch, and a library's product below its roof."""

    def compute(dtype: str, value: float, **more: Any) -> Ceiling:
        return fma(value, dtype, isa="avx2", clock_hz=3.4e9, **more)

    return Machine(
        name="Example CPU",
        facts={"threads": 2, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20, "memory_bytes": 32 << 30},
        ceilings=(
            bandwidth(38e9), bandwidth(30e9, "copy"), bandwidth(200e9, level="L3"), compute("fp32", 220e9), compute("fp64", 110e9),
            compute("fp32", 188e9, probe="gemm.square", problem=GEMM), launch(4e-6),
        ),
    )  # fmt: skip


@cache
def sheet(name: str) -> Machine:
    return Machine.from_datasheet(name)


def several() -> list[Machine]:
    return [sheet("A100 SXM 80GB"), sheet("H100 SXM"), sheet("GB200")]


PHASES = [Prefill(seq_q=1024), Decode(batch=1), Decode(batch=128)]


def rows(records: list[dict[str, Any]], element: str = "row") -> dict[str, dict[str, Any]]:
    return {r["label"]: r for r in records if r["element"] == element}


def points(records: list[dict[str, Any]], label: str, x: str, y: str) -> dict[float, float]:
    return {r[x]: r[y] for r in records if r["element"] == "point" and r["label"] == label}


# -- numbers that others worked out -------------------------------------------------------------------------------------------


def test_ridge_points_are_the_documents() -> None:
    figure = BY_ID["a100-ridges"]
    a100 = dataclasses.replace(
        sheet("A100 SXM 80GB"),
        ceilings=tuple(dataclasses.replace(c, samples=(2e12,)) if c.kind == "bandwidth" else c
                       for c in sheet("A100 SXM 80GB").ceilings),
    )  # fmt: skip
    found = {(r["dtype"], r["unit"]): r["ridge_flops_per_byte"] for r in plot.ridge_points_data(a100) if r["element"] == "row"}
    for kind, value in figure["expected"].items():
        dtype, unit = kind.split()
        same = {"fp16": "bf16"}.get(dtype, dtype) if unit == "tensor" else dtype  # joined with fp16, which has the same rate
        assert found[same, unit] == pytest.approx(value, rel=1e-9)


def test_intensity_over_batch_is_the_products() -> None:
    """FLOP/byte of a 4096-wide linear layer: 1.0 at one row, 120.5 at 128, 409.6 at 512; 345 rows meet the H100's ridge point."""
    linear = Bmm(batch=1, rows=1, columns=4096, inner=4096, dtype="fp16", out_dtype="fp16")
    records = plot.intensity_over_batch_data(linear, machines=sheet("H100 SXM"))
    found = points(records, "bmm", "batch", "flops_per_byte")
    for n in (1, 128, 512):
        assert found[n] == pytest.approx(2 * n * 4096 * 4096 / (2 * (2 * n * 4096 + 4096 * 4096)), rel=1e-12)
    assert found[512] == pytest.approx(409.6)
    (crossing,) = rows(records, "crossing").values()
    ridge = 989.4e12 / 3.35e12
    assert crossing["flops_per_byte"] == pytest.approx(ridge)
    assert crossing["batch"] == pytest.approx(4096 * 4096 * ridge / (4096 * 4096 - 2 * 4096 * ridge))
    ax = plot.intensity_over_batch(linear, machines=sheet("H100 SXM"))
    (line,) = lines(ax, "line 1")
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == found


def test_attention_steps_are_the_documents() -> None:
    figure = BY_ID["unfused-attention-4096"]
    head_dim, seq = figure["inputs"]["head_dim"], figure["inputs"]["seq_len"]
    head = Attention(heads=1, seq_q=seq, seq_kv=seq, head_dim=head_dim, dtype="fp16")
    found = rows(plot.attention_steps_data(head, machine=sheet("H100 SXM")))
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
    figure = BY_ID["unfused-attention-lengths"]
    lengths = figure["inputs"]["seq_len"]
    head = Attention(heads=1, seq_q=1, seq_kv=1, head_dim=figure["inputs"]["head_dim"], dtype="fp16")
    found = points(plot.intensity_over_seq_data(head, seq_q=lengths), "attention, unfused", "seq", "flops_per_byte")
    assert [found[n] for n in lengths] == pytest.approx(figure["expected"], rel=1e-9)


def test_decode_of_llama_on_an_h100_takes_what_others_computed() -> None:
    """4.561 ms with the head and 4.247 ms without at 3350 GB/s, batch 1, 2048 cached tokens, by weights and cache."""
    for head, value in ((True, 4.561e-3), (False, 4.247e-3)):
        records = plot.decode_latency_data(sheet("H100 SXM"), LLAMA, batch=[1, 2], counting="weights_and_kv", lm_head=head)
        assert points(records, "NVIDIA H100 SXM", "batch", "time_s")[1] == pytest.approx(value, rel=2e-4)
        cells = plot.decode_heatmap_data(
            sheet("H100 SXM"), LLAMA, batch=[1], seq_kv=[2048], counting="weights_and_kv", lm_head=head
        )
        assert cells[0]["element"] == "cell" and cells[0]["time_s"] == pytest.approx(value, rel=2e-4)
        assert cells[0]["tokens_per_s"] == pytest.approx(1 / value, rel=2e-4)


def test_the_four_dots() -> None:
    """The "7B" on an A100: one FLOP a byte in decode, about 16 at batch 16, and the prompt's FFN above the ridge point."""
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
    assert "no product of a library was measured on NVIDIA H100 SXM" in notes(plot.compute_ceilings_data(sheet("H100 SXM"), LLAMA))
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


def test_the_number_of_a_ridge_has_the_colour_of_its_machine() -> None:
    machines = [sheet("H100 SXM"), sheet("H200 SXM"), sheet("GB200")]  # two of them have one peak
    ax = plot.machines(machines)
    ridges = {t.get_text(): t.get_color() for t in ax.texts if t.get_gid() == "ridge"}
    flat = {line.get_gid(): line.get_color() for line in lines(ax, "roof") if len(set(line.get_ydata())) == 1}
    assert len(set(ridges.values())) == 3 and list(ridges.values()) == list(flat.values())


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
    records = plot.decode_over_batch_data(sheet("H100 SXM"), LLAMA, quantity="tokens_per_s", batch=[1, 1024])
    assert [r["fits"] for r in records if r["element"] == "point"] == [True, False]
    ax = plot.decode_over_batch(sheet("H100 SXM"), LLAMA, quantity="tokens_per_s", batch=[1, 1024])
    assert len(lines(ax, "hollow")) == 1 and "hollow: does not fit in memory" in notes(records)
    for machines, said in (("H100 SXM", "does not fit in memory"), (["H100 SXM", "A100 SXM 80GB"], "fits in no machine's memory")):
        records = plot.decode_over_batch_data(machines, LLAMA, quantity="flops_per_byte", batch=[1, 1024])
        ax = plot.decode_over_batch(machines, LLAMA, quantity="flops_per_byte", batch=[1, 1024])
        assert [r["fits"] for r in records if r["element"] == "point"] == [True, False]
        assert len(lines(ax, "hollow")) == 1 and f"hollow: {said}" in notes(records)
    cells = [r for r in plot.decode_heatmap_data(sheet("H100 SXM"), LLAMA) if r["element"] == "cell"]
    limit = 80e9 - 2 * 8.03e9
    for cell in cells:  # 131072 bytes of cache a token, and weights
        need = cell["batch"] * cell["seq_kv"] * 131072
        if abs(need / limit - 1) > 0.1:
            assert cell["fits"] == (need < limit), cell


def test_the_border_is_where_the_intensity_crosses_the_ridge_point() -> None:
    ax = plot.decode_heatmap(cpu(), LLAMA, batch=[1, 2, 4, 8, 16], seq_kv=[256, 4096, 32768])
    records = plot.decode_heatmap_data(cpu(), LLAMA, batch=[1, 2, 4, 8, 16], seq_kv=[256, 4096, 32768])
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
        dots = rows(plot.kernel_placement_data(census, phase=phase), "dot")
        for entry in census.of(phase):
            if entry.flops:
                dot = dots[entry.name]
                assert dot["flops_per_byte"] == entry.flops_per_byte and dot["flops_per_s"] == entry.attainable_flops_per_s
                slope = 8e12 * entry.flops_per_byte
                assert dot["flops_per_s"] == pytest.approx(min(slope, entry.placed.roofs.compute_flops_per_s))
    assert "no place, since they compute or move nothing: embedding" in notes(plot.kernel_placement_data(census))
    with pytest.raises(Error, match="taken without a machine"):
        plot.kernel_placement(census_of(R1, PHASES))
    with pytest.raises(Error, match="has no phase"):
        plot.kernel_placement(census, phase=Decode(batch=7))


def test_kernels_of_all_phases_have_the_same_axes() -> None:
    shown: list[Any] = plot.kernel_placement.panels(sheet("H100 SXM"), LLAMA, phase=PHASES)
    assert len({(panel.x_limits, panel.y_limits) for panel in shown}) == 1
    for panel in shown:  # roofs reach as far as the axes
        assert max(x for line in panel.lines for x, _ in line.points) == panel.x_limits[1]


def test_every_kernel_has_its_number() -> None:
    census = census_of(R1, PHASES, sheet("GB200"))
    ax = plot.kernel_placement(census, phase=PHASES[1])
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
    found = rows(plot.operations_data(LLAMA, machine=sheet("H100 SXM")))
    gate = found["gate and up"]
    n, k = 2 * 14336, 4096
    for phase, m in (("decode, batch 1", 1), ("prefill of 1024", 1024)):
        assert gate[f"flops_per_byte, {phase}"] == pytest.approx(2 * m * n * k / (2 * (m * k + k * n + m * n)))
    assert gate["ridge_flops_per_byte"] == pytest.approx(989.4 / 3.35)
    assert "computes nothing: embedding, cache write" in notes(plot.operations_data(LLAMA))
    with pytest.raises(Error, match="none of these computes anything"):
        plot.operations({"copy": Stream(access="copy")})


def test_measured_kernels_lie_where_they_were_measured() -> None:
    timed = seen(Matmul(rows=1, columns=4096, inner=4096), 5e-3, "library")
    config = LLAMA.replace(weights="fp32", activations="fp32", kv="fp32")
    census = census_of(config, Decode(), cpu(), results=[timed])
    dot = rows(plot.kernel_placement_data(census), "dot")["output projection"]
    assert dot["measured_s"] == 5e-3 and dot["flops_per_s"] == pytest.approx(2 * 4096 * 4096 / 5e-3)
    assert "measured kernels lie where they were measured" in notes(plot.kernel_placement_data(census))


def test_unverified_numbers_say_so() -> None:
    assert any("(unverified)" in r for r in words(plot.ridge_points(sheet("MI300X")), "value"))
    assert all(r["unverified"] for r in plot.ridge_points_data(sheet("MI300X")) if r["element"] == "row" and r["dtype"] == "fp64")


# -- measured beside the model ------------------------------------------------------------------------------------------------


def seen(problem: Any, time_s: float, variant: str = "tiled", **more: Any) -> Measurement:
    return measurement(problem, (time_s,) * 6, variant=variant, **more)


def test_attention_steps_as_measured() -> None:
    """16 MiB of scores in fp32: q·kᵀ does 2·8·1024²·64 FLOPs in 20 ms, and moves q, k and the scores."""
    problem = Attention(heads=8, kv_heads=8, seq_q=1024, seq_kv=1024, head_dim=64, causal=True)
    steps = {"q·kᵀ": (0.02,), "softmax": (0.03,), "p·v": (0.025,)}
    results = [seen(problem, 0.08, "naive", steps=steps), seen(problem, 0.01)]
    found = rows(plot.attention_steps.data(machine=cpu(), results=results))
    pairs = 8 * 1024 * 1025 // 2
    assert found["q·kᵀ"]["flops"] == 2 * pairs * 64 and found["q·kᵀ"]["measured_s"] == 0.02
    assert found["q·kᵀ"]["bytes"] == 4 * (2 * 8 * 1024 * 64 + pairs) and found["softmax"]["bytes"] == 4 * 2 * pairs
    assert (found["unfused, all"]["measured_s"], found["fused"]["measured_s"]) == (0.08, 0.01)
    bars = plot.attention_steps(machine=cpu(), results=results, quantity="bytes_per_s").patches
    assert bars[1].get_width() + bars[1].get_x() == pytest.approx(8 * pairs / 0.03)
    assert len(plot.attention_steps.panels(machine=cpu(), results=results)) == 6 and len(plot.attention_steps.panels(LLAMA)) == 3


def kernels(batch: int) -> list[Measurement]:
    every = {str(c.problem): c.problem for c in calls_of(LLAMA, Decode(batch=batch, seq_kv=2048))}.values()
    return [seen(p, max(count(p).bytes / 19e9, 1e-5), next(iter(p.variants), "")) for p in every]


def test_a_decode_step_as_measured() -> None:
    """Each kernel at half of the memory's rate: the sum of their bytes over 19 GB/s, in every picture of it."""
    calls = calls_of(LLAMA, Decode(batch=8, seq_kv=2048))
    total = math.fsum(c.count * max(count(c.problem).bytes / 19e9, 1e-5) for c in calls)
    how = {"batch": [8, 16], "results": kernels(8)}
    latency = points(plot.decode_latency.data(cpu(), LLAMA, over="batch", **how), "Example CPU, measured", "batch", "time_s")
    assert latency[8] == pytest.approx(total, rel=1e-9)
    rate = points(
        plot.decode_over_batch.data(cpu(), LLAMA, quantity="tokens_per_s", **how), "Example CPU, measured", "batch", "tokens_per_s"
    )
    assert rate[8] == pytest.approx(8 / total)
    profile = rows(plot.block_profile.data(cpu(), LLAMA, phase=Decode(batch=8, seq_kv=2048), results=kernels(8)))
    assert profile["all"]["measured_s"] == pytest.approx(total) and profile["all"]["share"] == pytest.approx(1)
    cells = plot.decode_heatmap.data(cpu(), LLAMA, of="ratio", seq_kv=2048, **how)
    assert cells[0]["measured_s"] == pytest.approx(total)
    path = [r for r in plot.batch_path.data(cpu(), LLAMA, seq_kv=2048, **how) if r["element"] == "path" and r["of"] == "measured"]
    flops = predict(cpu(), LLAMA, Decode(batch=8, seq_kv=2048), must_fit=False).flops
    assert path[0]["flops_per_s"] == pytest.approx(flops / total)
    request = plot.decode_latency.data(cpu(), LLAMA, over="batch", per="request", output=2, batch=[1, 8])
    ends = [predict(cpu(), LLAMA, Decode(batch=8, seq_kv=n), must_fit=False).time_s for n in (2048, 2050)]
    assert points(request, "Example CPU", "batch", "time_s")[8] == pytest.approx(sum(ends))


def test_sweeps_as_measured_and_as_expected() -> None:
    results = [seen(Matmul(rows=n, columns=512, inner=k), 1e-3 * n) for n in (1, 8) for k in (64, 512)]
    cells = {(r["inner"], r["rows"]): r for r in plot.sweep_map.data(results, cpu(), x="rows", y="inner") if r["element"] == "cell"}
    expected = predict(cpu(), Matmul(rows=8, columns=512, inner=64), variant="tiled").time_s
    assert cells[64, 8]["measured"] == pytest.approx(8e-3) and cells[64, 8]["model"] == pytest.approx(expected)
    assert cells[64, 8]["ratio"] == pytest.approx(8e-3 / expected)
    lines_ = plot.sweep_lines.data(results, cpu(), x="rows", y="flops_per_s")
    (rate,) = [r["flops_per_s"] for r in lines_ if (r["of"], r["inner"], r["rows"]) == ("measured", 512, 8)]
    assert rate == pytest.approx(2 * 8 * 512 * 512 / 8e-3)
    with pytest.raises(Error, match="matmul has no field 'row' .did you mean rows"):
        plot.sweep_lines(results, x="row")


def test_bytes_of_every_level_by_hand() -> None:
    """4096³ in fp32, tiles of 64 x 64 below DRAM: a and b are read 64 times each. Untiled, every FLOP pair reads both."""
    n, flops = 4096, 2 * 4096**3
    dots = [r for r in plot.hierarchy.data(cpu(), Matmul(rows=n, columns=n, inner=n), tiles={"DRAM": {"rows": 64, "columns": 64}})
            if r["element"] == "dot"]  # fmt: skip
    moved = {r["variant"]: r["bytes"] for r in dots}
    assert moved == {"naive": 4 * (2 * n**3 + n * n), "tiled": 4 * (2 * 64 * n * n + n * n)}
    assert [r["flops_per_s"] for r in dots] == pytest.approx([flops / (moved["naive"] / 38e9), min(
        220e9, flops / (moved["tiled"] / 38e9))])  # fmt: skip


def test_collectives_and_predictions_by_hand() -> None:
    """A ring of 4: a rank receives 2·3/4 of the tensor."""
    problem = AllReduce(elements=1 << 20, ranks=4)
    results = [seen(problem, 1e-3, link_bytes=int(problem.link_bytes()))]
    (point,) = [r for r in plot.collectives.data(results) if r["element"] == "point"]
    assert point["size_bytes"] == 2 << 20 and point["link_bytes_per_s"] == pytest.approx(1.5 * (2 << 20) / 1e-3)
    timed = [seen(Relu(), 1e-3, prediction={"time_s": 0.8e-3, "bound": "DRAM", "terms": {}})]
    records = plot.predicted_measured.data(timed)
    assert records[0]["error"] == pytest.approx(-0.2)
    assert rows(records, "error")["mean absolute error"]["error"] == pytest.approx(0.2)


def test_before_and_after() -> None:
    faster = dataclasses.replace(cpu(), ceilings=tuple(dataclasses.replace(c, samples=(2 * c.value,)) for c in cpu().ceilings))
    found = rows(plot.comparison.data(cpu(), faster))
    assert found and all(r["ratio"] == pytest.approx(2) for r in found.values())
    (panel,) = plot.comparison.panels(cpu(), faster)
    assert {row.text.split("  ")[0] for row in panel.rows if not row.heading} == {"+100 %"}


# -- bad input ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: plot.decode_over_batch([], LLAMA), "give at least one machine"),
        (lambda: plot.decode_over_batch(cpu(), LLAMA, quantity="speed"), "quantity must be one of flops_per_byte, tokens_per_s"),
        (lambda: plot.decode_heatmap(cpu(), LLAMA, batch=[]), "batch must be whole numbers from 1, got none"),
        (lambda: plot.decode_heatmap(cpu(), LLAMA, seq_kv=[0]), "seq_kv must be whole numbers from 1, got 0"),
        (lambda: plot.decode_latency(cpu(), LLAMA, over="heads"), "over must be one of batch, seq_kv"),
        (lambda: plot.intensity_over_batch(LLAMA, batch=[1.5]), "batch must be whole numbers"),
        (lambda: plot.intensity_over_batch(Relu()), "has none of rows, tokens, batch"),
        (lambda: plot.intensity_over_batch({}), "give at least one problem"),
        (lambda: plot.attention_steps(Relu()), "is not attention"),
        (lambda: plot.workloads(cpu(), LLAMA, phase=[]), "give at least one phase"),
        (lambda: plot.workloads(cpu(), LLAMA, phase=[Decode(), Decode()]), "each once"),
        (lambda: plot.ridge_points(Machine(name="bare")), "no bandwidth was measured"),
        (lambda: plot.workloads(Machine(name="bare"), LLAMA), "no bandwidth was measured"),
        (lambda: plot.decode_heatmap(cpu(), LLAMA, of="ratio"), "needs measurements"),
        (lambda: plot.decode_latency(cpu(), LLAMA, per="user"), "per must be one of token, request"),
        (lambda: plot.roofline(cpu(), theme="drak"), "theme must be one of light, dark, got 'drak' .did you mean dark"),
        (lambda: plot.roofline(cpu(), ceilings="most"), "ceilings must be one of main, all"),
        (lambda: plot.kernel_placement(cpu()), "kernel_placement needs a model"),
        (lambda: plot.attention_steps(), "needs a model, an attention problem, or measurements"),
        (lambda: plot.collectives(), "give measurements of collectives"),
        (lambda: plot.sweep_map(None, "H100"), "give measurements .results., or an operator"),
        (lambda: plot.sweep_map(None, "H100", work="relu", axes={"elements": [8, 16]}), "no field but elements has two values"),
        (lambda: plot.sweep_lines([], "H100"), "there is nothing to draw"),
        (lambda: plot.predicted_measured([]), "no measurement there has a time and a prediction"),
        (lambda: plot.hierarchy("H100", LLAMA), "takes one problem"),
    ],
)
def test_bad_input(call: Callable[[], object], said: str) -> None:
    with pytest.raises(Error, match=said):
        call()
    assert plt.get_fignums() == []


# -- words ----------------------------------------------------------------------------------------------------------------------


def test_pictures_take_words() -> None:
    """Names and lists in words give the records that objects give."""
    h100 = sheet("H100 SXM")
    pair = [h100, sheet("A100 SXM 80GB")]
    for in_words, objects in (
        (lambda: plot.decode_heatmap_data("H100", "Llama-3-8B", batch="1:8", seq_kv="1k,8k", weights="fp8"),
         lambda: plot.decode_heatmap_data(h100, LLAMA.replace(weights="fp8_e4m3"), batch=[1, 2, 4, 8], seq_kv=[1024, 8192])),
        (lambda: plot.decode_latency_data("H100,A100 SXM 80GB", "Llama-3-8B", batch="1,8"),
         lambda: plot.decode_latency_data(pair, LLAMA, batch=[1, 8])),
        (lambda: plot.decode_latency_data("H100", "Llama-3-8B", over="seq_kv", seq_kv="1k:4k", batch=8),
         lambda: plot.decode_latency_data(h100, LLAMA, over="seq_kv", seq_kv=[1024, 2048, 4096], batch=8)),
        (lambda: plot.workloads_data("H100", "Llama-3-8B", phase="prefill,decode"),
         lambda: plot.workloads_data(h100, LLAMA, phase=[Prefill(), Decode()])),
        (lambda: plot.ridge_points_data("H100,A100 SXM 80GB"), lambda: plot.ridge_points_data(pair)),
        (lambda: plot.intensity_over_batch_data("gemm", machines="H100", batch="1:64"),
         lambda: plot.intensity_over_batch_data(Matmul(), machines=[h100], batch=[1, 2, 4, 8, 16, 32, 64])),
        (lambda: plot.roofline_data("H100"), lambda: plot.roofline_data(h100)),
    ):  # fmt: skip
        assert in_words() == objects()
