"""Whether sequences of messages fit into one total order, on columns.

M is before m when some sequence has M before m. The relation has a cycle when no total order
contains all sequences, even if any two sequences agree. Most sequences are parts of the longest.
So only what the longest does not have is examined: of the longest, the messages right before and
after it are enough, as long as no sequence contradicts it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from unisono.laws.cycles import knots
from unisono.trace.columns import Array


def on_cycles(sequences: Sequence[Array], count: int) -> Array:
    """The messages, of numbers below `count`, that are before themselves. No sequence has a message
    twice."""
    none = np.empty(0, np.int64)
    longest = max(sequences, key=len, default=none)
    index = np.full(count, -1, np.int64)
    index[longest] = np.arange(len(longest))
    rest = [each for each in sequences if each is not longest and len(each)]
    if all(_agrees(index[each]) for each in rest):
        rest = [_not_in_longest(each, index) for each in rest]
        touched = np.unique(np.concatenate([*rest, none]))
        shared = touched[index[touched] >= 0]
        sequences = [shared[np.argsort(index[shared])], *rest]
    edges: dict[int, set[int]] = {}
    for each in sequences:
        for before, after in itertools.pairwise(each.tolist()):
            edges.setdefault(before, set()).add(after)
    found = [none]
    for component in knots(edges):
        on_cycle = np.array(component, np.int64)
        shared = index[on_cycle]
        shared = shared[shared >= 0]
        # With all of the longest between two of its messages.
        between = longest[shared.min() : shared.max() + 1] if len(shared) else none
        found += [on_cycle, between]
    return np.unique(np.concatenate(found))


def _agrees(index: Array) -> bool:
    """Whether what a sequence shares with the longest is in the same order there."""
    return bool((np.diff(index[index >= 0]) > 0).all())


def _not_in_longest(sequence: Array, index: Array) -> Array:
    """What the longest does not have, and the messages right before and after it."""
    alone = index[sequence] < 0
    wanted = alone.copy()
    wanted[:-1] |= alone[1:]
    wanted[1:] |= alone[:-1]
    return sequence[wanted]
