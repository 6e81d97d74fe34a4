"""Predictions of whole arrays of problems: each is what `predict` says, counts included, and a second is enough for millions."""

import contextlib
import inspect
import math
import time
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pytest
from example import CACHES, bandwidth, fma, gemm, launch
from hypothesis import assume, given, settings, strategies as st
from tables import refused

from roofline.errors import Error
from roofline.machine import Ceiling, Machine
from roofline.operators import OPERATORS, Attention, Ffn, GroupedMatmul, Matmul, MlaDecode, Operator, QuantizedMatmul, RmsNorm
from roofline.prediction import Predictions, predict_many, predict_problem
from roofline.questions import predict
from roofline.transformer.phases import PHASES


@cache
def machine(device: str = "cpu") -> Machine:
    """Every level, two sizes of GEMM, exponentials, a launch and a link."""
    rates = {"L1": 400e9, "L2": 200e9, "L3": 100e9, "DRAM": 40e9}
    bandwidths = [
        bandwidth(rate * share, access, level) for level, rate in rates.items() for access, share in (("read", 1.0), ("copy", 0.8))
    ]
    dtypes = ("fp64", "fp32", "fp16", "int8", "int32")
    peaks = [*(fma(200e9, dtype) for dtype in dtypes), fma(900e9, "fp16", probe="mma", accumulator="fp32", unit="tensor")]
    products = gemm(128, 100e9), gemm(2048, 180e9)
    others = fma(4e9, probe="exp", problem={"operator": "exp"}), launch(), Ceiling(probe="link", samples=(10e9,))
    return Machine(name="Example CPU", device=device, facts=CACHES, ceilings=(*bandwidths, *peaks, *products, *others))


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"level": "L2"},
    {"threads": 2, "knee": math.inf},
    {"utilisation": {"compute": 0.7, "bandwidth": 0.8, "link": 0.9}, "launch_s": 5e-6, "knee": 1.5, "unit": "core"},
)


def batches(operator: type[Operator]) -> list[list[Operator]]:
    """The operator's cases, in groups that share their words and truths."""
    groups = defaultdict(list)
    for case in operator.cases():
        fields = case.problem.to_dict()
        groups[tuple(value for value in fields.values() if isinstance(value, (str, bool)))].append(case.problem)
    return list(groups.values())


def fields_of(problems: list[Operator]) -> dict[str, Any]:
    """Numbers as arrays, the rest as of the first problem."""
    fields = problems[0].to_dict()
    for name, value in fields.items():
        if not isinstance(value, (str, bool)):
            fields[name] = np.array([getattr(problem, name) for problem in problems])
    return fields


@pytest.mark.parametrize("name", OPERATORS)
def test_counts_of_a_batch_are_those_of_its_problems(name: str) -> None:
    for problems in batches(OPERATORS[name]):
        many = OPERATORS[name].many(**fields_of(problems))
        for variant in many.variants or {"": None}:
            plans = [{"variant": variant}, {"variant": variant, "row_cached": 0, "query_block": 16, "kv_block": 32}]
            for plan in plans:
                for index, one in enumerate(problems):
                    for count in ("flops", "traffic", "work"):
                        whole, single = (getattr(p, count)(*([plan] if count != "flops" else [])) for p in (many, one))
                        found = {term: float(np.broadcast_to(x, len(problems))[index]) for term, x in whole.items()}
                        # A term that a problem lacks is 0 in the batch.
                        assert {k: v for k, v in found.items() if v} == pytest.approx({k: v for k, v in single.items() if v})
                    for size in ("compulsory_bytes", "footprint_bytes", "link_bytes", "product_size", "total_flops"):
                        whole, single = getattr(many, size)(), getattr(one, size)()
                        assert np.broadcast_to(whole, len(problems))[index] == pytest.approx(single, rel=1e-14), size


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("name", OPERATORS)
def test_each_is_what_predict_says(name: str, device: str) -> None:
    with_all = machine(device)
    for problems in batches(OPERATORS[name]):
        for options in OPTIONS:
            found = predict_many(with_all, OPERATORS[name], **options, **fields_of(problems))  # type: ignore[arg-type]
            for index, problem in enumerate(problems):
                one = predict(with_all, problem, **options)  # type: ignore[arg-type]
                for value in ("time_s", "roof_s", "flops", "bytes"):
                    assert np.broadcast_to(getattr(found, value), len(problems))[index] == pytest.approx(getattr(one, value), 1e-12)
                bounds = np.broadcast_to(found.bound, len(problems))
                assert (bounds[index], np.broadcast_to(found.level, len(problems))[index]) == (one.bound, one.roofs.level)


def test_arrays_broadcast_and_pass_through_chunks() -> None:
    found = predict_many(machine(), Matmul, rows=np.arange(1, 201)[:, None], columns=np.arange(1, 101), inner=64)
    assert found.time_s.shape == (200, 100) and len(found) == 200
    for i, j in ((0, 0), (99, 7), (199, 99)):
        one = predict(machine(), Matmul(rows=i + 1, columns=j + 1, inner=64))
        assert found.time_s[i, j] == pytest.approx(one.time_s)
        assert found.bound[i, j] == one.bound
        assert found.flops_per_byte[i, j] == pytest.approx(one.flops_per_byte)
        assert found.flops_per_s[i, j] == pytest.approx(one.flops_per_s)
    listed = predict_many(machine(), Attention, seq_q=1, seq_kv=[1, 1000, 10**6])
    assert listed.bound.tolist() == ["launch", "DRAM", "DRAM"]
    assert repr(listed) == "Predictions([3], bound: 2 DRAM, 1 launch)"
    frame = pytest.importorskip("pandas").DataFrame({"keys": [1, 1000, 10**6]})
    assert list(predict_many(machine(), Attention, seq_q=1, seq_kv=frame["keys"]).time_s) == list(listed.time_s)
    assert list(predict_many(machine(), Attention, seq_q=1, seq_kv=range(1, 4)).time_s) == list(
        predict_many(machine(), Attention, seq_q=1, seq_kv=[1, 2, 3]).time_s
    )
    assert predict_many(machine(), Matmul, rows=7).time_s.shape == ()
    empty = predict_many(machine(), Matmul, rows=np.empty(0, dtype=int))
    assert len(empty) == 0 and repr(empty) == "Predictions([0], bound: none)"


def test_each_problem_at_the_level_that_holds_it() -> None:
    # Two operands of 4 bytes: 64 KiB of L1 and 2 MiB of L2 over two threads, 32 MiB of L3, each nine tenths full at most.
    elements = np.array([1000, 7000, 8000, 200_000, 3_000_000, 4_000_000, 10**8])
    found = predict_many(machine(), OPERATORS["relu"], elements=elements, fitting=True)
    assert found.level.tolist() == ["L1", "L1", "L2", "L2", "L3", "DRAM", "DRAM"]
    for index, level in enumerate(found.level):
        one = predict(machine(), OPERATORS["relu"](elements=int(elements[index])), level=str(level))  # type: ignore[call-arg]
        assert found.time_s[index] == pytest.approx(one.time_s)
    # A level without a ceiling stands for the next one.
    known = tuple(c for c in machine().ceilings if c.level != "L2")
    fewer = Machine(name="x", facts=machine().facts, ceilings=known)
    found = predict_many(fewer, OPERATORS["relu"], elements=elements, fitting=True)
    assert found.level.tolist() == ["L1", "L1", "L3", "L3", "L3", "DRAM", "DRAM"]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_the_batch(data: st.DataObject) -> None:
    """Random fields of every operator, some as in one of its cases, and any options."""
    operator = OPERATORS[data.draw(st.sampled_from(sorted(OPERATORS)))]
    case = data.draw(st.sampled_from(operator.cases())).problem
    sizes = st.integers(1, 16).flatmap(lambda bits: st.integers(1, 2**bits))
    problems = []
    for _ in range(data.draw(st.integers(1, 4))):
        numbers = {name: value for name, value in case.to_dict().items() if isinstance(value, int) and not isinstance(value, bool)}
        with contextlib.suppress(Error):  # what the operator refuses
            problems.append(case.replace(**{name: data.draw(st.just(value) | sizes) for name, value in numbers.items()}))
    assume(problems)
    options = data.draw(st.sampled_from(OPTIONS))
    variant = data.draw(st.sampled_from((None, *operator.variants)))
    device = data.draw(st.sampled_from(("cpu", "cuda:0")))
    found = predict_many(machine(device), operator, variant=variant, **options, **fields_of(problems))
    for index, problem in enumerate(problems):
        one = predict(machine(device), problem, variant=variant, **options)
        numbers_of = [
            np.broadcast_to(getattr(found, name), len(problems))[index] for name in ("time_s", "roof_s", "flops", "bytes")
        ]
        assert numbers_of == pytest.approx([one.time_s, one.roof_s, one.flops, one.bytes], rel=1e-12)
        seconds = one.terms[str(np.broadcast_to(found.bound, len(problems))[index])]
        assert seconds == pytest.approx(one.roof_s, rel=1e-12)  # the same roof, or its equal


def test_no_field_is_called_as_an_option() -> None:
    options = set(inspect.signature(predict_many).parameters) - {"given"}
    for operator in OPERATORS.values():
        assert not options & set(operator.field_names())
    assert set(inspect.signature(predict_problem).parameters) - {"problem"} <= options
    asked = set(inspect.signature(predict).parameters) - {"dtype", "fields"}
    assert not any(asked & set(operator.field_names()) for operator in OPERATORS.values())
    assert not any(asked & set(phase.field_names()) for phase in PHASES.values())


def test_counts_do_not_overflow() -> None:
    found = predict_many(machine(), Matmul, rows=np.array([1, 2**31]), columns=2**29, inner=2**29)
    assert found.flops[1] == 2.0**90


test_bad_arrays = refused(
    lambda operator, fields: predict_many(machine(), operator, **fields),
    (Matmul, {"rows": np.array([1, 0])}, "matmul: rows must be between 1 and 2..62, got 0"),
    (Matmul, {"rows": np.array([1, 2**63 - 1])}, "matmul: rows must be between 1 and 2..62, got 9223372036854775807"),
    (Matmul, {"rows": np.array([1.0, 2.0])}, "matmul: rows must be an array of integers, got one of float64"),
    (Matmul, {"rows": np.array([True])}, "rows must be an array of integers, got one of bool"),
    (Matmul, {"dtype": np.array(["fp32", "fp64"])}, "matmul: dtype must be one value in a batch, got an array"),
    (Matmul, {"rows": np.array([2**40]), "inner": 2**40}, "matmul: tensor 'a' .1099511627776, 1099511627776. has more than"),
    (Matmul, {"rows": np.ones(3, int), "inner": np.ones(2, int)}, "matmul: the fields do not broadcast: rows .3., inner .2."),
    (Matmul, {"sides": np.array([1])}, "matmul: unknown field 'sides'"),
    (Attention, {"heads": np.array([8, 6]), "kv_heads": 4}, "multiple of kv_heads, got heads 6 and kv_heads 4"),
    (Attention, {"causal": True, "seq_q": np.array([1, 9]), "seq_kv": np.array([3, 8])}, "seq_q 9 > seq_kv 8"),
    (GroupedMatmul, {"experts": np.array([16, 4])}, "experts_per_token must be at most experts 4, got 8"),
    (OPERATORS["stream"], {"streams": np.array([1, 3])}, "stream: streams must be one of 1, 2, 4, 8, got 3"),
    (RmsNorm, {"eps": np.array([1e-6, -1.0])}, "rms_norm: eps must be above 0, got -1"),
    (RmsNorm, {"eps": np.array([np.nan])}, "rms_norm: eps must be an array of finite numbers"),
)


def test_a_batch_resolves_what_a_problem_does() -> None:
    many = Attention.many(heads=np.array([8, 16, 32]), kv_heads=np.array([0, 4, 0]))
    assert np.asarray(many.kv_heads).tolist() == [8, 4, 32]


@pytest.mark.timing
@pytest.mark.parametrize("cpu", [True, False])
def test_a_million_a_second(cpu: bool) -> None:
    """Seven operators on one core: time, bound and level of each; CPU time, the best of three."""
    count, generator = 200_000, np.random.default_rng(3)
    sizes = [generator.integers(1, 1 << 14, count) for _ in range(3)]
    asked: list[tuple[type[Operator], dict[str, Any]]] = [
        (Matmul, {"rows": sizes[0], "columns": sizes[1], "inner": sizes[2]}),
        (Attention, {"batch": sizes[0], "seq_q": 1, "seq_kv": sizes[1], "causal": True, "dtype": "fp32"}),
        (Ffn, {"batch": sizes[0], "d_model": sizes[1], "d_ff": sizes[2], "activation": "swiglu"}),
        (RmsNorm, {"rows": sizes[0], "columns": sizes[1]}),
        (QuantizedMatmul, {"rows": sizes[0], "columns": sizes[1], "inner": sizes[2], "dtype": "fp32"}),
        (GroupedMatmul, {"tokens": sizes[0], "d_model": sizes[1], "d_ff": sizes[2], "dtype": "fp32"}),
        (MlaDecode, {"batch": sizes[0], "seq_kv": sizes[1], "dtype": "fp32"}),
    ]
    with_all, rates = machine("cpu" if cpu else "cuda:0"), {}
    for operator, fields in asked:
        for _ in range(3):
            begun = time.process_time()
            found = predict_many(with_all, operator, **fields)
            rates[operator.name] = max(rates.get(operator.name, 0.0), count / (time.process_time() - begun))
        assert isinstance(found, Predictions) and found.time_s.shape == found.bound.shape == found.level.shape == (count,)
    begun, scalar = time.process_time(), 1000
    for rows in range(1, scalar + 1):
        predict(with_all, RmsNorm(rows=rows))
    one_by_one = scalar / (time.process_time() - begun)
    print({name: f"{rate / 1e6:.1f} M/s" for name, rate in rates.items()}, f"predict, rms_norm: {one_by_one:.0f}/s")
    assert min(rates.values()) >= 1e6
