"""What well-known texts on the roofline claim, whether it holds, and the line of code that shows it."""

from __future__ import annotations

from .claim import SAYS, Claim, documents, find_claim, list_claims, to_dict
from .rules import notebook_decode

__all__ = ["SAYS", "Claim", "documents", "find_claim", "list_claims", "notebook_decode", "to_dict"]
