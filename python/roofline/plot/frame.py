"""What surrounds the data of every plot: logarithmic axes, a footer, and a figure that fits them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .._repr import printable
from ..machine import Machine
from ..units import fmt_number, fmt_si, si_prefix
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, RIGHT, TOP, BOTTOM = 0.72, 0.3, 0.46, 0.62  # inches around the axes; right: half of a tick label at the end
WIDTH, HEIGHT = 6.7, 4.5  # of the axes, inches
LINE = 0.135  # inches per line of notes
GAP = 0.14  # inches between axes and a legend outside
SPREAD = 0.03  # clocks further apart than this are both stated, and a wider spread of times gets error bars


def new_axes() -> Axes:
    """Axes of a new figure of pyplot's. A backend that switches interactive mode on with its first figure, as that of notebooks
    does, keeps it: without it a notebook shows the first picture and none after it.
    """
    from matplotlib import interactive, is_interactive, pyplot, rc_context

    with rc_context(dict(style.RC)):
        made = pyplot.figure().add_subplot()
        switched = is_interactive()
    interactive(switched)
    return made


def fit_figure(figure: Figure, ax: Axes, notes: int, legend_inches: float = 0.0) -> None:
    """Size a figure of our own around axes of a fixed size, so that legend and notes are inside it."""
    bottom = BOTTOM + notes * LINE
    width = LEFT + WIDTH + max(RIGHT, legend_inches + GAP + 0.1 if legend_inches else 0)
    height = TOP + HEIGHT + bottom
    figure.set_size_inches(width, height)
    ax.set_position((LEFT / width, bottom / height, WIDTH / width, HEIGHT / height))


def frame(ax: Axes, title: str, x: str, y: str, x_limits: tuple[float, float], y_limits: tuple[float, float], top: float) -> None:
    """Logarithmic axes with a title. y: a quantity and its unit, "Performance [FLOP/s]"; the prefix is that of `top`."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(*x_limits)
    ax.set_ylim(*y_limits)
    factor, prefix = si_prefix(top)
    ax.set_xlabel(x)
    ax.set_ylabel(y.replace("[", f"[{prefix}"))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: fmt_number(value, 1)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: fmt_number(value / factor, 1)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(LogLocator(subs=tuple(range(2, 10)), numticks=12))
        axis.set_minor_formatter(NullFormatter())
    ax.tick_params(which="both", direction="out", length=2.5)
    ax.tick_params(which="major", length=4)
    ax.grid(True, which="major", color="#D9DBDE", linewidth=0.5, zorder=0)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(printable(title), loc="left", fontsize=10.5, fontweight="bold", pad=8)


def machine_line(machine: Machine, *more: str) -> str:
    """Device, threads, date and clock, and what else is said of all points."""
    clocks = sorted({c.clock_hz for c in machine.ceilings if c.clock_hz})
    between = f"{fmt_si(clocks[0], 'Hz')} to " if clocks and clocks[-1] / clocks[0] > 1 + SPREAD else ""
    threads = max((c.threads for c in machine.ceilings), default=0)
    facts = (
        f"{machine.name} ({machine.device})",
        f"{threads} threads" if threads else "",
        machine.created_utc.replace("T", " ")[:16] + " UTC" if machine.created_utc else "",
        f"clock {between}{fmt_si(clocks[-1], 'Hz')}" if clocks else "",
        *more,
    )
    return "  ·  ".join(fact for fact in facts if fact)


def wrapped(lines: Iterable[str], width_inches: float) -> list[str]:
    """The footer's lines for axes of this width."""
    columns = int(width_inches * 72 / (style.TINY * 0.54))  # a letter is about so wide
    return [part for line in lines for part in textwrap.wrap(line, columns, subsequent_indent="    ")]


def write_footer(ax: Axes, lines: Iterable[str]) -> None:
    from matplotlib.transforms import ScaledTranslation

    below = ScaledTranslation(0, -0.46, ax.figure.dpi_scale_trans)
    ax.text(0, 0, printable("\n".join(lines)), transform=ax.transAxes + below, fontsize=style.TINY, color=style.MUTED,
            ha="left", va="top", linespacing=1.25, gid="footer")  # fmt: skip
