"""A step of training as problems: forward, backward, optimizer.

A product x w has two in its backward pass, dx = dy wᵀ and dw = xᵀ dy. Attention has an operator of its own. What passes over
activations once on the way forward (norms, activation, loss) reads them and a gradient and writes a gradient on the way back: it
counts as twice the forward pass, which is near and labelled "about" in its name. Not in it: data parallelism, clipping, dropout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from .._repr import values_of
from ..errors import Error
from ..operators import Adam, Attention, AttentionBackward, LmHead, QuantizedMatmul, Softmax
from .config import TransformerConfig
from .layers import Call, layer_calls, step_calls
from .parameters import total_parameters
from .phases import Training
from .problems import plain_product
from .ranks import Ranks

ONCE_BACK = ("rope", "embedding", "all-reduce")  # calls whose backward pass costs what the forward pass does


def _product_sizes(call: Call) -> tuple[int, int, int] | None:
    """rows, inner and columns of a plain product."""
    p = call.problem
    if isinstance(p, QuantizedMatmul):
        return p.rows, p.inner, p.columns
    return (p.tokens, p.d_model, p.vocabulary) if isinstance(p, LmHead) else None


def _backward(config: TransformerConfig, phase: Training, call: Call) -> Iterator[Call]:
    c, p = config, call.problem
    if sizes := _product_sizes(call):
        rows, inner, columns = sizes
        yield dataclasses.replace(call, name=f"{call.name}, dx", problem=plain_product(c, rows, columns, inner))
        of_weights = plain_product(c, inner, rows, columns, phase.gradients)
        yield dataclasses.replace(call, name=f"{call.name}, dw", problem=of_weights, weights=())
    elif isinstance(p, Attention):
        back = AttentionBackward(**values_of(p, "batch heads kv_heads seq_q seq_kv head_dim dtype"))
        yield dataclasses.replace(call, name="attention, backward", problem=back, variant="", cached=())
    elif call.name in ONCE_BACK:
        yield dataclasses.replace(call, name=f"{call.name}, backward")
    else:
        yield dataclasses.replace(call, name=f"{call.name}, backward (about)", count=2 * call.count)


def training_calls(
    config: TransformerConfig, phase: Training, r: Ranks, *, lm_head: bool = True, fused: bool = True
) -> Iterator[Call]:
    """Every problem of one step. Raises Error for models whose backward pass is not modelled."""
    c = config
    if c.quantization is not None:
        raise Error(f"training of {c.name}: its weights are quantized; give the dtype to train in, weights='bf16'")
    if what := "MLA" if c.mla else "attention windows and sinks" if c.window or c.sinks else "":
        raise Error(f"training of {c.name}: the backward pass of {what} is not modelled")
    (step,) = phase.steps()
    forward = [call for call in step_calls(c, step, r, lm_head=lm_head, fused=fused) if call.name != "cache write"]
    forward = [dataclasses.replace(call, cached=()) for call in forward if call.name != "all-gather of logits"]
    yield from forward
    if lm_head:
        loss = Softmax(rows=step.logits, columns=r.vocabulary, dtype=c.activations)
        yield Call(name="loss", group="loss", problem=loss)
        yield Call(name="loss, backward (about)", group="loss", problem=loss)
    if phase.recompute == "full":
        for call in layer_calls(c, step, r, fused):
            if call.name != "cache write":
                yield dataclasses.replace(call, name=f"{call.name}, again", cached=())
    for call in reversed(forward):
        yield from _backward(c, phase, call)
    master = phase.master and c.weights != "fp32"
    optimizer = Adam(
        elements=total_parameters(c, tp=r.tp), master=master, dtype=c.weights, gradient_dtype=phase.gradients,
        moment_dtype=phase.moments,
    )  # fmt: skip
    yield Call(name="Adam", group="optimizer", problem=optimizer)


def states_bytes(config: TransformerConfig, phase: Training, r: Ranks) -> dict[str, int]:
    """Memory of gradients and of the optimizer's states."""
    width = {"fp32": 4, "fp16": 2, "bf16": 2}
    count = total_parameters(config, tp=r.tp)
    master = 4 if phase.master and config.weights != "fp32" else 0
    return {"gradients": width[phase.gradients] * count, "optimizer": (master + 2 * width[phase.moments]) * count}


def kept_bytes(config: TransformerConfig, phase: Training, r: Ranks) -> int:
    """Activations that the backward pass reads, with fused norms and attention.

    A layer keeps the inputs of both norms and of its products, q, k, v, the attention's result and one fp32 number per query and
    head, and what goes into and comes out of the activation. recompute="full": each layer's input, and one layer in full. The
    logits are there twice, as themselves and as their gradient.
    """
    c = config
    (step,) = phase.steps()
    tokens, width = step.tokens, 4 if c.activations == "fp32" else 2
    heads = (2 * r.heads + 2 * r.kv_heads) * c.head_dim

    def layer(hidden: int) -> int:
        return tokens * (width * (4 * c.d_model + heads + c.matrices * hidden) + 4 * r.heads)

    mixture = layer(c.experts_per_token * r.expert_d_ff + r.shared_d_ff) if c.mixtures else 0
    dense = layer(r.d_ff) if c.mixtures < c.layers else 0
    logits = 2 * width * step.logits * r.vocabulary
    if phase.recompute == "full":
        return c.layers * tokens * width * c.d_model + max(dense, mixture) + logits
    return (c.layers - c.mixtures) * dense + c.mixtures * mixture + 2 * tokens * width * c.d_model + logits
