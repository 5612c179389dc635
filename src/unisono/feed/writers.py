"""The writers that a log has rows of: up to which row, by query and partition.

A group remembers its writers as long as it lives; the log remembers them for longer. What a writer
sends again after the group was founded anew is not multicast a second time. The table is kept in
the log's metadata and changes in the transaction that appends the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from unisono.log import Log
from unisono.model import Message
from unisono.replay_history import WRITERS_COUNT_MAX, SinkMessage

PREFIX: Final = "writer "
FORGOTTEN_COUNT: Final = 1024
"""So many are forgotten at once, the oldest, when there are too many."""

Partition: TypeAlias = tuple[str, int]
"""Query and partition."""


class LastRow(NamedTuple):
    epoch: int
    row: int
    offset: int
    """Of the log; orders the writers by age."""


class Writers:
    """Remembered from the log, and noted before each append."""

    def __init__(self, log: Log) -> None:
        self._last: dict[Partition, LastRow] = {}
        for key, value in log.metas(PREFIX):
            partition, _, query = key.removeprefix(PREFIX).partition(" ")
            self._last[query, int(partition)] = LastRow(*map(int, value.split()))
        self._pending: tuple[int, Mapping[Partition, tuple[int, int]]] = (0, {})
        """What the group knew when we joined it, and the offset up to which its rows are."""

    def last(self, query: str, partition: int) -> tuple[int, int] | None:
        """The last epoch and row that the log holds; None if unknown."""
        found = self._last.get((query, partition))
        return found[:2] if found is not None else None

    def expect(self, offset: int, known: Mapping[Partition, tuple[int, int]]) -> None:
        """The group knows these writers; their rows are in the log once it holds this offset."""
        self._pending = (offset, known)

    def lose(self) -> None:
        """Offsets are lost, and whose rows they were is not known."""
        self._pending = (0, {})

    def note(self, messages: Iterable[Message], base: int, end: int) -> dict[str, str | None]:
        """The changes of the metadata when these are appended to a log without holes up to
        `end`."""
        rows: dict[Partition, LastRow] = {}
        upto, known = self._pending
        if known and end >= upto:
            rows = {key: LastRow(*last, upto) for key, last in known.items()}
            self._pending = (0, {})
        for message in messages:
            if isinstance(message, SinkMessage) and message.source is not None:
                query, partition, epoch = message.source
                offset = base + (message.seq or 0)
                rows[query, partition] = LastRow(epoch, message.row, offset)
        fresh = {key: row for key, row in rows.items() if row > self._last.get(key, ())}
        self._last |= fresh
        changed: dict[str, str | None] = {
            _key_of(key): f"{row.epoch} {row.row} {row.offset}" for key, row in fresh.items()
        }
        return changed | self._forgotten()

    def _forgotten(self) -> dict[str, None]:
        if len(self._last) <= WRITERS_COUNT_MAX:
            return {}
        oldest = sorted(self._last, key=lambda key: self._last[key].offset)[:FORGOTTEN_COUNT]
        for key in oldest:
            del self._last[key]
        return dict.fromkeys(map(_key_of, oldest))


def _key_of(key: Partition) -> str:
    return f"{PREFIX}{key[1]} {key[0]}"
