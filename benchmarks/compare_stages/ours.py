"""Our side: a kernel of the package, its ceilings, and the judge of every result. Also a rival, as its variant `library`."""

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from roofline.dtypes import dtype as dtype_named, to_float64
from roofline.errors import Error, Unsupported
from roofline.measurement import libraries, open_device
from roofline.measurement.devices import Device
from roofline.measurement.probing import level_of, ready, roofs_of
from roofline.measurement.tensors import allocate_all, bind, check, require_kernels
from roofline.measurement.timing import from_roofs, roofs_seen
from roofline.operators import OPERATORS, Operator, Stream
from roofline.probes.bandwidth import STREAM
from roofline.probes.levels import last_cache, memory_level

from .serving import Refused, Side, wake

SEED = 1
SWEPT = 4  # times the last cache: after twice its size weights came 10 to 30 % faster than memory gives them
LEAST_SWEPT = 1 << 26  # where no cache is known
ROOF = {"warmup_min_s": 0.0, "warmup_max_s": 0.01, "batch_s": 5e-3, "min_samples": 5, "min_s": 0.03, "max_s": 0.06, "noise": 1.0,
        "bracket_s": 0.0, "tries": 1}  # fmt: skip
STORED = {"int4": "int8"}  # dtypes whose numbers are handed on one to an element


def beyond(ours: np.ndarray, theirs: np.ndarray, tolerance: tuple[float, float]) -> float:
    """The largest difference over what is allowed, absolute + relative of ours: 1 is the limit. Infinite for NaN and infinities."""
    if not np.isfinite(theirs).all():
        return float("inf")
    allowed = tolerance[0] + tolerance[1] * np.abs(ours)
    return float(np.max(np.abs(ours - theirs) / np.maximum(allowed, np.finfo(np.float64).tiny), initial=0.0))


class Ours(Side):
    """variant: "" for the operator's default on this device."""

    def __init__(self, threads: int, variant: str = "") -> None:
        self.device: Device = open_device("cpu", threads)
        self.asked = variant
        self.problem: Operator | None = None
        self.bound: Any = None
        self.tensors: dict[str, Any] = {}
        size = max(SWEPT * last_cache(self.device.facts), LEAST_SWEPT)
        self.swept = ready(self.device, STREAM, Stream(access="write", elements=size // 4), "plain")
        self.sweep_bytes = size

    def about(self) -> dict[str, Any]:
        facts = self.device.facts
        kept = ("cpu_name", "usable_cores", "isas", "l1_bytes", "l2_bytes", "l3_bytes", "governor", "huge_pages", "virtual_machine")
        found = {lib["name"]: lib["version"] for lib in libraries() if lib["version"] and not lib["missing"]}
        return {
            **{key: facts[key] for key in kept if key in facts},
            "threads": self.device.threads,
            "sweep_bytes": self.sweep_bytes,
            "versions": {name: version for name, version in found.items() if name in ("onednn", "openblas")},
        }

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        self.problem, self.bound, self.tensors = None, None, {}
        try:
            problem = OPERATORS[request["operator"]].make(**request["problem"])
            require_kernels(problem)
            if self.asked and self.asked not in problem.variants:
                raise Refused(f"{problem.name} has no variant {self.asked}")
            if problem.footprint_bytes() > self.device.core.available_bytes() // 4:  # each side holds the operands
                raise Refused("its tensors take more than a quarter of the memory")
            self.tensors = allocate_all(self.device, problem, SEED)
            variant, self.bound = self.bind(problem)
        except Error as error:
            raise Refused(str(error)) from error
        if self.asked and self.asked == self.device.default_variant(problem):
            raise Refused(f"{self.asked} is what runs as ours")
        self.problem = problem
        plan = self.bound.plan
        facts: dict[str, Any] = {"variant": variant, "implementation": plan.get("implementation", variant)}
        if self.asked:
            return facts
        self.bound.run()
        correctness = check(problem, self.tensors, SEED)
        if not correctness["passed"]:
            raise Error(f"{variant} computes a wrong result: {correctness['reason']}")
        for spec in problem.inputs():
            raw = self.tensors[spec.name].raw()
            given = to_float64(raw, spec.dtype).astype(STORED[spec.dtype]) if spec.dtype in STORED else raw
            np.save(Path(request["folder"]) / f"{spec.name}.npy", given)
        return {
            **facts,
            "correctness": {key: correctness[key] for key in ("rows", "max_error", "tolerance", "tolerance_relative")},
            "flops": problem.total_flops(),
            "bytes": problem.compulsory_bytes(),
            "level": level_of(self.device, problem.footprint_bytes(), "cold" if request["cold"] else "warm"),
            "dtypes": {spec.name: spec.dtype for spec in problem.tensors()},
            "outputs": [spec.name for spec in problem.outputs()],
        }

    def bind(self, problem: Operator) -> tuple[str, Any]:
        """The variant asked for; else the default one, where this CPU cannot run it the last it can. Raises Unsupported."""
        default = self.device.default_variant(problem)
        others = [name for name in list(problem.variants)[::-1] if name != default]
        reasons = []
        for variant in [self.asked] if self.asked else [default, *others]:
            if reason := self.device.missing(problem.name, variant, getattr(problem, "dtype", "fp32")):
                reasons.append(reason)
                continue
            try:
                return variant, bind(self.device, problem, variant, self.tensors)
            except Unsupported as error:
                reasons.append(str(error))
        raise Unsupported(reasons[0])

    def call(self) -> None:
        self.bound.run()

    def sweep(self) -> None:
        self.swept.sets[0].run()

    def result(self) -> Any:
        spec = self._out()
        return self.tensors[spec.name].raw(), spec.dtype

    def _out(self) -> Any:
        assert self.problem is not None
        return self.problem.outputs()[0]

    def other(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "compare":
            return self.compared(request["file"], request["dtype"])
        if request["do"] == "roofs":
            return self.roofs(request["level"])
        return super().other(request)

    def compared(self, file: str, dtype: str) -> dict[str, Any]:
        """Their result against ours, within the operator's tolerance and the rounding of their result's dtype."""
        assert self.problem is not None
        spec = self._out()
        ours = to_float64(self.tensors[spec.name].raw(), spec.dtype)
        theirs = to_float64(np.load(file), dtype)
        if theirs.shape != ours.shape:
            return {"beyond": -1.0, "reason": f"shape {list(theirs.shape)}, expected {list(ours.shape)}"}
        absolute, relative = self.problem.tolerance()
        rounding = dtype_named(dtype).eps
        relative += rounding if rounding > dtype_named(spec.dtype).eps else 0.0
        worst = beyond(ours, theirs, (absolute, relative))
        reason = "" if worst <= 1 else f"{worst:.3g} times the tolerance from ours, {absolute:.3g} + {relative:.3g} × its size"
        return {"beyond": worst if np.isfinite(worst) else -1.0, "reason": reason}

    def roofs(self, level: str) -> dict[str, Any]:
        """Rates of the roofs of the problem now, and the time they allow."""
        problem, bound = self.problem, self.bound
        assert problem is not None and bound is not None
        probes = roofs_of(
            self.device, mix=problem.mix, arithmetic=bound.plan.get("arithmetic") or problem.compute()[0], level=level,
            flops=problem.total_flops(), machine=None, products=bool(problem.products()),
        )  # fmt: skip
        if level == memory_level(self.device.facts):
            wake(self)
        seen = {p.kind: p.rates(self.device.core.sample(p.sets, flush_each=p.flush, policy=ROOF)["samples_s"]) for p in probes}
        rates = {p.kind: {"label": p.label, "median": statistics.median(seen[p.kind]), "samples": seen[p.kind]} for p in probes}
        allowed = from_roofs(problem.total_flops(), problem.compulsory_bytes())(roofs_seen(seen, level))
        return {"time_s": allowed["roof_s"], "bound": allowed["bound"], "rates": rates}
