"""Devices that are not there: only what they report of themselves, and kernels that Python declares."""

from collections.abc import Callable, Iterable
from typing import Any

from roofline.measurement.arena import arena_bytes
from roofline.measurement.devices import Device
from roofline.operators import Operator


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
        self.kernels = [
            {"operator": operator.name, "variant": variant, "dtype": dtype, "missing": missing(variant, dtype)}
            for operator in operators
            for variant, declared in operator.variants.items()
            for dtype in declared.dtypes.get(name.partition(":")[0], ())
        ]

    @property
    def kernel_isas(self) -> tuple[str, ...]:
        return tuple(isa for isa in self.isas.split(",")[::-1] if isa)
