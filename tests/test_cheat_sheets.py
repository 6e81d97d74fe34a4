"""Cheat sheets against numbers worked out by hand: intensity, ridge, crossing, time and gain of each row."""

import json
from typing import Any

import pytest
from shown import pretty
from tables import refused

from roofline import Machine, cheat_sheet
from roofline.cheat_sheets import ALL, ATTENTION, LINK, PRODUCTS, REST, CheatSheet
from roofline.transformer import Decode, predict_model, preset, ridge_batch

BANDWIDTH, PEAK = 2e12, 400e12  # ridge 200
MACHINE = Machine.from_peaks("Example GPU", BANDWIDTH, bf16=PEAK)
D, LAYERS, D_FF, VOCABULARY, KEYS = 4096, 32, 16384, 32000, 2048  # the preset "7B"
WEIGHTS = LAYERS * (4 * D * D + 2 * D * D_FF) + VOCABULARY * D  # of products
# Numbers that one token reads and writes in them: x and q, k, v; what attention gives and its projection; both sides of the FFN
# and what lies between; the last x and the logits.
ROWS = LAYERS * ((D + 3 * D) + 2 * D + 2 * (D + D_FF)) + D + VOCABULARY


@pytest.fixture(scope="module")
def sheet() -> CheatSheet:
    return cheat_sheet(MACHINE, preset("7B"), batch=[1, 64], seq_kv=KEYS, seq_q=1024)


def test_linear_layers_of_decode(sheet: CheatSheet) -> None:
    """2 FLOPs a weight and token; two bytes for each weight, and for each number of a token."""
    for batch in (1, 64):
        line = sheet.line("decode", PRODUCTS, batch=batch)
        flops, moved = 2 * WEIGHTS * batch, 2 * (WEIGHTS + batch * ROWS)
        assert line.flops_per_byte == pytest.approx(flops / moved, rel=1e-12)
        assert line.ridge_flops_per_byte == pytest.approx(200)
        assert (line.bound, line.bound_share) == ("memory", pytest.approx(1))
        assert line.time_s == pytest.approx(moved / BANDWIDTH, rel=1e-9)
        assert line.tokens_per_s is None
    # b w / (w + b r) = 200, where w is WEIGHTS and r ROWS.
    assert sheet.linear.batch == pytest.approx(200 * WEIGHTS / (WEIGHTS - 200 * ROWS), rel=1e-9)
    assert sheet.line("decode", PRODUCTS, batch=64).ridge_batch == sheet.linear.batch
    assert 210 < sheet.linear.batch < 230


def test_attention_of_decode(sheet: CheatSheet) -> None:
    """Keys and values of two bytes, each met by one multiply-add: 1 FLOP/byte at any batch, and no batch reaches the ridge."""
    for batch in (1, 64):
        line = sheet.line("decode", ATTENTION, batch=batch)
        assert line.flops_per_byte == pytest.approx(1, rel=0.02)
        assert line.time_s == pytest.approx(LAYERS * batch * 2 * KEYS * D * 2 / BANDWIDTH, rel=2e-3)
        assert line.ridge_batch is None
        (only,) = line.helps  # neither a larger batch nor narrower weights are a help
        assert (only.change, only.gain) == ("KV cache in fp8", pytest.approx(2, rel=2e-3))


def test_the_whole_step(sheet: CheatSheet) -> None:
    config = preset("7B")
    for batch in (1, 64):
        line = sheet.line("decode", batch=batch)
        found = predict_model(MACHINE, config, Decode(batch=batch, seq_kv=KEYS))
        assert (line.time_s, line.tokens_per_s) == (found.time_s, found.tokens_per_s)
        assert line.flops_per_byte == found.flops_per_byte
        kinds = [sheet.line("decode", kind, batch=batch) for kind in (PRODUCTS, ATTENTION, REST)]
        assert sum(kind.time_s for kind in kinds) == pytest.approx(line.time_s)
        assert sum(kind.share for kind in kinds) == pytest.approx(1)
        met = ridge_batch(found, MACHINE)
        assert sheet.decode.limit == pytest.approx(met.limit, rel=1e-9)
        assert sheet.decode.batch is met.batch is None
        # One batch more of everything: twice the cache, the same weights.
        doubled = predict_model(MACHINE, config, Decode(batch=2 * batch, seq_kv=KEYS))
        gain = {each.change: each.gain for each in line.helps}.get("twice the batch")
        if batch == 1:
            assert gain == pytest.approx(2 * found.time_s / doubled.time_s)


def test_narrow_weights_gain_what_their_bits_say(sheet: CheatSheet) -> None:
    """int4 with 16 bits per 128: 4.125 bits instead of 16 for every matrix of a layer, the head as it was."""
    line = sheet.line("decode", PRODUCTS)
    layers, head = WEIGHTS - VOCABULARY * D, VOCABULARY * D
    narrow = layers * 4.125 / 8 + 2 * head + 2 * ROWS
    assert line.helps[0].change == "weights in int4, groups of 128"
    assert line.helps[0].gain == pytest.approx(2 * (WEIGHTS + ROWS) / narrow, rel=1e-6)


def test_prefill_is_bound_by_compute(sheet: CheatSheet) -> None:
    line = sheet.line("prefill", PRODUCTS)
    layers, head = WEIGHTS - VOCABULARY * D, VOCABULARY * D
    rows = ROWS - D - VOCABULARY
    moved = 2 * (layers + 1024 * rows + head + D + VOCABULARY)  # the head computes one row
    assert line.flops_per_byte == pytest.approx((2 * layers * 1024 + 2 * head) / moved, rel=1e-12)
    assert line.bound == "compute"
    assert line.ridge_batch is not None and line.ridge_batch < 1  # one prompt is enough
    assert (line.batch, line.context) == (1, 1024)
    assert line.helps == ()  # this machine multiplies nothing narrower


def test_a_machine_with_fp8_halves_prefill() -> None:
    machine = Machine.from_peaks("Example GPU", BANDWIDTH, bf16=PEAK, fp8_e4m3=2 * PEAK)
    found = cheat_sheet(machine, preset("7B"), batch=[1]).line("prefill", PRODUCTS)
    assert found.helps[0].change == "weights and their products in fp8"
    assert found.helps[0].gain == pytest.approx(2, rel=0.02)


def test_memory() -> None:
    """An H100 of 80 GB holds the 7B of 13.4 GB, and not 128 caches of 1 GiB."""
    sheet = cheat_sheet(Machine.from_datasheet("H100 SXM"), preset("7B"))
    assert [sheet.line("decode", batch=batch).fits for batch in (1, 32, 128)] == [True, True, False]
    assert sheet.largest_batch is not None and 60 < sheet.largest_batch < 70
    assert "does not fit" in pretty(sheet)
    unknown = cheat_sheet(MACHINE, preset("7B"), batch=[1])
    assert (unknown.largest_batch, unknown.line("decode").fits) == (None, None)
    # At 64 sequences twice as many do not fit, so that is no help.
    full = cheat_sheet(Machine.from_datasheet("H100 SXM"), preset("7B"), batch=[64])
    assert "twice the batch" not in [each.change for line in full.lines if line.phase == "decode" for each in line.helps]


def test_ranks() -> None:
    machine = Machine.from_datasheet("H100 SXM")
    divided = cheat_sheet(machine, preset("Llama-3-8B"), batch=[1], tp=2)
    assert divided.line("decode", LINK).bound == "link"
    whole = cheat_sheet(machine, preset("Llama-3-8B"), batch=[1])
    assert divided.line("decode", PRODUCTS).time_s == pytest.approx(whole.line("decode", PRODUCTS).time_s / 2, rel=0.01)
    spread = cheat_sheet(Machine.from_datasheet("GB200"), preset("DeepSeek-R1-NVFP4"), batch=[8, 1024], ep=8)
    assert [line.batch for line in spread.lines if line.kind == ALL] == [8, 1024, 8]


def test_experts_raise_the_ridge_batch() -> None:
    """A token meets 8 of 128 experts: a batch has to be about 16 times as large before each of them sees as many rows."""
    line = cheat_sheet(MACHINE, preset("Qwen3-30B-A3B"), batch=[1]).line("decode", PRODUCTS)
    assert line.ridge_batch is not None
    assert 8 * 200 < line.ridge_batch < 32 * 200


def test_how_it_shows_itself(sheet: CheatSheet) -> None:
    text, html = pretty(sheet), sheet._repr_html_()
    for shown in (text, html):
        assert "7B on Example GPU" in shown
        assert "balance point: 200 FLOP/byte" in shown
        assert "what helps" in shown and "· attention" in shown
    assert repr(sheet) == "CheatSheet('7B', Example GPU, 12 rows)"
    hostile = cheat_sheet(Machine.from_peaks("<b>GPU</b>", BANDWIDTH, bf16=PEAK), preset("7B"), batch=[1])
    assert "<b>GPU" not in hostile._repr_html_()


def test_words() -> None:
    """Names and words give what objects and numbers give."""
    words = cheat_sheet("8xH100", "Llama-3-70B", batch="1,2", seq_kv="8k", seq_q="2k", weights="fp8")
    config = preset("Llama-3-70B")
    objects = cheat_sheet(
        Machine.from_datasheet("H100 SXM"), config, batch=[1, 2], seq_kv=8192, seq_q=2048, weights="fp8_e4m3", tp=8
    )
    assert [line.to_dict() for line in words.lines] == [line.to_dict() for line in objects.lines]
    assert cheat_sheet(MACHINE, "7B", batch=4).line("decode").batch == 4


test_bad_input = refused(
    lambda options: cheat_sheet(MACHINE, preset("7B"), **options).line("decode", batch=2),
    ({"batch": []}, "batch is empty; give at least one"),
    ({"tpp": 2}, "no option 'tpp'"),
    ({"batch": [0]}, "batch must be between 1"),
    ({"batch": [1]}, "no row of 'decode', 'all', batch 2; there are decode, all, batch 1;"),
)


def test_the_command(cli: Any, schema: Any) -> None:
    check = schema("cheat_sheet")
    given = ["cheat-sheet", "Llama-3-8B", "--machine", "H200 SXM", "--batch", "1,16", "--seq-kv", "4096", "--kv", "fp8_e4m3"]
    found = cli.json([*given, "--tp", "2"])
    check.validate(found)
    ours = cheat_sheet(Machine.from_datasheet("H200 SXM"), "Llama-3-8B", kv="fp8_e4m3", batch=[1, 16], seq_kv=4096, tp=2)
    assert found == json.loads(json.dumps(ours.to_dict()))
    out = cli.out(given)
    assert "206 FLOP/byte" in out and "weights in int4" in out and "Counted:" in out
    assert "--batch" in cli.refused(["cheat-sheet", "Llama-3-8B", "--machine", "H200 SXM", "--batch", "1,x"])


def test_one_machine_is_wanted(cli: Any) -> None:
    """A comma list is refused as such; a comma inside a datasheet's own name is none."""
    said = "'A100,H100' names 2 machines, where one is wanted: give one of them, such as 'A100'"
    assert said in cli.refused(["cheat-sheet", "Llama-3-8B", "--machine", "A100,H100"])
    assert "got an empty word" in cli.refused(["cheat-sheet", "Llama-3-8B", "--machine", ""])
    assert "NVIDIA GB200, one GPU" in cli.out(["cheat-sheet", "Llama-3-8B", "--machine", "NVIDIA GB200, one GPU", "--quiet"])


def test_a_name_with_a_comma_is_one_machine_of_a_list_too(cli: Any) -> None:
    for name in ("NVIDIA GB200, one GPU", "8xNVIDIA GB200, one GPU"):
        assert f"on {name}" in cli.out(["predict", "Llama-3-8B", "--machine", name, "--quiet"])
    assert "NVIDIA A100 SXM 80GB" in cli.out(["predict", "Llama-3-8B", "--machine", "H100, A100", "--quiet"])
