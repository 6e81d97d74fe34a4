"""The batch from which a problem is compute-bound: worked by hand, on the command line, and refused where there is none."""

from typing import Any

import pytest

import roofline
from roofline import Attention, Error, Ffn, GroupedMatmul, LmHead, Machine, Matmul, QuantizedMatmul, crossover, place

A100 = 312e12 / 2039e9  # FLOP/byte


def test_a_product_worked_by_hand() -> None:
    # A row of 4096 x 4096 brings 2 · 4096² FLOPs, a row of a in bf16 and one of c in fp32; all share b in bf16.
    met = crossover(Machine.from_datasheet("A100"), Matmul(columns=4096, inner=4096, dtype="bf16"))
    once, each = 2 * 4096**2, 2 * 4096 + 4 * 4096
    assert met.over == "rows" and met.ridge == pytest.approx(A100)
    assert met.batch == pytest.approx(A100 * once / (once - A100 * each))


@pytest.mark.parametrize(
    "problem", [Ffn(seq_q=1, dtype="bf16"), Attention(seq_q=1, seq_kv=4096, dtype="bf16"), QuantizedMatmul(dtype="bf16"),
                GroupedMatmul(dtype="bf16", d_model=4096, d_ff=1024)],
)  # fmt: skip
def test_below_it_is_memory_bound_and_above_it_compute_bound(problem: roofline.operators.Operator) -> None:
    machine = Machine.from_datasheet("H100")
    met = crossover(machine, problem)
    assert met.batch is not None
    below, above = (place(problem.replace(**{met.over: size}), machine).bound for size in (int(met.batch), int(met.batch) + 1))
    assert (below, above) == ("HBM", "compute")


def test_experts_whose_weights_are_read_once_they_have_a_token() -> None:
    # Each of 64 experts multiplies tokens / 8 rows by 3 · 4096 · 1024 weights in bf16. So the ridge of 295 FLOP/byte is met at some
    # 295 rows, and at a few more because a token is read and written.
    many = GroupedMatmul(experts=64, experts_per_token=8, d_model=4096, d_ff=1024, activation="swiglu", dtype="bf16")
    met = crossover("H100", many)
    weights, ridge = 64 * 3 * 4096 * 1024 * 2, 989.5e12 / 3.35e12
    by_hand = ridge * weights / (8 * 2 * 3 * 4096 * 1024 - ridge * 2 * 2 * 4096)
    assert met.over == "tokens" and met.batch == pytest.approx(by_hand, rel=2e-3)


def test_weights_are_as_wide_as_the_arithmetic_unless_said() -> None:
    # A token brings 2 · 4096 · 128256 FLOPs, 4096 bytes of x and 4 · 128256 of logits; all share weights of a byte each.
    met = crossover("H100", "lm_head", dtype="fp8")
    once, each, ridge = 4096 * 128256, 4096 + 4 * 128256, 1979e12 / 3.35e12
    assert met.batch == pytest.approx(ridge * once / (2 * once - ridge * each), rel=1e-3)
    sizes: dict[str, Any] = {"experts": 4, "experts_per_token": 4, "d_model": 64, "d_ff": 32}
    for dtype, bits in (("fp32", 32), ("bf16", 16), ("fp8_e4m3", 8), ("nvfp4", 4.5), ("mxfp4", 4.25)):
        for experts in (GroupedMatmul(**sizes, dtype=dtype), GroupedMatmul(**sizes).replace(dtype=dtype)):
            assert experts.weight_bits == bits
            assert sum(t.moved_bytes for t in experts.inputs() if t.name[:2] == "w_") == 4 * 3 * 64 * 32 * bits / 8
    assert LmHead(dtype="fp32").weight_dtype == LmHead().replace(dtype="fp32").weight_dtype == "fp32"
    assert LmHead(weight_dtype="fp8_e4m3").replace(dtype="fp16").weight_dtype == "fp8_e4m3"
    assert GroupedMatmul(weight_bits=4.5).replace(dtype="fp16").weight_bits == 4.5


def test_never() -> None:
    met = crossover(Machine.from_datasheet("H100"), Matmul(columns=64, inner=64, dtype="bf16"))
    assert met.batch is None and met.limit < met.ridge
    assert met.text.startswith("no rows reaches it: the intensity saturates at")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["softmax", "--machine", "H100"], "softmax: its FLOPs per byte grow with none of rows, tokens, batch, seq_q; `roofline"),
        (["ffn", "--machine", "H100", "--over", "heads"], "ffn has no field 'heads'; it has batch"),
        (["bmm", "--machine", "H100", "--over", "batch"], "bmm: no growth over batch: its FLOPs and bytes must be a constant"),
        (["mla_decode", "--machine", "H100", "--over", "seq_q"], "mla_decode: no growth over seq_q: its FLOPs and bytes must"),
        (["ffn", "--machine", "H1"], "no datasheet of 'H1'"),
        (["ffn"], "--machine"),
    ],
)
def test_refused(arguments: list[str], words: str, cli: Any) -> None:
    assert words in cli.refused(["crossover", *arguments])


def test_the_field_that_grows_has_no_value(cli: Any) -> None:
    assert "--batch is the field that grows" in cli.refused(["crossover", "ffn", "--machine", "H100", "--batch", "5"])
    with pytest.raises(Error, match="matmul: rows is the field that grows: leave it out, or let another one grow with over="):
        crossover("H100", "gemm", M=5)
    assert crossover("H100", "gemm", "columns", M=4096).over == "columns"


def test_a_line_for_each_machine_and_dtype(cli: Any) -> None:
    shown = cli.out(["crossover", "ffn", "--machine", "A100,H100", "--d-model", "4096", "--d-ff", "16384"]).splitlines()
    assert shown[0] == "ffn, seq_q 1, d_model 4096, d_ff 16384, activation gelu: compute-bound from which batch?"
    assert [line.split()[5] for line in shown if "A100" in line and "bf16" in line] == ["155"]
    found = cli.json(["crossover", "ffn", "--machine", "A100,H100", "--dtype", "bf16"])["crossings"]
    assert [(row["machine"], row["dtype"]) for row in found] == [("NVIDIA A100 SXM 80GB", "bf16"), ("NVIDIA H100 SXM", "bf16")]
    assert found[0]["batch"] == crossover(Machine.from_datasheet("A100"), Ffn(seq_q=1, dtype="bf16")).batch
    head = cli.out(["crossover", "lm_head", "--machine", "H100"]).splitlines()[0]
    assert head.startswith("lm_head, d_model 4096, vocabulary 128256, weight_dtype by dtype, out_dtype fp32: compute-bound")
