"""Numbers that nobody means: one error with the range, on the command line and in Python, and no infinite time."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from roofline.census import census_of
from roofline.errors import Error
from roofline.machine import Ceiling, Machine
from roofline.model import Roofs, time_s
from roofline.operators import Relu
from roofline.questions import predict
from roofline.transformer import Decode, memory_of, preset

H100 = Machine.from_datasheet("H100 SXM")
MODEL = preset("Llama-3-8B")
SHARE, SECONDS, RATE = "a share from 1e-06 to 1", r"seconds from 0 to 1e\+06", r"bytes/s from 1 to 1e\+30"
SIZE = r"from 1 to 1e\+18"
TINY, HUGE = 1e-320, 1e308
PYTHON: list[tuple[dict[str, Any], str]] = [
    *(({name: value}, SHARE) for name in ("utilisation", "memory_share")
      for value in (TINY, HUGE, 1e-7, 0, -1.0, math.nan, 1.0000001, "50", True)),
    *(({name: value}, SECONDS) for name in ("launch_s", "overhead_s", "link_latency_s")
      for value in (HUGE, 1.1e6, -TINY, math.inf, math.nan, "1000001s", True, 10**400)),
    *(({"link_bytes_per_s": value}, RATE) for value in (TINY, HUGE, 0, math.nan, 10**400, 10**5000)),
    *(({"memory_bytes": value}, SIZE) for value in (TINY, HUGE, 0, math.nan, 2.0**63, 10**400)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "range_"), PYTHON, ids=[next(iter(g)) for g, _ in PYTHON])
def test_estimates_refuse_by_a_stated_range(given: dict[str, Any], range_: str) -> None:
    (name,) = given
    with pytest.raises(Error, match=f"{name}( of compute)? must be .*{range_}, got") as raised:
        predict(H100, MODEL, Decode(), tp=2, **given)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("share", [TINY, 1e-7, HUGE, math.nan, 0])
@pytest.mark.parametrize("roof", ["compute", "bandwidth", "link"])
def test_predictions_refuse_shares(roof: str, share: float) -> None:
    with pytest.raises(Error, match=f"utilisation of {roof} must be .*{SHARE}"):
        predict(H100, Relu(), utilisation={roof: share})


@pytest.mark.parametrize("seconds", [HUGE, 1.1e6, math.inf, math.nan, -TINY])
def test_predictions_and_a_census_refuse_launches(seconds: float) -> None:
    with pytest.raises(Error, match=f"launch_s must be .*{SECONDS}"):
        predict(H100, Relu(), launch_s=seconds)
    with pytest.raises(Error, match=f"launch_s must be .*{SECONDS}"):
        census_of(MODEL, Decode(), H100, launch_s=seconds)
    with pytest.raises(Error, match=f"link_bytes_per_s must be .*{RATE}"):
        census_of(MODEL, Decode(), H100, tp=2, link_bytes_per_s=TINY)


@pytest.mark.parametrize("sample", [TINY, 1e-40, HUGE, 1e40])
@pytest.mark.parametrize(
    "made",
    [
        lambda rate: Ceiling(probe="launch", samples=(rate,)),
        lambda rate: Ceiling(probe="stream", level="DRAM", access="read", samples=(rate,)),
        lambda rate: Machine.from_peaks("paper", rate, fp32=1e12),
        lambda rate: Machine.from_peaks("paper", 1e12, fp32=rate),
        lambda rate: Roofs(compute_flops_per_s=1e12, bandwidth_bytes_per_s=rate),
        lambda rate: Roofs(compute_flops_per_s=rate, bandwidth_bytes_per_s=1e12),
        lambda rate: Roofs(compute_flops_per_s=1e12, bandwidth_bytes_per_s=1e12, link_bytes_per_s=rate),
    ],
)
def test_ceilings_have_a_range(made: Callable[[float], Any], sample: float) -> None:
    with pytest.raises(Error, match=r"from 1e-30 to 1e\+30"):
        made(sample)


def test_the_ends_of_every_range_are_finite() -> None:
    """The slowest machine, the smallest shares, the longest launches together: no infinity, no warning."""
    slow = Machine.from_peaks("paper", 2e-24, fp32=2e-24, bf16=2e-24)  # what is left of them is above 1e-30
    ends = {"utilisation": {"compute": 1e-6, "bandwidth": 1e-6}, "launch_s": 1e6, "overhead_s": 1e6, "link_latency_s": 1e6}
    for batch in (1, 2**40):
        found = predict(slow, MODEL, Decode(batch=batch), must_fit=False, tp=2, link_bytes_per_s=1.0, **ends)  # type: ignore[arg-type]
        assert math.isfinite(found.time_s) and found.tokens_per_s > 0
        assert "inf" not in repr(found) and "nan" not in str(found.summary())
    for least in (1e-6, 1.0):
        assert memory_of(MODEL, Decode(), H100, share=least, capacity_bytes=1).fits is False
    roofs = Roofs(compute_flops_per_s=1e-30, bandwidth_bytes_per_s=1e30)
    assert float(time_s(2**62, 1, roofs)) == pytest.approx(2**62 * 1e30)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--utilisation", "compute=1e-320"], SHARE),
        (["--utilisation", "bandwidth=1e-320"], SHARE),
        (["--utilisation", "nan"], SHARE),
        (["--launch", "1e308"], SECONDS),
        (["--launch", "1e308Es"], "cannot read"),
        (["--overhead", "1e300"], SECONDS),
        (["--link-latency", "1e12s"], SECONDS),
        (["--link", "1e-300B/s"], RATE),
        (["--link", "1e300EB/s"], "cannot read"),
        (["--memory", "1e300TB"], "cannot read"),
        (["--memory", "1e30TB"], SIZE),
        (["--memory", "0"], SIZE),
        (["--memory-share", "1e-320"], SHARE),
        (["--batch", "1e308"], "must be a whole number"),
        (["--seq-q", "4", "--accepted", "1e-320"], "between 1 and seq_q 4"),
    ],
)
def test_flags(flags: list[str], words: str, cli: Any) -> None:
    err = cli.refused(["predict", "Llama-3-8B", "--machine", "H100 SXM", "--tp", "2", *flags])
    assert re.search(words, err) and len(err) < 300, err
