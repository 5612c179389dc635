"""Exclusions from a ring in network namespaces, and which of them no fault explains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from tests.cli.ring_cluster import Fault
from unisono.parts.detector import MOST_TIMES
from unisono.protocols.ring.parameters import DEFAULTS
from unisono.trace.history import EXCLUDED, STOPPED, History
from unisono.trace.record import Row

BOUND_S: Final = MOST_TIMES * DEFAULTS["detect_us"] / 1e6 + 1
"""A silence is noticed within this, and a ring formed without the silent member."""
BACK_S: Final = 2.0
"""One that was away is in a ring again after this; a process has to start first."""
AWAY: Final = ("kill", "pause", "full")


class Exclusion(NamedTuple):
    """Others went on without a life that had not ended."""

    name: str
    at_s: float
    by: frozenset[str]
    """Those that went on."""


def exclusions(history: History, began_s: float, faults: Sequence[Fault]) -> list[Exclusion]:
    """The exclusions, each by the first view of another without it. All clocks of one machine are
    one."""
    found: dict[str, Exclusion] = {}
    shown: dict[str, Row] = {}

    def note(key: str, t_us: int, by: Row | None) -> None:
        others = by.members if by is not None else history.lives
        names = frozenset(other.partition("#")[0] for other in others or ())
        name = key.partition("#")[0]
        each = Exclusion(name, t_us / 1e6 - began_s, names - {name})
        if key not in found or each.at_s < found[key].at_s:
            found[key] = each

    for life in history.lives.values():
        shown.update((row.view, row) for row in life.views)
        for before, after in pairwise(life.views):
            for gone in set(before.members or ()) - set(after.members or ()):
                note(gone, after.t_us, after)
    for life in history.lives.values():
        if life.cause == EXCLUDED:
            note(life.key, life.rows[-1].t_us, shown.get(life.excluded_by))
    return sorted(
        each
        for key, each in found.items()
        if each.at_s > 0 and not _had_ended(history, key, each.at_s, began_s, faults)
    )


def _had_ended(
    history: History, key: str, at_s: float, began_s: float, faults: Sequence[Fault]
) -> bool:
    """It was killed, or stopped for another reason, such as a full disk, before."""
    life = history.lives.get(key)
    if life is None:
        return True  # It was killed before anything of it was written.
    first_s, last_s = (row.t_us / 1e6 - began_s for row in (life.rows[0], life.rows[-1]))
    killed = any(
        fault.kind == "kill" and life.node in fault.names and first_s <= fault.at_s <= at_s
        for fault in faults
    )
    return killed or (life.rows[-1].kind == "leave" and life.cause != EXCLUDED and last_s <= at_s)


def felt(history: History, began_s: float, faults: Sequence[Fault]) -> list[Fault]:
    """The faults without full disks that stopped nobody."""
    stops = [
        (life.node, life.rows[-1].t_us / 1e6 - began_s)
        for life in history.lives.values()
        if life.end == STOPPED and life.cause != EXCLUDED
    ]
    return [
        fault
        for fault in faults
        if fault.kind != "full"
        or any(n in fault.names and fault.at_s <= at_s < fault.until_s + 1 for n, at_s in stops)
    ]


def is_forced(exclusion: Exclusion, faults: Sequence[Fault], names: Sequence[str]) -> bool:
    """Whether, at one moment within the bound before it, the member was away, or it and one of
    those that went on without it did not receive from each other, both ways, while that one was of
    a majority that did without the member, or none was."""
    since_s = exclusion.at_s - BOUND_S
    near = [each for each in faults if each.at_s <= exclusion.at_s and each.until_s >= since_s]
    if any(fault.kind in AWAY and exclusion.name in fault.names for fault in near):
        return True
    starts = {max(fault.at_s, since_s) for fault in near}
    ends = {end for fault in near for end in (fault.until_s, fault.until_s + BACK_S)}
    return any(
        _forces(exclusion, faults, names, moment_s)
        for moment_s in starts | ends
        if since_s <= moment_s <= exclusion.at_s
    )


def _forces(
    exclusion: Exclusion, faults: Sequence[Fault], names: Sequence[str], moment_s: float
) -> bool:
    """By the faults of this moment."""
    name, _, by = exclusion
    cuts = [each for each in faults if each.at_s <= moment_s < each.until_s]
    away = {
        each
        for fault in faults
        if fault.kind in AWAY and fault.at_s <= moment_s < fault.until_s + BACK_S
        for each in fault.names
    }

    def hear_each_other(one: str, other: str) -> bool:
        return not any(fault.parts(one, other) for fault in cuts)

    unheard = {other for other in by - away if not hear_each_other(name, other)}
    least = len(names) // 2 + 1
    majorities = [
        frozenset(part)
        for part in combinations([each for each in names if each not in away], least)
        if all(hear_each_other(*pair) for pair in combinations(part, 2))
    ]
    without = frozenset[str]().union(*(part for part in majorities if name not in part))
    return bool(unheard & without if majorities else unheard)
