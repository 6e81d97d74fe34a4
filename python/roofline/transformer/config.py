"""What a transformer is made of: dimensions, kinds of layers, and the dtypes its tensors are stored in."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from .._repr import Parts, Row, Shown, printable
from ..dtypes import DTYPES as KNOWN, FLOATS, dtype_name
from ..errors import Error, is_whole, shown
from ..units import fmt_si
from ..words import ByName, require_one_of
from .quantization import Quantization, check_fields, quantization_of

ACTIVATIONS = ("silu", "gelu", "relu")  # the tanh form of gelu counts as gelu
NORMS = ("rms_norm", "layer_norm")
ROUTERS = ("softmax", "sigmoid")
DTYPES = FLOATS  # of a model as it is trained; narrower weights are a Quantization
CACHES = (*DTYPES, "fp8_e4m3", "fp8_e5m2", "int8", "int4")
_OF_EXPERTS = ("experts_per_token", "expert_groups", "groups_per_token", "expert_d_ff", "shared_experts", "shared_d_ff")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig(Shown, ByName):
    """A decoder-only transformer. 0 and "" mean that a part is absent, or as said here.

    Attributes:
        kv_heads: of attention (0: as heads).
        head_dim: of attention (0: d_model / heads).
        window: keys a query sees in `window_layers` (indices; none given: all).
        kv_lora_rank: above 0 it is multi-head latent attention (MLA): queries through q_lora_rank (0: directly), heads of
            nope_head_dim + rope_head_dim for q and k and v_head_dim for v; head_dim and kv_heads then follow.
        d_ff: of dense layers.
        experts: above 0 every layer but `dense_layers` (indices) is a mixture: experts_per_token of `experts` with expert_d_ff
            each, and shared_d_ff of experts that every token meets (all shared_experts together).
        expert_groups: a token chooses within groups_per_token of as many equal groups of neighbouring experts.
        gated: two matrices in (gate and up) instead of one.
        norms: per layer, of d_model.
        qk_norm: of each head of q and k.
        rope_fraction: of head_dim that is rotated (0: no rotation).
        positions: learned ones.
        sinks: one logit per head.
        weights: their dtype.
        activations: their dtype.
        kv: dtype of the KV cache ("": as activations).
        quantization: of the weights, or its name (see SCHEMES).
        unread: keys of its config.json that nothing here reads.
        max_seq: what it was made for (0: not known).

    Raises:
        Error: for missing, contradictory or absurd fields.
    """

    name: str = "transformer"
    layers: int
    d_model: int
    heads: int
    kv_heads: int = 0
    head_dim: int = 0
    d_ff: int = 0
    vocabulary: int

    activation: str = "silu"
    gated: bool = True
    norm: str = "rms_norm"
    norms: int = 2
    qk_norm: bool = False
    tied_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    rope_fraction: float = 1.0
    rope_theta: float = 0.0
    rope_scaling: str = ""
    positions: int = 0
    max_seq: int = 0
    window: int = 0
    window_layers: tuple[int, ...] = ()
    sinks: bool = False

    experts: int = 0
    experts_per_token: int = 0
    expert_groups: int = 0
    groups_per_token: int = 0
    expert_d_ff: int = 0
    shared_experts: int = 0
    shared_d_ff: int = 0
    shared_gate: bool = False
    dense_layers: tuple[int, ...] = ()
    router: str = "softmax"
    router_bias: bool = False

    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    nope_head_dim: int = 0
    rope_head_dim: int = 0
    v_head_dim: int = 0

    weights: str = "bf16"
    activations: str = ""
    kv: str = ""
    quantization: Quantization | None = None
    unread: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    positive: ClassVar[frozenset[str]] = frozenset({"layers", "d_model", "heads", "vocabulary"})

    def __post_init__(self) -> None:
        check_fields(self, self._what, {f.name: 0 for f in fields(self) if f.name not in self.positive})
        for field in ("weights", "activations", "kv"):
            if getattr(self, field):
                object.__setattr__(self, field, dtype_name(getattr(self, field)))
        for field, derived in (("activations", self.weights), ("kv", self.activations or self.weights)):
            if not getattr(self, field):
                object.__setattr__(self, field, derived)
        if self.weights not in DTYPES and self.weights in KNOWN:
            self._refuse(
                f"weights {self.weights} are a quantization: give quantization=Quantization(weights={self.weights!r}), or "
                f"replace(weights={self.weights!r}) in a configuration of {', '.join(DTYPES)}"
            )
        allowed = {
            "weights": DTYPES, "activations": DTYPES, "kv": CACHES, "activation": ACTIVATIONS, "norm": NORMS, "router": ROUTERS,
        }  # fmt: skip
        for field, values in allowed.items():
            require_one_of(f"{self._what}: {field}", getattr(self, field), values)
        if not self.rope_fraction <= 1:
            self._refuse(f"rope_fraction is a share of head_dim from 0 to 1, got {self.rope_fraction}")
        object.__setattr__(self, "quantization", quantization_of(self.quantization))
        self._check_layers("dense_layers", self.experts, "experts")
        self._check_layers("window_layers", self.window, "window")
        self._check_attention()
        self._check_ffn()

    @property
    def _what(self) -> str:
        return f"configuration {shown(self.name)}"

    def _refuse(self, why: str) -> None:
        raise Error(f"{self._what}: {why}")

    def _check_layers(self, field: str, needed: int, what: str) -> None:
        given = getattr(self, field)
        if not isinstance(given, (tuple, list)) or not all(is_whole(i) for i in given):
            self._refuse(f"{field} must be indices of layers, got {shown(given)}")
        object.__setattr__(self, field, tuple(sorted(set(given))))
        if given and not needed:
            self._refuse(f"{field} without {what}: give both or neither")
        if given and not 0 <= min(given) <= max(given) < self.layers:
            outside = min(given) if min(given) < 0 else max(given)
            self._refuse(f"{field} must lie between 0 and layers - 1 = {self.layers - 1}, got {shown(outside)}")

    def _check_attention(self) -> None:
        mla = {name: getattr(self, name) for name in ("nope_head_dim", "rope_head_dim", "v_head_dim")}
        if self.kv_lora_rank:
            if absent := [name for name, value in mla.items() if not value]:
                self._refuse(f"MLA (kv_lora_rank {self.kv_lora_rank}) lacks {', '.join(absent)}")
            width = self.nope_head_dim + self.rope_head_dim
            if self.head_dim not in (0, width) or self.kv_heads not in (0, self.heads):
                self._refuse(f"with MLA head_dim is nope_head_dim + rope_head_dim = {width} and kv_heads is heads: leave both at 0")
            if self.window or self.qk_norm or self.sinks:
                self._refuse("MLA with a window, qk_norm or sinks is not modelled")
            object.__setattr__(self, "head_dim", width)
            object.__setattr__(self, "kv_heads", self.heads)
            return
        if present := [name for name, value in (*mla.items(), ("q_lora_rank", self.q_lora_rank)) if value]:
            self._refuse(f"{', '.join(present)} without kv_lora_rank: these belong to MLA")
        if not self.head_dim:
            if self.d_model % self.heads:
                self._refuse(f"d_model {self.d_model} is not a multiple of heads {self.heads}: give head_dim")
            object.__setattr__(self, "head_dim", self.d_model // self.heads)
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.heads % self.kv_heads:
            self._refuse(f"heads must be a multiple of kv_heads, got heads {self.heads} and kv_heads {self.kv_heads}")
        if self.rotated % 2:
            self._refuse(f"numbers are rotated in pairs, and rope_fraction of head_dim {self.head_dim} are {self.rotated}")

    def _check_ffn(self) -> None:
        if self.experts:
            absent = [name for name in ("experts_per_token", "expert_d_ff") if not getattr(self, name)]
            if absent:
                self._refuse(f"a mixture of {self.experts} experts lacks {', '.join(absent)}")
            if self.experts_per_token > self.experts:
                self._refuse(f"experts_per_token {self.experts_per_token} exceeds experts {self.experts}")
            self._check_groups()
            if bool(self.shared_experts) != bool(self.shared_d_ff):
                self._refuse("give both shared_experts and shared_d_ff (of all of them together), or neither")
        elif present := [name for name in _OF_EXPERTS if getattr(self, name)]:
            self._refuse(f"{', '.join(present)} without experts: give experts too")
        if not self.d_ff and (not self.experts or self.dense_layers):
            self._refuse("dense layers need d_ff")

    def _check_groups(self) -> None:
        groups, drawn = self.expert_groups, self.groups_per_token
        if bool(groups) != bool(drawn):
            self._refuse("give both expert_groups and groups_per_token, or neither")
        if groups and self.experts % groups:
            self._refuse(f"expert_groups {groups} do not divide experts {self.experts}")
        if drawn > groups or (groups and drawn * (self.experts // groups) < self.experts_per_token):
            self._refuse(
                f"groups_per_token {drawn} must be at most expert_groups {groups}, and these groups hold experts_per_token "
                f"{self.experts_per_token}"
            )

    # -- derived ----------------------------------------------------------------------------------------------------------

    @property
    def mla(self) -> bool:
        return self.kv_lora_rank > 0

    @property
    def value_dim(self) -> int:
        """Width of one head of v."""
        return self.v_head_dim if self.mla else self.head_dim

    @property
    def windowed(self) -> int:
        """How many layers see only a window."""
        return (len(self.window_layers) or self.layers) if self.window else 0

    @property
    def mixtures(self) -> int:
        """How many layers are mixtures of experts."""
        return self.layers - len(self.dense_layers) if self.experts else 0

    @property
    def matrices(self) -> int:
        """Matrices of one FFN: up and down, and gate."""
        return 3 if self.gated else 2

    @property
    def rotated(self) -> int:
        """Elements of a head that are rotated."""
        return self.rope_head_dim if self.mla else int(self.head_dim * self.rope_fraction)

    @property
    def kv_width(self) -> int:
        """Elements of the cache per token and layer: K and V of every KV head, or MLA's latent and rotated part."""
        return self.kv_lora_rank + self.rope_head_dim if self.mla else 2 * self.kv_heads * self.head_dim

    def replace(self, **changes: Any) -> TransformerConfig:
        """A changed configuration. A field that followed another (kv_heads, activations, kv) follows it still unless it is given.

        weights: also a narrower dtype, which is that of `Quantization(weights=...)`, scales and all, and leaves all else.
        quantization: also a name of SCHEMES.
        """
        changes = self.expand(changes)
        if "weights" in changes:
            changes["weights"] = dtype_name(changes["weights"])
        if isinstance(narrow := changes.get("weights"), str) and narrow not in DTYPES:
            changes = {name: value for name, value in changes.items() if name != "weights"}
            changes["quantization"] = Quantization(weights=narrow)
        if self.mla:
            changes = {"head_dim": 0, "kv_heads": 0, **changes}
        elif "heads" in changes and self.kv_heads == self.heads:
            changes = {"kv_heads": 0, **changes}
        if "weights" in changes and self.activations == self.weights:
            changes = {"activations": "", **changes}
        if "activations" in changes and self.kv == self.activations:
            changes = {"kv": "", **changes}
        return dataclasses.replace(self, **changes)

    def _attention(self) -> str:
        if self.mla:
            return f"{self.heads} heads, MLA of rank {self.kv_lora_rank}"
        grouped = f", {self.kv_heads} of keys and values" if self.kv_heads != self.heads else ""
        return f"{self.heads} heads of {self.head_dim}{grouped}"

    def _ffn(self) -> str:
        if self.experts:
            shared = f" and {self.shared_experts} shared" if self.shared_experts else ""
            return f"{self.experts_per_token} of {self.experts} experts of {self.expert_d_ff}{shared}"
        return f"d_ff {self.d_ff}"

    def _dtypes(self) -> str:
        narrow = f", weights {self.quantization.weights}" if self.quantization else ""
        return self.activations + narrow + (f", KV cache {self.kv}" if self.kv != self.activations else "")

    def __repr__(self) -> str:
        size = f"{self.layers} layers, d_model {self.d_model}, {self._attention()}, {self._ffn()}, vocabulary {self.vocabulary}"
        return printable(f"TransformerConfig({self.name!r}: {size}, {self._dtypes()})")

    def _table(self) -> Parts:
        from .parameters import active_parameters, total_parameters  # which count this configuration's weights

        active = f", {fmt_si(active_parameters(self), '')} of them for each token" if self.experts else ""
        rows: list[Row] = [
            ("parameters", f"{fmt_si(total_parameters(self), '')}{active}"),
            ("layers", f"{self.layers}" + (f", {self.mixtures} of them mixtures of experts" if self.experts else "")),
            ("d_model", str(self.d_model)),
            ("attention", self._attention() + (f"; {self.windowed} layers see {self.window} keys" if self.window else "")),
            ("FFN", f"{self._ffn()}, {self.activation}{', gated' if self.gated else ''}"),
            ("vocabulary", str(self.vocabulary)),
            ("KV cache", f"{self.kv_width} elements of {self.kv} for each token and layer"),
            ("dtypes", self._dtypes()),
        ]
        return self.name, ("", ""), rows, [f"not read: {', '.join(self.unread)}"] if self.unread else []

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return dataclasses.asdict(self)
