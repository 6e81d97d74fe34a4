"""How objects show themselves: one line in a traceback, an aligned table in a terminal, escaped HTML in a notebook."""

import inspect
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from example import bandwidth, bracket, fma, launch
from shown import pretty

from roofline._repr import html_table, text_table, width
from roofline.crossovers import crossover
from roofline.machine import Ceiling, Machine
from roofline.model import place
from roofline.operators import Attention, Counts, Growth, Matmul, Relu, count, growth
from roofline.prediction import Prediction
from roofline.questions import predict
from roofline.results import Measurement, Results
from roofline.transformer import preset

HOSTILE = "<script>alert('x')</script> & \"co\""


def machine(name: str = "Example CPU") -> Machine:
    return Machine(
        name=name,
        facts={"threads": 2, "l1_bytes": 32 << 10},
        created_utc="2026-11-21T10:00:00+00:00",
        ceilings=(bandwidth((40e9, 41e9, 42e9)), fma(200e9, isa="avx2", clock_hz=3.1e9), launch(1e-6)),
    )


def measurement(operator: str = "relu", **more: Any) -> Measurement:
    fields: dict[str, Any] = {
        "problem": {"elements": 1000, "dtype": "fp32"}, "variant": "simd", "device": "cpu", "threads": 2, "cache_state": "cold",
        "samples_s": (200e-9,) * 3, "flops": {"compare": 1000}, "bytes": {"compulsory": 8000}, "level": "DRAM",
        "brackets": (bracket(50e9, "DRAM copy"),),
        "prediction": {"time_s": 160e-9, "bound": "DRAM", "terms": {"DRAM": 160e-9}},
    }  # fmt: skip
    return Measurement(operator=operator, **{**fields, **more})


def objects() -> list[Any]:
    failed = measurement(status="unsupported", reason="no kernel", samples_s=(), brackets=())
    return [
        machine(),
        measurement(),
        failed,
        Results((measurement(), failed), ("line 3 was cut short",)),
        predict(machine(), Relu()),
        predict("H100", "Llama-3-8B"),
        machine().bandwidth(),
        Ceiling(probe="stream", level="DRAM", access="copy", samples=(40e9,) * 5 + (80e9,) * 5, problem={"operator": "stream"}),
        Machine.from_datasheet("H100 SXM").compute("bf16"),
        count(Attention()),
        growth("gemm", "M", N="4k", K="4k"),
        place("gemm", "H100"),
        crossover("H100", "gemm", over="rows"),
        predict("H100", "Llama-3-8B").memory,
        *(preset(name) for name in ("Llama-3-8B", "DeepSeek-V3", "gpt-oss-20b")),
    ]


@pytest.mark.parametrize("thing", objects(), ids=lambda thing: type(thing).__name__)
def test_three_forms(thing: Any) -> None:
    line = repr(thing)
    assert line.startswith(type(thing).__name__ + "(")
    assert "\n" not in line and len(line) < 200
    written = pretty(thing)
    assert written.count("\n") >= 2 and not written.startswith("\n")
    assert all(text == text.rstrip() for text in written.split("\n"))
    assert pretty(thing, cycle=True) == f"{type(thing).__name__}(…)"
    ElementTree.fromstring(thing._repr_html_())  # well formed


def test_one_line_says_what_matters() -> None:
    assert repr(machine()) == "Machine('Example CPU', cpu, DRAM read 41.0 GB/s, fp32 avx2 200 GFLOP/s)"
    # 8000 bytes in 200 ns are 40 GB/s, 80 % of the bracket's 50
    assert repr(measurement()) == "Measurement(relu simd, elements=1000 fp32, cold, 200 ns, 80.0 % of its DRAM roof)"
    assert repr(measurement(status="contended")).endswith("200 ns, contended)")
    gone = measurement(status="unsupported", reason="no kernel for fp16", samples_s=())
    assert repr(gone) == "Measurement(relu simd, elements=1000 fp32, unsupported: no kernel for fp16)"
    assert repr(Results((measurement(), gone))) == "Results(2 measurements, 1 ok, 1 unsupported)"
    assert repr(Results()) == "Results(0 measurements)"
    assert repr(Machine(name="bare")) == "Machine('bare', cpu, 0 ceilings)"


def test_one_line_of_each_small_object() -> None:
    assert repr(machine().bandwidth()) == "Ceiling(DRAM read 41.0 GB/s, ±2.4 % (range), n = 3, 2 threads, ok)"
    work = Counts(flops=6e9, bytes=2e9)
    assert repr(work) == "Counts(6.00 GFLOP, 2.00 GB, 3.00 FLOP/byte)"
    # 2 GB at 41 GB/s are 48.8 ms, 6 GFLOP at 200 GFLOP/s only 30
    assert repr(place(work, machine(), "fp32")) == "Placement(DRAM-bound, at least 48.8 ms, 3.00 FLOP/byte, ridge 4.88)"
    grown = Growth(flops_each=4e6, bytes_each=1e3, bytes_once=8e6)
    assert repr(grown) == "Growth(4.00 MFLOP and 1.00 kB each, 8.00 MB once: at most 4000 FLOP/byte)"
    assert repr(preset("Llama-3-8B")) == (
        "TransformerConfig('Llama-3-8B': 32 layers, d_model 4096, 32 heads of 128, 8 of keys and values, d_ff 14336, "
        "vocabulary 128256, bf16)"
    )
    assert "8.03 G" in preset("Llama-3-8B")._repr_html_()  # parameters: 8,030,261,248 in the model's card


def test_a_heading_says_what_a_product_writes() -> None:
    heads = [predict("H100", name, dtype=dtype).title for name in ("matmul", "bmm") for dtype in ("bf16", "fp32")]
    assert [head.partition(", dtype ")[2].partition(", on ")[0] for head in heads] == [
        "bf16, out_dtype fp32", "fp32", "bf16, out_dtype bf16", "fp32, out_dtype bf16",
    ]  # fmt: skip
    timed = measurement("matmul", problem=Matmul(rows=8, columns=16, inner=32, dtype="bf16").to_dict(), variant="tiled")
    assert "M=8 N=16 K=32 bf16 out_dtype=fp32" in repr(timed)


def test_a_prediction_shows_its_terms() -> None:
    found = predict(machine(), Relu(elements=10**6, dtype="fp32"))
    assert isinstance(found, Prediction)
    # plain stores only: 8 MB at 41 GB/s are 195.1 us
    assert found.roof_s == pytest.approx(195.122e-6, rel=1e-5)
    assert repr(found).startswith("Prediction(relu on Example CPU: 196 µs, DRAM-bound, ")
    assert "no DRAM copy roof: DRAM read is used" in pretty(found)
    assert "DRAM read 41.0 GB/s" in pretty(found)


@pytest.mark.parametrize(
    "thing",
    [
        machine(HOSTILE),
        measurement(HOSTILE),
        measurement(reason=HOSTILE, status="failed", samples_s=()),
        measurement(problem={HOSTILE: HOSTILE}),
        Results((measurement(variant=HOSTILE),), (HOSTILE,)),
        Ceiling(probe="fma", dtype="fp32", samples=(1e9,), status="contended", reason=HOSTILE),
        preset("Llama-3-8B").replace(name=HOSTILE),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_html_is_escaped(thing: Any) -> None:
    html = thing._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    ElementTree.fromstring(html)


def test_html_has_no_colours_and_is_a_table_without_css() -> None:
    html = html_table(("name", "time"), [("a", "1.5 µs")], title="t", notes=["n"])
    assert "color" not in html and "background" not in html
    tree = ElementTree.fromstring(html)
    assert [cell.text for cell in tree.iter("td")] == ["a", "1.5 µs"]
    assert [cell.get("style") for cell in tree.iter("th")] == ["text-align:left", "text-align:right"]
    assert next(tree.iter("caption"))[0].text == "t"
    assert next(tree.iter("p")).text == "n"


def test_text_is_aligned() -> None:
    assert text_table(("name", "time"), [("relu", "1.5 µs"), ("attention", "12 ms")], title="title", notes=["note"]) == (
        "title\n"
        "name         time\n"
        "─────────  ──────\n"
        "relu       1.5 µs\n"
        "attention   12 ms\n"
        "note"
    )  # fmt: skip
    assert text_table(("name",), []) == "name\n────"
    assert text_table(("machine", "time"), [("8xH100", "1 s"), ("16xB200", "2 s")]).splitlines()[2] == "8xH100    1 s"


def test_columns_are_counted_as_a_terminal_shows_them() -> None:
    assert width("abc") == 3
    assert width("測定") == 4
    assert width("e\u0301") == 1
    lines = text_table(("a", "b"), [("測定", "x"), ("ab", "y")]).split("\n")
    assert {width(line) for line in lines} == {7}


def test_a_cell_with_a_line_break_keeps_its_row() -> None:
    assert text_table(("a", "b"), [("one\ntwo", "x")]).count("\n") == 2


def test_every_public_function_has_an_example() -> None:
    import roofline

    functions = [name for name in roofline.__all__ if inspect.isfunction(getattr(roofline, name))]
    assert len(functions) > 15
    assert [name for name in functions if f"{name}(" not in (getattr(roofline, name).__doc__ or "")] == []
