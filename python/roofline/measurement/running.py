"""Running a problem on the user's own data."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cost import Array, TensorSpec, dtype
from ..errors import Error, Unsupported
from ..model import default_variant
from ..operators import Operator
from .devices import Device, open_device
from .tensors import GUARD_BYTES, Held, bind


def _accept(problem: Operator, spec: TensorSpec, array: Any) -> Array:
    """The array's bits, if it is exactly what the operator reads. Nothing is converted or copied in silence."""
    where = f"{problem.name}: tensor {spec.name!r}"
    expected = f"expected {spec.dtype} {list(spec.shape)}"
    if not isinstance(array, np.ndarray):
        raise Error(f"{where} is a {type(array).__name__}; {expected} as a NumPy array")
    storage = dtype(spec.dtype).storage
    names = {storage, "bfloat16"} if spec.dtype == "bf16" else {storage}
    if array.dtype.name not in names or not array.dtype.isnative:
        hint = " (bf16 is passed as ml_dtypes.bfloat16, or as its bits in uint16)" if spec.dtype == "bf16" else ""
        raise Error(f"{where} has dtype {array.dtype.name}; {expected}, which NumPy calls {storage}{hint}")
    if array.shape != spec.shape:
        raise Error(f"{where} has shape {list(array.shape)}; {expected}")
    if not array.flags.c_contiguous:
        raise Error(f"{where} is not contiguous (strides {array.strides}); pass np.ascontiguousarray({spec.name})")
    return array.view(storage) if array.dtype.name != storage else array


def run(
    problem: Operator, *, variant: str | None = None, device: str | Device | None = None, threads: int = 0, **tensors: Array
) -> dict[str, Array]:
    """Run one problem on `tensors`, NumPy arrays by the names, shapes and dtypes of `problem.inputs()` and of what is
    updated in place; the given arrays stay as they are.

    Returns the outputs by name; bf16 ones as uint16 bits. Raises Error for a missing, unknown or misshapen tensor,
    Unsupported where there is no such kernel here, OutOfMemory.
    """
    if not problem.variants:
        raise Unsupported(f"{problem.name} is cost only: it has no kernels")
    specs = {spec.name: spec for spec in problem.tensors() if spec.role != "out"}
    for name in tensors:
        if name not in specs:
            raise Error(f"{problem.name}: unknown tensor {name!r}; it reads {', '.join(specs) or 'nothing'}")
    for name, spec in specs.items():
        if name not in tensors:
            raise Error(f"{problem.name}: tensor {name!r} is missing; expected {spec.dtype} {list(spec.shape)}")
    accepted = {name: _accept(problem, specs[name], array) for name, array in tensors.items()}
    opened = open_device(device, threads)
    held = {s.name: Held(s, opened.core.memory(s.size_bytes + 2 * GUARD_BYTES)) for s in problem.tensors()}
    for name, array in accepted.items():
        held[name].memory.write(array, GUARD_BYTES)
    bind(opened, problem, variant or default_variant(problem, opened.backend), held).run()
    return {spec.name: held[spec.name].raw().copy() for spec in problem.outputs()}
