"""How a log counts: which of the group's messages stands at a place, and where two logs differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class LogEpoch(NamedTuple):
    """A part of a log in which place = base + the count of this life of the group."""

    life: str
    base: int
    begins: int
    """The place after the gap row that opens it; of a log's first stretch, 1."""


class Counting(NamedTuple):
    """What is known of a log: how it counts, up to this place."""

    stretches: tuple[LogEpoch, ...] = ()
    end: int = 0

    def at(self, place: int) -> LogEpoch | None:
        """The stretch of a place, the row that opens it included; nothing where it is not known."""
        return next((s for s in reversed(self.stretches) if s.begins - 1 <= place), None)

    def parts_from(self, other: Counting) -> int | None:
        """The first place at which the other has something else than we; nothing if, as far as
        both have come, the same message has the same place."""
        if not self.stretches or not other.stretches:
            return None
        # The oldest are forgotten at some time, by one of them sooner than by the other.
        first = max(self.stretches[0].begins, other.stretches[0].begins)
        upto = min(self.end, other.end)
        if first > upto + 1:
            return None
        ours, theirs = (each._turns(first, upto) for each in (self, other))
        for at in range(max(len(ours), len(theirs))):
            pair = ours[at : at + 1] + theirs[at : at + 1]
            if len(pair) < 2 or pair[0] != pair[1]:
                return max(first, min(s.begins for s in pair) - 1)
        return None

    def _turns(self, first: int, upto: int) -> list[LogEpoch]:
        """The stretches of these places."""
        under = self.at(first)
        later = [s for s in self.stretches if first < s.begins <= upto + 1]
        return later if under is None or under in later else [under, *later]


class Books(NamedTuple):
    """What a feed writes down beside its log."""

    group: str
    stretches: tuple[LogEpoch, ...]
    lost: int = 0
    """The last place of the last stretch that is lost."""
    opening: int = 0
    """Up to here the log begins with what was lost before there was a feed."""

    def written(self) -> str:
        return json.dumps(self._asdict())


def books_of(text: str) -> Books:
    """`ValueError` when that is not what a feed wrote."""
    try:
        told = json.loads(text)
        stretches = stretches_of(told["stretches"])
        lost, opening = (int(told.get(name, 0)) for name in ("lost", "opening"))
        return Books(str(told["group"]), stretches, lost, opening)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError("what the feed knew is not readable") from None


def stretches_of(told: Iterable[Sequence[Any]]) -> tuple[LogEpoch, ...]:
    """From what was written down or sent."""
    return tuple(LogEpoch(str(life), int(base), int(begins)) for life, base, begins in told)
