"""The expected time of a problem: what it moves at every memory level and computes by every kind of instruction, at measured rates.

The roofline (`model`) is a lower bound: one memory level, perfect overlap, one kind of arithmetic. What a kernel is expected to
take needs more of what the machine was measured for:

    time = launches x launch + ( sum over levels (bytes / bandwidth)^p + (sum over kinds work / rate)^p )^(1/p)

Kinds of work: "product" (matrix products, at the rate of the library's GEMM of about that size), "exp", and "other" (one operation
per lane and instruction, half of the multiply-add peak). p is the sharpness of the machine's measured knee, or KNEE. The kinds add
up because they share the issue ports; levels and arithmetic overlap as far as p says (hierarchical form of the p-norm knee).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._repr import Row, html_table, printable, text_table
from .counts import larger, pick, smaller
from .errors import Error
from .kernel_costs import KernelCosts, kernel_costs
from .machine import LEVELS, Ceiling, Given, Machine, held_by, machine_of, own_bytes
from .model import Roofs, bound, core_ceiling, roofs_and_notes, terms_s
from .model import time_s as roof_time_s
from .operators import operator_named
from .operators.base import WORK, Facts, Operator
from .operators.scales import USUAL_SCALES, scales_name, without_unused
from .reading import SCHEMA_VERSION
from .units import SECONDS, SHARES, fmt_number, fmt_shares, fmt_si, within
from .words import hint

KNEE = 3.0
Sizes = list[tuple[float, Ceiling]]  # by growing size
UTILISED = ("compute", "bandwidth", "link")  # what a share of the peak is given for
ROUNDING = 1e-12  # of a time: a difference of floating-point sums below this is 0
Utilisation = float | str | Mapping[str, float]


def utilisation_of(given: Utilisation | None) -> dict[str, float]:
    """Shares by UTILISED: of a number all three, of words such as "compute=0.7,bandwidth=0.8" and mappings those that they name.

    Raises Error for another name, and for shares that are none.
    """
    if isinstance(given, str):
        words = [part.partition("=") for part in given.split(",")]
        try:
            named = {name.strip(): float(value or name) for name, _, value in words}
        except ValueError:
            raise Error(f"utilisation is a share such as 0.8, or compute=0.7,bandwidth=0.8, got {given!r:.80}") from None
        given = named if all(equals for _, equals, _ in words) else next(iter(named.values())) if len(words) == 1 else named
    shares = dict.fromkeys(UTILISED, 1.0)
    stated = {} if given is None else dict(given) if isinstance(given, Mapping) else dict.fromkeys(UTILISED, given)
    for roof, share in stated.items():
        if roof not in UTILISED:
            raise Error(f"utilisation is given for {', '.join(UTILISED)}, not for {roof!r:.80}{hint(roof, UTILISED)}")
        shares[roof] = within(f"utilisation of {roof}", "a share", share, SHARES)
    return shares


def longest(seconds: Mapping[str, Any]) -> dict[str, Any]:
    """The longest of these times alone; of several problems at once each time where it is the longest, and 0 elsewhere."""
    most = functools.reduce(larger, seconds.values(), 0.0)
    left: Any = True
    found = {}
    for name, each in seconds.items():
        here = (each == most) & left
        left = left & ~here if isinstance(here, np.ndarray) else left and not here
        if np.any(here):
            found[name] = pick(here, each, 0.0)
    return found


# What prints call a roof.
ROOF_WORDS: Mapping[str, str] = {"product": "GEMM", "other": "other arithmetic"}


class Expected:
    """An expected time, of one problem or of a model's phase: what both say of it. Times in seconds, sizes in bytes."""

    __slots__ = ()

    time_s: float
    flops: int
    bytes: int
    bound: str

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.time_s

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.time_s

    @property
    def flops_per_byte(self) -> float:
        return self.flops / self.bytes if self.bytes else math.inf

    @property
    def profile(self) -> Mapping[str, float]:
        """Seconds by roof: memory levels, "product", "exp", "other", "launch", "link", and what overlap does not hide."""
        raise NotImplementedError

    @property
    def what(self) -> str:
        """The problem or the model, in short."""
        raise NotImplementedError

    def quantities(self) -> dict[str, str]:
        """What a table shows of it, name by name, as text."""
        profile = sorted(self.profile.items(), key=lambda item: -item[1])
        return {
            "time": fmt_si(self.time_s, "s", 4),
            "bound by": fmt_roofs(dict(profile), self.time_s),
            "FLOPs": fmt_si(self.flops, "FLOP"),
            "bytes": fmt_si(self.bytes, "B"),
            "FLOP/byte": fmt_number(self.flops_per_byte),
            "rate": f"{fmt_si(self.flops_per_s, 'FLOP/s')}, {fmt_si(self.bytes_per_s, 'B/s')}",
        }

    def record(self) -> dict[str, Any]:
        """Numbers of it as one flat row, units in the names."""
        return {
            "what": self.what, "time_s": self.time_s, "bound": self.bound, "flops": self.flops, "bytes": self.bytes,
            "flops_per_byte": self.flops_per_byte, "flops_per_s": self.flops_per_s, "bytes_per_s": self.bytes_per_s,
        }  # fmt: skip


def fmt_roofs(profile: Mapping[str, float], time_s: float) -> str:
    """The roofs that take most of a time: "DRAM 94.6 %, GEMM 5.4 %"."""
    return fmt_shares({ROOF_WORDS.get(name, name): seconds for name, seconds in profile.items()}, time_s)


def bound_of(profile: Mapping[str, float]) -> str:
    """The roof with most of the time, "compute" for all kinds of arithmetic together; "" where nothing takes any."""
    joined: dict[str, float] = {}
    for roof, seconds in profile.items():
        name = "compute" if roof in WORK else roof
        joined[name] = joined.get(name, 0.0) + seconds
    return max(joined, key=lambda name: joined[name], default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """bandwidths: bytes/s by level. work: operations/s by kind (all of WORK). launch_s: of one step. knee: p of the p-norm."""

    bandwidths: Mapping[str, float]
    work: Mapping[str, float]
    launch_s: float = 0.0
    knee: float = KNEE
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def scaled(self, *, bandwidths: Mapping[str, float], compute: float, launch_s: float) -> Rates:
        """With these `bandwidths` (bytes/s by level), every kind of work times `compute` (a factor), and another launch floor."""
        return dataclasses.replace(
            self,
            bandwidths={**self.bandwidths, **bandwidths},
            work={kind: rate * compute for kind, rate in self.work.items()},
            launch_s=launch_s,
        )

    def derated(self, shares: Mapping[str, float]) -> Rates:
        """With `shares` of all work ("compute"), of every memory level ("bandwidth"), and of the link."""
        levels = {
            level: rate * shares.get("link" if level == "link" else "bandwidth", 1.0) for level, rate in self.bandwidths.items()
        }
        return dataclasses.replace(
            self,
            bandwidths=levels,
            work={kind: rate * shares.get("compute", 1.0) for kind, rate in self.work.items()},
            labels={
                name: _share_of(label, shares, "compute" if name in WORK else "link" if name == "link" else "bandwidth")
                for name, label in self.labels.items()
            },
        )

    def parts_s(self, work: Mapping[str, int], moved: Mapping[str, int], launches: int = 1) -> dict[str, float]:
        """Seconds of each part alone: memory levels, kinds of work, and "launch"."""
        parts = {level: size / self.bandwidths[level] for level, size in moved.items() if _any(size)}
        parts |= {kind: count / self.work[kind] for kind, count in work.items() if _any(count)}
        return parts | {"launch": launches * self.launch_s}

    def time_s(self, parts: Mapping[str, float]) -> float:
        """The expected time from `parts_s`."""
        arithmetic = sum(seconds for name, seconds in parts.items() if name in WORK)
        levels = [seconds for name, seconds in parts.items() if name not in WORK and name != "launch"]
        longest = functools.reduce(larger, (*levels, arithmetic), 0.0)
        if math.isinf(self.knee):
            return parts.get("launch", 0.0) + longest
        scale = larger(longest, sys.float_info.min)  # where nothing takes time at all
        norm: float = sum((seconds / scale) ** self.knee for seconds in (*levels, arithmetic)) ** (1 / self.knee)
        return parts.get("launch", 0.0) + longest * norm


def _share_of(label: str, shares: Mapping[str, float], roof: str) -> str:
    share = shares.get(roof, 1.0)
    return label if share == 1 else f"{label} × {share:g}"


def _any(x: Any) -> Any:
    """Whether a number is not 0, or any number of an array."""
    return x.any() if isinstance(x, np.ndarray) else x


def moved_bytes(problem: Operator, plan: Facts, facts: Mapping[str, Any], level: str) -> dict[str, dict[str, int]]:
    """Bytes by memory level and term, compulsory ones first, with the operands in `level`. facts: cache sizes; none: no caches.

    What a variant moves beyond the compulsory bytes reaches memory unless a cache holds its workspace (without one, the tensors).
    """
    found: dict[str, dict[str, int]] = {level: {"compulsory": problem.compulsory_bytes()}}
    beyond = problem.traffic(plan)
    if beyond:
        touched = int(plan.get("workspace_bytes", 0)) or larger(problem.footprint_bytes(), sum(beyond.values()) // 2)
        for where, there in held_by(facts, touched) if level == "DRAM" else ((level, True),):
            if _any(there):
                found.setdefault(where, {}).update({term: size * there for term, size in beyond.items()})
    return found


def reused_bytes(problem: Operator, plan: Facts, facts: Mapping[str, Any]) -> dict[str, int]:
    """Bytes that a variant finds again in a cache (`Operator.reuse`) by the level that holds them; none where no cache is known."""
    found: dict[str, int] = {}
    if any(facts.get(f"{level.lower()}_bytes") for level in LEVELS):
        for size, footprint in problem.reuse(plan).values():
            for where, there in held_by(facts, own_bytes(facts, footprint)):
                if _any(there):
                    found[where] = found.get(where, 0) + size * there
    return found


def _products(machine: Machine, problem: Operator, threads: int | None) -> tuple[Sizes, Sizes]:
    """The library's products in `problem`'s dtype: aligned squares by their edge, and narrow ones by their rows.

    With the scales that `problem` has; where none were measured with these, with the dtype's usual ones, else without. Of several
    of one size the fastest.
    """
    dtype = problem.compute()[0]
    most = threads or max((c.threads for c in machine.ceilings if c.kind == "compute"), default=0)
    squares, narrow = (machine.of(probe, dtype=dtype, threads=most) for probe in ("gemm.square", "gemm.narrow"))
    for scales in (scales_name(problem.to_dict()), scales_name(USUAL_SCALES.get(dtype, {})), ""):
        if by_edge := _by_size([c for c in squares if c.params.get("scales", "") == scales], "size"):
            return by_edge, [item for item in _by_size(narrow, "rows") if item[0] < by_edge[0][0]]
    return [], []


def _by_size(ceilings: Sequence[Ceiling], param: str) -> Sizes:
    """Each with the number of that parameter, in rising order; of several of one size the fastest."""
    found = {float(c.params[param]): c for c in sorted(ceilings, key=lambda c: c.value) if isinstance(c.params.get(param), int)}
    return sorted(found.items())


def _product_rate(sizes: Sizes, narrow: Sizes, size: Any, width: Any) -> Any:
    """Rate of a product of `size` (cube root of rows x columns x inner) and `width` (the smaller of rows and columns; 0: unknown).

    Linear in log(size) between the measured ones, beyond them the nearest; no faster than narrow ones (log over log of width).
    """
    rate = np.interp(np.log(size), np.log([measured for measured, _ in sizes]), [ceiling.value for _, ceiling in sizes])
    if not narrow:
        return rate
    ends = [*narrow, sizes[0]]
    slow = np.exp(
        np.interp(np.log(pick(width > 0, width, math.inf)), np.log([w for w, _ in ends]), np.log([c.value for _, c in ends]))
    )
    return smaller(rate, pick((width > 0) & (width < sizes[0][0]), slow, math.inf))


def machine_rates(machine: Machine, problem: Operator, roofs: Roofs, *, variant: str = "", threads: int | None = None) -> Rates:
    """What the parts of a variant run at on `machine`; what was not measured falls back to the roof above it.

    Products run at the library's rate for their size, narrow ones at that for their rows, and those of a variant with kernels of
    its own at the library's rate for the largest; without a library at the multiply-add peak. "other" runs at half of the cores'
    peak (tensor units do nothing else than products), one operation where a multiply-add counts two; "exp" at its own ceiling, else
    as "other". Levels run at the problem's mix.
    """
    peak = roofs.compute_flops_per_s
    cores = core_ceiling(machine, problem, threads)
    half = (peak if cores is None else min(cores.value, peak)) / 2
    work = {"product": peak, "exp": half, "other": half}
    labels = {} if cores is None else dict.fromkeys(("exp", "other"), f"half of {cores.label}")
    sizes, narrow = _products(machine, problem, threads)
    if sizes:
        own = variant in problem.variants and problem.variants[variant].own_products
        product, width = (0, 0) if own else (problem.product_size(), problem.product_width())
        edge = pick(product > 0, product, math.inf) ** (1 / 3)
        rate = smaller(_product_rate(sizes, narrow, edge, width), peak)
        work["product"] = rate if isinstance(product, np.ndarray) else float(rate)
        labels["product"] = sizes[-1][1].label
    exps = machine.of("exp")
    exps = [c for c in exps if c.threads == (threads or max(c.threads for c in exps))]
    if exps:
        fastest = max(exps, key=lambda c: c.value)
        work["exp"], labels["exp"] = fastest.value, fastest.label
    bandwidths = {roofs.level: roofs.bandwidth_bytes_per_s}
    for level in machine.levels():
        if level not in bandwidths:
            ceiling = machine.bandwidth(level, problem.mix, threads)
            bandwidths[level] = ceiling.value
            labels[level] = ceiling.label
    if roofs.link_bytes_per_s is not None:
        bandwidths["link"], labels["link"] = roofs.link_bytes_per_s, roofs.labels["link"]
    return Rates(bandwidths=bandwidths, work=work, launch_s=roofs.floor_s, knee=_knee(machine, roofs.level), labels=labels)


def _knee(machine: Machine, level: str) -> float:
    """p of the undisturbed sweep over intensity at `level`, else at DRAM; KNEE where there is none, infinite on paper.

    The lower end of its 95 % interval: operators overlap memory and arithmetic no better than the sweep's kernel, made for it.
    """
    if not any(c.source == "measured" for c in machine.ceilings):
        return math.inf
    for wanted in (level, LEVELS[-1]):
        for swept in machine.empirical:
            if swept.level == wanted and swept.status == "ok":
                try:
                    p = swept.fit.p
                except Error:
                    continue
                if p is not None:
                    return max(p.low, 1.0)
    return KNEE


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change, and what is expected of it. gain: the rate with it over the rate without. time_s: with it; bound: what then takes
    most of that ("" where that is not known). at_most: the gain is that of reaching a roof, which few kernels do. detail: why, and
    what else to know.
    """

    change: str
    gain: float
    time_s: float
    bound: str = ""
    at_most: bool = False
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prediction(Expected):
    """The expected time of one problem, and the time its roofs allow. problem, machine: of which and on what (its name).

    time_s: expected, from `parts` (seconds of each level, kind of work, and launch). roof_s: the longest of `terms` (seconds per
    roof), a lower bound; bound: which that is. most_s: where a cache was not measured, so that what it serves again is left out of
    time_s, the expected time with these bytes at the operands' level; else None.
    """

    time_s: float
    roof_s: float
    bound: str
    terms: Mapping[str, float]
    parts: Mapping[str, float]
    roofs: Roofs
    rates: Rates
    flops: int
    bytes: int
    notes: tuple[str, ...] = ()
    most_s: float | None = None
    problem: Operator | None = None
    machine: str = ""

    @property
    def what(self) -> str:
        return "" if self.problem is None else self.problem.name

    @property
    def profile(self) -> dict[str, Any]:
        """Its launch, its longest level or kind of work, and what overlap does not hide."""
        parts = self.parts
        launch = parts.get("launch", 0.0)
        work = {kind: seconds for kind, seconds in parts.items() if kind in WORK}
        levels = {name: seconds for name, seconds in parts.items() if name not in WORK and name != "launch"}
        computing = sum(work.values())
        kinds = {kind: pick(seconds > 0, computing, 0.0) for kind, seconds in longest(work).items()}
        most = longest({**levels, **kinds})
        left = larger(self.time_s - launch - sum(most.values()), 0.0) if most else 0.0
        least = ROUNDING * self.time_s
        return {roof: seconds for roof, seconds in {"launch": launch, **most, "overlap": left}.items() if np.any(seconds > least)}

    def record(self) -> dict[str, Any]:
        fields = {} if self.problem is None else self.problem.to_dict()
        shown = Expected.record(self)
        return {"machine": self.machine, "what": shown.pop("what"), **fields, **shown, "roof_s": self.roof_s}

    def as_answer(self) -> dict[str, Any]:
        """JSON form with its problem and machine: what `roofline predict OPERATOR --json` prints."""
        problem = {} if self.problem is None else self.problem.to_dict()
        rates = {"flops": self.flops, "bytes": self.bytes, "flops_per_byte": self.flops_per_byte if self.bytes else None}
        return {
            "schema_version": SCHEMA_VERSION, "kind": "prediction", "machine": self.machine, "operator": self.what,
            "problem": problem, **self.to_dict(), **rates, "flops_per_s": self.flops_per_s, "bytes_per_s": self.bytes_per_s,
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """What a measurement stores: time_s, roof_s, bound, terms, parts, and most_s and notes where there are any."""
        more = {"most_s": self.most_s, "notes": list(self.notes)}
        return {
            "time_s": self.time_s, "roof_s": self.roof_s, "bound": self.bound, "terms": dict(self.terms), "parts": dict(self.parts),
            **{name: value for name, value in more.items() if value},
        }  # fmt: skip

    def __repr__(self) -> str:
        on = f"{self.what} on {self.machine}: " if self.what and self.machine else ""
        return printable(f"Prediction({on}{fmt_si(self.time_s, 's')}, {self.bound}-bound, {fmt_si(self.flops_per_s, 'FLOP/s')})")

    @property
    def title(self) -> str:
        """What and on what, in a line."""
        if self.problem is None:
            return repr(self)
        fields = ", ".join(f"{name} {value}" for name, value in without_unused(self.problem.to_dict()).items())
        return f"{self.what}, {fields}, on {self.machine}"

    def summary(self) -> list[tuple[str, str]]:
        """What a reader wants first: (name, value)."""
        return [*self.quantities().items(), ("roofline", f"{fmt_si(self.roof_s, 's', 4)}, {self.bound}-bound")]

    def remarks(self) -> list[str]:
        """What was assumed."""
        return [f"note: {note}" for note in self.notes]

    def table(self) -> tuple[Row, list[Row]]:
        """The time of each roof and of each part of the expected time, with its ceiling."""
        names = {"compute": "compute", self.roofs.level: "memory", "launch": "launch"}
        roofs: list[Row] = [
            (f"{term} roof", fmt_si(seconds, "s"), self.roofs.labels.get(names.get(term, term), ""))
            for term, seconds in self.terms.items()
        ]
        parts: list[Row] = [
            (name, fmt_si(seconds, "s"), self.rates.labels.get(name, "")) for name, seconds in self.parts.items() if seconds > 0
        ]
        most = f" to {fmt_si(self.most_s, 's')}" if self.most_s else ""
        return ("", "time", "ceiling"), [*roofs, *parts, ("expected", f"{fmt_si(self.time_s, 's')}{most}", "")]

    def _repr_html_(self) -> str:
        return html_table(*self.table(), title=repr(self), notes=self.notes)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("Prediction(…)" if cycle else text_table(*self.table(), title=repr(self), notes=self.notes))


def _parts_s(
    problem: Operator, plan: Facts, facts: Mapping[str, Any], roofs: Roofs, rates: Rates, moved: Mapping[str, Mapping[str, int]]
) -> dict[str, float]:
    """Seconds of each part; what an unmeasured cache serves is in none of them, see `_served`."""
    return rates.parts_s(problem.work(plan), _served(problem, plan, facts, roofs, rates, moved)[0], problem.launches(plan))


def _served(
    problem: Operator, plan: Facts, facts: Mapping[str, Any], roofs: Roofs, rates: Rates, moved: Mapping[str, Mapping[str, int]]
) -> tuple[dict[str, int], dict[str, tuple[str, int]]]:
    """Bytes by level that has a rate; and by cache without one, the level that stands for it ("": none) and bytes.

    The next slower cache that was measured stands for one that was not. Where there is none the bytes are in no level: memory,
    which would be next, serves them many times more slowly than any cache.
    """
    sizes: dict[str, int] = {"link": problem.link_bytes()} if "link" in rates.bandwidths else {}
    missing: dict[str, tuple[str, int]] = {}
    for level, size in [
        *((level, sum(terms.values())) for level, terms in moved.items()),
        *reused_bytes(problem, plan, facts).items(),
    ]:
        where = level
        if level not in rates.bandwidths:
            nearer = LEVELS[LEVELS.index(level) + 1 : LEVELS.index(roofs.level)]  # than the operands
            where = next((other for other in nearer if other in rates.bandwidths), "")
            missing[level] = (where, missing.get(level, ("", 0))[1] + size)
        if where:
            sizes[where] = sizes.get(where, 0) + size
    return sizes, {level: found for level, found in missing.items() if _any(found[1])}


def expect(
    problem: Operator, plan: Facts, facts: Mapping[str, Any], roofs: Roofs, rates: Rates, moved: Mapping[str, Mapping[str, int]],
    kernel: KernelCosts | None = None,
) -> Prediction:
    """The prediction from rates and the bytes of `moved_bytes`. Of a batch (`Operator.many`) its numbers are arrays.

    kernel: what the kernel takes beyond the parts; where that is less, all parts are shorter.
    """
    flops, bytes_, link = problem.total_flops(), sum(moved[roofs.level].values()), problem.link_bytes()
    parts = _parts_s(problem, plan, facts, roofs, rates, moved)
    notes, left_out = [], 0
    for level, (where, size) in _served(problem, plan, facts, roofs, rates, moved)[1].items():
        most = f"{'up to ' if isinstance(size, np.ndarray) else ''}{fmt_si(np.max(size), 'B')}"
        said = f"no {level} bandwidth was measured: the {most} that it serves"
        notes.append(f"{said} count at {where}'s" if where else f"{said} are left out of the time")
        left_out += 0 if where else size
    more_s = left_out / rates.bandwidths[roofs.level]
    most_s = rates.time_s({**parts, roofs.level: parts.get(roofs.level, 0.0) + more_s}) if _any(left_out) else None
    time_s = rates.time_s(parts)
    if kernel is not None:
        overlapped_s = time_s - parts["launch"]
        more = kernel.more_s(problem, parts, overlapped_s, cold=roofs.level == LEVELS[-1])
        shorter = 1 + smaller(more["kernel"], 0.0) / larger(overlapped_s, sys.float_info.min)
        parts = {name: seconds if name == "launch" else seconds * shorter for name, seconds in parts.items()}
        time_s, most_s = time_s + sum(more.values()), None if most_s is None else most_s + sum(more.values())
        parts |= {name: larger(seconds, 0.0) for name, seconds in more.items() if _any(seconds)}
    return Prediction(
        time_s=time_s, roof_s=_unboxed(roof_time_s(flops, bytes_, roofs, link)),
        bound=_unboxed(bound(flops, bytes_, roofs, link)),
        terms={name: _unboxed(seconds) for name, seconds in terms_s(flops, bytes_, roofs, link).items()}, parts=parts, roofs=roofs,
        rates=rates, flops=flops, bytes=bytes_, notes=tuple(notes), most_s=most_s,
    )  # fmt: skip


def _unboxed(x: NDArray[Any]) -> Any:
    """A Python number or text of an array without axes; an array with some as it is."""
    return x if x.ndim else x.item()


def _facts(problem: Operator, variant: str | None, plan: Facts | None) -> dict[str, Any]:
    """The plan with its variant: the one asked for, else its own, else "": no kernel of ours, see `Operator.traffic`."""
    facts = dict(plan or {})
    if variant:
        problem.require_variant(variant)
    return facts | {"variant": variant or facts.get("variant") or ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assumed:
    """What a prediction takes from the user instead of the machine; see `predict`. Raises Error for what makes no sense."""

    level: str | None = None
    threads: int | None = None
    unit: str | None = None
    utilisation: Utilisation | None = None
    launch_s: float | None = None
    knee: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "utilisation", utilisation_of(self.utilisation))
        if self.launch_s is not None:
            within("launch_s", "seconds", self.launch_s, SECONDS)
        if self.knee is not None and not self.knee >= 1:
            raise Error(f"knee must be at least 1 (times add), and infinite for perfect overlap, got {self.knee!r:.80}")

    def rates(self, machine: Machine, problem: Operator, variant: str) -> tuple[Roofs, Rates, tuple[str, ...]]:
        """The roofs of `problem`, what the parts of a variant run at, and notes."""
        roofs, notes = roofs_and_notes(machine, problem, self.level, self.threads, self.unit)
        if self.launch_s is not None:
            roofs = dataclasses.replace(roofs, floor_s=self.launch_s, labels={**roofs.labels, "launch": "as given"})
        rates = machine_rates(machine, problem, roofs, variant=variant, threads=self.threads)
        if self.knee is not None:
            rates = dataclasses.replace(rates, knee=self.knee)
        shares = utilisation_of(self.utilisation)
        if any(share != 1 for share in shares.values()):
            rates, roofs = rates.derated(shares), roofs.derated(**shares)
            labels = {
                name: _share_of(label, shares, "bandwidth" if name == "memory" else name) for name, label in roofs.labels.items()
            }
            roofs = dataclasses.replace(roofs, labels=labels)
        return roofs, rates, notes


def predict_problem(
    machine: Machine,
    problem: Operator,
    *,
    variant: str | None = None,
    plan: Facts | None = None,
    level: str | None = None,
    threads: int | None = None,
    unit: str | None = None,
    utilisation: Utilisation | None = None,
    launch_s: float | None = None,
    knee: float | None = None,
) -> Prediction:
    """The expected time of `problem` on `machine`, with nothing measured.

    variant: a kernel of ours, whose further traffic and launches count then; None is the one of `plan`, else none: the compulsory
    bytes, in one launch. plan: facts of a kernel that ran; without one the traffic comes from the problem alone. level: where the
    operands lie (None: the slowest level, a cold run). A bimodal ceiling counts with its best mode, and a note says so.

    What the machine does not say, or should not: unit ("core", "tensor"): the compute roof's. utilisation: shares of the roofs
    that a run reaches, e.g. {"compute": 0.7, "bandwidth": 0.8} or 0.8 of all, for the roofs and the expected time. launch_s: floor
    of one launch. knee: p of the sum of levels and arithmetic, 1 (times add) to math.inf (the hard roof); None is the measured one.
    Raises Error naming a ceiling that is missing, an unknown variant, or what cannot be assumed.
    """
    assumed = _Assumed(
        level=level, threads=threads, unit=unit, utilisation=utilisation, launch_s=launch_s, knee=knee
    )  # fmt: skip
    facts = _facts(problem, variant, plan)
    roofs, rates, notes = assumed.rates(machine, problem, facts["variant"])
    caches = machine.facts if machine.device == "cpu" else {}
    moved = moved_bytes(problem, facts, caches, roofs.level)
    kernel = kernel_costs(machine, problem, facts["variant"])
    found = expect(problem, facts, caches, roofs, rates, moved, kernel)
    return dataclasses.replace(found, notes=(*notes, *found.notes), problem=problem, machine=machine.name)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Predictions:
    """Many predictions of one operator, as arrays of one shape; each as in `Prediction`. level: where the operands lie."""

    time_s: NDArray[np.float64]
    roof_s: NDArray[np.float64]
    bound: NDArray[np.str_]
    level: NDArray[np.str_]
    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]

    @property
    def flops_per_s(self) -> NDArray[np.float64]:
        return np.asarray(self.flops / self.time_s)

    @property
    def flops_per_byte(self) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.flops / self.bytes)

    def __len__(self) -> int:
        return len(self.time_s)

    def __repr__(self) -> str:
        bounds = ", ".join(f"{count} {name}" for name, count in zip(*np.unique(self.bound, return_counts=True), strict=True))
        return f"Predictions({list(self.time_s.shape)}, bound: {bounds or 'none'})"


_KINDS = {"time_s": "f8", "roof_s": "f8", "bound": "U7", "level": "U7", "flops": "f8", "bytes": "f8"}
CHUNK = 1 << 13  # predictions at a time: their two dozen arrays stay in a second-level cache


def predict_many(
    machine: Given,
    operator: type[Operator] | str,
    *,
    variant: str | None = None,
    plan: Facts | None = None,
    level: str | None = None,
    fitting: bool = False,
    threads: int | None = None,
    unit: str | None = None,
    utilisation: Utilisation | None = None,
    launch_s: float | None = None,
    knee: float | None = None,
    **given: Any,
) -> Predictions:
    """`predict` for all problems of NumPy arrays that broadcast: predict_many("H100", "attention", seq_q=1, seq_kv=lengths).

    given: fields of the operator, numbers as arrays (see `Operator.many`). fitting: the operands of each problem lie in the fastest
    measured level that holds them (a warm run), instead of `level` for all. The rest is as for `predict`. Counts are float64, exact
    below 2**53. Raises Error as `predict` does, and for fields, naming the values of the first problem that is refused.
    """
    assumed = _Assumed(threads=threads, unit=unit, utilisation=utilisation, launch_s=launch_s, knee=knee)
    machine, operator = machine_of(machine), operator_named(operator) if isinstance(operator, str) else operator
    expanded = operator.expand(given)
    arrays = {name: np.asarray(value) for name, value in expanded.items() if isinstance(value, (np.ndarray, list, tuple))}
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        raise Error(f"{operator.name}: the fields do not broadcast: {shapes}") from None
    flat = {name: np.broadcast_to(array, shape).reshape(-1) for name, array in arrays.items()}
    count = math.prod(shape)
    found = {name: np.empty(count, dtype=kind) for name, kind in _KINDS.items()}
    caches = machine.facts if machine.device == "cpu" else {}
    for begin in range(0, count, CHUNK):
        part = slice(begin, begin + CHUNK)
        fields = {**expanded, **{name: array[part] for name, array in flat.items()}}
        problem = operator.many(**fields)
        everywhere = np.ones(min(CHUNK, count - begin), dtype=bool)
        for where, there in _levels(machine, problem, caches, everywhere) if fitting else ((level, everywhere),):
            if not there.all():
                problem = operator.many(**{name: x[there] if name in flat else x for name, x in fields.items()})
            facts = _facts(problem, variant, plan)
            roofs, rates, _ = dataclasses.replace(assumed, level=where).rates(machine, problem, facts["variant"])
            moved = moved_bytes(problem, facts, caches, roofs.level)
            kernel = kernel_costs(machine, problem, facts["variant"])
            expected = expect(problem, facts, caches, roofs, rates, moved, kernel)
            answers = {name: roofs.level if name == "level" else getattr(expected, name) for name in _KINDS}
            for name, values in answers.items():
                found[name][part][there] = values
    return Predictions(**{name: values.reshape(shape) for name, values in found.items()})


def _levels(machine: Machine, problem: Operator, facts: Mapping[str, Any], everywhere: Any) -> Iterator[tuple[str, Any]]:
    """Each measured level with the problems whose tensors it is the fastest to hold, as a mask."""
    measured = machine.levels()
    masks = {level: everywhere & False for level in measured}
    for level, there in held_by(facts, problem.footprint_bytes() * everywhere):
        # A level that was not measured stands for the next one farther out.
        near = next((other for other in measured if LEVELS.index(other) >= LEVELS.index(level)), None)
        if near is not None:
            masks[near] |= there
    return ((level, mask) for level, mask in masks.items() if mask.any())
