"""One problem timed on one device: measured values are stored, every rate is derived."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .._repr import Parts, Row, Shown, json_form, printable, values_of
from ..errors import Error
from ..machine import RATE_UNITS, Machine, Summary, modes, summary, to_json
from ..machine.facts import StatedConditions, StatedPlan, StatedProvenance
from ..machine.statistics import summary_of
from ..operators import OPERATORS, Operator, from_dict as operator_from_dict
from ..operators.scales import GEMM, heading_fields, one_length, shown_fields
from ..reading import SCHEMA_VERSION, Amount, Integer, Scalars, Seconds, Text, Whole, build
from ..units import fmt_number, fmt_percent, fmt_si
from ..words import counted, require_one_of
from .brackets import Bracket, positive
from .parts import StatedCorrectness, StatedLoad, StatedPrediction

BUSY = 0.8  # of a window: below, more than a quarter of its energy may be that of pauses
CALLABLE = "callable"  # the variant of what measure_callable timed
CACHE_STATES = ("cold", "warm", "user")
STATUSES = ("ok", "contended", "roof_moved", "implausible", "unsupported", "out_of_memory", "failed")


def measurement_key(operator: str, problem: Mapping[str, Any], variant: str, device: str, threads: int, cache_state: str) -> str:
    """What makes two measurements the same point of a sweep: the SHA-256 of these six as canonical JSON, in hexadecimal."""
    parts = {
        "operator": operator, "problem": problem, "variant": variant, "device": device, "threads": threads,
        "cache_state": cache_state,
    }  # fmt: skip
    return hashlib.sha256(to_json(parts, where=f"the problem of {operator}", canonical=True).encode()).hexdigest()


def fmt_conditions(conditions: Mapping[str, Any]) -> str:
    """In one line: "1.41 GHz, 690 W, 62 °C, power limited, sw power cap 96 %"."""
    value = conditions.get
    words = [
        fmt_si(value("sm_clock_hz"), "Hz") if value("sm_clock_hz") else "",
        f"{fmt_number(value('power_w'))} W" if value("power_w") else "",
        f"{fmt_number(value('temperature_c'), 2)} °C" if value("temperature_c") else "",
        "power limited" if value("power_limited") else "",
        *(
            f"{name.removesuffix('_share').replace('_', ' ')} {fmt_percent(share, 2)}"
            for name, share in conditions.items()
            if name.endswith("_share") and name != "gpu_idle_share"
        ),
        f"{value('other_processes')} other processes" if value("other_processes") else "",
    ]
    return ", ".join(word for word in words if word)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Measurement(Shown):
    """One problem on one device.

    Attributes:
        samples_s: seconds per launch, one per timed batch of `launches_per_sample`; empty unless it ran.
        steps: the same per step of the kernel, timed alone.
        flops: by term.
        bytes: by term at `level`, "compulsory" first, then what the variant moves beyond.
        link_bytes: from other ranks, and as many to them.
        prediction: {"time_s", "bound", "terms"} from the brackets before.
        correctness: {"checked", "max_error", "tolerance"}.
        load: {"cpu_share", "run_delay_share"} as fractions.
        repeats: tries thrown away because a roof moved.
        conditions: what the device said of itself meanwhile (clocks, power, temperature, shares of what held its clocks,
            energy).

    Raises:
        Error: for fields outside CACHE_STATES and STATUSES and for samples that are not positive.
    """

    operator: Text
    problem: Scalars
    variant: Text
    device: Text
    threads: Whole
    cache_state: Text
    status: Text = "ok"
    reason: Text = ""
    plan: StatedPlan = field(default_factory=dict)
    samples_s: tuple[Seconds, ...] = ()
    steps: Mapping[str, tuple[Seconds, ...]] = field(default_factory=dict)
    flops: Mapping[str, Whole] = field(default_factory=dict)
    bytes: Mapping[str, Whole] = field(default_factory=dict)
    link_bytes: Whole = 0
    level: Text = ""
    brackets: tuple[Bracket, ...] = ()
    prediction: StatedPrediction = field(default_factory=dict)
    correctness: StatedCorrectness = field(default_factory=dict)
    launches_per_sample: Whole = 1
    warmup_s: Amount = 0.0
    stop_reason: Text = ""
    repeats: Whole = 0
    load: StatedLoad = field(default_factory=dict)
    conditions: StatedConditions = field(default_factory=dict)
    clock_hz_before: Amount | None = None
    clock_hz_after: Amount | None = None
    seed: Integer = 0
    utc: Text = ""
    provenance: StatedProvenance = field(default_factory=dict)

    derived_keys: ClassVar[frozenset[str]] = frozenset({"schema_version", "key", "derived"})

    def __post_init__(self) -> None:
        where = f"measurement of {self.operator}"
        for name, allowed in (("cache_state", CACHE_STATES), ("status", STATUSES)):
            require_one_of(f"{where}: {name}", getattr(self, name), allowed)
        object.__setattr__(self, "samples_s", positive(f"{where}: samples_s", self.samples_s))
        object.__setattr__(
            self, "steps", {name: positive(f"{where}: steps[{name!r:.80}]", values) for name, values in self.steps.items()}
        )

    # -- derived ----------------------------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """See `measurement_key`."""
        return measurement_key(self.operator, self.problem, self.variant, self.device, self.threads, self.cache_state)

    @property
    def dtype(self) -> str:
        return str(self.problem.get("dtype", ""))

    @property
    def processor(self) -> str:
        """The name of the GPU or CPU, where it is stored; else the device's."""
        device = self.provenance.get("device", {})
        return str(device.get("gpu_name") or device.get("cpu_name") or self.device) if isinstance(device, Mapping) else self.device

    @property
    def summary(self) -> Summary | None:
        return summary_of(self.samples_s) if self.samples_s else None

    @property
    def time_s(self) -> float | None:
        """Median seconds per launch; None where nothing was timed, as for everything derived from it."""
        return summary_of(self.samples_s).median if self.samples_s else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the median time in seconds; of fewer than 6 samples their range."""
        return (summary_of(self.samples_s).low, summary_of(self.samples_s).high) if self.samples_s else None

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values())

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes.values())

    @property
    def flops_per_s(self) -> float | None:
        return None if self.time_s is None else self.total_flops / self.time_s

    @property
    def bytes_per_s(self) -> float | None:
        return None if self.time_s is None else self.total_bytes / self.time_s

    @property
    def tokens(self) -> int:
        """Tokens that one launch is for: `tokens` of its problem, or batch x seq_q; 0 where it has neither."""
        if "seq_q" in self.problem:
            return int(self.problem["seq_q"]) * int(self.problem.get("batch", 1))
        return int(self.problem.get("tokens", 0))

    @property
    def energy_per_launch_j(self) -> float | None:
        """Joules of the device per launch, the pauses between batches included; None where it does not tell, or mostly paused."""
        energy, window_s = self.conditions.get("energy_j"), self.load.get("wall_s")
        if energy is None or not window_s or not self.samples_s:
            return None
        launches = len(self.samples_s) * self.launches_per_sample
        busy = sum(self.samples_s) * self.launches_per_sample / float(window_s)
        return float(energy) / launches if busy >= BUSY else None

    @property
    def flops_per_byte(self) -> float | None:
        return self.total_flops / self.total_bytes if self.total_bytes else None

    @property
    def limiting_bracket(self) -> Bracket | None:
        """The bracket that allows the longest time; None without brackets. What runs `alone` has no launch."""
        return max((b for b in self.brackets if not (self.alone and b.kind == "latency")), key=self.allowed_s, default=None)

    @property
    def alone(self) -> bool:
        """Whether the calling thread runs it alone, so that no launch bounds it; by the prediction."""
        return bool(self.prediction.get("parts", {}).get("launch") == 0)

    def allowed_s(self, bracket: Bracket, rate: float | None = None) -> float:
        """Seconds that a bracket's roof allows for this work, at its own value or another `rate` of it."""
        return bracket.time_s(self.total_flops, self.total_bytes, self.link_bytes, rate=rate)

    @property
    def bound(self) -> str:
        """The roof that decides by the brackets: "compute", a memory level, "launch", "link"; without them by the prediction."""
        bracket = self.limiting_bracket
        if bracket is None:
            return str(self.prediction.get("bound", ""))
        return {"compute": "compute", "latency": "launch", "link": "link"}.get(bracket.kind, bracket.level or self.level)

    @property
    def attainable_s(self) -> float | None:
        """The time the roofs allow, from the mean of each bracket's ends; None without brackets."""
        bracket = self.limiting_bracket
        return None if bracket is None else self.allowed_s(bracket)

    @property
    def share_of_bracket(self) -> float | None:
        """attainable time / measured time: 1 is the roof that stood around this very measurement."""
        attainable = self.attainable_s
        return None if attainable is None or self.time_s is None else attainable / self.time_s

    @property
    def settled_share(self) -> float | None:
        """`share_of_bracket`; None where other work ran, which disturbed the brackets as well."""
        return None if self.status == "contended" else self.share_of_bracket

    def share_of_best_mode(self, machine: Machine) -> float | None:
        """As `share_of_bracket`, but against the best mode of the limiting roof; None where two modes were never seen.

        The roof's samples are those of the machine's ceiling for the bracket's problem, pooled with the bracket's own.
        """
        bracket = self.limiting_bracket
        if bracket is None or self.time_s is None:
            return None
        ceiling = machine.matching(bracket.problem, variant=bracket.variant) if bracket.problem else None
        found = modes((*(ceiling.samples if ceiling else ()), *bracket.samples))
        if len(found) < 2:
            return None
        best = found[0] if bracket.kind == "latency" else found[-1]
        return self.allowed_s(bracket, best.value) / self.time_s

    @property
    def prediction_error(self) -> float | None:
        """predicted / measured - 1: negative where the model was too fast."""
        predicted = self.prediction.get("time_s")
        return None if predicted is None or self.time_s is None else float(predicted) / self.time_s - 1

    # -- files ------------------------------------------------------------------------------------------------------------

    def derived(self) -> dict[str, float | str | None]:
        """Everything derived that a reader of a file wants, units in the names."""
        low, high = self.interval or (None, None)
        return {
            "time_s": self.time_s,
            "time_low_s": low,
            "time_high_s": high,
            **values_of(self, "flops_per_s bytes_per_s flops_per_byte bound share_of_bracket energy_per_launch_j"),
            **values_of(self, "prediction_error"),
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON form: one line of a results file. `key` and `derived` are for readers and ignored when read back."""
        return {"schema_version": SCHEMA_VERSION, "key": self.key, **json_form(self), "derived": self.derived()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "measurement") -> Measurement:
        """The inverse of `to_dict`. Raises Error naming `where` and the key."""
        made = build(cls, data, where=where)
        if made.operator in OPERATORS and made.variant != CALLABLE:  # a callable may bear any name
            try:
                operator_from_dict(made.operator, made.problem)
            except Error as error:
                raise Error(f"{where}: problem: {error}") from error
        return made

    def steps_s(self) -> dict[str, float]:
        """Seconds of each step that was timed alone, by name: the median of its samples."""
        return {name: summary(samples).median for name, samples in self.steps.items() if samples}

    def to_record(self) -> dict[str, Any]:
        """One flat row: the problem's fields and numbers with their units in the names; None where there is no value.

        A kernel of several steps has a column for each: `step_p·v_s` is that of "p·v".
        """
        start = values_of(self, "operator variant device threads cache_state status reason level")
        s, bracket = self.summary, self.limiting_bracket
        rest: dict[str, Any] = {
            "flops": self.total_flops,
            "bytes": self.total_bytes,
            "compulsory_bytes": self.bytes.get("compulsory"),
            **self.derived(),
            "time_min_s": s and s.minimum,
            "time_p5_s": s and s.p5,
            "time_p95_s": s and s.p95,
            "samples": s.n if s else 0,
            "launches_per_sample": self.launches_per_sample,
            "predicted_time_s": self.prediction.get("time_s"),
            "predicted_bound": self.prediction.get("bound"),
            "bracket": bracket and bracket.label,
            "bracket_before": bracket and bracket.median_before,
            "bracket_after": bracket and bracket.median_after,
            **{name: self.correctness.get(name) for name in ("max_error", "tolerance", "tolerance_relative")},
            **values_of(self, "repeats clock_hz_before clock_hz_after"),
            **{name: self.conditions.get(name) for name in ("sm_clock_hz", "power_w", "temperature_c", "power_limited")},
            **values_of(self, "seed utc key"),
            **{f"step_{name}_s": seconds for name, seconds in self.steps_s().items()},
        }
        taken = {*start, *rest}
        own = {(f"problem_{name}" if name in taken else name): value for name, value in self.problem.items()}
        return {**start, **own, **rest}

    # -- reprs ------------------------------------------------------------------------------------------------------------

    @property
    def short_problem(self) -> str:
        """The fields of the problem in one line: "batch=8 seq_q=1 fp32"."""
        problem = problem_behind(self)
        fields = shown_fields(self.problem) if problem is None else heading_fields(problem)
        return " ".join(str(value) if name == "dtype" else f"{name}={value}" for name, value in fields.items())

    def brief_problem(self, always: frozenset[str] = frozenset()) -> str:
        """The fields that differ from the operator's defaults (or are in `always`), and the dtype: "seq_q=1 seq_kv=8192 fp32"."""
        cls = OPERATORS.get(self.operator)
        if cls is None:
            return self.short_problem
        defaults = cls().to_dict()
        if defaults.get("kv_heads", 0) == defaults.get("heads"):  # as many as heads, whatever their number
            defaults["kv_heads"] = self.problem.get("heads")
        kept = {n: v for n, v in self.problem.items() if n != "dtype" and (v != defaults.get(n) or n in always)}
        letters = GEMM if self.problem.keys() >= GEMM.keys() else {}
        return " ".join([*(f"{letters.get(name, name)}={value}" for name, value in one_length(kept).items()), self.dtype]).strip()

    def __repr__(self) -> str:
        what = f"{self.operator} {self.variant}".strip()
        if self.time_s is None:
            return printable(f"Measurement({what}, {self.short_problem}, {self.status}: {self.reason or 'no reason recorded'})")
        share = "" if self.settled_share is None else f", {fmt_percent(self.settled_share)} of its {self.bound} roof"
        status = "" if self.status == "ok" else f", {self.status}"
        took = fmt_si(self.time_s, "s")
        return printable(f"Measurement({what}, {self.short_problem}, {self.cache_state}, {took}{share}{status})")

    def _table(self) -> Parts:
        rows: list[Row] = [
            ("problem", self.short_problem),
            ("device", f"{self.device}, {counted(self.threads, 'thread')}, {self.cache_state}"),
        ]
        rows.append(("status", self.status + (f": {self.reason}" if self.reason else "")))
        s = self.summary
        if s is not None:
            around = f"  [{fmt_si(s.low, 's')}, {fmt_si(s.high, 's')}] {s.interval_name}" if s.n > 1 else ""
            rows += [
                ("time", f"{fmt_si(s.median, 's')}{around}, n = {s.n}"),
                ("rate", f"{fmt_si(self.flops_per_s, 'FLOP/s')}, {fmt_si(self.bytes_per_s, 'B/s')} at {self.level or 'its level'}"),
                ("intensity", f"{fmt_number(self.flops_per_byte)} FLOP/byte"),
            ]
        if self.conditions:
            rows.append(("conditions", fmt_conditions(self.conditions)))
        energy = self.energy_per_launch_j
        if energy is not None:
            per = {"FLOP": self.total_flops, "B": self.total_bytes, "token": self.tokens}
            each = [fmt_si(energy / count, f"J/{unit}") for unit, count in per.items() if count]
            rows.append(("energy", ", ".join([f"{fmt_si(energy, 'J')} per launch", *each])))
        for bracket in self.brackets:
            ends = " then ".join(
                fmt_si(v, RATE_UNITS[bracket.kind]) for v in (bracket.median_before, bracket.median_after) if v is not None
            )
            rows.append(("bracket", f"{bracket.label}: {ends}"))
        if self.status == "contended" and self.time_s is not None:
            rows.append(("not settled", "the share of attainable, and the prediction's error: the brackets were disturbed too"))
            return f"{self.operator} {self.variant}".strip(), ("", ""), rows, ()
        if self.share_of_bracket is not None:
            rows.append(("reached", f"{fmt_percent(self.share_of_bracket)} of attainable ({self.bound}-bound)"))
        if self.prediction_error is not None:
            rows.append(("predicted", f"{fmt_si(self.prediction['time_s'], 's')} (error {fmt_percent(self.prediction_error)})"))
        return f"{self.operator} {self.variant}".strip(), ("", ""), rows, ()


def problem_behind(m: Measurement) -> Operator | None:
    """The operator with its sizes; None for a user's callable, which has none."""
    try:
        return operator_from_dict(m.operator, m.problem)
    except Error:
        return None
