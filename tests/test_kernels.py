"""Every kernel of every device here, bound as it is timed, against its float64 reference, with guard zones and random data."""

from typing import Any

import numpy as np
import pytest
from example import FAST

from roofline.dtypes import to_float64
from roofline.errors import OutOfMemory, Unsupported
from roofline.measurement import Policy, list_devices, measure, open_device, run
from roofline.measurement.tensors import Held, allocate, allocate_all, bind, check
from roofline.operators import OPERATORS, Attention, CachedAttention, Ffn, GroupedMatmul, Matmul, Operator, Relu, Stream
from roofline.operators.attention import FEW_QUERIES
from roofline.tensor_spec import TensorSpec

pytestmark = pytest.mark.all_cores

GPU = "cuda:0"


def points(slow: bool, devices: tuple[str, ...] = ("cpu", GPU)) -> list[Any]:
    """(device, problem, variant) for every case that the device's backend declares a kernel for."""
    found = []
    for device in devices:
        for operator in OPERATORS.values():
            for problem in (case.problem for case in operator.cases() if case.slow == slow):
                values = problem.to_dict().values()
                refused: set[str] = set()
                if isinstance(problem, Stream):  # a read has no stores; loads are those of an unstrided read
                    reads, update = problem.access == "read", problem.access == "update"
                    refused = {"non_temporal"} if reads and problem.stride == 1 else {"loads"}
                    refused |= {"non_temporal"} if reads or update else set()
                    refused |= {"bulk"} if problem.access == "write" else set()
                    refused |= set() if problem.access == "copy" and not problem.in_flight_bytes else {"driver"}
                    if problem.in_flight_bytes and device == "cpu":  # chosen on GPUs only
                        continue
                elif isinstance(problem, Matmul) and problem.scales != "none" and device == "cpu":
                    refused = {"tiled"}
                elif isinstance(problem, (Attention, CachedAttention)) and problem.seq_q > FEW_QUERIES:
                    refused = {"split_kv"}
                for variant, declared in operator.variants.items():
                    dtypes = declared.dtypes.get(device.partition(":")[0], ())
                    if getattr(problem, "dtype", "fp32") in dtypes and variant not in refused:
                        marks = [pytest.mark.gpu] if device == GPU else []
                        label = "-".join(map(str, (device, operator.name, variant, *values)))
                        found.append(pytest.param(device, problem, variant, marks=marks, id=label))
    return found


class Known:
    """A problem whose reference is worked out once."""

    def __init__(self, problem: Operator) -> None:
        self._problem = problem
        self._expected: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._problem, name)

    def reference(self, inputs: dict[str, Any], rows: Any) -> dict[str, Any]:
        self._expected = self._expected or dict(self._problem.reference(inputs, rows))
        return self._expected


def run_and_check(device_name: str, problem: Operator, variant: str, threads: int = 0) -> None:
    device, seed = open_device(device_name, threads), 7
    try:
        tensors = allocate_all(device, problem, seed)
        bound = bind(device, problem, variant, tensors)
    except (Unsupported, OutOfMemory) as reason:
        pytest.skip(str(reason))
    bound.run()
    known: Any = Known(problem)
    report = check(known, tensors, seed)
    assert report["passed"], report["reason"]
    for held in tensors.values():
        if held.before is not None:  # it was updated in place
            held.memory.write(held.before(), held.offset)
    bound.run()  # a second launch sees the same inputs and gives the same result
    assert check(known, tensors, seed)["passed"]


@pytest.mark.parametrize(("device", "problem", "variant"), points(slow=False))
def test_kernel(device: str, problem: Operator, variant: str) -> None:
    run_and_check(device, problem, variant)


@pytest.mark.parametrize(("device", "problem", "variant"), points(slow=False, devices=("cpu",))[::5])
def test_kernel_one_thread(device: str, problem: Operator, variant: str) -> None:
    run_and_check(device, problem, variant, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize(("device", "problem", "variant"), points(slow=True))
def test_kernel_past_2_31(device: str, problem: Operator, variant: str) -> None:
    run_and_check(device, problem, variant)


@pytest.mark.parametrize(("name", "steps", "least", "different"), [("fp8_e4m3", 8, -6, 100), ("fp8_e5m2", 4, -14, 70)])
def test_random_fp8_numbers_are_the_rounded_ones(name: str, steps: int, least: int, different: int) -> None:
    """The same seed gives the same numbers in every dtype, rounded: so the bits are made and read alike."""
    device = open_device("cpu")
    made = {}
    for dtype in ("fp32", name):
        held = allocate(device, TensorSpec(name="x", shape=(5000,), dtype=dtype), 3, 0)
        made[dtype] = to_float64(held.raw(), dtype)
    exact, rounded = made["fp32"], made[name]
    step = np.maximum(2.0 ** np.floor(np.log2(np.abs(exact))), 2.0**least) / steps
    assert (np.abs(rounded - exact) <= step / 2 * (1 + 1e-6)).all()
    assert len(np.unique(rounded)) > different
    assert np.isnan(to_float64(np.array([0x7F, 0xFF], dtype=np.uint8), name)).all()


@pytest.mark.parametrize("variant", ["library", "tiled"])
def test_ffn_in_int8_is_exact(variant: str) -> None:
    """With scales that are powers of two fp32 holds every number: ties go to even, and what is too large becomes 127."""
    device, generator = open_device("cpu"), np.random.default_rng(5)
    problem = Ffn(batch=3, seq_q=5, d_model=64, d_ff=131, activation="relu", dtype="int8")
    tensors = allocate_all(device, problem, 3)

    def given(name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        tensors[name].memory.write(values.astype(tensors[name].raw().dtype), tensors[name].offset)
        return values

    x = given("x", generator.integers(-2, 3, (15, 64)))
    up_scale = given("x_scale", np.array([0.25])) * given("w_up_scale", 2.0 ** -generator.integers(0, 4, 131))
    down_scale = given("hidden_scale", np.array([2.0])) * given("w_down_scale", 2.0 ** -generator.integers(0, 4, 64))
    try:
        bound = bind(device, problem, variant, tensors)
    except Unsupported as reason:
        pytest.skip(str(reason))
    bound.run()
    steps = np.maximum(x @ tensors["w_up"].raw().astype(np.int64) * up_scale, 0) / 2
    assert (steps % 1 == 0.5).sum() > 50 and (steps > 127).sum() > 50
    hidden = np.minimum(np.rint(steps), 127).astype(np.int64)
    expected = hidden @ tensors["w_down"].raw().astype(np.int64) * down_scale
    np.testing.assert_array_equal(tensors["out"].raw().reshape(15, 64), expected)


@pytest.mark.parametrize("inner", [1, 2, 63, 4096])
@pytest.mark.parametrize("variant", ["library", "tiled"])
def test_the_largest_products_of_int8_are_exact(variant: str, inner: int) -> None:
    """Their sums pass 2**24: neither pairs of 16 bits nor a detour through fp32 may lose anything."""
    problem = Matmul(rows=5, columns=130, inner=inner, dtype="int8")
    for a in (-128, 127):
        for b in (-128, 127):
            given = {"a": np.full((5, inner), a, dtype=np.int8), "b": np.full((inner, 130), b, dtype=np.int8)}
            try:
                found = run(problem, device="cpu", variant=variant, **given)["c"]
            except Unsupported as reason:
                pytest.skip(str(reason))
            np.testing.assert_array_equal(found, a * b * inner)


def test_rows_that_threads_pack_some_at_a_time_are_exact() -> None:
    """Packed, the 500 rows are more than a cache holds: each thread packs some, and packs others in their place."""
    rng = np.random.default_rng(1)
    given = {"a": rng.integers(-128, 128, (500, 18001), dtype=np.int8), "b": rng.integers(-128, 128, (18001, 70), dtype=np.int8)}
    found = run(Matmul(rows=500, columns=70, inner=18001, dtype="int8"), device="cpu", variant="tiled", **given)["c"]
    np.testing.assert_array_equal(found, np.rint(given["a"].astype(np.float64) @ given["b"].astype(np.float64)))


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
def test_threads_that_get_no_rows_are_idle(dtype: str, threads: int) -> None:
    """A register tile has up to 32 rows: threads cannot share so few columns, nor so few rows."""
    if threads > open_device("cpu").facts["usable_cores"]:
        pytest.skip(f"{threads} threads are more than this process may use")
    for rows, columns in ((32, 109), (33, 32), (40, 16), (65, 128), (96, 33)):
        run_and_check("cpu", Matmul(rows=rows, columns=columns, inner=256, dtype=dtype), "tiled", threads=threads)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_steps_of_an_ffn_repeat(activation: str) -> None:
    """Each may run several times in a row, as when it is timed alone."""
    device, policy = open_device("cpu"), Policy(warmup_min_s=0.0, warmup_max_s=0.001, min_s=0.0, max_s=0.001, batch_s=1e-5)
    problem = Ffn(batch=1, seq_q=13, d_model=67, d_ff=131, activation=activation)
    for variant in ("library", "tiled"):
        tensors = allocate_all(device, problem, 7)
        try:
            bound = bind(device, problem, variant, tensors)
        except Unsupported:
            continue
        for step in range(len(bound.steps)):
            device.core.sample([bound], step, policy=policy.to_dict())
        report = check(problem, tensors, 7)
        assert report["passed"], report["reason"]


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm", "relu", "bias_relu"])
def test_large_results_bypass_the_caches(name: str) -> None:
    """Also those whose rows begin inside a line. Hardly one line of a short row is whole: bias_relu stores by rows."""
    device = open_device("cpu")
    facts = device.facts
    lasting = min(facts["l3_bytes"] or facts["l2_bytes"], facts["usable_cores"] << 24)
    large = "non_temporal" if len(facts["isas"].split(",")) > 1 else "plain"
    sizes = [(rows, columns, "plain") for rows, columns in ((1, 100), (2, 1), (3, 64), (17, 33))]
    sizes += [(lasting // 4096 + 3, columns, large) for columns in (1024, 1027)]
    if name != "relu":
        sizes.append((lasting // 4 // 17 + 61, 17, "plain" if name == "bias_relu" else large))
    for rows, columns, stores in sizes:
        shape = {"elements": rows * columns} if name == "relu" else {"rows": rows, "columns": columns}
        problem = OPERATORS[name].make(**shape)
        for variant in problem.variants:
            tensors = allocate_all(device, problem, 7)
            bound = bind(device, problem, variant, tensors)
            bound.run()
            report = check(problem, tensors, 7)
            assert report["passed"], report["reason"]
            assert bound.plan["stores"] == stores, (rows, columns, variant)
            assert str(bound.plan["implementation"]).startswith(f"{variant}/")
            if name != "relu" and stores == "plain":
                assert bound.plan["threads"] == min(rows, device.threads)


@pytest.mark.timing
def test_results_stay_in_the_last_cache_where_that_is_faster() -> None:
    """Half of what may be counted on of it is read and written no slower than by a copy with the better kind of store."""
    device = open_device("cpu")
    lasting = min(device.facts["l3_bytes"], device.facts["usable_cores"] << 24)
    elements = lasting // 2 // 8
    if elements * 4 <= device.facts["l2_bytes"] * device.threads:
        pytest.skip("the last cache is too small beside L2")
    policy = Policy(warmup_min_s=0.02, warmup_max_s=0.05, min_s=0.05, max_s=0.1, bracket_s=0, tries=1)
    ratios = []
    for _ in range(3):  # in turn, against a memory that changes its rate
        relu, plain, past = (
            measure(problem, variant=variant, device=device, cache_state="warm", policy=policy).time_s
            for problem, variant in (
                (Relu(elements=elements), "fused"),
                (Stream(access="copy", elements=elements), "plain"),
                (Stream(access="copy", elements=elements), "non_temporal"),
            )
        )
        ratios.append(relu / min(plain, past))
    assert sorted(ratios)[1] < 1.3


def test_every_operator_has_awkward_cases() -> None:
    for operator in OPERATORS.values():
        assert operator.cases(), operator.name


def test_a_wrong_result_is_seen() -> None:
    """The check itself can fail: one element off, one guard byte off."""
    device = open_device("cpu")
    problem = OPERATORS["relu"].make(elements=100)
    tensors = allocate_all(device, problem, 3)
    bind(device, problem, "fused", tensors).run()
    assert check(problem, tensors)["passed"]
    y = tensors["y"]
    y.memory.write(np.array([1e3], dtype=np.float32), y.offset + 4 * 57)
    assert "y[57] is 1000" in check(problem, tensors)["reason"]
    bind(device, problem, "fused", tensors).run()
    y.memory.write(np.zeros(1, dtype=np.uint8), y.offset + 400)
    assert "outside y" in check(problem, tensors)["reason"]


@pytest.mark.parametrize("name", ["softmax", "attention", "cached_attention"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_averages_over_many_are_told_from_zeros(name: str, dtype: str) -> None:
    """The more a result is an average of, the smaller it is: and so is the error that passes."""
    fields = {"rows": 1, "columns": 100_000} if name == "softmax" else {"heads": 1, "kv_heads": 1, "seq_q": 1, "seq_kv": 100_000}
    problem = OPERATORS[name].make(**fields, **({} if name == "softmax" else {"head_dim": 16}), dtype=dtype)
    generator = np.random.default_rng(3)
    given = {tensor.name: generator.uniform(-(3**0.5), 3**0.5, tensor.shape) for tensor in problem.inputs()}
    (expected,) = problem.reference(given).values()
    absolute, relative = problem.tolerance()
    assert (abs(expected) > absolute + relative * abs(expected)).mean() > 0.9


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_decode_over_int8_errs_no_more_than_bf16_rounds(odd: float) -> None:
    """Queries: random, zero, tiny, with one large number, with one key that outweighs 4999 others; and one that is not finite."""
    draw, keys = np.random.default_rng(5), 5000
    q = draw.normal(size=(8, 128)) * 0.01
    q[1], q[2], q[3], q[4], q[7, 4] = 0, q[2] * 1e-28, q[3] * 0.01, 0.01, odd
    q[3, 5] = 0.05
    k, v = (draw.integers(-128, 128, (keys, 128)).astype(np.int8) for _ in range(2))
    k[7] = 80
    bits = (q.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    problem = CachedAttention(heads=8, kv_heads=1, seq_kv=keys, head_dim=128, kv_dtype="int8")
    shape = (1, 1, keys, 128)
    out = run(problem, variant="split_kv", q=bits.reshape(1, 8, 1, 128), k=k.reshape(shape), v=v.reshape(shape))["out"]
    made, scores = to_float64(out, "bf16").reshape(8, 128), to_float64(bits, "bf16")[:7] @ k.T.astype(float) / 128**0.5
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights @ v / weights.sum(axis=1, keepdims=True)
    error = np.linalg.norm(made[:7] - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert error.max() < 2**-8
    assert np.isnan(made[7]).all()


@pytest.mark.parametrize("tokens", [3, 40, 500])
def test_a_token_may_name_an_expert_more_than_once(tokens: int) -> None:
    sizes = {"experts": 8, "experts_per_token": 8, "d_model": 64, "d_ff": 96, "weight_bits": 32}
    problem = GroupedMatmul(tokens=tokens, **sizes, dtype="fp32", out_dtype="fp32")
    draw = np.random.default_rng(7)
    given = {spec.name: draw.uniform(-1, 1, spec.shape).astype(np.float32) for spec in problem.inputs()}
    given["chosen"] = np.full((tokens, 8), 5, dtype=np.int32)
    expected = problem.reference({name: value.astype(float) if name != "chosen" else value for name, value in given.items()})["out"]
    assert np.abs(run(problem, **given)["out"] - expected).max() < 1e-5 * np.abs(expected).max()


def test_devices_are_listed_with_reasons() -> None:
    devices = {d["name"]: d for d in list_devices()}
    assert devices["cpu"]["missing"] == ""
    assert any(name.startswith("cuda") for name in devices)
    for device in devices.values():
        assert device["missing"] or device["summary"]


class Elsewhere:
    """Memory that the host reads by copies, and how many bytes of it were copied."""

    on_host = False

    def __init__(self, stored: np.ndarray[Any, Any]) -> None:
        self.stored, self.copied = stored, 0

    def read(self, array: np.ndarray[Any, Any], offset: int) -> None:
        array.reshape(-1).view(np.uint8)[:] = self.stored[offset : offset + array.nbytes]
        self.copied += array.nbytes


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int4", "fp8_e4m3"])
def test_rows_of_another_memory_are_copied_alone(dtype: str) -> None:
    spec = TensorSpec(name="x", shape=(64, 33, 1024), dtype=dtype)
    memory = Elsewhere(np.random.default_rng(3).integers(0, 256, spec.size_bytes + 512).astype(np.uint8))
    held = Held(spec, memory)
    far, near = held.bits(), held.raw()
    assert far.shape == near.shape and not isinstance(far, np.ndarray)
    i, j = np.array([3, 60, 60, -1]), np.array([0, 32, 5, 2])
    few = (2, -1, i, (i, j), (i[:, None], j[None, :]), (i, slice(3, 9)), slice(1, 4), (slice(0, 3), 2), (2, 3), (i, 2, slice(5)))
    for index in few:
        memory.copied = 0
        assert far[index].tobytes() == near[index].tobytes(), index
        assert memory.copied <= 4 * 33 * near.shape[2] * near.itemsize
    for index in (slice(None), (..., 1), (2, np.arange(33) < 5), (slice(None), j)):
        assert far[index].tobytes() == near[index].tobytes(), index
    flat = far.reshape(-1, near.shape[2])
    assert flat[np.array([5, 6, 7, 2000])].tobytes() == near.reshape(flat.shape)[[5, 6, 7, 2000]].tobytes()


@pytest.mark.timing
@pytest.mark.parametrize(
    ("kv_heads", "seq_q", "seq_kv", "head_dim"),
    [(8, 1, 16, 64), (8, 1, 4096, 128), (2, 1, 256, 64), (1, 1, 4096, 64), (8, 8, 16, 128), (2, 8, 1024, 64)],
)
def test_split_kv_is_no_slower_than_three_passes(kv_heads: int, seq_q: int, seq_kv: int, head_dim: int) -> None:
    problem = Attention(heads=8, kv_heads=kv_heads, seq_q=seq_q, seq_kv=seq_kv, head_dim=head_dim, causal=True)
    assert problem.default_variant("cpu") == "split_kv"
    ratios = []
    for _ in range(3):  # in turn, against a clock that drifts
        naive, split = (measure(problem, variant=name, device="cpu", policy=FAST).time_s for name in ("naive", "split_kv"))
        ratios.append(split / naive)
    assert sorted(ratios)[1] < 1.05
