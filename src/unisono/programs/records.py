"""The stable storage of a simulated program's services."""

from __future__ import annotations

from collections.abc import Iterator


class NodeRecords:
    """Those of one node, which survive its crashes: a `RecordFile`."""

    def __init__(self, records: list[bytes]) -> None:
        self._records = records

    @property
    def nbytes(self) -> int:
        return sum(map(len, self._records))

    def located(self) -> Iterator[tuple[int, bytes]]:
        return enumerate(tuple(self._records))

    def append(self, *records: bytes) -> list[int]:
        first = len(self._records)
        self._records.extend(records)
        return list(range(first, len(self._records)))

    def read(self, at: int) -> bytes:
        return self._records[at]

    def replace(self, *records: bytes) -> None:
        self._records[:] = records

    def close(self) -> None: ...
