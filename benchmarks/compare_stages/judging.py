"""What turns come to: ratios with intervals, and verdicts. Rows are as they are stored."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from in_turns import FEWEST

from roofline.machine import IMPLAUSIBLE
from roofline.units import fmt_percent

RESAMPLES = 4000
# From here on the machine before the turns was not that after them. Ratios stand, as a turn and its neighbour meet one machine:
# where ceilings moved by 12 to 140 %, the ratios of a point spread by 19 %, and by 15 % where they stayed.
ROOF_MOVED = 0.10
NOT_JUDGED = "not judged"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """rival: the fastest. ratio: its time over ours, above 1 where ours is the faster; low..high its 95 % interval. share: of the
    roof, None where it is not known.
    """

    verdict: str
    rival: str = ""
    ours_s: float | None = None
    theirs_s: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    share: float | None = None
    rounds: int = 0


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Median of the turns' ratios, and the middle 95 % of the medians of as many turns drawn at random from them."""
    values = np.asarray(ratios, dtype=np.float64)
    drawn = np.random.default_rng(0).choice(values, size=(RESAMPLES, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return float(np.median(values)), float(low), float(high)


def time_s(turn: Mapping[str, Any]) -> float:
    return float(statistics.median(turn["samples_s"]))


def quiet(pair: Mapping[str, Any]) -> bool:
    return bool(pair["ours"]["quiet"] and pair["theirs"]["quiet"])


def counted(row: Row, rival: str) -> list[Mapping[str, Any]]:
    """The pairs of turns against one rival that count: quiet ones, or all where these are too few."""
    pairs = [pair for pair in row["pairs"] if pair["rival"] == rival]
    calm = [pair for pair in pairs if quiet(pair)]
    return calm if len(calm) >= FEWEST else pairs


def disturbed(row: Row, rival: str = "") -> str:
    """Why a row that ran is not judged, by one rival's turns or all; empty where it is."""
    pairs = [pair for pair in row["pairs"] if not rival or pair["rival"] == rival]
    loud = [pair for pair in pairs if not quiet(pair)]
    if len(pairs) - len(loud) < FEWEST:
        return f"other load in {len(loud)} of {len(pairs)} turns" if loud else f"only {len(pairs)} turns"
    share = share_of(row, ours_s(row))
    return f"ours is at {fmt_percent(share)} of its roof" if share and share > IMPLAUSIBLE else ""


def moved(row: Row) -> float:
    """How far the ceilings before the turns and after them are apart."""
    before, after = (row["roofs"][when]["time_s"] for when in ("before", "after"))
    return float(max(before, after) / min(before, after) - 1)


def steady(row: Row) -> bool:
    """Whether the ceilings were measured around the turns, and stayed."""
    return "after" in row.get("roofs", {}) and moved(row) <= ROOF_MOVED


def share_of(row: Row, own_s: float | None) -> float | None:
    """What the roof allows over our time; None where the ceilings moved: which of them the turns met is not known."""
    return roof_s(row) / own_s if own_s and steady(row) else None


def times(row: Row) -> dict[str, tuple[float, bool]]:
    """Median seconds of each rival, and whether it took part in the turns (else of its first short one)."""
    found = {}
    for name, rival in row.get("rivals", {}).items():
        if (pairs := counted(row, name)) and not rival["reason"]:
            found[name] = statistics.median(time_s(pair["theirs"]) for pair in pairs), True
        elif rival.get("first"):
            found[name] = time_s(rival["first"]), False
    return found


def ours_s(row: Row) -> float | None:
    pairs = [pair for name in row.get("rivals", {}) for pair in counted(row, name)]
    if pairs:
        return statistics.median(time_s(pair["ours"]) for pair in pairs)
    return time_s(row["alone"]) if row.get("alone") else None


def roof_s(row: Row) -> float:
    return float(statistics.mean(row["roofs"][when]["time_s"] for when in ("before", "after")))


def judged(row: Row) -> Verdict:
    """Against the fastest rival of those that took turns."""
    own = ours_s(row)
    share = share_of(row, own)
    if row.get("reason"):
        return Verdict(row["reason"], ours_s=own, share=share)
    took = {name: seen for name, (seen, turns) in times(row).items() if turns}
    if not took:
        reasons = "; ".join(f"{name}: {rival['reason']}" for name, rival in row["rivals"].items())
        return Verdict(f"no rival: {reasons}", ours_s=own, share=share)
    name = min(took, key=lambda rival: took[rival])
    pairs = counted(row, name)
    own = statistics.median(time_s(pair["ours"]) for pair in pairs)
    ratio, low, high = interval([time_s(pair["theirs"]) / time_s(pair["ours"]) for pair in pairs])
    if why := disturbed(row, name):
        verdict = f"{NOT_JUDGED}: {why}"
    else:
        verdict = "faster" if low > 1 else "slower" if high < 1 else "undecided: the interval spans 1"
    return Verdict(verdict, name, own, took[name], ratio, low, high, share_of(row, own), len(pairs))
