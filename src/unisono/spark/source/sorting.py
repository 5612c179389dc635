"""Puts a partition's rows in order, on disk where they are too many for memory."""

from __future__ import annotations

import heapq
import pickle
import tempfile
from collections.abc import Iterator
from itertools import islice
from types import TracebackType
from typing import IO, Final, Self

from unisono.spark.source.payloads import Entry

MEMORY_BYTES: Final = 64 << 20
"""Of rows, held by a task before it writes them to a temporary file."""
ROW_BYTES: Final = 300
"""What a row costs beside its payload."""
CHUNK_ROWS: Final = 1000


class Sorting:
    """Add entries in any order, then iterate: the payloads come in the order of the entries."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._held: list[Entry] = []
        self._bytes = 0
        self._runs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for run in self._runs:
            run.close()

    @property
    def runs_count(self) -> int:
        """Files that were needed."""
        return len(self._runs)

    def add(self, entries: list[Entry]) -> None:
        self._held += entries
        self._bytes += sum(len(payload) + ROW_BYTES for _, payload in entries)
        if self._bytes > self._memory_bytes:
            self._put_down()

    def _put_down(self) -> None:
        self._held.sort()
        run = tempfile.TemporaryFile(prefix="unisono-")  # noqa: SIM115 - closed on leaving
        self._runs.append(run)
        for start in range(0, len(self._held), CHUNK_ROWS):
            pickle.dump(self._held[start : start + CHUNK_ROWS], run, pickle.HIGHEST_PROTOCOL)
        self._held, self._bytes = [], 0

    def __iter__(self) -> Iterator[bytes]:
        self._held.sort()
        runs = [_read(run) for run in self._runs]
        for _, payload in heapq.merge(*runs, iter(self._held)):
            yield payload


def _read(run: IO[bytes]) -> Iterator[Entry]:
    run.seek(0)
    while True:
        try:
            yield from pickle.load(run)
        except EOFError:
            return


def cut(payloads: Iterator[bytes], count: int) -> Iterator[list[bytes]]:
    """In lists of so many."""
    while part := list(islice(payloads, count)):
        yield part
