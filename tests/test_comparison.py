"""Comparisons: no change where there is none, changes where they are, modes, brackets, claims, and files that do not fit."""

import csv
import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example import bandwidth, bracket, fma, launch
from programs import python
from shown import pretty
from tables import gives

import roofline
from roofline import Attention, compare
from roofline.comparison import Comparison, Pair
from roofline.comparison.numbers import FASTER, FEW, OVERLAP, SAME, SLOWER, Median, by_modes, estimate, ratio, verdict
from roofline.errors import Error
from roofline.machine import Ceiling, Machine, save_machines
from roofline.results import Bracket, Measurement, Results, append_to


def around(value: float, n: int = 30, noise: float = 0.01, seed: int = 0) -> tuple[float, ...]:
    """Samples of one mode: value with Gaussian noise."""
    return tuple(value * (1 + noise * np.random.default_rng((seed, int(value))).standard_normal(n)))


def read(value: float = 40e9, level: str = "DRAM", *, threads: int = 2, streams: int = 1, **more: Any) -> Ceiling:
    problem = {"operator": "stream", "access": "read", "elements": 1 << 20, "streams": streams, "dtype": "fp32"}
    return bandwidth(**{"values": around(value), "level": level, "problem": problem, "threads": threads, **more})


def fp32(value: float = 200e9, *, isa: str = "avx2") -> Ceiling:
    return fma(around(value), accumulator="fp32", isa=isa, problem={"operator": "fma", "isa": isa, "dtype": "fp32"})


def fork_join(value: float = 2e-6, **more: Any) -> Ceiling:
    return launch(tuple(sample * 1e-12 for sample in around(value * 1e12)), **more)


def machine(*ceilings: Ceiling, name: str = "Example CPU", **more: Any) -> Machine:
    return Machine(name=name, ceilings=ceilings or (read(), read(120e9, "L2"), fp32(), fork_join()), **more)


def point(time_s: float = 2e-3, roof: float | None = 40e9, *, size: int = 64_000_000, **more: Any) -> Measurement:
    """64 MB at 40 GB/s are 1.6 ms."""
    fields: dict[str, Any] = {
        "operator": "attention", "problem": {"seq_q": 1, "dtype": "fp32"}, "variant": "tiled", "device": "cpu", "threads": 2,
        "cache_state": "cold", "samples_s": tuple(t * 1e-9 for t in around(time_s * 1e9)), "bytes": {"compulsory": size},
        "brackets": (bracket((roof,) * 6),) if roof is not None else (), "level": "DRAM",
    }  # fmt: skip
    return Measurement(**{**fields, **more})


def only(comparison: Comparison) -> Pair:
    (row,) = comparison.rows
    return row


def test_names_of_points_leave_out_what_has_its_default() -> None:
    measured = [point(problem=Attention(seq_q=1, seq_kv=8192).to_dict())]
    assert only(compare(measured, measured)).name == "attention tiled seq_q=1 seq_kv=8192 fp32 cold"


# -- two medians --------------------------------------------------------------------------------------------------------------


def test_the_interval_by_hand() -> None:
    """Half-widths ln 1.03 and ln 1.04 are the legs of a right-angled triangle; the half-width of the ratio is its hypotenuse."""
    a = Median(value=100.0, low=100 / 1.03, high=103.0, n=30)
    b = Median(value=120.0, low=120 / 1.04, high=124.8, n=30)
    middle, low, high = ratio(a, b)
    half = math.sqrt(math.log(1.03) ** 2 + math.log(1.04) ** 2)
    assert middle == 1.2
    assert low == pytest.approx(1.2 / math.exp(half)) and high == pytest.approx(1.2 * math.exp(half))
    # Each bound takes the end of the other side that is against it.
    skewed = Median(value=100.0, low=100.0, high=103.0, n=30)
    assert ratio(skewed, b)[2] == pytest.approx(1.2 * 1.04)


@pytest.mark.parametrize("n", [6, 10, 25, 60, 200])
@pytest.mark.parametrize("kind", ["normal", "exponential", "lognormal"])
def test_the_interval_covers_the_ratio(n: int, kind: str) -> None:
    """In at least 95 % of 500 experiments with equal distributions, less three standard errors. So false changes are as rare."""
    generator = np.random.default_rng(n)

    def draw() -> tuple[float, ...]:
        noise = {"normal": generator.standard_normal, "exponential": generator.standard_exponential}.get(kind)
        return tuple(1 + 0.05 * noise(n)) if noise else tuple(np.exp(0.1 * generator.standard_normal(n)))

    found = [ratio(estimate(draw()), estimate(draw())) for _ in range(500)]
    missed = sum(not low <= 1 <= high for _, low, high in found if low is not None and high is not None)
    assert missed / 500 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 500)
    assert sum(verdict(one, True) != SAME for one in found) <= missed


def test_ten_per_cent_over_one_per_cent_of_noise_is_a_change() -> None:
    for seed in range(50):
        a, b = estimate(around(100e9, seed=seed)), estimate(around(110e9, seed=seed))
        assert verdict(ratio(a, b), True) == FASTER == verdict(ratio(b, a), False)
        assert verdict(ratio(b, a), True) == SLOWER == verdict(ratio(a, b), False)


def test_a_small_change_is_none_however_certain() -> None:
    a, b = (Median(value=v, low=v * 0.9999, high=v * 1.0001, n=1000) for v in (100.0, 102.9))
    assert ratio(a, b)[1] > 1
    assert verdict(ratio(a, b), True) == SAME
    assert verdict(ratio(a, Median(value=103.2, low=103.1, high=103.3, n=1000)), True) == FASTER


def test_few_samples_have_no_interval() -> None:
    a, b = estimate((1.0, 1.0, 1.0, 1.0, 1.0)), estimate((2.0,) * 100)
    assert ratio(a, b) == (2.0, None, None)
    assert verdict(ratio(a, b), True) == FEW


# -- modes --------------------------------------------------------------------------------------------------------------------

FAST, SLOW = around(101e9, 20), around(50e9, 20)


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (FAST + SLOW, SLOW + FAST, SAME),
        (FAST + SLOW, FAST[:4] + SLOW, SAME),  # other shares, the same modes
        (FAST + SLOW, FAST, SAME),  # seen in one of the two only
        (SLOW, FAST + SLOW, SAME),
        (FAST + SLOW, around(75e9), OVERLAP),  # between the two, and neither
        (FAST + SLOW, around(130e9), FASTER),  # above both
        (FAST + SLOW, around(40e9), SLOWER),
        (around(40e9), FAST + SLOW, FASTER),
        (FAST + SLOW, around(121e9, 20) + around(60e9, 20), FASTER),  # each mode by a fifth
        (FAST + SLOW, around(121e9, 20) + SLOW, OVERLAP),  # only one of the two
        (FAST + SLOW, around(80e9, 20) + around(60e9, 20), OVERLAP),  # one up, one down
        (FAST + SLOW, FAST + SLOW + around(25e9, 20), SAME),
        (FAST + around(25e9, 20), FAST + SLOW + around(10e9, 20), OVERLAP),
    ],
)
def test_modes_are_compared_with_modes(a: tuple[float, ...], b: tuple[float, ...], said: str) -> None:
    assert by_modes(a, b, True) == said
    opposite = {FASTER: SLOWER, SLOWER: FASTER}
    assert by_modes(b, a, True) == opposite.get(said, said)
    # As times, the same numbers mean the opposite.
    assert by_modes(a, b, False) == opposite.get(said, said)


def test_a_bimodal_ceiling_in_a_comparison() -> None:
    a, b = machine(read(samples=FAST + SLOW)), machine(read(samples=FAST))
    row = only(compare(a, b))
    assert row.verdict == SAME
    assert row.a is not None and [round(mode / 1e9) for mode in row.a.modes] == [101, 50]
    assert row.a.value == row.a.modes[0] == pytest.approx(101e9, rel=0.01)
    assert "best modes" in row.notes[0]
    assert "101 or 50" in compare(a, b).table()[1][0][1].replace(".0", "").replace("50.1", "50").replace("50.2", "50")


# -- machines -----------------------------------------------------------------------------------------------------------------


def test_a_machine_against_itself_has_not_changed() -> None:
    found = compare(machine(), machine())
    assert [row.verdict for row in found.rows] == [SAME] * 4
    assert [row.ratio for row in found.rows] == [1.0] * 4
    assert not found.only_a and not found.only_b and not found.row_notes
    assert found.footer[0].startswith("4 rows with 95 % intervals: if nothing changed, up to 0.2 of these exclude 1")


def test_faster_is_more_per_second_and_less_time() -> None:
    later = machine(read(44e9), read(120e9, "L2"), fp32(150e9), fork_join(1e-6))
    found = compare(machine(), later)
    assert [row.verdict for row in found.rows] == [FASTER, SAME, SLOWER, FASTER]
    assert [row.quantity for row in found.rows] == ["bytes_per_s", "bytes_per_s", "flops_per_s", "time_s"]
    assert found.rows[0].ratio == pytest.approx(1.1, rel=0.01)
    assert found.rows[3].ratio == pytest.approx(0.5, rel=0.01)
    assert [row.verdict for row in compare(later, machine()).rows] == [SLOWER, SAME, FASTER, SLOWER]


def test_equal_machines_with_their_own_noise() -> None:
    """At most a tenth of the ceilings of equal machines differ, with noise like that of a busy guest."""
    generator = np.random.default_rng(3)
    false = 0
    for _ in range(200):
        a, b = (machine(read(samples=tuple(40e9 * np.exp(0.08 * generator.standard_normal(40))))) for _ in "ab")
        false += only(compare(a, b)).verdict != SAME
    assert false <= 20


def test_contended_is_not_judged() -> None:
    busy = machine(read(20e9, status="contended", reason="other work ran"), fp32())
    found = compare(machine(read(), fp32()), busy)
    assert [row.verdict for row in found.rows] == ["contended", SAME]
    assert found.rows[0].ratio == pytest.approx(0.5, rel=0.01)
    assert found.row_notes == ("DRAM read, 2 threads: B: contended",)
    assert found.footer[0].startswith("1 row with 95 %")


def test_what_only_one_side_has_is_listed() -> None:
    found = compare(machine(read(), fp32()), machine(read(), fp32(isa="avx512"), read(120e9, "L2")))
    assert [row.name for row in found.rows] == ["DRAM read, 2 threads"]
    assert (found.only_a, found.only_b) == (("fp32 avx2, 2 threads",), ("fp32 avx512, 2 threads", "L2 read, 2 threads"))
    assert found.absent == ("only in A: fp32 avx2, 2 threads", "only in B: fp32 avx512, 2 threads; L2 read, 2 threads")


def test_threads_match_within_a_machine() -> None:
    found = compare(machine(read(threads=1), read(80e9, threads=2)), machine(read(80e9, threads=2)))
    assert [row.name for row in found.rows] == ["DRAM read, 2 threads"]
    assert found.only_a == ("DRAM read, 1 thread",)
    assert compare(machine(read(threads=1)), machine(read(threads=2))).rows == ()


def test_all_threads_of_another_machine() -> None:
    a = machine(read(threads=1), read(80e9, threads=2))
    b = machine(read(threads=1), read(300e9, threads=16), name="Larger CPU")
    found = compare(a, b)
    assert [(row.name, row.verdict) for row in found.rows] == [("DRAM read, 1 thread", SAME), ("DRAM read", FASTER)]
    assert found.rows[1].notes == ("threads 2 against 16",)
    # Guests call their processor by its family: other models of one name are other machines too.
    alike = dataclasses.replace(b, name=a.name, facts={"cpu_model": 17})
    assert len(compare(dataclasses.replace(a, facts={"cpu_model": 1}), alike).rows) == 2


def test_a_probe_tuned_otherwise_is_the_same_ceiling() -> None:
    row = only(compare(machine(read(streams=1)), machine(read(streams=4))))
    assert (row.verdict, row.notes) == (SAME, ("streams 1 against 4",))
    problem = read().problem
    row = only(compare(machine(read(problem={**problem, "isa": ""})), machine(read(problem={**problem, "isa": "avx2"}))))
    assert row.notes == ("isa – against avx2",), "an empty value is shown as none"
    # A matrix product of another size is another problem.
    small, large = (
        Ceiling(probe="gemm.square", dtype="fp32", threads=2, samples=around(150e9), params={"size": size}) for size in (1024, 2048)
    )
    found = compare(machine(small), machine(large))
    assert not found.rows and len(found.only_a) == len(found.only_b) == 1
    assert any("nothing in common" in note for note in found.notes)
    # The exact one is preferred where there are two.
    assert only(compare(machine(small), machine(large, small))).name == "fp32 GEMM 1024, 2 threads"


def test_devices_of_different_kinds_are_refused() -> None:
    gpu = machine(read(3e12), name="Example GPU", device="cuda:0")
    with pytest.raises(Error, match="A is of cpu and B of cuda: these have no ceiling and no point in common"):
        compare(machine(), gpu)
    # Different indices and different machines of one kind are what it is for.
    assert only(compare(gpu, dataclasses.replace(gpu, device="cuda:1", name="Other GPU"))).verdict == SAME


def test_the_first_of_each_kind_in_a_file(tmp_path: Path) -> None:
    gpu = machine(read(3e12), name="Example GPU", device="cuda:0")
    save_machines([machine(), gpu, dataclasses.replace(gpu, device="cuda:1")], tmp_path / "a.json")
    save_machines([gpu], tmp_path / "b.json")
    found = compare(tmp_path / "a.json", tmp_path / "b.json")
    assert [row.verdict for row in found.rows] == [SAME]
    assert found.only_a == ("cpu: all ceilings",)
    assert any("cuda:1 left out" in note for note in found.notes)


# -- points -------------------------------------------------------------------------------------------------------------------


def test_times_under_one_roof() -> None:
    row = only(compare([point()], [point(1.8e-3)]))
    assert (row.quantity, row.verdict) == ("time_s", FASTER)
    assert row.ratio == pytest.approx(0.9, rel=0.01)
    assert row.of_points["a_share_of_bracket"] == pytest.approx(0.8, rel=0.01)  # 1.6 of 2 ms
    assert only(compare([point()], [point()])).verdict == SAME
    assert only(compare([point()], [point(2.4e-3)])).verdict == SLOWER


def test_shares_where_the_roof_differs() -> None:
    """Twice as fast under a roof twice as high has reached the same share: nothing changed but the roof."""
    row = only(compare([point(2e-3, 40e9)], [point(1e-3, 80e9)]))
    assert (row.quantity, row.verdict) == ("share_of_bracket", SAME)
    assert row.a is not None and row.a.value == pytest.approx(0.8, rel=0.01)
    assert row.of_points["b_time_s"] == pytest.approx(1e-3, rel=0.01)
    assert row.notes == (
        "the DRAM read roof differs, 40.0 GB/s and 80.0 GB/s: shares of it are compared, not the times (2.00 ms, 999 µs)",
    )
    # Faster, and yet a smaller share of its roof.
    assert only(compare([point(2e-3, 40e9)], [point(1.5e-3, 80e9)])).verdict == SLOWER
    assert only(compare([point(2e-3, 40e9)], [point(1.8e-3, 41e9)])).quantity == "time_s"


def test_one_note_for_all_points_whose_roofs_differ() -> None:
    """Every point of two hosts met another roof; each row still has its own note."""
    sides = [[point(2e-3, roof, problem={"seq_q": n, "dtype": "fp32"}) for n in range(1, 7)] for roof in (40e9, 80e9)]
    found = compare(*sides)
    assert all(row.notes[0].startswith("the DRAM read roof differs, 40.0 GB/s and 80.0 GB/s") for row in found.rows)
    (note,) = found.row_notes
    assert note.startswith("6 rows: the roofs of A and B differ: shares of them are compared, not the times")
    (note,) = compare(sides[0][:3], sides[1][:3]).row_notes
    assert "40.0 GB/s" in note


def test_the_share_includes_the_scatter_of_its_probes() -> None:
    steady = point(2e-3, 40e9)
    shaken = dataclasses.replace(steady, brackets=(dataclasses.replace(steady.brackets[0], before_samples=around(40e9, 20, 0.1)),))
    far = point(1.3e-3, 60e9)
    widths = []
    for other in (steady, shaken):
        row = only(compare([other], [far]))
        assert row.ratio_high is not None and row.ratio_low is not None
        widths.append(row.ratio_high / row.ratio_low)
    assert widths[1] > widths[0] * 1.02


def test_other_roofs_are_named() -> None:
    compute = Bracket(label="fp32 avx2", kind="compute", before_samples=(2e9,) * 6)
    bound_by_compute = point(2e-3, None, brackets=(compute,), flops={"all": 3_200_000})
    row = only(compare([point()], [bound_by_compute]))
    assert "different roofs, DRAM read 40.0 GB/s and fp32 avx2 2.00 GFLOP/s" in row.notes[0]


def test_points_without_brackets_are_compared_by_time() -> None:
    row = only(compare([point(roof=None)], [point(1.8e-3)]))
    assert (row.quantity, row.verdict) == ("time_s", FASTER)
    assert row.of_points["a_bracket"] is None


test_disturbed_points_are_not_judged = gives(
    lambda status: only(compare([point()], [point(1e-3, status=status, reason="why")])).verdict,
    ("contended", "contended"),
    ("roof_moved", "roof moved"),
    ("implausible", "implausible"),
)


def test_points_that_did_not_run() -> None:
    absent = point(samples_s=(), brackets=(), status="unsupported", reason="no kernel")
    row = only(compare([point()], [absent]))
    assert (row.verdict, row.b, row.ratio) == ("unsupported", None, None)
    assert row.notes == ("B: unsupported: no kernel",)
    assert compare([point()], [absent]).table()[1][0][2] == "–"


def test_points_match_by_all_that_makes_them() -> None:
    for changes in ({"variant": "naive"}, {"cache_state": "warm"}, {"threads": 1}, {"problem": {"seq_q": 2, "dtype": "fp32"}}):
        found = compare([point()], [point(), point(**changes)])
        assert len(found.rows) == len(found.only_b) == 1, changes
        assert not compare([point()], [point(**changes)]).rows, changes
    assert len(compare([point(device="cuda:0")], [point(device="cuda:1")]).rows) == 1
    with pytest.raises(Error, match="A is of cpu and B of cuda"):
        compare([point()], [point(device="cuda:0")])


def test_a_point_measured_again_counts_once() -> None:
    again = [point(9e-3), point(2e-3), point(samples_s=(), brackets=(), status="out_of_memory")]
    assert only(compare(again, [point(2e-3)])).verdict == SAME


def test_all_threads_of_another_processor() -> None:
    larger = point(1e-3, 80e9, threads=16, provenance={"device": {"cpu_name": "Larger CPU"}})
    row = only(compare([point(provenance={"device": {"cpu_name": "Example CPU"}})], [larger]))
    assert "threads 2 against 16" in row.notes


def test_bimodal_times() -> None:
    two = tuple(t * 1e-9 for t in around(2e6, 20) + around(4e6, 20))
    assert only(compare([point(samples_s=two)], [point(2e-3)])).verdict == SAME
    assert only(compare([point(samples_s=two)], [point(3e-3)])).verdict == OVERLAP
    assert only(compare([point(samples_s=two)], [point(1e-3)])).verdict == FASTER


# -- claims -------------------------------------------------------------------------------------------------------------------


def h200(*ceilings: Ceiling) -> Machine:
    return Machine(name="NVIDIA H200", device="cuda:0", ceilings=ceilings)


def tensor(value: float, dtype: str = "bf16", **more: Any) -> Ceiling:
    return fma(around(value), dtype, **{"accumulator": "fp32", "unit": "tensor", "threads": 0, **more})


def test_a_claim_against_a_measurement() -> None:
    sheet = Machine.from_datasheet("H200 SXM")
    measured = h200(
        read(4.4e12), read(4.48e12, variant="ring"), tensor(795e12), fp32(60e12, isa=""), read(9.8e12, "L2"), fork_join()
    )
    for found in (compare(measured, sheet), compare(sheet, measured)):
        assert (found.kind, found.a) == ("datasheet", "NVIDIA H200 SXM, datasheet")
        rows = {row.name: row for row in found.rows}
        assert rows["HBM"].ratio == pytest.approx(4480 / 4800, rel=0.01)
        assert rows["HBM, clock × width by the driver"].ratio == pytest.approx(4480 / 4917, rel=0.01)
        assert "unverified" in rows["HBM, clock × width by the driver"].notes
        assert rows["bf16→fp32 tensor"].ratio == pytest.approx(795 / 989.4, rel=0.01)
        assert rows["fp32"].ratio == pytest.approx(60 / 66.9, rel=0.01)
        assert rows["fp64 tensor"].verdict == "not measured" and rows["fp64 tensor"].b is None
        assert rows["bf16→fp32 tensor"].verdict == "measured"
        assert found.only_b == ("L2 read, 2 threads", "fork-join, 2 threads")


def test_unverified_claims_say_so() -> None:
    _, rows = compare(h200(tensor(800e12)), Machine.from_datasheet("H100 NVL")).table()
    assert next(row for row in rows if row[0] == "bf16→fp32 tensor")[1] == "835 TFLOP/s (unverified)"
    assert next(row for row in rows if row[0] == "HBM")[1] == "3.90 TB/s"


def test_cores_and_matrix_units_are_not_mixed() -> None:
    sheet = Machine.from_datasheet("H200 SXM")
    rows = {row.name: row for row in compare(h200(tensor(120e12, "fp16", unit="core")), sheet).rows}
    assert rows["fp16→fp32 tensor"].verdict == "not measured"
    assert rows["fp16"].verdict == "measured"


def test_accumulators_are_not_mixed_where_both_are_claimed() -> None:
    rows = {row.name: row for row in compare(h200(tensor(300e12, "fp8_e4m3")), Machine.from_datasheet("RTX 4090")).rows}
    assert rows["fp8_e4m3→fp32 tensor"].ratio == pytest.approx(300 / 330.3, rel=0.01)
    assert rows["fp8_e4m3→fp16 tensor"].verdict == "not measured"


def test_a_contended_measurement_of_a_claim() -> None:
    rows = compare(h200(read(4e12, status="contended")), Machine.from_datasheet("H200")).rows
    assert rows[0].verdict == "contended"


def test_a_cpu_against_its_claim() -> None:
    found = compare(machine(fp32()), Machine.from_datasheet("EPYC 9654"))
    row = next(row for row in found.rows if row.name == "fp32 avx512")
    assert row.ratio == pytest.approx(200e9 / (96 * 32 * 3.7e9), rel=0.01)
    assert "measured by fp32 avx2, 2 threads, and claimed for 96 cores" in row.notes


def test_a_claim_of_another_kind_of_device() -> None:
    with pytest.raises(Error, match="NVIDIA H200 SXM is a cuda device and A holds cpu: name a datasheet of the device measured"):
        compare(machine(), Machine.from_datasheet("H200"))
    with pytest.raises(Error, match="holds measurements only"):
        compare([point()], Machine.from_datasheet("H200"))


def test_two_datasheets() -> None:
    found = compare(Machine.from_datasheet("H100"), Machine.from_datasheet("H200"))
    rows = {row.name: row for row in found.rows}
    assert rows["HBM read"].ratio == 4800 / 3350
    assert {row.verdict for row in found.rows} == {"as stated"}
    assert found.footer == ()


# -- what it shows, and files -------------------------------------------------------------------------------------------------


def test_records_and_reprs() -> None:
    found = compare(machine(), machine(read(50e9), fp32()))
    records = found.to_records()
    assert len({tuple(record) for record in records}) == 1
    assert records[0]["verdict"] == FASTER and records[0]["ratio"] == pytest.approx(1.25, rel=0.01)
    assert records[0]["a_low"] < records[0]["a"] < records[0]["a_high"]
    assert repr(found) == "Comparison(2 rows, 1 faster, 1 no significant change)"
    shown = found._repr_html_()
    assert "DRAM read" in shown and "only in A" in shown
    hostile = machine(read(), name="<script>")
    assert "<script>" not in compare(hostile, machine(read()))._repr_html_()
    assert "B / A" in pretty(found)


def test_the_json_form_fits_its_schema(schema: Any, closed: Any) -> None:
    check = schema("comparison")
    absent = point(samples_s=(), brackets=(), status="unsupported", variant="naive")
    for found in (
        compare(machine(read(samples=FAST + SLOW)), machine()),
        compare([point(), absent], [point(1e-3, 80e9), absent]),
        compare(h200(read(4e12)), Machine.from_datasheet("H200")),
    ):
        written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        closed(check, written, written, written["rows"][0], written["rows"][0]["a"])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Folders a and b like those of two reports."""
    for name, speed in (("a", 1.0), ("b", 1.25)):
        folder = tmp_path / name
        folder.mkdir()
        machine(read(40e9 * speed), fp32()).save(folder / "machine.json")
        append_to(folder / "results.jsonl", point(2e-3 / speed, 40e9))
    return tmp_path


def test_folders_and_files(saved: Path) -> None:
    both = compare(saved / "a", saved / "b")
    assert [row.section for row in both.rows] == ["ceiling", "ceiling", "point"]
    assert [row.verdict for row in both.rows] == [FASTER, SAME, FASTER]
    assert compare(saved / "a" / "machine.json", saved / "b").rows == both.rows[:2]
    assert compare(saved / "a" / "results.jsonl", Results.load(saved / "b" / "results.jsonl")).rows == both.rows[2:]
    os.rename(saved / "a" / "results.jsonl", saved / "points.txt")
    assert compare(saved / "points.txt", saved / "b").rows == both.rows[2:]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, r"cannot read machine file .*x.json: No such file"),
        (b"", "is not valid JSON"),
        (b'{"schema_version": 99, "kind": "machines", "machines": []}', "has schema_version 99, .* upgrade roofline"),
        (b'{"schema_version": 4, "kind": "comparison"}', "has kind 'comparison', not 'machines'"),
    ],
)
def test_files_that_do_not_fit(content: bytes | None, words: str, tmp_path: Path, cli: Any) -> None:
    good, bad = tmp_path / "machine.json", tmp_path / "x.json"
    machine().save(good)
    if content is not None:
        bad.write_bytes(content)
    with pytest.raises(Error, match=words):
        compare(good, bad)
    assert cli.refused(["compare", str(good), str(bad)])


def test_sides_that_do_not_fit(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(Error, match="A .* holds ceilings and B .* holds measurements: give two machine files"):
        compare(saved / "a" / "machine.json", saved / "b" / "results.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(Error, match=r"is a folder without machine.json and results.jsonl"):
        compare(saved / "a", tmp_path / "empty")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with pytest.raises(Error, match=r"B \(.*\) holds no measurements"):
        compare(saved / "a", tmp_path / "empty.jsonl")
    (tmp_path / "newer.jsonl").write_bytes(b'{"schema_version": 99}\n')
    with pytest.raises(Error, match=r"has schema_version 99, this version reads \d+: upgrade roofline"):
        compare(saved / "a", tmp_path / "newer.jsonl")
    with pytest.raises(Error, match="B must be a Machine, measurements, or the path"):
        compare(machine(), [1])  # type: ignore[list-item]


# -- the command --------------------------------------------------------------------------------------------------------------


def test_the_command(saved: Path, cli: Any) -> None:
    a, b = str(saved / "a"), str(saved / "b")
    shown = cli.out(["compare", a, b])
    for words in ("DRAM read, 2 threads", "faster", "no significant change", "rows with 95 % intervals"):
        assert words in shown
    assert cli.json(["compare", a, b]) == json.loads(json.dumps(compare(a, b).to_dict()))


@pytest.mark.parametrize("suffix", [".json", ".csv", ".md"])
def test_the_command_writes_files(suffix: str, saved: Path, cli: Any) -> None:
    out = saved / f"comparison{suffix}"
    assert f"saved in {out}" in cli.out(["compare", str(saved / "a"), str(saved / "b"), "-o", str(out)])
    text = out.read_text(encoding="utf-8")
    assert str(saved) not in text
    if suffix == ".json":
        assert json.loads(text)["kind"] == "comparison"
    elif suffix == ".csv":
        assert [row["verdict"] for row in csv.DictReader(text.splitlines())] == [FASTER, SAME, FASTER]
    else:
        assert text.startswith("| what | A | B |")


def test_the_command_with_a_datasheet(tmp_path: Path) -> None:
    h200(read(4.48e12), tensor(795e12)).save(tmp_path / "machine.json")
    done = python("-m", "roofline", "compare", str(tmp_path / "machine.json"), "H200 SXM")
    assert done.returncode == 0, done.stderr
    assert "93." in done.stdout and "not measured" in done.stdout and "(unverified)" in done.stdout


def test_two_datasheets_by_name(cli: Any) -> None:
    shown = cli.out(["compare", "A100", "H100"])
    # 989.4 over 312 TFLOP/s and 3350 over 2039 GB/s, as the vendor states them; no interval, since nothing was sampled.
    assert "A: NVIDIA A100 SXM 80GB" in shown and "3.17" in shown and "1.64" in shown and "95 %" not in shown
    assert (
        roofline.compare("A100", "H100").to_records()
        == roofline.compare(roofline.Machine.from_datasheet("A100"), roofline.Machine.from_datasheet("H100")).to_records()
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the following arguments are required: B"),
        (["H999"], "no datasheet of 'H999'"),
        (["GH200"], "ambiguous"),
        (["A", "-o", "x.pdf"], "cannot write a .pdf file"),
    ],
)
def test_bad_usage(arguments: list[str], words: str, saved: Path, cli: Any) -> None:
    named = [str(saved / "a") if argument == "A" else argument for argument in arguments]
    assert words in cli.refused(["compare", str(saved / "a"), *named])
