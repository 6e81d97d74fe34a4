"""Measuring: correctness first, frozen predictions, contention, cache states, callables, bad input."""

import ctypes
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from example import FAST, bracket, measurement
from tables import gives, refused

import roofline
from roofline import Attention, AttentionBackward, Error, Matmul, OutOfMemory, Policy, Relu, Softmax, Stream, Unsupported
from roofline.measurement import attempt, default_device, disturbances, open_device
from roofline.measurement.callables import stream_handle
from roofline.measurement.devices import Device, provenance
from roofline.measurement.preparing import prepare
from roofline.measurement.probing import as_large, compute_probe, fastest, level_of
from roofline.measurement.tensors import allocate_all, bind, check
from roofline.measurement.timing import kept_share, with_plausibility
from roofline.operators import Embedding, MixedIntensity, QuantizedMatmul
from roofline.probes.bandwidth import STREAM, dram_array_bytes, size_problem, stream_candidates, stream_problem
from roofline.probes.base import want
from roofline.probes.compute import fma_isas, fma_problem
from roofline.probes.intensity import mixed_intensity_grid
from roofline.probes.levels import last_cache, warm_level
from roofline.results import Measurement
from roofline.units import MIB

pytestmark = pytest.mark.all_cores


@pytest.fixture
def spinner() -> Iterator[None]:
    """One process that keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # it spins
    yield
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_measurement_is_complete() -> None:
    m = roofline.measure(Attention(seq_q=96, seq_kv=96), device="cpu", policy=FAST)
    assert m.operator == "attention"
    assert m.variant == "tiled"
    assert len(m.samples_s) >= 3
    assert m.correctness["passed"]
    assert m.correctness["max_error"] < 1e-5
    assert m.prediction["roof_s"] == max(m.prediction["terms"].values()) <= m.prediction["time_s"]
    assert {b.kind for b in m.brackets} == {"bandwidth", "compute", "latency"}
    assert all(len(b.before_samples) >= 3 and len(b.after_samples) >= 3 for b in m.brackets)
    assert m.plan["implementation"].startswith("tiled/")
    assert m.provenance["seed"] == 0
    assert Measurement.from_dict(m.to_dict()) == m


def test_the_prediction_comes_from_the_brackets_before() -> None:
    m = roofline.measure(Softmax(rows=64, columns=64), device="cpu", policy=FAST)
    before = {b.kind: b.median_before for b in m.brackets}
    assert m.prediction["terms"]["DRAM"] == pytest.approx(m.total_bytes / before["bandwidth"])
    assert m.prediction["terms"]["compute"] == pytest.approx(m.total_flops / before["compute"])
    launch = next(b for b in m.brackets if b.kind == "latency")
    assert m.prediction["terms"]["launch"] == pytest.approx(min(launch.before_samples))


@pytest.mark.parametrize(("dtype", "expected"), [("fp16", "int16"), ("fp32", "int8")])
def test_the_compute_roof_is_that_of_the_arithmetic_of_the_kernel(dtype: str, expected: str) -> None:
    device = open_device("cpu")
    problem = QuantizedMatmul(rows=4, columns=64, inner=128, dtype=dtype)
    m = roofline.measure(problem, device=device, policy=FAST)
    arithmetic = m.plan.get("arithmetic", "fp32")
    assert arithmetic == expected or (dtype == "fp32" and "vnni" not in m.plan["implementation"])
    roof = next(b for b in m.brackets if b.kind == "compute")
    assert roof.problem["dtype"] == (arithmetic if fma_isas(device, arithmetic) else "fp32")
    assert m.prediction["terms"]["compute"] == pytest.approx(m.total_flops / roof.median_before)


def test_sampled_rows_of_results_of_two_sizes() -> None:
    """dk has 600 rows, dq 512: rows beyond its end are counted from its begin."""
    problem = AttentionBackward(heads=8, kv_heads=1, seq_q=64, seq_kv=600, head_dim=80, causal=False)
    m = roofline.measure(problem, device="cpu", policy=FAST)
    assert 0 < m.correctness["rows"] < 512
    assert m.correctness["passed"]


def test_steps_of_a_kernel_are_timed_alone() -> None:
    m = roofline.measure(Attention(seq_q=64, seq_kv=64), variant="naive", device="cpu", policy=FAST)
    assert list(m.steps) == ["q·kᵀ", "softmax", "p·v"]
    assert all(len(samples) >= 3 for samples in m.steps.values())


@pytest.mark.timing
def test_the_steps_sum_to_the_whole() -> None:
    m = roofline.measure(Attention(seq_q=1024, seq_kv=1024), variant="naive", device="cpu")
    assert sum(float(np.median(s)) for s in m.steps.values()) == pytest.approx(m.time_s, rel=0.1)


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="no /proc/self/schedstat: run delay cannot be seen here")
def test_a_planted_load_is_seen_every_time(spinner: None) -> None:
    """One spinning process against threads on every core: six measurements, six times contended."""
    problem = Relu(elements=1 << 18)
    policy = Policy(warmup_min_s=0.0, warmup_max_s=0.005, min_s=0.2, max_s=0.2, noise=0.0, tries=1, bracket_s=0.004)
    statuses = [roofline.measure(problem, device="cpu", policy=policy).status for _ in range(6)]
    assert statuses == ["contended"] * 6


@pytest.mark.timing
def test_an_idle_machine_is_seldom_called_contended() -> None:
    policy = Policy(warmup_min_s=0.0, warmup_max_s=0.005, min_s=0.2, max_s=0.2, noise=0.0, tries=1, bracket_s=0.004)
    statuses = [roofline.measure(Relu(elements=1 << 18), device="cpu", policy=policy).status for _ in range(10)]
    assert statuses.count("contended") <= 1


def test_cold_rotates_or_flushes_and_warm_does_neither() -> None:
    """Lines are flushed where the CPU has an instruction for it; else launches rotate, or a small problem's caches are emptied."""
    device = Device("cpu")
    for flush in {device.facts["flush"], ""}:
        device.facts = {**device.facts, "flush": flush, "l3_bytes": 0}  # some last caches have hundreds of megabytes
        cache = last_cache(device.facts)
        small = prepare(device, Relu(elements=64), None, "cold", 0)
        assert small.flush_each
        assert len(small.sets) == 1
        middle = prepare(device, Relu(elements=cache // 16), None, "cold", 0)
        assert middle.flush_each == bool(flush)
        assert len(middle.sets) == 1 if flush else (len(middle.sets) - 1) * middle.problem.footprint_bytes() >= 4 * cache
        large = prepare(device, Relu(elements=cache), None, "cold", 0)
        assert len(large.sets) == 1
        assert not large.flush_each, "most of it is gone by the next launch"
        warm = prepare(device, Relu(elements=64), None, "warm", 0)
        assert (len(warm.sets), warm.flush_each) == (1, False)


def test_levels_of_warm_and_cold() -> None:
    device = open_device("cpu")
    assert level_of(device, 4096, "cold") == "DRAM"
    assert level_of(device, 4096, "warm") == "L1"
    assert level_of(device, 2**34, "warm") == "DRAM"


def test_probes_fit_their_level() -> None:
    device = open_device("cpu")
    for level in ("L1", "L2"):
        for access in ("read", "triad"):
            problem = stream_problem(device, level, access)
            arrays = sum(t.size_bytes for t in problem.tensors() if t.name != "sum")
            assert arrays <= device.facts[f"{level.lower()}_bytes"] * device.threads * 0.51
            assert arrays * problem.passes >= 2**22
    cache = device.facts["l3_bytes"] or device.facts["l2_bytes"]
    assert dram_array_bytes(device) >= (16 << 20 if device.facts["flush"] else 2 * cache)
    assert 3 * dram_array_bytes(device) <= device.arena_bytes
    assert fma_problem(device, "fp32").chains % device.threads == 0
    assert compute_probe(device, "int4") == compute_probe(device, "fp32")  # a dtype without a probe meets the fp32 roof


def test_a_working_set_has_the_size_asked_for() -> None:
    device = open_device("cpu")
    for access, arrays in (("read", 1), ("copy", 2), ("triad", 3)):
        for size in (4096, 5000, 40 << 10, 1 << 20, 1 << 30):
            problem = size_problem(device, size, access)
            held = sum(t.size_bytes for t in problem.tensors() if t.name != "sum")
            least = arrays * device.threads * (1024 if size >= arrays * device.threads * 1024 else 64)
            assert size - least < held <= size, (access, size)
            assert problem.elements * 4 % (64 * device.threads) == 0, "a thread with less to do than another"
            assert held * problem.passes >= min(size, 2**25) / 2
    assert size_problem(device, 1).elements == 16 * device.threads
    for size, access in ((0, "read"), (4096, "sideways")):
        with pytest.raises(Error, match="size_problem"):
            size_problem(device, size, access)


def test_a_launch_touches_the_packed_copy_of_its_weights_alone() -> None:
    device = open_device("cpu")
    prepared = prepare(device, Matmul(rows=3, columns=512, inner=1024), "tiled", "warm", 0)
    a, weights, c = 3 * 1024 * 4, 1024 * 512 * 4, 3 * 512 * 4
    assert prepared.plan["packed_bytes"] == weights  # whole strips
    assert prepared.working_set_bytes() == a + weights + c + prepared.plan["workspace_bytes"]


@pytest.mark.parametrize("flush", ["clflushopt", ""])
def test_rows_of_a_large_table_are_cold_too(monkeypatch: pytest.MonkeyPatch, flush: str) -> None:
    device = open_device("cpu")
    monkeypatch.setattr("roofline.measurement.preparing.last_cache", lambda facts: 1 << 20)
    monkeypatch.setitem(device.facts, "flush", flush)
    table = Embedding(tokens=8, vocabulary=4096, d_model=1024, dtype="fp32")  # 16 MiB, of which 32 KiB are read
    few, many = (prepare(device, table.replace(tokens=tokens), "fused", "cold", 0) for tokens in (8, 4096))
    assert few.flush_each and len(few.sets) == 1
    assert not many.flush_each


def test_many_passes_add_up() -> None:
    """The sum of a long launch in L1 is within its tolerance: rounding errors do not grow with the square of the passes."""
    device = open_device("cpu", 1)
    for problem in (size_problem(device, 4096), size_problem(device, 4096).replace(isa="scalar"), size_problem(device, 16384)):
        assert problem.passes >= 2000
        tensors = allocate_all(device, problem, 5)
        bind(device, problem, "plain", tensors).run()
        report = check(problem, tensors)
        assert report["passed"], report["reason"]
        assert report["max_error"] < abs(float(tensors["sum"].raw()[0])) / problem.passes, "a lost pass would not show"


def test_candidates_are_few_and_can_all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roofline.probes.bandwidth.dram_array_bytes", lambda device, depth: 1 << 22)
    device = open_device("cpu", 1)
    for level in ("L1", "DRAM"):
        for access in ("read", "copy"):
            candidates = stream_candidates(device, level, access)
            of_a_roof = [variant == "non_temporal" for _, variant in candidates]
            assert 2 <= of_a_roof.count(False) <= 5
            assert of_a_roof.count(True) <= 4
            best = fastest(device, want(STREAM, device, 0, *candidates, level=level))
            assert (best.problem, best.variant) in candidates
    updates = stream_candidates(device, "DRAM", "update")
    assert {variant for _, variant in updates} == {"plain"}
    assert {problem.to_dict()["factor"] for problem, _ in updates} == {-1.0}, "numbers stay as large as they are"
    one_roof = {STREAM.name(STREAM.identity(device, problem, variant, "DRAM")) for problem, variant in updates}
    assert one_roof == {"DRAM update"}, "stores of half a line belong to the same roof"


def test_instruction_sets_of_streams() -> None:
    device = open_device("cpu", 1)
    for isa in str(device.facts["isas"]).split(","):
        problem = Stream(elements=1000, isa=isa)
        try:
            bound = bind(device, problem, "plain", allocate_all(device, problem, 1))
        except Unsupported as reason:
            assert "stream" in str(reason)
        else:
            assert bound.plan["isa"] == isa
            assert bound.plan["implementation"] == f"plain/{isa}"
    for isa, why in (("sse9", "no instruction set 'sse9'"), ("amx", "amx")):
        problem = Stream(elements=1000, isa=isa)
        with pytest.raises(Unsupported, match=why):
            bind(device, problem, "plain", allocate_all(device, problem, 1))
    strided = Stream(elements=1 << 12, stride=16)
    plan = bind(device, strided, "plain", allocate_all(device, strided, 1)).plan
    assert plan["implementation"] == "strided/scalar"
    assert strided.traffic(plan) == {}, "a walk over 16 KiB stays in the last cache"


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("level", ["L1", "L2", "DRAM"])
def test_the_grid_of_intensities(level: str, dtype: str) -> None:
    device = open_device("cpu")
    element = 4 if dtype == "fp32" else 8
    compute, bandwidth = 2e11, 2e10  # a knee at 10 FLOP/byte

    def intensities(problems: list[MixedIntensity]) -> list[float]:
        return [p.total_flops() / (p.elements * element * p.passes) for p in problems]

    plain = mixed_intensity_grid(device, level, dtype)
    dense = mixed_intensity_grid(device, level, dtype, flops_per_s=compute, bytes_per_s=bandwidth)
    for problems in (plain, dense):
        seen = intensities(problems)
        assert 24 <= len(problems) <= 40
        assert seen == sorted(set(seen))
        assert (seen[0], seen[-1]) == (1 / 16, 256)
        assert max(b / a for a, b in itertools.pairwise(seen)) < 2.01
    assert sum(5 <= i <= 20 for i in intensities(dense)) >= 1.5 * sum(40 <= i <= 160 for i in intensities(dense))
    read = stream_problem(device, level, "read", dtype=dtype)
    for problem, intensity in zip(dense, intensities(dense), strict=True):
        assert 0.7 * read.elements < problem.elements <= read.elements
        launch_s = problem.passes * problem.elements * element * max(1 / bandwidth, intensity / compute)
        once = problem.passes == 1  # of a large cache one pass at a high intensity may take longer
        assert once if level == "DRAM" else 0.2e-3 <= launch_s <= 2e-3 or (once and launch_s > 2e-3)


def test_above_the_roof_is_implausible() -> None:
    def made(seconds: float) -> Measurement:
        brackets = (bracket((1e10,) * 3),)
        return with_plausibility(measurement(Relu(), (seconds,) * 3, bytes={"compulsory": 10**10}, brackets=brackets))

    assert made(1.0).status == "ok"
    assert made(0.98).status == "ok"
    assert made(0.96).status == "implausible"
    assert "104" in made(0.96).reason


def test_a_warm_set_that_a_cache_holds_in_part_may_be_faster_than_memory() -> None:
    brackets = (bracket((1e10,) * 3),)
    m = measurement(Relu(), (0.5,) * 3, bytes={"compulsory": 10**10}, brackets=brackets, cache_state="warm")
    assert with_plausibility(m, kept=1.0).status == "ok"
    assert with_plausibility(m).status == "implausible"
    assert with_plausibility(m).reason.startswith("200 % of its DRAM roof: ")


def test_a_warm_set_beyond_the_last_cache_lies_there_in_part() -> None:
    facts = {"l3_bytes": 2**22, "l2_bytes": 2**16, "l1_bytes": 2**14, "threads": 1}
    assert [warm_level(facts, size) for size in (2**20, 2**23, 2**23 + 1)] == ["L3", "L3", "DRAM"]
    assert warm_level({"l2_bytes": 2**20, "sms": 132}, 2**20) == "DRAM"  # a GPU has no L3
    prepared = prepare(open_device("cpu"), Relu(elements=2**20), None, "warm", 0)
    prepared.device = SimpleNamespace(facts=facts)  # type: ignore[assignment]
    for state, level in (("cold", "DRAM"), ("warm", "L3")):
        assert prepared.placed(state) == level
        assert prepared.moved(level) == {level: {"compulsory": 2**23}}
    assert kept_share(prepared, "L3") == 1.0


def test_the_roof_of_a_warm_set_goes_over_as_much() -> None:
    device = open_device("cpu")
    usual = size_problem(device, MIB, "copy").replace(streams=2)
    assert as_large(device, usual, MIB // 2) == usual
    for set_bytes in (40 * MIB, 45 * MIB):
        larger = as_large(device, usual, set_bytes)
        assert isinstance(larger, Stream) and (larger.access, larger.streams) == ("copy", 2)
        assert larger.pass_bytes() / set_bytes == pytest.approx(1, abs=0.1)
    assert as_large(device, usual, 44 * MIB) == as_large(device, usual, 45 * MIB)


def test_callables_are_timed_and_placed() -> None:
    calls = []

    def work(x: int, *, y: int) -> str:
        calls.append((x, y))
        time.sleep(2e-3)
        return "dropped"

    m = roofline.measure_callable(work, 1, kwargs={"y": 2}, flops=10**6, bytes=10**6, policy=FAST)
    assert calls[0] == (1, 2)
    assert m.time_s > 2e-3
    assert m.operator == "work"
    assert m.total_flops == m.total_bytes == 10**6
    a = np.ones((64, 64), dtype=np.float32)
    m = roofline.measure_callable(np.matmul, a, a, flops=Matmul(rows=64, columns=64, inner=64), policy=FAST, name="numpy")
    assert m.total_flops == 2 * 64**3
    assert m.operator == "numpy"


def test_a_callable_that_raises_passes_through() -> None:
    def broken() -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        roofline.measure_callable(broken, flops=1, bytes=1, policy=FAST)
    with pytest.raises(Error, match="not callable"):
        roofline.measure_callable(3, flops=1, bytes=1)  # type: ignore[arg-type]


def test_calls_that_compute_nothing_are_refused() -> None:
    async def later() -> None: ...

    def by_and_by() -> Iterator[int]:
        yield 1

    for function in (later, by_and_by):
        with pytest.raises(Error, match="computes nothing yet"):
            roofline.measure_callable(function, flops=1, bytes=1, policy=FAST)


test_bad_callables = refused(
    lambda arguments: roofline.measure_callable(lambda: None, **{"policy": FAST, **arguments}),
    ({"flops": 1}, "bytes is missing"),
    ({"flops": -1, "bytes": 1}, "flops must be a whole number"),
    ({"flops": float("nan"), "bytes": 1}, "flops must be a whole number"),
    ({"flops": 1, "bytes": 1, "dtype": "fp33"}, "unknown dtype"),
    ({"flops": 1, "bytes": 1, "threads": 10**6}, "threads"),
    ({"flops": 1, "bytes": 1, "level": "L9"}, "level must be one of"),
    ({"flops": 1, "bytes": 1, "level": 3}, "level must be one of"),
    ({"flops": 1, "bytes": 1, "policy": "x"}, "policy must be"),
    ({"flops": 1, "bytes": 1, "machine": 5}, "machine must be"),
    (
        {"flops": 1, "bytes": 1, "machine": "H100"},
        "machine 'NVIDIA H100 SXM' is cuda, not cpu; measure that device's ceilings first",
    ),
    ({"flops": 1, "bytes": 1, "kwargs": 5}, "kwargs must be"),
    ({"flops": 1, "bytes": 1, "device": ""}, "device must be"),
    ({"flops": np.bool_(True), "bytes": 1}, "flops must be a whole number"),
    ({"flops": np.float64("nan"), "bytes": 1}, "flops must be a whole number"),
    ({"flops": "1" * 5000, "bytes": 1}, r"^.{1,200}$"),
)


def test_counts_of_numpy_are_numbers() -> None:
    m = roofline.measure_callable(lambda: None, flops=np.int64(5), bytes=np.float32(7), policy=FAST)
    assert (m.total_flops, m.total_bytes) == (5, 7)


def test_a_dtype_in_other_words_has_its_own_roof() -> None:
    m = roofline.measure_callable(lambda: None, flops=5, bytes=7, dtype="float64", policy=FAST)
    assert m.problem["dtype"] == "fp64"
    assert [roof.problem["dtype"] for roof in m.brackets if roof.kind == "compute"] == ["fp64"]


def test_problems_in_words() -> None:
    """An operator's name and its fields, in the names of others: the problem is the same one."""
    found = roofline.measure("gemm", M=64, N=32, K="16", dtype=np.float32, device="cpu", policy=FAST)
    assert found.operator == "matmul"
    assert {name: found.problem[name] for name in ("rows", "columns", "inner", "dtype")} == {
        "rows": 64, "columns": 32, "inner": 16, "dtype": "fp32",
    }  # fmt: skip
    changed = roofline.measure(Matmul(rows=8, columns=8, inner=8), M=64, N=32, K=16, device="cpu", policy=FAST)
    assert changed.problem == found.problem
    with pytest.raises(Error, match="unknown field 'rowz' .did you mean rows"):
        roofline.measure("gemm", rowz=4, device="cpu")


test_what_is_no_problem = refused(
    lambda call, problem: call(problem),
    *(
        (call, problem, "a problem must be an operator or its name")
        for call in (roofline.run, roofline.measure, attempt)
        for problem in (None, 5)
    ),
)


class LazilyNegated(np.ndarray):
    """As torch.conj(z).imag is: its memory holds the numbers before their negation."""

    def is_neg(self) -> bool:
        return True


test_bad_options_of_run = refused(
    lambda options: roofline.run(roofline.Relu(elements=4), **{"x": np.ones(4, dtype=np.float32), **options}),
    ({"variant": 5}, "variant must be"),
    ({"in_place": 5}, "in_place must be"),
    ({"device": 5}, "device must be"),
    ({"x": np.ma.masked_equal(np.ones(4, dtype=np.float32), 1)}, "has a mask"),
    ({"x": np.ma.MaskedArray(np.ones(4, dtype=np.float32))}, "has a mask"),
    ({"x": np.ones(4, dtype=np.float32).view(LazilyNegated)}, "negated only when it is read"),
)


def test_run_on_own_data() -> None:
    x = np.array([[1.0, -2.0], [3.0, 0.0]], dtype=np.float32)
    assert (roofline.run(roofline.Relu(elements=4), x=x.reshape(-1))["y"] == [1, 0, 3, 0]).all()
    a, b = np.eye(3, dtype=np.float32), np.arange(9, dtype=np.float32).reshape(3, 3)
    problem = roofline.BiasRelu(rows=3, columns=3)
    out = roofline.run(problem, x=b - 4, bias=np.ones(3, dtype=np.float32))["y"]
    assert (out == np.maximum(b - 3, 0)).all()
    try:
        assert (roofline.run(Matmul(rows=3, columns=3, inner=3), a=a, b=b)["c"] == b).all()
    except Unsupported as reason:
        pytest.skip(str(reason))


test_bad_data = refused(
    lambda tensors: roofline.run(Relu(elements=4), **tensors),
    ({}, "tensor 'x' is missing"),
    ({"x": [1.0] * 4}, "is a list"),
    ({"x": np.ones(5, dtype=np.float32)}, r"has shape \[5\]; expected fp32 \[4\]"),
    ({"x": np.ones(4)}, "has dtype float64; expected fp32"),
    ({"x": np.ones(8, dtype=np.float32)[::2]}, "not contiguous"),
    ({"x": np.ones(4, dtype=">f4")}, "dtype"),
    ({"x": np.ones(4, dtype=np.float32), "z": np.ones(4)}, "unknown tensor 'z'"),
)


test_what_cannot_run_says_why = refused(
    lambda options: roofline.measure(Relu(elements=4), **{"device": "cpu", **options}),
    ({"device": "tpu"}, "unknown device 'tpu'"),
    ({"device": "cuda:x"}, "expected cuda"),
    ({"threads": -1}, "threads"),
    ({"threads": 4096}, "only .* cores are usable"),
    ({"variant": "fastest"}, "unknown variant"),
    ({"cache_state": "hot"}, "cache_state"),
)


def test_problems_without_a_kernel_and_without_memory() -> None:
    narrow, huge = Matmul(rows=8, columns=8, inner=8, dtype="tf32"), Relu(elements=2**50)
    with pytest.raises(Unsupported, match="no kernel|has no"):
        roofline.measure(narrow, variant="tiled", device="cpu")
    with pytest.raises(OutOfMemory, match="TiB|PiB|EiB|GiB"):
        roofline.measure(huge, device="cpu")
    with pytest.raises(Unsupported, match="no stores"):
        roofline.measure(Stream(access="read", elements=100), device="cpu", variant="non_temporal")
    assert attempt(huge, device="cpu").status == "out_of_memory"
    assert attempt(narrow, variant="tiled", device="cpu").status == "unsupported"


def test_a_wrong_kernel_is_never_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relu, "reference", lambda self, tensors, rows=None: {"y": np.asarray(tensors["x"]) + 1})
    with pytest.raises(Error, match="nothing was timed"):
        roofline.measure(Relu(elements=64), device="cpu", policy=FAST)
    assert attempt(Relu(elements=64), device="cpu", policy=FAST).status == "failed"


@pytest.mark.parametrize(
    "bad",
    [
        {"min_s": -1}, {"noise": float("nan")}, {"noise": 10**400}, {"min_samples": 1}, {"min_samples": 10**30}, {"tries": 0},
        {"tries": 1.5}, {"tries": "2"}, {"max_s": "long"},
    ],
)  # fmt: skip
def test_bad_policies(bad: dict[str, Any]) -> None:
    with pytest.raises(Error):
        Policy(**bad)


@pytest.mark.parametrize("measured", [roofline.measure, attempt, roofline.sweep])
@pytest.mark.parametrize("seed", [-1, 2**31 + 1, 1.5, "a", None])
def test_bad_seeds(measured: Any, seed: Any) -> None:
    with pytest.raises(Error, match="seed must be"):
        measured(Relu(elements=64), device="cpu", seed=seed)


def test_the_default_is_a_variant_that_the_device_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = Device("cpu", 1)
    many = Matmul(rows=65, columns=8, inner=8)
    assert cpu.default_variant(many) == many.default_variant("cpu") == "tiled"
    kernels = [{**k, "missing": "none"} if k["operator"] == "matmul" and k["variant"] == "tiled" else k for k in cpu.kernels]
    monkeypatch.setattr(cpu, "kernels", kernels)
    assert cpu.default_variant(many) == "library"
    monkeypatch.setattr(cpu, "kernels", [{**k, "missing": "nothing runs"} for k in kernels])
    assert cpu.default_variant(many) == "tiled", "whose reason is then the answer"


def test_default_device_is_usable() -> None:
    assert open_device(default_device()).kernels


def test_fork_in_the_middle() -> None:
    """A forked child gets threads of its own."""
    roofline.run(Relu(elements=4096), x=np.ones(4096, dtype=np.float32))
    pid = os.fork()
    if pid == 0:
        out = roofline.run(Relu(elements=4096), x=np.ones(4096, dtype=np.float32))["y"]
        os._exit(0 if (out == 1).all() else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_traffic_that_a_cache_holds_does_not_reach_dram() -> None:
    device = open_device("cpu")
    cache = device.facts["l3_bytes"] or device.facts["l2_bytes"]
    small = prepare(device, Attention(seq_q=64, seq_kv=64), "naive", "cold", 0)
    assert small.moved("DRAM")["DRAM"] == {"compulsory": small.problem.compulsory_bytes()}
    assert small.plan["cached_traffic_bytes"] == 4 * 4 * 8 * 64 * 64
    keys = int((cache / 4 / 8) ** 0.5) + 64  # the score matrix alone is larger than the last cache
    large = prepare(device, Attention(seq_q=keys, seq_kv=keys, head_dim=1), "naive", "cold", 0)
    assert sum(large.moved("DRAM")["DRAM"].values()) == large.problem.compulsory_bytes() + 4 * 4 * 8 * keys * keys
    assert "cached_traffic_bytes" not in large.plan
    assert len(small.moved("L2")["L2"]) == 4  # a warm run is judged at the level that holds everything


def test_a_gpu_that_slowed_itself_down_says_what_held_it() -> None:
    conditions = {"hw_thermal_slowdown_share": 0.3, "sw_power_cap_share": 0.9, "hw_slowdown_share": 0.31}
    seen = {"throttled": True, "contended": True, "conditions": conditions, "load": {}}
    reason = disturbances.disturbed(seen, {})
    assert reason.startswith("the GPU slowed itself down: hw slowdown for 31 %, hw thermal slowdown for 30 % of the time")
    assert "power cap" not in reason


def test_contention_is_stated_as_other_shares_are() -> None:
    load = {"cpu_share": 0.5664, "run_delay_share": 0.4, "foreign_cores": 0.0}
    said = "threads had 56.6 % of the time and waited 40.0 % of it for a core"
    assert disturbances.contention(load, {}) == f"other work ran on these cores: {said}; repeat on an idle machine"


test_handles_of_streams = gives(
    stream_handle,
    (32512, 32512),
    (SimpleNamespace(cuda_stream=32512), 32512),  # PyTorch
    (SimpleNamespace(ptr=32512), 32512),  # CuPy
    (SimpleNamespace(handle=ctypes.c_void_p(32512)), 32512),  # Numba
    (SimpleNamespace(__cuda_stream__=lambda: (0, 32512)), 32512),
    (SimpleNamespace(__cuda_stream__=(0, 32512), cuda_stream=7), 32512),
)


def test_bad_streams() -> None:
    for stream in (True, -1, "0", object(), SimpleNamespace(cuda_stream=None)):
        with pytest.raises(Error, match="stream must be a CUDA stream"):
            stream_handle(stream)
    assert stream_handle(0) == 0, "the legacy default stream"
    with pytest.raises(Error, match="a stream belongs to a GPU, and the device is 'cpu'"):
        roofline.measure_callable(lambda: None, flops=1, bytes=1, stream=0)


def test_how_a_callable_was_timed_is_in_the_record() -> None:
    m = roofline.measure_callable(lambda: None, flops=10, bytes=10, policy=FAST)
    assert dict(m.plan) == {"clock": "host"}


def test_who_else_is_on_a_gpu_is_in_the_provenance() -> None:
    """As it is when something was measured, not when the GPU was opened; and no names. Also whether launches were held back."""
    now = {"gpu_name": "H200", "other_processes": 2, "other_processes_bytes": 5, "mig": 0, "gate": "off", "sms": 132}
    gpu = SimpleNamespace(backend="cuda", facts={**now, "other_processes": 0, "gate": "on"}, core=SimpleNamespace(facts=now))
    device = provenance(gpu, 0)["device"]  # type: ignore[arg-type]
    assert device == {name: value for name, value in now.items() if name != "sms"}
