"""What an algorithm for an operator costs beyond the operator as a model counts it, and the matrix products that it is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..counts import ceil_div, larger, smaller
from ..tensor_spec import TensorSpec

# Kinds of arithmetic with a rate of their own: matrix products, exponentials, and all else.
WORK = ("product", "exp", "other")
BLOCK = 128  # rows and columns of a product that a GPU's thread block usually computes

Facts = Mapping[str, Any]  # a plan: what really ran (tiles, splits, workspace_bytes, implementation, ...)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """An algorithm for an operator: on which backends it has kernels, for which dtypes, and what it costs.

    A subclass says what it does beyond the operator as a model counts it, of which the defaults are. `problem` is one of the
    operator's, or a batch of them. `plan` has facts of a kernel that ran; each may be absent (a prediction without a device), and
    then the cost follows from the problem alone.
    """

    summary: str
    dtypes: Mapping[str, tuple[str, ...]]  # backend -> dtypes
    own_products: bool = False  # no library computes them: small and narrow ones are no slower for that
    shared_sums: bool = False  # on a GPU the fastest of a library's kernels runs, among them those whose blocks share a sum
    launched: int = 1  # what `launches` says where that is the same for every problem
    asked: bool = False  # runs where it is asked for alone: no one's default

    def traffic(self, problem: Any, plan: Facts) -> dict[str, int]:
        """Bytes by named term beyond the compulsory ones, workspace included."""
        return {}

    def workspace_bytes(self, problem: Any, plan: Facts) -> Any:
        """Bytes of the memory that `traffic` reuses, which a cache may hold. Without a plan: the tensors, or more."""
        beyond = sum(self.traffic(problem, plan).values())
        return int(plan.get("workspace_bytes", 0)) or larger(problem.footprint_bytes(), beyond // 2)

    def work(self, problem: Any, plan: Facts) -> dict[str, int]:
        """Operations executed by kind (WORK), padding and repeated computation included."""
        return problem.operations()  # type: ignore[no-any-return]

    def reuse(self, problem: Any, plan: Facts) -> dict[str, tuple[int, int]]:
        """Bytes by named term that are found again in a cache, each with the bytes a thread touched since: who holds them."""
        return {}

    def launches(self, problem: Any, plan: Facts) -> int:
        """How many launches a run is, one after the other: of a CPU, how often its threads are woken."""
        return self.launched

    def pieces(self, problem: Any) -> Any:
        """In how many pieces a CPU's threads share the work, about; 0 where there always are more than threads. 1 wakes none."""
        return 0

    def critical_path(self, problem: Any, sms: int) -> Any:
        """Elements that the innermost loops of the busiest of a GPU's `sms` multiprocessors go through one after another, about.

        Products are in blocks of BLOCK rows and columns, which the multiprocessors share evenly. Where these are fewer and sums are
        shared, a part more of each costs about BLOCK: beyond the root of inner / BLOCK they are too many. One row is one loop.
        """
        if products := problem.products():
            path: Any = 0
            for p in products:
                blocks = p.count * ceil_div(p.rows, BLOCK) * ceil_div(p.columns, BLOCK)
                most = smaller(sms / blocks, (p.inner / BLOCK) ** 0.5) if self.shared_sums else 1
                parts = larger(most, 1)
                path += ceil_div(blocks, sms) * p.inner / parts + BLOCK * (parts - 1)
            return path
        return getattr(problem, "columns", getattr(problem, "experts", 0))

    def matrices(self, problem: Any) -> tuple[TensorSpec, ...]:
        """Tensors of rows that its kernels go through, those between its steps included: how rows are aligned decides how fast."""
        return tuple(t for t in problem.tensors() if len(t.shape) > 1)

    def suits(self, problem: Any, device: str) -> bool:
        """Whether it is meant for this problem on a kind of device ("cpu", "cuda"): others are no default for it."""
        return not self.asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """The matrix products of one term of `flops`: `count` of them, [rows, inner] x [inner, columns], in GEMM's words M, K and N.

    Numbers are fractions where they are averages (tokens of an expert). What a mask hides is in the sizes, and not in `flops`.
    """

    term: str
    count: float = 1
    rows: float
    columns: float
    inner: float

    @property
    def flops(self) -> float:
        """FLOPs of all of them, masked pairs included."""
        return 2 * self.count * self.rows * self.columns * self.inner
