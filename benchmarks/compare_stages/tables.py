"""compare.md: what was compared, as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from roofline._repr import github_table
from roofline.units import fmt_bytes, fmt_number, fmt_percent, fmt_si

from .judging import Verdict, judged, moved, times

HEADERS = (
    "problem", "ours", "time", "of its roof", "best rival", "its time", "its time / ours [95 %]", "verdict",
    "other rivals, reasons",
)  # fmt: skip


def label(name: str, rival: Mapping[str, Any]) -> str:
    """The rival and what it ran, where it says so."""
    ran = rival.get("facts", {}).get("implementation")
    return f"{name} ({ran})" if ran else name


def cells(row: Mapping[str, Any], verdict: Verdict) -> list[str]:
    ratio = "" if verdict.ratio is None else f"{verdict.ratio:.3f} [{verdict.low:.3f} … {verdict.high:.3f}]"
    rivals = row.get("rivals", {})
    taken = times(row)
    others = [
        f"{name} {fmt_si(taken[name][0], 's')}" if name in taken else f"{name}: {rival['reason']}"
        for name, rival in rivals.items()
        if name != verdict.rival
    ]
    # A reason would make its column as wide as itself.
    short, _, reason = verdict.verdict.partition(": ") if verdict.ratio is None else (verdict.verdict, "", "")
    ours_s, theirs_s = (fmt_si(seconds, "s") if seconds else "" for seconds in (verdict.ours_s, verdict.theirs_s))
    share = fmt_percent(verdict.share) if verdict.share else ""
    if not share and verdict.ours_s and "after" in row.get("roofs", {}):
        share = f"moved by {fmt_percent(moved(row), 2)}"
    best = label(verdict.rival, rivals[verdict.rival]) if verdict.rival else ""
    ran = row.get("ours", {}).get("implementation", "")
    return [row["name"], ran, ours_s, share, best, theirs_s, ratio, short, "; ".join([reason] if reason else others)]


def described(name: str, about: Mapping[str, Any]) -> str:
    if "missing" in about:
        return f"{name}: {about['missing']}"
    versions = ", ".join(f"{key} {value}" for key, value in about.get("versions", {}).items())
    settings = ", ".join(f"{key}: {value}" for key, value in about.get("settings", {}).items())
    return f"{name}: {'; '.join(filter(None, (versions, settings)))}; {about.get('threads')} threads"


def summary_of(verdicts: Sequence[Verdict]) -> str:
    """How many points are judged in each way, and how many are not."""
    counts = {word: sum(v.verdict.startswith(word) for v in verdicts) for word in ("faster", "slower", "undecided", "not judged")}
    rest = len(verdicts) - sum(counts.values())
    return ", ".join(f"{count} {word}" for word, count in counts.items()) + f", {rest} without a comparison."


def markdown(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> str:
    ours = about["ours"]
    caches = ", ".join(fmt_bytes(ours[f"l{i}_bytes"]) for i in (1, 2, 3) if ours.get(f"l{i}_bytes"))
    verdicts = [judged(row) for row in rows]
    lines = [
        f"# CPU operators beside other software: {ours['cpu_name']}",
        "",
        f"{about['threads']} threads of {ours['usable_cores']} usable cores, {ours['isas']}, caches {caches}; {about['os']}; "
        f"{about['utc']}. {about['turns']} turns of {fmt_number(about['turn_s'])} s a side.",
        "",
        f"Before every call of a cold point each side writes {fmt_bytes(about['sweep_bytes'])} with its own threads, and for 0.1 s "
        "before a turn; warm operands stay where the last call left them. All sides are called from Python, one process each, on "
        "the same data, with constant weights that were packed before. Ratios above 1: ours is the faster. Roofs are measured "
        "around the turns of each point; where they moved by more than 10 %, our share of them is not known.",
        "",
        *(f"- {described(name, seen)}" for name, seen in about["rivals"].items()),
        "",
        "Variables of the rivals' processes: " + ", ".join(f"{k}={v}" for k, v in about["variables"].items()) + ".",
        "",
        summary_of(verdicts),
        "",
        github_table(HEADERS, list(map(cells, rows, verdicts))),
    ]
    return "\n".join(lines) + "\n"
