"""Ceilings: a machine is made of measured problems, each one checked, and never faster than its clock allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import roofline
from roofline import Error, Machine, Policy
from roofline.ceilings import wanted
from roofline.measurement import open_device
from roofline.operators import from_dict

FAST = Policy(warmup_min_s=0.0, min_s=0.01, max_s=0.02, bracket_s=0.002, tries=1)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return roofline.measure_machine("cpu", quick=True, policy=FAST)


def test_every_main_ceiling_is_there(machine: Machine) -> None:
    assert machine.bandwidth("DRAM", "read").threads == open_device("cpu").threads
    for access in ("read", "copy", "triad"):
        assert machine.bandwidth("DRAM", access).value > 0
    for level in ("L1", "L2"):
        assert machine.bandwidth(level, "read").value > 0
    assert machine.compute("fp32").value > machine.compute("fp64").value / 1.5
    assert 0 < machine.latency().value < 1e-2
    assert machine.device == "cpu"


def test_a_ceiling_names_a_problem_that_can_be_measured_again(machine: Machine) -> None:
    for ceiling in machine.ceilings:
        values = dict(ceiling.problem)
        problem = from_dict(values.pop("operator"), values)
        assert problem.name in ("stream", "fma", "fork_join")
        assert ceiling.summary.n >= 1


def test_machines_survive_files(machine: Machine, tmp_path: Path) -> None:
    machine.save(tmp_path / "machine.json")
    assert Machine.load(tmp_path / "machine.json") == machine


def test_progress_and_deadline() -> None:
    seen: list[str] = []
    made = roofline.measure_machine("cpu", quick=True, policy=FAST, deadline_s=0.0, progress=lambda d, t, label: seen.append(label))
    assert len(made.ceilings) == 1
    assert set(made.provenance["left_out"].values()) == {"the time limit was reached"}
    assert seen[-1] == "done"


def test_full_list_covers_accesses_levels_sets_and_one_thread() -> None:
    device = open_device("cpu")
    labels = [what.label for _, what in wanted(device, quick=False)]
    for expected in ("DRAM triad NT", "DRAM write NT", "DRAM scale", "L1 add", "L2 triad", "fp64 scalar", "fp32 GEMM", "fork-join"):
        assert expected in labels
    if device.threads > 1:
        assert any(where.threads == 1 for where, _ in wanted(device, quick=False))


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
    """Of ten more runs of the fp32 peak, nine medians fall inside the first's interval widened by 1 %."""
    values = [roofline.measure_machine("cpu", quick=True).compute("fp32") for _ in range(11)]
    low, high = values[0].summary.low * 0.99, values[0].summary.high * 1.01
    assert sum(low <= float(np.median(v.samples)) <= high for v in values[1:]) >= 9
