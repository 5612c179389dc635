"""Offsets of a stream: an offset in the log, and the epoch of the log that it is in.

`{"place": 1234, "life": …, "base": 0}`: everything up to 1234 was read, and offset 1234 was message
1234 - base of this incarnation of the group. Another log has another message there.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from unisono.feed.epochs import Counting

PLACE, LIFE, BASE = "place", "life", "base"
Offset = dict[str, Any]
OFFSET_MAX: Final = (1 << 62) - 1


class Resumed(NamedTuple):
    """Where reading a log continues."""

    after: int
    lost: str = ""
    """Why that is not where the offset points."""


def offset_at(place: int, counting: Counting) -> Offset:
    """Before the first offset there is no epoch."""
    epoch = counting.at(place) if place else None
    return (
        {PLACE: place}
        if epoch is None
        else {PLACE: place, LIFE: epoch.incarnation, BASE: epoch.base}
    )


def resumed(offset: Offset, counting: Counting, first: int) -> Resumed:
    """Where a log that counts so has what follows the offset. An offset without an epoch is taken
    as it is."""
    place, life, base = int(offset[PLACE]), offset.get(LIFE), offset.get(BASE)
    epoch = counting.at(place)
    if life is None or base is None or epoch is None or epoch[:2] == (life, base):
        return Resumed(place)
    lost = (
        f"the query has read up to offset {place}, message {place - base} of the group's"
        f" incarnation {life}; in this log that offset is message {place - epoch.base} of"
        f" incarnation {epoch.incarnation}: it is not the log that was read before"
    )
    return Resumed(_same_message(life, place - base, counting, first), lost)


def _same_message(life: str, count: int, counting: Counting, first: int) -> int:
    """The offset of a message, or the beginning of a log that does not have it."""
    upto = OFFSET_MAX
    for epoch in reversed(counting.stretches):
        if epoch.incarnation == life and epoch.begins - 1 <= epoch.base + count:
            return min(epoch.base + count, upto)
        upto = epoch.begins - 2
    return first - 1
