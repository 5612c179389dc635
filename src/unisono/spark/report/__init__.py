"""The report: one self-contained HTML page, for light and dark, wide and narrow screens.

Names come from a trace, and a trace may hold anything: all text is escaped.
"""

from __future__ import annotations

from unisono.spark.report.model import Curves, Diagram, Findings, RunInfo
from unisono.spark.report.page import page

__all__ = ["Curves", "Diagram", "Findings", "RunInfo", "page"]
