"""Whether sequences of messages fit into one order, on columns: the messages that lie on a circle.

M is before m when some sequence has M before m. The relation has a circle when no order of all
messages has every sequence in it, though any two sequences may agree. Most sequences are parts of
the longest one. So only what the longest does not have is looked at one by one: of the longest, the
messages right before and right after it are enough, as long as no sequence goes against it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from unisono.laws.cycles import knots
from unisono.spark.laws.columns import Array


def on_circles(sequences: Sequence[Array], count: int) -> Array:
    """The messages, of numbers below `count`, that are before themselves. No sequence has a message
    twice."""
    longest = max(sequences, key=len, default=np.empty(0, np.int64))
    place = np.full(count, -1, np.int64)
    place[longest] = np.arange(len(longest))
    rest = [each for each in sequences if each is not longest and len(each)]
    if all(_with_the_longest(place[each]) for each in rest):
        rest = [_touching(each, place) for each in rest]
        touched = np.unique(np.concatenate([*rest, np.empty(0, np.int64)]))
        main = touched[place[touched] >= 0]
        sequences = [main[np.argsort(place[main])], *rest]
    edges: dict[int, set[int]] = {}
    for each in sequences:
        listed = each.tolist()
        for before, after in itertools.pairwise(listed):
            edges.setdefault(before, set()).add(after)
    found = [_whole(np.array(knot, np.int64), place, longest) for knot in knots(edges)]
    return np.unique(np.concatenate([*found, np.empty(0, np.int64)]))


def _whole(knot: Array, place: Array, longest: Array) -> Array:
    """With all of the longest that stands between two messages of the knot."""
    places = place[knot]
    places = places[places >= 0]
    between = longest[places.min() : places.max() + 1] if len(places) else places
    return np.concatenate([knot, between])


def _with_the_longest(places: Array) -> bool:
    """Whether what a sequence shares with the longest stands there in the same order."""
    shared = places[places >= 0]
    return bool((np.diff(shared) > 0).all())


def _touching(sequence: Array, place: Array) -> Array:
    """What the longest does not have, and the messages right before and after it."""
    alone = place[sequence] < 0
    wanted = alone.copy()
    wanted[:-1] |= alone[1:]
    wanted[1:] |= alone[:-1]
    return sequence[wanted]
