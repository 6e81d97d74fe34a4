"""Memory of a problem: allocated with guard zones, filled with random data, bound to a kernel, read back and checked."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..counts import Array
from ..dtypes import dtype, to_float64
from ..errors import Error, Unsupported
from ..operators import Operator
from ..tensor_spec import TensorSpec
from ..units import MIB

if TYPE_CHECKING:
    from .devices import Device

# Before and after every tensor. What allocators of GPUs align to, and whole lines of 128 bytes: a warp's access of 512 bytes from
# the middle of a line on would touch five lines for four.
GUARD_BYTES = 256
_GUARD = np.full(GUARD_BYTES, 0xA5, dtype=np.uint8)
HUGE_PAGE_BYTES = 2 * MIB

# Element types of the compiled module (csrc/core/dtype.h). Costs know more.
IN_KERNELS = frozenset(
    {"fp64", "fp32", "fp16", "bf16", "int32", "int16", "int8", "fp8_e4m3", "tf32", "int4", "nvfp4", "fp8_e8m0", "fp8_e5m2"},
)

# Above these a reference is computed for sampled rows only: NumPy takes nanoseconds per element and per pass over it.
WHOLE_CHECK_FLOPS = 2e8
WHOLE_CHECK_BYTES = 2**24
SAMPLED_ROWS = 12
SAMPLED_ELEMENTS = 4096


# threadpoolctl lists the loaded libraries under a lock of the C library. A fork in another thread meanwhile would leave that lock
# taken in the child for ever: forks wait for the list.
_scanning = threading.Lock()
os.register_at_fork(before=_scanning.acquire, after_in_parent=_scanning.release, after_in_child=_scanning.release)


@functools.cache
def _libraries() -> Any:
    """The libraries with threads of their own, NumPy's BLAS among them, listed once: that takes a millisecond."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped,import-not-found,unused-ignore]

    with _scanning:
        return ThreadpoolController()


@dataclass(frozen=True, slots=True)
class Held:
    """One tensor in a device's memory."""

    spec: TensorSpec
    memory: Any
    offset: int = GUARD_BYTES
    before: Callable[[], Array] | None = None  # its bits before the first launch, made again; of tensors updated in place
    touched: Callable[[], int] | None = None  # bytes of `memory` that hold pages, where not all of it was touched

    def argument(self) -> tuple[Any, ...]:
        s = self.spec
        return s.name, self.memory, self.offset, s.dtype, list(s.shape), [], s.role

    def raw(self) -> Array:
        """Its bits (see `cost.DType.storage`): the memory itself where the host can read it, else a copy."""
        storage, shape = dtype(self.spec.dtype).storage, dtype(self.spec.dtype).stored_shape(self.spec.shape)
        if storage is None:
            raise Unsupported(f"{self.spec.dtype} tensors cannot be read back")
        if self.memory.on_host:
            seen: Array = self.memory.view(self.offset, self.spec.size_bytes).view(storage).reshape(shape)
            return seen
        array = np.empty(shape, dtype=storage)
        self.memory.read(array, self.offset)
        return array

    def bits(self) -> Array | _Remote:
        """As `raw`, but large ones of another memory are read where they are indexed."""
        return self.raw() if self.memory.on_host or self.spec.size_bytes <= MIB else _Remote(self)

    def guard(self) -> None:
        """Write the guard zones: `fill` would wake all threads for a few lines."""
        self.memory.write(_GUARD, self.offset - GUARD_BYTES)
        self.memory.write(_GUARD, self.offset + self.spec.size_bytes)

    def guards_intact(self) -> bool:
        before, after = np.empty(GUARD_BYTES, dtype=np.uint8), np.empty(GUARD_BYTES, dtype=np.uint8)
        self.memory.read(before, self.offset - GUARD_BYTES)
        self.memory.read(after, self.offset + self.spec.size_bytes)
        return bool((before == _GUARD).all() and (after == _GUARD).all())


def require_kernels(problem: Operator) -> None:
    """Raises Unsupported where the operator is cost only, or a tensor has numbers that no kernel stores."""
    if not problem.variants:
        raise Unsupported(f"{problem.name} is cost only: it has no kernels")
    for spec in problem.tensors():
        if spec.dtype not in IN_KERNELS:
            raise Unsupported(f"{problem.name}: tensor {spec.name!r} is {spec.dtype}, which no kernel stores; costs alone know it")
        if spec.bits not in (None, dtype(spec.dtype).bits):
            width = f"{float(spec.bits):g} bits"
            raise Unsupported(
                f"{problem.name}: tensor {spec.name!r} has numbers of {width}, which no kernel stores; costs alone know it"
            )


def allocate(device: Device, spec: TensorSpec, seed: int, index: int, data: Array | None = None) -> Held:
    """Memory with intact guards; inputs random or `data`, outputs filled with the guard pattern so that a missed element shows."""
    memory = device.core.memory(spec.size_bytes + 2 * GUARD_BYTES)
    again = dataclasses.replace(spec, role="in")
    before = (lambda: allocate(device, again, seed, index, data).raw()) if spec.role == "in_out" else None
    held = Held(spec, memory, before=before)
    held.guard()
    if data is not None:
        memory.write(data, GUARD_BYTES)
        return held
    elements = int(np.prod(spec.shape, dtype=object))
    kind = "pattern" if spec.role == "out" else "uniform"
    memory.fill(spec.dtype, elements, kind, seed * 1009 + index, GUARD_BYTES)
    return held


def allocate_one(device: Device, problem: Operator, spec: TensorSpec, index: int, seed: int = 1) -> Held:
    """The tensor of this index of a problem, the same for the same seed."""
    return allocate(device, spec, seed, index, problem.initial(spec.name, np.random.default_rng((seed, index))))


def allocate_all(device: Device, problem: Operator, seed: int) -> dict[str, Held]:
    """Every tensor of a problem by name, the same for the same seed."""
    return {spec.name: allocate_one(device, problem, spec, index, seed) for index, spec in enumerate(problem.tensors())}


def huge_page_share(tensors: Iterable[Held]) -> float | None:
    """Share of the memory of tensors of 2 MiB and more that lies in huge pages; None without such, or where unknown."""
    seen = {t.memory: t.touched() if t.touched else t.memory.size_bytes for t in tensors if t.spec.size_bytes >= HUGE_PAGE_BYTES}
    huge = [memory.huge_page_share() * memory.size_bytes for memory in seen]
    if not seen or min(huge) < 0:
        return None
    return min(float(sum(huge) / sum(seen.values())), 1.0)


def bind(device: Device, problem: Operator, variant: str, tensors: Mapping[str, Held]) -> Any:
    """The kernel of this variant, planned for these tensors. Raises Unsupported with the reason."""
    values = {name: int(value) if isinstance(value, bool) else value for name, value in problem.values().items()}
    kernel_dtype = getattr(problem, "dtype", "fp32")
    return device.core.bind(problem.name, variant, kernel_dtype, [held.argument() for held in tensors.values()], values)


class _Remote:
    """A tensor's bits in a device's memory, read where they are indexed: a check of some rows need not read gigabytes."""

    def __init__(self, held: Held, shape: tuple[int, ...] | None = None) -> None:
        stored = dtype(held.spec.dtype)
        self._held, self.dtype = held, stored.storage
        self.shape = shape or tuple(stored.stored_shape(held.spec.shape))
        self.ndim = len(self.shape)

    def reshape(self, *shape: Any) -> _Remote:
        return _Remote(self._held, np.broadcast_to(np.uint8(0), self.shape).reshape(*shape).shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self._held.raw().reshape(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Array:
        """By whole numbers in front: those rows. By a slice of neighbours in front: these. By anything else: all is read."""
        parts = index if isinstance(index, tuple) else (index,)
        whole = [np.asarray(part) for part in itertools.takewhile(_is_whole, parts)]
        if whole and all(isinstance(part, slice) for part in parts[len(whole) :]):
            flat = np.ravel_multi_index(np.broadcast_arrays(*whole), self.shape[: len(whole)], mode="wrap")
            wanted, place = np.unique(flat, return_inverse=True)
            starts = np.flatnonzero(np.diff(wanted, prepend=-2) != 1)
            read = [self._rows(int(run[0]), len(run), len(whole)) for run in np.split(wanted, starts[1:])]
            rows = np.concatenate(read)[place.reshape(flat.shape)]
            return rows[(slice(None),) * flat.ndim + parts[len(whole) :]]
        if isinstance(parts[0], slice) and parts[0].step in (None, 1):
            first, last, _ = parts[0].indices(self.shape[0])
            return self._rows(first, max(last - first, 0), 1)[(slice(None), *parts[1:])]
        return np.asarray(self)[index]  # type: ignore[no-any-return]

    def _rows(self, first: int, count: int, axes: int) -> Array:
        """Rows of the tensor with its first `axes` axes as one."""
        array: Array = np.empty((count, *self.shape[axes:]), dtype=self.dtype)
        if array.size:
            self._held.memory.read(array, self._held.offset + first * (array.nbytes // count))
        return array


def _is_whole(part: Any) -> bool:
    return isinstance(part, (int, np.integer)) or (isinstance(part, np.ndarray) and part.dtype.kind in "iu")


class _Lazy:
    """A tensor as float64, converted where it is indexed: a sampled reference need not convert gigabytes."""

    def __init__(self, raw: Array | _Remote, dtype_name: str) -> None:
        self._raw, self._dtype_name = raw, dtype_name
        self._packed = dtype(dtype_name).packed
        self.shape = (*raw.shape[:-1], raw.shape[-1] * self._packed) if raw.ndim else raw.shape
        self.ndim, self.dtype = raw.ndim, np.dtype(np.float64)

    def __getitem__(self, index: Any) -> Array:
        return to_float64(np.asarray(self._raw[index]), self._dtype_name)

    def __len__(self) -> int:
        return len(self._raw)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return to_float64(np.asarray(self._raw), self._dtype_name)

    def reshape(self, *shape: Any) -> _Lazy | Array:
        return np.asarray(self).reshape(*shape) if self._packed > 1 else _Lazy(self._raw.reshape(*shape), self._dtype_name)


def _widened(raw: Array | _Remote, spec: TensorSpec) -> _Lazy | Array:
    """Numbers as float64; indices stay whole."""
    return np.asarray(raw).astype(np.int64) if spec.below else _Lazy(raw, spec.dtype)


def _rows(problem: Operator, seed: int, whole_flops: float, whole_bytes: float, sampled: int) -> Array | None:
    """Rows to check, first and last among them; None for all."""
    if problem.total_flops() <= whole_flops and problem.footprint_bytes() <= whole_bytes:
        return None
    shape = max((t.shape for t in problem.outputs()), key=lambda s: np.prod(s, dtype=object))
    flat = len(shape) == 1
    count = int(np.prod(shape if flat else shape[:-1], dtype=object))
    wanted = SAMPLED_ELEMENTS if flat else sampled
    if count <= wanted:
        return None
    picked = np.random.default_rng(seed).integers(0, count, size=wanted)
    return np.unique(np.concatenate([[0, count - 1], picked]))


def check(
    problem: Operator, tensors: Mapping[str, Held], seed: int = 0, *, whole_flops: float = WHOLE_CHECK_FLOPS,
    whole_bytes: float = WHOLE_CHECK_BYTES, sampled_rows: int = SAMPLED_ROWS,
) -> dict[str, Any]:  # fmt: skip
    """Outputs against the float64 reference, and guard zones. Tensors updated in place must have seen one launch.

    whole_flops, whole_bytes: of the largest problem all of whose rows are checked; of a larger one the first, the last and
    sampled_rows others are, drawn by `seed`.

    Returns {"checked", "rows" (0: all), "max_error", "tolerance", "passed", "reason"}; the error is |difference| over
    absolute + relative tolerance x |reference|, so that 1 is the limit, and max_error is absolute.
    """
    rows = _rows(problem, seed, whole_flops, whole_bytes, sampled_rows)
    inputs: dict[str, Any] = {t.name: _widened(tensors[t.name].bits(), t) for t in problem.inputs()}  # where they are indexed
    inputs |= {name: _widened(held.before(), held.spec) for name, held in tensors.items() if held.before is not None}
    if rows is None and not problem.sums_in_chunks:
        inputs = {name: np.asarray(lazy) for name, lazy in inputs.items()}
    # NumPy's BLAS threads would go on spinning for tens of milliseconds, into whatever is timed next.
    with _libraries().limit(limits=1), np.errstate(all="ignore"):
        expected = problem.reference(inputs, rows)
    absolute, relative = problem.tolerance()
    worst, max_error, reason = 0.0, 0.0, ""
    for spec in problem.outputs():
        held = tensors[spec.name]
        actual = _Lazy(held.bits(), spec.dtype)
        want = np.asarray(expected[spec.name], dtype=np.float64)
        if rows is None or want.shape == spec.shape:
            got = np.asarray(actual)
        else:
            flat = actual.reshape(-1, *want.shape[1:])
            got = flat[rows % len(flat)]  # of a smaller output, around and around
        if got.shape != want.shape:
            raise Error(f"{problem.name}: the reference of {spec.name} has shape {want.shape}, expected {got.shape}")
        difference = np.abs(got - want)
        scaled = difference / np.maximum(absolute + relative * np.abs(want), np.finfo(np.float64).tiny)
        here = float(np.max(scaled, initial=0.0))
        if not np.isfinite(got).all() and np.isfinite(want).all():
            reason = f"{spec.name} holds values that are not finite"
        elif here > 1:
            at = np.unravel_index(int(np.argmax(scaled)), want.shape)
            reason = f"{spec.name}{list(map(int, at))} is {got[at]:.6g}, the float64 reference says {want[at]:.6g}"
        worst, max_error = max(worst, here), max(max_error, float(np.max(difference, initial=0.0)))
        if not held.guards_intact():
            reason = f"the kernel wrote outside {spec.name}"
    return {
        "checked": True,
        "rows": 0 if rows is None else len(rows),
        "max_error": max_error if np.isfinite(max_error) else -1.0,
        "tolerance": absolute,
        "tolerance_relative": relative,
        "passed": not reason,
        "reason": reason,
    }
