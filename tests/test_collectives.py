"""Collectives as measured problems: their roof is the link to the other ranks. No GPU is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from roofline.ceilings.wanted import wanted
from roofline.measurement import roofs
from roofline.measurement.devices import Device
from roofline.measurement.timing import freezer
from roofline.operators import AllGather, AllReduce, ForkJoin, Operator
from roofline.prediction import Rates


def probe_of(kind: str, problem: Operator, work: int) -> roofs.Probe:
    return roofs.Probe(kind, "DRAM" if kind == "bandwidth" else "", kind, problem, "library", work, [], {})


def test_the_prediction_of_a_collective_is_bound_by_the_link() -> None:
    """A link of 100 GB/s: 1 GB in 10 ms, where DRAM would allow 1 ms."""
    problem = AllReduce(elements=2**28, ranks=2, dtype="bf16")
    probes = [probe_of("bandwidth", problem, 10**9), probe_of("latency", ForkJoin(), 1), probe_of("link", problem, 10**9)]
    seen: dict[str, object] = {}

    def expected(roofs: object) -> dict[str, object]:
        seen["roofs"] = roofs
        return {"bound": "link"}

    limiting = freezer(probes, {}, expected, "DRAM")([[1e-3], [5e-6], [10e-3]])
    assert probes[limiting].kind == "link"
    assert seen["roofs"].link_bytes_per_s == pytest.approx(1e11)  # type: ignore[attr-defined]


def test_rates_take_the_link_that_stood_around_the_problem() -> None:
    rates = Rates(bandwidths={"DRAM": 2.0, "link": 3.0}, work={"other": 1.0}, launch_s=0.0)
    scaled = rates.scaled(bandwidths={"DRAM": 4.0, "link": 6.0}, compute=0.5, launch_s=1e-6)
    assert (scaled.bandwidths, scaled.work, scaled.launch_s) == ({"DRAM": 4.0, "link": 6.0}, {"other": 0.5}, 1e-6)


@pytest.mark.parametrize(("gpus", "links"), [(1, 0), (2, 1), (8, 1)])
def test_the_link_is_asked_for_where_there_are_several_gpus(
    monkeypatch: pytest.MonkeyPatch, reported: Callable[..., Device], gpus: int, links: int
) -> None:
    listed = [{"name": f"cuda:{i}", "missing": "", "summary": ""} for i in range(gpus)]
    listed.append({"name": "cpu", "missing": "", "summary": ""})
    monkeypatch.setattr(sys.modules[wanted.__module__], "list_devices", lambda: listed)
    device = reported("cuda:0", sms=132, threads_per_sm=2048, l2_bytes=50 << 20, architecture="sm_90")
    assert sum(w.kind == "link" for _, w in wanted(device, "quick")) == links


def test_the_probe_of_the_link_gathers_parts_of_one_size(monkeypatch: pytest.MonkeyPatch, reported: Callable[..., Device]) -> None:
    asked: list[Operator] = []
    monkeypatch.setattr(roofs, "probe", lambda device, problem, variant: asked.append(problem))
    for ranks in (2, 3, 8):
        roofs.link_probe(reported("cuda:0"), ranks)
    for problem in asked:
        assert isinstance(problem, AllGather)
        assert problem.elements % problem.ranks == 0
        assert problem.link_bytes() > 2**27
