#!/usr/bin/env python3
"""Writes the generated parts of README.md and docs: what operators declare, what machines measured.

Usage: python docs/generate.py [--check]
With --check nothing is written. Needs no compiled module.
Exit codes: 0 up to date (or written), 1 stale with --check, 2 a marker is missing.
"""

import argparse
import contextlib
import functools
import io
import json
import statistics
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
MACHINES = ROOT / "docs" / "machines.md"
MODELS = ROOT / "docs" / "models.md"
GALLERY = ROOT / "docs" / "gallery.md"
TABLE = ROOT / "docs" / "operators.md"
RECORDED = ROOT / "benchmarks" / "results"  # by benchmarks/record
# Rows of the GPU table in README.md.
FIRST_ROWS = (
    "copy", "attention 128 full", "attention 128 causal", "attention 64 full", "attention 64 causal", "attention 256 causal",
    "decode 32 × 8192", "MLA decode 64 × 8192", "matmul bf16 8192", "matmul fp8 8192 library", "rms_norm", "softmax", "silu_mul",
    "adam", "top-k softmax",
)  # fmt: skip
BACKENDS = {"cpu": "CPU", "cuda": "CUDA"}  # as declared, as shown

# The same picture of a measurement: a decode step of a small model, kernel by kernel.
MEASURED = {"block_profile": 'plot.block_profile(machine, "Llama-3.2-1B", phase="decode", batch=4, seq_kv=1024, results=step)'}

sys.path.insert(0, str(ROOT / "python"))

from roofline._repr import github_table  # noqa: E402
from roofline.cli import main as main_of_cli  # noqa: E402
from roofline.cli.plotting import GROUPS  # noqa: E402
from roofline.machine import Machine  # noqa: E402
from roofline.operators import OPERATORS  # noqa: E402
from roofline.plot import PICTURES  # noqa: E402
from roofline.report.tables import fit_for_a_page, operator_table, ordered_ceilings, usual  # noqa: E402
from roofline.results import Results  # noqa: E402
from roofline.transformer import PRESETS, active_parameters, kv_bytes, total_parameters  # noqa: E402
from roofline.transformer.presets import SOURCES  # noqa: E402
from roofline.units import KILO, fmt_percent, fmt_si  # noqa: E402


def operators_table() -> str:
    """One row per operator and variant, slowest variant first; the dtypes with a kernel under each kind of device."""
    rows = []
    for operator in OPERATORS.values():
        name, summary = f"`{operator.name}`", operator.summary
        for variant, declared in operator.variants.items():
            dtypes = [", ".join(declared.dtypes.get(backend, ())) or "–" for backend in BACKENDS]
            rows.append([name, summary, f"`{variant}`", *dtypes])
            name = summary = ""
    return github_table(["operator", "computes", "variant", *BACKENDS.values()], rows, str)


def machine_title(machine: Machine) -> str:
    facts = machine.facts
    ids = f" (family {facts['cpu_family']}, model {facts['cpu_model']})" if "cpu_family" in facts else ""
    threads = f", {facts['threads']} threads" if "threads" in facts else ""
    return f"{machine.name}{ids}{threads}, {str(facts.get('isas', '')).rpartition(',')[2] or machine.device}"


def first_figures() -> str:
    """Operators of the machine that benchmarks/results/readme names, as its report printed them; docs/machines.md has the roofs."""
    named = RECORDED / "readme"
    if not named.exists():
        return ""
    folder = RECORDED / named.read_text().strip()
    machine, results = Machine.load(folder / "machine.json"), Results.load(folder / "results.jsonl")
    table = operator_table(fit_for_a_page(usual(results, machine)), machine)
    columns = ("operator", "variant", "problem", "cache", "time", "GFLOP/s", "GB/s", "bound", "of attainable", "error")
    at = [table.headers.index(name) for name in columns if name in table.headers]
    points = github_table([table.headers[i] for i in at], [[row[i] for i in at] for row in table.rows[:32]], str)
    return (
        f"`benchmarks/record --readme` measured this on {machine_title(machine)}.\nThe variants are the default ones and `naive`; "
        f"all are in its\n[report](benchmarks/results/{folder.name}/report.md).\n"
        f"Fields at their defaults are left out: `roofline run bmm --help` lists those of bmm.\n\n{points}"
    )


def machines_table(gpus: bool = False) -> str:
    """Every ceiling of all threads, by machine."""
    machines = [Machine.load(path) for path in sorted(RECORDED.glob("*/machine.json"))]
    found = [machine for machine in machines if ("sms" in machine.facts) == gpus]
    if not found:
        return "None is recorded yet."
    names: dict[str, None] = {}
    by_machine = []
    for machine in found:
        most = max((c.threads for c in machine.ceilings), default=0)
        own = {c.name: c.stated for c in ordered_ceilings(machine) if c.threads == most or c.kind == "latency"}
        names |= dict.fromkeys(own)
        by_machine.append(own)
    headers = ["ceiling", *map(machine_title, found)]
    return github_table(headers, [[name, *(own.get(name, "–") for own in by_machine)] for name in names], str)


def beside_pytorch(few: bool = False) -> str:
    """What `benchmarks/gpu_check` measured on GPUs in turns with PyTorch. few: FIRST_ROWS."""
    found = []
    for path in sorted(RECORDED.glob("*/rivals.json")):
        seen = json.loads(path.read_text())
        results = {(m.operator, str(m.problem), m.variant): m for m in Results.load(path.with_name("results.jsonl"))}
        rows = []
        for row in seen["rows"]:
            if row["status"] not in ("ok", "roof_moved") or (few and row["name"] not in FIRST_ROWS):
                continue
            operator = row["problem"].pop("operator")
            m = results[operator, str(row["problem"]), row["variant"]]
            problem = m.brief_problem(frozenset({"access", "batch", "heads", "head_dim"}))
            rivals = [f"{r['ratio']:.2f}× {name}" for name, r in row["rivals"].items() if "ratio" in r]
            own = [fmt_si(row["time_s"], "s"), row["bound"], fmt_percent(row["share_of_bracket"])]
            rows.append([operator, f"`{row['variant']}`", problem, *own, ", ".join(rivals) or "–"])
        headers = ("operator", "variant", "problem", "time", "bound", "of the roof", "PyTorch takes")
        found.append(f"{seen['about']['gpu']}, PyTorch {seen['about']['torch']}:\n\n{github_table(headers, rows, str)}")
    return "\n\n".join(found) or "None is recorded yet."


def predictions_table() -> str:
    """Predicted against measured times of problems drawn at random, by machine: those that other work did not disturb."""
    rows = []
    for path in sorted(RECORDED.glob("*/prediction/prediction.json")):
        results = json.loads(path.read_text())["results"]
        errors = [abs(r["prediction"]["time_s"] / r["time_s"] - 1) for r in results if r["status"] == "ok"]
        shares = (statistics.median(errors), float(np.percentile(errors, 95)))
        runs = len({r["run"] for r in results})
        title = machine_title(Machine.load(path.parents[1] / "machine.json"))
        rows.append([title, str(len(results) // runs), str(runs), f"{len(errors)} of {len(results)}", *map(fmt_percent, shares)])
    headers = ("machine", "problems", "runs", "undisturbed", "error, median", "95th percentile")
    return github_table(headers, rows, str)


def whole_models_table() -> str:
    """Predicted against measured times of whole models, by machine (`benchmarks/whole_model`)."""
    rows = []
    for path in sorted(RECORDED.glob("*/prediction/model.json")):
        found = json.loads(path.read_text())
        title = machine_title(Machine.load(path.parents[1] / "machine.json"))
        for each in found["passes"]:
            s = each["summary"]
            if s["undisturbed"]:
                median, least, most = (fmt_si(seconds, "s") for seconds in s["measured"])
                errors = ("{:+.1%} [{:+.1%}, {:+.1%}]".format(*s[name]) for name in ("at best", "realistic"))
                rounds = f"{s['undisturbed']} of {s['rounds']}"
                rows.append([title, found["model"], each["phase"], f"{median} [{least}–{most}]", *errors, rounds])
    headers = ("machine", "model", "pass", "measured", "error at best", "error realistic", "undisturbed rounds")
    return github_table(headers, rows, str)


def models_table() -> str:
    """Every preset: what it is made of, its parameters, and where its numbers were read."""
    rows = []
    for config in PRESETS.values():
        total, active = total_parameters(config), active_parameters(config)
        narrow = config.quantization
        stored = config.weights if narrow is None else f"{narrow.weights} of {narrow.covers.replace('_', ' ')}"
        source = SOURCES.get(config.name, "")
        size, few = fmt_si(total, "").replace(" G", " B"), fmt_si(active, "").replace(" G", " B")
        cache = f"{kv_bytes(config, 1024) / 1024 / KILO:.4g} kB a token"
        link = f"[{source.split('/')[3]}]({source})" if source else ""
        row = (f"`{config.name}`", config.layers, size, "all" if active == total else few, stored, cache, config.max_seq, link)
        rows.append([*map(str, row)])
    return github_table(("preset", "layers", "parameters", "active", "stored", "KV cache", "context", "read at"), rows, str)


def pictures() -> str:
    """Every picture by what it is of: its name, the question it answers, a call."""
    found = []
    for group, about in GROUPS.items():
        found += [f"## {about[0].upper()}{about[1:].partition(':')[0].partition(' (')[0]}", ""]
        for name, picture in PICTURES.items():
            if picture.group == group:
                found += [f"### {name.replace('_', '-')}", "", f"{picture.about[0].upper()}{picture.about[1:]}.", ""]
                for stem, call in {name: picture.example, f"{name}_measured": MEASURED.get(name, "")}.items():
                    if call:
                        found += [f"`{call}`", "", f"![{stem.replace('_', ' ')}](images/plot_{stem}.png)", ""]
    return "\n".join(found).rstrip()


def advice() -> str:
    """What the command that the README shows prints."""
    command = ("predict", "Llama-3-8B", "--machine", "H100", "--batch", "8", "--seq-kv", "4k", "--advice", "--quiet")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        main_of_cli(command)
    return f"```console\n$ roofline {' '.join(command)}\n{shown.getvalue().rstrip()}\n```"


PAGES = {
    README: {"advice": advice, "figures": first_figures, "gpu": functools.partial(beside_pytorch, few=True)},
    TABLE: {"operators": operators_table},
    MACHINES: {
        "machines": machines_table,
        "predictions": predictions_table,
        "whole-models": whole_models_table,
        "gpus": functools.partial(machines_table, gpus=True),
        "pytorch": beside_pytorch,
    },
    MODELS: {"models": models_table},
    GALLERY: {"pictures": pictures},
}


def generated(text: str, page: Path = README) -> str:
    """The page's text with every generated part as it should be. Raises ValueError naming a marker that is missing."""
    for name, make in PAGES[page].items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{page.name} has no {begin} … {end}")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated parts of README.md and docs.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page is stale")
    check, stale = parser.parse_args().check, False
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        try:
            wanted = generated(text, page)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        if check and text != wanted:
            print(f"{page.name} is stale: run `python docs/generate.py`", file=sys.stderr)
            stale = True
        if text != wanted and not check:
            page.write_text(wanted, encoding="utf-8")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
