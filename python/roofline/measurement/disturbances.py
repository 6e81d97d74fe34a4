"""What a measurement saw of its machine: the clock, and what kept its threads or its GPU from their work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..units import fmt_percent

# What holds a GPU's clocks and is no property of the roof: heat, and faults of its supply.
THROTTLING = ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake")


def disturbed(seen: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Why a result of `Device.core.sample` or `measure` was contended; empty where it was not."""
    if seen["throttled"]:
        return throttling(seen["conditions"])
    return contention(seen["load"], facts) if seen["contended"] else ""


def clock_hz(seen: Mapping[str, Any]) -> float:
    """The clock of what `Device.core.sample` saw: in its batches, else the higher of before and after; 0 where unknown."""
    within = float(seen.get("conditions", {}).get("sm_clock_in_batches_hz", 0.0))
    return within or max(float(seen["clock_before_hz"]), float(seen["clock_after_hz"]))


def throttling(conditions: Mapping[str, Any]) -> str:
    """What slowed the GPU, and for how much of the time."""
    shares = {name.replace("_", " "): conditions.get(f"{name}_share") for name in THROTTLING}
    causes = ", ".join(f"{name} for {fmt_percent(share, 2)}" for name, share in shares.items() if share)
    return f"the GPU slowed itself down: {causes} of the time; improve its cooling or supply, or let it rest"


def contention(load: Mapping[str, float], facts: Mapping[str, Any]) -> str:
    """What kept the threads from their cores: a quota (of the device's facts), other processes, or the host of a guest."""
    missing, waited, foreign = 1 - load["cpu_share"], load["run_delay_share"], load["foreign_cores"]
    seen = f"threads had {fmt_percent(load['cpu_share'])} of the time and waited {fmt_percent(waited)} of it for a core"
    quota = float(facts.get("quota_cores") or 0)
    if 0 < quota < int(facts.get("threads") or 1) and waited > 0:
        return f"the control group allows {quota:.3g} cores and stops threads in mid-run: {seen}; raise its quota"
    if foreign:
        seen += f", other processes kept {foreign:.2f} cores busy"
    elif missing > 2 * waited:
        return f"the host of this virtual machine ran other work on these cores: {seen}; repeat when it is quieter"
    return f"other work ran on these cores: {seen}; repeat on an idle machine"
