"""Dtypes that costs know and kernels do not: unsupported with the reason, and no failure."""

import re
from pathlib import Path

import numpy as np
import pytest

from roofline.dtypes import DTYPES
from roofline.errors import Error, Unsupported
from roofline.measurement import Policy, attempt, measure, run
from roofline.measurement.tensors import IN_KERNELS
from roofline.operators import OPERATORS, Bmm, Convert, GroupedMatmul, Operator, QuantizedMatmul

ROOT = Path(__file__).parents[1]
ABSENT = [name for name in DTYPES if name not in IN_KERNELS]


def problems() -> list[Operator]:
    """Every operator with kernels, with each field of a dtype set to what kernels lack, unless its costs refuse that."""
    found = []
    for operator in OPERATORS.values():
        if not operator.variants:
            continue
        for field in operator.field_names():
            for name in ABSENT if field.endswith("dtype") else ():
                try:
                    problem = operator.make(**{field: name})
                except Error:
                    continue
                if any(spec.dtype == name for spec in problem.tensors()):
                    found.append(problem)
    return found


PROBLEMS = problems()


def test_the_list_is_that_of_the_core() -> None:
    names = re.findall(r'\{DType::\w+, "(\w+)"', (ROOT / "csrc" / "core" / "dtype.h").read_text(encoding="utf-8"))
    assert set(names) == IN_KERNELS
    assert {"mxfp4"} == set(ABSENT)
    assert {"convert", "grouped_matmul", "bmm"} <= {p.name for p in PROBLEMS}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.name}-{'-'.join(sorted({t.dtype for t in p.tensors()}))}")
def test_what_kernels_lack_is_unsupported(problem: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    from roofline.measurement.devices import Device

    monkeypatch.setattr(Device, "missing", lambda *arguments: "")  # as on a GPU, which has a kernel for the main dtype
    (absent,) = {spec.dtype for spec in problem.tensors()} - IN_KERNELS
    said = f"{problem.name}: tensor .* is {absent}, .* no kernel"
    with pytest.raises(Unsupported, match=said):
        measure(problem, device="cpu")
    with pytest.raises(Unsupported, match=said):
        run(problem, device="cpu", **{spec.name: np.zeros(spec.shape, dtype=np.uint8) for spec in problem.inputs()})
    found = attempt(problem, device="cpu")
    assert found.status == "unsupported"
    assert re.search(said, found.reason)


@pytest.mark.parametrize(
    "problem", [QuantizedMatmul(weight_bits=3), GroupedMatmul(weight_bits=4.5), Bmm(scales="row", scale_bits=16)]
)
def test_widths_that_kernels_lack_are_unsupported(problem: Operator) -> None:
    with pytest.raises(Unsupported, match=f"{problem.name}: tensor .* has numbers of [0-9.]+ bits, which no kernel stores"):
        measure(problem, device="cpu")


def test_what_kernels_have_is_not_refused_for_its_dtype() -> None:
    brief = Policy(warmup_min_s=0.0, warmup_max_s=0.001, batch_s=1e-4, min_samples=3, min_s=0.0, max_s=0.001, tries=1)
    found = attempt(Convert(elements=64, dtype="bf16", out_dtype="fp32"), device="cpu", cache_state="warm", policy=brief)
    assert "no kernel stores" not in found.reason
