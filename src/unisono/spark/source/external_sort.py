"""Sorts the rows of a partition, on disk where they are too many for memory."""

from __future__ import annotations

import heapq
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import IO, Final

from unisono.spark.source.payloads import Entry

MEMORY_BYTES: Final = 64 << 20
"""Of rows, held by a task before it writes them to a temporary file."""
ROW_BYTES: Final = 300
"""Overhead per row besides its payload."""
CHUNK_ROWS: Final = 1000


class ExternalSort(ExitStack):
    """Add entries in any order, then iterate over the payloads in the order of the entries."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        super().__init__()
        self._memory_bytes = memory_bytes
        self._entries: list[Entry] = []
        self._nbytes = 0
        self.runs: list[IO[bytes]] = []
        """Sorted runs on disk."""

    def add(self, entries: list[Entry]) -> None:
        self._entries += entries
        self._nbytes += sum(len(payload) + ROW_BYTES for _, payload in entries)
        if self._nbytes > self._memory_bytes:
            self._spill()

    def _spill(self) -> None:
        self._entries.sort()
        run = tempfile.TemporaryFile(prefix="unisono-")  # noqa: SIM115 - closed with the stack
        self.enter_context(run)
        self.runs.append(run)
        for start in range(0, len(self._entries), CHUNK_ROWS):
            pickle.dump(self._entries[start : start + CHUNK_ROWS], run, pickle.HIGHEST_PROTOCOL)
        self._entries, self._nbytes = [], 0

    def __iter__(self) -> Iterator[bytes]:
        self._entries.sort()
        for _, payload in heapq.merge(*map(_read, self.runs), self._entries):
            yield payload


def _read(run: IO[bytes]) -> Iterator[Entry]:
    run.seek(0)
    while True:
        try:
            yield from pickle.load(run)
        except EOFError:
            return


def batched(payloads: Iterator[bytes], count: int) -> Iterator[list[bytes]]:
    while batch := list(islice(payloads, count)):
        yield batch
