"""Reports: everything measured in one go, its files, and one point explained."""

from __future__ import annotations

from .explaining import Explanation, explain
from .files import Report, load, render
from .measuring import report
from .page import html
from .points import Point, default_points

__all__ = ["Explanation", "Point", "Report", "default_points", "explain", "html", "load", "render", "report"]
