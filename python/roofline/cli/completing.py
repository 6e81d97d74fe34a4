"""`roofline completion`: prints the completion script of a shell."""

from __future__ import annotations

import argparse
import sys

import shtab

from .exit_codes import OK


def completion(options: argparse.Namespace) -> int:
    from .parser import whole

    sys.stdout.write(shtab.complete(whole(), options.shell) + "\n")
    return OK
