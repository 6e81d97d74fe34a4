"""Which roof matrix products are held against: that of the tensor units, wherever a datasheet states one for their dtype."""

import pytest

from roofline.errors import Error
from roofline.hardware import datasheets
from roofline.machine import Machine
from roofline.model import place
from roofline.operators import OPERATORS, Ffn, Fma, Operator, growth
from roofline.questions import predict

NARROW = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8")


def made(operator: type[Operator], dtype: str) -> Operator | None:
    """A problem with products in this dtype; None where the operator has none, or not in it."""
    if operator is Fma:  # the probe of the cores: multiply-adds at the rate of products, and no matrix
        return None
    fields = {"activation": "relu"} if operator is Ffn else {}
    try:
        problem = operator.make(dtype=dtype, **fields)
    except Error:
        return None
    return problem if problem.has_products() else None


PROBLEMS = [problem for operator in OPERATORS.values() for dtype in NARROW if (problem := made(operator, dtype)) is not None]


def test_every_operator_with_products_is_here() -> None:
    with_products = {name for name, operator in OPERATORS.items() if operator().has_products()} - {"fma"}
    assert {problem.name for problem in PROBLEMS} == with_products
    assert {"ffn", "matmul", "bmm", "attention", "grouped_matmul", "mla_decode", "lm_head"} <= with_products


@pytest.mark.parametrize("name", sorted(datasheets()))
def test_products_meet_the_roof_of_tensor_units(name: str) -> None:
    """Sums are in fp32, of integers in int32; where a unit has no such sums, the fastest it has."""
    machine = Machine.from_datasheet(name)
    for problem in PROBLEMS:
        dtype = problem.compute()[0]
        stated = [c for c in machine.ceilings if (c.kind, c.unit, c.dtype) == ("compute", "tensor", dtype) and not c.diagnostic]
        if not stated:
            continue
        exact = [c for c in stated if c.accumulator == ("int32" if dtype == "int8" else "fp32")]
        roof = max(c.value for c in (exact or stated))
        found = predict(machine, problem)
        assert found.roofs.compute_flops_per_s == roof, (name, problem)
        assert not any("is used" in note for note in found.notes), (name, problem)


def test_ffn_by_hand() -> None:
    """A100: 312 TFLOP/s over 2039 GB/s. H100: 989 TFLOP/s. Weights 2 · 4096 · 16384 · 2 bytes, 4 · 4096 · 16384 FLOPs a token."""
    ffn = Ffn(batch=1, seq_q=1, d_model=4096, d_ff=16384, activation="relu", dtype="bf16")
    a100 = Machine.from_datasheet("A100 SXM 80GB")
    assert place(ffn, a100).ridge_flops_per_byte == pytest.approx(312e12 / 2039e9)
    bounds = {batch: predict(a100, ffn.replace(batch=batch)).bound for batch in (100, 153, 157, 200)}
    assert bounds == {100: "HBM", 153: "HBM", 157: "compute", 200: "compute"}
    crossing = growth(ffn, "batch", products_only=True).reaches(a100.ridge("bf16", unit="tensor"))
    assert crossing == pytest.approx(155, abs=1)
    for dtype in ("fp16", "bf16"):
        many = Ffn(batch=64, seq_q=1024, activation="relu", dtype=dtype)
        found = predict(Machine.from_datasheet("H100 SXM"), many)
        assert found.roofs.compute_flops_per_s == pytest.approx(989.4e12, rel=1e-3)
