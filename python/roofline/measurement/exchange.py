"""Tensors of other libraries without a copy: taken by DLPack or the CUDA array interface, and results given back by both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counts import Array
from ..dtypes import dtype
from ..errors import Error, Unsupported
from ..tensor_spec import TensorSpec
from .devices import Device, core, open_device

# DLPack's numbers, from its header: kinds of device, and (code, bits) of an element.
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_DTYPES = {
    (0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64",
    (1, 8): "uint8", (1, 16): "uint16", (1, 32): "uint32", (1, 64): "uint64",
    (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
    (4, 16): "bfloat16", (5, 64): "complex64", (5, 128): "complex128", (6, 8): "bool",
    (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2", (14, 8): "float8_e8m0fnu",
}  # fmt: skip
_CODES = {name: number for number, name in _DTYPES.items()}
_FP4_PAIR = (17, 4, 2)  # as PyTorch hands over two E2M1 in a byte
# What others call the dtypes whose bits NumPy stores as unsigned integers.
NATIVE = {
    "bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "fp8_e8m0": "float8_e8m0fnu",
    "nvfp4": "float4_e2m1fn_x2",
}  # fmt: skip

# Vectors that GPU kernels move where they do not plan otherwise. CPU kernels load from any element on, but for these.
GPU_ALIGNMENT_BYTES = 16
CPU_ALIGNMENT_BYTES = {"fma": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A tensor of somebody else, looked at and not touched. strides: in elements; empty for C order. owner: keeps it alive."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    place: str  # "cpu", "cuda:0"
    read_only: bool
    owner: Any

    def contiguous(self) -> bool:
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides or ()), strict=False):
            if size != 1 and stride != expected:
                return 0 in self.shape
            expected *= size
        return True


def names_of(dtype_name: str) -> tuple[str, ...]:
    """What NumPy and DLPack call this dtype, its storage first."""
    return tuple(name for name in (dtype(dtype_name).storage, NATIVE.get(dtype_name)) if name)


def _place(kind: int, index: int) -> str:
    if kind in (CPU, CUDA_HOST):
        return "cpu"
    return f"cuda:{index}" if kind in (CUDA, CUDA_MANAGED) else f"a device of DLPack's kind {kind}"


def place_of(tensor: Any) -> str | None:
    """Where a tensor says it lies; None for NumPy arrays, which go anywhere, and for what does not say."""
    if isinstance(tensor, np.ndarray) or not hasattr(tensor, "__dlpack_device__"):
        return None
    try:
        kind, index = tensor.__dlpack_device__()
        return _place(int(kind), int(index))
    except Exception as reason:  # whatever another library raises
        raise Error(f"a {type(tensor).__name__} does not say by __dlpack_device__ where it lies: {reason!r:.200}") from reason


def _by_dlpack(tensor: Any, device: Device, where: str) -> Given:
    place = place_of(tensor)
    if place != device.name:
        raise Error(f"{where} lies on {place}, and the problem runs on {device.name}; move it there, or pass device={place!r:.80}")
    # The producer lets our stream wait for what it has enqueued.
    options: dict[str, Any] = {} if place == "cpu" else {"stream": device.core.stream}
    try:
        try:
            capsule = tensor.__dlpack__(max_version=(1, 0), **options)
        except TypeError:  # of before version 1
            capsule = tensor.__dlpack__(**options)
        taken = core().take(capsule)
    except Exception as reason:  # whatever another library raises
        raise Error(f"{where} cannot be shared by DLPack: {reason}") from reason
    if _place(*taken.device) != place:
        raise Error(f"{where} says that it lies on {place}, and its DLPack capsule on {_place(*taken.device)}; pass a copy")
    code, bits, lanes = taken.dtype
    name = _DTYPES.get((code, bits), f"DLPack's code {code} of {bits} bits") if lanes == 1 else f"a vector of {lanes} lanes"
    if (code, bits, lanes) == _FP4_PAIR:
        name = NATIVE["nvfp4"]
    return Given(
        address=taken.address, dtype=name, shape=tuple(taken.shape), strides=tuple(taken.strides), place=_place(*taken.device),
        read_only=taken.read_only, owner=taken,
    )  # fmt: skip


def _by_cuda_array_interface(tensor: Any, device: Device, where: str) -> Given:
    stated = tensor.__cuda_array_interface__
    address, read_only = stated["data"]
    if device.backend != "cuda":
        raise Error(f"{where} lies on a GPU, and the problem runs on {device.name}; copy it, or pass device='cuda:0'")
    place = device.core.place_of(int(address)) if address else device.name
    if place != device.name:
        raise Error(f"{where} lies on {place}, and the problem runs on {device.name}; move it there, or pass device={place!r:.80}")
    kind = np.dtype(stated["typestr"])
    strides = tuple(stated.get("strides") or ())
    if any(stride % kind.itemsize for stride in strides):
        raise Error(f"{where} has strides of {strides} bytes, which are not whole elements; pass a contiguous copy")
    if stated.get("mask") is not None:
        raise Error(f"{where} has a mask; pass its values alone")
    stream = stated.get("stream")  # None: there is nothing to wait for
    if stream == 0:
        raise Error(f"{where} names stream 0, which the CUDA array interface does not allow; use 1 or 2 for the default streams")
    if stream is not None:
        device.core.wait_for(int(stream))
    return Given(
        address=int(address), dtype=kind.name if kind.isnative else str(kind), shape=tuple(stated["shape"]),
        strides=tuple(stride // kind.itemsize for stride in strides), place=place, read_only=bool(read_only), owner=tensor,
    )  # fmt: skip


def _of_numpy(array: Array) -> Given:
    """strides: of a view between elements, rounded so that they are never those of C order."""
    item = max(array.itemsize, 1)
    return Given(
        address=array.__array_interface__["data"][0],
        dtype=array.dtype.name if array.dtype.isnative else str(array.dtype),
        shape=array.shape,
        strides=() if array.flags.c_contiguous else tuple(-(-stride // item) for stride in array.strides),
        place="cpu",
        read_only=not array.flags.writeable,
        owner=array,
    )


def look(tensor: Any, spec: TensorSpec, device: Device, where: str) -> Given:
    """`tensor` as it is, if it is what `spec` describes and lies on `device` (NumPy arrays: anywhere). Raises Error.

    Work that its owner has enqueued is then ordered before what the device is given next. Nothing is converted or copied.
    """
    shape = dtype(spec.dtype).stored_shape(spec.shape)
    expected = f"expected {spec.dtype} {list(spec.shape)}" + (f", two to a byte: {list(shape)}" if shape != spec.shape else "")
    if isinstance(tensor, np.ma.MaskedArray):
        raise Error(f"{where} has a mask, which kernels do not see; pass tensor.filled(value), or the values alone: tensor.data")
    if getattr(tensor, "is_neg", bool)():  # PyTorch's conj().imag, of which DLPack hands over the numbers before their negation
        raise Error(f"{where} is negated only when it is read; pass tensor.resolve_neg()")
    if isinstance(tensor, np.ndarray):
        given = _of_numpy(tensor)
    elif hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__"):
        given = _by_dlpack(tensor, device, where)
    elif hasattr(tensor, "__cuda_array_interface__"):
        given = _by_cuda_array_interface(tensor, device, where)
    else:
        raise Error(
            f"{where} is a {type(tensor).__name__}; {expected} as a NumPy array, or as a tensor with __dlpack__ "
            "or __cuda_array_interface__"
        )
    names = names_of(spec.dtype)
    if given.dtype not in names:
        hint = f" (or its bits: {names[0]})" if len(names) > 1 else ""
        raise Error(f"{where} has dtype {given.dtype}; {expected}, which others call {names[-1]}{hint}")
    if given.shape != shape:
        raise Error(f"{where} has shape {list(given.shape)}; {expected}")
    if not given.contiguous():
        raise Error(f"{where} is not contiguous in C order; pass a contiguous copy of {spec.name}")
    return given


def alignment_bytes(operator: str, spec: TensorSpec, device: Device) -> int:
    """The alignment that the address of a caller's tensor needs."""
    least = GPU_ALIGNMENT_BYTES if device.backend != "cpu" else CPU_ALIGNMENT_BYTES.get(operator, 1)
    return max(least, dtype(spec.dtype).bits // 8)


def borrow(given: Given, spec: TensorSpec, device: Device) -> Any:
    """The same memory as a `_core.Memory`, which keeps its owner alive."""
    return device.core.borrow(given.address, spec.size_bytes, given.owner)


class DeviceArray:
    """A tensor in a device's memory, in C order: what `run` returns on a GPU.

    `numpy()` copies it to the host (bf16 and fp8 as their bits). PyTorch, CuPy, JAX and others share it without a copy:
    `torch.from_dlpack(array)`, `cupy.asarray(array)`. Its memory is freed with the last that holds it.
    """

    __slots__ = ("_device", "_memory", "dtype", "shape")

    def __init__(self, device: Device, memory: Any, shape: Sequence[int], dtype_name: str) -> None:
        self._device, self._memory = device, memory
        self.shape: tuple[int, ...] = tuple(shape)
        self.dtype = dtype_name

    @property
    def device(self) -> str:
        """Name of the device it lies on: "cuda:0"."""
        return self._device.name

    @property
    def nbytes(self) -> int:
        return int(math.prod(self.shape) * dtype(self.dtype).bits) // 8

    def numpy(self) -> Array:
        """A copy on the host; bf16 and fp8 as their bits, in unsigned integers."""
        storage = dtype(self.dtype).storage
        if storage is None:
            raise Unsupported(f"NumPy holds no {self.dtype}")
        array = np.empty(dtype(self.dtype).stored_shape(self.shape), dtype=storage)
        self._memory.read(array)
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("it lies on a device: NumPy can only have a copy")
        return self.numpy().astype(dtype, copy=False) if dtype is not None else self.numpy()

    def __dlpack_device__(self) -> tuple[int, int]:
        backend, _, index = self.device.partition(":")
        return (CUDA, int(index)) if backend == "cuda" else (CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule that shares this memory, safe to use on `stream`; see DLPack's Python specification."""
        home = self.__dlpack_device__()
        wanted = home if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        versioned = max_version is not None and max_version[0] >= 1
        to_host = wanted == (CPU, 0) and wanted != home
        if wanted != home and not to_host:
            raise BufferError(f"it lies on {self.device} (DLPack's device {home}), and is not copied to {wanted}")
        if to_host and copy is False:
            raise BufferError(f"it lies on {self.device}: the CPU can only have a copy")
        if wanted[0] == CPU:
            if stream is not None:
                raise BufferError("a stream means nothing on the CPU: pass None")
        elif stream == 0:
            raise BufferError("stream 0 is ambiguous: pass 1 (legacy default), 2 (per-thread default), a handle or -1")
        elif stream != -1:
            self._device.core.signal(1 if stream is None else int(stream))
        if not (copy or to_host):
            return self._capsule(home, versioned)
        there = open_device("cpu") if to_host else self._device
        twin = DeviceArray(there, there.core.memory(self.nbytes), self.shape, self.dtype)
        if to_host:
            twin._memory.write(self.numpy())
        else:
            twin._memory.copy(self._memory)
        return twin._capsule(wanted, versioned, copied=True)

    def _capsule(self, where: tuple[int, int], versioned: bool, *, copied: bool = False) -> Any:
        code = _CODES[names_of(self.dtype)[-1]]
        return self._memory.dlpack(0, list(self.shape), code, where, versioned, copied)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._device.backend != "cuda":
            raise AttributeError("it lies on no GPU")
        return {
            "shape": self.shape,
            "typestr": np.dtype(names_of(self.dtype)[0]).str,  # of bf16 and fp8: of their bits
            "data": (self._memory.address, False),
            "strides": None,
            "version": 3,
            "stream": None,  # `run` has waited: there is nothing to order
        }

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype} {list(self.shape)} on {self.device})"
