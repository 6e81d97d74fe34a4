"""Measure what a machine can do, run transformer operators on it, and see how far each is from the limit and why.

The public names are imported on first use, so that `import roofline` costs next to nothing and the analytic half works
where the compiled part does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from .ceilings import measure_machine as measure_machine
    from .census import census_of as census_of
    from .cheat_sheets import cheat_sheet as cheat_sheet
    from .claims import Check as Check, Checks as Checks, check as check
    from .comparison import Comparison as Comparison, compare as compare
    from .crossovers import Crossing as Crossing, crossover as crossover
    from .errors import Error as Error, OutOfMemory as OutOfMemory, Unsupported as Unsupported
    from .machine import Ceiling as Ceiling, Machine as Machine
    from .measurement import (
        DeviceArray as DeviceArray,
        Policy as Policy,
        build_info as build_info,
        list_devices as list_devices,
        measure as measure,
        measure_callable as measure_callable,
        run as run,
    )
    from .model import Placement as Placement, Roofs as Roofs, place as place, ridge_table as ridge_table
    from .operators import *  # noqa: F403
    from .prediction import predict_many as predict_many
    from .questions import PredictionTable as PredictionTable, predict as predict
    from .results import Measurement as Measurement, Results as Results
    from .sweeps import sweep as sweep
    from .tiling import level_bytes as level_bytes
    from .transformer import TransformerConfig as TransformerConfig

_HOMES = {
    "ceilings": ("measure_machine",),
    "census": ("census_of",),
    "cheat_sheets": ("cheat_sheet",),
    "claims": ("Check", "Checks", "check"),
    "comparison": ("Comparison", "compare"),
    "crossovers": ("Crossing", "crossover"),
    "errors": ("Error", "OutOfMemory", "Unsupported"),
    "machine": ("Ceiling", "Machine"),
    "measurement": ("DeviceArray", "Policy", "build_info", "list_devices", "measure", "measure_callable", "run"),
    "model": ("Placement", "Roofs", "place", "ridge_table"),
    "operators": (
        "Adam", "AllGather", "AllReduce", "AllToAll", "Attention", "AttentionBackward", "BiasRelu", "Bmm", "CachedAttention",
        "Convert", "CoreToCore", "Counts", "Embedding", "Exp", "Ffn", "Fma", "ForkJoin", "Gelu", "GroupedMatmul", "HostCopy",
        "LayerNorm", "LmHead", "Matmul", "MixedIntensity", "MlaDecode", "MlaPrefill", "Mma", "PeerCopy", "PointerChase",
        "QuantizedMatmul", "ReduceScatter", "Relu", "ResidualRmsNorm", "RmsNorm", "Rope", "SiluMul", "Softmax", "Stream",
        "TopkSigmoid", "TopkSoftmax", "count", "growth",
    ),
    "prediction": ("predict_many",),
    "questions": ("PredictionTable", "predict"),
    "results": ("Measurement", "Results"),
    "sweeps": ("sweep",),
    "tiling": ("level_bytes",),
    "transformer": ("TransformerConfig",),
}  # fmt: skip
_MODULES = (
    "ceilings", "census", "cheat_sheets", "claims", "comparison", "errors", "hardware", "importers", "interactive", "machine",
    "measurement", "model", "operators", "plot", "prediction", "report", "results", "schemas", "sweeps", "tiling", "transformer",
    "units",
)  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME_OF), "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("roofline")
        except PackageNotFoundError:  # run from the source folder
            return "unpackaged"
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r:.80} has no attribute {name!r:.80}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
