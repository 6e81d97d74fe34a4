"""Attention of few queries on a CPU: the variant that is its default is the faster one."""

from __future__ import annotations

import pytest

import roofline
from roofline import Attention, Policy

FAST = Policy(warmup_min_s=0.0, warmup_max_s=0.01, min_s=0.02, max_s=0.1, bracket_s=0.004, tries=1)


@pytest.mark.timing
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("kv_heads", [8, 2, 1])
@pytest.mark.parametrize(("seq_q", "seq_kv"), [(1, 16), (1, 256), (1, 4096), (1, 16384), (8, 16), (8, 1024)])
def test_split_kv_is_no_slower_than_three_passes(head_dim: int, kv_heads: int, seq_q: int, seq_kv: int) -> None:
    problem = Attention(heads=8, kv_heads=kv_heads, seq_q=seq_q, seq_kv=seq_kv, head_dim=head_dim, causal=seq_q <= seq_kv)
    assert problem.default_variant("cpu") == "split_kv"
    ratios = []
    for _ in range(5):  # in turn, against a clock that drifts
        naive, split = (roofline.measure(problem, variant=name, device="cpu", policy=FAST).time_s for name in ("naive", "split_kv"))
        ratios.append(split / naive)
    assert sorted(ratios)[2] < 1.05
