"""Explorers without a browser: a slider's value moves the picture, and shows the numbers of `predict`."""

from typing import Any

import pytest
from tables import refused

from roofline import Machine, interactive, predict
from roofline.interactive import SLIDERS, Explorer, explore, explore_model
from roofline.units import fmt_si

ON = {"H100": Machine.from_datasheet("H100 SXM"), "A100": Machine.from_datasheet("A100 SXM 80GB")}


def drawn(explorer: Explorer, gid: str = "explored o") -> tuple[float, float]:
    line = next(line for line in explorer.ax.lines if line.get_gid() == gid)
    (x,), (y,) = line.get_data()
    return float(x), float(y)


@pytest.fixture(scope="module")
def attention() -> Explorer:
    pytest.importorskip("ipywidgets", reason="sliders need ipywidgets")
    found = explore(list(ON.values()))
    assert isinstance(found, Explorer)
    return found


def expected(explorer: Explorer) -> Any:
    chosen = explorer.values
    name, variant = chosen.pop("machine"), chosen.pop("variant")
    machine = next(m for m in ON.values() if m.name == name)
    return predict(machine, "attention", variant=None if variant == "any" else variant, **chosen)


@pytest.mark.parametrize(
    "name, value",
    [("batch", 64), ("seq_q", 2048), ("seq_kv", 32768), ("heads", 64), ("head_dim", 256), ("dtype", "fp32"), ("variant", "tiled"),
     ("machine", ON["A100"].name), ("causal", True)],
)  # fmt: skip
def test_each_control_moves_the_point(attention: Explorer, name: str, value: Any) -> None:
    before = attention.text
    attention.controls[name].value = value
    asked = expected(attention)
    assert drawn(attention) == pytest.approx((asked.flops / asked.bytes, asked.flops / asked.time_s))
    assert drawn(attention, "explored _")[1] == pytest.approx(asked.flops / asked.roof_s)
    assert f"time {fmt_si(asked.time_s, 's')};" in attention.text and asked.bound in attention.text
    chosen = attention.values
    assert f"{fmt_si(chosen['batch'] * chosen['seq_q'] / asked.time_s, 'tok/s')}" in attention.text
    assert attention.text != before or name == "variant"  # of one launch without further traffic
    assert bytes(attention._image.value).startswith(b"\x89PNG")
    for text in attention.text.split("; "):
        assert text.split(" ", 1)[1].split(",")[0] in attention._words.value


def test_what_is_refused_is_said_and_not_drawn(attention: Explorer) -> None:
    heads = attention.controls["heads"].value
    attention.controls["heads"].value = 1  # of 8 for keys and values
    assert attention.prediction is None
    assert "kv_heads" in attention.text
    assert next(line for line in attention.ax.lines if line.get_gid() == "explored o").get_xdata() == []
    attention.controls["heads"].value = heads
    assert drawn(attention)[0] > 0


def test_a_notebook_shows_the_widget(attention: Explorer) -> None:
    assert "application/vnd.jupyter.widget-view+json" in attention._repr_mimebundle_()
    assert repr(attention).startswith("Explorer(bound ")


def test_any_operator() -> None:
    pytest.importorskip("ipywidgets", reason="sliders need ipywidgets")
    found = explore("H100", "matmul", rows=1)
    assert isinstance(found, Explorer)
    assert {"rows", "columns", "inner", "dtype"} <= {*found.controls}
    found.controls["rows"].value = max(found.controls["rows"].options)
    asked = predict("H100", "matmul", rows=found.controls["rows"].value, dtype="bf16")
    assert drawn(found)[0] == pytest.approx(asked.flops_per_byte)


def test_a_model_part_by_part() -> None:
    pytest.importorskip("ipywidgets", reason="sliders need ipywidgets")
    found = explore_model(list(ON.values()), ["Llama-3-8B", "Llama-3-70B"], batch=8)
    assert isinstance(found, Explorer)
    steps = (
        ("phase", "prefill"), ("batch", 1), ("seq", 1024), ("tp", 4), ("weights", "fp8_e4m3"), ("kv", "fp8_e4m3"),
        ("model", "Llama-3-70B"), ("machine", ON["A100"].name), ("phase", "decode"), ("seq", 32768), ("batch", 1024),
    )  # fmt: skip
    for name, value in (("batch", 8), *steps):
        found.controls[name].value = value
        v = found.values
        length = {"seq_kv" if v["phase"] == "decode" else "seq_q": v["seq"]}
        machine = next(m for m in ON.values() if m.name == v["machine"])
        asked = predict(machine, v["model"], v["phase"], batch=v["batch"], tp=v["tp"], weights=v["weights"], kv=v["kv"],
                        must_fit=False, **length)  # fmt: skip
        names = [label.get_text() for label in found.ax.get_yticklabels()]
        bars = dict(zip(names, (bar.get_width() for bar in found.ax.patches), strict=True))
        assert sum(bars.values()) == pytest.approx(1e3 * asked.time_s)
        part = asked.parts[1]
        assert bars[part.call.name] == pytest.approx(1e3 * sum(p.time_s for p in asked.parts if p.call.name == part.call.name))
        assert fmt_si(asked.tokens_per_s, "tok/s") in found.text and f"time {fmt_si(asked.time_s, 's')};" in found.text
    assert "does not fit" in found.text


def test_without_the_extra_a_still_picture_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, nothing_is_shown: None) -> None:
    monkeypatch.setattr(interactive, "find_spec", lambda name: None)
    for found in (explore("H100"), explore("H100", "matmul", rows=1), explore_model("H100", "Llama-3-8B")):
        assert not isinstance(found, Explorer)
        assert SLIDERS in found.get_title() + found.get_title("left")
    assert "pip install" in SLIDERS


test_bad_input_is_one_error = refused(
    lambda ask: ask(),
    (lambda: explore([]), "at least one machine"),
    (lambda: explore("H100", "atention"), "attention"),
    (lambda: explore("H100", head_dims=3), "head_dim"),
    (lambda: explore("H100", variant="quick"), "quick"),
    (lambda: explore_model("H100", "Llama-3-8B", "training"), "prefill or decode"),
    (lambda: explore_model("H100", "Lama-3-8B"), "Llama-3-8B"),
)
