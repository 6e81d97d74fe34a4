"""Explorers for notebooks: sliders move a problem on a machine's roofline, or a model's phase through its parts.

The controls are ipywidgets' (the extra `widgets`); without them the same question is answered by a still picture, which says so.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import plot
from ._repr import html_table, printable
from .counts import summed
from .dtypes import DTYPES
from .errors import Error, is_whole
from .machine import Given, Machine, machines_of
from .operators import Operator, operator_named
from .prediction import Prediction
from .questions import predict
from .transformer import Given as Model, ModelPrediction, TransformerConfig, model_of
from .units import fmt_number, fmt_percent, fmt_si

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SLIDERS = "for sliders: pip install 'roofline[widgets]'"
# Values of the sliders. Other sizes take the default, and up to 16 times more or less.
VALUES: Mapping[str, tuple[int, ...]] = {
    "batch": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    "seq_q": (1, 2, 4, 8, 16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768),
    "seq_kv": (1, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072),
    "heads": (1, 2, 4, 8, 16, 32, 64, 128),
    "kv_heads": (1, 2, 4, 8, 16, 32, 64, 128),
    "head_dim": (32, 64, 128, 256, 512),
}
STILL = {"seq_q": (1, 16, 256, 4096), "batch": (1, 64)}  # the grid of the still picture
BEST = "any"  # of the list of variants: compulsory bytes in one launch, whatever kernel does it
POINT = "explored"  # gid of what moves


def _widgets() -> Any:
    """ipywidgets, or None where it is not installed."""
    return import_module("ipywidgets") if find_spec("ipywidgets") else None


class Explorer:
    """Controls by name, the prediction for their values, its text, and the picture that shows it.

    controls: ipywidgets; setting the `.value` of one moves its slider. prediction: None where a combination is
    refused; text then says why.
    """

    def __init__(
        self, controls: Mapping[str, Any], ask: Callable[[Mapping[str, Any]], Any], draw: Callable[[Any, Axes], None],
        rows: Callable[[Any], list[tuple[str, str]]], size: tuple[float, float],
    ) -> None:  # fmt: skip
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        widgets = _widgets()
        self.controls, self._ask, self._draw, self._rows = dict(controls), ask, draw, rows
        self.prediction: Prediction | ModelPrediction | None = None
        self.text = ""
        self._figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(self._figure)
        self.ax: Axes = self._figure.add_subplot()
        self._words, self._image = widgets.HTML(), widgets.Image(format="png")
        box = widgets.HBox(list(self.controls.values()), layout={"flex_flow": "row wrap"})
        self.widget = widgets.VBox([box, self._words, self._image])
        for control in self.controls.values():
            control.observe(self._update, names="value")
        self._update()

    @property
    def values(self) -> dict[str, Any]:
        """The value of each control."""
        return {name: control.value for name, control in self.controls.items()}

    def _update(self, change: Any = None) -> None:
        try:
            self.prediction = self._ask(self.values)
            rows = self._rows(self.prediction)
        except Error as error:
            self.prediction, rows = None, [("not possible", str(error))]
        self.text = "; ".join(f"{name} {value}" for name, value in rows)
        self._words.value = html_table(("", ""), rows)
        self._draw(self.prediction, self.ax)
        picture = io.BytesIO()
        self._figure.savefig(picture, format="png", dpi=100)
        self._image.value = picture.getvalue()

    def _repr_mimebundle_(self, **how: Any) -> Any:
        return self.widget._repr_mimebundle_(**how)

    def __repr__(self) -> str:
        return printable(f"Explorer({self.text})")


def _slider(name: str, values: Sequence[Any], value: Any) -> Any:
    options = sorted({*values, value})
    return _widgets().SelectionSlider(options=options, value=value, description=name, continuous_update=False)


def _list(name: str, options: Sequence[Any], value: Any) -> Any:
    return _widgets().Dropdown(options=list(dict.fromkeys((*options, value))), value=value, description=name)


def _named(machines: Sequence[Machine]) -> dict[str, Machine]:
    if not machines:
        raise Error("explore needs at least one machine")
    return {machine.name: machine for machine in machines}


def _dtypes(machines: Sequence[Machine], chosen: str) -> list[str]:
    """Those that some machine has a compute roof for."""
    have = {c.dtype for machine in machines for c in machine.roofs("compute")} | {chosen}
    return [name for name in DTYPES if name in have]


# -- a problem on the roofline ------------------------------------------------------------------------------------------------


def _answer(p: Prediction) -> list[tuple[str, str]]:
    problem = {} if p.problem is None else p.problem.to_dict()
    tokens = problem.get("tokens") or problem.get("batch", 0) * problem.get("seq_q", 0)
    rows = [
        ("bound", f"{p.bound}, {fmt_percent(p.roof_s / p.time_s)} of its roof"),
        ("time", fmt_si(p.time_s, "s")),
        ("rate", f"{fmt_si(p.flops_per_s, 'FLOP/s')}, {fmt_si(p.bytes_per_s, 'B/s')}"),
        ("intensity", f"{fmt_number(p.flops_per_byte)} FLOP/byte"),
    ]
    return [*rows, ("tokens", f"{fmt_si(tokens / p.time_s, 'tok/s')} through this operator")] if tokens else rows


class _Roofline:
    """The roofline of a machine, drawn when the machine or dtype changes; the point alone moves else."""

    def __init__(self, machine: Callable[[], Machine]) -> None:
        self.machine, self.drawn = machine, ""

    def __call__(self, prediction: Prediction | None, ax: Axes) -> None:
        machine = self.machine()
        if self.drawn != machine.name:
            ax.clear()
            plot.roofline(machine, ax=ax)
            self.limits = ax.get_xlim(), ax.get_ylim()
            for colour, marker in (("#D55E00", "o"), ("#5F6368", "_")):
                ax.plot([], [], marker, color=colour, markersize=10, zorder=6, gid=f"{POINT} {marker}")
            self.drawn = machine.name
        point, roof = (next(line for line in ax.lines if line.get_gid() == f"{POINT} {marker}") for marker in "o_")
        if prediction is None or not prediction.flops or not prediction.bytes:
            point.set_data([], [])
            roof.set_data([], [])
            return
        x, y = prediction.flops_per_byte, prediction.flops_per_s
        point.set_data([x], [y])
        roof.set_data([x], [prediction.flops / prediction.roof_s])
        (left, right), (low, high) = self.limits
        ax.set_xlim(min(left, x / 2), max(right, x * 2))
        ax.set_ylim(min(low, y / 2), max(high, y * 2))


def explore(
    machine: Given | Sequence[Given], operator: str | type[Operator] = "attention", *, variant: str | None = None, **fields: Any
) -> Explorer | Axes:
    """Sliders for the fields of an operator, a machine, a dtype and a variant: its point moves on the roofline.

    `explore("H100")`, `explore([mine, "H100"], "matmul", rows=1)`. The text says bound, time, rates and tokens/s, by `predict`.

    Without ipywidgets it draws a still picture over sequence and batch (or of the one problem) and returns its Axes.

    Args:
        machine: one or several, each a Machine or what `Machine.load` takes.
        variant: a kernel of ours (None: compulsory bytes in one launch).
        fields: where the sliders begin (of attention: a decode step, batch 1, 4096 tokens in the cache).

    Raises:
        Error: for unknown machines, operators and fields.
    """
    machines = _named(machines_of(machine))
    cls = operator_named(operator) if isinstance(operator, str) else operator
    begin = {"seq_q": 1, "seq_kv": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128} if cls.name == "attention" else {}
    first = next(iter(machines.values()))
    known = _dtypes(list(machines.values()), "fp32")
    start = cls.make(**{"dtype": "bf16" if "bf16" in known else "fp32", **begin, **fields})
    if variant is not None:
        start.require_variant(variant)
    values = start.to_dict()
    if _widgets() is None:
        return _still(first, start, variant)
    controls = {
        name: _slider(name, VALUES.get(name) or [*(value << k for k in range(5)), *(value >> k or 1 for k in range(5))], value)
        for name, value in values.items()
        if is_whole(value) and value > 0
    }
    controls |= {
        name: _widgets().Checkbox(value=value, description=name) for name, value in values.items() if isinstance(value, bool)
    }
    controls["dtype"] = _list("dtype", known, values.get("dtype", "fp32"))
    controls["machine"] = _list("machine", list(machines), first.name)
    controls["variant"] = _list("variant", (BEST, *start.variants), variant or BEST)

    def ask(chosen: Mapping[str, Any]) -> Prediction:
        given = {name: value for name, value in chosen.items() if name not in ("machine", "variant")}
        own = None if chosen["variant"] == BEST else chosen["variant"]
        found: Prediction = predict(machines[chosen["machine"]], cls.make(**{**values, **given}), variant=own)
        return found

    draw = _Roofline(lambda: machines[controls["machine"].value])
    return Explorer(controls, ask, draw, _answer, (9.0, 5.2))


def _still(machine: Machine, start: Operator, variant: str | None) -> Axes:
    names = [name for name in STILL if name in start.field_names()]
    problems: list[tuple[str, Operator]] = [("", start)]
    for name in names:
        pairs = [(value, said, each) for said, each in problems for value in STILL[name]]
        problems = [(f"{said} {name} {value}".strip(), each.replace(**{name: value})) for value, said, each in pairs]
    found = [(said or start.name, predict(machine, each, variant=variant)) for said, each in problems]
    points = [(said, p.flops_per_byte, p.flops_per_s) for said, p in found if p.flops and p.bytes]
    return plot.roofline(machine, points=points, title=f"{start.name} on {machine.name}; {SLIDERS}")


# -- a model ------------------------------------------------------------------------------------------------------------------


def _model_answer(p: ModelPrediction) -> list[tuple[str, str]]:
    return [
        ("bound", p.bound),
        ("time", fmt_si(p.time_s, "s")),
        ("pace", f"{fmt_si(p.tokens_per_s, 'tok/s')}, {fmt_si(p.tokens_per_s_per_user, 'tok/s')} for each sequence"),
        ("intensity", f"{fmt_number(p.flops_per_byte)} FLOP/byte"),
        ("memory", p.memory.text),
    ]


def _parts(prediction: ModelPrediction | None, ax: Axes) -> None:
    """A bar for each part, longest on top, in milliseconds."""
    ax.clear()
    if prediction is None:
        ax.set_axis_off()
        return
    ax.set_axis_on()
    seconds = summed((part.call.name, part.time_s) for part in prediction.parts)
    ordered = sorted(seconds.items(), key=lambda item: item[1])
    bars = ax.barh([printable(name) for name, _ in ordered], [1e3 * value for _, value in ordered], color="#0072B2", height=0.7)
    ax.bar_label(bars, [f"{fmt_si(value, 's')}, {fmt_percent(value / prediction.time_s, 2)}" for _, value in ordered], padding=4)
    ax.margins(x=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("time [ms]")
    ax.set_title(printable(prediction.title), fontsize=10, loc="left")


def explore_model(
    machine: Given | Sequence[Given], config: Model | Sequence[Model], phase: str = "decode", *, batch: int = 1,
    seq: int = 4096, tp: int = 1, weights: str = "bf16", kv: str = "bf16",
) -> Explorer | Axes:  # fmt: skip
    """Lists and sliders for model, machine, phase, batch, length, tensor parallelism and dtypes: the time of each part.

    `explore_model(["H100", "A100"], "Llama-3-8B")`. The text says bound, time, tok/s and memory, as `predict` does, and what does
    not fit.

    Without ipywidgets it draws `plot.decode_heatmap` of the first model and machine and returns its Axes.

    Args:
        machine: one or several, each a Machine or what `Machine.load` takes.
        config: likewise, each a TransformerConfig, a preset's name or a config.json.
        seq: tokens in the KV cache of a decode step, or of the prompt of a prefill.
        weights: dtype of the weights.
        kv: dtype of the KV cache.

    Raises:
        Error: for unknown names.
    """
    machines = _named(machines_of(machine))
    given = [config] if isinstance(config, (str, TransformerConfig)) or not isinstance(config, Sequence) else list(config)
    models = {each.name: each for each in map(model_of, given)}
    if phase not in ("prefill", "decode"):
        raise Error(f"explore_model: phase must be prefill or decode, got {phase!r:.80}")
    first, model = next(iter(machines.values())), next(iter(models.values()))
    if _widgets() is None:
        return plot.decode_heatmap(first, model, title=f"{model.name} on {first.name}; {SLIDERS}")
    narrow = ("bf16", "fp8_e4m3", "int8", "int4")
    controls = {
        "model": _list("model", list(models), model.name),
        "machine": _list("machine", list(machines), first.name),
        "phase": _list("phase", ("decode", "prefill"), phase),
        "batch": _slider("batch", VALUES["batch"], batch),
        "seq": _slider("length", VALUES["seq_kv"], seq),
        "tp": _slider("tp", (1, 2, 4, 8), tp),
        "weights": _list("weights", narrow, weights),
        "kv": _list("KV cache", narrow[:3], kv),
    }

    def ask(chosen: Mapping[str, Any]) -> ModelPrediction:
        length = "seq_kv" if chosen["phase"] == "decode" else "seq_q"
        found: ModelPrediction = predict(
            machines[chosen["machine"]], models[chosen["model"]], chosen["phase"], batch=chosen["batch"], **{length: chosen["seq"]},
            tp=chosen["tp"], weights=chosen["weights"], kv=chosen["kv"], must_fit=False,
        )  # fmt: skip
        return found

    return Explorer(controls, ask, _parts, _model_answer, (9.0, 4.6))
