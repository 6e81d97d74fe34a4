"""What well-known texts on the roofline claim, whether it holds, and the line of code that shows it."""

from __future__ import annotations

from .rules import notebook_decode

__all__ = ["notebook_decode"]
