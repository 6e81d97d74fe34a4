"""What Python declares for a built backend, C++ has, and the reverse."""

from __future__ import annotations

import pytest

from roofline.measurement import open_device
from roofline.operators import MIXES, OPERATORS


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_declared_and_listed_kernels_agree(device: str) -> None:
    opened = open_device(device)
    declared = {
        (operator.name, variant, dtype)
        for operator in OPERATORS.values()
        for variant, facts in operator.variants.items()
        for dtype in facts.dtypes.get(opened.backend, ())
    }
    listed = {(k["operator"], k["variant"], k["dtype"]) for k in opened.kernels}
    assert declared == listed
    assert len(listed) == len(opened.kernels), "a kernel is listed twice"
    assert all(k["summary"] for k in opened.kernels)


def test_operators_state_what_is_known() -> None:
    for name, operator in OPERATORS.items():
        assert operator.name == name
        problem = operator.cases()[0].problem
        assert problem.mix in MIXES
        assert problem.make(**problem.to_dict()) == problem
        assert len({t.name for t in problem.tensors()}) == len(problem.tensors())
