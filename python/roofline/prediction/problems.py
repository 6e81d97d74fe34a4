"""The expected time of one problem, from its work, its bytes at every level, and a machine's rates."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._repr import Parts, Row, printable, values_of
from ..counts import any_of, larger, pick, smaller
from ..errors import Error
from ..kernel_costs import KernelCosts, kernel_costs, timed_alike, untimed
from ..machine import LEVELS, MEMORIES, Machine
from ..model import Roofs, bound, compute_ceiling, roofs_and_notes, terms_s, time_s as roof_time_s
from ..operators.base import WORK, Facts, Operator
from ..operators.scales import heading_fields
from ..reading import SCHEMA_VERSION
from ..units import SECONDS, fmt_si, within
from .expected import ROOF_WORDS, Expected, Utilisation, longest, utilisation_of
from .rates import Rates, machine_rates, memory_and_rest_s, moved_bytes, reused_bytes, share_of

CLEAR = 1.03  # times as fast: less is within what predictions can tell
ROUNDING = 1e-12  # of a time: a difference of floating-point sums below this is 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prediction(Expected):
    """The expected time of one problem, and the time its roofs allow.

    Attributes:
        problem: which one.
        machine: the name of the machine.
        time_s: expected, from `parts` (seconds of each level, kind of work, and launch).
        roof_s: the longest of `terms` (seconds per roof), a lower bound.
        bound: which that is.
        most_s: what it may come to where something was not measured and another ceiling stands for it: with the bytes of such a
            cache at the operands' level, or (two standard deviations) with a kernel of another dtype; else None.
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
        return {roof: seconds for roof, seconds in {"launch": launch, **most, "overlap": left}.items() if any_of(seconds > least)}

    def record(self) -> dict[str, Any]:
        fields = {} if self.problem is None else self.problem.to_dict()
        shown = Expected.record(self)
        return {"machine": self.machine, "what": shown.pop("what"), **fields, **shown, "roof_s": self.roof_s}

    def as_answer(self) -> dict[str, Any]:
        """JSON form with its problem and machine: what `roofline predict OPERATOR --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION, "kind": "prediction", "machine": self.machine, "operator": self.what,
            "problem": {} if self.problem is None else self.problem.to_dict(), **self.to_dict(),
            **values_of(self, "flops bytes flops_per_s bytes_per_s"), "flops_per_byte": self.flops_per_byte if self.bytes else None,
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """What a measurement stores: time_s, roof_s, bound, terms, parts, and most_s and notes where there are any."""
        more = {name: value for name, value in values_of(self, "most_s notes").items() if value}
        return {**values_of(self, "time_s roof_s bound terms parts"), **more}

    def __repr__(self) -> str:
        on = f"{self.what} on {self.machine}: " if self.what and self.machine else ""
        return printable(f"Prediction({on}{fmt_si(self.time_s, 's')}, {self.bound}-bound, {fmt_si(self.flops_per_s, 'FLOP/s')})")

    @property
    def title(self) -> str:
        """What and on what, in a line."""
        if self.problem is None:
            return repr(self)
        fields = ", ".join(f"{name} {value}" for name, value in heading_fields(self.problem).items())
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
            if seconds > 0
        ]
        parts: list[Row] = [
            (ROOF_WORDS.get(name, name), fmt_si(seconds, "s"), self.rates.labels.get(name, ""))
            for name, seconds in self.parts.items()
            if seconds > 0
        ]
        most = f" to {fmt_si(self.most_s, 's')}" if self.most_s else ""
        return ("", "time", "ceiling"), [*roofs, *parts, ("expected", f"{fmt_si(self.time_s, 's')}{most}", "")]

    def _table(self) -> Parts:
        return repr(self), *self.table(), self.notes


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
    return sizes, {level: found for level, found in missing.items() if any_of(found[1])}


def expect(
    problem: Operator,
    plan: Facts,
    facts: Mapping[str, Any],
    roofs: Roofs,
    rates: Rates,
    moved: Mapping[str, Mapping[str, int]],
    kernel: KernelCosts | None = None,
) -> Prediction:
    """The prediction from rates and the bytes of `moved_bytes`. For a batch (`Operator.many`) its numbers are arrays.

    kernel: what the kernel takes beyond the parts; where it takes less, all parts but launches are shorter alike.
    """
    flops, bytes_, link = problem.total_flops(), sum(moved[roofs.level].values()), problem.link_bytes()
    served, missing = _served(problem, plan, facts, roofs, rates, moved)
    # On a CPU, whose facts these are, one piece of work is left to the calling thread.
    alone = bool(facts) * (problem.pieces(plan) == 1)
    parts = rates.parts_s(problem.work(plan), served, problem.launches(plan) * (1 - alone))
    notes, left_out = [], 0
    for level, (where, size) in missing.items():
        most = f"{'up to ' if isinstance(size, np.ndarray) else ''}{fmt_si(np.max(size), 'B')}"
        said = f"no {level} bandwidth was measured: the {most} that it serves"
        notes.append(f"{said} count at {where}'s" if where else f"{said} are left out of the time")
        left_out += 0 if where else size
    more_s = left_out / rates.bandwidths[roofs.level]
    most_s = rates.time_s({**parts, roofs.level: parts.get(roofs.level, 0.0) + more_s}) if any_of(left_out) else None
    time_s = rates.time_s(parts)
    if kernel is not None:
        launch_s, memory_rest_s, cold = parts["launch"], memory_and_rest_s(parts), roofs.level in MEMORIES
        overlapped_s = time_s - launch_s
        more = kernel.more_s(problem, *memory_rest_s, overlapped_s, cold=cold, launch_s=launch_s)
        beyond_s = sum(more.values())
        more["kernel"] = larger(more["kernel"], 0.0)
        shorter = smaller((overlapped_s + beyond_s) / larger(overlapped_s + sum(more.values()), sys.float_info.min), 1.0)
        parts = {name: seconds if name == "launch" else seconds * shorter for name, seconds in (parts | more).items()}
        parts = {name: seconds for name, seconds in parts.items() if name not in more or any_of(seconds)}
        time_s, most_s = time_s + beyond_s, None if most_s is None else most_s + beyond_s
        if kernel.replaced and not isinstance(time_s, np.ndarray):
            notes.append(kernel.replaced)
            doubt = kernel.doubt(problem, *memory_rest_s, cold=cold, launch_s=launch_s)
            most_s = larger(most_s or 0.0, time_s * math.exp(2 * doubt))
    met = (flops, bytes_, roofs, link, 1 - alone)
    return Prediction(
        time_s=time_s, roof_s=_unboxed(roof_time_s(*met)), bound=_unboxed(bound(*met)),
        terms={name: _unboxed(seconds) for name, seconds in terms_s(*met).items()}, parts=parts, roofs=roofs,
        rates=rates, flops=flops, bytes=bytes_, notes=tuple(notes), most_s=most_s,
    )  # fmt: skip


def _shows(found: Prediction) -> bool:
    """Whether another peak would change the time: half of the one that was used, or an endless one."""
    least_s, most_s = (
        found.rates.time_s({name: seconds * (times if name in WORK else 1) for name, seconds in found.parts.items()})
        for times in (0, 2)
    )
    return bool(any_of(most_s > CLEAR * least_s))


def _unboxed(x: NDArray[Any]) -> Any:
    """A Python number or text of an array without axes; an array with some as it is."""
    return x if x.ndim else x.item()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
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

    def rates(self, machine: Machine, problem: Operator, plan: Facts) -> tuple[Roofs, Rates, tuple[str, ...]]:
        """The roofs of `problem`, what the parts of the plan's variant run at, and notes."""
        roofs, notes = roofs_and_notes(machine, problem, self.level, self.threads, self.unit, plan.get("arithmetic", ""))
        if self.launch_s is not None:
            roofs = dataclasses.replace(roofs, floor_s=self.launch_s, labels={**roofs.labels, "launch": "as given"})
        rates = machine_rates(machine, problem, roofs, variant=plan["variant"], threads=self.threads, unit=self.unit)
        if self.knee is not None:
            rates = dataclasses.replace(rates, knee=self.knee)
        shares = utilisation_of(self.utilisation)
        if any(share != 1 for share in shares.values()):
            rates, roofs = rates.derated(shares), roofs.derated(**shares)
            labels = {
                name: share_of(label, shares, "bandwidth" if name == "memory" else name) for name, label in roofs.labels.items()
            }
            roofs = dataclasses.replace(roofs, labels=labels)
        return roofs, rates, notes

    def prediction(self, machine: Machine, problem: Operator, variant: str | None, plan: Facts | None) -> Prediction:
        """The prediction of a problem, or of a batch of them. Raises Error for an unknown variant.

        The kernel is `variant`, else the plan's variant, else "": no kernel of ours, see `Operator.traffic`.
        """
        if variant:
            problem.require_variant(variant)
        own = variant or (plan or {}).get("variant") or ""
        facts = {**(plan or {}), "variant": own}
        roofs, rates, notes = self.rates(machine, problem, facts)
        caches = machine.facts if machine.device == "cpu" else {}
        kernel = kernel_costs(machine, problem, own, planned=any(name != "variant" for name in plan or ()))
        found = expect(problem, facts, caches, roofs, rates, moved_bytes(problem, facts, caches, roofs.level), kernel)
        asked = (machine, problem, self.threads, self.unit, facts.get("arithmetic", ""))
        other = compute_ceiling(*asked)[1] if "compute" in roofs.labels else ""
        if other and not _shows(found):
            notes = tuple(note for note in notes if note != other)
        notes = (*notes, *found.notes, *(() if kernel else untimed(machine, problem, own)))
        return dataclasses.replace(found, notes=notes, problem=problem, machine=machine.name)


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
    assumed = Assumed(level=level, threads=threads, unit=unit, utilisation=utilisation, launch_s=launch_s, knee=knee)
    return assumed.prediction(machine, problem, variant, plan)


def default_variant(
    machine: Machine | None, problem: Operator, backend: str, runs: Callable[[str], bool], *, level: str | None = None
) -> str:
    """The variant of `problem` that runs unless the user names one.

    backend: "cpu" or "cuda". runs: whether the device can run a variant. The rule is `Operator.default_variant`; where the device
    cannot run that one, the last other variant that suits the problem and that it can run. Where `machine` timed the kernels of
    several variants on standard problems, with few rows or many as this one has, it is the one with the shortest expected time with
    operands in `level` (None: the slowest), if that is clearly shorter than the rule's.
    """
    ruled = problem.default_variant(backend)
    suited = [name for name in problem.variants if problem.suits(name, backend) and runs(name)]
    if not runs(ruled):
        ruled = [ruled, *suited][-1]
    if machine is None:
        return ruled
    times = {}
    for name in dict.fromkeys((ruled, *suited)):
        if timed_alike(machine, problem, name):
            try:
                times[name] = predict_problem(machine, problem, variant=name, level=level).time_s
            except Error:  # roofs that were left out for lack of time
                return ruled
    best = min(times, key=lambda name: times[name], default=ruled)
    return best if ruled in times and times[ruled] > CLEAR * times[best] else ruled
