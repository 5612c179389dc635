"""The laws of sequence numbers: which message has which, in the one order of a group."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from unisono.laws.succession import Spells, Succession
from unisono.laws.verdict import Finding
from unisono.trace.checks import LEVELS, VIEWS, level_of
from unisono.trace.history import History, IncarnationTrace, cut_of, message_of
from unisono.trace.record import Row

AGREED = LEVELS["agreed"]
Counts: TypeAlias = Callable[[bool, Row], bool]
"""Whether a delivery counts; of a correct life or another."""


def one_place(history: History) -> Iterator[Finding]:
    """A sequence number has at most one safe message, and a safe message one sequence number.

    Of all lives, whatever became of them; and of correct ones every message of level agreed or
    above counts: nobody that goes on gives a safe message's place to another. Lives of one lineage
    count from the same founding (see `lineages`); only these are compared. What a life delivered
    before an operator let it go on is of the lineage that its views were of then (see `Spells`),
    and it is not correct in that. Of each lineage and place, and of each lineage and message, the
    smallest life that delivered such a message so, at its first such delivery, is the reference.
    - `place N holds M there`: this life delivered m at the place N, and the reference (the other)
      another message M.
    - `place N here, K there`: this life delivered m at the place N, and the reference (the other)
      at K.
    Nor does the group go back before such a message. Let a node have view W, at the place N, right
    after V, both of one lineage, and no view V after W (see `one_primary`).
    - `view W at N, after place K in V`: a life of that lineage delivered such a message in V at a
      place K above N; not in a transitional view, and the largest K counts. Only safe messages
      count where few went on with W: most members of V did not install it, nor did a correct life
      (since it parted, if it did), nor did it install what a life of W has after W, and so on.
      Named is the smallest life that installed W; the message, and as the other the life, are those
      of the smallest life that delivered at K in V, at its first such delivery.
    - `view W at N, after V at K`: V has the place K above N. The other is the smallest life that
      installed V.
    """

    def counts(correct: bool, row: Row) -> bool:
        return is_safe(correct, row) or (correct and level_of(row.service) >= AGREED)

    def is_safe(correct: bool, row: Row) -> bool:
        return row.service == "safe"

    return _placed(history, counts, is_safe)


def uniform_order(history: History) -> Iterator[Finding]:
    """As `one_place`, of all ordered messages, even if a member fails right after delivering."""

    def counts(correct: bool, row: Row) -> bool:
        return level_of(row.service) >= AGREED

    return _placed(history, counts, counts)


def _placed(history: History, counts: Counts, always: Counts) -> Iterator[Finding]:
    views, spells = history.derived(Succession), history.derived(Spells)
    holds: dict[tuple[str, int], tuple[str, str]] = {}
    stands: dict[tuple[str, str], tuple[str, int]] = {}
    for key, trace in history.lives.items():
        for message, row in zip(trace.messages, trace.deliveries, strict=True):
            spell, place = spells.at(key, row.step), row.seq
            mine = spell.lineage
            if place is None or not counts(trace.correct and spell.is_last, row):
                continue
            other, held = holds.setdefault((mine, place), (key, message))
            if held != message:
                yield Finding(key, message, other, f"place {place} holds {held} there")
            other, stood = stands.setdefault((mine, message), (key, place))
            if stood != place:
                yield Finding(key, message, other, f"place {place} here, {stood} there")
    highest = _highest(history, views, counts), _highest(history, views, always)
    yield from gone_back(views, *highest)


class Highest(NamedTuple):
    """The largest sequence number at which a message was delivered in a view."""

    place: int
    message: str
    key: str


def _highest(history: History, views: Succession, counts: Counts) -> dict[str, Highest]:
    """By view, of the messages that count."""
    found: dict[str, Highest] = {}
    spells = history.derived(Spells)
    for key, trace in history.lives.items():
        view, spell = "", spells.of(key)[0]
        for row in trace.rows:
            if row.kind in VIEWS:
                view, spell = (row.view if row.kind == "view" else ""), spells.at(key, row.step)
            elif row.kind == "deliver" and row.seq is not None:
                correct = trace.correct and spell.is_last
                if view and views.own.get(view) == spell.lineage and counts(correct, row):
                    if view not in found or row.seq > found[view].place:
                        found[view] = Highest(row.seq, message_of(row), key)
    return found


def gone_back(
    views: Succession, highest: Mapping[str, Highest], always: Mapping[str, Highest]
) -> Iterator[Finding]:
    """Where a view begins before what was delivered in one that leads to it; before what counts
    always, where the group did not go on with the view."""
    for before, after in views.steps():
        here, there = views.place[after], views.place[before]
        if here is None:
            continue
        key, text = views.installed[after], f"view {after} at {here}, after"
        most = (highest if views.went_on(before, after) else always).get(before)
        if most is not None and most.place > here:
            yield Finding(key, most.message, most.key, f"{text} place {most.place} in {before}")
        if there is not None and there > here:
            yield Finding(key, "", views.installed[before], f"{text} {before} at {there}")


def every_place(history: History) -> Iterator[Finding]:
    """Sequence numbers are contiguous: none is skipped that no member has a message for.

    At life q let *before* be as in `gap_free`. A delivery of m at the place N, or a view at N that
    has no cut, breaks the law when no life of the same lineage delivered a message, or installed a
    view, at a place K above before and below N: `place K, which nobody has`, for the smallest K.
    Named are q and m (nothing for a view). Before q's first place nothing is asked.
    """
    spells = history.derived(Spells)
    known: dict[str, set[int]] = {}
    for key, trace in history.lives.items():
        for row in trace.events:
            if row.kind != "send" and row.seq is not None:
                known.setdefault(spells.at(key, row.step).lineage, set()).add(row.seq)
    ends = {name: _ends_of_runs(places) for name, places in known.items()}
    for key, trace in history.lives.items():
        for row, before in _jumps(trace):
            mine = spells.at(key, row.step).lineage
            places, runs = known[mine], ends[mine]
            hole = before + 1
            if hole in places:
                hole = runs[bisect_left(runs, hole)] + 1
            if row.seq is not None and hole < row.seq:
                message = message_of(row) if row.kind == "deliver" else ""
                yield Finding(key, message, "", f"place {hole}, which nobody has")


def _ends_of_runs(places: set[int]) -> list[int]:
    """The last of places that follow each other."""
    return sorted(place for place in places if place + 1 not in places)


def _jumps(trace: IncarnationTrace) -> Iterator[tuple[Row, int]]:
    """Deliveries and views at a place, with the largest place before; not those with a cut."""
    before: int | None = None
    for row in trace.events:
        if row.kind == "send" or row.seq is None:
            continue
        if before is not None and not (row.kind == "view" and cut_of(row.detail)):
            if row.seq > before:
                yield row, before
        before = row.seq if before is None else max(before, row.seq)


def gap_free(history: History) -> Iterator[Finding]:
    """No member skips the sequence number of an ordered message, even if it fails afterwards.

    At life q let *before* be the largest place that it delivered or that a view of it had, so far.
    A delivery of m at the place N, or a view at N that has no cut, breaks the law when a life of
    the same lineage delivered a message of level agreed or above at a place K above before, and
    below N (of a view: at most N), and q has delivered nothing at K, earlier or later: `without
    place K`, for the smallest K. Named are q, m (nothing for a view), and as the other the message
    at K at the smallest such life. Before q's first place or view with a place nothing is asked.
    """
    spells = history.derived(Spells)
    known: dict[str, dict[int, str]] = {}
    for key, trace in history.lives.items():
        for message, row in zip(trace.messages, trace.deliveries, strict=True):
            if row.seq is not None and level_of(row.service) >= AGREED:
                mine = known.setdefault(spells.at(key, row.step).lineage, {})
                mine.setdefault(row.seq, message)
    rising = {name: sorted(places) for name, places in known.items()}
    for key, trace in history.lives.items():
        own = {row.seq for row in trace.deliveries}
        for row, before in _jumps(trace):
            name = spells.at(key, row.step).lineage
            hole = _hole(row, before, rising.get(name, []), own)
            if hole is not None:
                message = message_of(row) if row.kind == "deliver" else ""
                yield Finding(key, message, known[name][hole], f"without place {hole}")


def _hole(row: Row, before: int, places: list[int], own: set[int | None]) -> int | None:
    """The first of these places that was passed over just before a delivery or view."""
    assert row.seq is not None
    at = bisect_right(places, before)
    while at < len(places) and places[at] < row.seq + (row.kind == "view"):
        if places[at] not in own:
            return places[at]
        at += 1
    return None
