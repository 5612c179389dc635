"""The laws of messages in their views, of receipts and of one life by itself, on columns: messages
that may break one. `unisono.laws` has the definitions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from unisono.laws.holding import Holdings
from unisono.laws.succession import parts_let_go_on
from unisono.spark.laws.case import RELIABLE, Case, ShardEvents
from unisono.spark.laws.columns import NUMBER_MIN, Array
from unisono.spark.laws.delivery import Suspects
from unisono.spark.laws.telling import rows_about
from unisono.trace.checks import VIEWS
from unisono.trace.record import Row


def _epochs(told: ShardEvents, rows: Array) -> Array:
    """By row which of the life's regular views is the last before; -1 for none."""
    steps = [row.step for row in told.life.views]
    return np.searchsorted(steps, told.said.pos[rows]) - 1


def _view_codes(case: Case, told: ShardEvents, rows: Array) -> Array:
    """By row the number of the regular view that it counts as of, the same for all lives; -1 for
    none."""
    epochs = _epochs(told, rows)
    codes = [case.view_codes[row.view] for row in told.life.views]
    coded: Array = np.array([*codes, -1], np.int64)[epochs]
    return coded


def same_view(case: Case) -> Suspects:
    part = parts_let_go_on(case.plan.history)
    references = {name: np.full(case.count, -1, np.int64) for name in set(part.values())}
    suspects = {}
    for life, told in enumerate(case.told):
        reference = references[part[told.plan.key]]
        rows = case.at_level(told, RELIABLE)
        views = _view_codes(case, told, rows)
        rows, views = rows[views >= 0], views[views >= 0]
        places = told.message[rows]
        # Its first delivery in a view counts: written last, when all are written backwards.
        mine = np.full(case.count, -1, np.int64)
        mine[places[::-1]] = views[::-1]
        new = (reference < 0) & (mine >= 0)
        reference[new] = mine[new]
        suspects[life] = np.flatnonzero((mine >= 0) & (mine != reference))
    return suspects


def sending_view(case: Case) -> Suspects:
    sent = np.full(case.count, -1, np.int64)
    for told in case.told:
        rows = told.sends[::-1]
        views = _view_codes(case, told, rows)
        sent[told.message[rows[views >= 0]]] = views[views >= 0]
    suspects = {}
    for life, told in enumerate(case.told):
        rows = case.at_level(told, RELIABLE)
        views, places = _view_codes(case, told, rows), told.message[rows]
        suspects[life] = places[(views >= 0) & (sent[places] >= 0) & (sent[places] != views)]
    return suspects


def sender_in_view(case: Case) -> Suspects:
    suspects = {}
    keys = [case.codes.key(code) for code in range(len(case.codes.names))]
    for life, told in enumerate(case.told):
        members = [set(row.members or ()) for row in told.life.views]
        # The last row is for what is in no view, of which nothing is asked.
        inside = np.ones((len(members) + 1, len(keys)), np.bool_)
        for at, mine in enumerate(members):
            inside[at] = [key in mine for key in keys]
        rows = told.deliveries
        epochs = _epochs(told, rows)
        outside = ~inside[epochs, told.said.source[rows]]
        suspects[life] = told.message[rows[outside]]
    return suspects


# -- receipts ------------------------------------------------------------------------------------


def received(case: Case) -> Suspects:
    holdings = Holdings(case.plan.history)
    code = case.codes.services.get("safe", -1)
    if not holdings.told or code < 0:
        return {}
    at = {told.plan.key: life for life, told in enumerate(case.told)}
    parts: dict[int, list[Array]] = {}
    for told in case.told:
        rows = told.deliveries[told.said.service[told.deliveries] == code]
        views = [row for row in told.life.rows if row.kind in VIEWS]
        epochs = np.searchsorted([row.step for row in views], told.said.pos[rows]) - 1
        for epoch in np.unique(epochs[epochs >= 0]).tolist():
            regular = [row for row in views[: epoch + 1] if row.kind == "view"]
            if not regular:
                continue
            places = np.unique(told.message[rows[epochs == epoch]])
            for member in set(views[epoch].members or ()) - {told.plan.key}:
                marks = holdings.marks.get(member, {}).get(regular[-1].view)
                if marks is not None:
                    lacking = _not_held(case, at[member], marks, places)
                    parts.setdefault(at[member], []).append(lacking)
    return {life: np.concatenate(places) for life, places in parts.items()}


def _not_held(case: Case, life: int, marks: Mapping[str, int], places: Array) -> Array:
    """Messages above the marks of a life that it owes and never delivered."""
    missing = places[case.had[life][places] < 0]
    held = np.array([marks.get(case.codes.key(each), 0) for each in range(len(case.codes.names))])
    lacking = missing[case.number[missing] > held[case.source[missing]]]
    return case.owed(case.told[life], lacking)


def notified(case: Case) -> list[Row]:
    """The rows about the messages that notices of stability are about: of these there are few."""
    told = {
        (row.sender or "", row.sender_incarnation or 0, row.number or 0)
        for row in case.plan.history.rows
        if row.kind == "stable"
    }
    places = [
        case.place(case.codes.lives[name, incarnation], number)
        for name, incarnation, number in sorted(told)
        if (name, incarnation) in case.codes.lives
    ]
    return rows_about(case, [place for place in places if place is not None])


# -- one life by itself --------------------------------------------------------------------------


def local_order(case: Case) -> Suspects:
    suspects = {}
    for life, told in enumerate(case.told):
        said, rows = told.said, told.deliveries
        epochs = _epochs(told, rows)
        # The place of the last view; below all others where it has none.
        placed = [NUMBER_MIN if row.seq is None else row.seq for row in told.life.views]
        begun = np.array([*placed, NUMBER_MIN], np.int64)[epochs]
        odd = (epochs < 0) | (said.placed[rows] & (said.seq[rows] <= begun))
        own = said.source[rows] == told.plan.code
        if own.any():
            sent = case.first(told, told.sends)[told.message[rows]]
            odd |= own & (sent > said.pos[rows])
        suspects[life] = told.message[rows[odd]]
    return suspects
