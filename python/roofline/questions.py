"""`predict`: the expected time of a problem or of a whole model on a machine, in words or objects, one or a table of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from ._repr import Parts, Records, Row, Shown, text_table
from .errors import Error, plain, require_type
from .machine import Given, Machine, in_order, machine_of, machines_of
from .operators import ALIASES as OPERATOR_ALIASES, OPERATORS, Operator, named_operator, operator_named, problem_of
from .prediction import Prediction, Utilisation, predict_problem
from .reading import SCHEMA_VERSION, is_there
from .transformer import (
    PRESETS,
    Given as Model,
    ModelPrediction,
    Phase,
    Quantization,
    Serving,
    ServingPrediction,
    TransformerConfig,
    model_of,
    phase_of,
    predict_model,
    predict_serving,
)
from .transformer.phases import phase_named
from .transformer.predicting import realistic
from .transformer.records import Note
from .units import MISSING, parse_bytes, parse_rate, parse_time_s
from .words import ALIASES, arguments_checked, hint, nearest, split, whole

MOST = 256  # columns of one table
# Columns that the record of a refused combination lacks: it did not run, so it has no time.
_FIGURES = (
    "time_s", "bound", "flops", "bytes", "flops_per_byte", "flops_per_s", "bytes_per_s", "realistic_s", "ttft_s", "tpot_s",
    "tokens_per_s", "mfu", "mbu",
)  # fmt: skip
Answer = Prediction | ModelPrediction | ServingPrediction
What = Operator | type[Operator] | Model

# Options of one kind of question, with what they are where nothing is said.
_OF_PROBLEMS: Mapping[str, Any] = {"variant": None, "plan": None, "level": None, "threads": None, "unit": None, "knee": None}
_OF_MODELS: Mapping[str, Any] = {
    "weights": None, "activations": None, "kv": None, "quantization": None, "tp": None, "ep": 1, "lm_head": True, "fused": True,
    "counting": "full", "overhead_s": 0.0, "link_bytes_per_s": None, "link_latency_s": 0.0, "memory_share": 1.0,
    "memory_bytes": None, "must_fit": True, "price_per_hour": None,
}  # fmt: skip
_SHARED = ("dtype", "utilisation", "launch_s")
_DTYPES = ("weights", "activations", "kv", "quantization")
# Options that may be words: "2us", "450GB/s", "80GB", "8".
_READ: Mapping[str, Callable[[str], Any]] = {
    "tp": whole, "ep": whole, "threads": whole, "launch_s": parse_time_s, "overhead_s": parse_time_s,
    "link_latency_s": parse_time_s, "link_bytes_per_s": lambda text: parse_rate(text, "B/s"), "memory_bytes": parse_bytes,
}  # fmt: skip
_SINGLE = ("plan", "utilisation")  # whose values may be mappings or have commas


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PredictionTable(Shown, Records, Sequence[Answer | None]):
    """Predictions side by side: a column each.

    Attributes:
        axes: what each differs by, as text.
        refusals: why one is None, else "".
        refused: what `to_records` says of each that is None: what was asked, and the memory that it would take; else {}.
    """

    found: tuple[Answer | None, ...]
    axes: tuple[Mapping[str, str], ...]
    refusals: tuple[str, ...]
    refused: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: Any) -> Any:
        return self.found[index]

    def __iter__(self) -> Iterator[Answer | None]:
        return iter(self.found)

    @property
    def columns(self) -> tuple[str, ...]:
        """The head of each column: "batch 32, NVIDIA H100 SXM"."""
        return tuple(", ".join(x if n in ("machine", "model", "phase") else f"{n} {x}" for n, x in a.items()) for a in self.axes)

    def table(self) -> tuple[Row, list[Row]]:
        """Headers, and a row for each quantity that any prediction has."""
        each = [{} if found is None else found.quantities() for found in self.found]
        names = dict.fromkeys(name for column in each for name in column)
        rows: list[Row] = [(name, *(column.get(name, MISSING) or MISSING for column in each)) for name in names]
        both = any(getattr(found, "realistic_s", None) for found in self.found)
        return ("at best … realistic" if both else "", *self.columns), rows

    @property
    def notes(self) -> tuple[str, ...]:
        """Why a column is empty, and the assumptions, each once."""
        refused = [f"{column}: {why}" for column, why in zip(self.columns, self.refusals, strict=True) if why]
        return (*refused, *dict.fromkeys(note for found in self.found if found is not None for note in found.notes))

    def to_records(self) -> list[dict[str, Any]]:
        """One flat row of numbers for each prediction, units in the names; those refused have their reason under `refused`."""
        return [
            {**known, "refused": why} if found is None else {**found.record(), **({"refused": ""} if any(self.refusals) else {})}
            for found, known, why in zip(self.found, self.refused, self.refusals, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON form: what `roofline predict --json` prints of several."""
        answers = [
            {"axes": dict(axes), "refused": why, "prediction": None if found is None else found.as_answer()}
            for found, axes, why in zip(self.found, self.axes, self.refusals, strict=True)
        ]
        return {"schema_version": SCHEMA_VERSION, "kind": "predictions", "predictions": answers}

    def __repr__(self) -> str:
        return f"PredictionTable({len(self)} predictions: {'; '.join(self.columns[:4])}{'; …' if len(self) > 4 else ''})"

    def __str__(self) -> str:
        return text_table(*self.table())

    def _table(self) -> Parts:
        return repr(self), *self.table(), [f"note: {note}" for note in self.notes]


def subject_of(given: What, dtypes: Mapping[str, Any]) -> Operator | type[Operator] | TransformerConfig:
    """The subject of a question: a problem, an operator that lacks its fields, or a model with these dtypes.

    A name is an operator's (or an alias of one), a preset's, or a path. Raises Error for an unknown one, with those like it.
    """
    if isinstance(given, Operator) or (isinstance(given, type) and issubclass(given, Operator)):
        return given
    if isinstance(given, str) and not given.strip():
        raise Error("predict needs a model or an operator, got an empty name")
    if isinstance(given, str) and not is_there(given, "config.json"):
        if named_operator(given):
            return operator_named(given)
        try:
            return model_of(given, **dtypes)
        except Error as error:
            if not str(error).startswith("no preset"):
                raise
            near = hint(given.rpartition("/")[2], (*PRESETS, *OPERATORS, *OPERATOR_ALIASES))
            raise Error(
                f"{given!r:.80} is neither a model nor an operator{near}: name a preset such as Llama-3-8B, the path of a Hugging "
                "Face config.json, or an operator such as matmul"
            ) from None
    return model_of(given, **dtypes)


def _values(name: str, given: Any) -> list[Any]:
    """The values of one argument: of a list or a comma list all, else the one."""
    if name in _SINGLE:
        return [given]
    if isinstance(given, str) and "," in given:
        return list(split(given))
    if hasattr(given, "__array__") and np.ndim(given):  # NumPy arrays, columns of data frames
        given = np.asarray(given).tolist()
    if isinstance(given, (list, tuple, range)):
        if not given:
            raise Error(f"{name}: the list is empty; give at least one value")
        if len(given) > MOST:
            raise Error(f"{name}: more than {MOST} predictions are too many for a table: give fewer values")
        return [plain(each) for each in given]
    return [given]


@overload
def predict(machine: Machine, what: Operator, **options: Any) -> Prediction: ...
@overload
def predict(machine: Machine, what: TransformerConfig, phase: Phase, **options: Any) -> ModelPrediction: ...
@overload
def predict(machine: Any, what: Any, phase: Any = None, **options: Any) -> Any: ...
@arguments_checked
def predict(
    machine: Given | Sequence[Given],
    what: What | Sequence[What],
    phase: Phase | str | Sequence[Phase | str] | None = None,
    *,
    dtype: Any = None,
    quantization: Quantization | str | None = None,
    weights: Any = None,
    activations: Any = None,
    kv: Any = None,
    tp: int | None = None,
    ep: int = 1,
    lm_head: bool = True,
    fused: bool = True,
    counting: str = "full",
    utilisation: Utilisation | None = None,
    launch_s: float | None = None,
    overhead_s: float = 0.0,
    link_bytes_per_s: float | None = None,
    link_latency_s: float = 0.0,
    memory_share: float = 1.0,
    memory_bytes: float | None = None,
    must_fit: bool = True,
    price_per_hour: float | None = None,
    variant: str | None = None,
    plan: Mapping[str, Any] | None = None,
    level: str | None = None,
    threads: int | None = None,
    unit: str | None = None,
    knee: float | None = None,
    **fields: Any,
) -> Any:
    """The expected time of a problem or of a model's phase on a machine, with nothing measured.

    `predict("8xH100", "Llama-3-70B", "decode", batch=32, seq_kv="8k", weights="fp8")`, `predict("H100", "gemm", M=512, N="8k",
    K="8k", dtype="bf16")`.

    Seconds, rates and sizes may be words too ("2us", "450GB/s", "80GB"). Every argument may be a list, or words with commas: then
    the answer is a `PredictionTable` with a column for each combination, else a `Prediction` of a problem or a `ModelPrediction`,
    of "serving" a `ServingPrediction`: what requests take and cost, `predict("8xH100", "Llama-3-70B", "serving", input_len="1k",
    output_len=256, concurrency=32, price_per_hour=2.5)`.

    Args:
        machine: a Machine, or what `Machine.load` takes.
        what: a problem, an operator or its name (then its fields follow, in our names or the field's: M, N, K, n_heads,
            seq_len), or a model: a TransformerConfig, a preset's name, a config.json.
        phase: of a model, an object or "prefill", "decode" (where nothing is said), "mixed", "training", "serving"; then its
            fields.
        dtype: of a problem; of a model's weights and activations.
        utilisation: the share of the ceilings that is reached, one number or {"compute": 0.7, "bandwidth": 0.8, "link": 0.9}.
        launch_s: of each kernel (None: the machine's latency).
        quantization: of a model: "fp8", "nvfp4", "awq", … (`transformer.config.SCHEMES`), weights and what GEMMs read.
        weights: of a model: a narrower dtype of the weights, scales counted.
        activations: of a model: the dtype that GEMMs read.
        kv: of a model: the dtype of the KV cache.
        fields: of the operator or the phase, and other words for these options.
        tp: ranks of tensor parallelism (None: the devices of "8xH100", else 1).
        ep: ranks of expert parallelism in its place, each with an equal part of the experts and of the sequences.
        lm_head: whether the head counts.
        fused: see `transformer.layers`.
        counting: "full", or "weights_and_kv", which is often done by hand: weights of products and KV cache over bandwidth,
            FLOPs of products over their roof.
        overhead_s: of each pass through the layers.
        link_bytes_per_s: what a rank receives, and sends as much (None: the machine's link).
        link_latency_s: of each collective.
        memory_share: of memory_bytes (None: the machine's) that may be used.
        must_fit: raise Error where it does not fit, naming the largest batch that does.
        price_per_hour: of a device, in serving.
        variant: of a problem: a kernel of this package, whose further traffic and launches count too (None: that of `plan`, else
            the compulsory bytes, in one launch).
        plan: facts of a kernel that ran.
        level: where the operands lie (None: the slowest, a cold run).
        unit: "core" or "tensor".
        knee: p of the sum of levels and arithmetic, 1 to infinity (None: as measured).

    Raises:
        Error: for unknown names, with those that resemble them, for what an operator or ranks refuse, and for missing ceilings.
    """
    arguments = locals()  # as nothing else has a name yet
    given = {name: x for name, x in arguments.items() if name in (*_OF_PROBLEMS, *_OF_MODELS, *_SHARED)} | fields
    with in_order("predict takes the machine first", what):
        machines = machines_of(machine)
    whats = [what] if isinstance(what, str) and os.path.exists(what) else _values("what", what)
    if not machines:
        raise Error("predict needs at least one machine")
    lists = {"machine": machines, "what": whats, "phase": _values("phase", phase)}
    lists |= {name: _values(name, value) for name, value in given.items()}
    several = [name for name, values in lists.items() if len(values) > 1]
    if not several:
        return _one({name: values[0] for name, values in lists.items()})
    combinations = list(itertools.islice(itertools.product(*(lists[name] for name in several)), MOST + 1))
    if len(combinations) > MOST:
        raise Error(f"more than {MOST} predictions are too many for a table: give fewer values of {', '.join(several)}")
    single = {name: values[0] for name, values in lists.items() if len(values) == 1}
    found: list[Answer | None] = []
    refusals: list[str] = []
    refused: list[dict[str, Any]] = []
    first = None
    for combination in combinations:
        question = {**single, **dict(zip(several, combination, strict=True))}
        try:
            found.append(_one(dict(question)))
            refusals.append("")
            refused.append({})
        except Error as error:
            first = first or error
            found.append(None)
            refusals.append(str(error))
            refused.append(_without_room(question, several))
    if first is not None and not any(found):
        raise first
    heads = ["model" if name == "what" else name for name in several]
    axes = tuple(dict(zip(heads, map(_shown, values), strict=True)) for values in combinations)
    return PredictionTable(found=tuple(found), axes=axes, refusals=tuple(refusals), refused=tuple(refused))


def _without_room(question: Mapping[str, Any], several: Sequence[str]) -> dict[str, Any]:
    """The record of what was refused: without times where it lacks room, and of anything else its axes."""
    try:
        known = _one({**question, "must_fit": False}).record()
    except Error:
        return {name: x if isinstance(x, (int, float)) else _shown(x) for name, x in question.items() if name in several}
    return {name: value for name, value in known.items() if name not in _FIGURES}


def _shown(value: Any) -> str:
    if isinstance(value, (Machine, TransformerConfig, Operator)):
        return value.name
    return value.__name__ if isinstance(value, type) else str(value)


def _read(name: str, text: str) -> Any:
    try:
        return _READ[name](text)
    except Error as error:
        raise Error(f"{name}: {error}") from None


def _apart(subject: str, given: Mapping[str, Any], options: Mapping[str, Any], kind: str) -> None:
    """Raises Error for options that belong to the other kind of question."""
    stated = [name for name, usual in options.items() if given[name] is not usual and given[name] != usual]
    if stated:
        raise Error(f"{', '.join(stated)} belong{'s' if len(stated) == 1 else ''} to {kind}, and {subject} is none; leave it out")


def _realism(said: str, usual: Any, best: Any) -> tuple[str, ...]:
    """What `realistic` assumes of the prediction `usual`, and whether that contradicts the one at best."""
    below = "realistic is faster than at best: the machine's kernel times and its ceilings contradict each other; measure it again"
    return (f"realistic: {said}", *([below] if usual.time_s < best.time_s else [])) if said else ()


def _known(subject: Any, fields: Mapping[str, Any], options: Sequence[str]) -> None:
    """Raises Error for a name that is no field of the subject; of one that is nearly an option, with that."""
    try:
        subject.expand(fields)
    except Error:
        names = subject.field_names()
        for name in fields:
            if name not in (*names, *ALIASES) and nearest(name, (*names, *options), 1)[:1] in [[option] for option in options]:
                raise Error(f"predict: unknown argument {name!r:.80}{hint(name, options)}") from None
        raise


def _one(given: dict[str, Any]) -> Answer:
    """One question, each argument one value."""
    machine, what, phase = given.pop("machine"), given.pop("what"), given.pop("phase")
    given |= {name: _read(name, given[name]) for name in _READ if isinstance(given[name], str)}
    shared = {name: given[name] for name in ("utilisation", "launch_s")}
    fields = {name: x for name, x in given.items() if name not in (*_OF_MODELS, *_OF_PROBLEMS, *_SHARED)}
    subject = subject_of(what, {name: given[name] for name in ("dtype", *_DTYPES)})
    if isinstance(subject, TransformerConfig):
        _apart(f"{subject.name}", given, _OF_PROBLEMS, "single problems")
        how = {name: given[name] for name in _OF_MODELS if name not in _DTYPES}
        named = "decode" if phase is None else phase
        kind = phase_named(named) if isinstance(named, str) else named
        require_type("phase", kind, (Phase, type), "a name such as 'decode', or a phase")
        _known(kind, fields, (*_OF_MODELS, *shared, "dtype", "phase"))
        asked = phase_of(named, fields)
        on = machine_of(machine)
        usual, said = realistic(on, {**shared, **how})
        if isinstance(asked, Serving):
            served = predict_serving(on, subject, asked, **shared, **how)
            slower = predict_serving(on, subject, asked, **usual) if said else None
            return replace(served, realistic=slower, notes=(*served.notes, *_realism(said, slower, served)))
        if how.pop("price_per_hour") is not None:
            raise Error(f"price_per_hour belongs to the phase serving, and {asked.name} is another; leave it out")
        found = predict_model(on, subject, asked, **shared, **how)
        if not said:
            return found
        usual.pop("price_per_hour")
        typical = predict_model(on, subject, asked, **{**usual, "must_fit": False})
        assumed = (*found.assumed, *(Note(kind="realistic", text=text) for text in _realism(said, typical, found)))
        return replace(found, realistic_s=typical.time_s, assumed=assumed)
    name = subject.name
    _known(subject, fields, (*_OF_PROBLEMS, *shared))
    if phase is not None:
        raise Error(f"a phase belongs to a model, and {name} is an operator: leave {_shown(phase)!r:.40} out")
    _apart(name, given, _OF_MODELS, "models")
    on = machine_of(machine)
    known = subject.field_names()
    if on.devices > 1:
        if "ranks" not in known:
            raise Error(f"{name} runs on one device, and {on.name} is {on.devices}: name one, or a model")
        if isinstance(subject, type):
            fields.setdefault("ranks", on.devices)
    if given["dtype"] is not None:
        fields["dtype"] = given["dtype"]
    options = {option: given[option] for option in _OF_PROBLEMS}
    return predict_problem(on, problem_of(subject, fields), **shared, **options)
