"""Serving requests: from one prefill and the decode steps after it, what a user waits for and what a device serves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._repr import Parts, Row, printable, values_of
from ..counts import summed
from ..errors import Error
from ..machine import Machine
from ..prediction import fmt_roofs
from ..reading import SCHEMA_VERSION
from ..units import fmt_bytes, fmt_number, fmt_percent, fmt_shares, fmt_si, within
from .config import TransformerConfig
from .many import predict_steps
from .memory import Memory
from .phases import Decode, Prefill, Serving
from .predicting import memory_on, options_of, predict_model
from .pricing import Options
from .records import OfModel

MOST_STEPS = 256  # decode steps that are priced of one answer: a step's time hardly bends over the context length
PRICES = (0.0, 1e9)
USUALLY = ", realistic"
DEFINITIONS = {
    "TTFT": "time to first token: the prefill of the request's own prompt, with nothing before it in a queue",
    "TPOT": "time per output token after the first, with the prompts of other requests that are prefilled meanwhile",
    "request": "from the arrival of a request to its last token",
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServingPrediction(OfModel):
    """What `concurrency` requests at a time take. Times in seconds, rates of all of them together.

    In the steady state each request that ends makes place for the next, whose prompt is prefilled by itself while the others wait.
    So while a request is in flight, as many prompts are prefilled as there are requests, and it takes part in output - 1 decode
    steps of all of them, at contexts from its prompt's length to that and the answer's: time_s is the sum, the latency of a request
    (Little's law: requests in flight over requests/s).

    Attributes:
        prefill_s: of one prompt.
        decode_s: of its decode steps.
        mfu: over that time, as of `ModelPrediction`.
        mbu: likewise.
        price_per_hour: of one device.
        realistic: the same where software reaches the usual shares, see `predicting.realistic`; None where that is not asked or is
            the same.
    """

    config: TransformerConfig
    phase: Serving
    machine: str
    options: Options
    prefill_s: float
    decode_s: float
    flops: int
    bytes: int
    profile: Mapping[str, float]
    mfu: float
    mbu: float
    memory: Memory
    notes: tuple[str, ...]
    counted: tuple[str, ...]
    price_per_hour: float | None = None
    realistic: ServingPrediction | None = None

    @property
    def time_s(self) -> float:  # type: ignore[override]
        return self.phase.batch * self.prefill_s + self.decode_s

    @property
    def devices(self) -> int:
        return self.options.tp * self.options.ep

    @property
    def ttft_s(self) -> float:
        return self.prefill_s * self.options.ep  # every rank prefills a prompt of its own at the same time

    @property
    def tpot_s(self) -> float | None:
        """None where the answer is one token, which the prefill makes."""
        return (self.time_s - self.ttft_s) / (self.phase.output - 1) if self.phase.output > 1 else None

    @property
    def requests_per_s(self) -> float:
        return self.phase.batch / self.time_s

    @property
    def output_tokens_per_s(self) -> float:
        return self.requests_per_s * self.phase.output

    @property
    def input_tokens_per_s(self) -> float:
        return self.requests_per_s * self.phase.seq_q

    def _cost(self, tokens_per_s: float) -> float | None:
        return None if self.price_per_hour is None else self.price_per_hour * self.devices / 3600 / tokens_per_s * 1e6

    @property
    def cost_per_million_output_tokens(self) -> float | None:
        """In the currency of price_per_hour; the prompts' part is in it."""
        return self._cost(self.output_tokens_per_s)

    @property
    def cost_per_million_tokens(self) -> float | None:
        """The cost of a million tokens, prompts and answers alike."""
        return self._cost(self.output_tokens_per_s + self.input_tokens_per_s)

    def __repr__(self) -> str:
        said = f"request {fmt_si(self.time_s, 's', 4)}, {fmt_si(self.output_tokens_per_s, 'tok/s')}"
        return printable(f"ServingPrediction({self.config.name!r}, {self.phase}, {self.machine}: {said})")

    def quantities(self) -> dict[str, str]:
        costs = {"cost of 1M output tokens": self.cost_per_million_output_tokens, "cost of 1M tokens": self.cost_per_million_tokens}
        holds = "" if self.memory.capacity_bytes is None else f" of {fmt_bytes(self.memory.capacity_bytes)}"
        return {
            "TTFT": fmt_si(self.ttft_s, "s", 4),
            **({} if self.tpot_s is None else {"TPOT": fmt_si(self.tpot_s, "s", 4)}),
            "request": fmt_si(self.time_s, "s", 4),
            "requests": f"{fmt_number(self.requests_per_s)}/s",
            "output tokens": fmt_si(self.output_tokens_per_s, "tok/s"),
            "output tokens, per request": "" if self.tpot_s is None else fmt_si(1 / self.tpot_s, "tok/s"),
            "input tokens": fmt_si(self.input_tokens_per_s, "tok/s"),
            "MFU": fmt_percent(self.mfu),
            "MBU": fmt_percent(self.mbu),
            **{name: f"{cost:.4g}" for name, cost in costs.items() if cost is not None},
            **(
                {}
                if self.realistic is None
                else {
                    f"request{USUALLY}": fmt_si(self.realistic.time_s, "s"),
                    f"output tokens{USUALLY}": fmt_si(self.realistic.output_tokens_per_s, "tok/s"),
                }
            ),
            "time": fmt_shares({"prefill": self.phase.batch * self.prefill_s, "decode": self.decode_s}, self.time_s),
            "bound by": fmt_roofs(self.profile, self.time_s),
            "memory": f"{fmt_bytes(self.memory.total_bytes)}{holds}",
            "largest concurrency": "" if self.memory.largest_batch is None else str(self.memory.largest_batch),
        }

    def table(self) -> tuple[Row, list[Row]]:
        """Quantities, at best and at the usual efficiency of software."""
        own = {name: value for name, value in self.quantities().items() if value and not name.endswith(USUALLY)}
        if self.realistic is None:
            return ("", "value"), list(own.items())
        usual = self.realistic.quantities()
        return ("", "at best", "realistic"), [(name, value, usual[name]) for name, value in own.items()]

    def record(self) -> dict[str, Any]:
        return {
            **values_of(self, "machine what"), **self.phase.to_dict(), **values_of(self.options, "tp ep"),
            **values_of(self, "ttft_s tpot_s"), "request_s": self.time_s,
            **values_of(self, "requests_per_s output_tokens_per_s input_tokens_per_s cost_per_million_output_tokens"),
            **values_of(self, "cost_per_million_tokens mfu mbu bound"), **self.memory.record(),
        }  # fmt: skip

    def remarks(self) -> list[str]:
        """The definitions of its quantities, the contents counted, and the assumptions."""
        assumed = "Assumed: requests in flight never run short, and prompts are prefilled one at a time while decoding waits."
        return [
            *(f"{name}: {text}." for name, text in DEFINITIONS.items()),
            assumed,
            *self.counted,
            *(f"note: {n}" for n in self.notes),
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON form, see `prediction.schema.json`."""
        return {
            "schema_version": SCHEMA_VERSION, "kind": "serving prediction", **values_of(self, "config options"), **self.record(),
            **values_of(self, "prefill_s decode_s price_per_hour flops bytes memory counted notes"),
            "realistic": None if self.realistic is None else self.realistic.record(),
            "profile_s": dict(self.profile), "definitions": dict(DEFINITIONS),
        }  # fmt: skip

    def _table(self) -> Parts:
        return self.title, *self.table(), self.remarks()


def predict_serving(
    machine: Machine,
    config: TransformerConfig,
    phase: Serving,
    *,
    price_per_hour: float | None = None,
    must_fit: bool = True,
    **how: Any,
) -> ServingPrediction:
    """What requests take that are served together; see `roofline.predict`, whose options `how` has."""
    if price_per_hour is not None:
        within("price_per_hour", "a price", price_per_hour, PRICES)
    options = options_of(machine, how)
    ranks = options.ep
    if phase.batch % ranks:
        raise Error(f"serving: ep {ranks} shares the requests, so their number must be a multiple of it, got {phase.batch}")
    prefill = predict_model(machine, config, Prefill(batch=ranks, seq_q=phase.seq_q), must_fit=False, **how)
    most = Decode(batch=phase.batch, seq_kv=phase.seq_q + phase.output)
    memory = memory_on(config, most, machine, options, phase if must_fit else None)
    prompts = phase.batch // ranks
    flops, moved = float(prompts * prefill.flops), float(prompts * prefill.bytes)
    profile = {roof: prompts * seconds for roof, seconds in prefill.profile.items()}
    at_peak_s = [prompts * prefill.time_s * share for share in (prefill.mfu, prefill.mbu)]
    steps, decode_s, assumed = phase.output - 1, 0.0, dict.fromkeys(prefill.notes)
    if steps:
        keys = phase.seq_q + np.unique(np.linspace(1, steps, min(steps, MOST_STEPS)).round().astype(np.int64))
        each = predict_steps(machine, config, Decode.many(batch=phase.batch, seq_kv=keys), **how)
        decode_s = steps * float(np.mean(each.time_s))
        flops += steps * float(np.mean(each.flops))
        moved += steps * float(np.mean(each.bytes))
        profile = summed([*profile.items(), *((roof, steps * float(np.mean(s))) for roof, s in each.profile.items())])
        assumed |= dict.fromkeys(map(str, each.assumed))
        # Work grows evenly with the context: the step in the middle stands for all.
        middle = predict_model(machine, config, Decode(batch=phase.batch, seq_kv=int(np.median(keys))), must_fit=False, **how)
        at_peak_s = [a + steps * middle.time_s * share for a, share in zip(at_peak_s, (middle.mfu, middle.mbu), strict=True)]
    mfu, mbu = (seconds / (prompts * prefill.time_s + decode_s) for seconds in at_peak_s)
    return ServingPrediction(
        config=config, phase=phase, machine=machine.name, options=options, prefill_s=prefill.time_s / ranks, decode_s=decode_s,
        flops=math.ceil(flops), bytes=math.ceil(moved), profile=dict(sorted(profile.items(), key=lambda item: -item[1])),
        mfu=mfu, mbu=mbu, memory=memory, notes=tuple(assumed), counted=prefill.counted, price_per_hour=price_per_hour,
    )  # fmt: skip
