"""What a model does and what a kernel of ours does, told apart for every operator.

An analytic estimate names no variant: compulsory bytes, the counted FLOPs, one launch. What a variant moves beyond that counts
where the variant is asked for.
"""

import dataclasses

import pytest

from roofline.census import census_of
from roofline.machine import Machine
from roofline.operators import OPERATORS, Bmm, Operator
from roofline.questions import predict
from roofline.transformer import PRESETS, Decode, Prefill, calls_of, preset, total_parameters
from roofline.transformer.pricing import linked

# Probes of a ceiling: what they repeat is the problem itself, whoever computes it.
PROBES = {"stream", "fma", "exp", "fork_join", "pointer_chase", "core_to_core", "mixed_intensity", "host_copy", "peer_copy"}
NOBODY = {"variant": ""}
OURS = [name for name in OPERATORS if name not in PROBES]


def problems(name: str) -> list[Operator]:
    operator = OPERATORS[name]
    return [operator(), *(case.problem for case in operator.cases())]


def machine() -> Machine:
    """Every dtype, caches of a CPU, a link: nothing that an operator could ask for is missing."""
    paper = linked(Machine.from_peaks("paper", 1e12, fp64=1e13, fp32=1e13, int8=1e14), 1e11)
    caches = {"l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20}
    return dataclasses.replace(paper, device="cpu", facts={"threads": 2, **caches})


@pytest.mark.parametrize("name", OURS)
def test_without_a_variant_nothing_is_moved_or_launched_twice(name: str) -> None:
    for problem in problems(name):
        assert problem.traffic(NOBODY) == {}, problem
        assert problem.reuse(NOBODY) == {}, problem
        assert problem.launches(NOBODY) == 1, problem
        assert sum(problem.work(NOBODY).values()) == problem.total_flops(), problem


@pytest.mark.parametrize("name", OURS)
def test_an_estimate_charges_the_compulsory_bytes(name: str) -> None:
    for problem in problems(name):
        found = predict(machine(), problem)
        assert found.bytes == problem.compulsory_bytes(), problem
        assert found.parts.get("DRAM", 0.0) == pytest.approx(problem.compulsory_bytes() / 1e12), problem
        assert found.parts["launch"] == 0.0
        assert set(found.parts) <= {"DRAM", "launch", "link", "product", "exp", "other"}


@pytest.mark.parametrize("name", [name for name in OURS if OPERATORS[name].variants])
def test_a_variant_that_is_asked_for_is_charged_for_its_own(name: str) -> None:
    for problem in problems(name):
        for variant in problem.variants:
            plan = {"variant": variant}
            moved = predict(Machine.from_datasheet("B200"), problem, variant=variant, launch_s=1e-6)
            assert moved.bytes == problem.compulsory_bytes() + sum(problem.traffic(plan).values()), (problem, variant)
            assert moved.parts["launch"] == pytest.approx(1e-6 * problem.launches(plan))


def test_a_static_weight_is_not_transposed_at_every_step() -> None:
    """128 heads x 128 x 512 weights of 1 byte, and as many bytes of activations as a token and head has: 8.54 MB of DeepSeek-V3."""
    weights = 128 * 128 * 512
    token = 128 * (128 + 2 * 512) + 8  # a in fp8, c in bf16, two scales
    into = Bmm(batch=128, rows=1, inner=128, columns=512, dtype="fp8_e4m3", out_dtype="bf16", scales="tensor")
    found = predict(Machine.from_datasheet("H100 SXM"), into)
    assert found.bytes == weights + token
    assert found.bytes == pytest.approx(8.54e6, rel=1e-3)
    assert found.flops_per_byte == pytest.approx(1.98, abs=0.01)
    assert predict(Machine.from_datasheet("H100 SXM"), into, variant="library").bytes == 3 * weights + token


@pytest.mark.parametrize(("batch", "least"), [(1, 1.9), (64, 60.0)])
def test_absorbed_products_of_a_census(batch: int, least: float) -> None:
    made = census_of(preset("DeepSeek-V3"), Decode(batch=batch, seq_kv=4096), Machine.from_datasheet("H200"))
    for name in ("q into latent", "latent into v"):
        (found,) = (e for e in made.entries if e.name == name)
        assert found.flops_per_byte is not None and found.flops_per_byte > least
        assert found.variant == ""
        assert found.bytes == found.problem.compulsory_bytes()


@pytest.mark.parametrize("name", PRESETS)
def test_a_model_as_engines_run_it_has_no_variant(name: str) -> None:
    """Fused, every call is its compulsory bytes; not fused, attention's scores come on top, and nothing else."""
    for phase in (Decode(batch=3, seq_kv=100), Prefill(seq_q=64)):
        assert {call.variant for call in calls_of(preset(name), phase)} == {""}
        found = predict(Machine.from_datasheet("B200"), preset(name), phase, must_fit=False)
        assert found.bytes == sum(part.call.count * part.call.problem.compulsory_bytes() for part in found.parts)


@pytest.mark.parametrize("name", PRESETS)
def test_the_whole_is_next_to_what_is_done_by_hand(name: str) -> None:
    """docs/conventions/models.md: how far decode of one sequence is above weights and cache over bandwidth."""
    given = {"must_fit": False, "launch_s": 0.0}
    phase, h200 = Decode(batch=1, seq_kv=4096), Machine.from_datasheet("H200")
    whole = predict(h200, preset(name), phase, **given)  # type: ignore[arg-type]
    by_hand = predict(h200, preset(name), phase, counting="weights_and_kv", **given)  # type: ignore[arg-type]
    small = total_parameters(preset(name)) < 4e9
    most = 1.003 if preset(name).experts else 1.0015 if small else 1.001
    assert by_hand.time_s < whole.time_s < most * by_hand.time_s


@pytest.mark.parametrize("name", PRESETS)
def test_no_dust_of_rounding_is_a_share(name: str) -> None:
    """What levels and arithmetic do not hide of each other is nothing on paper, where they overlap perfectly."""
    for machine_name, ranks in (("H100 SXM", 1), ("GB200", 2 if preset(name).kv_heads % 4 else 4)):
        found = predict(Machine.from_datasheet(machine_name), preset(name), Decode(batch=8), tp=ranks, must_fit=False)
        assert "overlap" not in found.profile
        for heading in ("bound by", "groups"):
            shown = dict(found.summary())[heading]
            shares = [float(word) for word, unit in zip(shown.split(), shown.split()[1:], strict=False) if unit.startswith("%")]
            assert shares and min(shares) >= 0.005, shown
        assert not any("e-" in cell for row in found.table()[1] for cell in row if cell.endswith("%"))
