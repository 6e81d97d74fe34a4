"""Pictures of the roofline as a model: of problems, whole transformers and machines, datasheet or measured; nothing is measured.

Every function draws on `ax`, or on a new figure where that is None, and returns the Axes; it shows nothing and changes no global
setting. title: instead of its own. Machines, models, problems and phases are objects or words ("H100", "Llama-3-8B", "decode");
sizes are numbers, lists, or words ("1,8,64", "1:1k": every power of two); as `roofline plot` takes them. The function with `_data`
behind its name gives what it draws as flat records (the last ones are notes, as under the picture), and `save_picture` writes both.
All raise Error for what cannot be drawn, naming what is missing.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..census import Census
from ..errors import Error
from ..machine import Given
from ..operators import Operator
from ..transformer import Given as Model
from ..transformer import ModelPrediction, Phase, TransformerConfig
from ..words import hint
from .asked import Phases, Size
from .grid import QUANTITIES, heatmap_grid
from .grid import SEQS as LENGTHS
from .over import BATCHES, OVER, RATES, SEQS, batch_chart, decode_chart, latency_chart, seq_chart
from .placing import PHASES, ceilings_roofs, machines_roofs, placement_roofs, workloads_roofs
from .ridges import Machines, ridge_bars
from .rows import STEP_QUANTITIES, TYPES, operations_bars, profile_bars, steps_bars
from .show import Records, Shown, show, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Paths = tuple[Path, Path, Path]
Work = TransformerConfig | Operator | Mapping[str, Operator] | str  # a model, a problem, several by name, or a name


def ridge_points(machines: Machines, *, ax: Axes | None = None, title: str | None = None, access: str = "read") -> Axes:
    """The ridge points of one or several machines: a row for each compute roof and memory level, its peak over its bandwidth.

    dtypes of one unit and rate share a row. access: of the bandwidth. Numbers come from `roofline.ridge_table`.
    """
    return show(ridge_bars(machines, access=access), ax, title)


def operations(
    model: Work, machine: Given | None = None, *, ax: Axes | None = None, title: str | None = None, phase: Phases = TYPES
) -> Axes:
    """Arithmetic intensity by operation: a row for each kernel of a model, a marker for each phase; or for each problem.

    machine: also the ridge point of each row's arithmetic, as a tick. phase: one or several.
    """
    return show(operations_bars(model, machine, phase=phase), ax, title)


def intensity_over_batch(
    model: Work, machines: Machines = (), *, ax: Axes | None = None, title: str | None = None, batch: Size = BATCHES,
    seq_kv: int | str = 2048,
) -> Axes:  # fmt: skip
    """Arithmetic intensity over the batch: of each product of a decode step and of its attention, or of problems over their rows.

    Ridge points of `machines` are horizontals, and crosses stand where a line meets one. batch: the sizes. seq_kv: context length,
    for attention.
    """
    return show(batch_chart(model, machines, batch=batch, seq_kv=seq_kv), ax, title)


def intensity_over_seq(
    model: Work, machines: Machines = (), *, ax: Axes | None = None, title: str | None = None, seq_q: Size = SEQS, batch: int = 1
) -> Axes:
    """Arithmetic intensity over the sequence length: attention unfused and fused; of a configuration also its phases.

    seq_q: the lengths. batch: sequences. Unfused attention is a kernel for each product and one for the softmax.
    """
    return show(seq_chart(model, machines, seq_q=seq_q, batch=batch), ax, title)


def attention_steps(
    model: Work, machine: Given | None = None, *, ax: Axes | None = None, title: str | None = None,
    quantity: str = "flops_per_byte", seq_len: int = 4096,
) -> Axes:  # fmt: skip
    """Attention step by step, each product and the softmax a kernel of its own, beside all of them and the fused kernel.

    quantity: "flops_per_byte" (with the ridge point of `machine`), "flops" or "bytes". seq_len: tokens, for a configuration.
    """
    return show(steps_bars(model, machine, quantity=quantity, seq_len=seq_len), ax, title)


def workloads(
    machine: Given, work: Work, *, ax: Axes | None = None, title: str | None = None, phase: Phases = PHASES, **options: Any
) -> Axes:
    """A roofline with named workloads: phases of a model at their expected FLOP/s, or problems at what their roofs allow.

    phase: of a configuration (a prefill of 1024; decode steps of batch 1, 32 and 128). options: of `roofline.predict`. What does
    not fit in memory is hollow.
    """
    return show(workloads_roofs(machine, work, phase=phase, **options), ax, title)


def compute_ceilings(
    machine: Given, config: Model, *, ax: Axes | None = None, title: str | None = None, measured: Given | None = None,
    kinds: Sequence[tuple[str, str]] | None = None, batch: int = 16, seq_kv: int = 2048, seq_q: int = 2048,
) -> Axes:  # fmt: skip
    """Five compute ceilings over one memory ceiling, with four dots: decode attention, and the FFN of a token, a batch, a prompt.

    The best products that a library was measured at are lines of their own: those of `measured`, else of `machine`. kinds: other
    ceilings, as (dtype, unit). batch, seq_kv, seq_q: of the dots.
    """
    drawn = ceilings_roofs(machine, config, measured=measured, kinds=kinds, batch=batch, seq_kv=seq_kv, seq_q=seq_q)
    return show(drawn, ax, title)


def machines(
    machines: Machines, work: Work | None = None, *, ax: Axes | None = None, title: str | None = None, dtype: Any = None,
    phase: Phases = PHASES,
) -> Axes:  # fmt: skip
    """Several machines' rooflines in one plot, with workloads as verticals and a dot on each roof.

    dtype: of the arithmetic (bf16, fp16, fp32 or fp64: the first that all have). phase: of a configuration, one or several.
    """
    return show(machines_roofs(machines, work, dtype=dtype, phase=phase), ax, title)


def kernel_placement(census: Census, phase: Phase | None = None, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """The kernels of one phase of a census (None: its first) on the roofs they meet, with their shares of the phase's time.

    Kernels that were measured lie where they were measured. Numbers stand at the dots, names in the legend.
    """
    return show(placement_roofs(census, phase), ax, title)


def decode_over_batch(
    config: Model, machines: Machines, *, ax: Axes | None = None, title: str | None = None, quantity: str = "flops_per_byte",
    batch: Size = BATCHES, seq_kv: int | str = 2048, **options: Any,
) -> Axes:  # fmt: skip
    """A decode step over the batch. quantity: its intensity ("flops_per_byte", with ridge points) or "tokens_per_s".

    batch: the sizes. seq_kv: context length. options: of `roofline.predict`. What does not fit in memory is hollow.
    """
    return show(decode_chart(config, machines, quantity=quantity, batch=batch, seq_kv=seq_kv, **options), ax, title)


def decode_latency(
    config: Model, machines: Machines, *, ax: Axes | None = None, title: str | None = None, over: str = "batch",
    batch: Size | None = None, seq_kv: Size | None = None, **options: Any,
) -> Axes:  # fmt: skip
    """Time per output token over the batch, or with over="seq_kv" over the context length.

    batch, seq_kv: the sizes of the one, and one size of the other (batch 1, 2048 keys). options: of `roofline.predict`. What does
    not fit in memory is hollow.
    """
    return show(latency_chart(config, machines, over=over, batch=batch, seq_kv=seq_kv, **options), ax, title)


def decode_heatmap(
    config: Model, machine: Given, *, ax: Axes | None = None, title: str | None = None, quantity: str = "flops_per_byte",
    batch: Size = BATCHES, seq_kv: Size = LENGTHS, **options: Any,
) -> Axes:  # fmt: skip
    """A decode step over batch and context length. quantity: "flops_per_byte", "bound" or "tokens_per_s".

    The border is where the intensity crosses the ridge point (`roofline.transformer.ridge_batch`); what does not fit in memory is
    hatched. batch, seq_kv: rows and columns. options: of `roofline.predict`.
    """
    return show(heatmap_grid(config, machine, quantity=quantity, batch=batch, seq_kv=seq_kv, **options), ax, title)


def block_profile(prediction: ModelPrediction, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Where a predicted time goes: all of it by the roof it is spent under, then kernel by kernel."""
    return show(profile_bars(prediction), ax, title)


# -- data and files -----------------------------------------------------------------------------------------------------------


def ridge_points_data(machines: Machines, **options: Any) -> Records:
    """element "row": machine, level, dtype, unit, compute_flops_per_s, bandwidth_bytes_per_s, ridge_flops_per_byte."""
    return ridge_bars(machines, **options).records()


def operations_data(
    model: Work, machine: Given | None = None, **options: Any
) -> Records:
    """element "row": flops_per_byte (of each phase) and ridge_flops_per_byte."""
    return operations_bars(model, machine, **options).records()


def intensity_over_batch_data(
    model: Work, machines: Machines = (), **options: Any
) -> Records:
    """element "point", "level" (a ridge point) and "crossing": label, batch, flops_per_byte."""
    return batch_chart(model, machines, **options).records()


def intensity_over_seq_data(model: Work, machines: Machines = (), **options: Any) -> Records:
    """element "point" and "level" (a ridge point): label, seq, flops_per_byte."""
    return seq_chart(model, machines, **options).records()


def attention_steps_data(model: Work, machine: Given | None = None, **options: Any) -> Records:
    """element "row": flops, bytes, flops_per_byte."""
    return steps_bars(model, machine, **options).records()


def workloads_data(machine: Given, work: Work, **options: Any) -> Records:
    """element "memory_roof" and "compute_roof" (the ends of a line), "ridge" and "dot": flops_per_byte, flops_per_s."""
    return workloads_roofs(machine, work, **options).records()


def compute_ceilings_data(machine: Given, config: Model, **options: Any) -> Records:
    """As `workloads_data`; element "library_gemm": what a library's product was measured at."""
    return ceilings_roofs(machine, config, **options).records()


def machines_data(machines: Machines, work: Work | None = None, **options: Any) -> Records:
    """As `workloads_data`; element "guide": a workload's intensity."""
    return machines_roofs(machines, work, **options).records()


def kernel_placement_data(census: Census, phase: Phase | None = None) -> Records:
    """As `workloads_data`; a dot has its phase, group, count, bound, attainable_flops_per_s, time_s, share and measured_s."""
    return placement_roofs(census, phase).records()


def decode_over_batch_data(config: Model, machines: Machines, **options: Any) -> Records:
    """element "point", "level" and "crossing": label, batch, and flops_per_byte or tokens_per_s."""
    return decode_chart(config, machines, **options).records()


def decode_latency_data(config: Model, machines: Machines, **options: Any) -> Records:
    """element "point": label, batch or seq_kv, time_s, fits."""
    return latency_chart(config, machines, **options).records()


def decode_heatmap_data(config: Model, machine: Given, **options: Any) -> Records:
    """element "cell" (flops_per_byte, bound, tokens_per_s, time_s, fits) and "ridge" (the batch where each length crosses it)."""
    return heatmap_grid(config, machine, **options).records()


def block_profile_data(prediction: ModelPrediction) -> Records:
    """element "row": time_s, share, and seconds by roof."""
    return profile_bars(prediction).records()


# What each plot draws from, and the values of the option that makes several panels of it.
_MADE: Mapping[str, tuple[Callable[..., Shown], str, tuple[str, ...]]] = {
    "ridge_points": (ridge_bars, "", ()),
    "operations": (operations_bars, "", ()),
    "intensity_over_batch": (batch_chart, "", ()),
    "intensity_over_seq": (seq_chart, "", ()),
    "attention_steps": (steps_bars, "quantity", STEP_QUANTITIES),
    "workloads": (workloads_roofs, "", ()),
    "compute_ceilings": (ceilings_roofs, "", ()),
    "machines": (machines_roofs, "", ()),
    "kernel_placement": (placement_roofs, "phase", ()),
    "decode_over_batch": (decode_chart, "quantity", RATES),
    "decode_latency": (latency_chart, "over", OVER),
    "decode_heatmap": (heatmap_grid, "quantity", tuple(QUANTITIES)),
    "block_profile": (profile_bars, "prediction", ()),
}


def panels(name: str, *arguments: Any, **options: Any) -> list[Shown]:
    """The pictures that the plot of this name makes: one for each quantity, phase of a census or prediction, unless it is given.

    title: of each of them, in the options.
    """
    if name not in _MADE:
        raise Error(f"there is no plot {name!r:.80}{hint(name, _MADE)}; there are {', '.join(_MADE)}")
    title = options.pop("title", None)
    return [titled(shown, title) for shown in _panels(name, arguments, options)]


def _panels(name: str, arguments: Sequence[Any], options: dict[str, Any]) -> list[Shown]:
    make, option, values = _MADE[name]
    if name == "kernel_placement" and len(arguments) == 1 and "phase" not in options:
        return [make(arguments[0], phase) for phase in arguments[0].phases]
    if name == "block_profile" and isinstance(arguments[0], Sequence):
        return [make(found) for found in arguments[0]]
    if not option or option in options or not values:
        return [make(*arguments, **options)]
    if make is heatmap_grid:  # the same estimates under each
        grid = heatmap_grid(*arguments, **options)
        return [dataclasses.replace(grid, quantity=value) for value in values]
    return [make(*arguments, **{**options, option: value}) for value in values]


def joined(shown: Sequence[Shown]) -> Records:
    """The records of all, with their title as `panel` where there are several."""
    if len(shown) == 1:
        return shown[0].records()
    found = [{"panel": each.title, **record} for each in shown for record in each.records()]
    keys = dict.fromkeys(key for record in found for key in record)
    return [{**dict.fromkeys(keys), **record} for record in found]


def picture_data(name: str, *arguments: Any, **options: Any) -> Records:
    """The records of what `save_picture` draws of these arguments; `panel` is the title of each where there are several."""
    return joined(panels(name, *arguments, **options))


def save_picture(directory: str | os.PathLike[str], name: str, *arguments: Any, **options: Any) -> Paths:
    """Write NAME.svg, NAME.png and NAME.csv into `directory` (made if absent): the plot of that name of these arguments.

    save_picture("pictures", "decode_heatmap", "Llama-3-8B", "H100 SXM"). What a plot shows one of
    at a time (a quantity, a census's phase, one of a list of predictions) stands side by side unless an option picks one. The same
    data gives the same SVG and CSV, byte for byte, with the same matplotlib.
    """
    from .files import save_panels

    shown = panels(name, *arguments, **options)
    return save_panels(directory, name, joined(shown), shown)
