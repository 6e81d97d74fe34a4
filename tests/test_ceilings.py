"""Ceilings: a machine is made of measured problems, each one checked, and never faster than its clock allows."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example import BRIEF, fma

import roofline
from roofline import Error, Machine, Policy
from roofline.ceilings import DEPTHS, FAILURE, wanted, wanted_series
from roofline.ceilings.again import in_another_state
from roofline.ceilings.measuring import better, burst_and_sustained
from roofline.ceilings.series import curve_sizes, intensity_sweep, size_curve
from roofline.ceilings.share import last_cache_share
from roofline.cli import main
from roofline.machine import Ceiling, EmpiricalRoofline, IntensityPoint, SizePoint, SustainedSample
from roofline.measurement import open_device
from roofline.measurement.devices import Device
from roofline.measurement.probing import Ready
from roofline.operators import Operator, Stream, from_dict
from roofline.probes import probe_named
from roofline.units import GIB, KIB, MIB

pytestmark = pytest.mark.all_cores

# What reports and predictions need, which is all that quick measures.
PREDICTED = {"launch", "stream", "fma", "exp", "gemm.square", "gemm.narrow"}
# Where it does not matter how fast anything is.
SHORT = Policy(warmup_min_s=0.0, warmup_max_s=0.005, batch_s=1e-4, min_samples=3, min_s=0.0, max_s=0.001, tries=1)


@pytest.fixture(scope="module")
def machine(small_machines: Callable[..., Any]) -> Machine:
    with small_machines():
        return roofline.measure_machine("cpu", quick=True, policy=BRIEF)


def problem_of(measured: Ceiling | SizePoint | IntensityPoint) -> Operator:
    values = dict(measured.problem)
    return from_dict(values.pop("operator"), values)


def test_every_main_ceiling_is_there(machine: Machine) -> None:
    assert machine.bandwidth("DRAM", "read").threads == open_device("cpu").threads
    for access in ("read", "copy", "triad"):
        assert machine.bandwidth("DRAM", access).value > 0
    for level in ("L1", "L2"):
        assert machine.bandwidth(level, "read").value > 0
    single, double = machine.compute("fp32"), machine.compute("fp64")
    assert single.value > double.value / 1.5 or "contended" in (single.status, double.status)
    assert 0 < machine.latency().value < 1e-2
    assert machine.device == "cpu"


def test_a_ceiling_names_a_problem_that_can_be_measured_again(machine: Machine) -> None:
    for ceiling in machine.ceilings:
        problem = problem_of(ceiling)
        assert ceiling.probe in PREDICTED and problem.name == probe_named(ceiling.probe).operator
        assert ceiling.summary.n >= 1


def test_machines_survive_files(machine: Machine, tmp_path: Path) -> None:
    machine.save(tmp_path / "machine.json")
    assert Machine.load(tmp_path / "machine.json") == machine


@pytest.mark.usefixtures("small_probes")
def test_progress_and_deadline() -> None:
    seen: list[str] = []
    made = roofline.measure_machine(
        "cpu", quick=True, policy=SHORT, deadline_s=0.0, progress=lambda d, t, label: seen.append(label)
    )
    assert len(made.ceilings) == 1
    assert set(made.provenance["left_out"].values()) == {"the time limit was reached"}
    assert seen[-1] == "done"


def test_full_list_covers_accesses_levels_sets_and_one_thread() -> None:
    device = open_device("cpu")
    labels = [what.label for _, what in wanted(device)]
    for expected in ("DRAM triad NT", "DRAM write NT", "DRAM scale", "L1 add", "L2 triad", "fp64 scalar", "fp32 GEMM", "fork-join"):
        assert expected in labels
    for expected in ("call", "L1 latency", "DRAM latency", "fp32 GEMM 2047", "fp32 exp"):
        assert expected in labels
    if device.threads > 1:
        assert any(where.threads == 1 for where, _ in wanted(device))
        assert "core-to-core 0–1" in labels
    assert [series.label for series in wanted_series(device)] == ["DRAM read over intensity"]


def test_thorough_has_every_access_at_every_level_with_all_threads_and_with_one() -> None:
    device = open_device("cpu")
    found = [(what.label, where.threads) for where, what in wanted(device, "thorough")]
    levels = ["DRAM", *(level for level in ("L3", "L2", "L1") if device.facts.get(f"{level.lower()}_bytes"))]
    for threads in {1, device.threads}:
        alone = " (1 thread)" if threads < device.threads else ""
        for level in levels:
            for access in ("read", "write", "write NT", "copy", "copy NT", "scale", "add", "triad", "triad NT", "read scalar"):
                assert (f"{level} {access}{alone}", threads) in found
        assert (f"DRAM read stride 16{alone}", threads) in found
    assert ("DRAM latency 4 KiB pages", device.threads) in found
    assert len(found) == len(set(found)), "every ceiling once"
    series = [series.label for series in wanted_series(device, "thorough")]
    assert {"read over size", "copy over size", *(f"{level} read over intensity" for level in levels[1:])} <= set(series)
    assert wanted_series(device, "quick") == []
    assert {label for label, _ in found} >= {what.label for depth in DEPTHS[:2] for _, what in wanted(device, depth)}


class Stop(Exception):
    pass


@pytest.mark.usefixtures("small_probes")
def test_an_interrupted_measurement_is_finished_by_the_same_call(machine: Machine, tmp_path: Path) -> None:
    out, seen = tmp_path / "machine.json", []

    def stop_at_four(done: int, total: int, label: str) -> None:
        seen.append(label)
        if done == 4:
            raise Stop

    with pytest.raises(Stop):
        roofline.measure_machine("cpu", quick=True, policy=SHORT, out=out, progress=stop_at_four)
    assert not out.exists(), "a machine file holds finished machines"
    side = tmp_path / "machine.json.partial"
    half = Machine.load(side)
    assert len(half.ceilings) == 4
    assert half.provenance["pending"][0] == seen[4]

    with pytest.raises(
        Error, match=r"unfinished measurement .*with other options \(depth quick, now standard.*choose another file"
    ):
        roofline.measure_machine("cpu", out=out, policy=SHORT)
    assert Machine.load(side) == half, "nothing is lost"

    again: list[str] = []
    whole = roofline.measure_machine("cpu", quick=True, policy=SHORT, out=out, progress=lambda d, t, label: again.append(label))
    assert again[0] == seen[4], "what was there is not measured again"
    assert whole.ceilings[:4] == half.ceilings
    assert "pending" not in whole.provenance
    assert Machine.load(out) == whole
    assert not side.exists()
    assert [c.name.partition(",")[0] for c in whole.ceilings] == [c.name.partition(",")[0] for c in machine.ceilings]


@pytest.mark.usefixtures("small_probes")
def test_a_probe_that_fails_does_not_take_the_others_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    verify = Ready.verify

    def wrong_of_fp64(self: Ready, name: str) -> None:
        if self.problem.to_dict().get("dtype") == "fp64":
            raise Error(f"{name} computes a wrong result: planted")
        verify(self, name)

    monkeypatch.setattr(Ready, "verify", wrong_of_fp64)
    made = roofline.measure_machine("cpu", quick=True, policy=SHORT)
    failed = {label: reason for label, reason in made.provenance["left_out"].items() if reason.startswith(FAILURE)}
    assert failed and all("fp64" in label and "planted" in reason for label, reason in failed.items())
    assert {c.dtype for c in made.ceilings} >= {"fp32"} and all(c.dtype != "fp64" for c in made.ceilings)
    monkeypatch.setattr("roofline.cli.measuring.policy_of", lambda options, usual: SHORT)
    assert main(["measure", "--device", "cpu", "--quick", "--quiet", "--out", str(tmp_path / "m.json")]) == 1


def test_an_undisturbed_ceiling_is_better_then_the_faster_one() -> None:
    def made(value: float, status: str = "ok", probe: str = "fma") -> Ceiling:
        return Ceiling(probe=probe, dtype="fp32" if probe == "fma" else "", samples=(value,), status=status)

    assert better(made(1.0), made(2.0, "contended")) == made(1.0)
    assert better(made(1.0, "contended"), made(2.0, "contended")) == made(2.0, "contended")
    assert better(made(1.0, probe="launch"), made(2.0, probe="launch")) == made(1.0, probe="launch")


def with_samples(changed: Callable[[int, dict[str, Any]], dict[str, object]]) -> tuple[Device, list[int]]:
    """A CPU whose nth call of `sample` returns changed(n, what the CPU returns), and the number of calls."""
    device, calls = open_device("cpu"), [0]

    class Core:
        def __getattr__(self, name: str) -> object:
            return getattr(device.core, name)

        def sample(self, *arguments: object, **options: object) -> dict[str, object]:
            calls[0] += 1
            return changed(calls[0], device.core.sample(*arguments, **options))

    planted = Device("cpu")
    planted.core = Core()
    return planted, calls


@pytest.mark.usefixtures("small_probes")
def test_a_disturbed_ceiling_is_measured_again_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first three samples see other work; with three tries none of it is left when kernels are held against the ceilings."""
    load = {"cpu_share": 0.9, "run_delay_share": 0.1, "foreign_cores": 0.0, "process_run_delay_share": 0.1}
    planted, calls = with_samples(lambda n, seen: {**seen, "contended": n <= 3, "load": load})
    labels: list[str] = []
    before_kernels: list[set[str]] = []
    monkeypatch.setattr(
        "roofline.ceilings.measuring._Run.time_kernels",
        lambda run, shown, late: before_kernels.append({c.status for c in run.ceilings.values()}),
    )
    made = roofline.measure_machine(
        planted,
        quick=True,
        policy=dataclasses.replace(SHORT, tries=3),
        progress=lambda d, t, label: labels.append(label),
    )
    assert before_kernels == [{"ok"}]
    assert [label for label in labels if "again" in label] == [f"{label}, again (2 of 3)" for label in labels[:3]]
    assert calls[0] == len(made.ceilings) + 3


@pytest.mark.usefixtures("small_probes")
def test_roofs_of_a_slow_state_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times slower until the last ceiling is there, as where another guest has half the core: no roof keeps such samples."""
    slow = [0]

    def slower(n: int, seen: dict[str, Any]) -> dict[str, object]:
        # A second measurement that other work disturbed would not take the place of the first.
        return {**seen, "contended": False, "samples_s": [s * (10 if n <= slow[0] else 1) for s in seen["samples_s"]]}

    planted, calls = with_samples(slower)
    monkeypatch.setattr("roofline.ceilings.measuring.in_another_state", in_another_state)
    short = Policy(warmup_min_s=0.0, warmup_max_s=0.005, batch_s=1e-3, min_s=0.01, max_s=0.02, tries=1)
    fast = roofline.measure_machine(planted, quick=True, policy=short)
    slow[0], calls[0] = len(fast.ceilings), 0
    made = roofline.measure_machine(planted, quick=True, policy=short)
    roofs = [(c, before) for c, before in zip(made.ceilings, fast.ceilings, strict=True) if c.access == "read" or c.probe == "fma"]
    assert len(roofs) > 4
    for c, before in roofs:
        assert c.value > before.value / 4, (c, before)


def test_operations_per_cycle_follow_pooled_samples() -> None:
    """16 lanes, two multiply-adds a cycle: 64 FLOP. Samples of half the core alone say 32."""
    half = Ceiling(probe="fma", dtype="fp32", threads=2, clock_hz=2.8e9, samples=(175e9,) * 3, ops_per_cycle=32.0)
    whole = half.pooled((343e9,) * 30)
    assert whole.ops_per_cycle == 64
    assert half.pooled((176e9,)).ops_per_cycle == 32


def test_a_size_curve_covers_its_sizes() -> None:
    assert curve_sizes(GIB)[0] == 4 * KIB
    assert curve_sizes(GIB)[-1] == GIB
    assert len(curve_sizes(GIB)) == 18 * 3 + 1
    device = open_device("cpu")
    for access in ("read", "copy"):
        curve = size_curve(device, access, Machine(name="m"), largest=MIB, policy=SHORT)
        sizes = [point.size_bytes for point in curve.points]
        assert len(sizes) >= 20
        assert sizes[0] <= 4 * KIB
        assert 0.9 * MIB < sizes[-1] <= MIB
        assert curve.threads == device.threads
        for point in curve.points:
            assert sum(t.size_bytes for t in problem_of(point).tensors() if t.name != "sum") == point.size_bytes


@pytest.mark.usefixtures("small_probes")
def test_a_sweep_over_intensity_covers_its_range_around_the_knee() -> None:
    device = open_device("cpu")
    swept = intensity_sweep(device, "L1", Machine(name="m"), policy=SHORT)
    found = [point.intensity_flops_per_byte for point in swept.points]
    assert (found[0], found[-1]) == (1 / 16, 256)
    assert found == sorted(found)
    assert swept.threads == device.threads
    assert swept.burst
    assert not swept.sustained
    for point in swept.points:
        problem: Any = problem_of(point)
        assert problem.total_flops() / problem.inputs()[0].size_bytes / problem.passes == point.intensity_flops_per_byte


def test_the_last_half_of_a_long_load_is_the_sustained_ceiling() -> None:
    point = IntensityPoint(intensity_flops_per_byte=1.0, samples=(1e9,))
    load = tuple(SustainedSample(time_s=t + 1.0, flops_per_s=200e9 - 2e9 * t, clock_hz=3e9) for t in range(12))
    swept = EmpiricalRoofline(level="DRAM", access="read", dtype="fp32", isa="avx2", threads=2, points=(point,), sustained=load)
    burst = fma(2e9, isa="avx2", problem={"operator": "fma"}, ops_per_cycle=32.0)
    (found,) = burst_and_sustained(Machine(name="m", ceilings=(burst,), empirical=(swept,)))
    assert found.samples == tuple(sample.flops_per_s for sample in load[6:])
    assert found.sustained
    assert found.name == "fp32 avx2 sustained"
    assert found.clock_hz == 3e9
    assert found.ops_per_cycle == 32, "183e9 FLOP/s of two threads at 3e9 Hz are 30.5 a cycle"
    assert burst_and_sustained(Machine(name="m", empirical=(swept,))) == ()


def test_bad_requests() -> None:
    with pytest.raises(Error, match="exclude each other"):
        roofline.measure_machine("cpu", quick=True, thorough=True)
    with pytest.raises(Error, match="unknown device"):
        roofline.measure_machine("abacus")


@pytest.mark.timing
def test_peaks_are_the_clock_times_the_operations_per_cycle() -> None:
    """Per instruction set: whole operations per cycle at the measured clock, within 3 %."""
    made = roofline.measure_machine("cpu")
    peaks = [c for c in made.ceilings if c.kind == "compute" and c.problem["operator"] == "fma"]
    assert peaks
    for ceiling in peaks:
        assert ceiling.status == "ok", ceiling.reason
        assert ceiling.clock_hz is not None
        assert ceiling.ops_per_cycle is not None
        expected = ceiling.clock_hz * ceiling.ops_per_cycle * ceiling.threads
        assert ceiling.value == pytest.approx(expected, rel=0.03), ceiling.label


@pytest.mark.timing
def test_two_threads_are_twice_one() -> None:
    if open_device("cpu").threads < 2:
        pytest.skip("one usable core")
    made = roofline.measure_machine("cpu")
    two = next(
        c for c in made.ceilings if c.dtype == "fp32" and c.threads == 2 and c.problem["operator"] == "fma" and c.isa != "scalar"
    )
    one = next(c for c in made.ceilings if c.dtype == "fp32" and c.threads == 1)
    assert two.value / one.value == pytest.approx(2, rel=0.05)


@pytest.mark.timing
def test_repeated_runs_agree() -> None:
    """The medians of 18 and more of twenty further runs fall inside the first's interval widened by its modes and by 1 %."""
    runs = [roofline.measure_machine("cpu", quick=True) for _ in range(21)]
    for ceiling in runs[0].ceilings:
        if ceiling.kind == "latency":
            continue
        modes = [mode.value for mode in ceiling.modes]
        low, high = min(ceiling.summary.low, *modes) * 0.99, max(ceiling.summary.high, *modes) * 1.01
        same = [run.matching(ceiling.problem, variant=ceiling.variant) for run in runs[1:]]
        medians = [float(np.median(c.samples)) for c in same if c is not None]
        assert sum(low <= median <= high for median in medians) >= 0.9 * len(medians), ceiling.label


@pytest.mark.parametrize(
    ("held_mib", "found_mib"),
    [(12, 16), (32, 32), (36, 32), (64, 64)],
    ids=["shared with others", "as reported", "a little more", "one L3 for each core, and told of one"],
)
def test_the_share_of_the_last_cache(held_mib: int, found_mib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets larger than what the cache holds are served by memory in part: half of a set twice as large."""

    @dataclasses.dataclass
    class Reads:
        size_bytes: int
        flushed: bool

        def sampled(self, device: Device, policy: Policy) -> dict[str, Any]:
            hits = 0.0 if self.flushed else min(1.0, held_mib * MIB / self.size_bytes)
            return {"samples_s": [hits / 200e9 + (1 - hits) / 50e9], "contended": False}

        def rates(self, seconds: list[float]) -> list[float]:
            return [1 / s for s in seconds]

    def fake(device: Device, probe: Any, problem: Stream, variant: str, level: str = "") -> Reads:
        return Reads(problem.elements * 4, bool(level))

    device = open_device("cpu")
    told = {"threads": 2, "l1_bytes": 32 * KIB, "l2_bytes": MIB, "l3_bytes": 32 * MIB, "l3_instances": 1, "flush": "clflushopt"}
    monkeypatch.setattr(device, "facts", told)
    monkeypatch.setattr("roofline.ceilings.share.ready", fake)
    found = last_cache_share(device)
    assert found is not None and found // MIB == found_mib
