"""`roofline plot`: pictures of saved machines and measurements, and of the roofline as a model, each with its data beside it."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine import machine_of
from ..machine.naming import machine_list
from ..units import parse_time_s
from ..words import nearest, numbers
from .inputs import machine_of as saved_machine
from .inputs import output_file, write_outputs
from .models import PHASES, config_of, model_flags, phase_of, ranks_flags, typed
from .outcomes import OK, BadInput, checking_input
from .terminal import Terminal

SUFFIXES = (".svg", ".png", ".csv")
PROMPT = 1024  # tokens of a default prefill

# Pictures of a saved machine: name -> what it shows.
SAVED: Mapping[str, str] = {
    "roofline": "a machine's ceilings, and measurements under them",
    "empirical": "its measured roofline: mixed-intensity sweeps, their fits and knees",
    "size-curve": "bandwidth over the size of the working set",
    "latency": "load latency of each memory level",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A picture of the model. summary: one line. config: whether CONFIG is needed (None: optional). most: machines it takes."""

    summary: str
    config: bool | None = True
    least: int = 1
    most: int = 1
    takes: tuple[str, ...] = ()


ESTIMATED = ("tp", "ep", "launch", "no_lm_head", "no_fused")
DECODE = ("batch", "seq_kv", *ESTIMATED)
MODEL: Mapping[str, Drawn] = {
    "ridge-points": Drawn(summary="peak over bandwidth of every arithmetic: where compute-bound begins", config=False, most=16),
    "operations": Drawn(
        summary="intensity of each operation of a model, by phase", least=0, takes=("phase", "batch", "seq_q", "seq_kv")
    ),
    "intensity-over-batch": Drawn(
        summary="intensity of products and attention over the batch", least=0, most=8, takes=("batch", "seq_kv")
    ),
    "intensity-over-seq": Drawn(summary="intensity of attention and prefill over the length", least=0, most=8, takes=("seq_q",)),
    "attention-steps": Drawn(summary="FLOPs, bytes and intensity of attention, step by step", least=0, takes=("seq_q", "quantity")),
    "workloads": Drawn(summary="a roofline with phases of a model on it", takes=("phase", "batch", "seq_q", "seq_kv", *ESTIMATED)),
    "compute-ceilings": Drawn(
        summary="five compute ceilings, four named dots, the library's GEMM as measured",
        takes=("batch", "seq_q", "seq_kv", "measured"),
    ),
    "machines": Drawn(
        summary="several machines' rooflines in one plot",
        config=None,
        most=8,
        takes=("phase", "batch", "seq_q", "seq_kv", "roof_dtype"),
    ),
    "kernel-placement": Drawn(
        summary="every kernel of each phase on its roofs", takes=("phase", "batch", "seq_q", "seq_kv", *ESTIMATED, "results")
    ),
    "decode-over-batch": Drawn(summary="intensity and throughput of decode over the batch", most=8, takes=(*DECODE, "quantity")),
    "decode-latency": Drawn(summary="time per output token over batch and KV length", most=8, takes=DECODE),
    "decode-heatmap": Drawn(summary="intensity, bound and tok/s over batch and KV length", takes=(*DECODE, "quantity")),
    "block-profile": Drawn(
        summary="where a phase's time goes, by roof and kernel", takes=("phase", "batch", "seq_q", "seq_kv", *ESTIMATED)
    ),
}


def description() -> str:
    """The names, one line each."""
    width = max(map(len, (*SAVED, *MODEL)))
    saved = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in SAVED.items())
    model = "\n".join(f"  {name:<{width}}  {drawn.summary}" for name, drawn in MODEL.items())
    return (
        "Draw pictures, each as SVG and PNG with its data as CSV.\n\n"
        "roofline plot PATH               a machine.json or a report's folder: its roofline, and whatever else it holds\n"
        "roofline plot NAME PATH          one of these, of saved files (or of --machine, a datasheet):\n"
        f"{saved}\n"
        "roofline plot NAME CONFIG --machine FILE|NAME …   one of these, of a model on machines:\n"
        f"{model}\n\n"
        'Example: roofline plot decode-heatmap Llama-3-8B --machine "H100 SXM" -o pictures'
    )


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="NAME|PATH", help="a picture's name, or a machine.json, or the folder of a report")
    parser.add_argument(
        "config", metavar="CONFIG|PATH", nargs="?",
        help="a preset (Llama-3-8B, DeepSeek-V3, …) or a Hugging Face config.json; after roofline, empirical, … a machine.json",
    )  # fmt: skip
    parser.add_argument(
        "--machine", metavar="FILE|NAME", action="append", default=[],
        help="a machine.json, or a datasheet of `roofline hardware`; several with commas, where several are compared",
    )  # fmt: skip
    parser.add_argument("--device", help="which machine of a file")
    parser.add_argument(
        "--title", help="of the picture (default: what it shows)"
    )
    parser.add_argument(
        "-o", "--out", metavar="DIR|FILE", help="a folder, or a .svg, .png or .csv file (default: here, or beside PATH)"
    )
    saved = parser.add_argument_group("of saved files")
    saved.add_argument("--results", metavar="FILE", help="a results.jsonl to draw (default: results.jsonl in the folder)")
    saved.add_argument(
        "--points", metavar="FILE",
        help="roofline: your own points: CSV or JSON with the columns name, flops_per_byte, flops_per_s, dtype (may be left out)",
    )  # fmt: skip
    model = parser.add_argument_group("of models", "Lists are 1,8,128 or 1:1024, which is every power of two between.")
    lists = typed(numbers)
    model.add_argument("--phase", metavar="LIST", help=f"of {', '.join(PHASES)}, with commas (default: prefill and decode)")
    model.add_argument("--batch", metavar="LIST", type=lists, help="sequences at a time")
    model.add_argument("--seq-kv", metavar="LIST", type=lists, help="keys in the cache of a sequence, in decode (default 2048)")
    model.add_argument("--seq-q", metavar="LIST", type=lists, help=f"tokens of a prompt (default {PROMPT}), or lengths")
    model.add_argument("--quantity", help="one panel alone: flops, bytes, flops_per_byte, tokens_per_s, bound")
    model.add_argument("--roof-dtype", metavar="DTYPE", help="machines: of the arithmetic they are compared by")
    model.add_argument("--measured", metavar="FILE", help="compute-ceilings: a machine.json whose library products are drawn")
    model.add_argument("--launch", type=typed(parse_time_s), metavar="TIME", help="of each kernel (default: the machine's latency)")
    ranks_flags(model)
    model_flags(parser)


def names() -> tuple[str, ...]:
    return (*SAVED, *MODEL)


def plot(options: argparse.Namespace) -> int:
    """Draw what NAME|PATH asks for. Raises BadInput for a name that there is not."""
    name = options.what
    if name in SAVED:
        return _saved(options, name, options.config)
    if name in MODEL:
        return _model(options, name)
    path = Path(name)
    if path.exists() or path.suffix or "/" in name:
        if options.config is not None:
            raise BadInput(f"{options.config}: a path takes no second argument; put a picture's name first: {', '.join(SAVED)}")
        return _saved(options, None, name)
    raise BadInput(f"there is no picture {name!r:.60}{suggestion(name)}, and no such file; `roofline plot --help` lists them")


def suggestion(name: str) -> str:
    wanted = name.lower().replace("_", "-")
    close = nearest(wanted, names()) or [each for each in names() if any(part and part in each for part in wanted.split("-"))][:3]
    return f" (did you mean {' or '.join(close)}?)" if close else ""


# -- saved machines -----------------------------------------------------------------------------------------------------------


def _saved(options: argparse.Namespace, name: str | None, given: str | None) -> int:
    """One picture of a machine, or with None all that it has something for."""
    from ..plot import files as pictures
    from ..results import Results

    if len(options.machine) > 1 or (given is not None and options.machine):
        raise BadInput("give one machine: a path, or --machine once")
    if given is None and not options.machine:
        raise BadInput(f"{name} needs a machine: a machine.json, the folder of a report, or --machine NAME")
    path = Path(given) if given is not None else None
    with checking_input():
        machine = saved_machine(given, options.device) if given is not None else machine_of(options.machine[0], options.device)
        folder = Path() if path is None else path if path.is_dir() else path.parent
        usual = folder / "results.jsonl"
        source = options.results or (usual if path is not None and path.is_dir() and usual.exists() else None)
        results = Results.load(source) if source is not None else Results()
        if name not in (None, "roofline") and options.points:
            raise BadInput(f"{name} takes no --points; roofline does")
        makers = pictures.saved(machine, results, points=options.points, dtype=options.dtype, title=options.title)
    wanted = [name] if name is not None else ["roofline", *pictures.held_pictures(machine)]
    if options.json:
        Terminal().json(makers[name or "roofline"][0]())
        return OK
    single = name is not None or bool(options.out and Path(options.out).suffix and not Path(options.out).is_dir())
    if single:
        return _write(options, folder, lambda where: makers[name or "roofline"][1](where))
    return _write(options, folder, lambda where: [file for each in wanted for file in makers[each][1](where)])


def _write(options: argparse.Namespace, folder: Path, save: Callable[[Path], Sequence[Path]]) -> int:
    """Save into the folder that is asked for, or of its files the one that is."""
    from ..report.files import require_folder

    out, inputs = (
        Path(options.out) if options.out else folder,
        (*options.machine, options.config, options.results, options.measured, options.points),
    )
    single = bool(out.suffix) and not out.is_dir()
    with checking_input():
        if single:
            if out.suffix not in SUFFIXES:
                raise BadInput(f"{out}: cannot write a {out.suffix} file; use {', '.join(sorted(SUFFIXES))}, or a folder")
            output_file(str(out), SUFFIXES, *inputs)
        else:
            require_folder(out)
    with tempfile.TemporaryDirectory() as temporary:
        made = [file for file in save(Path(temporary)) if not single or file.suffix == out.suffix]
        contents = {out if single else out / file.name: file.read_bytes() for file in made}
    write_outputs(contents, options)
    if not options.quiet:
        Terminal().lines(f"wrote {file}" for file in contents)
    return OK


# -- the model ----------------------------------------------------------------------------------------------------------------


def _model(options: argparse.Namespace, name: str) -> int:
    from ..plot import picture_data, save_picture

    stem = name.replace("-", "_")
    with checking_input():
        arguments, more = _arguments(options, name)
        more = more | _some(title=options.title)
        if options.json:
            Terminal().json(picture_data(stem, *arguments, **more))
            return OK
        return _write(options, Path(), lambda where: save_picture(where, stem, *arguments, **more))


def _arguments(options: argparse.Namespace, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the function of this name takes. Raises Error and BadInput."""
    drawn = MODEL[name]
    given = {"phase": options.phase, "batch": options.batch, "seq_kv": options.seq_kv, "seq_q": options.seq_q,
             "quantity": options.quantity, "roof_dtype": options.roof_dtype, "measured": options.measured,
             "results": options.results, "points": options.points, "title": options.title,
             "launch": options.launch, "tp": options.tp, "ep": None if options.ep == 1 else options.ep,
             "no_lm_head": None if options.lm_head else True, "no_fused": None if options.fused else True}  # fmt: skip
    if foreign := [f"--{each.replace('_', '-')}" for each, value in given.items() if value is not None and each not in drawn.takes]:
        raise BadInput(f"{name} takes no {', '.join(foreign)}")
    machines = [machine_of(each, options.device) for given in options.machine for each in machine_list(given)]
    if not drawn.least <= len(machines) <= drawn.most:
        need = f"at least {drawn.least}" if len(machines) < drawn.least else f"at most {drawn.most}"
        raise BadInput(f"{name} needs {need} --machine (a machine.json, or a datasheet such as 'H100 SXM'), got {len(machines)}")
    if drawn.config and options.config is None:
        raise BadInput(f"{name} needs CONFIG: a preset such as Llama-3-8B, or a Hugging Face config.json")
    if drawn.config is False and options.config is not None:
        raise BadInput(f"{name} takes no CONFIG, got {options.config!r:.80}; machines go behind --machine")
    config = config_of(options) if options.config is not None else None
    return MAKERS[name](config, machines, options)


def _one(values: list[int] | None, flag: str, usual: int) -> int:
    if values is None:
        return usual
    if len(values) != 1:
        raise BadInput(f"{flag} is one number here, got {len(values)}")
    return values[0]


def _phases(options: argparse.Namespace, usual: Sequence[tuple[str, int]]) -> list[Any]:
    """Phases with their batches: those that are asked for, else `usual`, as (name, batch)."""
    length, keys = _one(options.seq_q, "--seq-q", PROMPT), _one(options.seq_kv, "--seq-kv", 2048)
    wanted = list(usual)
    if options.phase is not None or options.batch is not None:
        asked = [each.strip() for each in (options.phase or ",".join(dict.fromkeys(n for n, _ in usual))).split(",")]
        if unknown := [each for each in asked if each not in PHASES]:
            raise BadInput(f"--phase: unknown phase {unknown[0]!r:.40}; use {', '.join(PHASES)}, with commas between several")
        wanted = [(each, batch) for each in dict.fromkeys(asked) for batch in options.batch or [1]]
    found = []
    for each, batch in wanted:
        fields = {"batch": batch, "seq_q": length} if each in ("prefill", "training") else {"batch": batch, "seq_kv": keys}
        found.append(phase_of(each, fields))
    return found


def _how(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `predict_model`."""
    return {"tp": options.tp, "ep": options.ep, "lm_head": options.lm_head, "fused": options.fused, "launch_s": options.launch}


def _some(**options: Any) -> dict[str, Any]:
    """Those that were given."""
    return {name: value for name, value in options.items() if value is not None}


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
TYPES_OF = (("prefill", 1), ("decode", 1))
LADDER = (("prefill", 1), ("decode", 1), ("decode", 32), ("decode", 128))


def _decode(config: Any, machines: list[Any], options: argparse.Namespace) -> Arguments:
    more = _some(batch=options.batch, quantity=options.quantity)
    return (config, machines), {**more, "seq_kv": _one(options.seq_kv, "--seq-kv", 2048), **_how(options)}


def _latency(config: Any, machines: list[Any], options: argparse.Namespace) -> Arguments:
    return (config, machines), {**_some(batch=options.batch, seq_kv=options.seq_kv), **_how(options)}


def _grid(config: Any, machines: list[Any], options: argparse.Namespace) -> Arguments:
    return (config, machines[0]), {**_some(batch=options.batch, seq_kv=options.seq_kv, quantity=options.quantity), **_how(options)}


def _ceilings(config: Any, machines: list[Any], options: argparse.Namespace) -> Arguments:
    measured = machine_of(options.measured, None) if options.measured else None
    sizes = {"batch": _one(options.batch, "--batch", 16), "seq_kv": _one(options.seq_kv, "--seq-kv", 2048)}
    return (machines[0], config), {**sizes, "seq_q": _one(options.seq_q, "--seq-q", 2048), "measured": measured}


def _placement(config: Any, machines: list[Any], options: argparse.Namespace) -> Arguments:
    from ..census import census_of
    from ..results import Results

    results = Results.load(options.results) if options.results else None
    census = census_of(
        config, _phases(options, TYPES_OF), machines[0], tp=options.tp, ep=options.ep, lm_head=options.lm_head, fused=options.fused,
        launch_s=options.launch, results=results,
    )  # fmt: skip
    return (census,), {}


def _profile(config: Any, machines: list[Any], options: argparse.Namespace) -> Arguments:
    from ..transformer import predict_model

    found = [predict_model(machines[0], config, phase, must_fit=False, **_how(options)) for phase in _phases(options, TYPES_OF)]
    return (found,), {}


MAKERS: Mapping[str, Callable[[Any, list[Any], argparse.Namespace], Arguments]] = {
    "ridge-points": lambda config, machines, options: ((machines,), {}),
    "operations": lambda config, machines, options: (
        (config, machines[0] if machines else None), {"phase": _phases(options, TYPES_OF)}
    ),
    "intensity-over-batch": lambda config, machines, options: (
        (config, machines), {**_some(batch=options.batch), "seq_kv": _one(options.seq_kv, "--seq-kv", 2048)}
    ),
    "intensity-over-seq": lambda config, machines, options: ((config, machines), _some(seq_q=options.seq_q)),
    "attention-steps": lambda config, machines, options: (
        (config, machines[0] if machines else None),
        {**_some(quantity=options.quantity), "seq_len": _one(options.seq_q, "--seq-q", 4096)},
    ),
    "workloads": lambda config, machines, options: ((machines[0], config), {"phase": _phases(options, LADDER), **_how(options)}),
    "compute-ceilings": _ceilings,
    "machines": lambda config, machines, options: (
        (machines, config), {**_some(dtype=options.roof_dtype), "phase": _phases(options, LADDER)}
    ),
    "kernel-placement": _placement,
    "decode-over-batch": _decode,
    "decode-latency": _latency,
    "decode-heatmap": _grid,
    "block-profile": _profile,
}  # fmt: skip
