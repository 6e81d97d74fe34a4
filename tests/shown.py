"""What objects, pictures and pages show, for tests to look at."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
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


def words(ax: Any, start: str) -> list[str]:
    """The texts of Axes whose gid begins so."""
    return [text.get_text() for text in ax.texts if str(text.get_gid() or "").startswith(start)]


def luminance(rgb: Iterable[float]) -> float:
    """Luminance of an sRGB colour whose parts are 0 to 1: its grey."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: float, other: float) -> float:
    """The contrast ratio of two luminances, as WCAG 2 defines it."""
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def data(line: Any) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def notes(records: Iterable[Mapping[str, Any]]) -> str:
    """Those of a picture's records, in one line."""
    return " ".join(" ".join(r["label"] for r in records if r["element"] == "note").split())


def eventually(browser: Any, script: str, *arguments: object) -> None:
    """Waits until a script gives something true in the browser's page; two minutes, for what takes seconds on an idle machine."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 120, poll_frequency=0.05).until(lambda each: each.execute_script(script, *arguments))


def fonts_known(folder: Path) -> str:
    """MPLCONFIGDIR for a program: the folder, made, with the list of fonts, which takes seconds to make anew."""
    import matplotlib.font_manager

    folder.mkdir(exist_ok=True)
    for fonts in Path(matplotlib.get_cachedir()).glob("fontlist*.json"):
        shutil.copy(fonts, folder)
    return str(folder)
