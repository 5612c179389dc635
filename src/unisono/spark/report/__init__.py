"""The page for people: one HTML file that needs nothing else, in light and dark, wide and narrow.

Every name in it comes from a trace, and a trace may hold anything: all text is escaped.
"""

from __future__ import annotations

from unisono.spark.report.found import Curves, Findings, Picture, RunAbout
from unisono.spark.report.page import page

__all__ = ["Curves", "Findings", "Picture", "RunAbout", "page"]
