"""Screens for the laws of delivery and of virtual synchrony. `unisono.laws` defines the laws."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from unisono.laws import LAWS, Violation
from unisono.laws.columnar.history import HistoryColumns, MemberEvents
from unisono.laws.columnar.suspects import Suspects
from unisono.laws.delivery import _apart, _parting
from unisono.laws.leaving import kept
from unisono.trace.checks import VIEWS
from unisono.trace.columns import RELIABLE, Array, distinct
from unisono.trace.history import ALIVE, DEPARTED, VANISHED, IncarnationTrace
from unisono.trace.record import Row

ViewPair: TypeAlias = tuple[Row, Row]


def no_creation(data: HistoryColumns) -> Suspects:
    # Of several sends the first is compared; the law itself looks at all.
    sent, form = _forms(data, [member.sends for member in data.members])
    unsent = [member.deliveries[~sent[member.slot[member.deliveries]]] for member in data.members]
    suspicious = _recorded(data)
    _, first = _forms(data, unsent)
    for member, rows in zip(data.members, unsent, strict=True):
        slots = member.slot[rows]
        suspicious[slots[_differ(first, member, rows)]] = True
    suspects = {}
    for at, member in enumerate(data.members):
        events, rows = member.events, member.deliveries
        slots = member.slot[rows]
        known = sent[slots]
        wrong = known & _differ(form, member, rows)
        if not known.all():
            wrong |= ~known & suspicious[slots]
        for code, cuts in member.cuts.items():
            number = events.number[rows]
            for cut in cuts:
                before = (number > cut.after) & (number <= cut.upto) & (events.source[rows] == code)
                wrong |= before & (events.pos[rows] > cut.step)
        suspects[at] = slots[wrong]
    return suspects


def _forms(data: HistoryColumns, rows_by_member: list[Array]) -> tuple[Array, list[Array]]:
    """By slot: whether one of these rows is about it, and the form of the first."""
    found = np.zeros(data.count, np.bool_)
    forms: list[Array] = [np.zeros(data.count, each.dtype) for each in _form(data.members[0])]
    for member, mine in zip(reversed(data.members), reversed(rows_by_member), strict=True):
        rows = mine[::-1]
        slots = member.slot[rows]
        found[slots] = True
        for form, column in zip(forms, _form(member), strict=True):
            form[slots] = column[rows]
    return found, forms


def _form(member: MemberEvents) -> tuple[Array, Array, Array]:
    return member.events.size, member.events.digest, member.events.service


def _differ(forms: list[Array], member: MemberEvents, rows: Array) -> Array:
    """By row, whether its message has another form there."""
    differs = np.zeros(len(rows), np.bool_)
    for form, column in zip(forms, _form(member), strict=True):
        differs |= form[member.slot[rows]] != column[rows]
    return differs


def _recorded(data: HistoryColumns) -> Array:
    """By slot, whether the trace of its sender would show the send."""
    last = {f"{row.node}#{row.incarnation}": row.number or 0 for row in data.last_sends}
    recorded = np.zeros(data.count, np.bool_)
    for code, key in enumerate(data.codes.keys):
        trace, mine = data.history.lives.get(key), data.slots_of(code)
        if trace is not None:
            vanished = trace.end == VANISHED
            recorded[mine] = data.number[mine] <= last.get(key, 0) if vanished else True
    return recorded


def no_duplication(data: HistoryColumns) -> Suspects:
    return {at: data.repeated(at) for at in range(len(data.members))}


def validity(data: HistoryColumns) -> Suspects:
    suspects = {}
    for at, member in enumerate(data.members):
        if member.trace.correct:
            slots = member.slot[member.sends[member.events.level[member.sends] >= RELIABLE]]
            suspects[at] = slots[data.delivered[at][slots] < 0]
    return suspects


def agreement(data: HistoryColumns) -> Suspects:
    suspects = {}
    for at, member in enumerate(data.members):
        missing = data.missing[at]
        owed = np.zeros(len(missing), np.bool_)
        if len(missing) and member.trace.correct:
            for other, peer in enumerate(data.members):
                if peer is not member and peer.trace.correct:
                    first = data.delivered_reliably[other][missing]
                    here = (first >= 0) & (first < _until(peer.trace, member.trace))
                    for start, end in _apart(peer.trace, member.trace):
                        here &= (first < start) | (first >= end)
                    owed |= here | np.isin(missing, data.repeated(other))
        suspects[at] = missing[owed]
    return suspects


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
    return sys.maxsize if owes else 0


def safe(data: HistoryColumns) -> Suspects:
    code = data.codes.services.get("safe", -1)
    if code < 0 or not any(map(len, data.missing)):
        return {}
    index = data.member_index()
    missing = distinct(*data.missing)
    parts: dict[int, list[Array]] = {}
    for member in data.members:
        rows = member.deliveries
        rows = rows[(member.events.service[rows] == code) & np.isin(member.slot[rows], missing)]
        views = [row for row in member.trace.rows if row.kind in VIEWS]
        epochs = member.epochs(views, rows)
        for epoch in distinct(epochs[epochs >= 0]).tolist():
            slots = member.slot[rows[epochs == epoch]]
            for key in views[epoch].members or ():
                if key in index:
                    at = index[key]
                    parts.setdefault(at, []).append(slots[np.isin(slots, data.missing[at])])
    return {at: np.concatenate(slots) for at, slots in parts.items()}


def progress(data: HistoryColumns) -> Suspects:
    alive = [at for at, member in enumerate(data.members) if member.trace.end == ALIVE]
    probes = [np.empty(0, np.int64)]
    for member in (data.members[at] for at in alive):
        probes.append(member.slot[member.sends[member.events.probe[member.sends]]])
    probed = distinct(*probes)
    suspects = {}
    for at in alive:
        member = data.members[at]
        if member.trace.inside:
            missing = probed[data.delivered[at][probed] < 0]
            source, number = data.source[missing], data.number[missing]
            # Probes of senders that no view has are owed as well.
            suspects[at] = missing[~member.knows[source] | member.owes(source, number)]
    return suspects


def nobody_goes_on(data: HistoryColumns) -> list[Violation]:
    """Violations of `progress` without a message need one probe of each, and the last messages of
    those that left and of those that keep them."""
    probes = [
        member.row(at, data.codes)
        for member in data.members
        for at in member.sends[member.events.probe[member.sends]][:1].tolist()
    ]
    for left, stays in kept(data.history):
        probes += [*_last_of(data, stays.key, stays.key), *_last_of(data, left.key, stays.key)]
    found = LAWS["progress"].check(data.with_rows(*probes))
    return [each for each in found if not each.message]


def _last_of(data: HistoryColumns, sender: str, receiver: str) -> Iterator[Row]:
    """As `leaving.last_of`."""
    index, source = data.member_index(), data.codes.source(sender)
    member, other = data.members[index[receiver]], data.members[index[sender]]
    came = member.deliveries[member.events.source[member.deliveries] == source][-1:]
    sent = other.sends[np.isin(other.slot[other.sends], member.slot[came])][:1]
    yield from (member.row(at, data.codes) for at in came.tolist())
    yield from (other.row(at, data.codes) for at in sent.tolist())


# -- virtual synchrony ---------------------------------------------------------------------------


def virtual_synchrony(data: HistoryColumns) -> Suspects:
    transitions: dict[tuple[str, str], dict[int, ViewPair]] = {}
    for at, member in enumerate(data.members):
        for one, two in itertools.pairwise(member.trace.views):
            transitions.setdefault((one.view, two.view), {}).setdefault(at, (one, two))
    parts: dict[int, list[Array]] = {}
    for by_member in transitions.values():
        if len(by_member) > 1:
            for at, slots in _not_between(data, by_member).items():
                parts.setdefault(at, []).append(slots)
    return {at: np.concatenate(slots) for at, slots in parts.items()}


def _not_between(data: HistoryColumns, by_member: Mapping[int, ViewPair]) -> Suspects:
    """For members that went together from one view to the next: what some delivered between the two
    and one did not."""
    between = {
        at: _delivered_between(data.members[at], one.step, two.step)
        for at, (one, two) in by_member.items()
    }
    count = sum(map(len, between.values()))
    if not count:
        return {}
    if count * 8 < data.count:
        table, inverse = np.unique(np.concatenate(list(between.values())), return_inverse=True)
        ends = np.cumsum([len(slots) for slots in between.values()])[:-1]
        local = dict(zip(between, np.split(inverse, ends), strict=True))
    else:
        table, local = np.arange(data.count), between
    delivered = {at: np.zeros(len(table), np.bool_) for at in between}
    for at, slots in local.items():
        delivered[at][slots] = True
    suspects = {}
    for at, mine in delivered.items():
        anyone = np.zeros(len(table), np.bool_)
        for other, theirs in delivered.items():
            if _together(data, by_member, at, other):
                anyone |= theirs
        suspects[at] = data.owed(data.members[at], table[anyone & ~mine])
    return suspects


def _together(data: HistoryColumns, by_member: Mapping[int, ViewPair], one: int, two: int) -> bool:
    """Whether each is in the other's transitional set, where it has one."""
    return all(
        (stayed := by_member[at][1].stayed) is None or data.members[other].key in stayed
        for at, other in ((one, two), (two, one))
    )


def _delivered_between(member: MemberEvents, start: int, end: int) -> Array:
    """The slots delivered reliably between two steps."""
    first, last = np.searchsorted(member.events.pos, (start, end))
    rows = slice(int(first), int(last))
    slots = member.slot[rows]
    wanted = ~member.events.send[rows] & (member.events.level[rows] >= RELIABLE)
    found: Array = slots[wanted]
    return found
