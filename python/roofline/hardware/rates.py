"""What one multiprocessor of a GPU does in a cycle, by compute capability: dense operations, a multiply-add being two.

With the number of multiprocessors and a clock these are peaks; a measured rate over both must not be above them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SHEETS = "the peaks of this folder's datasheets over multiprocessors and clock"
GUIDE = "NVIDIA, CUDA C++ Programming Guide, arithmetic instructions (read second-hand)"
KLOCKWOOD = "https://glennklockwood.com/garden/processors/h100"
SEMIANALYSIS = "https://github.com/SemiAnalysisAI/microbench-blackwell, measured"
ESTIMATE = "an estimate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Operations per cycle and multiprocessor, and who says so."""

    flops_per_cycle: int
    source: str

    @property
    def estimated(self) -> bool:
        return self.source == ESTIMATE


def _stated(source: str, **rates: int) -> dict[str, Rate]:
    """Keys: dtype, unit and accumulator with underscores, as in `Rate` tables below: fp16_tensor_fp32."""
    return {key.replace("_", " "): Rate(flops_per_cycle=rate, source=source) for key, rate in rates.items()}


# "dtype unit accumulator" by compute capability. GeForce boards have entries of their own: their tensor units add up products in
# 32 bits at half the rate.
_GEFORCE_8 = (
    _stated(GUIDE, fp64_core_fp64=4, fp32_core_fp32=256, fp16_core_fp16=256)
    | _stated(SHEETS, tf32_tensor_fp32=256, fp16_tensor_fp32=512, bf16_tensor_fp32=512, fp16_tensor_fp16=1024)
    | _stated(SHEETS, int8_tensor_int32=2048)
)
_GEFORCE_INT4 = _stated(GUIDE, int4_tensor_int32=4096)
_GEFORCE_FP8 = _stated(SHEETS, fp8_tensor_fp32=1024, fp8_tensor_fp16=2048)
RATES: Mapping[str, Mapping[str, Rate]] = {
    "7.0": {
        **_stated(GUIDE, fp64_core_fp64=64, fp32_core_fp32=128),
        **_stated(SHEETS, fp16_tensor_fp32=1024),
        **_stated(ESTIMATE, fp16_core_fp16=256),
    },
    "8.0": {
        **_stated(GUIDE, fp64_core_fp64=64, fp32_core_fp32=128, fp16_core_fp16=512, bf16_core_bf16=256),
        **_stated(SHEETS, fp64_tensor_fp64=128, tf32_tensor_fp32=1024, fp16_tensor_fp32=2048, bf16_tensor_fp32=2048),
        **_stated(SHEETS, int8_tensor_int32=4096, int4_tensor_int32=8192),
        **_stated(ESTIMATE, fp16_tensor_fp16=2048),
    },
    "8.6": {
        **_stated(GUIDE, fp64_core_fp64=4, fp32_core_fp32=256, fp16_core_fp16=256),
        **_stated(SHEETS, tf32_tensor_fp32=512, fp16_tensor_fp32=1024, bf16_tensor_fp32=1024, int8_tensor_int32=2048),
        **_stated(GUIDE, fp16_tensor_fp16=1024, int4_tensor_int32=4096),
    },
    "8.6 GeForce": _GEFORCE_8 | _GEFORCE_INT4,
    "8.9": {
        **_stated(GUIDE, fp64_core_fp64=4, fp32_core_fp32=256, fp16_core_fp16=256),
        **_stated(SHEETS, tf32_tensor_fp32=512, fp16_tensor_fp32=1024, bf16_tensor_fp32=1024, int8_tensor_int32=2048),
        **_stated(SHEETS, fp8_tensor_fp32=2048),
        **_stated(GUIDE, fp16_tensor_fp16=1024, fp8_tensor_fp16=2048, int4_tensor_int32=4096),
    },
    "8.9 GeForce": _GEFORCE_8 | _GEFORCE_INT4 | _GEFORCE_FP8,
    "9.0": {
        **_stated(GUIDE, fp64_core_fp64=128, fp32_core_fp32=256),
        **_stated(KLOCKWOOD, fp16_core_fp16=512, bf16_core_bf16=512),
        **_stated(SHEETS, fp64_tensor_fp64=256, tf32_tensor_fp32=2048, fp16_tensor_fp32=4096, bf16_tensor_fp32=4096),
        **_stated(SHEETS, fp8_tensor_fp32=8192, int8_tensor_int32=8192),
        **_stated(ESTIMATE, fp16_tensor_fp16=4096, fp8_tensor_fp16=8192),
    },
    "10.0": {
        **_stated(GUIDE, fp64_core_fp64=128, fp32_core_fp32=256),
        **_stated(SHEETS, fp64_tensor_fp64=128, tf32_tensor_fp32=4096, fp16_tensor_fp32=8192),
        **_stated(SEMIANALYSIS, bf16_tensor_fp32=8192, fp8_tensor_fp32=16384, int8_tensor_int32=16384, fp4_tensor_fp32=32768),
        **_stated(ESTIMATE, fp16_core_fp16=256),
    },
    "10.3": {
        **_stated(ESTIMATE, fp64_core_fp64=4, fp32_core_fp32=256, tf32_tensor_fp32=4096, fp16_tensor_fp32=8192),
        **_stated(ESTIMATE, bf16_tensor_fp32=8192, fp8_tensor_fp32=16384, int8_tensor_int32=512, nvfp4_tensor_fp32=49152),
    },
    "12.0": {
        **_stated(GUIDE, fp64_core_fp64=4, fp32_core_fp32=256, fp16_core_fp16=256, int8_tensor_int32=2048),
        **_stated(ESTIMATE, tf32_tensor_fp32=512, fp16_tensor_fp32=1024, bf16_tensor_fp32=1024, fp16_tensor_fp16=1024),
        **_stated(ESTIMATE, fp8_tensor_fp32=2048, fp8_tensor_fp16=2048),
    },
    "12.0 GeForce": _GEFORCE_8 | _GEFORCE_FP8 | _stated(SHEETS, nvfp4_tensor_fp32=4096),
}


def unit_rates(capability: str, gpu_name: str = "") -> Mapping[str, Rate]:
    """The rates of a GPU by "dtype unit accumulator"; empty where nothing is known. fp8, fp4: any of that width."""
    geforce = RATES.get(f"{capability} GeForce") if "GeForce" in gpu_name else None
    return geforce or RATES.get(capability, {})


def unit_rate(capability: str, gpu_name: str, dtype: str, unit: str, accumulator: str = "") -> Rate | None:
    """The rate of a dtype on "core" or "tensor" units, or None. accumulator: of the sums; empty for the fastest."""
    names = (dtype, "fp8" if dtype.startswith("fp8") else "fp4" if dtype.endswith("fp4") else dtype)
    rates = unit_rates(capability, gpu_name)
    known = next((name for name in names if any(key.startswith(f"{name} {unit} ") for key in rates)), dtype)
    found = [rate for key, rate in rates.items() if key.startswith(f"{known} {unit} ") and key.endswith(f" {accumulator}".rstrip())]
    return max(found, key=lambda rate: rate.flops_per_cycle, default=None)
