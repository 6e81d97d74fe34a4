"""Claims: every call gives what is written beside it, figures agree with their test data, pages say what their code prints."""

import ast
import contextlib
import io
import json
import math
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from figures import BY_ID, FIGURES, values
from programs import printed

import roofline
from roofline.claims import SAYS, Claim, documents, find_claim, list_claims, notebook_decode, to_dict
from roofline.claims.claim import FILES, SUFFIX
from roofline.cli import main

ROOT = Path(__file__).parent.parent
CLAIMS = {claim.id: claim for claim in list_claims()}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=lambda claim: claim.id)
def test_the_call_gives_what_is_written(claim: Claim) -> None:
    found, written = values(eval(claim.call, {"roofline": roofline})), values(claim.gives)
    assert len(found) == len(written)
    for ours, stated in zip(found, written, strict=True):
        assert ours == (pytest.approx(stated, rel=6e-4) if isinstance(stated, float) else stated)


# -- the numbers in reasons ---------------------------------------------------------------------------------------------------

REASONS = tomllib.loads((ROOT / "tests" / "data" / "claim_reasons.toml").read_text(encoding="utf-8"))
# Not part of a name (fp16, H100, 7B, 2:4, dp4a), of a formula's letter (4d) or of a width in bits and bytes.
NUMBER = re.compile(r"(?<![\w.:/])(\d+(?:\.\d+)?(?:e\d+)?)(?![\w:]|\.\d|-bit|-byte| bits)( %)?")
WORDS = {"a third": 1 / 3, "a quarter": 1 / 4, "an eighth": 1 / 8, "a ninth": 1 / 9, "a tenth": 1 / 10, "a hundredth": 1 / 100}
PREFIXES = [10.0 ** (3 * power) for power in range(-3, 6)]


def known_numbers(claim: Claim) -> list[float]:
    """What the claim's call gives and the expressions of its reasons, and the inputs that are written in them."""
    found: list[float] = []
    for text in (claim.call, *REASONS.get(claim.id, ())):
        given = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
        known = (*given, *values(eval(text, {"roofline": roofline, "math": math})))
        found += [float(value) for value in known if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return found


def unexplained(claim: Claim, text: str) -> list[str]:
    """Numbers and fractions of a text that are no known number, rounded as they are printed."""
    known = known_numbers(claim)
    missing = []
    for match in NUMBER.finditer(text):
        printed, percent = match.groups()
        value, digits = float(printed), printed.partition("e")[0]
        unit = 10.0 ** (len(printed.partition("e")[2]) and int(printed.partition("e")[2]))
        half = 0.5 * unit * 10.0 ** -len(digits.partition(".")[2]) * 1.0001
        scales = [0.01] if percent else PREFIXES
        if not any(abs(number / scale - value) <= half for number in known for scale in scales):
            missing.append(match.group())
    near = [word for word, value in WORDS.items() if re.search(rf"\b{word}\b", text)]
    missing += [word for word in near if not any(number == pytest.approx(WORDS[word], rel=0.05) for number in known)]
    return missing


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=lambda claim: claim.id)
def test_every_number_of_a_reason_is_computed(claim: Claim) -> None:
    """And of a claim that holds: by its call, or by the expressions in tests/data/claim_reasons.toml."""
    assert unexplained(claim, claim.why) == []
    if claim.holds:
        assert unexplained(claim, claim.claim) == []


def test_a_wrong_number_is_found() -> None:
    """Each of the numbers that were once wrong in a reason."""
    for id, wrong in (
        ("product-256x4096x4096", "Activations are an eighth of the bytes"),
        ("softmax-lowest", "1.26 FLOP/byte"),
        ("decode-7b-batches", "0.1 % less at batch 128"),
        ("linear-512-bound", "At 408.6 FLOP/byte"),
        ("weights-floor", "13.2e9 bytes"),
    ):
        assert unexplained(CLAIMS[id], wrong), id
    assert set(REASONS) <= set(CLAIMS)


@pytest.mark.parametrize("figure", BY_ID)
def test_every_figure_is_a_claim_with_the_same_verdict(figure: str) -> None:
    claim, entry = CLAIMS[figure], BY_ID[figure]
    assert claim.document == entry["document"]
    assert claim.holds == entry["agrees"]
    expected = values(entry["expected"])
    numbers = [leaf for leaf in expected if isinstance(leaf, (int, float))]
    shared = [
        leaf
        for leaf in values(claim.gives)
        if leaf in expected or (isinstance(leaf, float) and any(leaf == pytest.approx(n, rel=6e-4) for n in numbers))
    ]
    assert shared, "what the call gives is no part of the figure"


def test_each_once() -> None:
    assert len(CLAIMS) == len(list_claims())
    assert set(documents()) == {figure["document"] for figure in FIGURES}
    assert {path.name for path in (files("roofline") / "claims").iterdir() if path.name.endswith(SUFFIX)} == {
        f"{name}{SUFFIX}" for name in FILES
    }


def test_a_line_can_be_pasted() -> None:
    assert printed(find_claim("linear-batch-512").line) == "[409.6, 168.86257928118394]\n"


def test_the_notebooks_rule_by_hand() -> None:
    """One layer, one head of 4, a batch of 2 with 3 cached tokens, in 2-byte elements."""
    found = notebook_decode(batch=2, seq_kv=3, d_model=4, layers=1, heads=1)
    assert found.flops == 2 * (24 * 16 + 4 * 3 * 4)
    assert found.bytes == 2 * (12 * 16 + 2 * 2 * 3 * 4 + 2 * 4 * (8 + 3 + 3))
    with pytest.raises(roofline.Error, match="between 1"):
        notebook_decode(batch=0, seq_kv=3)


def test_unknown_names() -> None:
    with pytest.raises(roofline.Error, match="no claim 'nothing'"):
        find_claim("nothing")
    with pytest.raises(roofline.Error, match="no text has 'nothing' in its title; there are"):
        list_claims("nothing")
    assert {claim.document for claim in list_claims("gb200")} == {"GB200 Roofline Analysis"}


def test_json_fits_its_schema(cli: Any, schema: Any, closed: Any) -> None:
    check = schema("claims")
    written = cli.json(["claims"])
    assert written == json.loads(json.dumps(to_dict(list_claims())))
    closed(check, written, written, written["claims"][0])


def test_the_command(cli: Any) -> None:
    out = cli.out(["claims"])
    assert all(claim.id in out for claim in CLAIMS.values())
    assert "no text has 'notebook'" in cli.refused(["claims", "--wrong", "--document", "notebook"])
    out = cli.out(["claims", "--wrong"])
    assert "ridge-a100-fp16" not in out
    assert f"{sum(not claim.holds for claim in CLAIMS.values())} do not hold" in out
    assert CLAIMS["q-b-proj"].line in cli.out(["claims", "q-b-proj"])
    assert f"follows: {SAYS['follows']}" in cli.out(["claims", "naive-and-fused-8192"])
    assert main(["claims", "q-b-proj", "--wrong"]) == 2
    assert main(["claims", "nothing"]) == 2


# -- docs/mental_model.md -------------------------------------------------------------------------------------------------------


def test_the_page_says_what_its_code_prints() -> None:
    """`print(...)  # output`, or the output as comments after the code that prints it."""
    text = (ROOT / "docs" / "mental_model.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    stated = re.findall(r"^print\(.*\)  # (.*)$|^# (.*)$", code, re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "mental_model.md", "exec"), {})
    assert printed.getvalue().splitlines() == [inline or block for inline, block in stated]
    assert len(stated) > 20


def test_the_row_of_what_is_done_element_by_element() -> None:
    """The page's table: from a sum of two tensors, one FLOP over three of two bytes, to the tanh form of GELU."""
    text = (ROOT / "docs" / "mental_model.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| element-wise, norms \| ([\d.]+) to ([\d.]+) \|", text, re.MULTILINE)
    each = (
        roofline.Relu, roofline.Gelu, roofline.SiluMul, roofline.RmsNorm, roofline.ResidualRmsNorm, roofline.LayerNorm,
        roofline.Rope, roofline.Softmax,
    )  # fmt: skip
    found = [roofline.count(operator(dtype="bf16")).flops_per_byte for operator in each]
    found += [roofline.count(roofline.Gelu(form="tanh", dtype="bf16")).flops_per_byte, 1 / (3 * 2)]
    assert [float(end) for end in row] == [round(min(found), 2), round(max(found), 2)]
