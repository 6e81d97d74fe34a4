"""Any Python callable on this CPU: warmed, sampled, bracketed, and placed on the roofline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..cost import dtype as dtype_named
from ..errors import Error
from ..machine import Machine
from ..operators import Operator
from ..results import Measurement
from .devices import Device, open_device, provenance, utc_now
from .roofs import roofs_of
from .timing import Policy, bracketed, from_roofs, with_plausibility


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**62 or value != int(value):
        raise Error(f"{name} must be a whole number from 0, got {value!r}")
    return int(value)


def measure_callable(
    function: Callable[..., Any],
    *args: Any,
    flops: int | Operator,
    bytes: int | None = None,
    dtype: str = "fp32",
    name: str | None = None,
    mix: str = "read",
    level: str = "DRAM",
    device: str | Device | None = "cpu",
    threads: int = 0,
    machine: Machine | None = None,
    policy: Policy | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Measurement:
    """Time `function(*args, **kwargs)` and place it on the roofline of this CPU.

    flops, bytes: what one call computes and moves, as numbers, or an operator of ours as `flops` (its FLOPs, compulsory
    bytes, dtype and mix). dtype: of the compute roof. mix: the access whose bandwidth is the memory roof. level: where its
    data lies ("DRAM", "L1", ...). threads: of the roofs it is compared with. The callable runs on its own threads, unpinned;
    what it returns is dropped. Raises Error for bad input; what the callable raises passes through.
    """
    if not callable(function):
        raise Error(f"measure_callable: {function!r} is not callable")
    if isinstance(flops, Operator):
        work, moved = (
            flops.flops(),
            {"compulsory": flops.compulsory_bytes()} if bytes is None else {"stated": _count("bytes", bytes)},
        )
        dtype, mix = flops.compute()[0], flops.mix
    else:
        if bytes is None:
            raise Error("measure_callable: bytes is missing; state what one call moves, or pass an operator as flops")
        work, moved = {"stated": _count("flops", flops)}, {"stated": _count("bytes", bytes)}
    dtype_named(dtype)
    opened = open_device(device, threads)
    if opened.backend != "cpu":
        raise Error(f"measure_callable times on the CPU's clock; device must be 'cpu', got {opened.name!r}")
    keywords = dict(kwargs or {})
    bound = opened.core.callable(lambda: function(*args, **keywords))
    total, traffic = sum(work.values()), sum(moved.values())
    probes = roofs_of(opened, mix=mix, arithmetic=dtype, level=level, in_place=False, flops=total, machine=machine)
    clock = bracketed(opened, [bound], False, probes, from_roofs(total, traffic), level, policy or Policy())
    title = name or str(getattr(function, "__name__", type(function).__name__))
    return with_plausibility(
        Measurement(
            operator=title,
            problem={**(flops.to_dict() if isinstance(flops, Operator) else {}), "dtype": dtype},
            variant="callable",
            device=opened.name,
            threads=opened.threads,
            cache_state="user",
            flops=work,
            bytes=moved,
            level=level,
            correctness={"checked": False},
            utc=utc_now(),
            provenance=provenance(opened, 0),
            **clock,
        )
    )
