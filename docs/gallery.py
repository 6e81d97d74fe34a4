#!/usr/bin/env python3
"""Draws docs/images/plot_*.png, each picture once from its example.

Usage: python docs/gallery.py [NAME ...]
Machines are datasheets and the one that benchmarks/results/readme names, with its results. Nothing is measured, and the compiled
module is not needed.
"""

import io
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
RECORDED = ROOT / "benchmarks" / "results"
DPI, COLOURS = 80, 128  # of the pictures: a page of them is to be small

sys.path.insert(0, str(ROOT / "python"))

import matplotlib  # noqa: E402
from generate import MEASURED  # noqa: E402

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402
from PIL import Image  # noqa: E402

from roofline import Attention, Machine, plot, predict  # noqa: E402
from roofline.results import Results  # noqa: E402
from roofline.transformer import Decode, preset  # noqa: E402


def named() -> dict[str, Any]:
    """What the examples name."""
    folder = RECORDED / (RECORDED / "readme").read_text().strip()
    sheets = {"a100": "A100 SXM 80GB", "h100": "H100 SXM", "gb200": "GB200"}
    return {
        "plot": plot, "predict": predict, "preset": preset, "Attention": Attention, "Decode": Decode,
        "llama": preset("Llama-3-8B"), "deepseek": preset("DeepSeek-R1-NVFP4"),
        **{name: Machine.from_datasheet(sheet) for name, sheet in sheets.items()},
        "machine": Machine.load(folder), "results": Results.load(folder / "results.jsonl"),
        "curves": Machine.load(folder / "curves.json"), "step": Results.load(folder / "step.jsonl"),
    }  # fmt: skip


def draw(example: str, name: str, known: dict[str, Any]) -> None:
    ax = eval(example, known)
    png = io.BytesIO()
    ax.figure.savefig(png, format="png", dpi=DPI)
    path = IMAGES / f"plot_{name}.png"
    Image.open(png).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    pyplot.close(ax.figure)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size >> 10} KiB")


def main() -> None:
    known = named()
    for name in [name.replace("-", "_") for name in sys.argv[1:]] or list(plot.PICTURES):
        draw(plot.PICTURES[name].example, name, known)
        if name in MEASURED:
            draw(MEASURED[name], f"{name}_measured", known)


if __name__ == "__main__":
    main()
