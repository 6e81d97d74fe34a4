"""What pictures take, as callers give it: axes, phases, models and problems, in words or as objects."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from ..errors import Error, is_whole
from ..operators import Operator, problem_of
from ..questions import subject_of
from ..results import Measurement, Results
from ..transformer import Phase, TransformerConfig, model_of, phase_of
from ..words import numbers, require_one_of, split, whole

Size = int | str | Iterable[int]  # of an axis, see `checked`
Work = TransformerConfig | Operator | Mapping[str, Operator] | str  # a model, a problem, several by name, or a name
Measured = Iterable[Measurement] | Measurement | str | os.PathLike[str]  # results, or their file or folder


def checked(name: str, values: Size) -> tuple[int, ...]:
    """Sizes of an axis, in order and each once: numbers, or words such as "1,8,64" and "1:1k". Raises Error."""
    given: Any = numbers(values) if isinstance(values, str) else values if several_in(values) else (values,)
    found: tuple[Any, ...] = tuple(given)
    found = tuple(whole(n) if isinstance(n, str) else n for n in found)
    if not found or not all(is_whole(n) and n >= 1 for n in found):
        raise Error(f"{name} must be whole numbers from 1, got {', '.join(map(str, found)) or 'none'}")
    return tuple(sorted(set(found)))


def several_in(values: Any) -> bool:
    """Whether an axis is given by a list."""
    return isinstance(values, Iterable) and not isinstance(values, str)


def one_of_axis(values: Size | None, usual: int) -> int:
    """The size of a field that is no axis here: the one that is given, else the usual one."""
    if values is None:
        return usual
    found = checked("sizes", values)
    return found[0] if len(found) == 1 else usual


def single(name: str, value: Size) -> int:
    """One size. Raises Error for several."""
    found = checked(name, value)
    if len(found) != 1:
        raise Error(f"{name} is one number here, got {len(found)}")
    return found[0]


def axis(name: str, values: Size | None, usual: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of an axis: those that are given where they are several or a list, else the usual ones."""
    found = usual if values is None else checked(name, values)
    return found if len(found) > 1 or several_in(values) else usual


def modelled(model: Any, how: Mapping[str, Any]) -> tuple[TransformerConfig, dict[str, Any]]:
    """A model in words or as an object, with the dtypes among `how`; and the rest of `how` that was given. Raises Error."""
    dtypes = {name: how[name] for name in ("dtype", "weights", "activations", "kv", "quantization") if name in how}
    return model_of(model, **dtypes), {name: value for name, value in how.items() if name not in dtypes and value is not None}


def work_of(given: Any) -> Any:
    """Problems as they are, and a model or an operator by its name. Raises Error for an unknown one."""
    if not isinstance(given, (str, os.PathLike)):
        return given
    found = subject_of(given, {})
    return found if isinstance(found, TransformerConfig) else problem_of(found)


def phases_of(how: MutableMapping[str, Any], usual: Sequence[Phase]) -> tuple[Phase, ...]:
    """The phases that keywords ask for, which are taken out: phase, objects or words, and batch, seq_q and seq_kv of words.

    Without any of them the usual ones. Raises Error.
    """
    given, sizes = how.pop("phase", None), {name: how.pop(name, None) for name in ("batch", "seq_q", "seq_kv")}
    words = isinstance(given, str) or given is None
    if given is None and not any(value is not None for value in sizes.values()):
        return tuple(usual)
    if not words:
        each = [given] if isinstance(given, Phase) else list(given)
        return tuple(phase_of(phase) for phase in each)
    names = split(given) if given is not None else list(dict.fromkeys(phase.name for phase in usual))
    found = []
    for name, batch in itertools.product(dict.fromkeys(names), checked("batch", 1 if sizes["batch"] is None else sizes["batch"])):
        length = "seq_q" if phase_of(name).name in ("prefill", "training") else "seq_kv"
        given_length = {} if sizes[length] is None else {length: single(length, sizes[length])}
        usual_length = next(({length: getattr(p, length)} for p in usual if given is None and p.name == name), {})
        found.append(phase_of(name, {"batch": batch, **usual_length, **given_length}))
    return tuple(found)


def named(work: Operator | Mapping[str, Operator]) -> dict[str, Operator]:
    """Problems with their names. Raises Error where there is none."""
    found = {work.name.replace("_", " "): work} if isinstance(work, Operator) else dict(work)
    if not found:
        raise Error("give at least one problem to draw")
    return found


def results_of(given: Measured | None) -> list[Measurement]:
    """Measurements, or those of a results.jsonl or of the folder that it is in. Raises Error where they cannot be read."""
    if given is None:
        return []
    if isinstance(given, Measurement):
        return [given]
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        return list(Results.load(os.path.join(path, "results.jsonl") if os.path.isdir(path) else path))
    found = list(given) if isinstance(given, Iterable) else [given]
    if wrong := [type(each).__name__ for each in found if not isinstance(each, Measurement)]:
        raise Error(f"results must be measurements, a results.jsonl or its folder, got {wrong[0]}; points of your own are points=")
    return found


# What predictions call a quantity, and its name in records.
QUANTITIES: Mapping[str, str] = {
    "tpot": "time_s", "ttft": "time_s", "time": "time_s", "tokens": "tokens_per_s", "tok/s": "tokens_per_s",
    "intensity": "flops_per_byte", "flop/byte": "flops_per_byte", "flop/s": "flops_per_s", "b/s": "bytes_per_s",
}  # fmt: skip


def wanted(name: str, given: str | None, allowed: Sequence[str]) -> tuple[str, ...]:
    """The panels that are asked for: the one that is given, or all. Quantities by the words of predictions too, such as TPOT."""
    if given is None:
        return tuple(allowed)
    known = QUANTITIES.get(given.lower(), given) if isinstance(given, str) else given
    return (known if known in allowed else require_one_of(name, given, allowed),)
