"""Attention of few queries on a CPU: the variant that is its default is the faster one."""

import pytest
from example import FAST

import roofline
from roofline import Attention


@pytest.mark.timing
@pytest.mark.parametrize(
    ("kv_heads", "seq_q", "seq_kv", "head_dim"),
    [(8, 1, 16, 64), (8, 1, 4096, 128), (2, 1, 256, 64), (1, 1, 4096, 64), (8, 8, 16, 128), (2, 8, 1024, 64)],
)
def test_split_kv_is_no_slower_than_three_passes(kv_heads: int, seq_q: int, seq_kv: int, head_dim: int) -> None:
    problem = Attention(heads=8, kv_heads=kv_heads, seq_q=seq_q, seq_kv=seq_kv, head_dim=head_dim, causal=True)
    assert problem.default_variant("cpu") == "split_kv"
    ratios = []
    for _ in range(3):  # in turn, against a clock that drifts
        naive, split = (roofline.measure(problem, variant=name, device="cpu", policy=FAST).time_s for name in ("naive", "split_kv"))
        ratios.append(split / naive)
    assert sorted(ratios)[1] < 1.05
