"""`roofline completion`: a script for a shell, from the flags that there are."""

from __future__ import annotations

import argparse
import sys

import shtab

from .outcomes import OK


def completion(options: argparse.Namespace) -> int:
    from .parser import whole

    sys.stdout.write(shtab.complete(whole(), options.shell) + "\n")
    return OK
