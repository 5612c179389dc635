"""[TRA-28] The log of one replica on disk: records in the order of the effects, and where the
updates of the green order are among them."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from unisono.errors import BadPacket, Forgotten, Misuse
from unisono.net.stable import RECORD_FILES, Disk, FileWords, RecordFile, StableFile, records_in
from unisono.services.replication.records import (
    CheckpointRecord,
    GreenRecord,
    GreenRunsRecord,
    IdentityRecord,
    KeptRecord,
    LogCheckpoint,
    RedRecord,
    Update,
    read_record,
    record_bytes,
)
from unisono.services.replication.recovery import placed_greens

VERSION: Final = 1
FILE: Final = "replica.log"
BYTES_MAX: Final = 1 << 40
WORDS: Final = FileWords(
    "replica log",
    "let a member remove() this one, then add() it again with another path; an older copy must not"
    " take its place",
    "start this replica again",
)


def placed_updates(directory: Path | str) -> Iterator[tuple[int, Update]]:
    """The green updates of a replica's log, which may be in use, with their positions in order."""
    return placed_greens(records_in(Path(directory) / FILE))


class ReplicaFile:
    """The file, and an index of its green updates: their content stays on the disk."""

    def __init__(
        self,
        directory: Path | str,
        group: str,
        name: str,
        founders: Sequence[str],
        disk: Disk | None = None,
    ) -> None:
        self.path = Path(directory) / FILE
        simulated = RECORD_FILES.get()
        self.is_simulated = simulated is not None
        self._file: RecordFile = (
            StableFile(self.path, BYTES_MAX, disk, WORDS)
            if simulated is None
            else simulated(self.path)
        )
        self._clear()
        try:
            self._open(group, name, tuple(sorted(founders)))
        except BaseException:
            self._file.close()
            raise

    def _clear(self) -> None:
        self.base = 0
        """The green updates after this position are here."""
        self._places, self._indexes = array("Q"), array("Q")
        """By green position, the place of its record in the file, and its own in the record."""
        self._kept_count = 0
        self._red: dict[tuple[str, int], tuple[int, int]] = {}
        self._read: tuple[int, tuple[Update, ...]] = (-1, ())
        """The record that was read last."""

    def _open(self, group: str, name: str, founders: tuple[str, ...]) -> None:
        found: IdentityRecord | None = None
        for at, record in self._file.located():
            if found is None:
                found = self._identity_in(record)
            self._index(at, record)
        if found is None:
            found = IdentityRecord(VERSION, group, name, secrets.randbits(63), founders)
            self._file.append(record_bytes(found))
        self.identity = found
        for what, here, given in (
            ("group", found.group, group),
            ("member", found.name, name),
        ):
            if here != given:
                raise Misuse(
                    f"{self.path} is the log of {what} {here!r}, not of {given!r}: give"
                    " each its own path"
                )
        if found.members != founders:
            raise Misuse(
                f"{self.path}: the group began with members={list(found.members)}, not"
                f" {list(founders)}: give those with which it began; add() and remove() change them"
            )

    def _identity_in(self, record: bytes) -> IdentityRecord:
        try:
            found = read_record(record)
        except BadPacket:
            found = None
        if not isinstance(found, IdentityRecord):
            raise Misuse(
                f"{self.path} is not the log of a replica, or it has lost its beginning: give"
                " another path; a replica whose log is lost is removed from the group, and added"
            )
        if found.version != VERSION:
            raise Misuse(f"{self.path} has version {found.version}; this one reads {VERSION} only")
        return found

    def records(self) -> Iterator[bytes]:
        """All but the identity, oldest first."""
        located = self._file.located()
        next(located)
        return (record for _, record in located)

    @property
    def nbytes(self) -> int:
        return self._file.nbytes

    # -- writing --------------------------------------------------------------------------------

    def write(self, records: Sequence[bytes]) -> list[int]:
        """Returns when they are durable, and where they are; else raises `StorageFailed`. May run
        in another thread; `index` follows."""
        return self._file.append(*records)

    def index(self, places: Sequence[int], records: Sequence[bytes]) -> None:
        for at, record in zip(places, records, strict=True):
            self._index(at, record)

    def replace(self, records: Iterable[bytes]) -> None:
        """These instead of all others, atomically."""
        self._file.replace(record_bytes(self.identity), *records)
        self._clear()
        for at, record in self._file.located():
            self._index(at, record)

    def _index(self, at: int, encoded: bytes) -> None:
        record = read_record(encoded)
        if isinstance(record, RedRecord):
            for index, update in enumerate(record.updates):
                self._red[update.submitter, update.number] = at, index
        elif isinstance(record, GreenRecord | KeptRecord):
            self._kept_count += len(record.updates) * isinstance(record, KeptRecord)
            for index in range(len(record.updates)):
                self._add(at, index)
        elif isinstance(record, GreenRunsRecord):
            for run in record.runs:
                for number in range(run.first, run.last + 1):
                    self._add(*self._red.pop((run.submitter, number)))
        elif isinstance(record, CheckpointRecord):
            self._start_at(record.checkpoint)

    def _add(self, at: int, index: int) -> None:
        self._places.append(at)
        self._indexes.append(index)

    def _start_at(self, checkpoint: LogCheckpoint) -> None:
        """What was kept leads up to it; before that of another member there is a gap."""
        kept, self._kept_count = self._kept_count, 0
        if not kept:
            self._places, self._indexes = array("Q"), array("Q")
        self.base = checkpoint.position - kept
        cuts = dict(checkpoint.cuts)
        self._red = {key: place for key, place in self._red.items() if key[1] > cuts.get(key[0], 0)}

    # -- reading --------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The last green position."""
        return self.base + len(self._places)

    def greens(self, first: int, last: int) -> list[Update]:
        """The updates at these positions."""
        if first <= self.base:
            raise Forgotten(f"{self.path}: the log begins after position {self.base}")
        return [self._green(position - self.base - 1) for position in range(first, last + 1)]

    def _green(self, at: int) -> Update:
        place = self._places[at]
        if self._read[0] != place:
            self._read = place, read_record(self._file.read(place)).updates
        return self._read[1][self._indexes[at]]

    def close(self) -> None:
        self._file.close()
