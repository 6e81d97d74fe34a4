"""The keys that files state about a device, a run and its circumstances: their types, units and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from ..reading import MOST, Amount, Duration, Integer, Keys, Rate, Scalar, Share, Text, Whole

Tile = Annotated[int, Meta(ge=1, le=MOST)]


class Facts(TypedDict, total=False):
    """What a backend or a datasheet says of a device. Bytes of L1 and L2 are per core; of a GPU, L2 is that of the whole device."""

    # of both
    l1_bytes: Whole
    l2_bytes: Whole
    l3_bytes: Whole  # sum over the L3 caches that the threads' CPUs share, as reported: a guest is told the host's
    l3_instances: Whole  # how many L3 caches those are
    l3_share_bytes: Whole  # what this machine was found to get of it
    flush: Text  # the instruction that takes lines out of the caches
    memory_bytes: Whole
    memory_bytes_per_s: Amount
    # of a CPU
    cpu_name: Text
    cpu_vendor: Text
    cpu_family: Integer
    cpu_model: Integer
    threads: Whole
    cores: Whole
    usable_cores: Whole
    quota_cores: Amount
    isas: Text
    huge_pages: Text
    governor: Text
    virtual_machine: bool | Whole
    # of a GPU
    gpu_name: Text
    architecture: Text
    compute_capability: Text
    sms: Whole
    threads_per_sm: Whole
    shared_bytes_per_sm: Whole
    shared_bytes_per_block: Whole
    max_clock_hz: Amount
    memory_clock_hz: Amount
    memory_bus_bits: Amount
    ecc: bool | Whole
    mig: bool | Whole
    driver_version: Text
    runtime_version: Text
    # of a datasheet
    driver_memory_bytes_per_s: Rate
    # of a log of collectives
    ranks: Whole


class Conditions(TypedDict, total=False):
    """What a device said of itself during a measurement. Every key that ends in `_share` is a fraction of the time."""

    sm_clock_hz: Amount
    memory_clock_hz: Amount
    sm_clock_in_batches_hz: Amount
    power_w: Amount
    power_max_w: Amount
    temperature_c: Annotated[float, Meta(ge=-300, le=1e4)]
    power_limited: bool | Whole
    other_processes: Whole
    energy_j: Amount
    energy_source: Text
    gpu_idle_share: Share


class Plan(TypedDict, total=False):
    """What of the kernel that ran is counted with: tiles (at least 1), elements and bytes."""

    variant: Text
    implementation: Text
    isa: Text
    tool: Text
    scores_dtype: Text
    query_block: Tile
    kv_block: Tile
    query_lanes: Tile
    line_bytes: Tile
    scores_elements: Whole
    keys_met: Whole
    panel_elements: Whole
    exponentials: Whole
    parts_bytes: Whole
    workspace_bytes: Whole
    packed_bytes: Whole
    experts_with_tokens: Whole
    huge_page_share: Annotated[float, Meta(ge=-1, le=1)]


class LeftOut(TypedDict):
    """A point that a report did not measure."""

    operator: Text
    variant: Text
    problem: dict[str, Scalar]
    cache_state: Text
    reason: Text


class ReportFacts(TypedDict, total=False):
    """What a report stores beside its ceilings. end_check: brackets, checked where they are read."""

    began_utc: Text
    took_s: Duration
    time_limit_s: Duration | None
    seed: Integer
    left_out: list[LeftOut]
    end_check: list[dict[str, Any]]


class StatedNumber(TypedDict):
    """A number of a datasheet, as its file states it."""

    value: Amount
    verified: bool
    source: Text
    note: NotRequired[Text]
    disputed: NotRequired[bool]


class StatedDatasheet(TypedDict, total=False):
    driver_memory_bytes_per_s: StatedNumber
    memory_bytes_per_s: StatedNumber


class Options(TypedDict):
    """What an unfinished measurement was asked for."""

    depth: Text
    threads: Whole
    policy: dict[str, Scalar]


class Provenance(TypedDict, total=False):
    """Versions and conditions of a run. pending, done, options: of an unfinished measurement of a machine."""

    versions: dict[str, Text]
    build: dict[str, Scalar]
    os: Text
    device: dict[str, Scalar] | Text
    roofline_isa: Text
    seed: Integer
    utc: Text
    policy: dict[str, Scalar]
    depth: Text
    left_out: dict[str, Text]
    options: Options
    done: list[Text]
    pending: list[Text]
    report: ReportFacts
    datasheet: StatedDatasheet
    imported: list[dict[str, Scalar]]
    tool: Text
    gpu_name: Text


StatedFacts = Annotated[Mapping[str, Any], Keys(Facts)]
StatedPlan = Annotated[Mapping[str, Any], Keys(Plan)]
StatedConditions = Annotated[Mapping[str, Any], Keys(Conditions)]
StatedProvenance = Annotated[Mapping[str, Any], Keys(Provenance, object)]
