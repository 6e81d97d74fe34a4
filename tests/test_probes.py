"""Probes: each has one id and one name, sizes that suit machines that are not there, and arrays that share one block of memory."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reported
from example import BRIEF
from reported import GPUS, Reported

import roofline
from roofline import probes
from roofline.errors import Error, OutOfMemory
from roofline.machine import Ceiling, Machine
from roofline.measurement.arena import LEAST_BYTES, Arena, arena_bytes
from roofline.measurement.devices import Device
from roofline.measurement.probing import Ready, ready
from roofline.measurement.tensors import bind
from roofline.operators import OPERATORS, Operator, PointerChase, Stream
from roofline.probes import DEPTHS, PROBES, Identity, Probe, Wanted, probe_named
from roofline.probes.bandwidth import STREAM, UPDATE
from roofline.probes.base import ROOFS, want
from roofline.tensor_spec import TensorSpec
from roofline.units import GIB, KIB, MIB

SETS = "scalar,avx2,avx512,avx512_vnni,avx512_bf16,avx512_fp16,amx"


def cpu(l3: int = 32 * MIB, memory: int = 64 * GIB, threads: int = 2, flush: str = "clflushopt", **facts: Any) -> Reported:
    cores = {"threads": threads, "cores": threads, "isas": SETS, "flush": flush}
    sizes = {"l1_bytes": 48 * KIB, "l2_bytes": 2 * MIB, "l3_bytes": l3, "memory_bytes": memory}
    return Reported("cpu", OPERATORS.values(), peers=(), **{**cores, **sizes, **facts})


def gpu(architecture: str, **facts: Any) -> Reported:
    return reported.gpu(architecture, peers=(1, 2), **facts)


# -- ids and names ------------------------------------------------------------------------------------------------------------


def test_every_id_is_of_one_probe() -> None:
    ids = [probe.id for probe in PROBES]
    assert len(set(ids)) == len(ids)
    assert [probe_named(id) for id in ids] == list(PROBES)
    with pytest.raises(Error, match=r"must be one of launch, stream, fma, .*got 'sream'"):
        probe_named("sream")


def test_what_a_probe_says_of_itself() -> None:
    for probe in PROBES:
        assert probe.kind in probes.KINDS
        assert not probe.operator or probe.operator in OPERATORS
        assert probe.wanted.keys() <= {"cpu", "cuda"}
        assert probe.summary
    assert [probe.id for probe in PROBES if probe.floor] == ["launch"]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("target", [cpu(), cpu(threads=1), *map(gpu, GPUS)], ids=["two", "one", *GPUS])
def test_no_two_wanted_ceilings_share_a_name(target: Reported, depth: str) -> None:
    labels = [what.label for what in probes.wanted(target, depth)]
    assert len(labels) > 10
    assert sorted(set(labels)) == sorted(labels)
    deeper = [what.label for what in probes.wanted(target, "thorough")]
    assert set(labels) <= set(deeper)


def test_the_depths_go_from_roofs_to_all_there_is() -> None:
    quick, standard, thorough = ([what.label for what in probes.wanted(cpu(), depth)] for depth in DEPTHS)
    assert set(quick) < set(standard) < set(thorough)
    assert {"fork-join", "DRAM read", "L1 copy", "bf16→fp32 amx"} <= set(quick)
    report = {what.label for what in probes.wanted(cpu(), "report")}
    assert set(quick) < report < set(standard)
    assert {"fp32 exp", "fp32 GEMM 64", "bf16→fp32 GEMM"} <= report - set(quick)
    assert {"call", "DRAM latency", "fp32 GEMM 2047", "core-to-core 0–1", "DRAM write"} <= set(standard) - set(quick)
    assert {"DRAM read stride 16", "L1 read scalar", "DRAM latency 4 KiB pages", "L2 write NT"} <= set(thorough) - set(standard)


def test_what_is_most_worth_knowing_comes_first() -> None:
    ranks = [what.rank for what in probes.wanted(cpu(), "thorough")]
    assert ranks == sorted(ranks)
    assert next(probes.wanted(cpu())).label == "fork-join"


# -- machines that are not there ----------------------------------------------------------------------------------------------

NUMA = {"numa_nodes": 8}
MACHINES = [
    cpu(l3, memory, threads, flush, **numa)
    for l3, memory, flush in itertools.product((0, 4 * MIB, 480 * MIB, 1152 * MIB), (4 * GIB, 512 * GIB), ("clflushopt", ""))
    for threads, numa in ((1, {}), (2, {**NUMA, "cores": 1}), (64, {}), (384, {**NUMA, "cores": 192}))
]


class Nowhere:
    """Memory of any size that holds nothing."""

    def memory(self, size_bytes: int) -> Any:
        return self

    def fill(self, *what: Any) -> None:
        pass


def held(target: Reported, problem: Operator) -> None:
    """The arrays of a problem, as `ready` takes them. Raises OutOfMemory where they do not fit."""
    large = [spec for spec in problem.tensors() if spec.size_bytes >= LEAST_BYTES and spec.dtype in ("fp32", "fp64")]
    Arena(Nowhere(), target.arena_bytes).held(large)


def sized(target: Reported, depth: str) -> Iterator[tuple[Wanted, Operator]]:
    """Every problem that can be measured; those that stay apart from the arena fit memory."""
    found = list(probes.wanted(target, depth))
    assert found
    for what in found:
        if what.missing:
            with pytest.raises(roofline.Unsupported) as refused:
                what.require()
            assert str(refused.value) == what.missing != ""
            continue
        for problem, variant in what.require():
            assert variant in problem.variants, what.label
            if what.kept:
                held(target, problem)
            assert problem.footprint_bytes() < target.facts["memory_bytes"], what.label
            yield what, problem


@pytest.mark.parametrize("depth", ["quick", "thorough"])  # the others are between
def test_every_problem_of_every_cpu_fits_its_memory(depth: str) -> None:
    for target in MACHINES:
        l2 = target.facts["l2_bytes"] * min(target.threads, target.facts["cores"])
        for what, problem in sized(target, depth):
            if not isinstance(problem, Stream):
                continue
            arrays = [t.size_bytes for t in problem.tensors() if t.name != "sum"]
            assert sum(arrays) <= target.arena_bytes <= min(4 * GIB, target.facts["memory_bytes"] // 4)
            if what.level == "DRAM":
                assert min(arrays) >= 16 * MIB
                assert target.facts["flush"] or min(arrays) >= 2 * max(target.facts["l3_bytes"], l2)
            if what.level == "L3":
                assert 1.5 * l2 - 64 * target.threads * len(arrays) <= sum(arrays) <= target.facts["l3_bytes"] // 2


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("architecture", GPUS)
def test_every_problem_of_every_gpu_fits_its_memory(architecture: str, depth: str) -> None:
    for memory in (GPUS[architecture][3], 4 * GIB):
        target = gpu(architecture, memory_bytes=memory)
        for what, problem in sized(target, depth):
            if isinstance(problem, Stream) and what.level == "DRAM":
                assert problem.elements * 4 >= 2 * target.facts["l2_bytes"]
            if isinstance(problem, Stream) and what.level == "L2":
                assert problem.footprint_bytes() <= 0.4 * target.facts["l2_bytes"]


def missing(target: Reported) -> Mapping[str, str]:
    return {what.label: what.missing for what in probes.wanted(target) if what.missing}


def test_what_cannot_be_measured_says_why() -> None:
    # 64 cores with 2 MiB of L2 each, and 4 MiB of L3; an eighth of a GiB and less for an array beside 1152 MiB of L3.
    little = missing(cpu(4 * MIB, threads=64))
    assert "4 MiB are too little beside the 128 MiB of all L2 together" in little["L3 read"]
    assert little["L3 latency"] == little["L3 read"]
    assert "DRAM read" not in little
    large = missing(cpu(1152 * MIB, 4 * GIB, flush=""))
    assert large["DRAM read"] == large["DRAM copy"] == large["DRAM latency"]
    assert "of memory for an array is too little beside a cache of 1.12 GiB" in large["DRAM read"]
    assert missing(cpu(1152 * MIB, 4 * GIB)) == {}, "lines are flushed: no size is needed"
    assert not any("L3" in what.label for what in probes.wanted(cpu(0), "thorough")), "there is no L3"
    with pytest.raises(Error, match="has no bulk kernel|needs|too slow"):
        slow = next(what for what in probes.wanted(gpu("sm_89")) if what.label == "fp64 GEMM 8192")
        slow.require()


def test_little_memory_leaves_out_dram() -> None:
    none = missing(cpu(memory=128 * MIB))
    assert "9 MiB of memory for an array is too little; 16 MiB is needed" in none["DRAM read"]


# -- one object is a probe ----------------------------------------------------------------------------------------------------


def _wanted_backwards(target: probes.Target, depth: str) -> Iterator[Wanted]:
    yield want(BACKWARDS, target, ROOFS, (PointerChase(size_bytes=6400, hops=500), "dependent"), level="L1")


BACKWARDS = Probe(
    id="backwards", kind="latency", operator="pointer_chase", summary="what a made-up probe waits for", roof=False,
    work=lambda problem: 500, identity=lambda target, problem, variant, level: Identity(level=level, params={"lines": 100}),
    name=lambda c: f"{c.level} backwards over {c.params['lines']} lines", wanted={"cpu": _wanted_backwards},
)  # fmt: skip


def test_a_probe_is_one_object(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Wanted, measured, named, written and read back: nothing but the list knows of it."""
    with pytest.raises(Error, match="probe must be one of"):
        Ceiling(probe="backwards", samples=(1.0,))
    monkeypatch.setattr(probes, "PROBES", (BACKWARDS,))
    monkeypatch.setitem(probes._BY_ID, "backwards", BACKWARDS)
    machine = roofline.measure_machine("cpu", quick=True, policy=BRIEF)
    assert machine.provenance["left_out"] == {}
    (found,) = machine.ceilings
    assert (found.probe, found.kind, found.name) == ("backwards", "latency", "L1 backwards over 100 lines")
    assert 0.1e-9 < found.value < 1e-6
    assert found.diagnostic
    machine.save(tmp_path / "machine.json")
    assert Machine.load(tmp_path / "machine.json") == machine
    assert found.problem == {"operator": "pointer_chase", **PointerChase(size_bytes=6400, hops=500).to_dict()}
    probes.roofs_of.cache_clear()  # of a list without roofs


# -- the arena ----------------------------------------------------------------------------------------------------------------


def device_with(size_bytes: int) -> Device:
    """The CPU with one thread and so much memory for probes."""
    device = Device("cpu", 1)
    device.limit_arena(size_bytes)
    return device


def stream(device: Device, access: str, elements: int, variant: str = "plain") -> Ready:
    return ready(device, STREAM, Stream(access=access, elements=elements), variant, "DRAM")


def test_its_size_is_a_limit_and_a_quarter_of_what_is_available() -> None:
    assert arena_bytes(512 * GIB) == 4 * GIB // (6 * MIB) * 6 * MIB
    assert arena_bytes(2 * GIB) == 510 * MIB
    assert arena_bytes(512 * GIB, 60 * MIB) == 60 * MIB
    assert arena_bytes(0) == 6 * MIB, "three huge pages at the least"


def test_probes_share_their_memory() -> None:
    device = device_with(24 * MIB)
    read, copy, triad = (stream(device, access, MIB) for access in ("read", "copy", "triad"))
    (source, target), arrays = copy.tensors.values(), triad.tensors
    assert {held.memory for found in (copy, triad) for held in found.tensors.values()} == {source.memory}
    inputs, outputs = ([held.offset for held in arrays.values() if held.spec.role == role] for role in ("in", "out"))
    assert len({*inputs, *outputs}) == 3
    assert (source.offset, target.offset) == (inputs[0], outputs[0])
    assert next(held.offset for held in read.tensors.values() if held.spec.name != "sum") == inputs[0]
    ends = sorted((held.offset - 256, held.offset + held.spec.size_bytes + 256) for held in arrays.values())
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ends))
    assert device.arena.touched_bytes == 3 * 6 * MIB


def test_outputs_leave_inputs_as_they_are() -> None:
    device = device_with(24 * MIB)
    triad = stream(device, "triad", MIB)
    inputs = [held for held in triad.tensors.values() if held.spec.role == "in"]
    before = [held.raw().copy() for held in inputs]
    for access, variant in (("write", "plain"), ("copy", "plain"), ("copy", "non_temporal"), ("add", "plain")):
        stream(device, access, MIB, variant).sets[0].run()
    triad.sets[0].run()
    assert all((held.raw() == kept).all() for held, kept in zip(inputs, before, strict=True))
    triad.verify("the triad")


def test_inputs_stay_random_when_a_larger_probe_comes() -> None:
    device = device_with(48 * MIB)
    small = next(held for held in stream(device, "copy", MIB // 8).tensors.values() if held.spec.role == "in")
    before = small.raw().copy()
    large = [held for held in stream(device, "triad", 3 * MIB).tensors.values() if held.spec.role == "in"]
    assert (small.raw() == before).all(), "what was there is the beginning of what is there now"
    for held in large:
        for part in np.array_split(held.raw(), 16):
            assert abs(float(part.mean())) < 0.02
            assert float(part.std()) == pytest.approx(float(before.std()), rel=0.02)
            assert len(np.unique(part)) > 0.9 * len(part)
    assert abs(float(np.corrcoef(large[0].raw()[: 1 << 16], large[1].raw()[: 1 << 16])[0, 1])) < 0.05, "not the same numbers twice"
    whole = next(held for held in stream(device, "read", 11 * MIB).tensors.values() if held.spec.name != "sum")
    assert whole.spec.size_bytes == 44 * MIB, "one array alone may use all regions"
    assert abs(float(whole.raw().mean())) < 0.01


def test_a_problem_that_is_larger_than_its_region_is_refused() -> None:
    device = device_with(24 * MIB)
    stream(device, "copy", 2 * MIB - 128)  # 8 MiB with its guards: the whole region
    with pytest.raises(OutOfMemory, match="the arrays of probes have 8 MiB, .* needs 8 MiB"):
        stream(device, "copy", 2 * MIB - 64)
    with pytest.raises(OutOfMemory, match="the arrays of probes have 24 MiB"):
        stream(device, "read", 6 * MIB)


def test_a_kernel_that_writes_outside_is_found() -> None:
    """The kernel is bound to one line more than its tensor has. (A copy would copy the one guard over the other.)"""
    device = device_with(24 * MIB)
    found = stream(device, "scale", MIB)
    found.verify("the scale")
    longer = {
        name: dataclasses.replace(held, spec=TensorSpec(name=name, shape=(MIB + 16,), dtype="fp32", role=held.spec.role))
        for name, held in found.tensors.items()
    }
    found.sets = [bind(device, Stream(access="scale", elements=MIB + 16), "plain", longer)]
    with pytest.raises(Error, match="the scale computes a wrong result: .*wrote outside"):
        found.verify("the scale")


def test_an_update_is_checked_against_what_it_was_given() -> None:
    """Whatever launches before it have left: 262144 numbers of 4 bytes, read and written."""
    device = device_with(24 * MIB)
    update = stream(device, "update", MIB // 4)
    assert update.work == 2 * MIB
    for _ in range(3):  # factor 3: 27 times as large
        update.sets[0].run()
    update.verify("the update")
    copy = stream(device, "copy", MIB // 4)
    copy.sets[0].run()  # into the array of the update
    update.verify("the update")
    back = ready(device, STREAM, Stream(access="update", elements=MIB // 4, factor=UPDATE), "plain", "DRAM")
    before = back.tensors["c"].raw().copy()
    back.sets[0].run()
    assert (back.tensors["c"].raw() == -before).all()
    back.sets[0].run()
    assert (back.tensors["c"].raw() == before).all()
    stay = {name: dataclasses.replace(held, spec=dataclasses.replace(held.spec, role="out")) for name, held in copy.tensors.items()}
    update.sets = [bind(device, Stream(access="write", elements=MIB // 4), "plain", {"c": stay["c"]})]
    with pytest.raises(Error, match="the update computes a wrong result"):
        update.verify("the update")


def test_a_wrong_result_of_an_earlier_probe_is_no_result_of_this_one() -> None:
    """Two probes write to one region: each is checked by what its own launch left there."""
    device = device_with(24 * MIB)
    copy, write = stream(device, "copy", MIB), stream(device, "write", MIB)
    copy.verify("the copy")
    write.verify("the write")
    copy.sets = write.sets
    with pytest.raises(Error, match="the copy computes a wrong result"):
        copy.verify("the copy")
