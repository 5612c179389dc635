"""The laws of who delivers what and between which views, on columns: messages that may break one.

`unisono.laws` has the definitions. Each function gives, by life, messages of which at least all
those are suspects that break the law at that life.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from unisono.laws.delivery import _apart, _parting
from unisono.spark.laws.case import RELIABLE, Case, ShardEvents
from unisono.spark.laws.columns import Array
from unisono.trace.checks import VIEWS
from unisono.trace.history import ALIVE, DEPARTED, VANISHED, IncarnationTrace

Suspects: TypeAlias = Mapping[int, Array]


def no_creation(case: Case) -> Suspects:
    sent = np.zeros(case.count, np.bool_)
    size, digest = np.zeros(case.count, np.int32), np.zeros(case.count, np.int64)
    for told in case.told:
        rows = told.sends[::-1]
        places = told.message[rows]
        sent[places] = True
        # Of several sends in several forms the first is compared; the law itself looks at all.
        size[places], digest[places] = told.said.size[rows], told.said.digest[rows]
    excused = _unwritten(case)
    unlike = _unlike(case, sent)
    suspects = {}
    for life, told in enumerate(case.told):
        rows = told.deliveries
        places = told.message[rows]
        wrong = (size[places] != told.said.size[rows]) | (digest[places] != told.said.digest[rows])
        known = sent[places]
        wrong &= known
        if not known.all():
            wrong |= ~known & (excused[places] | unlike[places])
        for code, cuts in told.cuts.items():
            mine = told.said.source[rows] == code
            for cut in cuts:
                number = told.said.number[rows]
                before = (number > cut.after) & (number <= cut.upto)
                wrong |= mine & before & (told.said.pos[rows] > cut.step)
        suspects[life] = places[wrong]
    return suspects


def _unwritten(case: Case) -> Array:
    """By message, whether its sender's trace says that it was not sent, if it has no send row."""
    last = {f"{row.node}#{row.incarnation}": row.number or 0 for row in case.plan.last_sends}
    lives = case.plan.history.lives
    told = np.zeros(case.count, np.bool_)
    for code in range(len(case.codes.names)):
        key = case.codes.key(code)
        life, mine = lives.get(key), case.of_source(code)
        if life is not None:
            vanished = life.end == VANISHED
            told[mine] = case.number[mine] <= last.get(key, 0) if vanished else True
    return told


def _unlike(case: Case, sent: Array) -> Array:
    """By message without a send row, whether it was delivered in different forms."""
    unlike = np.zeros(case.count, np.bool_)
    heard = np.zeros(case.count, np.bool_)
    size, digest = np.zeros(case.count, np.int32), np.zeros(case.count, np.int64)
    for told in case.told:
        rows = told.deliveries[~sent[told.message[told.deliveries]]]
        places = told.message[rows]
        new = rows[~heard[places]]
        heard[told.message[new]] = True
        size[told.message[new]] = told.said.size[new]
        digest[told.message[new]] = told.said.digest[new]
        other = (size[places] != told.said.size[rows]) | (digest[places] != told.said.digest[rows])
        unlike[places[other]] = True
    return unlike


def no_duplication(case: Case) -> Suspects:
    return {
        life: told.message[told.deliveries][
            told.said.pos[told.deliveries] != had[told.message[told.deliveries]]
        ]
        for life, (told, had) in enumerate(zip(case.told, case.had, strict=True))
    }


def validity(case: Case) -> Suspects:
    suspects = {}
    for life, (told, had) in enumerate(zip(case.told, case.had, strict=True)):
        if told.life.correct:
            rows = told.sends[told.said.level[told.sends] >= RELIABLE]
            places = told.message[rows]
            suspects[life] = places[had[places] < 0]
    return suspects


def agreement(case: Case) -> Suspects:
    suspects = {}
    for life, (told, missing) in enumerate(zip(case.told, case.missing, strict=True)):
        owed = np.zeros(len(missing), np.bool_)
        if len(missing):
            for other, theirs in enumerate(case.told):
                if theirs is not told and theirs.life.correct:
                    until = _until(theirs.life, told.life)
                    first = case.reliably[other][missing]
                    here = (first >= 0) & (first < until)
                    for start, end in _apart(theirs.life, told.life):
                        here &= (first < start) | (first >= end)
                    owed |= here | np.isin(missing, case.again[other])
        suspects[life] = missing[owed]
    return suspects


_ENDLESS: Final = 2**62


def _until(p: IncarnationTrace, q: IncarnationTrace) -> int:
    """The step of p before which q must match its deliveries; both are correct."""
    if q.end != ALIVE and p.key in q.final:
        return _parting(p, q) or 0
    if q.key not in p.final:
        return 0
    if q.end == ALIVE and p.end == ALIVE:
        owes = p.key in q.final
    else:
        owes = p.key in q.known and (q.end == ALIVE or p.end == DEPARTED)
    return _ENDLESS if owes else 0


def safe(case: Case) -> Suspects:
    code = case.codes.services.get("safe", -1)
    suspects: dict[int, Array] = {}
    if code < 0 or not any(map(len, case.missing)):
        return suspects
    keys = {told.plan.key: life for life, told in enumerate(case.told)}
    lacks = np.zeros(case.count, np.bool_)
    for missing in case.missing:
        lacks[missing] = True
    parts: dict[int, list[Array]] = {}
    for told in case.told:
        rows = told.deliveries
        rows = rows[(told.said.service[rows] == code) & lacks[told.message[rows]]]
        views = [row for row in told.life.rows if row.kind in VIEWS]
        view = np.searchsorted([row.step for row in views], told.said.pos[rows]) - 1
        for at in np.unique(view[view >= 0]).tolist():
            places = told.message[rows[view == at]]
            for member in views[at].members or ():
                life = keys.get(member)
                if life is not None and len(case.missing[life]):
                    parts.setdefault(life, []).append(places[np.isin(places, case.missing[life])])
    return {life: np.concatenate(places) for life, places in parts.items()}


def progress(case: Case) -> Suspects:
    alive = [told for told in case.told if told.life.end == ALIVE]
    probes = [told.message[told.sends[told.said.probe[told.sends]]] for told in alive]
    asked = np.unique(np.concatenate([*probes, np.empty(0, np.int64)]))
    suspects = {}
    for life, (told, had) in enumerate(zip(case.told, case.had, strict=True)):
        if told.life.end == ALIVE and told.life.inside and len(asked):
            missing = asked[had[asked] < 0]
            # Whom no view knows is asked for as well.
            unknown = ~told.based[case.source[missing]]
            owed = unknown | told.owes(case.source[missing], case.number[missing])
            suspects[life] = missing[owed]
    return suspects


# -- virtual synchrony ---------------------------------------------------------------------------


def virtual_synchrony(case: Case) -> Suspects:
    passages: dict[tuple[str, str], dict[int, ColumnTransition]] = {}
    for life, told in enumerate(case.told):
        for one, two in itertools.pairwise(told.life.views):
            mine = passages.setdefault((one.view, two.view), {})
            mine.setdefault(life, ColumnTransition(one.step, two.step, two.stayed))
    parts: dict[int, list[Array]] = {}
    for by_life in passages.values():
        if len(by_life) > 1:
            for life, places in _not_between(case, by_life).items():
                parts.setdefault(life, []).append(places)
    return {life: np.concatenate(places) for life, places in parts.items()}


class ColumnTransition(NamedTuple):
    """A life's way from a view to the next."""

    start: int
    end: int
    stayed: tuple[str, ...] | None


def _not_between(case: Case, by_life: Mapping[int, ColumnTransition]) -> Suspects:
    """Of lives that went together from one view to the next, what some delivered between and one
    did not."""
    between = {
        life: _between(case.told[life], passage.start, passage.end)
        for life, passage in by_life.items()
    }
    count = sum(map(len, between.values()))
    if not count:
        return {}
    if count * 8 < case.count:
        table, places = np.unique(np.concatenate(list(between.values())), return_inverse=True)
        ends = np.cumsum([len(each) for each in between.values()])[:-1]
        local = dict(zip(between, np.split(places, ends), strict=True))
    else:
        table, local = np.arange(case.count), between
    had = {life: np.zeros(len(table), np.bool_) for life in between}
    for life, each in local.items():
        had[life][each] = True
    suspects = {}
    for life, mine in had.items():
        anyone = np.zeros(len(table), np.bool_)
        for other, theirs in had.items():
            if _together(case, by_life, life, other):
                anyone |= theirs
        suspects[life] = case.owed(case.told[life], table[anyone & ~mine])
    return suspects


def _together(case: Case, by_life: Mapping[int, ColumnTransition], one: int, two: int) -> bool:
    """Whether each is in the other's transitional set, where it is told."""
    return all(
        by_life[life].stayed is None or case.told[other].plan.key in (by_life[life].stayed or ())
        for life, other in ((one, two), (two, one))
    )


def _between(told: ShardEvents, start: int, end: int) -> Array:
    """The messages that it delivered reliably between two steps."""
    first, last = np.searchsorted(told.said.pos, (start, end))
    rows = slice(int(first), int(last))
    good = ~told.said.send[rows] & (told.said.level[rows] >= RELIABLE) & (told.message[rows] >= 0)
    return told.message[rows][good]
