"""The experts of a mixture-of-experts layer: one small feed-forward block for each, over the tokens that were routed to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .. import dtypes, references
from ..counts import Array, all_of, any_of, pick, ratio, smaller, whole
from ..errors import Error
from ..tensor_spec import TensorSpec, size_bytes
from .activations import activated
from .base import Case, Facts, Operator, Product, Variant
from .ffn import Ffn

_ACTIVATIONS = ("relu", "gelu", "swiglu")
_DTYPES = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "nvfp4", "mxfp4")
MOST_GROUPS = 1024  # models have 8; binomials of them stay small


def _width(dtype: str) -> float:
    """Bits of a weight in this dtype, with its share of a scale of 8 bits: one for 16 weights in nvfp4, for 32 in mxfp4."""
    return dtypes.dtype(dtype).bits + {"nvfp4": 8 / 16, "mxfp4": 8 / 32}.get(dtype, 0.0)


def expected_touched(tokens: Any, experts: Any, experts_per_token: Any) -> Any:
    """How many of the experts at least one token goes to, on average, where each takes experts_per_token at random.

    experts (1 - (1 - experts_per_token / experts)^tokens): a token misses an expert with that probability, and expectations add
    up. Source: MoESD (arXiv:2505.19645), section 3. Real routers are less even, and touch fewer.
    """
    total = np.asarray(experts, dtype=np.float64)
    with np.errstate(divide="ignore"):  # all experts: the logarithm of 0
        missed = np.asarray(tokens, dtype=np.float64) * np.log1p(-np.asarray(experts_per_token, dtype=np.float64) / total)
    return total * -np.expm1(missed)


def _misses(experts: int, own: int, chosen: int) -> float:
    """The probability that `chosen` different ones of `experts`, drawn at random, have none of `own` among them."""
    # C(experts - own, chosen) / C(experts, chosen), which is the same with own and chosen exchanged.
    (few, many), missed = sorted((own, chosen)), 1.0
    for taken in range(few):
        missed *= max(experts - many - taken, 0) / (experts - taken)
        if missed < 1e-18:
            break
    return missed


def _reaches(experts: int, experts_per_token: int, ranks: int, groups: int, groups_per_token: int) -> float:
    """The probability that a token chooses any expert of one rank.

    It draws t = groups_per_token of g = groups at random, then k = experts_per_token different experts of those t / g of all. A
    rank has w whole groups (or, with more ranks than groups, an equal part of one: w = 1) with e experts each. It has j of the
    groups drawn with the probability C(w, j) C(g - w, t - j) / C(g, t), and a token that may choose among n = t experts / g misses
    its j e experts with C(n - j e, k) / C(n, k). ranks times the sum over j of the first times 1 less the second is how many ranks
    a token goes to: 8 of 256 experts in 4 of 8 groups over 8 ranks reach 8 (1/2) (1 - C(96, 8) / C(128, 8)) = 3.63.
    """
    experts, chosen, ranks, groups, drawn = map(int, (experts, experts_per_token, ranks, groups, groups_per_token))
    mine, each = max(groups // ranks, 1), min(experts // groups, experts // ranks)
    open_to_it, reached = drawn * (experts // groups), 0.0
    for j in range(1, min(mine, drawn) + 1):
        share = math.comb(mine, j) * math.comb(groups - mine, drawn - j) / math.comb(groups, drawn)
        reached += share * (1 - _misses(open_to_it, j * each, chosen))
    return reached


_reaches_each = np.frompyfunc(_reaches, 5, 1)


class _Library(Variant):
    def traffic(self, problem: GroupedMatmul, plan: Facts) -> dict[str, int]:
        narrow, hidden = problem.row_bytes()
        gate = {"gate written, read": 2 * hidden, "gathered x again for gate": narrow} if problem.gated else {}
        return {
            "gathered x written, read": 2 * narrow, "up written, read": 2 * hidden, **gate, "activated written, read": 2 * hidden,
            "results written, read": 2 * narrow,
        }  # fmt: skip

    def launches(self, problem: GroupedMatmul, plan: Facts) -> int:
        experts = whole(plan.get("experts_with_tokens", problem.touched() + problem.shared_experts))
        return 3 + (3 if problem.gated else 2) * experts  # type: ignore[no-any-return]


class _Tiled(Variant):
    def traffic(self, problem: GroupedMatmul, plan: Facts) -> dict[str, int]:
        narrow, hidden = problem.row_bytes()
        routing = 2 * 2 * size_bytes((problem.routed_rows(),), "int32")  # whose a row is, and where the rows of a token are
        if plan.get("gathered"):  # on a CPU, in fp32 as all that lies between
            wide, between = (2 * size for size in problem.row_bytes("fp32"))
            gate = {"gate written, read": between} if problem.gated else {}
            read = {"routing written, read": routing, "gathered x written, read": wide}
            return {**read, **gate, "activated written, read": between, "results written, read": wide}
        return {"routing written, read": routing, "activated written, read": 2 * hidden, "results written, read": 2 * narrow}

    def suits(self, problem: GroupedMatmul, device: str) -> bool:
        # A GPU's copies rows of whole 16 bytes.
        return device != "cuda" or problem.d_model % 8 == problem.d_ff % 8 == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedMatmul(Operator):
    """out = sum over a token's experts of gate · (activation(x w_up) w_down), each expert with weights of its own.

    x, out: [tokens, d_model]. Every token goes to experts_per_token of the experts, and to all shared_experts (with a gate of 1).
    touched_experts: how many of the experts have any token, and so have their weights read; 0: the number expected of even
    routing, a fraction (`expected_touched`). swiglu has a third weight, as in `Ffn`. dtype: of x and of the arithmetic; out_dtype:
    of out. weight_bits: of a stored weight with its share of the scales: 16, 8, 4.5 (NVFP4), 4.25 (MXFP4); 0: as wide as dtype
    is, and the field then holds that. Their bytes are rounded up to whole ones, once per matrix. Weights as wide as dtype are
    stored in it; for others there are costs alone.
    ranks: among which the experts are spread, `tokens` coming from each; all is then what one rank is expected to compute and move
    for the tokens that reach it (rounded up), and touched_experts are its own. groups: with several ranks, equal groups of
    neighbouring experts, of which a token draws groups_per_token and chooses its experts within them, as DeepSeek-V3 has it.
    Raises Error for bad fields.
    """

    tokens: int = 1
    experts: int = 256
    experts_per_token: int = 8
    shared_experts: int = 0
    touched_experts: int = 0
    ranks: int = 1
    groups: int = 1
    groups_per_token: int = 1
    d_model: int = 7168
    d_ff: int = 2048
    activation: str = "swiglu"
    weight_bits: float = 0.0
    dtype: str = "bf16"
    out_dtype: str = "bf16"

    name = "grouped_matmul"
    summary = "the experts of a mixture-of-experts layer, over the tokens routed to each"
    mix = "read"
    small = frozenset({"shared_experts", "touched_experts"})
    allowed = {"activation": _ACTIVATIONS, "dtype": _DTYPES, "out_dtype": _DTYPES}
    variants = {
        "library": _Library(
            summary="rows gathered by expert, a cuBLASLt product per expert and matrix, one pass for the activation, results added "
            "up by token; the routing is read by bind",
            dtypes={"cuda": ("fp32", "fp16", "bf16")},
        ),
        "tiled": _Tiled(
            summary="our own products for all experts, on a GPU by mma.sync: rows taken from x by token (CPU: gathered in fp32), "
            "up, gate and activation together, then down; results added up by token; routed anew in each launch",
            dtypes={"cpu": ("fp32", "fp16", "bf16"), "cuda": ("fp16", "bf16")},
            launched=4,
        ),
    }

    def replace(self, **changes: Any) -> Self:
        """As for every operator; where the weights were as wide as dtype, they stay so unless weight_bits is given."""
        if "dtype" in changes and all_of(self.weight_bits == _width(self.dtype)):
            changes.setdefault("weight_bits", 0.0)
        return Operator.replace(self, **changes)

    def check(self) -> None:
        if isinstance(self.weight_bits, (int, float)) and self.weight_bits == 0:
            object.__setattr__(self, "weight_bits", _width(self.dtype))
        self.require(
            self.experts_per_token <= self.experts, "experts_per_token must be at most experts {experts}, got {experts_per_token}"
        )
        self.require(
            (self.weight_bits > 0) & (self.weight_bits <= 64), "weight_bits must be above 0 and at most 64, got {weight_bits}"
        )
        self.require(self.experts % self.ranks == 0, "ranks must divide experts {experts}, got {ranks}")
        self.require(
            (self.ranks == 1) | (self.shared_experts == 0), "shared_experts are on every rank: with ranks {ranks} state them apart"
        )
        self.require((self.ranks > 1) | (self.groups == 1), "groups {groups} matter to ranks alone: with one rank leave them at 1")
        self.require(self.groups <= MOST_GROUPS, f"groups must be at most {MOST_GROUPS}, got {{groups}}")
        self.require(self.experts % self.groups == 0, "groups must divide experts {experts}, got {groups}")
        self.require(
            (self.groups % self.ranks == 0) | (self.ranks % self.groups == 0),
            "ranks {ranks} must divide groups {groups} or be a multiple of them: a rank with parts of several is not modelled",
        )
        self.require(
            (self.groups_per_token <= self.groups)
            & (self.groups_per_token * (self.experts // self.groups) >= self.experts_per_token),
            "groups_per_token must be at most groups {groups} and leave experts_per_token {experts_per_token} to choose from, got "
            "{groups_per_token}",
        )
        most = smaller(self.experts // self.ranks, self.ranks * self.tokens * self.experts_per_token)
        touched, one = self.touched_experts, self.ranks == 1
        self.require(
            (one == 0) | (touched == 0) | ((touched >= self.experts_per_token) & (touched <= most)),
            "touched_experts must be 0, or from experts_per_token {experts_per_token} to the {experts} experts and to "
            "tokens {tokens} times that, got {touched_experts}",
        )
        self.require(
            one | (touched <= most),
            "touched_experts are those of one of {ranks} ranks, at most its part of {experts} experts, got {touched_experts}",
        )

    def touched(self) -> Any:
        """Experts whose weights are read, the shared ones apart: given, or expected, and then no whole number."""
        of_all = expected_touched(self.ranks * self.tokens, self.experts, self.experts_per_token)
        expected = of_all / np.asarray(self.ranks, dtype=np.float64)
        expected = expected if isinstance(self.touched_experts, np.ndarray) or expected.ndim else float(expected)
        return pick(self.touched_experts > 0, self.touched_experts, expected)

    def reached(self) -> Any:
        """Ranks that a token goes to on average."""
        routing = (self.experts, self.experts_per_token, self.ranks, self.groups, self.groups_per_token)
        found = np.asarray(_reaches_each(*routing), dtype=np.float64)
        return self.ranks * (found if found.ndim else float(found))

    def arriving(self) -> Any:
        """Tokens that choose an expert of this rank, as expected and rounded up; `tokens` where there is one rank."""
        if all_of(self.ranks == 1):
            return self.tokens
        return pick(self.ranks == 1, self.tokens, whole(self.tokens * self.reached()))

    @property
    def gated(self) -> bool:
        return self.activation == "swiglu"

    def _plain(self) -> bool:
        """Whether weights are numbers of dtype, and no packed ones with scales."""
        return self.dtype in ("fp32", "fp16", "bf16") and bool(all_of(self.weight_bits == dtypes.dtype(self.dtype).bits))

    def _weight(self, name: str, *shape: int) -> TensorSpec:
        bits, touched = ratio(self.weight_bits), self.touched() + self.shared_experts
        each = shape[0] * shape[1] * (bits if isinstance(bits, np.ndarray) else float(bits)) / 8
        known = size_bytes((touched, *shape), "int8", bits) if isinstance(touched, int) else whole(touched * each)
        everything = (self.experts // self.ranks + self.shared_experts, *shape)
        if self._plain():
            return TensorSpec(name=name, shape=everything, dtype=self.dtype, role="constant", touched_bytes=known)
        return TensorSpec(name=name, shape=everything, dtype="int8", role="constant", bits=bits, touched_bytes=known)

    def inputs(self) -> tuple[TensorSpec, ...]:
        tokens = self.arriving()
        chosen = (tokens, self.experts_per_token)
        wide, narrow = (self.d_model, self.d_ff), (self.d_ff, self.d_model)
        return (
            TensorSpec(name="x", shape=(tokens, self.d_model), dtype=self.dtype),
            TensorSpec(name="chosen", shape=chosen, dtype="int32", below=self.experts),
            TensorSpec(name="gates", shape=chosen, dtype="fp32"),
            self._weight("w_up", *wide),
            *((self._weight("w_gate", *wide),) if self.gated else ()),
            self._weight("w_down", *narrow),
        )

    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name="out", shape=(self.arriving(), self.d_model), dtype=self.out_dtype, role="out"),)

    def flops(self) -> dict[str, int]:
        routed = self.tokens * (self.experts_per_token + self.shared_experts)
        product = 2 * routed * self.d_model * self.d_ff
        per_element = {"relu": 1, "gelu": 5, "swiglu": 4}[self.activation]  # as in Ffn
        gate = {"gate": product} if self.gated else {}
        # A chosen expert's result meets its gate and is added up, a shared one's is added.
        combine = self.tokens * self.d_model * (2 * self.experts_per_token + self.shared_experts)
        return {"up": product, **gate, "activation": per_element * routed * self.d_ff, "down": product, "combine": combine}

    def products(self) -> tuple[Product, ...]:
        """Those of routed experts have the tokens of an average expert as rows; shared experts see every token."""
        found = []
        touched = self.touched()
        for term in ("up", "gate", "down") if self.gated else ("up", "down"):
            columns, inner = (self.d_model, self.d_ff) if term == "down" else (self.d_ff, self.d_model)
            rows = self.tokens * self.experts_per_token / touched
            found.append(Product(term=term, count=touched, rows=rows, columns=columns, inner=inner))
            if any_of(self.shared_experts > 0):
                found.append(Product(term=term, count=self.shared_experts, rows=self.tokens, columns=columns, inner=inner))
        return tuple(found)

    def tolerance(self) -> tuple[float, float]:
        """As `Ffn.tolerance`, of experts_per_token results that meet gates of variance 1, and those of the shared experts."""
        one = Ffn(d_model=self.d_model, d_ff=self.d_ff, activation=self.activation, dtype=self.dtype if self._plain() else "fp32")
        absolute, relative = one.tolerance()
        added = self.experts_per_token + self.shared_experts
        return 2 * math.sqrt(added) * absolute, relative

    def initial(self, tensor: str, generator: np.random.Generator) -> Array | None:
        """Every token goes to different experts, of as many as are touched; weights in fp16 are as small as those of `Ffn`."""
        if tensor == "chosen":
            experts = generator.permutation(self.experts)
            if not self.touched_experts:
                return np.stack([generator.permutation(self.experts)[: self.experts_per_token] for _ in range(self.tokens)]).astype(
                    np.int32
                )
            turn = np.arange(self.tokens * self.experts_per_token) % self.touched_experts
            return experts[turn].reshape(self.tokens, self.experts_per_token).astype(np.int32)
        if self.dtype != "fp16" or not tensor.startswith("w_") or not self._plain():
            return None
        shape = next(spec.shape for spec in self.inputs() if spec.name == tensor)
        return references.uniform_fp16(generator, shape, 1 / math.sqrt(shape[1]))

    def routed_rows(self) -> Any:
        """Rows of all experts together: a token is a row of each of its experts."""
        return self.tokens * (self.experts_per_token + self.shared_experts)

    def row_bytes(self, dtype: str = "") -> tuple[Any, Any]:
        """Bytes of all routed rows of width d_model, and of width d_ff."""
        rows, kept = self.routed_rows(), dtype or self.dtype
        return size_bytes((rows, self.d_model), kept), size_bytes((rows, self.d_ff), kept)

    def operations(self) -> dict[str, int]:
        flops = self.flops()
        hidden = self.routed_rows() * self.d_ff
        exps = 0 if self.activation == "relu" else hidden  # erf is an exponential and a polynomial
        return {
            "product": sum(flops[term] for term in ("up", "gate", "down") if term in flops),
            "exp": exps,
            "other": flops["activation"] - exps + flops["combine"],
        }

    def _expert(self, x: Array, tensors: Mapping[str, Array], expert: int) -> Array:
        up = references.matmul(x, tensors["w_up"][expert])
        if self.gated:
            hidden = activated("silu", references.matmul(x, tensors["w_gate"][expert])) * up
        else:
            hidden = activated(self.activation, up)
        return references.matmul(hidden, tensors["w_down"][expert])

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """rows: tokens; out is then [len(rows), d_model]. The shared experts stand behind the others in the weights.

        Raises Error with several ranks: what reaches one is an expectation.
        """
        if self.ranks > 1:
            raise Error(f"{self.name}: ranks {self.ranks} has costs, but no reference; use ranks=1")
        tokens = np.arange(self.tokens) if rows is None else rows
        x, gates, chosen = tensors["x"][tokens], tensors["gates"][tokens], tensors["chosen"][tokens]
        results = np.empty((self.experts_per_token, *x.shape), dtype=x.dtype)
        for expert in np.unique(chosen):  # whose weights are converted once
            token, slot = np.nonzero(chosen == expert)
            results[slot, token] = self._expert(x[token], tensors, int(expert))
        total = references.sum_(results * gates.T[:, :, None], axis=0)
        for expert in range(self.experts, self.experts + self.shared_experts):
            total = total + self._expert(x, tensors, expert)
        return {"out": total}

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        few = {"tokens": 3, "experts": 5, "experts_per_token": 2, "d_model": 4, "d_ff": 3}
        given = (
            {"experts": 1, "experts_per_token": 1, "d_model": 1, "d_ff": 1},
            few,
            {**few, "shared_experts": 1, "touched_experts": 4, "activation": "gelu", "dtype": "fp8_e4m3", "weight_bits": 8.0},
            {**few, "experts_per_token": 5, "activation": "relu", "weight_bits": 4.5},
            {"tokens": 64, "shared_experts": 1, "weight_bits": 8.0, "dtype": "fp8_e4m3"},
            {"tokens": 16384, "weight_bits": 4.5, "dtype": "nvfp4"},
            {"tokens": 64, "ranks": 16, "groups": 8, "groups_per_token": 4, "weight_bits": 8.0, "dtype": "fp8_e4m3"},
        )
        sizes = "tokens experts shared_experts touched_experts d_model d_ff"
        shapes = ((1, 4, 0, 0, 16, 8), (37, 8, 1, 5, 64, 136), (5, 6, 0, 6, 17, 9))
        measured = (
            case
            for dtype, bits in (("fp32", 32.0), ("fp16", 16.0), ("bf16", 16.0))
            for case in cls.grid(
                shapes, sizes, experts_per_token=2, activation=_ACTIVATIONS, dtype=dtype, out_dtype=dtype, weight_bits=bits
            )
        )
        return (*cls.grid(given), *measured)
