"""Screens for the laws of messages in views, of receipts and of local order. `unisono.laws` defines
the laws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from unisono.laws import LAWS, Violation
from unisono.laws.columnar.history import HistoryColumns, MemberEvents, running_max
from unisono.laws.columnar.suspects import Suspects, first_violations, rows_about
from unisono.laws.cuts import unjust_cuts
from unisono.laws.holding import Holdings, false_receipts
from unisono.laws.local import AFTER_END, SENT_AFTER
from unisono.laws.succession import Spell, Spells
from unisono.laws.verdict import violations
from unisono.trace.checks import VIEWS
from unisono.trace.columns import NUMBER_MAX, NUMBER_MIN, RELIABLE, Array, distinct
from unisono.trace.history import life_of, number_of, sender_of
from unisono.trace.record import Row


def _view_codes(data: HistoryColumns) -> dict[str, int]:
    views = (row.view for member in data.members for row in member.trace.views)
    return {view: code for code, view in enumerate(dict.fromkeys(views))}


def _in_views(
    member: MemberEvents, rows: Array, view_codes: Mapping[str, int]
) -> tuple[Array, Array]:
    """The rows after a regular view, and the code of that view for each."""
    views = member.trace.views
    codes = np.array([*(view_codes[row.view] for row in views), -1], np.int64)
    found = codes[member.epochs(views, rows)]
    return rows[found >= 0], found[found >= 0]


def same_view(data: HistoryColumns) -> Suspects:
    spells, codes = data.history.derived(Spells), _view_codes(data)
    references: dict[str, Array] = {}
    suspects = {}
    for at, member in enumerate(data.members):
        rows, views = _in_views(member, member.at_level(RELIABLE), codes)
        differing = []
        for part, when in _by_part(spells.of(member.key), member.events.pos[rows]).items():
            reference = references.setdefault(part, np.full(data.count, -1, np.int64))
            # The first delivery counts: written last, because all are written backwards.
            mine = np.full(data.count, -1, np.int64)
            mine[member.slot[rows[when]][::-1]] = views[when][::-1]
            new = (reference < 0) & (mine >= 0)
            reference[new] = mine[new]
            differing.append(np.flatnonzero((mine >= 0) & (mine != reference)))
        suspects[at] = distinct(*differing)
    return suspects


def _by_part(spells: Sequence[Spell], steps: Array) -> dict[str, Array]:
    """By part which of these steps are compared in it: all in the last, and in an earlier one those
    of its time."""
    ends = [*(spell.start for spell in spells[1:]), NUMBER_MAX]
    found: dict[str, Array] = {}
    for spell, end in zip(spells, ends, strict=True):
        when = found.get(spell.part, np.zeros(len(steps), np.bool_))
        found[spell.part] = when | ((steps >= spell.start) & (steps < end))
    found[spells[-1].part] = np.ones(len(steps), np.bool_)
    return found


def sending_view(data: HistoryColumns) -> Suspects:
    codes = _view_codes(data)
    sent_in = np.full(data.count, -1, np.int64)
    for member in data.members:
        rows, views = _in_views(member, member.sends[::-1], codes)
        sent_in[member.slot[rows]] = views
    suspects = {}
    for at, member in enumerate(data.members):
        rows, views = _in_views(member, member.at_level(RELIABLE), codes)
        slots = member.slot[rows]
        suspects[at] = slots[(sent_in[slots] >= 0) & (sent_in[slots] != views)]
    return suspects


def sender_in_view(data: HistoryColumns) -> Suspects:
    suspects = {}
    keys = data.codes.keys
    for at, member in enumerate(data.members):
        # The last entry is for rows before the first view, of which nothing is required.
        inside = np.ones((len(member.trace.views) + 1, len(keys)), np.bool_)
        for epoch, view in enumerate(member.trace.views):
            members = set(view.members or ())
            inside[epoch] = [key in members for key in keys]
        rows = member.deliveries
        epochs = member.epochs(member.trace.views, rows)
        suspects[at] = member.slot[rows[~inside[epochs, member.events.source[rows]]]]
    return suspects


# -- receipts ------------------------------------------------------------------------------------


def received(data: HistoryColumns) -> Suspects:
    holdings = Holdings(data.history)
    code = data.codes.services.get("safe", -1)
    if not holdings.has_receipts or code < 0:
        return {}
    index = data.member_index()
    parts: dict[int, list[Array]] = {}
    for member in data.members:
        rows = member.deliveries[member.events.service[member.deliveries] == code]
        views = [row for row in member.trace.rows if row.kind in VIEWS]
        epochs = member.epochs(views, rows)
        for epoch in distinct(epochs[epochs >= 0]).tolist():
            regular = [row for row in views[: epoch + 1] if row.kind == "view"]
            if not regular:
                continue
            slots = distinct(member.slot[rows[epochs == epoch]])
            for key in set(views[epoch].members or ()) - {member.key}:
                marks = holdings.marks.get(key, {}).get(regular[-1].view)
                if marks is not None:
                    at = index[key]
                    parts.setdefault(at, []).append(_not_held(data, at, marks, slots))
    return {at: np.concatenate(slots) for at, slots in parts.items()}


def _not_held(data: HistoryColumns, at: int, marks: Mapping[str, int], slots: Array) -> Array:
    """Messages above a member's marks that it owes and never delivered."""
    missing = slots[data.delivered[at][slots] < 0]
    held = np.array([marks.get(key, 0) for key in data.codes.keys])
    lacking = missing[data.number[missing] > held[data.source[missing]]]
    return data.owed(data.members[at], lacking)


def stable(data: HistoryColumns) -> list[Violation]:
    """Judged on the messages that are reported stable: there are few."""
    reported = {
        (data.codes.source(sender_of(row)), row.number or 0)
        for row in data.history.rows
        if row.kind == "stable"
    }
    slots = (data.slot(*message) for message in reported if message[0] >= 0)
    rows = rows_about(data, [slot for slot in slots if slot is not None])
    return LAWS["stable"].check(data.with_rows(*rows))


def receipts(data: HistoryColumns) -> list[Violation]:
    last = {life_of(row): number_of(row) for row in data.last_sends}
    found = false_receipts(data.history, data.delivered_at_ends(), last)
    return violations("receipts", data.run, found)


def cut(data: HistoryColumns) -> list[Violation]:
    delivered = {
        each.key: list(data.delivered_before(each, each.trace.views)) for each in data.members
    }
    last = {life_of(row): number_of(row) for row in data.last_sends}

    def floor(sender: str, upto: int) -> int:
        return data.floor(RELIABLE, sender, upto)

    return violations("cut", data.run, unjust_cuts(data.history, delivered, last, floor))


# -- one incarnation by itself -------------------------------------------------------------------


def local_order(data: HistoryColumns) -> Suspects:
    suspects = {}
    for at, member in enumerate(data.members):
        events, rows = member.events, member.deliveries
        views = member.trace.views
        epochs = member.epochs(views, rows)
        seqs = [NUMBER_MIN if row.seq is None else row.seq for row in views]
        view_seq = np.array([*seqs, NUMBER_MIN], np.int64)[epochs]
        wrong = (epochs < 0) | (events.has_seq[rows] & (events.seq[rows] <= view_seq))
        own = events.source[rows] == member.rows.code
        if own.any():
            sent = data.first(member, member.sends)[member.slot[rows]]
            wrong |= own & (sent > events.pos[rows])
        suspects[at] = member.slot[rows[wrong]]
    return suspects


def of_members(data: HistoryColumns) -> Iterator[Violation]:
    yield from _sent_after(data)
    yield from _ends_and_places(data)


def _sent_after(data: HistoryColumns) -> Iterator[Violation]:
    for member in data.members:
        numbers = member.events.number[member.sends]
        again = member.slot[member.sends[numbers <= running_max(numbers)]]
        yield from first_violations(
            Violation("local_order", data.run, member.key, data.name(slot), "", SENT_AFTER)
            for slot in again.tolist()
        )


def _ends_and_places(data: HistoryColumns) -> Iterator[Violation]:
    """Violations of `local_order` without a message depend on the last send and delivery, and on
    the largest sequence number before each view: rows are made up for them."""
    last: list[Row] = []
    highest: list[Row] = []
    for member in data.members:
        row = Row(*member.rows.history, *member.rows.name, 0, 0, "deliver")
        row = row._replace(sender="", sender_incarnation=0, number=0, service="reliable")
        for kind, rows in (("send", member.sends), ("deliver", member.deliveries)):
            last += [row._replace(step=int(member.events.pos[at]), kind=kind) for at in rows[-1:]]
        # At the step of the view, and listed before it.
        views = member.trace.views
        highest += [
            row._replace(step=view.step, seq=seq)
            for view, seq in zip(views, member.seqs_before(views).tolist(), strict=True)
            if seq != NUMBER_MIN
        ]
    for rows_made_up, of_ends in ((last, True), (highest, False)):
        for each in LAWS["local_order"].check(data.with_rows(*rows_made_up)):
            if not each.message and each.detail.endswith(AFTER_END) == of_ends:
                yield each
