"""What contracts say of bad arguments: every message names the operator, the tensor or value, and what was expected."""

from collections.abc import Mapping
from typing import Any

import pytest

from roofline.errors import Error
from roofline.measurement import open_device

ROWS = {"rows": 3, "columns": 4, "elements": 12, "eps": 1e-5}
READ = {"access": "read", "prefetch": "none", "isa": "", "elements": 12, "passes": 1, "streams": 1, "stride": 1,
        "in_flight_bytes": 0, "factor": 3.0}  # fmt: skip
CHASE = {"hops": 3, "pages": "huge", "size_bytes": 256}
# Tensors by name: shape, and where it is not fp32 in C order, dtype and strides.
NORM = {"x": ([3, 4],), "y": ([3, 4],), "weight": ([4],), "bias": ([4],)}
KERNELS = {
    "layer_norm": ("two_pass", "fp32"), "rms_norm": ("fused", "fp32"), "softmax": ("fused", "fp32"), "relu": ("fused", "fp32"),
    "bias_relu": ("fused", "fp32"), "stream": ("plain", "fp32"), "pointer_chase": ("dependent", "int32"),
    "core_to_core": ("ping_pong", "fp32"),
}  # fmt: skip


def bind(operator: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    core = open_device("cpu").core
    memory = core.memory(4096)
    given = []
    for name, (shape, *how) in tensors.items():
        dtype, strides = (*how, *("fp32", [])[len(how) :])
        given.append((name, memory, 0, dtype, shape, strides, "in"))
    core.bind(operator, *KERNELS[operator], given, dict(values))


def without(of: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in of.items() if name not in names}


@pytest.mark.parametrize(
    ("operator", "values", "tensors", "said"),
    [
        ("layer_norm", ROWS, {}, "tensor 'x' is missing; expected fp32 [3, 4]"),
        ("layer_norm", ROWS, without(NORM, "weight"), "tensor 'weight' is missing; expected fp32 [4]"),
        *(("layer_norm", ROWS, {**NORM, name: ([4, 3],)}, f"tensor '{name}' has shape [4, 3]; expected [3, 4]") for name in "xy"),
        *(("layer_norm", ROWS, {**NORM, row: ([3],)}, f"tensor '{row}' has shape [3]; expected [4]") for row in ("weight", "bias")),
        ("layer_norm", ROWS, {**NORM, "x": ([12],)}, "tensor 'x' has shape [12]; expected [3, 4]"),
        ("layer_norm", ROWS, {**NORM, "bias": ([4], "fp16")}, "tensor 'bias' has dtype fp16; expected fp32"),
        ("layer_norm", ROWS, {**NORM, "x": ([3, 4], "fp32", [1, 3])},
         "tensor 'x' has strides [1, 3]; expected C order (make it contiguous first)"),
        *(("layer_norm", {**ROWS, "rows": bad}, NORM, f"rows must be at least 1, got {bad}") for bad in (0, -5, -(2**63))),
        ("layer_norm", {**ROWS, "rows": 3.0}, NORM, "rows must be an integer"),
        ("layer_norm", {**ROWS, "rows": "3"}, NORM, "rows must be an integer"),
        ("layer_norm", {**ROWS, "eps": "small"}, NORM, "eps must be a number"),
        ("rms_norm", {}, {}, "value 'rows' is missing"),
        ("softmax", ROWS, {}, "tensor 'x' is missing; expected fp32 [3, 4]"),
        ("softmax", ROWS, {"x": ([3, 4],)}, "tensor 'y' is missing; expected fp32 [3, 4]"),
        ("relu", ROWS, {}, "tensor 'x' is missing; expected fp32 [12]"),
        ("rms_norm", ROWS, without(NORM, "weight"), "tensor 'weight' is missing; expected fp32 [4]"),
        ("bias_relu", ROWS, without(NORM, "bias"), "tensor 'bias' is missing; expected fp32 [4]"),
        ("stream", {}, {}, "value 'access' is missing"),
        ("stream", {"access": "sideways"}, {}, "access must be one of read, write"),
        ("stream", {"access": 1}, {}, "access must be a string"),
        ("stream", {**READ, "prefetch": "t0"}, {}, "prefetch must be one of none, nta, sparse, got 't0'"),
        ("stream", {**READ, "access": "copy", "prefetch": "nta"}, {}, "prefetch and stride are of read only, got access 'copy'"),
        ("stream", {**READ, "access": "triad", "stride": 2}, {}, "prefetch and stride are of read only, got access 'triad'"),
        ("stream", {**READ, "stride": 2, "streams": 4}, {}, "a strided read has one stream and no prefetch"),
        ("stream", {**READ, "stride": 2, "prefetch": "nta"}, {}, "a strided read has one stream and no prefetch"),
        ("stream", {**READ, "prefetch": "nta", "streams": 8}, {}, "tensor 'a' is missing"),  # as far as the tensors
        ("pointer_chase", {**CHASE, "size_bytes": 100}, {}, "size_bytes must be a multiple of 64, got 100"),
        ("pointer_chase", {**CHASE, "size_bytes": 2**37}, {}, "more lines than int32 numbers them"),
        ("pointer_chase", CHASE, {}, "tensor 'order' is missing; expected int32 [4]"),
        ("pointer_chase", CHASE, {"order": ([4], "int32")}, "tensor 'reached' is missing; expected int32 [1]"),
        ("pointer_chase", {**CHASE, "pages": "giant"}, {"order": ([4], "int32"), "reached": ([1], "int32")},
         "pages must be one of small, huge, got 'giant'"),
        *(("core_to_core", {"first": 1, "second": other, "rounds": 5}, {},
           f"first and second must be two different threads, got 1 and {other}") for other in (1, -1)),
        ("core_to_core", {"first": 1, "second": 0, "rounds": 2**30}, {}, "rounds must be below 2^30, got 1073741824"),
        ("core_to_core", {"first": 1, "second": 0, "rounds": 5}, {}, "tensor 'handovers' is missing; expected int32 [1]"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(operator: str, values: dict[str, Any], tensors: dict[str, Any], said: str) -> None:
    with pytest.raises(Error) as raised:
        bind(operator, values, tensors)
    assert str(raised.value).startswith(f"{operator}: {said}") or ("int32 numbers" in said and said in str(raised.value))


@pytest.mark.parametrize("columns", [2**31, 2**29])  # 2**63 elements, and even 2**61 of four bytes would not do
def test_dimensions_that_overflow(columns: int) -> None:
    with pytest.raises(Error, match=r"layer_norm.*more than 2\^63"):
        bind("layer_norm", {**ROWS, "rows": 2**32, "columns": columns}, NORM)


def test_what_is_right_is_taken() -> None:
    bind("layer_norm", {**ROWS, "eps": 1}, NORM)  # a whole number is a number
    bind("layer_norm", ROWS, {**NORM, "x": ([3, 4], "fp32", [4, 1])})
    # Strides of dimensions of one mean nothing.
    bind("softmax", {**ROWS, "rows": 1}, {"x": ([1, 4], "fp32", [99, 1]), "y": ([1, 4],)})
    bind("softmax", {**ROWS, "columns": 1}, {"x": ([3, 1], "fp32", [1, 77]), "y": ([3, 1],)})
