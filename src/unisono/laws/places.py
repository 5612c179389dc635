"""The laws of places: which message stands where in the one order of a group."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from unisono.laws.verdict import Violation
from unisono.trace.checks import LEVELS, level_of
from unisono.trace.history import History, Life, cut_of, message_of
from unisono.trace.record import Row

AGREED = LEVELS["agreed"]
FOUNDED, PARTED = "founded", "parted"


def tells(row: Row, what: str) -> bool:
    """Whether the view says that this happened."""
    return any(change.partition(" ")[0] == what for change in row.changes or ())


def own_views(life: Life) -> tuple[Row, ...]:
    """The views of a life from the last on that has the change `parted`; else all."""
    starts = [at for at, row in enumerate(life.views) if tells(row, PARTED)]
    return life.views[starts[-1] :] if starts else life.views


def lineages(history: History) -> dict[str, str]:
    """By life, which numbering its places belong to.

    Only a life's views from the last on count that has the change `parted`, if there is one: a part
    that was let go on by itself counts on its own. Lives that installed the same of these views are
    of one lineage, and so on: it is named by its smallest life. A lineage to which no view with the
    change `founded` or `parted` belongs goes on from another one: when there is exactly one that
    has such a view, and it is `founded`, it is of that one. Otherwise, of which is not known, and
    it is not compared with others.
    """
    parent = {key: key for key in history.lives}

    def root(key: str) -> str:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    first: dict[str, str] = {}
    for key, life in history.lives.items():
        for row in own_views(life):
            one, two = sorted((root(key), root(first.setdefault(row.view, key))))
            parent[two] = one
    begun = {
        root(key)
        for key, life in history.lives.items()
        if any(tells(row, FOUNDED) or tells(row, PARTED) for row in own_views(life))
    }
    founded = any(tells(row, FOUNDED) for life in history.lives.values() for row in own_views(life))
    if len(begun) == 1 and founded:
        (only,) = begun
        return {key: only if life.inside else key for key, life in history.lives.items()}
    return {key: root(key) for key in history.lives}


def one_place(history: History) -> list[Violation]:
    """A place never holds two safe messages, and a safe message never has two places.

    Of all lives, whatever became of them; and of correct ones every message of level agreed or
    above counts: nobody that goes on gives a safe message's place to another. Lives of one lineage
    count from the same founding (see `lineages`); only these are compared. Of each lineage and
    place, and of each lineage and message, the smallest life that delivered such a message so, at
    its first such delivery, is the reference.
    - `place N holds M there`: this life delivered m at the place N, and the reference (the other)
      another message M.
    - `place N here, K there`: this life delivered m at the place N, and the reference (the other)
      at K.
    """

    def counts(life: Life, row: Row) -> bool:
        return row.service == "safe" or (life.correct and level_of(row.service) >= AGREED)

    return _placed("one_place", history, counts)


def uniform_order(history: History) -> list[Violation]:
    """As `one_place`, of all ordered messages: even those who fail right after agree on places."""
    return _placed("uniform_order", history, lambda _, row: level_of(row.service) >= AGREED)


def _placed(law: str, history: History, counts: Callable[[Life, Row], bool]) -> list[Violation]:
    lineage = lineages(history)
    holds: dict[tuple[str, int], tuple[str, str]] = {}
    stands: dict[tuple[str, str], tuple[str, int]] = {}
    found: set[Violation] = set()
    for key, life in history.lives.items():
        mine = lineage[key]
        for row in life.deliveries:
            if row.seq is None or not counts(life, row):
                continue
            message, place = message_of(row), row.seq
            other, held = holds.setdefault((mine, place), (key, message))
            if held != message:
                detail = f"place {place} holds {held} there"
                found.add(Violation(law, history.run, key, message, other, detail))
            other, stood = stands.setdefault((mine, message), (key, place))
            if stood != place:
                detail = f"place {place} here, {stood} there"
                found.add(Violation(law, history.run, key, message, other, detail))
    return sorted(found)


def gap_free(history: History) -> list[Violation]:
    """Nobody passes over a place that holds an ordered message, whatever becomes of it then.

    At life q let *before* be the largest place that it delivered or that a view of it had, so far.
    A delivery of m at the place N, or a view at N that has no cut, breaks the law when a life of
    the same lineage delivered a message of level agreed or above at a place K above before, and
    below N (of a view: at most N), and q has delivered nothing at K, earlier or later: `without
    place K`, for the smallest K. Named are q, m (nothing for a view), and as the other the message
    at K at the smallest such life. Before q's first place or view with a place nothing is asked.
    """
    lineage = lineages(history)
    known: dict[str, dict[int, str]] = {}
    for key, life in history.lives.items():
        mine = known.setdefault(lineage[key], {})
        for row in life.deliveries:
            if row.seq is not None and level_of(row.service) >= AGREED:
                mine.setdefault(row.seq, message_of(row))
    rising = {name: sorted(places) for name, places in known.items()}
    found: set[Violation] = set()
    for key, life in history.lives.items():
        places = rising[lineage[key]]
        for row, hole in _holes(life, places):
            other = known[lineage[key]][hole]
            detail = f"without place {hole}"
            message = message_of(row) if row.kind == "deliver" else ""
            found.add(Violation("gap_free", history.run, key, message, other, detail))
    return sorted(found)


def _holes(life: Life, places: list[int]) -> list[tuple[Row, int]]:
    """Deliveries and views with the first place that was passed over just before them."""
    own = {row.seq for row in life.deliveries}
    found: list[tuple[Row, int]] = []
    before: int | None = None
    for row in life.told:
        if row.kind == "send" or row.seq is None:
            continue
        asked = before is not None and not (row.kind == "view" and cut_of(row.detail))
        if asked and before is not None and row.seq > before:
            at = bisect_right(places, before)
            while at < len(places) and places[at] < row.seq + (row.kind == "view"):
                if places[at] not in own:
                    found.append((row, places[at]))
                    break
                at += 1
        before = row.seq if before is None else max(before, row.seq)
    return found
