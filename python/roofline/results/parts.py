"""What a measurement states beside its samples: the prediction, the check against the reference, the load of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from ..reading import Amount, Keys, Seconds, Share, Text, Whole


class Prediction(TypedDict, total=False):
    """From the brackets before. terms: seconds that each roof allows. parts: seconds of each level, kind of work, and launch,
    and what the kernel takes beyond (kernel, loops, start).

    most_s: where the roof of a cache is not known, seconds if memory served the cache's bytes. notes: assumptions.
    """

    time_s: Seconds
    roof_s: Seconds
    bound: Text
    terms: dict[str, Amount]
    parts: dict[str, Amount]
    most_s: Seconds
    notes: list[Text]


class Correctness(TypedDict, total=False):
    """The outputs against float64. rows: that were compared, 0 for all. max_error: absolute; -1 where it is not finite."""

    checked: bool
    passed: bool
    rows: Whole
    max_error: Annotated[float, Meta(ge=-1, le=1e300)]
    tolerance: Amount
    tolerance_relative: Amount
    reason: Text


class Load(TypedDict, total=False):
    """What the machine did meanwhile, as fractions of the time of `threads`."""

    wall_s: Amount
    cpu_share: Share
    run_delay_share: Share
    process_run_delay_share: Share
    foreign_cores: Amount


StatedPrediction = Annotated[Mapping[str, Any], Keys(Prediction)]
StatedCorrectness = Annotated[Mapping[str, Any], Keys(Correctness)]
StatedLoad = Annotated[Mapping[str, Any], Keys(Load)]
