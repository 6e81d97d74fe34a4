"""Many decode steps at once: each is what `predict` says of it alone, and thousands take no longer than a few."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example import bandwidth, fma, gemm, launch
from tables import refused

from roofline import Machine
from roofline.machine import Ceiling
from roofline.questions import predict
from roofline.transformer import Decode, TransformerConfig, predict_steps, preset, ridge_batch
from roofline.transformer.advice import ridge_batches


def measured() -> Machine:
    """A CPU: caches, two sizes of GEMM, a launch and a link, so that levels and arithmetic overlap by a knee."""
    bandwidths = [bandwidth(rate, level=level) for level, rate in (("L2", 300e9), ("L3", 120e9), ("DRAM", 38e9))]
    products = [gemm(n, rate, dtype="bf16") for n, rate in ((128, 90e9), (2048, 190e9))]
    others = (launch(4e-6), Ceiling(probe="link", samples=(10e9,)))
    return Machine(
        name="Example CPU", facts={"threads": 2, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20, "memory_bytes": 32 << 30},
        ceilings=(*bandwidths, fma(220e9), fma(220e9, "bf16"), *products, *others),
    )  # fmt: skip


MACHINES = {"H100": Machine.from_datasheet("H100 SXM"), "A100": Machine.from_datasheet("A100-SXM4-80GB"), "CPU": measured()}
DENSE, EXPERTS, LATENT, WINDOW = (preset(name) for name in ("Llama-3-8B", "Qwen3-30B-A3B", "DeepSeek-V3", "GPT-OSS-120B"))
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"fused": False, "lm_head": False, "overhead_s": 1e-5, "launch_s": 2e-6, "utilisation": {"compute": 0.6}},
    {"counting": "weights_and_kv", "utilisation": {"bandwidth": 0.8}, "memory_share": 0.9},
)
RANKS: tuple[dict[str, Any], ...] = ({"tp": 4, "link_latency_s": 3e-6}, {"ep": 4, "memory_bytes": 50e9})


@pytest.mark.parametrize("where", MACHINES)
@pytest.mark.parametrize("config", [DENSE, EXPERTS, LATENT, WINDOW], ids=lambda config: config.name)
def test_each_is_what_predict_says(config: TransformerConfig, where: str) -> None:
    """Lengths from one key, over the window, to beyond what the model was made for."""
    machine, random = MACHINES[where], np.random.default_rng(17)
    cases = [*OPTIONS, RANKS[0], *(RANKS[1:] if config.experts else ())]
    for options in cases:
        batches = 4 * np.unique(random.integers(1, 300, 8))
        seqs = np.unique([1, 2, 127, 128, 129, *(2.0 ** random.uniform(1, 18, 6)).astype(int)])
        found = predict_steps(machine, config, Decode.many(batch=batches[:, None], seq_kv=seqs), **options)
        crossings = ridge_batches(config, seqs.tolist(), machine, **options)
        columns = [0, *random.integers(0, len(seqs), 1)]
        for i, j in zip(random.integers(0, len(batches), len(columns)), columns, strict=True):
            one = predict(machine, config, Decode(batch=int(batches[i]), seq_kv=int(seqs[j])), must_fit=False, **options)
            for name in ("time_s", "flops", "bytes", "flops_per_byte", "tokens_per_s", "tpot_s"):
                assert getattr(found, name)[i, j] == pytest.approx(getattr(one, name), rel=1e-12), (name, options, one.phase)
            assert found.bound[i, j] == one.bound
            assert found.fits[i, j] == (one.memory.fits is not False)
            for roof in {*found.profile, *one.profile}:
                own = found.profile[roof][i, j] if roof in found.profile else 0.0
                assert own == pytest.approx(one.profile.get(roof, 0.0), rel=1e-9, abs=1e-12 * one.time_s), roof
            crossed, alone = crossings[j], ridge_batch(one, machine)
            assert (crossed.limit, crossed.ridge) == pytest.approx((alone.limit, alone.ridge), rel=1e-12)
            assert crossed.batch == (alone.batch if alone.batch is None else pytest.approx(alone.batch, rel=1e-9))


def test_a_step_by_hand() -> None:
    """What tutorials count, on round numbers: weights once, and 131072 bytes of keys and values a token, over the bandwidth."""
    paper = Machine.from_peaks("Paper", 1e12, bf16=1e15, fp32=1e14)
    found = predict_steps(paper, DENSE, Decode.many(batch=[1, 2], seq_kv=1000), counting="weights_and_kv")
    cache = 131072 * 1000 / 1e12
    weights = 2 * (8030261248 - 128256 * 4096 - 65 * 4096) / 1e12  # without the embedding and the norms
    assert found.time_s == pytest.approx([weights + cache, weights + 2 * cache], rel=1e-12)
    assert set(found.bound) == {"DRAM"}


test_what_one_step_refuses_many_refuse = refused(
    lambda ask: ask(),
    (lambda: Decode.many(batch=[0, 1], seq_kv=5), "batch must be between 1 and 2"),
    (lambda: Decode.many(batch=[1, 2**41], seq_kv=5), "batch must be between 1 and 2"),
    (lambda: Decode.many(batch=[1.5], seq_kv=5), "batch must be whole numbers"),
    (lambda: Decode.many(batch=[], seq_kv=5), "batch must be whole numbers, at least one"),
    (lambda: Decode.many(batch=[1, 2], seq_kv=[1, 2, 3]), "do not broadcast"),
    (lambda: Decode.many(batch=1, seq_kv=[9, 3], seq_q=4), "at least seq_q 4, got 3"),
    (
        lambda: predict_steps(MACHINES["H100"], DENSE, Decode.many(batch=1, seq_kv=[5]), batches=3),
        "no option 'batches' .did you mean batch",
    ),
    (lambda: predict_steps(MACHINES["H100"], DENSE, Decode.many(batch=1, seq_kv=[5]), tp=3), "does not divide"),
    (lambda: predict_steps(MACHINES["H100"], EXPERTS, Decode.many(batch=[4, 6], seq_kv=5), ep=4), "divide batch 6"),
    (lambda: predict_steps(MACHINES["H100"], DENSE, Decode.many(batch=[1, 2**40], seq_kv=2**40)), "2\\*\\*62"),
    (lambda: predict_steps(MACHINES["H100"], DENSE, Decode.many(batch=1, seq_kv=[5]), memory_share=2), "from 1e-06 to 1"),
)


def test_large_sums_do_not_overflow() -> None:
    """The cache of all layers is beyond 2**63 bytes though every tensor is below 2**62."""
    found = predict_steps(MACHINES["H100"], DENSE, Decode.many(batch=[1, 2**35], seq_kv=2**15))
    assert found.fits.tolist() == [True, False]


def test_a_heat_map_of_many_points_is_quick(cli: Any) -> None:
    """64 x 64 points took 30 s of CPU one by one."""
    sizes = ",".join(map(str, range(1, 65)))
    command = ["plot", "decode-heatmap", "Llama-3-8B", "--machine", "H100 SXM", "--batch"]
    cli.json([*command, "1", "--seq-kv", "2"])  # imports
    begun = time.process_time()
    records = cli.json([*command, sizes, "--seq-kv", sizes])
    assert time.process_time() - begun < 6
    cells = [record for record in records if record["element"] == "cell"]
    assert len(cells) == 4 * 64 * 64


def test_large_heat_maps_are_drawn_without_numbers(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    from roofline import plot
    from roofline.plot.cells import WRITTEN, blocks

    sizes = {"batch": range(2, 61, 2), "seq_kv": range(4096, 256 * 2048, 4096)}
    for quantity in ("bound", "tokens_per_s"):
        ax = plot.decode_heatmap(MACHINES["H100"], DENSE, quantity=quantity, **sizes, ax=Figure(figsize=(9, 6)).add_subplot())
        cells = [r for r in plot.decode_heatmap.data(MACHINES["H100"], DENSE, quantity=quantity, **sizes) if r["element"] == "cell"]
        fits = np.array([r["fits"] for r in cells]).reshape(30, 127)
        assert not [t for t in ax.texts if t.get_gid() != "notes"] and len(ax.patches) < 30 + 127 and len(ax.get_xticks()) <= 20
        covered = np.zeros((30, 127), dtype=int)
        for patch in ax.patches:
            box = patch.get_bbox()  # type: ignore[attr-defined]
            if "unfit" in str(patch.get_gid()):
                covered[round(box.y0 + 0.5) : round(box.y1 + 0.5), round(box.x0 + 0.5) : round(box.x1 + 0.5)] += 1
        assert (covered == ~fits).all()
    notes = [r["label"] for r in plot.decode_heatmap.data(MACHINES["H100"], DENSE, **sizes) if r["element"] == "note"]
    assert any(f"more than {WRITTEN} cells" in note for note in notes)
    cells = ["aab", "aab", "abb", "ccc"]
    found = {(name, *rows, *columns) for name, rows, columns in blocks(cells)}
    assert found == {("a", 0, 2, 0, 2), ("b", 0, 2, 2, 3), ("a", 2, 3, 0, 1), ("b", 2, 3, 1, 3), ("c", 3, 4, 0, 3)}
