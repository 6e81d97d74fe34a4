"""Where the time of a phase goes, as predicted or as measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack

from ...census import census_of
from ...counts import by_key, summed
from ...errors import Error
from ...machine import Given, machine_of
from ...transformer import Given as Model, ModelPrediction, predict_model
from ...units import fmt_percent, fmt_si
from .. import style
from ..asked import Measured, modelled, phases_of, results_of
from ..bars import Bar, Mark, Row, Rows
from ..figure import Panels, StepsAssumptions, picture
from ..models import TAKEN, TYPES, names_of, prediction_notes

LEAST_SHARE = 0.005  # parts of less of the time are joined
WORDS = {"product": "matrix products", "exp": "exponentials", "other": "other arithmetic", "overlap": "not overlapped"}


def _predicted(found: ModelPrediction) -> Rows:
    """All of the time by roof, then kernel by kernel, as shares."""
    total = found.time_s

    def row(label: str, profile: Mapping[str, float], seconds: float, **more: Any) -> Row:
        bars, start = [], 0.0
        for roof, each in profile.items():
            bars.append(Bar(start=start, end=start + 100 * each / total, fill=roof, key=roof))
            start += 100 * each / total
        record = {"time_s": seconds, "share": seconds / total, **{f"{roof}_s": profile.get(roof, 0.0) for roof in found.profile}}
        return Row(
            label=label, bars=bars, text=f"{fmt_percent(seconds / total)}  {fmt_si(seconds, 's')}", record={**record, **more}
        )

    parts = by_key((part.call.name, part) for part in found.parts)
    by_name = {name: summed(item for part in some for item in part.profile.items()) for name, some in parts.items()}
    if found.overhead_s:
        by_name["overhead"] = {"overhead": found.overhead_s}
    times = {name: math.fsum(own.values()) for name, own in by_name.items()}
    large, small = _by_size(times, total)
    rows = [row("all", found.profile, total, flops=found.flops, bytes=found.bytes, bound=found.bound)]
    for name in large:
        own, some = by_name[name], parts.get(name, [])
        flops, moved = sum(part.flops for part in some), sum(part.bytes for part in some)
        rows.append(row(name, own, times[name], flops=flops, bytes=moved, bound=max(own, key=lambda roof: own[roof])))
    if small:
        rest = summed(item for name in small for item in by_name[name].items())
        rows.append(row(f"{len(small)} others" if len(small) > 1 else small[0], rest, math.fsum(rest.values())))
    first = (
        f"{found.config.name}, {found.phase}, on {found.machine}: {fmt_si(total, 's', 4)}, {fmt_si(found.tokens_per_s, 'tok/s')}"
    )
    notes = [first, f"ceilings: {'; '.join(found.ceilings)}", *([f"others: {', '.join(small)}"] if len(small) > 1 else [])]
    return Rows(
        title=f"Where the time goes: {found.config.name}, {names_of([found.phase])[0]}", x_label="Share of the time [%]", rows=rows,
        names={roof: WORDS.get(roof, roof) for roof in style.LIGHT.fills}, notes=[*notes, *prediction_notes([found])],
        limits=(0.0, 100.0),
    )  # fmt: skip


def _by_size(times: Mapping[str, float], total: float) -> tuple[list[str], list[str]]:
    """Names of parts, longest first, and of those that are joined."""
    order = sorted(times, key=lambda name: -times[name])
    large = [name for name in order if times[name] >= LEAST_SHARE * total]
    return large, [name for name in order if name not in large]


def _measured(config: Any, machine: Any, phase: Any, results: Any, how: Mapping[str, Any]) -> Rows:
    """Seconds of each kernel: measured where it was, else expected; a tick is the expected time of a measured one."""
    census = census_of(config, phase, machine, results=results, **how)
    expected = summed((e.name, e.count * e.time_s) for e in census.entries if e.time_s is not None)
    seen = summed((e.name, e.count * e.measured_s) for e in census.entries if e.measured_s is not None)
    rest = summed((e.name, e.count * e.time_s) for e in census.entries if e.time_s is not None and e.measured_s is None)
    if not seen:
        raise Error(f"no measurement there has the shape of a kernel of {config.name}, {phase}: see `roofline census`")
    times = {name: seen.get(name, 0.0) + rest.get(name, 0.0) for name in expected}
    total, all_seen = math.fsum(times.values()), math.fsum(seen.values())
    large, small = _by_size(times, total)
    rows = []
    joined = {f"{len(small)} others": small} if small else {}
    for name, kernels in {"all": [*times], **{name: [name] for name in large}, **joined}.items():
        a, b, c = (math.fsum(of.get(kernel, 0.0) for kernel in kernels) for of in (seen, rest, expected))
        bars = [Bar(end=a, fill="DRAM", key="measured")] if a else []
        bars += [Bar(start=a, end=a + b, fill="overlap", key="expected")] if b else []
        rows.append(Row(label=name, bars=bars, marks=[Mark(x=c, marker="|", colour="ink", key="tick")] if a else [],
                        text=f"{fmt_percent((a + b) / total)}  {fmt_si(a + b, 's')}",
                        record={"time_s": a + b, "share": (a + b) / total, "measured_s": a, "expected_s": c}))  # fmt: skip
    notes = [
        f"{config.name}, {phase}, on {census.machine}: {fmt_si(total, 's', 4)}, {fmt_percent(all_seen / total)} of it measured"
    ]
    return Rows(
        title=f"Where the time goes, measured: {config.name}, {names_of([phase])[0]}", x_label="Time", unit="s", rows=rows,
        names={"measured": "measured", "expected": "expected, not measured", "tick": "expected"}, notes=[*notes, *census.notes],
    )  # fmt: skip


@picture("where the time goes, by roof and kernel, predicted or measured", group="model",
         example="plot.block_profile(predict(h100, llama, Decode()))")  # fmt: skip
def block_profile(
    machine: Given | ModelPrediction | Sequence[ModelPrediction], model: Model | None = None, *,
    results: Measured | None = None, **how: Unpack[StepsAssumptions],
) -> Panels:  # fmt: skip
    """Where the time of a phase goes: all of it by the roof it is spent under, then kernel by kernel; a panel a phase.

    With results it is that of the measured kernels; bars of those that were not measured are pale, ticks are expected times.

    Args:
        machine: one, or predictions of a model on one.
        model: a model; predictions have their own.
        results: measurements of its kernels, a results.jsonl or its folder.

    element of the records "row": time_s, share, and seconds by roof, or measured_s and expected_s.
    """
    if isinstance(machine, ModelPrediction):
        yield _predicted(machine)
    elif isinstance(machine, Sequence) and not isinstance(machine, str):
        yield from map(_predicted, machine)
    elif model is None:
        raise Error("block_profile needs a model beside its machine, such as 'Llama-3-8B'")
    else:
        yield from _of_model(model, machine_of(machine), results, how)


def _of_model(model: Any, machine: Any, results: Measured | None, how: Mapping[str, Any]) -> Iterator[Rows]:
    rest = dict(how)
    phases = phases_of(rest, TYPES)
    config, options = modelled(model, rest)
    seen = results_of(results)
    for each in phases:
        if results is not None:
            yield _measured(config, machine, each, seen, {name: options[name] for name in TAKEN if name in options})
        else:
            yield _predicted(predict_model(machine, config, each, must_fit=False, **options))
