"""The figures of the documents this project comes from, right or wrong there, computed from their inputs through the public API."""

import copy
import math
from functools import cache
from typing import Any

import pytest
from figures import BY_ID, FIGURES, leaves, values

import roofline
from roofline import (
    Attention,
    BiasRelu,
    Bmm,
    CachedAttention,
    Counts,
    Machine,
    QuantizedMatmul,
    Roofs,
    Softmax,
    count,
    growth,
    place,
)
from roofline.claims import find_claim, notebook_decode
from roofline.hardware import datasheet
from roofline.transformer import Decode, calls_of, kv_bytes, parameters, preset
from roofline.units import GIB

REL = 1e-9
ENDLESS = 2**30  # of a sequence: the largest power of two whose scores are below 2**62 bytes
NEAR = {"unfused-attention-limit": 1e-6, "naive-attention-limit": 1e-6}  # computed at ENDLESS


def product(rows: int, columns: int, inner: int) -> Bmm:
    return Bmm(batch=1, rows=rows, columns=columns, inner=inner, dtype="fp16", out_dtype="fp16")


def linear(batch: int, d_model: int) -> Bmm:
    return product(batch, d_model, d_model)


def narrow(rows: int, shape: list[int]) -> QuantizedMatmul:
    inner, columns = shape
    return QuantizedMatmul(rows=rows, columns=columns, inner=inner, scale_bits=0, dtype="fp16", out_dtype="fp16")


def roofs(flops_per_s: float, bytes_per_s: float) -> Roofs:
    return Roofs(compute_flops_per_s=flops_per_s, bandwidth_bytes_per_s=bytes_per_s)


def unfused(seq_len: int, head_dim: int) -> list[Counts]:
    """One head in three kernels, in 2-byte elements."""
    return [
        count(product(seq_len, seq_len, head_dim)),
        count(Softmax(rows=seq_len, columns=seq_len, dtype="fp16")),
        count(product(seq_len, head_dim, seq_len)),
    ]


def total(counts: list[Counts]) -> Counts:
    return sum(counts, Counts())


def naive(seq_len: int, head_dim: int) -> Counts:
    """One head in fp16 whose softmax reads the scores and writes none; products only."""
    plan = {"scores_dtype": "fp16", "probabilities_written": False}
    problem = Attention(heads=1, seq_q=seq_len, seq_kv=seq_len, head_dim=head_dim, dtype="fp16")
    return count(problem, variant="naive", plan=plan, products_only=True)


def fused(seq_len: int, head_dim: int) -> Counts:
    return count(Attention(heads=1, seq_q=seq_len, seq_kv=seq_len, head_dim=head_dim, dtype="fp16"), products_only=True)


# -- what computes figures: `by` in the file names it, its arguments are the figure's inputs ------------------------------------


def a_product(rows: int, columns: int, inner: int) -> dict[str, float]:
    found = count(product(rows, columns, inner))
    return {"flops": found.flops, "bytes": found.bytes, "flops_per_byte": found.flops_per_byte}


def unfused_steps(head_dim: int, seq_len: int) -> dict[str, Any]:
    steps = unfused(seq_len, head_dim)
    whole = total(steps)
    return {
        "flops": [step.flops for step in steps],
        "bytes": [step.bytes for step in steps],
        "total_flops": whole.flops,
        "total_bytes": whole.bytes,
        "flops_per_byte": whole.flops_per_byte,
    }


def unfused_lengths(head_dim: int, seq_len: list[int]) -> list[float]:
    return [total(unfused(length, head_dim)).flops_per_byte for length in seq_len]


def unfused_limit(head_dim: int) -> float:
    return total(unfused(ENDLESS, head_dim)).flops_per_byte


def decode_batches(
    batch: list[int],
    seq_kv: int,
    flops_per_s: float,
    bytes_per_s: float,
    compute_share: float,
    bandwidth_share: float,
    **model: int,
) -> list[dict[str, float]]:
    derated = roofs(flops_per_s, bytes_per_s).derated(compute=compute_share, bandwidth=bandwidth_share)
    found = []
    for b in batch:
        step = place(notebook_decode(batch=b, seq_kv=seq_kv, **model), derated)
        found.append(
            {
                "batch": b, "flops": step.counts.flops, "bytes": step.counts.bytes, "flops_per_byte": step.flops_per_byte,
                "time_s": step.time_s, "tokens_per_s": b / step.time_s, "latency_per_request_s": step.time_s / b,
            }
        )  # fmt: skip
    return found


def decode_grid(batch: list[int], seq_kv: list[int], **model: int) -> list[list[float]]:
    return [[notebook_decode(batch=b, seq_kv=s, **model).flops_per_byte for s in seq_kv] for b in batch]


def memory(device: str) -> dict[str, Any]:
    sheet = datasheet(device)
    return {"bytes": sheet.value("memory_bytes"), "type": sheet.memory_type}


def bias_relu(elements: int) -> float:
    return count(BiasRelu(rows=1, columns=elements)).flops_per_byte


def linear_layer(d_model: int, batch: int, ridge: float | None = None) -> dict[str, Any]:
    crossing = {} if ridge is None else {"batch_at_ridge": growth(linear(1, d_model), "rows").reaches(ridge)}
    return {**a_product(batch, d_model, d_model), **crossing}


def naive_limit(head_dim: int) -> float:
    return naive(ENDLESS, head_dim).flops_per_byte


def naive_and_fused(seq_len: int, head_dim: int) -> dict[str, float]:
    slow, fast = naive(seq_len, head_dim), fused(seq_len, head_dim)
    return {
        "naive_flops_per_byte": slow.flops_per_byte,
        "fused_flops_per_byte": fast.flops_per_byte,
        "naive_bytes": slow.bytes,
        "fused_bytes": fast.bytes,
        "traffic_ratio": slow.bytes / fast.bytes,
        "intensity_ratio": fast.flops_per_byte / slow.flops_per_byte,
    }


def h100(device: str) -> dict[str, float]:
    machine = Machine.from_datasheet(device)
    (sparse,) = [peak.value for peak in datasheet(device).sparse if peak.dtype == "fp16"]
    return {
        "flops_per_s": machine.compute("fp16", unit="tensor").value,
        "ridge_flops_per_byte": machine.ridge("fp16", unit="tensor"),
        "sparse_flops_per_s": sparse,
    }


def decode_attention(heads: int, head_dim: int, seq_kv: int, flops_per_s: float, bytes_per_s: float) -> dict[str, float]:
    problem = Attention(heads=heads, seq_q=1, seq_kv=seq_kv, head_dim=head_dim, dtype="fp16")
    found = place(count(problem, products_only=True, tensors=("k", "v")), roofs(flops_per_s, bytes_per_s))
    return {
        "flops": found.counts.flops,
        "bytes": found.counts.bytes,
        "flops_per_byte": found.flops_per_byte,
        "attainable_flops_per_s": found.attainable_flops_per_s,
        "share_of_peak": found.share_of_peak,
    }


def weights_floor(model: str, bytes_per_s: float) -> dict[str, float]:
    config = preset(model)
    layers = parameters(config.replace(weights="fp16"))
    read = Counts(bytes=2 * (layers["attention"] + layers["ffn"]))
    return {"bytes": read.bytes, "time_s": place(read, roofs(math.inf, bytes_per_s)).time_s}


def kv_gib(model: str, batch: int, seq_kv: int) -> float:
    return kv_bytes(preset(model), seq_kv, batch=batch) / GIB


def h100_drill(heads: int, head_dim: int, seq_kv: int, flops_per_s: float, bytes_per_s: float, times: float) -> dict[str, float]:
    given = roofs(flops_per_s, bytes_per_s)
    problem = {"heads": heads, "kv_heads": heads, "seq_q": 1, "seq_kv": seq_kv, "head_dim": head_dim, "dtype": "fp16"}
    found = {kv: count(CachedAttention(**problem, kv_dtype=kv), products_only=True, tensors=("k", "v")) for kv in ("fp16", "int8")}
    plain, int8 = (place(each, given) for each in found.values())
    denser = place(Counts(flops=times * plain.counts.flops, bytes=plain.counts.bytes), given)
    return {
        "balance": given.ridge_flops_per_byte,
        "attainable": plain.attainable_flops_per_s,
        "share": plain.share_of_peak,
        "at_4x": denser.attainable_flops_per_s,
        "int8_cache_intensity": int8.flops_per_byte,
        "int8_cache_attainable": int8.attainable_flops_per_s,
    }


def q_b_proj(rows: int, inner: int, columns: int, flops_per_s: float, bytes_per_s: float) -> dict[str, Any]:
    found = place(narrow(rows, [inner, columns]), roofs(flops_per_s, bytes_per_s))
    flops, size = found.counts.flops, found.counts.bytes
    return {"flops": flops, "bytes": size, "flops_per_byte": found.flops_per_byte, "bound": found.bound}


def fp4_projections(shapes: dict[str, list[int]], rows: list[int]) -> dict[str, dict[str, float]]:
    return {
        name: {**{str(m): count(narrow(m, shape)).flops_per_byte for m in rows}, "limit": growth(narrow(1, shape), "rows").limit}
        for name, shape in shapes.items()
    }


def fp8_bmm(rows: list[int], inner: int, columns: int, flops_per_s: float, bytes_per_s: float) -> dict[str, Any]:
    given = roofs(flops_per_s, bytes_per_s)
    found = [place(Bmm(batch=1, rows=m, columns=columns, inner=inner, dtype="fp8_e4m3", out_dtype="fp8_e4m3"), given) for m in rows]
    return {"flops_per_byte": [each.flops_per_byte for each in found], "bound": [each.bound for each in found]}


def batch_growth(shapes: dict[str, list[int]]) -> float:
    (slope,) = {growth(narrow(1, shape), "rows").slope for shape in shapes.values()}
    return slope


def frame_rates(devices: list[str]) -> dict[str, float]:
    machines = [Machine.from_datasheet(name) for name in devices]
    work = count(Attention(batch=1, heads=16, seq_q=1, seq_kv=65536, head_dim=128, dtype="fp16"))
    times = [place(work, machine, "fp16").time_s for machine in machines]
    rates = {name: machine.bandwidth().value for name, machine in zip(devices, machines, strict=True)}
    return {**rates, "ratio": times[1] / times[0]}


def int4_tensor(devices: list[str]) -> dict[str, float | None]:
    return {name: next((p.value for p in datasheet(name).peaks() if p.dtype == "int4"), None) for name in devices}


def crosses(d_model: int, batch: int, flops_per_s: list[float], bytes_per_s: list[float]) -> dict[str, Any]:
    found = [place(linear(batch, d_model), roofs(*pair)) for pair in zip(flops_per_s, bytes_per_s, strict=True)]
    (intensity,) = {each.flops_per_byte for each in found}
    return {"flops_per_byte": intensity, "bound": [each.bound for each in found]}


def fp4_batch_1(shapes: dict[str, list[int]], rows: int, flops_per_s: float, bytes_per_s: float) -> dict[str, Any]:
    given = roofs(flops_per_s, bytes_per_s)
    found = {name: place(narrow(rows, shape), given) for name, shape in shapes.items()}
    (bound,) = {each.bound for each in found.values()}
    return {
        "bound": bound,
        "flops_per_byte": {name: each.flops_per_byte for name, each in found.items()},
        "ridge": given.ridge_flops_per_byte,
    }


@cache
def computed(figure: str) -> dict[tuple[Any, ...], Any]:
    """Its numbers and texts, each by the way to it: of the function `by`, else of the claim's call."""
    entry = BY_ID[figure]
    if "by" in entry:
        return dict(leaves(globals()[entry["by"]](**entry["inputs"])))
    given = values(eval(find_claim(figure).call, {"roofline": roofline}))
    return dict(zip(dict(leaves(entry["expected"])), given, strict=True))


def check(figure: str, expected: Any) -> None:
    found, wanted = computed(figure), dict(leaves(expected))
    assert set(found) == set(wanted)
    for path, value in wanted.items():
        if isinstance(value, (int, float)):
            assert found[path] == pytest.approx(value, rel=NEAR.get(figure, REL), abs=0), (figure, path)
        else:
            assert found[path] == value, (figure, path)


def test_there_are_as_many_as_the_documents_state() -> None:
    assert len(BY_ID) == len(FIGURES) == 60
    assert sum(not figure["agrees"] for figure in FIGURES) == 29
    assert len({figure["document"] for figure in FIGURES}) == 5


@pytest.mark.parametrize("figure", BY_ID)
def test_figure(figure: str) -> None:
    check(figure, BY_ID[figure]["expected"])


def changed(value: Any) -> Any:
    """A number 1 % larger; anything else replaced."""
    return value * 1.01 if isinstance(value, (int, float)) else 1.0 if value is None else f"not {value}"


@pytest.mark.parametrize("figure", BY_ID)
def test_a_change_of_one_per_cent_fails(figure: str) -> None:
    """Every number of every figure by itself, and every text."""
    for path, _ in leaves(BY_ID[figure]["expected"]):
        holder: Any = (whole := copy.deepcopy(BY_ID[figure]))
        *way, last = ("expected", *path)
        for step in way:
            holder = holder[step]
        holder[last] = changed(holder[last])
        with pytest.raises(AssertionError):
            check(figure, whole["expected"])


SINGLE = [f["id"] for f in FIGURES if isinstance(f["stated"], (int, float)) and isinstance(f["expected"], (int, float))]


@pytest.mark.parametrize("figure", SINGLE)
def test_what_a_document_has_wrong_is_not_what_we_compute(figure: str) -> None:
    """Where a document prints one number: wrong, and ours is another one; right, and ours is near it."""
    entry = BY_ID[figure]
    near = computed(figure)[()] == pytest.approx(entry["stated"], rel=0.005)
    assert near == entry["agrees"]


def test_the_full_rule_of_a_decode_step() -> None:
    """Beside the notebook's: every product, the norms between them, the FFN's activations and the cache's new entry."""
    for batch, rule in ((1, 13962313728), (128, 150793617408)):
        parts = calls_of(preset("7B").replace(weights="fp16"), Decode(batch=batch, seq_kv=2048), lm_head=False, fused=False)
        products = [part for part in parts if part.weights or part.name == "attention"]
        moved = sum(part.count * part.problem.compulsory_bytes() for part in products)
        # By hand: 8 B d vectors of the projections, 2 of attention, 10 B d of the FFN (2 d_model and 8 d_model wide), and the rest.
        layer = 12 * 4096**2 * 2 + batch * 2048 * 4096 * 2 * 2 + (8 + 2 + 10) * batch * 4096 * 2
        assert moved == 32 * layer
        assert notebook_decode(batch=batch, seq_kv=2048).bytes == rule == 32 * (layer - 6 * batch * 4096 * 2)
