"""Prints where a file of NVIDIA's PyPI packages lies ("bin/nvcc", "include/cublasLt.h"), or an empty line.

pip's isolated build spreads packages over two prefixes, so both the installed distributions and sys.path are searched.
Usage: python cuda_locate.py [--major 13] FILE...
"""

import argparse
import sys
from importlib.metadata import distributions
from pathlib import Path


def roots() -> list[Path]:
    """Directories that hold the packages: site-packages/nvidia/cu<major>, newest major first."""
    parents = [
        Path(str(d.locate_file("nvidia"))) for d in distributions() if (d.metadata["Name"] or "").lower().startswith("nvidia-")
    ]
    parents += [Path(entry or ".") / "nvidia" for entry in sys.path]
    found = {child.resolve() for parent in parents if parent.is_dir() for child in parent.glob("cu[0-9]*")}
    return sorted(found, key=lambda path: (-int(path.name[2:]) if path.name[2:].isdigit() else 0, str(path)))


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--major", help="only packages of this CUDA major version")
parser.add_argument("files", nargs="+")
options = parser.parse_args()
directories = [root for root in roots() if options.major in (None, root.name[2:])]
for file in options.files:
    print(next((str(root / file) for root in directories if (root / file).is_file()), ""))
