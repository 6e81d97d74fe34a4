#!/usr/bin/env python3
"""Our operators at size on a GPU, each measured against its roof and then in turns with PyTorch's, in one process.

Run by gpu_check; alone: PYTHONPATH=... python3 side_by_side.py --out DIR [--seconds 120] [--only attention]. Rows that DIR has are
not measured again.

A row is one problem. Ours is checked against the float64 reference before anything is timed, and recorded with its brackets in
results.jsonl. Then ours and theirs take turns, ROUNDS of each, the order changing from round to round: CUDA events around enough
launches for TURN_S, random data on both sides. A ratio is theirs over ours in time, per round; above 1 ours is the faster.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roofline.errors import Error
from roofline.machine import Machine, memory_level
from roofline.measurement import Policy, attempt, open_device
from roofline.measurement.devices import Device
from roofline.measurement.preparing import prepare
from roofline.measurement.probing import bandwidth_probe
from roofline.operators import OPERATORS, Operator
from roofline.results import append_to

ROUNDS = 5
TURN_S = 0.02
GRAPH_BELOW_S = 300e-6  # a shorter launch of theirs is replayed from a graph: Python takes tens of microseconds for each
LEVEL = (0.99, 1.0)  # asked of a ratio that shall not be below 1: turns differ by a per cent
POLICY = Policy(warmup_min_s=0.05, min_s=0.1, max_s=0.3, noise=0.01, tries=2)
TURN = Policy(warmup_min_s=0.0, warmup_max_s=0.01, batch_s=TURN_S, min_samples=3, min_s=0.0, max_s=3 * TURN_S, noise=1.0, tries=1)

Rival = Callable[[Any, Operator], Callable[[], Any]]  # torch and the problem -> a launch of theirs


@dataclass(frozen=True)
class Row:
    """roof: least share of its bracket that is asked for, and aimed at. ratio: the same against each rival; None: nothing is."""

    name: str
    problem: Operator
    variant: str
    roof: tuple[float, float] | None = None
    rivals: Mapping[str, Rival] = field(default_factory=dict)
    ratio: tuple[float, float] | None = None


TORCH_DTYPES = {
    "fp32": "float32", "tf32": "float32", "fp64": "float64", "fp16": "float16", "bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn",
}  # fmt: skip

# -- theirs -------------------------------------------------------------------------------------------------------------------


def _random(torch: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Uniform with variance 1, as ours are: what data toggles decides the clock of products."""
    made = torch.empty(shape, device="cuda", dtype=torch.float32).uniform_(-math.sqrt(3), math.sqrt(3))
    return made.to(getattr(torch, TORCH_DTYPES[dtype]))


def copy(torch: Any, problem: Any) -> Callable[[], Any]:
    a = _random(torch, (problem.elements,), problem.dtype)
    b = torch.empty_like(a)

    def launch() -> None:
        for _ in range(problem.passes):
            b.copy_(a)

    return launch


def product(torch: Any, problem: Any) -> Callable[[], Any]:
    torch.backends.cuda.matmul.allow_tf32 = problem.dtype == "tf32"
    a = _random(torch, (problem.batch, problem.rows, problem.inner), problem.dtype)
    b = _random(torch, (problem.batch, problem.inner, problem.columns), problem.dtype)
    c = torch.empty((problem.batch, problem.rows, problem.columns), device="cuda", dtype=a.dtype)
    if problem.batch == 1:
        a, b, c = a[0], b[0], c[0]
    return lambda: torch.matmul(a, b, out=c)


def scaled_product(fast: bool) -> Rival:
    def made(torch: Any, problem: Any) -> Callable[[], Any]:
        a = _random(torch, (problem.rows, problem.inner), problem.dtype)
        b = _random(torch, (problem.columns, problem.inner), problem.dtype)
        one = torch.ones((), device="cuda")
        kept = {"scale_a": one, "scale_b": one, "out_dtype": torch.float32, "use_fast_accum": fast}
        return lambda: torch._scaled_mm(a, b.t(), **kept)

    return made


def block_scaled_product(torch: Any, problem: Any) -> Callable[[], Any]:
    """One scale for 128 numbers of a row of a, one for 128 x 128 of b, in the order that torch asks for."""
    a = _random(torch, (problem.rows, problem.inner), problem.dtype)
    b = _random(torch, (problem.columns, problem.inner), problem.dtype)
    blocks = problem.inner // 128
    of_a = torch.rand(blocks, problem.rows, device="cuda").t()
    of_b = torch.rand(problem.columns // 128, blocks, device="cuda").t()
    return lambda: torch._scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b, out_dtype=torch.float32)


def attention(backend: str) -> Rival:
    def made(torch: Any, problem: Any) -> Callable[[], Any]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        kv_heads = problem.kv_heads or problem.heads
        q = _random(torch, (problem.batch, problem.heads, problem.seq_q, problem.head_dim), problem.dtype)
        k, v = (_random(torch, (problem.batch, kv_heads, problem.seq_kv, problem.head_dim), problem.dtype) for _ in "kv")
        only = getattr(SDPBackend, backend)

        def launch() -> Any:
            with sdpa_kernel([only]):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=problem.causal and problem.seq_q > 1, enable_gqa=kv_heads != problem.heads
                )

        return launch

    return made


def compiled(arguments: Callable[[Any, Any], tuple[Any, ...]], function: Callable[..., Any]) -> Rival:
    """function(torch.nn.functional, *arguments), by torch.compile."""

    def made(torch: Any, problem: Any) -> Callable[[], Any]:
        tensors = arguments(torch, problem)
        fused = torch.compile(lambda *given: function(torch.nn.functional, *given), dynamic=False)
        return lambda: fused(*tensors)

    return made


def _matrix(torch: Any, problem: Any) -> tuple[Any, ...]:
    return (_random(torch, (problem.rows, problem.columns), problem.dtype),)


def _matrix_and_row(torch: Any, problem: Any) -> tuple[Any, ...]:
    return (*_matrix(torch, problem), _random(torch, (problem.columns,), problem.dtype))


def _matrices_and_row(torch: Any, problem: Any) -> tuple[Any, ...]:
    return (*_matrix(torch, problem), *_matrix_and_row(torch, problem))


def _added_norm(f: Any, x: Any, residual: Any, weight: Any) -> Any:
    total = x + residual
    return total, f.rms_norm(total, weight.shape, weight)


# -- what is compared ---------------------------------------------------------------------------------------------------------


def _made(name: str, **given: Any) -> Operator:
    return OPERATORS[name].make(**given)


def rows(copied: Operator, copied_by: str) -> Iterator[Row]:
    """The most telling first: what the time limit cuts off is missed least. copied, copied_by: our copy, as it is the fastest."""
    flash, cudnn = {"SDPA FlashAttention-2": attention("FLASH_ATTENTION")}, {"SDPA cuDNN": attention("CUDNN_ATTENTION")}
    yield Row("copy", copied, copied_by, rivals={"torch copy_": copy}, ratio=LEVEL)
    for head_dim, heads in ((128, 16), (64, 32)):
        for causal in (False, True):
            problem = _made("attention", batch=2, heads=heads, seq_len=8192, head_dim=head_dim, causal=causal, dtype="bf16")
            name = f"attention {head_dim} {'causal' if causal else 'full'}"
            yield Row(name, problem, "warp_specialized", rivals={**flash, **cudnn}, ratio=LEVEL)
            yield Row(f"{name} tiled", problem, "tiled", rivals=flash)
    decode = _made("attention", batch=32, heads=32, kv_heads=8, seq_q=1, seq_kv=8192, head_dim=128, dtype="bf16")
    yield Row("decode 32 × 8192", decode, "split_kv", roof=(0.88, 0.92), rivals=flash)
    wide = _made("attention", batch=1, heads=32, kv_heads=8, seq_q=1, seq_kv=131072, head_dim=128, dtype="bf16")
    yield Row("decode 1 × 131072", wide, "split_kv", roof=(0.88, 0.92), rivals=flash)
    for problem in (decode, wide):
        exact = problem.replace(dtype="fp32")
        yield Row(f"decode fp32 {exact.batch} × {exact.seq_kv}", exact, "split_kv", roof=(0.88, 0.92))
    for dtype in ("fp8_e4m3", "int8"):
        cached = _made("cached_attention", batch=32, seq_kv=8192, kv_dtype=dtype)
        yield Row(f"decode cache of {dtype} 32 × 8192", cached, "split_kv", roof=(0.85, 0.88))
    for dtype, size in (("bf16", 8192), ("fp16", 8192), ("tf32", 8192), ("fp64", 4096), ("fp32", 4096)):
        kept = "fp32" if dtype == "tf32" else dtype
        problem = _made("bmm", batch=1, rows=size, columns=size, inner=size, dtype=dtype, out_dtype=kept)
        yield Row(f"matmul {dtype} {size}", problem, "library", rivals={"torch.matmul": product}, ratio=LEVEL)
    for variant in ("library", "fast_accumulation"):
        problem = _made("matmul", rows=8192, columns=8192, inner=8192, dtype="fp8_e4m3")
        rival = {"torch._scaled_mm": scaled_product(variant != "library")}
        yield Row(f"matmul fp8 8192 {variant}", problem, variant, rivals=rival, ratio=LEVEL)
    squares = problem.replace(scales="block", scale_block=128, scale_columns=128)
    rival = {"torch._scaled_mm": block_scaled_product}
    yield Row("matmul fp8 8192 1×128 by 128×128", squares, "library", rivals=rival, ratio=LEVEL)
    misaligned = _made("bmm", batch=1, rows=8191, columns=8191, inner=8191, dtype="bf16", out_dtype="bf16")
    yield Row("matmul bf16 8191", misaligned, "library", rivals={"torch.matmul": product}, ratio=LEVEL)
    small = _made("bmm", batch=64, rows=1024, columns=1024, inner=1024, dtype="bf16", out_dtype="bf16")
    yield Row("bmm bf16 64 × 1024", small, "library", rivals={"torch.matmul": product}, ratio=LEVEL)
    for activation in ("swiglu", "gelu_tanh"):
        for variant in ("library", "fused"):
            block = _made("ffn", seq_q=8192, d_model=4096, d_ff=14336, activation=activation, dtype="bf16")
            yield Row(f"ffn {activation} {variant}", block, variant)
    for variant in ("library", "tiled"):
        experts = _made("grouped_matmul", tokens=64, experts=128, experts_per_token=8, d_model=2048, d_ff=768, dtype="bf16")
        yield Row(f"experts 64 × 8 of 128 {variant}", experts, variant)
    mla = _made("mla_decode", batch=64, heads=128, seq_kv=8192, dtype="bf16")
    yield Row("MLA decode 64 × 8192", mla, "split_kv")
    fused = {"roof": (0.93, 0.93)}
    norm = {"torch.compile": compiled(_matrix_and_row, lambda f, x, w: f.rms_norm(x, w.shape, w))}
    yield Row("rms_norm", _made("rms_norm", rows=16384, columns=8192, dtype="bf16"), "fused", rivals=norm, **fused)
    soft = {"torch.compile": compiled(_matrix, lambda f, x: f.softmax(x, dim=-1))}
    yield Row("softmax", _made("softmax", rows=16384, columns=8192, dtype="bf16"), "fused", rivals=soft, **fused)
    gated = {"torch.compile": compiled(lambda t, p: _matrix(t, p) * 1 + _matrix(t, p), lambda f, g, u: f.silu(g) * u)}
    yield Row("silu_mul", _made("silu_mul", rows=16384, columns=8192, dtype="bf16"), "fused", rivals=gated, **fused)
    added = {"torch.compile": compiled(_matrices_and_row, _added_norm)}
    residual = _made("residual_rms_norm", rows=16384, columns=8192, dtype="bf16")
    yield Row("residual_rms_norm", residual, "fused", rivals=added, **fused)
    big = 2**27
    yield Row("gelu", _made("gelu", elements=big, dtype="bf16"), "fused", **fused)
    yield Row("layer_norm", _made("layer_norm", rows=16384, columns=8192, dtype="bf16"), "two_pass", **fused)
    yield Row("rope", _made("rope", batch=8, seq_q=8192, dtype="bf16"), "fused", **fused)
    yield Row("adam", _made("adam", elements=big, dtype="bf16"), "fused", **fused)
    yield Row("top-k softmax", _made("topk_softmax", tokens=2**19, dtype="fp32"), "fused", **fused)
    yield Row("softmax fp32, long rows", _made("softmax", rows=2048, columns=131072, dtype="fp32"), "fused", **fused)
    for causal in (False, True):
        long = _made("attention", batch=4, heads=16, seq_len=2048, head_dim=256, causal=causal, dtype="bf16")
        name = f"attention 256 {'causal' if causal else 'full'}"
        yield Row(name, long, "warp_specialized", rivals={**flash, **cudnn})
    grouped = _made("attention", batch=2, heads=32, kv_heads=8, seq_len=4096, head_dim=128, causal=True, dtype="bf16")
    yield Row("attention 128 causal, 32 / 8 heads", grouped, "warp_specialized", rivals={**flash, **cudnn})


# -- measuring ----------------------------------------------------------------------------------------------------------------


def their_turn(torch: Any, launch: Callable[[], Any], launches: int) -> float:
    """Seconds per launch."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(launches):
        launch()
    end.record()
    torch.cuda.synchronize()
    return 1e-3 * float(begin.elapsed_time(end)) / launches


def replayed(torch: Any, launch: Callable[[], Any]) -> Callable[[], Any]:
    """The launch as a CUDA graph; itself, where it cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            launch()
    except RuntimeError:
        return launch
    replay: Callable[[], Any] = graph.replay
    return replay


def turns(torch: Any, device: Device, sets: list[Any], flush_each: bool, launch: Callable[[], Any]) -> dict[str, Any]:
    """ROUNDS of both sides; the ratio of every round, theirs over ours in time."""
    for _ in range(3):
        launch()
    once = their_turn(torch, launch, 3)
    if once < GRAPH_BELOW_S:
        launch = replayed(torch, launch)
        once = their_turn(torch, launch, 3)
    launches = max(3, round(TURN_S / max(once, 1e-6)))
    ours: list[float] = []
    theirs: list[float] = []

    def our_turn() -> None:
        ours.append(statistics.median(device.core.sample(sets, -1, flush_each, policy=TURN.to_dict())["samples_s"]))

    for round_ in range(ROUNDS):
        for turn in (our_turn, lambda: theirs.append(their_turn(torch, launch, launches)))[:: 1 if round_ % 2 == 0 else -1]:
            turn()
    ratios = sorted(t / o for t, o in zip(theirs, ours, strict=True))
    return {"ours_s": ours, "theirs_s": theirs, "ratio": statistics.median(ratios), "low": ratios[0], "high": ratios[-1]}


def compared(row: Row, device: Device, machine: Machine | None, torch: Any, results: Path) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": row.name,
        "problem": {"operator": row.problem.name, **row.problem.to_dict()},
        "variant": row.variant,
        "roof_asked": row.roof,
        "ratio_asked": row.ratio,
        "rivals": {},
    }
    measured = attempt(row.problem, variant=row.variant, device=device, machine=machine, policy=POLICY)
    append_to(results, measured)
    made |= {"status": measured.status, "reason": measured.reason}
    if not measured.samples_s:
        return made
    made |= {
        "time_s": statistics.median(measured.samples_s),
        "bound": measured.bound,
        "share_of_bracket": measured.share_of_bracket,
        "predicted_s": measured.prediction.get("time_s"),
    }
    if not row.rivals or torch is None:
        return made
    ours = prepare(device, row.problem, row.variant, "cold", 0)
    for name, rival in row.rivals.items():
        try:
            made["rivals"][name] = turns(torch, device, ours.sets, ours.flush_each, rival(torch, row.problem))
        except Exception as error:  # theirs: a backend that refuses a shape, a compiler that is not there
            made["rivals"][name] = {"missing": f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"}
        torch.cuda.empty_cache()
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no row after this long")
    parser.add_argument("--only", default="", help="rows whose name begins so")
    options = parser.parse_args()
    begun = time.monotonic()
    try:
        import torch
    except ImportError:
        torch = None
    device = open_device("cuda:0")
    try:
        machine = Machine.load(options.out / "ceilings.json")
    except Error:
        machine = None
    results, kept = options.out / "results.jsonl", options.out / "rivals.json"
    done: list[dict[str, Any]] = json.loads(kept.read_text())["rows"] if kept.is_file() else []
    begun_before = {row["name"] for row in done}
    about = {"gpu": device.title, "torch": torch.__version__ if torch else "not installed", "rounds": ROUNDS, "turn_s": TURN_S}
    copies = bandwidth_probe(device, memory_level(device.facts), "copy", machine=None)
    for row in rows(copies.problem, copies.variant):
        if row.name in begun_before or not row.name.startswith(options.only):
            continue
        if time.monotonic() - begun > options.seconds:
            print(f"not begun: {row.name} and what follows")
            break
        done.append(compared(row, device, machine, torch, results))
        kept.write_text(json.dumps({"schema_version": 1, "kind": "side_by_side", "about": about, "rows": done}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
