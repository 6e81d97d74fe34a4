"""The roofline plot: what is on the Axes, and that no two labels overlap."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason="the plot needs matplotlib")

import matplotlib as mpl

mpl.use("Agg")

from roofline.machine import Ceiling, Machine
from roofline.results import Bracket, Measurement

SPREAD = (0.995, 1.0, 1.0, 1.004, 1.002, 0.998, 1.001, 0.999, 1.003, 1.0)

ELEMENTS = {"L1": 1 << 12, "L2": 1 << 17, "L3": 1 << 22, "DRAM": 1 << 26}  # of the probes


def around(value: float) -> tuple[float, ...]:
    return tuple(value * s for s in SPREAD)


def bandwidth(level: str, access: str, value: float, variant: str = "plain", **more: object) -> Ceiling:
    problem = {"operator": "stream", "access": access, "elements": ELEMENTS[level], "dtype": "fp32"}
    return Ceiling(
        kind="bandwidth", level=level, access=access, variant=variant, threads=2, samples=around(value), problem=problem, **more
    )


def compute(dtype: str, isa: str, value: float, **more: object) -> Ceiling:
    return Ceiling(
        kind="compute", dtype=dtype, accumulator=dtype, isa=isa, threads=2, samples=around(value), clock_hz=3.44e9,
        problem={"operator": "fma", "dtype": dtype}, **more,
    )  # fmt: skip


def zen() -> Machine:
    return Machine(
        name="AMD EPYC 9R14",
        device="cpu",
        created_utc="2026-11-20T10:15:00Z",
        facts={"threads": 2, "l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20},
        ceilings=(
            bandwidth("L1", "read", 880e9),
            bandwidth("L2", "read", 430e9),
            bandwidth("L3", "read", 200e9),
            bandwidth("DRAM", "read", 38e9),
            bandwidth("DRAM", "copy", 36e9),
            bandwidth("DRAM", "copy", 50e9, "non_temporal"),
            compute("fp32", "avx2", 220e9),
            compute("fp64", "avx2", 110e9),
            compute("fp32", "scalar", 14e9),
            Ceiling(kind="latency", threads=2, samples=around(3.4e-6), problem={"operator": "fork_join"}),
        ),
    )


def point(
    operator: str,
    variant: str,
    flops: int,
    moved: int,
    share: float,
    *,
    roof: float = 0.0,
    access: str = "read",
    dtype: str = "fp32",
    status: str = "ok",
    **problem: object,
) -> Measurement:
    """A measurement that reaches `share` of its limiting roof (of the machine's own value unless `roof` is given)."""
    peak = {"fp32": 220e9, "fp64": 110e9}.get(dtype, 220e9)
    memory = {"read": 38e9, "copy": 50e9}[access]
    if flops / peak > moved / memory:
        rate = roof or peak
        bracket = Bracket(label=f"{dtype} avx2", kind="compute", before_samples=(rate,), after_samples=(rate,))
        time_s = flops / rate / share
    else:
        rate = roof or memory
        source = {"operator": "stream", "access": access, "elements": ELEMENTS["DRAM"], "dtype": "fp32"}
        label = f"DRAM {access}"
        variant_ = "non_temporal" if access == "copy" else "plain"
        bracket = Bracket(
            label=label,
            kind="bandwidth",
            level="DRAM",
            problem=source,
            variant=variant_,
            before_samples=(rate,),
            after_samples=(rate,),
        )
        time_s = moved / rate / share
    return Measurement(
        operator=operator,
        problem={**problem, "dtype": dtype},
        variant=variant,
        device="cpu",
        threads=2,
        cache_state="cold",
        status=status,
        samples_s=around(time_s),
        flops={"all": flops},
        bytes={"compulsory": moved},
        level="DRAM",
        brackets=(bracket,),
    )


def decode(batch: int, seq: int, share: float, **more: object) -> Measurement:
    heads, dim = 8, 64
    flops, moved = 4 * batch * heads * seq * dim + 5 * batch * heads * seq, 2 * batch * heads * seq * dim * 4
    return point("attention", "split_kv", flops, moved, share, batch=batch, seq_q=1, seq_kv=seq, **more)


def prefill(seq: int, share: float, variant: str = "tiled", extra: int = 0, **more: object) -> Measurement:
    heads, dim = 8, 64
    moved = 4 * heads * seq * dim * 4 + extra * heads * seq * seq * 4
    return point("attention", variant, 4 * heads * seq * seq * dim, moved, share, batch=1, seq_q=seq, seq_kv=seq, **more)


def matmul(rows: int, share: float, **more: object) -> Measurement:
    size = 4 if more.get("dtype", "fp32") == "fp32" else 8
    return point("matmul", "library", 2 * rows * 4096 * 4096, size * (2 * rows * 4096 + 4096 * 4096), share, rows=rows, **more)


def softmax(rows: int, share: float, **more: object) -> Measurement:
    return point("softmax", "tiled", 4 * rows * 4096, 2 * rows * 4096 * 4, share, access="copy", rows=rows, columns=4096, **more)


def few() -> list[Measurement]:
    return [decode(8, 4096, 0.94), prefill(2048, 0.61), prefill(2048, 0.38, "naive", 4), matmul(512, 0.88), softmax(8192, 0.81)]


def twenty() -> list[Measurement]:
    return [
        *few(),
        *(decode(batch, 8192, share) for batch, share in ((1, 0.72), (4, 0.9), (16, 0.96), (64, 0.97))),
        *(prefill(seq, share) for seq, share in ((256, 0.41), (512, 0.5), (1024, 0.57), (4096, 0.63))),
        matmul(1, 0.95),
        matmul(8, 0.9),
        matmul(64, 0.74),
        matmul(512, 0.9, dtype="fp64"),
        decode(2, 1024, 1.31, status="implausible"),
        softmax(64, 0.47),
        prefill(1024, 0.33, "naive", 4, roof=29e9),
    ]


def thirty() -> list[Measurement]:
    layer = [
        point("rms_norm", "tiled", 4 * n * 2048, 2 * n * 2048 * 4, 0.7 + n / 2**16, access="copy", rows=n, columns=2048)
        for n in (256, 1024, 4096, 8192)
    ]
    mlp = [
        point("ffn", "library", 6 * n * 2048 * 8192, 4 * 3 * 2048 * 8192 + 8 * n * 2048, 0.8, rows=n, d_model=2048)
        for n in (1, 4, 16, 64, 128, 256)
    ]
    return [*twenty(), *layer, *mlp]
