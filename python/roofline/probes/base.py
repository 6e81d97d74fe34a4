"""A probe: a problem whose result is a ceiling. It says what to measure on a device, and what the result is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import Unsupported
from ..operators import Operator

# link: what one rank receives from others while it sends as much; transfer: what a copy to or from other memory moves.
KINDS = ("bandwidth", "compute", "latency", "link", "transfer")
RATE_UNITS: Mapping[str, str] = {"bandwidth": "B/s", "compute": "FLOP/s", "latency": "s", "link": "B/s", "transfer": "B/s"}
DEPTHS = ("quick", "standard", "thorough")

REPORT = "report"  # as deep as a report goes: between quick and standard

# In the order of measuring: the roofs, those of other accesses, what predictions need beside them, the further ceilings, and
# those of --thorough.
ROOFS, ACCESSES, PREDICTION, FURTHER, THOROUGH = range(5)
DEEPEST = {"quick": ACCESSES, REPORT: PREDICTION, "standard": FURTHER, "thorough": THOROUGH}

Candidate = tuple[Operator, str]  # a problem, and the variant that runs it


class Target(Protocol):
    """A device as probes see it: `measurement.Device`, or a test's list of facts."""

    name: str
    threads: int
    facts: Mapping[str, Any]

    @property
    def backend(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def peers(self) -> tuple[int, ...]:
        """Indices of the other usable devices of this backend."""

    @property
    def kernel_isas(self) -> tuple[str, ...]:
        """A CPU's instruction sets that this build has kernels for, widest first."""

    @property
    def arena_bytes(self) -> int:
        """Memory for the arrays of probes."""

    def missing(self, operator: str, variant: str, dtype: str) -> str: ...


class Identified(Protocol):
    """What tells one ceiling from another: an `Identity`, or a measured `Ceiling`."""

    @property
    def level(self) -> str: ...
    @property
    def access(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def accumulator(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def params(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """level, access: of a bandwidth (access: also the direction of a transfer). dtype, accumulator, unit: of arithmetic.

    params: what further tells two ceilings of one probe apart, such as the size of a matrix product.
    """

    level: str = ""
    access: str = ""
    variant: str = ""
    dtype: str = ""
    accumulator: str = ""
    unit: str = "core"
    isa: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


def identified_by(*fields: str) -> Callable[[Target, Operator, str, str], Identity]:
    """The identity of problems that these fields tell apart, beside their level and variant."""

    def identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
        return Identity(level=level, variant=variant, params={name: getattr(problem, name) for name in fields})

    return identity


def arithmetic(problem: Operator) -> dict[str, Any]:
    """dtype and accumulator of a problem, as an identity states them."""
    dtype, accumulator = problem.compute()
    return {"dtype": dtype, "accumulator": accumulator}


def dtype_words(c: Identified) -> str:
    """The arithmetic of a ceiling as its name begins: "bf16→fp32 tensor"."""
    into = "" if c.accumulator in ("", c.dtype) else f"→{c.accumulator}"
    return words(c.dtype + into, "tensor" if c.unit == "tensor" else "")


def words(*parts: object) -> str:
    return " ".join(str(part) for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """One kind of ceiling.

    id: by which machines, predictions and advice ask for it. operator: whose problems it measures (empty: those of several).
    summary: for `--describe`. work: bytes, FLOPs, or (of a latency) hops or calls of one launch. identity, name: what the result
    is, and its name in tables. wanted: backend -> the ceilings to measure on a device at a depth; a backend without an entry has
    none. roof: whether problems are held against it. floor: whether it is the least time of a launch.
    """

    id: str
    kind: str
    operator: str
    summary: str
    work: Callable[[Operator], int]
    identity: Callable[[Target, Operator, str, str], Identity]
    name: Callable[[Identified], str]
    wanted: Mapping[str, Callable[[Target, str], Iterable[Wanted]]]
    describe: Callable[[Identified], str] = lambda _: ""
    roof: bool = True
    floor: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wanted:
    """A ceiling to measure: of several candidates the fastest counts.

    rank: when, see ROOFS. missing: why it cannot be measured here. sustained: after a long load, not a burst. kept: whether its
    memory and kernel stay for the brackets of later measurements.
    """

    probe: Probe
    rank: int
    candidates: tuple[Candidate, ...] = ()
    level: str = ""
    missing: str = ""
    sustained: bool = False
    kept: bool = True
    label: str = ""

    @property
    def kind(self) -> str:
        return self.probe.kind

    def require(self) -> tuple[Candidate, ...]:
        """The candidates. Raises Unsupported where there are none, with the reason."""
        if self.missing:
            raise Unsupported(self.missing)
        return self.candidates


def want(
    probe: Probe,
    target: Target,
    rank: int,
    *candidates: Candidate,
    level: str = "",
    missing: str = "",
    sustained: bool = False,
    kept: bool = True,
) -> Wanted:
    """The problem wanted of `probe`, under the name that its result will have."""
    problem, variant = candidates[0]
    named = probe.name(probe.identity(target, problem, variant, level))
    return Wanted(
        probe=probe, rank=rank, candidates=candidates, level=level, missing=missing, sustained=sustained, kept=kept,
        label=words(named, "sustained" if sustained else ""),
    )  # fmt: skip


def wanted_of(probes: Iterable[Probe], target: Target, depth: str) -> Iterator[Wanted]:
    """What `probes` measure on `target`: the most worth knowing first."""
    found = [
        what
        for probe in probes
        if target.backend in probe.wanted
        for what in probe.wanted[target.backend](target, depth)
        if what.rank <= DEEPEST[depth]
    ]
    return iter(sorted(found, key=lambda what: what.rank))
