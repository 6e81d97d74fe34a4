"""A census of a model: every kernel of its phases with the sizes of its matrix products, what it computes and moves, and its bound.

from roofline import Machine, census_of
from roofline.transformer import Decode, preset

census_of(preset("DeepSeek-R1-NVFP4"), [Decode(batch=128)], Machine.from_datasheet("GB200"))
"""

from __future__ import annotations

from .entries import Entry
from .listing import Census
from .taking import census_of

__all__ = ["Census", "Entry", "census_of"]
