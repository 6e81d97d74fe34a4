"""Any Python callable, on the CPU or on a stream of a GPU: warmed, sampled, bracketed, and placed on the roofline."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..dtypes import dtype_name
from ..errors import Error, is_whole, require_type, shown
from ..machine import CACHES, Given, memory_level
from ..operators import Operator
from ..results import Measurement
from ..results.record import CALLABLE
from ..words import arguments_checked, require_one_of
from .devices import Device, measuring, open_device
from .policy import Policy
from .probing import roofs_of
from .timing import bracketed, checked_options, from_roofs, made_on, tried, with_plausibility


def _count(name: str, value: Any) -> int:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 <= value < 2**62 or value != int(value):
        raise Error(f"{name} must be a whole number from 0 to 2**62 - 1, got {shown(value)}")
    return int(value)


def stream_handle(stream: Any) -> int:
    """The handle of a CUDA stream: an integer, or PyTorch's, CuPy's, Numba's or anything's with `__cuda_stream__`."""
    found: Any = stream
    if hasattr(stream, "__cuda_stream__"):  # (version, handle); a property in its first version
        stated = stream.__cuda_stream__
        _, found = stated() if callable(stated) else stated
    else:
        for name in ("cuda_stream", "ptr", "handle"):
            if hasattr(stream, name):
                found = getattr(stream, name)
                break
    found = getattr(found, "value", found)  # ctypes
    if not is_whole(found) or found < 0:
        raise Error(f"stream must be a CUDA stream (PyTorch's, CuPy's, one with __cuda_stream__, or a handle), got {stream!r:.80}")
    return found


@arguments_checked
def measure_callable(
    function: Callable[..., Any],
    *args: Any,
    flops: int | Operator,
    bytes: int | None = None,
    dtype: str = "fp32",
    name: str | None = None,
    mix: str = "read",
    level: str | None = None,
    device: str | Device | None = "cpu",
    threads: int = 0,
    stream: Any = None,
    machine: Given | None = None,
    policy: Policy | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Measurement:
    """Time `function(*args, **kwargs)` and place it on the roofline of the device.

    `measure_callable(np.matmul, a, b, flops=Matmul(rows=512, columns=512, inner=512))`.

    Args:
        flops: what one call computes: a number, or an operator (its FLOPs, compulsory bytes, dtype and mix).
        bytes: what one call moves, where `flops` is a number.
        dtype: of the compute roof.
        mix: the access whose bandwidth is the memory roof.
        level: where its data lies ("L1", ...; None: memory).
        threads: of the roofs it is compared with; the callable runs on its own threads, unpinned.
        machine: whose configurations of the roofs are used, or words for it, as in `measure`.
        stream: of a GPU, the one that the callable launches on (PyTorch's, CuPy's, a handle): it is timed by events there, and
            what it launches elsewhere is not seen. Without one it is timed by the host's clock, from an idle GPU to an idle
            GPU, launches included; the plan's `clock` says which.

    Raises:
        Error: for bad input; what the callable raises passes through.
    """
    if not callable(function):
        raise Error(f"measure_callable: {function!r:.80} is not callable")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Error(f"measure_callable: a call of {function!r:.80} computes nothing yet; pass a function that runs it to its end")
    if isinstance(flops, Operator):
        moved = {"compulsory": flops.compulsory_bytes()} if bytes is None else {"stated": _count("bytes", bytes)}
        work = flops.flops()
        dtype, mix = flops.compute()[0], flops.mix
    else:
        if bytes is None:
            raise Error("measure_callable: bytes is missing; state what one call moves, or pass an operator as flops")
        work, moved = {"stated": _count("flops", flops)}, {"stated": _count("bytes", bytes)}
    dtype = dtype_name(dtype)
    require_type("name", name, (str, type(None)), "words")
    require_type("kwargs", kwargs, (Mapping, type(None)), "a mapping of keyword arguments")
    opened, begun = open_device(device, threads), time.monotonic()
    machine, policy = checked_options(opened, machine, policy)
    level, levels = level or memory_level(opened.facts), (*CACHES, memory_level(opened.facts))
    require_one_of("level", level, levels)
    if stream is not None and opened.backend != "cuda":
        raise Error(f"measure_callable: a stream belongs to a GPU, and the device is {opened.name!r:.80}; pass device='cuda:0'")
    keywords = dict(kwargs or {})
    handle = None if stream is None else stream_handle(stream)
    bound = opened.core.callable(lambda: function(*args, **keywords), handle)
    total, traffic = sum(work.values()), sum(moved.values())
    # Plain numbers do not say which are products: products are the reason to compute in dtypes narrower than fp32.
    products = bool(flops.products()) if isinstance(flops, Operator) else dtype not in ("fp32", "fp64")
    with measuring(None):  # the callable may run kernels of ours
        probes = roofs_of(opened, mix=mix, arithmetic=dtype, level=level, flops=total, machine=machine, products=products)
        clock = tried(partial(bracketed, opened, [bound], False, probes, from_roofs(total, traffic), level), policy, begun)
    plan = {"clock": "host" if handle is None else "events on the stream"}
    if handle is not None:
        plan["gate"] = "off: a call waits for the GPU" if bound.waits else "on"
    title = name or str(getattr(function, "__name__", type(function).__name__))
    measured = Measurement(
        operator=title, problem={**(flops.to_dict() if isinstance(flops, Operator) else {}), "dtype": dtype}, variant=CALLABLE,
        plan=plan, flops=work, bytes=moved, level=level, correctness={"checked": False}, **made_on(opened, "user"), **clock,
    )  # fmt: skip
    return with_plausibility(measured)
