"""A side of benchmarks/compare_cpu without a library, for its tests: rival.py HOW LOG. HOW: what it does with which request."""

import os
import sys
import time
from typing import Any

import numpy as np
from compare_stages import serving
from compare_stages.serving import Refused, Side, serve

how, log = sys.argv[1], sys.argv[2]


def noted(what: str) -> None:
    with open(log, "a") as file:
        file.write(what + "\n")


class Fake(Side):
    def about(self) -> dict[str, Any]:
        if how == "absent":
            raise Refused("not installed")
        return {"versions": {"fake": "1"}, "threads": 2}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        if how == "refuses":
            raise Refused("no such dtype")
        if how == "raises":
            raise RuntimeError("bad\nsecond line of /usr/lib/python3/thing.py")
        self.x = np.load(request["folder"] + "/x.npy")
        return {"variant": "plain", "implementation": "fake kernel"}

    def call(self) -> None:
        noted(how)
        time.sleep({"ours": 0.001, "slow": 0.05}.get(how, 0.002))
        self.y = self.x * 2
        if how == "prints":
            print("libraries print")

    def sweep(self) -> None:
        noted(how + " sweeps")

    def result(self) -> tuple[np.ndarray, str]:
        return (self.y + 1 if how == "wrong" else self.y), "fp32"


class Ours(Fake):
    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        np.save(request["folder"] + "/x.npy", np.ones(4, np.float32))
        facts = super().prepare(request)
        return {**facts, "level": "DRAM", "dtypes": {"x": "fp32", "y": "fp32"}, "outputs": ["y"], "flops": 4, "bytes": 32}

    def other(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "roofs":
            return {"time_s": 0.0009, "bound": "DRAM", "rates": {}}
        off = float(np.abs(np.load(request["file"]) - self.y).max())
        return {"beyond": off, "reason": f"{off} off" if off else ""}


def ends(*given: Any) -> list[float]:
    if how == "crashes":
        os._exit(7)
    time.sleep(600)
    return []


if how in ("crashes", "hangs"):
    serving.sampled = ends
serve(Ours if how == "ours" else Fake)
