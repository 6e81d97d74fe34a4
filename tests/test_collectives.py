"""Collectives as measured problems: their roof is the link to the other ranks. No GPU is asked for."""

import pytest
from reported import Reported

from roofline.ceilings import wanted
from roofline.measurement.probing import Ready
from roofline.measurement.timing import freeze
from roofline.operators import AllReduce, ForkJoin, Operator
from roofline.prediction import Rates
from roofline.probes import Identity, probe_named
from roofline.probes.transfer import link_problem


def ready_of(probe: str, problem: Operator, work: int) -> Ready:
    identity = Identity(level="DRAM" if probe == "stream" else "")
    return Ready(
        probe=probe_named(probe), identity=identity, problem=problem, variant="library", work=work, flush=False, sets=[], tensors={}
    )


def test_the_prediction_of_a_collective_is_bound_by_the_link() -> None:
    """A link of 100 GB/s: 1 GB in 10 ms, where DRAM would allow 1 ms."""
    problem = AllReduce(elements=2**28, ranks=2, dtype="bf16")
    probes = [ready_of("stream", problem, 10**9), ready_of("launch", ForkJoin(), 1), ready_of("link", problem, 10**9)]
    seen: dict[str, object] = {}

    def expected(roofs: object) -> dict[str, object]:
        seen["roofs"] = roofs
        return {"bound": "link"}

    limiting = freeze(probes, {}, expected, "DRAM", [[1e-3], [5e-6], [10e-3]])
    assert probes[limiting].kind == "link"
    assert seen["roofs"].link_bytes_per_s == pytest.approx(1e11)  # type: ignore[attr-defined]


def test_rates_take_the_link_that_stood_around_the_problem() -> None:
    rates = Rates(bandwidths={"DRAM": 2.0, "link": 3.0}, work={"other": 1.0}, launch_s=0.0)
    scaled = rates.scaled(bandwidths={"DRAM": 4.0, "link": 6.0}, compute=0.5, launch_s=1e-6)
    assert (scaled.bandwidths, scaled.work, scaled.launch_s) == ({"DRAM": 4.0, "link": 6.0}, {"other": 0.5}, 1e-6)


@pytest.mark.parametrize(("gpus", "links"), [(1, 0), (2, 1), (8, 1)])
def test_the_link_is_asked_for_where_there_are_several_gpus(monkeypatch: pytest.MonkeyPatch, gpus: int, links: int) -> None:
    listed = [{"name": f"cuda:{i}", "missing": "", "summary": ""} for i in range(gpus)]
    listed.append({"name": "cpu", "missing": "", "summary": ""})
    monkeypatch.setattr("roofline.measurement.devices.list_devices", lambda: listed)
    device = Reported("cuda:0", sms=132, threads_per_sm=2048, l2_bytes=50 << 20, architecture="sm_90")
    assert sum(w.kind == "link" for _, w in wanted(device, "quick")) == links


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_the_probe_of_the_link_gathers_parts_of_one_size(ranks: int) -> None:
    problem = link_problem(ranks)
    assert problem.ranks == ranks
    assert problem.elements % ranks == 0
    assert problem.link_bytes() > 2**27
