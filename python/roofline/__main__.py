"""`roofline` and `python -m roofline`: the command line."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command of `sys.argv`. Returns the exit code, for an interrupt while modules are loaded too."""
    try:
        from .cli import main as command
    except KeyboardInterrupt:
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
