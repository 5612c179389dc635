"""Offsets of a stream: a place, and the stretch of the log that it is in.

`{"place": 1234, "life": …, "base": 0}` says that all up to 1234 was read, and that 1234 was there
the message 1234 - base of this life of the group. Another log has something else at that place.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from unisono.feed.epochs import Counting

PLACE, LIFE, BASE = "place", "life", "base"
Offset = dict[str, Any]
PLACE_MAX: Final = (1 << 62) - 1


class Resumed(NamedTuple):
    """Where a log is read on."""

    after: int
    lost: str = ""
    """Why that is not where the offset says, if so."""


def offset_at(place: int, counting: Counting) -> Offset:
    """Before the first place there is nothing to tell logs apart by."""
    its = counting.at(place) if place else None
    return {PLACE: place} if its is None else {PLACE: place, LIFE: its.life, BASE: its.base}


def resumed(offset: Offset, counting: Counting, first: int) -> Resumed:
    """Where what follows the offset is in a log that counts so. An offset without a life, as they
    once were, is taken at its word."""
    place, life, base = int(offset[PLACE]), offset.get(LIFE), offset.get(BASE)
    its = counting.at(place)
    if life is None or base is None or its is None or its[:2] == (life, base):
        return Resumed(place)
    lost = (
        f"the query has read up to place {place}, message {place - base} of the group's life"
        f" {life}; in this log that place is in life {its.life}, at its message {place - its.base}:"
        " it is not the log that was read before"
    )
    return Resumed(_same(life, place - base, counting, first), lost)


def _same(life: str, count: int, counting: Counting, first: int) -> int:
    """Where this log has what comes next in this life; its begin, if it knows nothing of it."""
    upto = PLACE_MAX
    for stretch in reversed(counting.stretches):
        if stretch.life == life and stretch.begins - 1 <= stretch.base + count:
            return min(stretch.base + count, upto)
        upto = stretch.begins - 2
    return first - 1
