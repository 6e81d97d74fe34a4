"""What `explain` says of an error: in the direction of the error, from machines and measurements that are made up here."""

import dataclasses
from typing import Any

import example
import pytest
from example import bandwidth, bracket, fma, measurement

from roofline.comparison.numbers import estimate as estimate_of
from roofline.machine import Machine, bars_name
from roofline.operators import Attention, LayerNorm, Matmul, Operator, RmsNorm, Softmax
from roofline.prediction import Rates
from roofline.questions import predict
from roofline.report import explain
from roofline.report.tables import ceiling_table, why_wrong
from roofline.results import Bracket, Measurement

# 1.04 GB in and out. A row of 16 KiB is read once more from L1, and its exponentials are written and read there.
SOFTMAX = Softmax(rows=63477, columns=4096)
AGAIN = 3 * 4 * 63477 * 4096
CACHES = {**example.CACHES, "l1_bytes": 64 << 10}


def machine(*levels: str) -> Machine:
    rates = {"L1": 800e9, "L2": 300e9, "L3": 150e9, "DRAM": 100e9}
    memory = (bandwidth((rates[level],) * 6, "copy", level) for level in levels)
    compute = fma((1e13,) * 6, accumulator="fp32", problem={"operator": "fma"})
    return Machine(name="Example CPU", facts=CACHES, ceilings=(*memory, compute))


def measured(
    problem: Operator, on: Machine, time_s: float, *, variant: str, before: float = 100e9, after: float = 100e9
) -> Measurement:
    dram = bracket((before,) * 6, "DRAM copy", after_samples=(after,) * 6)
    found = predict(on, problem, variant=variant).to_dict()
    return measurement(problem, (time_s,) * 9, variant=variant, plan={"variant": variant}, prediction=found, brackets=(dram,))


def why(m: Measurement) -> str:
    (line,) = (line for line in str(explain(m)).splitlines() if line.startswith("why: "))
    return line


# -- a cache that was not measured ---------------------------------------------------------------------------------------------


def test_what_a_cache_serves_again_is_not_charged_at_memory() -> None:
    """By hand: 20.8 ms at DRAM; with L1 the 3.12 GB again take 3.9 ms; without, up to 31.2 ms more, which is said."""
    dram = SOFTMAX.compulsory_bytes() / 100e9
    assert dram == pytest.approx(20.8e-3, rel=1e-3)
    full = predict(machine("L1", "DRAM"), SOFTMAX, variant="fused")
    assert full.parts["L1"] == pytest.approx(AGAIN / 800e9)
    assert full.most_s is None and not any("L1" in note for note in full.notes)
    left_out = predict(machine("DRAM"), SOFTMAX, variant="fused")
    assert left_out.parts["DRAM"] == pytest.approx(dram)
    assert left_out.time_s < full.time_s
    assert left_out.most_s == pytest.approx(dram + AGAIN / 100e9, rel=0.05)
    assert left_out.time_s < full.time_s < left_out.most_s
    (note,) = (note for note in left_out.notes if "L1" in note)
    assert "no L1 bandwidth was measured" in note and "3.12 GB" in note and "left out" in note
    assert "20.8 ms to 52.0 ms" in left_out._repr_html_() and " to " not in full._repr_html_()
    # A slower cache that was measured stands for it, and that is said too.
    near = predict(machine("L2", "DRAM"), SOFTMAX, variant="fused")
    assert near.parts["L2"] == pytest.approx(AGAIN / 300e9)
    assert near.most_s is None
    assert any("no L1 bandwidth was measured" in note and "L2" in note for note in near.notes)


@pytest.mark.parametrize(
    "problem",
    [RmsNorm(rows=9000, columns=4096), LayerNorm(rows=9000, columns=4096), Attention(seq_q=512, seq_kv=4096), SOFTMAX],
    ids=lambda problem: str(problem.name),
)
def test_every_operator_with_second_passes(problem: Operator) -> None:
    for variant in problem.variants:
        if not problem.reuse({"variant": variant}):
            continue
        full, alone = (predict(on, problem, variant=variant) for on in (machine("L1", "L2", "L3", "DRAM"), machine("DRAM")))
        assert alone.parts["DRAM"] <= full.parts["DRAM"] * (1 + 1e-12)
        assert alone.time_s <= full.time_s * (1 + 1e-12)
        assert alone.most_s is not None and alone.most_s > alone.time_s
        assert alone.to_dict()["most_s"] == alone.most_s


def test_a_workspace_that_a_cache_holds() -> None:
    """Scores of 8 MiB that L3 holds: without its ceiling they are left out of the time, not charged at DRAM in silence."""
    naive = Attention(heads=2, seq_q=1024, seq_kv=1024, head_dim=64)
    found = predict(machine("DRAM"), naive, plan={"variant": "naive", "workspace_bytes": 8 << 20})
    assert found.parts["DRAM"] == pytest.approx(naive.compulsory_bytes() / 100e9)
    assert found.most_s is not None and any("no L3 bandwidth was measured" in note for note in found.notes)


@pytest.mark.parametrize(("repeats", "said"), [(0, "0 attempts thrown away"), (1, "1 attempt thrown away")])
def test_attempts_are_counted(repeats: int, said: str) -> None:
    on = machine("DRAM")
    again = dataclasses.replace(measured(SOFTMAX, on, 36.1e-3, variant="fused"), repeats=repeats)
    assert said in str(explain(again))


def test_explain_gives_the_range() -> None:
    on = machine("DRAM")
    text = str(explain(measured(SOFTMAX, on, 36.1e-3, variant="fused")))
    assert "predicted 20.8 ms to 52.0 ms" in text
    assert "no L1 bandwidth was measured" in text
    full = str(explain(measured(SOFTMAX, machine("L1", "DRAM"), 36.1e-3, variant="fused")))
    assert " to 52." not in full and "no L1" not in full
    assert "L1" in full.partition("\nPrediction\n")[2], "what each part takes is shown"


# -- the sign ------------------------------------------------------------------------------------------------------------------


def test_a_kernel_below_its_roof_explains_a_prediction_that_is_too_short() -> None:
    m = measured(SOFTMAX, machine("L1", "DRAM"), 36.1e-3, variant="fused")
    assert m.prediction_error is not None and m.prediction_error < 0
    assert "57.6 % of its DRAM roof" in why(m)


def test_a_kernel_below_its_roof_explains_no_prediction_that_is_too_long() -> None:
    m = measured(SOFTMAX, machine("L1", "DRAM"), 36.1e-3, variant="fused")
    parts = {"DRAM": 20.8e-3, "exp": 40e-3, "launch": 0.0}
    long = dataclasses.replace(m, prediction={**m.prediction, "time_s": 52.1e-3, "parts": parts})
    assert long.prediction_error is not None and long.prediction_error > 0
    said = why(long)
    assert "reaches" not in said and "left out" not in said
    assert "exp alone (40.0 ms) takes longer than the run" in said


@pytest.mark.parametrize(
    ("before", "after", "time_s", "told"),
    [
        (100e9, 80e9, 30e-3, True),  # slower memory than predicted for: too short
        (100e9, 120e9, 19e-3, True),  # faster: too long
        (100e9, 120e9, 30e-3, False),  # faster memory is no reason for a longer run
        (100e9, 80e9, 19e-3, False),
    ],
)
def test_a_roof_that_moved_explains_one_sign(before: float, after: float, time_s: float, told: bool) -> None:
    m = measured(SOFTMAX, machine("L1", "DRAM"), time_s, variant="fused", before=before, after=after)
    assert ("roof moved" in why_wrong(m)) == told


@pytest.mark.parametrize(("after", "time_s", "told"), [(2e-6, 3e-6, True), (2e-6, 0.5e-6, False), (0.5e-6, 0.6e-6, True)])
def test_a_launch_that_moved_counts_the_other_way_round(after: float, time_s: float, told: bool) -> None:
    """A latency that grew makes a run longer."""
    launch = Bracket(label="launch", kind="latency", before_samples=(1e-6,) * 6, after_samples=(after,) * 6)
    m = measured(RmsNorm(rows=1, columns=16), machine("L1", "DRAM"), time_s, variant="fused")
    m = dataclasses.replace(m, brackets=(launch,), prediction={"time_s": 1e-6, "terms": {"launch": 1e-6}, "bound": "launch"})
    assert ("launch roof moved" in why_wrong(m)) == told


@pytest.mark.parametrize(("time_s", "said"), [(1.3, "overlap less"), (0.9, "overlap more")])
def test_terms_that_are_near_each_other(time_s: float, said: str) -> None:
    m = measured(Matmul(rows=64, columns=64, inner=64), machine("L1", "DRAM"), time_s, variant="library")
    m = dataclasses.replace(m, prediction={"time_s": 1.1, "roof_s": 1.0, "terms": {"DRAM": 1.0, "compute": 0.9}, "bound": "DRAM"})
    text = why_wrong(m)
    assert "near each other" in text and said in text


# -- tolerance and intervals ---------------------------------------------------------------------------------------------------


def test_the_whole_tolerance_is_printed() -> None:
    """The relative part too: |difference| may be up to 7.28e-12 + 3.9e-6 |reference|."""
    checked: dict[str, Any] = {"checked": True, "rows": 16, "max_error": 1.82e-10}
    checked |= {"tolerance": 7.28e-12, "tolerance_relative": 3.9e-6}
    m = dataclasses.replace(measured(SOFTMAX, machine("DRAM"), 36e-3, variant="fused"), correctness=checked)
    assert "largest error 1.82e-10, tolerance 7.28e-12 + 3.90e-06 · |reference|" in str(explain(m))
    record = m.to_record()
    assert (record["tolerance"], record["tolerance_relative"]) == (7.28e-12, 3.9e-6)
    exact = dataclasses.replace(m, correctness={**checked, "tolerance_relative": 0.0})
    assert "tolerance 7.28e-12\n" in str(explain(exact)) + "\n"


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 30])
def test_few_samples_have_a_range_and_no_interval(n: int) -> None:
    """The extremes of n samples cover the median with 1 - 2^(1 - n): 75 % of three, 96.9 % of six."""
    m = measured(SOFTMAX, machine("DRAM"), 36e-3, variant="fused")
    m = dataclasses.replace(m, samples_s=tuple(36e-3 * (1 + k / 100) for k in range(n)))
    for text in (str(explain(m)), m._repr_html_()):
        assert ("95 %" in text) == (n >= 6), text
        assert ("range" in text) == (2 <= n < 6), text


def test_rates_without_dust() -> None:
    """Levels in a p-norm leave rounding behind: what no print shows is no part of a profile."""
    assert Rates(bandwidths={"DRAM": 1e12}, work={"product": 1e15}).time_s({"DRAM": 1.0, "product": 1e-9}) == pytest.approx(1.0)


def few(n: int) -> Machine:
    on = machine("DRAM")
    return dataclasses.replace(
        on, ceilings=tuple(dataclasses.replace(c, samples=tuple(c.value * (1 + k / 100) for k in range(n))) for c in on.ceilings)
    )


@pytest.mark.parametrize(("n", "range_"), [(3, True), (5, True), (6, False), (20, False)])
def test_tables_name_ranges(n: int, range_: bool) -> None:
    """The report's table, the machine's own, and both sides of a comparison."""
    rows = ceiling_table(few(n)).rows
    assert rows and all(("(range)" in row[2]) == range_ for row in rows)
    assert ("(range)" in few(n)._repr_html_()) == range_
    assert ("(range)" in estimate_of(few(n).ceilings[0].samples).mark) == range_
    assert bars_name(c.summary for c in few(n).ceilings) == ("ranges" if range_ else "95 % intervals")
    mixed = bars_name(c.summary for c in (*few(n).ceilings, *few(2).ceilings))
    assert mixed == ("ranges" if range_ else "95 % intervals, ranges where n < 6")
