"""A picture: a function that makes panels, which `picture` makes one that draws them, gives their records, or saves them."""

from __future__ import annotations

import functools
import inspect
import io
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, cast

from .._repr import printable
from ..errors import Error
from ..machine.manifest import replace_all
from ..results import records_to_csv
from ..words import counted, misfit
from . import style
from .panels import LINE, Panel, Records, columns_in, room_of, set_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
Paths = tuple[Path, Path, Path]
Panels = Iterable[Panel]
DPI = 200
SUFFIXES = (".svg", ".png", ".csv")
MOST_NOTES = 4  # lines of a panel under a picture


class Look(TypedDict, total=False):
    """Keywords of every picture.

    Attributes:
        ax: Axes to draw on; None is a new figure.
        title: another title.
        theme: "light" or "dark"; None suits the ground of `ax`, and is light for a new figure.
    """

    ax: Axes | None
    title: str | None
    theme: str | None


class Steps(Look, total=False):
    """Keywords of pictures of phases.

    Attributes:
        phase: one or several of prefill, decode, mixed, training, objects or words (default: a prefill and decode steps).
        batch: sequences of each phase that is given in words, one or several.
        seq_q: tokens of a prompt of such a phase.
        seq_kv: keys of a sequence in decode of such a phase.
    """

    phase: Any
    batch: Any
    seq_q: Any
    seq_kv: Any


class Assumptions(Look, total=False):
    """Keywords of pictures that predict models.

    Attributes:
        dtype: of weights and activations.
        quantization: of weights and what products read: "fp8", "nvfp4", "awq", ….
        weights: dtype of the matrices of layers alone.
        activations: dtype that products read.
        kv: dtype of the KV cache.
        tp: ranks of tensor parallelism (default: the devices of "8xH100", else 1).
        ep: ranks of expert parallelism.
        lm_head: whether the product that makes logits counts.
        fused: false: separate products, and scores of attention in memory.
        counting: "full", or "weights_and_kv".
        utilisation: share of the ceilings that is reached: 0.8, or "compute=0.7,bandwidth=0.8,link=0.9".
        launch_s: of each kernel (default: the machine's latency).
        overhead_s: added to each step.
        link_bytes_per_s: between ranks, one way.
        link_latency_s: of a collective.
        memory_bytes: of one device (default: the machine's).
        memory_share: of it that may be used.
    """

    dtype: str | None
    quantization: str | None
    weights: str | None
    activations: str | None
    kv: str | None
    tp: int | None
    ep: int
    lm_head: bool
    fused: bool
    counting: str
    utilisation: Any
    launch_s: float | None
    overhead_s: float
    link_bytes_per_s: float | None
    link_latency_s: float
    memory_bytes: float | None
    memory_share: float


class StepsAssumptions(Assumptions, Steps, total=False):
    """Both."""


LOOK = tuple(Look.__annotations__)
UNPACKED: Mapping[str, Any] = {
    f"Unpack[{each.__name__}]": each for each in (Look, Steps, Assumptions, StepsAssumptions)
}  # keywords that functions share
USUAL: Mapping[str, Any] = {"lm_head": True, "fused": True, "ep": 1, "counting": "full", "memory_share": 1.0, "overhead_s": 0.0,
                            "link_latency_s": 0.0}  # fmt: skip  # all others are None


class Picture(Generic[P]):
    """A picture as a function. Called, it draws its first panel and returns the Axes; it shows nothing and changes no setting.

    Attributes:
        about: the question it answers, for lists. example: a call, as in the documents.
    """

    __name__: str
    about: str
    example: str
    group: str

    def __call__(self, *args: P.args, **keywords: P.kwargs) -> Axes:
        raise NotImplementedError

    def data(self, *args: P.args, **keywords: P.kwargs) -> Records:
        """What the call draws, as flat records with the same keys; the last ones are notes."""
        raise NotImplementedError

    def panels(self, *args: P.args, **keywords: P.kwargs) -> list[Panel]:
        """All panels that `save` draws, as data."""
        raise NotImplementedError

    def save(self, directory: str | os.PathLike[str], *args: P.args, **keywords: P.kwargs) -> Paths:
        """Write NAME.svg, NAME.png and NAME.csv into `directory` (made if absent), all panels in one figure.

        The same data gives the same SVG and CSV, byte for byte, with the same matplotlib.
        """
        raise NotImplementedError


def picture(about: str, *, group: str, example: str) -> Callable[[Callable[P, Panels]], Picture[P]]:
    """Makes a picture of a function that yields its panels. group: "machine", "model" or "measured".

    The function's signature is the picture's; the flags of `roofline plot` and its page in the documents come from it.
    """

    def made(function: Callable[P, Panels]) -> Picture[P]:
        def made_of(args: Any, keywords: dict[str, Any]) -> Iterator[Panel]:
            try:
                bound = signature.bind(*args, **keywords)
            except TypeError as error:
                raise misfit(function.__name__, signature, error, keywords) from None
            given = {name: value for name, value in bound.kwargs.items() if name not in LOOK}
            return iter(function(*bound.args, **given))

        @functools.wraps(function)
        def draw(*args: Any, **keywords: Any) -> Axes:
            import_matplotlib()
            return show(next(made_of(args, keywords)), **{name: keywords[name] for name in LOOK if name in keywords})

        def data(*args: Any, **keywords: Any) -> Records:
            return next(made_of(args, keywords)).records

        def panels(*args: Any, **keywords: Any) -> list[Panel]:
            return list(made_of(args, keywords))

        def save(directory: Any, *args: Any, **keywords: Any) -> Paths:
            shown = panels(*args, **keywords)
            return save_panels(directory, function.__name__, shown, title=keywords.get("title"), theme=keywords.get("theme"))

        signature = expanded(function)
        for each in (draw, data, panels, save):
            each.__dict__["__signature__"] = signature
        draw.__dict__.update(data=data, panels=panels, save=save, about=about, group=group, example=example)
        return cast("Picture[P]", draw)

    return made


def expanded(function: Callable[..., Any]) -> inspect.Signature:
    """The signature with every keyword of its Unpack[TypedDict] spelled out."""
    found = inspect.signature(function)
    parameters = [p for p in found.parameters.values() if p.kind is not p.VAR_KEYWORD]
    keywords = next(p.annotation for p in found.parameters.values() if p.kind is p.VAR_KEYWORD)
    names = {p.name for p in parameters}
    for name, annotation in UNPACKED[keywords].__annotations__.items():
        text = getattr(annotation, "__forward_arg__", str(annotation))
        usual = USUAL.get(name)
        if name not in names:
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=usual, annotation=text))
    return found.replace(parameters=parameters, return_annotation="Axes")


def import_matplotlib() -> None:
    """Raises Error, with the cure, where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise Error("plots need matplotlib: `pip install matplotlib`, or use .data(...) for the records") from error


def joined(shown: Sequence[Panel]) -> Records:
    """The records of all, with their title as `panel` where there are several."""
    if len(shown) == 1:
        return shown[0].records
    found = [{"panel": each.title, **record} for each in shown for record in each.records]
    keys = dict.fromkeys(key for record in found for key in record)
    return [{**dict.fromkeys(keys), **record} for record in found]


# -- drawing ------------------------------------------------------------------------------------------------------------------


def show(shown: Panel, ax: Axes | None = None, title: str | None = None, theme: str | None = None) -> Axes:
    """Draw on `ax`, or on a new figure of pyplot's. Raises Error where matplotlib is missing."""
    import_matplotlib()
    from matplotlib import rc_context

    chosen = style.theme_of(theme, ax)
    made = _new_figure(shown.size, chosen) if ax is None else None
    with rc_context(style.rc(chosen)):
        if made is not None:
            ax = made.add_subplot()
            _figure_notes(made, note_lines(shown.notes, shown.size[0]), chosen)
        else:
            assert ax is not None
            if theme is not None:
                ax.set_facecolor(chosen("paper"))
            _axes_notes(ax, shown.notes, chosen)
        shown.paint(ax, chosen)
        if title is not None:
            set_title(ax, title, room_of(ax))
    return ax


def _new_figure(size: tuple[float, float], theme: style.Theme) -> Figure:
    """A figure of pyplot's, made outside of `rc_context`: a backend that switches interactive mode on with its first figure, as
    that of notebooks does, keeps it. Without it a notebook shows the first picture and none after it.
    """
    from matplotlib import pyplot

    return pyplot.figure(figsize=size, layout="constrained", facecolor=theme("paper"))


def note_lines(notes: Iterable[str], width_inches: float, most: int = MOST_NOTES) -> list[str]:
    """At most `most` lines; the last one counts the notes that are in the records alone."""
    columns = columns_in(width_inches - 0.2, style.TINY)
    each = [textwrap.wrap(printable(note), columns, subsequent_indent="    ") for note in notes]
    lines: list[str] = []
    for index, wrapped in enumerate(each):
        last = index == len(each) - 1
        if len(lines) + len(wrapped) > most - (not last):
            left = len(each) - index
            if not lines:  # one note that is longer than there is room
                return [*wrapped[: most - 1], "    …"]
            return [*lines, f"{counted(left, 'more note')} in the table"]
        lines += wrapped
    return lines


def _figure_notes(figure: Any, lines: Sequence[str], theme: style.Theme) -> None:
    if lines:
        foot = figure.supxlabel("\n".join(lines), x=0.012, ha="left", fontsize=style.TINY, color=theme("muted"))
        foot.set_gid("notes")
        foot.set_linespacing(1.25)


def _axes_notes(ax: Axes, notes: Sequence[str], theme: style.Theme) -> None:
    """Under the label of the x axis of Axes that are not ours alone."""
    room = room_of(ax)
    figure: Any = ax.figure
    spec = ax.get_subplotspec()
    alone = spec is not None and (spec.get_gridspec().ncols, spec.get_gridspec().nrows) == (1, 1)
    if alone and figure.get_layout_engine() is not None and getattr(figure, "_supxlabel", None) is None:
        _figure_notes(figure, note_lines(notes, room.width), theme)
        return
    lines = note_lines(notes, room.width * 0.58)
    ax.annotate("\n".join(lines), (0, 0), xycoords=("axes fraction", ax.xaxis.label), xytext=(0, -3), textcoords="offset points",
                fontsize=style.TINY, color=theme("muted"), va="top", linespacing=1.25, annotation_clip=False,
                gid="notes")  # fmt: skip


def save_panels(
    directory: str | os.PathLike[str], stem: str, shown: Sequence[Panel], *, title: str | None = None, theme: str | None = None
) -> Paths:
    """Write stem.svg, stem.png and stem.csv of panels, below each other or in two columns. Raises Error where that fails."""
    import_matplotlib()
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error(f"cannot make the folder {folder}: {error.strerror or error}") from error
    paths = folder / f"{stem}.svg", folder / f"{stem}.png", folder / f"{stem}.csv"
    contents = contents_of(shown, title=title, theme=theme)
    replace_all({path: contents[path.suffix] for path in paths})
    return paths


def contents_of(
    shown: Sequence[Panel], suffixes: Iterable[str] = SUFFIXES, *, title: str | None = None, theme: str | None = None
) -> dict[str, bytes]:
    """What files of these suffixes hold of panels. Raises Error where matplotlib is missing, unless that is data alone."""
    chosen, wanted = style.theme_of(theme), tuple(suffixes)
    made = {".csv": records_to_csv(joined(shown)).encode()} if ".csv" in wanted else {}
    if set(wanted) - {".csv"}:
        import_matplotlib()
        from matplotlib import rc_context

        with rc_context(style.rc(chosen)):
            figure = _figure_of(shown, title, chosen)
            vectors, dots = io.BytesIO(), io.BytesIO()
            # By these names `require_replaceable` knows our pictures.
            if ".png" in wanted:
                figure.savefig(dots, format="png", dpi=DPI, metadata={"Software": "roofline"})
                made[".png"] = dots.getvalue()
                figure.set_layout_engine(None)  # of the vectors too: to lay out takes as long as to draw
            if ".svg" in wanted:
                figure.savefig(vectors, format="svg", metadata={"Date": None, "Creator": "roofline"})
                made[".svg"] = printable(vectors.getvalue().decode()).encode()
    return {suffix: made[suffix] for suffix in wanted}


def _figure_of(shown: Sequence[Panel], title: str | None, theme: style.Theme) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 2 if len(shown) in (2, 4) and max(each.size[0] for each in shown) < 8 else 1
    rows = [shown[i : i + columns] for i in range(0, len(shown), columns)]
    heights = [max(each.size[1] for each in row) for row in rows]
    width = max(sum(each.size[0] for each in row) for row in rows)
    lines = note_lines(dict.fromkeys(note for each in shown for note in each.notes), width, MOST_NOTES * len(shown))
    figure = Figure(figsize=(width, sum(heights) + max(len(lines) - MOST_NOTES, 0) * LINE), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
    _figure_notes(figure, lines, theme)
    for index, each in enumerate(shown):
        ax = figure.add_subplot(grid[index // columns, index % columns])
        each.paint(ax, theme)
        if title is not None:
            set_title(ax, title, room_of(ax))
    return figure
