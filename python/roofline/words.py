"""Words as people write them: numbers such as "8k", lists, names that are nearly right, and the field's names of dimensions."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from .errors import Error, plain, shown

_WHOLE = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*([kKmM]?)")
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20}

# Names of dimensions elsewhere, and ours. Where several are named, the first that a problem or phase has is meant.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "M": ("rows", "tokens"), "N": ("columns", "vocabulary"), "K": ("inner", "d_model"),
    "m": ("rows", "tokens"), "n": ("columns", "vocabulary"), "k": ("inner", "d_model"),
    "bs": ("batch",), "batch_size": ("batch",), "num_seqs": ("batch",), "concurrency": ("batch",),
    "n_heads": ("heads",), "num_heads": ("heads",), "num_attention_heads": ("heads",), "nheads": ("heads",),
    "n_kv_heads": ("kv_heads",), "num_kv_heads": ("kv_heads",), "num_key_value_heads": ("kv_heads",),
    "head_size": ("head_dim",), "d_head": ("head_dim",), "hidden": ("d_model",), "hidden_size": ("d_model",),
    "hidden_dim": ("d_model",), "intermediate_size": ("d_ff",), "ffn_dim": ("d_ff",), "ffn_hidden_size": ("d_ff",),
    "vocab": ("vocabulary",), "vocab_size": ("vocabulary",), "num_tokens": ("tokens",), "n_tokens": ("tokens",),
    "n_experts": ("experts",), "num_experts": ("experts",), "num_experts_per_tok": ("experts_per_token",),
    "top_k": ("experts_per_token",), "topk": ("experts_per_token",), "num_layers": ("layers",), "n_layers": ("layers",),
    "num_hidden_layers": ("layers",), "context": ("seq_kv", "seq_q"), "context_length": ("seq_kv", "seq_q"),
    "ctx": ("seq_kv", "seq_q"), "kv_len": ("seq_kv",), "seq_k": ("seq_kv",), "seqlen_k": ("seq_kv",), "seqlen_q": ("seq_q",),
    "q_len": ("seq_q",), "prompt": ("seq_q",), "isl": ("seq_q",), "input_len": ("seq_q",), "chunk_size": ("chunk",),
    "osl": ("output",), "output_len": ("output",), "max_tokens": ("output",),
    "data_type": ("dtype",), "is_causal": ("causal",), "group_size": ("group", "group_size"),
    "n_ranks": ("ranks",), "world_size": ("ranks",), "num_elements": ("elements",), "numel": ("elements",),
}  # fmt: skip
_GEMM = frozenset("MNKmnk")  # only where all three mean something
_LENGTHS = ("seqlen", "sequence_length", "max_seq_len", "seq_len")


def backend_of(device: str) -> str:
    """ "cuda" of "cuda:0"."""
    return device.partition(":")[0]


def nearest(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The names that `word` may mean, best first; none where nothing is like it."""
    by_spelling: dict[str, str] = {}
    for name in known:
        by_spelling.setdefault(spelled(name), name)
    wanted = spelled(word)[:80]
    close = difflib.get_close_matches(wanted, by_spelling, n=most, cutoff=0.65) if wanted else []
    return [by_spelling[name] for name in close]


def counted(count: int, noun: str, several: str = "s") -> str:
    """ "1 point", "2 points". several: what makes a plural of the noun."""
    return f"{count} {noun}{several * (count != 1)}"


def annotated(field: dataclasses.Field[Any]) -> str:
    """The type of a dataclass's field as it is written: "int", "int | None"."""
    return field.type if isinstance(field.type, str) else field.type.__name__


def spelled(word: str) -> str:
    """A name without case, spaces and dashes."""
    return re.sub(r"[^a-z0-9]", "", word.lower())


def hint(word: object, known: Iterable[str]) -> str:
    """ " (did you mean seq_kv?)" or "" where nothing is like it."""
    close = nearest(word, known) if isinstance(word, str) else []
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def require_one_of(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """The value. Raises Error naming the argument, with what resembles the value, unless it is one of `allowed`."""
    if value not in (known := tuple(allowed)):
        words = [str(each) for each in known]
        raise Error(f"{name} must be one of {', '.join(words)}, got {shown(value)}{hint(value, filter(None, words))}")
    return value


P = ParamSpec("P")
R = TypeVar("R")


def misfit(name: str, signature: inspect.Signature, error: TypeError, named: Mapping[str, Any]) -> Error:
    """The Error for arguments that do not fit a function, with what resembles the first unknown one."""
    unknown = next((each for each in named if each not in signature.parameters), None)
    takes = [each for each in signature.parameters if each not in ("self", "cls")]
    return Error(f"{name}: {error}{hint(unknown, takes)}; it takes {', '.join(takes)}")


def arguments_checked(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which takes NumPy scalars that are given by name as Python's numbers.

    Arguments that do not fit raise Error, with what resembles the first unknown one, where Python has a TypeError.
    """

    @functools.wraps(function)
    def called(*positional: P.args, **named: P.kwargs) -> R:
        for name, value in named.items():
            named[name] = plain(value)
        try:
            return function(*positional, **named)
        except TypeError:
            signature = inspect.signature(function)
            try:
                signature.bind(*positional, **named)
            except TypeError as error:
                raise misfit(function.__name__, signature, error, named) from None
            raise

    return called


def whole(text: str) -> int:
    """A whole number: "4096", "8k" (8 · 1024), "1M" (1024²), "1.5k", "1_000". Raises Error for anything else."""
    match = _WHOLE.fullmatch(text.strip().replace("_", "")) if len(text) <= 40 else None
    if match is None:
        raise Error(f"must be a whole number such as 4096 or 8k, got {text!r:.80}")
    value = float(match[1]) * _FACTORS[match[2].lower()] if "." in match[1] else int(match[1]) * _FACTORS[match[2].lower()]
    if value != int(value):
        raise Error(f"must be a whole number such as 4096 or 8k, got {text!r:.80}")
    return int(value)


def dimension(where: str, value: Any, least: int, power: int) -> int:
    """A number from `least` to 2**power, in words too. Raises Error naming `where`."""
    if isinstance(value, str):
        try:
            value = whole(value)
        except Error as error:
            raise Error(f"{where} {error}") from None
    if isinstance(value, bool) or not hasattr(value, "__index__") or getattr(value, "ndim", False):
        raise Error(f"{where} must be an integer, got {shown(value)}")
    value = value.__index__()
    if not least <= value <= 1 << power:
        raise Error(f"{where} must be between {least} and 2**{power}, got {shown(value)}")
    return int(value)


def split(text: str) -> list[str]:
    """The parts of a comma list. Raises Error for an empty one."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise Error(f"must be values separated by commas, got {text!r:.80}")
    return parts


MOST = 256  # values of one axis


def numbers(text: str) -> list[int]:
    """The whole numbers of "1,8,128" or "1:1k", which is every power of two times the first up to the last. Raises Error."""
    found: list[int] = []
    for part in split(text):
        first, colon, last = part.partition(":")
        value, end = whole(first), whole(last) if colon else whole(first)
        if colon and not 1 <= value <= end:
            raise Error(f"a range of sizes is written 1:1024, least first, got {part!r:.80}")
        found.append(value)
        while colon and (value := 2 * value) <= end and len(found) <= MOST:
            found.append(value)
    if len(found) > MOST:
        raise Error(f"more than {MOST} values are too many for an axis: give fewer")
    return found


def fields_of(what: str, given: Mapping[str, Any], known: Iterable[str], length: tuple[str, ...] = ()) -> dict[str, Any]:
    """Keyword fields under our names. length: the fields that a plain sequence length stands for.

    Raises Error for a name that `what` does not have, with those that resemble it, and for one that is given twice.
    """
    names = tuple(known)
    found: dict[str, Any] = {}
    written: dict[str, str] = {}
    for key, value in given.items():
        for name in _meant(what, key, names, length):
            if name in found:
                short, own = (written[name], key) if key == name else (key, written[name])
                raise Error(f"{what}: give either {short} or {own}, not both")
            found[name], written[name] = value, key
    return found


def _meant(what: str, key: str, names: tuple[str, ...], length: tuple[str, ...]) -> tuple[str, ...]:
    if key in names:
        return (key,)
    if key in _LENGTHS:
        if length:
            return length
        raise Error(f"{what}: has no sequence, so {key:.80} means nothing; its fields are {', '.join(names)}")
    meant = [name for name in ALIASES.get(key, ()) if name in names]
    if key in _GEMM and not all(set(ALIASES[letter]) & set(names) for letter in "MNK"):
        meant = []
    if not meant:
        near = hint(key, (*names, *(("seq_len",) if length else ())))
        raise Error(f"{what}: unknown field {key!r:.80}{near}; its fields are {', '.join(names)}")
    return (meant[0],)


@functools.cache
def _fields(cls: type) -> Mapping[str, bool]:
    """The fields of a dataclass, and whether each must be given."""
    nothing = dataclasses.MISSING
    return {f.name: f.default is nothing and f.default_factory is nothing for f in dataclasses.fields(cls) if f.init}


class Named(type):
    """The class of dataclasses whose fields are given by name: aliases are read, and a name that nobody knows is an Error."""

    def __call__(cls, *positional: Any, **given: Any) -> Any:
        known = _fields(cls)
        if positional:
            shown = ", ".join(f"{name}=…" for name in list(known)[:3])
            raise Error(f"{cls.called()}: fields are given by name, {cls.__name__}({shown})")  # type: ignore[attr-defined]
        if not given.keys() <= known.keys():
            given = cls.expand(given)  # type: ignore[attr-defined]
        if missing := [name for name, needed in known.items() if needed and name not in given]:
            raise Error(f"{cls.called()} lacks {', '.join(missing)}")  # type: ignore[attr-defined]
        return super().__call__(**given)


class ByName(metaclass=Named):
    """Base of dataclasses with fields by name, see `Named`."""

    __slots__ = ()

    @classmethod
    def called(cls) -> str:
        """What an error calls it."""
        name = getattr(cls, "name", "")
        return name if isinstance(name, str) and name else cls.__name__

    @classmethod
    def length_fields(cls) -> tuple[str, ...]:
        """The fields that a plain sequence length, `seq_len`, stands for."""
        return ()

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return tuple(_fields(cls))

    @classmethod
    def expand(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword fields under their own names; aliases and `seq_len` are read. Raises Error for unknown and doubled ones."""
        return fields_of(cls.called(), given, _fields(cls), cls.length_fields())
