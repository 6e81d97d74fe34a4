"""The problems of a forward pass, part by part: what whole-model predictions are made of.

Each part names the operator that stands for it, so that FLOPs and bytes are counted once, by the operators. Parts as serving
engines fuse them: q, k and v in one product, gate and up in one, the residual added by the norm, one attention kernel that keeps
its scores on the chip. `fused=False` takes these apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..counts import any_of
from ..operators import Operator
from . import problems
from .config import TransformerConfig
from .phases import Segment, Step
from .ranks import Ranks

GROUPS = ("embedding", "attention", "ffn", "norm", "head", "communication", "loss", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One problem and how often a phase runs it.

    sharded: whether tensor parallelism divides it. variant: a kernel of ours whose traffic
    counts ("": none, the compulsory bytes). cached: names of its tensors that
    lie in the KV cache. weights: names of those that are weights of a product; norms, tables and sinks are not in it.
    """

    name: str
    group: str
    problem: Operator
    count: int = 1
    sharded: bool = True
    variant: str = ""
    cached: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()

    def _read(self, names: tuple[str, ...]) -> int:
        return sum(t.moved_bytes for t in self.problem.inputs() if t.name in names)

    @property
    def weights_bytes(self) -> int:
        """Read by one run."""
        return self._read(self.weights)

    @property
    def cached_bytes(self) -> int:
        """Read from the KV cache by one run."""
        return self._read(self.cached)


def _product(name: str, problem: Operator, *, group: str = "ffn", count: int = 1, sharded: bool = True, **more: Any) -> Call:
    return Call(name=name, group=group, problem=problem, count=count, sharded=sharded, weights=problems.WEIGHTS, **more)


def _heads_attention(config: TransformerConfig, r: Ranks, step: Step, fused: bool) -> Iterator[Call]:
    """One layer's calls in front of multi-head or grouped-query attention."""
    c, tokens = config, step.tokens
    q, kv = r.heads * c.head_dim, r.kv_heads * c.head_dim
    if fused:
        yield _product("q, k and v", problems.product(c, "attention", tokens, c.d_model, q + 2 * kv), group="attention")
    else:
        yield _product("q", problems.product(c, "attention", tokens, c.d_model, q), group="attention")
        yield _product("k or v", problems.product(c, "attention", tokens, c.d_model, kv), group="attention", count=2)
    if c.qk_norm:
        yield Call(name="norm of q", group="norm", problem=problems.norm(c, tokens * r.heads, c.head_dim))
        yield Call(name="norm of k", group="norm", problem=problems.norm(c, tokens * r.kv_heads, c.head_dim))
    if c.rotated:
        yield Call(name="rope", group="attention", problem=problems.rope(c, tokens, r.heads, r.kv_heads))
    yield Call(name="cache write", group="attention", problem=problems.cache_write(c, tokens * 2 * kv))


def _attention(config: TransformerConfig, r: Ranks, segment: Segment, window: int, fused: bool) -> Call:
    return Call(
        name=f"attention, window {window}" if window else "attention",
        group="attention",
        problem=problems.attention(config, r.heads, r.kv_heads, segment, window),
        variant="" if fused else "naive",
        cached=problems.CACHED,
    )


def _latent_attention(config: TransformerConfig, r: Ranks, step: Step) -> Iterator[Call]:
    """One layer's calls around MLA, its attention included.

    Few new tokens work in the latent space (absorbed form); more of them on keys and values of every head, which are made from the
    latents of all their keys.
    """
    c, tokens = config, step.tokens
    latent = c.kv_lora_rank + c.rope_head_dim
    queries = r.heads * c.head_dim
    # Every rank needs all of the latents: the ways down to them are not divided.
    down = problems.product(c, "attention", tokens, c.d_model, c.q_lora_rank + latent)
    yield _product("q and kv down" if c.q_lora_rank else "kv down", down, group="attention", sharded=False)
    if not c.q_lora_rank:
        yield _product("q", problems.product(c, "attention", tokens, c.d_model, queries), group="attention")
    else:
        yield Call(name="norm of q latent", group="norm", problem=problems.norm(c, tokens, c.q_lora_rank), sharded=False)
        yield _product("q up", problems.product(c, "attention", tokens, c.q_lora_rank, queries), group="attention")
    yield Call(name="norm of kv latent", group="norm", problem=problems.norm(c, tokens, c.kv_lora_rank), sharded=False)
    yield Call(name="rope", group="attention", problem=problems.rope(c, tokens, r.heads, 1))
    yield Call(name="cache write", group="attention", problem=problems.cache_write(c, tokens * latent), sharded=False)
    for s in step.segments:
        if absorbed(s):
            into, out_of = problems.absorbed(c, r.heads, s.tokens)
            yield _product("q into latent", into, group="attention")
            latent_attention = problems.mla_decode(c, r.heads, s)
            yield Call(name="attention", group="attention", problem=latent_attention, cached=problems.CACHED)
            yield _product("latent into v", out_of, group="attention")
        else:
            width = r.heads * (c.nope_head_dim + c.v_head_dim)
            up = problems.product(c, "attention", s.batch * s.seq_kv, c.kv_lora_rank, width)
            yield _product("k and v up", up, group="attention", cached=("a",) if s.longer_than(s.seq_q) else ())
            yield Call(name="attention", group="attention", problem=problems.mla_prefill(c, r.heads, s))


def absorbed(segment: Segment) -> bool:
    """Whether MLA attends in the latent space: where few new tokens meet many cached ones."""
    return segment.seq_q <= 8 and segment.longer_than(segment.seq_q)


def _ffn(config: TransformerConfig, tokens: int, d_ff: int, whose: str, fused: bool) -> Iterator[Call]:
    """A dense FFN of (local) width d_ff. whose: in front of the names."""
    c = config
    if c.gated and not fused:
        yield _product(f"{whose}gate or up", problems.product(c, "ffn", tokens, c.d_model, d_ff), count=2)
    else:
        wide = problems.product(c, "ffn", tokens, c.d_model, d_ff * (c.matrices - 1))
        yield _product(f"{whose}gate and up" if c.gated else f"{whose}up", wide)
    yield Call(name=f"{whose}activation", group="ffn", problem=problems.activation(c, tokens, d_ff))
    yield _product(f"{whose}down", problems.product(c, "ffn", tokens, d_ff, c.d_model))


def _mixture(config: TransformerConfig, r: Ranks, tokens: int, fused: bool) -> Iterator[Call]:
    """Router, experts and shared experts of one layer.

    Each of tp ranks holds its part of every expert. Each of ep ranks sends its tokens to the ranks of their experts and gets the
    results back: one row for each rank that a token goes to.
    """
    c = config
    routed = problems.experts(c, tokens, r.expert_d_ff, r.ep)
    yield _product("router", problems.plain_product(c, tokens, c.d_model, c.experts), sharded=False)
    yield Call(name="top-k", group="ffn", problem=problems.top_k(c, tokens), sharded=False)
    if r.ep > 1:
        sent = problems.all_to_all(c, routed, routed.dtype)
        yield Call(name="dispatch", group="communication", problem=sent, sharded=False)
    yield _product("experts", routed)
    if r.ep > 1:
        back = problems.all_to_all(c, routed, c.activations)
        yield Call(name="combine", group="communication", problem=back, sharded=False)
    if c.shared_experts:
        yield from _ffn(c, tokens, r.shared_d_ff, "shared ", fused)
    if c.shared_gate:
        yield _product("shared gate", problems.plain_product(c, tokens, c.d_model, 1), sharded=False)


def _times(calls: Iterable[Call], count: int) -> Iterator[Call]:
    for call in calls:
        yield dataclasses.replace(call, count=call.count * count)


def layer_calls(config: TransformerConfig, step: Step, r: Ranks, fused: bool = True) -> Iterator[Call]:
    """The problems of all layers in one step, norms and collectives included."""
    c, tokens = config, step.tokens
    if c.mla:
        yield from _times(_latent_attention(c, r, step), c.layers)
    else:
        yield from _times(_heads_attention(c, r, step, fused), c.layers)
        for segment in step.segments:
            if full := c.layers - c.windowed:
                yield from _times([_attention(c, r, segment, 0, fused)], full)
            if c.windowed:
                yield from _times([_attention(c, r, segment, c.window, fused)], c.windowed)
    out = problems.product(c, "output", tokens, r.heads * c.value_dim, c.d_model)
    yield _product("output projection", out, group="attention", count=c.layers)
    if dense := c.layers - c.mixtures:
        yield from _times(_ffn(c, tokens, r.d_ff, "", fused), dense)
    if c.mixtures:
        yield from _times(_mixture(c, r, tokens, fused), c.mixtures)
    # The first norm of a step has no residual to add yet; the one before the head adds the last. A layer adds two residuals, or
    # both at once where it has one norm; norms beyond two are those of what attention and FFN give.
    added = min(c.norms, 2) * c.layers
    plain = problems.norm(c, tokens, c.d_model)
    yield Call(name="norm", group="norm", problem=plain, count=c.norms * c.layers + 1 - added, sharded=False)
    if added:
        joint = problems.residual_norm(c, tokens)
        yield Call(name="residual and norm", group="norm", problem=joint, count=added, sharded=False)
    if r.tp > 1:
        reduced = problems.all_reduce(c, tokens, r.tp)
        yield Call(name="all-reduce", group="communication", problem=reduced, count=2 * c.layers + 1, sharded=False)


def step_calls(config: TransformerConfig, step: Step, r: Ranks, *, lm_head: bool = True, fused: bool = True) -> Iterator[Call]:
    """Every problem of one forward pass."""
    c = config
    yield Call(name="embedding", group="embedding", problem=problems.embedding(c, step.tokens), sharded=False)
    yield from layer_calls(c, step, r, fused)
    if lm_head and any_of(step.logits):
        yield _product("lm_head", problems.lm_head(c, step.logits, r.vocabulary), group="head")
        if r.tp > 1:
            gathered = problems.all_gather(c, step.logits, r.vocabulary, r.tp)
            yield Call(name="all-gather of logits", group="communication", problem=gathered, sharded=False)
