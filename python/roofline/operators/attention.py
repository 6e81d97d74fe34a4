"""Scaled dot-product attention; decode is its shape with seq_q = 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..counts import Array, ceil_div, larger, pick
from ..references import exp, log, matmul, max_, sum_
from ..tensor_spec import TensorSpec, size_bytes
from .base import Case, Facts, Operator, Variant
from .masked import Masked

FEW_QUERIES = 8  # what split_kv takes of a sequence


def averaged_tolerance(dtype: str, keys: int) -> tuple[float, float]:
    """(absolute, relative) error of averages over so many keys and more, of values of variance 1.

    Their size is 1 at most few keys, and with more falls as one over the root of their number; so does the error of
    probabilities that are rounded to 16 bits, once each (of very many keys they are below fp16's normal numbers, 2^-24 apart). In
    fp32 it is that of the sums.
    """
    absolute, relative = {"fp64": (1e-12, 1e-12), "fp32": (1e-5, 1e-4), "fp16": (2e-3, 1e-2)}.get(dtype, (1.5e-2, 4e-2))
    if dtype in ("fp64", "fp32"):
        return absolute, relative
    return absolute * math.sqrt(8 / max(keys, 8)) + (2.0**-23 * math.sqrt(keys) if dtype == "fp16" else 0.0), relative


class _Naive(Variant):
    """Three passes through a matrix of scores."""

    def pieces(self, problem: Attention) -> Any:
        return problem.batch * problem.heads * ceil_div(problem.seq_q, 48)

    def traffic(self, problem: Attention, plan: Facts) -> dict[str, int]:
        # Masked scores are neither written nor read, unless the plan says otherwise.
        scores = size_bytes((plan.get("scores_elements", problem.pairs()),), plan.get("scores_dtype", problem.compute()[1]))
        # Where p·v takes the exponentials of the scores itself, softmax only reads them, for the sums of its rows.
        softmax = (
            {"scores read and written by softmax": 2 * scores}
            if plan.get("probabilities_written", True)
            else {"scores read by softmax": scores}
        )
        return {"scores written": scores, **softmax, "scores read by p·v": scores}

    def work(self, problem: Attention, plan: Facts) -> dict[str, int]:
        work = problem.operations()
        if (block := int(plan.get("query_block", 0))) and problem.dtype != "fp64":
            # Every block of queries scales and transposes the keys it sees: a load, a product, four exchanges, a store.
            work["other"] += 7 * (problem.pairs() * ceil_div(problem.seq_q, block) // problem.seq_q) * problem.head_dim
        return work

    def reuse(self, problem: Attention, plan: Facts) -> dict[str, tuple[int, int]]:
        kv, head = problem.kv_bytes()
        # Keys that blocks of queries meet, of all heads: masked ones are not read.
        met = problem.pairs() * ceil_div(problem.seq_q, int(plan.get("query_block", 48))) // problem.seq_q
        return {"k and v for further queries": (larger(met * problem.key_bytes() - kv, 0), head)}

    def critical_path(self, problem: Any, sms: int) -> Any:
        # Blocks of 128 queries of a head, by 64 keys and then by 64 numbers of a head; those that a mask hides have nothing to do.
        seq_kv = problem.seq_kv
        seen = ceil_div(problem.seq_q, 128) * problem.pairs() / (problem.seq_q * seq_kv * sms)
        scores, values = (ceil_div(seen * ceil_div(columns, 64), 1) for columns in (seq_kv, problem.head_dim))
        return scores * problem.head_dim + values * seq_kv


class _Library(Variant):
    """Three passes whose products are a library's: all pairs, masked ones too."""

    def traffic(self, problem: Attention, plan: Facts) -> dict[str, int]:
        pairs = (problem.batch * problem.heads, problem.seq_q, problem.seq_kv)
        probabilities = size_bytes(pairs, problem.dtype)
        # The softmax reads the scores that are not masked, and finds them in a cache the second time.
        return {
            "scores written": size_bytes(pairs, "fp32"),
            "scores read by softmax": size_bytes((problem.pairs(),), "fp32"),
            "probabilities written": probabilities,
            "probabilities read by p·v": probabilities,
        }

    def work(self, problem: Attention, plan: Facts) -> dict[str, int]:
        work = problem.operations()
        if computed := int(plan.get("scores_elements", 0)):  # masked ones too, and exponentials for sums and results
            work.update(product=4 * computed * problem.head_dim, exp=2 * problem.pairs())
        return work

    def matrices(self, problem: Attention) -> tuple[TensorSpec, ...]:
        shape = (problem.batch, problem.heads, problem.seq_q, problem.seq_kv)
        return (*Variant.matrices(self, problem), TensorSpec(name="probabilities", shape=shape, dtype=problem.dtype))


class Parts(Variant):
    """Ranges of keys leave parts of results, which are added up at the end (the plan's parts_bytes); scores stay on the chip."""

    def pieces(self, problem: Any) -> Any:
        # Keys of each product of 64 rows at most, in ranges of 192 at least.
        product = problem.products()[0]
        return product.count * ceil_div(product.rows, 64) * larger(product.columns // 192, 1)

    def critical_path(self, problem: Any, sms: int) -> Any:
        return 0  # keys are in as many ranges as there are multiprocessors

    def traffic(self, problem: Any, plan: Facts) -> dict[str, int]:
        parts = int(plan.get("parts_bytes", 0))
        return {"parts written, read": 2 * parts} if parts else {}


class Tiled(Parts):
    """Blocks of queries read K and V again, but from the last-level cache, as long as one KV head fits it.

    For every operator that has `group`, `pairs`, `operations_of` so many pairs, and `kv_bytes`.
    """

    def pieces(self, problem: Any) -> Any:
        return problem.batch * (problem.heads // problem.group) * ceil_div(problem.group * problem.seq_q, 64)

    def query_block(self, problem: Any) -> Any:
        """Rows of queries that a GPU's block takes."""
        return pick(problem.products()[0].inner > 128, 64, 128)

    def step(self, problem: Any) -> Any:
        """How long a GPU's block takes for a key, over that of a head of 64 on tensor cores: kernels are for heads of 64, 128 and
        256, the softmax takes about as long as half of 64, and the cores of fp32 eight times as long.
        """
        head = problem.products()[0].inner
        return (0.5 + pick(head > 128, 4, pick(head > 64, 2, 1))) / 1.5 * (8 if problem.dtype == "fp32" else 1)

    def critical_path(self, problem: Any, sms: int) -> Any:
        # A block's rows are of one head, or where they are few of all heads of a KV head. The longest block sees all keys, and
        # begins first: masks shorten the others.
        block, queries = self.query_block(problem), problem.batch * problem.heads * problem.seq_q
        rows = pick(problem.seq_q < block, problem.group, 1) * problem.seq_q
        each = ceil_div(queries // rows * ceil_div(rows, block), sms)
        return larger(problem.seq_kv, each * problem.pairs() / queries) * self.step(problem)

    def work(self, problem: Any, plan: Facts) -> dict[str, int]:
        # The plan counts wasted work: masked pairs along the diagonal, and lanes of vectors without a query.
        queries = problem.group * problem.seq_q
        lanes = int(plan.get("query_lanes", 1))
        padded = problem.pairs() * (ceil_div(queries, lanes) * lanes) // queries
        work: dict[str, int] = problem.operations_of(int(plan.get("scores_elements", 0)) or padded)
        # Keys and values that are put into panels: a load, a conversion and a store of each.
        work["other"] += 3 * int(plan.get("panel_elements", 0))
        return work

    def reuse(self, problem: Any, plan: Facts) -> dict[str, tuple[int, int]]:
        kv, head = problem.kv_bytes()
        query_block = int(plan.get("query_block", 64))
        again = (ceil_div(problem.group * problem.seq_q, query_block) - 1) * kv
        if met := int(plan.get("keys_met", 0)):  # by all blocks of queries: fewer where masks hide keys from some
            again = max(met * problem.key_bytes() - kv, 0)
        number = problem.compute()[1]
        block = size_bytes((query_block * int(plan.get("kv_block", 256)),), number)
        return {
            "k and v for further queries": (again, head),
            "scores of a block written and read, twice": (4 * size_bytes((problem.pairs(),), number), block),
        }


class _WarpSpecialized(Tiled):
    """As tiled, with a GPU's newer instructions, which have limits of their own."""

    def query_block(self, problem: Any) -> Any:
        return pick(problem.head_dim > 64, 128, 192)

    def step(self, problem: Any) -> Any:
        return 1  # 192 rows of a head of 64 take as long as 128 of 128

    def suits(self, problem: Attention, device: str) -> bool:
        return device == "cuda" and problem.dtype in ("fp16", "bf16") and problem.head_dim <= 256 and problem.head_dim % 8 == 0


class _SplitKv(Tiled):
    def pieces(self, problem: Attention) -> Any:
        return Parts.pieces(self, problem)

    def critical_path(self, problem: Any, sms: int) -> Any:
        return Parts.critical_path(self, problem, sms)

    def suits(self, problem: Attention, device: str) -> bool:
        # A few queries of each head, as in decode: blocks of queries alone would leave lanes of vectors and most of a GPU idle.
        # On a GPU rows are whole 16 bytes.
        fits = device != "cuda" or (problem.head_dim <= 256 and problem.key_bytes() % 32 == 0)
        return fits and problem.seq_q <= FEW_QUERIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Masked):
    """out = softmax(q kᵀ / sqrt(head_dim)) v, each head by itself.

    heads share K and V in groups of heads / kv_heads; kv_heads = 0 means as many as heads, and the field then holds that
    number. causal aligns the last query with the last key: query i sees keys j <= i + seq_kv - seq_q. logsumexp: a second output
    [batch, heads, seq_q] (fp32), log of the sum of the exponentials of a query's scaled scores, which `AttentionBackward` takes.
    Raises Error for bad fields.
    """

    batch: int = 1
    heads: int = 8
    kv_heads: int = 0
    seq_q: int = 2048
    seq_kv: int = 2048
    head_dim: int = 64
    causal: bool = False
    logsumexp: bool = False
    dtype: str = "fp32"

    name = "attention"
    summary = "softmax(q kᵀ / sqrt(head_dim)) v for every head"
    small = frozenset({"kv_heads"})
    allowed = {"dtype": ("fp64", "fp32", "fp16", "bf16")}
    variants = {
        "naive": _Naive(
            summary="three passes, all scores written to memory and read back twice",
            dtypes={"cpu": ("fp32", "fp64", "fp16", "bf16"), "cuda": ("fp32", "fp16", "bf16")},
            launched=3,
        ),
        "library": _Library(
            summary="three passes with cuBLASLt's products; fp32 scores and probabilities of all pairs, masked ones too, in memory",
            dtypes={"cuda": ("fp32", "fp16", "bf16")},
            launched=3,
        ),
        "tiled": Tiled(
            summary="one pass, blocks of scores and a running softmax stay on the chip",
            dtypes={"cpu": ("fp32", "fp64", "fp16", "bf16"), "cuda": ("fp32", "fp16", "bf16")},
        ),
        "warp_specialized": _WarpSpecialized(
            summary="as tiled, with some warps that copy while others compute; sm_90a, head_dim up to 256",
            dtypes={"cuda": ("fp16", "bf16")},
        ),
        "split_kv": _SplitKv(
            summary="as tiled, for few queries: ranges of keys are shared out, and their parts added up at the end",
            dtypes={"cpu": ("fp32", "fp64", "fp16", "bf16"), "cuda": ("fp32", "fp16", "bf16")},
        ),
    }

    def replace(self, **changes: Any) -> Self:
        """As for every operator; where kv_heads was heads, it stays so unless it is given."""
        if "heads" in changes and "kv_heads" not in changes and self.kv_heads == self.heads:
            changes["kv_heads"] = changes["heads"]
        return Operator.replace(self, **changes)

    def inputs(self) -> tuple[TensorSpec, ...]:
        keys = (self.batch, self.kv_heads, self.seq_kv, self.head_dim)
        return (
            TensorSpec(name="q", shape=(self.batch, self.heads, self.seq_q, self.head_dim), dtype=self.dtype),
            TensorSpec(name="k", shape=keys, dtype=self.dtype),
            TensorSpec(name="v", shape=keys, dtype=self.dtype),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        sums = TensorSpec(name="logsumexp", shape=(self.batch, self.heads, self.seq_q), dtype="fp32", role="out")
        return (*Masked.outputs(self), *((sums,) if self.logsumexp else ()))

    def flops(self) -> dict[str, int]:
        product = 2 * self.pairs() * self.head_dim
        # softmax: compare, subtract, exp, add, divide; of a query's sum a logarithm, and the addition of its highest score
        sums = {"logsumexp": 2 * self.batch * self.heads * self.seq_q} if self.logsumexp else {}
        return {"q·kᵀ": product, "scale": self.pairs(), "softmax": 5 * self.pairs(), **sums, "p·v": product}

    def kv_bytes(self) -> tuple[int, int]:
        """Bytes of K and V: of all heads, and of one KV head."""
        _, k, v = self.inputs()
        both = k.size_bytes + v.size_bytes
        return both, both // (self.batch * self.kv_heads)

    def operations_of(self, pairs: int) -> dict[str, int]:
        """For so many pairs of a query and a key."""
        sums = self.flops().get("logsumexp", 0)
        return {"product": 4 * pairs * self.head_dim, "exp": pairs, "other": 5 * pairs + sums}

    def loops(self) -> int:
        return self.pairs()

    def tolerance(self) -> tuple[float, float]:
        if self.dtype == "fp64" and self.logsumexp:  # which is in fp32
            return 1e-6, 1e-6
        return averaged_tolerance(self.dtype, self.visible(0))

    def _attend(self, q: Array, k: Array, v: Array) -> tuple[Array, ...]:
        """out [queries, head_dim], and where it is asked for logsumexp [queries], of queries that all see exactly these keys."""
        scores = matmul(q, k.T) * (1 / math.sqrt(self.head_dim))
        largest = max_(scores, axis=-1, keepdims=True)
        weights = exp(scores - largest)
        total = sum_(weights, axis=-1, keepdims=True)
        out = matmul(weights / total, v)
        return (out, (largest + log(total))[:, 0]) if self.logsumexp else (out,)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: indices along [batch * heads * seq_q]; out is then [len(rows), head_dim], logsumexp [len(rows)]."""
        q, k, v = tensors["q"], tensors["k"], tensors["v"]
        group = self.group

        def some(batch: int, head: int, first: int, last: int, limit: int) -> tuple[Array, ...]:
            kv_head = head // group
            return self._attend(q[batch, head, first:last], k[batch, kv_head, :limit], v[batch, kv_head, :limit])

        if rows is not None:
            picked = (np.unravel_index(int(row), (self.batch, self.heads, self.seq_q)) for row in rows)
            found = [some(int(b), int(h), int(i), int(i) + 1, self.visible(int(i))) for b, h, i in picked]
            return {spec.name: np.concatenate(each) for spec, each in zip(self.outputs(), zip(*found, strict=True), strict=True)}
        # Masked pairs are not computed: causal goes query by query.
        step = 1 if self.causal else self.seq_q
        found = [
            some(batch, head, first, first + step, self.visible(first))
            for batch in range(self.batch)
            for head in range(self.heads)
            for first in range(0, self.seq_q, step)
        ]
        each = zip(self.outputs(), zip(*found, strict=True), strict=True)
        return {spec.name: np.concatenate(parts).reshape(spec.shape) for spec, parts in each}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        shapes = (
            {"heads": 1, "seq_len": 1, "head_dim": 64},
            {"heads": 2, "seq_q": 1, "seq_kv": 1000},
            {"heads": 2, "seq_q": 300, "seq_kv": 1},
            {"heads": 3, "seq_q": 37, "seq_kv": 41, "head_dim": 17},
            {"heads": 2, "seq_q": 131, "seq_kv": 67, "head_dim": 40},
            {"batch": 2, "heads": 3, "seq_q": 67, "seq_kv": 131, "head_dim": 80},
            {"batch": 3, "heads": 2, "seq_len": 101, "causal": True},
            {"heads": 2, "seq_q": 70, "seq_kv": 523, "causal": True},
            {"heads": 2, "seq_q": 1, "seq_kv": 257, "causal": True},
            {"batch": 2, "heads": 8, "kv_heads": 2, "seq_q": 33, "seq_kv": 100},
            {"heads": 6, "kv_heads": 2, "seq_q": 50, "seq_kv": 75, "causal": True},
            {"batch": 2, "heads": 8, "kv_heads": 1, "seq_q": 5, "seq_kv": 300, "causal": True},
            {"heads": 16, "kv_heads": 2, "seq_q": 1, "seq_kv": 500, "head_dim": 128},
            {"heads": 4, "kv_heads": 1, "seq_q": 1, "seq_kv": 3000, "head_dim": 100},
            {"batch": 2, "heads": 6, "kv_heads": 2, "seq_q": 3, "seq_kv": 700, "head_dim": 256, "causal": True},
        )
        both, lengths = (False, True), "seq_q seq_kv head_dim"
        grouped: Any = {"heads": 4, "kv_heads": 2}
        halves: Any = ((1, 1, 64), (150, 200, 64), (129, 129, 128), (70, 90, 256), (300, 333, 256), (130, 140, 136))
        halves += ((33, 100, 40), (5, 700, 128), (9, 31, 17))
        doubles = ((1, 1, 64), (150, 200, 64), (33, 300, 40), (9, 31, 17), (70, 90, 3), (49, 131, 128))
        sums = ((3, "fp32"), (70, "fp32"), (70, "bf16"), (5, "fp16"), (70, "fp64"))
        return (
            *cls.grid(shapes),
            *cls.grid((1, 16, 17, 40, 64, 80, 128, 256, 512), "head_dim", heads=2, seq_q=70, seq_kv=90, causal=both),
            *cls.grid((63, 64, 65, 127, 128, 129, 257), "seq_len", heads=1, head_dim=16, causal=both),
            *cls.grid(halves, lengths, **grouped, causal=both, dtype=("fp16", "bf16")),
            *cls.grid(doubles, lengths, **grouped, causal=both, dtype="fp64"),
            *cls.grid(sums, "seq_q dtype", **grouped, seq_kv=150, head_dim=24, causal=both, logsumexp=True),
            Case(problem=cls(heads=2, seq_q=32771, seq_kv=32777, head_dim=4), slow=True),  # 8.6 GB of scores in the naive variant
        )
