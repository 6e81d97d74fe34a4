"""README, docs and CONTRIBUTING are true: code runs, commands exist, tables and links are right."""

import dataclasses
import importlib.util
import math
import re
import sys
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from programs import git, printed, python
from shown import fonts_known
from test_architecture import ORDER

import roofline
from roofline.hardware.datasheet import LISTS, NUMBERS, PEAKS, TEXTS
from roofline.machine import FEWEST, MOVED, TOLERANCE
from roofline.operators import OPERATORS, LmHead, Operator, QuantizedMatmul
from roofline.plot import PICTURES
from roofline.results.record import STATUSES

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
COUNTING, TIMING = (DOCS / "conventions" / f"{name}.md" for name in ("counting", "timing"))
ARCHITECTURE = DOCS / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [README, CONTRIBUTING, *sorted(DOCS.rglob("*.md"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def blocks(path: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [content for name, content in found if name == language]


def rows(text: str, columns: int) -> list[list[str]]:
    """Cells of every table row with so many columns."""
    found = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in found if len(row) == columns and not set(row[0]) <= {"-", " "}]


def section(path: Path, title: str) -> str:
    """The text under a heading, up to the next one of the same level."""
    found = re.search(rf"^(#+) {re.escape(title)}$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{path.name} has no section {title!r}"
    rest = path.read_text(encoding="utf-8")[found.end() :]
    return re.split(rf"^#{{1,{len(found[1])}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


# -- what can be run ----------------------------------------------------------------------------------------------------------

# Code of a page is run as it stands, but this first.
QUICKLY = (ROOT / "tests" / "data" / "quickly.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all pages, so that the machine is measured once."""
    return tmp_path_factory.mktemp("pages")


def run_quickly(code: str, where: Path) -> str:
    return printed(QUICKLY + code, cwd=where, MPLBACKEND="Agg", MPLCONFIGDIR=fonts_known(where / "matplotlib"))


def test_readme_code_runs(folder: Path) -> None:
    (code,) = blocks(README, "python")
    assert len(code.strip().splitlines()) <= 12
    said = run_quickly(code, folder)
    assert (folder / "roofline.png").stat().st_size > 10_000
    for shown in ("Machine(", "Measurement(", "Prediction("):
        assert shown in said


def test_other_code_runs(folder: Path) -> None:
    """All of a page as one program, in its order; not a block that imports a library that is not there."""
    missing = "import torch" if importlib.util.find_spec("torch") is None else "\0"
    for number, page in enumerate(PAGES[1:]):
        if code := "\n".join(block for block in blocks(page, "python") if missing not in block):
            (folder / f"{number:03d}_{page.stem}.py").write_text(code, encoding="utf-8")
    run_quickly("import glob, runpy\nfor page in sorted(glob.glob('*_*.py')):\n    runpy.run_path(page)\n", folder)


def test_readme_begins_with_the_two_commands() -> None:
    expected = "python3 -m venv .venv && . .venv/bin/activate\npip install . && roofline report\npip install '.[test]' && pytest\n"
    assert blocks(README, "")[0] == expected


def help_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    cli = pytest.importorskip("roofline.cli", reason="the command line needs rich")
    try:
        code = cli.main([*arguments, "--help"])
    except SystemExit as stopped:
        code = stopped.code
    assert not code, f"`roofline {' '.join(arguments)} --help` fails with {code}"
    return capsys.readouterr().out


def test_commands_in_the_text_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """`roofline run attention --seq-q 1`: the command, the operator and every flag."""
    command_line = re.compile(r"(?:`|^(?:\$ )?)roofline ([a-z][^`#\n]*)", re.MULTILINE)
    spans = [span.split() for page in PAGES for span in command_line.findall(page.read_text(encoding="utf-8"))]
    assert ["report"] in spans
    for command, *rest in spans:
        named = OPERATORS if command != "plot" else [name.replace("_", "-") for name in PICTURES]
        arguments = [command, *[word for word in rest[:1] if word in named]]
        shown = help_of(arguments, capsys)
        assert f"roofline {command if command == 'plot' else ' '.join(arguments)}" in shown
        for flag in (word for word in rest if word.startswith("-")):
            assert re.search(rf"{flag}\b", shown), f"`roofline {' '.join(arguments)}` has no {flag}"


def test_every_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of([], capsys)
    named = {row[0].split()[1].strip("`") for row in rows((DOCS / "command_line.md").read_text(encoding="utf-8"), 2)[1:]}
    listed = re.findall(r"^    ([a-z-]+)  ", shown.partition("COMMAND\n")[2].partition("\n\n")[0], re.MULTILINE)
    assert named == set(listed)


# -- what is written down elsewhere too ---------------------------------------------------------------------------------------


def test_generated_parts_are_fresh() -> None:
    done = python(str(ROOT / "docs" / "generate.py"), "--check")
    assert done.returncode == 0, done.stderr


def test_generated_parts_can_be_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    generate = importlib.import_module("generate")
    text = README.read_text(encoding="utf-8")
    assert generate.generated(text) == text
    table = generate.TABLE.read_text(encoding="utf-8")
    row = next(line for line in table.splitlines() if line.startswith("| `softmax`"))
    assert generate.generated(table.replace(row, ""), generate.TABLE) == table
    with pytest.raises(ValueError, match="operators:begin"):
        generate.generated(table.replace("<!-- operators:begin -->", ""), generate.TABLE)


def test_citation_is_of_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    stated = dict(re.findall(r"^([a-z-]+): (\S.*)$", citation, re.MULTILINE))
    assert stated["version"] == PROJECT["version"]
    assert stated["license"] == PROJECT["license"]
    assert stated["title"] == PROJECT["name"]
    assert re.findall(r"- name: (.*)", citation) == [author["name"] for author in PROJECT["authors"]]


def test_extras_and_variables_exist() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(re.findall(r"\.\[(\w+)\]", text)) <= set(PROJECT["optional-dependencies"])
    where = {"": "pyproject.toml", "python": "**/*.py", "cmake": "*.cmake", "csrc": "**/*.[ch]*", "notebooks": "*.ipynb"}
    source = "".join(path.read_text(encoding="utf-8") for folder, files in where.items() for path in (ROOT / folder).glob(files))
    for name in sorted(set(re.findall(r"\bROOFLINE_[A-Z_]+\b", text))):
        assert name in source, f"{name} is in no source"


def heading_anchor(line: str) -> str:
    """As GitHub makes it: lower case, punctuation gone, spaces to hyphens."""
    return re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{page.name}: {target} leads nowhere"
        assert there.is_relative_to(ROOT), f"{page.name}: {target} leaves the repository"
        if anchor:
            headings = [line for line in there.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
            assert anchor in map(heading_anchor, headings), f"{page.name}: no heading for {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_text_exist(page: Path) -> None:
    """Paths from the repository's root, and those that are written as inside csrc or the package."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for name in re.findall(r"`((?:csrc|cmake|docs|notebooks|python|tests|core|ops|cpu|cuda|bindings|measurement)/[\w./-]*)`", text):
        if "square" in name:  # the operator that CONTRIBUTING.md adds
            continue
        places = (ROOT, ROOT / "csrc", ROOT / "python" / "roofline")
        assert any((place / name).exists() for place in places), f"{page.name}: there is no {name}"


# Folders of one machine, host names and addresses.
FOLDERS = r"(?<![\w.])/(?:home|root|tmp|work|Users|mnt|opt|var)/"
PRIVATE = re.compile(FOLDERS + r"|\b[\w-]+\.(?:local|internal|lan|corp)\b|\b\d{1,3}(?:\.\d{1,3}){3}\b")
SHOWN = [*PAGES, ROOT / "CITATION.cff", *sorted((ROOT / "notebooks").glob("*.ipynb"))]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_no_machine_paths(page: Path) -> None:
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        assert not PRIVATE.search(line), f"{page.name}:{number}: {line.strip()}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_not_too_long(page: Path) -> None:
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        assert len(line) <= 132 or line.startswith(("|", "- `")), f"{page.name}:{number} has {len(line)} columns"


def test_readme_is_short() -> None:
    by_hand = re.sub(r"<!-- (\S+):begin -->.*?<!-- \1:end -->", "", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(by_hand.splitlines()) <= 170  # the generated lists grow with the operators


# -- CONTRIBUTING.md ------------------------------------------------------------------------------------------------------------


def test_an_operator_is_few_places() -> None:
    """The files that its steps name: new ones of an operator that is there, or edited ones. A public name and a GPU are more."""
    steps = re.findall(r"^\d+\. \*\*(\w+).*?(?=^\d+\. |^What forgetting)", section(CONTRIBUTING, "Add an operator"), re.M | re.S)
    assert steps[:6] == ["Meaning", "List", "Contract", "CPU", "CPU", "List"], steps
    text = re.sub(r"^7\. .*?(?=^8\. )|^9\. .*", "", section(CONTRIBUTING, "Add an operator"), flags=re.M | re.S)
    named = set(re.findall(r"`((?:python|csrc|tests|docs)/[\w/]+\.(?:py|h|cpp|md))`", text))
    named.discard("python/roofline/__init__.py")
    for path in named:
        assert (ROOT / path.replace("square", "stream")).is_file(), path
    assert len({path.removesuffix(".h").removesuffix(".cpp") for path in named}) <= 8, sorted(named)


# -- docs/architecture.md -----------------------------------------------------------------------------------------------------


def test_the_order_is_the_one_that_is_enforced() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    stated = text.partition("<!-- order:begin -->")[2].partition("<!-- order:end -->")[0]
    assert stated.replace("`", " ").split() == ORDER


def test_every_folder_is_described() -> None:
    described = {name for row in rows(section(ARCHITECTURE, "Layout"), 2) for name in re.findall(r"`([^`]+?)/?`", row[0])}
    folders = {str(Path(name).parent) for name in git("ls-files").splitlines()}
    for folder in folders:
        parts = folder.split("/")
        if parts[0] in ("csrc", "cmake", "tests", "docs", "notebooks", "benchmarks"):
            known = {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
            assert known & described, f"docs/architecture.md does not mention {folder}"
        if parts[0] == "csrc":
            assert folder in described, f"docs/architecture.md does not mention {folder}"


# -- docs/conventions/ --------------------------------------------------------------------------------------------------------


def abbreviations(problem: Any) -> dict[str, Any]:
    """What the tables of docs/conventions abbreviate, from the words under its tables."""
    fields: dict[str, Any] = problem.to_dict()
    dtype = fields.get("dtype", "fp32")
    bits = {"fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "int32": 32}
    bits |= {"nvfp4": 4, "mxfp4": 4, "int4": 4, "int16": 16}
    width = {name: Fraction(each, 8) for name, each in bits.items()}
    names: dict[str, Any] = {"size": width[dtype], "size_of_sums": 8 if dtype == "fp64" else 4, "min": min}
    names |= {"bits": bits[dtype], "up": lambda n: math.ceil(Fraction(n) / 8)}
    for name, field in (("out", "out_dtype"), ("of_weights", "weight_dtype")):
        names[f"bits_{name}"] = bits[fields.get(field, dtype)]
    if "weight_bits" in fields:
        names["weight_bits"] = Fraction(str(fields["weight_bits"]))
    for name in ("table", "gradient", "moment"):
        names[f"size_of_{name}"] = width[fields.get(f"{name}_dtype", dtype)]
    if problem.name == "cached_attention":
        batch, longest, queries = fields["batch"], fields["seq_kv"], fields["seq_q"]
        lengths, most = [longest] * batch, fields["window"] or longest
        if fields["shortest"] and batch > 1:
            lengths = [fields["shortest"] + (longest - fields["shortest"]) * i // (batch - 1) for i in range(batch)]
        seen = sum(min(length - queries + 1 + query, most) for length in lengths for query in range(queries))
        kept = [min(length, most + queries - 1) for length in lengths]
        names |= {"pairs": fields["heads"] * seen, "kept": sum(kept), "bits_of_kv": bits[fields["kv_dtype"]]}
        names["entries"] = sum(-(-keys // fields["page_size"]) for keys in kept) if fields["page_size"] else 0
    if problem.name in ("attention", "attention_backward") or problem.name.startswith("mla_"):
        masked = fields["seq_q"] * (fields["seq_q"] - 1) // 2 if fields["causal"] else 0
        names["pairs"] = fields["batch"] * fields["heads"] * (fields["seq_q"] * fields["seq_kv"] - masked)
    if problem.name == "mla_decode":
        scales = -(-fields["kv_lora_rank"] // fields["scale_block"]) if fields["scale_block"] else 0
        rotated = width[fields["rope_dtype"]] * fields["qk_rope_head_dim"]
        names["token"] = width[fields["cache_dtype"]] * fields["kv_lora_rank"] + rotated + 4 * scales
    if "scales" in fields:
        batch, scales = fields.get("batch", 1), fields["scales"]
        operands, results = batch * (fields["rows"] + fields["columns"]), 2 * batch * fields["rows"] * fields["columns"]
        columns = -(-fields["columns"] // fields["scale_columns"])
        blocks = batch * (fields["rows"] + columns) * -(-fields["inner"] // fields["scale_block"])
        met = {"none": 0, "tensor": results, "row": results, "block": operands * fields["inner"]}
        names["scaled"] = met["block"] + results if scales == "two_level" else met[scales]
        count = {"none": 0, "tensor": 2, "row": operands, "block": blocks, "two_level": blocks}[scales]
        names["scale_bytes"] = count * fields["scale_bits"] / 8 + 8 * (scales == "two_level")
    if problem.name == "quantized_matmul":
        names["shared"] = fields["columns"] * -(-fields["inner"] // (fields["group_size"] or fields["inner"]))
    if problem.name == "embedding":
        missed = Fraction(fields["vocabulary"] - 1, fields["vocabulary"]) ** fields["tokens"]
        names["named"] = round(fields["vocabulary"] * (1 - missed), 9)  # beyond that the formula's logarithm errs
    if problem.name == "grouped_matmul":
        per_token, experts = fields["experts_per_token"], fields["experts"]
        names["routed"] = fields["tokens"] * (per_token + fields["shared_experts"])
        ranks, own = fields["ranks"], experts // fields["ranks"]
        touched = fields["touched_experts"] or own * (1 - (1 - per_token / experts) ** (ranks * fields["tokens"]))
        groups, drawn = fields["groups"], fields["groups_per_token"]
        whole, room = max(1, groups // ranks), drawn * experts // groups
        reached = sum(
            Fraction(math.comb(whole, j) * math.comb(groups - whole, drawn - j), math.comb(groups, drawn))
            * (1 - Fraction(math.comb(max(room - j * own // whole, 0), per_token), math.comb(room, per_token)))
            for j in range(1, min(whole, drawn) + 1)
        )
        names["arriving"] = math.ceil(ranks * fields["tokens"] * reached) if ranks > 1 else fields["tokens"]
        weights = (touched + fields["shared_experts"]) * fields["d_model"] * fields["d_ff"]
        names["expert_bytes"] = math.ceil(weights * fields["weight_bits"] / 8 * (1 - 1e-12))
    if problem.name.startswith("topk_"):
        per_token = fields["experts_per_token"]
        names["compared"] = per_token * fields["experts"] - per_token * (per_token - 1) // 2
    if problem.name == "gelu":
        names["per_gelu"] = {"erf": 5, "tanh": 9}[fields["form"]]
    if "ranks" in fields and "elements" in fields:
        names["chunk"] = -(-fields["elements"] // fields["ranks"])
    if "activation" in fields:
        activation = fields["activation"]
        if problem.name != "matmul":
            names["tokens"] = fields.get("tokens") or fields["batch"] * fields["seq_q"]
        names["per_activation"] = {"relu": 1, "gelu": 5, "gelu_tanh": 9, "silu": 3, "swiglu": 4, "none": 0}[activation]
        names["matrices"] = 3 if activation == "swiglu" else 2
        names["int8"] = int(dtype == "int8")
    if problem.name == "stream":
        names["arrays"] = {"read": 1, "write": 1, "copy": 2, "scale": 2, "add": 3, "triad": 3, "update": 2}[fields["access"]]
        names["size_of_sum"] = 8 if fields["access"] == "read" else 0
    if problem.name == "mixed_intensity":
        line = 64 // width[dtype]
        skipped = (range(start, fields["elements"], line * fields["every"]) for start in range(line, line * fields["every"]))
        names["computed"] = fields["elements"] - sum(map(len, skipped))
    if problem.name in ("host_copy", "peer_copy"):
        names["directions"] = 2 if fields["direction"] == "both" else 1
    if problem.name == "fma":
        names["products"] = {"fp64": 1, "fp32": 1, "fp16": 1, "bf16": 2, "int16": 2, "int8": 4}[dtype]
        names["size_of_sums"] = {"fp64": 8, "fp16": 2}.get(dtype, 4)
    if problem.name == "mma":
        names["size_of_sums"] = 2 if fields["accumulator"] == "fp16" else names["size_of_sums"]
    return fields | names


def evaluate(formula: str, problem: Operator) -> int:
    return int(eval(formula.strip("`"), {"__builtins__": {}}, abbreviations(problem)))


# They have no case, since their kernels take other dtypes.
MORE = {"quantized_matmul": [QuantizedMatmul(dtype="fp8_e4m3")], "lm_head": [LmHead(weight_dtype="fp8_e4m3")]}


def problems() -> list[Any]:
    """Every operator's cases and its defaults."""
    return [
        pytest.param([*(case.problem for case in operator.cases()), operator(), *MORE.get(name, ())], id=name)
        for name, operator in OPERATORS.items()
    ]


@pytest.mark.parametrize("cases", problems())
def test_flop_formulas(cases: list[Operator]) -> None:
    table = {(operator, term): formula for operator, term, formula in rows(section(COUNTING, "Counting FLOPs"), 3)[1:]}
    assert {operator for operator, _ in table} <= set(OPERATORS)
    seen = set()
    for problem in cases:
        for term, count in problem.flops().items():
            assert (problem.name, term) in table, f"docs/conventions/counting.md has no row for {problem.name}, {term}"
            assert evaluate(table[problem.name, term], problem) == count, f"{problem!r}: {term}"
            seen.add(term)
    assert seen == {term for operator, term in table if operator == cases[0].name}, "a term that no case has"


@pytest.mark.parametrize("cases", problems())
def test_byte_formulas(cases: list[Operator]) -> None:
    table = {operator: formula for operator, formula in rows(section(COUNTING, "Counting bytes"), 2)[1:]}
    assert set(table) == set(OPERATORS)
    for problem in cases:
        assert evaluate(table[problem.name], problem) == problem.compulsory_bytes(), repr(problem)


def test_phases_and_their_fields() -> None:
    from roofline.transformer.phases import PHASES

    table = rows(section(DOCS / "conventions" / "models.md", "Whole models"), 2)[1:]
    stated = {row[0].strip("`"): re.findall(r"`(\w+)`", row[1]) for row in table}
    assert stated == {name: [field.name for field in dataclasses.fields(phase)] for name, phase in PHASES.items()}


@pytest.mark.parametrize("cases", problems())
def test_traffic_terms_are_named(cases: list[Operator]) -> None:
    text = section(COUNTING, "Counting bytes")
    for problem in cases:
        for variant in problem.variants:
            for cached in (0, 1):
                for term in problem.traffic({"variant": variant, "row_cached": cached}):
                    assert f"`{term}`" in text, f"docs/conventions/counting.md does not name {problem.name}, {variant}: {term}"


def test_policies() -> None:
    from roofline.ceilings import STANDARD
    from roofline.measurement import policy

    table = rows(section(TIMING, "Timing"), 6)
    columns = [roofline.Policy(), policy.REPORT, policy.QUICK, STANDARD, policy.THOROUGH]
    stated = {row[0].strip("`"): [float(value) for value in row[1:]] for row in table[1:]}
    names = [field.name for field in dataclasses.fields(roofline.Policy)]
    assert stated == {name: [getattr(column, name) for column in columns] for name in names}


def test_statuses_are_explained() -> None:
    stated = [row[0].strip("`") for row in rows(section(TIMING, "Timing"), 2)]
    assert set(STATUSES) <= set(stated)
    distrust = section(DOCS / "measure.md", "Distrust them")
    for status in STATUSES:
        assert f"`{status}`" in distrust or status == "ok"


def test_limits_are_those_of_the_code() -> None:
    sampling = (ROOT / "csrc" / "core" / "sampling.cpp").read_text(encoding="utf-8")
    constants = dict(re.findall(r"constexpr \w+ (k\w+) = ([\d.]+);", sampling))
    assert (constants["kContendedShare"], constants["kForeignCores"], constants["kRoofMoved"]) == ("0.02", "0.03", "0.05")
    assert (constants["kSteady"], constants["kSteadyBatches"]) == ("0.005", "5")
    from roofline.machine import curve, empirical, fit, statistics
    from roofline.measurement import measure, preparing
    from roofline.probes import ALIGNED

    module = sys.modules[measure.__module__]
    assert (module.IMPLAUSIBLE, preparing.MOST_SETS) == (1.03, 64)
    assert (statistics.MODE_GAP, statistics.MODE_SHARE) == (0.20, 0.15)
    assert (fit.HUBER, fit.WIDTH_FLOOR, fit.DRAWS, fit.SHARP, fit.MISFIT) == (0.02, 0.005, 500, 1 / 20, 0.10)
    assert (fit.ARTEFACT, fit.STEP, empirical.REACHES, empirical.SETTLED, empirical.SUSTAINED_S) == (0.05, 0.04, 0.95, 0.5, 10)
    assert (curve.LEAST, curve.FLAT, curve.NOISE[1], ALIGNED) == (3, 0.05, 0.05, 16)


def test_hardware_keys_are_described() -> None:
    table = section(DOCS / "datasheets.md", "Datasheets").partition("| key of a hardware file |")[2]
    stated = [name for row in rows(table, 2) for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(stated) == sorted((*TEXTS, *LISTS, *NUMBERS, *PEAKS))


def test_limits_of_comparisons() -> None:
    text = section(DOCS / "compare.md", "The rules")
    assert f"fewer than {FEWEST} samples" in text
    assert f"beyond {TOLERANCE:.0%}".replace("%", " %") in text
    assert f"more than {MOVED:.0%} apart".replace("%", " %") in text


def test_the_glossary_has_the_words_that_prints_use() -> None:
    from roofline.prediction import ROOF_WORDS
    from roofline.transformer import predict_model, preset
    from roofline.transformer.serving import DEFINITIONS

    terms = [row[0] for row in rows((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), 2)[1:]]
    assert terms == sorted(terms, key=str.lower)
    defined = " ".join(terms)
    found = predict_model(roofline.Machine.load("8xH100"), preset("Llama-3-8B"), roofline.transformer.Decode(batch=64))
    used = {ROOF_WORDS.get(name, name) for name in found.profile} - {"overlap"}
    for word in (*used, *DEFINITIONS, "MFU", "MBU", "Amdahl", "realistic", "at best", "contended", "roof moved", "bracket"):
        assert word.removesuffix(" arithmetic") in defined or word == "request", word
