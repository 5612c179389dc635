"""Stable storage: an append file of records, each synced before the effects that follow it."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from zlib import crc32

from unisono.errors import Misuse

HEAD = struct.Struct("<II")


class Stable:
    """Records of a member's lives, oldest first. A torn tail is cut off when the file is opened."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._path, "a+b", buffering=0)  # noqa: SIM115
            self.records, whole = self._read()
            self._file.truncate(whole)
        except OSError as error:
            raise Misuse(
                f"stable file {str(path)!r}: {error.strerror}; give a writable path"
            ) from None

    def _read(self) -> tuple[tuple[bytes, ...], int]:
        self._file.seek(0)
        text = self._file.read() or b""
        found, at = [], 0
        while at + HEAD.size <= len(text):
            size, check = HEAD.unpack_from(text, at)
            record = text[at + HEAD.size : at + HEAD.size + size]
            if len(record) < size or crc32(record) != check:
                break
            found.append(record)
            at += HEAD.size + size
        return tuple(found), at

    def append(self, record: bytes) -> None:
        """Returns when the record is safe."""
        self._file.write(HEAD.pack(len(record), crc32(record)) + record)
        os.fsync(self._file.fileno())

    def replace(self, record: bytes) -> None:
        """Put this one in place of all; a crash leaves those or this one."""
        beside = self._path.with_name(self._path.name + ".new")
        with open(beside, "wb", buffering=0) as file:
            file.write(HEAD.pack(len(record), crc32(record)) + record)
            os.fsync(file.fileno())
        os.replace(beside, self._path)
        self._file.close()
        self._file = open(self._path, "a+b", buffering=0)  # noqa: SIM115

    def close(self) -> None:
        self._file.close()
