#!/usr/bin/env python3
"""Writes the generated parts of README.md: what has kernels where, from the operators' own declarations.

Usage: python docs/generate.py [--check]
With --check nothing is written. Needs no compiled module.
Exit codes: 0 up to date (or written), 1 stale with --check, 2 a marker is missing.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BACKENDS = {"cpu": "CPU", "cuda": "CUDA"}  # as declared, as shown

sys.path.insert(0, str(ROOT / "python"))

from roofline.operators import OPERATORS  # noqa: E402


def operators_table() -> str:
    """One row per operator and variant, slowest variant first; the dtypes with a kernel under each kind of device."""
    rows = [["operator", "computes", "variant", *BACKENDS.values()], ["---"] * (3 + len(BACKENDS))]
    for operator in OPERATORS.values():
        name, summary = f"`{operator.name}`", operator.summary
        for variant, declared in operator.variants.items():
            dtypes = [", ".join(declared.dtypes.get(backend, ())) or "–" for backend in BACKENDS]
            rows.append([name, summary, f"`{variant}`", *dtypes])
            name = summary = ""
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def cuda_kernels() -> str:
    """Every CUDA kernel in one list."""
    found = [
        f"`{operator.name}` {variant} ({', '.join(declared.dtypes['cuda'])})"
        for operator in OPERATORS.values()
        for variant, declared in operator.variants.items()
        if "cuda" in declared.dtypes
    ]
    return "\n".join(f"- {name}" for name in found)


def cost_only() -> str:
    """The operators without kernels, as lines of text."""
    return textwrap.fill(", ".join(f"`{name}`" for name, operator in OPERATORS.items() if not operator.variants) + ".", width=132)


PARTS = {"operators": operators_table, "cuda-kernels": cuda_kernels, "cost-only": cost_only}


def generated(text: str) -> str:
    """The README's text with every generated part as it should be. Raises ValueError naming a marker that is missing."""
    for name, make in PARTS.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"README.md has no {begin} … {end}")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated parts of README.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where README.md is stale")
    check = parser.parse_args().check
    text = README.read_text(encoding="utf-8")
    try:
        wanted = generated(text)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if check and text != wanted:
        print("README.md is stale: run `python docs/generate.py`", file=sys.stderr)
        return 1
    if text != wanted:
        README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
