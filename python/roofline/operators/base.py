"""What an operator states about itself. One operator is one file.

What every operator must state is `Operator._stated`: a class that lacks one of these fails at import. The other methods have
defaults that are right for an operator without matrix products; tests hold them against all operators. What its variants move,
compute and launch beyond that is theirs to say: see `Variant`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from ..counts import Array, Sizes, all_of, sizes, smaller
from ..dtypes import ACCUMULATORS, dtype, dtype_name
from ..errors import Error, is_number, plain
from ..tensor_spec import TensorSpec
from ..words import ByName, annotated, dimension, hint, require_one_of
from .variant import WORK as WORK, Facts as Facts, Product as Product, Variant as Variant

POWER = 62
MAX_DIMENSION = 2**POWER

# The stream access whose bandwidth is an operator's memory roof.
MIXES = ("read", "write", "copy", "scale", "add", "triad", "update")

# About: a CPU computes products of up to so many rows faster than it reads b, and libraries pack b or read one address stream.
FEW_ROWS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem the tests run: small and awkward, or (slow) with an index past 2**31."""

    problem: Operator
    slow: bool = False


_MODEL = Variant(summary="the operator as a model counts it: no kernel of ours", dtypes={})


class Operator(ByName):
    """Base of all operators: frozen dataclasses whose fields are the sweep axes.

    A subclass states `name`, `summary`, `mix`, `variants` and the methods below. Dimensions are checked on construction; a bad
    one raises Error.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    mix: ClassVar[str]  # one of MIXES, or a property where it depends on the fields
    variants: ClassVar[Mapping[str, Variant]]  # slowest first; empty for an operator that is cost only
    small: ClassVar[frozenset[str]] = frozenset()  # integer fields that may be 0
    allowed: ClassVar[Mapping[str, tuple[Any, ...]]] = {}  # of fields that take few values, these
    products_in_blocks: ClassVar[bool] = False  # by kernels that never see a whole one: its size says nothing of their rate
    sums_in_chunks: ClassVar[bool] = False  # whether `reference` takes tensors that are only sliced: see `references.chunks`

    _stated: ClassVar[tuple[str, ...]] = ("name", "summary", "mix", "variants", "inputs", "outputs", "flops", "reference", "cases")

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        """abstract: what several operators have in common, and none by itself."""
        super().__init_subclass__(**kwargs)
        stated = {name for base in cls.__mro__[: cls.__mro__.index(Operator)] for name in vars(base)}
        missing = [item for item in cls._stated if item not in stated]
        if missing and not abstract:
            raise TypeError(f"operator {cls.__name__} does not state {', '.join(missing)}")

    # -- stated by each operator ------------------------------------------------------------------------------------------

    def inputs(self) -> tuple[TensorSpec, ...]:
        """Tensors read. Their sizes are the compulsory bytes."""
        raise NotImplementedError

    def outputs(self) -> tuple[TensorSpec, ...]:
        """Tensors written."""
        raise NotImplementedError

    def flops(self) -> dict[str, int]:
        """Floating-point (or integer) operations by named term, by the counting rules of docs/conventions/counting.md."""
        raise NotImplementedError

    def compute(self) -> tuple[str, str]:
        """(dtype, accumulator) of the compute roof it meets, e.g. ("bf16", "fp32"): of its dtype, summed as usual."""
        own: str = self.dtype  # type: ignore[attr-defined]
        return own, ACCUMULATORS.get(own, "fp32")

    def operations(self) -> dict[str, int]:
        """Operations by kind (WORK), as a model counts them: `products` among the terms of `flops`, and all others."""
        flops, terms = self.flops(), {product.term for product in self.products()}
        found = {"product": sum(flops.pop(term) for term in terms)} if terms else {}
        return found | ({"other": sum(flops.values())} if flops or not terms else {})

    def suits(self, variant: str, device: str) -> bool:
        return self.variants[variant].suits(self, device)

    def default_variant(self, device: str) -> str:
        """What runs where no variant is asked for: the last declared one (slowest come first) that suits the problem on this kind
        of device and has a kernel for its dtype there. Where none does both the last with a kernel, else the last that suits; ""
        for cost-only operators.
        """
        wanted = getattr(self, "dtype", None)
        able = [name for name, variant in self.variants.items() if wanted in variant.dtypes.get(device, ())]
        suited = [name for name in self.variants if self.suits(name, device)]
        return ([name for name in able if name in suited] or able or suited or [""])[-1]

    def has_products(self) -> bool:
        """Whether tensor units do part of its arithmetic."""
        return "product" in self.operations()

    def products(self) -> tuple[Product, ...]:
        """Its matrix products by the term of `flops` that they are; none for operators without."""
        return ()

    def product_size(self) -> Any:
        """rows x columns x inner of its smallest matrix product, one head of a batch; 0 where none is computed whole."""
        sizes = [] if self.products_in_blocks else [p.rows * p.columns * p.inner for p in self.products()]
        return functools.reduce(smaller, sizes) if sizes else 0

    def rows_kind(self) -> Any:
        """Kernels of one row, of few and of many are apart: 2 where one of its products has one row, 1 where few, else 0."""
        rows = functools.reduce(smaller, (product.rows for product in self.products()), math.inf)
        return 1 * (rows <= FEW_ROWS) + (rows < 1.5)  # of experts an average

    def product_width(self) -> Any:
        """The smaller of rows and columns of its narrowest product; 0 where none is computed whole."""
        widths = [] if self.products_in_blocks else [smaller(p.rows, p.columns) for p in self.products()]
        return functools.reduce(smaller, widths) if widths else 0

    def loops(self) -> int:
        """How often its innermost loop begins: rows of a norm, results of a product; 0 where one loop takes all."""
        if products := self.products():
            results = sum((product.count * product.rows * product.columns for product in products), 0.0)
            return results  # type: ignore[return-value]
        return getattr(self, "rows", 0)

    def reference(self, tensors: Mapping[str, Array], rows: Array | None = None) -> dict[str, Array]:
        """Outputs in float64 from inputs in float64.

        `rows`: indices along the flattened leading dimensions of the output (documented by the operator); only those rows
        are computed and returned, where the whole would not fit.
        """
        raise NotImplementedError

    @classmethod
    def cases(cls) -> tuple[Case, ...]:
        raise NotImplementedError

    @classmethod
    def grid(cls, shapes: Iterable[Any], names: str = "", *, slow: bool = False, **axes: Any) -> tuple[Case, ...]:
        """A case for each combination of `axes` (a value, or a tuple of them) with each of `shapes`: fields by name, or the values
        of `names`.
        """
        fields, lists = names.split(), [value if isinstance(value, tuple) else (value,) for value in axes.values()]

        def named(shape: Any) -> Mapping[str, Any]:
            if isinstance(shape, Mapping):
                return shape
            return dict(zip(fields, shape if len(fields) > 1 else (shape,), strict=True))

        return tuple(
            Case(problem=cls.make(**named(shape), **dict(zip(axes, values, strict=True))), slow=slow)
            for *values, shape in itertools.product(*lists, shapes)
        )

    def initial(self, tensor: str, generator: np.random.Generator) -> Array | None:
        """What this input holds before a launch, in its dtype's storage, where random numbers would mean nothing; None: those.

        Indices are random ones below their bound.
        """
        for spec in self.tensors():
            if spec.name == tensor and spec.below:
                return generator.integers(0, spec.below, size=spec.shape, dtype=np.int32)
        return None

    # -- what a variant of it costs: the one that the plan names; without one the operator as a model counts it -------------

    def _variant(self, plan: Facts) -> Variant:
        return self.variants.get(plan.get("variant", ""), _MODEL)

    def traffic(self, plan: Facts) -> dict[str, int]:
        """Bytes by named term beyond the compulsory ones: see `Variant.traffic`."""
        return self._variant(plan).traffic(self, plan)

    def workspace_bytes(self, plan: Facts) -> Any:
        """Bytes that the traffic goes through: see `Variant.workspace_bytes`."""
        return self._variant(plan).workspace_bytes(self, plan)

    def work(self, plan: Facts) -> dict[str, int]:
        """Operations executed by kind: see `Variant.work`."""
        return self._variant(plan).work(self, plan)

    def reuse(self, plan: Facts) -> dict[str, tuple[int, int]]:
        """Bytes found again in a cache: see `Variant.reuse`."""
        return self._variant(plan).reuse(self, plan)

    def launches(self, plan: Facts) -> int:
        """How often the device's threads are woken: see `Variant.launches`."""
        return self._variant(plan).launches(self, plan)

    def pieces(self, plan: Facts) -> Any:
        """How much there is to share: see `Variant.pieces`."""
        return self._variant(plan).pieces(self)

    def critical_path(self, plan: Facts, sms: int) -> Any:
        """How much a GPU does one after another: see `Variant.critical_path`."""
        return self._variant(plan).critical_path(self, sms)

    def matrices(self, plan: Facts) -> tuple[TensorSpec, ...]:
        """Tensors of rows that it goes through: see `Variant.matrices`."""
        return self._variant(plan).matrices(self)

    # -- derived ----------------------------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, field.name, self._accepted(field, getattr(self, field.name)))
        for name, values in self.allowed.items():
            self.one_of(name, values)
        self.check()
        self._check_sizes()

    def _accepted(self, field: dataclasses.Field[Any], value: Any) -> Any:
        """The value of a field as it is kept. Raises Error naming the field."""
        where, value = f"{self.name}: {field.name}", plain(value)
        if isinstance(value, Sizes):
            return self._accepted_all(field, value)
        if annotated(field) == "int":
            value = dimension(where, value, 0 if field.name in self.small else 1, POWER)
        elif annotated(field) == "bool":
            if not isinstance(value, bool):
                raise Error(f"{where} must be True or False, got {value!r:.80}")
        elif annotated(field) == "float":
            if not is_number(value) or not abs(value) <= sys.float_info.max:
                raise Error(f"{where} must be a finite number, got {value!r:.80}")
        elif field.name.endswith("dtype") or (field.name == "accumulator" and value):
            try:
                value = dtype_name(value)
            except Error as error:
                raise Error(f"{where}: {error}") from None
        return value

    def _accepted_all(self, field: dataclasses.Field[Any], values: Array) -> Array:
        """As `_accepted`, for an array of a batch: float64, so that no product overflows."""
        where = f"{self.name}: {field.name}"
        if annotated(field) == "int":
            least = 0 if field.name in self.small else 1
            if values.dtype.kind not in "iu":
                raise Error(f"{where} must be an array of integers, got one of {values.dtype.name}")
            if values.size and not least <= (outside := int(values.min())) <= MAX_DIMENSION >= (outside := int(values.max())):
                raise Error(f"{where} must be between {least} and 2**62, got {outside}")
        elif annotated(field) == "float":
            if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
                raise Error(f"{where} must be an array of finite numbers, got {values.dtype.name} {values!r:.60}")
        else:
            raise Error(f"{where} must be one value in a batch, got an array; make one batch for each")
        return np.asarray(values).astype(np.float64)

    @classmethod
    def many(cls, **given: Any) -> Self:
        """A batch of problems, for its costs alone: NumPy arrays as fields, and float64 arrays (exact below 2**53) as costs.

        Arrays broadcast against each other; fields of text and truth, and all that is left out, are one value for the batch.
        Raises Error for what the operator would refuse, naming the first such problem's values.
        """
        several = (np.ndarray, list, tuple)
        return cls(**{name: sizes(value) if isinstance(value, several) else value for name, value in cls.expand(given).items()})

    def _check_sizes(self) -> None:
        for tensor in self.tensors():
            if (ok := tensor.size_bytes <= MAX_DIMENSION) is not True and not all_of(ok):
                shape = [int(np.max(side)) for side in tensor.shape]
                raise Error(f"{self.name}: tensor {tensor.name!r:.80} {shape} has more than 2**62 bytes; use smaller dimensions")

    def check(self) -> None:
        """Operator-specific checks of the fields; raises Error."""

    def one_of(self, field: str, allowed: tuple[Any, ...]) -> None:
        value = getattr(self, field)
        for each in np.unique(value).tolist() if isinstance(value, np.ndarray) else [value]:
            require_one_of(f"{self.name}: {field}", each, allowed)

    @classmethod
    def require_variant(cls, variant: str) -> None:
        """Raises Error for a variant that the operator does not have, with those that resemble it."""
        if variant not in cls.variants:
            listed = ", ".join(cls.variants) or "none"
            raise Error(f"{cls.name}: unknown variant {variant!r:.80}{hint(variant, cls.variants)}; it has {listed}")

    def require(self, holds: Any, words: str) -> None:
        """Raises Error unless `holds`, in a batch for every problem. Names of fields in braces stand for their values."""
        if holds is True or all_of(holds):
            return
        values = self.to_dict()
        first = np.argmin(holds)  # of a batch
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                at = np.broadcast_to(value, np.shape(holds)).flat[first]
                values[name] = int(at) if at == int(at) else float(at)
        raise Error(f"{self.name}: {words.format(**values)}")

    def tensors(self) -> tuple[TensorSpec, ...]:
        return self.inputs() + self.outputs()

    def compulsory_bytes(self) -> int:
        """Each operand once: in-place tensors are read and written."""
        return sum(t.moved_bytes for t in self.tensors() if not t.link)

    def footprint_bytes(self) -> int:
        """Memory the tensors take."""
        return sum(t.size_bytes for t in self.tensors() if not t.link)

    def link_bytes(self) -> int:
        """What a rank receives from the others, and sends them as much; 0 for all but collectives."""
        return sum(t.size_bytes for t in self.tensors() if t.link)

    def total_flops(self) -> int:
        return sum(self.flops().values())

    def tolerance(self) -> tuple[float, float]:
        """(absolute, relative) error allowed against `reference`; operators with long reductions override it."""
        eps = max(dtype(t.dtype).eps for t in self.tensors())
        return 16 * eps, 16 * eps

    def values(self) -> dict[str, Any]:
        """The fields, as handed to the kernel's contract (dtype apart)."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "dtype"}  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def length_fields(cls) -> tuple[str, ...]:
        return tuple(name for name in ("seq_q", "seq_kv") if name in cls.field_names())

    @classmethod
    def make(cls, **given: Any) -> Self:
        """A problem from keyword fields, `seq_len` shorthand included."""
        return cls(**cls.expand(given))

    def replace(self, **changes: Any) -> Self:
        return dataclasses.replace(self, **self.expand(changes))  # type: ignore[type-var]
