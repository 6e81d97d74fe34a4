"""A datasheet of your own to begin with: TOML with every key that most devices need, each with a comment."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..errors import Error
from .datasheet import UNSOURCED, read

EXAMPLE: Mapping[str, float] = {"bytes_per_s": 2e12, "bf16": 500e12, "fp32": 60e12}
TENSOR = frozenset({"tf32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4", "mxfp4"})


def template(name: str, rates: Mapping[str, float] | None = None, *, device: str = "cuda") -> str:
    """The text of a datasheet of `name`, valid as it is.

    rates: as of `Machine.from_peaks`: bytes_per_s, link_bytes_per_s, memory_bytes, and FLOP/s by dtype (None: an example's, to be
    replaced). device: "cuda", "rocm", "cpu", "tpu", "hpu". Raises Error for what no datasheet can hold.
    """
    given = dict(EXAMPLE if rates is None else rates)
    bandwidth = given.pop("bytes_per_s")
    memory, link, launch = (given.pop(key, None) for key in ("memory_bytes", "link_bytes_per_s", "launch_s"))
    if launch is not None:
        raise Error("a datasheet holds no launch latency: give it to predict (--launch), or measure it")
    stated = "replace this example" if rates is None else ""

    def number(value: float) -> str:
        shown = f"{value:.10g}"
        note = f', note = "{stated}"' if stated else ""
        return f'{{ value = {shown}, verified = false, source = "{UNSOURCED}"{note} }}'

    peaks = [
        f'  {{ dtype = "{dtype}", unit = "{"tensor" if device != "cpu" and dtype in TENSOR else "core"}", '
        f'accumulator = "{"int32" if dtype.startswith("int") else "fp64" if dtype == "fp64" else "fp32"}", '
        f'{number(rate)[2:-2]} }},'
        for dtype, rate in given.items()
    ]  # fmt: skip
    lines = [
        f"# {json.dumps(name, ensure_ascii=False)[1:-1]}: what its vendor states. --machine takes the path of this file; in",
        "# ~/.config/roofline/hardware, or a folder that ROOFLINE_HARDWARE_PATH names, it is known by its name.",
        "# A number is { value, verified, source }: verified = true once you have seen it at the source.",
        "",
        f"name = {json.dumps(name, ensure_ascii=False)}",
        f"vendor = {json.dumps(name.split()[0], ensure_ascii=False)}",
        f'device = "{device}"  # cuda, rocm, cpu, tpu or hpu',
        "aliases = []  # other names by which it is asked for",
        "",
        f"memory_bytes_per_s = {number(bandwidth)}  # of DRAM or HBM, decimal: 2e12 is 2 TB/s",
        f"{'' if memory else '# '}memory_bytes = {number(memory or 80e9)}  # what a model must fit into",
        f"{'' if link else '# '}link_bytes_per_s = {number(2 * (link or 450e9))}  # to other devices, both directions together",
        f"# l2_bytes = {number(50e6)}",
        f"# tdp_w = {number(700)}",
        "",
        "# FLOP/s of dense operands, a line for each dtype: unit core or tensor, accumulator the dtype that it sums in.",
        "dense_flops_per_s = [",
        *peaks,
        "]",
    ]
    text = "\n".join(lines) + "\n"
    read(text, id="template", where=name)  # faults are said here, not when the file is used
    return text
