"""How a log numbers the group's messages, and where two logs differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class LogEpoch(NamedTuple):
    """A stretch of a log in which offset = base + the sequence number in this incarnation of the
    group."""

    incarnation: str
    base: int
    begins: int
    """The offset after the gap row that opens it; of a log's first stretch, 1."""


class Counting(NamedTuple):
    """The stretches of a log, up to the offset `end`."""

    stretches: tuple[LogEpoch, ...] = ()
    end: int = 0

    def at(self, offset: int) -> LogEpoch | None:
        """The stretch of an offset, including the row that opens it; None if unknown."""
        return next((s for s in reversed(self.stretches) if s.begins - 1 <= offset), None)

    def diverges_at(self, other: Counting) -> int | None:
        """The first offset at which the two logs differ; None if they agree as far as both go."""
        if not self.stretches or not other.stretches:
            return None
        # The oldest stretches are forgotten, by one log sooner than by the other.
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
        """The stretches of these offsets."""
        under = self.at(first)
        later = [s for s in self.stretches if first < s.begins <= upto + 1]
        return later if under is None or under in later else [under, *later]


class FeedMeta(NamedTuple):
    """What a feed keeps in the metadata of its log."""

    group: str
    stretches: tuple[LogEpoch, ...]
    lost: int = 0
    """The last offset of the last stretch that is lost."""
    opening: int = 0
    """The offsets up to this one were lost before there was a feed."""

    def encoded(self) -> str:
        return json.dumps(self._asdict())


def meta_of(text: str) -> FeedMeta:
    """`ValueError` if the text is not a feed's."""
    try:
        saved = json.loads(text)
        stretches = stretches_of(saved["stretches"])
        lost, opening = int(saved["lost"]), int(saved["opening"])
        return FeedMeta(str(saved["group"]), stretches, lost, opening)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError("malformed metadata of a feed") from None


def stretches_of(saved: Iterable[Sequence[Any]]) -> tuple[LogEpoch, ...]:
    """From JSON."""
    return tuple(
        LogEpoch(str(incarnation), int(base), int(begins)) for incarnation, base, begins in saved
    )
