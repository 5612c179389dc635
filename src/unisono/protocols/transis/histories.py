"""Whose state counts where components meet: that of which newcomers get, and with one history for
all, that without which a component has to begin again.

Pure: all of a set have the same reports, and conclude the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from unisono.model import Member
from unisono.protocols.transis.packets import Agree

OUTDATED: Final = "the primary component went on without this member"


def state_source(reports: Iterable[Agree]) -> Member | None:
    """Whose state newcomers get: that of the first member of the largest component."""
    reports = list(reports)
    component = _largest(report for report in reports if not report.is_new)
    if not component or not any(report.is_new for report in reports):
        return None
    return min(report.sender for report in component)


def outdated(reports: Mapping[int, Agree]) -> set[int]:
    """Those whose component did not go through the last primary one, or went on from it apart from
    most others: what they delivered since is in nobody else's history."""
    settled = {key: report for key, report in reports.items() if not report.is_new}
    last = max((report.history for report in settled.values()), default=0)
    carriers = _largest(report for report in settled.values() if report.history == last)
    return {key for key, report in settled.items() if report not in carriers}


def _largest(reports: Iterable[Agree]) -> list[Agree]:
    """Those of the largest of their former configurations."""
    components: dict[int, list[Agree]] = {}
    for report in reports:
        components.setdefault(report.former, []).append(report)
    return min(
        components.values(),
        key=lambda each: (-len(each), min(report.sender for report in each)),
        default=[],
    )
