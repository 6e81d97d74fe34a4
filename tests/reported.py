"""Devices that are not there: only what they report of themselves, and kernels that Python declares."""

from collections.abc import Callable, Iterable
from typing import Any

from roofline.measurement.arena import arena_bytes
from roofline.measurement.devices import Device
from roofline.operators import OPERATORS, Operator
from roofline.units import GIB, KIB, MIB


class Reported(Device):
    """missing(variant, dtype): why a kernel of `operators` cannot run, "" if it can. peers: None: those that are listed."""

    def __init__(
        self,
        name: str = "cpu",
        operators: Iterable[type[Operator]] = (),
        missing: Callable[[str, str], str] = lambda variant, dtype: "",
        peers: tuple[int, ...] | None = None,
        **facts: Any,
    ) -> None:
        self.name, self.facts, self.roofs = name, facts, {}
        if peers is not None:
            self.peers = peers
        self.threads = int(facts.get("threads", 1)) if name == "cpu" else 0
        self.arena_bytes = arena_bytes(int(facts.get("memory_bytes", 2**34)))
        self.flush_bytes, self.arena_limit = 0, None
        self.kernels = [
            {"operator": operator.name, "variant": variant, "dtype": dtype, "missing": missing(variant, dtype)}
            for operator in operators
            for variant, declared in operator.variants.items()
            for dtype in declared.dtypes.get(name.partition(":")[0], ())
        ]

    @property
    def kernel_isas(self) -> tuple[str, ...]:
        return tuple(isa for isa in self.isas.split(",")[::-1] if isa)


GPUS = {  # multiprocessors, L1 with shared memory, L2, memory
    "sm_80": (108, 164 * KIB, 40 * MIB, 80 * GIB),
    "sm_86": (84, 100 * KIB, 6 * MIB, 24 * GIB),
    "sm_89": (142, 100 * KIB, 96 * MIB, 48 * GIB),
    "sm_90": (132, 228 * KIB, 50 * MIB, 141 * GIB),
    "sm_100": (148, 228 * KIB, 126 * MIB, 180 * GIB),
    "sm_103": (148, 228 * KIB, 126 * MIB, 279 * GIB),
    "sm_120": (188, 100 * KIB, 128 * MIB, 32 * GIB),
}


def gpu(architecture: str, operators: Iterable[type[Operator]] = OPERATORS.values(), **more: Any) -> Reported:
    """One of GPUS, with kernels of `operators`. more: facts, and what else `Reported` takes."""
    sms, shared, l2, memory = GPUS[architecture]
    stated = {"architecture": architecture, "sms": sms, "threads_per_sm": 2048, "max_clock_hz": 1.8e9}
    sizes = {"shared_bytes_per_sm": shared, "l2_bytes": l2, "memory_bytes": memory}
    return Reported("cuda:0", operators, **{**stated, **sizes, **more})
