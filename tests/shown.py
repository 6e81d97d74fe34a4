"""What objects and pictures show, for tests to look at."""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any


def pretty(thing: Any, *, cycle: bool = False) -> str:
    """The text that IPython's pretty printer is given."""
    written: list[str] = []
    thing._repr_pretty_(SimpleNamespace(text=written.append), cycle)
    return "".join(written)


def lines(ax: Any, start: str) -> list[Any]:
    """The lines of Axes whose gid begins so."""
    return [line for line in ax.lines if str(line.get_gid() or "").startswith(start)]


def data(line: Any) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def notes(records: Iterable[Mapping[str, Any]]) -> str:
    """Those of a picture's records, in one line."""
    return " ".join(" ".join(r["label"] for r in records if r["element"] == "note").split())
