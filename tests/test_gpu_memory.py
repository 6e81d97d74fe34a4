"""What is measured of a GPU: problems, sizes and candidates, asked of devices that are not there; and pictures of one made up."""

from pathlib import Path
from typing import Any

import pytest
import reported
from example import around
from reported import Reported
from series import curve, swept

from roofline import Ceiling, Error, HostCopy, Machine, PeerCopy, Unsupported, plot
from roofline.ceilings import wanted, wanted_series
from roofline.ceilings.series import curve_sizes
from roofline.cli.describe import describe_ceilings
from roofline.machine import EmpiricalRoofline, cache_capacity, cache_level, lasting_capacity
from roofline.measurement import probing
from roofline.measurement.devices import Device
from roofline.measurement.probing import level_of, ready
from roofline.probes import probe_named
from roofline.probes.bandwidth import STREAM, dram_array_bytes, size_problem, stream_candidates, stream_problem
from roofline.probes.base import want
from roofline.probes.intensity import mixed_intensity_grid
from roofline.probes.latency import chase_problem
from roofline.units import GIB, KIB, MIB

# The architecture, and L1 with shared memory by the CUDA C++ programming guide.
GPUS = {"A100": ("sm_80", 192 * KIB), "H200": ("sm_90", 256 * KIB), "GB202": ("sm_120", 128 * KIB)}


def made(name: str) -> Reported:
    architecture, _ = GPUS[name]
    lacking = "bulk" if architecture == "sm_80" else None
    return reported.gpu(architecture, missing=lambda variant, dtype: "sm_90" if variant == lacking else "", gpu_name=name)


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest) -> Reported:
    return made(request.param)


def labels(device: Device, depth: str) -> list[str]:
    return [what.label for _, what in wanted(device, depth)]


def test_l1_is_what_the_programming_guide_says(gpu: Reported) -> None:
    assert cache_capacity(gpu.facts, "L1") == GPUS[gpu.title][1] * gpu.facts["sms"]
    assert cache_capacity(gpu.facts, "L2") == gpu.facts["l2_bytes"]
    assert cache_capacity(gpu.facts, "L3") == 0


def test_only_a_part_of_l2_keeps_what_a_launch_left(gpu: Reported) -> None:
    l2 = gpu.facts["l2_bytes"]
    assert lasting_capacity(gpu.facts, "L1") == 0
    assert lasting_capacity(gpu.facts, "L2") <= 0.4 * l2
    assert [cache_level(gpu.facts, size) for size in (1, l2 // 4, l2 // 2, 8 * l2)] == ["L2", "L2", "DRAM", "DRAM"]
    assert level_of(gpu, l2 // 4, "warm") == "L2"
    assert level_of(gpu, l2 // 4, "cold") == "DRAM"


def test_stream_sets_lie_where_their_ceiling_says(gpu: Reported) -> None:
    sms, l2 = gpu.facts["sms"], gpu.facts["l2_bytes"]
    for access in ("read", "copy", "triad"):
        near = stream_problem(gpu, "L2", access)
        assert 0.3 * l2 < near.footprint_bytes() <= 0.4 * l2
        assert near.footprint_bytes() * near.passes > 32 * MIB * sms, "long against a launch"
        far = stream_problem(gpu, "DRAM", access)
        assert far.footprint_bytes() >= GIB
        assert far.elements * 4 == dram_array_bytes(gpu)
    own = stream_problem(gpu, "L1", "read")
    assert own.elements * 4 % (16 * KIB * sms) == 0, "whole rounds of every block"
    assert 16 * KIB <= own.elements * 4 / sms <= GPUS[gpu.title][1] / 4
    with pytest.raises(Unsupported, match="has no L3"):
        stream_problem(gpu, "L3", "read")


def test_candidates_are_those_that_the_architecture_has(gpu: Reported) -> None:
    variants = {variant for _, variant in stream_candidates(gpu, "DRAM", "read")}
    assert variants == ({"plain"} if gpu.title == "A100" else {"plain", "bulk"})
    assert {variant for _, variant in stream_candidates(gpu, "DRAM", "copy")} == variants | {"driver"}
    assert {variant for _, variant in stream_candidates(gpu, "DRAM", "triad")} == variants
    assert {variant for _, variant in stream_candidates(gpu, "DRAM", "write")} == {"plain"}
    for access in ("read", "copy"):
        assert [variant for _, variant in stream_candidates(gpu, "L2", access)] == ["plain"]
    assert {variant for _, variant in stream_candidates(gpu, "DRAM", "update")} == variants
    tuned = {problem.to_dict()["in_flight_bytes"] // KIB for problem, _ in stream_candidates(gpu, "DRAM", "read")}
    assert tuned == {0, 32, 64, 96, 128, 192}
    assert [variant for _, variant in stream_candidates(gpu, "L1", "read")] == ["cached"]
    assert stream_candidates(gpu, "L1", "copy") == []


def test_the_fastest_candidate_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU by however little: no prefetcher makes one of near equals the steadier."""
    device = made("H200")
    monkeypatch.setattr(probing, "allocate_all", lambda *_: {})
    monkeypatch.setattr(probing, "_tensors", lambda *_: {})
    monkeypatch.setattr(probing, "bind", lambda *_: _Bound())
    seconds = {("plain", 0): 1.0, ("bulk", 64 * KIB): 0.995, ("driver", 0): 0.997}
    monkeypatch.setattr(probing, "_once", lambda c: seconds.get((c.variant, c.problem.in_flight_bytes), 1.5))
    candidates = stream_candidates(device, "DRAM", "copy")
    found = probing.fastest(device, want(STREAM, device, 0, *candidates, level="DRAM"))
    assert (found.variant, found.problem.to_dict()["in_flight_bytes"]) == ("bulk", 64 * KIB)


def test_chases_stay_in_their_level(gpu: Reported) -> None:
    l1, l2 = GPUS[gpu.title][1], gpu.facts["l2_bytes"]
    sizes = {level: chase_problem(gpu, level).size_bytes for level in ("L1", "L2", "DRAM")}
    assert sizes["L1"] == l1 // 4 <= gpu.facts["shared_bytes_per_sm"]
    assert 4 * l1 < sizes["L2"] == l2 // 4
    assert sizes["DRAM"] >= 8 * l2
    with pytest.raises(Unsupported, match="no L3"):
        chase_problem(gpu, "L3")


def test_size_curves_reach_from_one_line_per_sm_to_many_times_l2(gpu: Reported) -> None:
    sms, l2 = gpu.facts["sms"], gpu.facts["l2_bytes"]
    problems = [size_problem(gpu, size) for size in curve_sizes(max(GIB, 16 * l2))]
    sizes = [problem.footprint_bytes() for problem in problems]
    assert sizes == sorted(sizes)
    assert sizes[0] <= 64 * sms + 8
    assert sizes[-1] >= 10 * l2
    for problem in problems:
        assert problem.elements * 4 % (64 * sms) == 0
        moved = problem.elements * 4 * problem.passes
        assert moved > 32 * MIB * sms or problem.passes in (1, 1024), "long against a launch, and no longer"
        assert problem.passes <= 1024
    with pytest.raises(Error, match="size_bytes >= 1"):
        size_problem(gpu, 0)


@pytest.mark.parametrize("level", ["DRAM", "L2"])
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_intensities_lie_around_the_knee(gpu: Reported, level: str, dtype: str) -> None:
    grid = mixed_intensity_grid(gpu, level, dtype, flops_per_s=60e12, bytes_per_s=4e12)
    found = [p.total_flops() / p.passes / p.inputs()[0].size_bytes for p in grid]
    assert found == pytest.approx(sorted(found))
    assert sum(7.5 <= intensity <= 30 for intensity in found) >= 7
    assert all(p.streams == 1 and p.isa == "" for p in grid), "kernels of a GPU have one address stream"
    size = grid[0].inputs()[0].size_bytes
    assert size >= GIB - 64 * KIB * gpu.facts["sms"] if level == "DRAM" else size <= 0.4 * gpu.facts["l2_bytes"]
    assert mixed_intensity_grid(gpu, level, dtype), "without known roofs too"


def test_depths(gpu: Reported) -> None:
    quick, standard, thorough = (labels(gpu, depth) for depth in ("quick", "standard", "thorough"))
    assert set(quick) < set(standard) < set(thorough)
    assert len(set(thorough)) == len(thorough), "two ceilings would share a name"
    for label in ("fork-join", "DRAM read", "DRAM copy", "DRAM triad", "L2 read", "L2 copy", "L1 read"):
        assert label in quick
    assert len([label for label in quick if not label.startswith(("fp", "bf", "int", "tf"))]) < 12, "ten seconds"
    for label in (
        "call", "launch and wait", "graph node", "L1 latency", "L2 latency", "DRAM latency", "L1 read shared memory",
        "DRAM write", "host to device pinned", "device to host pinned", "both directions pinned",
    ):  # fmt: skip
        assert label in standard
    for label in ("DRAM read stride 32", "DRAM read scalar", "L2 read scalar", "host to device pageable"):
        assert label in thorough
    assert not any("peer" in label for label in thorough), "there is one GPU"


def test_every_other_gpu_is_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [{"name": f"cuda:{index}", "summary": "", "missing": ""} for index in range(3)]
    monkeypatch.setattr("roofline.measurement.devices.list_devices", lambda: found)
    device = made("H200")
    assert [label for label in labels(device, "standard") if "engine" in label] == [
        "peer to device 1 copy engine",
        "both directions 1 copy engine",
    ]
    thorough = [label for label in labels(device, "thorough") if "engine" in label or "kernel" in label]
    assert len(thorough) == 2 * 2 * 3
    assert "device to peer 2 kernel" in thorough


def test_series() -> None:
    device = made("H200")
    assert wanted_series(device, "quick") == []
    assert [series.label for series in wanted_series(device, "standard")] == ["DRAM read over intensity"]
    thorough = [series.label for series in wanted_series(device, "thorough")]
    for label in ("L2 read over intensity", "DRAM read over intensity, fp64", "read over size", "copy over size"):
        assert label in thorough
    assert "L1 read over intensity" not in thorough, "of a GPU's L1 there is no sweep"


def test_each_is_described_in_words() -> None:
    lines = {line.strip().split(": ")[0]: line for line in describe_ceilings(made("H200"), "thorough")}
    assert "the host's memory" in lines["host to device pinned"]
    assert "both ways" in lines["both directions pinned"]
    assert "shared memory" in lines["L1 read shared memory"]
    assert "waits" in lines["launch and wait"] or "wait" in lines["launch and wait"]


class _Bound:
    plan: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("problem", "variant", "label", "work"),
    [
        (HostCopy(size_bytes=1000), "pinned", "host to device pinned", 1000),
        (HostCopy(size_bytes=1000, direction="both"), "pageable", "both directions pageable", 2000),
        (PeerCopy(size_bytes=7, direction="to_peer"), "copy_engine", "device to peer 1 copy engine", 7),
    ],
)
def test_a_transfer_is_rated_by_what_is_on_the_way(
    monkeypatch: pytest.MonkeyPatch, problem: Any, variant: str, label: str, work: int
) -> None:
    monkeypatch.setattr(probing, "allocate_all", lambda *_: {})
    monkeypatch.setattr(probing, "bind", lambda *_: _Bound())
    found = ready(made("H200"), probe_named(problem.name), problem, variant, kept=False)
    assert (found.kind, found.label, found.work) == ("transfer", label, work)
    assert found.rates([0.5]) == [2 * work]


# -- a machine that was made up -----------------------------------------------------------------------------------------------


def made_up() -> Machine:
    """Plausible for an H200, and measured by nobody."""

    def bandwidth(level: str, access: str, value: float, variant: str = "plain", **problem: Any) -> Ceiling:
        stated = {"operator": "stream", "access": access, **problem}
        isa, stride = problem.get("isa", ""), {name: problem[name] for name in ("stride",) if name in problem}
        probe = "stream.shared" if variant == "shared" else "stream.strided" if stride else "stream.scalar" if isa else "stream"
        what = {"level": level, "access": access, "variant": variant, "isa": isa, "params": stride}
        return Ceiling(probe=probe, samples=around(value), problem=stated, **what)

    def latency(value: float, variant: str = "", level: str = "", operator: str = "fork_join") -> Ceiling:
        problem, pages = {"operator": operator}, {"pages": "huge"} if level else {}
        probe = "pointer_chase" if level else "launch" if variant == "pool" else "launch.host"
        what = {"level": level, "variant": variant, "params": pages, "problem": problem}
        return Ceiling(probe=probe, samples=around(value), clock_hz=1.98e9, **what)

    def transfer(access: str, value: float, variant: str, **problem: Any) -> Ceiling:
        probe = "peer_copy" if "peer" in problem else "host_copy"
        return Ceiling(probe=probe, access=access, variant=variant, samples=around(value), params=problem)

    def of_level(level: str, bytes_per_s: float) -> EmpiricalRoofline:
        return swept(6.0, level=level, beta=bytes_per_s, peak=60e12, isa="", threads=0, burst=around(62e12))

    plateaus = curve(lambda size: 9.5e12 if size <= 24 * MIB else 4.4e12, low=MIB, high=GIB, isa="", threads=0)
    return Machine(
        name="Example GPU",
        device="cuda:0",
        facts=made("H200").facts,
        ceilings=(
            bandwidth("DRAM", "read", 4.4e12, "bulk", in_flight_bytes=131072),
            bandwidth("DRAM", "copy", 4.0e12, "bulk"),
            bandwidth("DRAM", "write", 4.3e12),
            bandwidth("DRAM", "read", 0.6e12, stride=8),
            bandwidth("DRAM", "read", 3.9e12, isa="scalar"),
            bandwidth("L2", "read", 9.5e12),
            bandwidth("L1", "read", 32e12, "cached"),
            bandwidth("L1", "read", 33e12, "shared"),
            Ceiling(probe="fma", dtype="fp32", samples=around(62e12), problem={"operator": "fma"}),
            Ceiling(probe="fma", dtype="fp64", samples=around(31e12), problem={"operator": "fma"}),
            latency(2.2e-6, "pool"),
            latency(2.6e-6, "call"),
            latency(5e-6, "synchronised"),
            latency(1.1e-6, "graph"),
            latency(16e-9, "dependent", "L1", "pointer_chase"),
            latency(140e-9, "dependent", "L2", "pointer_chase"),
            latency(330e-9, "dependent", "DRAM", "pointer_chase"),
            transfer("to_device", 52e9, "pinned"),
            transfer("from_device", 53e9, "pinned"),
            transfer("both", 95e9, "pinned"),
            transfer("from_peer", 380e9, "copy_engine", peer=1),
        ),
        curves=(plateaus,),
        empirical=(of_level("DRAM", 4.4e12), of_level("L2", 9.5e12)),
    )


def test_names_tell_its_ceilings_apart(tmp_path: Path) -> None:
    machine = made_up()
    names = [c.name for c in machine.ceilings]
    assert len(set(names)) == len(names), names
    expected = {"L1 read shared memory", "launch and wait", "graph node", "both directions pinned", "peer to device 1 copy engine"}
    assert expected <= set(names)
    machine.save(tmp_path / "machine.json")
    assert Machine.load(tmp_path / "machine.json") == machine


def test_its_roofs_are_those_of_operators() -> None:
    machine = made_up()
    assert machine.levels() == ("L1", "L2", "DRAM")
    assert machine.latency().variant == "pool"
    assert machine.bandwidth("DRAM", "read").variant == "bulk"
    assert machine.bandwidth("DRAM", "copy", variant="plain").variant == "bulk", "its stores are ordinary ones"
    assert machine.bandwidth("DRAM", "write").value == pytest.approx(4.3e12, rel=0.01)
    assert machine.bandwidth("L1").variant == "cached", "no operator's operands lie in shared memory"
    assert machine.roofs("transfer") == []
    assert machine.sanity() == []


def test_its_pictures_draw(tmp_path: Path) -> None:
    machine = made_up()
    assert set(plot.held_pictures(machine)) == {"roofline", "empirical", "size_curve", "latency"}
    for name in plot.held_pictures(machine):
        svg, png, csv = plot.PICTURES[name].save(tmp_path, machine)
        assert all(path.stat().st_size > 300 for path in (svg, png, csv)), name
    curve = plot.size_curve.data(machine)
    assert {record["level"] for record in curve if record["element"] in ("plateau", "cache")} == {"L2", "DRAM"}, "loads go past L1"
    drawn = {record["label"] for record in plot.roofline.data(machine) if record.get("label")}
    assert not any("shared memory" in label or "directions" in label for label in drawn), "no roofs of operators"
