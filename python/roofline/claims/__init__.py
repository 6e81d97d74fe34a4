"""What well-known texts on the roofline claim, whether it holds, the line of code that shows it; and checks of other claims."""

from __future__ import annotations

from .checks import Check, Checks, check
from .claim import SAYS, Claim, documents, find_claim, list_claims, to_dict
from .rules import notebook_decode

__all__ = [
    "SAYS", "Check", "Checks", "Claim", "check", "documents", "find_claim", "list_claims", "notebook_decode", "to_dict",
]  # fmt: skip
