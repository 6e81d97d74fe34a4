"""benchmarks/whole_model: which kernels a pass runs, and what its rounds come to."""

import collections
from collections.abc import Callable
from types import ModuleType

import pytest

from roofline.machine import Machine
from roofline.measurement import open_device
from roofline.transformer import Decode, TransformerConfig
from roofline.transformer.calls import calls_of

TINY = TransformerConfig(
    name="tiny", layers=3, d_model=64, heads=4, kv_heads=2, head_dim=16, d_ff=128, vocabulary=256, max_seq=64,
)  # fmt: skip


@pytest.fixture(scope="module")
def whole_model(benchmarks: Callable[[str], ModuleType]) -> ModuleType:
    return benchmarks("whole_model")


def test_a_pass_runs_every_call_of_every_layer(whole_model: ModuleType) -> None:
    step = Decode(batch=2, seq_kv=16)
    model = whole_model.Pass(open_device("cpu"), Machine(name="empty", device="cpu"), TINY, step)
    order = [name for name, _ in model.runs]
    assert collections.Counter(order) == {call.name: call.count for call in calls_of(TINY, step)}
    assert (order[0], order[-1], order.count("attention"), order.count("residual and norm")) == ("embedding", "lm_head", 3, 6)
    first, second, _ = (index for index, name in enumerate(order) if name == "attention")
    assert order[first:second].count("gate and up") == 1, "layer by layer"
    assert model.variants["attention"] == "split_kv"
    seconds = model.timed()
    assert set(seconds) == set(order) and min(seconds.values()) > 0


def test_rounds_with_moving_memory_are_left_out(whole_model: ModuleType) -> None:
    def taken(measured: float, expected: float, *probes: float) -> dict[str, object]:
        seconds = {"measured": {"a": measured / 4, "b": 3 * measured / 4}, "at best": {"a": 0.5}, "realistic": {"a": expected}}
        return {"probes": list(probes), "seconds": seconds}

    moved = taken(9.0, 1.0, 60, 36)
    found = whole_model.summary([taken(1.0, 1.1, 50, 51), taken(2.0, 1.9, 50, 52), taken(4.0, 5.2, 48, 50), moved])
    assert (found["rounds"], found["undisturbed"], found["measured"]) == (4, 3, [2.0, 1.0, 4.0])
    assert found["realistic"] == pytest.approx([0.1, -0.05, 0.3])
    assert found["at best"] == pytest.approx([-0.75, -0.875, -0.5])
    assert whole_model.summary([moved])["undisturbed"] == 0


def test_memory_alone_gets_faster(whole_model: ModuleType) -> None:
    machine = Machine.from_peaks("mine", 50e9, fp32=1e12)
    faster = whole_model.faster(machine, 1.2, "bandwidth", "DRAM")
    assert faster.bandwidth("DRAM", "read").value == pytest.approx(60e9)
    assert [c for c in faster.ceilings if c.kind == "compute"] == [c for c in machine.ceilings if c.kind == "compute"]
