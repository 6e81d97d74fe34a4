"""Running a problem on the user's own data, where it lies."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ..errors import Error, require_type
from ..operators import Operator, problem_of
from ..tensor_spec import TensorSpec
from ..words import arguments_checked
from .devices import Device, open_device
from .exchange import DeviceArray, Given, alignment_bytes, borrow, look, place_of
from .tensors import Held, bind, require_kernels


def _checked_names(problem: Operator, names: Collection[str], in_place: Collection[str]) -> None:
    """Raises Error for tensors that are missing, unknown, or in place and not updated."""
    specs = {spec.name: spec for spec in problem.tensors()}
    for name in names:
        if name not in specs:
            raise Error(f"{problem.name}: unknown tensor {name!r:.80}; it has {', '.join(specs)}")
    for name, spec in specs.items():
        if spec.role != "out" and name not in names:
            raise Error(f"{problem.name}: tensor {name!r:.80} is missing; expected {spec.dtype} {list(spec.shape)}")
    updated = [name for name, spec in specs.items() if spec.role == "in_out"]
    for name in in_place:
        if name not in updated:
            raise Error(f"{problem.name}: in_place names {name!r:.80}; it updates {', '.join(updated) or 'nothing'} in place")


def _device(device: str | Device | None, threads: int, tensors: dict[str, Any], problem: Operator) -> Device:
    """The one asked for; else that of the tensors, if they say where they lie."""
    if device is not None:
        return open_device(device, threads)
    places = {name: place for name, tensor in tensors.items() if (place := place_of(tensor))}
    if len(set(places.values())) > 1:
        where = ", ".join(f"{name} on {place}" for name, place in places.items())
        raise Error(f"{problem.name}: its tensors lie on several devices ({where}); move them to one")
    return open_device(next(iter(places.values()), None), threads)


def _held(problem: Operator, spec: TensorSpec, tensor: Any, given: Given, device: Device, in_place: bool) -> Held:
    """The tensor's own memory, or a copy of it where it must stay as it is or the device cannot read it."""
    where = f"{problem.name}: tensor {spec.name!r:.80}"
    written = spec.role == "out" or in_place
    if written and given.read_only:
        raise Error(f"{where} is read-only, and the problem writes it; pass a writable tensor")
    if written and given.place != device.name:
        raise Error(f"{where} lies on {given.place}, and is written on {device.name}; pass a tensor there, or leave it out")
    least = alignment_bytes(problem.name, spec, device)
    aligned = given.address % least == 0
    if not aligned and (written or device.backend != "cpu") and given.place == device.name:
        raise Error(
            f"{where} begins at {given.address:#x}, no multiple of the {least} bytes that the kernels need; "
            f"pass a copy of {spec.name}, which its library aligns"
        )
    if given.place != device.name or not aligned or (spec.role == "in_out" and not in_place):
        memory = device.core.memory(spec.size_bytes)
        if isinstance(tensor, np.ndarray):
            memory.write(tensor.reshape(-1).view(np.uint8))
        else:
            memory.copy(borrow(given, spec, device))
        return Held(spec, memory, offset=0)
    return Held(spec, borrow(given, spec, device), offset=0)


def _apart(problem: Operator, held: dict[str, Held], written: Collection[str]) -> None:
    """Raises Error where a tensor that is written shares memory with another: kernels read and write in any order."""
    ranges = {name: (one.memory.address, one.memory.address + one.spec.size_bytes) for name, one in held.items()}
    for name in written:
        for other, (begin, end) in ranges.items():
            if other != name and max(begin, ranges[name][0]) < min(end, ranges[name][1]):
                shared = f"tensors {name!r:.80} and {other!r:.80} share memory, and {name!r:.80} is written"
                raise Error(f"{problem.name}: {shared}; pass a copy of one")


def _require_indices(problem: Operator, held: dict[str, Held]) -> None:
    """Raises Error for an index that is out of bounds: kernels would follow it."""
    for spec in problem.inputs():
        if not spec.below:
            continue
        values = held[spec.name].raw()
        outside = values[(values < spec.least) | (values >= spec.below)]
        if outside.size:
            bounds = f"from {spec.least} to {spec.below - 1}"
            raise Error(f"{problem.name}: tensor {spec.name!r:.80} holds {outside[0]}; it must be {bounds}")


@arguments_checked
def run(
    problem: Operator | type[Operator] | str,
    *,
    variant: str | None = None,
    device: str | Device | None = None,
    threads: int = 0,
    in_place: Collection[str] = (),
    **tensors: Any,
) -> dict[str, Any]:
    """Run one problem on `tensors`, given by the names, shapes and dtypes of `problem.tensors()`.

    `run(Relu(elements=1000), x=np.ones(1000, np.float32))["y"]`.

    A tensor is a NumPy array, or anything with `__dlpack__` or `__cuda_array_interface__` (PyTorch, CuPy, JAX) that lies on the
    device; it is used where it lies, after what its library has enqueued. All work is finished on return.

    Args:
        device: None is where the tensors lie; if all are NumPy arrays, the first GPU, else the CPU.
        in_place: names of tensors that the problem may update where they lie; of others it updates a copy.
        tensors: inputs, and outputs to write. An output that is not given is new: a NumPy array on the CPU and where all tensors
            are NumPy arrays, else a `DeviceArray`.

    Returns:
        The outputs by name; bf16 and fp8 ones in NumPy as their bits.

    Raises:
        Error: for a missing, unknown or misshapen tensor, one on another device, or an index out of bounds.
        Unsupported: where there is no such kernel here.
        OutOfMemory: too large for the memory.
    """
    problem = problem_of(problem)
    require_kernels(problem)
    require_type("variant", variant, (str, type(None)), "the name of a variant")
    require_type("in_place", in_place, (str, Collection), "names of tensors")
    in_place = (in_place,) if isinstance(in_place, str) else tuple(in_place)
    _checked_names(problem, tensors, in_place)
    opened = _device(device, threads, tensors, problem)
    held, owned = {}, []
    for spec in problem.tensors():
        if spec.name in tensors:
            tensor = tensors[spec.name]
            given = look(tensor, spec, opened, f"{problem.name}: tensor {spec.name!r:.80}")
            held[spec.name] = _held(problem, spec, tensor, given, opened, spec.name in in_place)
        else:
            held[spec.name] = Held(spec, opened.core.memory(spec.size_bytes), offset=0)
        if spec.role == "in_out" and spec.name not in in_place:
            owned.append(spec.name)
    _apart(problem, held, [spec.name for spec in problem.outputs()])
    _require_indices(problem, held)
    bind(opened, problem, variant or opened.default_variant(problem), held).run()
    as_numpy = opened.backend == "cpu" or all(isinstance(tensor, np.ndarray) for tensor in tensors.values())

    def result(spec: TensorSpec) -> Any:
        if spec.name in tensors and spec.name not in owned:
            return tensors[spec.name]
        if as_numpy:
            return held[spec.name].raw().copy() if opened.backend == "cpu" else held[spec.name].raw()
        return DeviceArray(opened, held[spec.name].memory, spec.shape, spec.dtype)

    return {spec.name: result(spec) for spec in problem.outputs()}
