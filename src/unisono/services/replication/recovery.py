"""[TRA-28] From the records of a log to the state of a replica, and to its green updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from unisono.services.replication.order import Submissions, UpdateOrder
from unisono.services.replication.records import (
    CheckpointRecord,
    GreenRecord,
    GreenRunsRecord,
    KeptRecord,
    LogCheckpoint,
    RedRecord,
    Update,
    VotingRecord,
    read_record,
)
from unisono.services.replication.voting import PrimaryChoice


class LogReplay:
    """Reads a log once, at a start."""

    def __init__(
        self, name: str, order: UpdateOrder, submissions: Submissions, choice: PrimaryChoice
    ) -> None:
        self._name = name
        self._order = order
        self._submissions = submissions
        self._choice = choice

    def run(self, records: Iterable[bytes]) -> None:
        own: list[Update] = []
        kept = 0
        for record in map(read_record, records):
            if isinstance(record, VotingRecord):
                self._choice.recall(record.vote)
            elif isinstance(record, KeptRecord):
                kept += len(record.updates)
            elif isinstance(record, CheckpointRecord):
                self._order.adopt(record.checkpoint, kept)
                kept = 0
            elif isinstance(record, RedRecord):
                for update in record.updates:
                    self._order.mark_red(update)
                    if update.submitter == self._name:
                        own.append(update)
            elif isinstance(record, GreenRecord):
                for update in record.updates:
                    self._order.mark_green(update)
            elif isinstance(record, GreenRunsRecord):
                for run in record.runs:
                    for _ in range(run.first, run.last + 1):
                        self._order.mark_green(self._order.next_red(run.submitter))
        if own:
            self._submissions.recall(own[0].number, own[-1].number)
        self._submissions.know(self._order.cuts.get(self._name, 0))


def greens_of(records: Iterable[bytes]) -> Iterator[Update | LogCheckpoint]:
    """The green order of a log: a checkpoint, if there is one, and the updates after it."""
    return (each for each in _order_of(records) if not isinstance(each, KeptRecord))


def placed_greens(records: Iterable[bytes]) -> Iterator[tuple[int, Update]]:
    """The green updates of a log with their positions, also those that it keeps before a
    checkpoint. After a checkpoint of another replica they begin anew, behind a gap."""
    position, kept = 0, list[Update]()
    for each in _order_of(records):
        if isinstance(each, KeptRecord):
            kept += each.updates
        elif isinstance(each, LogCheckpoint):
            yield from enumerate(kept, each.position - len(kept) + 1)
            position, kept = each.position, []
        else:
            position += 1
            yield position, each


def _order_of(records: Iterable[bytes]) -> Iterator[Update | LogCheckpoint | KeptRecord]:
    reds: dict[tuple[str, int], Update] = {}
    for record in map(read_record, records):
        if isinstance(record, CheckpointRecord):
            yield record.checkpoint
        elif isinstance(record, KeptRecord):
            yield record
        elif isinstance(record, RedRecord):
            reds.update({(each.submitter, each.number): each for each in record.updates})
        elif isinstance(record, GreenRecord):
            yield from record.updates
        elif isinstance(record, GreenRunsRecord):
            for run in record.runs:
                for number in range(run.first, run.last + 1):
                    yield reds.pop((run.submitter, number))
