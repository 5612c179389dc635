"""Gold tables of one run about its members: who was excluded, and the components over time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from unisono.laws.columnar.history import HistoryColumns
from unisono.laws.exclusion import Faults, accuracy
from unisono.trace.history import ALIVE, EXCLUDED


def exclusions_of(data: HistoryColumns) -> Iterator[dict[str, Any]]:
    """A row per incarnation that went on when others installed a view without it, or that stopped
    as excluded. It is unforced if nothing ailed it or them (`accuracy`); unknown where the world
    does not tell its faults."""
    faults = data.history.derived(Faults)
    unforced = {each.life for each in accuracy(data.history)}
    last_us = {member.key: member.rows.last_us for member in data.members}
    seen: set[str] = set()
    for each in sorted(faults.exclusions()):
        trace = faults.lives[each.excluded]
        runs_on = trace.cause == EXCLUDED or last_us[each.excluded] > each.at_us
        if runs_on and each.excluded not in seen and not faults.is_excused(each[1], each.at_us):
            seen.add(each.excluded)
            yield {
                "life": each.excluded,
                "survivor": each.by,
                "view": each.view,
                "at_us": each.at_us,
                "what": trace.end,
                "unforced": each.excluded in unforced if faults.recorded else None,
            }


def components_of(data: HistoryColumns) -> Iterator[dict[str, Any]]:
    """A row per view: the nodes that installed it, how long that took from the first to the last,
    and from when to when one had it; without an end while a member still has it."""
    found: dict[str, dict[str, Any]] = {}
    installers: dict[str, set[str]] = {}
    last_us: dict[str, int] = {}
    for member in data.members:
        views = member.trace.views
        for view, after in zip_longest(views, views[1:]):
            row = found.setdefault(
                view.view,
                {
                    "view": view.view,
                    "members": len(view.members or ()),
                    "installed": 0,
                    "from_us": view.t_us,
                    "until_us": 0,
                },
            )
            row["installed"] += 1
            row["from_us"] = min(row["from_us"], view.t_us)
            last_us[view.view] = max(last_us.get(view.view, view.t_us), view.t_us)
            installers.setdefault(view.view, set()).add(member.trace.node)
            over = member.rows.ended_us if member.trace.end != ALIVE else None
            over = after.t_us if after is not None else over
            if row["until_us"] is not None:
                row["until_us"] = None if over is None else max(row["until_us"], over)
    for name, row in found.items():
        row["installed_by"] = " ".join(sorted(installers[name]))
        row["took_us"] = last_us[name] - row["from_us"]
    yield from sorted(found.values(), key=lambda row: (row["from_us"], row["view"]))
