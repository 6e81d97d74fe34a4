"""One kernel of a census: its sizes, its costs, and where it lies on a roofline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .._repr import json_form, values_of
from ..dtypes import dtype as known_dtype
from ..operators import Operator, Product
from ..prediction import Prediction
from ..results import Measurement
from ..transformer import Call, Phase

SCALES = ("scale", "zero", "b_scale", "b_whole")  # of weights: bytes that belong to them, and no numbers of their own
MEASURED = "time_s operator variant device threads cache_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A kernel that a phase runs `call.count` times; everything here is of one run.

    placed: its prediction on the machine, None without one. measured: the measurement of this shape, where there is one.
    """

    phase: Phase
    call: Call
    placed: Prediction | None = None
    measured: Measurement | None = None

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def problem(self) -> Operator:
        return self.call.problem

    @property
    def count(self) -> int:
        return self.call.count

    @property
    def dtype(self) -> str:
        """The dtype of its arithmetic."""
        return self.problem.compute()[0]

    @property
    def weight_bits(self) -> float | None:
        """Bits of one stored weight, its share of scales and zero points included; None for kernels without GEMM weights."""
        found = [t for t in self.problem.inputs() if t.name in self.call.weights]
        numbers = sum(math.prod(t.shape) for t in found if t.name not in SCALES)
        return 8 * sum(t.size_bytes for t in found) / numbers if numbers else None

    @property
    def cache_dtype(self) -> str:
        """The dtype that it reads from the KV cache; "" where it reads none."""
        return next((t.dtype for t in self.problem.inputs() if t.name in self.call.cached), "")

    @property
    def stored(self) -> str:
        """Its dtype, and that of weights and cache where they differ: "bf16, weights 4.12 bit", "bf16, cache fp8_e4m3"."""
        bits, own = self.weight_bits, known_dtype(self.dtype).bits
        weights = f", weights {bits:.3g} bit" if bits is not None and not math.isclose(bits, own, rel_tol=1e-3) else ""
        cache = f", cache {self.cache_dtype}" if self.cache_dtype not in ("", self.dtype) else ""
        return f"{self.dtype}{weights}{cache}"

    @property
    def products(self) -> tuple[Product, ...]:
        return self.problem.products()

    def product_flops(self) -> Iterator[tuple[Product, int]]:
        """Its products with the FLOPs that count: what a mask hides does not."""
        flops, products = self.problem.flops(), self.products
        for product in products:
            whole = sum(other.flops for other in products if other.term == product.term)
            yield product, round(flops[product.term] * product.flops / whole)

    # -- costs ------------------------------------------------------------------------------------------------------------

    @property
    def variant(self) -> str:
        """The kernel of ours whose bytes count; "" for the compulsory ones alone."""
        return self.call.variant

    @property
    def flops(self) -> int:
        return self.problem.total_flops()

    @property
    def bytes(self) -> int:
        """That reach memory: the compulsory ones, and what the variant moves beyond."""
        if self.placed is not None:
            return self.placed.bytes
        return self.problem.compulsory_bytes() + sum(self.problem.traffic({"variant": self.variant}).values())

    @property
    def link_bytes(self) -> int:
        """Received from other ranks, and as much sent."""
        return self.problem.link_bytes()

    @property
    def flops_per_byte(self) -> float | None:
        return self.flops / self.bytes if self.bytes else None

    # -- on a machine -----------------------------------------------------------------------------------------------------

    @property
    def ridge_flops_per_byte(self) -> float | None:
        """The ridge point of its compute roof and the memory; None for kernels that compute nothing."""
        ridge = math.inf if self.placed is None else self.placed.roofs.ridge_flops_per_byte
        return ridge if math.isfinite(ridge) else None

    @property
    def bound(self) -> str | None:
        """The roof that allows it the longest time: "compute", a memory level, "launch", "link"."""
        return None if self.placed is None else self.placed.bound

    @property
    def roof_s(self) -> float | None:
        """The time its roofs allow, a lower bound."""
        return None if self.placed is None else self.placed.roof_s

    @property
    def attainable_flops_per_s(self) -> float | None:
        """FLOPs over `roof_s`; None for kernels that compute nothing."""
        return self.flops / self.roof_s if self.flops and self.roof_s else None

    @property
    def time_s(self) -> float | None:
        """The expected time of one run, see `roofline.predict`."""
        return None if self.placed is None else self.placed.time_s

    @property
    def measured_s(self) -> float | None:
        return None if self.measured is None else self.measured.time_s

    @property
    def share_of_roof(self) -> float | None:
        """The time its roofs allow over the measured one."""
        return self.roof_s / self.measured_s if self.roof_s and self.measured_s else None

    def to_dict(self) -> dict[str, Any]:
        """JSON form: a kernel of `census.schema.json`."""
        m = self.measured
        return {
            **values_of(self.call, "group sharded"),
            "operator": self.problem.name,
            **values_of(self, "name variant problem count dtype weight_bits flops bytes link_bytes flops_per_byte"),
            **values_of(self, "ridge_flops_per_byte bound attainable_flops_per_s roof_s time_s"),
            "cache_dtype": self.cache_dtype or None,
            "products": [{**json_form(product), "flops": flops} for product, flops in self.product_flops()],
            "measured": m and {"share_of_roof": self.share_of_roof, **values_of(m, MEASURED)},
        }

    def to_record(self) -> dict[str, Any]:
        """One flat row; sizes of a product only where the kernel is a single one, the others in `products`."""
        one = self.products[0] if len(self.products) == 1 else None
        several = "; ".join(f"{p.term}: {p.count:.6g} × M {p.rows:.6g} N {p.columns:.6g} K {p.inner:.6g}" for p in self.products)
        return {
            "phase": self.phase.name,
            **{f"phase_{name}": value for name, value in self.phase.to_dict().items() if name != "phase"},
            "kernel": self.name,
            "group": self.call.group,
            "operator": self.problem.name,
            **values_of(self, "variant count"),
            "product_count": one and one.count,
            **{name: one and getattr(one, name) for name in ("rows", "columns", "inner")},
            "products": "" if one else several,
            **values_of(self, "dtype weight_bits"),
            "cache_dtype": self.cache_dtype or None,
            **values_of(self, "flops bytes link_bytes flops_per_byte ridge_flops_per_byte bound attainable_flops_per_s"),
            **values_of(self, "roof_s time_s measured_s"),
            "measured_variant": self.measured and self.measured.variant,
            "share_of_roof": self.share_of_roof,
        }
